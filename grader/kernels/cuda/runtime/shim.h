// CUDA's extensions of C++, for g++ and clang++ to compile for the CPU. It includes no system
// header: a learner's file must not need one either, and compiling stays fast.
//
// What is a register on a GPU is a call here, so that no hook takes it for memory. Vector types are
// copied by one access of their whole size, as on a GPU.
#pragma once

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
// IL_APART, from compile.py, keeps shared arrays apart: what runs past one ends in no other.
#define __shared__ thread_local __attribute__((aligned(IL_APART)))
#define __constant__ __attribute__((section(".il_constant")))
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900

#define IL_INLINE static inline __attribute__((always_inline))
#define IL_MEMBER inline __attribute__((always_inline))
#define IL_HIDDEN __attribute__((no_sanitize_thread, no_sanitize_coverage))
#if defined(__clang__)
#undef IL_HIDDEN
#define IL_HIDDEN __attribute__((no_sanitize("thread"), no_sanitize("coverage")))
#endif

using size_t = decltype(sizeof(0));
using ptrdiff_t = decltype((char *)0 - (char *)0);

// -- vector types -----------------------------------------------------------------------------------

// Copied in one piece: `Whole` is a vector type of the compiler with the same size.
#define IL_VECTOR2(Name, Scalar)                                                                   \
    struct alignas(2 * sizeof(Scalar)) Name {                                                      \
        typedef Scalar Whole __attribute__((vector_size(2 * sizeof(Scalar)), may_alias));          \
        Scalar x, y;                                                                               \
        Name() = default;                                                                          \
        IL_MEMBER constexpr Name(Scalar a, Scalar b) : x(a), y(b) {}                               \
        IL_MEMBER Name(const Name &other) { *(Whole *)this = *(const Whole *)&other; }             \
        IL_MEMBER Name &operator=(const Name &other) {                                             \
            *(Whole *)this = *(const Whole *)&other;                                               \
            return *this;                                                                          \
        }                                                                                          \
    };                                                                                             \
    IL_INLINE Name make_##Name(Scalar a, Scalar b) { return Name(a, b); }
#define IL_VECTOR4(Name, Scalar)                                                                   \
    struct alignas(4 * sizeof(Scalar)) Name {                                                      \
        typedef Scalar Whole __attribute__((vector_size(4 * sizeof(Scalar)), may_alias));          \
        Scalar x, y, z, w;                                                                         \
        Name() = default;                                                                          \
        IL_MEMBER constexpr Name(Scalar a, Scalar b, Scalar c, Scalar d) : x(a), y(b), z(c), w(d) {} \
        IL_MEMBER Name(const Name &other) { *(Whole *)this = *(const Whole *)&other; }             \
        IL_MEMBER Name &operator=(const Name &other) {                                             \
            *(Whole *)this = *(const Whole *)&other;                                               \
            return *this;                                                                          \
        }                                                                                          \
    };                                                                                             \
    IL_INLINE Name make_##Name(Scalar a, Scalar b, Scalar c, Scalar d) { return Name(a, b, c, d); }
#define IL_VECTOR3(Name, Scalar)                                                                   \
    struct Name {                                                                                  \
        Scalar x, y, z;                                                                            \
    };                                                                                             \
    IL_INLINE Name make_##Name(Scalar a, Scalar b, Scalar c) { return Name{a, b, c}; }

IL_VECTOR2(float2, float)
IL_VECTOR2(int2, int)
IL_VECTOR2(uint2, unsigned int)
IL_VECTOR2(double2, double)
IL_VECTOR2(longlong2, long long)
IL_VECTOR2(ulonglong2, unsigned long long)
IL_VECTOR2(short2, short)
IL_VECTOR2(uchar2, unsigned char)
IL_VECTOR2(char2, signed char)
IL_VECTOR4(float4, float)
IL_VECTOR4(int4, int)
IL_VECTOR4(uint4, unsigned int)
IL_VECTOR4(short4, short)
IL_VECTOR4(ushort4, unsigned short)
IL_VECTOR4(uchar4, unsigned char)
IL_VECTOR4(char4, signed char)
IL_VECTOR3(float3, float)
IL_VECTOR3(int3, int)
IL_VECTOR3(uint3, unsigned int)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};

// -- where a thread is ------------------------------------------------------------------------------

