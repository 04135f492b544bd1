// Another correct reduce.cu: templated helpers, steps unrolled by recursion, static shared arrays,
// __syncwarp() instead of barriers where one warp is left, keys of 64 bits for the two maxima.

typedef unsigned long long Key;

template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes <<= 1) value += __shfl_xor_sync(~0u, value, lanes);
    return value;
}

__device__ Key warp_largest(Key key) {
    for (int lanes = 16; lanes; lanes >>= 1) {
        Key other = __shfl_xor_sync(~0u, key, lanes);
        if (other > key) key = other;
    }
    return key;
}

template <typename T>
__device__ T element_or(const T *in, int i, int n, T otherwise) {
    if (i >= n) return otherwise;
    return in[i];
}

// Ascending in the value, -0 and 0 the same, NaN above all; among equals descending in the index.
__device__ Key key_of(float x, unsigned int index) {
    unsigned int bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    unsigned int order = bits >> 31 ? ~bits : bits | 0x80000000u;
    if (x != x) order = 0xffffffffu;
    return (Key)order << 32 | (0xffffffffu - index);
}

__device__ Key block_largest(const float *in, int n) {
    __shared__ Key keys[32];
    Key key = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        Key mine = key_of(in[i], i);
        key = mine > key ? mine : key;
    }
    key = warp_largest(key);
    if ((threadIdx.x & 31) == 0) keys[threadIdx.x >> 5] = key;
    __syncthreads();
    if (threadIdx.x >= 32) return 0;
    return warp_largest(threadIdx.x < blockDim.x >> 5 ? keys[threadIdx.x] : 0);
}

// Step S of the tree that doubles its stride; thread `k` adds the pair that it is given.
template <int S>
__device__ void doubling(float *s, int tid, int size, bool packed) {
    if (S < size) {
        if (packed) {
            int at = tid * 2 * S;
            if (at + S < size) s[at] = s[at + S] + s[at];
        } else if ((tid & (2 * S - 1)) == 0) {
            if (tid + S < size) s[tid] = s[tid + S] + s[tid];
        }
        __syncthreads();
        doubling<2 * S>(s, tid, size, packed);
    }
}
template <>
__device__ void doubling<1024>(float *, int, int, bool) {}

// The tree that halves; one warp finishes it on its own, each step in order by __syncwarp().
__device__ void halving(float *s, int tid, int size) {
    int left = size;
    while (left > 64) {
        int half = (left + 1) >> 1;
        if (tid < left - half) s[tid] = s[tid + half] + s[tid];
        left = half;
        __syncthreads();
    }
    if (tid < 32)
        while (left > 1) {
            int half = (left + 1) >> 1;
            if (tid < left - half) s[tid] = s[tid + half] + s[tid];
            left = half;
            __syncwarp();
        }
}

extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    while (true) {
        if (i >= n) return;
        atomicAdd(&out[0], in[i]);
        i += blockDim.x * gridDim.x;
    }
}

extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    __shared__ float s[1024];
    const int tid = threadIdx.x;
    s[tid] = element_or(in, blockIdx.x * blockDim.x + tid, n, 0.0f);
    __syncthreads();
    doubling<1>(s, tid, blockDim.x, false);
    if (!tid) atomicAdd(out, *s);
}

extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    __shared__ float s[1024];
    const int tid = threadIdx.x;
    s[tid] = element_or(in, blockIdx.x * blockDim.x + tid, n, 0.0f);
    __syncthreads();
    doubling<1>(s, tid, blockDim.x, true);
    if (!tid) atomicAdd(out, *s);
}

extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    __shared__ float s[1024];
    const int tid = threadIdx.x;
    s[tid] = element_or(in, blockIdx.x * blockDim.x + tid, n, 0.0f);
    __syncthreads();
    halving(s, tid, blockDim.x);
    if (!tid) atomicAdd(out, *s);
}

extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    __shared__ float sums[32];
    int i = 2 * blockIdx.x * blockDim.x + threadIdx.x;
    float sum = element_or(in, i, n, 0.0f) + element_or(in, i + (int)blockDim.x, n, 0.0f);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(threadIdx.x < blockDim.x >> 5 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    __shared__ float sums[32];
    double sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        sum += __ldg(in + i);
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = (float)sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    float total = warp_sum(threadIdx.x < blockDim.x >> 5 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) atomicAdd(out, total);
}

extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    __shared__ float sums[32];
    const int me = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    float sum = 0;
    int begin = 0;
    while (begin < n && ((unsigned long long)(in + begin) & 15)) ++begin;
    int end = n - (n - begin) % 4;
    for (int i = begin + 4 * me; i < end; i += 4 * all) {
        const float4 v = *reinterpret_cast<const float4 *>(in + i);
        sum += v.x + v.y + v.z + v.w;
    }
    // The single ones, front and end, as one list.
    if (me < begin + n - end) sum += in[me < begin ? me : end + me - begin];
    sum = warp_sum(sum);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = warp_sum(threadIdx.x < blockDim.x >> 5 ? sums[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    Key key = block_largest(in, n);
    if (threadIdx.x) return;
    unsigned int order = (unsigned int)(key >> 32);
    unsigned int bits = order >> 31 ? order & 0x7fffffffu : ~order;
    out[0] = __uint_as_float(bits);
}

extern "C" __global__ void argmax(const float *in, int *out, int n) {
    Key key = block_largest(in, n);
    if (threadIdx.x == 0) *out = (int)(0xffffffffu - (unsigned int)key);
}

extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    __shared__ float s[1024];
    const int tid = threadIdx.x;
    // A run of elements for each block.
    const int rounds = (n + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);
    const int begin = blockIdx.x * rounds * blockDim.x + tid;
    float sum = 0;
    for (int k = 0; k < rounds; ++k) sum += element_or(in, begin + k * (int)blockDim.x, n, 0.0f);
    s[tid] = sum;
    __syncthreads();
    halving(s, tid, blockDim.x);
    if (!tid) partial[blockIdx.x] = s[0];
}

// A sum of two floats that do not overlap (Knuth's exact addition).
struct Pair {
    float high, low;
};

__device__ Pair exact(float a, float b) {
    float sum = a + b, of_b = sum - a;
    return {sum, (a - (sum - of_b)) + (b - of_b)};
}

__device__ Pair together(Pair a, Pair b) {
    Pair high = exact(a.high, b.high);
    return exact(high.high, high.low + a.low + b.low);
}

extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    __shared__ float high[32], low[32];
    Pair sum = {0, 0};
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum = together(sum, Pair{in[i], 0});
    for (int lanes = 1; lanes < 32; lanes *= 2) {
        Pair other = {__shfl_xor_sync(~0u, sum.high, lanes), __shfl_xor_sync(~0u, sum.low, lanes)};
        sum = together(sum, other);
    }
    if ((threadIdx.x & 31) == 0) {
        high[threadIdx.x >> 5] = sum.high;
        low[threadIdx.x >> 5] = sum.low;
    }
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < blockDim.x >> 5; ++w) sum = together(sum, Pair{high[w], low[w]});
    out[0] = sum.high + sum.low;
}

struct Spread {
    int count;
    float mean, m2;
};

__device__ Spread together(Spread a, Spread b) {
    if (!a.count) return b;
    if (!b.count) return a;
    int count = a.count + b.count;
    float share = (float)b.count / count, delta = b.mean - a.mean;
    return {count, a.mean + delta * share, a.m2 + b.m2 + a.count * (delta * share) * delta};
}

template <int LANES>
__device__ Spread together_in_the_warp(Spread mine) {
    if (LANES == 32) return mine;
    Spread other = {
        __shfl_xor_sync(~0u, mine.count, LANES % 32),
        __shfl_xor_sync(~0u, mine.mean, LANES % 32),
        __shfl_xor_sync(~0u, mine.m2, LANES % 32),
    };
    return together_in_the_warp<(LANES < 32 ? 2 * LANES : 32)>(together(mine, other));
}

extern "C" __global__ void welford(const float *in, float *out, int n) {
    __shared__ int counts[32];
    __shared__ float means[32], m2s[32];
    Spread mine = {0, 0, 0};
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float x = in[i], before = x - mine.mean;
        mine.mean += before / ++mine.count;
        mine.m2 += before * (x - mine.mean);
    }
    mine = together_in_the_warp<1>(mine);
    int warp = threadIdx.x >> 5;
    if ((threadIdx.x & 31) == 0) {
        counts[warp] = mine.count;
        means[warp] = mine.mean;
        m2s[warp] = mine.m2;
    }
    __syncthreads();
    if (threadIdx.x) return;
    for (int w = 1; w < blockDim.x >> 5; ++w)
        mine = together(mine, Spread{counts[w], means[w], m2s[w]});
    out[0] = mine.mean;
    out[1] = mine.m2;
}
