"""Lab 02, a right solution written another way: lists of tensors, sums first, a queue."""

from __future__ import annotations

import functools
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
    """Lists of tensors at a time."""
    grads = [p.grad for p in filter(lambda p: p.grad is not None, params)]
    if len(grads) == 0:
        return torch.zeros(())
    squares = [
        g.float().square().sum().double() if g.itemsize < 4 else g.double().square().sum()
        for g in grads
    ]
    norm = torch.stack(squares).sum().sqrt()
    if error_if_nonfinite and (norm.isnan() or norm.isinf()):
        raise RuntimeError(f"norm {norm}")
    if max_norm < math.inf:
        with torch.no_grad():
            torch._foreach_mul_(grads, (max_norm / (norm + 1e-6)).clamp_(max=1))
    return norm


# --- 2 -------------------------------------------------------------------------------------------


def finish_step(
    opt: torch.optim.Optimizer, *, scaler: Any = None, max_norm: float | None = None
) -> tuple[float, bool]:
    """The step is counted by a hook: what did not step was skipped."""
    if scaler is not None:
        scaler.unscale_(opt)
    params = [p for group in opt.param_groups for p in group["params"]]
    norm = float(clip_grad_norm(params, math.inf if max_norm is None else max_norm))
    taken: list[int] = []
    hook = opt.register_step_post_hook(lambda *_: taken.append(1))
    if scaler is not None:
        scaler.step(opt)
        scaler.update()
    else:
        opt.step()
    hook.remove()
    return norm, not taken


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
    """All tensors of a group with the same count in one go."""

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
            by_count: dict[int, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["t"], state["m"], state["v"] = 0, p * 0, p * 0
                state["t"] += 1
                by_count.setdefault(state["t"], []).append(p)
            for t, params in by_count.items():
                self._together(t, params, group)

    def _together(self, t: int, params: list[Tensor], group: dict[str, Any]) -> None:
        b1, b2 = group["betas"]
        grads = [p.grad for p in params]
        ms = [self.state[p]["m"] for p in params]
        vs = [self.state[p]["v"] for p in params]
        torch._foreach_mul_(params, 1 - group["lr"] * group["wd"])
        torch._foreach_lerp_(ms, grads, 1 - b1)
        torch._foreach_mul_(vs, b2)
        torch._foreach_addcmul_(vs, grads, grads, 1 - b2)
        roots = torch._foreach_sqrt(vs)
        torch._foreach_div_(roots, math.sqrt(1 - b2**t))
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_addcdiv_(params, ms, roots, -group["lr"] / (1 - b1**t))


# --- 4 -------------------------------------------------------------------------------------------


def accumulate(
    model: Callable[[Tensor], Tensor],
    opt: torch.optim.Optimizer,
    micro: list[Batch],
    ignore_index: int = IGNORE_INDEX,
    *,
    scaler: Any = None,
) -> float:
    """Plain sums first; the gradients are divided at the end."""
    for group in opt.param_groups:
        for p in group["params"]:
            p.grad = None
    targets = torch.tensor(0)
    summed = 0.0
    for x, y in micro:
        targets = targets + (y != ignore_index).sum()
        loss = token_loss(model(x), y, ignore_index=ignore_index, reduction="sum")
        summed += loss.item()
        (scaler.scale(loss) if scaler else loss).backward()
    if targets == 0:
        raise ValueError("no target at all")
    for group in opt.param_groups:
        for p in group["params"]:
            if p.grad is not None:
                p.grad.div_(targets)
    return summed / targets.item()


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
    """A generator of steps over a queue."""

    if accumulate < 1:
        raise ValueError(accumulate)

    def steps() -> Iterator[StepStats]:
        queue: deque[Batch] = deque()
        done = False
        stream = iter(batches)
        while not done:
            while len(queue) < accumulate and not done:
                try:
                    queue.append(next(stream))
                except StopIteration:
                    done = True
            if queue:
                group = list(queue)
                queue.clear()
                loss = accumulate_gradients(model, opt, group, scaler=scaler)
                end = finish_step(opt, scaler=scaler, max_norm=max_norm)
                yield StepStats(loss, *end, int(sum((y != IGNORE_INDEX).sum() for _, y in group)))

    return list(steps())


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
        """The loss times the scale, part of the graph."""
        return loss * self.current

    def unscale_(self, opt: torch.optim.Optimizer) -> None:
        """Divide the gradients of opt by the scale, in place, and note whether all are finite.
        RuntimeError if it was done since the last `update`."""
        if id(opt) in self.found_inf:
            raise RuntimeError("These gradients were unscaled already; call update() first.")
        found = False
        for p in (p for group in opt.param_groups for p in group["params"]):
            if p.grad is not None:
                found = found or not bool(torch.isfinite(p.grad).all())
                p.grad.mul_(1 / self.current)
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
    """Asks for the gradients of inputs and parameters by name, and adds the latter up itself."""

    @staticmethod
    def forward(ctx: Any, fn: Callable[..., Any], preserve_rng: bool, *tensors: Tensor) -> Any:
        ctx.fn = fn
        ctx.state = torch.get_rng_state() if preserve_rng else None
        ctx.needs = [t.requires_grad for t in tensors]
        ctx.save_for_backward(*tensors)
        return fn(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        now = torch.get_rng_state()
        if ctx.state is not None:
            torch.set_rng_state(ctx.state)
        copies = []
        for saved, need in zip(ctx.saved_tensors, ctx.needs, strict=True):
            copy = saved.detach()
            copy.requires_grad = need
            copies.append(copy)
        with torch.enable_grad():
            results = ctx.fn(*copies)
            if torch.is_tensor(results):
                results = (results,)
            total = sum((r * g).sum() for r, g in zip(results, grads, strict=True) if g is not None)
        if ctx.state is not None:
            torch.set_rng_state(now)
        total.backward()
        return (None, None, *[copy.grad for copy in copies])


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
    """Counts as it goes: a total for each phase's best moment, kinds moved when they are known."""

    def __init__(self, model: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model, self.opt = model, opt
        self.peak: dict[str, dict[str, int]] = {}
        self.alive: dict[str, int] = {}
        self.current = "idle"
        self.here: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        self.kind: dict[int, str] = {}
        self.born: dict[int, str] = {}
        self.best: dict[str, tuple[int, frozenset[int]]] = {}
        self.total = 0
        self.refs: dict[int, Any] = {}

    def add(self, storage: Any) -> int:
        key = storage._cdata
        if key not in self.here:
            serial = len(self.sizes)
            self.here[key] = serial
            self.sizes[serial] = storage.nbytes()
            self.born[serial] = self.current
            self.total += storage.nbytes()
            self.refs[key] = weakref.ref(storage, lambda _: self.drop(key))
            self.measure()
        return self.here[key]

    def drop(self, key: int) -> None:
        if key in self.here:
            self.total -= self.sizes[self.here.pop(key)]

    def measure(self) -> None:
        if self.total > self.best.get(self.current, (-1,))[0]:
            self.best[self.current] = (self.total, frozenset(self.here.values()))

    def call(self, tensor: Tensor, name: str) -> None:
        serial = self.add(tensor.untyped_storage())
        if KINDS.index(name) < KINDS.index(self.kind.get(serial, "temp")):
            self.kind[serial] = name

    def label(self) -> None:
        for p in self.model.parameters():
            self.call(p, "param")
            if p.grad is not None:
                self.call(p.grad, "grad")
        for leaf in tree_leaves(list(self.opt.state.values())):
            if isinstance(leaf, Tensor):
                self.call(leaf, "opt")
        for serial in self.here.values():
            if self.current == self.born[serial] == "fwd":
                self.kind.setdefault(serial, "act")

    def __enter__(self) -> MemoryLedger:
        self.label()
        self.measure()
        super().__enter__()
        return self

    def phase(self, name: str) -> None:
        if name not in PHASES:
            raise ValueError(f"{name} is no phase")
        self.label()
        self.current = name
        self.measure()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        old = {tensor.untyped_storage()._cdata for tensor in tensors}
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and leaf.untyped_storage()._cdata not in old:
                self.add(leaf.untyped_storage())
        return out

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.label()
        rows = {**self.best, None: (0, frozenset(self.here.values()))}
        for name, (_, serials) in rows.items():
            row = dict.fromkeys(KINDS, 0)
            for serial in serials:
                row[self.kind.get(serial, "temp")] += self.sizes[serial]
            if name is None:
                self.alive = row
            else:
                self.peak[name] = row
        self.here.clear()
        self.refs.clear()


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
