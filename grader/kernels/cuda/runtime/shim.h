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
#define IL_VECTOR1(Name, Scalar)                                                                   \
    struct Name {                                                                                  \
        Scalar x;                                                                                  \
    };                                                                                             \
    IL_INLINE Name make_##Name(Scalar a) { return Name{a}; }
#define IL_VECTOR3(Name, Scalar)                                                                   \
    struct Name {                                                                                  \
        Scalar x, y, z;                                                                            \
    };                                                                                             \
    IL_INLINE Name make_##Name(Scalar a, Scalar b, Scalar c) { return Name{a, b, c}; }

IL_VECTOR1(float1, float)
IL_VECTOR1(int1, int)
IL_VECTOR1(uint1, unsigned int)
IL_VECTOR1(double1, double)
IL_VECTOR2(float2, float)
IL_VECTOR2(int2, int)
IL_VECTOR2(uint2, unsigned int)
IL_VECTOR2(double2, double)
IL_VECTOR2(longlong2, long long)
IL_VECTOR2(ulonglong2, unsigned long long)
IL_VECTOR2(long2, long)
IL_VECTOR2(ulong2, unsigned long)
IL_VECTOR2(short2, short)
IL_VECTOR2(ushort2, unsigned short)
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
IL_VECTOR3(double3, double)
IL_VECTOR3(short3, short)
IL_VECTOR3(ushort3, unsigned short)
IL_VECTOR3(uchar3, unsigned char)
IL_VECTOR3(char3, signed char)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};

// -- where a thread is ------------------------------------------------------------------------------

extern "C" {
void il_barrier();
int il_barrier_vote(int kind, int predicate);
void il_syncwarp(unsigned int mask);
unsigned long long il_shuffle(int kind, unsigned int mask, unsigned long long value, int lane, int width);
unsigned int il_ballot(int kind, unsigned int mask, int predicate);
long long il_warp_reduce(int kind, unsigned int mask, long long value);
unsigned int il_match(int kind, unsigned int mask, unsigned long long value);
void il_fence(int scope);
void il_atomic(void *address, unsigned int bytes);
void il_atomic_of_block(void *address, unsigned int bytes);
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
IL_INLINE int __syncthreads_count(int predicate) { return il_barrier_vote(0, predicate); }
IL_INLINE int __syncthreads_and(int predicate) { return il_barrier_vote(1, predicate); }
IL_INLINE int __syncthreads_or(int predicate) { return il_barrier_vote(2, predicate); }
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

#define IL_MATCH(Type, field)                                                                      \
    IL_INLINE unsigned int __match_any_sync(unsigned int mask, Type value) {                       \
        il_bits bits;                                                                              \
        bits.whole = 0;                                                                            \
        bits.field = value;                                                                        \
        return il_match(0, mask, bits.whole);                                                      \
    }                                                                                              \
    IL_INLINE unsigned int __match_all_sync(unsigned int mask, Type value, int *all) {             \
        il_bits bits;                                                                              \
        bits.whole = 0;                                                                            \
        bits.field = value;                                                                        \
        unsigned int found = il_match(1, mask, bits.whole);                                        \
        *all = found != 0;                                                                         \
        return found;                                                                              \
    }
IL_MATCH(int, i)
IL_MATCH(unsigned int, u)
IL_MATCH(long, l)
IL_MATCH(unsigned long, ul)
IL_MATCH(long long, ll)
IL_MATCH(unsigned long long, ull)
IL_MATCH(float, f)
IL_MATCH(double, d)

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
#define IL_SCOPED(name, call, touch, ...)                                                          \
    template <typename T, typename il_listed<T, __VA_ARGS__>::yes = 0>                             \
    IL_INLINE T name(T *address, typename il_same<T>::type value) {                                \
        touch((void *)address, sizeof(T));                                                         \
        T old = call(address, value);                                                              \
        return old;                                                                                \
    }
#define IL_ATOMIC(name, expression, ...)                                                           \
    template <typename T>                                                                          \
    IL_HIDDEN inline T il_##name(T *address, T value) {                                            \
        T old = *address;                                                                          \
        *address = (expression);                                                                   \
        return old;                                                                                \
    }                                                                                              \
    IL_SCOPED(name, il_##name, il_atomic, __VA_ARGS__)                                             \
    IL_SCOPED(name##_system, il_##name, il_atomic, __VA_ARGS__)                                    \
    IL_SCOPED(name##_block, il_##name, il_atomic_of_block, __VA_ARGS__)
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
#define IL_CAS(name, touch)                                                                        \
    template <typename T, typename il_listed<T, IL_WHOLE, unsigned short>::yes = 0>                \
    IL_INLINE T name(T *address, typename il_same<T>::type compare, typename il_same<T>::type value) { \
        touch((void *)address, sizeof(T));                                                         \
        T old = il_atomicCAS(address, compare, value);                                             \
        return old;                                                                                \
    }
IL_CAS(atomicCAS, il_atomic)
IL_CAS(atomicCAS_system, il_atomic)
IL_CAS(atomicCAS_block, il_atomic_of_block)

// -- loads and stores with a hint for the caches, of which there are none here ----------------------

#define IL_LOAD(name)                                                                              \
    template <typename T> IL_INLINE T name(const T *address) { return *address; }
#define IL_STORE(name)                                                                             \
    template <typename T> IL_INLINE void name(T *address, typename il_same<T>::type value) { *address = value; }
IL_LOAD(__ldg)
IL_LOAD(__ldcg)
IL_LOAD(__ldca)
IL_LOAD(__ldcs)
IL_LOAD(__ldlu)
IL_LOAD(__ldcv)
IL_STORE(__stwb)
IL_STORE(__stcg)
IL_STORE(__stcs)
IL_STORE(__stwt)

#include "arithmetic.h"

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
