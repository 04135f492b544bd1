"""Lab 02, right in another way: a ledger that has a mode and is none, the library's lists of
operators, iterators of a fixed length."""

from __future__ import annotations

import itertools
import json
import math
import random
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy
import torch
from text_model import token_loss
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import (
    checkpoint,
    create_selective_checkpoint_contexts,
)
from types_lab02 import IGNORE_INDEX, SnapshotSummary, StepStats, TraceSummary

Batch = tuple[Tensor, Tensor]
LossFn = Callable[[Tensor, Tensor], Tensor]

# --- 1 -------------------------------------------------------------------------------------------


def clip_grad_norm(
    params: Iterable[Tensor], max_norm: float, error_if_nonfinite: bool = False
) -> Tensor:
    """Scale all gradients by ONE factor so that their global L2 norm is at most `max_norm`.

    params: any iterable of tensors, read once; those whose `.grad` is None are left out. Changes
    the gradients in place, by the factor min(1, max_norm / (norm + 1e-6)), and returns the norm
    BEFORE clipping as a 0-dimensional tensor; without any gradient that is 0. Gradients may have
    any strides and different dtypes; norm and factor of float16 and bfloat16 ones are taken in
    float32. With a max_norm of math.inf no gradient changes, whatever the norm. No value is read
    on the way, by `.item()` or an `if`: on a GPU that would wait for the device. The exception is
    `error_if_nonfinite`: a norm that is infinite or NaN is then a RuntimeError, whatever the
    bound, and the gradients stay as they were.
    Source: Pascanu et al. 2013, Algorithm 1; the 1e-6 is that of torch.nn.utils.clip_grad_norm_.
    """
    by_dtype: dict[torch.dtype, list[Tensor]] = {}
    for p in params:
        if p.grad is not None:
            by_dtype.setdefault(p.grad.dtype, []).append(p.grad)
    norms: list[Tensor] = []
    for dtype, grads in by_dtype.items():
        wide = torch.promote_types(dtype, torch.float32)
        norms += [norm.double() for norm in torch._foreach_norm(grads, 2, dtype=wide)]
    norm = torch.stack(norms).square().sum().sqrt() if norms else torch.zeros(())
    if error_if_nonfinite and not math.isfinite(norm):
        raise RuntimeError(str(norm))
    if max_norm != math.inf:
        factor = torch.clamp(max_norm / (norm + 1e-6), max=1)
        for grads in by_dtype.values():
            torch._foreach_mul_(grads, factor)
    return norm


# --- 2 -------------------------------------------------------------------------------------------


def finish_step(
    opt: torch.optim.Optimizer, *, scaler: Any = None, max_norm: float | None = None
) -> tuple[float, bool]:
    """From finished gradients to changed parameters: (unscale,) clip, step (, update the scale).

    scaler: None, or what has `unscale_(opt)`, `step(opt)`, `update()` and `get_scale()`, as
    torch.amp.GradScaler and this lab's LossScaler do. max_norm None: nothing is clipped and no
    gradient changes, whatever its norm; 0.0 is a bound like any other. Returns (global norm of
    the gradients of all of opt's groups, before clipping and without the loss scale, whether the
    scaler skipped the step, which makes its scale smaller). Part of the task train_step.
    """
    if scaler is not None:
        scaler.unscale_(opt)
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = clip_grad_norm(params, math.inf if max_norm is None else max_norm)
    if scaler is None:
        opt.step()
        return float(norm), False
    before = scaler.get_scale()
    scaler.step(opt)
    scaler.update()
    return float(norm), scaler.get_scale() < before


