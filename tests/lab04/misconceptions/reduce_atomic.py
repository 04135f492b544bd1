from grader.suite import block, lines

atomic_without_a_bound = block(
    """No bound: a launch has whole blocks of threads, and those beyond n read past the end of
    `in`. Test `i < n` before in[i] is touched.""",
    """
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(out, in[i]);
""",
)

atomic_bound_includes_n = lines(
    """`i <= n` lets one thread read in[n]: the elements are in[0] to in[n - 1].""",
    ("i < n", "i <= n"),
)

atomic_without_a_grid_stride = block(
    """Each thread takes one element only: where the grid has fewer threads than there are
    elements, the rest is never read. Loop on in steps of gridDim.x * blockDim.x.""",
    """
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
""",
)

atomic_stride_of_one_block = lines(
    """The stride is blockDim.x, so every block walks over what the next blocks take as well;
    the step is the number of threads of the whole grid.""",
    ("unsigned int stride = gridDim.x * blockDim.x;", "unsigned int stride = blockDim.x;"),
)

atomic_every_block_begins_at_zero = lines(
    """The index begins at threadIdx.x: without blockIdx.x * blockDim.x every block takes the same
    elements.""",
    ("blockIdx.x * blockDim.x + threadIdx", "threadIdx"),
)

plus_instead_of_an_atomic = lines(
    """`out[0] += x` is a read, an addition and a write: two threads that read the same old value
    lose one of the two sums. atomicAdd does the three in one piece.""",
    ("atomicAdd(out, in[i]);", "out[0] += in[i];"),
)

atomic_in_one_thread = block(
    """One thread does it all: the sum is right and the GPU idle. A warp's request should bring 32
    neighbouring elements, not one.""",
    """
    if (blockIdx.x == 0 && threadIdx.x == 0)
        for (int i = 0; i < n; ++i) atomicAdd(out, in[i]);
""",
)

atomic_in_chunks = block(
    """Each thread takes a run of consecutive elements, as one would on a CPU; but then the 32 lanes
    of a request are far apart and touch many sectors. Neighbouring threads take neighbours.""",
    """
    unsigned int threads = gridDim.x * blockDim.x;
    unsigned int chunk = (n + threads - 1) / threads;
    unsigned int begin = (blockIdx.x * blockDim.x + threadIdx.x) * chunk;
    for (unsigned int i = begin; i < begin + chunk; ++i)
        if (i < n) atomicAdd(out, in[i]);
""",
)

adds_up_before_the_atomic = block(
    """Adding up in a register first is the better kernel, and what later tasks do; this one is the
    measure for them, with one atomicAdd for each element.""",
    """
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    atomicAdd(out, sum);
""",
)

atomic_on_whole_numbers = lines(
    """The elements pass through an int, which cuts off what stands behind the point.""",
    ("in[i])", "(int)in[i])"),
)
