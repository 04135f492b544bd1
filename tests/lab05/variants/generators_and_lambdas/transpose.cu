// Lab 05 with one index that runs over the tile: element e = thread, thread + 256, ...

__device__ int row_of(int e) { return e >> 5; }
__device__ int col_of(int e) { return e & 31; }
__device__ int first() { return threadIdx.y * blockDim.x + threadIdx.x; }

struct Matrix {
    float *at;
    int rows, cols;
    __device__ bool has(int r, int c) const { return (unsigned)r < rows && (unsigned)c < cols; }
    __device__ float &operator()(int r, int c) const { return at[(long long)r * cols + c]; }
};

extern "C" __global__ void transpose_naive(const float *in, float *out, int w, int h) {
    const Matrix to{out, w, h};
    for (int e = first(); e < 1024; e += 256) {
        const int y = 32 * blockIdx.y + row_of(e), x = 32 * blockIdx.x + col_of(e);
        if (to.has(x, y)) to(x, y) = in[(long long)y * w + x];
    }
}

extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    __shared__ float turned[32][32]; // row x of it is row x of `out`
    const Matrix to{out, w, h};
    for (int e = first(); e < 1024; e += 256) {
        const int y = 32 * blockIdx.y + row_of(e), x = 32 * blockIdx.x + col_of(e);
        if (x < w && y < h) turned[col_of(e)][row_of(e)] = in[(long long)y * w + x];
    }
    __syncthreads();
    for (int e = first(); e < 1024; e += 256) {
        const int x = 32 * blockIdx.x + row_of(e), y = 32 * blockIdx.y + col_of(e);
        if (to.has(x, y)) to(x, y) = turned[row_of(e)][col_of(e)];
    }
}

extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    struct Row {
        float element[32], unused;
    };
    __shared__ Row turned[32];
    const Matrix to{out, w, h};
    for (int e = first(); e < 1024; e += 256) {
        const int y = 32 * blockIdx.y + row_of(e), x = 32 * blockIdx.x + col_of(e);
        if (x < w && y < h) turned[col_of(e)].element[row_of(e)] = in[(long long)y * w + x];
    }
    __syncthreads();
    for (int e = first(); e < 1024; e += 256) {
        const int x = 32 * blockIdx.x + row_of(e), y = 32 * blockIdx.y + col_of(e);
        if (to.has(x, y)) to(x, y) = turned[row_of(e)].element[col_of(e)];
    }
}

__device__ int swizzle(int row, int col) {
    const int turns[4] = {0, 11, 22, 33}; // an odd number of places for each row
    return (col + 44 * (row / 4) + turns[row % 4]) % 32;
}

extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    __shared__ float turned[32][32];
    const Matrix to{out, w, h};
    for (int e = first(); e < 1024; e += 256) {
        const int row = row_of(e), col = col_of(e);
        const int y = 32 * blockIdx.y + row, x = 32 * blockIdx.x + col;
        if (x < w && y < h) turned[col][swizzle(col, row)] = in[(long long)y * w + x];
    }
    __syncthreads();
    for (int e = first(); e < 1024; e += 256) {
        const int row = row_of(e), col = col_of(e);
        if (to.has(32 * blockIdx.x + row, 32 * blockIdx.y + col))
            to(32 * blockIdx.x + row, 32 * blockIdx.y + col) = turned[row][swizzle(row, col)];
    }
}

extern "C" __global__ void swizzle_map(int *columns) {
    for (int row = threadIdx.y; row < 32; row += 8)
        columns[row * 32 + threadIdx.x] = swizzle(row, threadIdx.x);
}

// Both sides of the tile in chunks: four shuffles of a 4 x 4 piece between neighbouring lanes.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    __shared__ float4 tile[32][8];
    const int t = first(), chunk = t / 4 % 8, line = t / 32 * 4 + t % 4;
    const int x = 32 * blockIdx.x + 4 * chunk, y = 32 * blockIdx.y + line;
    float4 got = {0.0f, 0.0f, 0.0f, 0.0f};
    if (x < w && y < h) got = *(const float4 *)&in[(long long)y * w + x];
    // Lanes 4 i to 4 i + 3 hold four rows of four columns; each becomes a column of four rows.
    const int me = t % 4;
    float mine[4] = {got.x, got.y, got.z, got.w}, theirs[4];
    for (int step = 0; step < 4; ++step) {
        const int other = me ^ step;
        theirs[other] = __shfl_xor_sync(0xffffffffu, mine[other], step);
    }
    const int column = 4 * chunk + me;
    tile[column][(line / 4 + column) % 8] =
        make_float4(theirs[0], theirs[1], theirs[2], theirs[3]);
    __syncthreads();
    const int row = t / 8, piece = t % 8;
    const int to = 32 * blockIdx.x + row, from = 32 * blockIdx.y + 4 * piece;
    if (to < w && from < h)
        *(float4 *)&out[(long long)to * h + from] = tile[row][(piece + row) % 8];
}
