"""Lab 02, beside the learner's code: models, optimizers and meters around its functions."""

from __future__ import annotations

import copy
import functools
import gc
import math
import pickle
import random
import tempfile
import time
import types
import warnings
import weakref
from pathlib import Path

import numpy
import torch
from models import (
    Products,
    RunNet,
    gapped,
    grouped_scaled_steps,
    mlp,
    net,
    optimizer,
    scaled_steps,
    segments,
    through_waves,
    unreplaced,
    waves,
)
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from grader import meters

IGNORE = -100


def loss_of(logits, y):
    return functional.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORE)


def _values(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def _grads(model):
    return {
        name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()
    }


# --- clip_grad_norm ------------------------------------------------------------------------------


def _owners(grads, with_gaps=False):
    """A parameter for each of these gradients (None: no gradient)."""
    params = []
    for g in grads:
        p = torch.nn.Parameter(torch.zeros(2) if g is None else torch.zeros_like(g))
        p.grad = None if g is None else gapped(g) if with_gaps else g.clone()
        params.append(p)
    return params


def clipped(student, grads, max_norm, error=None, as_generator=False, with_gaps=False):
    """Clips these gradients (None: no gradient; `with_gaps`: with strides): the norm, the
    gradients, and whether they are still the same tensors. `error` None: error_if_nonfinite is
    left at its default."""
    params = _owners(grads, with_gaps)
    before = [p.grad for p in params]
    views = [None if g is None else g.view_as(g) for g in before]
    given = (p for p in params) if as_generator else params
    found = {"raised": ""}
    try:
        more = {} if error is None else {"error_if_nonfinite": error}
        found["norm"] = student.clip_grad_norm(given, max_norm, **more)
    except RuntimeError as raised:
        if isinstance(raised, NotImplementedError):
            raise
        found["raised"] = type(raised).__name__
    found["grads"] = [p.grad for p in params]
    found["same"] = unreplaced(params, before, views)
    return found


class _Reads(TorchDispatchMode):
    """Notes which operators hand a tensor's values to Python: on a GPU each waits for it."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in ("_local_scalar_dense", "equal", "nonzero", "is_nonzero"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class _ReadsAtOnce(torch.overrides.TorchFunctionMode):
    """The same, of what passes no operator on a CPU."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in ("tolist", "numpy", "__array__", "cpu"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


def clip_reads(student, grads, max_norm):
    """Clips these gradients: how often a tensor's value was read, the norm and the gradients."""
    params = _owners(grads)
    with _Reads() as reads, _ReadsAtOnce() as others:
        norm = student.clip_grad_norm(params, max_norm)
    count = len(reads.names) + len(others.names)
    return {"reads": count, "norm": norm, "grads": [p.grad for p in params]}


def clip_without_values(student, shapes, max_norm):
    """Clips gradients of these shapes that have no values (`meta`): the shape of what comes back.
    Nobody can read a value here, by an operator or by its address."""
    params = [torch.nn.Parameter(torch.empty(shape, device="meta")) for shape in shapes]
    for p in params:
        p.grad = torch.empty_like(p)
    return tuple(student.clip_grad_norm(params, max_norm).shape)


# --- train_step and train ------------------------------------------------------------------------


class _Watch:
    """Counts forwards, backwards and steps of a model and its optimizer."""

    def __init__(self, model, opt):
        self.forwards = self.backwards = self.steps = self.stale = 0
        model.register_forward_pre_hook(self._forward)
        model.up.bias.register_hook(self._backward)
        opt.register_step_pre_hook(self._step)
        self.model = model

    def _forward(self, *_):
        self.forwards += 1
        held = [p.grad for p in self.model.parameters() if p.grad is not None]
        self.stale += sum(g.nbytes for g in held)

    def _backward(self, _):
        self.backwards += 1

    def _step(self, *_):
        self.steps += 1

    def counts(self):
        return {
            "forwards": self.forwards,
            "backwards": self.backwards,
            "steps": self.steps,
            "stale": self.stale,
        }


def steps(
    student,
    weights,
    batches,
    kind,
    lr,
    max_norm,
    scale=None,
    poisoned=(),
    stale=False,
    own=False,
    function=False,
):
    """train_step on each batch. `scale`: with torch's scaler from that scale on, or the learner's
    `own`. `poisoned`: steps whose loss is infinite. `stale`: gradients of something else stand
    there at the start. `function`: the model comes as a plain function."""
    model = net(weights)
    opt = optimizer(model, kind, lr)
    scaler = None
    if scale is not None:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
        scaler = student.LossScaler(init=scale, interval=3) if own else scaler
    if stale:
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.full_like(p, 3.0)
    watch = _Watch(model, opt)
    rows, scales = [], []
    for index, (x, y) in enumerate(batches):
        factor = math.inf if index in poisoned else 1.0
        rows.append(
            student.train_step(
                (lambda x: model(x)) if function else model,
                opt,
                x,
                y,
                lambda logits, y, factor=factor: loss_of(logits, y) * factor,
                scaler=scaler,
                max_norm=max_norm,
            )
        )
        scales.append(scaler.get_scale() if scaler else 1.0)
    return {
        "stats": rows,
        "kinds": [_kinds(row) for row in rows],
        "params": _values(model),
        "grads": _grads(model),
        "scales": scales,
        **watch.counts(),
    }


def _kinds(row):
    return [
        type(getattr(row, name, None)).__name__
        for name in ("loss", "grad_norm", "skipped", "n_tokens")
    ]


class _Told:
    """A loss scaler that writes down what it is asked for: nothing but the five methods."""

    def __init__(self, scale):
        self.now, self.log = scale, []

    def get_scale(self):
        return self.now

    def scale(self, loss):
        self.log.append("scale")
        return loss * self.now

    def unscale_(self, opt):
        self.log.append("unscale_")
        for p in (p for group in opt.param_groups for p in group["params"]):
            if p.grad is not None:
                p.grad.div_(self.now)

    def step(self, opt):
        self.log.append("step")
        opt.step()

    def update(self):
        self.log.append("update")


def told_step(student, weights, one, max_norm):
    """One train_step with a scaler of five methods: the calls in order, row and parameters."""
    model = net(weights)
    opt = optimizer(model, "groups", 0.1)
    scaler = _Told(256.0)
    row = student.train_step(model, opt, *one, loss_of, scaler=scaler, max_norm=max_norm)
    return {"log": scaler.log, "stats": [row], "params": _values(model)}


def finished(student, grads, max_norm, scale=None):
    """finish_step of SGD over two groups that have these gradients: what it returns, gradients and
    parameters (0 at first) after it."""
    params = _owners(grads)
    opt = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:], "lr": 0.25}], lr=0.5)
    scaler = None
    if scale is not None:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        scaler.scale(torch.zeros(1))  # GradScaler makes its scale at the first loss
    more = {} if max_norm is None else {"max_norm": max_norm}
    norm, skipped = student.finish_step(opt, scaler=scaler, **more)
    return {
        "norm": norm,
        "skipped": skipped,
        "grads": [p.grad for p in params],
        "params": [p.detach() for p in params],
    }


