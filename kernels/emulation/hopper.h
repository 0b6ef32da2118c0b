// mbarriers, TMA loads and wgmma on the CPU. Included by kt_hopper.h.
//
// Late copies: a TMA load lands only when every thread of the block waits. Late wgmma: a product reads its operands and
// writes its accumulators only when its warpgroup waits for its group. Both are the latest that the hardware may choose.
#pragma once
#include "cpu.h"

#define KT_GRID_CONST const

namespace kt {

// --- mbarriers ---

// In the 8 bytes of the kernel's u64.
struct Mbarrier {
    u16 arrivals;  // of each phase
    u16 pending;
    u32 phase : 1;
    int bytes : 31;  // that TMA has yet to bring
};
static_assert(sizeof(Mbarrier) == 8, "an mbarrier has 8 bytes");

KT_QUIET inline void end_phase_if_complete(Mbarrier* bar) {
    if (bar->pending || bar->bytes) return;
    bar->pending = bar->arrivals;
    bar->phase ^= 1;
}

KT_QUIET inline void start_barrier(u64* at, u32 arrivals) {
    if ((uintptr_t)at & 7) die("misaligned mbarrier");
    Mbarrier* bar = (Mbarrier*)at;
    bar->arrivals = bar->pending = arrivals;
    bar->phase = 0;
    bar->bytes = 0;
}

KT_QUIET inline void arrive(u64* at, int bytes) {
    Mbarrier* bar = (Mbarrier*)at;
#ifdef KT_TSAN
    __tsan_release(at);
#endif
    if (!bar->pending) die("more threads arrived at an mbarrier than it counts");
    bar->bytes += bytes;
    bar->pending--;
    end_phase_if_complete(bar);
}

KT_QUIET inline bool in_phase(Fiber* f) {
    return ((Mbarrier*)f->blocked_on)->phase == f->blocked_value;
}

KT_QUIET inline void wait_phase(u64* at, u32 parity) {
    if (((Mbarrier*)at)->phase == parity) pause_while(in_phase, at, parity);
#ifdef KT_TSAN
    __tsan_acquire(at);
#endif
}

// --- The block's asynchronous state ---

struct Load {
    void* shared;
    TensorMap map;
    int x, y;
    u64* bar;
};

constexpr unsigned WARPGROUP = 128;

struct Product {
    const u8 *a, *b;  // a is null where it is in registers
    int accumulate;
    u32 group;
    void (*run)(const Product&);
    float* d[WARPGROUP];
    const u32* fragments[WARPGROUP];  // each thread's four registers of a; read when the product runs
};

// What has been asked for and is not done yet, oldest first. No library's container: ThreadSanitizer would see it.
template <class T, u32 N>
struct Ring {
    T items[N];
    u32 first, last;

