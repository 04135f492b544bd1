"""Lab 02, a right solution written another way: formulas by hand, one tensor at a time."""

from __future__ import annotations

import functools
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
    """As a learner may write it: everything in one long float64 vector."""
    owners = [p for p in params if p.grad is not None]
    everything = [p.grad.detach().double().flatten() for p in owners]
    norm = torch.cat(everything).norm() if everything else torch.zeros((), dtype=torch.float64)
    if error_if_nonfinite and not math.isfinite(norm.item()):
        raise RuntimeError("not finite")
    if not math.isinf(max_norm):
        factor = torch.minimum(torch.ones_like(norm), max_norm / (norm + 1e-6))
        for p in owners:
            p.grad.copy_(p.grad * factor)
    return norm


# --- 2 -------------------------------------------------------------------------------------------


def finish_step(
    opt: torch.optim.Optimizer, *, scaler: Any = None, max_norm: float | None = None
) -> tuple[float, bool]:
    """Skipped is what a non-finite norm says."""
    params = list(itertools.chain.from_iterable(g["params"] for g in opt.param_groups))
    if scaler:
        scaler.unscale_(opt)
    if max_norm is None:
        squares = [p.grad.double().square().sum() for p in params if p.grad is not None]
        norm = math.sqrt(sum(squares).item())
    else:
        norm = clip_grad_norm(params, max_norm).item()
    if scaler:
        scaler.step(opt)
        scaler.update()
    else:
        opt.step()
    return norm, bool(scaler) and not math.isfinite(norm)


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
    """Gradients are dropped by hand."""
    for group in opt.param_groups:
        for p in group["params"]:
            p.grad = None
    loss = loss_fn(model(x), y)
    if scaler:
        torch.autograd.backward(scaler.scale(loss))
    else:
        torch.autograd.backward(loss)
    value = float(loss.detach())
    del loss
    norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
    return StepStats(
        loss=value,
        grad_norm=norm,
        skipped=skipped,
        n_tokens=y.numel() - y.eq(IGNORE_INDEX).sum().item(),
    )


# --- 3 -------------------------------------------------------------------------------------------


class AdamW(torch.optim.Optimizer):
    """The formula as it stands in the paper, with corrected means and a tensor that counts."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        wd: float = 1e-2,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd})

    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._one(p, group)

    @torch.no_grad()
    def _one(self, p: Tensor, group: dict[str, Any]) -> None:
        lr, (b1, b2), eps, wd = (group[name] for name in ("lr", "betas", "eps", "wd"))
        state, g = self.state[p], p.grad
        if "exp_avg" not in state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            state["step"] = torch.tensor(0.0)
        state["step"] += 1
        t = int(state["step"].item())
        state["exp_avg"].copy_(b1 * state["exp_avg"] + (1 - b1) * g)
        state["exp_avg_sq"].copy_(b2 * state["exp_avg_sq"] + (1 - b2) * g * g)
        m_hat = state["exp_avg"] / (1 - b1**t)
        v_hat = state["exp_avg_sq"] / (1 - b2**t)
        p.copy_(p - lr * wd * p - lr * m_hat / (v_hat.sqrt() + eps))


# --- 4 -------------------------------------------------------------------------------------------


def accumulate(
    model: Callable[[Tensor], Tensor],
    opt: torch.optim.Optimizer,
    micro: list[Batch],
    ignore_index: int = IGNORE_INDEX,
    *,
    scaler: Any = None,
) -> float:
    """Means, weighed by their share of the targets."""
    counts = [y.numel() - (y == ignore_index).sum().item() for _, y in micro]
    if not any(counts):
        raise ValueError("no target")
    opt.zero_grad()
    losses = []
    for (x, y), count in zip(micro, counts, strict=True):
        if count == 0:
            continue
        part = token_loss(model(x), y, ignore_index) * (count / sum(counts))
        losses.append(float(part.detach()))
        if scaler is not None:
            part = scaler.scale(part)
        part.backward()
        del part
    return sum(losses)


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
    """A group is collected batch by batch."""

    def one_step(group: list[Batch]) -> StepStats:
        if len(group) == 1:
            (batch,) = group
            if batch[1].eq(IGNORE_INDEX).all():
                raise ValueError("a batch without a target")
            return train_step(model, opt, *batch, token_loss, scaler=scaler, max_norm=max_norm)
        loss = accumulate_gradients(model, opt, group, scaler=scaler)
        norm, skipped = finish_step(opt, scaler=scaler, max_norm=max_norm)
        count = sum(int(y.ne(IGNORE_INDEX).sum()) for _, y in group)
        return StepStats(loss, norm, skipped, count)

    if accumulate <= 0:
        raise ValueError("no step without a batch")
    found, group = [], []
    for batch in batches:
        group.append(batch)
        if len(group) == accumulate:
            found.append(one_step(group))
            group = []
    if group:
        found.append(one_step(group))
    return found


# --- 6 -------------------------------------------------------------------------------------------


class LossScaler:
    """The reciprocal is a tensor's, and what was found is kept beside the optimizers."""

    def __init__(
        self,
        init: float = 65536.0,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ) -> None:
        self.growth, self.backoff, self.interval = growth, backoff, interval
        self.factor = torch.tensor(float(init), dtype=torch.float64)
        self.since = 0
        self.unscaled: list[Any] = []
        self.bad: list[Any] = []

    def get_scale(self) -> float:
        return self.factor.item()

    def state_dict(self) -> dict[str, float | int]:
        return {"scale": self.get_scale(), "clean_steps": self.since}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.factor.fill_(state["scale"])
        self.since = int(state["clean_steps"])

    def scale(self, loss: Tensor) -> Tensor:
        return self.factor.to(loss.dtype) * loss

    def unscale_(self, opt: torch.optim.Optimizer) -> None:
        if any(opt is other for other in self.unscaled):
            raise RuntimeError("twice")
        grads = [
            p.grad for group in opt.param_groups for p in group["params"] if p.grad is not None
        ]
        if not all(g.isfinite().all().item() for g in grads):
            self.bad.append(opt)
        for g in grads:
            g.div_(self.get_scale())
        self.unscaled.append(opt)

    def step(self, opt: torch.optim.Optimizer) -> bool:
        if not any(opt is other for other in self.unscaled):
            self.unscale_(opt)
        taken = not any(opt is other for other in self.bad)
        if taken:
            opt.step()
        return taken

    def update(self) -> None:
        self.since = 0 if self.bad else self.since + 1
        if self.bad:
            self.factor *= self.backoff
        elif self.since % self.interval == 0:
            self.factor *= self.growth
            self.since = 0
        self.unscaled, self.bad = [], []


