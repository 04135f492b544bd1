"""Another way: a code is found bit by bit, as a converter of voltages does it; blocks are cut off
one dimension after another; nibbles are digits of a text; GPTQ is the nearest plane, without an
inverse."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from fractions import Fraction

import tiny_lm
import torch
from plans_lab11 import BF16
from types_lab11 import NF4, Fp8Product, Row, dynamic_code

# -- formats --------------------------------------------------------------------------------------

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
E4M3_VALUES = (
    *(m * 2.0**-9 for m in range(8)),
    *((1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8) if (e, m) != (15, 7)),
)


def _climb(x, edges, closed):
    """How many of the ascending `edges` x has reached: it lies above them, or on a closed one."""
    bits = len(edges).bit_length()
    edges = [-math.inf, *edges] + [math.inf] * (2**bits - len(edges) - 1)
    closed = [False, *closed] + [False] * (len(edges) - len(closed) - 1)
    edges, closed = torch.tensor(edges, dtype=torch.float64), torch.tensor(closed)
    x = x.double()
    code = torch.zeros(x.shape, dtype=torch.int64)
    for bit in reversed(range(bits)):
        trial = code | 1 << bit
        reached = (x > edges[trial]) | ((x == edges[trial]) & closed[trial])
        code = torch.where(reached, trial, code)
    return code


def _middles(values):
    return [(a + b) / 2 for a, b in itertools.pairwise(values)]


def _signed(x, values, sign):
    """Codes of a small float: nearest size, half to even, and the sign."""
    x = x.double()
    middles = _middles(values)
    size = _climb(x.abs(), middles, [place % 2 == 1 for place in range(len(middles))])
    return size + sign * x.signbit()


def _cut(x, sizes, measure, dim=0):
    """`measure` of every block, one dimension after another."""
    if dim == len(sizes):
        return measure(x)
    parts = x.split(sizes[dim], dim)
    return torch.stack([_cut(part, sizes, measure, dim + 1) for part in parts])


def qparams(x, bits=4, sym=True, block=(1, -1), conv="amax/7"):
    known = ["amax/7", "amax/7.5", "amax/8"]
    sizes = [n if b == -1 else b for n, b in zip(x.shape, block)]
    wrong = [b for n, b in zip(x.shape, sizes) if b <= 0 or n % b != 0]
    if not 1 < bits < 9 or (sym and conv not in known) or len(block) != x.ndim or wrong:
        raise ValueError(f"{bits} bits, {conv}, blocks {block} of {list(x.shape)}")
    x, steps = x.to(torch.float32), 2.0**bits - 1
    tiny = torch.tensor(2.0**-126)
    zero = torch.tensor(0.0)
    if sym:
        most = _cut(x, sizes, lambda part: part.abs().max())
        scale = torch.maximum(most / ((steps - 1 + known.index(conv)) / 2), tiny)
        return scale, torch.zeros(scale.shape).int()
    low = torch.minimum(_cut(x, sizes, torch.min), zero)
    high = torch.maximum(_cut(x, sizes, torch.max), zero)
    scale = torch.maximum((high - low) / steps, tiny)
    return scale, (low.abs() / scale).round().int()


def _spread(small, x):
    for dim, (n, m) in enumerate(zip(x.shape, small.shape)):
        small = small.index_select(dim, torch.arange(n) // (n // m))
    return small


def quant(x, scale, zero, bits=4, sym=True):
    steps = (x.to(torch.float32) / _spread(scale, x)).double()
    zero = _spread(zero, x).long()
    code = torch.full(x.shape, -(1 << bits - 1) if sym else 0)
    for bit in reversed(range(bits)):
        trial = code + (1 << bit)
        edge = (trial - zero).double() - 0.5
        up = (steps > edge) | ((steps == edge) & ((trial - zero) % 2 == 0))
        code = torch.where(up, trial, code)
    return code.to(torch.int8 if sym else torch.uint8)


def dequant(q, scale, zero):
    return torch.mul(torch.sub(q.int(), _spread(zero, q)).float(), _spread(scale, q))


def _check_order(order):
    if order not in ("low", "high"):
        raise ValueError(f"no order {order!r}")


def _hexadecimal(codes, order):
    """Codes from 0 to 15 as digits, two a byte."""
    digits = "".join(map("{:x}".format, codes.flatten().tolist()))
    if order == "low":
        digits = "".join(b + a for a, b in zip(digits[::2], digits[1::2]))
    packed = torch.tensor(list(bytes.fromhex(digits)), dtype=torch.uint8)
    return packed.reshape(*codes.shape[:-1], codes.shape[-1] // 2)


def pack_int4(q, order="low"):
    _check_order(order)
    if q.shape[-1] & 1 or not set(q.flatten().tolist()) <= set(range(-8, 8)):
        raise ValueError("pairs of int4 are packed, from -8 to 7")
    return _hexadecimal(q.long() % 16, order)


def unpack_int4(packed, order="low"):
    _check_order(order)
    digits = bytes(packed.flatten().tolist()).hex()
    if order == "low":
        digits = "".join(b + a for a, b in zip(digits[::2], digits[1::2]))
    values = ["01234567fedcba98".index(digit) for digit in digits]
    values = [value if value < 8 else 7 - value for value in values]
    return torch.tensor(values, dtype=torch.int8).reshape(*packed.shape[:-1], -1)


def to_e4m3(x):
    x = x.double()
    code = _signed(x.where(~x.isnan(), torch.zeros(()).double()), E4M3_VALUES, 128)
    return code.masked_fill(x.isnan(), 127).to(torch.uint8)


def from_e4m3(codes):
    sizes = [*E4M3_VALUES, math.nan]
    table = torch.tensor([*sizes, *(-size for size in sizes)])
    return table[codes.long()]


def fp8_linear_dynamic(x, w):
    if x.shape[1] != w.shape[1]:
        raise ValueError(f"{x.shape[1]} inputs, and w has {w.shape[1]}")

    def stored(matrix):
        matrix = matrix.to(torch.float32)
        most = matrix.abs().sort(dim=1).values[:, -1:]
        scale = torch.where(most > 1e-12, most, torch.tensor(1e-12)) / 448.0
        return to_e4m3(matrix / scale), scale

    (x_codes, x_scale), (w_codes, w_scale) = stored(x), stored(w)
    sums = torch.zeros(len(x), len(w))
    for left, right in zip(from_e4m3(x_codes).split(16, 1), from_e4m3(w_codes).split(16, 1)):
        sums = sums + left @ right.mT
    y = (sums * w_scale.mT * x_scale).to(torch.bfloat16)
    return Fp8Product(y, x_codes, x_scale, w_codes, w_scale.mT)


@functools.cache
def _quantile(p):
    """Of the normal distribution, for p below 1/2, by halving an interval."""
    low, high = -9.0, 0.0
    for _ in range(80):
        middle = (low + high) / 2
        if math.erfc(-middle / math.sqrt(2)) / 2 < p:
            low = middle
        else:
            high = middle
    return low


def nf_codebook(bits=4):
    d, half = (1 / 32 + 1 / 30) / 2, 1 << bits - 1
    below = [_quantile(d + (0.5 - d) * i / (half - 1)) for i in range(half - 1)]
    above = [-_quantile(d + (0.5 - d) * i / half) for i in reversed(range(half))]
    return torch.tensor([value / above[-1] for value in (*below, 0.0, *above)])


def _place(x, values):
    """The place of the nearest."""
    middles = _middles(values.double().tolist())
    return _climb(x, middles, [False] * len(middles))


def nf4(w, bs=64, double=True):
    if bs <= 1 or bs & 1 or w.numel() % bs:
        raise ValueError(f"blocks of {bs} in {w.numel()} values")
    blocks = torch.stack(w.to(torch.float32).flatten().split(bs))
    absmax = torch.stack([block.abs().max() for block in blocks])
    shares = blocks.double() / absmax.double().masked_fill(absmax == 0, 1.0).unsqueeze(1)
    codes = _hexadecimal(_place(shares, nf_codebook()).flatten(), "high")
    if not double:
        return NF4(codes, absmax)
    offset = (absmax.double().sum() / len(absmax)).float()
    scales, places = [], []
    for left in (absmax - offset).split(256):
        scales.append(left.abs().max())
        places.append(_place(left.double() / (float(scales[-1]) or 1.0), dynamic_code()))
    return NF4(codes, torch.cat(places).to(torch.uint8), torch.stack(scales), offset)


def nf4_dequant(q, shape, bs=64):
    absmax = q.absmax_q
    if q.offset is not None:
        scale = q.absmax_scale.repeat_interleave(256)[: len(absmax)]
        absmax = dynamic_code()[absmax.long()] * scale + q.offset
    codes = torch.stack((q.codes // 16, q.codes % 16), dim=-1).reshape(-1, bs)
    return (nf_codebook()[codes.long()] * absmax[:, None]).reshape(shape)


def to_mx(x, elem="e2m1", mode="floor"):
    if elem not in ("e2m1", "e4m3") or mode not in ("floor", "ceil", "rceil", "even"):
        raise ValueError(f"{elem}, {mode}")
    if x.shape[-1] % 32 != 0:
        raise ValueError(f"a row of {x.shape[-1]}")
    values, power, mantissa = (E2M1_VALUES, 4, 1) if elem == "e2m1" else (E4M3_VALUES, 256, 3)
    blocks = x.to(torch.float32).reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    amax = blocks.abs().max(dim=-1).values
    if mode == "rceil":
        amax, power = amax / values[-1], 1
    # From where on the byte is b + 1 at least: scales of 2^(b - 127) are too small there.
    first = {"floor": 2, "ceil": 1, "rceil": 1, "even": 2 - 2.0 ** -(mantissa + 1)}[mode]
    edges = [first * power * 2.0 ** (b - 127) for b in range(254)]
    byte = _climb(amax, edges, [mode in ("floor", "even")] * len(edges))
    scale = torch.tensor([2.0 ** (b - 127) for b in range(255)], dtype=torch.float64)[byte]
    elements = (blocks.double() / scale.unsqueeze(-1)).reshape(x.shape)
    if elem == "e2m1":
        return byte.to(torch.uint8), _hexadecimal(_signed(elements, values, 8), "low")
    return byte.to(torch.uint8), _signed(elements, values, 128).to(torch.uint8)


def from_e2m1(packed):
    code = torch.stack((packed % 16, packed // 16), dim=-1).flatten(-2).long()
    size = torch.tensor(E2M1_VALUES)[code % 8]
    return torch.where(code >= 8, -size, size)


def from_mx(scales, payload, elem="e2m1"):
    elements = from_e2m1(payload) if elem == "e2m1" else from_e4m3(payload)
    powers = torch.exp2(scales.double() - 127).float()
    return elements * powers.repeat_interleave(32, dim=-1)


def to_nvfp4(x):
    if x.shape[-1] % 16 != 0:
        raise ValueError(f"a row of {x.shape[-1]}")
    blocks = x.to(torch.float32).reshape(*x.shape[:-1], x.shape[-1] // 16, 16)
    most = blocks.abs().max(dim=-1).values
    whole = most.max() / 2688 if most.count_nonzero() else torch.tensor(1.0)
    wanted = most.double() / 6 / whole.double()
    scales = to_e4m3(wanted.clamp(min=0.015625))
    stored = from_e4m3(scales).double() * whole.double()
    elements = (blocks.double() / stored.unsqueeze(-1)).reshape(x.shape)
    return _hexadecimal(_signed(elements, E2M1_VALUES, 8), "low"), scales, whole


def from_nvfp4(payload, scales, global_scale):
    blocks = (from_e4m3(scales) * global_scale).repeat_interleave(16, dim=-1)
    return from_e2m1(payload) * blocks


# -- methods, report ------------------------------------------------------------------------------
def int_scale(w, bits):
    scale = w.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def to_grid(w, scale, bits):
    top = 2 ** (bits - 1)
    return (w / scale).round().clamp(-top, top - 1) * scale


def _planes(h):
    """The unit lower triangle L of h = L.T @ D @ L, D diagonal: row j says by how much the error of
    each column before j moves the best value of column j."""
    rest, lower = h.clone(), torch.eye(len(h), dtype=h.dtype)
    for j in range(len(h) - 1, 0, -1):
        lower[j, :j] = rest[j, :j] / rest[j, j]
        rest[:j, :j] -= rest[j, j] * torch.outer(lower[j, :j], lower[j, :j])
    return lower


def gptq(w, h, bits=4, g=None, damp=0.01, act_order=False, block=128):
    """Babai's nearest plane: a column's best value follows from the original weights and the errors
    of the columns before it. Nothing is carried along, inverted or updated."""
    k = w.shape[1]
    problems = {
        f"h {list(h.shape)}": list(h.shape) != [k, k],
        f"damp {damp}": damp < 0,
        f"g {g}": g is not None and (g < 1 or bool(k % g)),
        f"block {block}": block < 1 or (g is not None and g > 0 and bool(block % g and g % block)),
    }
    for problem, so in problems.items():
        if so:
            raise ValueError(problem)
    h = h.to(w.dtype)
    dead = torch.eq(h.diagonal(), 0)
    h = h + torch.diag_embed(dead.to(w.dtype))
    h = h + torch.diag_embed(torch.full((k,), damp * float(h.trace()) / k, dtype=w.dtype))
    order = h.diagonal().sort(descending=True).indices if act_order else torch.arange(k)
    w = torch.where(dead, torch.zeros_like(w), w)[:, order]
    lower = _planes(h[order][:, order])
    result, error, width = torch.zeros_like(w), torch.zeros_like(w), g or k
    for first in range(0, k, width):
        free = w.clone()  # what the group would be if only the columns before it were rounded
        drift = error.clone()
        for j in range(first, first + width) if first else ():
            free[:, j] += drift[:, :j] @ lower[j, :j]
            drift[:, j] = w[:, j] - free[:, j]
        scale = int_scale(free[:, first : first + width], bits)
        for j in range(first, first + width):
            best = w[:, [j]] + error[:, :j] @ lower[j, :j, None]
            result[:, [j]] = to_grid(best, scale, bits)
            error[:, j] = w[:, j] - result[:, j]
    return torch.empty_like(result).index_copy_(1, order, result)


def smoothquant(x, gain, layers, alpha=0.5):
    if not layers or not 0 <= alpha <= 1:
        raise ValueError(f"alpha {alpha} for {len(layers)} layers")
    most_x = x.abs().sort(dim=0).values[-1]
    most_w = functools.reduce(torch.maximum, [w.abs().sort(dim=0).values[-1] for w in layers])
    both = (most_x != 0) & (most_w != 0)
    power = alpha * most_x.masked_fill(~both, 1).log2()
    power = power + (alpha - 1) * most_w.masked_fill(~both, 1).log2()
    return gain * torch.exp2(-power), [w * torch.exp2(power) for w in layers]


def awq_search(x, w, bits, g, grid):
    if g <= 0 or w.shape[1] % g or not len(grid):
        raise ValueError(f"groups of {g} in {w.shape[1]} columns, {len(grid)} exponents")
    gram, sizes = x.T @ x, torch.linalg.vector_norm(x, 1, dim=0) / len(x)
    found = []
    for alpha in grid:
        s = torch.pow(sizes, alpha)
        s = torch.where(s < 1e-4, torch.full_like(s, 1e-4), s)
        parts = [to_grid(part, int_scale(part, bits), bits) for part in (w * s).split(g, dim=1)]
        off = w - torch.cat(parts, dim=1) / s
        found.append((alpha, s, float(((off @ gram) * off).sum() / (len(x) * len(w)))))
    return min(found, key=operator.itemgetter(2))


def _array_bytes(shape, fmt):
    """Whole bytes of each array of a layer."""
    rows, row = shape
    whole, rest = divmod(row, fmt.group or row)
    scales = rows * (whole + bool(rest))
    floats = Fraction(scales, fmt.nested).__ceil__() if fmt.nested else 0
    yield Fraction(rows * row * fmt.code_bits, 8).__ceil__()
    for bits in (fmt.scale_bits, fmt.zero_bits):
        yield Fraction(scales * bits, 8).__ceil__()
    yield 4 * floats
    yield Fraction(fmt.tensor_bits, 8).__ceil__()


def plan_bytes(model, fmt):
    plain = sum(map(math.prod, [model.head, *model.other.values()]))
    return 2 * plain + sum(sum(_array_bytes(shape, fmt)) for shape in model.linear.values())


def pass_seconds(model, fmt, gpu, tokens):
    if tokens <= 0 or fmt.math not in gpu.flops:
        raise ValueError(f"{tokens} tokens of {fmt.math} on {gpu.name}")
    jobs = [(1, 2 * math.prod(model.head), math.prod(model.head), "bf16")]
    for shape in model.linear.values():
        jobs.append((tokens, sum(_array_bytes(shape, fmt)), math.prod(shape), fmt.math))
    each = [(size / gpu.bytes_per_s, 2 * n * mul / gpu.flops[kind]) for n, size, mul, kind in jobs]
    return sum(map(max, each))


def report(weights, plans, rows, gpu, prefill_tokens):
    model = tiny_lm.model_of(weights)
    grams = {
        name: x.double().T @ x.double() for name, x in tiny_lm.layer_inputs(weights, rows).items()
    }

    def powers(layers):
        """Sums of squares of these matrices and of what they make of the inputs."""
        return (
            sum(float((w * w).sum()) for w in layers.values()),
            sum(float(((w @ grams[name]) * w).sum()) for name, w in layers.items()),
        )

    def row(plan):
        was = {name: weights[name].double() for name in plan.weights}
        off = {name: was[name] - w.double() for name, w in plan.weights.items()}
        levels = [
            math.inf if not noise else 10 * math.log10(signal) - 10 * math.log10(noise)
            for signal, noise in zip(powers(was), powers(off))
        ]
        mixed = {name: plan.weights.get(name, w) for name, w in weights.items()}
        faster = [
            pass_seconds(model, BF16, gpu, n) / pass_seconds(model, plan.format, gpu, n)
            for n in (1, prefill_tokens)
        ]
        size = plan_bytes(model, plan.format)
        bits = 8 * size / sum(map(torch.numel, weights.values()))
        ppl = tiny_lm.perplexity(mixed, rows)
        return Row(plan.name, size, bits, *levels, ppl, *faster)

    return [row(plan) for plan in plans]
