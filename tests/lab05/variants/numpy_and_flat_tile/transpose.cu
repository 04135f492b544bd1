// Lab 05 with flat tiles: columns go in and rows come out, and the swizzle is a rotation.

extern "C" __global__ void transpose_naive(const float *in, float *out, int w, int h) {
    unsigned x = blockIdx.x * 32u + threadIdx.x;
    if (x >= (unsigned)w) return;
    unsigned y = blockIdx.y * 32u + threadIdx.y;
    const float *from = in + (size_t)y * w + x;
    float *to = out + (size_t)x * h + y;
    for (unsigned step = 0; step < 32 && y + step < (unsigned)h; step += 8)
        to[step] = from[(size_t)step * w];
}

extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    __shared__ float tile[1024];
    const int left = blockIdx.x * 32, top = blockIdx.y * 32;
    for (int k = 0; k < 4; ++k) {
        const int r = threadIdx.y + 8 * k, c = threadIdx.x;
        if (left + c < w && top + r < h) tile[32 * c + r] = in[(top + r) * w + left + c];
    }
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        const int r = threadIdx.x, c = threadIdx.y + 8 * k;
        if (left + c < w && top + r < h) out[(left + c) * h + top + r] = tile[32 * c + r];
    }
}

extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    __shared__ float tile[32 * 33];
    const int left = blockIdx.x * 32, top = blockIdx.y * 32;
    for (int k = 0; k < 4; ++k) {
        const int r = threadIdx.y + 8 * k, c = threadIdx.x;
        if (left + c < w && top + r < h) tile[33 * c + r] = in[(top + r) * w + left + c];
    }
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        const int r = threadIdx.x, c = threadIdx.y + 8 * k;
        if (left + c < w && top + r < h) out[(left + c) * h + top + r] = tile[33 * c + r];
    }
}

__device__ int swizzle(int row, int col) { return (row + col) & 31; }

extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    __shared__ float tile[1024];
    const int left = blockIdx.x * 32, top = blockIdx.y * 32;
    for (int k = 0; k < 4; ++k) {
        const int r = threadIdx.y + 8 * k, c = threadIdx.x;
        if (left + c < w && top + r < h)
            tile[32 * r + swizzle(r, c)] = in[(top + r) * w + left + c];
    }
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
        const int r = threadIdx.x, c = threadIdx.y + 8 * k;
        if (left + c < w && top + r < h)
            out[(left + c) * h + top + r] = tile[32 * r + swizzle(r, c)];
    }
}

extern "C" __global__ void swizzle_map(int *columns) {
    for (int row = threadIdx.y; row < 32; row += 8)
        columns[row * 32 + threadIdx.x] = swizzle(row, threadIdx.x);
}

// 64 threads turn 4 x 4 floats each in registers, and both sides of the tile go 16 bytes a lane.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    __shared__ __align__(16) float words[1024];
    float4 *tile = (float4 *)words;
    const int t = threadIdx.x + 32 * threadIdx.y, i = t / 8, j = t % 8;
    const int left = 32 * blockIdx.x, top = 32 * blockIdx.y;
    if (t < 64 && left + 4 * j < w && top + 4 * i < h) {
        const float4 *from = (const float4 *)(in + (top + 4 * i) * w + left + 4 * j);
        const float4 a = from[0], b = from[w / 4], c = from[w / 2], d = from[3 * w / 4];
        tile[8 * (4 * j) + (i ^ j)] = make_float4(a.x, b.x, c.x, d.x);
        tile[8 * (4 * j + 1) + (i ^ j)] = make_float4(a.y, b.y, c.y, d.y);
        tile[8 * (4 * j + 2) + (i ^ j)] = make_float4(a.z, b.z, c.z, d.z);
        tile[8 * (4 * j + 3) + (i ^ j)] = make_float4(a.w, b.w, c.w, d.w);
    }
    __syncthreads();
    const int line = t / 8, chunk = t % 8;
    if (left + line < w && top + 4 * chunk < h)
        *(float4 *)(out + (left + line) * h + top + 4 * chunk) = tile[8 * line + (chunk ^ line / 4)];
}