extern "C" {
void il_barrier();
void il_syncwarp(unsigned int mask);
unsigned long long il_shuffle(int kind, unsigned int mask, unsigned long long value, int lane, int width);
unsigned int il_ballot(int kind, unsigned int mask, int predicate);
long long il_warp_reduce(int kind, unsigned int mask, long long value);
void il_fence(int scope);
void il_atomic(void *address, unsigned int bytes);
void il_trap();
void il_assert_failed(const char *text);
int printf(const char *, ...);
}

struct il_uint3 {
    unsigned int x, y, z;
    IL_MEMBER operator dim3() const { return dim3(x, y, z); }
    IL_MEMBER operator uint3() const { return uint3{x, y, z}; }
};

extern "C" il_uint3 il_where(int which);
#define threadIdx (il_where(0))
#define blockIdx (il_where(1))
#define blockDim (il_where(2))
#define gridDim (il_where(3))
static constexpr int warpSize = 32;

// -- synchronization --------------------------------------------------------------------------------

IL_INLINE void __syncthreads() { il_barrier(); }
IL_INLINE void __syncwarp(unsigned int mask = 0xffffffffu) { il_syncwarp(mask); }
IL_INLINE void __threadfence() { il_fence(1); }
IL_INLINE void __threadfence_block() { il_fence(0); }
IL_INLINE void __threadfence_system() { il_fence(1); }

// -- warp-level functions ---------------------------------------------------------------------------

union il_bits {
    unsigned long long whole;
    int i;
    unsigned int u;
    long l;
    unsigned long ul;
    long long ll;
    unsigned long long ull;
    float f;
    double d;
};

#define IL_SHUFFLE(Type, field)                                                                    \
    IL_INLINE Type __shfl_sync(unsigned int mask, Type value, int lane, int width = 32) {          \
        il_bits bits;                                                                              \
        bits.whole = 0;                                                                            \
        bits.field = value;                                                                        \
        bits.whole = il_shuffle(0, mask, bits.whole, lane, width);                                 \
        return bits.field;                                                                         \
    }                                                                                              \
    IL_INLINE Type __shfl_up_sync(unsigned int mask, Type value, unsigned int by, int width = 32) { \
        il_bits bits;                                                                              \
        bits.whole = 0;                                                                            \
        bits.field = value;                                                                        \
        bits.whole = il_shuffle(1, mask, bits.whole, (int)by, width);                              \
        return bits.field;                                                                         \
    }                                                                                              \
    IL_INLINE Type __shfl_down_sync(unsigned int mask, Type value, unsigned int by, int width = 32) { \
        il_bits bits;                                                                              \
        bits.whole = 0;                                                                            \
        bits.field = value;                                                                        \
        bits.whole = il_shuffle(2, mask, bits.whole, (int)by, width);                              \
        return bits.field;                                                                         \
    }                                                                                              \
    IL_INLINE Type __shfl_xor_sync(unsigned int mask, Type value, int lanes, int width = 32) {     \
        il_bits bits;                                                                              \
        bits.whole = 0;                                                                            \
        bits.field = value;                                                                        \
        bits.whole = il_shuffle(3, mask, bits.whole, lanes, width);                                \
        return bits.field;                                                                         \
    }
IL_SHUFFLE(int, i)
IL_SHUFFLE(unsigned int, u)
IL_SHUFFLE(long, l)
IL_SHUFFLE(unsigned long, ul)
IL_SHUFFLE(long long, ll)
IL_SHUFFLE(unsigned long long, ull)
IL_SHUFFLE(float, f)
IL_SHUFFLE(double, d)

