from grader.suite import lines

from ._passages import _ADDS, _ATOMIC, _LOAD

_STRIDED = """        unsigned int index = 2 * s * tid;
        if (index + s < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();"""

strided_keeps_the_modulo = lines(
    """The modulo is still there: a warp with one lane at work costs as much as a full one. Thread k
    takes the pair at 2 * s * k, so the threads at work stand side by side.""",
    (
        _STRIDED,
        f"        if (tid % (2 * s) == 0 && tid + s < blockDim.x) {_ADDS};\n"
        "        __syncthreads();",
    ),
)

strided_avoids_the_conflicts = lines(
    """No conflicts: a better order than the one asked for, and the next task. This kernel keeps the
    pairs of `reduce_interleaved`, 2 * s words apart: you removed divergence and bought bank
    conflicts, which is what there is to see.""",
    (
        "unsigned int s = 1; s < blockDim.x; s *= 2",
        "unsigned int s = blockDim.x / 2; s > 0; s /= 2",
    ),
    (_STRIDED, f"        if (tid < s) {_ADDS};\n        __syncthreads();"),
)

strided_without_a_bound = lines(
    """Every thread adds a pair in every step: 2 * s * tid soon lies beyond the block. Only a thread
    whose pair exists may go on.""",
    ("if (index + s < blockDim.x) ", ""),
)

strided_by_s = lines(
    """Pairs begin 2 * s apart, not s: with index = s * tid neighbouring pairs overlap, and one
    thread changes what the next one reads.""",
    ("2 * s * tid", "s * tid"),
)

strided_without_a_barrier = lines(
    """No __syncthreads() between the steps: a step reads what other threads wrote in the step
    before. One barrier after every step.""",
    (_STRIDED, _STRIDED.rpartition("\n")[0]),
)

strided_reads_before_a_barrier = lines(
    """sdata is read before any barrier: the first step already needs what other threads have put
    there. __syncthreads() after filling it.""",
    (_LOAD, _LOAD.partition("\n")[0]),
)

strided_barrier_inside_the_if = lines(
    """Some threads never come to the barrier, because it stands inside the `if` or because they
    left by `return` or `break`; the block waits for them for ever. A thread without a pair rests,
    and comes to the barrier all the same.""",
    (
        "sdata[index] += sdata[index + s];\n        __syncthreads();",
        "{\n sdata[index] += sdata[index + s];\n __syncthreads();\n }",
    ),
)

strided_without_a_bound_of_n = lines(
    """No bound (or `<=`): the last block has more threads than there are elements left. A thread
    beyond n puts 0 into sdata instead of in[i].""",
    ("i < n ? in[i] : 0.0f", "in[i]"),
)

strided_without_an_atomic = lines(
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd.""",
    (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"),
)

strided_every_thread_adds_the_sum = lines(
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`.""",
    (_ATOMIC, "atomicAdd(out, sdata[0]);"),
)

strided_counts_pairs_by_halving = lines(
    """The number of pairs is rounded down: blockDim.x / (2 * s) leaves out the last pair where
    2 * s does not divide blockDim.x, as in a block of 96. Ask whether a pair's second half exists,
    not how many pairs there are.""",
    ("if (index + s < blockDim.x)", "if (tid < blockDim.x / (2 * s))"),
    gate=False,
)

strided_partner_behind_the_block = lines(
    """In a block of 96 threads not every pair has its second half: ask whether index + s is still
    below blockDim.x before you read that element.""",
    ("if (index + s < blockDim.x)", "if (index < blockDim.x)"),
    gate=False,
)
