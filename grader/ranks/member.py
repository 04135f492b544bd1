"""A rank's own side: it joins the group, waits for "go", calls the function, sends its result.

Frames to its parent are `[kind, body]`: "print" a text, "ready", "result" the value, "fault" a
`rank_faults.NoResult`.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import io
import os
import random
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from grader.errors import MeasurementDisturbed, Refused
from grader.ranks import deadlock
from grader.ranks.rank_faults import NoResult, plain
from grader.sandbox import codec, kit_watch
from grader.sandbox.channel import Channel, Closed
from grader.sandbox.purity import ArgumentChanged
from grader.sandbox.server import PLACEHOLDER

if sys.platform == "linux":  # imported here once, not by every rank after its fork
    from grader.sandbox import linux

Rank = Callable[..., Any]
# A line of faulthandler's output, which is only text.
_DUMPED = re.compile(r'File "[^"]*?([\w.]+)", line (\d+)')
# torch 2.13 warns at each first call by the name that older versions know.
_RENAMED = r".torch\.distributed\.(all_gather_into|reduce_scatter)_tensor. is deprecated"


@dataclasses.dataclass
class RankPlan:
    """What a rank is to do."""

    fn: Rank
    rank: int
    world_size: int
    args: Sequence[Any]
    folder: Path
    timeout_s: float
    checked: bool
    random_state: dict[str, Any]


def get_ready_to_fork() -> None:
    """Load and look up once what every rank needs: ranks that are forked then have it."""
    from grader import meters
    from grader.meters import c10d

    meters.preload()
    c10d.ops()
    if rules := sys.modules.get("torch._dynamo.trace_rules"):
        rules.clear_lru_cache()  # each rank would, and copy 300 pages to give back what is in it
    re.compile(_RENAMED, re.IGNORECASE)  # as `warnings` does, and keeps it
    c10d.TAP.keep()


def random_state(forked: bool) -> dict[str, Any]:
    """What a rank is to draw from. Python itself seeds `random` anew after a fork; the generators
    of libraries go on."""
    import torch

    state: dict[str, Any] = {"random": random.getstate()}
    if forked:
        return state
    state["torch"] = torch.default_generator.get_state().numpy()
    numpy = sys.modules.get("numpy")
    return state | ({"numpy": numpy.random.get_state()} if numpy else {})


def noting_placeholders(fn: Rank) -> Rank:
    """`fn`, made to return `{"value": ...}`, or `{"missing": ...}` after a NotImplementedError. One
    that a placeholder raises ends the run."""

    def noting(rank: int, size: int, *rest: Any) -> dict[str, Any]:
        try:
            return {"value": fn(rank, size, *rest)}
        except NotImplementedError as missing:
            if PLACEHOLDER.match(str(missing)):
                raise
            return {"missing": str(missing)}

    return noting


_own: list[Path] = []


def own_folder() -> Path:
    """In a rank: an empty folder that all ranks of this run share. A second run has another one.
    RuntimeError elsewhere."""
    if not _own:
        raise RuntimeError("Only a rank has a folder of its own.")
    return _own[0]


def be_rank(plan: RankPlan, parent: int, channel: Channel) -> None:
    """All that the fresh process of a rank does."""
    _settle(parent, plan.rank, plan.folder)
    folder = plan.folder / "own"
    folder.mkdir(exist_ok=True)
    _own[:] = [folder]
    _set_random_state(plan.random_state)
    _serve(plan, channel)


def stack(folder: Path, rank: int) -> tuple[str, str]:
    """The stack that faulthandler wrote, innermost call first, up to the rank's function, and the
    line of that function; twice "" without one."""
    path = folder / f"stack-{rank}"
    text = path.read_text() if path.exists() else ""
    end = text.find(f'  File "{__file__}"')
    text = text[:end] if end >= 0 else ""
    places = _DUMPED.findall(text)
    return text, ", line ".join(places[-1]) if places else ""


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["random"])
    if "torch" in state:
        import torch

        torch.default_generator.set_state(torch.from_numpy(state["torch"]))
    if "numpy" in state:
        import numpy as np

        np.random.set_state(state["numpy"])


def _settle(parent: int, rank: int, folder: Path) -> None:
    """Take a process group of its own, end with the parent, and dump the stack on request."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        with suppress(OSError):
            linux.end_with_parent()
        with suppress(OSError):
            # A thread of gloo's that wakes must not take the processor from one that holds the lock
            # it needs: it would poll in a loop for a quarter of a rank's processor time.
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    dump = (folder / f"stack-{rank}").open("w")
    faulthandler.register(signal.SIGUSR1, file=dump, all_threads=False)
    faulthandler.enable(file=dump, all_threads=False)


def _serve(plan: RankPlan, channel: Channel) -> None:
    from grader.meters import c10d

    relay = _Relay(channel)
    sys.stdout = relay
    replaced = kit_watch.problems_of_the_process()
    try:
        with _group(plan):
            c10d.TAP.add(deadlock.Notebook(plan.folder / f"calls-{plan.rank}"))
            relay.frame("ready", None)
            channel.receive()
            value = plan.fn(plan.rank, plan.world_size, *plan.args)
            if problems := replaced():
                raise MeasurementDisturbed(f"Measurement disturbed: {'; '.join(problems[:3])}.")
            tree, buffers = codec.encode(
                value, codec.Side({}, hold=_refuse, handle=codec.no_handle)
            )
            relay.frame("result", tree, buffers)
            channel.receive()  # the parent reads this process's sockets, and then ends it
    except (Closed, BrokenPipeError):
        return
    except Refused as error:
        relay.frame("fault", plain(NoResult(plan.rank, "refused", str(error))))
    except BaseException as error:
        relay.frame("fault", plain(_raised(plan.rank, error)))


@contextmanager
def _group(plan: RankPlan) -> Iterator[None]:
    """A gloo group over a file; it ends with the process and needs no teardown."""
    import torch
    import torch.distributed as dist

    warnings.filterwarnings("ignore", _RENAMED, FutureWarning)
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
    """A rank's stdout, line by line, and its only connection to the parent: one frame at a time."""

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


def _raised(rank: int, error: BaseException) -> NoResult:
    """The traceback from the rank's function on, without this module's own frames."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    causes = _causes(error)
    missing = [str(e) for e in causes if isinstance(e, NotImplementedError)]
    told = traceback.TracebackException(type(error), error, trace)
    if isinstance(error, ArgumentChanged):  # seen by the kit, after the learner's function returned
        told.stack = traceback.StackSummary.from_list(f for f in told.stack if not _is_kit(f))
    return NoResult(
        rank,
        "raised",
        "".join(told.format()),
        _innermost(told.stack),
        placeholder=next(filter(PLACEHOLDER.match, missing), ""),
        disturbed=any(isinstance(e, MeasurementDisturbed) for e in causes),
    )


def _is_kit(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(Path(__file__).resolve().parent.parent)


def _innermost(stack: traceback.StackSummary) -> str:
    frames = [f for f in stack if not f.filename.startswith("<")]
    return f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""


def _causes(error: BaseException) -> list[BaseException]:
    """The exception with all that its traceback shows as its causes."""
    waiting, found = [error], dict[int, BaseException]()
    while waiting:
        each = waiting.pop()
        if id(each) in found:
            continue
        found[id(each)] = each
        context = None if each.__suppress_context__ else each.__context__
        waiting += [cause for cause in (each.__cause__, context) if cause is not None]
        waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    return list(found.values())
