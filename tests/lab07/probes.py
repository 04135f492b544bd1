"""Lab 07, beside the learner's code: runs the functions under the kit's meters."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from grader import kernels, meters

# A reduction gives fewer elements than it reads; these only look at, or copy, a part of theirs.
_SELECTIONS = (
    "slice", "select", "narrow", "split", "unbind", "chunk", "index", "gather", "as_strided",
    "view", "reshape", "squeeze", "alias", "detach", "diagonal", "take", "unfold", "clone", "copy",
    "item", "_local_scalar_dense", "nonzero", "is_", "isnan", "isinf", "any", "all", "equal",
    "empty", "full", "zeros", "ones", "new_",
)  # fmt: skip
_WHOLE_AXIS = (
    "softmax",
    "logsumexp",
    "logcumsumexp",
    "cummax",
    "cumsum",
    "sort",
    "topk",
    "cumprod",
)


def _name(op):
    """`amax` of "aten.amax.default"."""
    return op.split(".")[1] if "." in op else op


def _count(shape):
    number = 1
    for length in shape:
        number *= length
    return number


def _library(ops):
    """Names of the attention kernels among the logged operators."""
    return sorted({name for name, _, _ in ops if "attention" in name or "attn" in name})


def logged(student, function, args, kwargs):
    """One call under the operator log: its result, the attention kernels that it called, the FLOPs
    of its matrix products."""
    call = getattr(student, function)
    with meters.op_log() as log:
        result = call(*args, **kwargs)
    return {"result": result, "library": _library(log.ops), "flops": log.matmul_flops}


def footprint(student, function, args, kwargs):
    """One call under the storage meter: its result, what was alive at once, the largest piece."""
    call = getattr(student, function)
    with meters.live_bytes() as live:
        result = call(*args, **kwargs)
    shape = None if live.largest_shape is None else [int(n) for n in live.largest_shape]
    return {
        "result": result,
        "peak_bytes": live.peak_bytes,
        "largest_bytes": live.largest_bytes,
        "largest_shape": shape,
    }


def softmax_reductions(student, x, block):
    """For one row x: (N,): the most entries behind one result of any operator, the operators that
    take a whole row, and how many partial results there were."""
    with meters.op_log() as log:
        result = student.online_softmax(x, block)
    widest, widest_op, partial, whole, order = 0, "", 0, [], []
    for op, inputs, outputs in log.ops:
        name = _name(op)
        read = max([_count(shape) for shape in inputs], default=0)
        written = max([_count(shape) for shape in outputs], default=0)
        if any(word in name for word in _WHOLE_AXIS) and read > block:
            whole.append(name)
        if any(name.startswith(word) for word in _SELECTIONS) or not written or read <= written:
            continue
        partial += written
        order.append(name)
        if read / written > widest:
            widest, widest_op = read / written, name
    return {
        "result": result,
        "widest": widest,
        "widest_op": widest_op,
        "whole": sorted(set(whole)),
        "partial": partial,
        "order": order,
    }


def unmodified(student, function, args):
    """True when a call leaves every tensor among its (nested) arguments as it was."""

    def tensors(value):
        if isinstance(value, torch.Tensor):
            return [value]
        if isinstance(value, (tuple, list)):
            return [tensor for item in value for tensor in tensors(item)]
        return []

    before = [tensor.clone() for tensor in tensors(args)]
    getattr(student, function)(*args)
    return all(torch.equal(a, b) for a, b in zip(before, tensors(args), strict=True))


def widest_product(student, function, args, kwargs):
    """One call under the operator log: elements of the largest matrix in a product (a batched one
    multiplies many matrices), and the FLOPs of all."""
    call = getattr(student, function)
    with meters.op_log() as log:
        result = call(*args, **kwargs)
    products = [inputs for op, inputs, _ in log.ops if _name(op).endswith(("mm", "mv", "dot"))]
    largest = max([_count(shape[-2:]) for inputs in products for shape in inputs], default=0)
    return {
        "result": result,
        "library": _library(log.ops),
        "largest": largest,
        "flops": log.matmul_flops,
    }


class _Mode(TorchDispatchMode):
    """A mode of a probe's own, around which torch is not to put the wrapper that imports Dynamo,
    for a second."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False


def casts(student, function, args, kwargs, shape):
    """One call under the operator log: its result, and how many matrices of that shape, either way
    round, were made by a cast or a copy."""
    call = getattr(student, function)
    with meters.op_log() as log:
        result = call(*args, **kwargs)
    copies = 0
    for op, _, outputs in log.ops:
        if _name(op) in ("_to_copy", "copy_"):
            copies += sum(
                _count(out[:-2])
                for out in outputs
                if tuple(out[-2:]) in (tuple(shape), tuple(shape[::-1]))
            )
    return {"result": result, "copies": copies}


