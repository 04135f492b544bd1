from grader.suite import block, lines

_MERGED = "m2 += m2_b + delta * delta * (count * (count_b / all));"

welford_adds_the_squares_only = lines(
    """M2_a + M2_b is the spread around two different means: the merge formula adds
    delta^2 * n_a * n_b / n for what lies between them.""",
    (_MERGED, "m2 += m2_b;"),
)

welford_averages_the_means = lines(
    """The mean of two means is right for parts of the same size only: each counts by the number of
    its elements.""",
    ("mean += delta * (count_b / all);", "mean += delta / 2;"),
)

welford_forgets_the_other_count = lines(
    """delta^2 is weighted by n_a * n_b / n: without the division by n it grows with the number of
    elements.""",
    ("(count * (count_b / all))", "(count * count_b)"),
)

welford_from_sums_of_squares = block(
    """Sum of x^2 minus n * mean^2: two large numbers whose leading digits cancel. With a mean of
    10,000 and a spread of 1 a float has no digit left for the difference.""",
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

welford_counts_in_int = lines(
    """The product of two counts does not fit into an int from 46,341 elements a part on: count in
    float, or divide before you multiply.""",
    ("(count * (count_b / all))", "((float)((int)count * (int)count_b) / all)"),
)

welford_divides_by_an_empty_part = lines(
    """Two empty parts have n = 0, and 0 / 0 is a NaN that spreads: threads without an element bring
    (0, 0, 0), and nothing is merged for them.""",
    ("        if (count_b == 0.0f) return;\n", ""),
)

welford_gives_the_variance = lines(
    """out[1] is M2, the sum of the squared deviations; the variance is M2 / n.""",
    ("out[1] = m2;", "out[1] = m2 / n;"),
)

welford_in_double = block(
    """A double hides the problem: in float, where the formula has to be right, it shows. Merge
    count, mean and M2.""",
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

welford_without_a_barrier = lines(
    """No barrier between the warps that write to shared memory and the thread that reads it.""",
    ("    __syncthreads();\n", ""),
)

welford_with_double_literals = lines(
    """1.0 and 0.0 are doubles: what is computed with them is computed in double, on a GPU at a
    fraction of the speed. Write 1.0f and 0.0f.""",
    ("if (count_b == 0.0f) return;", "if (count_b == 0.0) return;"),
)
