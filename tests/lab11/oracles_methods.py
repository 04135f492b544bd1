"""Oracles for GPTQ, the report and the plan: NumPy in float64, and really saved files.

GPTQ's rests on what it is meant to do: after every column that is fixed, the columns that are left
solve their least-squares problem. Nothing is factored and nothing is carried along. Bytes are those
of a file that safetensors wrote; the language model's forward pass is written out once more.
"""

from __future__ import annotations

import functools
import json
import math
import struct
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PUBLISHED = {
    row["id"]: row for row in json.loads((HERE / "published.json").read_text(encoding="utf-8"))
}
MODEL = HERE / "tiny_lm.safetensors"


# -- gptq -----------------------------------------------------------------------------------------


def scale_of(w, bits):
    """amax / (2^(bits-1) - 1) of each row, [N, 1]; 1 for rows of zeros."""
    most = np.abs(w).max(axis=1, keepdims=True)
    return np.where(most > 0, most / (2 ** (bits - 1) - 1), 1.0)


def nearest(w, scale, bits):
    top = 2 ** (bits - 1)
    return np.clip(np.rint(w / scale), -top, top - 1) * scale


def to_nearest(w, bits, g=None):
    """Each weight on its own: [N, K]."""
    groups = np.split(w, w.shape[1] // (g or w.shape[1]), axis=1)
    return np.concatenate([nearest(part, scale_of(part, bits), bits) for part in groups], axis=1)


def by_least_squares(w, h, bits=4, g=None, damp=0.01, act_order=False):
    """(weights [N, K], the least distance of any code from a tie, in codes).

    h is x.T @ x. With F fixed and R left, R minimises |x (w' - w).T|^2 + damping, so that
    h[R, R] d[R] = -h[R, F] d[F] for the differences d; that is solved anew after every column."""
    w, h = w.copy(), h.copy()
    dead = np.diag(h) == 0
    w[:, dead] = 0.0
    h[dead, dead] = 1.0
    k = len(h)
    order = np.argsort(-np.diag(h), kind="stable") if act_order else np.arange(k)
    h += damp * np.diag(h).mean() * np.eye(k)
    w, h = w[:, order], h[np.ix_(order, order)]
    now, scale, margin = w.copy(), scale_of(w, bits), 0.5
    for j in range(k):
        if g is not None and j % g == 0:
            scale = scale_of(now[:, j : j + g], bits)
        code = now[:, j : j + 1] / scale
        margin = min(margin, float(np.abs(code - np.floor(code) - 0.5).min()))
        now[:, j : j + 1] = nearest(now[:, j : j + 1], scale, bits)
        fixed = now[:, : j + 1] - w[:, : j + 1]
        left = slice(j + 1, k)
        if j + 1 < k:
            now[:, left] = w[:, left] - np.linalg.solve(h[left, left], h[left, : j + 1] @ fixed.T).T
    back = np.empty_like(now)
    back[:, order] = now
    return back, margin


def correlated(rng, k, tokens, rank=None):
    """Inputs [tokens, K] that share most of what they do, with channels of different sizes."""
    shared = rng.normal(size=(tokens, rank or max(2, k // 4))) @ rng.normal(
        size=(rank or max(2, k // 4), k)
    )
    return (shared + 0.3 * rng.normal(size=(tokens, k))) * np.exp(0.5 * rng.normal(size=k))


def layer(rng, n, k, dead=(), margin=1e-4, narrow=False, size=1.0, **how):
    """(w, h, GPTQ's weights) of a layer in whose run no code comes nearer to a tie: there, rounding
    in any precision decides alike. narrow: w and h are float32 values; size: of the inputs."""
    while True:
        x = size * correlated(rng, k, 3 * k + 4)
        x[:, list(dead)] = 0.0
        w = rng.normal(size=(n, k))
        w[:, list(dead)] *= 4.0  # what is never used would set the step of its row
        h = x.T @ x / len(x)
        if narrow:
            w, h = w.astype(np.float32).astype(float), h.astype(np.float32).astype(float)
        want, least = by_least_squares(w, h, **how)
        if least > margin:
            return w, h, want


# -- report ---------------------------------------------------------------------------------------

_WIDTHS = {8: np.uint8, 16: np.float16, 32: np.float32}


def saved_bytes(folder, model, fmt) -> int:
    """Bytes of the tensors in a file that safetensors wrote: the length without the header. Codes
    and zero points of fewer than 8 bits are packed, scales have dtypes of their own."""
    from safetensors.numpy import save_file

    arrays = {"head": np.zeros(model.head, np.float16)}
    arrays |= {name: np.zeros(shape, np.float16) for name, shape in model.other.items()}
    for name, (n, k) in model.linear.items():
        scales = n * math.ceil(k / (fmt.group or k))
        arrays[f"{name}.codes"] = _packed(n * k, fmt.code_bits)
        if fmt.scale_bits:
            arrays[f"{name}.scales"] = np.zeros(scales, _WIDTHS[fmt.scale_bits])
        if fmt.zero_bits:
            arrays[f"{name}.zeros"] = _packed(scales, fmt.zero_bits)
        if fmt.nested:
            arrays[f"{name}.shared"] = np.zeros(math.ceil(scales / fmt.nested), np.float32)
        if fmt.tensor_bits:
            arrays[f"{name}.tensor"] = np.zeros(fmt.tensor_bits // 32, np.float32)
    path = folder / f"{len(list(folder.iterdir()))}.safetensors"
    save_file(arrays, path)
    content = path.read_bytes()
    return len(content) - 8 - struct.unpack("<Q", content[:8])[0]


def _packed(count, bits):
    """`count` codes of so many bits, packed."""
    return np.packbits(np.zeros((count, bits), np.uint8))


def pass_seconds(model, fmt, gpu, tokens) -> float:
    """Roofline in closed form, in which all of a model's linear layers have the same bound."""
    weights = sum(n * k for n, k in model.linear.values())
    scales = sum(n * math.ceil(k / (fmt.group or k)) for n, k in model.linear.values())
    bits = weights * fmt.code_bits + scales * (fmt.scale_bits + fmt.zero_bits)
    read = bits / 8 / gpu.bytes_per_s
    head = 2 * model.head[0] * model.head[1]
    head_s = max(head / gpu.flops["bf16"], head / gpu.bytes_per_s)
    return max(read, 2 * tokens * weights / gpu.flops[fmt.math]) + head_s


@functools.cache
def tiny_model():
    """The shipped model as float64 arrays."""
    import torch  # the file is bfloat16, which NumPy does not have
    from safetensors.torch import load_file

    assert torch
    return {name: one.double().numpy() for name, one in load_file(MODEL).items()}


def run(weights, rows):
    """(perplexity, input of each linear layer) of the tiny model on int64 [B, T + 1]; float64."""
    heads = 4
    inputs = {}

    def linear(x, name):
        inputs[name] = x.reshape(-1, x.shape[-1])
        return x @ weights[name].T

    def norm(x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * weights[name]

    tokens, targets = rows[:, :-1], rows[:, 1:]
    batch, length = tokens.shape
    x = weights["embed"][tokens] + weights["pos"][:length]
    causal = np.triu(np.full((length, length), -np.inf), 1)
    layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("layers."))
    for layer in range(layers):
        at = f"layers.{layer}."
        y = norm(x, at + "norm1")
        q, k, v = (
            linear(y, at + one).reshape(batch, length, heads, -1).swapaxes(1, 2) for one in "qkv"
        )
        p = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1]) + causal
        p = np.exp(p - p.max(-1, keepdims=True))
        y = (p / p.sum(-1, keepdims=True)) @ v
        x = x + linear(y.swapaxes(1, 2).reshape(batch, length, -1), at + "o")
        y = norm(x, at + "norm2")
        gate = linear(y, at + "gate")
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(y, at + "up"), at + "down")
    logits = norm(x, "norm") @ weights["head"].T
    logits -= logits.max(-1, keepdims=True)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(logp, targets[..., None], -1)
    return math.exp(float(losses.mean())), inputs


def quality(weights, stored, rows):
    """(SQNR of weights in dB, of outputs in dB, perplexity) of a plan's weights."""
    _ppl, inputs = run(weights, rows)
    sums = np.zeros(4)
    for name, q in stored.items():
        w, noise = weights[name], weights[name] - q
        parts = (w, noise, inputs[name] @ w.T, inputs[name] @ noise.T)
        sums += [float((part * part).sum()) for part in parts]
    ppl, _inputs = run({**weights, **stored}, rows)
    levels = [10 * math.log10(sums[i] / sums[i + 1]) if sums[i + 1] else math.inf for i in (0, 2)]
    return (*levels, ppl)
