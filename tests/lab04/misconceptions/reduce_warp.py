from grader.suite import block, lines, misconception

from ._passages import edited

_FIRST_SHUFFLES = """    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;"""

warp_names_absent_lanes = lines(
    """The mask names lanes that never come to the shuffle, because an `if` keeps them away: every
    lane of the mask must make the same call. Let all 32 shuffle; only lane 0's sum is used.""",
    (
        _FIRST_SHUFFLES,
        """    for (int offset = 16; offset > 0; offset /= 2)
        if (lane < offset) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;""",
    ),
)

warp_of_a_few_lanes = lines(
    """The mask names lanes that are not there: an `if` kept them away, or they have returned. What
    such a lane gives to a shuffle is undefined. Let all 32 come to it, with 0 in the lanes that
    have nothing to give.""",
    ("if (warp == 0) {", "if (threadIdx.x < blockDim.x / 32) {"),
    ("lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f", "warp_sums[lane]"),
)

warp_synchronous_tail = block(
    """A tail in shared memory without __syncwarp(), as one wrote before Volta: lanes of a warp need
    not run in step, so this is a race. A shuffle is exchange and synchronization in one.""",
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

warp_result_from_lane_31 = lines(
    """__shfl_down_sync moves values towards lane 0: there the sum of the warp arrives. Lane 31
    reads beyond the warp, which gives it its own value.""",
    ("if (lane == 0) warp_sums[warp] = sum;", "if (lane == 31) warp_sums[warp] = sum;"),
)

warp_without_a_barrier = lines(
    """No __syncthreads() between the warps' writes and the first warp's read: a shuffle orders the
    lanes of one warp, never two warps.""",
    ("    __syncthreads();\n", ""),
)

warp_reads_all_32_sums = lines(
    """A block of fewer than 32 warps has written fewer than 32 sums: the other lanes must take 0,
    not what happens to stand there.""",
    ("sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;", "sum = warp_sums[lane];"),
)

warp_brings_an_atomic_each = block(
    """Every warp goes to global memory: right, but blockDim.x / 32 atomics a block. Collect the
    warps' sums in shared memory, and let one of them go.""",
    """
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
""",
)


@misconception(file="reduce.cu")
def warp_offset_of_32(text):
    """The offsets begin at 32: no lane is 32 higher, so each lane gets its own value and doubles
    it. The first offset is half a warp, 16."""
    return edited(text, "reduce_warp", ("offset = 16", "offset = 32"))


@misconception(file="reduce.cu")
def warp_offsets_end_at_two(text):
    """The offsets end before 1: lane 0 has the sum of the even lanes only."""
    return edited(text, "reduce_warp", ("offset > 0", "offset > 1"))


@misconception(file="reduce.cu")
def warp_forgets_to_add(text):
    """`sum = __shfl_down_sync(...)` replaces the lane's own sum by the other's; it must be added,
    `sum +=`."""
    change = ("sum += __shfl_down_sync", "sum = __shfl_down_sync")
    return edited(text, "reduce_warp", change)


warp_without_a_grid_stride = lines(
    """Each thread takes one element only: where the grid has fewer threads than there are
    elements, the rest is never read. Loop on in steps of gridDim.x * blockDim.x.""",
    (
        "for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum",
        "unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) sum",
    ),
)

warp_without_a_bound = lines(
    """No bound: a launch has whole blocks of threads, and those beyond n read past the end of
    `in`. Test `i < n` before in[i] is touched.""",
    (
        "for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum",
        "for (unsigned int i = 0; i < n; i += stride) sum",
    ),
    ("sum += in[i];", "sum += in[i + blockIdx.x * blockDim.x + threadIdx.x];"),
)

warp_returns_early = lines(
    """`if (i >= n) return;` takes lanes away that the shuffles and the barrier wait for. Threads
    without an element stay, and bring 0.""",
    (
        "    float sum = 0.0f;\n",
        "    if (blockIdx.x * blockDim.x + threadIdx.x >= n) return;\n    float sum = 0.0f;\n",
    ),
)

warp_every_lane_adds_the_sum = lines(
    """All 32 lanes go to `out`: only lane 0 has the sum, the others have what the shuffles left in
    them. `if (lane == 0)`.""",
    ("if (lane == 0) atomicAdd", "atomicAdd"),
)

warp_keeps_the_tree = block(
    """The tree is still in shared memory, with a barrier a step: correct, and two barriers would
    do. Shuffle inside the warps, and let only their sums go through shared memory.""",
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

warp_writes_by_every_lane = lines(
    """Every thread writes its sum to shared memory: after the shuffles one value a warp counts, and
    one lane writes it. With 32 of them this is a race, too.""",
    ("if (lane == 0) warp_sums", "warp_sums"),
)

warp_in_one_thread = block(
    """One thread of each block does it all: the sum is right and 31 of 32 lanes are idle. A warp's
    request should bring 32 neighbouring elements, not one.""",
    """
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (unsigned int i = blockIdx.x; i < n; i += gridDim.x) sum += in[i];
        atomicAdd(out, sum);
    }
""",
)