def shaped_step(student, x, y):
    """One step of a line under a mean square loss on inputs and targets of any shape: its row, what
    loss_fn was given first, whether second it was given y itself, and the model's mode."""
    line = torch.nn.Linear(x.shape[-1], 1, bias=False, dtype=x.dtype)
    torch.nn.init.ones_(line.weight)
    line.eval()
    opt = torch.optim.SGD(line.parameters(), lr=0.0)
    given = []

    def loss_fn(out, target):
        given.append([out.detach(), target is y])
        return (out.squeeze(-1) - target).square().mean()

    row = student.train_step(line, opt, x, y, loss_fn)
    return {"stats": [row], "given": given, "training": line.training}


def high_loss(student, size, slope, scale):
    """train_step of SGD on a loss of `slope` times a float32 parameter of 1, brought up to `size`,
    with torch's scaler: the row, and the parameter after it."""
    p = torch.nn.Parameter(torch.ones(1))
    opt = torch.optim.SGD([p], lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    rest = torch.tensor(size, dtype=torch.float64) - slope

    def loss_fn(out, y):
        return (slope * out).sum() + rest.float()

    x, y = torch.ones(1), torch.zeros(1)
    row = student.train_step(lambda x: p * x, opt, x, y, loss_fn, scaler=scaler)
    return {"stats": [row], "param": float(p.detach())}


def _freeze():
    """From now on a collection looks at what is made later only: libraries take long to go over."""
    gc.collect()
    gc.freeze()


def step_growth(student, weights, batches):
    """Bytes of tensors that are alive after each of several steps, all results being kept."""
    _freeze()
    model = net(weights)
    opt = optimizer(model, "sgd", 0.1)
    kept, alive = [], []
    with meters.live_bytes() as live:
        for x, y in batches:
            kept.append(student.train_step(model, opt, x, y, loss_of))
            gc.collect()  # what only waits in a cycle of references is no growth
            alive.append(live.alive_bytes)
    return {"alive": alive, "stats": kept, "params": _values(model)}


def trained(student, weights, batches, accumulate, kind, lr, max_norm, scale=None, function=False):
    """`train` over a stream of these batches: results, and for each batch how many steps had been
    taken, and how many batches were still held, when it was asked for. `function`: the model comes
    as a plain function."""
    model = net(weights)
    opt = optimizer(model, kind, lr)
    scaler = None
    if scale is not None:
        scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
    watch = _Watch(model, opt)
    asked, held, refs = [], [], []

    def fresh(x, y):
        x = x.clone()
        refs.append(weakref.ref(x))
        return x, y

    def stream():
        for batch in batches:
            asked.append(watch.steps)
            held.append(sum(ref() is not None for ref in refs))
            yield fresh(*batch)

    rows = student.train(
        (lambda x: model(x)) if function else model,
        opt,
        stream(),
        scaler=scaler,
        accumulate=accumulate,
        max_norm=max_norm,
    )
    return {
        "held": held,
        "stats": rows,
        "kinds": [_kinds(row) for row in rows or []],
        "params": _values(model),
        "asked": asked,
        **watch.counts(),
    }


def train_growth(student, weights, batches):
    """Bytes of tensors alive after `train` over the first batch and over all of them."""
    _freeze()
    found = []
    for part in (batches[:1], batches):
        model = net(weights)
        opt = optimizer(model, "sgd", 0.1)
        with meters.live_bytes() as live:
            kept = student.train(model, opt, part)
            gc.collect()
        found.append(live.alive_bytes)
        last, params = kept, _values(model)
    return {"alive": found, "stats": last, "params": params}


def trained_on_gpu(student, weights, batches, autocast):
    """`train` on the GPU, in float32 or with the model under bfloat16 autocast."""
    model = net(weights).cuda()
    opt = optimizer(model, "sgd", 0.1)

    def forward(x):
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            return model(x).float()

    on_gpu = [(x.cuda(), y.cuda()) for x, y in batches]
    return student.train(forward, opt, on_gpu, max_norm=1.0)


class Decoder(torch.nn.Module):
    """Bias-free blocks with attention written out: every matrix product is in the operator log."""

    def __init__(self, vocab, hidden, layers, heads):
        super().__init__()
        self.heads = heads
        self.embed = torch.nn.Embedding(vocab, hidden)
        sizes = ((hidden, 3 * hidden), (hidden, hidden), (hidden, 4 * hidden), (4 * hidden, hidden))
        self.layers = torch.nn.ModuleList(
            torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False) for a, b in sizes)
            for _ in range(layers)
        )

    def forward(self, x):
        h = self.embed(x)
        B, S, D = h.shape
        for qkv, out, up, down in self.layers:
            q, k, v = (
                part.view(B, S, self.heads, -1).transpose(1, 2) for part in qkv(h).split(D, 2)
            )
            weights = torch.softmax(q @ k.mT, -1)
            h = h + out((weights @ v).transpose(1, 2).reshape(B, S, D))
            h = h + down(functional.gelu(up(h)))
        return functional.linear(h, self.embed.weight)


def step_flops(student, vocab, hidden, layers, heads, batch, seq):
    """FLOPs of the matrix products of one train_step; the operators that no formula knows."""
    torch.manual_seed(0)
    model = Decoder(vocab, hidden, layers, heads)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randint(vocab, (2, batch, seq))
    with meters.op_log() as log:
        row = student.train_step(model, opt, x, y, loss_of)
    return {"flops": log.matmul_flops, "unpriced": sorted(log.unpriced), "stats": row}


def step_lives(student, weights, one):
    """Bytes of tensors alive when the optimizer steps, in one train_step; the parameters after."""
    model = net(weights)
    opt = optimizer(model, "sgd", 0.1)
    alive = []
    opt.register_step_pre_hook(lambda *_: alive.append(live.alive_bytes))
    with meters.live_bytes() as live:
        row = student.train_step(model, opt, *one, loss_of)
    return {"alive": alive, "stats": [row], "params": _values(model)}


def first_loss(student, vocab):
    """The loss of a step of a model that knows nothing: its logits are all 0."""
    head = torch.nn.Linear(4, vocab)
    torch.nn.init.zeros_(head.weight)
    torch.nn.init.zeros_(head.bias)
    opt = torch.optim.SGD(head.parameters(), lr=0.0)
    x, y = torch.ones(1, 3, 4), torch.tensor([[0, 1, vocab - 1]])
    return student.train_step(head, opt, x, y, loss_of)


# --- AdamW ---------------------------------------------------------------------------------------


def adamw(
    student, values, groups, gradients, with_gaps=False, changes=None, reload=None, defaults=None
):
    """AdamW over groups of `values` (indices, settings), fed with `gradients` (a list a step, None
    for none): the parameters after every step, what of the library ran, and of each parameter how
    many numbers the state has for it, and their dtypes. `with_gaps`: parameters and gradients have
    strides. `changes`: by step, settings that a schedule gives every group before it. `reload`: the
    step before which another AdamW takes over, through state_dict. `defaults`: the constructor's
    arguments."""
    make = gapped if with_gaps else torch.clone
    params = [torch.nn.Parameter(make(v)) for v in values]

    def optimizer_of(params):
        rows = [{"params": [params[i] for i in rows], **settings} for rows, settings in groups]
        return student.AdamW(rows, **(defaults or {}))

    opt = optimizer_of(params)
    course = []

    def run():
        nonlocal opt, params
        for step, row in enumerate(gradients):
            if step == reload:
                state = copy.deepcopy(opt.state_dict())
                params = [torch.nn.Parameter(p.detach().clone()) for p in params]
                opt = optimizer_of(params)
                opt.load_state_dict(state)
            for group in opt.param_groups:
                group.update((changes or {}).get(step, {}))
            for p, g in zip(params, row):
                p.grad = None if g is None else make(g)
            opt.step()
            course.append([p.detach().clone() for p in params])

    with meters.op_log(witness=False) as log:
        run()
    library = sorted({name for name, _, _ in log.ops if "adam" in name})
    held = []
    for p in params:
        found = [t for t in opt.state.get(p, {}).values() if isinstance(t, torch.Tensor)]
        large = [t for t in found if t.numel() > 1 or p.numel() == 1]
        kinds = sorted({str(t.dtype).removeprefix("torch.") for t in large})
        held.append([sum(t.numel() for t in large), *kinds])
    return {"course": course, "library": library, "held": held}


