// The state of a running block: its threads, warps and shared memory, and how a thread waits.
//
// A thread runs until it must wait; then the next ready lane of its warp runs, or else the scheduler (launch.h) picks a
// warp. A program that is wrong prints one line and aborts.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>

#include "fiber.h"

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace kt {

[[noreturn]] inline void die(const char* what, const char* detail = "") {
    fprintf(stderr, "kernel emulation: %s %s\n", what, detail);
    fflush(stderr);
    abort();
}

// Small and the same everywhere, so that a seed names a schedule.
struct Random {
    u64 state;
    u64 next() {
        u64 z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    template <class T>
    void shuffle(T* values, size_t n) {
        for (size_t i = n; i > 1; i--) std::swap(values[i - 1], values[next() % i]);
    }
};

enum class Collective : u32 { none, shuffle, barrier, ldmatrix, mma };

struct Fiber;

struct Warp {
    Fiber* lanes = nullptr;
    // Sets of lanes, one bit each. A lane that runs is in `alive` only.
    u32 alive = 0;
    u32 ready = 0;
    u32 at_block_barrier = 0;
    u32 polling = 0;  // `Fiber::blocked` says for how long
    u32 arrived = 0;  // at the collective `op`
    u32 turn = 0;     // lanes that have not run yet in this turn of the warp
    Collective op = Collective::none;
    // What lanes bring to a collective and take from it. Two of each: a lane may reach the next collective before
    // another has taken the results of this one.
    u64 generation = 0;
    u32 members[2];
    alignas(16) u8 in[2][32][48];
    alignas(16) u8 out[2][32][16];
    char sync[64];  // its address is what ThreadSanitizer orders warp barriers by
};

// A copy by cp.async that is not made yet.
struct PendingCopy {
    void* shared;
    const void* global;
    bool in_range;
};

struct Fiber {
    static constexpr u32 COPIES = 128, GROUPS = 16;

    Context context;
    unsigned index = 0;
    unsigned lane = 0;
    dim3 position;
    Warp* warp = nullptr;

    // True as long as this thread must wait; a condition for which no other thread wakes it.
    bool (*blocked)(Fiber*) = nullptr;
    void* blocked_on = nullptr;
    u64 blocked_value = 0;

    // A ring of copies: [first_copy, committed) belong to groups, [committed, last_copy) to none yet.
    PendingCopy copies[COPIES];
    u32 first_copy = 0, committed = 0, last_copy = 0;
    u32 group_end[GROUPS];
    u32 first_group = 0, last_group = 0;

    u32 wgmma_groups = 0;  // that this thread has committed
};

// A KT_SHARED variable: which, and where it lies in this block.
struct SharedVariable {
    const void* site;
    void* memory;
};
constexpr unsigned SHARED_VARIABLES = 16;
constexpr size_t STATIC_SHARED_BYTES = 48 << 10;

struct Block {
    dim3 index, size, grid;
    Context scheduler;
    u8* dynamic_shared = nullptr;
    u8* static_shared = nullptr;
    size_t static_bytes = 0;  // in use
    SharedVariable shared_variables[SHARED_VARIABLES];
    unsigned shared_variable_count = 0;

    Fiber* fibers = nullptr;
    unsigned threads = 0;
    Warp* warps = nullptr;
    unsigned warp_count = 0;
    unsigned alive = 0;
    unsigned at_barrier = 0;
    char start_sync, barrier_sync[64], exit_sync;
    unsigned number = 0;

    bool random = false, late_copies = false, late_mma = false;
    u8 lane_order[32];
    u32 next_lane = 0;
    u64 pass = 0;  // of the scheduler over all warps

    const std::function<void()>* kernel = nullptr;
    // Makes one pending asynchronous step where all threads wait; false where there is none.
    bool (*advance)(Block*) = nullptr;
    void (*finish)(Block*) = nullptr;  // at the block's end
    struct Hopper* hopper = nullptr;
};

// Read at each step of a kernel: the model spares a call for each read in a shared library.
#define KT_FAST_TLS __attribute__((tls_model("initial-exec")))
inline thread_local Block* blk KT_FAST_TLS = nullptr;
inline thread_local Fiber* cur KT_FAST_TLS = nullptr;

// --- Waiting ---

// The next lane to run of a warp, or null. Round robin gives each lane one go a turn; a random schedule runs a warp as
// far as it can.
KT_QUIET inline Fiber* take_ready_lane(Block* b, Warp* w) {
    u32 candidates = b->random ? w->ready : w->ready & w->turn;
    if (!candidates) return nullptr;
    u32 lane = __builtin_ctz(candidates);
    if (b->random) {
        do lane = b->lane_order[b->next_lane++ & 31];
        while (!(candidates >> lane & 1));
    }
    w->turn &= ~(1u << lane);
    w->ready &= ~(1u << lane);
    return &w->lanes[lane];
}

// Lets others run until somebody makes this thread ready again.
KT_QUIET inline void pause_thread(bool last = false) {
    Fiber* me = cur;
    Fiber* next = take_ready_lane(blk, me->warp);
    cur = next;
    switch_context(&me->context, next ? &next->context : &blk->scheduler, last);
}

// Waits as long as `blocked` says so.
KT_QUIET inline void pause_while(bool (*blocked)(Fiber*), void* on, u64 value) {
    Fiber* f = cur;
    f->blocked = blocked;
    f->blocked_on = on;
    f->blocked_value = value;
    f->warp->polling |= 1u << f->lane;
    pause_thread();
}

KT_QUIET inline bool in_this_pass(Fiber* f) {
    return blk->pass == f->blocked_value;
}

// In random schedules, lets every other warp run first: for places where a GPU may be arbitrarily late.
KT_QUIET inline void be_late() {
    if (blk->random) pause_while(in_this_pass, nullptr, blk->pass);
}

// --- The block's barrier ---

KT_QUIET inline void release_block(Block* b) {
    b->at_barrier = 0;
    for (unsigned i = 0; i < b->warp_count; i++) {
        b->warps[i].ready |= b->warps[i].at_block_barrier;
        b->warps[i].at_block_barrier = 0;
    }
}

KT_QUIET inline void syncthreads() {
    Block* b = blk;
    Warp* w = cur->warp;
#ifdef KT_TSAN
    __tsan_release(&b->barrier_sync[b->number]);
#endif
    if (++b->at_barrier == b->alive) {
        release_block(b);
    } else {
        w->at_block_barrier |= 1u << cur->lane;
        pause_thread();
    }
#ifdef KT_TSAN
    __tsan_acquire(&b->barrier_sync[b->number]);
#endif
}

// --- A thread's life ---

KT_QUIET inline void run_thread() {
    switched(nullptr);
    Block* b = blk;
#ifdef KT_TSAN
    __tsan_acquire(&b->start_sync);
#endif
    (*b->kernel)();
    Fiber* f = cur;
    Warp* w = f->warp;
#ifdef KT_TSAN
    __tsan_release(&b->exit_sync);
#endif
    if (f->first_copy != f->last_copy) die("a thread ended with cp.async copies under way");
    if (w->arrived) die("a thread ended while its warp waits in a collective");
    w->alive &= ~(1u << f->lane);
    b->alive--;
    if (b->alive && b->at_barrier == b->alive) release_block(b);
    pause_thread(true);
    die("an ended thread ran");
}

// --- Shared memory ---

// Shared memory begins as NaN in every format that kernels use.
KT_QUIET inline void fill_with_nan(void* memory, size_t bytes) {
    volatile u32* words = (volatile u32*)memory;  // volatile: no call of memset, which ThreadSanitizer would see
    for (size_t i = 0; i < bytes / 4; i++) words[i] = 0xffffffff;
}

constexpr size_t round_up_128(size_t bytes) {
    return (bytes + 127) / 128 * 128;
}

// Static shared memory begins as poison to AddressSanitizer, and stays so between variables.
KT_QUIET inline void allocate_shared_memory(Block* b, size_t dynamic_bytes) {
    size_t room = round_up_128(dynamic_bytes);
    b->dynamic_shared = (u8*)aligned_alloc(128, room ? room : 128);
    b->static_shared = (u8*)aligned_alloc(128, STATIC_SHARED_BYTES + SHARED_VARIABLES * 128);
    if (!b->dynamic_shared || !b->static_shared) die("out of memory");
    fill_with_nan(b->dynamic_shared, room);
#ifdef KT_ASAN
    __asan_poison_memory_region(b->dynamic_shared + dynamic_bytes, room - dynamic_bytes);
    __asan_poison_memory_region(b->static_shared, STATIC_SHARED_BYTES + SHARED_VARIABLES * 128);
#endif
    b->static_bytes = b->shared_variable_count = 0;
}

// The first thread to come to a variable makes it.
KT_QUIET inline void* find_shared_variable(const void* site, size_t bytes) {
    Block* b = blk;
    for (unsigned i = 0; i < b->shared_variable_count; i++)
        if (b->shared_variables[i].site == site) return b->shared_variables[i].memory;
    unsigned count = b->shared_variable_count++;
    size_t at = b->static_bytes + count * 128;
    b->static_bytes += round_up_128(bytes);
    if (count == SHARED_VARIABLES) die("a block has more than 16 shared variables");
    if (b->static_bytes > STATIC_SHARED_BYTES) die("a block has more than 48 KiB of static shared memory");
    u8* memory = b->static_shared + at;
#ifdef KT_ASAN
    __asan_unpoison_memory_region(memory, bytes);
#endif
    fill_with_nan(memory, bytes);
    b->shared_variables[count] = {site, memory};
    return memory;
}

}  // namespace kt
