// layer_norm: what follows a product that has not been given its bias and residual yet, or has.
//
// Mathematics  out[r] = LayerNorm(x[r] + bias + residual[r])
//              LayerNorm(x) = (x - mean) / sqrt(variance + epsilon) * gain + shift, over the columns of a row
// Shapes       out, x, residual (rows, hidden) bf16; bias, gain, shift (hidden) f32. bias and residual may be null.
//              hidden is a multiple of 8, at most 1,024. out may be x or residual: a warp reads its row before it writes.
// Launch       grid ceil(rows / 8), block 256: a warp a row. No shared memory.
// Numerics     Sums, mean and variance in f32; the variance around the mean; rounded to bf16 once, at the store.
// Work         6 hidden bytes a row with a residual, else 4 hidden; some 10 hidden operations: bound by memory.
// Source       The plain definition; a row in a warp's registers is the usual way for widths up to 1,024.
#include "rows.h"

KT_KERNEL void __launch_bounds__(256)
    layer_norm(bf16* out, const bf16* x, const float* __restrict__ bias, const bf16* residual, const float* __restrict__ gain,
               const float* __restrict__ shift, int rows, int hidden, float epsilon) {
    int r = row_of_warp();
    if (r >= rows) return;
    Row row;
    row_clear(row);
    row_add(row, x + (u64)r * hidden, hidden);
    if (bias) row_add(row, bias, hidden);
#if BUG == 12  // each row of a block gets the residual of its first row
    r -= threadIdx.x >> 5;
    if (residual) row_add(row, residual + (u64)r * hidden, hidden);
    r += threadIdx.x >> 5;
#else
    if (residual) row_add(row, residual + (u64)r * hidden, hidden);
#endif
    row_normalize(out + (u64)r * hidden, row, gain, shift, hidden, epsilon);
}
