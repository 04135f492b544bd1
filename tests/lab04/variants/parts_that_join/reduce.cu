// Another correct reduce.cu: what is reduced is a part that knows how to take in another one.
// Shuffles move its words, and thread 0 goes through what the warps left.

struct Sum {
    float value;
};

struct Exact {  // Neumaier: the value is sum + rest
    float sum, rest;
};

struct Best {
    float value;
    int place;
};

struct Moments {
    float count, mean, m2;
};

__device__ void join(Sum &mine, Sum other) { mine.value += other.value; }

__device__ void join(Exact &mine, Exact other) {
    float both = mine.sum + other.sum;
    bool larger = fabsf(mine.sum) >= fabsf(other.sum);
    float lost = larger ? (mine.sum - both) + other.sum : (other.sum - both) + mine.sum;
    mine = {both, mine.rest + (lost + other.rest)};
}

__device__ void join(Best &mine, Best other) {
    bool nan = isnan(mine.value), nan_there = isnan(other.value);
    bool takes = other.place < mine.place;
    if (nan != nan_there) takes = nan_there;
    else if (!nan && mine.value != other.value) takes = other.value > mine.value;
    if (takes) mine = other;
}

__device__ void join(Moments &mine, Moments other) {
    if (!(other.count > 0.0f)) return;
    float count = mine.count + other.count, share = other.count / count;
    float apart = other.mean - mine.mean;
    mine.m2 += other.m2 + apart * apart * (mine.count * share);
    mine.mean += apart * share;
    mine.count = count;
}

template <typename Part>
__device__ Part from_lane(Part part, int by) {
    union {
        Part part;
        int words[sizeof(Part) / sizeof(int)];
    } box;
    box.part = part;
    for (int &word : box.words) word = __shfl_down_sync(0xffffffffu, word, by);
    return box.part;
}

template <typename Part>
__device__ void join_lanes(Part &part) {
    for (int by = 16; by > 0; by >>= 1) join(part, from_lane(part, by));
}

// The block's part, in thread 0.
template <typename Part>
__device__ void join_block(Part &part, Part *room) {
    join_lanes(part);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = part;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int warp = 1; warp < blockDim.x / 32; ++warp) join(part, room[warp]);
}

extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    long long all = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    while (i < n) {
        atomicAdd(out, in[i]);
        i += all;
    }
}

extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    __shared__ float values[1024];
    unsigned int tid = threadIdx.x, i = tid + blockDim.x * blockIdx.x;
    values[tid] = 0.0f;
    if (i < n) values[tid] = in[i];
    __syncthreads();
    for (unsigned int bit = 0; (1u << bit) < blockDim.x; ++bit) {
        unsigned int partner = tid | (1u << bit);
        bool turn = (tid & ((2u << bit) - 1)) == 0;
        if (turn && partner < blockDim.x) values[tid] += values[partner];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, values[0]);
}

extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    __shared__ float values[1024];
    unsigned int tid = threadIdx.x, i = tid + blockDim.x * blockIdx.x;
    values[tid] = i < n ? in[i] : 0.0f;
    for (unsigned int s = 1; s < blockDim.x; s += s) {
        unsigned int pairs = (blockDim.x + s - 1) / (2 * s);
        __syncthreads();
        if (tid < pairs) values[2 * s * tid] += values[2 * s * tid + s];
    }
    if (tid == 0) atomicAdd(out, values[0]);
}

extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    __shared__ float values[1024];
    unsigned int tid = threadIdx.x, i = tid + blockDim.x * blockIdx.x, left = blockDim.x;
    values[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    while (left > 1) {
        unsigned int go = left / 2;
        left -= go;
        if (tid < go) values[tid] += values[tid + left];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, values[0]);
}

extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    __shared__ Sum room[32];
    unsigned int first = 2 * blockDim.x * blockIdx.x + threadIdx.x;
    Sum sum = {0.0f};
    for (unsigned int i = first; i < first + 2 * blockDim.x; i += blockDim.x)
        if (i < n) join(sum, Sum{in[i]});
    join_block(sum, room);
    if (threadIdx.x == 0) atomicAdd(out, sum.value);
}

extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    __shared__ float room[32];
    Sum sum = {0.0f};
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        join(sum, Sum{in[i]});
    join_lanes(sum);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = sum.value;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = {threadIdx.x * 32 < blockDim.x ? room[threadIdx.x] : 0.0f};
    join_lanes(sum);
    if (threadIdx.x == 0) atomicAdd(out, sum.value);
}

extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    __shared__ Sum room[32];
    const float *end = in + n;
    const float *body = (const float *)(((size_t)in + 15) / 16 * 16);
    if (body > end) body = end;
    const float *tail = body + (end - body) / 4 * 4;
    unsigned int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    Sum sum = {0.0f};
    for (const float *at = in + thread; at < body; at += threads) join(sum, Sum{*at});
    for (const float *at = body + 4 * thread; at < tail; at += 4 * threads) {
        float4 four = *(const float4 *)at;
        sum.value += four.x + four.w;
        sum.value += four.y + four.z;
    }
    for (const float *at = tail + thread; at < end; at += threads) join(sum, Sum{*at});
    join_block(sum, room);
    if (threadIdx.x == 0) atomicAdd(out, sum.value);
}

__device__ Best best_of(const float *in, int n, Best *room) {
    Best best = {__int_as_float(0xff800000), 0x7fffffff};
    for (int i = threadIdx.x; i < n; i += blockDim.x) join(best, Best{in[i], i});
    join_block(best, room);
    return best;
}

extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    __shared__ Best room[32];
    Best best = best_of(in, n, room);
    if (threadIdx.x == 0) *out = best.value;
}

extern "C" __global__ void argmax(const float *in, int *out, int n) {
    __shared__ Best room[32];
    Best best = best_of(in, n, room);
    if (threadIdx.x == 0) *out = best.place;
}

extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    __shared__ Sum room[32];
    Sum sum = {0.0f};
    // Each block takes a piece of its own, whole rounds of the block, one after the other.
    int rounds = (n + blockDim.x - 1) / blockDim.x;
    int each = (rounds + gridDim.x - 1) / gridDim.x;
    for (int round = each * blockIdx.x; round < each * (blockIdx.x + 1); ++round) {
        long long i = (long long)round * blockDim.x + threadIdx.x;
        if (i < n) join(sum, Sum{in[i]});
    }
    join_block(sum, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum.value;
}

extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    __shared__ Exact room[32];
    Exact exact = {0.0f, 0.0f};
    for (int i = threadIdx.x; i < n; i += blockDim.x) join(exact, Exact{in[i], 0.0f});
    join_block(exact, room);
    if (threadIdx.x == 0) *out = exact.sum + exact.rest;
}

extern "C" __global__ void welford(const float *in, float *out, int n) {
    __shared__ Moments room[32];
    Moments moments = {0.0f, 0.0f, 0.0f};
    for (int i = threadIdx.x; i < n; i += blockDim.x) join(moments, Moments{1.0f, in[i], 0.0f});
    join_block(moments, room);
    if (threadIdx.x == 0) {
        out[0] = moments.mean;
        out[1] = moments.m2;
    }
}
