"""Known wrong answers of lab 04: the reference with one mistake in one kernel."""

import re

from grader.skeleton import with_block
from grader.suite import misconception

FILE = "reduce.cu"


def edited(text, task, *changes):
    """The reference with pieces (old, new) of one task's block replaced."""
    found = re.search(rf"// BEGIN SOLUTION {task}\n(.*?)\n[ \t]*// END SOLUTION", text, re.DOTALL)
    body = found[1]
    for old, new in changes:
        if old not in body:
            raise ValueError(f"the reference of `{task}` has no {old!r}")
        body = body.replace(old, new)
    return with_block(text, task, body)


_LOAD = "sdata[tid] = i < n ? in[i] : 0.0f;\n    __syncthreads();"
_ADDS = "sdata[tid] += sdata[tid + s]"
_ATOMIC = "if (tid == 0) atomicAdd(out, sdata[0]);"
_SERIAL = """
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    if (tid == 0) {
        float sum = 0.0f;
        for (unsigned int k = 0; k < blockDim.x; ++k) sum += sdata[k];
        atomicAdd(out, sum);
    }
"""


# --- reduce_atomic -----------------------------------------------------------------------------


@misconception("reduce_atomic", file=FILE)
def atomic_without_a_bound(text):
    """No bound: a launch has whole blocks of threads, and those beyond n read past the end of
    `in`. Test `i < n` before in[i] is touched."""
    return with_block(
        text,
        "reduce_atomic",
        """
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(out, in[i]);
""",
    )


@misconception("reduce_atomic", file=FILE)
def atomic_bound_includes_n(text):
    """`i <= n` lets one thread read in[n]: the elements are in[0] to in[n - 1]."""
    return edited(text, "reduce_atomic", ("i < n", "i <= n"))


@misconception("reduce_atomic", file=FILE)
def atomic_without_a_grid_stride(text):
    """Each thread takes one element only: where the grid has fewer threads than there are
    elements, the rest is never read. Loop on in steps of gridDim.x * blockDim.x."""
    return with_block(
        text,
        "reduce_atomic",
        """
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
""",
    )


@misconception("reduce_atomic", file=FILE)
def atomic_stride_of_one_block(text):
    """The stride is blockDim.x, so every block walks over what the next blocks take as well;
    the step is the number of threads of the whole grid."""
    change = ("gridDim.x * blockDim.x;", "blockDim.x;")
    return edited(text, "reduce_atomic", change)


@misconception("reduce_atomic", file=FILE)
def atomic_every_block_begins_at_zero(text):
    """The index begins at threadIdx.x: without blockIdx.x * blockDim.x every block takes the same
    elements."""
    change = ("blockIdx.x * blockDim.x + threadIdx.x", "threadIdx.x")
    return edited(text, "reduce_atomic", change)


@misconception("reduce_atomic", file=FILE)
def plus_instead_of_an_atomic(text):
    """`out[0] += x` is a read, an addition and a write: two threads that read the same old value
    lose one of the two sums. atomicAdd does the three in one piece."""
    return edited(text, "reduce_atomic", ("atomicAdd(out, in[i]);", "out[0] += in[i];"))


@misconception("reduce_atomic", file=FILE)
def atomic_in_one_thread(text):
    """One thread does it all: the sum is right and the GPU idle. A warp's request should bring 32
    neighbouring elements, not one."""
    return with_block(
        text,
        "reduce_atomic",
        """
    if (blockIdx.x == 0 && threadIdx.x == 0)
        for (int i = 0; i < n; ++i) atomicAdd(out, in[i]);
""",
    )


@misconception("reduce_atomic", file=FILE)
def atomic_in_chunks(text):
    """Each thread takes a run of consecutive elements, as one would on a CPU; but then the 32 lanes
    of a request are far apart and touch many sectors. Neighbouring threads take neighbours."""
    return with_block(
        text,
        "reduce_atomic",
        """
    unsigned int threads = gridDim.x * blockDim.x;
    unsigned int chunk = (n + threads - 1) / threads;
    unsigned int begin = (blockIdx.x * blockDim.x + threadIdx.x) * chunk;
    for (unsigned int i = begin; i < begin + chunk; ++i)
        if (i < n) atomicAdd(out, in[i]);
""",
    )


@misconception("reduce_atomic", file=FILE)
def adds_up_before_the_atomic(text):
    """Adding up in a register first is the better kernel, and what later tasks do; this one is the
    measure for them, with one atomicAdd for each element."""
    return with_block(
        text,
        "reduce_atomic",
        """
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    atomicAdd(out, sum);
""",
    )


@misconception("reduce_atomic", file=FILE)
def atomic_on_whole_numbers(text):
    """The elements pass through an int, which cuts off what stands behind the point."""
    return edited(text, "reduce_atomic", ("in[i])", "(int)in[i])"))


# --- reduce_interleaved ------------------------------------------------------------------------


@misconception("reduce_interleaved", file=FILE)
def interleaved_without_a_barrier(text):
    """No __syncthreads() between the steps: a step reads what other warps wrote in the step before,
    and nothing says that they are done. One barrier after every step."""
    return edited(
        text,
        "reduce_interleaved",
        (f"{_ADDS};\n        __syncthreads();", f"{_ADDS};"),
    )


@misconception("reduce_interleaved", file=FILE)
def interleaved_reads_before_a_barrier(text):
    """sdata is read before any barrier: the first step already needs what other threads have put
    there. __syncthreads() after filling it."""
    return edited(text, "reduce_interleaved", (_LOAD, _LOAD.partition("\n")[0]))


@misconception("reduce_interleaved", file=FILE)
def interleaved_without_a_bound(text):
    """No bound (or `<=`): the last block has more threads than there are elements left. A thread
    beyond n puts 0 into sdata instead of in[i]."""
    return edited(text, "reduce_interleaved", ("i < n ? in[i] : 0.0f", "in[i]"))


@misconception("reduce_interleaved", file=FILE)
def interleaved_leaves_rubbish(text):
    """Threads beyond n write nothing, but the tree adds their element of sdata all the same: fill
    it with 0, which changes no sum."""
    change = ("sdata[tid] = i < n ? in[i] : 0.0f;", "if (i < n) sdata[tid] = in[i];")
    return edited(text, "reduce_interleaved", change)


