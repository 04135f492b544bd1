// Another correct reduce.cu: pointers walk over the input, lanes gather with indexed shuffles, and
// the last warp to store is not special: one warp reads what the others left.

#define ALL 0xffffffffu
#define LANE (threadIdx.x % warpSize)
#define WARP (threadIdx.x / warpSize)
#define WARPS (blockDim.x / warpSize)

__device__ __forceinline__ float halves(float x) {
    // Lane l takes the value of lane l ^ 16, then of l ^ 8, ...
    for (unsigned int half = warpSize / 2; half != 0; half = half / 2)
        x = x + __shfl_sync(ALL, x, LANE ^ half);
    return x;
}

__device__ float of_the_block(float x) {
    __shared__ float kept[32];
    x = halves(x);
    if (LANE == WARP % 32) kept[WARP] = x;
    __syncthreads();
    if (WARP != 0) return 0.0f;
    x = LANE < WARPS ? kept[LANE] : 0.0f;
    return halves(x);
}

extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    const float *end = in + n;
    for (const float *p = in + blockIdx.x * blockDim.x + threadIdx.x; p < end;
         p += gridDim.x * blockDim.x) {
        float x = __ldg(p);
        atomicAdd(out, x);
    }
}

extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    __shared__ float s[1024];
    float *mine = s + threadIdx.x, *end = s + blockDim.x;
    const float *p = in + blockIdx.x * blockDim.x + threadIdx.x;
    *mine = p < in + n ? *p : 0.0f;
    for (int s2 = 2; s2 < 2 * (int)blockDim.x; s2 *= 2) {
        __syncthreads();
        if (threadIdx.x % s2) continue;
        float *partner = mine + s2 / 2;
        if (partner < end) *mine += *partner;
    }
    if (threadIdx.x == 0) atomicAdd(out, *mine);
}

extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    __shared__ float s[1024];
    const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0.0f;
    unsigned int workers = (blockDim.x + 1) / 2;
    for (unsigned int gap = 1; gap < blockDim.x; gap *= 2) {
        __syncthreads();
        if (threadIdx.x < workers) {
            float *left = &s[threadIdx.x * gap * 2];
            if (left + gap < s + blockDim.x) *left += left[gap];
        }
        workers = (workers + 1) / 2;
    }
    if (threadIdx.x == 0) atomicAdd(out, s[0]);
}

extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    __shared__ float s[1024];
    unsigned int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    float mine = i < n ? in[i] : 0.0f;
    s[tid] = mine;
    __syncthreads();
    unsigned int left = blockDim.x;
    do {
        const unsigned int upper = left - left / 2; // where the upper half begins
        if (tid < left / 2) s[tid] = mine = mine + s[tid + upper];
        __syncthreads();
        left = upper;
    } while (left > 1);
    if (tid == 0) atomicAdd(out, mine);
}

extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    const float *p = in + 2 * blockIdx.x * blockDim.x + threadIdx.x, *end = in + n;
    float sum = 0.0f;
    for (int k = 0; k < 2; k++, p += blockDim.x)
        if (p < end) sum += *p;
    sum = of_the_block(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    float sum = 0.0f;
    for (long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (long long)gridDim.x * blockDim.x)
        sum += in[i];
    sum = of_the_block(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    const float *end = in + n;
    const float *body = (const float *)(((size_t)in + 15) & ~(size_t)15);
    if (body > end) body = end;
    const float *rest = body + (end - body) / 4 * 4;
    const size_t me = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    const size_t all = gridDim.x * (size_t)blockDim.x;
    float a = 0.0f, b = 0.0f;
    for (const float4 *p = (const float4 *)body + me; p < (const float4 *)rest; p += all) {
        float4 v = __ldg(p);
        a += v.x + v.z;
        b += v.y + v.w;
    }
    // Head and tail together are at most six elements: the last threads of the grid take them.
    const size_t back = all - 1 - me, head = body - in;
    if (back < head) a += in[back];
    else if (back - head < (size_t)(end - rest)) b += rest[back - head];
    a = of_the_block(a + b);
    if (threadIdx.x == 0) atomicAdd(out, a);
}

// A whole number for each float that rises with it; a NaN has the highest of all.
__device__ unsigned int rank_of(float x) {
    if (x != x) return 0xffffffffu;
    int bits = __float_as_int(x);
    return bits < 0 ? ~(unsigned int)bits : (unsigned int)bits ^ 0x80000000u;
}

extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    __shared__ unsigned int kept[32];
    unsigned int best = 0;
    for (const float *p = in + threadIdx.x; p < in + n; p += blockDim.x)
        best = max(best, rank_of(*p));
    best = __reduce_max_sync(ALL, best);
    if (LANE == 0) kept[WARP] = best;
    __syncthreads();
    if (WARP == 0) {
        best = __reduce_max_sync(ALL, LANE < WARPS ? kept[LANE] : 0u);
        unsigned int bits = best & 0x80000000u ? best ^ 0x80000000u : ~best;
        if (best == 0xffffffffu) bits = 0x7fc00000u;
        if (LANE == 0) *out = __uint_as_float(bits);
    }
}

