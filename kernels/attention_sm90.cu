// attention_sm90: out = softmax(q k^T / 8) v for long sequences on Hopper's tensor cores, with TMA and wgmma: what attention_64
// of attention.cu computes, of the same packed sequences. Compiled for sm_90a alone.
//
// Shapes     q and out (queries, stride), k and v (keys, stride), bf16: head h of a token is the 64 values from h * 64 on.
//            q, k and v come as tensor maps, of all heads' columns and of any stride that is a multiple of 8: they may be parts
//            of one buffer. out_stride is in values. q_starts, starts and causal are those of attention.cu.
//            tiles: pairs (sequence, first query row in it), a pair for each 128 query rows. A list of one's own, so that a
//            batch may have its short sequences in attention_64's list, by 64 rows, and its long ones here.
// Kernels    attention90_64.
// Launch     grid (tiles, heads), 256 threads, 83,088 bytes of dynamic shared memory, which must be asked for with a function
//            attribute. Two blocks on a multiprocessor. Boxes of all three maps have 64 rows and 64 columns, the 128-byte
//            swizzle, and zeros outside of the matrix.
// Masks      As attention.cu: none, or query i sees keys 0..=i. A sequence without keys gives zeros.
// Numerics   Scores and sums in f32; probabilities are rounded to bf16 for the product with v, which sums in f32; rounded
//            once. Keys come in tiles of 64 from the sequence's first on: a row's bits depend on its sequence alone. The
//            bits are not those of attention_64, whose products sum in another order.
//            A box at a sequence's end also holds rows of the next one. Their scores are masked, whatever they are, and their
//            probabilities are exactly 0; the rows of v are overwritten with zeros, as 0 times an infinity is NaN.
// Cost       4 queries keys 64 operations a head (half of it when causal); q and out move once, k and v ceil(queries / 128)
//            times, from L2 but for the first time. Cycles of a multiprocessor for 64 queries and 64 keys, each kind of work by
//            itself: 256 of products (2,048 multiplications a cycle); 256 of shared memory (q once, k and v for the products,
//            half of their arrival, 128 bytes a cycle); 256 of exponentials (16 a cycle); some 150 of other arithmetic. So
//            the bound is whichever is worst hidden, and half of the peak is much. Counted, not measured.
// Source     FlashAttention-3 (Shah et al., 2024): probabilities from registers, products beside exponentials. Written anew.
//
// How it works. Two warpgroups, the consumers, take 64 queries each and go through all tiles of keys and values, which TMA puts
// into two rings of four slots. A consumer starts the scores of the next keys and then the product of the present probabilities
// with their values; it takes exponentials of the new scores while the latter is under way. Four consumers of two blocks share
// a multiprocessor, so that one's exponentials are beside another's products without an order among them.
//
// Why no warpgroup for loading alone, as in gemm_sm90.cu. A consumer needs some 110 registers: 80 for scores, sums and
// probabilities. With a third warpgroup two blocks would start with 80 a thread, of which setmaxnreg could make 104; without it
// they have 128. Instead the first thread asks for tiles ahead, into slots that both consumers left a tile ago, so that it waits
// only where the other consumer is more than a tile behind. Tiles of 128 keys would need 64 registers more: one block.
//
// A consumer without queries, in the last block of a sequence, ends at once: the block then takes half of the products. When
// causal, both consumers go through the tiles of the second one; the last may be masked as a whole for the first.
#include "attention.h"
#include "kt_hopper.h"
#include "quad.h"

