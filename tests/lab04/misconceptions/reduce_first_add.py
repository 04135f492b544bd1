from grader.suite import lines

from ._passages import _ATOMIC, _HALVES

_TWO_LOADS = """    float sum = 0.0f;
    if (i < n) sum = in[i];
    if (i + blockDim.x < n) sum += in[i + blockDim.x];
    sdata[tid] = sum;"""

first_add_loses_the_odd_tail = lines(
    """A thread adds both elements or none: where n ends between the two, the first one is lost.
    Each of them has a bound of its own.""",
    (_TWO_LOADS, "    sdata[tid] = i + blockDim.x < n ? in[i] + in[i + blockDim.x] : 0.0f;"),
)

first_add_one_bound_for_two_loads = lines(
    """`i < n` is tested, and then in[i + blockDim.x] is read as well: the second element needs its
    own test.""",
    (_TWO_LOADS, "    sdata[tid] = i < n ? in[i] + in[i + blockDim.x] : 0.0f;"),
)

first_add_bound_off_by_one = lines(
    """`i + blockDim.x <= n` lets one thread read in[n]: the elements are in[0] to in[n - 1].""",
    ("blockDim.x <", "blockDim.x <="),
)

first_add_blocks_overlap = lines(
    """A block owns 2 * blockDim.x elements, so block b begins at 2 * blockDim.x * b; with
    blockDim.x * b neighbouring blocks add the same elements and the end is never reached.""",
    ("(2 * blockDim.x)", "blockDim.x"),
)

first_add_as_before = lines(
    """One element a thread, as before: half the blocks then add half the elements.""",
    ("blockIdx.x * (2 * blockDim.x)", "blockIdx.x * blockDim.x"),
    ("    if (i + blockDim.x < n) sum += in[i + blockDim.x];\n", ""),
)

first_add_neighbouring_pairs = lines(
    """A thread adds elements 2k and 2k + 1: then the lanes of each load are two floats apart, and
    a request touches 8 sectors and uses half of each. Load blockDim.x apart.""",
    ("blockIdx.x * (2 * blockDim.x) + tid", "2 * (blockIdx.x * blockDim.x + tid)"),
    ("if (i + blockDim.x < n) sum += in[i + blockDim.x];", "if (i + 1 < n) sum += in[i + 1];"),
)

first_add_with_conflicts = lines(
    """The tree is the one with strides: neighbouring threads meet in the same bank. Take the tree
    of `reduce_sequential`.""",
    (
        "for (unsigned int left = blockDim.x, s; left > 1; left = s) {\n"
        "        s = (left + 1) / 2;\n"
        "        if (tid + s < left) sdata[tid] += sdata[tid + s];",
        "for (unsigned int s = 1; s < blockDim.x; s *= 2) {\n"
        "        unsigned int index = 2 * s * tid;\n"
        "        if (index + s < blockDim.x) sdata[index] += sdata[index + s];",
    ),
)

first_add_one_thread_adds_up = lines(
    """Thread 0 adds up the block alone, one request for each element; a packed tree needs 45 for a
    block of 256.""",
    (
        _HALVES,
        "    if (tid == 0)\n"
        "        for (unsigned int k = 1; k < blockDim.x; ++k) sdata[0] += sdata[k];",
    ),
)

first_add_without_a_barrier = lines(
    """No __syncthreads() between the steps: the upper half may still be adding when the lower half
    reads it. One barrier after every step.""",
    (
        "sdata[tid] += sdata[tid + s];\n        __syncthreads();",
        "sdata[tid] += sdata[tid + s];",
    ),
)

first_add_without_an_atomic = lines(
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd.""",
    (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"),
)

first_add_every_thread_adds_the_sum = lines(
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`.""",
    (_ATOMIC, "atomicAdd(out, sdata[0]);"),
)

first_add_halves_an_odd_number = lines(
    """Half of an odd number is not whole: 96 threads halve to 3, and 3 / 2 is 1, so one value is
    never added. Let the lower half be the larger one, (left + 1) / 2.""",
    (
        _HALVES.partition("sdata")[0],
        "    for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {\n        if (tid < s) ",
    ),
    gate=False,
)

first_add_by_atomics_in_shared_memory = lines(
    """Each thread has a pair of its own in a step, so nobody else writes its element: an atomic
    there is paid for nothing. One atomic a block is enough, for `out`.""",
    ("sdata[tid] += sdata[tid + s]", "atomicAdd(&sdata[tid], sdata[tid + s])"),
)