extern "C" __global__ void argmax(const float *in, int *out, int n) {
    __shared__ unsigned int ranks[32];
    __shared__ int places[32];
    unsigned int best = 0;
    int place = 0x7fffffff;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        unsigned int rank = rank_of(in[i] + 0.0f); // -0 + 0 is 0
        if (rank > best) best = rank, place = i;
    }
    // First the highest rank, then the lowest place among the lanes that have it.
    unsigned int highest = __reduce_max_sync(ALL, best);
    place = __reduce_min_sync(ALL, best == highest ? place : 0x7fffffff);
    if (LANE == 0) ranks[WARP] = highest, places[WARP] = place;
    __syncthreads();
    if (WARP == 0) {
        best = LANE < WARPS ? ranks[LANE] : 0u;
        place = LANE < WARPS ? places[LANE] : 0x7fffffff;
        highest = __reduce_max_sync(ALL, best);
        place = __reduce_min_sync(ALL, best == highest ? place : 0x7fffffff);
        if (LANE == 0) *out = place;
    }
}

extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    float sums[2] = {0.0f, 0.0f};
    int turn = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sums[turn ^= 1] += in[i];
    float sum = of_the_block(sums[0] + sums[1]);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Neumaier's sum: the larger of the two keeps its digits.
__device__ void put(float x, float *sum, float *lost) {
    float all = *sum + x;
    *lost += fabsf(*sum) >= fabsf(x) ? (*sum - all) + x : (x - all) + *sum;
    *sum = all;
}

extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    __shared__ float sums[1024], rests[1024];
    float sum = 0.0f, lost = 0.0f;
    for (const float *p = in + threadIdx.x; p < in + n; p += blockDim.x) put(*p, &sum, &lost);
    sums[threadIdx.x] = sum;
    rests[threadIdx.x] = lost;
    __syncthreads();
    if (threadIdx.x) return;
    for (unsigned int t = 1; t < blockDim.x; t++) {
        put(sums[t], &sum, &lost);
        lost += rests[t];
    }
    *out = sum + lost;
}

struct Part {
    float count, mean, m2;
};

__device__ Part joined(Part a, Part b) {
    if (a.count == 0.0f) return b;
    if (b.count == 0.0f) return a;
    Part both;
    both.count = a.count + b.count;
    float delta = b.mean - a.mean;
    both.mean = (a.count * a.mean + b.count * b.mean) / both.count;
    both.m2 = a.m2 + b.m2 + delta * delta / both.count * a.count * b.count;
    return both;
}

extern "C" __global__ void welford(const float *in, float *out, int n) {
    __shared__ Part parts[32];
    Part mine = {0.0f, 0.0f, 0.0f};
    for (const float *p = in + threadIdx.x; p < in + n; p += blockDim.x) {
        mine.count += 1.0f;
        float delta = *p - mine.mean;
        mine.mean += delta / mine.count;
        mine.m2 = fmaf(delta, delta * ((mine.count - 1.0f) / mine.count), mine.m2);
    }
    for (int by = 1; by < 32; by *= 2) {
        Part other;
        other.count = __shfl_xor_sync(ALL, mine.count, by);
        other.mean = __shfl_xor_sync(ALL, mine.mean, by);
        other.m2 = __shfl_xor_sync(ALL, mine.m2, by);
        mine = LANE & by ? joined(other, mine) : joined(mine, other);
    }
    if (LANE == 0) parts[WARP] = mine;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < WARPS; w++) mine = joined(mine, parts[w]);
        out[0] = mine.mean;
        out[1] = mine.m2;
    }
}