    KT_QUIET bool empty() const { return first == last; }
    KT_QUIET T& next() { return items[last % N]; }
    KT_QUIET T& oldest() { return items[first % N]; }
    KT_QUIET void push() {
        if (++last - first >= N) die("too many asynchronous steps are under way");
    }
};

struct Warpgroup {
    u32 arrived;
    u64 generation;
    Ring<Product, 64> late;  // the product that threads are arriving at is late.next()
};

// Operands and result of the product that runs.
struct Scratch {
    float a[64][16];
    alignas(32) float b[16 * 256];
    alignas(32) float c[64 * 256];
};

struct Hopper {
    Ring<Load, 64> loads;
    Warpgroup warpgroups[1024 / WARPGROUP];
    Scratch scratch;
    char load_sync;
};

// One for each OS thread, in pages of its own: too large for thread-local storage.
class HopperPages {
public:
    HopperPages() {
        void* p = mmap(nullptr, sizeof(Hopper), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) die("no memory for the state of TMA and wgmma");
        hopper = (Hopper*)p;
    }
    ~HopperPages() { munmap(hopper, sizeof(Hopper)); }
    HopperPages(const HopperPages&) = delete;
    Hopper* hopper;
};

bool land_one_load(Block* b);
void finish_hopper(Block* b);

KT_QUIET inline Hopper* hopper() {
    Block* b = blk;
    if (!b->hopper) {
        static thread_local HopperPages pages;
        b->hopper = pages.hopper;
        b->advance = land_one_load;
        b->finish = finish_hopper;
    }
    return b->hopper;
}

// The state is left as it was found: nothing waits.
KT_QUIET inline void finish_hopper(Block* b) {
    if (!b->hopper->loads.empty()) die("a block ended with TMA loads under way");
    for (Warpgroup& g : b->hopper->warpgroups)
        if (g.arrived || !g.late.empty()) die("a block ended with wgmma under way");
    b->hopper = nullptr;
    b->advance = nullptr;
    b->finish = nullptr;
}

// --- TMA ---

constexpr int BOX_COLUMNS = 64;  // 128 bytes, as the swizzle asks

// Where the 128-byte swizzle puts an address. Tiles begin at multiples of 1,024 bytes.
inline uintptr_t swizzled(uintptr_t at) {
    return at ^ (at >> 7 & 7) << 4;
}

KT_QUIET inline void count_bytes(u64* at, int bytes) {
    Mbarrier* bar = (Mbarrier*)at;
#ifdef KT_TSAN
    __tsan_release(at);
#endif
    bar->bytes -= bytes;
    end_phase_if_complete(bar);
}

// A box of bf16 into a tile. A sanitizer sees what it reads and writes.
inline void copy_box(void* tile, const u8* base, long rows, long columns, long row_bytes, int box_rows, int x, int y) {
    if ((uintptr_t)tile & 1023) die("a TMA tile begins at a multiple of 1,024 bytes");
    for (int r = 0; r < box_rows; r++) {
        long row = (long)y + r;
        bool row_inside = row >= 0 && row < rows;
        for (int c = 0; c < BOX_COLUMNS; c += 8) {
            u16* to = (u16*)swizzled((uintptr_t)tile + r * 128 + c * 2);
            for (int i = 0; i < 8; i++) {
                long column = (long)x + c + i;
                bool inside = row_inside && column >= 0 && column < columns;
                to[i] = inside ? *(const u16*)(base + row * row_bytes + column * 2) : 0;
            }
        }
    }
}

KT_QUIET inline void land(const Load& load) {
    const u64* map = load.map.w;
    copy_box(load.shared, (const u8*)map[0], map[1], map[2], map[3], map[4], load.x, load.y);
    count_bytes(load.bar, (int)map[4] * BOX_COLUMNS * 2);
}

KT_QUIET inline bool land_one_load(Block* b) {
    Hopper* h = b->hopper;
    if (h->loads.empty()) return false;
#ifdef KT_TSAN
    __tsan_acquire(&h->load_sync);
#endif
    land(h->loads.oldest());
    h->loads.first++;
    return true;
}

KT_QUIET inline void start_load(void* shared, const TensorMap* map, int x, int y, u64* bar) {
    Hopper* h = hopper();
    Load& load = h->loads.next();
    load.shared = shared;
    copy_words(&load.map, map, sizeof load.map);
    load.x = x;
    load.y = y;
    load.bar = bar;
    if (!blk->late_copies) {
        land(load);
        return;
    }
#ifdef KT_TSAN
    __tsan_release(&h->load_sync);
#endif
    h->loads.push();
}

// --- wgmma ---

// Tiles are read as the kernel's thread would: a sanitizer sees it.
inline float operand(const u8* tile, int row, int k) {
    return bits_to_float((u32) * (const u16*)swizzled((uintptr_t)tile + row * 128 + k * 2) << 16);
}

// Registers lie on the stacks of other threads, as accumulators do: see below.
KT_QUIET inline void load_fragments(float (&a)[64][16], const Product& p) {
    for (unsigned thread = 0; thread < WARPGROUP; thread++)
        for (int r = 0; r < 4; r++) {
            u32 pair = p.fragments[thread][r];
            int row = thread / 32 * 16 + thread % 32 / 4 + r % 2 * 8, k = thread % 4 * 2 + r / 2 * 8;
            a[row][k] = bits_to_float(pair << 16);
            a[row][k + 1] = bits_to_float(pair & 0xffff0000);
        }
}

// Accumulators lie on the stacks of other threads, which ThreadSanitizer must not take for shared data.
template <int N>
KT_QUIET inline void store_product(const Product& p, const float* c) {
    for (unsigned thread = 0; thread < WARPGROUP; thread++) {
        int row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
        float* d = p.d[thread];
        for (int j = 0; j < N / 8; j++)
            for (int h = 0; h < 4; h++) {
                float value = c[(row + h / 2 * 8) * N + j * 8 + column + h % 2];
                d[4 * j + h] = p.accumulate ? d[4 * j + h] + value : value;
            }
    }
}

// Products are summed in f32 in the order of k, and then added to d. With B_ROWS, row k of b's tile is row k of b; else row n
// of the tile is column n of b.
template <int N, bool B_ROWS>
KT_QUIET inline void run_product(const Product& p) {
    static_assert(!B_ROWS || N == 64, "a row of a tile has 64 columns");
    typedef float Columns __attribute__((vector_size(32)));
    Scratch& s = hopper()->scratch;
    if (!p.a) load_fragments(s.a, p);
    for (int m = 0; p.a && m < 64; m++)
        for (int k = 0; k < 16; k++) s.a[m][k] = operand(p.a, m, k);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < 16; k++) s.b[k * N + n] = B_ROWS ? operand(p.b, k, n) : operand(p.b, n, k);
    for (int n = 0; n < N; n += 8) {
        Columns b[16];
        for (int k = 0; k < 16; k++) b[k] = *(const Columns*)&s.b[k * N + n];
        for (int m = 0; m < 64; m++) {
            Columns sum = {};
            for (int k = 0; k < 16; k++) sum += s.a[m][k] * b[k];
            *(Columns*)&s.c[m * N + n] = sum;
        }
    }
    store_product<N>(p, s.c);
}