def train_step(
    model: Callable[[Tensor], Tensor],
    opt: torch.optim.Optimizer,
    x: Tensor,
    y: Tensor,
    loss_fn: LossFn,
    *,
    scaler: Any = None,
    max_norm: float | None = None,
) -> StepStats:
    """One step on one batch: zero, forward, backward, and `finish_step`.

    The model is any callable, called once, and `loss_fn(model(x), y)` gives a mean loss; with a
    scaler, backward starts from `scaler.scale(loss)`. The gradients of the step before are freed
    through opt before the forward, not zeroed after it: then they do not stand beside the
    activations. Backward frees the activations: when the optimizer steps, none is alive but, at
    most, what the model gave. Afterwards each parameter's `.grad` is what the optimizer used. The
    result holds Python numbers, no tensor: the loss that loss_fn gave, without the loss scale (it
    is finite where only the scaled one overflows), and as n_tokens the elements of y, of any shape
    and sign, that are not IGNORE_INDEX.
    """
    opt.zero_grad(set_to_none=True)
    loss = loss_fn(model(x), y)
    (loss if scaler is None else scaler.scale(loss)).backward()
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(loss.item(), norm, skipped, int((y != IGNORE_INDEX).sum()))


# --- 3 -------------------------------------------------------------------------------------------


