// pool: one vector of unit length for each sequence.
//
// Mathematics  v = the mean of the sequence's rows, or its first row; out = v / max(|v|, 1e-12)
// Shapes       out (sequences, hidden) f32; x (tokens, hidden) bf16; starts (sequences + 1) u32: sequence s is the rows
//              starts[s] .. starts[s + 1] of x. hidden is a multiple of 8, at most 2,048. An empty sequence gives zeros.
// Launch       grid sequences, block 256. 8 KiB of static shared memory.
// Numerics     All in f32. A sequence's rows are dealt out to groups of threads, each adds its own in order, and the groups
//              are added in order: the bits depend on the sequence and on hidden only.
// Work         2 hidden bytes a row read (first row: one row), 4 hidden written a sequence: bound by memory.
// Source       Mean and CLS pooling as sentence-transformers define them.
#include "rows.h"

const int POOL_THREADS = 256;

// The sum over the block, for every thread.
KT_DEV float pool_block_sum(float v, float* warp_sums) {
    v = warp_sum(v);
    if ((threadIdx.x & 31) == 0) warp_sums[threadIdx.x >> 5] = v;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < POOL_THREADS / 32; w++) sum += warp_sums[w];
    return sum;
}

KT_KERNEL void __launch_bounds__(POOL_THREADS)
    pool(float* __restrict__ out, const bf16* __restrict__ x, const u32* __restrict__ starts, int hidden, int mean) {
    KT_SHARED(float[POOL_THREADS][8], partial);
    KT_SHARED(float[POOL_THREADS / 32], warp_sums);
    // A thread adds up 8 columns; as many rows are read at once as there are threads for.
    int chunks = hidden / 8, groups = POOL_THREADS / chunks;
    int chunk = (int)threadIdx.x % chunks, group = (int)threadIdx.x / chunks;
    u32 first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    u32 rows = end - first;
#if BUG == 15  // the first row of the next sequence is added too
    if (mean) end++;
#endif
    if (!mean && rows > 1) end = first + 1;

    float v[8] = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    if (group < groups) {
#pragma unroll 4
        for (u32 r = first + group; r < end; r += groups) add_8(v, x + (u64)r * hidden + chunk * 8);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) partial[threadIdx.x][i] = v[i];
#if BUG != 14  // sums of groups are read before they are there
    __syncthreads();
#endif

    bool owner = group == 0;
    float divisor = mean && rows > 0 ? (float)rows : 1.0f, squares = 0.0f;
    if (owner) {
        for (int g = 1; g < groups; g++)
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] += partial[g * chunks + chunk][i];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            v[i] /= divisor;
            squares += v[i] * v[i];
        }
    }
    float length = fmaxf(sqrtf(pool_block_sum(squares, warp_sums)), 1e-12f);
    if (!owner) return;
    float4* to = (float4*)(out + (u64)blockIdx.x * hidden + chunk * 8);
    to[0] = float4{v[0] / length, v[1] / length, v[2] / length, v[3] / length};
    to[1] = float4{v[4] / length, v[5] / length, v[6] / length, v[7] / length};
}
