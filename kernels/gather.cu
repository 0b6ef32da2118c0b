// gather: takes rows out of a matrix, as before the last layer, of which only each sequence's first row is needed.
//
// Mathematics  out[i] = x[rows[i]]
// Shapes       out (count, hidden), x (., hidden) bf16; rows (count) u32, within x. hidden is a multiple of 8.
// Launch       grid ceil(count / 8), block 256: a warp a row. No shared memory.
// Numerics     Bits are copied.
// Work         4 hidden bytes a row, no operations: bound by memory.
// Source       The plain definition.
#include "kt.h"

KT_KERNEL void __launch_bounds__(256)
    gather(bf16* __restrict__ out, const bf16* __restrict__ x, const u32* __restrict__ rows, int count, int hidden) {
    int i = (int)blockIdx.x * 8 + (int)(threadIdx.x >> 5);
    if (i >= count) return;
    const uint4* from = (const uint4*)(x + (u64)rows[i] * hidden);
    uint4* to = (uint4*)(out + (u64)i * hidden);
    int chunks = hidden / 8;
#if BUG == 13  // leaves out the last columns where a row is no multiple of 256
    chunks = chunks / 32 * 32;
#endif
    for (int c = threadIdx.x & 31; c < chunks; c += 32) to[c] = from[c];
}
