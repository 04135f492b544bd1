"""Another way: one number after another, in plain Python."""

from __future__ import annotations

import itertools
import math
import struct
from statistics import NormalDist, fmean

import tiny_lm
import torch
from plans_lab11 import BF16
from types_lab11 import NF4, Fp8Product, Row, dynamic_code

# -- formats --------------------------------------------------------------------------------------

TINY = 2.0**-126
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _f32(value):
    """A Python float rounded to float32."""
    return struct.unpack("f", struct.pack("f", value))[0]


def _ranges(shape, block):
    """For each dimension the (start, end) of its blocks."""
    if len(shape) != len(block):
        raise ValueError(f"{block} is not a block of {tuple(shape)}")
    ranges = []
    for length, size in zip(shape, block):
        if size == -1:
            size = length
        if size <= 0 or length % size != 0:
            raise ValueError(f"{block} is not a block of {tuple(shape)}")
        ranges.append([(start, start + size) for start in range(0, length, size)])
    return ranges


def qparams(x, bits=4, sym=True, block=(1, -1), conv="amax/7"):
    if bits < 2:
        raise ValueError(f"too few bits: {bits}")
    if bits > 8:
        raise ValueError(f"too many bits: {bits}")
    ranges = _ranges(x.shape, block)
    if sym and conv not in ("amax/7", "amax/7.5", "amax/8"):
        raise ValueError(f"what is {conv}?")
    shape = [len(each) for each in ranges]
    scale, zero = torch.empty(shape), torch.zeros(shape, dtype=torch.int32)
    for index in itertools.product(*map(range, shape)):
        where = tuple(slice(*each[i]) for each, i in zip(ranges, index))
        values = x[where].float().flatten().tolist()
        low, high = min(0.0, *values), max(0.0, *values)
        if sym:
            half = 2 ** (bits - 1)
            steps = {"amax/7": half - 1, "amax/7.5": half - 0.5, "amax/8": half}[conv]
            scale[index] = max(_f32(max(-low, high) / steps), TINY)
        else:
            step = max(_f32(_f32(high - low) / (2**bits - 1)), TINY)
            scale[index] = step
            zero[index] = round(_f32(-low / step))
    return scale, zero


