// What labs 04 and 05 leave to a GPU, beside their references: more bytes on the way, and whole
// 256-byte rows of `out`.
//
// Sums: LOADS loads of 16 bytes are on their way at once. Neither `i += stride` nor
// `#pragma unroll` does that: with an unsigned `i` that may wrap, the compiler tests after each
// load whether there is another one. `in` begins at a multiple of 16 bytes, n is a multiple of 4.
template <int LOADS> __device__ void add_up(const float *in, float *out, int n) {
    __shared__ float warp_sums[32];
    unsigned int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned int stride = gridDim.x * blockDim.x, quads = n / 4;
    const float4 *body = reinterpret_cast<const float4 *>(in);
    float sum = 0.0f;
    for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += LOADS * stride) {
        float4 four[LOADS];
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) {
            unsigned int at = i + k * stride;
            four[k] = at < quads ? __ldcs(body + at) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        #pragma unroll
        for (int k = 0; k < LOADS; ++k) sum += (four[k].x + four[k].y) + (four[k].z + four[k].w);
    }
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
}

extern "C" __global__ void sum_2_loads(const float *in, float *out, int n) { add_up<2>(in, out, n); }
extern "C" __global__ void sum_4_loads(const float *in, float *out, int n) { add_up<4>(in, out, n); }
extern "C" __global__ void sum_8_loads(const float *in, float *out, int n) { add_up<8>(in, out, n); }

// Transposes: tiles of 64 x 64, four floats a lane, loads and stores that are not kept in a cache.
// w and h are multiples of 64. A grid of (w / 64) * (h / 64) blocks in one dimension.
//
// Element (row, col) of the tile is at word 64 row + 4 (col / 4 ^ row / 4) + col % 4: a row's
// chunks and a column's are both in all 32 banks.
constexpr int SIDE = 64, CHUNKS = SIDE / 4;

template <int THREADS, bool SQUARES>
__device__ void transpose(const float *in, float *out, int w, int h) {
    __shared__ __align__(16) float tile[SIDE * SIDE];
    int across = w / SIDE, down = h / SIDE, bx, by;
    if (SQUARES && across % 8 == 0 && down % 8 == 0) { // squares of 8 x 8 tiles, one after another
        int square = blockIdx.x / 64, within = blockIdx.x % 64;
        bx = square / (down / 8) * 8 + within / 8;
        by = square % (down / 8) * 8 + within % 8;
    } else { // along the rows of `out`
        bx = blockIdx.x / down;
        by = blockIdx.x % down;
    }
    constexpr int EACH = SIDE * CHUNKS / THREADS; // chunks of a thread
    float4 loaded[EACH];
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        int i = threadIdx.x + k * THREADS, row = i / CHUNKS, chunk = i % CHUNKS;
        const float *from = in + (size_t)(by * SIDE + row) * w + bx * SIDE + 4 * chunk;
        loaded[k] = __ldcs(reinterpret_cast<const float4 *>(from));
    }
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
        int i = threadIdx.x + k * THREADS, row = i / CHUNKS, chunk = i % CHUNKS;
        float4 *to = reinterpret_cast<float4 *>(tile + row * SIDE + 4 * (chunk ^ (row / 4)));
        to[0] = loaded[k];
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < EACH; ++j) {
        // A warp reads eight chunks of four lines: 32 banks.
        int i = threadIdx.x + j * THREADS, line = i / 8 % SIDE, chunk = i % 8 + i / (8 * SIDE) * 8;
        int word = 4 * (line / 4 ^ chunk) + line % 4;
        float four[4];
        #pragma unroll
        for (int k = 0; k < 4; ++k) four[k] = tile[(4 * chunk + k) * SIDE + word];
        float *to = out + (size_t)(bx * SIDE + line) * h + by * SIDE + 4 * chunk;
        __stcs(reinterpret_cast<float4 *>(to), make_float4(four[0], four[1], four[2], four[3]));
    }
}

extern "C" __global__ void __launch_bounds__(256)
transpose_64_rows_256(const float *in, float *out, int w, int h) { transpose<256, false>(in, out, w, h); }
extern "C" __global__ void __launch_bounds__(512)
transpose_64_rows_512(const float *in, float *out, int w, int h) { transpose<512, false>(in, out, w, h); }
extern "C" __global__ void __launch_bounds__(256)
transpose_64_squares_256(const float *in, float *out, int w, int h) { transpose<256, true>(in, out, w, h); }
extern "C" __global__ void __launch_bounds__(512)
transpose_64_squares_512(const float *in, float *out, int w, int h) { transpose<512, true>(in, out, w, h); }
