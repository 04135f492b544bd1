"""Twelve memory knobs on a small pipeline of toy_lab13.py, measured: what `knob_table` is held
against. Nothing of a learner's runs here."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn
from torch.nn import functional
from toy_lab13 import ToyDecoder, ToyDenoiser, ToyPipeline, ToyTextEncoder, seeded, toy_inputs

from grader import meters

SIDE, STEPS, HEADS, DIM = 12, 4, 4, 40
TOKENS = SIDE * SIDE
PARTS = ("text encoder", "denoiser", "decoder")
TRAINING = "gradient checkpointing"
SAME = 1e-4  # of the image's largest value; what sums in another order differ by is far below


@dataclass
class Run:
    """One run of the pipeline: what came out, and what it took."""

    image: torch.Tensor
    moved: float  # how often the denoiser's weights crossed the link
    flops: dict[str, int]  # of one call of each part
    ops: int
    stored: dict[str, int]  # bytes of each part's weights, wherever they are
    least: dict[str, int]  # and the fewest of them that were ever in fast memory
    resident: dict[str, int]  # most bytes of weights in fast memory while a part ran
    activations: dict[str, int]  # most bytes of everything else
    scores: int  # elements of the largest tensor with a score for each key
    widest: int  # elements of the largest other tensor


@dataclass(frozen=True)
class Facts:
    """What is true of one knob: words of the table's cells."""

    does: str
    tensors: frozenset[str]
    parts: frozenset[str]
    gains: bool
    copies: int
    changed: bool
    costs: frozenset[str]


class Weights:
    """The weights of a pipeline's parts, in fast memory or away. What comes back lies in memory of
    NumPy's, so that a meter of activations does not see it."""

    def __init__(self, parts: dict[str, nn.Module]) -> None:
        self.tensors = {name: list(part.parameters()) for name, part in parts.items()}
        self.denoisers = {id(t) for t in self.tensors["denoiser"]}
        self.parts = parts
        self.away: dict[int, torch.Tensor] = {}
        self.moved = 0
        self.most = 0
        self.least = {name: self.fast(name) for name in parts}

    def fast(self, *names: str) -> int:
        tensors = [t for name in names or PARTS for t in self.tensors[name]]
        return sum(t.nbytes for t in tensors)

    def look(self) -> None:
        self.most = max(self.most, self.fast())
        for name in self.parts:
            self.least[name] = min(self.least[name], self.fast(name))

    def send(self, tensors: list[nn.Parameter]) -> None:
        for tensor in tensors:
            self.away[id(tensor)] = torch.from_numpy(tensor.detach().numpy().copy())
            tensor.data = tensor.data.new_empty(0)
        self.look()

    def bring(self, tensors: list[nn.Parameter]) -> None:
        for tensor in tensors:
            tensor.data = self.away.pop(id(tensor))
            self.moved += tensor.nbytes if id(tensor) in self.denoisers else 0
        self.look()


Knob = Callable[[ToyPipeline, Weights], None]


# -- the knobs -------------------------------------------------------------------------------------


