// score_head: the logit that a cross-encoder gives to a pair, from the last layer's first row.
//
// Mathematics  logit[r] = projection_weight . tanh(dense_weight rows[r] + dense_bias) + projection_bias
// Shapes       logits (count) f32; rows (count, hidden), dense_weight (hidden, hidden) as (out, in), projection_weight
//              (hidden) bf16; dense_bias (hidden), projection_bias (1) f32. hidden is a multiple of 8, at most 1,024.
// Launch       grid ceil(count / 16), block 256, dynamic shared memory 16 * hidden * 2 bytes: the block's rows.
// Numerics     Products of bf16 by mma.sync with sums in f32; bias, tanh, projection in f32; nothing is rounded to bf16.
//              The order of each sum depends on hidden only.
// Work         2 hidden^2 operations a row; each block reads dense_weight (2 hidden^2 bytes) from the L2 cache, which bounds
//              it: 16 operations a byte.
// Source       RobertaClassificationHead. The fragments' order of k is permuted alike in both operands, so that each thread
//              loads 16 bytes at once where mma's own order asks for 4; a sum does not mind the order of its terms.
#include "rows.h"

const int SCORE_ROWS = 16;   // of a block, and of mma
const int SCORE_WARPS = 8;
const int SCORE_TILES = 4;   // tiles of 8 outputs that a warp has at once: a fragment of rows serves four products

// Brings the block's rows into shared memory; zeros beyond the last.
KT_DEV void score_load_rows(uint4* shared, const bf16* rows, int count, int chunks) {
    int first = (int)blockIdx.x * SCORE_ROWS;
    for (int i = threadIdx.x; i < SCORE_ROWS * chunks; i += SCORE_WARPS * 32) {
        int r = first + i / chunks;
        shared[i] = r < count ? ((const uint4*)rows)[(u64)r * chunks + i % chunks] : uint4{0, 0, 0, 0};
    }
}

KT_KERNEL void __launch_bounds__(SCORE_WARPS * 32)
    score_head(float* __restrict__ logits, const bf16* __restrict__ rows, const bf16* __restrict__ dense_weight,
               const float* __restrict__ dense_bias, const bf16* __restrict__ projection_weight,
               const float* __restrict__ projection_bias, int count, int hidden) {
    KT_DYN_SMEM(memory);
    KT_SHARED(float[SCORE_WARPS][SCORE_ROWS], partial);
    const uint4* shared = (const uint4*)memory;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, group = lane >> 2, quarter = lane & 3;
    int chunks = hidden / 8;  // of 8 values, 16 bytes; also the tiles of 8 outputs
    score_load_rows((uint4*)memory, rows, count, chunks);
#if BUG != 16  // rows are read before they are there
    __syncthreads();
#endif

    const uint4 zero = {0, 0, 0, 0};
    float logit_low = 0.0f, logit_high = 0.0f;  // this thread's share of rows `group` and `group + 8`
    for (int tile = warp * SCORE_TILES; tile < chunks; tile += SCORE_WARPS * SCORE_TILES) {
        float sums[SCORE_TILES][4] = {};
        for (int k = 0; k < chunks; k += 4) {  // 32 values of depth
            int c = k + quarter;
            bool inside = c < chunks;
            uint4 low = inside ? shared[group * chunks + c] : zero;
            uint4 high = inside ? shared[(group + 8) * chunks + c] : zero;
            u32 a_first[4] = {low.x, high.x, low.y, high.y}, a_second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
            for (int t = 0; t < SCORE_TILES; t++) {
                uint4 b = zero;
                if (inside && tile + t < chunks)
                    b = ((const uint4*)dense_weight)[(u64)((tile + t) * 8 + group) * chunks + c];
                mma_m16n8k16_bf16(sums[t], a_first, b.x, b.y);
                mma_m16n8k16_bf16(sums[t], a_second, b.z, b.w);
            }
        }
#pragma unroll
        for (int t = 0; t < SCORE_TILES; t++) {
            if (tile + t >= chunks) break;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int column = (tile + t) * 8 + quarter * 2 + i;
                float bias = dense_bias[column], weight = bf2f(projection_weight[column]);
                logit_low += tanhf(sums[t][i] + bias) * weight;
                logit_high += tanhf(sums[t][2 + i] + bias) * weight;
            }
        }
    }

    // Over the four threads that share a row, then over the warps.
    logit_low += shfl_xor(logit_low, 1);
    logit_high += shfl_xor(logit_high, 1);
#if BUG != 17  // half of the outputs are left out
    logit_low += shfl_xor(logit_low, 2);
    logit_high += shfl_xor(logit_high, 2);
#endif
    if (quarter == 0) {
        partial[warp][group] = logit_low;
        partial[warp][group + 8] = logit_high;
    }
    __syncthreads();
    int row = (int)blockIdx.x * SCORE_ROWS + (int)threadIdx.x;
    if (threadIdx.x < SCORE_ROWS && row < count) {
        float logit = projection_bias[0];
#pragma unroll
        for (int w = 0; w < SCORE_WARPS; w++) logit += partial[w][threadIdx.x];
        logits[row] = logit;
    }
}
