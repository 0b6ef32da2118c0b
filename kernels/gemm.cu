// gemm: c = epilogue(a w^T + bias), on tensor cores through mma.sync, for compute capability 8.0 and later.
//
// Shapes     a (rows, depth), w (columns, depth), c and residual (rows, columns), all bf16, row-major; bias (columns) f32.
//            Any number of rows, columns a multiple of 8, depth a multiple of 32. residual may be c; it is null unless used.
// Kernels    gemm_{bias,gelu,residual}_{128x128,128x256,64x64}; what the epilogues do is in epilogue.h.
// Launch     grid ceil(rows / ROWS) * ceil(columns / COLUMNS), in one dimension:
//
//            tile      threads   stages x depth   dynamic shared bytes   blocks on a multiprocessor
//            128x128   128       3 x 32           49,152                 2
//            128x256   256       4 x 32           98,304                 1
//            64x64     128       4 x 64           65,536                 2 (1 where there are 100 KB, as on sm_89)
//
//            More than 49,152 bytes of dynamic shared memory must be asked for with a function attribute.
//            128x256 is for many rows and columns, 64x64 for so few tiles that larger ones would leave multiprocessors idle.
// Numerics   Products of bf16 summed in f32, 16 at a time in the order of depth, rounded once. An element's bits depend on
//            its row of a, its row of w, bias and residual alone: not on rows, nor on the tile, so tiles may be mixed.
// Cost       2 rows columns depth operations; a is read ceil(columns / COLUMNS) times and w ceil(rows / ROWS) times, from L2
//            but for the first time.
// Source     The multistage pipeline of CUTLASS for Ampere (cp.async, register double buffering), written anew.
//
// Why these tiles. On an A100 a multiprocessor does one m16n8k16 in 2 cycles, and its shared memory gives 128 bytes a cycle:
// 4 cycles an ldmatrix.x4. A warp of 64x64 needs 4 of them for a and 4 for w a step of depth 16, for 32 products: 1/4 load a
// product. A warp of 64x32 needs 6 for 16: 3/8. With the copies into shared memory, cycles a step for a block of 128x128:
//
//            warps        products   ldmatrix   copies   shared / products
//            4 of 64x64   256        128        64       0.75
//            8 of 64x32   256        192        64       1.00: no slack
//
// and 0.69 for 128x256 with 8 warps of 64x64. So warps are 64x64. Each holds 128 sums and 2 x 32 fragment registers a
// thread, and eight warps fill a multiprocessor's registers: the two blocks of 128x128, or the one of 128x256. Independent
// products (32 a step) and two warps a scheduler hide the latencies that more warps would. Counted, not measured.
#include "epilogue.h"
#include "tile.h"

