"""Where a message sends the learner."""

from __future__ import annotations

import pytest

from grader.suite.messages import definition_line


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(): ...\n", 1),
        ("import x\nclass f:\n    pass\n", 2),
        ("async def f(): ...\n", 1),
        ("def f(): ...\n\ndef g(): ...\n\ndef f(): ...\n", 5),  # Python takes the last one
        ("def f(): ...\n\ndef g(): ...\n\nf = g\n", 5),
        ("def f(): ...\n\nf = cached(f)\n", 1),  # what it wraps is what is wrong
        ("def g():\n    def f(): ...\n", 1),
        ("def f(:\n", 1),
        ("", 1),
    ],
)
def test_the_definition_that_counts(source: str, line: int) -> None:
    assert definition_line(source, "f") == line
