// Runs a grid, one block after another, and finds kernels by name.
//
// Seed 0 is round robin: each warp in turn, each lane once a turn. Any other seed shuffles the blocks, and at each pass
// the warps and lanes, and runs a warp on until all its lanes wait at the block's barrier or for an asynchronous step.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "block.h"

namespace kt {

struct Options {
    u64 seed = 0;
    bool late_copies = false;
    bool late_mma = false;
};

constexpr size_t MAX_SHARED_BYTES = 227 << 10;  // of a block on sm_90; sm_80 has 163 KiB, sm_89 99 KiB

[[noreturn]] inline void die_of_deadlock(const Block& b) {
    int in_collective = 0, polling = 0;
    for (unsigned i = 0; i < b.warp_count; i++) {
        in_collective += __builtin_popcount(b.warps[i].arrived);
        polling += __builtin_popcount(b.warps[i].polling);
    }
    char text[256];
    snprintf(text, sizeof text, "block (%u,%u,%u): of %u threads %d wait in a warp collective, %u at __syncthreads, %d on an mbarrier or wgmma",
             b.index.x, b.index.y, b.index.z, b.alive, in_collective, b.at_barrier, polling);
    die("deadlock:", text);
}

// What a thread runs on. The n-th block gives its thread i the place i + n: ThreadSanitizer, to which a place is a thread,
// then reports what the same thread of two blocks does to the same data.
#ifdef KT_TSAN
constexpr unsigned SETS = 4;
#else
constexpr unsigned SETS = 1;
#endif
struct Place {
    u8* stack;
    void* tsan_fiber;
};

KT_QUIET inline void prepare_block(Block& b, u64 block, const Place* places, u64 n) {
    b.index.x = block % b.grid.x;
    b.index.y = block / b.grid.x % b.grid.y;
    b.index.z = block / b.grid.x / b.grid.y;
    b.alive = b.threads;
    b.at_barrier = 0;
    b.number = n % 64;
    for (unsigned i = 0; i < b.warp_count; i++) {
        Warp& w = b.warps[i];
        unsigned lanes = b.threads - i * 32;
        w.lanes = b.fibers + i * 32;
        w.alive = w.ready = lanes >= 32 ? 0xffffffff : (1u << lanes) - 1;
        w.at_block_barrier = w.polling = w.arrived = 0;
        w.generation = 0;
    }
    for (unsigned i = 0; i < b.threads; i++) {
        Fiber& f = b.fibers[i];
        f.index = i;
        f.lane = i & 31;
        f.warp = &b.warps[i / 32];
        f.position.x = i % b.size.x;
        f.position.y = i / b.size.x % b.size.y;
        f.position.z = i / b.size.x / b.size.y;
        f.first_copy = f.committed = f.last_copy = f.first_group = f.last_group = 0;
        f.wgmma_groups = 0;
        const Place& place = places[(i + n * b.threads) % (SETS * b.threads)];
        prepare_context(&f.context, place.stack, place.tsan_fiber, run_thread);
    }
}

// Wakes lanes whose condition holds by now.
KT_QUIET inline void poll(Warp& w) {
    for (u32 left = w.polling; left; left &= left - 1) {
        u32 lane = __builtin_ctz(left);
        if (w.lanes[lane].blocked(&w.lanes[lane])) continue;
        w.polling &= ~(1u << lane);
        w.ready |= 1u << lane;
    }
}

// One turn of a warp. Returns whether any lane ran.
KT_QUIET inline bool run_warp(Block& b, Warp& w) {
    bool ran = false;
    do {
        poll(w);
        w.turn = 0xffffffff;
        Fiber* f = take_ready_lane(&b, &w);
        if (!f) break;
        cur = f;
        switch_context(&b.scheduler, &f->context, false);
        ran = true;
    } while (b.random);
    return ran;
}

KT_QUIET inline bool any_is_late(const Block& b) {
    for (unsigned i = 0; i < b.warp_count; i++)
        for (u32 left = b.warps[i].polling; left; left &= left - 1)
            if (b.warps[i].lanes[__builtin_ctz(left)].blocked == in_this_pass) return true;
    return false;
}

KT_QUIET inline void run_block(Block& b, u64 seed) {
    unsigned order[32];
    Random random{seed};
    for (unsigned i = 0; i < b.warp_count; i++) order[i] = i;
    for (unsigned i = 0; i < 32; i++) b.lane_order[i] = i;
    blk = &b;
    while (b.alive) {
        b.pass++;
        if (b.random) {
            random.shuffle(order, b.warp_count);
            random.shuffle(b.lane_order, 32);
        }
        bool ran = false;
        for (unsigned i = 0; i < b.warp_count; i++) ran |= run_warp(b, b.warps[order[i]]);
        if (ran || any_is_late(b)) continue;
        // All threads wait: a copy that the hardware may delay is delayed until now.
        if (b.advance && b.advance(&b)) continue;
        die_of_deadlock(b);
    }
    blk = nullptr;
    if (b.finish) b.finish(&b);
}

// An OS thread keeps its places from launch to launch.
class Places {
public:
    const Place* at_least(unsigned threads) {
        while (all.size() < threads) add();
        return all.data();
    }
    Places() = default;
    Places(const Places&) = delete;
    ~Places() {
        for (const Place& place : all) {
#ifdef KT_TSAN
            __tsan_destroy_fiber(place.tsan_fiber);
#endif
            munmap(place.stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
        }
    }

private:
    static constexpr size_t GUARD_BYTES = 4096;  // faults where a stack overflows

    void add() {
        void* p = mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE)) die("no memory for stacks");
        Place place{(u8*)p + GUARD_BYTES, nullptr};
#ifdef KT_TSAN
        place.tsan_fiber = __tsan_create_fiber(0);
#endif
#ifdef KT_VALGRIND
        VALGRIND_STACK_REGISTER(place.stack, place.stack + STACK_BYTES);
#endif
        all.push_back(place);
    }

