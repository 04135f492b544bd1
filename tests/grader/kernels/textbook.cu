// Textbook kernels. Their counts are computed twice, by two programs that share nothing.

// -- transpose: in has height rows of width elements, a block has 32 x 8 threads ------------------

extern "C" __global__ void transpose_naive(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = 0; j < 32; j += 8) {
        int y = blockIdx.y * 32 + threadIdx.y + j;
        if (x < width && y < height)
            out[x * height + y] =
                in[y * width + x];
    }
}

extern "C" __global__ void transpose_tiled(const float *in, float *out, int width, int height) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] =
                in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width)
            out[(y + j) * height + x] =
                tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void transpose_padded(const float *in, float *out, int width, int height) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] =
                in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width)
            out[(y + j) * height + x] =
                tile[threadIdx.x][threadIdx.y + j];
}

extern "C" __global__ void transpose_swizzled(const float *in, float *out, int width, int height) {
    __shared__ float tile[32][32];
    int x = blockIdx.x * 32 + threadIdx.x;
    int y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) {
        int row = threadIdx.y + j;
        if (x < width && y + j < height)
            tile[row][threadIdx.x ^ row] =
                in[(y + j) * width + x];
    }
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) {
        int column = threadIdx.y + j;
        if (x < height && y + j < width)
            out[(y + j) * height + x] =
                tile[threadIdx.x][column ^ threadIdx.x];
    }
}

// -- reduce: adds the n elements of x to out[0] ---------------------------------------------------

extern "C" __global__ void reduce_atomic(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, x[i]);
}

