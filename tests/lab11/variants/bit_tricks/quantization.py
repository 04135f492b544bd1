"""Another way: as libraries' kernels do it, with the bits of a float32 and its own rounding."""

from __future__ import annotations

from fractions import Fraction
from statistics import NormalDist

import tiny_lm
import torch
import torch.nn.functional as F
from plans_lab11 import BF16
from types_lab11 import NF4, Fp8Product, Row, dynamic_code

# -- formats --------------------------------------------------------------------------------------

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
TINY = torch.tensor(0x00800000, dtype=torch.int32).view(torch.float32)


def _grouped(x, block):
    """x as (blocks, inside, blocks, inside, ...) and the dimensions inside, as torchao has it."""
    if x.ndim != len(block):
        raise ValueError(f"{x.ndim} dimensions, block {block}")
    shape, inside = [], []
    for size, part in zip(x.shape, block, strict=True):
        part = size if part == -1 else part
        if part < 1 or size % part != 0:
            raise ValueError(f"{size} is not divisible by {part}")
        shape.extend((size // part, part))
        inside.append(len(shape) - 1)
    return x.reshape(shape), inside


def qparams(x, bits=4, sym=True, block=(1, -1), conv="amax/7"):
    if bits < 2 or bits > 8:
        raise ValueError(f"bits: {bits}")
    if conv not in ("amax/7", "amax/7.5", "amax/8"):
        raise ValueError(f"conv: {conv}")
    grouped, inside = _grouped(x.to(torch.float32), block)
    low = torch.minimum(torch.amin(grouped, dim=inside), torch.zeros(()))
    high = torch.maximum(torch.amax(grouped, dim=inside), torch.zeros(()))
    if not sym:
        scale = torch.maximum((high - low) / float((1 << bits) - 1), TINY)
        zero = 0 - torch.round(low / scale)
        return scale, zero.to(torch.int32)
    amax = torch.maximum(-low, high)
    divisor = {"amax/7": (1 << bits - 1) - 1, "amax/8": 1 << bits - 1}.get(
        conv, (1 << bits) / 2 - 0.5
    )
    scale = torch.maximum(amax / float(divisor), TINY)
    return scale, torch.zeros_like(scale).to(torch.int32)


def _against(x, small):
    """x grouped by the blocks of `small`, and a function that shapes a scale to go with it."""
    block = tuple(n // m for n, m in zip(x.shape, small.shape, strict=True))
    grouped, inside = _grouped(x, block)

    def shaped(one):
        for dim in inside:
            one = one.unsqueeze(dim)
        return one

    return grouped, shaped


def quant(x, scale, zero, bits=4, sym=True):
    grouped, shaped = _against(x.to(torch.float32), scale)
    steps = grouped / shaped(scale)
    # Adding and taking off 1.5 * 2^23 leaves a whole number, rounded half to even by the adder.
    magic = 12582912.0
    rounded = (steps.clamp(-(2.0**20), 2.0**20) + magic) - magic
    low = -(1 << bits - 1) if sym else 0
    codes = torch.clamp(rounded + shaped(zero), low, low + (1 << bits) - 1)
    return codes.reshape(x.shape).to(torch.int8 if sym else torch.uint8)


def dequant(q, scale, zero):
    grouped, shaped = _against(q.to(torch.float32), scale)
    return torch.reshape((grouped - shaped(zero).float()) * shaped(scale), q.shape)


def pack_int4(q, order="low"):
    if order not in {"low", "high"}:
        raise ValueError(f"order: {order}")
    if q.size(-1) & 1:
        raise ValueError(f"odd: {q.size(-1)}")
    if torch.any(q > 7) or torch.any(q < -8):
        raise ValueError("not an int4")
    raw = q.contiguous().view(torch.uint8)
    a, b = raw[..., ::2], raw[..., 1::2]
    if order == "high":
        a, b = b, a
    return torch.bitwise_or(torch.bitwise_left_shift(b, 4), torch.bitwise_and(a, 15))


def unpack_int4(packed, order="low"):
    if order not in {"low", "high"}:
        raise ValueError(f"order: {order}")
    # Shifts of an int8 keep its sign: up by four and down again extends a nibble's.
    raw = packed.contiguous().view(torch.int8)
    low = torch.bitwise_right_shift(torch.bitwise_left_shift(raw, 4), 4)
    high = torch.bitwise_right_shift(raw, 4)
    both = torch.empty(*packed.shape, 2, dtype=torch.int8)
    both[..., 0], both[..., 1] = (low, high) if order == "low" else (high, low)
    return both.reshape(*packed.shape[:-1], packed.shape[-1] * 2)


def _small_float(x, mantissa_bits, bias, largest):
    """Codes without a sign of sizes x <= largest: multiplied by 2^(bias - 127) a float32 has the
    small float's exponent field, and its own subnormals round like the small one's."""
    size = x.float().abs().clamp(max=largest)
    bits = size.view(torch.int32)
    drop = 23 - mantissa_bits
    # Below the smallest normal number the adder rounds: 2^k's last place is the smallest step.
    smallest_step = 2.0 ** (1 - bias - mantissa_bits)
    adder = torch.tensor(smallest_step * 2.0**23)
    subnormal = (size + adder).view(torch.int32) - adder.view(torch.int32)
    lowest = bits >> drop & 1
    normal = (bits + (1 << drop - 1) - 1 + lowest) - (127 - bias << 23) >> drop
    return torch.where(size < 2.0 ** (1 - bias), subnormal, normal)


def to_e4m3(x):
    x = x.float()
    code = _small_float(torch.nan_to_num(x, nan=0.0, posinf=448.0, neginf=-448.0), 3, 7, 448.0)
    code = torch.where(torch.isnan(x), 0x7F, code)
    return torch.where(torch.signbit(x), code + 0x80, code).to(torch.uint8)


def from_e4m3(codes):
    return codes.contiguous().view(torch.float8_e4m3fn).float()


def _e2m1(x):
    return _small_float(x, 1, 1, 6.0) + 8 * torch.signbit(x).to(torch.int32)


def _two_a_byte(codes):
    pairs = codes.unflatten(-1, (-1, 2))
    return torch.bitwise_or(pairs[..., 0], pairs[..., 1] << 4).to(torch.uint8)


def fp8_linear_dynamic(x, w):
    if x.size(-1) != w.size(-1):
        raise ValueError(f"x: {tuple(x.shape)}, w: {tuple(w.shape)}")

    def dynamic(matrix):
        matrix = matrix.to(torch.float32)
        amax = torch.amax(torch.abs(matrix), dim=-1, keepdim=True)
        scale = torch.clamp(amax, min=1e-12) / 448.0
        return to_e4m3((matrix / scale).clamp(-448.0, 448.0)), scale

    (x_codes, x_scale), (w_codes, w_scale) = dynamic(x), dynamic(w)
    # Dequantized first, as an emulation does it.
    y = F.linear(from_e4m3(x_codes) * x_scale, from_e4m3(w_codes) * w_scale)
    return Fp8Product(y.to(torch.bfloat16), x_codes, x_scale, w_codes, w_scale.reshape(1, -1))


def nf_codebook(bits=4):
    """QLoRA's create_normal_map: probabilities by linspace, negatives mirrored, a zero between."""
    ppf, offset, half = NormalDist().inv_cdf, 1 - (1 / 32 + 1 / 30) / 2, 2 ** (bits - 1)
    upper = torch.linspace(offset, 0.5, half + 1, dtype=torch.float64)[:-1]
    lower = torch.linspace(offset, 0.5, half, dtype=torch.float64)[:-1]
    values = [ppf(p) for p in upper.tolist()] + [0.0] + [-ppf(p) for p in lower.tolist()]
    values, _places = torch.tensor(values, dtype=torch.float64).sort()
    return (values / values.max()).to(torch.float32)


def nf4(w, bs=64, double=True):
    if bs < 2 or bs % 2 != 0 or w.numel() % bs != 0:
        raise ValueError(f"{w.numel()} values and blocks of {bs}")
    blocks = w.to(torch.float32).contiguous().view(-1, bs)
    absmax = torch.linalg.vector_norm(blocks, float("inf"), dim=1)
    scaled = torch.nan_to_num(blocks / absmax.unsqueeze(1), nan=0.0)
    codes = (scaled.view(-1, 1).double() - nf_codebook().double()).abs().argmin(1)
    codes = (codes.view(-1, 2) * torch.tensor([16, 1])).sum(1).to(torch.uint8)
    if not double:
        return NF4(codes, absmax)
    offset = torch.mean(absmax)
    left = absmax - offset
    groups = F.pad(left, (0, -len(left) % 256)).view(-1, 256)
    scale = groups.abs().max(dim=1).values
    unit = torch.where(scale[:, None] == 0, groups, groups / scale[:, None])
    wide = dynamic_code()
    places = (unit.unsqueeze(-1) - wide).abs().argmin(-1).flatten()[: len(left)]
    return NF4(codes, places.to(torch.uint8), scale, offset)


def nf4_dequant(q, shape, bs=64):
    absmax = q.absmax_q
    if q.absmax_scale is not None and q.offset is not None:
        scale = q.absmax_scale.repeat_interleave(256)[: len(absmax)]
        absmax = dynamic_code()[absmax.long()] * scale + q.offset
    codes = torch.stack((q.codes >> 4, q.codes & 0xF), dim=-1).reshape(-1, bs)
    return (nf_codebook()[codes.long()] * absmax[:, None]).reshape(shape)


def to_mx(x, elem="e2m1", mode="floor"):
    """The exponent is read off the float32's bits; subnormal maxima have the field 0."""
    if elem not in ("e2m1", "e4m3"):
        raise ValueError(f"elem: {elem}")
    if mode not in ("floor", "ceil", "rceil", "even"):
        raise ValueError(f"mode: {mode}")
    if x.size(-1) % 32 != 0:
        raise ValueError(f"K: {x.size(-1)}")
    mantissa_bits, target, largest = (1, 2, 6.0) if elem == "e2m1" else (3, 8, 448.0)
    blocks = x.to(torch.float32).unflatten(-1, (-1, 32))
    amax = torch.amax(blocks.abs(), -1)
    if mode == "rceil":
        bits = (amax / largest).view(torch.int32)
        field = bits >> 23
        # A subnormal quotient above 2^-127 needs 2^-126, which is the field 1.
        up = torch.where(field > 0, bits & 0x7FFFFF != 0, bits > 0x400000)
        byte = field + up.int()
    else:
        bits = amax.view(torch.int32)
        if mode == "even":
            bits = bits + (1 << 23 - mantissa_bits - 1)
        byte = (bits >> 23) - target
        if mode == "ceil":
            byte = byte + (bits & 0x7FFFFF != 0).int()
    byte = byte.clamp(min=0)
    scale = torch.ldexp(torch.ones_like(byte, dtype=torch.float64), byte - 127)
    elements = (blocks.to(torch.float64) / scale.unsqueeze(-1)).flatten(-2).float()
    payload = _two_a_byte(_e2m1(elements)) if elem == "e2m1" else to_e4m3(elements)
    return byte.to(torch.uint8), payload


def from_e2m1(packed):
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2).long()
    return torch.tensor(E2M1_VALUES + tuple(-value for value in E2M1_VALUES))[codes]


def from_mx(scales, payload, elem="e2m1"):
    elements = from_e2m1(payload) if elem == "e2m1" else from_e4m3(payload)
    exponent = scales.int() - 127
    powers = torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent)
    return elements * powers.repeat_interleave(32, dim=-1)


def to_nvfp4(x):
    """torchao's order: block scales times one over the global one, and one reciprocal a block."""
    if x.size(-1) % 16 != 0:
        raise ValueError(f"K: {x.size(-1)}")
    x = x.to(torch.float32)
    amax = x.abs().max()
    per_tensor = amax / (448.0 * 6.0) if amax > 0 else torch.tensor(1.0)
    blocks = x.unflatten(-1, (-1, 16))
    block_scale = torch.amax(blocks.abs(), dim=-1) / 6.0
    scaled = torch.clamp(block_scale / per_tensor, min=2.0**-6, max=448.0)
    scales = to_e4m3(scaled)
    reciprocal = (1.0 / per_tensor) / from_e4m3(scales)
    elements = (blocks * reciprocal.unsqueeze(-1)).clamp(-6.0, 6.0).flatten(-2)
    return _two_a_byte(_e2m1(elements)), scales, per_tensor


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


def gptq(w, h, bits=4, g=None, damp=0.01, act_order=False, block=128):
    """H is factored from its end: h = u.T-like triangles, so that one triangular solve replaces the
    inverse and its second factor."""
    _n, k = w.shape
    if h.shape != torch.Size((k, k)):
        raise ValueError(f"h: {tuple(h.shape)}, K: {k}")
    if damp < 0:
        raise ValueError(f"damp: {damp}")
    if g is not None and not (g > 0 and k % g == 0):
        raise ValueError(f"g: {g}, K: {k}")
    if block < 1 or (g is not None and min(block % g, g % block) != 0):
        raise ValueError(f"block: {block}, g: {g}")
    h = h.to(dtype=w.dtype, copy=True)
    w = w.clone()
    dead = torch.diag(h) == 0
    h[dead, dead] = 1
    w[:, dead] = 0
    h.diagonal().add_(damp * torch.diag(h).mean())
    order = torch.argsort(-torch.diag(h)) if act_order else torch.arange(k)
    w, h = w[:, order], h[order][:, order]
    # With the columns backwards h is low @ low.T; turned round again, up @ up.T with up upper
    # triangular, and its inverse has the rows that the updates need.
    up = torch.linalg.cholesky(h.flip(0, 1)).flip(0, 1)
    rows = torch.linalg.solve_triangular(up, torch.eye(k, dtype=w.dtype), upper=True)
    quantized, scale = torch.zeros_like(w), int_scale(w, bits)
    lazy = torch.zeros_like(w)
    for first in range(0, k, block):
        last = min(first + block, k)
        w[:, first:] -= lazy[:, :first][:, -block:] @ rows[:first][-block:, first:]
        for j in range(first, last):
            if g is not None and j % g == 0:
                scale = int_scale(w[:, j : j + g], bits)
            quantized[:, j] = to_grid(w[:, j].unsqueeze(1), scale, bits).squeeze(1)
            lazy[:, j] = (w[:, j] - quantized[:, j]) / rows[j, j]
            w[:, j + 1 : last] -= torch.outer(lazy[:, j], rows[j, j + 1 : last])
    return quantized[:, torch.argsort(order)]


def smoothquant(x, gain, layers, alpha=0.5):
    if alpha < 0.0 or alpha > 1.0:
        raise ValueError(f"alpha: {alpha}")
    if not layers:
        raise ValueError("layers: none")
    of_x = torch.amax(x.abs(), 0)
    of_w = torch.amax(torch.stack([torch.amax(w.abs(), 0) for w in layers]), 0)
    s = torch.exp(alpha * torch.log(of_x) - (1 - alpha) * torch.log(of_w))
    s[(of_x == 0) | (of_w == 0)] = 1.0
    return torch.mul(gain, s.reciprocal()), [torch.einsum("nk,k->nk", w, s) for w in layers]


def awq_search(x, w, bits, g, grid):
    if not grid:
        raise ValueError("grid: empty")
    if g < 1 or w.size(1) % g:
        raise ValueError(f"g: {g}, K: {w.size(1)}")
    mean, target = x.abs().mean(0), F.linear(x, w)
    best = (None, None, float("inf"))
    for alpha in grid:
        s = mean.pow(alpha).clamp_min(1e-4)
        grouped = (w * s).reshape(w.size(0) * (w.size(1) // g), g)
        fake = to_grid(grouped, int_scale(grouped, bits), bits).reshape(w.shape).div(s)
        loss = F.mse_loss(F.linear(x, fake), target).item()
        if loss < best[2]:
            best = (alpha, s, loss)
    return best


def _whole_bytes(bits):
    return (bits + 7) >> 3


def _stored(n, k, fmt):
    groups = 1 if fmt.group is None else -(k // -fmt.group)
    scales = n * groups
    size = _whole_bytes(n * k * fmt.code_bits) + _whole_bytes(scales * fmt.scale_bits)
    size += _whole_bytes(scales * fmt.zero_bits) + _whole_bytes(fmt.tensor_bits)
    return size + (4 * -(scales // -fmt.nested) if fmt.nested else 0)


def plan_bytes(model, fmt):
    layers = sum(_stored(*shape, fmt) for shape in model.linear.values())
    rest = torch.Size(model.head).numel()
    rest += sum(torch.Size(shape).numel() for shape in model.other.values())
    return layers + 2 * rest


def pass_seconds(model, fmt, gpu, tokens):
    peak = gpu.flops.get(fmt.math)
    if peak is None:
        raise ValueError(f"math: {fmt.math}")
    if tokens < 1:
        raise ValueError(f"tokens: {tokens}")
    rate, half = Fraction(gpu.bytes_per_s), Fraction(gpu.flops["bf16"])
    head = 2 * model.head[0] * model.head[1]
    total = max(head / rate, head / half)
    for n, k in model.linear.values():
        total += max(_stored(n, k, fmt) / rate, 2 * tokens * n * k / Fraction(peak))
    return float(total)


def _sqnr(signal, noise):
    return float("inf") if not noise else float(10 * torch.log10(signal / noise))


def report(weights, plans, rows, gpu, prefill_tokens):
    model, inputs = tiny_lm.model_of(weights), tiny_lm.layer_inputs(weights, rows)
    total = sum(tensor.numel() for tensor in weights.values())

    def times(fmt):
        return torch.tensor(
            [pass_seconds(model, fmt, gpu, n) for n in (1, prefill_tokens)], dtype=torch.float64
        )

    table = []
    for plan in plans:
        power = torch.zeros(2, 2, dtype=torch.float64)
        for name, now in plan.weights.items():
            was, x = weights[name].double(), inputs[name].double()
            gram = x.T @ x
            for place, part in enumerate((was, was - now.double())):
                power[0, place] += (part * part).sum()
                power[1, place] += torch.einsum("nk,kl,nl->", part, gram, part)
        size, (decode, prefill) = (
            plan_bytes(model, plan.format),
            (times(BF16) / times(plan.format)).tolist(),
        )
        ppl = tiny_lm.perplexity(weights | plan.weights, rows)
        table.append(
            Row(
                plan.name,
                size,
                8 * size / total,
                _sqnr(*power[0]),
                _sqnr(*power[1]),
                ppl,
                decode,
                prefill,
            )
        )
    return table
