"""Which words of CUDA C++ are known here, and which are refused with what to write instead.

NVRTC, which has neither headers nor host code, must accept the same bytes as the emulator. So a
file is refused for what NVRTC does not know, and for what only a GPU can run. The labs' pages show
this list (`page_section`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class RefusedWord:
    """Words that a file may not hold. `names`: as a page shows them; `pattern`: in code without
    comments and strings; `remedy`: why, or what to write instead."""

    names: str
    pattern: str
    remedy: str


@dataclass(frozen=True)
class KnownWords:
    """Words that work as on a GPU, by subject, for people to read."""

    subject: str
    names: str


_HOST = "a file holds kernels only: the tests allocate, copy and launch"
_COMPILER = "this is for the host's compiler"
_LINE = r"^[ \t]*(?:#|%:)[ \t]*"

KNOWN = (
    KnownWords(
        "language",
        "templates, lambdas, `constexpr`, `static_assert`, structs, unions, `#define`, "
        '`#pragma unroll`, `_Pragma("unroll")`, `__restrict__`, `__launch_bounds__`, '
        "`__forceinline__`, `__noinline__`, `__align__`, `alignas`, `__builtin_expect`, "
        "`__builtin_assume`, `__builtin_assume_aligned`",
    ),
    KnownWords(
        "memory",
        "`__shared__`, `extern __shared__`, `__constant__`, `__device__`, `volatile`, `__ldg`, "
        "`__ldcg`, `__ldca`, `__ldcs`, `__ldlu`, `__ldcv`, `__stwb`, `__stcg`, `__stcs`, `__stwt`",
    ),
    KnownWords(
        "types",
        "`size_t`, `dim3`, vectors such as `float2`, `float4`, `int4`, `uint2`, `double2`, "
        "`short3`, `uchar4` and their `make_float4`",
    ),
    KnownWords(
        "barriers and fences",
        "`__syncthreads`, `__syncthreads_count`, `__syncthreads_and`, `__syncthreads_or`, "
        "`__syncwarp`, `__threadfence`, `__threadfence_block`, `__threadfence_system`",
    ),
    KnownWords(
        "warps",
        "`__shfl_sync`, `__shfl_up_sync`, `__shfl_down_sync`, `__shfl_xor_sync`, `__ballot_sync`, "
        "`__any_sync`, `__all_sync`, `__match_any_sync`, `__match_all_sync`, `__reduce_add_sync`, "
        "`__reduce_min_sync`, `__reduce_max_sync`, `__reduce_and_sync`, `__reduce_or_sync`, "
        "`__reduce_xor_sync`, `warpSize`",
    ),
    KnownWords(
        "atomics",
        "`atomicAdd`, `atomicSub`, `atomicExch`, `atomicMin`, `atomicMax`, `atomicAnd`, "
        "`atomicOr`, `atomicXor`, `atomicInc`, `atomicDec`, `atomicCAS`, "
        "and each with `_block` or `_system`",
    ),
    KnownWords(
        "bits",
        "`__popc`, `__popcll`, `__clz`, `__clzll`, `__ffs`, `__ffsll`, `__brev`, `__brevll`, "
        "`__byte_perm`, `__funnelshift_l`, `__funnelshift_r`, `__mulhi`, `__umulhi`, `__mul64hi`, "
        "`__umul64hi`, `__mul24`, `__umul24`, `__sad`, `__usad`, `__hadd`, `__rhadd`, `__uhadd`, "
        "`__urhadd`, `__float_as_int`, `__int_as_float`, `__float_as_uint`, `__uint_as_float`, "
        "`__double_as_longlong`, `__longlong_as_double`",
    ),
    KnownWords(
        "arithmetic",
        "`min`, `max`, `umin`, `umax`, `abs`, `sqrtf`, `rsqrtf`, `cbrtf`, `rcbrtf`, `expf`, "
        "`logf`, `powf`, `sinf`, `sincosf`, `sinpif`, `tanhf`, `erff`, `fmaf`, `fmodf`, `floorf`, "
        "`rintf`, `lrintf`, `modff`, `frexpf`, `ldexpf`, `nanf`, `isnan`, `signbit` and their "
        "like, in float and in double; `__expf`, `__logf`, `__powf`, `__sincosf`, `__fdividef`, "
        "`__saturatef`, "
        "`__fadd_rn`, `__fmul_rn`, `__fmaf_rn`, `__fdiv_rn`, `__frcp_rn`, `__fsqrt_rn`, "
        "`__frsqrt_rn`, `__dadd_rn`, `__fma_rn`, `__float2int_rn`, `__float2uint_rz`, "
        "`__int2float_rn`",
    ),
    KnownWords("to see what happens", "`printf`, `assert`, `__trap`"),
)

REFUSED = (
    RefusedWord(
        "`#include` of any header",
        rf"{_LINE}(?:include(?:_next)?|import)\b",
        "the same bytes are compiled for a GPU without any header: everything needed is there",
    ),
    RefusedWord(
        "`uint32_t` and the other names of `<cstdint>`",
        r"\b(?:u?int(?:8|16|32|64|ptr|max)_t|u?int_(?:fast|least)(?:8|16|32|64)_t)\b",
        "write int, unsigned int or unsigned long long",
    ),
    RefusedWord(
        "`uint`, `ulong`, `ushort`, `uchar`",
        r"\bu(?:int|long|short|char)\b",
        "write the type out, as in unsigned int",
    ),
    RefusedWord(
        "`INFINITY`, `NAN`, `CUDART_INF_F`, `CUDART_NAN_F`, `HUGE_VALF`",
        r"\b(?:INFINITY|NAN|CUDART_(?:INF|NAN)(?:_F)?|HUGE_VALF?)\b",
        "write __int_as_float(0x7f800000), or 0x7fc00000 for a NaN",
    ),
    RefusedWord(
        "`FLT_MAX`, `DBL_MAX` and the other names of `<cfloat>`",
        r"\b(?:FLT|DBL)_(?:MAX|MIN|EPSILON|TRUE_MIN|DIG|MANT_DIG)\b|\bCUDART_MAX_NORMAL_F\b",
        "there is no <cfloat>: FLT_MAX is 3.402823466e+38f, FLT_MIN 1.175494351e-38f, FLT_EPSILON "
        "1.192092896e-07f; the identity of a maximum is -inf, the bits 0xff800000",
    ),
    RefusedWord(
        "`INT_MAX`, `UINT_MAX` and the other names of `<climits>`",
        r"\b(?:S?CHAR|U?CHAR|U?SHRT|U?INT|U?LONG|U?LLONG)_(?:MAX|MIN|BIT)\b",
        "there is no <climits>: INT_MAX is 0x7fffffff, INT_MIN (-0x7fffffff - 1), UINT_MAX "
        "0xffffffffu",
    ),
    RefusedWord(
        "`M_PI`, `CUDART_PI_F` and other constants of `<cmath>`",
        r"\b(?:M_(?:PI|E|SQRT2|LN2|LN10|LOG2E|LOG10E)\w*|CUDART_(?!INF|NAN|MAX_NORMAL)\w+)\b",
        "write the number out, as in 3.14159265f",
    ),
    RefusedWord(
        "`std::`", r"\bstd[ \t]*::", "there is no standard library: write max(a, b), not std::max"
    ),
    RefusedWord(
        "`cuda::`, `thrust::`, `cub::`",
        r"\b(?:cuda|thrust|cub)[ \t]*::",
        "libraries are not here: write the loop, the shuffle or the atomic",
    ),
    RefusedWord(
        "`cooperative_groups`",
        r"\bcooperative_groups\b|\bthis_(?:thread_block|grid)\b|\btiled_partition\b",
        "write __syncthreads(), __syncwarp() or __shfl_down_sync(0xffffffff, ...)",
    ),
    RefusedWord(
        "`memcpy_async`, `__pipeline_commit`, `mbarrier`, clusters",
        r"\b__pipeline_\w+|\bmemcpy_async\b|\b__cluster_dims__|\b__cluster_\w+|\bmbarrier\w*",
        "asynchronous copies and clusters cannot run here: load into a register, then store",
    ),
    RefusedWord(
        "`asm`",
        r"\b(?:asm|__asm__|__asm)\b",
        "inline PTX cannot run here: write the CUDA function, such as __shfl_sync or __ldcs",
    ),
    RefusedWord(
        "`__half`, `__nv_bfloat16`, `__float2half` and other types of 16 or 8 bits",
        r"\b(?:__half2?|half2?|__nv_bfloat16\d?|nv_bfloat16|__nv_fp8\w*)\b"
        r"|\b__(?:float2|float22|low2|high2)?(?:half|bfloat)\w*|\b__half\w*",
        "this type is not supported here: compute in float",
    ),
    RefusedWord(
        "textures and surfaces",
        r"\b(?:tex|surf)[123]D\w*|\btexture\b|\bcuda(?:Texture|Surface)Object_t\b",
        "textures cannot be read here: read the array, by __ldg if you like",
    ),
    RefusedWord(
        "`wmma`, `nvcuda`",
        r"\b(?:nvcuda|wmma)\b|\b__mma\w*",
        "tensor cores are not here: write the sums with fmaf",
    ),
    RefusedWord(
        "`__activemask`",
        r"\b__activemask\b",
        "it says which lanes happen to run together, which differs from run to run: give the mask "
        "yourself, or take it from __ballot_sync",
    ),
    RefusedWord(
        "`__shfl`, `__shfl_down`, `__ballot`, `__any` without `_sync`",
        r"\b__shfl(?:_up|_down|_xor)?[ \t]*\(|\b__(?:ballot|any|all)[ \t]*\(",
        "since Volta lanes of a warp run on their own: use the form with _sync and a mask",
    ),
    RefusedWord(
        "`clock64`, `__nanosleep`, `globaltimer`",
        r"\b__nanosleep\b|\bclock(?:64)?[ \t]*\(|\bglobaltimer\b",
        "there is no clock here: requests are counted, not timed",
    ),
    RefusedWord(
        "`memcpy`, `memset`",
        r"\bmem(?:cpy|set|move|cmp)[ \t]*\(",
        "write the loop: what a GPU makes of it depends on the compiler, and here each access "
        "counts",
    ),
    RefusedWord(
        "`malloc`, `new`",
        r"\b(?:malloc|free|alloca)[ \t]*\(|\bnew\b|\bdelete\b",
        "allocating in a kernel is not supported here: declare an array of a fixed size",
    ),
    RefusedWord(
        "`__fadd_rz`, `__fmaf_ru` and other roundings than `_rn`",
        r"\b__(?:f|d)(?:add|sub|mul|div|maf?|rcp|sqrt)_r[zud]\b|\b__fma(?:f)?_r[zud]\b",
        "a CPU rounds to nearest: use the form with _rn",
    ),
    RefusedWord(
        "`__vadd4`, `__dp4a` and other SIMD in a word",
        r"\b__v(?:abs|add|avg|cmp|hadd|max|min|neg|sad|set|sub)\w*[24]\b|\b__dp[24]a\w*",
        "take the bytes apart by shifts and masks",
    ),
    RefusedWord(
        "`double4`, `long4`, `longlong4`: 32 bytes",
        r"\b(?:make_)?u?(?:double|long|longlong)4(?:_\d+a)?\b",
        "a lane loads 16 bytes at most: use two of double2 or longlong2",
    ),
    RefusedWord(
        "`normcdff`, `erfinvf`, `j0f`, `norm3df`, `rhypotf` and the like",
        r"\b(?:normcdf(?:inv)?|erfc?inv|erfcx|r?norm[34]?d|rhypot|cyl_bessel_i[01]|[jy][01n]"
        r"|r?norm)f?[ \t]*\(",
        "this function is not here: write it out",
    ),
    RefusedWord(
        "`__isShared`, `__cvta_generic_to_shared` and other address spaces",
        r"\b__is(?:Global|Shared|Constant|Local|GridConstant)\b|\b__cvta_\w+",
        "addresses have no spaces here: say by a parameter of yours where a pointer points",
    ),
    RefusedWord(
        "`__grid_constant__`, `__managed__`, `__maxnreg__`, `__block_size__`",
        r"\b__(?:grid_constant|managed|maxnreg|block_size|tile_global)__",
        "this is not supported here: leave it out",
    ),
    RefusedWord(
        "`__brkpt`, `__prof_trigger`",
        r"\b__brkpt\b|\b__prof_trigger\b",
        "there is no debugger here: use printf or assert",
    ),
    RefusedWord("`<<<`, `dim3 grid` of a launch", r"<<<", _HOST),
    RefusedWord(
        "`cudaMalloc` and other calls of the host",
        r"\bcuda(?:Malloc|Memcpy|Free|Memset|Device|Event|Stream|Launch|GetLast|Host|Func)\w*"
        r"|\bcudaError_t\b",
        _HOST,
    ),
    RefusedWord("`main`", r"\bint[ \t]+main[ \t]*\(", _HOST),
    RefusedWord(
        "`fopen`, `system` and other calls of an operating system",
        r"\b(?:syscall|mmap|fopen|open|system|fork|execve?|dlopen|dlsym)[ \t]*\(",
        _HOST,
    ),
    RefusedWord(
        "`try`, `virtual`, `dynamic_cast`, `typeid`",
        r"\b(?:try|catch|throw)\b|\bvirtual\b|\bdynamic_cast\b|\btypeid\b",
        "this C++ is for the host only",
    ),
    RefusedWord(
        "`register`", r"\bregister\b", "C++17 has no such word: leave it out, as nvcc asks for"
    ),
    RefusedWord(
        "`__attribute__`, `[[gnu::...]]`, `__builtin_` functions of g++, `#pragma GCC`",
        r"\b__attribute__\b|\b__builtin_(?!expect\b|assume\b|assume_aligned\b)\w+"
        r'|\b_Pragma\b(?!\s*\(\s*"unroll(?: \d+)?"\s*\))'
        rf"|{_LINE}(?:line\b|pragma[ \t]+(?:GCC|clang)\b|\d)|\[\[\s*(?:using\b|\w+\s*::)",
        _COMPILER,
    ),
    RefusedWord("`#pragma omp`", rf"{_LINE}pragma[ \t]+omp\b", _COMPILER),
    RefusedWord(
        "`thread_local`, names with `il_`",
        r"\bthread_local\b|\b(?:il|IL)_\w+|\b__tsan\w*|\b__sanitizer\w*",
        "the emulator reserves this name",
    ),
)

# A file may use one of these words as a name if it defines or declares it itself.
ORDINARY = re.compile(
    r"half2?|texture|INFINITY|NAN|u?int\w*_t|u(?:int|long|short|char)|register|globaltimer"
    r"|(?:FLT|DBL|U?INT|M|CUDART|HUGE)_\w+|U?(?:CHAR|SHRT|LONG|LLONG)_\w+|r?norm\w*|erf\w*|rhypotf?"
    r"|[jy][01n]f?|mem\w+|clock(?:64)?|this_grid|open|system"
)

# What a compiler says of a call that CUDA has, with other types.
_ATOMIC = re.compile(r"no matching (?:member )?function for call to .(atomic\w+)")
_UNKNOWN = re.compile(r"(?:.(__\w+). was not declared|use of undeclared identifier .(__\w+))")


def hint_for(error: str) -> str:
    """What to write instead of that which a compiler's error is about, or ""."""
    if found := _ATOMIC.search(error):
        return (
            f"{found[1]} is not there for these types (CUDA's atomicMin and atomicMax are for "
            "whole numbers): loop over atomicCAS on the bits, as in __float_as_int"
        )
    if found := _UNKNOWN.search(error):
        name = found[1] or found[2]
        return f"`{name}` is not known here; the lab's page lists what is, under `{TITLE}`"
    return ""


