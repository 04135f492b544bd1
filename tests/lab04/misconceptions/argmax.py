from grader.suite import block, lines

_TOTAL = "return b > a || (!(a > b) && j < i);"

argmax_of_the_last_equal = lines(
    """`>=` lets a later equal element take the place of an earlier one: of equal values the lowest
    index wins.""",
    (_TOTAL, "return b > a || (!(a > b) && j > i && j < 0x7fffffff);"),
    ("int where = n;", "int where = -1;"),
    (": n;", ": -1;"),
)


argmax_of_a_threads_last_equal = lines(
    """`>=` lets a later equal element take the place of an earlier one: of equal values the lowest
    index wins.""",
    (
        "float x = in[i];\n        if (wins(x, i, best, where))",
        "float x = in[i];\n        if (wins(x, i, best, where) || (x == best && where < n))",
    ),
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


argmax_ties_by_lane = block(
    """Ties go to the lower lane, not to the lower index: thread 5 may hold element 133 while thread
    6 holds element 6. Compare the indices where the values are equal.""",
    _argmax("x > best || (best != best ? false : x != x)"),
)

argmax_loses_a_nan = lines(
    """A NaN never wins: every comparison with it is false. Ask for it by name, x != x, before
    comparing.""",
    (
        "        if (b_nan != a_nan) return b_nan;\n",
        "        if (b_nan) return false;\n        if (a_nan) return true;\n",
    ),
)

argmax_of_any_nan = lines(
    """Any NaN takes the place of any other: of several, the first one wins.""",
    ("if (b_nan != a_nan) return b_nan;", "if (b_nan || a_nan) return b_nan;"),
)

argmax_gives_the_thread = lines(
    """The index of the thread is kept instead of the element's: they differ as soon as a thread
    looks at a second element.""",
    (
        "if (wins(x, i, best, where)) best = x, where = i;\n    }\n    for",
        "if (wins(x, i, best, where)) best = x, where = threadIdx.x;\n    }\n    for",
    ),
)

argmax_of_nothing = lines(
    """-inf in the input never beats the -inf that a thread starts from, and the index of no element
    comes out. An element beats no element, whatever its value.""",
    (_TOTAL, "return b > a || (b == a && j < i && b > __int_as_float(0xff800000));"),
)

argmax_of_a_threads_nothing = lines(
    """-inf in the input never beats the -inf that a thread starts from, and the index of no element
    comes out. An element beats no element, whatever its value.""",
    (
        "float x = in[i];\n        if (wins(x, i, best, where))",
        "float x = in[i];\n        if (wins(x, i, best, where) && !(x == best && where == n))",
    ),
)

zero_is_the_identity_of_argmax = lines(
    """0 is not the identity of max: where all elements are negative, nothing ever beats the start
    value. Start from -inf, __int_as_float(0xff800000).""",
    ("float best = __int_as_float(0xff800000);", "float best = 0.0f;"),
    ("__int_as_float(0xff800000)", "0.0f"),
)

argmax_index_travels_alone = lines(
    """The value is compared, but the index of the other lane is taken in any case: both belong
    together, and change together.""",
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

argmax_writes_the_value = lines(
    """The largest value is written where its index is asked for.""",
    ("out[0] = where", "out[0] = best"),
)

argmax_without_a_barrier = lines(
    """No barrier between the threads that write to shared memory and the one that reads it: other
    warps may not have come so far.""",
    ("    __syncthreads();\n", ""),
)

argmax_of_one_element_a_thread = lines(
    """Each thread looks at one element: n may be larger than the only block. Loop on in steps of
    blockDim.x.""",
    (
        "for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {",
        "unsigned int i = threadIdx.x;\n    if (i < n) {",
    ),
)

argmax_in_one_thread = block(
    """One thread looks at all elements: right, and 1 of the block's threads is at work. A warp's
    request should bring 32 neighbouring elements.""",
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
