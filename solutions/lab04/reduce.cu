// Lab 04: one sum, seven times, each time rid of what slowed the last one down; then two reductions
// that are no sums, and three that care for the last bits.
//
// A file of kernels, `extern "C" __global__`: no #include, no host code. The same bytes run on a
// GPU and on your laptop, where every request to memory is counted. Functions of your own are
// welcome; write __device__ in front of them.
//
// What every kernel may rely on:
//   in      n floats, n >= 1, only to be read, and each of them once. Every warp of a block reads,
//           where there are elements enough.
//   launch  one-dimensional. blockDim.x is a multiple of 32, from 32 to 1024, and need not be a
//           power of two (96 is a block size, too). Each kernel says how many blocks it gets.
//   memory  the launch gives blockDim.x floats of dynamic shared memory (twice as much to
//           `argmax`), `extern __shared__ float sdata[];`. Static shared arrays are just as good.
//   barrier every thread of the block reaches every __syncthreads(). This is stricter than a GPU
//           since Volta, which waits only for the threads that have not returned.
//   out     out[0] is 0 before a kernel that adds to it. What a kernel writes held rubbish before.
//
// "Request": what one warp asks of memory by one instruction. "Sector": 32 bytes of global memory.
// "Coalesced": neighbouring threads read neighbouring elements, so 32 floats are 4 sectors.

// Adds in[0] + ... + in[n - 1] to out[0], every element by an atomicAdd of its own.
//
// Any number of blocks: gridDim.x * blockDim.x may be less than n, or more. Coalesced.
// Atomics: n.
extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_atomic
    unsigned int stride = gridDim.x * blockDim.x;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        atomicAdd(out, in[i]);
    // END SOLUTION
}

// Adds in[0] + ... + in[n - 1] to out[0]: a tree in shared memory, one atomicAdd a block.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: steps s = 1, 2, 4, ... below blockDim.x. In step s the threads whose tid is a multiple
// of 2 * s add sdata[tid + s], where that exists, to sdata[tid]. sdata[0] ends as the sum of the
// block.
// Atomics: one a block.
extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_interleaved
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0 && tid + s < blockDim.x) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
    // END SOLUTION
}

// Adds in[0] + ... + in[n - 1] to out[0]: the same tree, done by the first threads of the block.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: the same pairs in the same steps as in `reduce_interleaved`; but the pair that begins
// at 2 * s * k is added by thread k, so that the threads at work stand side by side.
// Atomics: one a block. Bank conflicts: what this order costs, and the test wants to see them.
extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_strided
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned int s = 1; s < blockDim.x; s *= 2) {
        unsigned int index = 2 * s * tid;
        if (index + s < blockDim.x) sdata[index] += sdata[index + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
    // END SOLUTION
}

// Adds in[0] + ... + in[n - 1] to out[0]: a tree whose threads AND addresses stand side by side.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: of the values that are left the upper half is added to the lower half, thread tid
// adding one value to sdata[tid]; until one is left, which is the sum of the block. From an odd
// number, one value has no partner and stays.
// Atomics: one a block. Bank conflicts: none.
extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_sequential
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (unsigned int left = blockDim.x, s; left > 1; left = s) {
        s = (left + 1) / 2;
        if (tid + s < left) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
    // END SOLUTION
}

// Adds in[0] + ... + in[n - 1] to out[0] with half the blocks: a thread adds two elements,
// blockDim.x apart, before the tree begins.
//
// gridDim.x = ceil(n / (2 * blockDim.x)). Loads of 4 bytes, coalesced: 4 sectors a request.
// The tree: as in `reduce_sequential`, or better. Atomics: one a block. Bank conflicts: none.
// Shared memory: at most 60 requests by a block of 256 threads (45 do).
extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_first_add
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * (2 * blockDim.x) + tid;
    float sum = 0.0f;
    if (i < n) sum = in[i];
    if (i + blockDim.x < n) sum += in[i + blockDim.x];
    sdata[tid] = sum;
    __syncthreads();
    for (unsigned int left = blockDim.x, s; left > 1; left = s) {
        s = (left + 1) / 2;
        if (tid + s < left) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
    // END SOLUTION
}

// Adds in[0] + ... + in[n - 1] to out[0] through registers: lanes of a warp exchange their sums by
// shuffles, and only the warps' results go through shared memory.
//
// Any number of blocks: a thread adds up elements gridDim.x * blockDim.x apart. Coalesced.
// Atomics: one a block. Barriers: at most 2 a block. Shared memory: at most blockDim.x / 32 + 1
// requests a block, that is, a write by each warp and a read by one.
extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_warp
    __shared__ float warp_sums[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned int stride = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (lane == 0) atomicAdd(out, sum);
    }
    // END SOLUTION
}