def adamw_long(student, dtype, steps, restart):
    """A parameter of 1 after `steps` steps with gradients of zeros and one with a gradient of 1;
    before step `restart` another AdamW loads the state."""
    settings = {"lr": 0.1, "betas": (0.0, 0.999), "wd": 0.0}
    p = torch.nn.Parameter(torch.ones(2, dtype=getattr(torch, dtype)))
    opt = student.AdamW([p], **settings)
    for step in range(steps + 1):
        if step == restart:
            state = copy.deepcopy(opt.state_dict())
            opt = student.AdamW([p], **settings)
            opt.load_state_dict(state)
        p.grad = torch.zeros_like(p) if step < steps else torch.ones_like(p)
        opt.step()
    return p.detach().double()


def adamw_bytes_on_gpu(student, count):
    """Bytes that the GPU's allocator gives AdamW: when it is made, and in its first two steps."""
    p = torch.nn.Parameter(torch.ones(count, device="cuda"))
    p.grad = torch.full_like(p, 0.5)
    start = torch.cuda.memory_allocated()
    opt = student.AdamW([p], lr=0.1, wd=0.0)
    held = [torch.cuda.memory_allocated() - start]
    for _ in range(2):
        opt.step()
        held.append(torch.cuda.memory_allocated() - start)
    return {"held": held, "param": p.detach()[:2].cpu()}


def checkpoint_bytes_on_gpu(student, rows):
    """Bytes that the GPU's allocator holds after the forward of eight wide segments, plain and
    checkpointed, with each run's gradient of the input. No dropout."""
    torch.manual_seed(0)
    layers = [(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)) for _ in range(8)]
    stack = [torch.nn.Sequential(up, torch.nn.GELU(), down).cuda() for up, down in layers]
    x = torch.randn(rows, 256, device="cuda")
    found = []
    for run in (lambda s, h: s(h), lambda s, h: student.CheckpointFunction.apply(s, True, h)):
        leaf = x.clone().requires_grad_()
        torch.cuda.synchronize()
        start, h = torch.cuda.memory_allocated(), leaf
        for segment in stack:
            h = run(segment, h)
        held = torch.cuda.memory_allocated() - start
        h.square().sum().backward()
        found.append([held, leaf.grad.cpu()])
        del h, leaf
    return found


def adamw_bytes(student, sizes, dtype, steps):
    """Bytes of tensors that AdamW keeps: after it is made, and after each step. Also the last
    parameter, and how many values of the gradients were changed."""
    dtype = getattr(torch, dtype)
    params = [torch.nn.Parameter(torch.ones(n, dtype=dtype)) for n in sizes]
    for p in params:
        p.grad = torch.full_like(p, 0.5)
    with meters.live_bytes() as live:
        opt = student.AdamW(params, lr=0.1, wd=0.0)
        alive = [live.alive_bytes]
        for _ in range(steps):
            opt.step()
            alive.append(live.alive_bytes)
    return {
        "alive": alive,
        "largest": live.largest_bytes,
        "params": [p.detach()[:2] for p in params],
        "changed": sum(int((p.grad != 0.5).sum()) for p in params),
    }


# --- accumulate ----------------------------------------------------------------------------------


def accumulated(student, weights, micro, ignore=IGNORE, scale=None, stale=False, function=False):
    """`accumulate` on a fresh model: the loss, the gradients, whether a parameter changed.
    `function`: the model comes as a plain function, which writes down what it sees, and the
    optimizer has two groups."""
    model = net(weights)
    opt = optimizer(model, "groups" if function else "sgd", 0.5)
    scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale)
    if stale:
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.full_like(p, 3.0)
    watch = _Watch(model, opt)
    seen = []

    def forward(x):
        seen.append(list(x.shape))
        return model(x)

    loss = student.accumulate(forward if function else model, opt, micro, ignore, scaler=scaler)
    same = all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    return {
        "seen": seen,
        "loss": loss,
        "kind": type(loss).__name__,
        "grads": _grads(model),
        "unchanged": same,
        **watch.counts(),
    }


class _Token:
    """Lives as long as the graph that it was put into."""


class _Marked(torch.autograd.Function):
    """The identity, whose place in the graph keeps a token."""

    @staticmethod
    def forward(ctx, x, tokens):
        ctx.token = _Token()
        tokens.append(weakref.ref(ctx.token))
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


def accumulation_lives(student, weights, micro):
    """What is alive whenever `accumulate` calls the model: bytes of tensors, and graphs."""
    _freeze()
    model = net(weights)
    opt = optimizer(model, "sgd", 0.5)
    alive, graphs, tokens = [], [], []

    def forward(x):
        gc.collect()
        alive.append(live.alive_bytes)
        graphs.append(sum(token() is not None for token in tokens))
        return _Marked.apply(model(x), tokens)

    with meters.live_bytes() as live:
        loss = student.accumulate(forward, opt, micro)
    return {"alive": alive, "graphs": graphs, "loss": loss, "grads": _grads(model)}


def accumulation_peak(student, weights, micro):
    """Peak of tensor bytes of `accumulate` over the first micro-batch and over all of them, with
    the loss and the gradients of the second run."""
    peaks = []
    for part in (micro[:1], micro):
        model = net(weights)
        opt = optimizer(model, "sgd", 0.5)
        with meters.live_bytes() as live:
            loss = student.accumulate(model, opt, part)
        peaks.append(live.peak_bytes)
    return {"peaks": peaks, "loss": loss, "grads": _grads(model)}


# --- LossScaler ----------------------------------------------------------------------------------


def scaled(student, values, gradients, settings, explicit, lr=0.5, kind="sgd"):
    """`scaled_steps` of a LossScaler for one parameter, beside which a frozen one stands."""
    p = torch.nn.Parameter(values.clone())
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    if kind == "sgd":
        opt = torch.optim.SGD([{"params": [p]}, {"params": [frozen], "lr": 1.0}], lr=lr)
    else:
        opt = torch.optim.AdamW([p, frozen], lr=lr, foreach=False)
    scaler = student.LossScaler(**settings)
    return scaled_steps(scaler, opt, p, gradients, explicit)


def scaled_groups(student, values, gradients, settings, restart=None, with_gaps=False):
    """`grouped_scaled_steps` of a LossScaler; from step `restart` on another one does the rest,
    which has loaded its state."""
    scaler = student.LossScaler(**settings)
    made = []

    def scaler_of(step):
        if step == restart:
            made.append(student.LossScaler(**settings))
            made[0].load_state_dict(copy.deepcopy(scaler.state_dict()))
        return made[0] if made else scaler

    return grouped_scaled_steps(scaler_of, values, gradients, with_gaps)


