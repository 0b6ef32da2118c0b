// embed: the first layer of a text model, in one pass over memory.
//
// Mathematics  out[r] = LayerNorm(words[tokens[r]] + positions[places[r]] + types[segments[r]])
//              LayerNorm(x) = (x - mean) / sqrt(variance + epsilon) * gain + shift, over the columns of a row
// Shapes       out (rows, hidden) and the three tables (., hidden) bf16; gain, shift (hidden) f32; tokens, segments, places
//              (rows) u32. hidden is a multiple of 8, at most 1,024. The host has checked that ids lie within the tables.
// Launch       grid ceil(rows / 8), block 256: a warp a row. No shared memory.
// Numerics     Sums, mean and variance in f32; the variance around the mean; rounded to bf16 once, at the store.
// Work         8 hidden bytes a row (three rows read, one written) and some 9 hidden operations: bound by memory. The row
//              of `words` comes from far away, the other two from caches.
// Source       The plain definition; a row in a warp's registers is the usual way for widths up to 1,024.
#include "rows.h"

KT_KERNEL void __launch_bounds__(256)
    embed(bf16* __restrict__ out, const bf16* __restrict__ words, const bf16* __restrict__ positions, const bf16* __restrict__ types,
          const float* __restrict__ gain, const float* __restrict__ shift, const u32* __restrict__ tokens,
          const u32* __restrict__ segments, const u32* __restrict__ places, int rows, int hidden, float epsilon) {
    int r = row_of_warp();
    if (r >= rows) return;
    Row row;
    row_clear(row);
    row_add(row, words + (u64)tokens[r] * hidden, hidden);
    row_add(row, positions + (u64)places[r] * hidden, hidden);
#if BUG == 10  // all tokens are of the first segment
    row_add(row, types, hidden);
#else
    row_add(row, types + (u64)segments[r] * hidden, hidden);
#endif
    row_normalize(out + (u64)r * hidden, row, gain, shift, hidden, epsilon);
}