namespace attention90 {

using attention::lesser;
using attention::minus_infinity;
using attention::quad_max;
using attention::quad_sum;
using attention::Work;

constexpr int DIM = 64;
constexpr int KEYS = 64;              // of a tile
constexpr int CONSUMER_QUERIES = 64;  // the rows of a wgmma
constexpr int CONSUMERS = 2;
constexpr int QUERIES = CONSUMERS * CONSUMER_QUERIES;
constexpr int WARPGROUP = 128;
constexpr int THREADS = CONSUMERS * WARPGROUP;

// Of queries, of keys and of values alike, each at a multiple of 1,024 bytes.
constexpr int TILE_BYTES = 64 * DIM * 2;
// Of a ring: one tile is multiplied, three are on their way.
constexpr int SLOTS = 4;
constexpr int BARRIERS = 4 * SLOTS + 2;
// Dynamic shared memory begins at a multiple of 128 bytes: up to 1,024 are lost.
constexpr int SHARED_BYTES = 1024 + (CONSUMERS + 2 * SLOTS) * TILE_BYTES + BARRIERS * 8;
static_assert(SHARED_BYTES == 83088, "as stated above");

// Tile i lies in slot i % SLOTS.
struct Ring {
    unsigned char* tiles;
    u64* full;   // an arrival, and the bytes that TMA brings
    u64* empty;  // an arrival of each warp that has queries
};

struct Shared {
    unsigned char* queries;  // a tile for each consumer
    u64* asked;              // for the queries
    u64* partial;            // for the tile of values in which the sequence ends
    Ring keys, values;
};

KT_DEV Shared shared_in(unsigned char* bytes) {
    unsigned char* queries = (unsigned char*)(((u64)bytes + 1023) / 1024 * 1024);
    unsigned char* keys = queries + CONSUMERS * TILE_BYTES;
    unsigned char* values = keys + SLOTS * TILE_BYTES;
    u64* barriers = (u64*)(values + SLOTS * TILE_BYTES);
    u64* asked = barriers + 4 * SLOTS;
    return Shared{queries, asked, asked + 1, {keys, barriers, barriers + SLOTS},
                  {values, barriers + 2 * SLOTS, barriers + 3 * SLOTS}};
}

KT_DEV unsigned char* slot_of(const Ring& ring, int tile) {
    return ring.tiles + tile % SLOTS * TILE_BYTES;
}

// The parity of how often the ring went around before this tile.
KT_DEV u32 parity_of(int tile) {
    return tile / SLOTS % 2;
}

// The kernel's arguments: constants, which take no registers.
struct Arguments {
    bf16* out;
    const TensorMap *q, *k, *v;
    int out_stride;
    bool causal;
    float scale_log2;
};

// How many tiles of keys the block's queries see.
KT_DEV int tiles_of_block(const Work& w, bool causal) {
    const int all = (w.keys + KEYS - 1) / KEYS;
    const int last_query = w.first + lesser(w.queries, QUERIES) - 1;
#if BUG == 65
    // Wrong: only the tiles of the first consumer's queries.
    return causal ? lesser(all, w.first / KEYS + 1) : all;
#else
    return causal ? lesser(all, last_query / KEYS + 1) : all;
#endif
}

// --- Loads ---

KT_DEV void load_queries(const Shared& s, const TensorMap* q, const Work& w) {
    const int consumers = w.queries > CONSUMER_QUERIES ? CONSUMERS : 1;
    mbar_expect_tx(s.asked, consumers * TILE_BYTES);
    for (int i = 0; i < consumers; i++) {
        tma_load_2d(s.queries + i * TILE_BYTES, q, w.column, w.query_row + i * CONSUMER_QUERIES, s.asked);
    }
}

// `full` is the slot's own, or the one for the tile in which the sequence ends.
KT_DEV void load_tile(const Ring& ring, const TensorMap* map, const Work& w, int tile, u64* full) {
#if BUG != 64  // Wrong: overwrites tiles that have not been multiplied.
    // In the first round this does not wait: all slots begin empty.
    mbar_wait(ring.empty + tile % SLOTS, parity_of(tile) ^ 1);
#endif
    mbar_expect_tx(full, TILE_BYTES);
    tma_load_2d(slot_of(ring, tile), map, w.column, w.key_row + tile * KEYS, full);
}

KT_DEV void load_keys(const Shared& s, const TensorMap* k, const Work& w, int tile) {
    load_tile(s.keys, k, w, tile, s.keys.full + tile % SLOTS);
}

KT_DEV void load_values(const Shared& s, const TensorMap* v, const Work& w, int tile) {
    const bool partial = w.keys - tile * KEYS < KEYS;
    load_tile(s.values, v, w, tile, partial ? s.partial : s.values.full + tile % SLOTS);
}

// The first tiles, as many as there are slots for before any is left.
KT_DEV void load_first(const Shared& s, const Arguments& a, const Work& w, int tiles) {
    load_queries(s, a.q, w);
    for (int tile = 0; tile < lesser(tiles, SLOTS); tile++) {
        load_keys(s, a.k, w, tile);
        if (tile < SLOTS - 1) load_values(s, a.v, w, tile);
    }
}

// While `tile` is multiplied: into the slots that the keys of the tile before it were in, and the values before those.
KT_DEV void load_ahead(const Shared& s, const Arguments& a, const Work& w, int tile, int tiles) {
    const int keys = tile + SLOTS - 1;
    const int values = tile + SLOTS - 2;
    if (keys < tiles) load_keys(s, a.k, w, keys);
    if (values < tiles) load_values(s, a.v, w, values);
}

// Zeros for the rows of values from `rows` on, which are the next sequence's. The slot is full after that. By a whole warp.
KT_DEV void clear_rest(const Shared& s, int tile, int rows, int lane) {
#if BUG != 69  // Wrong: the values arrive over the zeros.
    mbar_wait(s.partial, 0);
#endif
#if BUG != 63  // Wrong: the next sequence's values stay, and spoil the sums where they are not finite.
    constexpr int CHUNKS = DIM * 2 / 16;
    uint4* const chunks = (uint4*)slot_of(s.values, tile);
    for (int i = rows * CHUNKS + lane; i < KEYS * CHUNKS; i += 32) chunks[i] = uint4{0, 0, 0, 0};
#endif
    async_fence();
    __syncwarp();
    if (lane == 0) mbar_arrive(s.values.full + tile % SLOTS);
}

// --- The consumers: a warpgroup for 64 queries each ---

// In an accumulator of 64 columns a lane holds, of each 8 columns j, two of row lane / 4 ([4 j], [4 j + 1]) and two of row
// lane / 4 + 8 ([4 j + 2], [4 j + 3]) of its warp's 16: two queries, `low` and `high`.
constexpr int GROUPS = 64 / 8;
typedef float Sums[4 * GROUPS];
// Probabilities of 16 keys are the a operand of a product; the lanes hold the same rows and columns as in an accumulator.
typedef u32 Probabilities[KEYS / 16][4];

struct Rows {
    float max_low, max_high;  // of scores times scale_log2
    float sum_low, sum_high;  // this lane's part of the sum of probabilities
};

// What sums under an earlier maximum are multiplied with.
struct Rescale {
    float low, high;
};

KT_DEV void wait_full(const Ring& ring, int tile) {
#if BUG != 61  // Wrong: multiplies what has not come yet.
    mbar_wait(ring.full + tile % SLOTS, parity_of(tile));
#endif
}

// Each warp waits for its own products, so each has to arrive.
KT_DEV void leave_slot(const Ring& ring, int tile, int lane) {
    __syncwarp();
    if (lane == 0) mbar_arrive(ring.empty + tile % SLOTS);
}

KT_DEV void start_scores(Sums& scores, WgDesc q, const unsigned char* k) {
    const WgDesc keys = wg_desc(k);
    wg_fence();
#pragma unroll
    for (int step = 0; step < DIM / 16; step++) {
        wgmma_m64n64k16(scores, wg_step(q, step), wg_step(keys, step), step > 0);
    }
    wg_commit();
}

KT_DEV void start_values(Sums& out, Probabilities& p, const unsigned char* v) {
    const WgDesc values = wg_desc(v);
    wg_pin(out);
    wg_pin(p);
    wg_fence();
#pragma unroll
    for (int step = 0; step < KEYS / 16; step++) wgmma_m64n64k16_rows(out, p[step], wg_step_rows(values, step), 1);
    wg_commit();
}

// Keys from `end_low` and `end_high` on, counted from the tile's first, are not for this lane's queries.
KT_DEV void mask(Sums& scores, int end_low, int end_high, int lane) {
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        const int key = 8 * j + lane % 4 * 2;
        if (key >= end_low) scores[4 * j] = minus_infinity();
        if (key + 1 >= end_low) scores[4 * j + 1] = minus_infinity();
        if (key >= end_high) scores[4 * j + 2] = minus_infinity();
        if (key + 1 >= end_high) scores[4 * j + 3] = minus_infinity();
    }
}