@misconception("reduce_interleaved", file=FILE)
def interleaved_returns_early(text):
    """`if (i >= n) return;` takes threads away that the block's barriers wait for. Threads without
    an element stay, and bring 0."""
    change = (_LOAD, f"if (i >= n) return;\n    {_LOAD}")
    return edited(text, "reduce_interleaved", change)


@misconception("reduce_interleaved", file=FILE)
def interleaved_shared_by_global_index(text):
    """Shared memory belongs to one block and has blockDim.x elements: its index is threadIdx.x, not
    the index into the whole input."""
    change = ("sdata[tid] = i < n", "sdata[i] = i < n")
    return edited(text, "reduce_interleaved", change)


@misconception("reduce_interleaved", file=FILE)
def interleaved_barrier_inside_the_if(text):
    """The barrier stands inside the `if`, where only some threads come by; the block waits for the
    others for ever. Put it behind the `if`."""
    return edited(
        text,
        "reduce_interleaved",
        (
            f"tid + s < blockDim.x) {_ADDS};\n        __syncthreads();",
            f"tid + s < blockDim.x) {{\n {_ADDS};\n __syncthreads();\n }}",
        ),
    )


@misconception("reduce_interleaved", file=FILE)
def interleaved_every_thread_adds_the_sum(text):
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`."""
    return edited(text, "reduce_interleaved", (_ATOMIC, "atomicAdd(out, sdata[0]);"))


@misconception("reduce_interleaved", file=FILE)
def interleaved_without_an_atomic(text):
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd."""
    return edited(text, "reduce_interleaved", (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"))


@misconception("reduce_interleaved", file=FILE)
def interleaved_overwrites_the_sum(text):
    """`out[0] = sdata[0]` leaves the sum of whichever block came last; every block has to add its
    own, by atomicAdd."""
    return edited(text, "reduce_interleaved", (_ATOMIC, "if (tid == 0) out[0] = sdata[0];"))


@misconception("reduce_interleaved", file=FILE)
def interleaved_an_element_of_out_for_each_block(text):
    """Here `out` has one element, for the sum of all blocks; one for each block is another design
    and needs a second kernel."""
    change = (_ATOMIC, "if (tid == 0) out[blockIdx.x] = sdata[0];")
    return edited(text, "reduce_interleaved", change)


@misconception("reduce_interleaved", file=FILE)
def interleaved_by_every_thread(text):
    """Every thread adds in every step; then a thread changes the very element that its neighbour
    is reading. In step s only threads with tid % (2 * s) == 0 are at work."""
    return edited(text, "reduce_interleaved", ("tid % (2 * s) == 0 && ", ""))


@misconception("reduce_interleaved", file=FILE)
def interleaved_one_step_too_many(text):
    """The partner lies beyond the block: the loop goes on to s = blockDim.x, or blockDim.x is no
    power of two and the last pair lacks its second half. Test tid + s < blockDim.x, too."""
    changes = (
        ("s < blockDim.x; s *= 2", "s <= blockDim.x; s *= 2"),
        (" && tid + s < blockDim.x", ""),
    )
    return edited(text, "reduce_interleaved", *changes)


@misconception("reduce_interleaved", file=FILE)
def interleaved_packed_already(text):
    """The threads at work stand side by side already: that is the next task. Here thread tid works
    for itself if tid % (2 * s) == 0, and the counters show what that costs."""
    return edited(
        text,
        "reduce_interleaved",
        (
            f"if (tid % (2 * s) == 0 && tid + s < blockDim.x) {_ADDS};",
            "if (2 * s * tid + s < blockDim.x) sdata[2 * s * tid] += sdata[2 * s * tid + s];",
        ),
    )


@misconception("reduce_interleaved", file=FILE)
def interleaved_one_thread_adds_up(text):
    """Thread 0 adds up the block alone, in blockDim.x steps; a tree needs log2(blockDim.x), because
    in each step all pairs are added at once."""
    return with_block(text, "reduce_interleaved", _SERIAL)


# --- reduce_strided ----------------------------------------------------------------------------

_STRIDED = """        unsigned int index = 2 * s * tid;
        if (index + s < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();"""


@misconception("reduce_strided", file=FILE)
def strided_keeps_the_modulo(text):
    """The modulo is still there: a warp with one lane at work costs as much as a full one. Thread k
    takes the pair at 2 * s * k, so the threads at work stand side by side."""
    return edited(
        text,
        "reduce_strided",
        (
            _STRIDED,
            f"        if (tid % (2 * s) == 0 && tid + s < blockDim.x) {_ADDS};\n"
            "        __syncthreads();",
        ),
    )


@misconception("reduce_strided", file=FILE)
def strided_avoids_the_conflicts(text):
    """No conflicts: a better order than the one asked for, and the next task. This kernel keeps the
    pairs of `reduce_interleaved`, 2 * s words apart: you removed divergence and bought bank
    conflicts, which is what there is to see."""
    return edited(
        text,
        "reduce_strided",
        (
            "unsigned int s = 1; s < blockDim.x; s *= 2",
            "unsigned int s = blockDim.x / 2; s > 0; s /= 2",
        ),
        (_STRIDED, f"        if (tid < s) {_ADDS};\n        __syncthreads();"),
    )


@misconception("reduce_strided", file=FILE)
def strided_without_a_bound(text):
    """Every thread adds a pair in every step: 2 * s * tid soon lies beyond the block. Only a thread
    whose pair exists may go on."""
    return edited(text, "reduce_strided", ("if (index + s < blockDim.x) ", ""))


@misconception("reduce_strided", file=FILE)
def strided_by_s(text):
    """Pairs begin 2 * s apart, not s: with index = s * tid neighbouring pairs overlap, and one
    thread changes what the next one reads."""
    return edited(text, "reduce_strided", ("2 * s * tid", "s * tid"))


@misconception("reduce_strided", file=FILE)
def strided_without_a_barrier(text):
    """No __syncthreads() between the steps: a step reads what other threads wrote in the step
    before. One barrier after every step."""
    return edited(text, "reduce_strided", (_STRIDED, _STRIDED.rpartition("\n")[0]))


@misconception("reduce_strided", file=FILE)
def strided_reads_before_a_barrier(text):
    """sdata is read before any barrier: the first step already needs what other threads have put
    there. __syncthreads() after filling it."""
    return edited(text, "reduce_strided", (_LOAD, _LOAD.partition("\n")[0]))


@misconception("reduce_strided", file=FILE)
def strided_barrier_inside_the_if(text):
    """Some threads never come to the barrier, because it stands inside the `if` or because they
    left by `return` or `break`; the block waits for them for ever. A thread without a pair rests,
    and comes to the barrier all the same."""
    return edited(
        text,
        "reduce_strided",
        (
            "sdata[index] += sdata[index + s];\n        __syncthreads();",
            "{\n sdata[index] += sdata[index + s];\n __syncthreads();\n }",
        ),
    )


@misconception("reduce_strided", file=FILE)
def strided_without_a_bound_of_n(text):
    """No bound (or `<=`): the last block has more threads than there are elements left. A thread
    beyond n puts 0 into sdata instead of in[i]."""
    return edited(text, "reduce_strided", ("i < n ? in[i] : 0.0f", "in[i]"))


@misconception("reduce_strided", file=FILE)
def strided_without_an_atomic(text):
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd."""
    return edited(text, "reduce_strided", (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"))


@misconception("reduce_strided", file=FILE)
def strided_every_thread_adds_the_sum(text):
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`."""
    return edited(text, "reduce_strided", (_ATOMIC, "atomicAdd(out, sdata[0]);"))


# --- reduce_sequential -------------------------------------------------------------------------

_HALVES = """    for (unsigned int left = blockDim.x, s; left > 1; left = s) {
        s = (left + 1) / 2;
        if (tid + s < left) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }"""


def _halving(text, task, loop):
    """The loop over the steps replaced by another."""
    return edited(text, task, (_HALVES, loop.strip("\n")))


@misconception("reduce_sequential", file=FILE)
def sequential_barrier_inside_the_if(text):
    """The barrier stands inside the `if`, where only the lower half comes by; the block waits for
    the others for ever. Put it behind the `if`: a barrier is for all threads."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s) {
            sdata[tid] += sdata[tid + s];
            __syncthreads();
        }
    }
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_without_a_barrier(text):
    """No __syncthreads() between the steps: the upper half may still be adding when the lower half
    reads it. One barrier after every step."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = blockDim.x / 2; s > 0; s /= 2)
        if (tid < s) sdata[tid] += sdata[tid + s];
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_reads_before_a_barrier(text):
    """sdata is read before any barrier: the first step already needs what the upper half has put
    there. __syncthreads() after filling it."""
    return edited(text, "reduce_sequential", (_LOAD, _LOAD.partition("\n")[0]))


@misconception("reduce_sequential", file=FILE)
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


@misconception("reduce_sequential", file=FILE)
def sequential_starts_at_the_block(text):
    """The first step is blockDim.x / 2: with s = blockDim.x the partner of thread 0 lies beyond the
    block."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = blockDim.x; s > 0; s /= 2) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_stops_at_two(text):
    """The loop ends before s = 1: two values are left, and the second one is lost."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = blockDim.x / 2; s > 1; s /= 2) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_by_every_thread(text):
    """`if (tid < s)` is missing: threads of the upper half have no partner within the block."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {
        sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_keeps_the_stride(text):
    """The pairs still lie 2 * s words apart, and neighbouring threads meet in the same bank. Pair
    thread tid with the value s further on: neighbours then touch neighbours."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        unsigned int index = 2 * s * tid;
        if (index + s < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();
    }
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_keeps_the_modulo(text):
    """The modulo is still there: all warps stay busy with few lanes each. Of s pairs, the first s
    threads take one each."""
    return _halving(
        text,
        "reduce_sequential",
        """
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0 && tid + s < blockDim.x) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
""",
    )


@misconception("reduce_sequential", file=FILE)
def sequential_without_a_bound_of_n(text):
    """No bound (or `<=`): the last block has more threads than there are elements left. A thread
    beyond n puts 0 into sdata instead of in[i]."""
    return edited(text, "reduce_sequential", ("i < n ? in[i] : 0.0f", "in[i]"))


@misconception("reduce_sequential", file=FILE)
def sequential_without_an_atomic(text):
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd."""
    return edited(text, "reduce_sequential", (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"))


@misconception("reduce_sequential", file=FILE)
def sequential_every_thread_adds_the_sum(text):
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`."""
    return edited(text, "reduce_sequential", (_ATOMIC, "atomicAdd(out, sdata[0]);"))


# --- reduce_first_add --------------------------------------------------------------------------

_TWO_LOADS = """    float sum = 0.0f;
    if (i < n) sum = in[i];
    if (i + blockDim.x < n) sum += in[i + blockDim.x];
    sdata[tid] = sum;"""


@misconception("reduce_first_add", file=FILE)
def first_add_loses_the_odd_tail(text):
    """A thread adds both elements or none: where n ends between the two, the first one is lost.
    Each of them has a bound of its own."""
    return edited(
        text,
        "reduce_first_add",
        (_TWO_LOADS, "    sdata[tid] = i + blockDim.x < n ? in[i] + in[i + blockDim.x] : 0.0f;"),
    )


@misconception("reduce_first_add", file=FILE)
def first_add_one_bound_for_two_loads(text):
    """`i < n` is tested, and then in[i + blockDim.x] is read as well: the second element needs its
    own test."""
    return edited(
        text,
        "reduce_first_add",
        (_TWO_LOADS, "    sdata[tid] = i < n ? in[i] + in[i + blockDim.x] : 0.0f;"),
    )


@misconception("reduce_first_add", file=FILE)
def first_add_bound_off_by_one(text):
    """`i + blockDim.x <= n` lets one thread read in[n]: the elements are in[0] to in[n - 1]."""
    change = ("if (i + blockDim.x < n)", "if (i + blockDim.x <= n)")
    return edited(text, "reduce_first_add", change)


@misconception("reduce_first_add", file=FILE)
def first_add_blocks_overlap(text):
    """A block owns 2 * blockDim.x elements, so block b begins at 2 * blockDim.x * b; with
    blockDim.x * b neighbouring blocks add the same elements and the end is never reached."""
    change = ("blockIdx.x * (2 * blockDim.x)", "blockIdx.x * blockDim.x")
    return edited(text, "reduce_first_add", change)


@misconception("reduce_first_add", file=FILE)
def first_add_as_before(text):
    """One element a thread, as before: half the blocks then add half the elements."""
    return edited(
        text,
        "reduce_first_add",
        ("blockIdx.x * (2 * blockDim.x)", "blockIdx.x * blockDim.x"),
        ("    if (i + blockDim.x < n) sum += in[i + blockDim.x];\n", ""),
    )


@misconception("reduce_first_add", file=FILE)
def first_add_neighbouring_pairs(text):
    """A thread adds elements 2k and 2k + 1: then the lanes of each load are two floats apart, and
    a request touches 8 sectors and uses half of each. Load blockDim.x apart."""
    return edited(
        text,
        "reduce_first_add",
        ("blockIdx.x * (2 * blockDim.x) + tid", "2 * (blockIdx.x * blockDim.x + tid)"),
        ("i + blockDim.x", "i + 1"),
    )


@misconception("reduce_first_add", file=FILE)
def first_add_with_conflicts(text):
    """The tree is the one with strides: neighbouring threads meet in the same bank. Take the tree
    of `reduce_sequential`."""
    return _halving(
        text,
        "reduce_first_add",
        """
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        unsigned int index = 2 * s * tid;
        if (index + s < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();
    }
""",
    )


@misconception("reduce_first_add", file=FILE)
def first_add_one_thread_adds_up(text):
    """Thread 0 adds up the block alone, one request for each element; a packed tree needs 45 for a
    block of 256."""
    return edited(
        text,
        "reduce_first_add",
        (
            _HALVES,
            "    if (tid == 0)\n"
            "        for (unsigned int k = 1; k < blockDim.x; ++k) sdata[0] += sdata[k];",
        ),
    )


@misconception("reduce_first_add", file=FILE)
def first_add_without_a_barrier(text):
    """No __syncthreads() between the steps: the upper half may still be adding when the lower half
    reads it. One barrier after every step."""
    return edited(
        text,
        "reduce_first_add",
        (
            "sdata[tid] += sdata[tid + s];\n        __syncthreads();",
            "sdata[tid] += sdata[tid + s];",
        ),
    )


@misconception("reduce_first_add", file=FILE)
def first_add_without_an_atomic(text):
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd."""
    return edited(text, "reduce_first_add", (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"))


@misconception("reduce_first_add", file=FILE)
def first_add_every_thread_adds_the_sum(text):
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`."""
    return edited(text, "reduce_first_add", (_ATOMIC, "atomicAdd(out, sdata[0]);"))


# --- reduce_warp -------------------------------------------------------------------------------

_FIRST_SHUFFLES = """    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;"""


@misconception("reduce_warp", file=FILE)
def warp_names_absent_lanes(text):
    """The mask names lanes that never come to the shuffle, because an `if` keeps them away: every
    lane of the mask must make the same call. Let all 32 shuffle; only lane 0's sum is used."""
    return edited(
        text,
        "reduce_warp",
        (
            _FIRST_SHUFFLES,
            """    for (int offset = 16; offset > 0; offset /= 2)
        if (lane < offset) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;""",
        ),
    )


@misconception("reduce_warp", file=FILE)
def warp_of_a_few_lanes(text):
    """The mask names lanes that are not there: an `if` kept them away, or they have returned. What
    such a lane gives to a shuffle is undefined. Let all 32 come to it, with 0 in the lanes that
    have nothing to give."""
    return edited(
        text,
        "reduce_warp",
        ("if (warp == 0) {", "if (threadIdx.x < blockDim.x / 32) {"),
        ("lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f", "warp_sums[lane]"),
    )


@misconception("reduce_warp", file=FILE)
def warp_synchronous_tail(text):
    """A tail in shared memory without __syncwarp(), as one wrote before Volta: lanes of a warp need
    not run in step, so this is a race. A shuffle is exchange and synchronization in one."""
    return with_block(
        text,
        "reduce_warp",
        """
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + tid; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sdata[tid] = sum;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 32; s /= 2) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid < 32) {
        volatile float *v = sdata;
        for (unsigned int s = 32; s > 0; s /= 2)
            if (tid + s < blockDim.x) v[tid] += v[tid + s];
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
""",
    )


@misconception("reduce_warp", file=FILE)
def warp_result_from_lane_31(text):
    """__shfl_down_sync moves values towards lane 0: there the sum of the warp arrives. Lane 31
    reads beyond the warp, which gives it its own value."""
    change = ("if (lane == 0) warp_sums", "if (lane == 31) warp_sums")
    return edited(text, "reduce_warp", change)


@misconception("reduce_warp", file=FILE)
def warp_without_a_barrier(text):
    """No __syncthreads() between the warps' writes and the first warp's read: a shuffle orders the
    lanes of one warp, never two warps."""
    return edited(text, "reduce_warp", ("    __syncthreads();\n", ""))


@misconception("reduce_warp", file=FILE)
def warp_reads_all_32_sums(text):
    """A block of fewer than 32 warps has written fewer than 32 sums: the other lanes must take 0,
    not what happens to stand there."""
    change = ("lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f", "warp_sums[lane]")
    return edited(text, "reduce_warp", change)


@misconception("reduce_warp", file=FILE)
def warp_brings_an_atomic_each(text):
    """Every warp goes to global memory: right, but blockDim.x / 32 atomics a block. Collect the
    warps' sums in shared memory, and let one of them go."""
    return with_block(
        text,
        "reduce_warp",
        """
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
""",
    )


@misconception("reduce_warp", file=FILE)
def warp_offset_of_32(text):
    """The offsets begin at 32: no lane is 32 higher, so each lane gets its own value and doubles
    it. The first offset is half a warp, 16."""
    return edited(text, "reduce_warp", ("offset = 16", "offset = 32"))


@misconception("reduce_warp", file=FILE)
def warp_offsets_end_at_two(text):
    """The offsets end before 1: lane 0 has the sum of the even lanes only."""
    return edited(text, "reduce_warp", ("offset > 0", "offset > 1"))


@misconception("reduce_warp", file=FILE)
def warp_forgets_to_add(text):
    """`sum = __shfl_down_sync(...)` replaces the lane's own sum by the other's; it must be added,
    `sum +=`."""
    change = ("sum += __shfl_down_sync", "sum = __shfl_down_sync")
    return edited(text, "reduce_warp", change)


@misconception("reduce_warp", file=FILE)
def warp_without_a_grid_stride(text):
    """Each thread takes one element only: where the grid has fewer threads than there are
    elements, the rest is never read. Loop on in steps of gridDim.x * blockDim.x."""
    return edited(
        text,
        "reduce_warp",
        (
            "for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum",
            "unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) sum",
        ),
    )


@misconception("reduce_warp", file=FILE)
def warp_without_a_bound(text):
    """No bound: a launch has whole blocks of threads, and those beyond n read past the end of
    `in`. Test `i < n` before in[i] is touched."""
    return edited(
        text,
        "reduce_warp",
        (
            "for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum",
            "for (unsigned int i = 0; i < n; i += stride) sum",
        ),
        ("sum += in[i];", "sum += in[i + blockIdx.x * blockDim.x + threadIdx.x];"),
    )


@misconception("reduce_warp", file=FILE)
def warp_returns_early(text):
    """`if (i >= n) return;` takes lanes away that the shuffles and the barrier wait for. Threads
    without an element stay, and bring 0."""
    return edited(
        text,
        "reduce_warp",
        (
            "    float sum = 0.0f;\n",
            "    if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;\n    float sum = 0.0f;\n",
        ),
    )


@misconception("reduce_warp", file=FILE)
def warp_every_lane_adds_the_sum(text):
    """All 32 lanes go to `out`: only lane 0 has the sum, the others have what the shuffles left in
    them. `if (lane == 0)`."""
    return edited(text, "reduce_warp", ("if (lane == 0) atomicAdd", "atomicAdd"))


@misconception("reduce_warp", file=FILE)
def warp_keeps_the_tree(text):
    """The tree is still in shared memory, with a barrier a step: correct, and two barriers would
    do. Shuffle inside the warps, and let only their sums go through shared memory."""
    return with_block(
        text,
        "reduce_warp",
        """
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + tid; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    sdata[tid] = sum;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s /= 2) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
""",
    )


@misconception("reduce_warp", file=FILE)
def warp_writes_by_every_lane(text):
    """Every thread writes its sum to shared memory: after the shuffles one value a warp counts, and
    one lane writes it. With 32 of them this is a race, too."""
    return edited(text, "reduce_warp", ("if (lane == 0) warp_sums", "warp_sums"))


@misconception("reduce_warp", file=FILE)
def warp_in_one_thread(text):
    """One thread of each block does it all: the sum is right and 31 of 32 lanes are idle. A warp's
    request should bring 32 neighbouring elements, not one."""
    return with_block(
        text,
        "reduce_warp",
        """
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (unsigned int i = blockIdx.x; i < n; i += gridDim.x) sum += in[i];
        atomicAdd(out, sum);
    }
""",
    )


# --- reduce_vec4 -------------------------------------------------------------------------------

_HEAD = "min((unsigned int)(16 - (size_t)in % 16) % 16 / 4, (unsigned int)n)"
_QUADS = """        float4 four = body[i];
        sum += (four.x + four.y) + (four.z + four.w);"""


@misconception("reduce_vec4", file=FILE)
def vec4_ignores_alignment(text):
    """`in` is cast to float4 as it is: a 16-byte load from an address that is no multiple of 16 is
    an error on a GPU. Read up to 3 elements one by one first."""
    return edited(text, "reduce_vec4", (_HEAD, "0"))


@misconception("reduce_vec4", file=FILE)
def vec4_counts_floats(text):
    """The loop runs over n float4, which are 4 * n floats: there are n / 4 of them."""
    return edited(text, "reduce_vec4", ("(n - head) / 4, tail", "n, tail"))


@misconception("reduce_vec4", file=FILE)
def vec4_tests_the_first_of_four(text):
    """`i < n` is true for the first of four elements and says nothing about the other three: the
    last load reaches beyond n. Test the last one, i + 3 < n."""
    return edited(
        text,
        "reduce_vec4",
        (
            "unsigned int i = first; i < quads; i += stride",
            "unsigned int i = first; 4 * i < n - head; i += stride",
        ),
    )


@misconception("reduce_vec4", file=FILE)
def vec4_loses_the_tail(text):
    """n need not be a multiple of 4: up to 3 elements behind the last whole float4 are still to be
    added."""
    return edited(text, "reduce_vec4", ("    if (tail + first < n) sum += in[tail + first];\n", ""))


@misconception("reduce_vec4", file=FILE)
def vec4_loses_the_head(text):
    """The elements in front of the first multiple of 16 bytes are skipped, and never added."""
    return edited(text, "reduce_vec4", ("    if (first < head) sum += in[first];\n", ""))


@misconception("reduce_vec4", file=FILE)
def vec4_every_thread_adds_the_tail(text):
    """Every thread adds the last elements: they belong to one thread each, in the whole grid."""
    return edited(
        text,
        "reduce_vec4",
        (
            "    if (tail + first < n) sum += in[tail + first];\n",
            "    for (unsigned int i = tail; i < n; ++i) sum += in[i];\n",
        ),
    )


@misconception("reduce_vec4", file=FILE)
def vec4_every_block_adds_the_tail(text):
    """The first threads of every block add the last elements: they belong to the first threads of
    the grid, blockIdx.x == 0."""
    return edited(
        text,
        "reduce_vec4",
        (
            "    if (tail + first < n) sum += in[tail + first];\n",
            "    if (tail + threadIdx.x < n) sum += in[tail + threadIdx.x];\n",
        ),
    )


@misconception("reduce_vec4", file=FILE)
def vec4_counts_from_the_boundary_below(text):
    """address % 16 says how far the last boundary lies behind; the head reaches to the next one,
    (16 - address % 16) % 16 bytes on."""
    return edited(text, "reduce_vec4", (_HEAD, "min((unsigned int)((size_t)in % 16 / 4), n)"))


@misconception("reduce_vec4", file=FILE)
def vec4_head_longer_than_the_input(text):
    """The head is not limited to n: an input of 1 or 2 elements may end before the boundary, and
    n - head is then negative."""
    return edited(text, "reduce_vec4", (_HEAD, "(unsigned int)(16 - (size_t)in % 16) % 16 / 4"))


@misconception("reduce_vec4", file=FILE)
def vec4_four_loads_of_one(text):
    """Four loads of 4 bytes, each with its lanes 16 bytes apart, are four requests of 16 sectors
    where one would do. Copy the whole float4: float4 four = body[i];."""
    return edited(
        text,
        "reduce_vec4",
        (
            _QUADS,
            "        const float *p = in + head + 4 * i;\n"
            "        sum += (p[0] + p[1]) + (p[2] + p[3]);",
        ),
    )


@misconception("reduce_vec4", file=FILE)
def vec4_gives_up_when_misaligned(text):
    """An input that does not begin at a multiple of 16 bytes is read one by one, all of it: at most
    3 elements in front need that, and then everything is aligned."""
    return edited(
        text,
        "reduce_vec4",
        (_HEAD, "(size_t)in % 16 ? n : 0"),
        (
            "if (first < head) sum += in[first];",
            "for (unsigned int i = first; i < head; i += stride) sum += in[i];",
        ),
    )


@misconception("reduce_vec4", file=FILE)
def vec4_an_atomic_a_thread(text):
    """Every thread brings its own sum to `out`: atomics on one address stand in line. Reduce the
    block first, as in `reduce_warp`."""
    first, _, _ = text.partition("// BEGIN SOLUTION reduce_vec4")[2].partition(
        "    for (int offset"
    )
    return with_block(text, "reduce_vec4", first.strip("\n") + "\n    atomicAdd(out, sum);")


@misconception("reduce_vec4", file=FILE)
def vec4_without_a_barrier(text):
    """No __syncthreads() between the warps' writes and the first warp's read: a shuffle orders the
    lanes of one warp, never two warps."""
    return edited(text, "reduce_vec4", ("    __syncthreads();\n", ""))


# --- reduce_max --------------------------------------------------------------------------------

_KEEPS_NAN = "a > b || a != a ? a : b"
_LOWEST = "const float lowest = __int_as_float(0xff800000)"


@misconception("reduce_max", file=FILE)
def zero_is_the_identity_of_max(text):
    """0 is not the identity of max: where all elements are negative, the zero of a thread that has
    nothing wins. Start from -inf, __int_as_float(0xff800000)."""
    return edited(text, "reduce_max", (_LOWEST, "const float lowest = 0.0f"))


@misconception("reduce_max", file=FILE)
def flt_min_is_the_identity_of_max(text):
    """FLT_MIN is the smallest POSITIVE normal float, 1.18e-38. Start from -inf,
    __int_as_float(0xff800000)."""
    return edited(text, "reduce_max", (_LOWEST, "const float lowest = 1.17549435e-38f"))


@misconception("reduce_max", file=FILE)
def minus_flt_max_is_the_identity_of_max(text):
    """-FLT_MAX is not below everything: -inf is. Where all elements are -inf, the start value would
    win. Start from __int_as_float(0xff800000)."""
    return edited(text, "reduce_max", (_LOWEST, "const float lowest = -3.402823466e38f"))


@misconception("reduce_max", file=FILE)
def max_starts_from_out(text):
    """out[0] holds rubbish before the launch: this kernel writes it and must not read it. Start
    from -inf."""
    return edited(text, "reduce_max", ("float best = lowest;", "float best = out[0];"))


@misconception("reduce_max", file=FILE)
def max_loses_a_nan(text):
    """A NaN is lost: every comparison with it is false, and CUDA's max() and fmaxf() return the
    number. Ask for it by name, x != x, and keep it."""
    return edited(text, "reduce_max", (_KEEPS_NAN, "fmaxf(a, b)"))


@misconception("reduce_max", file=FILE)
def max_of_one_element_a_thread(text):
    """Each thread looks at one element: n may be larger than the only block. Loop on in steps of
    blockDim.x."""
    return edited(
        text,
        "reduce_max",
        (
            "for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) best",
            "unsigned int i = threadIdx.x;\n    if (i < n) best",
        ),
    )


@misconception("reduce_max", file=FILE)
def max_without_a_bound(text):
    """No bound: n may be smaller than the block, and threads beyond n read past the end of `in`."""
    return edited(
        text,
        "reduce_max",
        (
            "for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) "
            "best = larger(best, in[i]);",
            "for (unsigned int i = 0; i < n; i += blockDim.x)\n"
            "        best = larger(best, in[i + threadIdx.x]);",
        ),
    )


@misconception("reduce_max", file=FILE)
def max_without_a_barrier(text):
    """No barrier between the threads that write to shared memory and the one that reads it: other
    warps may not have come so far."""
    return edited(text, "reduce_max", ("    __syncthreads();\n", ""))


@misconception("reduce_max", file=FILE)
def max_of_a_warp(text):
    """The result of the first warp is written, and the other warps' are lost: a shuffle never
    leaves its warp."""
    return edited(
        text, "reduce_max", ("best = lane < blockDim.x / 32 ? warp_best[lane] : lowest;", "")
    )


@misconception("reduce_max", file=FILE)
def max_in_one_thread(text):
    """One thread looks at all elements: right, and 1 of the block's threads is at work. A warp's
    request should bring 32 neighbouring elements."""
    return with_block(
        text,
        "reduce_max",
        """
    if (threadIdx.x == 0) {
        float best = in[0];
        for (int i = 1; i < n; ++i) {
            float x = in[i];
            best = best > x || best != best ? best : x;
        }
        out[0] = best;
    }
""",
    )


# --- argmax ------------------------------------------------------------------------------------

_TOTAL = "return b > a || (!(a > b) && j < i);"


@misconception("argmax", file=FILE)
def argmax_of_the_last_equal(text):
    """`>=` lets a later equal element take the place of an earlier one: of equal values the lowest
    index wins."""
    return edited(
        text,
        "argmax",
        (_TOTAL, "return b > a || (!(a > b) && j > i && j < 0x7fffffff);"),
        ("int where = n;", "int where = -1;"),
        (": n;", ": -1;"),
    )


@misconception("argmax", file=FILE)
def argmax_ties_by_lane(text):
    """Ties go to the lower lane, not to the lower index: thread 5 may hold element 133 while thread
    6 holds element 6. Compare the indices where the values are equal."""
    return with_block(text, "argmax", _argmax("x > best || (best != best ? false : x != x)"))


@misconception("argmax", file=FILE)
def argmax_loses_a_nan(text):
    """A NaN never wins: every comparison with it is false. Ask for it by name, x != x, before
    comparing."""
    return edited(
        text,
        "argmax",
        (
            "        if (b_nan != a_nan) return b_nan;\n",
            "        if (b_nan) return false;\n        if (a_nan) return true;\n",
        ),
    )


@misconception("argmax", file=FILE)
def argmax_of_any_nan(text):
    """Any NaN takes the place of any other: of several, the first one wins."""
    return edited(
        text, "argmax", ("if (b_nan != a_nan) return b_nan;", "if (b_nan || a_nan) return b_nan;")
    )


@misconception("argmax", file=FILE)
def argmax_gives_the_thread(text):
    """The index of the thread is kept instead of the element's: they differ as soon as a thread
    looks at a second element."""
    return edited(
        text,
        "argmax",
        (
            "if (wins(x, i, best, where)) best = x, where = i;\n    }\n    for",
            "if (wins(x, i, best, where)) best = x, where = threadIdx.x;\n    }\n    for",
        ),
    )


@misconception("argmax", file=FILE)
def argmax_of_nothing(text):
    """-inf in the input never beats the -inf that a thread starts from, and the index of no element
    comes out. An element beats no element, whatever its value."""
    return edited(
        text,
        "argmax",
        (_TOTAL, "return b > a || (b == a && j < i && b > __int_as_float(0xff800000));"),
    )


@misconception("argmax", file=FILE)
def zero_is_the_identity_of_argmax(text):
    """0 is not the identity of max: where all elements are negative, nothing ever beats the start
    value. Start from -inf, __int_as_float(0xff800000)."""
    return edited(text, "argmax", ("__int_as_float(0xff800000)", "0.0f"))


@misconception("argmax", file=FILE)
def argmax_index_travels_alone(text):
    """The value is compared, but the index of the other lane is taken in any case: both belong
    together, and change together."""
    return edited(
        text,
        "argmax",
        (
            """        if (wins(x, i, best, where)) best = x, where = i;
    }
    if (lane == 0)""",
            """        if (wins(x, i, best, where)) best = x;
        where = i;
    }
    if (lane == 0)""",
        ),
    )


@misconception("argmax", file=FILE)
def argmax_writes_the_value(text):
    """The largest value is written where its index is asked for."""
    return edited(text, "argmax", ("out[0] = where", "out[0] = best"))


@misconception("argmax", file=FILE)
def argmax_without_a_barrier(text):
    """No barrier between the threads that write to shared memory and the one that reads it: other
    warps may not have come so far."""
    return edited(text, "argmax", ("    __syncthreads();\n", ""))


@misconception("argmax", file=FILE)
def argmax_of_one_element_a_thread(text):
    """Each thread looks at one element: n may be larger than the only block. Loop on in steps of
    blockDim.x."""
    return edited(
        text,
        "argmax",
        (
            "for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {",
            "unsigned int i = threadIdx.x;\n    if (i < n) {",
        ),
    )


@misconception("argmax", file=FILE)
def argmax_in_one_thread(text):
    """One thread looks at all elements: right, and 1 of the block's threads is at work. A warp's
    request should bring 32 neighbouring elements."""
    return with_block(
        text,
        "argmax",
        """
    if (threadIdx.x == 0) {
        float best = in[0];
        int where = 0;
        for (int i = 1; i < n; ++i) {
            float x = in[i];
            if (best == best && (x > best || x != x)) best = x, where = i;
        }
        out[0] = where;
    }
""",
    )


def _argmax(wins):
    """A block's argmax by shuffles, with an expression that says whether x beats best."""
    step = f"if ({wins}) best = x, where = i;"
    return f"""
    __shared__ float warp_best[32];
    __shared__ int warp_where[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float best = __int_as_float(0xff800000);
    int where = threadIdx.x < n ? threadIdx.x : 0;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {{
        float x = in[i];
        {step}
    }}
    for (int offset = 16; offset > 0; offset /= 2) {{
        float x = __shfl_down_sync(0xffffffff, best, offset);
        int i = __shfl_down_sync(0xffffffff, where, offset);
        {step}
    }}
    if (lane == 0) warp_best[warp] = best, warp_where[warp] = where;
    __syncthreads();
    if (warp == 0) {{
        best = lane < blockDim.x / 32 ? warp_best[lane] : __int_as_float(0xff800000);
        where = lane < blockDim.x / 32 ? warp_where[lane] : 0;
        for (int offset = 16; offset > 0; offset /= 2) {{
            float x = __shfl_down_sync(0xffffffff, best, offset);
            int i = __shfl_down_sync(0xffffffff, where, offset);
            {step}
        }}
        if (lane == 0) out[0] = where;
    }}
"""


# --- reduce_two_pass ---------------------------------------------------------------------------


@misconception("reduce_two_pass", file=FILE)
def two_pass_with_atomics(text):
    """Warps add to the block's element by atomicAdd: the sum is right, and its last bits depend on
    who comes first. Atomics have no order; a tree has."""
    return with_block(
        text,
        "reduce_two_pass",
        """
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x == 0) partial[blockIdx.x] = 0.0f;
    __syncthreads();
    if (threadIdx.x % 32 == 0) atomicAdd(partial + blockIdx.x, sum);
""",
    )


@misconception("reduce_two_pass", file=FILE)
def two_pass_into_one_element(text):
    """All blocks write the same element, and the last one wins: block b has partial[b] for
    itself."""
    return edited(text, "reduce_two_pass", ("partial[blockIdx.x] = sum", "partial[0] = sum"))


@misconception("reduce_two_pass", file=FILE)
def two_pass_adds_to_partial(text):
    """`partial` holds rubbish before the launch: write it, do not add to it."""
    return edited(
        text, "reduce_two_pass", ("partial[blockIdx.x] = sum", "partial[blockIdx.x] += sum")
    )


@misconception("reduce_two_pass", file=FILE)
def two_pass_without_a_grid_stride(text):
    """Each thread takes one element only: where the grid has fewer threads than there are
    elements (the second launch has one block), the rest is never read."""
    return edited(
        text,
        "reduce_two_pass",
        (
            "for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum",
            "unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) sum",
        ),
    )


@misconception("reduce_two_pass", file=FILE)
def two_pass_without_a_barrier(text):
    """No __syncthreads() between the warps' writes and the first warp's read: a shuffle orders the
    lanes of one warp, never two warps."""
    return edited(text, "reduce_two_pass", ("    __syncthreads();\n", ""))


@misconception("reduce_two_pass", file=FILE)
def two_pass_in_one_thread(text):
    """One thread of each block does it all: the order is fixed and 31 of 32 lanes are idle. A tree
    of shuffles has a fixed order, too."""
    return with_block(
        text,
        "reduce_two_pass",
        """
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (unsigned int i = blockIdx.x; i < n; i += gridDim.x) sum += in[i];
        partial[blockIdx.x] = sum;
    }
""",
    )


# --- reduce_kahan ------------------------------------------------------------------------------


@misconception("reduce_kahan", file=FILE)
def kahan_without_a_rest(text):
    """What an addition cuts off is lost: next to 2^24 a number below 1 vanishes, however often it
    comes. With t = sum + y, y - (t - sum) is what is missing from t; add it next time."""
    return edited(text, "reduce_kahan", ("rest = y - (t - sum);", "rest = 0.0f;"))


@misconception("reduce_kahan", file=FILE)
def kahan_in_double(text):
    """A double hides the problem: it has 53 bits, and costs a multiple of a float's time on most
    GPUs. Two floats, the sum and what it lacks, are as good as 48 bits."""
    return edited(
        text,
        "reduce_kahan",
        (
            "auto add = [](float &sum, float &rest, float x) {",
            "auto add = [](double &sum, float &, float x) {",
        ),
        (
            "float y = x + rest;\n        float t = sum + y;\n        rest = y - (t - sum);\n"
            "        sum = t;",
            "sum += x;",
        ),
        ("float sum = 0.0f, rest = 0.0f;", "double sum = 0.0;\n    float rest = 0.0f;"),
    )


@misconception("reduce_kahan", file=FILE)
def kahan_without_a_barrier(text):
    """No barrier between the warps that write to shared memory and the thread that reads it."""
    return edited(text, "reduce_kahan", ("    __syncthreads();\n", ""))


@misconception("reduce_kahan", file=FILE)
def kahan_in_one_thread(text):
    """One thread adds everything: exact, and the rest of the block is idle. Let every thread keep a
    pair, and merge the pairs."""
    return with_block(
        text,
        "reduce_kahan",
        """
    if (threadIdx.x == 0) {
        float sum = 0.0f, rest = 0.0f;
        for (unsigned int i = 0; i < n; ++i) {
            float y = in[i] + rest;
            float t = sum + y;
            rest = y - (t - sum);
            sum = t;
        }
        out[0] = sum + rest;
    }
""",
    )


# --- welford -----------------------------------------------------------------------------------

_MERGED = "m2 += m2_b + delta * delta * (count * (count_b / all));"


@misconception("welford", file=FILE)
def welford_adds_the_squares_only(text):
    """M2_a + M2_b is the spread around two different means: the merge formula adds
    delta^2 * n_a * n_b / n for what lies between them."""
    return edited(text, "welford", (_MERGED, "m2 += m2_b;"))


@misconception("welford", file=FILE)
def welford_averages_the_means(text):
    """The mean of two means is right for parts of the same size only: each counts by the number of
    its elements."""
    return edited(text, "welford", ("mean += delta * (count_b / all);", "mean += delta / 2;"))


@misconception("welford", file=FILE)
def welford_forgets_the_other_count(text):
    """delta^2 is weighted by n_a * n_b / n: without the division by n it grows with the number of
    elements."""
    return edited(text, "welford", ("(count * (count_b / all))", "(count * count_b)"))


@misconception("welford", file=FILE)
def welford_from_sums_of_squares(text):
    """Sum of x^2 minus n * mean^2: two large numbers whose leading digits cancel. With a mean of
    10,000 and a spread of 1 a float has no digit left for the difference."""
    return with_block(
        text,
        "welford",
        """
    __shared__ float firsts[32], seconds[32];
    float first = 0.0f, second = 0.0f;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {
        float x = in[i];
        first += x;
        second += x * x;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        first += __shfl_down_sync(0xffffffff, first, offset);
        second += __shfl_down_sync(0xffffffff, second, offset);
    }
    unsigned int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) firsts[warp] = first, seconds[warp] = second;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x / 32; ++w) first += firsts[w], second += seconds[w];
        out[0] = first / n;
        out[1] = second - first * (first / n);
    }
""",
    )


@misconception("welford", file=FILE)
def welford_divides_by_an_empty_part(text):
    """Two empty parts have n = 0, and 0 / 0 is a NaN that spreads: threads without an element bring
    (0, 0, 0), and nothing is merged for them."""
    return edited(text, "welford", ("        if (count_b == 0.0f) return;\n", ""))


@misconception("welford", file=FILE)
def welford_gives_the_variance(text):
    """out[1] is M2, the sum of the squared deviations; the variance is M2 / n."""
    return edited(text, "welford", ("out[1] = m2;", "out[1] = m2 / n;"))


@misconception("welford", file=FILE)
def welford_in_double(text):
    """A double hides the problem: in float, where the formula has to be right, it shows. Merge
    count, mean and M2."""
    return with_block(
        text,
        "welford",
        """
    __shared__ double firsts[32], seconds[32];
    double first = 0.0, second = 0.0;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {
        double x = in[i];
        first += x;
        second += x * x;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        first += __shfl_down_sync(0xffffffff, first, offset);
        second += __shfl_down_sync(0xffffffff, second, offset);
    }
    unsigned int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) firsts[warp] = first, seconds[warp] = second;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x / 32; ++w) first += firsts[w], second += seconds[w];
        out[0] = first / n;
        out[1] = second - first * (first / n);
    }
""",
    )


@misconception("welford", file=FILE)
def welford_without_a_barrier(text):
    """No barrier between the warps that write to shared memory and the thread that reads it."""
    return edited(text, "welford", ("    __syncthreads();\n", ""))