namespace gemm {

template <int ROWS_, int COLUMNS_, int DEPTH_, int STAGES_, int WARP_ROWS_, int WARP_COLUMNS_>
struct Shape {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, DEPTH = DEPTH_, STAGES = STAGES_;
    static constexpr int WARP_ROWS = WARP_ROWS_, WARP_COLUMNS = WARP_COLUMNS_;
    static constexpr int WARPS_DOWN = ROWS / WARP_ROWS;
    static constexpr int THREADS = 32 * WARPS_DOWN * (COLUMNS / WARP_COLUMNS);
    static constexpr int STEPS = DEPTH / 16;
    // A stage is a tile of a, then a tile of w.
    static constexpr int STAGE = (ROWS + COLUMNS) * DEPTH;
};

typedef Shape<128, 128, 32, 3, 64, 64> Shape128x128;
typedef Shape<128, 256, 32, 4, 64, 64> Shape128x256;
typedef Shape<64, 64, 64, 4, 32, 32> Shape64x64;

struct Operands {
    const bf16* a;
    const bf16* w;
    int rows, columns, depth;
};

struct Place {
    int row, column;
};

// The first row and column of this block's tile. Blocks that run at the same time should share what they read: they go
// down 16 tiles of rows, then on to the next column, so that some 200 of them touch 16 tiles of a and 13 of w.
template <class S>
KT_DEV Place block_place(int rows, int columns) {
    constexpr int GROUP = 16;
    const int row_tiles = (rows + S::ROWS - 1) / S::ROWS;
    const int column_tiles = (columns + S::COLUMNS - 1) / S::COLUMNS;
    const int block = blockIdx.x;
    const int first = block / (GROUP * column_tiles) * GROUP;
    const int within = block % (GROUP * column_tiles);
    const int height = row_tiles - first < GROUP ? row_tiles - first : GROUP;
    return Place{(first + within % height) * S::ROWS, within / height * S::COLUMNS};
}

// Starts the copies of the tiles of a and w at depth `from` into a stage.
template <class S>
KT_DEV void copy_stage(bf16* stage, const Operands& o, Place place, int from, int thread) {
#if BUG == 22
    // Wrong: where depth ends within a tile, values of the next row come in instead of zeros.
    const int left = S::DEPTH;
#else
    const int left = o.depth - from;
#endif
    copy_tile<S::ROWS, S::DEPTH, S::THREADS>(stage, o.a + (u64)place.row * o.depth + from, o.depth, o.rows - place.row,
                                             left, thread);
    copy_tile<S::COLUMNS, S::DEPTH, S::THREADS>(stage + S::ROWS * S::DEPTH, o.w + (u64)place.column * o.depth + from,
                                                o.depth, o.columns - place.column, left, thread);
}

// A warp's operands for one step of depth 16.
template <class S>
struct Fragments {
    u32 a[S::WARP_ROWS / 16][4];
    u32 w[S::WARP_COLUMNS / 16][4];
};

template <class S>
KT_DEV void load_fragments(Fragments<S>& f, const bf16* stage, int step, Place warp, int lane) {
    const bf16* a = stage + warp.row * S::DEPTH;
    const bf16* w = stage + (S::ROWS + warp.column) * S::DEPTH;
#pragma unroll
    for (int i = 0; i < S::WARP_ROWS / 16; i++) load_a<S::DEPTH>(f.a[i], a, 16 * i, 2 * step, lane);
#pragma unroll
    for (int j = 0; j < S::WARP_COLUMNS / 16; j++) load_b<S::DEPTH>(f.w[j], w, 16 * j, 2 * step, lane);
}

template <class S>
struct Sums {
    float of[S::WARP_ROWS / 16][S::WARP_COLUMNS / 8][4];
};

template <class S>
KT_DEV void multiply(Sums<S>& sums, const Fragments<S>& f) {
#pragma unroll
    for (int i = 0; i < S::WARP_ROWS / 16; i++) {
#pragma unroll
        for (int j = 0; j < S::WARP_COLUMNS / 8; j++) {
            mma_m16n8k16_bf16(sums.of[i][j], f.a[i], f.w[j / 2][j % 2 * 2], f.w[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// Waits for the oldest copy under way, and for all threads: then its stage may be read, and the one that was read before
// it be written.
template <class S>
KT_DEV void next_stage() {
#if BUG != 23  // Wrong: nothing waits for the copies.
    cp_async_wait<S::STAGES - 2>();
#endif
#if BUG == 24
    // Wrong: a divergent barrier, which half of each warp passes by.
    if (threadIdx.x % 32 < 16) return;
#endif
#if BUG != 25  // Wrong: other threads' copies are read before they are there.
    __syncthreads();
#endif
}

// The sums of this warp's part of the tile. STAGES - 1 tiles of depth are under way while one is multiplied, and the
// fragments of a step are loaded while the step before it is multiplied.
template <class S>
KT_DEV void sum_products(Sums<S>& sums, bf16* shared, const Operands& o, Place block, Place warp, int thread) {
    const int tiles = (o.depth + S::DEPTH - 1) / S::DEPTH;
    const int lane = thread % 32;
#pragma unroll
    for (int stage = 0; stage < S::STAGES - 1; stage++) {
        if (stage < tiles) copy_stage<S>(shared + stage * S::STAGE, o, block, stage * S::DEPTH, thread);
        // A group for each tile, even if empty, so that counting groups counts tiles.
        cp_async_commit();
    }
    next_stage<S>();

    Fragments<S> fragments[2];
    int reading = 0;
    int writing = S::STAGES - 1;
    load_fragments<S>(fragments[0], shared, 0, warp, lane);
    for (int tile = 0; tile < tiles; tile++) {
#pragma unroll
        for (int step = 0; step < S::STEPS; step++) {
            if (step == S::STEPS - 1) {
                // After the last tile this is a stage without meaning, whose fragments are not used.
                next_stage<S>();
                reading = reading + 1 == S::STAGES ? 0 : reading + 1;
            }
            load_fragments<S>(fragments[(step + 1) % 2], shared + reading * S::STAGE, (step + 1) % S::STEPS, warp, lane);
#if BUG == 26
            // Wrong: copies into the stage that this step and others still read.
            const int target = reading;
#else
            const int target = writing;
#endif
            if (step == 0) {
                const int ahead = tile + S::STAGES - 1;
                if (ahead < tiles) copy_stage<S>(shared + target * S::STAGE, o, block, ahead * S::DEPTH, thread);
                cp_async_commit();
                writing = writing + 1 == S::STAGES ? 0 : writing + 1;
            }
            multiply<S>(sums, fragments[step % 2]);
        }
    }
}

template <class S, Epilogue KIND>
KT_DEV void run(bf16* c, const Operands& o, const float* bias, const bf16* residual) {
    KT_DYN_SMEM(bytes);
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    const Place block = block_place<S>(o.rows, o.columns);
    const Place warp = {thread / 32 % S::WARPS_DOWN * S::WARP_ROWS, thread / 32 / S::WARPS_DOWN * S::WARP_COLUMNS};
    Sums<S> sums = {};
    sum_products<S>(sums, (bf16*)bytes, o, block, warp, thread);

#pragma unroll
    for (int right = 0; right < S::WARP_COLUMNS; right += 32) {
        const int column = block.column + warp.column + right;
        float2 pairs[4];
        load_bias(pairs, bias, column, o.columns, lane);
#pragma unroll
        for (int down = 0; down < S::WARP_ROWS; down += 8) {
            float2 row_sums[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float(&of)[4] = sums.of[down / 16][right / 8 + i];
                row_sums[i] = float2{of[down % 16 / 8 * 2], of[down % 16 / 8 * 2 + 1]};
            }
            int row = block.row + warp.row + down + lane / 4;
#if BUG == 27
            // Wrong: the last row of the tile is written to the first row of the tile below, which another block writes.
            if (row == block.row + S::ROWS - 1) row++;
#endif
            store_row<KIND>(c, residual, row_sums, pairs, row, column, o.rows, o.columns, lane);
        }
    }
}

}  // namespace gemm

// BLOCKS on a multiprocessor bounds the registers of a thread.
#define GEMM_KERNEL(NAME, KIND, SHAPE, BLOCKS)                                                                          \
    KT_KERNEL void __launch_bounds__(SHAPE::THREADS, BLOCKS)                                                             \
        NAME(bf16* c, const bf16* a, const bf16* w, const float* bias, const bf16* residual, int rows, int columns,      \
             int depth) {                                                                                                \
        gemm::run<SHAPE, KIND>(c, gemm::Operands{a, w, rows, columns, depth}, bias, residual);                           \
    }

GEMM_KERNEL(gemm_bias_128x128, Epilogue::BIAS, gemm::Shape128x128, 2)
GEMM_KERNEL(gemm_gelu_128x128, Epilogue::GELU, gemm::Shape128x128, 2)
GEMM_KERNEL(gemm_residual_128x128, Epilogue::RESIDUAL, gemm::Shape128x128, 2)
GEMM_KERNEL(gemm_bias_128x256, Epilogue::BIAS, gemm::Shape128x256, 1)
GEMM_KERNEL(gemm_gelu_128x256, Epilogue::GELU, gemm::Shape128x256, 1)
GEMM_KERNEL(gemm_residual_128x256, Epilogue::RESIDUAL, gemm::Shape128x256, 1)
GEMM_KERNEL(gemm_bias_64x64, Epilogue::BIAS, gemm::Shape64x64, 2)
GEMM_KERNEL(gemm_gelu_64x64, Epilogue::GELU, gemm::Shape64x64, 2)
GEMM_KERNEL(gemm_residual_64x64, Epilogue::RESIDUAL, gemm::Shape64x64, 2)
