"""Grading a class: submissions, grading runs, the gradebook, executors.

Nothing here imports `grader.learner`, and nothing there imports this.
"""
