from grader.suite import block, lines

from ._passages import _ADDS, _ATOMIC, _LOAD

interleaved_without_a_barrier = lines(
    """No __syncthreads() between the steps: a step reads what other warps wrote in the step before,
    and nothing says that they are done. One barrier after every step.""",
    (f"{_ADDS};\n        __syncthreads();", f"{_ADDS};"),
)

interleaved_syncwarp_between_warps = lines(
    """__syncwarp() is left in a step whose partner is in another warp, from s = 32 on: it orders 32
    lanes and nobody else. What another warp has written needs __syncthreads().""",
    (
        f"{_ADDS};\n        __syncthreads();",
        f"{_ADDS};\n        if (s <= 16) __syncwarp();\n        else __syncthreads();",
    ),
)

interleaved_reads_before_a_barrier = lines(
    """sdata is read before any barrier: the first step already needs what other threads have put
    there. __syncthreads() after filling it.""",
    (_LOAD, _LOAD.partition("\n")[0]),
)

interleaved_without_a_bound = lines(
    """No bound (or `<=`): the last block has more threads than there are elements left. A thread
    beyond n puts 0 into sdata instead of in[i].""",
    ("i < n ? in[i] : 0.0f", "in[i]"),
)

interleaved_leaves_rubbish = lines(
    """Threads beyond n write nothing, but the tree adds their element of sdata all the same: fill
    it with 0, which changes no sum.""",
    ("sdata[tid] = i < n ? in[i] : 0.0f;", "if (i < n) sdata[tid] = in[i];"),
)

interleaved_returns_early = lines(
    """`if (i >= n) return;` takes threads away that the block's barriers wait for. Threads without
    an element stay, and bring 0.""",
    (
        "unsigned int i = blockIdx.x * blockDim.x + tid;",
        "unsigned int i = blockIdx.x * blockDim.x + tid;\n    if (i >= n) return;",
    ),
)

interleaved_shared_by_global_index = lines(
    """Shared memory belongs to one block and has blockDim.x elements: its index is threadIdx.x, not
    the index into the whole input.""",
    ("sdata[tid] = i < n ? in[i] : 0.0f;", "sdata[i] = i < n ? in[i] : 0.0f;"),
)

interleaved_barrier_inside_the_if = lines(
    """The barrier stands inside the `if`, where only some threads come by; the block waits for the
    others for ever. Put it behind the `if`.""",
    (
        f"tid + s < blockDim.x) {_ADDS};\n        __syncthreads();",
        f"tid + s < blockDim.x) {{\n {_ADDS};\n __syncthreads();\n }}",
    ),
)

interleaved_every_thread_adds_the_sum = lines(
    """Every thread of the block adds the block's sum to `out`: that is for one thread,
    `if (tid == 0)`.""",
    (_ATOMIC, "atomicAdd(out, sdata[0]);"),
)

interleaved_without_an_atomic = lines(
    """`out[0] += sdata[0]` by several blocks: blocks run at the same time, and one of two sums is
    lost. atomicAdd.""",
    (_ATOMIC, "if (tid == 0) out[0] += sdata[0];"),
)

interleaved_overwrites_the_sum = lines(
    """`out[0] = sdata[0]` leaves the sum of whichever block came last; every block has to add its
    own, by atomicAdd.""",
    (_ATOMIC, "if (tid == 0) out[0] = sdata[0];"),
)

interleaved_an_element_of_out_for_each_block = lines(
    """Here `out` has one element, for the sum of all blocks; one for each block is another design
    and needs a second kernel.""",
    ("if (tid == 0) atomicAdd(out, sdata[0]);", "if (tid == 0) out[blockIdx.x] = sdata[0];"),
)

interleaved_by_every_thread = lines(
    """Every thread adds in every step; then a thread changes the very element that its neighbour
    is reading. In step s only threads with tid % (2 * s) == 0 are at work.""",
    ("tid % (2 * s) == 0 && ", ""),
)

interleaved_one_step_too_many = lines(
    """The partner lies beyond the block: the loop goes on to s = blockDim.x, where no thread has
    one. Steps are below blockDim.x, and a partner is a thread of the block.""",
    (
        "for (unsigned int s = 1; s < blockDim.x; s *= 2) {\n"
        "        if (tid % (2 * s) == 0 && tid + s < blockDim.x) sdata[tid] += sdata[tid + "
        "s];",
        "for (unsigned int s = 1; s <= blockDim.x; s *= 2) {\n"
        "        if (tid % (2 * s) == 0) sdata[tid] += sdata[tid + s];",
    ),
)

interleaved_packed_already = lines(
    """The threads at work stand side by side already: that is the next task. Here thread tid works
    for itself if tid % (2 * s) == 0, and the counters show what that costs.""",
    (
        f"if (tid % (2 * s) == 0 && tid + s < blockDim.x) {_ADDS};",
        "if (2 * s * tid + s < blockDim.x) sdata[2 * s * tid] += sdata[2 * s * tid + s];",
    ),
)

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

interleaved_one_thread_adds_up = block(
    """Thread 0 adds up the block alone, in blockDim.x steps; a tree needs log2(blockDim.x), because
    in each step all pairs are added at once.""",
    _SERIAL,
)

interleaved_partner_behind_the_block = lines(
    """In a block of 96 threads not every pair has its second half: ask whether tid + s is still a
    thread of the block before you read its element.""",
    (" && tid + s < blockDim.x", ""),
    gate=False,
)