def scaled_loss(student, scale, values):
    """A loss before and after scale(), the scaled one, and the gradient that it gives."""
    p = torch.nn.Parameter(values.clone())
    loss = (3 * p).sum()
    before = float(loss.detach())
    got = student.LossScaler(init=scale).scale(loss)
    scaled = float(got.detach())
    got.backward()
    return {"before": before, "after": float(loss.detach()), "scaled": scaled, "grad": p.grad}


def unscaled_twice(student):
    """What the second unscale_ before an update raises, and the third one after it."""
    p = torch.nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    opt = torch.optim.SGD([p], lr=0.1)
    scaler = student.LossScaler()
    scaler.unscale_(opt)
    raised = []
    for _ in range(2):
        try:
            scaler.unscale_(opt)
            raised.append("")
        except Exception as error:
            raised.append(type(error).__name__)
        scaler.step(opt)
        scaler.update()
    return raised


def two_optimizers(student, finite):
    """Two optimizers and one scaler, one step: whose gradients are `finite`. Which parameters
    moved, and the scale after one update."""
    params = [torch.nn.Parameter(torch.ones(2)) for _ in finite]
    opts = [torch.optim.SGD([p], lr=0.5) for p in params]
    scaler = student.LossScaler(init=8.0, interval=1)
    for p, good in zip(params, finite):
        p.grad = torch.full((2,), 8.0 if good else math.inf)
    for opt in opts:
        scaler.step(opt)
    scaler.update()
    return [float(p[0].detach()) for p in params], scaler.get_scale()


def shared_growth(student, parts, interval):
    """Optimizers under one scaler from 8.0 on: `parts` has for each update the gradients (None: it
    takes no part) of each. The scale after every update."""
    params = [torch.nn.Parameter(torch.ones(1)) for _ in parts[0]]
    opts = [torch.optim.SGD([p], lr=0.5) for p in params]
    scaler = student.LossScaler(init=8.0, interval=interval)
    scales = []
    for row in parts:
        for p, opt, size in zip(params, opts, row):
            if size is not None:
                p.grad = torch.full((1,), size)
                scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


def unscaled(student, grads, scale):
    """The gradients of three parameters in two groups after one unscale_, and whether the step that
    follows is taken."""
    params = _owners(grads)
    opt = torch.optim.SGD([{"params": params[:1]}, {"params": params[1:]}], lr=0.5)
    scaler = student.LossScaler(init=scale)
    scaler.unscale_(opt)
    found = [None if p.grad is None else p.grad.clone() for p in params]
    return {"grads": found, "taken": scaler.step(opt)}


def long_growth(student, steps):
    """The scale of a LossScaler with its defaults after that many clean steps, and after each of
    the two before."""
    p = torch.nn.Parameter(torch.ones(1))
    opt = torch.optim.SGD([p], lr=0.0)
    scaler = student.LossScaler()
    scales = [scaler.get_scale()]
    for _ in range(steps):
        p.grad = torch.ones(1)
        scaler.step(opt)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales


# --- save_state ----------------------------------------------------------------------------------


class Rows:
    """A sampler whose whole position is epoch and cursor."""

    def __init__(self, count, batch, seed):
        self.count, self.batch, self.seed = count, batch, seed
        self.epoch = self.cursor = 0

    def next(self):
        if self.cursor + self.batch > self.count:
            self.epoch, self.cursor = self.epoch + 1, 0
        chance = torch.Generator().manual_seed(self.seed + self.epoch)
        rows = torch.randperm(self.count, generator=chance)[self.cursor : self.cursor + self.batch]
        self.cursor += self.batch
        return rows


class _Counting:
    """A loss scaler whose state has the names of this lab's: twice the scale after three clean
    steps. It skips nothing."""

    def __init__(self):
        self.current, self.clean_steps = 64.0, 0

    def get_scale(self):
        return self.current

    def scale(self, loss):
        return loss * self.current

    def step(self, opt):
        for p in (p for group in opt.param_groups for p in group["params"]):
            if p.grad is not None:
                p.grad.div_(self.current)
        opt.step()

    def update(self):
        self.clean_steps += 1
        if self.clean_steps == 3:
            self.current, self.clean_steps = 2 * self.current, 0

    def state_dict(self):
        return {"scale": self.current, "clean_steps": self.clean_steps}

    def load_state_dict(self, state):
        self.current, self.clean_steps = state["scale"], state["clean_steps"]


class _Run:
    """A run that depends on everything that a state must hold."""

    def __init__(self, weights, text, with_scaler):
        self.model = RunNet(net(weights, dropout=0.3))
        self.opt = optimizer(self.model.net, "groups", 0.05)
        self.scaler = None
        if with_scaler:
            # three: whenever a state is saved here, some clean steps have been counted
            self.scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=3)
        if with_scaler == "counting":
            self.scaler = _Counting()
        self.sampler = Rows(len(text), 3, seed=5)
        self.text = text

    def parts(self):
        return self.model, self.opt, self.scaler, self.sampler

    def judged(self):
        """The loss in eval mode, where buffers count."""
        self.model.eval()
        with torch.no_grad():
            loss = loss_of(self.model(self.text[:, :-1]), self.text[:, 1:])
        self.model.train()
        return loss.item()

    def step(self):
        rows = self.sampler.next()
        text = self.text[rows].clone()
        # augmentation: NumPy chooses a column, Python a token
        text[:, int(numpy.random.randint(text.shape[1]))] = random.randrange(4)
        # normal numbers, which both make in pairs, of which they keep the second
        noise = 1 + 0.1 * numpy.random.standard_normal() + 0.1 * random.gauss(0, 1)
        loss = loss_of(self.model(text[:, :-1]), text[:, 1:]) * noise
        for group in self.opt.param_groups:
            group["lr"] *= 0.9  # a schedule
        self.opt.zero_grad()
        if self.scaler is None:
            loss.backward()
            self.opt.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.opt)
            self.scaler.update()
        scale = self.scaler.get_scale() if self.scaler else 1.0
        return [loss.item(), rows.tolist(), scale]


def _seed(number):
    torch.manual_seed(number)
    numpy.random.seed(number)
    random.seed(number)


def resumed(student, weights, others, text, first, later, rest, with_scaler=True, drawn=1):
    """A run of first + later + rest steps, saved after `first` and again after `first + later`;
    then a fresh run from other weights and seeds that loads the FIRST of the two files and takes
    later + rest steps. Losses, rows and scales of both, and what the file holds. `drawn`: normal
    numbers that were drawn before the first step."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / "early", Path(folder) / "late.state"]
        _seed(1)
        for _ in range(drawn):
            numpy.random.standard_normal()
            random.gauss(0, 1)
        run = _Run(weights, text, with_scaler)
        paths[0].write_bytes(b"an older file of that name")
        whole = []
        for index in range(first + later + rest):
            if index in (first, first + later):
                # a path as text, then as a Path
                path = paths[1] if index > first else str(paths[0])
                student.save_state(path, *run.parts())
            whole.append(run.step())
        params, judged = _values(run.model), [run.judged()]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            return {"missing": missing}
        read = torch.load(paths[0], weights_only=True)
        sampler = read.get("sampler") if isinstance(read, dict) else None
        _seed(2)
        again = _Run(others, text, with_scaler)
        again.step()
        again.step()
        moved = paths[0].rename(Path(folder) / "moved.early")  # as if on another machine
        paths[1].unlink()
        student.load_state(moved, *again.parts())
        judged.append(None)
        second = [again.step() for _ in range(later + rest)]
        judged[1] = again.judged()
        return {
            "judged": judged,
            "cuda": torch.cuda.is_available(),
            "names": [sorted(run.model.state_dict()), _names(read)],
            "missing": [],
            "whole": whole,
            "again": second,
            "params": [params, _values(again.model)],
            "keys": sorted(read) if isinstance(read, dict) else [],
            "rng": sorted(read["rng"]) if isinstance(read, dict) and "rng" in read else [],
            "sampler": dict(sampler) if isinstance(sampler, dict) else None,
            "scaler": None if not isinstance(read, dict) else read.get("scaler") is not None,
        }


def _names(read):
    """What stands under "model" in a state's file."""
    model = read.get("model") if isinstance(read, dict) else None
    return sorted(model) if isinstance(model, dict) else None


