// Another correct reduce.cu: the input walked from its end, mirrored pairs, every sum through one
// device function, whole trees in shared memory for the two maxima.

__device__ bool is_nan(float x) { return (__float_as_uint(x) & 0x7fffffffu) > 0x7f800000u; }

// The block's sum, valid in thread 0; `room` holds a float for each warp.
__device__ float block_sum(float mine, float *room) {
    int warps = blockDim.x / 32;
    mine += __shfl_down_sync(0xffffffffu, mine, 16);
    mine += __shfl_down_sync(0xffffffffu, mine, 8);
    mine += __shfl_down_sync(0xffffffffu, mine, 4);
    mine += __shfl_down_sync(0xffffffffu, mine, 2);
    mine += __shfl_down_sync(0xffffffffu, mine, 1);
    if (warps == 1) return mine;
    if (threadIdx.x % 32 == 31 - 31) room[threadIdx.x / 32] = mine;
    __syncthreads();
    float other = 0.0f;
    if (threadIdx.x < warps) other = room[threadIdx.x];
    if (threadIdx.x < 32)
        for (int by = 1; by < 32; by = by * 2) other += __shfl_xor_sync(0xffffffffu, other, by);
    __syncthreads();
    return other;
}

extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    int threads = gridDim.x * blockDim.x;
    int rounds = (n + threads - 1) / threads;
    for (int round = rounds - 1; round >= 0; --round) {
        int i = round * threads + blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) atomicAdd(out, in[i]);
    }
}

extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    int tid = threadIdx.x, size = blockDim.x;
    int i = blockIdx.x * size + tid;
    sdata[tid] = 0.0f;
    if (i < n) sdata[tid] = in[i];
    for (int s = 1; s < size; s = s + s) {
        __syncthreads();
        if (tid % (2 * s)) continue;
        if (tid + s >= size) continue;
        float partner = sdata[tid + s];
        float own = sdata[tid];
        sdata[tid] = own + partner;
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
}

extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    int size = blockDim.x;
    float *mine = sdata + threadIdx.x;
    int i = (gridDim.x - 1 - blockIdx.x) * size + threadIdx.x;
    *mine = i < n ? in[i] : 0.0f;
    for (int span = 2; span < 2 * size; span *= 2) {
        __syncthreads();
        int pairs = (size - span / 2 + span - 1) / span;
        if (threadIdx.x < pairs) {
            float *pair = sdata + span * threadIdx.x;
            pair[0] += pair[span / 2];
        }
    }
    if (threadIdx.x == 0) atomicAdd(out, *sdata);
}

extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    int tid = threadIdx.x, left = blockDim.x;
    int i = (gridDim.x - 1 - blockIdx.x) * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    // The first with the last, the second with the last but one: a middle one stays.
    do {
        int mirror = left - 1 - tid;
        if (tid < mirror) sdata[tid] += sdata[mirror];
        left -= left / 2;
        __syncthreads();
    } while (left > 1);
    if (tid == 0) atomicAdd(out, sdata[0]);
}

extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    int tid = threadIdx.x, left = blockDim.x;
    float sum = 0.0f;
    // From the far element to the near one, both one grid apart.
    int grid = gridDim.x * blockDim.x;
    for (int i = (2 * gridDim.x - 1 - blockIdx.x) * blockDim.x + tid; i >= 0; i -= grid)
        if (i < n) sum += in[i];
    sdata[tid] = sum;
    __syncthreads();
    while (left > 1) {
        int half = left / 2, rest = left - half;
        if (tid < half) sdata[tid] += sdata[rest + tid];
        left = rest;
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, sdata[0]);
}

extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    extern __shared__ float room[];
    int threads = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int i = first + (n - 1) / threads * threads; i >= first; i -= threads)
        if (i < n) sum += in[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    extern __shared__ float room[];
    int me = (gridDim.x - 1 - blockIdx.x) * blockDim.x + threadIdx.x;
    int threads = gridDim.x * blockDim.x;
    int past = (int)((unsigned long long)in / 4 % 4);
    int head = past ? 4 - past : 0;
    if (head > n) head = n;
    int quads = (n - head) / 4;
    const float4 *wide = reinterpret_cast<const float4 *>(in + head);
    float sum = 0.0f;
    for (int k = quads - 1 - me; k >= 0; k -= threads) {
        float4 v = wide[k];
        sum += v.w + v.z + v.y + v.x;
    }
    for (int i = me; i < head; i += threads) sum += in[i];
    for (int i = head + 4 * quads + me; i < n; i += threads) sum += in[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) atomicAdd(out, sum);
}

extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    int tid = threadIdx.x;
    float best = __int_as_float(0xff800000);
    for (int i = (n - 1) / (int)blockDim.x * blockDim.x + tid; i >= 0; i -= blockDim.x) {
        float x = i < n ? in[i] : best;
        best = is_nan(best) || is_nan(x) ? __int_as_float(0x7fc00000) : fmaxf(best, x);
    }
    sdata[tid] = best;
    __syncthreads();
    for (int left = blockDim.x; left > 1; left -= left / 2) {
        int rest = left - left / 2;
        if (tid + rest < left) {
            float x = sdata[tid + rest], mine = sdata[tid];
            sdata[tid] = is_nan(x) ? x : is_nan(mine) ? mine : max(x, mine);
        }
        __syncthreads();
    }
    if (tid == 0) *out = sdata[0];
}

extern "C" __global__ void argmax(const float *in, int *out, int n) {
    __shared__ float value[1024];
    __shared__ int place[1024];
    int tid = threadIdx.x;
    place[tid] = -1;
    for (int i = (n - 1) / (int)blockDim.x * blockDim.x + tid; i >= 0; i -= blockDim.x) {
        if (i >= n) continue;
        float x = in[i];
        // From the end to the front: an equal one that comes later has the lower index.
        if (place[tid] < 0 || is_nan(x) || (!is_nan(value[tid]) && x >= value[tid])) {
            value[tid] = x;
            place[tid] = i;
        }
    }
    __syncthreads();
    for (int left = blockDim.x; left > 1; left -= left / 2) {
        int rest = left - left / 2, other = tid + rest;
        if (other < left && place[other] >= 0) {
            bool take = place[tid] < 0;
            if (!take) {
                float a = value[tid], b = value[other];
                bool same = (is_nan(a) && is_nan(b)) || a == b;
                take = same ? place[other] < place[tid] : is_nan(b) || (!is_nan(a) && b > a);
            }
            if (take) value[tid] = value[other], place[tid] = place[other];
        }
        __syncthreads();
    }
    if (tid == 0) *out = place[0];
}

extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    extern __shared__ float room[];
    int threads = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int i = first + (n - 1) / threads * threads; i >= first; i -= threads)
        if (i < n) sum += in[i];
    sum = block_sum(sum, room);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// Neumaier's form: the rest is kept apart until the end.
__device__ void add_apart(float x, float &sum, float &rest) {
    float t = sum + x;
    rest += fabsf(sum) >= fabsf(x) ? (sum - t) + x : (x - t) + sum;
    sum = t;
}

extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    __shared__ float sums[1024], rests[1024];
    int tid = threadIdx.x;
    float sum = 0.0f, rest = 0.0f;
    for (int i = (n - 1) / (int)blockDim.x * blockDim.x + tid; i >= 0; i -= blockDim.x)
        if (i < n) add_apart(in[i], sum, rest);
    sums[tid] = sum, rests[tid] = rest;
    __syncthreads();
    for (int left = blockDim.x; left > 1; left -= left / 2) {
        int other = tid + left - left / 2;
        if (other < left) {
            add_apart(sums[other], sum, rest);
            rest += rests[other];
            sums[tid] = sum, rests[tid] = rest;
        }
        __syncthreads();
    }
    if (tid == 0) *out = sum + rest;
}

extern "C" __global__ void welford(const float *in, float *out, int n) {
    __shared__ float means[1024], squares[1024];
    __shared__ int counts[1024];
    int tid = threadIdx.x, count = 0;
    float mean = 0.0f, m2 = 0.0f;
    for (int i = (n - 1) / (int)blockDim.x * blockDim.x + tid; i >= 0; i -= blockDim.x)
        if (i < n) {
            float x = in[i], before = x - mean;
            ++count;
            mean += before / count;
            m2 += before * (x - mean);
        }
    counts[tid] = count, means[tid] = mean, squares[tid] = m2;
    __syncthreads();
    for (int left = blockDim.x; left > 1; left -= left / 2) {
        int other = tid + left - left / 2;
        if (other < left && counts[other] > 0) {
            float a = counts[tid], b = counts[other], delta = means[other] - means[tid];
            means[tid] = means[other] - delta * a / (a + b);
            squares[tid] += squares[other] + delta * delta / (a + b) * a * b;
            counts[tid] += counts[other];
        }
        __syncthreads();
    }
    if (tid == 0) out[0] = means[0], out[1] = squares[0];
}