IL_INLINE unsigned int __ballot_sync(unsigned int mask, int p) { return il_ballot(0, mask, p); }
IL_INLINE int __any_sync(unsigned int mask, int p) { return (int)il_ballot(1, mask, p); }
IL_INLINE int __all_sync(unsigned int mask, int p) { return (int)il_ballot(2, mask, p); }
IL_INLINE int __reduce_add_sync(unsigned int mask, int v) { return (int)il_warp_reduce(0, mask, v); }
IL_INLINE unsigned int __reduce_add_sync(unsigned int mask, unsigned int v) {
    return (unsigned int)il_warp_reduce(0, mask, v);
}
IL_INLINE int __reduce_min_sync(unsigned int mask, int v) { return (int)il_warp_reduce(1, mask, v); }
IL_INLINE unsigned int __reduce_min_sync(unsigned int mask, unsigned int v) {
    return (unsigned int)il_warp_reduce(1, mask, v);
}
IL_INLINE int __reduce_max_sync(unsigned int mask, int v) { return (int)il_warp_reduce(2, mask, v); }
IL_INLINE unsigned int __reduce_max_sync(unsigned int mask, unsigned int v) {
    return (unsigned int)il_warp_reduce(2, mask, v);
}
IL_INLINE unsigned int __reduce_and_sync(unsigned int mask, unsigned int v) {
    return (unsigned int)il_warp_reduce(3, mask, v);
}
IL_INLINE unsigned int __reduce_or_sync(unsigned int mask, unsigned int v) {
    return (unsigned int)il_warp_reduce(4, mask, v);
}
IL_INLINE unsigned int __reduce_xor_sync(unsigned int mask, unsigned int v) {
    return (unsigned int)il_warp_reduce(5, mask, v);
}

// -- atomics: the runtime checks and counts the access; hooks do not see the rest --------------------

template <typename T> struct il_same {
    typedef T type;
};
template <typename T, typename... Listed> struct il_listed {};
template <typename T, typename... Rest> struct il_listed<T, T, Rest...> {
    typedef int yes;
};
template <typename T, typename First, typename... Rest>
struct il_listed<T, First, Rest...> : il_listed<T, Rest...> {};
// Only for the element types that CUDA has the atomic for. The value argument must not take part in
// the deduction of T: atomicAdd(&a_float, 1) is legal.
#define IL_ATOMIC(name, expression, ...)                                                           \
    template <typename T>                                                                          \
    IL_HIDDEN inline T il_##name(T *address, T value) {                                            \
        T old = *address;                                                                          \
        *address = (expression);                                                                   \
        return old;                                                                                \
    }                                                                                              \
    template <typename T, typename il_listed<T, __VA_ARGS__>::yes = 0>                             \
    IL_INLINE T name(T *address, typename il_same<T>::type value) {                                \
        il_atomic((void *)address, sizeof(T));                                                     \
        T old = il_##name(address, value);                                                         \
        return old;                                                                                \
    }
#define IL_WHOLE int, unsigned int, unsigned long long
IL_ATOMIC(atomicAdd, old + value, IL_WHOLE, float, double)
IL_ATOMIC(atomicSub, old - value, int, unsigned int)
IL_ATOMIC(atomicExch, value, IL_WHOLE, float)
IL_ATOMIC(atomicMin, value < old ? value : old, IL_WHOLE, long long)
IL_ATOMIC(atomicMax, value > old ? value : old, IL_WHOLE, long long)
IL_ATOMIC(atomicAnd, old & value, IL_WHOLE, long long)
IL_ATOMIC(atomicOr, old | value, IL_WHOLE, long long)
IL_ATOMIC(atomicXor, old ^ value, IL_WHOLE, long long)
IL_ATOMIC(atomicInc, old >= value ? 0u : old + 1u, unsigned int)
IL_ATOMIC(atomicDec, (old == 0u || old > value) ? value : old - 1u, unsigned int)
template <typename T> IL_HIDDEN inline T il_atomicCAS(T *address, T compare, T value) {
    T old = *address;
    if (old == compare) *address = value;
    return old;
}
template <typename T, typename il_listed<T, IL_WHOLE, unsigned short>::yes = 0>
IL_INLINE T atomicCAS(T *address, typename il_same<T>::type compare, typename il_same<T>::type value) {
    il_atomic((void *)address, sizeof(T));
    T old = il_atomicCAS(address, compare, value);
    return old;
}

// -- arithmetic -------------------------------------------------------------------------------------

template <typename T> IL_INLINE T __ldg(const T *address) { return *address; }

#define IL_MINMAX(Type)                                                                            \
    IL_INLINE Type min(Type a, Type b) { return b < a ? b : a; }                                   \
    IL_INLINE Type max(Type a, Type b) { return a < b ? b : a; }
