// What sm_90a adds: mbarriers, loads by the tensor memory accelerator (TMA), and products of a whole warpgroup (wgmma).
// On the CPU the same names come from emulation/hopper.h.
//
// Tiles in shared memory have rows of 64 bf16 (128 bytes), with the 128-byte swizzle that TMA writes and wgmma reads:
// bits 4 to 6 of an address are xored with bits 7 to 9. A tile begins at a multiple of 1,024 bytes. Rows stay whole: what is
// written to all columns of a row need not be swizzled.
#pragma once
#include "kt.h"

// On the GPU a CUtensorMap. On the CPU {base, rows, columns, bytes of a row, box rows, box columns}.
struct alignas(64) TensorMap {
    u64 w[16];
};

#ifdef KT_GPU

// Qualifies a tensor map that is a kernel's argument, so that its address can be taken.
#define KT_GRID_CONST const __grid_constant__

// --- mbarriers: a count of arrivals and of bytes, and a phase that flips when both are complete ---

KT_DEV void mbar_init(u64* bar, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(kt_smem(bar)), "r"(arrivals) : "memory");
}

// Makes mbar_init visible to TMA; a __syncthreads() must follow for the other threads.
KT_DEV void mbar_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

KT_DEV void mbar_arrive(u64* bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(kt_smem(bar)) : "memory");
}

// Arrives, and adds `bytes` to what TMA has yet to bring before the phase is complete.
KT_DEV void mbar_expect_tx(u64* bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(kt_smem(bar)), "r"(bytes) : "memory");
}

// Waits for the end of the phase of this parity: 0 for the first, 1 for the second, and so on. Parity 1 of a new
// barrier does not wait.
KT_DEV void mbar_wait(u64* bar, u32 parity) {
    u32 done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2; selp.u32 %0,1,0,p; }"
                     : "=r"(done)
                     : "r"(kt_smem(bar)), "r"(parity)
                     : "memory");
    } while (!done);
}

// --- TMA ---

// The map's box at column x, row y, into `shared`; zeros outside of the matrix. One thread asks; `bar` counts the bytes.
KT_DEV void tma_load_2d(void* shared, const TensorMap* map, int x, int y, u64* bar) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1,{%2,%3}],[%4];" ::"r"(
            kt_smem(shared)),
        "l"(map), "r"(x), "r"(y), "r"(kt_smem(bar))
        : "memory");
}

// Makes this thread's writes to shared memory visible to TMA and wgmma, which come by another way than loads and stores do.
// Threads that start them must wait for this one afterwards.
KT_DEV void async_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- Registers: all 128 threads of a warpgroup call these, once each ---

// Bounds the registers of a thread from here on. A block starts with equally many for all its threads; a warpgroup that
// needs few gives the rest back, and one that needs more waits for them. N is a multiple of 8 from 24 to 256.
template <int N>
KT_DEV void fewer_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N>
KT_DEV void more_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// --- wgmma: all 128 threads of a warpgroup call each of these ---

// Where an operand lies: address / 16, 1,024 bytes between groups of 8 rows, 128-byte swizzle. Rows are what the product
// does not sum over, or, of a b that is read "as rows", what it sums over: wgmma calls these K-major and MN-major. The offset
// between groups of 8 rows is the stride offset in both; the leading offset is not used, as one swizzle holds all 64 columns.
typedef u64 WgDesc;

KT_DEV WgDesc wg_desc(const void* tile) {
    return (u64)((kt_smem(tile) & 0x3ffff) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// The k-th 16 columns of a tile (k < 4).
KT_DEV WgDesc wg_step(WgDesc tile, int k) {
    return tile + (u64)(k * 32 >> 4);
}

// The k-th 16 rows of a tile.
KT_DEV WgDesc wg_step_rows(WgDesc tile, int k) {
    return tile + (u64)(k * 16 * 128 >> 4);
}

// Orders register writes of the accumulators and of a before the products that follow.
KT_DEV void wg_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

KT_DEV void wg_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most N groups are under way.
template <int N>
KT_DEV void wg_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Values in registers that a product writes or reads are neither computed later than here nor used earlier: the compiler
// knows nothing of what is under way.
template <int N>
KT_DEV void wg_pin(float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(values[i])::"memory");
}

template <int N>
KT_DEV void wg_pin(u32 (&values)[N][4]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(values[i][0]), "+r"(values[i][1]), "+r"(values[i][2]), "+r"(values[i][3])::"memory");
}

// Eight sums as operands that are read and written.
#define KT_SUMS_8(d, i)                                                                                                 \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

// d (64, 64) = a (64, 16) b (64, 16)^T, added to d where `accumulate` is not 0. Reads a and b until wg_wait says otherwise.
KT_DEV void wgmma_m64n64k16(float (&d)[32], WgDesc a, WgDesc b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p,%34,0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        "%32,%33,p,1,1,0,0; }"
        : KT_SUMS_8(d, 0), KT_SUMS_8(d, 8), KT_SUMS_8(d, 16), KT_SUMS_8(d, 24)
        : "l"(a), "l"(b), "r"(accumulate));
}

// d (64, 64) = a (64, 16) b (16, 64), added to d where `accumulate` is not 0. a is in registers, laid out as that of
// mma.m16n8k16: warp i of the warpgroup has rows 16 i to 16 i + 15. b is read as rows, the last number of the instruction.
KT_DEV void wgmma_m64n64k16_rows(float (&d)[32], const u32 (&a)[4], WgDesc b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p,%37,0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        "{%32,%33,%34,%35},%36,p,1,1,1; }"
        : KT_SUMS_8(d, 0), KT_SUMS_8(d, 8), KT_SUMS_8(d, 16), KT_SUMS_8(d, 24)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

// As the first, d (64, 128) and b (128, 16).
KT_DEV void wgmma_m64n128k16(float (&d)[64], WgDesc a, WgDesc b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p,%66,0; "
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
        "%64,%65,p,1,1,0,0; }"
        : KT_SUMS_8(d, 0), KT_SUMS_8(d, 8), KT_SUMS_8(d, 16), KT_SUMS_8(d, 24), KT_SUMS_8(d, 32), KT_SUMS_8(d, 40),
          KT_SUMS_8(d, 48), KT_SUMS_8(d, 56)
        : "l"(a), "l"(b), "r"(accumulate));
}

// The same, d (64, 256) and b (256, 16).
KT_DEV void wgmma_m64n256k16(float (&d)[128], WgDesc a, WgDesc b, int accumulate) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p,%130,0; "
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
        "%128,%129,p,1,1,0,0; }"
        : KT_SUMS_8(d, 0), KT_SUMS_8(d, 8), KT_SUMS_8(d, 16), KT_SUMS_8(d, 24), KT_SUMS_8(d, 32), KT_SUMS_8(d, 40),
          KT_SUMS_8(d, 48), KT_SUMS_8(d, 56), KT_SUMS_8(d, 64), KT_SUMS_8(d, 72), KT_SUMS_8(d, 80), KT_SUMS_8(d, 88),
          KT_SUMS_8(d, 96), KT_SUMS_8(d, 104), KT_SUMS_8(d, 112), KT_SUMS_8(d, 120)
        : "l"(a), "l"(b), "r"(accumulate));
}

#else

#include "emulation/hopper.h"

#endif