def state_file_bytes(student, hidden, width):
    """Parameters of a model, and the size of its state's file after one step of AdamW."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(hidden, width), torch.nn.Linear(width, hidden))
    opt = torch.optim.AdamW(model.parameters(), foreach=False)
    model(torch.ones(1, hidden)).sum().backward()
    opt.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.pt"
        student.save_state(path, model, opt, None, Rows(8, 2, seed=0))
        read = torch.load(path, weights_only=True)
        same = torch.equal(read["model"]["0.weight"], model[0].weight)
        return sum(p.numel() for p in model.parameters()), path.stat().st_size, same


def saved_layer(student):
    """What save_state writes of one linear layer, an optimizer and a sampler."""
    layer = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(layer.parameters(), lr=0.1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.state"
        student.save_state(path, layer, opt, None, types.SimpleNamespace(epoch=2, cursor=5))
        read = torch.load(path, weights_only=True)
    return {
        "keys": sorted(read),
        "model": sorted(read["model"]),
        "sampler": {name: int(read["sampler"][name]) for name in ("epoch", "cursor")},
    }


# --- CheckpointFunction --------------------------------------------------------------------------


def _through(stack, run, x, seed, weight):
    """Forward through a stack, the sum of the last output times `weight`, backward."""
    params = list({id(p): p for segment in stack for p in segment.parameters()}.values())
    for p in params:
        p.grad = None
    torch.manual_seed(seed)
    leaf = x.clone().requires_grad_()
    calls = sum(segment.calls for segment in stack)
    h = leaf
    for segment in stack:
        h = run(segment, h)
    forward_calls = sum(segment.calls for segment in stack) - calls
    between = torch.rand(1)
    (h * weight).sum().backward()
    return {
        "out": h.detach(),
        "grads": [leaf.grad, *(p.grad for p in params)],
        "calls": [forward_calls, sum(segment.calls for segment in stack) - calls],
        "after": [float(between), float(torch.rand(1))],
    }


def checkpointed(student, weights, x, weight, dropout, seed, preserve=True):
    """The same stack through the learner's function and through PyTorch's, dropout included."""
    from torch.utils.checkpoint import checkpoint

    stack = segments(weights, dropout)
    function = student.CheckpointFunction
    mine = _through(stack, lambda s, h: function.apply(s, preserve, h), x, seed, weight)
    other = _through(
        stack,
        lambda s, h: checkpoint(s, h, use_reentrant=False, preserve_rng_state=preserve),
        x,
        seed,
        weight,
    )
    return {"mine": mine, "library": other}


def checkpoint_bytes(student, weights, x, weight, seed):
    """Bytes alive after the forward of a checkpointed stack, and of the plain one; with the
    gradients that the checkpointed one then gives."""
    stack = segments(weights, 0.25)
    function = student.CheckpointFunction
    found = {}
    for name, run in (
        ("mine", lambda s, h: function.apply(s, True, h)),
        ("plain", lambda s, h: s(h)),
    ):
        torch.manual_seed(seed)
        leaf = x.clone().requires_grad_()
        with meters.live_bytes() as live:
            h = leaf
            for segment in stack:
                h = run(segment, h)
        found[name] = live.alive_bytes
        (h * weight).sum().backward()
        found[f"{name} grad"] = leaf.grad
        del h
    return found


def checkpoint_extras(student, weights, x, seed, used):
    """A segment of four inputs, one of them integers, one without a gradient and one given twice,
    and a tuple of outputs, of which one is integers and one detached; the loss takes those of
    `used`. The learner's gradients and outputs, and the plain ones."""
    (segment, *_) = segments(weights, 0.25)
    rows = torch.tensor([2, 0])
    constant = torch.full_like(x, 0.5)
    found = []
    for checkpoint in (True, False):
        torch.manual_seed(seed)
        leaf = gapped(x).requires_grad_()

        def fn(x, rows, constant, again):
            out = segment(x * constant + again.sin(), rows)
            return out, out.exp(), out.argmax(1), out.detach() * 2

        given = (leaf, rows, constant, leaf)
        apply = student.CheckpointFunction.apply
        outputs = apply(fn, True, *given) if checkpoint else fn(*given)
        segment.up.weight.grad = segment.down.weight.grad = None
        sum(outputs[i].square().sum() for i in used).backward()
        grads = [leaf.grad, segment.up.weight.grad, segment.down.weight.grad]
        found.append({"grads": grads, "outputs": [out.detach() for out in outputs]})
    return found


def checkpoint_bits(student, x, w, factor):
    """A function with two outputs that share a product, in float32, through the learner's
    checkpoint, PyTorch's and none: the gradients of x and of w, for a loss that has `factor`."""
    from torch.utils.checkpoint import checkpoint

    def fn(x, w):
        h = x @ w
        return h.sin(), h.exp()

    found = []
    for run in (
        lambda *given: student.CheckpointFunction.apply(fn, True, *given),
        lambda *given: checkpoint(fn, *given, use_reentrant=False),
        fn,
    ):
        leaf, weight = (t.clone().requires_grad_() for t in (x, w))
        one, two = run(leaf, weight)
        ((one * one).sum() * factor + (two * 0.3).sum() * factor).backward()
        found.append([leaf.grad, weight.grad])
    return found


def checkpoint_one_output(student, x, seed):
    """A function that gives a tuple of one, checkpointed inside a checkpointed one: gradients of
    the input and of a parameter, which had a gradient before, and the same without checkpoints."""
    found = []
    weight = torch.nn.Parameter(torch.full_like(x, 0.3))
    for checkpoint in (True, False):

        def inner(h):
            return (functional.dropout(torch.tanh(h * weight), 0.25, True),)

        def outer(h, checkpoint=checkpoint):
            call = student.CheckpointFunction.apply
            (h,) = call(inner, True, h.exp()) if checkpoint else inner(h.exp())
            return (h * weight).sin()

        torch.manual_seed(seed)
        leaf = x.clone().requires_grad_()
        weight.grad = torch.ones_like(x)
        out = student.CheckpointFunction.apply(outer, True, leaf) if checkpoint else outer(leaf)
        out.square().sum().backward()
        found.append([leaf.grad, weight.grad])
    return found


def selective(student, ups, downs, x, weight):
    """A stack of Waves, plain and through selective_checkpoint: gradients, bytes alive after a
    forward, calls of products and of sin in a forward and backward."""
    found = []
    for run in (lambda s, h: s(h), student.selective_checkpoint):
        stack = waves(ups, downs)
        h = x.clone().requires_grad_()
        with meters.live_bytes(witness=False) as live:
            for segment in stack:
                h = run(segment, h)
        del h
        with meters.op_log(witness=False) as log:
            grads = through_waves(stack, run, x, weight)
        calls = [log.count("mm") + log.count("addmm") + log.count("bmm"), log.count("sin")]
        found.append({"grads": grads, "alive": live.alive_bytes, "calls": calls})
    return found


