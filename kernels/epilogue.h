// What is done to a product a w^T between its f32 sum and the store in bf16. Shared by all GEMM kernels.
//
//   BIAS      c = product + bias
//   GELU      c = gelu(product + bias), gelu(x) = x Phi(x), Phi the normal distribution: the form with erf, not with tanh
//   RESIDUAL  c = product + bias + residual
//
// All in f32, rounded to bf16 once.
//
// GELU costs as many f32 operations as it has, times rows times columns, and at depth 1,024 those are no small share of
// the time of tensor cores: on an H100 an erff() of 25 operations takes 0.2 cycles of a multiprocessor for an element whose
// products take 0.5. So it is written as
//
//   gelu(x) = max(x, 0) - m Phi(-m),   m = |x|,   Phi(-m) = 2^q(m),   q(m) = -1 + m p(m),
//
// p a polynomial of degree 6. log2 of Phi(-m) is smooth and nearly a parabola, so that few terms give it, and the tail keeps
// its relative accuracy, which 1 + erf(x / sqrt 2) loses by cancellation. 12 operations, one of them 2^x. The coefficients
// are a minimax fit of q on [0, 6]. Error in f32: at most 7e-7; relative at most 7e-6 for |x| <= 6 (bf16 rounds to 2e-3);
// below -6 both values are under 6e-9 in size. q decreases beyond 6 too, to -232 at 16: there m is cut, so that m Phi(-m)
// is 0 and not infinity times 0. NaN stays NaN.
#pragma once
#include "quad.h"

enum class Epilogue { BIAS, GELU, RESIDUAL };

KT_DEV float gelu(float x) {
    const float m = fminf(fabsf(x), 16.0f);
    float q = -1.792991611e-06f;
    q = fmaf(q, m, 6.071230018e-05f);
    q = fmaf(q, m, -9.230926516e-04f);
    q = fmaf(q, m, 8.476547897e-03f);
    q = fmaf(q, m, -5.389046669e-02f);
    q = fmaf(q, m, -4.585418999e-01f);
    q = fmaf(q, m, -1.151214242e+00f);
    q = fmaf(q, m, -1.0f);
    // max(x, 0) as a sum: fmaxf() would turn NaN into 0.
    const float positive_part = fmaf(0.5f, fabsf(x), 0.5f * x);
    return fmaf(-m, ex2(q), positive_part);
}

// Two neighbouring columns of a row: sums in f32 to a pair of bf16. `residual` is a pair of bf16 too.
template <Epilogue KIND>
KT_DEV u32 finish_pair(float2 sum, float2 bias, u32 residual) {
    float x = sum.x + bias.x;
    float y = sum.y + bias.y;
    if (KIND == Epilogue::GELU) {
        x = gelu(x);
        y = gelu(y);
    }
    if (KIND == Epilogue::RESIDUAL) {
        x += bf2f(bf16{(u16)(residual & 0xffff)});
        y += bf2f(bf16{(u16)(residual >> 16)});
    }
    return pack_bf16(x, y);
}

// A lane's part of the bias of 32 columns from `column` on: pair i belongs to columns 8 i + 2 q and the next (see quad.h).
KT_DEV void load_bias(float2 (&pairs)[4], const float* bias, int column, int columns, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int first = column + 8 * i + 2 * (lane & 3);
#if BUG == 20
        // Wrong: the bias of the column to the left.
        const int from = first > 0 ? first - 1 : 0;
        pairs[i] = first < columns ? float2{bias[from], bias[from + 1]} : float2{0.0f, 0.0f};
#else
        pairs[i] = first < columns ? *(const float2*)(bias + first) : float2{0.0f, 0.0f};
#endif
    }
}

// Finishes and stores 32 columns of a row from `column` on; a quad holds the row, lane q the columns of load_bias().
// `columns` is a multiple of 8, so the 8 columns that a lane stores are all inside or all outside. A lane reads the
// residual just where it stores, and before it does: `residual` may be `c`. All lanes of the warp must call it.
template <Epilogue KIND>
KT_DEV void store_row(bf16* c, const bf16* residual, const float2 (&sums)[4], const float2 (&bias)[4], int row, int column,
                      int rows, int columns, int lane) {
    const int first = column + 8 * (lane & 3);
#if BUG == 21
    // Wrong: the row tail is stored too, beyond the end of c.
    const bool inside = first < columns;
#else
    const bool inside = row < rows && first < columns;
#endif
    const u64 place = (u64)row * columns + first;
    u32 bits[4] = {0, 0, 0, 0};
    if (KIND == Epilogue::RESIDUAL) {
        if (inside) load_16_bytes(bits, residual + place);
        quad_transpose(bits, lane);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) bits[i] = finish_pair<KIND>(sums[i], bias[i], bits[i]);
    quad_transpose(bits, lane);
    if (inside) store_16_bytes(c + place, bits);
}