# --- 7 -------------------------------------------------------------------------------------------


def save_state(path: str | Path, model: Any, opt: Any, scaler: Any, sampler: Any) -> None:
    """NumPy's and Python's generators as text."""
    kind, keys, position, has_gauss, cached = numpy.random.get_state()
    numpy_state = json.dumps([kind, [int(k) for k in keys], position, has_gauss, cached])
    rng = {
        "torch": torch.random.get_rng_state(),
        "numpy": numpy_state,
        "python": json.dumps(random.getstate()),
    }
    parts = {"model": model, "opt": opt, "scaler": scaler}
    state = {name: part and part.state_dict() for name, part in parts.items()}
    state["sampler"] = {name: getattr(sampler, name) for name in ("epoch", "cursor")}
    state["rng"] = rng
    with open(path, "wb") as file:
        torch.save(state, file)


def load_state(path: str | Path, model: Any, opt: Any, scaler: Any, sampler: Any) -> None:
    """The reverse of it."""
    with open(path, "rb") as file:
        state = torch.load(file, weights_only=True)
    for name, part in (("model", model), ("opt", opt), ("scaler", scaler)):
        if part:
            part.load_state_dict(state[name])
    for name, value in state["sampler"].items():
        setattr(sampler, name, value)
    version, numbers, gauss = json.loads(state["rng"]["python"])
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, *rest = json.loads(state["rng"]["numpy"])
    numpy.random.set_state((kind, numpy.array(keys, dtype=numpy.uint32), *rest))
    torch.random.set_rng_state(state["rng"]["torch"])


# --- 8 -------------------------------------------------------------------------------------------


class CheckpointFunction:
    """No Function of its own: hooks that keep a number for each saved tensor, and run the segment
    again when the first of them is asked for."""

    @staticmethod
    def apply(fn: Callable[..., Any], preserve_rng: bool, *tensors: Tensor) -> Any:
        before = torch.get_rng_state() if preserve_rng else None
        numbers = itertools.count()
        again: list[Tensor] = []

        def keep(saved: Tensor) -> None:
            again.append(saved.detach())

        def unpack(number: int) -> Tensor:
            if not again:
                now = torch.get_rng_state()
                if before is not None:
                    torch.set_rng_state(before)
                hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda _: None)
                with torch.enable_grad(), hooks:
                    fn(*[t.detach().requires_grad_(t.requires_grad) for t in tensors])
                if before is not None:
                    torch.set_rng_state(now)
            return again[number]

        with torch.autograd.graph.saved_tensors_hooks(lambda _: next(numbers), unpack):
            return fn(*tensors)


# --- 9 -------------------------------------------------------------------------------------------


