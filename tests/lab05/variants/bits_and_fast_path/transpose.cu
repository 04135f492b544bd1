// Lab 05 with a fast path: a whole tile needs no guard, one at the edge has it.

constexpr int SIDE = 32, STEP = 8, TURNS = SIDE / STEP;

struct Place {
    int x, y; // of the block's first element
    bool whole;
    __device__ Place(int w, int h) : x(SIDE * blockIdx.x), y(SIDE * blockIdx.y) {
        whole = x + SIDE <= w && y + SIDE <= h;
    }
};

template <typename Body> __device__ inline void each_row(Body body) {
    for (int turn = 0; turn < TURNS; ++turn) body((int)threadIdx.y + STEP * turn);
}

extern "C" __global__ void transpose_naive(const float *in, float *out, int w, int h) {
    const Place at(w, h);
    const int x = at.x + threadIdx.x;
    if (at.whole)
        each_row([&](int j) { out[x * h + at.y + j] = in[(at.y + j) * w + x]; });
    else
        each_row([&](int j) {
            if (x < w && at.y + j < h) out[x * h + at.y + j] = in[(at.y + j) * w + x];
        });
}

template <typename Word>
__device__ void turned(float *tile, Word word, const float *in, float *out, int w, int h) {
    const Place at(w, h);
    const int lane = threadIdx.x;
    if (at.whole) {
        each_row([&](int j) { tile[word(j, lane)] = in[(at.y + j) * w + at.x + lane]; });
        __syncthreads();
        each_row([&](int j) { out[(at.x + j) * h + at.y + lane] = tile[word(lane, j)]; });
        return;
    }
    each_row([&](int j) {
        if (at.y + j < h && at.x + lane < w) tile[word(j, lane)] = in[(at.y + j) * w + at.x + lane];
    });
    __syncthreads();
    each_row([&](int j) {
        if (at.x + j < w && at.y + lane < h) out[(at.x + j) * h + at.y + lane] = tile[word(lane, j)];
    });
}

extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    __shared__ float tile[SIDE * SIDE];
    turned(tile, [](int row, int col) { return SIDE * row + col; }, in, out, w, h);
}

extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    __shared__ float tile[SIDE * (SIDE + 1)];
    turned(tile, [](int row, int col) { return (SIDE + 1) * row + col; }, in, out, w, h);
}

__device__ int swizzle(int row, int col);

extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    __shared__ float tile[SIDE * SIDE];
    turned(tile, [](int row, int col) { return SIDE * row + swizzle(row, col); }, in, out, w, h);
}

// The row's bits, last to first.
__device__ int swizzle(int row, int col) {
    return col ^ (int)(__brev((unsigned)row) >> 27);
}

extern "C" __global__ void swizzle_map(int *columns) {
    for (int row = threadIdx.y; row < 32; row += 8)
        columns[row * 32 + threadIdx.x] = swizzle(row, threadIdx.x);
}

// Single floats go in, turned; whole chunks come out.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    __shared__ __align__(16) float tile[SIDE * SIDE];
    const Place at(w, h);
    const int t = threadIdx.y * SIDE + threadIdx.x, chunk = t & 7, line = t >> 3;
    if (at.y + line < h && at.x + 4 * chunk < w) {
        const float4 got = *(const float4 *)(in + (at.y + line) * w + at.x + 4 * chunk);
        const int place = 4 * (line / 4 ^ chunk) + line % 4; // of column `line` in rows of `out`
        float *rows = tile + 4 * chunk * SIDE + place;
        rows[0] = got.x, rows[SIDE] = got.y, rows[2 * SIDE] = got.z, rows[3 * SIDE] = got.w;
    }
    __syncthreads();
    if (at.x + line < w && at.y + 4 * chunk < h)
        *(float4 *)(out + (at.x + line) * h + at.y + 4 * chunk) =
            *(const float4 *)(tile + line * SIDE + 4 * (chunk ^ line / 4));
}
