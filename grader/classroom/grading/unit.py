"""What is graded at a time: one submission's files for one lab."""

from __future__ import annotations

import msgspec

FEEDBACK = ("full", "diagnosis", "names")
DIAGNOSIS = "the diagnosis"
"""Where a process is that looks for the causes of failures, after the tests."""


class Unit(msgspec.Struct, frozen=True):
    """All that a job needs to grade one submission's lab; it travels as MessagePack."""

    student: str
    lab: str
    files: dict[str, bytes]
    refused: dict[str, str]
    missing: list[str]
    digests: dict[str, str]
    notes: list[str]
    key: str
    seed: str
    tier: str
    feedback: str
    ended: tuple[str, ...] = ()
    """Where this unit's files ended a grading process at its last limit: tests, or `DIAGNOSIS`."""

    @property
    def ended_tests(self) -> tuple[str, ...]:
        return tuple(test for test in self.ended if test != DIAGNOSIS)
