"""What is graded at a time: one submission's files for one lab."""

from __future__ import annotations

import msgspec

FEEDBACK = ("full", "diagnosis", "names")


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
    """Tests in which this unit's files ended a grading process at its last limit."""