// `keys_left` and `first_query`, the warp's, are counted from the tile's first key.
KT_DEV void mask_tile(Sums& scores, int keys_left, bool causal, int first_query, int lane) {
#if BUG == 60
    // Wrong: one key of the next sequence is seen.
    keys_left++;
#endif
#if BUG == 66
    // Wrong: a query does not see its own key.
    const int diagonal = first_query;
#else
    const int diagonal = first_query + 1;
#endif
    if (keys_left >= KEYS && !(causal && diagonal < KEYS)) return;
    int end_low = keys_left;
    int end_high = keys_left;
    if (causal) {
        end_low = lesser(end_low, diagonal + lane / 4);
        end_high = lesser(end_high, diagonal + lane / 4 + 8);
    }
    mask(scores, end_low, end_high, lane);
}

// Scores become powers of two of their distance to the maximum so far. Maxima start at minus infinity, whose power is 0. Each
// query sees a key of the first tile, so that the maximum is finite from then on, and infinity is never taken from infinity.
KT_DEV Rescale exponentials(Sums& scores, Rows& rows, float scale_log2) {
    float max_low = minus_infinity();
    float max_high = minus_infinity();
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        max_low = fmaxf(max_low, fmaxf(scores[4 * j], scores[4 * j + 1]));
        max_high = fmaxf(max_high, fmaxf(scores[4 * j + 2], scores[4 * j + 3]));
    }
    max_low = fmaxf(rows.max_low, quad_max(max_low) * scale_log2);
    max_high = fmaxf(rows.max_high, quad_max(max_high) * scale_log2);
    const Rescale rescale = {ex2(rows.max_low - max_low), ex2(rows.max_high - max_high)};
    rows = {max_low, max_high, rows.sum_low * rescale.low, rows.sum_high * rescale.high};
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        scores[4 * j] = ex2(fmaf(scores[4 * j], scale_log2, -max_low));
        scores[4 * j + 1] = ex2(fmaf(scores[4 * j + 1], scale_log2, -max_low));
        scores[4 * j + 2] = ex2(fmaf(scores[4 * j + 2], scale_log2, -max_high));
        scores[4 * j + 3] = ex2(fmaf(scores[4 * j + 3], scale_log2, -max_high));
        rows.sum_low += scores[4 * j] + scores[4 * j + 1];
        rows.sum_high += scores[4 * j + 2] + scores[4 * j + 3];
    }
    return rescale;
}

