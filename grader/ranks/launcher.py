"""`run` and `outcome`: start ranks by fork or spawn, supervise them, and clean up."""

from __future__ import annotations

import dataclasses
import gc
import inspect
import multiprocessing
import os
import pickle
import shutil
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from grader.errors import MeasurementDisturbed
from grader.ranks.member import (
    Rank,
    RankPlan,
    be_rank,
    get_ready_to_fork,
    noting_placeholders,
    random_state,
)
from grader.ranks.rank_faults import plain
from grader.ranks.supervisor import (
    InDoubt,
    RankProcess,
    RanksError,
    Results,
    Supervisor,
    UncheckedSupervisor,
)
from grader.sandbox.channel import Channel


def run(
    fn: Rank,
    world_size: int = 2,
    args: Sequence[Any] = (),
    timeout_s: float = 20.0,
    method: str = "",
    checked: bool = True,
) -> Results:
    """`[fn(rank, world_size, *args) for rank in range(world_size)]`, each in its own process.

    `fn` may be a closure; its result must be plain data: numbers, strings, bytes, containers,
    NumPy arrays, CPU tensors of any dtype, dataclasses. Collectives give up after 3/4 of
    `timeout_s`, everything ends at `timeout_s` (seconds).

    `method`: "fork", "spawn", or "" for the one that is safe here. `checked`: torch compares each
    collective across ranks. That makes a collective wait, as it is issued, for all ranks to issue
    theirs, which hides which rank could have gone on meanwhile, adds about a kilobyte to what is
    sent, and takes longer than the collective. So forked ranks first run without it, and what they
    noted is compared at the end: only where a rank fails, waits or calls something else than the
    others are all of them run again, checked. So `fn` may run twice, each time in fresh processes;
    what ranks share on disk belongs into `own_folder()`. `checked=False`: a single run without the
    check, in which a wrong shape ends the process.

    Raises RanksError with the traceback of every rank that raised, and the place where each rank
    hung, exited or crashed; ValueError for a world size below 1; RuntimeError where processes
    cannot be forked or torch has no gloo, or where they must be spawned and `fn` is a closure.
    """
    if world_size < 1:
        raise ValueError(f"world_size is {world_size}; a run needs at least one rank.")
    _require_fork_and_gloo()
    start = _spawn if _must_spawn(fn, args, method) else _fork
    state = random_state(forked=start is _fork)

    def attempt(checked: bool, supervisor: type[Supervisor]) -> Results:
        folder = Path(tempfile.mkdtemp(prefix="ranks-"))
        ranks: list[RankProcess] = []
        try:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            get_ready_to_fork()
            for rank in range(world_size):
                plan = RankPlan(fn, rank, world_size, args, folder, timeout_s, checked, state)
                ranks.append(start(plan, ranks))
            return supervisor(ranks, folder, timeout_s, _records(fn)).results()
        finally:
            for child in ranks:
                child.kill()
            for child in ranks:
                child.collect()
            shutil.rmtree(folder, ignore_errors=True)

    if checked and start is _fork and "TORCH_DISTRIBUTED_DEBUG" not in os.environ:
        with suppress(InDoubt):
            return attempt(False, UncheckedSupervisor)
    return attempt(checked, Supervisor)


def outcome(
    fn: Rank,
    world_size: int = 2,
    args: Sequence[Any] = (),
    *,
    timeout_s: float = 60.0,
    checked: bool = True,
) -> dict[str, Any]:
    """`run` for a probe: plain data, also about a failure, usually the learner's.

    `ranks`: what each rank returned; `sent_bytes`, `received_bytes`, `sent_to`, `growth_bytes`: as
    in `Results`. Without a result these are empty and `fault` is the first of the `rank_faults`, as
    plain data; `expect.returned` makes a sentence of it. If a rank raised MeasurementDisturbed or
    the NotImplementedError of a placeholder, this raises the same.
    """
    outside = ("sent_bytes", "received_bytes", "sent_to", "growth_bytes")
    try:
        found = run(noting_placeholders(fn), world_size, args, timeout_s=timeout_s, checked=checked)
    except RanksError as error:
        if missing := [fault.placeholder for fault in error.failed if fault.placeholder]:
            raise NotImplementedError(missing[0]) from None
        if any(fault.disturbed for fault in error.failed):
            raise MeasurementDisturbed(error.last_lines()) from None
        first = (*error.deadlocks, *error.failed)[0]
        return {"fault": plain(first), "ranks": [], **{name: [] for name in outside}}
    if placeholders := [item["missing"] for item in found if "missing" in item]:
        raise NotImplementedError(placeholders[0])
    seen = {name: list(getattr(found, name)) for name in outside}
    return {"fault": None, "ranks": [item["value"] for item in found], **seen}