// Adds in[0] + ... + in[n - 1] to out[0], four floats a load.
//
// Any number of blocks. `in` is a multiple of 4 bytes and NOT always of 16, which a float4 needs:
// up to 3 elements at the front and up to 3 at the end are read one by one, all others by 16-byte
// loads, coalesced (16 sectors a request).
// Atomics: one a block.
extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_vec4
    __shared__ float warp_sums[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned int first = blockIdx.x * blockDim.x + threadIdx.x, stride = gridDim.x * blockDim.x;
    unsigned int head = min((unsigned int)(16 - (size_t)in % 16) % 16 / 4, (unsigned int)n);
    unsigned int quads = (n - head) / 4, tail = head + 4 * quads;
    const float4 *body = (const float4 *)(in + head);
    float sum = 0.0f;
    if (first < head) sum += in[first];
    for (unsigned int i = first; i < quads; i += stride) {
        float4 four = body[i];
        sum += (four.x + four.y) + (four.z + four.w);
    }
    if (tail + first < n) sum += in[tail + first];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (lane == 0) atomicAdd(out, sum);
    }
    // END SOLUTION
}

// Writes the largest of in[0], ..., in[n - 1] to out[0].
//
// gridDim.x = 1; n may be larger or smaller than the block. Coalesced.
// A NaN among the elements is the result (max() and fmaxf() of CUDA prefer the number). -inf is
// made of the bits 0xff800000 by __int_as_float.
extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_max
    __shared__ float warp_best[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const float lowest = __int_as_float(0xff800000);
    // Of two values the larger, or the one that is no number.
    auto larger = [](float a, float b) { return a > b || a != a ? a : b; };
    float best = lowest;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) best = larger(best, in[i]);
    for (int offset = 16; offset > 0; offset /= 2)
        best = larger(best, __shfl_down_sync(0xffffffff, best, offset));
    if (lane == 0) warp_best[warp] = best;
    __syncthreads();
    if (warp == 0) {
        best = lane < blockDim.x / 32 ? warp_best[lane] : lowest;
        for (int offset = 16; offset > 0; offset /= 2)
            best = larger(best, __shfl_down_sync(0xffffffff, best, offset));
        if (lane == 0) out[0] = best;
    }
    // END SOLUTION
}

// Writes the index of the largest of in[0], ..., in[n - 1] to out[0].
//
// gridDim.x = 1; n may be larger or smaller than the block. Coalesced.
// Of equal values the lowest index wins; a NaN beats every number, the first one all others.
extern "C" __global__ void argmax(const float *in, int *out, int n) {
    // BEGIN SOLUTION argmax
    __shared__ float warp_best[32];
    __shared__ int warp_where[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Whether b at j comes before a at i.
    auto wins = [](float b, int j, float a, int i) {
        bool b_nan = b != b, a_nan = a != a;
        if (b_nan != a_nan) return b_nan;
        return b > a || (!(a > b) && j < i);
    };
    float best = __int_as_float(0xff800000);
    int where = n; // no element yet: any index beats it
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) {
        float x = in[i];
        if (wins(x, i, best, where)) best = x, where = i;
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        float x = __shfl_down_sync(0xffffffff, best, offset);
        int i = __shfl_down_sync(0xffffffff, where, offset);
        if (wins(x, i, best, where)) best = x, where = i;
    }
    if (lane == 0) warp_best[warp] = best, warp_where[warp] = where;
    __syncthreads();
    if (warp == 0) {
        bool used = lane < blockDim.x / 32;
        best = used ? warp_best[lane] : __int_as_float(0xff800000);
        where = used ? warp_where[lane] : n;
        for (int offset = 16; offset > 0; offset /= 2) {
            float x = __shfl_down_sync(0xffffffff, best, offset);
            int i = __shfl_down_sync(0xffffffff, where, offset);
            if (wins(x, i, best, where)) best = x, where = i;
        }
        if (lane == 0) out[0] = where;
    }
    // END SOLUTION
}

