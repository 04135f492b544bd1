"""Functions on N ranks: what comes back, what a failure says, what is left behind."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from grader import meters, ranks
from grader.ranks import deadlock, launcher

F32 = 4
BIG = torch.randn(200, 200)


@dataclass
class Report:
    rank: int
    total: Any


def _talk(rank: int, world_size: int, bias: float) -> Any:
    import torch.distributed as dist

    total = torch.full((3,), rank + bias)
    dist.all_reduce(total)
    parts = [torch.zeros(2) for _ in range(world_size)]
    dist.all_gather(parts, torch.full((2,), float(rank)))
    work = dist.isend(torch.tensor([rank]), (rank + 1) % world_size)
    heard = torch.zeros(1, dtype=torch.int64)
    dist.recv(heard, (rank - 1) % world_size)
    work.wait()
    return Report(rank, {"total": total, "parts": parts, "heard": heard, "array": np.arange(rank)})


@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_talk_and_return_plain_data(world_size: int) -> None:
    if world_size == 1:
        assert ranks.run(lambda rank, n: (rank, n), 1) == [(0, 1)]
        return
    torch.randn(300, 300) @ torch.randn(300, 300)  # the parent has used its OpenMP threads
    results = ranks.run(_talk, world_size, (0.5,))
    for rank, report in enumerate(results):
        assert type(report) is Report
        assert report.rank == rank
        want = sum(range(world_size)) + 0.5 * world_size
        assert report.total["total"].tolist() == [want] * 3
        assert [p.tolist() for p in report.total["parts"]] == [[r, r] for r in range(world_size)]
        assert report.total["heard"].item() == (rank - 1) % world_size
        assert report.total["array"].tolist() == list(range(rank))


@pytest.fixture
def left_behind(tmp_path: Path, monkeypatch: Any) -> Callable[[], Any]:
    """Files in the temporary folder and children of this process."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    children = Path(f"/proc/self/task/{threading.get_native_id()}/children")
    return lambda: (list(tmp_path.iterdir()), children.exists() and children.read_text().split())


def test_every_traceback_is_in_the_error(left_behind: Any) -> None:
    def fails(rank: int, world_size: int) -> None:
        raise ValueError(f"rank {rank} is unhappy")

    before = left_behind()
    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(fails, 2)
    assert sorted(caught.value.texts) == [0, 1]
    for rank, text in caught.value.texts.items():
        assert f"ValueError: rank {rank} is unhappy" in text
        assert "in fails" in text
        assert str(Path(ranks.__file__).parent) not in text
        assert text.rstrip() in str(caught.value)
    assert left_behind() == before


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda: os._exit(3), "Rank 1 exited with status 3"),
        (os.abort, "Rank 1 was ended by SIGABRT"),
        (sys.exit, "SystemExit"),
    ],
)
def test_a_rank_that_ends_is_named_first(end: Any, words: str, left_behind: Any) -> None:
    import torch.distributed as dist

    before = left_behind()
    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(lambda rank, n: end() if rank == 1 else dist.barrier(), 2)
    assert next(iter(caught.value.texts)) == 1
    assert words in caught.value.texts[1]
    assert left_behind() == before


def _waits_for_nobody(rank: int, world_size: int) -> None:
    import time

    while rank == 1:
        time.sleep(1)


def test_a_hang_ends_at_the_deadline_and_says_where(left_behind: Any) -> None:
    before = left_behind()
    with pytest.raises(ranks.RanksError, match=r"1 of 2 ranks gave no result within 1 s") as caught:
        ranks.run(_waits_for_nobody, 2, timeout_s=1)
    assert list(caught.value.texts) == [1]
    assert "in _waits_for_nobody" in caught.value.texts[1]
    assert left_behind() == before


def test_the_rank_that_failed_comes_before_the_one_that_waits() -> None:
    def waits(rank: int, world_size: int) -> None:
        if rank == 1:
            raise ValueError("first")
        threading.Event().wait(60)

    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(waits, 2)
    assert list(caught.value.texts) == [1, 0]
    assert "in waits" in caught.value.texts[0]


def test_a_rank_has_one_thread_and_its_own_process() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        results = ranks.run(lambda rank, n: (torch.get_num_threads(), os.getpid()), 2)
    finally:
        torch.set_num_threads(before)
    assert [threads for threads, _ in results] == [1, 1]
    assert len({os.getpid(), *(pid for _, pid in results)}) == 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_are_the_same_however_they_start(
    method: str, tmp_path: Path, monkeypatch: Any
) -> None:
    import random

    lines = """
import random, torch, torch.distributed as dist

def fn(rank, world_size, bias):
    total = torch.full((3,), rank + bias)
    dist.all_reduce(total)
    torch.set_num_threads(2)
    return total, torch.get_num_threads(), float(torch.rand(1)), random.random()
"""
    (tmp_path / "ranks_of_a_module.py").write_text(lines)
    monkeypatch.syspath_prepend(str(tmp_path))
    import ranks_of_a_module  # type: ignore[import-not-found]

    random.seed(5)
    torch.default_generator.manual_seed(7)
    results = ranks.run(ranks_of_a_module.fn, 2, (0.5,), timeout_s=60, method=method)
    expected = float(torch.rand(1)), random.random()
    for total, threads, *drawn in results:
        assert (total.tolist(), threads, tuple(drawn)) == ([2.0] * 3, 1, expected)


