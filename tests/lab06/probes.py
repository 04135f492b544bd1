"""Lab 06, beside the learner's code: runs the functions under the guard of Triton launches and the
log of torch's operations."""

from __future__ import annotations

import numpy as np
import torch

from grader import kernels, meters


def watched(student, function, args, kwargs, seed=0):
    """One call: its result, the reports of its launches, the operations of torch in it, who wrote
    what came back."""
    call, reports = _callable(student, function, args)
    if call is None:
        return {"value": None, "reports": reports, "ops": [], "provenance": None}
    with meters.op_log() as log:
        value, reports, provenance = kernels.watched(
            call, *args, seed=seed, provenance=True, **kwargs
        )
    return {"value": value, "reports": reports, "ops": log.ops, "provenance": provenance}


def _callable(student, function, args):
    """The function of that name; for TunedSoftmax an object that has made its search for these
    arguments, or the reports of a search that a fault ended."""
    kernels.watched(lambda: None)  # the guard's self-test, which computes with torch
    if function != "TunedSoftmax":
        return getattr(student, function), []

    def measure(run):
        run()
        return 1.0

    softmax = student.TunedSoftmax([(3, 4)], measure)
    value, reports = kernels.watched(softmax, *args)
    return (None if value is None else softmax), reports


def watched_rows(student, function, rows):
    """Calls of one function, without the log: for each its result and its launches' reports."""
    call = getattr(student, function)
    return [kernels.watched(call, *row) for row in rows]


def passes(student, function, x):
    """Every operation of torch in one call, with the shapes of its operands and results."""
    with meters.op_log() as log:
        result = getattr(student, function)(x)
    return {"value": result, "ops": log.ops}


def gradient(student, x, dp):
    """SoftmaxFunction on x, and backward from dp: result, what softmax gives by itself, gradient,
    the launches of either way, torch's operations in both, the bytes that were saved in between,
    and the names of ctx's attributes that hold a tensor."""
    leaf = x.detach().requires_grad_()
    with meters.saved_bytes() as saved, meters.op_log() as log:
        p, forward = kernels.watched(student.SoftmaxFunction.apply, leaf)
    dx, backward, held, forward_ops, ops = None, [], [], log.ops, []
    if p is not None:
        held = _tensors_held(p.grad_fn)
        unchanged = student.unchanged("SoftmaxFunction.backward", p=p.detach(), dp=dp)
        with unchanged, meters.op_log() as log:
            found, backward = kernels.watched(torch.autograd.grad, p, leaf, dp)
        dx, ops = (None if found is None else found[0]), log.ops
        p = p.detach()
    own, _ = kernels.watched(student.softmax, x)
    return {
        "p": p,
        "own": own,
        "dx": dx,
        "forward": forward,
        "backward": backward,
        "forward_ops": forward_ops,
        "ops": ops,
        "saved_bytes": saved.bytes,
        "held": held,
    }


def _tensors_held(ctx):
    """Names of the attributes of a node of autograd that hold a tensor, also in a container."""

    def holds(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, (list, tuple, set)):
            return any(map(holds, value))
        return isinstance(value, torch.Tensor)

    return sorted(name for name, value in getattr(ctx, "__dict__", {}).items() if holds(value))


def alone(student, function, args, other):
    """Two calls, the second with other arguments: which arguments of the first call it changed,
    which of its results share memory with an argument, are not contiguous, or are other numbers
    after the second call."""
    call, reports = _callable(student, function, args)
    changed, shared, scattered, overwritten = [], [], [], []
    if call is None:
        return {"reports": reports, "found": []}
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    before = [_memory(each).clone() for each in tensors]
    value, reports = kernels.watched(call, *args)
    results = [each for each in _listed(value) if isinstance(each, torch.Tensor)]
    copies = [each.clone() for each in results]
    for number, (each, was) in enumerate(zip(tensors, before)):
        if not torch.equal(_memory(each), was):
            changed.append(number)
    places = [each.untyped_storage().data_ptr() for each in tensors]
    for number, each in enumerate(results):
        if each.untyped_storage().data_ptr() in places:
            shared.append(number)
        if not each.is_contiguous():
            scattered.append(number)
    if value is not None:
        _, more = kernels.watched(call, *other)
        reports = reports + more
    for number, (each, was) in enumerate(zip(results, copies)):
        if not torch.equal(each, was):
            overwritten.append(number)
    return {"reports": reports, "found": [changed, shared, scattered, overwritten]}


