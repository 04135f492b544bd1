"""What can go wrong in a grading run that is nobody's grade."""

from __future__ import annotations


class CallError(Exception):
    """The call cannot be carried out; the text is a sentence for the instructor (exit status 2)."""


class Infrastructure(Exception):
    """The kit or the machine failed while a unit was graded: tried again, then listed, never a
    grade."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
