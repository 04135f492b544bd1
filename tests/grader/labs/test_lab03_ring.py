"""Lab 03's ring is told from the library's collectives by the kernel's count alone: here the log
of sends is forged behind the meter's back, and what a task forbids is not looked at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grader.lab.manifest import find_root, load_lab
from grader.ranks import sockets
from grader.suite.model import load_suite
from grader.suite.run import reference_backend, run_case, seed_of

ROOT = find_root(Path(__file__))
TASK = "ring_all_reduce_"
BY_LINK = "test_a_rank_sends_its_share_to_its_neighbour_and_no_more"

# The probe's row of what the meter saw is overwritten when the rank's function returns.
FORGED = """    rank, size = dist.get_rank(group), dist.get_world_size(group)
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
DEEDS = {
    "all_reduce": "dist.all_reduce(flat, group=group)",
    "reduce_and_broadcast": "dist.reduce(flat, members[0], group=group);"
    " dist.broadcast(flat, members[0], group=group)",
}


@pytest.mark.parametrize("deed", DEEDS)
def test_a_collective_of_the_library_behind_a_forged_log_is_no_ring(
    tmp_path: Path, deed: str
) -> None:
    lab = load_lab(ROOT, "lab03")
    lab = replace(lab, tasks=tuple(replace(task, forbids=()) for task in lab.tasks))
    suite = load_suite(lab)
    lab.copy_to(tmp_path / "lab03")
    file = tmp_path / "lab03" / lab.task(TASK).file
    before, begin, rest = file.read_text().partition(f"    # BEGIN SOLUTION {TASK}\n")
    _, end, after = rest.partition("    # END SOLUTION")
    file.write_text(before + begin + FORGED.replace("DEED", DEEDS[deed]) + end + after)
    with reference_backend(suite, file.parent) as backend:
        outcomes = [
            run_case(suite, case, backend, file.parent, seed_of(case))
            for case in suite.cases_of(TASK)
            if case.test.gate
        ]
    failed = {each.case.test.name: each for each in outcomes if not each.status.is_pass}
    told = sockets.by_inode() is not None
    assert not told or BY_LINK in failed  # others may notice the forger
    if told:
        assert failed[BY_LINK].lines[0].startswith("rank 0 sent ")
        assert failed[BY_LINK].lines[0].endswith("to rank 3, by the kernel's count")
        assert failed[BY_LINK].lines[1] == "expected between 300,000 and 332,792 bytes to rank 1"
