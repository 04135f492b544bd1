"""Triton kernels on the CPU, under a guard: what a learner's launches read, write and do wrong.

    value, reports = kernels.watched(student.softmax, x)
    report = Report.from_plain(reports[0])

Every launch that the function makes is interpreted, program after program. A report counts the
kernel's requests, line by line. What would fail on a GPU ends the launch with a sentence: an access
outside of the argument that a pointer comes from, `if` on a block, a product of blocks that is too
small, arithmetic that the interpreter does on bit patterns. Two programs that touch an element, one
of them by writing it, race unless an atomic orders them.

While the function runs, memory of `torch.empty` and its kin holds NaN (for integers the largest
number), which shows what a kernel leaves out; so does a lane of a `tl.load` that its mask switched
off, without an `other`. With `@triton.autotune` the first configuration runs.
bfloat16 is rounded to the nearest when it is stored, as on a GPU.

Known limits
- The figures are *witnessed*, made beside the learner's code in its own process. The guard notices:
  its hooks removed or covered, functions of it or of the interpreter replaced, counts edited after
  they were written, a thread started, objects searched through `gc`. Code that keeps the
  interpreter's own functions from before the guard was loaded, or finds the guard's objects in a
  caller's frame and uses their methods, can still forge; `touched`, `visits`, `options` and the
  list of races are not signed as the counts are. A suite judges the values of the same launch, and
  bounds the counts by what the task needs.
- A kernel is Python here: it could read tensors of its module past `tl.load`, compute with torch or
  NumPy, or call plain functions. `ops=True` lists the ATen operations that ran.
- Within one program, lanes are in step: a `tl.store` that a later `tl.load` of other lanes reads
  needs `tl.debug_barrier()` on a GPU, but is not a fault here. Lanes of one `tl.store` are checked.
- Tensors of different storages over the same memory (two `torch.from_numpy` of overlapping arrays)
  count as different memory and do not race.
- Pointers that a kernel loads from memory, instead of taking them as arguments, are out of bounds.
- For each element the guard keeps eight readers that nothing orders: where atomics order some of
  many programs and not others, it may miss a race.
- An atomic on one element orders programs as its `sem` says; one on a block of elements does not.
- Integers wrap around silently, as on a GPU. Floating-point warnings of NumPy are off in a launch.
- `num_warps`, `num_stages` and other options have no effect, and a misspelt one is not an error;
  a report's `options` show them as the launch was given them.
- `tl.exp` and other functions are NumPy's, `tl.dot` is exact in its inputs' type (no TF32).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from grader.errors import MeasurementDisturbed
from grader.kernels.triton.guard import KernelFault
from grader.meters.evidence import (
    alarm_position,
    alarm_problems,
    refuse_students,
    snapshot_module,
)

if TYPE_CHECKING:
    from grader.kernels.triton.patches import Hooks

WANTED = "triton>=3.7.1,<3.8"


class TritonUnsupported(RuntimeError):
    """The guard does not work with this Triton, or there is none; the text says what to install."""


def watched(
    function: Callable[..., Any],
    *args: Any,
    seed: int = 0,
    trace: bool = False,
    ops: bool = False,
    provenance: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """Call `function(*args, **kwargs)` with every Triton launch in it under guard.

    Returns its value and the launches' reports, in order, as plain data (`Report.from_plain`). The
    value is None if a fault ended a launch; other exceptions of the function come through. `seed`:
    0 runs programs in their order, another one shuffles them. `trace`: reports have `visits`.
    `ops`: one element more, the names of all ATen operations that ran, as in `meters.op_log`.
    `provenance`: one more at the end, who wrote what came back and what the kernels loaded, as
    plain data (`Provenance.from_plain`).

    In a process where kernels are compiled for a GPU a report has the kernel's name and the grid
    only. Raises TritonUnsupported; MeasurementDisturbed if the guard was tampered with.
    """
    refuse_students(sys._getframe(1))
    patches = _ready()
    global _open
    if _open:
        raise RuntimeError("`watched` is already at work")
    _open = True
    try:
        hooks = patches.Hooks(seed, trace)
        given = (args, kwargs)
        if not ops:
            value = _called(hooks, given, lambda: function(*args, **kwargs))
            found: tuple[Any, ...] = (value, _reports(hooks))
        else:
            from grader import meters

            with meters.op_log() as log:
                value = _called(hooks, given, lambda: function(*args, **kwargs))
            found = (value, _reports(hooks), [name for name, _, _ in log.ops])
        return (*found, hooks.ledger.provenance().plain()) if provenance else found
    finally:
        _open = False


def preload() -> None:
    """Load Triton and the guard before any learner's code; does nothing without Triton."""
    with contextlib.suppress(TritonUnsupported):
        _ready()


