"""Runs one function on N ranks: forked processes, gloo over a file store, deadlines everywhere.

    results = ranks.run(train, world_size=2, args=(seed,), timeout_s=20)
    results[1], results.peak_rss_bytes[1], results.sent_bytes[1]

A rank has one thread for good (a forked child that uses OpenMP threads after its parent did hangs),
joins a gloo group through a file, never a port, and waits for the parent's word. It is forked,
unless this process is in a process group: then ranks are spawned, which takes seconds and needs a
function at the top of a module. With a CUDA context, or on macOS (not tried), a function that can
be sent is spawned, any other is forked. Its result crosses as plain data (`grader.boundary.codec`),
its prints line by line. Then it waits until every rank is done, so that no peer loses its
connection, and ends with `os._exit`.

A rank ends with its parent, and takes the children of its process group along. What a rank forks
into a session of its own outlives it here; the wall's pid namespace ends that.

All ranks inherit the parent's random state, its modules and its arguments as they are at the call;
what they change stays with them; spawned ones get the random state and the arguments. Collectives
are checked against each other (`TORCH_DISTRIBUTED_DEBUG=DETAIL`) unless the environment says
otherwise. Each rank notes what it calls, so that a failure says who waits for whom (`blame`).
"""

from __future__ import annotations

import dataclasses
import faulthandler
import gc
import io
import multiprocessing
import os
import pickle
import random
import re
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from grader.boundary import codec
from grader.boundary.channel import Channel, Closed
from grader.boundary.errors import Refused
from grader.meters import blame, evidence, sockets

if sys.platform == "linux":  # imported here once, not by every rank after its fork
    from grader.boundary import linux

# After one rank has failed, the others get this long to fail too and say where they were.
GRACE_S = 1.0

Rank = Callable[..., Any]


class RanksError(Exception):
    """At least one rank gave no result. `texts[rank]` says why, for each of those, in the order in
    which they failed: processes that ended first, ranks that were still running last. `sentences`:
    who waited for whom in which collective, where that is known."""

    def __init__(self, summary: str, texts: dict[int, str], sentences: Sequence[str] = ()) -> None:
        parts = [f"--- rank {rank} ---\n{text.rstrip()}" for rank, text in texts.items()]
        super().__init__("\n".join([summary, *sentences, *parts]))
        self.texts = texts
        self.sentences = list(sentences)