def summarize_trace(events: list[dict[str, Any]]) -> TraceSummary:
    """Every operator looks for its parent: the shortest that encloses it on its thread."""
    steps: dict[int, tuple[float, float]] = {}
    ops = []
    for e in events:
        name = str(e.get("name", ""))
        if e.get("ph") != "X":
            continue
        if "ProfilerStep#" in name:
            steps[int(name.partition("#")[2])] = (e["ts"], e["dur"])
        elif e.get("cat") == "cpu_op":
            ops.append((e["pid"], e["tid"], e["ts"], e["dur"], name))
    ops.sort(key=lambda o: (o[2], -o[3]))
    own = [o[3] for o in ops]
    for i, child in enumerate(ops):
        parents = [
            j for j in range(i) if ops[j][:2] == child[:2] and child[2] < ops[j][2] + ops[j][3]
        ]
        if parents:
            own[parents[-1]] -= child[3]
    self_us: dict[str, float] = {}
    inside = []
    for o, us in zip(ops, own, strict=True):
        if any(s <= o[2] < s + d for s, d in steps.values()):
            inside.append(o)
            self_us[o[4]] = self_us.get(o[4], 0.0) + us
    order = sorted(steps)
    return TraceSummary(
        order, [steps[k][1] for k in order], self_us, dict(Counter(o[4] for o in inside))
    )


def profile_run(
    fn: Callable[[], object], wait: int, warmup: int, active: int, repeat: int, skip_first: int
) -> TraceSummary:
    """Starts and stops the profiler by hand, one trace file a cycle."""
    if min(repeat, active) < 1:
        raise ValueError("without an end")
    folder = tempfile.mkdtemp()
    paths: list[str] = []

    def ready(prof: Any) -> None:
        paths.append(f"{folder}/{len(paths)}.json")
        prof.export_chrome_trace(paths[-1])

    prof = torch.profiler.profile(
        activities={torch.profiler.ProfilerActivity.CPU},
        schedule=torch.profiler.schedule(
            skip_first=skip_first, wait=wait, warmup=warmup, active=active, repeat=repeat
        ),
        on_trace_ready=ready,
    )
    prof.start()
    cycle = wait + warmup + active
    step = 0
    while step < skip_first + cycle * repeat:
        fn()
        prof.step()
        step += 1
    prof.stop()
    events = []
    for path in paths:
        with open(path) as file:
            events += json.load(file)["traceEvents"]
    return summarize_trace(events)


# --- 10 ------------------------------------------------------------------------------------------

KINDS = ("param", "grad", "opt", "act", "temp")
PHASES = ("fwd", "bwd", "opt", "idle")


class MemoryLedger(TorchDispatchMode):
    """No callbacks: after each operator it looks which storages are still there."""

    def __init__(self, model: torch.nn.Module, opt: torch.optim.Optimizer) -> None:
        super().__init__()
        self.model, self.opt = model, opt
        self.peak: dict[str, dict[str, int]] = {}
        self.alive: dict[str, int] = {}
        self.name = "idle"
        self.serial = itertools.count()
        self.known: dict[int, tuple[Any, int, int, str]] = {}
        self.kinds: dict[int, str] = {}
        self.moments: list[tuple[str, dict[int, int]]] = []

    def storage_of(self, tensor: Tensor) -> Any:
        return tensor.untyped_storage()

    def note(self, storage: Any, kind: str | None = None) -> None:
        address = storage._cdata
        found = self.known.get(address)
        if found is None or found[0]() is None:
            number = next(self.serial)
            self.known[address] = (
                weakref.ref(storage), number, storage.nbytes(), self.name,
            )  # fmt: skip
        if kind:
            number = self.known[address][1]
            self.kinds[number] = min(kind, self.kinds.get(number, "temp"), key=KINDS.index)

    def look(self) -> None:
        self.known = {key: row for key, row in self.known.items() if row[0]() is not None}
        self.moments.append((self.name, {row[1]: row[2] for row in self.known.values()}))

    def settle(self) -> None:
        for p in self.model.parameters():
            if p.grad is not None:
                self.note(self.storage_of(p.grad), "grad")
        todo = list(self.opt.state.values())
        while todo:
            value = todo.pop()
            if isinstance(value, Tensor):
                self.note(self.storage_of(value), "opt")
            elif isinstance(value, dict):
                todo += value.values()
            elif isinstance(value, list | tuple):
                todo += value
        self.look()
        if self.name == "fwd":
            for _, number, _, born in self.known.values():
                if born == "fwd":
                    self.kinds.setdefault(number, "act")

    def __enter__(self) -> MemoryLedger:
        for p in self.model.parameters():
            self.note(self.storage_of(p), "param")
        self.settle()
        return super().__enter__()

    def phase(self, name: str) -> None:
        if name not in PHASES:
            raise ValueError(name)
        self.settle()
        self.name = name
        self.look()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        before = {
            self.storage_of(leaf)._cdata
            for leaf in tree_leaves([args, kwargs])
            if isinstance(leaf, Tensor)
        }
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor) and self.storage_of(leaf)._cdata not in before:
                self.note(self.storage_of(leaf))
        self.look()
        return out

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.settle()
        for name, moment in self.moments:
            row = dict.fromkeys(KINDS, 0)
            for number, size in moment.items():
                row[self.kinds.get(number, "temp")] += size
            if name not in self.peak or sum(row.values()) > sum(self.peak[name].values()):
                self.peak[name] = row
            self.alive = row


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