    std::vector<Place> all;
};

// Shared memory of blocks that have ended. ThreadSanitizer needs fresh memory for each block: it would take two blocks
// that use the same in turn for a race.
class SharedMemory {
public:
    void allocate(Block& b, size_t dynamic_bytes) {
#ifndef KT_TSAN
        clear();
#endif
        allocate_shared_memory(&b, dynamic_bytes);
        all.push_back(b.dynamic_shared);
        all.push_back(b.static_shared);
    }
    void clear() {
        for (void* p : all) free(p);
        all.clear();
    }
    ~SharedMemory() { clear(); }

private:
    std::vector<void*> all;
};

// Blocks are not ordered with each other (ThreadSanitizer reports it where two of them touch the same data), and all end
// before the launch does.
inline void launch(dim3 grid, dim3 size, size_t shared_bytes, const std::function<void()>& kernel, Options options) {
    unsigned threads = size.x * size.y * size.z;
    if (threads == 0 || threads > 1024) die("a block has 1 to 1,024 threads");
    if (shared_bytes > MAX_SHARED_BYTES) die("a block has at most 227 KiB of shared memory");
    u64 blocks = (u64)grid.x * grid.y * grid.z;
    if (blocks == 0) die("an empty grid");

    static thread_local std::vector<Fiber> fibers;
    static thread_local std::vector<Warp> warps;
    fibers.resize(std::max<size_t>(fibers.size(), threads));
    warps.resize(std::max<size_t>(warps.size(), (threads + 31) / 32));
    Block b;
    b.size = size;
    b.grid = grid;
    b.fibers = fibers.data();
    b.threads = threads;
    b.warps = warps.data();
    b.warp_count = (threads + 31) / 32;
    b.random = options.seed != 0;
    b.late_copies = options.late_copies;
    b.late_mma = options.late_mma;
    b.kernel = &kernel;
#ifdef KT_TSAN
    b.scheduler.tsan_fiber = __tsan_get_current_fiber();
#endif

    std::vector<u64> order(b.random ? blocks : 0);
    for (u64 i = 0; i < order.size(); i++) order[i] = i;
    Random{options.seed}.shuffle(order.data(), order.size());
    static thread_local Places places;
    SharedMemory shared;
    for (u64 i = 0; i < blocks; i++) {
        u64 block = b.random ? order[i] : i;
        shared.allocate(b, shared_bytes);
        prepare_block(b, block, places.at_least(SETS * threads), i);
#ifdef KT_TSAN
        __tsan_release(&b.start_sync);
#endif
        run_block(b, options.seed * 1000003 + block);
    }
#ifdef KT_TSAN
    __tsan_acquire(&b.exit_sync);
#endif
}

// --- Kernels by name ---

typedef void (*Launcher)(dim3, dim3, size_t, void**, Options);

inline std::map<std::string, Launcher>& kernels() {
    static std::map<std::string, Launcher> all;
    return all;
}

template <class... A, size_t... I>
inline void launch_with(void (*kernel)(A...), std::index_sequence<I...>, dim3 grid, dim3 size, size_t shared_bytes, void** args, Options options) {
    launch(grid, size, shared_bytes, [&] { kernel(*(std::remove_reference_t<A>*)args[I]...); }, options);
}

template <class... A>
inline void launch_with(void (*kernel)(A...), dim3 grid, dim3 size, size_t shared_bytes, void** args, Options options) {
    launch_with(kernel, std::index_sequence_for<A...>(), grid, size, shared_bytes, args, options);
}

}  // namespace kt

#define KT_EXPORT(name)                                                                                          \
    static const bool kt_exported_##name = [] {                                                                  \
        kt::kernels()[#name] = [](dim3 grid, dim3 size, size_t shared_bytes, void** args, kt::Options options) { \
            kt::launch_with(name, grid, size, shared_bytes, args, options);                                      \
        };                                                                                                       \
        return true;                                                                                             \
    }()