class Results(list[Any]):
    """What each rank returned, by rank, with the memory of its process as the parent read it.

    `peak_rss_bytes[rank]`: the kernel's high-water mark while the function ran, what the rank
    shares with its parent included; `growth_bytes[rank]`: the part above its start. Up to 16 MiB of
    growth is code and tables that the rank touches for the first time, so use sizes where the wrong
    answer is at least 32 MiB larger.

    `sent_bytes[rank]`, `received_bytes[rank]`: payload of its process's TCP connections while the
    function ran, by the kernel's count (`sockets`). gloo adds at most 1 KiB to a collective of two
    ranks and 2 KiB to one of three, and the check of `checked` as much again; it sends a
    reduce_scatter as an all_reduce. A group that the function destroys takes its count along.

    None where the system does not tell (anything but Linux).
    """

    def __init__(
        self,
        values: Sequence[Any],
        memory: Sequence[tuple[int, int] | None],
        traffic: Sequence[sockets.Traffic | None],
    ) -> None:
        super().__init__(values)
        self.sent_bytes = [pair and pair.sent_bytes for pair in traffic]
        self.received_bytes = [pair and pair.received_bytes for pair in traffic]
        self.peak_rss_bytes = [pair and pair[1] for pair in memory]
        self.growth_bytes = [pair and max(pair[1] - pair[0], 0) for pair in memory]


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

    `method`: "fork", "spawn", or "" for the one that is safe here. `checked=False`: without torch's
    check of each collective, in which a collective waits, as it is issued, for all ranks to issue
    theirs. That hides who could have gone on meanwhile, and adds about a kilobyte to what is sent;
    without it a wrong shape ends the process, which the sentences still explain.

    Raises RanksError with the traceback of every rank that raised, and the place where each rank
    hung, exited or crashed; ValueError for a world size below 1; RuntimeError where processes
    cannot be forked or torch has no gloo, or where they must be spawned and `fn` is a closure.
    """
    if world_size < 1:
        raise ValueError(f"world_size is {world_size}; a run needs at least one rank.")
    _require_fork_and_gloo()
    start = _spawn if _must_spawn(fn, args, method) else _fork
    state = _random_state()
    folder = Path(tempfile.mkdtemp(prefix="ranks-"))
    ranks: list[_Child] = []
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _look_once()
        for rank in range(world_size):
            plan = _Plan(fn, rank, world_size, args, folder, timeout_s, checked, state)
            ranks.append(start(plan, ranks))
        return _Run(ranks, folder, timeout_s, _records(fn)).results()
    finally:
        for child in ranks:
            child.end()
        shutil.rmtree(folder, ignore_errors=True)


def outcome(
    fn: Rank,
    world_size: int = 2,
    args: Sequence[Any] = (),
    *,
    timeout_s: float = 60.0,
    checked: bool = True,
) -> dict[str, Any]:
    """`run` for a probe: plain data, also about a failure, which is the learner's as a rule.

    `ranks`: what each rank returned; `sent_bytes`, `received_bytes`, `growth_bytes`: as `Results`
    has them. Where there is no result, these are empty and `failure` is one sentence, the same for
    two who made the same mistake, and `where` the line that was theirs alone. A placeholder that a
    rank ran into (NotImplementedError) and MeasurementDisturbed are raised here, as if this process
    had.
    """
    outside = ("sent_bytes", "received_bytes", "growth_bytes")

    def guarded(rank: int, size: int, *rest: Any) -> dict[str, Any]:
        try:
            return {"value": fn(rank, size, *rest)}
        except NotImplementedError as missing:
            return {"missing": str(missing)}

    try:
        found = run(guarded, world_size, args, timeout_s=timeout_s, checked=checked)
    except RanksError as error:
        if missing := _NOT_STARTED.search(str(error)):
            raise NotImplementedError(missing[1]) from None
        if evidence.MeasurementDisturbed.__name__ in str(error):
            last = [text.strip().splitlines()[-1] for text in error.texts.values()]
            raise evidence.MeasurementDisturbed("; ".join(last)) from None
        failure, where = _told(error)
        return {"failure": failure, "where": where, "ranks": [], **{name: [] for name in outside}}
    if placeholders := [item["missing"] for item in found if "missing" in item]:
        raise NotImplementedError(placeholders[0])
    seen = {name: list(getattr(found, name)) for name in outside}
    return {"failure": "", "where": "", "ranks": [item["value"] for item in found], **seen}


_NOT_STARTED = re.compile(r"NotImplementedError: (lab\d\d\.\w+)")
_PLACE = re.compile(r" \([\w.]+, line \d+\)")


def _told(error: RanksError) -> tuple[str, str]:
    """A sentence without places, and the place."""
    if error.sentences:
        text = error.sentences[0]
        place = _PLACE.search(text)
        return _PLACE.sub("", text), place[0].strip(" ()") if place else ""
    rank, text = next(iter(error.texts.items()))
    places = re.findall(r'File "[^"]*?([\w.]+)", line (\d+)', text)
    where = ", line ".join(places[-1]) if places else ""
    return f"Rank {rank}: {text.strip().splitlines()[-1]}", where


def _require_fork_and_gloo() -> None:
    import torch.distributed as dist

    if not hasattr(os, "fork"):
        raise RuntimeError("Ranks need os.fork, which this system does not have; use Linux or WSL.")
    if not (dist.is_available() and dist.is_gloo_available()):
        raise RuntimeError("This build of torch has no gloo, so ranks cannot talk to each other.")


def _must_spawn(fn: Rank, args: Sequence[Any], method: str) -> bool:
    """Whether to start ranks as fresh interpreters. Where a fork is only doubtful, a function that
    cannot be sent to another interpreter is forked all the same."""
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
    """Why a fork of this process cannot work, and why it is doubtful; "" where it is fine.

    OpenMP threads of the parent are no reason: a forked child hangs in the first operation that
    uses more than one thread (torch 2.13), but a rank never does. A CUDA context only stands in the
    way of a rank that uses CUDA itself, and then torch says so.
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
    """The dataclasses that the function's module knows: ranks may return them."""
    names = getattr(fn, "__globals__", {}).values()
    kinds = [item for item in names if isinstance(item, type) and dataclasses.is_dataclass(item)]
    return {kind.__name__: kind for kind in kinds}


