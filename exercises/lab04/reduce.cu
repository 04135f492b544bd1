// Lab 04: one sum, seven times, each time rid of what slowed the last one down; then two reductions
// that are no sums, and three that care for the last bits.
//
// A file of kernels, `extern "C" __global__`: no #include, no host code. The same bytes run on a
// GPU and on your laptop, where every request to memory is counted. Functions of your own are
// welcome; write __device__ in front of them.
//
// What every kernel may rely on:
//   in      n floats, n >= 1, only to be read, and each of them once. Every warp of a block reads,
//           where there are elements enough.
//   launch  one-dimensional. blockDim.x is a multiple of 32, from 32 to 1024, and need not be a
//           power of two (96 is a block size, too). Each kernel says how many blocks it gets.
//   memory  the launch gives blockDim.x floats of dynamic shared memory (twice as much to
//           `argmax`), `extern __shared__ float sdata[];`. Static shared arrays are just as good.
//   barrier every thread of the block reaches every __syncthreads(). This is stricter than a GPU
//           since Volta, which waits only for the threads that have not returned.
//   out     out[0] is 0 before a kernel that adds to it. What a kernel writes held rubbish before.
//
// "Request": what one warp asks of memory by one instruction. "Sector": 32 bytes of global memory.
// "Coalesced": neighbouring threads read neighbouring elements, so 32 floats are 4 sectors.

// Adds in[0] + ... + in[n - 1] to out[0], every element by an atomicAdd of its own.
//
// Any number of blocks: gridDim.x * blockDim.x may be less than n, or more. Coalesced.
// Atomics: n.
extern "C" __global__ void reduce_atomic(const float *in, float *out, int n) {
    // TODO(lab04.reduce_atomic): One atomic an element
    // NOT STARTED lab04.reduce_atomic
}

// Adds in[0] + ... + in[n - 1] to out[0]: a tree in shared memory, one atomicAdd a block.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: steps s = 1, 2, 4, ... below blockDim.x. In step s the threads whose tid is a multiple
// of 2 * s add sdata[tid + s], where that exists, to sdata[tid]. sdata[0] ends as the sum of the
// block.
// Atomics: one a block.
extern "C" __global__ void reduce_interleaved(const float *in, float *out, int n) {
    // TODO(lab04.reduce_interleaved): A tree in shared memory
    // NOT STARTED lab04.reduce_interleaved
}

// Adds in[0] + ... + in[n - 1] to out[0]: the same tree, done by the first threads of the block.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: the same pairs in the same steps as in `reduce_interleaved`; but the pair that begins
// at 2 * s * k is added by thread k, so that the threads at work stand side by side.
// Atomics: one a block. Bank conflicts: what this order costs, and the test wants to see them.
extern "C" __global__ void reduce_strided(const float *in, float *out, int n) {
    // TODO(lab04.reduce_strided): The same pairs by neighbouring threads
    // NOT STARTED lab04.reduce_strided
}

// Adds in[0] + ... + in[n - 1] to out[0]: a tree whose threads AND addresses stand side by side.
//
// gridDim.x = ceil(n / blockDim.x): an element a thread, coalesced.
// The tree: of the values that are left the upper half is added to the lower half, thread tid
// adding one value to sdata[tid]; until one is left, which is the sum of the block. From an odd
// number, one value has no partner and stays.
// Atomics: one a block. Bank conflicts: none.
extern "C" __global__ void reduce_sequential(const float *in, float *out, int n) {
    // TODO(lab04.reduce_sequential): Neighbouring threads, neighbouring addresses
    // NOT STARTED lab04.reduce_sequential
}

// Adds in[0] + ... + in[n - 1] to out[0] with half the blocks: a thread adds two elements,
// blockDim.x apart, before the tree begins.
//
// gridDim.x = ceil(n / (2 * blockDim.x)). Loads of 4 bytes, coalesced: 4 sectors a request.
// The tree: as in `reduce_sequential`, or better. Atomics: one a block. Bank conflicts: none.
// Shared memory: at most 60 requests by a block of 256 threads (45 do).
extern "C" __global__ void reduce_first_add(const float *in, float *out, int n) {
    // TODO(lab04.reduce_first_add): Add before the tree begins
    // NOT STARTED lab04.reduce_first_add
}