def _memory(tensor):
    """All bytes of the memory in which a tensor lies."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _listed(value):
    return value if isinstance(value, (list, tuple)) else [value]


def tuned(student, configs, calls, seconds, repeats=1):
    """A TunedSoftmax whose trials take the seconds that are given, in the order of the trials; each
    trial runs that often; trials beyond them take as long as the last. For each call: result,
    reports, the results of its trials; at last, what it has kept for rows of these lengths."""
    left = list(seconds)
    trials = []

    def measure(run):
        trials.append([run() for _ in range(repeats)])
        return left.pop(0) if left else seconds[-1]

    softmax = student.TunedSoftmax(configs, measure)
    rows = []
    for x in calls:
        before = len(trials)
        with student.unchanged("TunedSoftmax.__call__", x=x):
            value, reports = kernels.watched(softmax, x)
        rows.append({"value": value, "reports": reports, "trials": trials[before:]})
    lengths = {x.shape[-1] for x in calls}
    best = [
        [n, str(dtype) if isinstance(dtype, torch.dtype) else repr(dtype), list(kept)]
        for (n, dtype), kept in softmax.best.items()
        if not isinstance(n, int) or n in lengths
    ]
    return {"calls": rows, "best": best}


def on_gpu(student, function, args, kwargs):
    """A call with its tensors on the GPU; the results come back."""

    def moved(value, device):
        if isinstance(value, (tuple, list)):
            return type(value)(moved(each, device) for each in value)
        return value.to(device) if isinstance(value, torch.Tensor) else value

    result = getattr(student, function)(*moved(tuple(args), "cuda"), **kwargs)
    return moved(result, "cpu")


def far_rows_on_gpu(student, M, N):
    """softmax of (M, N) float16 zeros but for the last row, 0 to N - 1: the last row of the result,
    and the largest of the rows around element 2^31."""
    x = torch.zeros(M, N, dtype=torch.float16, device="cuda")
    x[-1] = torch.arange(N, device="cuda")
    p = student.softmax(x)
    middle = 2**31 // N
    return p[-1].cpu(), p[middle - 1 : middle + 2].cpu()


def gpu_rates(student, functions, M, N, dtype, repeats=20, **more):
    """GB/s on an (M, N) matrix, its bytes counted once read and once written, by the GPU's own
    events: of a copy, of torch.softmax and of the functions, which get `more`. The best of
    `repeats` runs after three to warm up; a buffer larger than the L2 cache is written between
    them."""
    x = torch.randn(M, N, device="cuda").to(dtype)
    target = torch.empty_like(x)
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    calls = {"copy": lambda: target.copy_(x), "torch": lambda: torch.softmax(x, -1)}
    for name in functions:
        function = getattr(student, name)
        calls[name] = lambda function=function: function(x, **more)
    rates = {}
    for name, call in calls.items():
        best = float("inf")
        for turn in range(repeats + 3):
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(8):  # longer than the host needs for a launch, which is not measured
                flush.zero_()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            if turn >= 3:
                best = min(best, start.elapsed_time(stop) / 1e3)
        rates[name] = 2 * x.numel() * x.element_size() / best / 1e9
    return rates


# -- for pictures, which know NumPy's arrays only --


def _tensors(args):
    return [torch.tensor(each) if isinstance(each, np.ndarray) else each for each in args]


def drawn(student, function, args, kwargs, trace=False):
    """A call under guard, with arrays for tensors: its result, the reports of its launches."""
    call = getattr(student, function)
    return kernels.watched(call, *_tensors(args), trace=trace, **kwargs)


def drawn_ops(student, function, args):
    """A call without launches: its result, every operation of torch in it with shapes."""
    call, tensors = getattr(student, function), _tensors(args)
    with meters.op_log() as log:
        value = call(*tensors)
    return value, log.ops
