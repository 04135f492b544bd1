"""Lab 10's and lab 12's clocks against small models with random weights, on one GPU.

`serving` measures steps of an engine (prefills, decodes, both at once) and asks `step_seconds` of
lab 10 how long they take. `training` measures a layer, a head and a whole step and asks
`kernel_times` and `step_time` of lab 12. Products and attention are torch's; what stands between
them is fused by torch.compile, as engines do.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from clock import ROOT, Times, times
from softmax import module_of


@dataclass(frozen=True)
class Shape:
    """A dense transformer: layers, hidden size, heads, key/value heads, width of a head, inner
    width of the MLP, vocabulary."""

    L: int
    h: int
    heads: int
    kv: int
    D: int
    ffn: int
    vocab: int

    @property
    def layer(self) -> int:
        """Weights of a layer's matrices."""
        qkv, out = self.h * (self.heads + 2 * self.kv) * self.D, self.heads * self.D * self.h
        return qkv + out + 3 * self.h * self.ffn

    @property
    def weights(self) -> int:
        """Weights that a step reads: all matrices; of the embedding only the head's."""
        return self.L * self.layer + self.vocab * self.h


LLAMA_3B = Shape(L=28, h=3072, heads=24, kv=8, D=128, ffn=8192, vocab=128_256)
# Dense bf16 FLOP/s and bytes a second of data sheets.
PEAKS = {"H100": (989e12, 3.35e12), "H200": (989e12, 4.8e12), "A100": (312e12, 2.039e12)}
# A step: (tokens of a prompt's chunk, tokens of it that are computed already, requests that decode,
# tokens that each of them has)
STEPS = (
    (128, 0, 0, 0),
    (512, 0, 0, 0),
    (2048, 0, 0, 0),
    (8192, 0, 0, 0),
    (0, 0, 1, 1024),
    (0, 0, 8, 1024),
    (0, 0, 32, 1024),
    (0, 0, 128, 1024),
    (0, 0, 256, 1024),
    (0, 0, 8, 16_384),
    (0, 0, 32, 8192),
    (512, 0, 64, 1024),
    (512, 4096, 64, 1024),
    (2048, 4096, 64, 1024),
)


def peaks() -> tuple[float, float]:
    """This GPU's dense bf16 FLOP/s and bytes a second, as its data sheet has them."""
    import torch

    name = torch.cuda.get_device_name()
    for known, figures in PEAKS.items():
        if known in name:
            return figures
    raise SystemExit(f"{name}: PEAKS of {__file__} does not have its data sheet's figures")