// Writes to partial[b] the sum of what block b adds up; no atomics, and the same bits every time.
//
// Launched twice: any number of blocks on the input, n elements; then ONE block on the gridDim.x
// partial sums of the first launch, which leaves the sum of all in the first element. Both read
// coalesced. Which elements a block takes is your choice, but the order of additions depends on n,
// gridDim.x and blockDim.x alone. No atomics, neither in global nor in shared memory.
extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    // BEGIN SOLUTION reduce_two_pass
    __shared__ float warp_sums[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned int stride = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) sum += in[i];
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, offset);
    if (lane == 0) warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? warp_sums[lane] : 0.0f;
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (lane == 0) partial[blockIdx.x] = sum;
    }
    // END SOLUTION
}

// Writes in[0] + ... + in[n - 1] to out[0], with an error of at most 8 * eps * sum |x|, whatever n
// and however small or large the elements are; eps = 2^-23. In float arithmetic: no double (1.0 is one, 1.0f is a float).
//
// gridDim.x = 1. Coalesced.
extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    // BEGIN SOLUTION reduce_kahan
    __shared__ float warp_sums[32], warp_rests[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Adds x to sum + rest; rest is what did not fit into sum.
    auto add = [](float &sum, float &rest, float x) {
        float y = x + rest;
        float t = sum + y;
        rest = y - (t - sum);
        sum = t;
    };
    float sum = 0.0f, rest = 0.0f;
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) add(sum, rest, in[i]);
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_down_sync(0xffffffff, sum, offset);
        float other_rest = __shfl_down_sync(0xffffffff, rest, offset);
        add(sum, rest, other);
        add(sum, rest, other_rest);
    }
    if (lane == 0) warp_sums[warp] = sum, warp_rests[warp] = rest;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x / 32; ++w) {
            add(sum, rest, warp_sums[w]);
            add(sum, rest, warp_rests[w]);
        }
        out[0] = sum + rest;
    }
    // END SOLUTION
}

// Writes to out[0] the mean of the n elements and to out[1] their sum of squared deviations from
// it, M2 (variance = M2 / n), also where the mean is 10,000 times the standard deviation, and for
// n up to 2^20. In float arithmetic: no double (1.0 is one, 1.0f is a float).
//
// gridDim.x = 1. Coalesced. Parts are merged as Chan, Golub and LeVeque did, and not by sums of x and
// of x^2.
extern "C" __global__ void welford(const float *in, float *out, int n) {
    // BEGIN SOLUTION welford
    __shared__ float counts[32], means[32], squares[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float count = 0.0f, mean = 0.0f, m2 = 0.0f;
    // Adds the part (count_b, mean_b, m2_b) to this thread's; either may be empty.
    auto merge = [&](float count_b, float mean_b, float m2_b) {
        if (count_b == 0.0f) return;
        float all = count + count_b, delta = mean_b - mean;
        mean += delta * (count_b / all);
        m2 += m2_b + delta * delta * (count * (count_b / all));
        count = all;
    };
    for (unsigned int i = threadIdx.x; i < n; i += blockDim.x) merge(1.0f, in[i], 0.0f);
    for (int offset = 16; offset > 0; offset /= 2) {
        float count_b = __shfl_down_sync(0xffffffff, count, offset);
        float mean_b = __shfl_down_sync(0xffffffff, mean, offset);
        float m2_b = __shfl_down_sync(0xffffffff, m2, offset);
        merge(count_b, mean_b, m2_b);
    }
    if (lane == 0) counts[warp] = count, means[warp] = mean, squares[warp] = m2;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned int w = 1; w < blockDim.x / 32; ++w) merge(counts[w], means[w], squares[w]);
        out[0] = mean;
        out[1] = m2;
    }
    // END SOLUTION
}
