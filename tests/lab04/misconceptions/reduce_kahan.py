from grader.suite import block, lines

kahan_without_a_rest = lines(
    """What an addition cuts off is lost: next to 2^24 a number below 1 vanishes, however often it
    comes. With t = sum + y, y - (t - sum) is what is missing from t; add it next time.""",
    ("rest = y - (t - sum);", "rest = 0.0f;"),
)

kahan_among_the_threads_only = lines(
    """Only the merging of threads keeps a rest: a thread's own elements are added plainly, and what
    such an addition cuts off nobody gets back. Keep the rest from a thread's first element on.""",
    ("add(sum, rest, in[i]);", "sum += in[i];"),
)

kahan_rest_has_the_wrong_sign = lines(
    """The rest has the wrong sign for what is done with it: (t - sum) - y is what t has too much,
    so it is subtracted from the next element; added, it makes each error twice as large.""",
    ("rest = y - (t - sum);", "rest = (t - sum) - y;"),
)

kahan_with_a_threshold = lines(
    """A rest is small beside its sum, not beside a fixed number: where the elements are tiny, so
    are their rests, and they count.""",
    ("rest = y - (t - sum);", "rest = fabsf(y - (t - sum)) > 1e-9f ? y - (t - sum) : 0.0f;"),
)

kahan_in_double = lines(
    """A double hides the problem: it has 53 bits, and costs a multiple of a float's time on most
    GPUs. Two floats, the sum and what it lacks, are as good as 48 bits.""",
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

kahan_without_a_barrier = lines(
    """No barrier between the warps that write to shared memory and the thread that reads it.""",
    ("    __syncthreads();\n", ""),
)

kahan_in_one_thread = block(
    """One thread adds everything: exact, and the rest of the block is idle. Let every thread keep a
    pair, and merge the pairs.""",
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