class AdamW(torch.optim.Optimizer):
    """Adam with decoupled weight decay.

    params: tensors, or groups as dicts `{"params": [...], "lr": ...}` that may set any of lr,
    betas, eps and wd for themselves. A step takes these as they then stand in `param_groups`, for
    a schedule changes them. t counts a parameter's own steps, m and v start at 0:

        p <- p (1 - lr wd)
        m <- b1 m + (1 - b1) g        v <- b2 v + (1 - b2) g^2
        p <- p - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)

    A parameter whose `.grad` is None is left alone: no decay, no step counted. A gradient of zeros
    is a gradient. Gradients are only read. m, v and t belong in `self.state[p]`, where
    `state_dict` finds all that another AdamW needs to go on, after any number of steps; m and v in
    the dtype of p. (`load_state_dict` casts a tensor of the state to that dtype too, unless its
    key is "step".) They are made at a parameter's first step and not before, so the state takes 0
    bytes at first and then twice the parameters (and a few for counters).
    Source: Loshchilov and Hutter 2019, Algorithm 2, in the form of torch.optim.AdamW.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        wd: float = 1e-2,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            lr, (b1, b2) = group["lr"], group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["step"] += 1
                m, v, t = state["m"], state["v"], state["step"]
                p.mul_(1 - lr * group["wd"])
                m.mul_(b1).add_(p.grad, alpha=1 - b1)
                v.mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                # The one temporary, as large as the parameter
                denominator = v.div(1 - b2**t).sqrt_().add_(group["eps"])
                p.addcdiv_(m, denominator, value=-lr / (1 - b1**t))


# --- 4 -------------------------------------------------------------------------------------------


def accumulate(
    model: Callable[[Tensor], Tensor],
    opt: torch.optim.Optimizer,
    micro: list[Batch],
    ignore_index: int = IGNORE_INDEX,
    *,
    scaler: Any = None,
) -> float:
    """Gradients of one big batch from its micro-batches, of which one at a time is in memory.

    micro: [(x: (b_i, s_i), y: (b_i, s_i)), ...], of any sizes, a wholly masked one among them.
    Frees the old gradients through opt, then leaves in `.grad` the gradient of the mean loss over
    ALL targets that are not `ignore_index`: the sum of their cross-entropies by their number. No
    step is taken. With a scaler, backward starts from `scaler.scale(...)`. Returns that mean as a
    Python float, without the loss scale. The model, any callable, is called once for each
    micro-batch (a wholly masked one may be left out). Its activations, logits too, are gone before
    the next call, and no graph is kept for the end. ValueError if no target counts; the old
    gradients may be gone by then.
    """
    total = sum(int((y != ignore_index).sum()) for _, y in micro)
    if total == 0:
        raise ValueError("These micro-batches hold no target: there is nothing to average over.")
    opt.zero_grad(set_to_none=True)
    mean = 0.0
    for x, y in micro:
        loss = token_loss(model(x), y, ignore_index, reduction="sum") / total
        (loss if scaler is None else scaler.scale(loss)).backward()
        mean += loss.item()
    return mean


accumulate_gradients = accumulate  # `train` has an argument of that name

# --- 5 -------------------------------------------------------------------------------------------


def train(
    model: Callable[[Tensor], Tensor],
    opt: torch.optim.Optimizer,
    batches: Iterable[Batch],
    *,
    scaler: Any = None,
    accumulate: int = 1,
    max_norm: float | None = None,
) -> list[StepStats]:
    """The loop: one optimizer step for every `accumulate` batches of (x, y), on their token loss.

    batches: any iterable, read as far as the next step needs and no further: it may be a stream
    that does not fit in memory, so batches are not kept. When one is asked for, no more than
    2 * accumulate of those before it are still there. A smaller last group is a step, too. A
    step's loss and gradient are means over all its targets (see `accumulate_gradients`, which is
    `accumulate` under a name that the argument does not hide); its end is `finish_step`.
    Returns the StepStats of all steps, in order; nothing of a step's graph outlives it. ValueError
    if `accumulate` is below 1, and, as in `accumulate_gradients`, for a group without a target.
    """
    if accumulate < 1:
        raise ValueError("accumulate")
    rows = []
    for group in itertools.zip_longest(*[iter(batches)] * accumulate):
        micro = [batch for batch in group if batch is not None]
        mean = accumulate_gradients(model, opt, micro, scaler=scaler)
        targets = torch.cat([y.flatten() for _, y in micro])
        rows.append(
            StepStats(
                mean,
                *finish_step(opt, scaler=scaler, max_norm=max_norm),
                n_tokens=int(targets.ne(IGNORE_INDEX).sum()),
            )
        )
    return rows


# --- 6 -------------------------------------------------------------------------------------------


class LossScaler:
    """Dynamic loss scaling: keeps small float16 gradients from becoming 0 and skips bad steps.

        scaler.scale(loss).backward()
        scaler.unscale_(opt)          # optional: `step` does it when nobody did
        ... clip ...
        scaler.step(opt)
        scaler.update()

    `init`: the first scale. `growth`: its factor after `interval` clean steps in a row, and after
    as many again. `backoff`: its factor after a step with an infinity or a NaN in any gradient of
    any group; the count of clean steps then starts again. The scale has no bounds. Several
    optimizers may share a scaler: each is unscaled and stepped for itself, once, and one `update`
    ends the step of all: it counts as one clean step or one bad one, however many optimizers took
    part. What `state_dict` gives, `load_state_dict` of another scaler goes on from.
    Source: Micikevicius et al. 2018, section 3.2; numbers and order are torch.amp.GradScaler's.
    """

    def __init__(
        self,
        init: float = 65536.0,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ) -> None:
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.current = float(init)
        self.clean_steps = 0
        self.found_inf: dict[int, bool] = {}
        """By id of an optimizer: whether its gradients held an infinity or a NaN. An optimizer
        stands here from its `unscale_` to the next `update`."""

    def get_scale(self) -> float:
        """The scale that the next loss is multiplied by."""
        return self.current

    def state_dict(self) -> dict[str, float | int]:
        return {"scale": self.current, "clean_steps": self.clean_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.current, self.clean_steps = float(state["scale"]), int(state["clean_steps"])

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale, part of the graph; the loss stays what it was."""
        return loss * self.current

    def unscale_(self, opt: torch.optim.Optimizer) -> None:
        """Note whether all gradients of opt are finite, each of their elements, and divide all of
        them by the scale, in place, those beside an infinity too. Whether you divide or multiply by
        1 / scale, as GradScaler does, is yours: a scale that is a power of two gives the same bits,
        another one the same up to rounding. As GradScaler does, look first: what is finite counts
        as clean, also where a scale below 1 makes it overflow. RuntimeError if it was done since
        the last `update`."""
        if id(opt) in self.found_inf:
            raise RuntimeError("These gradients were unscaled already; call update() first.")
        found = False
        for p in (p for group in opt.param_groups for p in group["params"]):
            if p.grad is not None:
                found = found or not bool(torch.isfinite(p.grad).all())
                p.grad.div_(self.current)
        self.found_inf[id(opt)] = found

    def step(self, opt: torch.optim.Optimizer) -> bool:
        """`opt.step()` on unscaled gradients, unless they held an infinity or a NaN: then nothing
        of opt changes. Returns whether the step was taken."""
        if id(opt) not in self.found_inf:
            self.unscale_(opt)
        if self.found_inf[id(opt)]:
            return False
        opt.step()
        return True

    def update(self) -> None:
        """The scale of the next step, from what the optimizers of this one found."""
        if any(self.found_inf.values()):
            self.current *= self.backoff
            self.clean_steps = 0
        else:
            self.clean_steps += 1
            if self.clean_steps == self.interval:
                self.current *= self.growth
                self.clean_steps = 0
        self.found_inf.clear()