# --- the parent's side ---------------------------------------------------------------------------


@dataclasses.dataclass
class _Child:
    """One rank as its parent knows it. `reason`: why there is no result; "" while there may be."""

    rank: int
    pid: int
    channel: Channel
    state: str = "starting"
    value: Any = None
    reason: str = ""
    failed_at: float = 0.0
    before_bytes: int | None = None
    memory: tuple[int, int] | None = None
    connections: dict[int, sockets.Traffic] | None = None
    traffic: sockets.Traffic | None = None
    process: Any = None  # of multiprocessing, where it was spawned

    def end(self) -> None:
        """End the process and its group, and collect it."""
        self.channel.close()
        for target in (-self.pid, self.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)
        if self.process is not None:
            self.process.join()
            return
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def exited(self, within_s: float) -> Any:
        """What `waitid` tells of the ended process, left for `end` to collect; None: it goes on."""
        until = time.monotonic() + within_s
        while True:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is not None or time.monotonic() > until:
                return info
            time.sleep(0.002)

    def fate(self, folder: Path) -> str:
        """How the process ended that closed its channel."""
        info = self.exited(GRACE_S)
        if info is None:
            return f"Rank {self.rank} closed its connection to the kit."
        if info.si_code == os.CLD_EXITED:
            how = f"exited with status {info.si_status}"
        else:
            how = f"was ended by {signal.Signals(info.si_status).name}"
        return f"Rank {self.rank} {how} before it returned.\n{_stack(folder, self.rank)}"


class _Run:
    """Drives the ranks from `starting` over `running` and `returned` to their results."""

    def __init__(
        self, ranks: list[_Child], folder: Path, timeout_s: float, records: dict[str, type]
    ) -> None:
        self.ranks = ranks
        self.folder = folder
        self.timeout_s = timeout_s
        self.side = codec.Side(records=records, hold=None, handle=_no_handle, folder=None)
        self.deadline = time.monotonic() + timeout_s

    def results(self) -> Results:
        with selectors.DefaultSelector() as selector:
            for child in self.ranks:
                selector.register(child.channel, selectors.EVENT_READ, child)
            self._serve(selector, "running")
            now = sockets.by_inode()
            for child in self.ranks:
                child.before_bytes = _restart_peak(child.pid)
                child.connections = sockets.of_process(child.pid, now)
            for child in self.ranks:
                self._tell(child, "go")
            self._serve(selector, "returned")
            self._blame_silent()
        self._raise_reasons()
        now = sockets.by_inode()
        for child in self.ranks:
            after = sockets.of_process(child.pid, now)
            child.traffic = sockets.growth(child.connections, after)
        for child in self.ranks:
            self._tell(child, "end")
        for child in self.ranks:
            child.exited(GRACE_S)
        values, memory = [c.value for c in self.ranks], [c.memory for c in self.ranks]
        return Results(values, memory, [c.traffic for c in self.ranks])

    def _serve(self, selector: selectors.BaseSelector, state: str) -> None:
        """Take in frames until every rank is in `state`, or failed, or the time is over."""
        while any(child.state not in (state, "failed") for child in self.ranks):
            left = self.deadline - time.monotonic()
            if left <= 0:
                return
            for key, _ in selector.select(left):
                self._take(key.data)
                while key.data.state != "failed" and key.data.channel.pending:
                    self._take(key.data)
                if key.data.state == "failed":
                    selector.unregister(key.fileobj)
                    self.deadline = min(self.deadline, time.monotonic() + GRACE_S)

    def _take(self, child: _Child) -> None:
        """One frame of one rank."""
        try:
            message, buffers = child.channel.receive(self.deadline)
            kind, body = message
            if kind == "print":
                sys.stdout.write(str(body))
            elif kind == "ready":
                child.state = "running"
            elif kind == "result":
                child.memory = _peak(child)
                child.value = codec.decode(body, buffers, self.side)
                child.state = "returned"
            else:
                self._fail(child, str(body), time.monotonic())
        except (Closed, ConnectionError):
            self._fail(child, child.fate(self.folder), 0.0)
        except TimeoutError:
            return
        except (Refused, ValueError, TypeError) as error:
            self._fail(child, f"Its result cannot be read: {error}", time.monotonic())

    def _fail(self, child: _Child, reason: str, at: float) -> None:
        child.state, child.reason, child.failed_at = "failed", reason, at

    def _tell(self, child: _Child, word: str) -> None:
        with suppress(OSError):
            child.channel.send(word, [], time.monotonic() + GRACE_S)

    def _blame_silent(self) -> None:
        """Ask the ranks that have neither returned nor failed where they are."""
        silent = [child for child in self.ranks if child.state in ("starting", "running")]
        for child in silent:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR1)
        until = time.monotonic() + GRACE_S / 2
        while time.monotonic() < until and not all(_stack(self.folder, c.rank) for c in silent):
            time.sleep(0.01)
        for child in silent:
            where = _stack(self.folder, child.rank) or "  (it did not say)"
            child.reason = f"It had not returned; it was here:\n{where}"
            child.failed_at = until

    def _raise_reasons(self) -> None:
        """Raises RanksError unless every rank returned."""
        without = [child for child in self.ranks if child.reason]
        if not without:
            return
        summary = f"{len(without)} of {len(self.ranks)} ranks gave no result"
        if all(child.state != "failed" for child in without):
            summary += f" within {self.timeout_s:g} s"
        without.sort(key=lambda child: child.failed_at)
        notes = [blame.Notes.read(self.folder / f"calls-{c.rank}", c.state) for c in self.ranks]
        texts = {child.rank: child.reason for child in without}
        raise RanksError(f"{summary}.", texts, blame.sentences(notes))


