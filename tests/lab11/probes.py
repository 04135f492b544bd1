"""Lab 11, beside the learner's code: NumPy arrays in, NumPy arrays out, many calls a round trip.

Neither torch nor a tensor crosses the wall that way, so the other side needs no torch.
"""

from __future__ import annotations

import dataclasses


def _tensor(value):
    """A NumPy array as a tensor; ("bf16", bits) as the bfloat16 tensor with those bits,
    ("transposed", array) as a view that is not contiguous, ("spread", array) as every second
    element of another tensor in each dimension."""
    import numpy as np
    import torch

    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "bf16":
        return torch.from_numpy(value[1].view(np.int16).copy()).view(torch.bfloat16)
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "transposed":
        return torch.from_numpy(value[1].copy()).T
    if isinstance(value, tuple) and len(value) == 2 and value[0] == "spread":
        wide = np.full([2 * length for length in value[1].shape], 77, value[1].dtype)
        every = tuple(slice(None, None, 2) for _ in value[1].shape)
        wide[every] = value[1]
        return torch.from_numpy(wide)[every]
    return value


def plain(value):
    """A tensor as an array: bfloat16 as float32, an 8-bit float as its bytes. Anything else as it
    is, dataclasses as a dict of plain values with their name under "type"."""
    import torch

    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        if value.dtype == torch.bfloat16:
            return value.float().numpy()
        if value.dtype.itemsize == 1 and value.is_floating_point():
            return value.contiguous().view(torch.uint8).numpy()
        return value.numpy()
    if isinstance(value, list | tuple):
        return type(value)(plain(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        if isinstance(y := getattr(value, "y", None), torch.Tensor):
            fields["y_dtype"] = str(y.dtype)
        return {"type": type(value).__name__, **fields}
    return value


def many(student, name, rows):
    """`name(*row)` for every row, arrays as tensors there and tensors as arrays here. What a call
    raises as ValueError is the text "ValueError: ..."."""
    answers = []
    for row in rows:
        try:
            answers.append(plain(getattr(student, name)(*map(_tensor, row))))
        except ValueError as error:
            answers.append(f"ValueError: {error}")
    return answers


def there_and_back(student, rows):
    """Each (x, bits, sym, block): what qparams, quant and dequant make of x, and the scales."""
    answers = []
    for x, bits, sym, block in rows:
        x = _tensor(x)
        scale, zero = student.qparams(x, bits, sym, block)
        codes = student.quant(x, scale, zero, bits, sym)
        answers.append((plain(student.dequant(codes, scale, zero)), plain(scale)))
    return answers


def round_trips(student, name, rows):
    """What comes back from `nf4`, `to_mx` or `to_nvfp4` of each row, by the given decoders."""
    answers = []
    for row in rows:
        stored = getattr(student, name)(*map(_tensor, row))
        if name == "nf4":
            back = student.nf4_dequant(stored, row[0].shape, row[1])
        elif name == "to_mx":
            back = student.from_mx(*stored, row[1])
        else:
            back = student.from_nvfp4(*stored)
        answers.append(plain(back))
    return answers


def watched(student, name, rows):
    """As `many`, and the names of all dtypes that torch's operations returned meanwhile."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = set()

    class Dtypes(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            for item in result if isinstance(result, list | tuple) else [result]:
                if isinstance(item, torch.Tensor):
                    seen.add(str(item.dtype))
            return result

    rows = [[_tensor(value) for value in row] for row in rows]
    answers = []
    for row in rows:
        with Dtypes():
            answer = getattr(student, name)(*row)
        answers.append(plain(answer))
    return answers, sorted(seen)


def own_e4m3(student, values):
    """What the learner's own `to_e4m3` makes of an array; None if it makes nothing."""
    try:
        return plain(student.to_e4m3(_tensor(values)))
    except Exception:  # whatever it raises is told where that task is tested
        return None


# -- methods, report ------------------------------------------------------------------------------


def arguments_after(student, name, arrays):
    """What the arguments of `name(*arrays)`, as tensors, hold after the call."""
    tensors = [_tensor(array) for array in arrays]
    getattr(student, name)(*tensors)
    return [plain(one) for one in tensors]