def selective_products(student, hidden, rows, seed):
    """A function with one product of each kind and dropout, two inputs and two outputs, plain and
    through selective_checkpoint: outputs, gradients, calls of each product and of the rest."""
    names = ("mm", "addmm", "bmm", "baddbmm", "sin")
    found = []
    for kept in (False, True):
        torch.manual_seed(seed)
        fn = Products(hidden)
        x = torch.randn(rows, hidden, dtype=torch.float64).requires_grad_()
        shift = torch.randn(rows, 1, dtype=torch.float64).requires_grad_()
        with meters.op_log(witness=False) as log:
            out, count = student.selective_checkpoint(fn, x, shift) if kept else fn(x, shift)
            out.square().sum().backward()
        grads = [x.grad, shift.grad, *(p.grad for p in fn.parameters())]
        calls = {name: log.count(name) for name in names}
        found.append({"out": out.detach(), "count": count, "grads": grads, "calls": calls})
    return found


def selective_others(student, hidden, seed):
    """A function with operators that are no product, or none of the four, between two that are;
    their calls in a forward and backward, plain and through selective_checkpoint, and gradients."""
    names = ("mm", "lgamma", "digamma", "mv", "addmv", "dot", "_softmax", "erfinv")
    attention = "_scaled_dot_product_flash_attention_for_cpu"

    def fn(x, w, u):
        h = torch.mm(x, w)
        h = torch.lgamma(h.square() + 1) + torch.digamma(h.square() + 1)
        h = h * torch.mv(h, u)[:, None] + torch.addmv(u, h, u)[:, None]
        h = h * torch.dot(u, u) + torch.erfinv(torch.softmax(h, -1) * 0.9)
        q = h[None, None]
        h = functional.scaled_dot_product_attention(q, q.tanh(), q.sin())[0, 0]
        return torch.mm(h.cos(), w)

    found = []
    for run in (fn, lambda *given: student.selective_checkpoint(fn, *given)):
        torch.manual_seed(seed)
        given = [
            (torch.randn(shape) * 0.4).requires_grad_()
            for shape in ((hidden, hidden), (hidden, hidden), (hidden,))
        ]
        with meters.op_log(witness=False) as log:
            out = run(*given)
        forward = {name: log.count(name) for name in (*names, attention)}
        with meters.op_log(witness=False) as log:
            out.square().sum().backward()
        later = {name: log.count(name) for name in (*names, attention)}
        grads = [t.grad for t in given]
        found.append({"forward": forward, "backward": later, "grads": grads})
    return found


def gpu_snapshot(student):
    """Summaries of this GPU's allocator, from memory_snapshot and from the file that
    _dump_snapshot writes; what memory_stats says at the same moment; and from the recorded history
    the sizes of what was allocated and of what was freed."""
    torch.cuda.memory._record_memory_history(max_entries=1000)
    try:
        kept = [torch.ones(n, device="cuda") for n in (1, 1000, 300_000, 5_000_000)]
        del kept[2]
        torch.cuda.synchronize()
        stats = torch.cuda.memory_stats()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "snapshot.pickle"
            torch.cuda.memory._dump_snapshot(str(path))
            dumped = pickle.loads(path.read_bytes())
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    names = ("reserved_bytes", "allocated_bytes", "requested_bytes", "active_bytes")
    history = [event for trace in dumped["device_traces"] for event in trace]
    return {
        "live": student.summarize_snapshot(torch.cuda.memory_snapshot()),
        "dumped": student.summarize_snapshot(dumped["segments"]),
        "said": {name: stats[f"{name}.all.current"] for name in names},
        "made": [event["size"] for event in history if event["action"] == "alloc"],
        "freed": [event["size"] for event in history if event["action"] == "free_completed"],
        "kept": len(kept),
    }


def _wide(seed, width, depth, kind):
    """A stack of wide layers on the GPU, and an optimizer that a graph can capture."""
    torch.manual_seed(seed)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(depth)]
    model = torch.nn.Sequential(*layers).to("cuda")
    return model, kind(model.parameters(), lr=0.05)


def step_clocks(student, width, depth):
    """Milliseconds of the learner's step, and of the same forward and backward that nobody waits
    for: by the wall clock until the call returns, and by two CUDA events around it."""
    model, opt = _wide(0, width, depth, torch.optim.SGD)
    x, y = torch.ones(2, width, width, device="cuda") / width

    def launched():
        functional.mse_loss(model(x), y).backward()

    def stepped():
        student.train_step(model, opt, x, y, functional.mse_loss)

    found = {}
    for name, call in (("launched", launched), ("step", stepped)):
        for _ in range(3):  # the first ones also make handles, plans and memory
            call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        begun = time.monotonic()
        call()
        wall_ms = 1e3 * (time.monotonic() - begun)
        end.record()
        torch.cuda.synchronize()
        found[name] = [wall_ms, start.elapsed_time(end)]
    return found


def captured_step(student, batches, width, depth, max_norm):
    """A step (forward, backward, the learner's clipping, SGD) captured in a CUDA graph and replayed
    on each batch, and the same steps one by one without clipping of theirs: norms before clipping
    and the parameters after the last step."""

    def step(model, opt, x, clip):
        loss = model(x).square().mean()
        loss.backward()
        norm = clip(model.parameters(), max_norm)
        opt.step()
        return norm

    plain, opt = _wide(1, width, depth, torch.optim.SGD)
    right = []
    for x in batches:
        opt.zero_grad(set_to_none=True)
        right.append(float(step(plain, opt, x.cuda(), torch.nn.utils.clip_grad_norm_)))
    model, opt = _wide(1, width, depth, torch.optim.SGD)
    begin = _values(model)
    given = batches[0].cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what a first step makes must not become part of the graph
        for _ in range(3):
            opt.zero_grad(set_to_none=True)
            step(model, opt, given, student.clip_grad_norm)
    torch.cuda.current_stream().wait_stream(side)
    model.load_state_dict(begin)
    opt.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        norm = step(model, opt, given, student.clip_grad_norm)
    norms = []
    for x in batches:
        given.copy_(x)
        graph.replay()
        norms.append(float(norm))
    return {
        "norms": [norms, right],
        "params": [[p.cpu() for p in _values(m).values()] for m in (model, plain)],
    }


# --- profile_run ---------------------------------------------------------------------------------


def profiled(student, wait, warmup, active, repeat, skip_first, units):
    """profile_run over a function that in step i takes i + 1 cosines of `units` numbers: the
    summary, and the calls of the function."""
    x = torch.ones(units)
    calls = []

    def fn():
        for _ in range(len(calls) + 1):
            x.cos()
        torch.nn.functional.linear(x[None], x[None])
        calls.append(1)

    with warnings.catch_warnings():
        # the profiler says that each cycle forgets the one before, which is the lesson
        warnings.simplefilter("ignore", UserWarning)
        summary = student.profile_run(fn, wait, warmup, active, repeat, skip_first)
    return summary, len(calls)


# --- MemoryLedger --------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """One matrix as embedding and as output head; a frozen vector beside it."""

    def __init__(self, vocab, hidden):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, hidden)
        self.frozen = torch.nn.Parameter(torch.ones(hidden), requires_grad=False)
        self.head = torch.nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(torch.tanh(self.embed(x) * self.frozen))


