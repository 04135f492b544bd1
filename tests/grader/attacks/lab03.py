"""Lab 03: collectives that another one did, logs that student code writes, a library under another
name."""

from __future__ import annotations

from .lab_attack import LabAttack

# The probe's row of what the meter saw is overwritten when the rank's function returns.
_FORGED_RING = """
import sys
def ring_all_reduce_(flat, group=None):
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    members = dist.get_process_group_ranks(group or dist.group.WORLD)
    DEED
    chunks = flat.tensor_split(size)
    sends = [chunks[(rank - step) % size].nbytes for step in range(size - 1)]
    sends += [chunks[(rank + 1 - step) % size].nbytes for step in range(size - 1)]
    frame = sys._getframe()
    while frame.f_code.co_name != "rank_does":
        frame = frame.f_back
    row = frame.f_locals["row"]
    def forge(frame, event, value):
        if event == "return":
            row.update(sends=sends, to=[members[(rank + 1) % size]], others=[])
        return forge
    frame.f_trace = forge
    sys.settrace(lambda *given: None)
    return sum(sends)
"""
_BY_LINK = r"sent .* to rank \d, by the kernel's count"

ATTACKS = [
    LabAttack(
        "all-reduce-behind-a-forged-log",
        "ring_all_reduce_",
        "the library's all_reduce, and a log of sends that student code wrote",
        _FORGED_RING.replace("DEED", "dist.all_reduce(flat, group=group)"),
        mark=r"your code used `torch\.distributed\.distributed_c10d\.all_reduce`",
    ),
    LabAttack(
        "all-reduce-by-link",
        "ring_all_reduce_",
        "the same where nothing is forbidden: only the kernel's counters are left",
        _FORGED_RING.replace("DEED", "dist.all_reduce(flat, group=group)"),
        mark=_BY_LINK,
        passes=("test_every_rank_has_the_same_sum",),
        lifts_forbids=True,
    ),
    LabAttack(
        "reduce-and-broadcast-by-link",
        "ring_all_reduce_",
        "a reduce to one rank and a broadcast from it, told as a ring",
        _FORGED_RING.replace(
            "DEED",
            "dist.reduce(flat, members[0], group=group);"
            " dist.broadcast(flat, members[0], group=group)",
        ),
        mark=_BY_LINK,
        passes=("test_every_rank_has_the_same_sum",),
        lifts_forbids=True,
    ),
]