_open = False
_fault: str | None = None


def _ready() -> Any:
    """The module `patches`, once the self-test has passed in this process."""
    global _fault
    try:
        from grader.kernels.triton import patches
    except (ImportError, AttributeError) as error:
        raise TritonUnsupported(_unsupported(error)) from error
    if _fault is None:
        _fault = ""
        if patches.interprets():
            try:
                from grader.kernels.triton import self_test

                _fault = self_test.fault()
            except (Exception, KernelFault) as error:
                _fault = f"{type(error).__name__}: {error}"
    if _fault:
        raise TritonUnsupported(f"{_version_text(patches.VERSION)} ({_fault})")
    return patches


def _unsupported(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == "triton":
        return f"Triton is not installed: pip install '{WANTED}'"
    from importlib import metadata

    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        version = "of an unknown version"
    return f"{_version_text(version)} ({error})"


def _version_text(version: str) -> str:
    return f"this Triton version ({version}) is not supported: pip install '{WANTED}'"


def _called(hooks: Hooks, given: Any, call: Callable[[], Any]) -> Any:
    """The value of the call, None if a launch was stopped."""
    from grader.kernels.triton import ledger, patches

    watches = [patches.WATCH, *ledger.SNAPSHOTS, *_WATCHES]
    _complain([text for watch in watches for text in watch.problems()])
    alarm = alarm_position()
    value = None
    with hooks.installed():
        hooks.ledger.begin(given)
        try:
            with _poisoned():
                value = call()
        except KernelFault:
            value = None
        finally:
            problems = hooks.ledger.close()
        hooks.ledger.end(value)
        problems += hooks.problems()
    problems += alarm_problems(alarm)
    _complain([*problems, *(text for watch in watches for text in watch.problems())])
    return None if any(launch.stopped for launch in hooks.launches) else value


def _complain(problems: list[str]) -> None:
    if problems:
        text = "; ".join(dict.fromkeys(problems))
        raise MeasurementDisturbed(f"Measurement disturbed: {text}.")


def _reports(hooks: Hooks) -> list[dict[str, Any]]:
    if [launch.kernel for launch in hooks.launches] != [kernel for (kernel,) in hooks.journal]:
        _complain(["a launch is missing, or was added"])
    reports = [launch.report() for launch in hooks.launches] or hooks.compiled
    return [report.plain() for report in reports]


@contextlib.contextmanager
def _poisoned() -> Iterator[None]:
    """Fresh memory holds NaN, not its previous content."""
    import torch

    settings = torch.utils.deterministic
    enabled = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = settings.fill_uninitialized_memory
    # What torch.use_deterministic_algorithms does, without importing torch's compiler for it.
    switch = torch._C._set_deterministic_algorithms
    switch(True, warn_only=True)
    settings.fill_uninitialized_memory = True
    try:
        yield
    finally:
        switch(enabled, warn_only=warns)
        settings.fill_uninitialized_memory = fills


_WATCHES = tuple(
    snapshot_module(name)
    for name in (
        __name__,
        *(f"grader.kernels.{name}" for name in ("findings", "report", "sentences")),
        *(f"grader.kernels.triton.{name}" for name in ("arguments", "guard", "requests")),
    )
)