def _case(kind, dtype):
    """(model, micro-batches as functions that give a loss)."""
    if kind == "tied":
        torch.manual_seed(0)
        model = Tied(300, 32)
        batches = [torch.randint(300, (4, n)) for n in (9, 17)]
        return model, [lambda x=x: model(x).logsumexp(-1).mean() for x in batches]
    model = mlp(512, 2048, dtype)
    batches = [torch.ones(n, 512, dtype=getattr(torch, dtype)) for n in (32, 8)]
    return model, [lambda x=x: model(x).square().mean() for x in batches]


def _optimizer(model, name):
    if name == "sgd":
        return torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)
    return torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)


def _iteration(model, opt, losses, phase):
    """One step over micro-batches, with its phases told to `phase`."""
    for loss_of_one in losses:
        phase("fwd")
        loss = loss_of_one()
        phase("bwd")
        loss.backward()
    phase("opt")
    opt.step()
    phase("idle")
    del loss
    opt.zero_grad(set_to_none=True)


def ledger(student, kind, optimizer, micro, warm, dtype="float32"):
    """One step under the learner's ledger, and the same step under the kit's meter: the first
    step, or with `warm` the second."""
    model, losses = _case(kind, dtype)
    opt = _optimizer(model, optimizer)
    losses = losses[:micro]
    if warm:
        _iteration(model, opt, losses, lambda name: None)
    with student.MemoryLedger(model, opt) as book:
        _iteration(model, opt, losses, book.phase)
    mine = {"peak": book.peak, "alive": book.alive}
    del book
    model, losses = _case(kind, dtype)
    opt = _optimizer(model, optimizer)
    losses = losses[:micro]
    if warm:
        _iteration(model, opt, losses, lambda name: None)
    names = {"fwd": "forward", "bwd": "backward", "opt": "optimizer", "idle": "idle"}
    with meters.bytes_by_kind(model, opt) as m:
        _iteration(model, opt, losses, lambda name: m.mark(names[name]))
    return {
        "mine": mine,
        "meter": {"peak": m.peak_by_phase, "alive": m.alive},
        "shapes": [list(p.shape) for p in model.parameters()],
    }


