"""Lab 04 on a GPU, through CuPy: values, and bandwidth against a copy. Shown, never scored.

The trusted side times: it compiles the learner's text for the GPU and launches it there, so no
learner's code runs in this process.
"""

from __future__ import annotations

import numpy as np

from grader.suite import expect

from .launches import FILE, whole_numbers

ELEMENTS = 1 << 28
ROUNDS = 20


def adds_up(student, rng, kernel):
    """Whole numbers give exactly their sum, aligned and not."""
    student.read(FILE)
    for n, grid, block, skip in ((1000, 2, 256, 0), (4097, 3, 96, 1), (65536, 64, 256, 0)):
        x = whole_numbers(rng, n)
        _, got = student.probe.launch(
            kernel,
            grid=grid,
            block=block,
            args=[np.concatenate([np.full(skip, np.nan, np.float32), x]), np.zeros(1, "f4"), n],
            shared_bytes=4 * block,
            in_begins_at=skip,
            device="gpu",
        )
        want = float(x.astype(np.int64).sum())
        expect.equal(got[0].item(), want, because="a GPU adds whole numbers exactly", what="out[0]")


def keeps_pace_with_a_copy(student, kernel):
    """A sum only reads, a copy reads and writes: bytes read a second, each in its best round."""
    import cupy

    text = student.read(FILE)
    function = cupy.RawModule(code=text, options=("-std=c++17",)).get_function(kernel)
    x = cupy.ones(ELEMENTS, cupy.float32)
    y, out = cupy.empty_like(x), cupy.zeros(1, cupy.float32)
    processors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    block, grid = 256, 8 * processors
    arguments = (x, out, np.int32(ELEMENTS))
    seconds = _best_seconds(
        cupy, lambda: function((grid,), (block,), arguments, shared_mem=4 * block)
    )
    copy_seconds = _best_seconds(cupy, lambda: cupy.copyto(y, x))
    # A copy moves every byte twice, and the memory is as busy with writes as with reads.
    copy_bandwidth = 2 * x.nbytes / copy_seconds
    # A thread that has one float under way at a time cannot keep an H200's memory busy (60 % of a
    # copy), nor need it: that is what four floats a load are for (over 95 %).
    share = 0.8 if kernel == "reduce_vec4" else 0.5
    expect.at_least(
        x.nbytes / seconds / copy_bandwidth,
        share,
        because="a sum is bound by reading its input: nothing else may be slower than that",
        what=f"bandwidth at 2^28 floats ({x.nbytes / seconds / 1e9:,.0f} GB/s), of a copy's "
        f"({copy_bandwidth / 1e9:,.0f} GB/s)",
        unit=None,
    )


def _best_seconds(cupy, call):
    """The quickest of some rounds, by the GPU's own clock."""
    call()
    best = float("inf")
    for _ in range(ROUNDS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(begin, end) / 1000)
    return best
