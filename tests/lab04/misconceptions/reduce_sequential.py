from grader.suite import lines, misconception

from ._passages import _ATOMIC, _HALVES, _LOAD, edited

sequential_barrier_inside_the_if = lines(
    """The barrier stands inside the `if`, where only the lower half comes by; the block waits for
    the others for ever. Put it behind the `if`: a barrier is for all threads.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];\n"
        "        __syncthreads();",
        "for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {\n"
        "        if (tid < s) {\n"
        "            sdata[tid] += sdata[tid + s];\n"
        "            __syncthreads();\n"
        "        }",
    ),
)

sequential_without_a_barrier = lines(
    """No __syncthreads() between the steps: the upper half may still be adding when the lower half
    reads it. One barrier after every step.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];\n"
        "        __syncthreads();\n"
        "    }",
        "for (unsigned int s = blockDim.x / 2; s > 0; s /= 2)\n"
        "        if (tid < s) sdata[tid] += sdata[tid + s];",
    ),
)

sequential_reads_before_a_barrier = lines(
    """sdata is read before any barrier: the first step already needs what the upper half has put
    there. __syncthreads() after filling it.""",
    (_LOAD, _LOAD.partition("\n")[0]),
)


def _halving(text, task, loop):
    """The loop over the steps replaced by another."""
    return edited(text, task, (_HALVES, loop.strip("\n")))


@misconception(file="reduce.cu")
def sequential_trusts_the_warp(text):
    """The last warp goes on without barriers, as one wrote before Volta: lanes of a warp need not
    run in step. __syncwarp() after each of those steps, or shuffles."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = blockDim.x / 2; s > 32; s /= 2) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid < 32) {
        volatile float *v = sdata;
        for (unsigned int s = 32; s > 0; s /= 2)
            if (tid + s < blockDim.x) v[tid] += v[tid + s];
    }
""",
    )


sequential_starts_at_the_block = lines(
    """The first step is blockDim.x / 2: with s = blockDim.x the partner of thread 0 lies beyond the
    block.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];",
        "for (unsigned int s = blockDim.x; s > 0; s /= 2) {\n"
        "        if (tid < s) sdata[tid] += sdata[tid + s];",
    ),
)

sequential_stops_at_two = lines(
    """The loop ends before s = 1: two values are left, and the second one is lost.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];",
        "for (unsigned int s = blockDim.x / 2; s > 1; s /= 2) {\n"
        "        if (tid < s) sdata[tid] += sdata[tid + s];",
    ),
)

sequential_by_every_thread = lines(
    """`if (tid < s)` is missing: threads of the upper half have no partner within the block.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];",
        "for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {\n"
        "        sdata[tid] += sdata[tid + s];",
    ),
)

sequential_keeps_the_stride = lines(
    """The pairs still lie 2 * s words apart, and neighbouring threads meet in the same bank. Pair
    thread tid with the value s further on: neighbours then touch neighbours.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];",
        "for (unsigned int s = 1; s < blockDim.x; s *= 2) {\n"
        "        unsigned int index = 2 * s * tid;\n"
        "        if (index + s < blockDim.x) sdata[index] += sdata[index + s];",
    ),
)

sequential_keeps_the_modulo = lines(
    """The modulo is still there: all warps stay busy with few lanes each. Of s pairs, the first s
    threads take one each.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];",
        "for (unsigned int s = 1; s < blockDim.x; s *= 2) {\n"
        "        if (tid % (2 * s) == 0 && tid + s < blockDim.x) sdata[tid] += sdata[tid + "
        "s];",
    ),
)

sequential_without_a_bound_of_n = lines(
    """No bound (or `<=`): the last block has more threads than there are elements left. A thread
    beyond n puts 0 into sdata instead of in[i].""",
    ("i < n ? in[i] : 0.0f", "in[i]"),
)

sequential_without_an_atomic = lines(
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd.""",
    (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"),
)

sequential_every_thread_adds_the_sum = lines(
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`.""",
    (_ATOMIC, "atomicAdd(out, sdata[0]);"),
)

_ODD = """Half of an odd number is not whole: 96 threads halve to 3, and 3 / 2 is 1, so one value is
    never added. Let the lower half be the larger one, (left + 1) / 2."""

sequential_halves_an_odd_number = lines(
    _ODD,
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left)",
        "for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {\n        if (tid < s)",
    ),
    gate=False,
)

sequential_rounds_half_down = lines(
    _ODD,
    ("s = (left + 1) / 2;", "s = left / 2;"),
    ("if (tid + s < left)", "if (tid < s)"),
    gate=False,
)
