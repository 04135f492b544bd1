"""Given: what a launch's counters look like in lab 05, and the causes that `explain` may name.

Nothing here is a task. A *request* is one warp executing one load or store: up to 32 lanes, `size`
bytes each. The fields are those of the report that a launch of a `.cu` file prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Cause = Literal["uncoalesced_load", "uncoalesced_store", "bank_conflict", "divergence", "none"]

UNCOALESCED_LOAD: Cause = "uncoalesced_load"
UNCOALESCED_STORE: Cause = "uncoalesced_store"
BANK_CONFLICT: Cause = "bank_conflict"
DIVERGENCE: Cause = "divergence"
NONE: Cause = "none"


@dataclass(frozen=True)
class AccessRow:
    """All requests of one kind that one line of a kernel made to one array.

    kind: "read", "write" or "atomic". space: "global" or "shared". size: bytes a lane. requests,
    lanes: how many, in all. sectors: pieces of 32 bytes that the requests touched in global memory;
    ideal_sectors: how few could hold the same words. wavefronts: passes through shared memory;
    ideal_wavefronts: how few it could have been. Sectors of a shared row are 0, and so are
    wavefronts of a global one.
    """

    line: int
    kind: str
    space: str
    array: str
    size: int
    requests: int
    lanes: int
    sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int


@dataclass(frozen=True)
class KernelReport:
    """One launch. threads: of a block. flow_requests: how often a warp ran a basic block (a stretch
    of code without a branch); flow_lanes: lanes that took part in those, in all."""

    blocks: int
    threads: int
    accesses: tuple[AccessRow, ...]
    flow_requests: int
    flow_lanes: int
