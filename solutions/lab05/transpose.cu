// Lab 05: one matrix transpose, four times.
//
// `in` is a matrix of h rows and w columns, `out` its transpose, w rows and h columns, both row
// after row: row y, column x of `in` is row x, column y of `out`. Any w and h from 1 on, equal or
// not, multiples of 32 or not. Every element of `out` is written, nothing else is.
//
// Launch: blocks of 32 x 8 threads (threadIdx.x 0 to 31, threadIdx.y 0 to 7), a grid of ceil(w /
// 32) x ceil(h / 32) blocks. Block (bx, by) owns the tile of `in` with columns from 32 bx and
// rows from 32 by: 1,024 elements for 256 threads, four each if all of them share. A warp is one
// threadIdx.y. Blocks run in any order, and so do their warps until they meet at a barrier.
//
// In each kernel every element of `in` is read once and every element of `out` written once, one
// float a lane at a time (no float4), at a ragged edge too. Shared memory is declared in the
// kernel: the launch gives none. Values, and how often elements are read and written, are compared
// for all w and h; sectors and wavefronts where both are multiples of 32.
//
// Every thread of the block reaches every __syncthreads(). This is stricter than a GPU since Volta,
// which waits only for the threads that have not returned.
//
// The file is compiled as it stands for a CPU with counters, and for a GPU: no #include, no main,
// kernels are extern "C" __global__, helpers __device__.

constexpr int TILE = 32; // rows and columns of a tile
constexpr int ROWS = 8;  // rows of threads in a block

// --- 5 -------------------------------------------------------------------------------------------

// Without shared memory. The lanes of a warp take neighbouring x, so each read of `in` touches 4
// sectors (128 bytes in a row), and each write of `out` 32: one for every lane.
extern "C" __global__ void transpose_naive(const float *in, float *out, int w, int h) {
    // BEGIN SOLUTION transpose_naive
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            out[x * h + y] = in[y * w + x];
    }
    // END SOLUTION
}

// --- 6 -------------------------------------------------------------------------------------------

// Through a tile of 32 x 32 floats in shared memory (4,096 bytes, no padding, element (row, col)
// at word 32 row + col; its rows are those of `in` or those of `out`). Each read of `in` and each
// write of `out` touches 4 sectors. One side of the tile goes by rows (1 wavefront a request), the
// other by columns: a 32-way conflict, 32 wavefronts. The next two kernels remove it, not this one.
extern "C" __global__ void transpose_tiled(const float *in, float *out, int w, int h) {
    // BEGIN SOLUTION transpose_tiled
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            tile[j][threadIdx.x] = in[y * w + x];
    }
    __syncthreads();
    int column = blockIdx.y * TILE + threadIdx.x; // of `out`
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.x * TILE + j; // of `out`
        if (column < h && row < w)
            out[row * h + column] = tile[threadIdx.x][j];
    }
    // END SOLUTION
}

// --- 7 -------------------------------------------------------------------------------------------

// As transpose_tiled, with rows of the tile that are longer than they need to be: 33 words each,
// element (row, col) at word 33 row + col. Every access to shared memory takes 1 wavefront, and the
// tile at most 4,224 bytes.
extern "C" __global__ void transpose_padded(const float *in, float *out, int w, int h) {
    // BEGIN SOLUTION transpose_padded
    __shared__ float tile[TILE][TILE + 1]; // 33 words on, the next row begins one bank further
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            tile[j][threadIdx.x] = in[y * w + x];
    }
    __syncthreads();
    int column = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.x * TILE + j;
        if (column < h && row < w)
            out[row * h + column] = tile[threadIdx.x][j];
    }
    // END SOLUTION
}

// --- 8 -------------------------------------------------------------------------------------------

// The column, 0 to 31, at which a swizzled tile keeps its element (row, col); 0 <= row, col < 32.
// Within each row a permutation (no two elements in one place), and down each column of elements
// 32 different banks. Any such function will do.
__device__ int swizzle(int row, int col) {
    // BEGIN SOLUTION transpose_swizzled
    return row ^ col;
    // END SOLUTION
}

// As transpose_tiled, with element (row, col) of the tile at word 32 row + swizzle(row, col).
// Every access to shared memory takes 1 wavefront, and the tile exactly 4,096 bytes: no padding.
// Where the kernel puts and looks for elements is compared with swizzle(): call it there.
extern "C" __global__ void transpose_swizzled(const float *in, float *out, int w, int h) {
    // BEGIN SOLUTION transpose_swizzled
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int y = blockIdx.y * TILE + j;
        if (x < w && y < h)
            tile[j][swizzle(j, threadIdx.x)] = in[y * w + x];
    }
    __syncthreads();
    int column = blockIdx.y * TILE + threadIdx.x;
    for (int j = threadIdx.y; j < TILE; j += ROWS) {
        int row = blockIdx.x * TILE + j;
        if (column < h && row < w)
            out[row * h + column] = tile[threadIdx.x][swizzle(threadIdx.x, j)];
    }
    // END SOLUTION
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
// the reads) goes 16 bytes a lane in 4 wavefronts a request, the other side by single floats in 1,
// or 16 bytes a lane as well.
extern "C" __global__ void transpose_vec4(const float *in, float *out, int w, int h) {
    // BEGIN SOLUTION transpose_vec4
    __shared__ __align__(16) float tile[TILE * TILE];
    int thread = threadIdx.y * TILE + threadIdx.x;
    int line = thread / 8, chunk = thread % 8; // a line of the tile has eight chunks of 16 bytes
    int x = blockIdx.x * TILE + 4 * chunk, y = blockIdx.y * TILE + line;
    if (x < w && y < h) {
        // Four rows share a place for each chunk: the eight chunks of a column are in 32 banks.
        int place = chunk ^ (line / 4);
        float4 *to = reinterpret_cast<float4 *>(tile + line * TILE + 4 * place);
        to[0] = reinterpret_cast<const float4 *>(in + y * w + x)[0];
    }
    __syncthreads();
    int column = blockIdx.y * TILE + 4 * chunk, row = blockIdx.x * TILE + line; // of `out`
    if (column < h && row < w) {
        float four[4];
        for (int k = 0; k < 4; ++k)
            four[k] = tile[(4 * chunk + k) * TILE + 4 * (line / 4 ^ chunk) + line % 4];
        float4 *to = reinterpret_cast<float4 *>(out + row * h + column);
        to[0] = make_float4(four[0], four[1], four[2], four[3]);
    }
    // END SOLUTION
}