def _pairs_with_scale(values, scale, zero):
    """(value, its scale, its zero point) of each value, in order."""
    sizes = [n // m for n, m in zip(values.shape, scale.shape)]
    for index in itertools.product(*map(range, values.shape)):
        of = tuple(i // size for i, size in zip(index, sizes))
        yield values[index].item(), scale[of].item(), zero[of].item()


def quant(x, scale, zero, bits=4, sym=True):
    first = -(2 ** (bits - 1)) if sym else 0
    last = first + 2**bits - 1
    codes = []
    for value, step, shift in _pairs_with_scale(x.float(), scale, zero):
        codes.append(min(max(round(value / step) + shift, first), last))
    return torch.tensor(codes, dtype=torch.int8 if sym else torch.uint8).reshape(x.shape)


def dequant(q, scale, zero):
    values = [(code - shift) * step for code, step, shift in _pairs_with_scale(q, scale, zero)]
    return torch.tensor(values, dtype=torch.float32).reshape(q.shape)


def pack_int4(q, order="low"):
    if order != "low" and order != "high":
        raise ValueError(f"{order} is no order")
    if q.shape[-1] % 2 == 1:
        raise ValueError("an odd row")
    out = []
    values = q.flatten().tolist()
    for first, second in zip(values[0::2], values[1::2]):
        for value in (first, second):
            if not -8 <= value < 8:
                raise ValueError(f"{value} is no int4")
        if order == "high":
            first, second = second, first
        out.append(first % 16 + 16 * (second % 16))
    return torch.tensor(out, dtype=torch.uint8).reshape(*q.shape[:-1], q.shape[-1] // 2)


def unpack_int4(packed, order="low"):
    if order != "low" and order != "high":
        raise ValueError(f"{order} is no order")
    out = []
    for byte in packed.flatten().tolist():
        high, low = divmod(byte, 16)
        for nibble in (low, high) if order == "low" else (high, low):
            out.append(nibble - 16 if nibble & 8 else nibble)
    return torch.tensor(out, dtype=torch.int8).reshape(*packed.shape[:-1], 2 * packed.shape[-1])


def _e4m3(value):
    sign = 128 if math.copysign(1.0, value) < 0 else 0
    size = abs(value)
    if math.isnan(size):
        return 127
    if size >= 448:
        return sign + 126
    exponent = max(math.frexp(size)[1] - 1, -6) if size else -6
    steps = round(size / 2.0 ** (exponent - 3))  # Python rounds half to even
    return sign + steps + 8 * (exponent + 6)


def to_e4m3(x):
    codes = [_e4m3(value) for value in x.float().flatten().tolist()]
    return torch.tensor(codes, dtype=torch.uint8).reshape(x.shape)


def from_e4m3(codes):
    return codes.contiguous().view(torch.float8_e4m3fn).float()


def fp8_linear_dynamic(x, w):
    if x.size(1) != w.size(1):
        raise ValueError(f"{x.size(1)} is not {w.size(1)}")
    scales, codes = [], []
    for matrix in (x.float(), w.float()):
        scale = [_f32(max(row.abs().max().item(), _f32(1e-12)) / 448) for row in matrix]
        rows = [to_e4m3(row / step) for row, step in zip(matrix, scale)]
        scales.append(torch.tensor(scale))
        codes.append(torch.stack(rows))
    y = torch.zeros(len(x), len(w))
    for k in range(x.size(1)):  # one outer product after another
        y += torch.outer(from_e4m3(codes[0][:, k]), from_e4m3(codes[1][:, k]))
    y = y * scales[0].unsqueeze(1)
    y = y * scales[1].unsqueeze(0)
    return Fp8Product(y.to(torch.bfloat16), codes[0], scales[0][:, None], codes[1], scales[1][None])


def nf_codebook(bits=4):
    d = (1 / 32 + 1 / 30) / 2
    normal, up, down = NormalDist(), 2 ** (bits - 1), 2 ** (bits - 1) - 1
    values = [0.0]
    for i in range(up):
        values.append(-normal.inv_cdf(d + (0.5 - d) * i / up))
    for i in range(down):
        values.append(normal.inv_cdf(d + (0.5 - d) * i / down))
    largest = max(values)
    return torch.tensor([value / largest for value in sorted(values)], dtype=torch.float32)


def _nearest(value, values):
    """The place of the nearest by bisection."""
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        if value > (values[middle] + values[middle + 1]) / 2:
            low = middle + 1
        else:
            high = middle
    return low


def nf4(w, bs=64, double=True):
    values = w.float().flatten().tolist()
    if bs <= 0 or bs % 2 or len(values) % bs:
        raise ValueError(f"{len(values)} values, blocks of {bs}")
    book = nf_codebook().tolist()
    maxima, codes = [], []
    for start in range(0, len(values), bs):
        block = values[start : start + bs]
        maxima.append(max(map(abs, block)))
        codes += [_nearest(value / (maxima[-1] or 1.0), book) for value in block]
    packed = [16 * first + second for first, second in zip(codes[::2], codes[1::2])]
    packed = torch.tensor(packed, dtype=torch.uint8)
    if not double:
        return NF4(packed, torch.tensor(maxima))
    mean, wide = _f32(fmean(maxima)), dynamic_code().tolist()
    scales, places = [], []
    for start in range(0, len(maxima), 256):
        left = [maximum - mean for maximum in maxima[start : start + 256]]
        scales.append(_f32(max(map(abs, left))))
        places += [_nearest(one / (scales[-1] or 1.0), wide) for one in left]
    places = torch.tensor(places, dtype=torch.uint8)
    return NF4(packed, places, torch.tensor(scales), torch.tensor(mean))


def nf4_dequant(q, shape, bs=64):
    absmax = q.absmax_q
    if q.absmax_scale is not None and q.offset is not None:
        scale = q.absmax_scale.repeat_interleave(256)[: len(absmax)]
        absmax = dynamic_code()[absmax.long()] * scale + q.offset
    codes = torch.stack((q.codes >> 4, q.codes & 0xF), dim=-1).reshape(-1, bs)
    return (nf_codebook()[codes.long()] * absmax[:, None]).reshape(shape)


def _floor_log2(value):
    return math.frexp(value)[1] - 1


def _ceil_log2(value):
    fraction, exponent = math.frexp(value)
    return exponent - 1 if fraction == 0.5 else exponent


def _shared_exponent(a, top, p, mantissa_bits, mode):
    if a == 0.0:
        return -127
    if mode == "floor":
        exponent = _floor_log2(a) - p
    elif mode == "ceil":
        exponent = _ceil_log2(a) - p
    elif mode == "rceil":
        quotient = _f32(a / top)
        exponent = _ceil_log2(quotient) if quotient else -127
    else:
        step = 2.0 ** (_floor_log2(a) - mantissa_bits)
        exponent = _floor_log2(math.floor(a / step + 0.5) * step) - p
    return max(exponent, -127)


def _e2m1(value):
    """Half to even by E2M1's own steps: 0.5 up to 2, then 1, then 2."""
    sign, size = (8 if math.copysign(1.0, value) < 0 else 0), min(abs(value), 6.0)
    if size < 2:
        return sign + round(size / 0.5)
    if size < 4:
        return sign + 2 + round(size)
    return sign + 4 + round(size / 2)


def to_mx(x, elem="e2m1", mode="floor"):
    known = {"e2m1": (6.0, 2, 1), "e4m3": (448.0, 8, 3)}
    if elem not in known:
        raise ValueError(f"no element {elem}")
    if mode not in {"floor", "ceil", "rceil", "even"}:
        raise ValueError(f"no mode {mode}")
    if x.shape[-1] % 32:
        raise ValueError(f"K is {x.shape[-1]}")
    values = x.float().flatten().tolist()
    scales, codes = [], []
    for start in range(0, len(values), 32):
        block = values[start : start + 32]
        exponent = _shared_exponent(max(map(abs, block)), *known[elem], mode)
        scales.append(exponent + 127)
        one = _e2m1 if elem == "e2m1" else _e4m3
        codes += [one(math.ldexp(value, -exponent)) for value in block]
    if elem == "e2m1":
        codes = [low + 16 * high for low, high in zip(codes[::2], codes[1::2])]
    *rest, k = x.shape
    scales = torch.tensor(scales, dtype=torch.uint8).reshape(*rest, k // 32)
    return scales, torch.tensor(codes, dtype=torch.uint8).reshape(*rest, -1)


def from_e2m1(packed):
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2).long()
    return torch.tensor(E2M1_VALUES + tuple(-value for value in E2M1_VALUES))[codes]


def from_mx(scales, payload, elem="e2m1"):
    elements = from_e2m1(payload) if elem == "e2m1" else from_e4m3(payload)
    exponent = scales.int() - 127
    powers = torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent)
    return elements * powers.repeat_interleave(32, dim=-1)


def to_nvfp4(x):
    *rest, k = x.shape
    if k % 16:
        raise ValueError(f"K is {k}")
    values = x.float().flatten().tolist()
    largest = max(map(abs, values))
    whole = _f32(largest / 2688) if largest else 1.0
    scales, codes = [], []
    for start in range(0, len(values), 16):
        block = values[start : start + 16]
        scales.append(_e4m3(min(max(max(map(abs, block)) / 6 / whole, 2.0**-6), 448.0)))
        stored = (8 + scales[-1] % 8) * 2.0 ** (scales[-1] // 8 - 10) * whole
        codes += [_e2m1(value / stored) for value in block]
    payload = [low + 16 * high for low, high in zip(codes[::2], codes[1::2])]
    payload = torch.tensor(payload, dtype=torch.uint8).reshape(*rest, k // 2)
    return (
        payload,
        torch.tensor(scales, dtype=torch.uint8).reshape(*rest, k // 16),
        torch.tensor(whole),
    )


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
    """After each column the columns that are left solve their normal equations, from scratch."""
    k = w.shape[1]
    if list(h.shape) != [k, k]:
        raise ValueError(f"h has {list(h.shape)} for {k} columns")
    if damp < 0:
        raise ValueError(f"damp {damp} is negative")
    if g is not None and (g < 1 or k % g != 0):
        raise ValueError(f"g {g} with {k} columns")
    if block < 1 or (g is not None and block % g != 0 and g % block != 0):
        raise ValueError(f"block {block} with g {g}")
    h = h.to(w.dtype).clone()
    original = w.clone()
    for j in range(k):
        if h[j, j] == 0:
            h[j, j] = 1
            original[:, j] = 0
    order = list(range(k))
    if act_order:
        order.sort(key=lambda j: float(h[j, j]), reverse=True)
    share = damp * sum(float(h[j, j]) for j in range(k)) / k
    for j in range(k):
        h[j, j] += share
    current, scale = original.clone(), int_scale(original, bits)
    for place, j in enumerate(order):
        if g is not None and place % g == 0:
            scale = int_scale(current[:, order[place : place + g]], bits)
        current[:, j] = to_grid(current[:, [j]], scale, bits)[:, 0]
        fixed, left = order[: place + 1], order[place + 1 :]
        if left:
            pull = h[left][:, fixed] @ (current - original)[:, fixed].T
            current[:, left] = original[:, left] - torch.linalg.solve(h[left][:, left], pull).T
    return current


def smoothquant(x, gain, layers, alpha=0.5):
    if alpha < 0 or alpha > 1:
        raise ValueError(f"alpha {alpha}")
    if len(layers) == 0:
        raise ValueError("no layers")
    new_gain, new_layers = gain.clone(), [w.clone() for w in layers]
    for channel in range(gain.numel()):
        of_x = x[:, channel].abs().max()
        of_w = torch.stack([w[:, channel].abs().max() for w in layers]).max()
        if of_x == 0 or of_w == 0:
            continue
        s = of_x.pow(alpha) / of_w.pow(1 - alpha)
        new_gain[channel] /= s
        for w in new_layers:
            w[:, channel] *= s
    return new_gain, new_layers


def awq_search(x, w, bits, g, grid):
    if not len(grid):
        raise ValueError("nothing to search")
    if g <= 0 or w.shape[1] % g:
        raise ValueError(f"g {g} for {w.shape[1]} columns")
    means = x.abs().mean(0)
    wanted = x @ w.T
    results = []
    for alpha in grid:
        s = torch.maximum(means**alpha, torch.full_like(means, 1e-4))
        scaled, rounded = w * s, torch.empty_like(w)
        for start in range(0, w.shape[1], g):
            part = scaled[:, start : start + g]
            rounded[:, start : start + g] = to_grid(part, int_scale(part, bits), bits)
        error = wanted - x @ (rounded / s).T
        results.append((alpha, s, (error * error).mean().item()))
    return min(results, key=lambda result: result[2])


def _parts(n, k, fmt):
    """Bytes of each array of one layer."""
    groups = 0
    for _start in range(0, k, fmt.group or k):
        groups += n
    bits = {"codes": n * k * fmt.code_bits, "scales": groups * fmt.scale_bits}
    bits["zeros"] = groups * fmt.zero_bits
    bits["shared"] = 32 * math.ceil(groups / fmt.nested) if fmt.nested else 0
    bits["tensor"] = fmt.tensor_bits
    return {name: math.ceil(count / 8) for name, count in bits.items()}


def plan_bytes(model, fmt):
    total = 0
    for n, k in model.linear.values():
        total += sum(_parts(n, k, fmt).values())
    for shape in (model.head, *model.other.values()):
        total += 2 * math.prod(shape)
    return total


def pass_seconds(model, fmt, gpu, tokens):
    if tokens < 1:
        raise ValueError(f"{tokens} tokens")
    if fmt.math not in gpu.flops:
        raise ValueError(f"{gpu.name} has no {fmt.math}")
    total = 0.0
    for n, k in model.linear.values():
        reading = sum(_parts(n, k, fmt).values()) / gpu.bytes_per_s
        computing = 2 * n * k * tokens / gpu.flops[fmt.math]
        total += reading if reading > computing else computing
    v, d = model.head
    return total + max(2 * v * d / gpu.bytes_per_s, 2 * v * d / gpu.flops["bf16"])


def _db(signal, noise):
    return math.inf if noise == 0 else 10 * (math.log10(signal) - math.log10(noise))


def report(weights, plans, rows, gpu, prefill_tokens):
    shapes = tiny_lm.model_of(weights)
    seen = tiny_lm.layer_inputs(weights, rows)
    count = 0
    for tensor in weights.values():
        count += tensor.numel()
    table = []
    for plan in plans:
        signal = noise = signal_out = noise_out = 0.0
        changed = dict(weights)
        for name, stored in plan.weights.items():
            changed[name] = stored
            before, difference = weights[name].double(), (weights[name] - stored).double()
            inputs = seen[name].double()
            signal += before.pow(2).sum().item()
            noise += difference.pow(2).sum().item()
            signal_out += (inputs @ before.T).pow(2).sum().item()
            noise_out += (inputs @ difference.T).pow(2).sum().item()
        size = plan_bytes(shapes, plan.format)
        decode = pass_seconds(shapes, BF16, gpu, 1) / pass_seconds(shapes, plan.format, gpu, 1)
        prefill = pass_seconds(shapes, BF16, gpu, prefill_tokens)
        prefill /= pass_seconds(shapes, plan.format, gpu, prefill_tokens)
        quality = (_db(signal, noise), _db(signal_out, noise_out))
        ppl = tiny_lm.perplexity(changed, rows)
        table.append(Row(plan.name, size, size * 8 / count, *quality, ppl, decode, prefill))
    return table
