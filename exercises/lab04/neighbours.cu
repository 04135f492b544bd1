// Given: a whole kernel, to read before the first tree of your own. Nothing here is a task.
//
//     infralens kernel exercises/lab04/neighbours.cu steps 'f32[4096]' 'f32[4096]' 4096 \
//         --grid 16 --block 256 --shared 1024

// out[i] = |in[i + 1] - in[i]| for i < n - 1; out[n - 1] stays as it is. Every element is read from
// global memory once, but for the first of each block, which two blocks need.
//
// gridDim.x = ceil(n / blockDim.x); blockDim.x floats of dynamic shared memory.
extern "C" __global__ void steps(const float *in, float *out, int n) {
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + tid;
    sdata[tid] = i < n ? in[i] : 0.0f;
    __syncthreads();
    if (i + 1 < n) {
        float next = tid + 1 < blockDim.x ? sdata[tid + 1] : in[i + 1];
        out[i] = fabsf(next - sdata[tid]);
    }
}
