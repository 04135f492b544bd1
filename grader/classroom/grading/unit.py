"""What is graded at a time: one submission's files for one lab."""

from __future__ import annotations

import msgspec

from grader.classroom.intake.submissions import Submission

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
    attempt: int = 0
    """Of a student's attempts at the lab, the number in the gradebook; 0 without one."""
    shares_seed: bool = True
    """Whether others who hand in the lab have the same seed."""
    ended: tuple[str, ...] = ()
    """Where this unit's files ended a grading process at its last limit: tests, or `DIAGNOSIS`."""

    @classmethod
    def of(
        cls,
        student: str,
        taken: Submission,
        *,
        key: str,
        seed: str,
        tier: str,
        feedback: str,
        attempt: int = 0,
        shares_seed: bool = True,
    ) -> Unit:
        return cls(
            student=student,
            lab=taken.lab,
            files=taken.files,
            refused=taken.refused,
            missing=sorted(taken.missing),
            digests=taken.digests,
            notes=list(taken.notes),
            key=key,
            seed=seed,
            tier=tier,
            feedback=feedback,
            attempt=attempt,
            shares_seed=shares_seed,
        )

    @property
    def identity(self) -> tuple[str, str, int]:
        """What no other unit of a run has."""
        return self.student, self.lab, self.attempt

    @property
    def ended_tests(self) -> tuple[str, ...]:
        return tuple(test for test in self.ended if test != DIAGNOSIS)
