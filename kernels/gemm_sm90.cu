// gemm_sm90: c = epilogue(a w^T + bias) on Hopper's tensor cores, with TMA and wgmma. Compiled for sm_90a alone.
//
// Shapes     a (rows, depth), w (columns, depth), c and residual (rows, columns), all bf16, row-major; bias (columns) f32.
//            Any number of rows from 1, columns a multiple of 8, depth a multiple of 64 from 64. residual may be c; it is
//            null unless used. a and w come as tensor maps; what is outside of them reads as zero.
// Kernels    gemm90_{bias,gelu,residual}_{128x128,128x256}; what the epilogues do is in epilogue.h.
// Launch     384 threads a block, grid.x any number of blocks from 1 on: each takes every grid.x-th tile. The smaller of
//            the number of tiles and of multiprocessors is best.
//
//            tile      stages x depth   box of a   box of w   dynamic shared bytes   blocks on a multiprocessor
//            128x128   6 x 64           128 x 64   128 x 64   197,728                1
//            128x256   4 x 64           128 x 64   256 x 64   197,696                1
//
//            The shared memory must be asked for with a function attribute; tensor maps have the 128-byte swizzle and
//            fill with zeros. 128x256 is for many rows; 128x128 where larger tiles would leave multiprocessors idle.
// Numerics   Products of bf16 summed in f32, in the order of depth, rounded once. An element's bits depend on its row of a,
//            its row of w, bias and residual alone: not on rows, the grid, or which block takes the tile.
// Cost       2 rows columns depth operations; a is read ceil(columns / COLUMNS) times and w ceil(rows / 128) times, from L2
//            but for the first time.
// Source     The persistent, warp-specialised GEMM of CUTLASS for Hopper ("cooperative"), written anew.
//
// How it works. One thread of the last warpgroup, the producer, keeps a ring of stages full: it waits until a stage is
// empty and asks TMA for the next 64 columns of a and of w. Two warpgroups, the consumers, multiply 64 rows of the tile
// each. They keep one group of products under way, so a stage is given back when the products of the next one have been
// started. The producer runs ahead into the next tile while the consumers finish this one.
//
// Why one tile for both consumers, and not a tile each in turns ("ping-pong"), which would hide the epilogue. A consumer has
// registers for 128 sums a thread, so its own tile could be 128x128. Cycles of a multiprocessor for 64 of depth, with 2,048
// multiplications a cycle and 128 bytes of shared memory (each wgmma reads its 64 rows of a and all of w, TMA writes each
// stage once), and the bytes that L2 must give a cycle at full speed:
//
//            tile                products   shared   L2
//            128x256, both       1,024      1,024    48
//            128x128, in turns     512        640    64
//
// L2 is what bounds both: NVIDIA states 5,120 bytes a cycle for the A100's and nothing for Hopper's. With as many, 39 for each
// of 132 multiprocessors, ping-pong would reach 0.6 of the peak, 128x256 0.8. A tile's epilogue is 128 elements a thread, some
// 1,500 cycles of issue for bias and residual and 3,500 for GELU, beside 16,400 for the products at depth 1,024 and 65,500 at
// depth 4,096. Loads fill the ring again meanwhile, so the slower of the two counts, not their sum:
//
//                                loads    products and epilogue   of the peak
//            depth 1,024         20,200   17,900                  0.81
//            depth 1,024, GELU   20,200   19,900                  0.81
//            depth 4,096         80,700   67,000                  0.81
//
// The clock under load, launch and the last wave of tiles come on top, and all of this is counted, not measured. Should L2
// give less than 34 bytes, 0.7 needs clusters: two blocks that share w by multicast load 32 bytes a cycle instead of 48. They
// are not done: a grid would have to be a multiple of two blocks.
//
// The store goes through registers: a quad exchanges pairs (quad.h), then each lane stores 16 bytes and a quad 64 of a row,
// two whole sectors; a warp's store is 16 whole sectors. Pairs stored as they lie would be half sectors, four times as many
// instructions. stmatrix and a TMA store would write the same sectors and spare the shuffles, 512 a tile or 1,024 with a
// residual; the 32 KB that fit beside four stages of 128x256 would take the tile in two parts, with barriers between.
#include "epilogue.h"
#include "kt_hopper.h"