def views(student, n):
    """A parameter seen through many views, and a batch from before the block: bytes by phase."""
    model = torch.nn.Linear(n, n, bias=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    outside, target = torch.ones(n, n), torch.zeros(n, n)
    tops, places = torch.zeros(n, 1), torch.zeros(n, 1, dtype=torch.int64)
    with student.MemoryLedger(model, opt) as book:
        book.phase("fwd")
        kept = [model.weight.view(-1), model.weight.t(), model.weight[0]]
        seen = [outside.t(), outside.view(-1), outside[1]]
        made = outside + 1
        torch.mul(made, 2.0, out=target)
        torch.topk(made, 1, out=(tops, places))
        torch._foreach_mul_([outside, target], 1.0)
        halves = [*made.split(n // 2), made.t().contiguous().t(), made.detach()]
        book.phase("idle")
    alive = [len(kept), len(seen), len(halves)]
    return {"peak": book.peak, "alive": book.alive, "held": alive}


def freed_in_between(student, n):
    """Phases that end, come again and find less: peaks and what is alive."""
    model = torch.nn.Linear(2, 2, bias=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with student.MemoryLedger(model, opt) as book:
        book.phase("fwd")
        first = torch.ones(n)
        scratch = torch.ones(2 * n)
        del scratch
        book.phase("bwd")
        second = torch.ones(n)
        del first
        third = torch.ones(2 * n)
        book.phase("fwd")
        fourth = torch.ones(3 * n)
        del second, third
        book.phase("idle")
        raised = ""
        try:
            book.phase("lunch")
        except ValueError as error:
            raised = type(error).__name__
    return {"peak": book.peak, "alive": book.alive, "raised": raised, "kept": fourth.numel()}


def ties(student, n):
    """Two moments at which as many bytes are alive, in other kinds, and tensors that operators give
    in tuples and lists: what the ledger says of each."""
    model = torch.nn.Linear(1, 1, bias=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with student.MemoryLedger(model, opt) as book:
        book.phase("fwd")
        first = torch.ones(n)
        scratch = torch.ones(n)
        del scratch
        second = torch.ones(n)
        del first
        book.phase("bwd")
        values, order = torch.sort(second)
        parts = torch._foreach_add([second, values], 1.0)
        book.phase("idle")
        del values, order, parts
        book.phase("bwd")
        little = torch.cat([second, second])  # less than the first turn's
        del little
        book.phase("idle")
    return {"peak": book.peak, "alive": book.alive, "held": second.numel()}


class _Nested(torch.optim.Optimizer):
    """Keeps its state in lists and dicts, one number a parameter, shared by a group."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            p = group["params"][0]
            if not self.state[p]:
                self.state[p] = {"deep": [{"mean": torch.zeros_like(p)}], "flat": (p + 1,)}
            p.sub_(0.1 * self.state[p]["flat"][0])


# torch puts a hook in the place of a class's `step` when the first one is made: not after the look
# at what student code could replace.
_Nested([torch.zeros(1)])


def odd_owners(student, n):
    """Gradients: one from before the block, one that is an activation, one in a flat buffer; nested
    state; a buffer of the model; a block that ends in `bwd`. What the ledger says, and again after
    tensors have come and gone behind the block."""
    model = torch.nn.Module()
    model.a = torch.nn.Parameter(torch.ones(n))
    model.b = torch.nn.Parameter(torch.ones(2, n))
    model.c = torch.nn.Parameter(torch.ones(3, n))
    model.register_buffer("seen", torch.zeros(5 * n))
    model.a.grad = torch.ones(3 * n)[:n]
    opt = _Nested([{"params": [p]} for p in model.parameters()])
    depth = torch._C._len_torch_dispatch_stack()
    with student.MemoryLedger(model, opt) as book:
        early = torch.ones(11, n)
        book.phase("fwd")
        model.seen.add_(1.0)
        activation = torch.ones(2, n) * 2
        model.c.grad = torch.ones(3, n)
        saved = torch.ones(7, n)
        book.phase("opt")
        kept, model.c.grad = model.c.grad, None
        opt.step()
        del kept
        raised = 0
        try:
            book.phase("backward")
        except ValueError:
            raised = 1
        book.phase("bwd")
        flat = torch.zeros(4 * n)
        model.b.grad = activation
        model.c.grad = flat[: 3 * n].view(3, n)
    told = copy.deepcopy([book.peak, book.alive])
    depth -= torch._C._len_torch_dispatch_stack()
    later = [torch.ones(9, n), saved.clone(), early]
    del saved, activation, flat
    again = copy.deepcopy([book.peak, book.alive])
    return {
        "told": told,
        "again": again,
        "raised": raised,
        "modes": -depth,
        "later": len(later),
    }


def moved(student, n):
    """Tensors that change their owners from phase to phase: what the ledger says of them."""
    model = torch.nn.Module()
    for name, size in (("a", n), ("b", 2 * n), ("c", 4 * n)):
        setattr(model, name, torch.nn.Parameter(torch.ones(size)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with student.MemoryLedger(model, opt) as book:
        book.phase("fwd")
        first, second = torch.ones(n), torch.ones(2 * n)
        book.phase("opt")  # both were activations
        third = torch.ones(4 * n)
        opt.state[model.a] = {"buffer": first}
        opt.state[model.b] = {"buffer": [second]}
        model.c.grad = third
        book.phase("bwd")  # two are state, one is a gradient
        opt.state.clear()
        opt.state[model.c] = {"was a gradient": third}
        model.c.grad = None
        model.a.grad = first
        book.phase("idle")  # the first is a gradient, too; the second is nobody's any more
    return {"peak": book.peak, "alive": book.alive, "held": second.numel()}


def from_the_start(student, n):
    """Parameters with gradients and state from before the block, in which a tensor comes and goes
    before the first phase ends: what the ledger says."""
    model = torch.nn.Module()
    model.a, model.b = (torch.nn.Parameter(torch.ones(size)) for size in (n, 2 * n))
    model.a.grad, model.b.grad = torch.ones(n), torch.ones(2 * n)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    opt.state[model.a] = {"step": 3, "mean": torch.ones(n), "note": "of a", "mask": None}
    opt.state[model.b] = {"deep": [{"mean": torch.ones(4 * n)}, 0.5], "last": (torch.ones(7 * n),)}
    with student.MemoryLedger(model, opt) as book:
        scratch = torch.ones(20 * n)
        del scratch
        book.phase("bwd")
    return {"peak": book.peak, "alive": book.alive}


def out_of_nothing(student, n):
    """A model without a byte, two phases without a tensor, and one tensor of `fwd`: what the ledger
    says."""
    model = torch.nn.Module()
    model.none = torch.nn.Parameter(torch.empty(0))
    model.none.grad = torch.empty(0)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    with student.MemoryLedger(model, opt) as book:
        book.phase("bwd")
        book.phase("fwd")
        kept = torch.ones(n)
        book.phase("opt")
    return {"peak": book.peak, "alive": book.alive, "kept": kept.numel()}


def replayed(student, sizes):
    """Tensors that come (a size in bytes) and go (minus the size), in this order, under the
    learner's ledger, in one phase: what it says, and how many tensors are left."""
    model = torch.nn.Linear(1, 1, bias=False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    alive = {}
    with student.MemoryLedger(model, opt) as book:
        book.phase("bwd")
        for size in sizes:
            if size > 0:
                alive.setdefault(size, []).append(torch.empty(size, dtype=torch.uint8))
            else:
                alive[-size].pop()
    left = sum(len(tensors) for tensors in alive.values())
    return {"peak": book.peak, "alive": book.alive, "left": left}


# --- for pictures --------------------------------------------------------------------------------


class Blocks(torch.nn.Module):
    """A language model of four blocks, each called by `run(block, h)`. x: (B, S)."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(0)
        self.run = run
        self.embed = torch.nn.Embedding(64, 64)
        torch.nn.init.normal_(self.embed.weight, std=0.02)
        self.ups = torch.nn.ModuleList(torch.nn.Linear(64, 256, bias=False) for _ in range(4))
        self.downs = torch.nn.ModuleList(torch.nn.Linear(256, 64, bias=False) for _ in range(4))

    def forward(self, x):
        h = self.embed(x)
        for up, down in zip(self.ups, self.downs):
            h = self.run(lambda h, up=up, down=down: h + down(functional.gelu(up(h))), h)
        return functional.linear(h, self.embed.weight)


class _Backward(torch.overrides.TorchFunctionMode):
    """Tells when `loss.backward()` begins and when it is over."""

    def __init__(self, tell):
        super().__init__()
        self.tell = tell

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not torch.Tensor.backward:
            return func(*args, **(kwargs or {}))
        self.tell("backward")
        result = func(*args, **(kwargs or {}))
        self.tell("clip")
        return result


def _late(mark):
    """A hook of a model: the backward has come to its output."""

    def hook(model, args, out):
        if out.requires_grad:
            out.register_hook(lambda grad: mark("backward"))

    return hook


def _written(call):
    """Whether this runs: no placeholder, no error."""
    try:
        call()
    except Exception:
        return False
    return True


def _small_step(student):
    layer = torch.nn.Linear(1, 1)
    opt = torch.optim.SGD(layer.parameters(), lr=0.1)
    student.train_step(layer, opt, torch.ones(1, 1), torch.ones(1, 1), functional.mse_loss)


def _small_adamw(student):
    p = torch.ones(1, requires_grad=True)
    p.grad = torch.ones(1)
    student.AdamW([p]).step()


def step_course(student, task, index, others):
    """Step `index` (from 0) of a training run with the learner's `task`, and with `others` what
    else runs of theirs; PyTorch's or a plain one in place of the rest. The course of bytes by phase
    and kind, loss and gradient, the parameters after each step, and what a plain backward gives."""
    checkpointed = task == "CheckpointFunction"
    own = {
        "train_step": task == "train_step" or (others and _written(lambda: _small_step(student))),
        "AdamW": task == "AdamW" or (others and _written(lambda: _small_adamw(student))),
    }

    def run(block, h):
        return student.CheckpointFunction.apply(block, True, h) if checkpointed else block(h)

    model = Blocks(run)
    x, y = torch.randint(64, (2, 8, 32))
    kind = student.AdamW if own["AdamW"] else functools.partial(torch.optim.AdamW, foreach=False)
    opt = kind(model.parameters(), lr=1e-3)
    tell, phases = [], ["start"]

    def mark(phase):
        if tell and phase != phases[-1]:
            phases.append(phase)
            tell[-1](phase)

    def step():
        if task == "accumulate":
            loss = student.accumulate(model, opt, list(zip(x.chunk(4), y.chunk(4))))
            student.finish_step(opt) if own["train_step"] else opt.step()
        elif own["train_step"]:
            loss = student.train_step(model, opt, x, y, loss_of).loss
        else:
            opt.zero_grad(set_to_none=True)
            loss = loss_of(model(x), y)
            loss.backward()
            opt.step()
            loss = loss.item()
        return loss

    model.register_forward_pre_hook(lambda *_: mark("forward"))
    # late, by the loss's own backward: for who calls another function than loss.backward()
    model.register_forward_hook(_late(mark))
    opt.register_step_pre_hook(lambda *_: mark("optimizer"))
    params, grads = [_flat(model)], []
    for _ in range(index):
        step()
        grads.append(_gradient(model))
        params.append(_flat(model))
    before = Blocks(lambda block, h: block(h))
    before.load_state_dict(model.state_dict())
    with meters.bytes_by_kind(model, opt) as m:
        tell.append(m.mark)
        with _Backward(mark):
            loss = step()
        tell.clear()
    grads.append(_gradient(model))
    params.append(_flat(model))
    plain = loss_of(before(x), y)
    plain.backward()
    return {
        "course": [[phase, *now.values()] for phase, now in m.phases],
        "kinds": list(m.peak),
        "peak": m.peak_bytes,
        "loss": loss,
        "grads": grads,
        "params": params,
        "plain": [plain.item(), _gradient(before)],
        "own": own,
    }


def _flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _gradient(model):
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.cat([g.flatten() for g in grads])


def scale_course(student, count, bad, settings):
    """The learner's scaler over `count` steps, of which those in `bad` (from 0) meet an infinity:
    after each the scale and the parameter."""
    values = torch.ones(4)
    gradients = [torch.full((4,), math.inf if i in bad else 1.0) for i in range(count)]
    rows = scaled(student, values, gradients, settings, ())
    return [[row["scale"], row["param"][0].item()] for row in rows]