KT_QUIET inline bool in_generation(Fiber* f) {
    return ((Warpgroup*)f->blocked_on)->generation == f->blocked_value;
}

// The last of the 128 threads to come starts the product. a lies in a tile, or in the threads' registers.
template <int N, bool B_ROWS = false>
KT_QUIET inline void multiply(float* d, const u8* a, const u32* fragment, const u8* b, int accumulate) {
    static_assert(N % 8 == 0 && N >= 8 && N <= 256, "shapes of wgmma");
    Fiber* f = cur;
    Warpgroup& g = hopper()->warpgroups[f->index / WARPGROUP];
    Product& p = g.late.next();
    if (g.arrived && (p.a != a || p.b != b || p.accumulate != accumulate || p.run != run_product<N, B_ROWS>))
        die("threads of one warpgroup reached different wgmma");
    p.a = a;
    p.b = b;
    p.accumulate = accumulate;
    p.group = f->wgmma_groups;
    p.run = run_product<N, B_ROWS>;
    p.d[f->index % WARPGROUP] = d;
    p.fragments[f->index % WARPGROUP] = fragment;
    if (++g.arrived < WARPGROUP) {
        pause_while(in_generation, &g, g.generation);
        return;
    }
    g.arrived = 0;
    g.generation++;
    if (blk->late_mma)
        g.late.push();
    else
        p.run(p);
}

// Runs products of all but the last `keep` groups that this thread has committed.
KT_QUIET inline void wait_products(u32 keep) {
    Warpgroup& g = hopper()->warpgroups[cur->index / WARPGROUP];
    while (!g.late.empty() && (int)(cur->wgmma_groups - keep - g.late.oldest().group) > 0) {
        g.late.oldest().run(g.late.oldest());
        g.late.first++;
    }
    asm volatile("" ::: "memory");  // another thread may have written this one's accumulators
}

}  // namespace kt

// --- The kernels' names ---

KT_DEV void mbar_init(u64* bar, u32 arrivals) {
    kt::start_barrier(bar, arrivals);
}

KT_DEV void mbar_init_fence() {}

KT_DEV void mbar_arrive(u64* bar) {
    kt::arrive(bar, 0);
    kt::be_late();
}

KT_DEV void mbar_expect_tx(u64* bar, u32 bytes) {
    kt::arrive(bar, bytes);
}

KT_DEV void mbar_wait(u64* bar, u32 parity) {
    kt::wait_phase(bar, parity);
}

KT_DEV void async_fence() {}

KT_DEV void tma_load_2d(void* shared, const TensorMap* map, int x, int y, u64* bar) {
    kt::start_load(shared, map, x, y, bar);
}

namespace kt {
KT_QUIET inline void commit_products() {
    cur->wgmma_groups++;
}
}  // namespace kt

typedef const u8* WgDesc;

KT_DEV WgDesc wg_desc(const void* tile) {
    if ((uintptr_t)tile & 1023) kt::die("a wgmma tile begins at a multiple of 1,024 bytes");
    return (const u8*)tile;
}

KT_DEV WgDesc wg_step(WgDesc tile, int k) {
    return tile + k * 32;
}

KT_DEV WgDesc wg_step_rows(WgDesc tile, int k) {
    return tile + k * 16 * 128;
}

KT_DEV void wg_fence() {}

template <int N>
KT_DEV void wg_pin(float (&)[N]) {}

template <int N>
KT_DEV void wg_pin(u32 (&)[N][4]) {}

KT_DEV void wg_commit() {
    kt::commit_products();
}

template <int N>
KT_DEV void wg_wait() {
    kt::wait_products(N);
}

KT_DEV void wgmma_m64n64k16(float (&d)[32], WgDesc a, WgDesc b, int accumulate) {
    kt::multiply<64>(d, a, nullptr, b, accumulate);
}

KT_DEV void wgmma_m64n64k16_rows(float (&d)[32], const u32 (&a)[4], WgDesc b, int accumulate) {
    kt::multiply<64, true>(d, nullptr, a, b, accumulate);
}

KT_DEV void wgmma_m64n128k16(float (&d)[64], WgDesc a, WgDesc b, int accumulate) {
    kt::multiply<128>(d, a, nullptr, b, accumulate);
}

KT_DEV void wgmma_m64n256k16(float (&d)[128], WgDesc a, WgDesc b, int accumulate) {
    kt::multiply<256>(d, a, nullptr, b, accumulate);
}

template <int N>
KT_DEV void fewer_registers() {
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "setmaxnreg takes multiples of 8 from 24 to 256");
}

template <int N>
KT_DEV void more_registers() {
    fewer_registers<N>();
}