def operands(student, function, args, kwargs, D):
    """One call whose key j and value j are the number j + 1 in each of D dimensions: its result,
    and for each such matrix of two rows or more in a product the keys that it holds, in order.
    Padding is 0."""
    keys = []

    class Operands(_Mode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if _name(str(func)).endswith(("mm", "mv", "dot")):
                for each in args:
                    if isinstance(each, torch.Tensor) and each.ndim >= 2:
                        keys.extend(_numbered(each.detach(), D))
            return func(*args, **(kwargs or {}))

    call = getattr(student, function)
    with Operands():
        result = call(*args, **kwargs)
    return {"result": result, "keys": keys}


def _numbered(operand, D):
    rows, columns = operand.shape[-2:]
    if D not in (rows, columns) or min(rows, columns) < 2:
        return []
    found = operand if columns == D else operand.mT
    matrices = found.reshape(-1, *found.shape[-2:]).double()
    return [
        [int(number) - 1 for number in matrix[:, 0].tolist() if number]
        for matrix in matrices
        if matrix[:, 0].any()
    ]


def launches(student, calls):
    """flash_kernel for each (args, kwargs, seed) of `calls`, under guard: what it returned, the
    reports of its launches, and the torch operators in it other than views and new tensors."""
    found = []
    for args, kwargs, seed in calls:
        call = student.flash_kernel
        value, reports, ops = kernels.watched(call, *args, seed=seed, ops=True, **kwargs)
        names = [_name(op) for op in ops]
        computed = [n for n in names if n != "t" and not n.startswith(_VIEWS_AND_ALLOCATIONS)]
        found.append((value, reports, computed))
    return found


_VIEWS_AND_ALLOCATIONS = (
    "empty", "new_empty", "zeros", "new_zeros", "ones", "new_ones", "full", "new_full", "fill_",
    "zero_", "set_", "view", "_unsafe_view", "reshape", "_reshape_alias", "as_strided", "alias",
    "detach", "transpose", "permute", "slice", "select", "narrow", "expand", "squeeze",
    "unsqueeze", "split", "unbind", "unflatten", "flatten", "lift_fresh", "movedim",
)  # fmt: skip


def on_gpu(student, q, k, v, causal, rows):
    """flash_kernel on a GPU, and SDPA in float32 with its log-sum-exp, for a few rows of each."""
    q, k, v = (x.cuda() for x in (q, k, v))
    o, lse = student.flash_kernel(q, k, v, causal=causal)
    some = torch.tensor(rows, device="cuda")
    group, S, S_kv = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    q_some = q[:, :, some].double()
    k, v = (x.double().repeat_interleave(group, dim=1) for x in (k, v))
    hidden = torch.arange(S_kv, device="cuda") > some[:, None] + (S_kv - S)
    mask = torch.zeros(len(rows), S_kv, dtype=torch.float64, device="cuda")
    mask = mask.masked_fill(hidden, -float("inf")) if causal else mask
    want = torch.nn.functional.scaled_dot_product_attention(q_some, k, v, attn_mask=mask)
    scores = q_some @ k.mT / q.shape[3] ** 0.5 + mask
    found = (o[:, :, some], lse[:, :, some], want, torch.logsumexp(scores, dim=-1))
    return tuple(x.cpu() for x in found)


def gpu_memory(student, S, D):
    """Bytes that one call of flash_kernel adds to the GPU's memory at its peak, outputs included;
    o itself for a check of its values."""
    q, k, v = (torch.randn(1, 4, S, D, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    student.flash_kernel(q, k, v, causal=True)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    o, _ = student.flash_kernel(q, k, v, causal=True)
    torch.cuda.synchronize()
    grown = torch.cuda.max_memory_allocated() - before
    return grown, o[0, 0, 0].cpu(), v[0, 0, 0].cpu()


def gpu_speed(student, B, H, S, D, causal, repeats=20):
    """TFLOP/s of flash_kernel and of torch's own flash kernel on the same bf16 inputs, by the GPU's
    events: the best of `repeats` runs after three to warm up. 4 S^2 D FLOPs a head, half of it
    under the causal mask. And the largest difference between their outputs."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (torch.randn(B, H, S, D, device="cuda", dtype=torch.bfloat16) for _ in range(3))

    def theirs():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def mine():
        return student.flash_kernel(q, k, v, causal=causal)[0]

    rates = []
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        for call in (mine, theirs):
            best = float("inf")
            for turn in range(repeats + 3):
                start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                call()
                stop.record()
                stop.synchronize()
                if turn >= 3:
                    best = min(best, start.elapsed_time(stop) / 1e3)
            rates.append(4 * B * H * S * S * D * (0.5 if causal else 1.0) / best / 1e12)
        gap = float((mine().float() - theirs().float()).abs().max())
    return rates[0], rates[1], gap


# -- for pictures, which know NumPy's arrays only --


def _tensors(args):
    return [torch.tensor(each) if isinstance(each, np.ndarray) else each for each in args]


def drawn(student, function, args, kwargs):
    """A call with arrays for tensors."""
    return getattr(student, function)(*_tensors(args), **kwargs)


def drawn_bytes(student, function, args):
    """A call: its result, and the most bytes of tensors alive at once in it."""
    call, tensors = getattr(student, function), _tensors(args)
    with meters.live_bytes(witness=False) as live:
        value = call(*tensors)
    return value, live.peak_bytes


def drawn_products(student, function, args, kwargs):
    """A call, and what every matrix product in it gave, in order."""
    products = []

    class Products(_Mode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and _name(str(func)).endswith(("mm", "mv", "dot")):
                products.append(out.detach().to(torch.float64, copy=True))
            return out

    call, tensors = getattr(student, function), _tensors(args)
    with Products():
        value = call(*tensors, **kwargs)
    return value, products


def drawn_launches(student, function, args, kwargs):
    """A call under guard with the trace of its loads and stores: its result, its reports."""
    call = getattr(student, function)
    return kernels.watched(call, *_tensors(args), trace=True, **kwargs)
