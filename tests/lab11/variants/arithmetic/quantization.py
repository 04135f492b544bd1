"""Another way: powers of two, floor and rint, without looking at a bit."""

from __future__ import annotations

import math
from statistics import NormalDist

import tiny_lm
import torch
from plans_lab11 import BF16
from types_lab11 import NF4, Fp8Product, Row, dynamic_code

# -- formats --------------------------------------------------------------------------------------

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _tiles(x, block):
    """x with each dimension cut in two: (blocks, inside, blocks, inside, ...)."""
    if len(block) != x.dim():
        raise ValueError(f"block {block}, shape {tuple(x.shape)}")
    for dim in reversed(range(x.dim())):
        size = block[dim] if block[dim] != -1 else x.shape[dim]
        if size < 1 or x.shape[dim] % size:
            raise ValueError(f"block {block}, shape {tuple(x.shape)}")
        x = x.unflatten(dim, (x.shape[dim] // size, size))
    return x


def qparams(x, bits=4, sym=True, block=(1, -1), conv="amax/7"):
    try:
        steps = {"amax/7": 2**bits - 2, "amax/7.5": 2**bits - 1, "amax/8": 2**bits}[conv]
    except (KeyError, TypeError):
        raise ValueError(f"convention {conv}") from None
    if bits < 2 or bits > 8:
        raise ValueError(f"bits {bits}")
    tiles = _tiles(x.double(), block)
    inside = list(range(1, tiles.dim(), 2))
    tiny = 2.0**-126
    if sym:
        # 2 amax / (2 steps), in float64 and rounded once.
        scale = (2 * tiles.abs().amax(inside) / steps).float().clamp(min=tiny)
        return scale, torch.zeros(scale.shape, dtype=torch.int32)
    low, high = tiles.amin(inside).clamp(max=0).float(), tiles.amax(inside).clamp(min=0).float()
    scale = ((high - low).double() / (2**bits - 1)).float().clamp(min=tiny)
    zero = (-low.double() / scale.double()).float().round().clamp(0, 2**bits - 1)
    return scale, zero.to(torch.int32)


def _tiled(x, small):
    """x cut into blocks, and `small` shaped to go with it."""
    tiles = _tiles(x, tuple(n // m for n, m in zip(x.shape, small.shape, strict=True)))
    return tiles, [n for m in small.shape for n in (m, 1)]


def quant(x, scale, zero, bits=4, sym=True):
    tiles, shape = _tiled(x.float(), scale)
    quotient = tiles.double() / scale.double().reshape(shape)
    floor = quotient.floor()
    rest = quotient - floor
    up = (rest > 0.5) | ((rest == 0.5) & (floor % 2 == 1))
    codes = (floor + up + zero.reshape(shape)).reshape(x.shape)
    half = 2 ** (bits - 1)
    if sym:
        return codes.clamp(-half, half - 1).to(torch.int8)
    return codes.clamp(0, 2 * half - 1).to(torch.uint8)


def dequant(q, scale, zero):
    tiles, shape = _tiled(q, scale)
    steps = tiles.float() - zero.reshape(shape)
    return (steps * scale.reshape(shape)).reshape(q.shape)


def pack_int4(q, order="low"):
    weights = {"low": (1, 16), "high": (16, 1)}
    if order not in weights:
        raise ValueError(f"order {order}")
    if q.shape[-1] % 2 or ((q < -8) | (q > 7)).any():
        raise ValueError("pairs of values from -8 to 7")
    two = q.to(torch.int64).reshape(*q.shape[:-1], q.shape[-1] // 2, 2) % 16
    return (two * torch.tensor(weights[order])).sum(-1).to(torch.uint8)


def unpack_int4(packed, order="low"):
    if order not in ("low", "high"):
        raise ValueError(f"order {order}")
    wide = packed.to(torch.int64)
    values = torch.empty(*packed.shape[:-1], 2 * packed.shape[-1], dtype=torch.int8)
    places = (slice(0, None, 2), slice(1, None, 2))
    low, high = places if order == "low" else places[::-1]
    values[..., low] = ((wide % 16 + 8) % 16 - 8).to(torch.int8)
    values[..., high] = ((wide // 16 + 8) % 16 - 8).to(torch.int8)
    return values


def _rounded(x, mantissa_bits, smallest_power, largest):
    """The size of float64 x, rounded half to even to a small float."""
    size = x.abs().clamp(max=largest)
    exponent = (torch.frexp(size)[1] - 1).clamp(min=smallest_power)
    step = torch.exp2((exponent - mantissa_bits).double())
    return (size / step).round() * step


def _code(size, mantissa_bits, smallest_power):
    """The code of a size that the small float has."""
    exponent = torch.where(size > 0, torch.frexp(size)[1] - 1, smallest_power)
    exponent = exponent.clamp(min=smallest_power)
    steps = size / torch.exp2((exponent - mantissa_bits).double())
    # A normal number's steps begin at 2^mantissa_bits, which is the 1 of its exponent field.
    return (steps + (exponent - smallest_power) * 2**mantissa_bits).to(torch.int64)


def to_e4m3(x):
    wide = x.double()
    nan = wide.isnan()
    size = _rounded(wide.nan_to_num(0.0, posinf=1e9, neginf=-1e9), 3, -6, 448.0)
    code = torch.where(nan, 127, _code(size, 3, -6))
    return (code + 128 * torch.signbit(wide)).to(torch.uint8)


def from_e4m3(codes):
    code = codes.to(torch.int64) % 128
    exponent, mantissa = code // 8, code % 8
    normal = (8 + mantissa) * torch.exp2((exponent - 10).double())
    size = torch.where(exponent == 0, mantissa * 2.0**-9, normal)
    return torch.where(codes >= 128, -size, size).float()


def fp8_linear_dynamic(x, w):
    if x.shape[1] != w.shape[1]:
        raise ValueError(f"K is {x.shape[1]} and {w.shape[1]}")

    def coded(matrix):
        matrix = matrix.float()
        top = torch.linalg.vector_norm(matrix, float("inf"), dim=1, keepdim=True)
        scale = top.clamp(min=1e-12) / 448
        return to_e4m3(matrix.double() / scale.double()), scale

    (x_codes, x_scale), (w_codes, w_scale) = coded(x), coded(w)
    sums = torch.einsum("tk,nk->tn", from_e4m3(x_codes), from_e4m3(w_codes))
    y = (sums * (x_scale * w_scale.T)).to(torch.bfloat16)
    return Fp8Product(y, x_codes, x_scale, w_codes, w_scale.T.contiguous())


def nf_codebook(bits=4):
    normal, half = NormalDist(), 2 ** (bits - 1)
    outermost = 1 - (1 / 32 + 1 / 30) / 2
    top = normal.inv_cdf(outermost)

    def value(i):
        """The i-th value from 0, in either direction."""
        part = abs(i) / (half if i > 0 else half - 1)
        size = normal.inv_cdf(0.5 + part * (outermost - 0.5)) / top if i else 0.0
        return size if i > 0 else -size

    return torch.tensor([value(i) + 0.0 for i in range(1 - half, half + 1)])


def _place(x, values):
    """How many middles between two values lie below x."""
    middle = (values[:-1].double() + values[1:].double()) / 2
    return (x.double()[..., None] > middle).sum(-1)


def nf4(w, bs=64, double=True):
    if bs < 2 or bs % 2 or w.numel() % bs:
        raise ValueError(f"bs {bs}")
    blocks = w.float().flatten().unflatten(0, (-1, bs))
    absmax = torch.maximum(blocks.amax(1), -blocks.amin(1))
    scaled = torch.where(absmax[:, None] > 0, blocks / absmax[:, None], 0.0)
    two = _place(scaled, nf_codebook()).reshape(-1, 2)
    codes = (two[:, 0] * 16 + two[:, 1]).to(torch.uint8)
    if not double:
        return NF4(codes, absmax)
    offset = absmax.double().mean().float()
    scales, places = [], []
    for part in (absmax - offset).split(256):
        scales.append(part.abs().max())
        scaled = part / scales[-1] if scales[-1] > 0 else part
        places.append(_place(scaled, dynamic_code()))
    return NF4(codes, torch.cat(places).to(torch.uint8), torch.stack(scales), offset)


def nf4_dequant(q, shape, bs=64):
    absmax = q.absmax_q
    if q.absmax_scale is not None:
        scale = q.absmax_scale.repeat_interleave(256)[: len(absmax)]
        absmax = dynamic_code()[absmax.long()] * scale + q.offset
    codes = torch.stack((q.codes // 16, q.codes % 16), dim=-1).reshape(-1, bs)
    return (nf_codebook()[codes.long()] * absmax[:, None]).reshape(shape)


def _ceil_log2(value):
    """The smallest n with value <= 2^n, of float64, exactly."""
    fraction, exponent = torch.frexp(value)
    return exponent - (fraction == 0.5).int()


def _floor_log2(value):
    return torch.frexp(value)[1] - 1


def to_mx(x, elem="e2m1", mode="floor"):
    if elem not in ("e2m1", "e4m3"):
        raise ValueError(f"elem {elem}")
    if mode not in ("floor", "ceil", "rceil", "even"):
        raise ValueError(f"mode {mode}")
    if x.shape[-1] % 32:
        raise ValueError(f"{x.shape[-1]} values")
    mantissa_bits, smallest, top = (1, 0, 6.0) if elem == "e2m1" else (3, -6, 448.0)
    blocks = x.float().reshape(*x.shape[:-1], -1, 32)
    amax = blocks.abs().amax(-1)
    wide = amax.double()
    if mode == "rceil":
        exponent = _ceil_log2((amax / top).double())
    elif mode == "ceil":
        exponent = _ceil_log2(wide) - (2 if top == 6 else 8)
    else:
        if mode == "even":
            step = torch.exp2((_floor_log2(wide) - mantissa_bits).double())
            wide = (wide / step + 0.5).floor() * step
        exponent = _floor_log2(wide) - (2 if top == 6 else 8)
    exponent = torch.where(amax > 0, exponent.clamp(-127, 127), -127)
    elements = (blocks.double() * torch.exp2(-exponent.double())[..., None]).reshape(x.shape)
    size = _rounded(elements, mantissa_bits, smallest, top)
    code = _code(size, mantissa_bits, smallest)
    if elem == "e4m3":
        payload = code + 128 * torch.signbit(elements)
    else:
        code = code + 8 * torch.signbit(elements)
        payload = code[..., ::2] + 16 * code[..., 1::2]
    return (exponent + 127).to(torch.uint8), payload.to(torch.uint8)


def from_e2m1(packed):
    code = torch.stack((packed % 16, packed // 16), dim=-1).flatten(-2).long()
    size = torch.tensor(E2M1_VALUES)[code % 8]
    return torch.where(code >= 8, -size, size)


def from_mx(scales, payload, elem="e2m1"):
    elements = from_e2m1(payload) if elem == "e2m1" else from_e4m3(payload)
    powers = torch.exp2(scales.double() - 127).float()
    return elements * powers.repeat_interleave(32, dim=-1)


def to_nvfp4(x):
    if x.shape[-1] % 16:
        raise ValueError(f"{x.shape[-1]} values")
    blocks = x.float().reshape(*x.shape[:-1], -1, 16)
    amax = blocks.abs().amax(-1)
    top = amax.max() / 2688
    top = top if top > 0 else torch.ones(())
    size = _rounded((amax / 6 / top).double().clamp(2.0**-6, 448.0), 3, -6, 448.0)
    scales = _code(size, 3, -6).to(torch.uint8)
    elements = (blocks.double() * (1 / (size * top.double()))[..., None]).reshape(x.shape)
    code = _code(_rounded(elements, 1, 0, 6.0), 1, 0) + 8 * torch.signbit(elements)
    return (code[..., ::2] + 16 * code[..., 1::2]).to(torch.uint8), scales, top


def from_nvfp4(payload, scales, global_scale):
    blocks = (from_e4m3(scales) * global_scale).repeat_interleave(16, dim=-1)
    return from_e2m1(payload) * blocks


# -- methods, report ------------------------------------------------------------------------------
def int_scale(w, bits):
    return w.abs().amax(1, True).div(2 ** (bits - 1) - 1).where(w.any(1, True), torch.ones(1).to(w))


def to_grid(w, scale, bits):
    half = 1 << (bits - 1)
    return torch.clamp(torch.round(w / scale), -half, half - 1) * scale


def _back_factor(h):
    """The upper factor U of H's inverse, U.T @ U: H turned around has a lower factor whose turned
    inverse it is."""
    turned = torch.linalg.cholesky(h.flip(0, 1))
    eye = torch.eye(len(h), dtype=h.dtype)
    return torch.linalg.solve_triangular(turned.flip(0, 1), eye, upper=True)


def gptq(w, h, bits=4, g=None, damp=0.01, act_order=False, block=128):
    """The factor without inverting H, and a lazy form: a column gathers all errors before it when
    its turn comes."""
    columns = w.shape[1]
    checks = [
        (h.shape == (columns, columns), f"h is {tuple(h.shape)}"),
        (damp >= 0, f"damp is {damp}"),
        (g is None or (g > 0 and columns % g == 0), f"g is {g}"),
        (block > 0, f"block is {block}"),
        (not (g and block > 0) or max(g, block) % min(g, block) == 0, f"block {block}, g {g}"),
    ]
    for good, sentence in checks:
        if not good:
            raise ValueError(sentence)
    used = h.diagonal() != 0
    h = h.to(w.dtype) + torch.diag((~used).to(w.dtype))
    h = h + torch.diag(h.diagonal().mean().repeat(columns) * damp)
    w = w * used
    order = h.diagonal().argsort(descending=True) if act_order else torch.arange(columns)
    w, upper = w[:, order], _back_factor(h[order][:, order])
    errors = torch.zeros_like(w)
    done = torch.zeros_like(w)
    width = g or columns
    for first in range(0, columns, width):
        now = w[:, first : first + width] - errors[:, :first] @ upper[:first, first : first + width]
        scale = int_scale(now, bits)
        for j in range(first, first + width):
            value = w[:, j] - errors[:, :j] @ upper[:j, j]
            done[:, j] = to_grid(value[:, None], scale, bits)[:, 0]
            errors[:, j] = (value - done[:, j]) / upper[j, j]
    return done[:, order.argsort()]


def smoothquant(x, gain, layers, alpha=0.5):
    if alpha != min(max(alpha, 0), 1) or len(layers) < 1:
        raise ValueError(f"alpha {alpha} with {len(layers)} layers")
    size_x = x.abs().max(dim=0).values
    size_w = torch.stack([w.abs().max(dim=0).values for w in layers]).max(dim=0).values
    log_s = alpha * size_x.log() - (1 - alpha) * size_w.log()
    log_s[(size_x == 0) | (size_w == 0)] = 0.0
    return gain * (-log_s).exp(), [w * log_s.exp()[None, :] for w in layers]


def awq_search(x, w, bits, g, grid):
    n, k = w.shape
    if g < 1 or k % g != 0:
        raise ValueError(f"{k} columns in groups of {g}")
    if not len(grid):
        raise ValueError(f"no alpha in {grid}")
    losses, scales, y = [], [], x @ w.T
    for alpha in grid:
        s = torch.maximum(x.abs().mean(0) ** alpha, torch.tensor(1e-4, dtype=w.dtype))
        wide = (w * s).reshape(n * (k // g), g)
        back = to_grid(wide, int_scale(wide, bits), bits).reshape(n, k) * (1 / s)
        losses.append(float(torch.mean((y - x @ back.T) ** 2)))
        scales.append(s)
    place = losses.index(min(losses))
    return grid[place], scales[place], losses[place]


def _bits(shape, fmt):
    n, k = shape
    scales = n * math.ceil(k / fmt.group) if fmt.group else n
    more = [math.ceil(scales / fmt.nested) * 32] if fmt.nested else []
    return [n * k * fmt.code_bits, scales * fmt.scale_bits, scales * fmt.zero_bits, *more]


def _stored(shape, fmt):
    return sum(math.ceil(bits / 8) for bits in [*_bits(shape, fmt), fmt.tensor_bits])


def plan_bytes(model, fmt):
    plain = [model.head, *model.other.values()]
    layers = [_stored(shape, fmt) for shape in model.linear.values()]
    return sum(layers) + sum(2 * math.prod(shape) for shape in plain)


def pass_seconds(model, fmt, gpu, tokens):
    if tokens < 1 or fmt.math not in gpu.flops:
        raise ValueError(f"{tokens} tokens of {fmt.math} on {gpu.name}, which has {[*gpu.flops]}")

    def longest(flops, kind, size):
        return max(flops / gpu.flops[kind], size / gpu.bytes_per_s)

    head = 2 * math.prod(model.head)
    each = [
        longest(2 * tokens * math.prod(shape), fmt.math, _stored(shape, fmt))
        for shape in model.linear.values()
    ]
    return math.fsum([longest(head, "bf16", head), *each])


def _level(pairs):
    signal, noise = (math.fsum(part) for part in zip(*pairs, strict=True))
    return 10 * (math.log10(signal) - math.log10(noise)) if noise else math.inf


def report(weights, plans, rows, gpu, prefill_tokens):
    model = tiny_lm.model_of(weights)
    inputs = tiny_lm.layer_inputs(weights, rows)

    def energy(x):
        return float((x.double() ** 2).sum())

    def row(plan):
        change = {name: weights[name] - new for name, new in plan.weights.items()}
        of_weights = [(energy(weights[name]), energy(one)) for name, one in change.items()]
        of_outputs = [
            (energy(inputs[name] @ weights[name].T), energy(inputs[name] @ one.T))
            for name, one in change.items()
        ]
        times = {
            (fmt, n): pass_seconds(model, fmt, gpu, n)
            for fmt in (BF16, plan.format)
            for n in (1, prefill_tokens)
        }
        size = plan_bytes(model, plan.format)
        return Row(
            name=plan.name,
            bytes=size,
            bits_per_param=size / sum(math.prod(one.shape) for one in weights.values()) * 8,
            sqnr_db=_level(of_weights),
            output_sqnr_db=_level(of_outputs),
            ppl=tiny_lm.perplexity(weights | plan.weights, rows),
            decode_speedup_pred=times[BF16, 1] / times[plan.format, 1],
            prefill_speedup_pred=times[BF16, prefill_tokens] / times[plan.format, prefill_tokens],
        )

    return [row(plan) for plan in plans]