def _cut_attention(q, k, v):
    out = torch.empty_like(q)
    for head, row in itertools.product(range(q.shape[1]), range(0, q.shape[2], TOKENS // 2)):
        here = (slice(None), slice(head, head + 1), slice(row, row + TOKENS // 2))
        scores = (q[here] * q.shape[3] ** -0.5) @ k[here[:2]].transpose(2, 3)
        out[here] = scores.softmax(-1) @ v[here[:2]]
    return out


def attention_slicing(pipe: ToyPipeline, _weights: Weights) -> None:
    for block in pipe.denoiser.blocks:
        block.attention = _cut_attention


def fused_attention(pipe: ToyPipeline, _weights: Weights) -> None:
    for block in pipe.denoiser.blocks:
        block.attention = functional.scaled_dot_product_attention


def _while_running(module: nn.Module, weights: Weights, tensors: list[nn.Parameter]) -> None:
    module.register_forward_pre_hook(lambda *_: weights.bring(tensors))
    module.register_forward_hook(lambda *_: weights.send(tensors))


def model_offload(pipe: ToyPipeline, weights: Weights) -> None:
    held: list[nn.Module] = []

    def come(part, _args):
        if part not in held:
            for other in held:
                weights.send(list(other.parameters()))
            held[:] = [part]
            weights.bring(list(part.parameters()))

    for part in weights.parts.values():
        weights.send(list(part.parameters()))
        part.register_forward_pre_hook(come)


def group_offload(pipe: ToyPipeline, weights: Weights) -> None:
    blocks = list(pipe.denoiser.blocks)
    for start in range(0, len(blocks), 2):
        group = blocks[start : start + 2]
        tensors = [t for block in group for t in block.parameters()]
        weights.send(tensors)
        group[0].register_forward_pre_hook(lambda *_, t=tensors: weights.bring(t))
        group[-1].register_forward_hook(lambda *_, t=tensors: weights.send(t))


def sequential_offload(pipe: ToyPipeline, weights: Weights) -> None:
    for part in weights.parts.values():
        for module in part.modules():
            own = list(module.parameters(recurse=False))
            if own:
                weights.send(own)
                _while_running(module, weights, own)


def vae_slicing(pipe: ToyPipeline, _weights: Weights) -> None:
    pipe.decode = lambda z: torch.cat([pipe.decoder(one) for one in z.split(1)])


def vae_tiling(pipe: ToyPipeline, _weights: Weights) -> None:
    """Four tiles of 7 x 7 latents of which neighbours share two, averaged where they meet."""
    scale, tile = pipe.decoder.scale, 7

    def decode(z):
        image = z.new_zeros(len(z), 3, scale * SIDE, scale * SIDE)
        often = z.new_zeros(scale * SIDE, scale * SIDE)
        for top, left in itertools.product((0, SIDE - tile), repeat=2):
            here = (slice(scale * top, scale * (top + tile)),)
            here += (slice(scale * left, scale * (left + tile)),)
            image[(..., *here)] += pipe.decoder(z[..., top : top + tile, left : left + tile])
            often[here] += 1
        return image.div_(often)

    pipe.decode = decode


def bf16(pipe: ToyPipeline, weights: Weights) -> None:
    for part in weights.parts.values():
        part.to(torch.bfloat16)


def _stored(pipe: ToyPipeline, store: Callable, load: Callable) -> None:
    for module in pipe.denoiser.blocks.modules():
        if isinstance(module, nn.Linear):
            kept = store(module.weight.data)
            module.weight.data = kept[0]

            def come(linear, _args, kept=kept):
                linear.weight.data = load(*kept)

            def go(linear, _args, _out, kept=kept):
                linear.weight.data = kept[0]

            module.register_forward_pre_hook(come)
            module.register_forward_hook(go)


def fp8_storage(pipe: ToyPipeline, _weights: Weights) -> None:
    _stored(pipe, lambda w: (w.to(torch.float8_e4m3fn),), lambda w: w.float())


def int8_weights(pipe: ToyPipeline, _weights: Weights) -> None:
    def store(weight):
        scale = weight.abs().amax(1, keepdim=True) / 127
        return (weight / scale).round().to(torch.int8), scale

    _stored(pipe, store, lambda codes, scale: codes.float() * scale)


def split_guidance(pipe: ToyPipeline, _weights: Weights) -> None:
    whole = pipe.denoiser

    class Halves(nn.Module):
        def forward(self, x, time, prompt):
            return torch.cat(
                [
                    whole(*both)
                    for both in zip(x.split(1), [time] * len(x), prompt.split(1), strict=True)
                ]
            )

    pipe.denoiser = Halves()


KNOBS: dict[str, Knob] = {
    "attention slicing": attention_slicing,
    "fused attention": fused_attention,
    "model offload": model_offload,
    "group offload": group_offload,
    "sequential offload": sequential_offload,
    "VAE slicing": vae_slicing,
    "VAE tiling": vae_tiling,
    "bf16": bf16,
    "fp8 storage": fp8_storage,
    "int8 weights": int8_weights,
    "split guidance": split_guidance,
}
NAMES = (*KNOBS, TRAINING)


# -- runs ------------------------------------------------------------------------------------------


def _pipeline() -> ToyPipeline:
    return ToyPipeline(
        seeded(ToyTextEncoder(vocab=4096, dim=DIM, layers=1), 0),
        seeded(ToyDenoiser(dim=DIM, layers=3, heads=HEADS), 1),
        seeded(ToyDecoder(widths=(8, 8, 8)), 2),
    )


@torch.no_grad()
def run(knob: Knob | None, batch: int, steps: int, watch: str = "bytes and shapes") -> Run:
    """Images of a batch, with guidance: the denoiser sees every image with and without its prompt.

    `watch`: which of bytes alive, and of FLOPs, operations and elements, are wanted; "" for none.
    """
    pipe = _pipeline()
    parts = dict(zip(PARTS, (pipe.text_encoder, pipe.denoiser, pipe.decoder), strict=True))
    weights = Weights(parts)
    whole = weights.fast("denoiser")
    if knob:
        knob(pipe, weights)
    stored = {name: weights.fast(name) for name in PARTS}
    for name in PARTS:
        ids = {id(t) for t in parts[name].parameters()}
        stored[name] += sum(t.nbytes for key, t in weights.away.items() if key in ids)
    tokens, noise = toy_inputs(batch, SIDE)
    dtype = next(iter(pipe.decoder.parameters())).dtype
    resident: dict[str, int] = {}
    activations: dict[str, int] = {}
    logs: dict[str, meters.OpLog] = {}

    def phase(name, function):
        weights.most = weights.fast()
        with contextlib.ExitStack() as stack:
            live = None
            if "bytes" in watch:
                live = stack.enter_context(meters.live_bytes(witness=False))
            if "shapes" in watch:
                logs[name] = stack.enter_context(meters.op_log(witness=False))
            out = function()
        resident[name] = max(resident.get(name, 0), weights.most)
        if live:
            activations[name] = max(activations.get(name, 0), live.peak_bytes)
        return out

    weights.moved = 0
    weights.look()
    prompt = phase("text encoder", lambda: pipe.text_encoder(tokens))
    both = torch.cat([prompt, torch.zeros_like(prompt)])
    x = noise.to(dtype)
    for step in range(steps):
        time = 1 - step / steps
        guided = phase(
            "denoiser", lambda x=x, time=time: pipe.denoiser(torch.cat([x, x]), time, both)
        )
        with_prompt, without = guided.split(batch)
        x = x - (without + 3 * (with_prompt - without)) / steps
    image = phase("decoder", lambda: pipe.decode(x))
    weights.look()
    scores, others = _largest(logs["denoiser"]) if logs else (0, 0)
    return Run(
        image=image.float(),
        moved=weights.moved / whole,
        flops={name: log.matmul_flops for name, log in logs.items()},
        ops=sum(len(log.ops) for log in logs.values()),
        stored=stored,
        least=weights.least,
        resident=resident,
        activations=activations,
        scores=scores,
        widest=others,
    )


def _largest(log: meters.OpLog) -> tuple[int, int]:
    """Elements of the largest tensor that has a number for each key, and of the largest other."""
    shapes = [shape for _name, _inputs, outputs in log.ops for shape in outputs if shape]
    scores = [math.prod(s) for s in shapes if s[-1] == TOKENS and s[-2] != DIM // HEADS]
    others = [math.prod(s) for s in shapes if s[-1] != TOKENS]
    return max(scores, default=0), max(others)


class Recomputed(torch.autograd.Function):
    """A block whose forward keeps its input alone, and runs again in the backward."""

    @staticmethod
    def forward(ctx, block, x, *_parameters):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, grad):
        [x] = ctx.saved_tensors
        wanted = [x.detach().requires_grad_(True), *ctx.block.parameters()]
        with torch.enable_grad():
            out = ctx.block(wanted[0])
        return None, *torch.autograd.grad(out, wanted, grad)


def _training(checkpointed: bool) -> tuple[int, int, list[torch.Tensor]]:
    """Peak bytes, FLOPs and gradients of a forward and a backward of the denoiser."""
    denoiser = _pipeline().denoiser.requires_grad_(True)
    if checkpointed:
        for place, block in enumerate(denoiser.blocks):
            denoiser.blocks[place] = again = nn.Module()
            again.whole = block
            again.forward = lambda x, b=block: Recomputed.apply(b, x, *b.parameters())
    _tokens, noise = toy_inputs(1, SIDE)
    prompt = torch.ones(1, DIM)
    with (
        meters.live_bytes(witness=False) as live,
        meters.op_log(witness=False) as log,
    ):
        denoiser(noise, 0.5, prompt).square().mean().backward()
    return live.peak_bytes, log.matmul_flops, [p.grad for p in denoiser.parameters()]


# -- what follows from them ------------------------------------------------------------------------


@cache
def facts() -> dict[str, Facts]:
    """Every knob against the pipeline without it: batch 2 for what it does, batch 1 for what it
    gains there, and 4 steps for what it copies."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # operations this small only wait for each other
    try:
        return _facts_of_all()
    finally:
        torch.set_num_threads(threads)


def _facts_of_all() -> dict[str, Facts]:
    base, small = run(None, 2, 1), run(None, 1, 1, "bytes")
    found = {}
    for name, knob in KNOBS.items():
        many, one = run(knob, 2, 1), run(knob, 1, 1, "bytes")
        moved = round(run(knob, 1, STEPS, "").moved) if many.moved else 0
        found[name] = _facts(base, many, _gains(small, one), moved)
    found[TRAINING] = _facts_of_training()
    return found


def _less(new: float, old: float) -> bool:
    return new < 0.98 * old


def _gains(base: Run, new: Run) -> bool:
    """Whether the peak of any part is lower."""
    return any(
        _less(
            new.resident[part] + new.activations[part], base.resident[part] + base.activations[part]
        )
        for part in PARTS
    )


def _facts(base: Run, new: Run, gains: bool, copies: int) -> Facts:
    shrunk = {part for part in PARTS if _less(new.stored[part], base.stored[part])}
    weighs = {part for part in PARTS if _less(new.least[part], base.least[part])}
    cut = {part for part in PARTS if _less(new.activations[part], base.activations[part])}
    tensors = {"weights"} if weighs else set()
    if "denoiser" in cut and (shrunk or _less(new.scores, base.scores)):
        tensors.add("scores")
    if shrunk & cut or cut - {"denoiser"} or _less(new.widest, base.widest):
        tensors.add("activations")
    changed = (new.image - base.image).abs().max() > SAME * base.image.abs().max()
    more = any(new.flops[part] > 1.02 * base.flops[part] for part in PARTS)
    costs = {
        "link": copies > 0,
        "quality": bool(changed),
        "compute": more,
        "launches": new.ops > base.ops,
    }
    return Facts(
        does="moves" if copies else "shrinks" if shrunk else "tiles",
        tensors=frozenset(tensors),
        parts=frozenset(weighs | cut),
        gains=gains,
        copies=copies,
        changed=bool(changed),
        costs=frozenset(name for name, true in costs.items() if true),
    )


def _facts_of_training() -> Facts:
    peak, flops, grads = _training(False)
    low, more, same = _training(True)
    changed = any(
        (a - b).abs().max() > SAME * max(1e-6, float(a.abs().max()))
        for a, b in zip(grads, same, strict=True)
    )
    return Facts(
        does="recomputes" if more > 1.2 * flops else "tiles",
        tensors=frozenset({"activations", "scores"}),
        parts=frozenset({"denoiser"}),
        gains=_less(low, peak),
        copies=0,
        changed=changed,
        costs=frozenset({"compute", "launches"} if more > 1.02 * flops else ()),
    )
