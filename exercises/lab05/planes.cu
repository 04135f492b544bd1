// Given: one job done in three ways, to read before the first tile of your own. Nothing here is a
// task.
//
//     infralens kernel exercises/lab05/planes.cu planes 'f32[8192]' 'f32[4096]=nan' \
//         'f32[4096]=nan' 4096 --grid 16 --block 256
//
// `in` holds n pairs of floats, as complex numbers are kept; the first of each pair goes to `re`,
// the second to `im`. Blocks of 256 threads, gridDim.x = ceil(n / 256). Block b has the pairs from
// 256 b on: 512 floats.

// Straight from `in`: lanes read every second float.
extern "C" __global__ void planes_direct(const float *in, float *re, float *im, int n) {
    int i = 256 * blockIdx.x + threadIdx.x;
    if (i < n) {
        re[i] = in[2 * i];
        im[i] = in[2 * i + 1];
    }
}

// Through shared memory: lanes read `in` in a row, and every second word of shared memory.
extern "C" __global__ void planes(const float *in, float *re, float *im, int n) {
    __shared__ float pairs[512];
    int t = threadIdx.x;
    for (int k = t; k < 512; k += 256)
        if (512 * blockIdx.x + k < 2 * n)
            pairs[k] = in[512 * blockIdx.x + k];
    __syncthreads();
    int i = 256 * blockIdx.x + t;
    if (i < n) {
        re[i] = pairs[2 * t];
        im[i] = pairs[2 * t + 1];
    }
}

// The same, with both words of a pair in one access of 8 bytes.
extern "C" __global__ void planes_by_pairs(const float *in, float *re, float *im, int n) {
    alignas(8) __shared__ float pairs[512];
    int t = threadIdx.x;
    for (int k = t; k < 512; k += 256)
        if (512 * blockIdx.x + k < 2 * n)
            pairs[k] = in[512 * blockIdx.x + k];
    __syncthreads();
    int i = 256 * blockIdx.x + t;
    if (i < n) {
        float2 pair = *(const float2 *)&pairs[2 * t];
        re[i] = pair.x;
        im[i] = pair.y;
    }
}
