"""Another way: every format is a list of its values, and a code is the place of the nearest one."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import tiny_lm
import torch
from types_lab11 import NF4, Format, Fp8Product, Row, dynamic_code

# -- formats --------------------------------------------------------------------------------------

TINY = np.float32(2.0**-126)
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# The byte b stands for E4M3[b]; 0x7F is left out.
E4M3 = np.array(
    [(b % 8) * 2.0**-9 if b < 8 else (8 + b % 8) * 2.0 ** (b // 8 - 10) for b in range(127)]
)
E2M1 = np.array(E2M1_VALUES)
STEPS = {"amax/7": -1.0, "amax/7.5": -0.5, "amax/8": 0.0}


def _array(x):
    return x.detach().float().numpy()


def _codes(x, grid, sign_bit):
    """Sign and place of the nearest size, the even place of two; NaN is the place behind all."""
    with np.errstate(invalid="ignore"):  # some NaNs signal
        size = np.nan_to_num(np.abs(x).astype(np.float64)).clip(max=grid[-1])
    above = np.searchsorted(grid, size).clip(1, len(grid) - 1)
    down, up = size - grid[above - 1], grid[above] - size
    place = np.where((down < up) | ((down == up) & (above % 2 == 1)), above - 1, above)
    place = np.where(np.isnan(x), len(grid), place)
    return torch.from_numpy((place + sign_bit * np.signbit(x)).astype(np.uint8))


def _pairs(codes):
    """Two codes a byte, the first in the low nibble."""
    two = codes.unflatten(-1, (-1, 2))
    return two[..., 0] + 16 * two[..., 1]


def qparams(x, bits=4, sym=True, block=(1, -1), conv="amax/7"):
    if bits not in range(2, 9) or conv not in STEPS:
        raise ValueError(f"{bits} bits by {conv}")
    if len(block) != x.dim():
        raise ValueError(f"{len(block)} lengths for {x.dim()} dimensions")
    sizes = [n if b == -1 else b for n, b in zip(x.shape, block, strict=True)]
    if any(b < 1 or n % b for n, b in zip(x.shape, sizes, strict=True)):
        raise ValueError(f"{sizes} does not divide {tuple(x.shape)}")
    low = high = _array(x)
    for axis, size in enumerate(sizes):
        starts = np.arange(0, x.shape[axis], size)
        low = np.minimum.reduceat(low, starts, axis)
        high = np.maximum.reduceat(high, starts, axis)
    low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
    if sym:
        scale = np.maximum(high, -low) / np.float32(2 ** (bits - 1) + STEPS[conv])
        scale = np.maximum(scale, TINY)
        return torch.from_numpy(scale), torch.zeros(scale.shape, dtype=torch.int32)
    scale = np.maximum((high - low) / np.float32(2**bits - 1), TINY)
    zero = np.rint(-low / scale).clip(0, 2**bits - 1).astype(np.int32)
    return torch.from_numpy(scale), torch.from_numpy(zero)


def _like(small, x):
    """Each entry of `small` repeated over its block of x, as float32."""
    blocks = [n // m for n, m in zip(x.shape, small.shape, strict=True)]
    return np.kron(small.numpy().astype(np.float32), np.ones(blocks, np.float32))


def quant(x, scale, zero, bits=4, sym=True):
    low = -(2 ** (bits - 1)) if sym else 0
    ladder = np.arange(low, low + 2**bits)
    steps = np.rint(_array(x) / _like(scale, x)) + _like(zero, x)
    place = np.searchsorted(ladder, steps).clip(0, len(ladder) - 1)
    return torch.from_numpy(ladder[place]).to(torch.int8 if sym else torch.uint8)


def dequant(q, scale, zero):
    return torch.from_numpy((q.float().numpy() - _like(zero, q)) * _like(scale, q))


# Every pair of int4 and its byte: [first + 8, second + 8].
PAIR = np.array([[(a % 16) + 16 * (b % 16) for b in range(-8, 8)] for a in range(-8, 8)])


def pack_int4(q, order="low"):
    if order not in ("low", "high"):
        raise ValueError(order)
    if q.shape[-1] % 2 or (q.numel() and (q.amin() < -8 or q.amax() > 7)):
        raise ValueError("pairs of -8 to 7")
    places = q.numpy().astype(int).reshape(*q.shape[:-1], q.shape[-1] // 2, 2) + 8
    table = PAIR if order == "low" else PAIR.T
    return torch.from_numpy(table[places[..., 0], places[..., 1]].astype(np.uint8))


def unpack_int4(packed, order="low"):
    if order not in ("low", "high"):
        raise ValueError(order)
    first, second = np.zeros(256, np.int8), np.zeros(256, np.int8)
    for (a, b), byte in np.ndenumerate(PAIR):
        first[byte], second[byte] = a - 8, b - 8
    pair = (first, second) if order == "low" else (second, first)
    values = np.stack([table[packed.numpy()] for table in pair], axis=-1)
    return torch.from_numpy(values.reshape(*packed.shape[:-1], -1))


def to_e4m3(x):
    return _codes(_array(x), E4M3, 0x80)


def from_e4m3(codes):
    values = np.append(E4M3, np.nan)
    return torch.from_numpy(np.append(values, -values)[codes.numpy()]).float()


def fp8_linear_dynamic(x, w):
    if x.shape[1] != w.shape[1]:
        raise ValueError(f"{x.shape[1]} against {w.shape[1]} channels")
    parts = []
    for matrix in map(_array, (x, w)):
        top = np.maximum(np.abs(matrix).max(1, keepdims=True), np.float32(1e-12))
        scale = top / np.float32(448)
        parts.append((to_e4m3(torch.from_numpy(matrix / scale)), torch.from_numpy(scale)))
    (x_codes, x_scale), (w_codes, w_scale) = parts
    left = from_e4m3(x_codes).double() * x_scale.double()
    right = from_e4m3(w_codes).double() * w_scale.double()
    y = (left @ right.T).float().bfloat16()
    return Fp8Product(y, x_codes, x_scale, w_codes, w_scale.reshape(1, -1))


def nf_codebook(bits=4):
    tail = (1 / 32 + 1 / 30) / 2
    half = 2 ** (bits - 1)
    up = [NormalDist().inv_cdf(p) for p in np.linspace(0.5, 1 - tail, half + 1)[1:]]
    down = [NormalDist().inv_cdf(p) for p in np.linspace(tail, 0.5, half)[:-1]]
    return torch.tensor([*down, 0.0, *up], dtype=torch.float64).div(up[-1]).float()


def _argmin(x, values):
    return np.abs(x[..., None] - values).argmin(-1)


def nf4(w, bs=64, double=True):
    if bs < 2 or bs % 2 or w.numel() % bs:
        raise ValueError(f"{w.numel()} values in blocks of {bs}")
    blocks = _array(w).reshape(-1, bs)
    absmax = np.abs(blocks).max(1)
    safe = np.where(absmax > 0, absmax, 1)
    codes = _argmin(blocks / safe[:, None], nf_codebook().numpy()).reshape(-1, 2)
    packed = torch.from_numpy((codes @ np.array([16, 1])).astype(np.uint8))
    if not double:
        return NF4(packed, torch.from_numpy(absmax))
    offset = np.float32(absmax.astype(np.float64).mean())
    places, scales = [], []
    for start in range(0, len(absmax), 256):
        rest = absmax[start : start + 256] - offset
        scales.append(np.abs(rest).max())
        places.append(_argmin(rest / (scales[-1] or np.float32(1)), dynamic_code().numpy()))
    q = torch.from_numpy(np.concatenate(places).astype(np.uint8))
    return NF4(packed, q, torch.tensor(np.array(scales)), torch.tensor(offset))


def nf4_dequant(q, shape, bs=64):
    absmax = q.absmax_q
    if q.absmax_scale is not None:
        scale = q.absmax_scale.repeat_interleave(256)[: len(absmax)]
        absmax = dynamic_code()[absmax.long()] * scale + q.offset
    codes = torch.stack((q.codes // 16, q.codes % 16), dim=-1).reshape(-1, bs)
    return (nf_codebook()[codes.long()] * absmax[:, None]).reshape(shape)


# Every power of two that a byte of E8M0 stands for, but NaN.
POWERS = 2.0 ** np.arange(-127, 128)


def to_mx(x, elem="e2m1", mode="floor"):
    grids = {"e2m1": (E2M1, 4.0, 1), "e4m3": (E4M3, 256.0, 3)}
    if elem not in grids or mode not in ("floor", "ceil", "rceil", "even") or x.shape[-1] % 32:
        raise ValueError(f"{elem}, {mode}, {x.shape[-1]} values")
    grid, power, mantissa_bits = grids[elem]
    blocks = _array(x).reshape(*x.shape[:-1], -1, 32)
    amax = np.abs(blocks).max(-1)
    if mode == "rceil":
        place = np.searchsorted(POWERS, (amax / np.float32(grid[-1])).astype(np.float64))
    else:
        wanted = amax / power  # float64, exact
        if mode == "even":
            floor = POWERS[np.searchsorted(POWERS, wanted, side="right").clip(1) - 1]
            wanted = np.where(wanted / floor >= 2 - 2.0 ** -(mantissa_bits + 1), 2 * floor, wanted)
        if mode == "ceil":
            place = np.searchsorted(POWERS, wanted)
        else:
            place = np.searchsorted(POWERS, wanted, side="right") - 1
    place = np.where(amax == 0, 0, place).clip(0, 254)
    elements = (blocks / POWERS[place][..., None]).reshape(x.shape)
    codes = _codes(elements, grid, 8 if elem == "e2m1" else 0x80)
    payload = _pairs(codes) if elem == "e2m1" else codes
    return torch.from_numpy(place.astype(np.uint8)), payload


def from_e2m1(packed):
    table = torch.tensor(np.append(E2M1, -E2M1), dtype=torch.float32)
    return table[torch.stack((packed % 16, packed // 16), dim=-1).flatten(-2).long()]


def from_mx(scales, payload, elem="e2m1"):
    elements = from_e2m1(payload) if elem == "e2m1" else from_e4m3(payload)
    powers = torch.from_numpy(POWERS[scales.numpy()]).float()
    return elements * powers.repeat_interleave(32, dim=-1)


def to_nvfp4(x):
    if x.shape[-1] % 16:
        raise ValueError(f"{x.shape[-1]} values in blocks of 16")
    blocks = _array(x).reshape(*x.shape[:-1], -1, 16)
    amax = np.abs(blocks).max(-1)
    top = amax.max() / np.float32(2688) if amax.any() else np.float32(1)
    wanted = amax.astype(np.float64) / 6 / float(top)
    scales = _codes(np.maximum(wanted, 2.0**-6), E4M3, 0x80)
    each = from_e4m3(scales).double().numpy()[..., None] * float(top)
    codes = _codes((blocks / each).reshape(x.shape), E2M1, 8)
    return _pairs(codes), scales, torch.tensor(top)


def from_nvfp4(payload, scales, global_scale):
    blocks = (from_e4m3(scales) * global_scale).repeat_interleave(16, dim=-1)
    return from_e2m1(payload) * blocks


# -- methods, report ------------------------------------------------------------------------------
def int_scale(w, bits):
    most = w.abs().max(dim=1, keepdim=True).values
    most[most == 0] = 2 ** (bits - 1) - 1
    return most / (2 ** (bits - 1) - 1)


def to_grid(w, scale, bits):
    codes = torch.round(w / scale)
    return codes.clip(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) * scale


def gptq(w, h, bits=4, g=None, damp=0.01, act_order=False, block=128):
    """The inverse itself, from which one row and column go after each step; no blocks."""
    count = w.shape[1]
    if h.shape != (count, count):
        raise ValueError(f"h has shape {tuple(h.shape)} and w {tuple(w.shape)}")
    if not damp >= 0:
        raise ValueError(f"negative damp: {damp}")
    if g is not None and (g <= 0 or count % g != 0):
        raise ValueError(f"{count} columns are no groups of {g}")
    if block <= 0 or (g and block % g != 0 and g % block != 0):
        raise ValueError(f"a block of {block} with groups of {g}")
    h = h.clone().to(w.dtype)
    unused = [j for j in range(count) if h[j, j] == 0]
    left = w.clone()
    for j in unused:
        left[:, j], h[j, j] = 0, 1
    h += torch.eye(count, dtype=w.dtype) * (damp * h.trace() / count)
    rank = sorted(range(count), key=lambda j: -h[j, j]) if act_order else list(range(count))
    inverse = torch.linalg.inv(h[rank][:, rank])
    left, answer, scale = left[:, rank], torch.zeros_like(w), int_scale(left, bits)
    for step, column in enumerate(rank):
        if g is not None and step % g == 0:
            scale = int_scale(left[:, :g], bits)
        answer[:, column] = to_grid(left[:, :1], scale, bits)[:, 0]
        miss = left[:, 0] - answer[:, column]
        out = inverse[0] / inverse[0, 0]
        left = (left - torch.outer(miss, out))[:, 1:]
        inverse = (inverse - torch.outer(inverse[:, 0], out))[1:, 1:]
    return answer


def smoothquant(x, gain, layers, alpha=0.5):
    if not layers or alpha < 0 or alpha > 1:
        raise ValueError(f"{len(layers)} layers, alpha {alpha}")
    factors = []
    for channel in range(len(gain)):
        a = float(x[:, channel].abs().max())
        b = max(float(w[:, channel].abs().max()) for w in layers)
        factors.append(a**alpha * b ** (alpha - 1) if a and b else 1.0)
    s = torch.tensor(factors, dtype=gain.dtype)
    return gain / s, [w @ torch.diag(s) for w in layers]


def awq_search(x, w, bits, g, grid):
    if len(grid) == 0 or g <= 0 or w.shape[1] % g > 0:
        raise ValueError(f"a grid of {len(grid)}, groups of {g} in {w.shape[1]} columns")
    mean, gram = x.abs().sum(dim=0) / len(x), x.T @ x

    def lost(alpha):
        s = torch.clamp(mean.pow(alpha), min=1e-4)
        parts = [(w * s)[:, at : at + g] for at in range(0, w.shape[1], g)]
        q = torch.cat([to_grid(part, int_scale(part, bits), bits) for part in parts], dim=1)
        d = w - q / s
        return float(((d @ gram) * d).sum()) / (len(x) * len(w)), s

    found = [(*lost(alpha), alpha) for alpha in grid]
    loss, s, alpha = min(found, key=lambda one: one[0])
    return alpha, s, loss


def layer_arrays(n, k, fmt):
    """Bits of each array of a layer."""
    groups = n * ((k - 1) // fmt.group + 1 if fmt.group else 1)
    yield n * k * fmt.code_bits
    yield groups * fmt.scale_bits
    yield groups * fmt.zero_bits
    yield 32 * math.ceil(groups / fmt.nested) if fmt.nested else 0
    yield fmt.tensor_bits


def plan_bytes(model, fmt):
    total = 2 * model.head[0] * model.head[1]
    for shape in model.other.values():
        total += 2 * int(np.prod(shape, dtype=np.int64))
    for n, k in model.linear.values():
        total += sum((bits + 7) // 8 for bits in layer_arrays(n, k, fmt))
    return total


def pass_seconds(model, fmt, gpu, tokens):
    if tokens <= 0:
        raise ValueError(f"no pass has {tokens} tokens")
    try:
        peak = gpu.flops[fmt.math]
    except KeyError:
        raise ValueError(f"no {fmt.math} on this GPU: {gpu.name}") from None
    shapes = np.array(list(model.linear.values()), dtype=np.float64)
    compute = 2 * tokens * shapes.prod(axis=1) / peak
    stored = [sum((b + 7) // 8 for b in layer_arrays(*nk, fmt)) for nk in model.linear.values()]
    memory = np.array(stored, dtype=np.float64) / gpu.bytes_per_s
    head = 2 * model.head[0] * model.head[1] / min(gpu.flops["bf16"], gpu.bytes_per_s)
    return float(np.maximum(compute, memory).sum()) + head


def report(weights, plans, rows, gpu, prefill_tokens):
    model, x = tiny_lm.model_of(weights), tiny_lm.layer_inputs(weights, rows)
    gram = {name: (one.double().T @ one.double()).numpy() for name, one in x.items()}
    table = []
    for plan in plans:
        merged = dict(weights)
        merged.update(plan.weights)
        power = {"w": [0.0, 0.0], "y": [0.0, 0.0]}
        for name in plan.weights:
            w = weights[name].numpy().astype(np.float64)
            for place, part in enumerate((w, w - plan.weights[name].numpy())):
                power["w"][place] += np.sum(part**2)
                power["y"][place] += np.sum((part @ gram[name]) * part)
        levels = [10 * np.log10(s / e) if e > 0 else np.inf for s, e in power.values()]
        size = plan_bytes(model, plan.format)
        speeds = [
            pass_seconds(model, Format("bf16", 16), gpu, n)
            / pass_seconds(model, plan.format, gpu, n)
            for n in (1, prefill_tokens)
        ]
        bits = size * 8 / sum(one.numel() for one in weights.values())
        ppl = tiny_lm.perplexity(merged, rows)
        table.append(Row(plan.name, size, bits, *map(float, levels), ppl, *speeds))
    return table