IL_MINMAX(int)
IL_MINMAX(unsigned int)
IL_MINMAX(long)
IL_MINMAX(unsigned long)
IL_MINMAX(long long)
IL_MINMAX(unsigned long long)
// On a GPU the number wins over a NaN.
IL_INLINE float min(float a, float b) { return __builtin_fminf(a, b); }
IL_INLINE float max(float a, float b) { return __builtin_fmaxf(a, b); }
IL_INLINE double min(double a, double b) { return __builtin_fmin(a, b); }
IL_INLINE double max(double a, double b) { return __builtin_fmax(a, b); }
IL_INLINE unsigned int min(unsigned int a, int b) { return min(a, (unsigned int)b); }
IL_INLINE unsigned int min(int a, unsigned int b) { return min((unsigned int)a, b); }
IL_INLINE unsigned int max(unsigned int a, int b) { return max(a, (unsigned int)b); }
IL_INLINE unsigned int max(int a, unsigned int b) { return max((unsigned int)a, b); }

#define IL_MATH1(name)                                                                             \
    IL_INLINE float name##f(float x) { return __builtin_##name##f(x); }                            \
    IL_INLINE double name(double x) { return __builtin_##name(x); }                                \
    IL_INLINE float name(float x) { return __builtin_##name##f(x); }
#define IL_MATH2(name)                                                                             \
    IL_INLINE float name##f(float x, float y) { return __builtin_##name##f(x, y); }                \
    IL_INLINE double name(double x, double y) { return __builtin_##name(x, y); }                   \
    IL_INLINE float name(float x, float y) { return __builtin_##name##f(x, y); }
IL_MATH1(sqrt) IL_MATH1(cbrt) IL_MATH1(exp) IL_MATH1(exp2) IL_MATH1(exp10) IL_MATH1(expm1)
IL_MATH1(log) IL_MATH1(log2) IL_MATH1(log10) IL_MATH1(log1p) IL_MATH1(sin) IL_MATH1(cos)
IL_MATH1(tan) IL_MATH1(asin) IL_MATH1(acos) IL_MATH1(atan) IL_MATH1(sinh) IL_MATH1(cosh)
IL_MATH1(tanh) IL_MATH1(erf) IL_MATH1(erfc) IL_MATH1(floor) IL_MATH1(ceil) IL_MATH1(round)
IL_MATH1(rint) IL_MATH1(trunc) IL_MATH1(fabs) IL_MATH1(tgamma) IL_MATH1(lgamma)
IL_MATH2(pow) IL_MATH2(fmin) IL_MATH2(fmax) IL_MATH2(fmod) IL_MATH2(hypot) IL_MATH2(atan2)
IL_MATH2(copysign) IL_MATH2(fdim)
IL_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
IL_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
IL_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
IL_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
IL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
IL_INLINE float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
IL_INLINE int abs(int x) { return x < 0 ? -x : x; }
IL_INLINE long long abs(long long x) { return x < 0 ? -x : x; }
IL_INLINE float abs(float x) { return __builtin_fabsf(x); }
IL_INLINE double abs(double x) { return __builtin_fabs(x); }
IL_INLINE bool isnan(float x) { return __builtin_isnan(x); }
IL_INLINE bool isnan(double x) { return __builtin_isnan(x); }
IL_INLINE bool isinf(float x) { return __builtin_isinf(x); }
IL_INLINE bool isinf(double x) { return __builtin_isinf(x); }
IL_INLINE bool isfinite(float x) { return __builtin_isfinite(x); }
IL_INLINE bool isfinite(double x) { return __builtin_isfinite(x); }

#define __expf(x) expf(x)
#define __exp10f(x) exp10f(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __log10f(x) log10f(x)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((float)(x) / (float)(y))
#define __saturatef(x) fminf(fmaxf((x), 0.0f), 1.0f)
#define __fsqrt_rn(x) sqrtf(x)
#define __frcp_rn(x) (1.0f / (float)(x))
IL_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
IL_INLINE float __fadd_rn(float a, float b) { return a + b; }
IL_INLINE float __fsub_rn(float a, float b) { return a - b; }
IL_INLINE float __fmul_rn(float a, float b) { return a * b; }
IL_INLINE float __fdiv_rn(float a, float b) { return a / b; }

IL_INLINE int __float_as_int(float x) { il_bits b; b.f = x; return b.i; }
IL_INLINE unsigned int __float_as_uint(float x) { il_bits b; b.f = x; return b.u; }
IL_INLINE float __int_as_float(int x) { il_bits b; b.i = x; return b.f; }
IL_INLINE float __uint_as_float(unsigned int x) { il_bits b; b.u = x; return b.f; }
IL_INLINE long long __double_as_longlong(double x) { il_bits b; b.d = x; return b.ll; }
IL_INLINE double __longlong_as_double(long long x) { il_bits b; b.ll = x; return b.d; }
IL_INLINE int __float2int_rn(float x) { return (int)__builtin_rintf(x); }
IL_INLINE int __float2int_rz(float x) { return (int)x; }
IL_INLINE int __float2int_rd(float x) { return (int)__builtin_floorf(x); }
IL_INLINE int __float2int_ru(float x) { return (int)__builtin_ceilf(x); }
IL_INLINE float __int2float_rn(int x) { return (float)x; }
IL_INLINE float __uint2float_rn(unsigned int x) { return (float)x; }
IL_INLINE int __popc(unsigned int x) { return __builtin_popcount(x); }
IL_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
IL_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
IL_INLINE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
IL_INLINE int __ffs(int x) { return __builtin_ffs(x); }
IL_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }
IL_INLINE unsigned int __brev(unsigned int x) {
    unsigned int r = 0;
    for (int i = 0; i < 32; ++i) r |= ((x >> i) & 1u) << (31 - i);
    return r;
}
IL_INLINE int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
IL_INLINE int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
IL_INLINE unsigned int __umulhi(unsigned int a, unsigned int b) {
    return (unsigned int)(((unsigned long long)a * b) >> 32);
}
IL_INLINE void __trap() { il_trap(); }
#define assert(condition) ((condition) ? (void)0 : il_assert_failed(#condition))

// -- how a launch calls a kernel --------------------------------------------------------------------

typedef void (*il_entry)(void **arguments);
struct il_parameter {
    unsigned int bytes, element; // element: size of what a pointer points to, 0 for a value
    int read_only;
};
struct il_kernel {
    const char *name;
    il_entry call;
    const il_parameter *parameters;
    int count;
};

template <int... I> struct il_numbers {};
template <int N, int... I> struct il_count : il_count<N - 1, N - 1, I...> {};
template <int... I> struct il_count<0, I...> {
    typedef il_numbers<I...> type;
};
template <typename T> struct il_plain {
    typedef T type;
};
template <typename T> struct il_plain<const T> {
    typedef T type;
};
template <typename T> struct il_describe {
    static constexpr il_parameter value{sizeof(T), 0, 0};
};
template <typename T> struct il_describe<T *> {
    static constexpr il_parameter value{sizeof(T *), sizeof(T), 0};
};
template <typename T> struct il_describe<const T *> {
    static constexpr il_parameter value{sizeof(T *), sizeof(T), 1};
};
template <> struct il_describe<void *> {
    static constexpr il_parameter value{sizeof(void *), 1, 0};
};
template <> struct il_describe<const void *> {
    static constexpr il_parameter value{sizeof(void *), 1, 1};
};
template <typename... A> struct il_described {
    static constexpr il_parameter list[sizeof...(A) + 1] = {il_describe<typename il_plain<A>::type>::value..., {0, 0, 0}};
};
template <typename... A, int... I>
IL_HIDDEN IL_MEMBER void il_unpack(void (*kernel)(A...), void **arguments, il_numbers<I...>) {
    kernel((*(typename il_plain<A>::type *)arguments[I])...);
}
template <typename... A> IL_HIDDEN IL_MEMBER void il_call(void (*kernel)(A...), void **arguments) {
    il_unpack(kernel, arguments, typename il_count<sizeof...(A)>::type());
}
template <typename... A> constexpr const il_parameter *il_parameters(void (*)(A...)) {
    return il_described<A...>::list;
}
template <typename... A> constexpr int il_arity(void (*)(A...)) { return (int)sizeof...(A); }
// g++ accepts the standard's alignas only before thread_local, CUDA also after __shared__.
#define alignas(n) __attribute__((aligned(n)))
#define IL_ENTRY(kernel)                                                                           \
    static IL_HIDDEN void il_enter_##kernel(void **arguments) { il_call(kernel, arguments); }
#define IL_LISTED(kernel)                                                                          \
    { #kernel, il_enter_##kernel, il_parameters(kernel), il_arity(kernel) }
