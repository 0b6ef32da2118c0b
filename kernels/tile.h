// Tiles of bf16 in shared memory: how they are laid out, filled, and read as fragments of mma.m16n8k16.
//
// A tile has COLUMNS = 64 or 32 columns, so a row takes 128 or 64 bytes: eight or four chunks of 16 bytes. Shared memory
// serves 128 bytes a cycle, from 32 banks of 4 bytes. ldmatrix reads eight chunks at a time, the same chunk of eight rows
// in turn; laid out plainly, these would lie 128 bytes apart, in the same four banks, and take eight cycles.
//
// So the chunk of a row is stored at chunk XOR swizzle(row):
//   64 columns: swizzle = row % 8. The eight rows of a read put their chunk at eight different places of their 128 bytes.
//   32 columns: two rows share 128 bytes, so the half is row % 2, and swizzle = row / 2 % 4 gives the place in the half: for
//               any eight rows from a multiple of eight on, all pairs (half, place) differ.
// Either way the eight chunks lie in all 32 banks, one cycle. Copies from global memory are free of conflicts as well: eight
// neighbouring threads write one whole row of 128 bytes, or two of 64, in another order.
//
// The swizzle depends on row % 8 alone. All reads below start at rows that are multiples of 8, so that a lane's swizzle is
// the same in all of them: one place for a lane, and fixed offsets from it.
#pragma once
#include "kt.h"

// Where a chunk of 8 values is, in elements from the start of the tile.
template <int COLUMNS>
KT_DEV int tile_place(int row, int chunk) {
    static_assert(COLUMNS == 64 || COLUMNS == 32, "rows of 128 or 64 bytes");
    const int swizzle = row * COLUMNS / 64 & (COLUMNS / 8 - 1);
    return row * COLUMNS + (chunk ^ swizzle) * 8;
}

// Starts the copy of a tile of ROWS rows by a block of THREADS. `from` is its first value in global memory, where rows are
// `stride` values apart. Rows from `rows_left` on and columns from `columns_left` on, a multiple of 8, become zeros.
template <int ROWS, int COLUMNS, int THREADS>
KT_DEV void copy_tile(bf16* tile, const bf16* from, int stride, int rows_left, int columns_left, int thread) {
    constexpr int CHUNKS = COLUMNS / 8;
    constexpr int ROWS_AT_ONCE = THREADS / CHUNKS;
    static_assert(ROWS % ROWS_AT_ONCE == 0 && ROWS_AT_ONCE % 8 == 0, "all threads copy equally many chunks");
    const int first_row = thread / CHUNKS;
    const int chunk = thread % CHUNKS;
    const bool column_inside = chunk * 8 < columns_left;
    const bf16* source = from + (u64)first_row * stride + chunk * 8;
    bf16* target = tile + tile_place<COLUMNS>(first_row, chunk);
#pragma unroll
    for (int i = 0; i < ROWS / ROWS_AT_ONCE; i++) {
        const bool inside = column_inside && first_row + i * ROWS_AT_ONCE < rows_left;
        cp_async16(target + i * ROWS_AT_ONCE * COLUMNS, source + (u64)i * ROWS_AT_ONCE * stride, inside);
    }
}

// The a operand: rows row..row + 16 and the 16 columns from chunk `chunk` on.
template <int COLUMNS>
KT_DEV void load_a(u32 (&a)[4], const bf16* tile, int row, int chunk, int lane) {
    ldmatrix_x4(a, tile + tile_place<COLUMNS>(lane % 16, chunk + lane / 16) + row * COLUMNS);
}

// The b operands of two products from a tile that holds b transposed, as weights and keys are stored: rows row..row + 8
// (b[0], b[1]) and row + 8..row + 16 (b[2], b[3]) are the columns of b, the 16 columns from `chunk` on its rows.
template <int COLUMNS>
KT_DEV void load_b(u32 (&b)[4], const bf16* tile, int row, int chunk, int lane) {
    ldmatrix_x4(b, tile + tile_place<COLUMNS>(lane % 8 + lane / 16 * 8, chunk + lane / 8 % 2) + row * COLUMNS);
}

// The b operands of two products from a tile that holds b itself: rows row..row + 16, columns of chunk `chunk` (b[0], b[1])
// and of the next (b[2], b[3]).
template <int COLUMNS>
KT_DEV void load_b_from_rows(u32 (&b)[4], const bf16* tile, int row, int chunk, int lane) {
    ldmatrix_x4_trans(b, tile + tile_place<COLUMNS>(lane % 16, chunk + lane / 16) + row * COLUMNS);
}