# --- 7 -------------------------------------------------------------------------------------------


def save_state(path: str | Path, model: Any, opt: Any, scaler: Any, sampler: Any) -> None:
    """Write to `path` all that the rest of the run depends on.

    One dict, with the keys "model", "opt", "scaler" (None if there is none), "sampler" ({"epoch",
    "cursor"}, the sampler's two attributes) and "rng" ({"torch", "numpy", "python"}, and "cuda"
    where there is one). model, opt and scaler have `state_dict`; a model's has buffers too. A
    generator's state is all of it, the second normal number that NumPy's and Python's have in
    stock included. What is in the file are tensors and plain Python data:
    `torch.load(path, weights_only=True)` reads it and runs no code. A file of that name is
    replaced.
    """
    kind, keys, *rest = numpy.random.get_state()
    rng = {
        "torch": torch.get_rng_state(),
        "numpy": (kind, keys.tolist(), *rest),
        "python": random.getstate(),
    }
    if torch.cuda.is_available():
        rng["cuda"] = torch.cuda.get_rng_state_all()
    state = {
        "model": model.state_dict(),
        "opt": opt.state_dict(),
        "scaler": None if scaler is None else scaler.state_dict(),
        "sampler": {"epoch": sampler.epoch, "cursor": sampler.cursor},
        "rng": rng,
    }
    torch.save(state, path)


