from grader.suite import block, lines

two_pass_with_atomics = block(
    """Warps add to the block's element by atomicAdd: the sum is right, and its last bits depend on
    who comes first. Atomics have no order; a tree has.""",
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

two_pass_into_one_element = lines(
    """All blocks write the same element, and the last one wins: block b has partial[b] for
    itself.""",
    ("partial[blockIdx.x] = sum", "partial[0] = sum"),
)

two_pass_adds_to_partial = lines(
    """`partial` holds rubbish before the launch: write it, do not add to it.""",
    ("partial[blockIdx.x] = sum", "partial[blockIdx.x] += sum"),
)

two_pass_without_a_grid_stride = lines(
    """Each thread takes one element only: where the grid has fewer threads than there are
    elements (the second launch has one block), the rest is never read.""",
    (
        "for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum",
        "unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;\n    if (i < n) sum",
    ),
)

two_pass_without_a_barrier = lines(
    """No __syncthreads() between the warps' writes and the first warp's read: a shuffle orders the
    lanes of one warp, never two warps.""",
    ("    __syncthreads();\n", ""),
)

two_pass_in_one_thread = block(
    """One thread of each block does it all: the order is fixed and 31 of 32 lanes are idle. A tree
    of shuffles has a fixed order, too.""",
    """
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (unsigned int i = blockIdx.x; i < n; i += gridDim.x) sum += in[i];
        partial[blockIdx.x] = sum;
    }
""",
)

two_pass_for_eight_warps = lines(
    """The array has room for 8 warps, which are 256 threads: a block of 1024 has 32, and the ninth
    writes past its end.""",
    ("__shared__ float warp_sums[32]", "__shared__ float warp_sums[8]"),
)