KT_DEV void scale(Sums& out, Rescale by) {
#pragma unroll
    for (int j = 0; j < GROUPS; j++) {
        out[4 * j] *= by.low;
        out[4 * j + 1] *= by.low;
        out[4 * j + 2] *= by.high;
        out[4 * j + 3] *= by.high;
    }
}

KT_DEV void round_probabilities(Probabilities& p, const Sums& scores) {
#pragma unroll
    for (int i = 0; i < KEYS / 16; i++) {
#pragma unroll
        for (int r = 0; r < 4; r++) p[i][r] = pack_bf16(scores[8 * i + 2 * r], scores[8 * i + 2 * r + 1]);
    }
}

// A quad stores 32 columns of a row at a time, 16 bytes a lane (quad.h). A sum of zero, of no keys, gives zeros; NaN stays.
KT_DEV void store(bf16* out, int stride, const Sums& sums, const Rows& rows, const Work& w, int warp_row, int lane) {
    const float sum_low = quad_sum(rows.sum_low);
    const float sum_high = quad_sum(rows.sum_high);
    const float divide_low = sum_low == 0.0f ? 0.0f : 1.0f / sum_low;
    const float divide_high = sum_high == 0.0f ? 0.0f : 1.0f / sum_high;
#pragma unroll
    for (int high = 0; high < 2; high++) {
        const int row = warp_row + lane / 4 + 8 * high;
        const float divide = high ? divide_high : divide_low;
#if BUG == 67
        // Wrong: rows beyond the sequence are written, which are the next sequence's.
        const bool inside = true;
#else
        const bool inside = row < w.queries;
#endif
#pragma unroll
        for (int j = 0; j < GROUPS; j += 4) {
            u32 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int sum = 4 * (j + i) + 2 * high;
                pairs[i] = pack_bf16(sums[sum] * divide, sums[sum + 1] * divide);
            }
            quad_transpose(pairs, lane);
            const u64 place = (u64)(w.query_row + row) * stride + w.column + (j + lane % 4) * 8;
            if (inside) store_16_bytes(out + place, pairs);
        }
    }
}

// What only the block's first warp does, at the begin of a tile: it asks for later ones, and clears what the last one has too
// much, so that both are done when they are needed.
KT_DEV void look_ahead(const Shared& s, const Arguments& a, const Work& w, int tile, int tiles, int lane) {
    if (lane == 0 && tile == 0) load_first(s, a, w, tiles);
    if (lane == 0 && tile > 0) load_ahead(s, a, w, tile, tiles);
    __syncwarp();
    const int rows = w.keys - tile * KEYS;
    if (tile == tiles - 1 && rows < KEYS) clear_rest(s, tile, rows, lane);
}