namespace gemm90 {

// Columns of a and w in a stage: a row of it is the 128 bytes of the swizzle.
constexpr int DEPTH = 64;
constexpr int WARPGROUP = 128;
// Rows of the tile that a consumer multiplies: those of a wgmma.
constexpr int CONSUMER_ROWS = 64;
constexpr int CONSUMERS = 2;
constexpr int CONSUMER_WARPS = CONSUMERS * WARPGROUP / 32;
constexpr int THREADS = (CONSUMERS + 1) * WARPGROUP;

// A block has 65,536 registers, so it starts with at most 168 a thread: 168 + 168 + 168 >= 240 + 240 + 24.
constexpr int CONSUMER_REGISTERS = 240;
constexpr int PRODUCER_REGISTERS = 24;

template <int COLUMNS_, int STAGES_>
struct Shape {
    static constexpr int ROWS = CONSUMERS * CONSUMER_ROWS, COLUMNS = COLUMNS_, STAGES = STAGES_;
    // A stage is a tile of a, then a tile of w, each at a multiple of 1,024 bytes.
    static constexpr int A_BYTES = ROWS * DEPTH * 2;
    static constexpr int STAGE_BYTES = A_BYTES + COLUMNS * DEPTH * 2;
    // Of a thread.
    static constexpr int SUMS = CONSUMER_ROWS * COLUMNS / WARPGROUP;
    // Dynamic shared memory begins at a multiple of 128 bytes: up to 1,024 are lost. Two barriers a stage.
    static constexpr int SHARED_BYTES = 1024 + STAGES * (STAGE_BYTES + 16);
};

typedef Shape<128, 6> Shape128x128;
typedef Shape<256, 4> Shape128x256;
static_assert(Shape128x128::SHARED_BYTES == 197728 && Shape128x256::SHARED_BYTES == 197696, "as stated above");

struct Problem {
    int rows, columns, depth;
};

// --- The ring of stages ---

struct Ring {
    unsigned char* stages;
    u64* full;   // the producer's arrival and the bytes that TMA brings
    u64* empty;  // an arrival of each consumer warp
};

template <class S>
KT_DEV Ring ring_in(unsigned char* shared) {
    unsigned char* stages = (unsigned char*)(((u64)shared + 1023) / 1024 * 1024);
    u64* barriers = (u64*)(stages + S::STAGES * S::STAGE_BYTES);
    return Ring{stages, barriers, barriers + S::STAGES};
}

// Where a thread is in the ring: the stage, and the parity of how often it went around.
struct Position {
    int stage;
    u32 parity;
};

template <class S>
KT_DEV void advance(Position& at) {
    at.stage++;
    if (at.stage == S::STAGES) {
        at.stage = 0;
#if BUG != 43  // Wrong: from the second round on, waits end that should not.
        at.parity ^= 1;
#endif
    }
}

// --- The order of tiles ---

struct Place {
    int row, column;
};

template <class S>
KT_DEV int count_tiles(const Problem& p) {
    return (p.rows + S::ROWS - 1) / S::ROWS * ((p.columns + S::COLUMNS - 1) / S::COLUMNS);
}

// Tiles that are multiplied at the same time should share what they read: the order goes down 16 tiles of rows, then on to
// the next column, so that 132 blocks touch 16 tiles of a and 9 of w.
template <class S>
KT_DEV Place place_of(int tile, const Problem& p) {
    constexpr int GROUP = 16;
    const int row_tiles = (p.rows + S::ROWS - 1) / S::ROWS;
    const int column_tiles = (p.columns + S::COLUMNS - 1) / S::COLUMNS;
    const int first = tile / (GROUP * column_tiles) * GROUP;
    const int within = tile % (GROUP * column_tiles);
#if BUG == 47
    // Wrong: the last group has fewer rows of tiles; some are skipped, others taken below the end.
    const int height = GROUP;
#else
    const int height = row_tiles - first < GROUP ? row_tiles - first : GROUP;
#endif
    return Place{(first + within % height) * S::ROWS, within / height * S::COLUMNS};
}

// --- The producer: one thread ---

template <class S>
KT_DEV void produce(const Ring& ring, const TensorMap* a, const TensorMap* w, const Problem& p) {
#if BUG == 44
    // Wrong: more bytes than come. The stage is never full.
    const u32 bytes = S::STAGE_BYTES + 128;
#else
    const u32 bytes = S::STAGE_BYTES;
#endif
    Position at = {0, 0};
    for (int tile = blockIdx.x; tile < count_tiles<S>(p); tile += gridDim.x) {
        const Place place = place_of<S>(tile, p);
        for (int from = 0; from < p.depth; from += DEPTH) {
            unsigned char* stage = ring.stages + at.stage * S::STAGE_BYTES;
#if BUG != 41  // Wrong: overwrites stages that have not been multiplied.
            // In the first round this does not wait: all stages begin empty.
            mbar_wait(ring.empty + at.stage, at.parity ^ 1);
#endif
            mbar_expect_tx(ring.full + at.stage, bytes);
            tma_load_2d(stage, a, from, place.row, ring.full + at.stage);
            tma_load_2d(stage + S::A_BYTES, w, from, place.column, ring.full + at.stage);
            advance<S>(at);
        }
    }
}

// --- The consumers: a warpgroup for each 64 rows of the tile ---

// sums = a w^T of 16 columns, or is added to.
KT_DEV void multiply(float (&sums)[64], WgDesc a, WgDesc w, int accumulate) {
    wgmma_m64n128k16(sums, a, w, accumulate);
}

KT_DEV void multiply(float (&sums)[128], WgDesc a, WgDesc w, int accumulate) {
    wgmma_m64n256k16(sums, a, w, accumulate);
}

// Gives a stage back to the producer. Each warp waits for its own products, so each has to arrive.
KT_DEV void free_stage(const Ring& ring, int stage, int lane) {
    __syncwarp();
    if (lane == 0) mbar_arrive(ring.empty + stage);
}

// Starts the products of a tile, and waits for all but those of the last stage, which is returned.
template <class S>
KT_DEV int start_products(float (&sums)[S::SUMS], const Ring& ring, Position& at, const Problem& p, int consumer, int lane) {
#if BUG == 50
    // Wrong: both consumers multiply the same rows.
    const int a_offset = 0;
#else
    const int a_offset = consumer * CONSUMER_ROWS * DEPTH * 2;
#endif
    int last = 0;
    for (int from = 0; from < p.depth; from += DEPTH) {
        const unsigned char* stage = ring.stages + at.stage * S::STAGE_BYTES;
#if BUG != 42  // Wrong: multiplies what has not come yet.
        mbar_wait(ring.full + at.stage, at.parity);
#endif
        const WgDesc a = wg_desc(stage + a_offset);
        const WgDesc w = wg_desc(stage + S::A_BYTES);
        wg_fence();
#pragma unroll
        for (int step = 0; step < DEPTH / 16; step++) {
#if BUG == 48
            // Wrong: the sums of a block's second tile begin with those of the first.
            const int accumulate = from + step > 0 || at.parity > 0;
#else
            const int accumulate = from + step > 0;
#endif
            multiply(sums, wg_step(a, step), wg_step(w, step), accumulate);
        }
        wg_commit();
        // The products of the stage before have read it.
        wg_wait<1>();
#if BUG == 40
        // Wrong: gives back the stage whose products are under way.
        free_stage(ring, at.stage, lane);
#else
        if (from > 0) free_stage(ring, last, lane);
#endif
        last = at.stage;
        advance<S>(at);
    }
    return last;
}

// --- The epilogue: 64 columns at a time, whose operands are loaded while those before are finished ---

// A thread's sums are of two rows, `row` and `row + 8`, as those of mma.m16n8k16 side by side.
constexpr int PANEL = 64;
constexpr int BANDS = PANEL / 32;  // of 32 columns, a lane's 16 bytes of each of its two rows

struct Panel {
    float2 bias[BANDS][4];
    u32 residual[BANDS][2][4];
};

KT_DEV bool is_inside(int row, int column, const Problem& p) {
#if BUG == 45
    // Wrong: one row beyond the end of c is stored too.
    return row <= p.rows && column < p.columns;
#elif BUG == 46
    // Wrong: the column tail is stored too, over the row below.
    return row < p.rows;
#else
    return row < p.rows && column < p.columns;
#endif
}

// The residual may be c: a lane reads it just where it stores, and before it does.
template <Epilogue KIND>
KT_DEV void load_panel(Panel& panel, const float* bias, const bf16* residual, Place at, const Problem& p, int lane) {
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
        load_bias(panel.bias[band], bias, at.column + 32 * band, p.columns, lane);
        if (KIND != Epilogue::RESIDUAL) continue;
        const int column = at.column + 32 * band + 8 * (lane & 3);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = at.row + 8 * half;
            u32(&bits)[4] = panel.residual[band][half];
            bits[0] = bits[1] = bits[2] = bits[3] = 0;
            if (is_inside(row, column, p)) load_16_bytes(bits, residual + (u64)row * p.columns + column);
        }
    }
}

