"""Lab 04's probes: launches of the learner's kernels, with what the emulator counted."""

import numpy

from grader import kernels


def launch(student, kernel, grid, block, args, shared_bytes, seed=0, in_begins_at=0, device="cpu"):
    """One launch: its report as plain data, and what stands in the second argument after it.
    `in_begins_at`: the first argument is a pointer to that element of its array."""
    module = kernels.compile(student.path("reduce.cu"))
    args = [numpy.array(arg) if isinstance(arg, numpy.ndarray) else arg for arg in args]
    given = [kernels.Pointer(args[0], in_begins_at), *args[1:]]
    with student.unchanged(kernel, **{"in": args[0]}):
        report = module.launch(kernel, grid, block, given, shared_bytes, seed=seed, device=device)
    return report.plain(), args[1]