// Leaves the sums of probability times v in `sums`, not yet divided.
KT_DEV void attend(Sums& sums, Rows& rows, const Arguments& a, const Shared& s, const Work& w, int tiles, int warp_row,
                   int lane) {
    Sums scores;
    Probabilities p;
    const int first_query = w.first + warp_row;
    const WgDesc q = wg_desc(s.queries + warp_row / CONSUMER_QUERIES * TILE_BYTES);
    if (warp_row == 0) look_ahead(s, a, w, 0, tiles, lane);
    mbar_wait(s.asked, 0);
    wait_full(s.keys, 0);
    start_scores(scores, q, slot_of(s.keys, 0));
    wg_wait<0>();
    wg_pin(scores);
    leave_slot(s.keys, 0, lane);
    mask_tile(scores, w.keys, a.causal, first_query, lane);
    exponentials(scores, rows, a.scale_log2);
    round_probabilities(p, scores);

    for (int tile = 1; tile < tiles; tile++) {
        const int before = tile - 1;
        const int first_key = tile * KEYS;
        if (warp_row == 0) look_ahead(s, a, w, tile, tiles, lane);
        wait_full(s.keys, tile);
        start_scores(scores, q, slot_of(s.keys, tile));
        wait_full(s.values, before);
        start_values(sums, p, slot_of(s.values, before));
#if BUG == 62
        // Wrong: leaves the slot whose products are under way.
        leave_slot(s.values, before, lane);
#endif
        wg_wait<1>();
        wg_pin(scores);
        leave_slot(s.keys, tile, lane);
        mask_tile(scores, w.keys - first_key, a.causal, first_query - first_key, lane);
        const Rescale rescale = exponentials(scores, rows, a.scale_log2);
#if BUG != 68  // Wrong: changes sums and probabilities of products that are under way.
        wg_wait<0>();
        wg_pin(sums);
        wg_pin(p);
#endif
        scale(sums, rescale);
        round_probabilities(p, scores);
#if BUG == 68
        wg_wait<0>();
#endif
#if BUG != 62
        leave_slot(s.values, before, lane);
#endif
    }
    wait_full(s.values, tiles - 1);
    start_values(sums, p, slot_of(s.values, tiles - 1));
    wg_wait<0>();
    wg_pin(sums);
}

KT_DEV void run(const Arguments& a, const Work& w) {
    KT_DYN_SMEM(bytes);
    const Shared s = shared_in(bytes);
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    const int warp_row = thread / 32 * 16;
    const int tiles = tiles_of_block(w, a.causal);
    if (thread == 0) {
        const int consumers = w.queries > CONSUMER_QUERIES ? CONSUMERS : 1;
        for (int slot = 0; slot < SLOTS; slot++) {
            mbar_init(s.keys.full + slot, 1);
            mbar_init(s.keys.empty + slot, consumers * WARPGROUP / 32);
            mbar_init(s.values.full + slot, 1);
            mbar_init(s.values.empty + slot, consumers * WARPGROUP / 32);
        }
        mbar_init(s.asked, 1);
        mbar_init(s.partial, 1);
        mbar_init_fence();
    }
    __syncthreads();
    if (warp_row / CONSUMER_QUERIES * CONSUMER_QUERIES >= w.queries) return;
    Sums sums = {};
    Rows rows = {minus_infinity(), minus_infinity(), 0.0f, 0.0f};
    if (tiles > 0) attend(sums, rows, a, s, w, tiles, warp_row, lane);
    store(a.out, a.out_stride, sums, rows, w, warp_row, lane);
}

}  // namespace attention90

KT_KERNEL void __launch_bounds__(attention90::THREADS, 2)
    attention90_64(bf16* out, KT_GRID_CONST TensorMap q, KT_GRID_CONST TensorMap k, KT_GRID_CONST TensorMap v, int out_stride,
                   const u32* q_starts, const u32* starts, const u32* tiles, int causal, float scale_log2) {
    const attention90::Arguments a = {out, &q, &k, &v, out_stride, causal != 0, scale_log2};
    attention90::run(a, attention::find_work(q_starts, starts, tiles, attention90::DIM));
}