// `first` is the panel's first column within the tile, a constant after unrolling.
template <Epilogue KIND, int SUMS>
KT_DEV void store_panel(bf16* c, const float (&sums)[SUMS], int first, Panel& panel, Place at, const Problem& p, int lane) {
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
        const int column = at.column + 32 * band + 8 * (lane & 3);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = at.row + 8 * half;
            u32(&bits)[4] = panel.residual[band][half];
            if (KIND == Epilogue::RESIDUAL) quad_transpose(bits, lane);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int sum = 4 * (first / 8 + 4 * band + i) + 2 * half;
                bits[i] = finish_pair<KIND>(float2{sums[sum], sums[sum + 1]}, panel.bias[band][i], bits[i]);
            }
            quad_transpose(bits, lane);
            if (is_inside(row, column, p)) store_16_bytes(c + (u64)row * p.columns + column, bits);
        }
    }
}

template <class S, Epilogue KIND>
KT_DEV void consume(bf16* c, const Ring& ring, const float* bias, const bf16* residual, const Problem& p, int thread) {
    const int lane = thread % 32;
    const int consumer = thread / WARPGROUP;
    const int row_in_tile = thread / 32 * 16 + lane / 4;
    Position at = {0, 0};
    for (int tile = blockIdx.x; tile < count_tiles<S>(p); tile += gridDim.x) {
        const Place place = place_of<S>(tile, p);
        float sums[S::SUMS];
        const int last = start_products<S>(sums, ring, at, p, consumer, lane);

        const int row = place.row + row_in_tile;
#if BUG == 49
        // Wrong: the bias of the block's first tile.
        const float* tile_bias = bias + place_of<S>(blockIdx.x, p).column - place.column;
#else
        const float* tile_bias = bias;
#endif
        Panel panels[2];
        load_panel<KIND>(panels[0], tile_bias, residual, Place{row, place.column}, p, lane);
#if BUG != 51  // Wrong: stores sums to which products are still added.
        wg_wait<0>();
#endif
#if BUG != 40  // The rest of that bug: this stage has been given back.
        free_stage(ring, last, lane);
#endif
#pragma unroll
        for (int first = 0; first < S::COLUMNS; first += PANEL) {
            const int next = first + PANEL;
            if (next < S::COLUMNS) {
                const Place next_place = {row, place.column + next};
                load_panel<KIND>(panels[next / PANEL % 2], tile_bias, residual, next_place, p, lane);
            }
            store_panel<KIND>(c, sums, first, panels[first / PANEL % 2], Place{row, place.column + first}, p, lane);
        }
    }
}