def test_a_process_that_cannot_be_forked_spawns_or_says_why(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    with pytest.raises(RuntimeError, match=r"must be spawned here, because this process is in a"):
        ranks.run(lambda rank, n: rank, 2)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="method is 'thread'"):
        ranks.run(lambda rank, n: rank, 2, method="thread")


def test_a_cuda_context_spawns_what_can_be_sent_and_forks_the_rest(monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert ranks.run(lambda rank, n: rank, 2) == [0, 1]
    assert launcher._must_spawn(tuple, (), "")
    assert not launcher._must_spawn(lambda rank, n: rank, (), "")


def test_a_rank_cannot_take_more_threads_and_hang(capsys: Any) -> None:
    big = torch.ones(1 << 20)
    (big + 1).sum()  # the parent has used its OpenMP threads

    def works(rank: int, world_size: int) -> float:
        torch.set_num_threads(2)
        return float((big + rank).sum())

    assert ranks.run(works, 2) == [float(1 << 20), float(2 << 20)]
    assert "A rank keeps one thread: torch.set_num_threads(2)" in capsys.readouterr().out


def test_a_result_that_is_not_plain_data_is_refused() -> None:
    with pytest.raises(ranks.RanksError, match="return plain data"):
        ranks.run(lambda rank, n: object(), 2)


def test_children_of_a_rank_do_not_outlive_it(tmp_path: Path) -> None:
    def forks(rank: int, world_size: int) -> int:
        import time

        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        return child

    (child,) = ranks.run(forks, 1)
    state = Path(f"/proc/{child}/stat")
    for _ in range(200):
        if not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z":
            break
        threading.Event().wait(0.01)
    else:
        pytest.fail("the child of a rank is still there")


def test_prints_of_the_ranks_come_line_by_line(capsys: Any) -> None:
    def talks(rank: int, world_size: int) -> None:
        for line in range(20):
            print("rank", rank, "line", line)
        print("end", end="")

    ranks.run(talks, 2)
    out = capsys.readouterr().out
    assert out.count("end") == 2
    lines = [line for line in out.replace("end", "").splitlines() if line]
    assert sorted(lines) == sorted(f"rank {r} line {i}" for r in range(2) for i in range(20))


def test_the_parent_reads_each_ranks_memory() -> None:
    def grows(rank: int, world_size: int) -> None:
        block = torch.ones(rank * (48 << 20) // F32)
        del block

    results = ranks.run(grows, 2)
    if results.peak_rss_bytes[0] is None:
        pytest.skip("this system does not tell")
    small, large = results.growth_bytes
    assert small < 32 << 20
    assert 48 << 20 <= large < 80 << 20
    assert results.peak_rss_bytes[1] >= results.growth_bytes[1]


def test_arguments_of_the_parent_stay_as_they_are() -> None:
    x = torch.zeros(3)
    results = ranks.run(lambda rank, n, x: x.add_(rank + 1), 2, (x,))
    assert [r.tolist() for r in results] == [[1.0] * 3, [2.0] * 3]
    assert x.tolist() == [0.0] * 3


def test_meters_work_inside_ranks() -> None:
    with meters.live_bytes():
        torch.ones(3)

    def measured(rank: int, world_size: int) -> Any:
        with meters.live_bytes() as memory, meters.op_log() as ops:
            BIG @ BIG
        return memory.peak_bytes, memory.allocated_peak_bytes, ops.matmul_flops

    assert ranks.run(measured, 2) == [(160000, 160000, 2 * 200**3)] * 2


def test_distributed_data_parallel_runs_on_a_checked_group() -> None:
    def trains(rank: int, world_size: int) -> Any:
        torch.default_generator.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
        model(torch.full((1, 4), float(rank))).sum().backward()
        return model.module.weight.grad

    for gradient in ranks.run(trains, 2):
        assert gradient.tolist() == [[0.5] * 4] * 2


def test_a_world_without_ranks_is_refused() -> None:
    with pytest.raises(ValueError, match="world_size is 0"):
        ranks.run(lambda rank, n: None, 0)


# -- without torch's check first, and again where something is amiss -------------------------------


def noted(folder: Path, fn: Any) -> Any:
    """`fn`, and a file for each time that rank 0 runs it."""

    def noting(rank: int, world_size: int) -> Any:
        if rank == 0:
            (folder / str(os.getpid())).touch()
        return fn(rank, world_size)

    return noting


def runs_of(folder: Path) -> int:
    return len(list(folder.iterdir()))


def test_where_all_ranks_do_the_same_they_run_once_and_unchecked(tmp_path: Path) -> None:
    def reduced(rank: int, world_size: int) -> Any:
        t = torch.full((3,), float(rank))
        dist.all_reduce(t)
        return t.tolist(), dist.get_debug_level().name

    assert ranks.run(noted(tmp_path, reduced), 2) == [([1.0] * 3, "OFF")] * 2
    assert runs_of(tmp_path) == 1


def test_a_shape_that_gloo_does_not_compare_is_still_refused(tmp_path: Path) -> None:
    """gloo adds two tensors of six numbers, whatever their shapes; torch's check refuses them."""

    def reduced(rank: int, world_size: int) -> Any:
        dist.all_reduce(torch.ones(2, 3) if rank else torch.ones(6))
        return "returned"

    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(noted(tmp_path, reduced), 2, timeout_s=10)
    assert [type(fault).__name__ for fault in caught.value.deadlocks] == ["Differs"]
    assert runs_of(tmp_path) == 2


def test_ranks_that_wait_are_run_again(tmp_path: Path) -> None:
    def waits(rank: int, world_size: int) -> Any:
        if rank == 0:
            dist.all_reduce(torch.ones(2))
        return "returned"

    with pytest.raises(ranks.RanksError) as caught:
        ranks.run(noted(tmp_path, waits), 2, timeout_s=4)
    assert [type(fault).__name__ for fault in caught.value.deadlocks] == ["NeverJoined"]
    assert runs_of(tmp_path) == 2


def test_one_rank_that_fails_is_run_again_and_all_that_fail_alike_are_not(tmp_path: Path) -> None:
    def fails(rank: int, world_size: int) -> Any:
        raise ArithmeticError(f"rank {rank}")

    def one_fails(rank: int, world_size: int) -> Any:
        return fails(rank, world_size) if rank else "returned"

    for number, fn in enumerate((fails, one_fails), start=1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with pytest.raises(ranks.RanksError, match="ArithmeticError: rank 1"):
            ranks.run(noted(folder, fn), 2, timeout_s=10)
        assert runs_of(folder) == number


def test_notes_that_are_not_whole_are_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadlock, "_MOST_BYTES", 4096 + 500)

    def reduced(rank: int, world_size: int) -> str:
        for _ in range(20):
            dist.all_reduce(torch.ones(2))
        return dist.get_debug_level().name

    assert ranks.run(noted(tmp_path, reduced), 2) == ["DETAIL"] * 2
    assert runs_of(tmp_path) == 2


def test_a_second_run_has_a_folder_of_its_own_and_prints_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def leaves(rank: int, world_size: int) -> Any:
        dist.barrier()
        there = sorted(path.name for path in ranks.own_folder().iterdir())
        dist.barrier()
        (ranks.own_folder() / f"left by {rank}").touch()
        print(f"rank {rank} found {there}")
        dist.all_reduce(torch.ones(1 + rank))

    with pytest.raises(ranks.RanksError):
        ranks.run(noted(tmp_path, leaves), 2, timeout_s=10)
    assert runs_of(tmp_path) == 2
    assert sorted(capsys.readouterr().out.splitlines()) == ["rank 0 found []", "rank 1 found []"]


def test_only_a_rank_has_a_folder() -> None:
    with pytest.raises(RuntimeError, match="Only a rank"):
        ranks.own_folder()


def test_the_environment_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    names = ranks.run(noted(tmp_path, lambda *_: dist.get_debug_level().name), 2)
    assert (names, runs_of(tmp_path)) == (["DETAIL"] * 2, 1)


@pytest.mark.parametrize("meeting", [{0}, {1}, {0, 1, 2}])
def test_a_placeholder_ends_the_run(meeting: set[int], tmp_path: Path) -> None:
    """The run does not wait for ranks that wait for the one that met it, and nothing runs again.
    Each rank that meets it waits until all have begun: the run may end before a slow one begins."""
    begun = tmp_path / "begun"

    def fn(rank: int, size: int) -> None:
        with begun.open("a") as file:
            file.write(f"{rank}\n")
        if rank in meeting:
            while len(begun.read_text().split()) < size:
                time.sleep(0.005)
            raise NotImplementedError("lab03.find_unused")
        dist.all_reduce(torch.zeros(3))

    with pytest.raises(NotImplementedError, match=r"lab03\.find_unused"):
        ranks.outcome(fn, 3)
    assert sorted(begun.read_text().split()) == ["0", "1", "2"]


def test_what_else_is_not_implemented_is_an_error_of_its_own() -> None:
    def fn(rank: int, size: int) -> None:
        raise NotImplementedError("no complex gradients")

    with pytest.raises(NotImplementedError, match="no complex gradients"):
        ranks.outcome(fn, 2)