// Adds in[0] + ... + in[n - 1] to out[0] through registers: lanes of a warp exchange their sums by
// shuffles, and only the warps' results go through shared memory.
//
// Any number of blocks: a thread adds up elements gridDim.x * blockDim.x apart. Coalesced.
// Atomics: one a block. Barriers: at most 2 a block. Shared memory: at most blockDim.x / 32 + 1
// requests a block, that is, a write by each warp and a read by one.
extern "C" __global__ void reduce_warp(const float *in, float *out, int n) {
    // TODO(lab04.reduce_warp): Shuffles instead of shared memory
    // NOT STARTED lab04.reduce_warp
}

// Adds in[0] + ... + in[n - 1] to out[0], four floats a load.
//
// Any number of blocks. `in` is a multiple of 4 bytes and NOT always of 16, which a float4 needs:
// up to 3 elements at the front and up to 3 at the end are read one by one, all others by 16-byte
// loads, coalesced (16 sectors a request).
// Atomics: one a block.
extern "C" __global__ void reduce_vec4(const float *in, float *out, int n) {
    // TODO(lab04.reduce_vec4): Four floats a load
    // NOT STARTED lab04.reduce_vec4
}

// Writes the largest of in[0], ..., in[n - 1] to out[0].
//
// gridDim.x = 1; n may be larger or smaller than the block. Coalesced.
// A NaN among the elements is the result (max() and fmaxf() of CUDA prefer the number). -inf is
// made of the bits 0xff800000 by __int_as_float.
extern "C" __global__ void reduce_max(const float *in, float *out, int n) {
    // TODO(lab04.reduce_max): The maximum, NaN included
    // NOT STARTED lab04.reduce_max
}

// Writes the index of the largest of in[0], ..., in[n - 1] to out[0].
//
// gridDim.x = 1; n may be larger or smaller than the block. Coalesced.
// Of equal values the lowest index wins; a NaN beats every number, the first one all others.
extern "C" __global__ void argmax(const float *in, int *out, int n) {
    // TODO(lab04.argmax): Where the maximum stands
    // NOT STARTED lab04.argmax
}

// Writes to partial[b] the sum of what block b adds up; no atomics, and the same bits every time.
//
// Launched twice: any number of blocks on the input, n elements; then ONE block on the gridDim.x
// partial sums of the first launch, which leaves the sum of all in the first element. Both read
// coalesced. Which elements a block takes is your choice, but the order of additions depends on n,
// gridDim.x and blockDim.x alone. No atomics, neither in global nor in shared memory.
extern "C" __global__ void reduce_two_pass(const float *in, float *partial, int n) {
    // TODO(lab04.reduce_two_pass): The same bits every time
    // NOT STARTED lab04.reduce_two_pass
}

// Writes in[0] + ... + in[n - 1] to out[0], with an error of at most 8 * eps * sum |x|, whatever n
// and however small or large the elements are; eps = 2^-23. In float arithmetic: no double (1.0 is one, 1.0f is a float).
//
// gridDim.x = 1. Coalesced.
extern "C" __global__ void reduce_kahan(const float *in, float *out, int n) {
    // TODO(lab04.reduce_kahan): A sum that keeps what was cut off
    // NOT STARTED lab04.reduce_kahan
}

// Writes to out[0] the mean of the n elements and to out[1] their sum of squared deviations from
// it, M2 (variance = M2 / n), also where the mean is 10,000 times the standard deviation, and for
// n up to 2^20. In float arithmetic: no double (1.0 is one, 1.0f is a float).
//
// gridDim.x = 1. Coalesced. Parts are merged as Chan, Golub and LeVeque did, and not by sums of x and
// of x^2.
extern "C" __global__ void welford(const float *in, float *out, int n) {
    // TODO(lab04.welford): Mean and spread in one pass
    // NOT STARTED lab04.welford
}