extern "C" __global__ void reduce_interleaved(const float *x, float *out, int n) {
    extern __shared__ float part[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        if (tid % (2 * s) == 0) part[tid] += part[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, part[0]);
}

extern "C" __global__ void reduce_strided(const float *x, float *out, int n) {
    extern __shared__ float part[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        int index = 2 * s * tid;
        if (index < blockDim.x) part[index] += part[index + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, part[0]);
}

extern "C" __global__ void reduce_sequential(const float *x, float *out, int n) {
    extern __shared__ float part[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) part[tid] += part[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, part[0]);
}

extern "C" __global__ void reduce_first_add(const float *x, float *out, int n) {
    extern __shared__ float part[];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x * 2 + threadIdx.x;
    float sum = i < n ? x[i] : 0.0f;
    if (i + blockDim.x < n) sum += x[i + blockDim.x];
    part[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) part[tid] += part[tid + s];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, part[0]);
}

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

extern "C" __global__ void reduce_shuffle(const float *x, float *out, int n) {
    __shared__ float part[32];
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        sum = warp_sum(sum);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

extern "C" __global__ void reduce_float4(const float *x, float *out, int n) {
    __shared__ float part[32];
    const float4 *x4 = reinterpret_cast<const float4 *>(x);
    int first = blockIdx.x * blockDim.x + threadIdx.x;
    int step = gridDim.x * blockDim.x;
    float sum = 0.0f;
    for (int i = first; i < n / 4; i += step) {
        float4 v = x4[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (int i = n / 4 * 4 + first; i < n; i += step)
        sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;
        sum = warp_sum(sum);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

// -- wider and narrower elements ------------------------------------------------------------------

extern "C" __global__ void reverse_doubles(double *x, int stride) {
    extern __shared__ double row[];
    int tid = threadIdx.x;
    row[tid * stride] = x[blockIdx.x * blockDim.x + tid];
    __syncthreads();
    x[blockIdx.x * blockDim.x + tid] = row[(blockDim.x - 1 - tid) * stride];
}

extern "C" __global__ void rotate_float4(float4 *x, int by, int stride) {
    extern __shared__ float4 quads[];
    int tid = threadIdx.x;
    quads[tid * stride] = x[blockIdx.x * blockDim.x + tid];
    __syncthreads();
    int from = (tid + by) % blockDim.x;
    x[blockIdx.x * blockDim.x + tid] = quads[from * stride];
}

extern "C" __global__ void stride_pairs(const float2 *x, float2 *out, int by) {
    __shared__ float2 pairs[96];
    __shared__ float4 quads[96];
    int tid = threadIdx.x;
    float2 pair = x[blockIdx.x * blockDim.x + tid];
    pairs[tid] = pair;
    quads[tid] = make_float4(pair.x, pair.y, pair.y, pair.x);
    __syncthreads();
    int from = tid * by % blockDim.x;
    float2 there = pairs[from];
    float4 four = quads[from];
    out[blockIdx.x * blockDim.x + tid] = make_float2(there.x - four.z, there.y + four.w);
}

extern "C" __global__ void narrow(const short *x, signed char *out, unsigned short *wide, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        short v = x[n - 1 - i];
        out[i] = (signed char)(v / 7);
        wide[i * 3] = (unsigned short)(v * 3);
    }
}

extern "C" __global__ void in_place(float *x, double *y, long long *z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        x[i] +=
            1.5f;
        y[n - 1 - i] *=
            0.5;
        z[i * 2 % n] -=
            i;
    }
}

// -- which lanes go where -------------------------------------------------------------------------

extern "C" __global__ void leave_early(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    while (v < 100.0f) {
        v = v + v;
        if (v > 50.0f && threadIdx.x % 3 == 0)
            break;
        if (v < 7.0f)
            continue;
        out[i] =
            v;
    }
    out[i] = v;
}

__device__ float pick(const float *x, int i, int n) {
    if (i < n / 2)
        return x[i];
    return x[n - i] * 2.0f;
}

extern "C" __global__ void call_from_two_sides(const float *x, float *out, int n) {
    int i = threadIdx.x;
    float v;
    if (i & 1)
        v = pick(x, i, n);
    else
        v = pick(x, n - 1 - i, n);
    out[i] = v;
}

extern "C" __global__ void fall_through(const float *x, float *out, int n) {
    int t = threadIdx.x;
    switch (t % 5) {
    case 0:
        out[t] = x[t];
        break;
    case 1:
        out[t] = x[t + 1];
    case 2:
        out[t + n] = x[2 * t];
        break;
    default:
        if (t > 20)
            out[t] = 3.0f;
        else
            out[t] = 4.0f;
    }
#pragma unroll 1
    do {
        out[t] += 1.0f;
        t += 40;
    } while (t < n);
}

extern "C" __global__ void triangle(const float *x, float *out, int n) {
    int row = threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < row; ++i)
#pragma unroll 1
        for (int j = i; j < row % 5 + 2; ++j)
            sum += x[i * n + j];
    out[row] = sum;
}

extern "C" __global__ void place(int *out, int n) {
    int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    int t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[block * n + t] = block * 1000 + t;
}

// -- what lanes and blocks tell each other --------------------------------------------------------

extern "C" __global__ void scan(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int lane = threadIdx.x % 32;
    int v = x[i];
    for (int d = 1; d < 32; d *= 2) {
        int left = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += left;
    }
    unsigned int odd = __ballot_sync(0xffffffffu, v & 1);
    out[i] = v + __popc(odd);
    int other = __shfl_xor_sync(0xffffffffu, v, 5, 8);
    int third = __shfl_sync(0xffffffffu, v, 3, 16);
    if (__any_sync(0xffffffffu, other > n))
        out[i] += other * third;
}

extern "C" __global__ void exchange(const int *by, int *out, int n, int width) {
    int value = threadIdx.x * 3 + 1;
    for (int k = 0; k < n; ++k) {
        int *row = out + k * 128 + threadIdx.x;
        row[0] = __shfl_sync(0xffffffffu, value, by[k], width);
        row[32] = __shfl_up_sync(0xffffffffu, value, by[k], width);
        row[64] = __shfl_down_sync(0xffffffffu, value, by[k], width);
        row[96] = __shfl_xor_sync(0xffffffffu, value, by[k], width);
    }
}

extern "C" __global__ void warp_tail(const float *x, float *out, int n) {
    __shared__ volatile float part[64];
    int t = threadIdx.x;
    part[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    if (t < 32) {
        part[t] = part[t] + part[t + 32];
        __syncwarp();
        for (int s = 16; s > 0; s /= 2) {
            float v = t < s ? part[t + s] : 0.0f;
            __syncwarp();
            part[t] = part[t] + v;
            __syncwarp();
        }
        if (t == 0) out[0] = part[0];
    }
}

extern "C" __global__ void last_block(const float *x, float *parts, unsigned int *ticket,
                                      float *out, int n) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = blockIdx.x; i < n; i += gridDim.x)
            sum += x[i];
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = 0; i < gridDim.x; ++i)
            sum += parts[i];
        *out = sum;
    }
}

