// CUDA's functions of numbers and bits, for shim.h.
#pragma once

// -- arithmetic -------------------------------------------------------------------------------------


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
IL_MATH1(nearbyint) IL_MATH1(logb) IL_MATH2(remainder) IL_MATH2(nextafter)
IL_INLINE float rcbrtf(float x) { return 1.0f / __builtin_cbrtf(x); }
IL_INLINE double rcbrt(double x) { return 1.0 / __builtin_cbrt(x); }
IL_INLINE int ilogbf(float x) { return __builtin_ilogbf(x); }
IL_INLINE int ilogb(double x) { return __builtin_ilogb(x); }
IL_INLINE float scalbnf(float x, int e) { return __builtin_scalbnf(x, e); }
IL_INLINE double scalbn(double x, int e) { return __builtin_scalbn(x, e); }
IL_INLINE double ldexp(double x, int e) { return __builtin_ldexp(x, e); }
IL_INLINE float nanf(const char *) { return __builtin_nanf(""); }
IL_INLINE double nan(const char *) { return __builtin_nan(""); }
IL_INLINE bool signbit(float x) { return __builtin_signbit(x); }
IL_INLINE bool signbit(double x) { return __builtin_signbit(x); }
// Results through a pointer are stored by code that is counted, as any store.
IL_INLINE float modff(float x, float *whole) { float w = __builtin_truncf(x); *whole = w; return __builtin_copysignf(x == w ? 0.0f : x - w, x); }
IL_INLINE double modf(double x, double *whole) { double w = __builtin_trunc(x); *whole = w; return __builtin_copysign(x == w ? 0.0 : x - w, x); }
IL_INLINE float frexpf(float x, int *e) { int n; float m = __builtin_frexpf(x, &n); *e = n; return m; }
IL_INLINE double frexp(double x, int *e) { int n; double m = __builtin_frexp(x, &n); *e = n; return m; }
IL_INLINE void sincosf(float x, float *s, float *c) { *s = __builtin_sinf(x); *c = __builtin_cosf(x); }
IL_INLINE void sincos(double x, double *s, double *c) { *s = __builtin_sin(x); *c = __builtin_cos(x); }
// sin(pi x): exact at multiples of a half, as x modulo 2 is.
#define IL_PI 3.141592653589793
IL_INLINE double sinpi(double x) {
    double r = __builtin_fmod(x, 2.0), a = __builtin_fabs(r);
    return a == 0.0 || a == 1.0 ? __builtin_copysign(0.0, x) : __builtin_sin(IL_PI * r);
}
IL_INLINE double cospi(double x) {
    double r = __builtin_fabs(__builtin_fmod(x, 2.0));
    return r == 0.5 || r == 1.5 ? 0.0 : __builtin_cos(IL_PI * r);
}
IL_INLINE float sinpif(float x) { return (float)sinpi((double)x); }
IL_INLINE float cospif(float x) { return (float)cospi((double)x); }
IL_INLINE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
IL_INLINE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
IL_INLINE float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
IL_INLINE double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
IL_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
IL_INLINE float ldexpf(float x, int e) { return __builtin_ldexpf(x, e); }
IL_INLINE unsigned int umin(unsigned int a, unsigned int b) { return min(a, b); }
IL_INLINE unsigned int umax(unsigned int a, unsigned int b) { return max(a, b); }
IL_INLINE long long llmin(long long a, long long b) { return min(a, b); }
IL_INLINE long long llmax(long long a, long long b) { return max(a, b); }
IL_INLINE unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
IL_INLINE unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
IL_INLINE long labs(long x) { return x < 0 ? -x : x; }
IL_INLINE long long llabs(long long x) { return x < 0 ? -x : x; }
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
#define __sincosf(x, s, c) sincosf(x, s, c)
#define __builtin_assume(condition) ((void)0)
#define __powf(x, y) powf(x, y)
#define __fdividef(x, y) ((float)(x) / (float)(y))
#define __saturatef(x) fminf(fmaxf((x), 0.0f), 1.0f)
#define __fsqrt_rn(x) sqrtf(x)
#define __frcp_rn(x) (1.0f / (float)(x))
#define __frsqrt_rn(x) rsqrtf(x)
IL_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
IL_INLINE float __fadd_rn(float a, float b) { return a + b; }
IL_INLINE float __fsub_rn(float a, float b) { return a - b; }
IL_INLINE float __fmul_rn(float a, float b) { return a * b; }
IL_INLINE float __fdiv_rn(float a, float b) { return a / b; }
IL_INLINE double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
IL_INLINE double __dadd_rn(double a, double b) { return a + b; }
IL_INLINE double __dsub_rn(double a, double b) { return a - b; }
IL_INLINE double __dmul_rn(double a, double b) { return a * b; }
IL_INLINE double __ddiv_rn(double a, double b) { return a / b; }
IL_INLINE double __drcp_rn(double a) { return 1.0 / a; }
IL_INLINE double __dsqrt_rn(double a) { return __builtin_sqrt(a); }

