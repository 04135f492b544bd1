// Lab 04: one sum, seven times, each time rid of what slowed the last one down; then two reductions
// that are no sums, and three that care for the last bits.
//
// A file of kernels, `extern "C" __global__`: no #include, no host code. The same bytes run on a
// GPU and on your laptop, where every request to memory is counted. Functions of your own are
// welcome; write __device__ in front of them.
//
// What every kernel may rely on:
//   in      n floats, n >= 1, only to be read, and each of them once.
//   launch  one-dimensional. blockDim.x is a multiple of 32, from 32 to 1024, and need not be a
//           power of two (96 is a block size, too). Each kernel says how many blocks it gets.
//   memory  the launch gives blockDim.x floats of dynamic shared memory (twice as much to
//           `argmax`), `extern __shared__ float sdata[];`. Static shared arrays are just as good.
//   out     out[0] is 0 before a kernel that adds to it. What a kernel writes held rubbish before.
//
// "Request": what one warp asks of memory by one instruction. "Sector": 32 bytes of global memory.
// "Coalesced": neighbouring threads read neighbouring elements, so 32 floats are 4 sectors.

// Adds in[0] + ... + in[n - 1] to out[0], every element by an atomicAdd of its own.
//
// Any number of blocks: gridDim.x * blockDim.x may be less than n, or more. Coalesced.
// Atomics: n.
extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    // TODO(lab04.reduce_atomic): One atomic an element
    // NOT STARTED lab04.reduce_atomic
}

// Adds in[0] + ... + in[n - 1] to out[0]: a tree in shared memory, one atomicAdd a block.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: steps s = 1, 2, 4, ... below blockDim.x. In step s the threads whose tid is a multiple
// of 2 * s add sdata[tid + s], where that exists, to sdata[tid]. sdata[0] ends as the sum of the
// block.
// Atomics: one a block.
extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0 && tid + s < blockDim.x)
            sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        atomicAdd(out, sdata[0]);
}

// Adds in[0] + ... + in[n - 1] to out[0]: the same tree, done by the first threads of the block.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: the same pairs in the same steps as in `reduce_interleaved`; but the pair that begins
// at 2 * s * k is added by thread k, so that the threads at work stand side by side.
// Atomics: one a block. Bank conflicts: what this order costs, and the test wants to see them.
extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    unsigned int at = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + at;
    sdata[at] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        unsigned int left = 2 * s * at;
        if (left + s < blockDim.x)
            sdata[left] += sdata[left + s];
        __syncthreads();
    }
    if (at == 0)
        atomicAdd(out, sdata[0]);
}

// Adds in[0] + ... + in[n - 1] to out[0]: a tree whose threads AND addresses stand side by side.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: of the values that are left the upper half is added to the lower half, thread tid
// adding one value to sdata[tid]; until one is left, which is the sum of the block. From an odd
// number, one value has no partner and stays.
// Atomics: one a block. Bank conflicts: none.
extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    unsigned int me = threadIdx.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + me;
    sdata[me] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned int left = blockDim.x; left > 1;) {
        unsigned int half = (left + 1) / 2;
        if (me + half < left)
            sdata[me] += sdata[me + half];
        __syncthreads();
        left = half;
    }
    if (me == 0)
        atomicAdd(out, sdata[0]);
}

// Adds in[0] + ... + in[n - 1] to out[0] with half the blocks: a thread adds two elements,
// blockDim.x apart, before the tree begins.
//
// gridDim.x = ceil(n / (2 * blockDim.x)). Loads of 4 bytes, coalesced: 4 sectors a request.
// The tree: as in `reduce_sequential`, or better. Atomics: one a block. Bank conflicts: none.
// Shared memory: at most 60 requests by a block of 256 threads (45 do).
extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    // TODO(lab04.reduce_first_add): Add before the tree begins
    // NOT STARTED lab04.reduce_first_add
}

// Adds in[0] + ... + in[n - 1] to out[0] through registers: lanes of a warp exchange their sums by
// shuffles, and only the warps' results go through shared memory.
//
// Any number of blocks: a thread adds up elements gridDim.x * blockDim.x apart. Coalesced.
// Atomics: one a block. Barriers: at most 2 a block. Shared memory: at most blockDim.x / 32 + 1
// requests a block, that is, a write by each warp and a read by one.
extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    __shared__ float warp_sums[32];
    int lane = threadIdx.x % 32;
    int warp = threadIdx.x / 32;
    float sum = 0.0f;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0)
        warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;
        for (int step = 16; step > 0; step /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, step);
        if (lane == 0)
            atomicAdd(out, sum);
    }
}

