"""Lab 04: sums in double that no line calls so, and loads that no instrument sees."""

from __future__ import annotations

from .lab_attack import LabAttack

# One block's sum in a type WIDE.
_WIDE_SUM = """    __shared__ WIDE parts[32];
    WIDE sum = 0;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x / 32; ++w) sum += parts[w];
        out[0] = (float)sum;
    }
"""
_ACROSS = "sum += __shfl_down_sync(0xffffffff, sum, offset);"
_BY_HALVES = """{ union { WIDE w; int half[4]; } u = {sum};
        for (int k = 0; k < 4; ++k) u.half[k] = __shfl_down_sync(0xffffffff, u.half[k], offset);
        sum += u.w; }"""
_NO_DOUBLE = r"no line computes in double"
_PASSES = ("test_kahan_adds_up", "test_one_block_reads_coalesced")


def _wide(id: str, tries: str, wide: str, mark: str = _NO_DOUBLE, **more: object) -> LabAttack:
    code = _WIDE_SUM.replace("WIDE", wide)
    return LabAttack(id, "reduce_kahan", tries, code, mark=mark, passes=_PASSES)


_UNSEEN = """    auto peek = [] ATTRIBUTE (const float *at) { return *at; };
    float sum = 0.0f;
    unsigned int stride = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        sum += peek(in + i);
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    __shared__ float sums[32];
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x / 32; ++w) sum += sums[w];
        atomicAdd(out, sum);
    }
"""
# The bits of the double that has a normal float's value, and sums by intrinsics alone.
_BITS = """    auto wide = [](float x) {
        long long bits = __float_as_int(x);
        long long sign = (bits >> 31 & 1) << 63, low = bits & 0x7fffffff;
        return low ? sign | (low << 29) + ((1023LL - 127) << 52) : sign;
    };
    __shared__ long long parts[1024];
    union { long long bits; double value; } a, b;
    a.bits = 0;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {
        b.bits = wide(in[i]);
        a.value = __dadd_rn(a.value, b.value);
    }
    parts[threadIdx.x] = a.bits;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x; ++w) {
            b.bits = parts[w];
            a.value = __dadd_rn(a.value, b.value);
        }
        out[0] = (float)a.value;
    }
"""


def _unseen(id: str, tries: str, attribute: str, before: str = "") -> LabAttack:
    code = before + _UNSEEN.replace("ATTRIBUTE", attribute)
    return LabAttack(id, "reduce_vec4", tries, code, mark=r"hide|host's compiler")


ATTACKS = [
    _wide("double-by-its-literal", "a type that is taken from a literal", "decltype(1.0)"),
    _wide("double-by-a-sum", "a type that is taken from a sum", "decltype(1.0f + 1.0)"),
    LabAttack(
        "a-type-of-128-bits",
        "reduce_kahan",
        "sums in __float128, which functions of the compiler's library add",
        _WIDE_SUM.replace(_ACROSS, _BY_HALVES).replace("WIDE", "__float128"),
        mark=_NO_DOUBLE,
        passes=_PASSES,
    ),
    LabAttack(
        "double-by-its-bits",
        "reduce_kahan",
        "a double is made of a float's bits and added by intrinsics; no line converts or adds one",
        _BITS,
        mark=_NO_DOUBLE,
        passes=("test_one_block_reads_coalesced",),
    ),
    _unseen(
        "loads-that-nothing-counts",
        "an attribute of the compiler takes the instruments out of a function that loads",
        '[[gnu::no_sanitize("thread")]]',
    ),
    _unseen(
        "an-attribute-of-the-kit",
        "the same by the emulator's own macro, whose name is pasted together",
        "PASTE(I, L_HIDDEN)",
        "#define PASTE(a, b) a##b\n",
    ),
    _unseen(
        "an-attribute-in-digraphs",
        "the same in digraphs",
        '<:<:gnu::no_sanitize("thread"):>:>',
    ),
    LabAttack(
        "a-brace-that-is-not-the-last",
        "reduce_kahan",
        "the kernel ends, for a reader of braces, before its sum in double begins",
        "    #define OPEN {\n    #define CLOSE }\n    if (true) OPEN\n"
        + _WIDE_SUM.replace("WIDE", "double")
        + "    CLOSE\n",
        mark=_NO_DOUBLE,
        passes=_PASSES,
    ),
]
