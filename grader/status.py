"""What a test and a task can come to: the words and marks of each, and what counts as a pass.

The values stand in results, reports and notes, and stay as they are.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

_NOT_STARTED = ("not_started", "not started", "o")
_NOT_RUN = ("not_run", "not run", "-")
_NOT_VERIFIED = ("not_verified", "not verified here", "v")


class _Status(StrEnum):
    """`words`: what a learner reads; `mark`: the sign on the board and pytest's letter."""

    _value_: str
    words: str
    mark: str

    def __new__(cls, value: str, words: str = "", mark: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_, member.words, member.mark = value, words, mark
        return member


class TestStatus(_Status):
    """What one case of a test came to. Those without a mark have pytest's own words and letters."""

    __test__ = False  # not pytest's to collect

    PASSED = "passed"
    FAILED = "failed"  # a wrong answer, or student code raised
    ERROR = "error"  # no answer: files that do not import, a crash, a fault of the kit
    TIMEOUT = ("timeout", "timed out")
    NOT_STARTED = _NOT_STARTED  # the placeholder still stands
    NOT_RUN = _NOT_RUN
    NOT_VERIFIED = _NOT_VERIFIED  # this machine lacks what the test needs

    @property
    def is_pass(self) -> bool:
        return self is TestStatus.PASSED

    @property
    def is_attempt(self) -> bool:
        """Whether it says that there was something to test."""
        return self not in (TestStatus.NOT_STARTED, TestStatus.NOT_RUN, TestStatus.NOT_VERIFIED)

    @property
    def asks_for_work(self) -> bool:
        """Whether it is a reason for missing points that the learner can remove."""
        return self not in (TestStatus.PASSED, TestStatus.NOT_VERIFIED)

    @property
    def may_be_of_a_skeleton(self) -> bool:
        """Whether a test of an untouched task may end so."""
        return self in (TestStatus.NOT_STARTED, TestStatus.NOT_VERIFIED)

    @property
    def may_be_diagnosed(self) -> bool:
        return self in (TestStatus.FAILED, TestStatus.ERROR)

    @property
    def pytest_words(self) -> tuple[str, str, str] | None:
        """Category, letter and word of pytest's report; None where they are pytest's own."""
        word = self.value.replace("_", " ").upper()
        return (self.words, self.mark, word) if self.mark else None


class TaskStatus(_Status):
    """What a task came to. Only `DONE` and `PARTIAL` have points; those of `NOT_VERIFIED` stand
    apart; `PUBLIC_ONLY` is of a release that holds no other tests; `NOT_RUN` is never in a
    result."""

    DONE = ("done", "done", "+")
    PUBLIC_ONLY = ("public_only", "passes the public tests", "p")  # hidden ones decide the points
    PARTIAL = ("partial", "partly", "~")  # every gate passes, not every step
    WRONG = ("wrong", "wrong", "x")
    NOT_STARTED = _NOT_STARTED
    NOT_VERIFIED = _NOT_VERIFIED
    DISTURBED = ("disturbed", "measurement disturbed", "!")  # for a person to look at
    NOT_RUN = _NOT_RUN

    @property
    def asks_for_work(self) -> bool:
        """Whether the learner can still get points here."""
        return self not in (TaskStatus.DONE, TaskStatus.PUBLIC_ONLY, TaskStatus.NOT_VERIFIED)


def points_text(value: float) -> str:
    """Points as people write them: at most two decimals, none where there are none."""
    return f"{round(value, 2):g}"
