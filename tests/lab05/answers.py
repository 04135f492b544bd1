"""Many questions in one round trip, judged together: the first wrong answer is the message, and all
of them tell which mistake it is."""

from __future__ import annotations

import numpy as np

from grader.suite import expect


def asked(student, function, rows):
    """{what is asked: the learner's answer}. `rows`: the same texts to arguments."""
    got = student.map(function, rows.values())
    return {text: _plain(answer) for text, answer in zip(rows, got, strict=True)}


def agree(got, want, because, notes=None):
    """Every answer is the one wanted. `notes`: a line to add to the message of one that is not."""
    wrong = []
    for text, right in want.items():
        try:
            expect.equal(got[text], right, because=because, what=text)
        except expect.Failure as failure:
            wrong.append((text, failure))
    if wrong:
        text, first = wrong[0]
        lines = [*first.lines, notes[text]] if notes else [*first.lines]
        lines.append(f"({len(wrong)} of {len(want)} answers are wrong; this is the first)")
        raise expect.Failure(first.kind, lines, got, because)


def _plain(answer):
    """NumPy's integers and pairs as Python's."""
    if isinstance(answer, np.ndarray | np.generic):
        answer = answer.tolist()
    return tuple(map(_plain, answer)) if isinstance(answer, list | tuple) else answer
