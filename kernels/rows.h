// Kernels that work on rows: a warp holds a row of bf16 as f32, in registers.
//
// Lane i holds the columns [8 (i + 32 j), 8 (i + 32 j) + 8) for j = 0 to 3, so that each load and store of a warp is 512
// bytes in a line, 16 of each lane. A row has at most 1,024 columns, a multiple of 8; what lies beyond is not touched.
// Sums run over a lane's columns in order, then over lanes as a tree: the order depends on the width only.
#pragma once
#include "kt.h"

const int ROW_MAX = 1024;
const int ROW_CHUNKS = ROW_MAX / 256;
const int ROWS_A_BLOCK = 8;  // a warp each, blocks of 256

struct Row {
    float v[ROW_CHUNKS][8];
};

KT_DEV float warp_sum(float v) {
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) v += shfl_xor(v, mask);
    return v;
}

KT_DEV int row_column(int chunk) {
    return 8 * ((int)(threadIdx.x & 31) + 32 * chunk);
}

// The row of this warp.
KT_DEV int row_of_warp() {
    return (int)blockIdx.x * ROWS_A_BLOCK + (int)(threadIdx.x >> 5);
}

// Adds 8 values of bf16 to 8 of f32.
KT_DEV void add_8(float (&sum)[8], const bf16* values) {
    uint4 q = *(const uint4*)values;
    u32 pairs[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum[2 * i] += bf2f(bf16{(u16)(pairs[i] & 0xffff)});
        sum[2 * i + 1] += bf2f(bf16{(u16)(pairs[i] >> 16)});
    }
}

KT_DEV void load_8(float (&out)[8], const float* values) {
    float4 low = *(const float4*)values, high = *(const float4*)(values + 4);
    out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
    out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

KT_DEV void store_8(bf16* out, const float (&v)[8]) {
    uint4 q;
    q.x = pack_bf16(v[0], v[1]);
    q.y = pack_bf16(v[2], v[3]);
    q.z = pack_bf16(v[4], v[5]);
    q.w = pack_bf16(v[6], v[7]);
    *(uint4*)out = q;
}

KT_DEV void row_clear(Row& row) {
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++)
#pragma unroll
        for (int i = 0; i < 8; i++) row.v[j][i] = 0.0f;
}

KT_DEV void row_add(Row& row, const bf16* values, int columns) {
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++)
        if (row_column(j) < columns) add_8(row.v[j], values + row_column(j));
}

KT_DEV void row_add(Row& row, const float* values, int columns) {
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++)
        if (row_column(j) < columns) {
            float more[8];
            load_8(more, values + row_column(j));
#pragma unroll
            for (int i = 0; i < 8; i++) row.v[j][i] += more[i];
        }
}

// out = (row - mean) / sqrt(variance + epsilon) * gain + shift. The variance is taken around the mean, in a second pass
// over the registers: a mean far from zero costs no digits.
KT_DEV void row_normalize(bf16* out, const Row& row, const float* __restrict__ gain, const float* __restrict__ shift,
                          int columns, float epsilon) {
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++)
#pragma unroll
        for (int i = 0; i < 8; i++) sum += row.v[j][i];  // zeros beyond the row
    float mean = warp_sum(sum) / (float)columns;

    float squares = 0.0f;
#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++)
#if BUG == 11  // what lies beyond a narrow row counts as values of zero
#else
        if (row_column(j) < columns)
#endif
#pragma unroll
            for (int i = 0; i < 8; i++) {
                float d = row.v[j][i] - mean;
                squares += d * d;
            }
    float scale = rsqrtf(warp_sum(squares) / (float)columns + epsilon);

#pragma unroll
    for (int j = 0; j < ROW_CHUNKS; j++)
        if (row_column(j) < columns) {
            float g[8], s[8], v[8];
            load_8(g, gain + row_column(j));
            load_8(s, shift + row_column(j));
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = (row.v[j][i] - mean) * scale * g[i] + s[i];
            store_8(out + row_column(j), v);
        }
}