def _require_fork_and_gloo() -> None:
    import torch.distributed as dist

    if not hasattr(os, "fork"):
        raise RuntimeError("Ranks need os.fork, which this system does not have; use Linux or WSL.")
    if not (dist.is_available() and dist.is_gloo_available()):
        raise RuntimeError("This build of torch has no gloo, so ranks cannot talk to each other.")


def _must_spawn(fn: Rank, args: Sequence[Any], method: str) -> bool:
    """Whether to start ranks as fresh interpreters. Where a fork may work, a function that cannot
    be sent to another interpreter is forked."""
    if method not in ("", "fork", "spawn"):
        raise ValueError(f'method is {method!r}; it is "fork", "spawn" or "".')
    broken, doubtful = _forks_badly()
    if method == "fork" or not (method or broken or doubtful):
        return False
    try:
        pickle.dumps((fn, args))
    except Exception as error:
        if not (method or broken):
            return False
        why = broken or "spawning was asked for"
        raise RuntimeError(
            f"Ranks must be spawned here, because {why}, and {getattr(fn, '__name__', fn)!r} cannot"
            f" be sent to a new interpreter ({error}); put it at the top of a module."
        ) from None
    return True


def _forks_badly() -> tuple[str, str]:
    """Why a fork of this process cannot work, and why it is doubtful; "" if it is fine.

    OpenMP threads of the parent do not matter: a forked child hangs in the first operation that
    uses more than one thread (torch 2.13), but a rank never does. A CUDA context only breaks a rank
    that uses CUDA itself, and then torch reports it.
    """
    import torch
    import torch.distributed as dist

    broken = doubtful = ""
    if dist.is_initialized():
        broken = "this process is in a process group itself"
    if torch.cuda.is_initialized():
        doubtful = "a child cannot use the CUDA context that this process has"
    elif sys.platform == "darwin":
        doubtful = "macOS frameworks do not all survive a fork"
    return broken, doubtful


def _records(fn: Rank) -> dict[str, type]:
    """The dataclasses in the function's module: ranks may return them."""
    names = getattr(inspect.unwrap(fn), "__globals__", {}).values()
    kinds = [item for item in names if isinstance(item, type) and dataclasses.is_dataclass(item)]
    return {kind.__name__: kind for kind in kinds}


def _fork(plan: RankPlan, earlier: list[RankProcess]) -> RankProcess:
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        with suppress(OSError):  # both sides set it: one is first
            os.setpgid(pid, pid)
        return RankProcess(plan.rank, pid, Channel(ours))
    status = 1
    try:
        ours.close()
        for child in earlier:
            child.channel.close()
        gc.freeze()  # a collection would touch, and so copy, every page of the parent's objects
        be_rank(plan, parent, Channel(theirs))
        status = 0
    finally:
        os._exit(status)


def _spawn(plan: RankPlan, earlier: list[RankProcess]) -> RankProcess:
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("spawn").Process(
        target=_spawned, args=(plan, os.getpid(), theirs), daemon=True
    )
    process.start()
    theirs.close()
    assert process.pid is not None
    return RankProcess(plan.rank, process.pid, Channel(ours), process=process)


def _spawned(plan: RankPlan, parent: int, theirs: socket.socket) -> None:
    status = 1
    try:
        be_rank(plan, parent, Channel(theirs))
        status = 0
    finally:
        os._exit(status)
