"""Beside the learner's code: what happens to a list of ours."""


def doubled(student, values):
    student.double_in_place(values)
    return values