def _stack(folder: Path, rank: int) -> str:
    """What faulthandler wrote: innermost call first, down to the rank's function; "" if nothing."""
    path = folder / f"stack-{rank}"
    text = path.read_text() if path.exists() else ""
    end = text.find(f'  File "{__file__}"')
    return text[:end] if end >= 0 else ""


def _no_handle(number: int, name: str) -> object:
    raise Refused(f"a {name} is not plain data")


def _restart_peak(pid: int) -> int | None:
    """Sets the kernel's high-water mark to what the process uses now, and returns that."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status_bytes(pid, "VmRSS")


def _peak(child: _Child) -> tuple[int, int] | None:
    peak = _status_bytes(child.pid, "VmHWM")
    if peak is None or child.before_bytes is None:
        return None
    return child.before_bytes, peak


def _status_bytes(pid: int, name: str) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


# --- a rank's side -------------------------------------------------------------------------------


@dataclasses.dataclass
class _Plan:
    """What a rank is to do."""

    fn: Rank
    rank: int
    world_size: int
    args: Sequence[Any]
    folder: Path
    timeout_s: float
    checked: bool
    random_state: dict[str, Any]


def _look_once() -> None:
    """What every rank would look up, and has found if it is forked from here."""
    from grader.meters import c10d

    c10d.ops()


def _fork(plan: _Plan, earlier: list[_Child]) -> _Child:
    ours, theirs = socket.socketpair()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        theirs.close()
        with suppress(OSError):  # both sides set it: whoever comes first
            os.setpgid(pid, pid)
        return _Child(plan.rank, pid, Channel(ours))
    status = 1
    try:
        ours.close()
        for child in earlier:
            child.channel.close()
        gc.freeze()  # a collection would touch, and so copy, every page of the parent's objects
        _be_rank(plan, parent, theirs)
        status = 0
    finally:
        os._exit(status)


def _spawn(plan: _Plan, earlier: list[_Child]) -> _Child:
    ours, theirs = socket.socketpair()
    process = multiprocessing.get_context("spawn").Process(
        target=_spawned, args=(plan, os.getpid(), theirs), daemon=True
    )
    process.start()
    theirs.close()
    assert process.pid is not None
    return _Child(plan.rank, process.pid, Channel(ours), process=process)


def _spawned(plan: _Plan, parent: int, theirs: socket.socket) -> None:
    status = 1
    try:
        _be_rank(plan, parent, theirs)
        status = 0
    finally:
        os._exit(status)


def _random_state() -> dict[str, Any]:
    import torch

    state = {"random": random.getstate(), "torch": torch.default_generator.get_state().numpy()}
    numpy = sys.modules.get("numpy")
    return state | ({"numpy": numpy.random.get_state()} if numpy else {})


def _set_random_state(state: dict[str, Any]) -> None:
    import torch

    random.setstate(state["random"])
    torch.default_generator.set_state(torch.from_numpy(state["torch"]))
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])


def _be_rank(plan: _Plan, parent: int, theirs: socket.socket) -> None:
    _settle(parent, plan.rank, plan.folder)
    _set_random_state(plan.random_state)  # Python itself seeds `random` anew after a fork
    _serve_rank(plan, Channel(theirs))


def _settle(parent: int, rank: int, folder: Path) -> None:
    """A process group of its own, the parent's fate, and a stack on request."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        with suppress(OSError):
            linux.end_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    stack = (folder / f"stack-{rank}").open("w")
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=False)
    faulthandler.enable(file=stack, all_threads=False)