TITLE = "CUDA C++ on this emulator"


def page_section() -> str:
    """The section of a lab's page, in Markdown."""
    rows = [f"| {known.subject} | {known.names} |" for known in KNOWN]
    refused = [f"| {refusal.names} | {refusal.remedy} |" for refusal in REFUSED]
    return "\n".join(
        [
            f"### {TITLE}",
            "",
            "The file is compiled as it stands, here and by NVIDIA's runtime compiler. Known:",
            "",
            "| | |",
            "|---|---|",
            *rows,
            "",
            "Refused by name, with the line:",
            "",
            "| word | why, or what to write instead |",
            "|---|---|",
            *refused,
            "",
            *_LIMITS,
        ]
    )


_LIMITS = (
    "**Shared arrays have walls.** An access past the end of `__shared__ float ws[8]`, or before",
    "its beginning, ends the launch with the array's name and size; on a GPU it lands in whatever",
    "lies there. The wall is the whole array's: in `tile[32][33]` the element `tile[0][33]` is",
    "`tile[1][0]`, here as on a GPU, and a member of a struct that runs over reaches the next",
    "member. A kernel may have 48 KiB of static arrays.",
    "",
    "**Every thread reaches every barrier.** A GPU of compute capability 7.0 or later waits at",
    "`__syncthreads()` for the threads of the block that have not exited (NVIDIA, Volta Tuning",
    'Guide, "Independent Thread Scheduling"): one that has returned counts as arrived. This kit is',
    "stricter: a thread that returned before a barrier which others reach is a fault.",
)
