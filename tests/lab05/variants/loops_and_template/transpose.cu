// Lab 05 with one template for all tiles; each thread moves four neighbouring rows.

struct Plain {
    static constexpr int pitch = 32;
    static __device__ int place(int row, int col) { return pitch * row + col; }
};
struct Padded {
    static constexpr int pitch = 33;
    static __device__ int place(int row, int col) { return pitch * row + col; }
};

__device__ int swizzle(int row, int col) { return col ^ (row * 5 % 32); }

struct Swizzled {
    static constexpr int pitch = 32;
    static __device__ int place(int row, int col) { return pitch * row + swizzle(row, col); }
};

template <typename Layout>
__device__ void through(float *tile, const float *in, float *out, int w, int h) {
    const int x0 = 32 * blockIdx.x, y0 = 32 * blockIdx.y;
    const int lane = threadIdx.x, four = 4 * threadIdx.y;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (x0 + lane >= w || y0 + four + k >= h) continue;
        tile[Layout::place(four + k, lane)] = in[(y0 + four + k) * w + x0 + lane];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (y0 + lane >= h || x0 + four + k >= w) continue;
        out[(x0 + four + k) * h + y0 + lane] = tile[Layout::place(lane, four + k)];
    }
}

extern "C" __global__ void transpose_naive(const float *__restrict__ in,
                                           float *__restrict__ out, int w, int h) {
    for (int k = 0; k < 4; ++k) {
        const int x = 32 * blockIdx.x + threadIdx.x, y = 32 * blockIdx.y + 4 * threadIdx.y + k;
        if (x >= w || y >= h) continue;
        const float value = in[y * w + x];
        out[x * h + y] = value;
    }
}

extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    __shared__ float tile[32 * Plain::pitch];
    through<Plain>(tile, in, out, w, h);
}

extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    __shared__ float tile[32 * Padded::pitch];
    through<Padded>(tile, in, out, w, h);
}

extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    __shared__ float tile[32 * Swizzled::pitch];
    through<Swizzled>(tile, in, out, w, h);
}

extern "C" __global__ void swizzle_map(int *columns) {
    for (int row = threadIdx.y; row < 32; row += 8)
        columns[row * 32 + threadIdx.x] = swizzle(row, threadIdx.x);
}

// Single floats go in, 16 bytes come out; 16 bytes of padding follow every fourth row.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    __shared__ __align__(16) float tile[32 * 32 + 8 * 4];
    const int t = threadIdx.x + 32 * threadIdx.y, line = t >> 3, chunk = t & 7;
    const int x = 32 * blockIdx.x + 4 * chunk, y = 32 * blockIdx.y + line;
    if (x < w && y < h) {
        const float4 got = *(const float4 *)&in[y * w + x];
        const float parts[4] = {got.x, got.y, got.z, got.w};
        for (int k = 0; k < 4; ++k) {
            const int row = 4 * chunk + k;
            tile[32 * row + 4 * (row / 4) + line] = parts[k];
        }
    }
    __syncthreads();
    const int column = 32 * blockIdx.y + 4 * chunk, row = 32 * blockIdx.x + line;
    if (column < h && row < w)
        *(float4 *)&out[row * h + column] =
            *(const float4 *)&tile[32 * line + 4 * (line / 4) + 4 * chunk];
}
