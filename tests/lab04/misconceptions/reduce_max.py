from grader.suite import block, lines

_LOWEST = "const float lowest = __int_as_float(0xff800000)"

zero_is_the_identity_of_max = lines(
    """0 is not the identity of max: where all elements are negative, the zero of a thread that has
    nothing wins. Start from -inf, __int_as_float(0xff800000).""",
    (_LOWEST, "const float lowest = 0.0f"),
)

flt_min_is_the_identity_of_max = lines(
    """FLT_MIN is the smallest POSITIVE normal float, 1.18e-38. Start from -inf,
    __int_as_float(0xff800000).""",
    (_LOWEST, "const float lowest = 1.17549435e-38f"),
)

minus_flt_max_is_the_identity_of_max = lines(
    """-FLT_MAX is not below everything: -inf is. Where all elements are -inf, the start value would
    win. Start from __int_as_float(0xff800000).""",
    (_LOWEST, "const float lowest = -3.402823466e38f"),
)

max_starts_from_out = lines(
    """out[0] holds rubbish before the launch: this kernel writes it and must not read it. Start
    from -inf.""",
    ("float best = lowest;", "float best = out[0];"),
)

_KEEPS_NAN = "a > b || a != a ? a : b"

max_loses_a_nan = lines(
    """A NaN is lost: every comparison with it is false, and CUDA's max() and fmaxf() return the
    number. Ask for it by name, x != x, and keep it.""",
    (_KEEPS_NAN, "fmaxf(a, b)"),
)

max_loses_a_nan_between_warps = lines(
    """A NaN is lost: every comparison with it is false, and CUDA's max() and fmaxf() return the
    number. Ask for it by name, x != x, and keep it.""",
    (
        "best = larger(best, __shfl_down_sync(0xffffffff, best, offset));\n        if (lane",
        "best = fmaxf(best, __shfl_down_sync(0xffffffff, best, offset));\n        if (lane",
    ),
)

max_keeps_a_first_nan = lines(
    """A NaN is lost: every comparison with it is false, and CUDA's max() and fmaxf() return the
    number. Ask for it by name, x != x, and keep it.""",
    (_KEEPS_NAN, "b > a ? b : a"),
)

max_loses_a_nan_in_the_tree = lines(
    """A NaN is lost: every comparison with it is false, and CUDA's max() and fmaxf() return the
    number. Ask for it by name, x != x, and keep it.""",
    (
        "best = larger(best, __shfl_down_sync(0xffffffff, best, offset));\n    if (lane",
        "{\n        float x = __shfl_down_sync(0xffffffff, best, offset);\n"
        "        best = x > best ? x : best;\n    }\n    if (lane",
    ),
    (
        "best = larger(best, __shfl_down_sync(0xffffffff, best, offset));\n        if (lane",
        "{\n            float x = __shfl_down_sync(0xffffffff, best, offset);\n"
        "            best = x > best ? x : best;\n        }\n        if (lane",
    ),
)

max_of_one_element_a_thread = lines(
    """Each thread looks at one element: n may be larger than the only block. Loop on in steps of
    blockDim.x.""",
    (
        "for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) best",
        "unsigned int i = threadIdx.x;\n    if (i < n) best",
    ),
)

max_without_a_bound = lines(
    """No bound: n may be smaller than the block, and threads beyond n read past the end of
    `in`.""",
    (
        "for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) best = larger(best, in[i]);",
        "for (unsigned int i = 0; i < n; i += blockDim.x)\n"
        "        best = larger(best, in[i + threadIdx.x]);",
    ),
)

max_without_a_barrier = lines(
    """No barrier between the threads that write to shared memory and the one that reads it: other
    warps may not have come so far.""",
    ("    __syncthreads();\n", ""),
)

max_of_a_warp = lines(
    """The result of the first warp is written, and the other warps' are lost: a shuffle never
    leaves its warp.""",
    ("best = lane < blockDim.x / 32 ? warp_best[lane] : lowest;", ""),
)

max_in_one_thread = block(
    """One thread looks at all elements: right, and 1 of the block's threads is at work. A warp's
    request should bring 32 neighbouring elements.""",
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