template <class S, Epilogue KIND>
KT_DEV void run(bf16* c, const TensorMap* a, const TensorMap* w, const float* bias, const bf16* residual, const Problem& p) {
    KT_DYN_SMEM(shared);
    const Ring ring = ring_in<S>(shared);
    const int thread = threadIdx.x;
    if (thread == 0) {
        for (int stage = 0; stage < S::STAGES; stage++) {
            mbar_init(ring.full + stage, 1);
            mbar_init(ring.empty + stage, CONSUMER_WARPS);
        }
        mbar_init_fence();
    }
    __syncthreads();
    if (thread < CONSUMERS * WARPGROUP) {
        more_registers<CONSUMER_REGISTERS>();
        consume<S, KIND>(c, ring, bias, residual, p, thread);
    } else {
        fewer_registers<PRODUCER_REGISTERS>();
        if (thread == CONSUMERS * WARPGROUP) produce<S>(ring, a, w, p);
    }
}

}  // namespace gemm90

#define GEMM90_KERNEL(NAME, KIND, SHAPE)                                                                                \
    KT_KERNEL void __launch_bounds__(gemm90::THREADS, 1)                                                                 \
        NAME(bf16* c, KT_GRID_CONST TensorMap a, KT_GRID_CONST TensorMap w, const float* bias, const bf16* residual,     \
             int rows, int columns, int depth) {                                                                         \
        gemm90::run<SHAPE, KIND>(c, &a, &w, bias, residual, gemm90::Problem{rows, columns, depth});                      \
    }

GEMM90_KERNEL(gemm90_bias_128x128, Epilogue::BIAS, gemm90::Shape128x128)
GEMM90_KERNEL(gemm90_gelu_128x128, Epilogue::GELU, gemm90::Shape128x128)
GEMM90_KERNEL(gemm90_residual_128x128, Epilogue::RESIDUAL, gemm90::Shape128x128)
GEMM90_KERNEL(gemm90_bias_128x256, Epilogue::BIAS, gemm90::Shape128x256)
GEMM90_KERNEL(gemm90_gelu_128x256, Epilogue::GELU, gemm90::Shape128x256)
GEMM90_KERNEL(gemm90_residual_128x256, Epilogue::RESIDUAL, gemm90::Shape128x256)