IL_INLINE int __float_as_int(float x) { il_bits b; b.f = x; return b.i; }
IL_INLINE unsigned int __float_as_uint(float x) { il_bits b; b.f = x; return b.u; }
IL_INLINE float __int_as_float(int x) { il_bits b; b.i = x; return b.f; }
IL_INLINE float __uint_as_float(unsigned int x) { il_bits b; b.u = x; return b.f; }
IL_INLINE long long __double_as_longlong(double x) { il_bits b; b.d = x; return b.ll; }
IL_INLINE double __longlong_as_double(long long x) { il_bits b; b.ll = x; return b.d; }
// To whole numbers: what does not fit becomes the nearest that does; a NaN becomes 0, or 2^63 in 64
// bits (PTX, cvt). The bounds, powers of two, are exact.
#define IL_TO(Type, least, beyond, last, nothing, name, From)                                      \
    IL_INLINE Type il_to_##name(From x) {                                                          \
        return x != x ? (Type)nothing : x >= beyond ? last : x <= least ? (Type)least : (Type)x;   \
    }                                                                                              \
    IL_INLINE Type __##name##_rz(From x) { return il_to_##name(__builtin_trunc(x)); }              \
    IL_INLINE Type __##name##_rn(From x) { return il_to_##name(__builtin_rint(x)); }               \
    IL_INLINE Type __##name##_rd(From x) { return il_to_##name(__builtin_floor(x)); }              \
    IL_INLINE Type __##name##_ru(From x) { return il_to_##name(__builtin_ceil(x)); }
#define IL_NEITHER 0x8000000000000000ull
IL_TO(int, -0x1p31, 0x1p31, 0x7fffffff, 0, float2int, float)
IL_TO(int, -0x1p31, 0x1p31, 0x7fffffff, 0x80000000u, double2int, double)
IL_TO(unsigned int, 0.0, 0x1p32, 0xffffffffu, 0, float2uint, float)
IL_TO(unsigned int, 0.0, 0x1p32, 0xffffffffu, 0x80000000u, double2uint, double)
IL_TO(long long, -0x1p63, 0x1p63, 0x7fffffffffffffffll, IL_NEITHER, float2ll, float)
IL_TO(long long, -0x1p63, 0x1p63, 0x7fffffffffffffffll, IL_NEITHER, double2ll, double)
IL_TO(unsigned long long, 0.0, 0x1p64, ~0ull, IL_NEITHER, float2ull, float)
IL_TO(unsigned long long, 0.0, 0x1p64, ~0ull, IL_NEITHER, double2ull, double)
#define IL_ROUNDS(Type, to_nearest_even, to_nearest)                                               \
    IL_INLINE Type to_nearest_even##f(float x) { return il_to_float2ll(__builtin_rintf(x)); }      \
    IL_INLINE Type to_nearest_even(double x) { return il_to_double2ll(__builtin_rint(x)); }        \
    IL_INLINE Type to_nearest##f(float x) { return il_to_float2ll(__builtin_roundf(x)); }          \
    IL_INLINE Type to_nearest(double x) { return il_to_double2ll(__builtin_round(x)); }
IL_ROUNDS(long, lrint, lround)
IL_ROUNDS(long long, llrint, llround)
IL_INLINE float __int2float_rn(int x) { return (float)x; }
IL_INLINE float __uint2float_rn(unsigned int x) { return (float)x; }
IL_INLINE float __ll2float_rn(long long x) { return (float)x; }
IL_INLINE float __ull2float_rn(unsigned long long x) { return (float)x; }
IL_INLINE float __double2float_rn(double x) { return (float)x; }
IL_INLINE double __int2double_rn(int x) { return (double)x; }
IL_INLINE double __uint2double_rn(unsigned int x) { return (double)x; }
IL_INLINE double __ll2double_rn(long long x) { return (double)x; }
IL_INLINE double __ull2double_rn(unsigned long long x) { return (double)x; }
IL_INLINE int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
IL_INLINE int __double2loint(double x) { return (int)__double_as_longlong(x); }
IL_INLINE double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned int)high << 32 | (unsigned int)low));
}
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
IL_INLINE unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned int)x) << 32 | __brev((unsigned int)(x >> 32));
}
// Each of four bytes of b:a that the low nibbles of `s` choose; bit 3 of a nibble repeats the sign.
IL_INLINE unsigned int __byte_perm(unsigned int a, unsigned int b, unsigned int s) {
    unsigned int r = 0;
    for (int i = 0; i < 4; ++i) {
        unsigned int nibble = s >> (4 * i), at = nibble & 7u;
        unsigned int byte = ((at < 4 ? a : b) >> (8 * (at & 3u))) & 0xffu;
        if (nibble & 8u) byte = byte & 0x80u ? 0xffu : 0u;
        r |= byte << (8 * i);
    }
    return r;
}
IL_INLINE unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int by) {
    return (unsigned int)((((unsigned long long)high << 32 | low) << (by & 31u)) >> 32);
}
IL_INLINE unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int by) {
    return (unsigned int)(((unsigned long long)high << 32 | low) >> (by & 31u));
}
IL_INLINE unsigned int __sad(int a, int b, unsigned int more) {
    return (a < b ? (unsigned int)b - (unsigned int)a : (unsigned int)a - (unsigned int)b) + more;
}
IL_INLINE unsigned int __usad(unsigned int a, unsigned int b, unsigned int more) { return (a < b ? b - a : a - b) + more; }
IL_INLINE int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
IL_INLINE int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
IL_INLINE unsigned int __uhadd(unsigned int a, unsigned int b) { return (unsigned int)(((unsigned long long)a + b) >> 1); }
IL_INLINE unsigned int __urhadd(unsigned int a, unsigned int b) { return (unsigned int)(((unsigned long long)a + b + 1) >> 1); }
IL_INLINE unsigned int __umul24(unsigned int a, unsigned int b) { return (a & 0xffffffu) * (b & 0xffffffu); }
IL_INLINE long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
IL_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
IL_INLINE int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
IL_INLINE int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
IL_INLINE unsigned int __umulhi(unsigned int a, unsigned int b) {
    return (unsigned int)(((unsigned long long)a * b) >> 32);
}
IL_INLINE void __trap() { il_trap(); }
#define assert(condition) ((condition) ? (void)0 : il_assert_failed(#condition))
