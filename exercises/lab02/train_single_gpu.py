"""Lab 02: the training loop on one device, each of its parts written and proved.

A step is: zero the gradients, forward, backward, (take the loss scale out,) clip, step. Around it:
gradient accumulation, AdamW, a loss scaler, activation checkpointing, a memory ledger, a profile
and a run that stops and goes on. Tokens and targets are (B, S) integers, logits (B, S, V), losses
in nats, memory in bytes, times in microseconds. A target of IGNORE_INDEX does not count.

As a script it trains a small model on generated text and prints the ledger of a step:
`python train_single_gpu.py --steps 60`.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import random
import sys
import tempfile
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from text_model import TextSampler, TinyLM, generated_text, model_flops, token_loss
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
    # TODO(lab02.clip_grad_norm): One norm, one factor
    raise NotImplementedError("lab02.clip_grad_norm")


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
    # TODO(lab02.train_step): Zero, forward, backward, clip, step
    raise NotImplementedError("lab02.train_step")


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
    # TODO(lab02.train_step): Zero, forward, backward, clip, step
    raise NotImplementedError("lab02.train_step")


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
        # TODO(lab02.AdamW): AdamW with lazy state
        raise NotImplementedError("lab02.AdamW")


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
    # TODO(lab02.accumulate): Ragged micro-batches, one gradient
    raise NotImplementedError("lab02.accumulate")


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
    # TODO(lab02.train): The loop over a stream
    raise NotImplementedError("lab02.train")


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
        # TODO(lab02.LossScaler): Loss scaling that knows when to skip
        raise NotImplementedError("lab02.LossScaler")

    def unscale_(self, opt: torch.optim.Optimizer) -> None:
        """Note whether all gradients of opt are finite, each of their elements, and divide all of
        them by the scale, in place, those beside an infinity too. Whether you divide or multiply by
        1 / scale, as GradScaler does, is yours: a scale that is a power of two gives the same bits,
        another one the same up to rounding. As GradScaler does, look first: what is finite counts
        as clean, also where a scale below 1 makes it overflow. RuntimeError if it was done since
        the last `update`."""
        # TODO(lab02.LossScaler): Loss scaling that knows when to skip
        raise NotImplementedError("lab02.LossScaler")

    def step(self, opt: torch.optim.Optimizer) -> bool:
        """`opt.step()` on unscaled gradients, unless they held an infinity or a NaN: then nothing
        of opt changes. Returns whether the step was taken. What a second `step` of opt before the
        next `update` does is yours; GradScaler raises RuntimeError."""
        # TODO(lab02.LossScaler): Loss scaling that knows when to skip
        raise NotImplementedError("lab02.LossScaler")

    def update(self) -> None:
        """The scale of the next step, from what the optimizers of this one found."""
        # TODO(lab02.LossScaler): Loss scaling that knows when to skip
        raise NotImplementedError("lab02.LossScaler")


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
    # TODO(lab02.save_state): A run that stops and goes on
    raise NotImplementedError("lab02.save_state")


def load_state(path: str | Path, model: Any, opt: Any, scaler: Any, sampler: Any) -> None:
    """Put a run back to where `save_state` left it: the next loss is the one that it would have
    had, to the last bit. Fills the objects that it is given, and the random generators of torch,
    NumPy and Python; `scaler` is None where it was None. Part of the task save_state."""
    # TODO(lab02.save_state): A run that stops and goes on
    raise NotImplementedError("lab02.save_state")


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
        # TODO(lab02.CheckpointFunction): Backward that runs the forward again
        raise NotImplementedError("lab02.CheckpointFunction")


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
    # TODO(lab02.profile_run): A schedule, and what its traces say
    raise NotImplementedError("lab02.profile_run")


def profile_run(
    fn: Callable[[], object], wait: int, warmup: int, active: int, repeat: int, skip_first: int
) -> TraceSummary:
    """Profile calls of fn on the CPU with torch.profiler and its schedule, and read the traces.

    A step is one call of fn. After `skip_first` steps, a cycle of `wait` steps unseen, `warmup`
    steps watched and thrown away, and `active` recorded ones runs `repeat` times; fn is called for
    exactly the steps of that, no more. The summary is over the recorded steps of all cycles; k in
    ProfilerStep#k counts every step of the run from 0. ValueError if repeat or active is below 1.
    """
    # TODO(lab02.profile_run): A schedule, and what its traces say
    raise NotImplementedError("lab02.profile_run")


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
        # TODO(lab02.MemoryLedger): Whose bytes, and when
        raise NotImplementedError("lab02.MemoryLedger")

    def __enter__(self) -> MemoryLedger:
        # TODO(lab02.MemoryLedger): Whose bytes, and when
        raise NotImplementedError("lab02.MemoryLedger")

    def phase(self, name: str) -> None:
        """From here on it is phase `name`; the one before ends."""
        # TODO(lab02.MemoryLedger): Whose bytes, and when
        raise NotImplementedError("lab02.MemoryLedger")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        # TODO(lab02.MemoryLedger): Whose bytes, and when
        raise NotImplementedError("lab02.MemoryLedger")

    def __exit__(self, *error: Any) -> None:
        # TODO(lab02.MemoryLedger): Whose bytes, and when
        raise NotImplementedError("lab02.MemoryLedger")


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
    # TODO(lab02.selective_checkpoint): Keep the products, repeat the rest
    raise NotImplementedError("lab02.selective_checkpoint")


# --- 12 ------------------------------------------------------------------------------------------


def summarize_snapshot(segments: list[dict[str, Any]]) -> SnapshotSummary:
    """What stands under "segments" in a snapshot of PyTorch's CUDA allocator, added up.

    A segment has "total_size" and "blocks"; a block has "size", "requested_size" and "state":
    "active_allocated", "inactive", or, freed and still used by another stream,
    "active_pending_free", which the documentation of torch.cuda.memory calls
    "active_awaiting_free": both count. ValueError for another state (inactive_split is a counter of
    memory_stats, no state) and for a segment whose blocks do not add up to it.
    """
    # TODO(lab02.summarize_snapshot): What the caching allocator holds
    raise NotImplementedError("lab02.summarize_snapshot")


# --- the script ----------------------------------------------------------------------------------


def print_ledger(ledger: MemoryLedger) -> None:
    """The peak of each phase as a table, in KiB."""
    print(f"{'KiB at the peak of':<20}" + "".join(f"{kind:>9}" for kind in (*KINDS, "sum")))
    for name in PHASES:
        row = ledger.peak[name]
        cells = [*(row[kind] for kind in KINDS), sum(row.values())]
        print(f"{name:<20}" + "".join(f"{cell / 1024:>9.1f}" for cell in cells))


def run(steps: int, accumulate: int, seed: int) -> None:
    """Train TinyLM on generated text, print every tenth of the run, then one step's ledger."""
    torch.set_num_threads(1)  # operators this small wait for each other's threads, not for work
    torch.manual_seed(seed)
    seq, batch = 32, 16
    model = TinyLM()
    params = sum(p.numel() for p in model.parameters())
    opt, scaler = AdamW(model.parameters(), lr=3e-3, wd=0.1), LossScaler(interval=20)
    sampler = TextSampler(generated_text(20_000, seed=seed), seq, batch, seed)
    every = max(1, steps // 10)
    for first in range(0, steps, every):
        count = min(every, steps - first)
        started = time.perf_counter()
        batches = itertools.islice(sampler, count * accumulate)
        stats = train(model, opt, batches, scaler=scaler, accumulate=accumulate, max_norm=1.0)
        seconds = time.perf_counter() - started
        tokens = sum(row.n_tokens for row in stats)
        flops = model_flops(tokens, params - model.positions.weight.numel(), 2, 64, seq)
        last = stats[-1]
        if first == 0:
            print(f"{params:,} parameters; a uniform guess costs ln 64 = {math.log(64):.2f} nats")
            print(f"{'step':>6}{'loss':>9}{'norm':>9}{'scale':>10}{'tokens/s':>10}{'GFLOP/s':>9}")
        print(
            f"{first + count:>6}{last.loss:>9.3f}{last.grad_norm:>9.3f}{scaler.get_scale():>10.0f}"
            f"{tokens / seconds:>10.0f}{flops / seconds / 1e9:>9.2f}"
        )
    x, y = next(sampler)
    opt.zero_grad(set_to_none=True)
    with MemoryLedger(model, opt) as ledger:
        ledger.phase("fwd")
        loss = token_loss(model(x), y)
        ledger.phase("bwd")
        loss.backward()
        ledger.phase("opt")
        opt.step()
        ledger.phase("idle")
        del loss
        opt.zero_grad(set_to_none=True)
    print("\nOne more step, by kind of tensor:")
    print_ledger(ledger)


def main(argv: list[str] | None = None) -> int:
    """The script; 1 when a task that it needs is not written yet, 2 for a bad value."""
    parser = argparse.ArgumentParser(description="A short training run on generated text.")
    parser.add_argument("--steps", type=int, default=60, help="optimizer steps (60)")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches a step (2)")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the text (0)")
    args = parser.parse_args(argv)
    if args.steps < 1 or args.accumulate < 1:
        print("--steps and --accumulate must be at least 1.", file=sys.stderr)
        return 2
    try:
        run(args.steps, args.accumulate, args.seed)
    except NotImplementedError as missing:
        task = str(missing)
        print(f"`{task}` is not written yet: look for TODO({task}) in {Path(__file__).name}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
