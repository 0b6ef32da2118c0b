// What the kernels for attention share: which queries and keys a block works on, and what is done across a quad.
#pragma once
#include "kt.h"

namespace attention {

KT_DEV float minus_infinity() {
    return bf2f(bf16{0xff80});
}

KT_DEV int lesser(int a, int b) {
    return a < b ? a : b;
}

// The largest value, and the sum, of the four lanes that hold a row.
KT_DEV float quad_max(float x) {
    x = fmaxf(x, shfl_xor(x, 1));
    return fmaxf(x, shfl_xor(x, 2));
}

KT_DEV float quad_sum(float x) {
    x += shfl_xor(x, 1);
    return x + shfl_xor(x, 2);
}

// What a block works on: some queries and all keys of one head of one sequence.
struct Work {
    int column;     // where the head begins in a row
    u32 query_row;  // of q and out: the block's first
    u32 key_row;    // of k and v: the sequence's first
    int first;      // the block's first query, counted within the sequence
    int queries;    // from there to the sequence's end; may be more than the block's
    int keys;
};

// `tiles` has a pair (sequence, first query row in it) for each block of a head.
KT_DEV Work find_work(const u32* q_starts, const u32* starts, const u32* tiles, int dim) {
    const u32 sequence = tiles[2 * blockIdx.x];
    const u32 first = tiles[2 * blockIdx.x + 1];
    Work w;
    w.column = blockIdx.y * dim;
    w.query_row = q_starts[sequence] + first;
    w.key_row = starts[sequence];
    w.first = first;
    w.queries = q_starts[sequence + 1] - w.query_row;
    w.keys = starts[sequence + 1] - w.key_row;
    return w;
}

}  // namespace attention
