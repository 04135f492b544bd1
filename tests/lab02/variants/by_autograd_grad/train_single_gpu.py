"""Lab 02, right in another way: gradients asked for by name, small operators of the library."""

from __future__ import annotations

import functools
import io
import itertools
import json
import math
import random
import tempfile
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from text_model import token_loss
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import (
    CheckpointPolicy,
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
    grads = [p.grad for p in params if p.grad is not None]
    squares = [torch.linalg.vecdot(g.double().flatten(), g.double().flatten()) for g in grads]
    norm = torch.sqrt(sum(squares, torch.zeros((), dtype=torch.float64)))
    if error_if_nonfinite and norm.isfinite().logical_not():
        raise RuntimeError("not finite")
    if max_norm < math.inf:
        factor = torch.where(norm + 1e-6 > max_norm, max_norm / (norm + 1e-6), 1.0)
        for g in grads:
            torch.mul(g, factor, out=g)
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
            for p in (p for p in group["params"] if p.grad is not None):
                if "means" not in self.state[p]:
                    self.state[p]["means"] = p.new_zeros(2, *p.shape)
                    self.state[p]["done"] = 0
                self.state[p]["done"] += 1
                self._move(p, group, self.state[p]["done"])

    @torch.no_grad()
    def _move(self, p: Tensor, group: dict[str, Any], t: int) -> None:
        means = self.state[p]["means"]
        for mean, new, beta in zip(means, (p.grad, p.grad**2), group["betas"], strict=True):
            mean.lerp_(new, 1 - beta)
        m, v = (mean / (1 - beta**t) for mean, beta in zip(means, group["betas"], strict=True))
        p *= 1 - group["lr"] * group["wd"]
        p -= group["lr"] * m / (v.sqrt() + group["eps"])


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
    count = int(torch.stack([(y != ignore_index).sum() for _, y in micro]).sum()) if micro else 0
    if not count:
        raise ValueError("nothing to learn from")
    opt.zero_grad()
    params = [p for group in opt.param_groups for p in group["params"] if p.requires_grad]

    def add(x: Tensor, y: Tensor) -> float:
        part = token_loss(model(x), y, ignore_index, "sum").div(count)
        whole = part if scaler is None else scaler.scale(part)
        for p, g in zip(params, torch.autograd.grad(whole, params, allow_unused=True), strict=True):
            if g is not None:
                p.grad = g if p.grad is None else p.grad.add_(g)
        return part.item()

    return math.fsum(add(x, y) for x, y in micro)


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
        raise ValueError(f"accumulate is {accumulate}; a step needs at least 1 batch.")
    stats = []
    stream = iter(batches)
    while micro := list(itertools.islice(stream, accumulate)):
        loss = accumulate_gradients(model, opt, micro, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        tokens = sum(int((y != IGNORE_INDEX).sum()) for _, y in micro)
        stats.append(StepStats(loss, norm, skipped, tokens))
    return stats


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
            raise RuntimeError("twice")
        found, inverse = torch.zeros(1), torch.tensor([1 / self.current])
        for group in opt.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    torch._amp_foreach_non_finite_check_and_unscale_([p.grad], found, inverse)
        self.found_inf[id(opt)] = found.item() > 0

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
    name, keys, at, has_gauss, gauss = numpy.random.get_state()
    python, words, spare = random.getstate()
    rng = {
        "torch": torch.get_rng_state(),
        "numpy": {"name": name, "keys": torch.from_numpy(keys.astype("int64")), "at": at,
                  "gauss": gauss if has_gauss else None},
        "python": {"version": python, "words": torch.tensor(words), "spare": spare},
    }  # fmt: skip
    if torch.cuda.is_available():
        rng["cuda"] = torch.cuda.get_rng_state_all()
    state: dict[str, Any] = dict.fromkeys(("model", "opt", "scaler"))
    for key, part in zip(tuple(state), (model, opt, scaler), strict=True):
        if part is not None:
            state[key] = part.state_dict()
    state |= {"sampler": {"epoch": sampler.epoch, "cursor": sampler.cursor}, "rng": rng}
    memory = io.BytesIO()
    torch.save(state, memory)
    Path(path).write_bytes(memory.getvalue())


def load_state(path: str | Path, model: Any, opt: Any, scaler: Any, sampler: Any) -> None:
    """Put a run back to where `save_state` left it: the next loss is the one that it would have
    had, to the last bit. Fills the objects that it is given, and the random generators of torch,
    NumPy and Python; `scaler` is None where it was None. Part of the task save_state."""
    state = torch.load(io.BytesIO(Path(path).read_bytes()), weights_only=True)
    for key, part in (("model", model), ("opt", opt), ("scaler", scaler)):
        if part is not None:
            part.load_state_dict(state[key])
    vars(sampler).update(state["sampler"])
    of_numpy, python = state["rng"]["numpy"], state["rng"]["python"]
    spare = of_numpy["gauss"]
    numpy.random.set_state(
        (of_numpy["name"], of_numpy["keys"].numpy().astype("uint32"), of_numpy["at"],
         int(spare is not None), spare or 0.0)
    )  # fmt: skip
    random.setstate((python["version"], tuple(python["words"].tolist()), python["spare"]))
    torch.set_rng_state(state["rng"]["torch"])


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
                torch.random.set_rng_state(ctx.rng_state)
            outputs = ctx.fn(*inputs)
        pairs = zip(outputs if isinstance(outputs, tuple) else (outputs,), grads, strict=True)
        pairs = [(out, g) for out, g in pairs if out.grad_fn is not None and g is not None]
        leaves = leaves_of([out for out, _ in pairs])
        found = torch.autograd.grad([out for out, _ in pairs], leaves, [g for _, g in pairs])
        own = {id(t): g for t, g in zip(leaves, found, strict=True)}
        for t in leaves:
            if all(t is not other for other in inputs):
                t.grad = own[id(t)] if t.grad is None else t.grad + own[id(t)]
        return None, None, *(own.get(id(t)) for t in inputs)


def leaves_of(outputs: list[Tensor]) -> list[Tensor]:
    """Every leaf behind these outputs: what the ends of the graph accumulate into."""
    todo, seen, found = [out.grad_fn for out in outputs], set(), []
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        todo += [following for following, _ in node.next_functions]
    return found


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


class MemoryLedger(TorchDispatchMode):
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
        super().__init__()
        self.peak: dict[str, dict[str, int]] = {}
        self.alive: dict[str, int] = {}
        self.model, self.opt = model, opt
        self.now = "idle"
        # A record is [kind, bytes, phase of birth]; `living` has those alive, by address.
        self.living: dict[int, list[Any]] = {}
        self.watched: dict[int, weakref.ref[Any]] = {}
        # (phase, record or None, +1 or -1), in order: kinds are known for good only at the end
        self.course: deque[tuple[str, list[Any] | None, int]] = deque()

    def __enter__(self) -> MemoryLedger:
        for p in self.model.parameters():
            self._follow(p, "param")
        for kind, tensor in self._owned():
            self._follow(tensor, kind)
        self.course.append((self.now, None, 0))
        super().__enter__()
        return self

    def phase(self, name: str) -> None:
        """From here on it is phase `name`; the one before ends."""
        if name not in PHASES:
            raise ValueError(f"There is no phase {name!r}; there are {', '.join(PHASES)}.")
        self._end_of_phase()
        self.now = name
        self.course.append((name, None, 0))

    def _owned(self) -> Iterator[tuple[str, Tensor]]:
        for p in self.model.parameters():
            if p.grad is not None:
                yield "grad", p.grad
        for state in self.opt.state.values():
            yield from (("opt", leaf) for leaf in tree_leaves(state) if isinstance(leaf, Tensor))

    def _follow(self, tensor: Tensor, kind: str) -> None:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        if address == 0 or address in self.living:
            return
        record = [kind, storage.nbytes(), self.now]
        self.living[address] = record
        self.watched[address] = weakref.ref(storage, lambda _: self._freed(address))
        self.course.append((self.now, record, +1))

    def _freed(self, address: int) -> None:
        self.course.append((self.now, self.living.pop(address), -1))
        del self.watched[address]

    def _end_of_phase(self) -> None:
        for kind, tensor in self._owned():
            self._follow(tensor, kind)  # what torch.tensor makes does not pass the mode
            record = self.living.get(tensor.untyped_storage().data_ptr())
            if record and KINDS.index(kind) < KINDS.index(record[0]):
                record[0] = kind
        for record in self.living.values():
            if self.now == "fwd" and record[0] == "temp" and record[2] == "fwd":
                record[0] = "act"

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        given = {
            leaf.untyped_storage().data_ptr()
            for leaf in tree_leaves((args, kwargs))
            if isinstance(leaf, Tensor)
        }
        out = func(*args, **kwargs)
        for leaf in tree_leaves(out):
            # A view of something from before the block is no new memory.
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in given:
                self._follow(leaf, "temp")
        return out

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._end_of_phase()
        self.watched.clear()  # no callbacks from here on
        total = dict.fromkeys(KINDS, 0)
        highest: dict[str, int] = {}
        for name, record, sign in self.course:
            if record is not None:
                total[record[0]] += sign * record[1]
            if sum(total.values()) > highest.get(name, -1):
                highest[name] = sum(total.values())
                self.peak[name] = dict(total)
        self.alive = total


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
    products = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten.baddbmm.default}

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kept = op in products
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return checkpoint(fn, *tensors, use_reentrant=False, context_fn=contexts)


# --- 12 ------------------------------------------------------------------------------------------


def summarize_snapshot(segments: list[dict[str, Any]]) -> SnapshotSummary:
    """What stands under "segments" in a snapshot of PyTorch's CUDA allocator, added up.

    A segment has "total_size" and "blocks"; a block has "size", "requested_size" and "state":
    "active_allocated", "inactive", or, freed and still used by another stream,
    "active_pending_free", which the documentation of torch.cuda.memory calls
    "active_awaiting_free": both count. ValueError for another state (inactive_split is a counter of
    memory_stats, no state) and for a segment whose blocks do not add up to it.
    """
    sizes: Counter[str] = Counter()
    requested = largest_free = 0
    for segment in segments:
        if sum(block["size"] for block in segment["blocks"]) != segment["total_size"]:
            raise ValueError(f"The blocks do not add up to {segment['total_size']} bytes.")
        for block in segment["blocks"]:
            state = block["state"].replace("awaiting", "pending")
            if state not in ("active_allocated", "active_pending_free", "inactive"):
                raise ValueError(f"{state!r} is no state of a block.")
            sizes[state] += block["size"]
            if state == "active_allocated":
                requested += block["requested_size"]
            elif state == "inactive":
                largest_free = max(largest_free, block["size"])
    return SnapshotSummary(
        reserved=sum(sizes.values()),
        allocated=sizes["active_allocated"],
        requested=requested,
        pending=sizes["active_pending_free"],
        free=sizes["inactive"],
        largest_free=largest_free,
    )
