// Another correct reduce.cu: no shuffle but in reduce_warp; every other reduction is a tree in the
// dynamic shared memory, over the next power of two.

__device__ int power_of_two_below(int many) {
    int power = 1;
    while (power * 2 < many) power *= 2;
    return power;
}

// The sum of a block's values, in thread 0.
__device__ float tree_sum(float *s, float mine) {
    int tid = threadIdx.x, many = blockDim.x;
    s[tid] = mine;
    __syncthreads();
    for (int half = power_of_two_below(many); half >= 1; half /= 2) {
        if (tid < half && tid + half < many) s[tid] = s[tid] + s[tid + half];
        __syncthreads();
        many = half;
    }
    return s[0];
}

extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    int step = blockDim.x * gridDim.x;
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    while (i < n) {
        atomicAdd(&out[0], in[i]);
        i = i + step;
    }
}

extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    extern __shared__ float s[];
    const int tid = threadIdx.x, at = tid + blockIdx.x * blockDim.x;
    if (at < n) s[tid] = in[at];
    else s[tid] = 0.0f;
    int stride = 1;
    while (stride < blockDim.x) {
        __syncthreads();
        bool works = (tid & (2 * stride - 1)) == 0;
        if (works && tid + stride < blockDim.x) s[tid] = s[tid] + s[tid + stride];
        stride <<= 1;
    }
    if (tid == 0) atomicAdd(out, s[0]);
}

extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    extern __shared__ float s[];
    const int tid = threadIdx.x, at = tid + blockIdx.x * blockDim.x;
    s[tid] = 0.0f;
    if (at < n) s[tid] = in[at];
    for (int width = 2; width / 2 < blockDim.x; width <<= 1) {
        __syncthreads();
        const int left = width * tid, right = left + width / 2;
        if (right < blockDim.x) s[left] = s[left] + s[right];
    }
    if (tid == 0) atomicAdd(out, *s);
}

extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    extern __shared__ float s[];
    const int at = threadIdx.x + blockIdx.x * blockDim.x;
    float sum = tree_sum(s, at < n ? in[at] : 0.0f);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    extern __shared__ float s[];
    int at = threadIdx.x + blockIdx.x * blockDim.x * 2;
    float first = at < n ? in[at] : 0.0f;
    at += blockDim.x;
    float second = at < n ? in[at] : 0.0f;
    float sum = tree_sum(s, first + second);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    extern __shared__ float s[];
    int lane = threadIdx.x & 31, warps = blockDim.x >> 5;
    float mine = 0;
    for (int i = threadIdx.x + blockIdx.x * blockDim.x; i < n; i += blockDim.x * gridDim.x)
        mine += in[i];
    for (int by = 1; by <= 16; by += by) mine += __shfl_xor_sync(0xffffffffu, mine, by);
    if (lane == 31) s[threadIdx.x >> 5] = mine;
    __syncthreads();
    // Every warp could read them; the last one does.
    if (threadIdx.x >> 5 == warps - 1) {
        mine = 0;
        if (lane < warps) mine = s[lane];
        for (int by = 1; by <= 16; by += by) mine += __shfl_xor_sync(0xffffffffu, mine, by);
        if (lane == 0) atomicAdd(out, mine);
    }
}

extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    extern __shared__ float s[];
    const int thread = threadIdx.x + blockIdx.x * blockDim.x;
    const int threads = blockDim.x * gridDim.x;
    int head = 0;
    while (head < n && (size_t)(in + head) % sizeof(float4) != 0) head++;
    const int body = (n - head) >> 2;
    float mine = 0.0f;
    if (thread < head) mine = in[thread];
    for (int i = thread; i < body; i += threads) {
        const float4 v = *((const float4 *)&in[head] + i);
        mine += v.x;
        mine += v.y;
        mine += v.z;
        mine += v.w;
    }
    for (int i = head + 4 * body + thread; i < n; i += threads) mine += in[i];
    float sum = tree_sum(s, mine);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

__device__ float larger(float a, float b) {
    if (isnan(a)) return a;
    if (isnan(b)) return b;
    return fmaxf(a, b);
}

extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    extern __shared__ float s[];
    int tid = threadIdx.x, many = blockDim.x;
    float best = tid < n ? in[tid] : __int_as_float(0xff800000);
    for (int i = tid + many; i < n; i += many) best = larger(in[i], best);
    s[tid] = best;
    for (int half = power_of_two_below(many); half; half >>= 1) {
        __syncthreads();
        if (tid < half && tid + half < many) s[tid] = larger(s[tid + half], s[tid]);
        many = half;
    }
    if (!tid) *out = s[0];
}

// Whether element i comes before element j as the answer; -1 is no element.
__device__ bool before(float a, int i, float b, int j) {
    if (j < 0) return i >= 0;
    if (i < 0) return false;
    if (isnan(a) && isnan(b)) return i < j;
    if (isnan(a) || isnan(b)) return isnan(a);
    if (a == b) return i < j;
    return a > b;
}

extern "C" __global__ void argmax(const float *in, int *out, int n) {
    extern __shared__ float s[];
    int *where = (int *)(s + blockDim.x);
    int tid = threadIdx.x, many = blockDim.x;
    s[tid] = 0.0f;
    where[tid] = -1;
    for (int i = tid; i < n; i += many) {
        float x = in[i];
        if (before(x, i, s[tid], where[tid])) {
            s[tid] = x;
            where[tid] = i;
        }
    }
    for (int half = power_of_two_below(many); half; half >>= 1) {
        __syncthreads();
        int other = tid + half;
        if (tid < half && other < many && before(s[other], where[other], s[tid], where[tid])) {
            s[tid] = s[other];
            where[tid] = where[other];
        }
        many = half;
    }
    if (tid == 0) out[0] = where[0];
}

extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    extern __shared__ float s[];
    // A run of neighbouring elements for each block, a multiple of a warp long.
    int length = ((n + gridDim.x - 1) / gridDim.x + 31) / 32 * 32;
    int from = blockIdx.x * length, to = min(from + length, n);
    float mine = 0.0f;
    for (int i = from + threadIdx.x; i < to; i += blockDim.x) mine += in[i];
    float sum = tree_sum(s, mine);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Knuth's sum of two floats: s + e is a + b exactly.
struct Pair {
    float s, e;
};

__device__ Pair two_sum(float a, float b) {
    float s = a + b, bb = s - a;
    return {s, (a - (s - bb)) + (b - bb)};
}

extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    __shared__ Pair pairs[1024];
    int tid = threadIdx.x, many = blockDim.x;
    Pair mine = {0.0f, 0.0f};
    for (int i = tid; i < n; i += many) {
        Pair next = two_sum(mine.s, in[i]);
        mine.s = next.s;
        mine.e += next.e;
    }
    pairs[tid] = mine;
    for (int half = power_of_two_below(many); half; half >>= 1) {
        __syncthreads();
        if (tid < half && tid + half < many) {
            Pair next = two_sum(pairs[tid].s, pairs[tid + half].s);
            pairs[tid].s = next.s;
            pairs[tid].e += next.e + pairs[tid + half].e;
        }
        many = half;
    }
    if (tid == 0) out[0] = pairs[0].s + pairs[0].e;
}

extern "C" __global__ void welford(const float *in, float *out, int n) {
    __shared__ int counts[1024];
    __shared__ float means[1024], squares[1024];
    int tid = threadIdx.x, many = blockDim.x;
    int count = 0;
    float mean = 0.0f, square = 0.0f;
    for (int i = tid; i < n; i += many) {
        count++;
        float x = in[i], old = x - mean;
        mean += old / count;
        square += old * (x - mean);
    }
    counts[tid] = count, means[tid] = mean, squares[tid] = square;
    for (int half = power_of_two_below(many); half; half >>= 1) {
        __syncthreads();
        int other = tid + half;
        if (tid < half && other < many && counts[other] > 0) {
            int all = counts[tid] + counts[other];
            float share = (float)counts[other] / (float)all, delta = means[other] - means[tid];
            squares[tid] += squares[other] + delta * delta * share * counts[tid];
            means[tid] += delta * share;
            counts[tid] = all;
        }
        many = half;
    }
    if (tid == 0) out[0] = means[0], out[1] = squares[0];
}