@cache
def _fused() -> tuple[Callable[..., Any], ...]:
    """What stands between products: (x + y and its norm), (heads turned), (silu(a) * b)."""
    import torch

    def added(x: Any, y: Any, weight: Any) -> tuple[Any, Any]:
        total = x + y
        size = torch.rsqrt(total.float().square().mean(-1, keepdim=True) + 1e-5)
        return total, (total.float() * size).to(x.dtype) * weight

    def turned(x: Any, cos: Any, sin: Any) -> Any:
        """x: (tokens, heads, D)."""
        a, b = x.float().chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    def gated(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.nn.functional.silu(a) * b

    return tuple(torch.compile(each, dynamic=True) for each in (added, turned, gated))


class Layer:
    """One layer's weights, (out, in) each; `__call__` does all but the attention between tokens."""

    def __init__(self, shape: Shape, device: str, grad: bool = False) -> None:
        import torch

        self.shape = shape

        def weight(*size: int) -> Any:
            drawn = torch.randn(*size, device=device, dtype=torch.bfloat16) * size[-1] ** -0.5
            return drawn.requires_grad_(grad)

        width = shape.heads * shape.D
        self.qkv = weight((shape.heads + 2 * shape.kv) * shape.D, shape.h)
        self.out = weight(shape.h, width)
        self.up, self.down = weight(2 * shape.ffn, shape.h), weight(shape.h, shape.ffn)
        self.norms = [
            torch.ones(shape.h, device=device, dtype=torch.bfloat16).requires_grad_(grad)
            for _ in range(2)
        ]

    @property
    def all(self) -> list[Any]:
        return [self.qkv, self.out, self.up, self.down, *self.norms]

    def __call__(
        self, x: Any, y: Any, turns: tuple[Any, Any], attend: Callable[..., Any]
    ) -> tuple[Any, Any]:
        """x: the residual stream, y: what is to be added to it, (tokens, h) both; the same two
        behind this layer. attend(q, k, v): (tokens, heads, D) each."""
        import torch

        added, turned, gated = _fused()
        linear, s = torch.nn.functional.linear, self.shape
        x, normed = added(x, y, self.norms[0])
        qkv = linear(normed, self.qkv).view(len(x), s.heads + 2 * s.kv, s.D)
        both = turned(qkv[:, : s.heads + s.kv], *turns)
        mixed = attend(both[:, : s.heads], both[:, s.heads :], qkv[:, s.heads + s.kv :])
        x, normed = added(x, linear(mixed.reshape(len(x), -1), self.out), self.norms[1])
        return x, linear(gated(linear(normed, self.up)), self.down)


def _turns(tokens: int, D: int, device: str) -> tuple[Any, Any]:
    import torch

    angles = torch.rand(tokens, 1, D // 2, device=device)
    return angles.cos(), angles.sin()


# -- lab 10 ---------------------------------------------------------------------------------------


class Engine:
    """A model that computes steps over a KV cache of one chunked prompt and equal decodes."""

    def __init__(self, shape: Shape, device: str = "cuda") -> None:
        import torch

        self.shape, self.device = shape, device
        self.layers = [Layer(shape, device) for _ in range(shape.L)]
        size = shape.vocab, shape.h
        self.head = torch.randn(*size, device=device, dtype=torch.bfloat16) * shape.h**-0.5
        self.norm = torch.ones(shape.h, device=device, dtype=torch.bfloat16)

    def step(self, chunk: int, computed: int, decodes: int, context: int) -> Callable[[], Any]:
        """A call that computes one step and returns the next tokens, of the chunk's last token
        first."""
        import torch
        from torch.nn.attention.bias import causal_lower_right

        s, layers = self.shape, self.layers
        attention = torch.nn.functional.scaled_dot_product_attention

        def room(*size: int) -> Any:
            return torch.randn(*size, device=self.device, dtype=torch.bfloat16)

        # Positions of the prompt, and of each decode: (2, heads, tokens, D) and one batch
        prompts = [room(2, 1, s.kv, computed + chunk, s.D) for _ in layers if chunk]
        others = [room(2, decodes, s.kv, context, s.D) for _ in layers if decodes]
        tokens = torch.randint(0, s.vocab, (chunk + decodes,), device=self.device)
        turns = _turns(chunk + decodes, s.D, self.device)
        # of these tokens the logits are wanted
        last = [chunk - 1] * bool(chunk) + list(range(chunk, chunk + decodes))
        wanted = torch.tensor(last, device=self.device)
        if not computed:
            how: dict[str, Any] = {"is_causal": True}
        else:
            how = {"attn_mask": causal_lower_right(chunk, computed + chunk)}

        def attend(at: int, q: Any, k: Any, v: Any) -> Any:
            parts = []
            if chunk:
                keys, values = prompts[at]
                keys[0, :, computed:] = k[:chunk].transpose(0, 1)
                values[0, :, computed:] = v[:chunk].transpose(0, 1)
                asked = q[:chunk].transpose(0, 1)[None]
                mixed = attention(asked, keys, values, enable_gqa=True, **how)
                parts.append(mixed[0].transpose(0, 1))
            if decodes:
                keys, values = others[at]
                keys[:, :, -1], values[:, :, -1] = k[chunk:], v[chunk:]
                # the query heads of one key/value head as its tokens: the cache is read once
                asked = q[chunk:].view(decodes, s.kv, s.heads // s.kv, s.D)
                parts.append(attention(asked, keys, values).reshape(decodes, s.heads, s.D))
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        def call() -> Any:
            added = _fused()[0]
            x = torch.nn.functional.embedding(tokens, self.head)
            y = torch.zeros_like(x)
            for at, layer in enumerate(layers):
                x, y = layer(x, y, turns, lambda q, k, v, at=at: attend(at, q, k, v))
            _, normed = added(x[wanted], y[wanted], self.norm)
            return torch.nn.functional.linear(normed, self.head).argmax(-1)

        return call


def captured(call: Callable[[], Any]) -> Callable[[], Any]:
    """The kernels of a call as one CUDA graph: what the host does to start them is done once."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def serving(options: argparse.Namespace) -> list[str]:
    import torch

    sys.path[:0] = [str(ROOT / "exercises" / "lab10")]
    lab = module_of(ROOT / "solutions" / "lab10" / "serving.py")
    flops, bandwidth = peaks()
    s = LLAMA_3B
    cost = lab.CostModel(
        weight_bytes=2 * s.weights,
        flops_per_token=2 * s.L * s.layer,  # the head sees one token a request
        kv_bytes_per_token=2 * s.L * s.kv * s.D * 2,
        peak_flops=flops,
        hbm_bytes_per_s=bandwidth,
    )
    lines = [
        f"{s.weights / 1e9:.2f} billion weights of Llama-3.2-3B's shape, random, in bf16: "
        f"{s.L} layers, {2 * s.weights / 1e9:.2f} GB, {cost.kv_bytes_per_token:,.0f} bytes a token "
        f"of context. `step_seconds` with {flops / 1e12:,.0f} TFLOP/s, {bandwidth / 1e12:.2f} TB/s "
        "and no overhead. GPU: the step as one CUDA graph. From Python: the same kernels, started "
        "one by one.",
        "",
        "| chunk | computed before | decodes | context of each | step_seconds, ms | "
        "GPU, ms: median (p10 to p90) | measured / step_seconds | from Python, ms |",
        "|" + " --- |" * 8,
    ]
    with torch.inference_mode():
        engine = Engine(s)
        for chunk, computed, decodes, context in STEPS:
            call = engine.step(chunk, computed, decodes, context)
            call()
            found = times({"graph": captured(call), "python": call}, max(5, options.repeats // 5))
            read = computed + chunk + decodes * context
            model = lab.step_seconds(cost, chunk + decodes, read)
            graph = found["graph"]
            cells = [chunk or "", computed or "", decodes or "", context or ""]
            shown = [f"{each:,}" if each else "" for each in cells]
            shown += [f"{model * 1e3:.2f}", milliseconds(graph), f"{graph.median / model:.2f}"]
            shown += [f"{found['python'].median * 1e3:.2f}"]
            lines.append(f"| {' | '.join(shown)} |")
            print(lines[-1], flush=True)
            del call
            torch.cuda.empty_cache()
    return lines


def milliseconds(one: Times) -> str:
    return f"{one.median * 1e3:.2f} ({one.p10 * 1e3:.2f} to {one.p90 * 1e3:.2f})"


# -- lab 12 ---------------------------------------------------------------------------------------


class Trained:
    """Layers and a head that compute a loss of one sequence."""

    def __init__(self, shape: Shape, seq: int, device: str = "cuda") -> None:
        import torch

        self.shape, self.seq, self.device = shape, seq, device
        self.layers = [Layer(shape, device, grad=True) for _ in range(shape.L)]

        def weight(*size: int) -> Any:
            drawn = torch.randn(*size, device=device, dtype=torch.bfloat16) * shape.h**-0.5
            return drawn.requires_grad_()

        self.embedding, self.head = (weight(shape.vocab, shape.h) for _ in range(2))
        self.norm = torch.ones(shape.h, device=device, dtype=torch.bfloat16, requires_grad=True)
        self.tokens = torch.randint(0, shape.vocab, (seq + 1,), device=device)
        self.turns = _turns(seq, shape.D, device)

    @property
    def all(self) -> list[Any]:
        inside = [each for layer in self.layers for each in layer.all]
        return [*inside, self.embedding, self.head, self.norm]

    def attend(self, q: Any, k: Any, v: Any) -> Any:
        import torch

        q, k, v = (each.transpose(0, 1)[None] for each in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        return out[0].transpose(0, 1)

    def layer(self, x: Any, y: Any) -> tuple[Any, Any]:
        return self.layers[0](x, y, self.turns, self.attend)

    def ended(self, x: Any, y: Any) -> Any:
        """The loss, from what the last layer leaves."""
        import torch

        _, normed = _fused()[0](x, y, self.norm)
        logits = torch.nn.functional.linear(normed, self.head)
        return torch.nn.functional.cross_entropy(logits.float(), self.tokens[1:])

    def loss(self) -> Any:
        import torch

        x = torch.nn.functional.embedding(self.tokens[:-1], self.embedding)
        y = torch.zeros_like(x)
        for layer in self.layers:
            x, y = layer(x, y, self.turns, self.attend)
        return self.ended(x, y)


def _halves(forward: Callable[[], Any], weights: list[Any], repeats: int) -> dict[str, Times]:
    """A forward, and a forward with its backward."""
    import torch

    def both() -> None:
        outs = [out for out in forward() if out.requires_grad]
        grads = [torch.ones_like(out) for out in outs]
        torch.autograd.backward(outs, grads)
        for weight in weights:
            weight.grad = None

    return times({"forward": forward, "both": both}, repeats)


def training(options: argparse.Namespace) -> list[str]:
    import torch

    sys.path[:0] = [str(ROOT / "exercises" / "lab12")]
    kernels = module_of(ROOT / "exercises" / "lab12" / "kernels_lab12.py")
    lab = module_of(ROOT / "solutions" / "lab12" / "parallelism.py")
    from types_lab12 import Cluster, Model, Plan

    flops, bandwidth = peaks()
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    cluster = Cluster(nodes=1, gpus=8, flops=flops, hbm_Bps=bandwidth, sms=processors)
    repeats = max(5, options.repeats // 5)
    big = {"ffn": 14_336, "vocab": 128_256, "seq": 8192}
    eight = Model(L=32, h=4096, heads=32, kv_heads=8, **big)
    seventy = Model(L=80, h=8192, heads=64, kv_heads=8, **{**big, "ffn": 28_672})
    lines = [
        f"A layer and a head with the loss, 8,192 tokens in one sequence, bf16, beside "
        f"`kernel_times` with {flops / 1e12:,.0f} TFLOP/s of which products reach "
        f"{cluster.reach}, {bandwidth / 1e12:.2f} TB/s and {processors} multiprocessors. Of TP 8 "
        "the slices of one GPU, without what it sends.",
        "",
        "| what | kernel_times, ms | measured, ms: median (p10 to p90) | measured / kernel_times |",
        "| --- | --- | --- | --- |",
    ]
    for name, model, tp in (("Llama-3-8B", eight, 1), ("Llama-3-70B, TP 8", seventy, 8)):
        D = model.h // model.heads
        shape = Shape(
            1, model.h, model.heads // tp, model.kv_heads // tp, D, model.ffn // tp,
            model.vocab // tp,
        )  # fmt: skip
        trained = Trained(shape, model.seq)
        plan = Plan(tp=tp, pp=1, cp=1, dp=1, micro=1, gbs=1, sp=tp > 1)
        said = kernels.kernel_times(plan, model, cluster)
        x = torch.randn(model.seq, shape.h, device="cuda", dtype=torch.bfloat16)
        x, y = x.requires_grad_(), (0.1 * x).detach().requires_grad_()
        weights = [*trained.all, x, y]
        q, k, v = (
            torch.randn(model.seq, count, D, device="cuda", dtype=torch.bfloat16)
            for count in (shape.heads, shape.kv, shape.kv)
        )
        inside = times({"attention": lambda q=q, k=k, v=v, t=trained: t.attend(q, k, v)}, repeats)
        layer = _halves(lambda t=trained, x=x, y=y: t.layer(x, y), weights, repeats)
        head = _halves(lambda t=trained, x=x, y=y: (t.ended(x, y),), weights, repeats)
        rows = (
            ("attention, forward", said.attention_s, inside["attention"]),
            ("layer, forward", said.layer_s, layer["forward"]),
            ("layer, forward and backward", said.layer_s + said.layer_back_s, layer["both"]),
            ("head, forward", said.head_s, head["forward"]),
            ("head, forward and backward", said.head_s + said.head_back_s, head["both"]),
        )
        for what, model_s, one in rows:
            ratio = f"{one.median / model_s:.2f}"
            cells = (f"{name}: {what}", f"{model_s * 1e3:.2f}", milliseconds(one), ratio)
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
        del trained, weights, x, y, q, k, v
        torch.cuda.empty_cache()
    return lines + _step(lab, cluster, Model, Plan, repeats)


def _step(lab: Any, cluster: Any, Model: Any, Plan: Any, repeats: int) -> list[str]:
    """A whole step of a small model on one GPU: micro-batches, then the optimizer."""
    import torch

    micros = 4
    model = Model(L=8, h=4096, heads=32, kv_heads=8, ffn=14_336, vocab=32_768, seq=8192)
    shape = Shape(model.L, model.h, model.heads, model.kv_heads, 128, model.ffn, model.vocab)
    plan = Plan(tp=1, pp=1, cp=1, dp=1, micro=1, gbs=micros, recompute="none")
    said = lab.step_time(plan, model, dataclasses.replace(cluster, gpus=1))
    trained = Trained(shape, model.seq)
    adam = torch.optim.AdamW(trained.all, lr=1e-5, fused=True)

    def whole() -> None:
        for _ in range(micros):
            trained.loss().backward()
        adam.step()
        adam.zero_grad(set_to_none=True)

    whole()
    found = times({"whole": whole}, max(3, repeats // 2))["whole"]
    count = sum(weight.numel() for weight in trained.all)
    mfu = said.mfu * said.total_s / found.median
    return [
        "",
        f"A step of {model.L} layers of Llama-3-8B's shape and {model.vocab:,} words "
        f"({count / 1e9:.2f} billion parameters in bf16), {micros} sequences of {model.seq:,} "
        "tokens one after another, fused AdamW.",
        "",
        "| | step_time | measured |",
        "| --- | --- | --- |",
        f"| seconds | {said.total_s:.3f} | {found.median:.3f} "
        f"({found.p10:.3f} to {found.p90:.3f}) |",
        f"| MFU | {said.mfu:.1%} | {mfu:.1%} |",
    ]
