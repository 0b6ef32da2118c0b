// CUDA's names on the CPU: what a kernel's source says, and what it means here. Included by kt.h.
#pragma once
#include <cfloat>
#include <cmath>

#include "block.h"
#include "collectives.h"
#include "copies.h"
#include "launch.h"

#define KT_CPU 1
#define KT_DEV static inline __attribute__((unused))
#define KT_KERNEL extern "C"
#define KT_DYN_SMEM(name) unsigned char* name = kt::blk->dynamic_shared
// A variable of the block. Its place is found by the address of a variable of the function.
#define KT_SHARED(type, name)     \
    static const char name##_site = 0; \
    kt_as<type>& name = *(kt_as<type>*)kt::find_shared_variable(&name##_site, sizeof(kt_as<type>))

#define __device__
#define __global__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

#define threadIdx (kt::cur->position)
#define blockIdx (kt::blk->index)
#define blockDim (kt::blk->size)
#define gridDim (kt::blk->grid)

template <class T>
using kt_as = T;

struct bf16 {
    u16 x;
};
struct alignas(8) uint2 {
    u32 x, y;
};
struct alignas(16) uint4 {
    u32 x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

KT_DEV void __syncthreads() {
    kt::syncthreads();
}

KT_DEV void __syncwarp() {
    kt::syncwarp();
}

KT_DEV float bf2f(bf16 v) {
    return kt::bits_to_float((u32)v.x << 16);
}

// To the nearest, ties to even; every NaN becomes the one that the GPU gives.
KT_DEV bf16 f2bf(float f) {
    u32 bits = kt::float_to_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000) return bf16{0x7fff};
    return bf16{(u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}

KT_DEV u32 pack_bf16(float lo, float hi) {
    return f2bf(lo).x | (u32)f2bf(hi).x << 16;
}

// Exact to the last bits, where the GPU's is off by some; denormal results are zero on both.
KT_DEV float ex2(float x) {
    float r = exp2f(x);
    return r < FLT_MIN ? 0.0f : r;
}

KT_DEV float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}

KT_DEV float shfl_xor(float v, int mask) {
    return kt::bits_to_float(kt::shuffle_xor(kt::float_to_bits(v), mask));
}

KT_DEV u32 shfl_xor(u32 v, int mask) {
    return kt::shuffle_xor(v, mask);
}

KT_DEV void cp_async16(void* shared, const void* global, bool in_range) {
    kt::copy_async(shared, global, in_range);
}

KT_DEV void cp_async_commit() {
    kt::commit_copies();
}

template <int N>
KT_DEV void cp_async_wait() {
    kt::wait_copies(N);
}

KT_DEV void ldmatrix_x4(u32 (&r)[4], const void* row) {
    kt::load_matrices<false>(r, row);
}

KT_DEV void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
    kt::load_matrices<true>(r, row);
}

KT_DEV void mma_m16n8k16_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    kt::mma(c, a, b0, b1);
}
