// Lab 05: one matrix transpose, four times.
//
// `in` is a matrix of h rows and w columns, `out` its transpose, w rows and h columns, both row
// after row: out[x * h + y] = in[y * w + x]. Any w and h from 1 on; w need not equal h, and
// neither need be a multiple of 32. Every element of `out` is written, nothing else is.
//
// Launch: blocks of 32 x 8 threads (threadIdx.x 0 to 31, threadIdx.y 0 to 7), a grid of ceil(w /
// 32) x ceil(h / 32) blocks. Block (bx, by) owns the tile of `in` with columns from 32 bx and
// rows from 32 by: 1,024 elements for 256 threads, so each thread handles four. A warp is one
// threadIdx.y.
//
// In each kernel every element of `in` is read once and every element of `out` written once, one
// float a lane at a time (no float4). Shared memory is declared in the kernel: the launch gives
// none. Where w and h are multiples of 32 the counters are compared with what the comments say;
// the values are compared everywhere.
//
// The file is compiled as it stands for a CPU with counters, and for a GPU: no #include, no main,
// kernels are extern "C" __global__, helpers __device__.

constexpr int TILE = 32; // rows and columns of a tile
constexpr int ROWS = 8;  // rows of threads in a block

// --- 5 -------------------------------------------------------------------------------------------

// Without shared memory. The lanes of a warp take neighbouring x, so each read of `in` touches 4
// sectors (128 bytes in a row), and each write of `out` 32: one for every lane.
extern "C" __global__ void transpose_naive(const float *in, float *out, int w, int h) {
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            out[(size_t)x * h + y] = in[(size_t)y * w + x];
    }
}

// --- 6 -------------------------------------------------------------------------------------------

// Through a tile of 32 x 32 floats in shared memory (4,096 bytes, no padding, element (row, col)
// at word 32 row + col). Each read of `in` and each write of `out` touches 4 sectors. One side of
// the tile goes by rows (1 wavefront a request), the other by columns: a 32-way conflict, 32
// wavefronts. It belongs here: the next two kernels remove it.
extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    __shared__ float flat[TILE][TILE];
    int tx = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int ty = blockIdx.y * TILE + j;
        if (tx < w && ty < h)
            flat[j][threadIdx.x] = in[(size_t)ty * w + tx];
    }
    __syncthreads();
    int tcol = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int trow = blockIdx.x * TILE + j;
        if (tcol < h && trow < w)
            out[(size_t)trow * h + tcol] = flat[threadIdx.x][j];
    }
}

// --- 7 -------------------------------------------------------------------------------------------

// As transpose_tiled, with rows of the tile that are longer than they need to be. Every access to
// shared memory takes 1 wavefront, and the tile at most 4,224 bytes.
extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    __shared__ float padded[TILE][TILE + 1];
    int px = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int py = blockIdx.y * TILE + j;
        if (px < w && py < h)
            padded[j][threadIdx.x] = in[(size_t)py * w + px];
    }
    __syncthreads();
    int pcol = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int prow = blockIdx.x * TILE + j;
        if (pcol < h && prow < w)
            out[(size_t)prow * h + pcol] = padded[threadIdx.x][j];
    }
}

// --- 8 -------------------------------------------------------------------------------------------

// The column, 0 to 31, at which a swizzled tile keeps its element (row, col); 0 <= row, col < 32.
// Within each row a permutation (no two elements in one place), and down each column of elements
// 32 different banks. Any such function will do.
__device__ int swizzle(int row, int col) {
    return row ^ col;
}

// As transpose_tiled, with element (row, col) of the tile at word 32 row + swizzle(row, col).
// Every access to shared memory takes 1 wavefront, and the tile exactly 4,096 bytes: no padding.
extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    __shared__ float mixed[TILE][TILE];
    int sx = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int sy = blockIdx.y * TILE + j;
        if (sx < w && sy < h)
            mixed[j][swizzle(j, threadIdx.x)] = in[(size_t)sy * w + sx];
    }
    __syncthreads();
    int scol = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int srow = blockIdx.x * TILE + j;
        if (scol < h && srow < w)
            out[(size_t)srow * h + scol] = mixed[threadIdx.x][swizzle(threadIdx.x, j)];
    }
}

// Given: writes swizzle(row, col) to columns[32 row + col], for the tests. One block of 32 x 8
// threads.
extern "C" __global__ void swizzle_map(int *columns) {
    for (int row = threadIdx.y; row < TILE; row += ROWS)
        columns[row * TILE + threadIdx.x] = swizzle(row, threadIdx.x);
}

// --- 10 ------------------------------------------------------------------------------------------

// As before, four floats a lane: w and h are multiples of 4, and `in` and `out` begin at multiples
// of 16 bytes. Each read of `in` and each write of `out` is of 16 bytes a lane, 16 sectors a
// request where tiles are whole. The tile has at most 4,224 bytes; one side of it (the writes or
// the reads) goes 16 bytes a lane in 4 wavefronts a request, the other side by single floats in 1.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    // TODO(lab05.transpose_vec4): A transpose of four floats a lane
    // NOT STARTED lab05.transpose_vec4
}
