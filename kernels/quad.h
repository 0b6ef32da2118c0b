// A quad: the four neighbouring lanes that hold one row of mma and wgmma accumulators.
//
// In an accumulator of 8 columns, lane q of a quad (q = lane % 4) holds columns 2q and 2q + 1: 4 bytes as bf16. Stored
// as they are, four accumulators side by side would take four stores of 4 bytes a lane, each a half of a 32-byte sector.
// Transposed within the quad, lane q holds the 8 columns of accumulator q: one store of 16 bytes a lane, whole sectors.
// It costs four shuffles, less than the way through shared memory, and needs no barrier and no buffer.
#pragma once
#include "kt.h"

// Before: values[i] of lane q is entry (i, q) of a 4x4 matrix. After: entry (q, i). Undoes itself.
// All lanes of the warp must call it.
KT_DEV void quad_transpose(u32 (&values)[4], int lane) {
#pragma unroll
    for (int distance = 1; distance <= 2; distance *= 2) {
        const bool upper = (lane & distance) != 0;
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            // (0, 1) and (2, 3) at distance 1; (0, 2) and (1, 3) at distance 2.
            const int low = distance == 1 ? 2 * pair : pair;
            const int high = low + distance;
            const u32 received = shfl_xor(upper ? values[low] : values[high], distance);
            values[low] = upper ? received : values[low];
            values[high] = upper ? values[high] : received;
        }
    }
}

KT_DEV void load_16_bytes(u32 (&values)[4], const bf16* from) {
    const uint4 bits = *(const uint4*)from;
    values[0] = bits.x;
    values[1] = bits.y;
    values[2] = bits.z;
    values[3] = bits.w;
}

KT_DEV void store_16_bytes(bf16* to, const u32 (&values)[4]) {
    uint4 bits;
    bits.x = values[0];
    bits.y = values[1];
    bits.z = values[2];
    bits.w = values[3];
    *(uint4*)to = bits;
}