// Adds in[0] + ... + in[n - 1] to out[0], four floats a load.
//
// Any number of blocks. `in` is a multiple of 4 bytes and NOT always of 16, which a float4 needs:
// up to 3 elements at the front and up to 3 at the end are read one by one, all others by 16-byte
// loads, coalesced (16 sectors a request).
// Atomics: one a block.
extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    __shared__ float sums[32];
    unsigned int first = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned int threads = gridDim.x * blockDim.x;
    unsigned int head = min((unsigned int)(16 - (size_t)in % 16) % 16 / 4, (unsigned int)n);
    unsigned int fours = (n - head) / 4;
    unsigned int tail = head + 4 * fours;
    const float4 *body = (const float4 *)(in + head);
    float total = 0.0f;
    for (unsigned int i = first; i < fours; i += threads) {
        float4 four = body[i];
        total += (four.x + four.y) + (four.z + four.w);
    }
    if (first < head)
        total += in[first];
    if (first < n - tail)
        total += in[tail + first];
    for (int offset = 16; offset > 0; offset /= 2)
        total += __shfl_down_sync(0xffffffff, total, offset);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = threadIdx.x < blockDim.x / 32 ? sums[threadIdx.x] : 0.0f;
        for (int step = 16; step > 0; step /= 2)
            total += __shfl_down_sync(0xffffffff, total, step);
        if (threadIdx.x == 0)
            atomicAdd(out, total);
    }
}

// Writes the largest of in[0], ..., in[n - 1] to out[0].
//
// gridDim.x = 1; n may be larger or smaller than the block. Coalesced.
// A NaN among the elements is the result (max() and fmaxf() of CUDA prefer the number). -inf is
// __int_as_float(0xff800000).
extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    __shared__ float tops[32];
    float top = __int_as_float(0xff800000);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float x = in[i];
        if (x > top || x != x)
            top = x;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_down_sync(0xffffffff, top, offset);
        if (other > top || other != other)
            top = other;
    }
    if (threadIdx.x % 32 == 0)
        tops[threadIdx.x / 32] = top;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / 32; w++)
            if (tops[w] > top || tops[w] != tops[w])
                top = tops[w];
        out[0] = top;
    }
}

// Writes the index of the largest of in[0], ..., in[n - 1] to out[0].
//
// gridDim.x = 1; n may be larger or smaller than the block. Coalesced.
// Of equal values the lowest index wins; a NaN beats every number, the first one all others.
extern "C" __global__ void argmax(const float *in, int *out, int n) {
    extern __shared__ float values[];
    __shared__ int places[1024];
    float best = __int_as_float(0xff800000);
    int where = 0x7fffffff;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float x = in[i];
        bool nan = x != x;
        bool had = best != best;
        if (where == 0x7fffffff || (nan && !had) || (!had && x > best)) {
            best = x;
            where = i;
        }
    }
    values[threadIdx.x] = best;
    places[threadIdx.x] = where;
    __syncthreads();
    for (unsigned int left = blockDim.x; left > 1;) {
        unsigned int half = (left + 1) / 2;
        if (threadIdx.x + half < left) {
            float x = values[threadIdx.x + half];
            int at = places[threadIdx.x + half];
            float mine = values[threadIdx.x];
            bool nan = x != x;
            bool had = mine != mine;
            bool same = (nan && had) || x == mine;
            if ((nan && !had) || (!had && x > mine) || (same && at < places[threadIdx.x])) {
                values[threadIdx.x] = x;
                places[threadIdx.x] = at;
            }
        }
        __syncthreads();
        left = half;
    }
    if (threadIdx.x == 0)
        out[0] = places[0];
}

// Writes to partial[b] the sum of what block b adds up; no atomics, and the same bits every time.
//
// Launched twice: any number of blocks on the input, n elements, coalesced; then ONE block on the
// gridDim.x partial sums of the first launch, which leaves the sum of all in the first element.
// Which elements a block takes is your choice, but the order of additions depends on n, gridDim.x
// and blockDim.x alone. No atomics, neither in global nor in shared memory.
extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    // TODO(lab04.reduce_two_pass): The same bits every time
    // NOT STARTED lab04.reduce_two_pass
}

// Writes in[0] + ... + in[n - 1] to out[0], with an error of at most 8 * eps * sum |x|, whatever n
// is; eps = 2^-23. In float arithmetic: no double.
//
// gridDim.x = 1. Coalesced.
extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    // TODO(lab04.reduce_kahan): A sum that keeps what was cut off
    // NOT STARTED lab04.reduce_kahan
}

// Writes to out[0] the mean of the n elements and to out[1] their sum of squared deviations from
// it, M2 (variance = M2 / n), also where the mean is 10,000 times the standard deviation. In float
// arithmetic: no double.
//
// gridDim.x = 1. Coalesced. Parts are merged as Chan, Golub and LeVeque did: with
// delta = mean_b - mean_a and n = n_a + n_b,
//   mean = mean_a + delta * n_b / n,   M2 = M2_a + M2_b + delta^2 * n_a * n_b / n.
extern "C" __global__ void welford(const float *in, float *out, int n) {
    // TODO(lab04.welford): Mean and spread in one pass
    // NOT STARTED lab04.welford
}