def load_state(path: str | Path, model: Any, opt: Any, scaler: Any, sampler: Any) -> None:
    """Put a run back to where `save_state` left it: the next loss is the one that it would have
    had, to the last bit. Fills the objects that it is given, and the random generators of torch,
    NumPy and Python; `scaler` is None where it was None. Part of the task save_state."""
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    opt.load_state_dict(state["opt"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    sampler.epoch, sampler.cursor = state["sampler"]["epoch"], state["sampler"]["cursor"]
    rng = state["rng"]
    torch.set_rng_state(rng["torch"])
    numpy.random.set_state(rng["numpy"])
    random.setstate(rng["python"])
    if "cuda" in rng and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(rng["cuda"])


# --- 8 -------------------------------------------------------------------------------------------


class CheckpointFunction(torch.autograd.Function):
    """Activation checkpointing: the forward keeps a segment's inputs, the backward runs it again.

        y = CheckpointFunction.apply(segment, True, x)

    fn: a function of the tensors, which may use parameters; it returns a tensor or a tuple of
    them, of which the loss may use any, and of which some may have no gradient (integers, what was
    detached). preserve_rng: dropout draws the same mask in both runs, and the second run leaves
    the random generator (of the CPU) as it found it. tensors: the segment's inputs, of which one at
    least requires a gradient; integers may be among them, and one tensor twice. fn runs twice, once
    forward and once in backward; the gradients are those of the plain segment, of inputs and of
    parameters, bit for bit: zeros are zeros there, not None. Between the runs only the inputs are
    kept (and the generator's state).
    Source: Chen et al. 2016, section 4; torch.utils.checkpoint.
    """

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], preserve_rng: bool, *tensors: Tensor) -> Any:
        # Given. Autograd runs it without gradients: the segment's graph is never built.
        ctx.fn, ctx.preserve_rng = fn, preserve_rng
        ctx.set_materialize_grads(False)  # an output that the loss leaves out sends None, not zeros
        if preserve_rng:
            ctx.rng_state = torch.get_rng_state()
        ctx.save_for_backward(*tensors)
        return fn(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """grads: dLoss/doutput of each output, None where the loss leaves it out. Returns a
        gradient, or None, for each argument of `forward` after ctx."""
        inputs = [t.detach().requires_grad_(t.requires_grad) for t in ctx.saved_tensors]
        with torch.enable_grad(), torch.random.fork_rng(devices=[], enabled=ctx.preserve_rng):
            if ctx.preserve_rng:
                torch.set_rng_state(ctx.rng_state)
            outputs = ctx.fn(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        used = [
            (out, g)
            for out, g in zip(outputs, grads, strict=True)
            if g is not None and out.requires_grad
        ]
        # Goes on from the outputs to the inputs, and to the parameters on the way.
        torch.autograd.backward([out for out, _ in used], [g for _, g in used])
        return None, None, *(t.grad for t in inputs)


# --- 9 -------------------------------------------------------------------------------------------


def summarize_trace(events: list[dict[str, Any]]) -> TraceSummary:
    """The recorded steps of a Chrome trace: `events` is what stands under "traceEvents".

    Complete events have "ph": "X", and "ts" and "dur" in microseconds. A step is one whose name is
    ProfilerStep#k; a step is no operator, whatever its "cat". An operator is one with "cat":
    "cpu_op"; all others are left alone. An operator counts when it starts inside a step: at its
    first moment or later, and before its end. Its self time is its duration without those of the
    operators that it calls directly, whether these count or not: the ones inside it on the same
    thread ("pid" and "tid"), one level down. One that starts where another ends is not inside it.
    Without events there is nothing: four empty fields. Part of the task profile_run.
    """
    complete = [event for event in events if event.get("ph") == "X"]
    steps = sorted(
        (int(event["name"].removeprefix("ProfilerStep#")), event["ts"], event["dur"])
        for event in complete
        if event["name"].startswith("ProfilerStep#")
    )
    ops = sorted(
        (
            event
            for event in complete
            if event.get("cat") == "cpu_op" and not event["name"].startswith("ProfilerStep#")
        ),
        key=lambda event: (event["ts"], -event["dur"]),
    )
    self_us: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    open_ops: dict[tuple[Any, Any], list[dict[str, Any]]] = {}
    for op in ops:
        # Every operator takes part in the nesting, also one that does not count.
        around = open_ops.setdefault((op.get("pid"), op.get("tid")), [])
        while around and around[-1]["ts"] + around[-1]["dur"] <= op["ts"]:
            around.pop()
        if around and around[-1]["counts"]:
            self_us[around[-1]["name"]] -= op["dur"]
        counts = any(start <= op["ts"] < start + length for _, start, length in steps)
        if counts:
            calls[op["name"]] += 1
            self_us[op["name"]] += op["dur"]
        around.append({**op, "counts": counts})
    return TraceSummary(
        [k for k, _, _ in steps], [dur for _, _, dur in steps], dict(self_us), dict(calls)
    )


def profile_run(
    fn: Callable[[], object], wait: int, warmup: int, active: int, repeat: int, skip_first: int
) -> TraceSummary:
    """Profile calls of fn on the CPU with torch.profiler and its schedule, and read the traces.

    A step is one call of fn. After `skip_first` steps, a cycle of `wait` steps unseen, `warmup`
    steps watched and thrown away, and `active` recorded ones runs `repeat` times; fn is called for
    exactly the steps of that, no more. The summary is over the recorded steps of all cycles; k in
    ProfilerStep#k counts every step of the run from 0. ValueError if repeat or active is below 1.
    """
    if repeat < 1 or active < 1:
        raise ValueError(f"repeat is {repeat} and active is {active}; each must be at least 1.")
    events: list[dict[str, Any]] = []

    def keep(prof: torch.profiler.profile) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            prof.export_chrome_trace(str(path))
            events.extend(json.loads(path.read_text(encoding="utf-8"))["traceEvents"])

    plan = torch.profiler.schedule(
        wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first
    )
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=plan, on_trace_ready=keep
    ) as prof:
        for _ in range(skip_first + repeat * (wait + warmup + active)):
            fn()
            prof.step()
    return summarize_trace(events)


# --- 10 ------------------------------------------------------------------------------------------

KINDS = ("param", "grad", "opt", "act", "temp")
PHASES = ("fwd", "bwd", "opt", "idle")


class Births(TorchDispatchMode):
    """Tells of each storage that an operator made."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        super().__init__()
        self.tell = tell

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        tensors = [t for t in tree_leaves((args, kwargs or {})) if isinstance(t, Tensor)]
        old = [t.untyped_storage() for t in tensors]
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                new = leaf.untyped_storage()
                if all(new._cdata != storage._cdata for storage in old):
                    self.tell(new)
        return result


class MemoryLedger:
    """Context manager: whose bytes are alive, by phase of the step and kind of tensor.

        with MemoryLedger(model, opt) as ledger:   # the phase is "idle"
            ledger.phase("fwd"); loss = loss_fn(model(x), y)
            ledger.phase("bwd"); loss.backward()
            ledger.phase("opt"); opt.step()
            ledger.phase("idle"); del loss; opt.zero_grad(set_to_none=True)
        print(ledger.peak["bwd"]["act"])

    Counted is memory, so storages: each once and whole, however many views there are. Those of
    the parameters, of the gradients and of the optimizer's state are counted from the start if
    they are there; others from before the block (the batch) are not, also where an operator writes
    into them (`out=`). A storage has one kind for all its life, the first of these that ever fits:
      param  a parameter's when the block begins;
      grad   the `.grad` of a parameter when a phase ends, wherever it was born;
      opt    in `opt.state`, at any depth, when a phase ends;
      act    born in a "fwd" phase and alive when that phase ends;
      temp   everything else.
    `peak`: {phase: {kind: bytes}} for each phase that was entered, all five kinds: what was alive
    at the moment of that phase (of all its turns together) at which most bytes were alive, the
    first such moment; what a phase finds alive when it begins counts. `alive`: {kind: bytes} at
    the end. Both are there after the block, which also ends its last phase, and change no more.
    Moments are the ends of operators, and frees between them; an operator may give several
    tensors. Only the CPU's and the calling thread's operators are seen, and not what
    `torch.tensor` makes, so an optimizer's counters may be left out. ValueError for a phase that
    is none of PHASES; the phase that it is goes on then.
    """

    def __init__(self, model: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
        self.peak: dict[str, dict[str, int]] = {}
        self.alive: dict[str, int] = {}
        self.model, self.opt = model, opt
        self.mode = Births(self.born)
        self.turns: list[tuple[str, int]] = []  # (phase, index of its first event)
        self.events: list[tuple[int, int]] = []  # (serial, +1 or -1)
        self.size: list[int] = []
        self.kind: list[str] = []
        self.serial: dict[int, int] = {}
        self.ends: list[Any] = []

    def born(self, storage: Any) -> int:
        key = storage._cdata
        if storage.nbytes() and key not in self.serial:
            serial = self.serial[key] = len(self.size)
            self.size.append(storage.nbytes())
            self.kind.append("temp")
            self.events.append((serial, 1))
            self.ends.append(weakref.finalize(storage, self.gone, key))
        return self.serial.get(key, -1)

    def gone(self, key: int) -> None:
        self.events.append((self.serial.pop(key), -1))

    def name(self, tensor: Tensor, kind: str) -> None:
        serial = self.born(tensor.untyped_storage())
        if serial >= 0:
            self.kind[serial] = min(self.kind[serial], kind, key=KINDS.index)

    def owners(self) -> None:
        for p in self.model.parameters():
            if p.grad is not None:
                self.name(p.grad, "grad")
        for row in self.opt.state.values():
            for leaf in tree_leaves(row):
                if torch.is_tensor(leaf):
                    self.name(leaf, "opt")

    def __enter__(self) -> MemoryLedger:
        for p in self.model.parameters():
            self.name(p, "param")
        self.owners()
        self.turns.append(("idle", len(self.events)))
        self.mode.__enter__()
        return self

    def phase(self, name: str) -> None:
        if name not in PHASES:
            raise ValueError(f"no phase {name!r}")
        self.close()
        self.turns.append((name, len(self.events)))

    def close(self) -> None:
        self.owners()
        phase, first = self.turns[-1]
        if phase == "fwd":
            here = {serial for serial, sign in self.events[first:] if sign > 0}
            for serial in here & set(self.serial.values()):
                self.kind[serial] = min(self.kind[serial], "act", key=KINDS.index)

    def __exit__(self, *error: Any) -> None:
        self.mode.__exit__(*error)
        self.close()
        for end in self.ends:
            end.detach()
        bounds = [first for _, first in self.turns[1:]] + [len(self.events)]
        now = dict.fromkeys(KINDS, 0)
        done = 0
        for (name, first), last in zip(self.turns, bounds, strict=True):
            for serial, sign in self.events[done:first]:
                now[self.kind[serial]] += sign * self.size[serial]
            self.moment(name, now)
            for serial, sign in self.events[first:last]:
                now[self.kind[serial]] += sign * self.size[serial]
                self.moment(name, now)
            done = last
        self.alive = now

    def moment(self, name: str, now: dict[str, int]) -> None:
        if name not in self.peak or sum(now.values()) > sum(self.peak[name].values()):
            self.peak[name] = dict(now)


# --- 11 ------------------------------------------------------------------------------------------


def selective_checkpoint(fn: Callable[..., Any], *tensors: Tensor) -> Any:
    """Checkpointing that keeps the results of matrix products and computes all else again.

    fn(*tensors), with gradients as without it, under dropout too. Use
    torch.utils.checkpoint.checkpoint, its `context_fn`, `create_selective_checkpoint_contexts` and
    `CheckpointPolicy`: aten.mm, addmm, bmm and baddbmm must be saved, everything else is
    recomputed, other products (mv) and fused attention too. Backward then runs no product of those
    four again, and of the rest it keeps fn's inputs only.
    Source: Korthikanti et al. 2022, section 5, with another choice of what is cheap to repeat.
    """
    aten = torch.ops.aten
    saved = [aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default]
    return checkpoint(
        fn,
        *tensors,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(saved),
    )


# --- 12 ------------------------------------------------------------------------------------------


def summarize_snapshot(segments: list[dict[str, Any]]) -> SnapshotSummary:
    """What stands under "segments" in a snapshot of PyTorch's CUDA allocator, added up.

    A segment has "total_size" and "blocks"; a block has "size", "requested_size" and "state":
    "active_allocated", "inactive", or, freed and still used by another stream,
    "active_pending_free", which the documentation of torch.cuda.memory calls
    "active_awaiting_free": both count. ValueError for another state (inactive_split is a counter of
    memory_stats, no state) and for a segment whose blocks do not add up to it.
    """
    names = {"active_awaiting_free": "active_pending_free"}
    blocks = []
    for segment in segments:
        own = [
            (names.get(block["state"], block["state"]), block["size"], block["requested_size"])
            for block in segment["blocks"]
        ]
        if math.fsum(size for _, size, _ in own) != segment["total_size"]:
            raise ValueError("a segment is not its blocks")
        blocks += own
    states = ("active_allocated", "active_pending_free", "inactive")
    if unknown := {state for state, _, _ in blocks} - set(states):
        raise ValueError(f"unknown: {unknown}")
    allocated, pending, free = (
        sum(size for state, size, _ in blocks if state == wanted) for wanted in states
    )
    return SnapshotSummary(
        allocated + pending + free,
        allocated,
        sum(asked for state, _, asked in blocks if state == states[0]),
        pending,
        free,
        max((size for state, size, _ in blocks if state == states[2]), default=0),
    )
