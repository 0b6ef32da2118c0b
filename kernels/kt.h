// The portability layer of the kernels: one source, two targets.
//
// On the GPU (NVRTC or nvcc) each name below is one PTX instruction or two. On the CPU (g++ or clang++) the same names
// come from emulation/, which runs a block's threads as fibers; kernels are tested there, without a GPU.
// No CUDA header is needed, so NVRTC needs no include path but this folder.
#pragma once

// Kernels hold planted bugs, `#if BUG == n`, which the tests build to show that they would be found.
#ifndef BUG
#define BUG 0
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)

#define KT_GPU 1
#define KT_DEV static __device__ __forceinline__
#define KT_KERNEL extern "C" __global__
// Shared memory whose size the launch gives.
#define KT_DYN_SMEM(name) extern __shared__ __align__(128) unsigned char name[]
// A shared variable: KT_SHARED(float[8], partial).
template <class T>
using kt_as = T;
#define KT_SHARED(type, name) __shared__ kt_as<type> name

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct bf16 {
    u16 x;
};

// --- Numbers ---

KT_DEV float bf2f(bf16 v) {
    return __uint_as_float((u32)v.x << 16);
}

KT_DEV bf16 f2bf(float f) {
    bf16 r;
    asm("cvt.rn.bf16.f32 %0,%1;" : "=h"(r.x) : "f"(f));
    return r;
}

// Two bf16 in one register, `lo` at the lower address.
KT_DEV u32 pack_bf16(float lo, float hi) {
    u32 r;
    asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}

// 2 to the power of x, as the special function unit gives it.
KT_DEV float ex2(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(x));
    return r;
}

// --- Within a warp ---

KT_DEV float shfl_xor(float v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}

KT_DEV u32 shfl_xor(u32 v, int mask) {
    return __shfl_xor_sync(0xffffffffu, v, mask);
}

// --- Copies from global into shared memory that run beside the thread (sm_80) ---

// An address in shared memory as PTX wants it.
KT_DEV u32 kt_smem(const void* p) {
    // Not cvta by hand: the compiler sees through this, and then counts in 32 bits.
    return (u32)__cvta_generic_to_shared(p);
}

// 16 bytes; zeros where `in_range` is false (then `global` is not read).
KT_DEV void cp_async16(void* shared, const void* global, bool in_range) {
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(kt_smem(shared)), "l"(global), "r"(in_range ? 16 : 0)
                 : "memory");
}

// Ends a group of copies.
KT_DEV void cp_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most N of this thread's groups are under way. Other threads see the data after a barrier.
template <int N>
KT_DEV void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// --- Matrix fragments and products (sm_80) ---

// Four 8x8 matrices of 16-bit values; lane i gives the address of row i % 8 of matrix i / 8.
KT_DEV void ldmatrix_x4(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kt_smem(row))
                 : "memory");
}

// The same, each matrix transposed.
KT_DEV void ldmatrix_x4_trans(u32 (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(kt_smem(row))
                 : "memory");
}

// c += a b, with a (16, 16) by rows, b (16, 8) by columns, sums in f32.
KT_DEV void mma_m16n8k16_bf16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#else

#include "emulation/cpu.h"

#endif
