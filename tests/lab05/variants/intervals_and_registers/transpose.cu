// Lab 05 by way of registers: four floats are loaded before the first of them is stored. The tile
// of the third kernel is as small as it can be, and that of the fourth is reflected.

#define FOUR(k) for (int k = 0; k < 4; ++k)

extern "C" __global__ void __launch_bounds__(256)
    transpose_naive(const float *__restrict__ in, float *__restrict__ out, int w, int h) {
    float held[4];
    const long long x = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long y = 32LL * blockIdx.y + threadIdx.y;
    FOUR(k) if (x < w && y + 8 * k < h) held[k] = __ldg(in + (y + 8 * k) * w + x);
    FOUR(k) if (x < w && y + 8 * k < h) out[x * h + y + 8 * k] = held[k];
}

__device__ void load(float *held, const float *in, int w, int h) {
    const int x = 32 * blockIdx.x + threadIdx.x, y = 32 * blockIdx.y + threadIdx.y;
    FOUR(k) {
        held[k] = 0.0f;
        if (y + 8 * k < h && x < w) held[k] = in[(size_t)(y + 8 * k) * w + x];
    }
}

__device__ void store(const float *held, float *out, int w, int h) {
    const int y = 32 * blockIdx.y + threadIdx.x, x = 32 * blockIdx.x + threadIdx.y;
    FOUR(k) if (y < h && x + 8 * k < w) out[(size_t)(x + 8 * k) * h + y] = held[k];
}

extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    __shared__ float tile[32][32];
    float held[4];
    load(held, in, w, h);
    FOUR(k) tile[threadIdx.y + 8 * k][threadIdx.x] = held[k];
    __syncthreads();
    FOUR(k) held[k] = tile[threadIdx.x][threadIdx.y + 8 * k];
    store(held, out, w, h);
}

extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    __shared__ float tile[31 * 33 + 32]; // nothing follows the last row
    float held[4];
    load(held, in, w, h);
    FOUR(k) tile[33 * (threadIdx.y + 8 * k) + threadIdx.x] = held[k];
    __syncthreads();
    FOUR(k) held[k] = tile[33 * threadIdx.x + threadIdx.y + 8 * k];
    store(held, out, w, h);
}

__device__ __forceinline__ int swizzle(const int row, const int col) { return row - col & 31; }

extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    __shared__ float tile[32 * 32];
    float held[4];
    load(held, in, w, h);
    FOUR(k) {
        const int row = threadIdx.y + 8 * k;
        tile[32 * row + swizzle(row, threadIdx.x)] = held[k];
    }
    __syncthreads();
    FOUR(k) held[k] = tile[32 * threadIdx.x + swizzle(threadIdx.x, threadIdx.y + 8 * k)];
    store(held, out, w, h);
}

extern "C" __global__ void swizzle_map(int *columns) {
    for (int row = threadIdx.y; row < 32; row += 8)
        columns[row * 32 + threadIdx.x] = swizzle(row, threadIdx.x);
}

// Chunks go in as they are; single floats come out of eight rows whose chunks are turned.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    __shared__ float4 tile[32][8];
    const int t = 32 * threadIdx.y + threadIdx.x, line = t / 8, chunk = t % 8;
    const int x = 32 * blockIdx.x + 4 * chunk, y = 32 * blockIdx.y + line;
    float4 held = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (x < w && y < h) held = reinterpret_cast<const float4 *>(in + (size_t)y * w)[x / 4];
    tile[line][(chunk + line / 4) % 8] = held;
    __syncthreads();
    const int column = 32 * blockIdx.y + 4 * chunk, row = 32 * blockIdx.x + line;
    if (column >= h || row >= w) return;
    const float *words = &tile[0][0].x;
    float four[4];
    FOUR(k) four[k] = words[32 * (4 * chunk + k) + 4 * ((line / 4 + chunk) % 8) + line % 4];
    reinterpret_cast<float4 *>(out + (size_t)row * h)[column / 4] =
        make_float4(four[0], four[1], four[2], four[3]);
}