def _serve_rank(plan: _Plan, channel: Channel) -> None:
    from grader.meters import c10d

    relay = _Relay(channel)
    sys.stdout = relay
    try:
        with _group(plan):
            c10d.TAP.add(blame.Notebook(plan.folder / f"calls-{plan.rank}"))
            relay.frame("ready", None)
            channel.receive()
            value = plan.fn(plan.rank, plan.world_size, *plan.args)
            side = codec.Side(records={}, hold=_refuse, handle=_no_handle)
            tree, buffers = codec.encode(value, side)
            relay.frame("result", tree, buffers)
            channel.receive()
    except (Closed, BrokenPipeError):
        return
    except Refused as error:
        relay.frame("error", f"Its result cannot cross: {error}.")
    except BaseException as error:
        relay.frame("error", _trace(error))


@contextmanager
def _group(plan: _Plan) -> Iterator[None]:
    """A gloo group over a file; not torn down, because the process ends with it."""
    import torch
    import torch.distributed as dist

    # torch 2.13 warns at each first call of a name that older versions have alone.
    renamed = r".torch\.distributed\.(all_gather_into|reduce_scatter)_tensor. is deprecated"
    warnings.filterwarnings("ignore", renamed, FutureWarning)
    torch.set_num_threads(1)
    torch.set_num_threads = _keep_one_thread
    if Path("/sys/class/net/lo").exists():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    if not plan.checked:
        dist.set_debug_level(dist.DebugLevel.OFF)
    elif "TORCH_DISTRIBUTED_DEBUG" in os.environ:
        dist.set_debug_level_from_env()  # torch reads it when it is imported, and only then
    else:
        dist.set_debug_level(dist.DebugLevel.DETAIL)
    if dist.get_debug_level() == dist.DebugLevel.DETAIL:
        # torch 2.13: DistributedDataParallel's log of its own construction crashes on such a group.
        dist.Logger.set_construction_data_and_log = lambda *args: None
    dist.init_process_group(
        "gloo",
        init_method=(plan.folder / "store").as_uri(),
        rank=plan.rank,
        world_size=plan.world_size,
        timeout=timedelta(seconds=0.75 * plan.timeout_s),
    )
    yield


def _keep_one_thread(count: int) -> None:
    """Stands in for `torch.set_num_threads` in a rank."""
    if count != 1:
        print(f"A rank keeps one thread: torch.set_num_threads({count}) would hang after a fork.")


class _Relay(io.TextIOBase):
    """A rank's stdout, line by line, and the one door to its parent: a frame at a time."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._lock = threading.RLock()
        self._line = ""

    def frame(self, kind: str, body: Any, buffers: Sequence[codec.Buffer] = ()) -> None:
        with self._lock:
            self.flush()
            self._channel.send([kind, body], buffers)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            self._line += text
            if "\n" in text:
                self.flush()
        return len(text)

    def flush(self) -> None:
        with self._lock:
            text, self._line = self._line, ""
            if text:
                self._channel.send(["print", text], [])


def _refuse(value: object) -> int:
    raise Refused(f"a rank returned a {type(value).__name__}; return plain data")


def _trace(error: BaseException) -> str:
    """The traceback from the rank's function on, without this module's own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