extern "C" __global__ void shared_atomics(const int *x, int *out, float *total, int n) {
    __shared__ int best;
    __shared__ float sums[4];
    if (threadIdx.x == 0) best = -1;
    if (threadIdx.x < 4) sums[threadIdx.x] = 0.0f;
    __syncthreads();
    if (threadIdx.x < n) {
        atomicMax(&best, x[threadIdx.x]);
        atomicAdd(&sums[x[threadIdx.x + n] & 3], 0.25f);
    }
    __syncthreads();
    if (threadIdx.x == 0) out[0] = best;
    if (threadIdx.x < 4) total[threadIdx.x] = sums[threadIdx.x];
}

// -- arithmetic: one thread, one row --------------------------------------------------------------

extern "C" __global__ void integers(const int *x, const int *y, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int a = x[i], b = y[i];
    unsigned int u = a, v = b;
    int *row = out + i * 16;
    row[0] = a / b;
    row[1] = a % b;
    row[2] = u / v;
    row[3] = u % v;
    row[4] = a >> (b & 31);
    row[5] = u >> (v & 31);
    row[6] = a << (b & 31);
    row[7] = (u >> 5) & 0x3ff;
    row[8] = min(a, b) ^ max(u, v);
    row[9] = abs(a) + ~b;
    row[10] = __mulhi(a, b);
    row[11] = __umulhi(u, v);
    row[12] = __clz(a) * 64 + __popc(b);
    row[13] = __brev(u);
    row[14] = (int)((long long)a * b / (b | 1));
    row[15] = (a < b) + 2 * (u < v) + 4 * (a == b);
}

extern "C" __global__ void reals(const float *x, const float *y, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = x[i], b = y[i];
    float *row = out + i * 8;
    row[0] = a + b;
    row[1] = a * b;
    row[2] = fminf(a, b) - fmaxf(a, 1.0f);
    row[3] = (float)(int)a;
    row[4] = (float)((double)a * b + 1.0);
    row[5] = fabsf(a) > b ? -a : sqrtf(fabsf(b));
    row[6] = fmaf(a, b, 0.1f);
    row[7] = (float)(unsigned int)fabsf(b * 8.0f) + floorf(a);
}

// -- what the optimizer changes -------------------------------------------------------------------

extern "C" __global__ void histogram(const unsigned char *bytes, unsigned int *counts, int n) {
    __shared__ unsigned int local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        local[i] = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&local[bytes[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += blockDim.x)
        if (local[bin]) atomicAdd(&counts[bin], local[bin]);
}

extern "C" __global__ void both_sides(const int *x, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        if (i & 1)
            out[i] = x[i] * 3;
        else
            out[n + i] = x[i] / 5;
    }
}

extern "C" __global__ void choose_address(const int *x, int *out, int n) {
    int i = threadIdx.x;
    out[i] = i % 3 ? x[i * 2] : x[i * 3];
}

extern "C" __global__ void same_store(int *out, int n) {
    int i = threadIdx.x;
    if (i & 1)
        out[i] = n;
    else
        out[n - i] = -n;
}

extern "C" __global__ void triangle_unrolled(const float *x, float *out, int n) {
    int row = threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = 0; i < row; ++i)
#pragma unroll 4
        for (int j = i; j < row % 5 + 2; ++j)
            sum += x[i * n + j];
    out[row] = sum;
}

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[8][8];
    __shared__ float bs[8][9];
    int row = blockIdx.y * 8 + threadIdx.y;
    int column = blockIdx.x * 8 + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < n; t += 8) {
        int across = t + threadIdx.x, down = t + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < n && across < n ? a[row * n + across] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = column < n && down < n ? b[down * n + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 8; ++k)
            sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
        __syncthreads();
    }
    if (row < n && column < n) c[row * n + column] = sum;
}
