"""Lab 07, beside the learner's code: runs the functions under the kit's meters."""

from __future__ import annotations

import torch

from grader import meters

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
    widest, widest_op, partial, whole = 0, "", 0, []
    for op, inputs, outputs in log.ops:
        name = _name(op)
        read = max([_count(shape) for shape in inputs], default=0)
        written = max([_count(shape) for shape in outputs], default=0)
        if any(word in name for word in _WHOLE_AXIS) and read > block:
            whole.append(name)
        if any(name.startswith(word) for word in _SELECTIONS) or not written or read <= written:
            continue
        partial += written
        if read / written > widest:
            widest, widest_op = read / written, name
    return {
        "result": result,
        "widest": widest,
        "widest_op": widest_op,
        "whole": sorted(set(whole)),
        "partial": partial,
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


def widest_product(student, q, k, v, num_splits):
    """split_kv_decode under the operator log: elements of the largest matrix product's operand."""
    with meters.op_log() as log:
        result = student.split_kv_decode(q, k, v, num_splits)
    products = [inputs for op, inputs, _ in log.ops if _name(op).endswith(("mm", "mv", "dot"))]
    largest = max([_count(shape) for inputs in products for shape in inputs], default=0)
    return {
        "result": result,
        "library": _library(log.ops),
        "largest": largest,
        "flops": log.matmul_flops,
    }
