// attention: out = softmax(q k^T / sqrt(DIM)) v, for sequences of any lengths packed end to end, without padding.
//
// Shapes     q and out (queries, stride), k and v (keys, stride), bf16: head h of a token is the DIM values from h * DIM on.
//            Strides are in values, multiples of 8, so that q, k and v may be parts of one buffer (tokens, 3 * hidden).
//            Sequence s has the rows q_starts[s]..q_starts[s + 1] of q and out, and starts[s]..starts[s + 1] of k and v.
//            tiles: pairs (sequence, first query row in it), a pair for each 64 query rows.
// Kernels    attention_32, attention_64: DIM 32 and 64.
// Launch     grid (tiles, heads), 128 threads, 5 * 64 * DIM * 2 bytes of dynamic shared memory (20,480 or 40,960).
// Masks      None within a sequence; with `causal`, query i sees keys 0..=i. A sequence without keys gives zeros.
// Numerics   Scores and sums in f32; probabilities are rounded to bf16 for the product with v, which sums in f32; rounded
//            once. Keys come in tiles of 64 from the sequence's first on, so that a row's bits depend on its sequence
//            alone. scale_log2 = log2(e) / sqrt(DIM): exponentials are powers of two.
// Cost       4 queries keys DIM operations a head (half of it when causal); q and out move once, k and v ceil(queries / 64)
//            times, from L2 but for the first time. A 64x64 tile at DIM 64 takes, in cycles of an A100's multiprocessor,
//            512 of products, 512 of ldmatrix (a warp's 16 queries share each load of keys and values: half a load a
//            product), 128 of copies into shared memory and 256 of exponentials. These overlap where several blocks are
//            on the multiprocessor (3 at DIM 64, 4 at DIM 32, by registers; 2 of DIM 64 in 100 KB of shared memory), so
//            that shared memory is the bound: at best 0.8 of the products' peak. Counted, not measured.
// Source     FlashAttention (Dao et al., 2022): softmax with a running maximum and sum; scores never leave registers.
#include "attention.h"
#include "quad.h"
#include "tile.h"

namespace attention {

constexpr int QUERIES = 64;  // of a block; 16 a warp
constexpr int KEYS = 64;     // of a tile
constexpr int THREADS = 128;

// The kernel's arguments that are used throughout: constants, which take no registers.
struct Tensors {
    bf16* out;
    const bf16* q;
    const bf16* k;
    const bf16* v;
    int q_stride, kv_stride, out_stride;
    bool causal;
    float scale_log2;
};

// The state of a warp's 16 queries. In an accumulator a lane holds rows lane / 4 ([0], [1]) and lane / 4 + 8 ([2], [3]):
// two queries, `low` and `high` below.
template <int DIM>
struct State {
    float out[DIM / 8][4];  // sums of probability times v, not yet divided
    float max_low, max_high;
    float sum_low, sum_high;  // this lane's part of the sum of probabilities
};

typedef float Scores[KEYS / 8][4];

template <int DIM>
KT_DEV void scores_of(Scores& scores, const u32 (&q)[DIM / 16][4], const bf16* k, int lane) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) scores[j][0] = scores[j][1] = scores[j][2] = scores[j][3] = 0.0f;
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
#pragma unroll
        for (int step = 0; step < DIM / 16; step++) {
            u32 b[4];
            load_b<DIM>(b, k, 16 * j, 2 * step, lane);
            mma_m16n8k16_bf16(scores[2 * j], q[step], b[0], b[1]);
            mma_m16n8k16_bf16(scores[2 * j + 1], q[step], b[2], b[3]);
        }
    }
}

// Keys from `end_low` and `end_high` on, counted from the tile's first, are not for this lane's queries.
KT_DEV void mask(Scores& scores, int end_low, int end_high, int lane) {
#if BUG == 30
    // Wrong: one key too many is seen.
    end_low++;
    end_high++;
#endif
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        const int key = 8 * j + lane % 4 * 2;
        if (key >= end_low) scores[j][0] = minus_infinity();
        if (key + 1 >= end_low) scores[j][1] = minus_infinity();
        if (key >= end_high) scores[j][2] = minus_infinity();
        if (key + 1 >= end_high) scores[j][3] = minus_infinity();
    }
}

// Scores become powers of two of their distance to the maximum so far; what was summed under a lower maximum is scaled.
// Maxima start at minus infinity, whose power is 0. Each query sees a key of the first tile, so that the maximum is finite
// from then on, and infinity is never taken from infinity.
template <int DIM>
KT_DEV void exponentials(Scores& scores, State<DIM>& state, float scale_log2) {
    float max_low = state.max_low;
    float max_high = state.max_high;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        max_low = fmaxf(max_low, fmaxf(scores[j][0], scores[j][1]));
        max_high = fmaxf(max_high, fmaxf(scores[j][2], scores[j][3]));
    }
    max_low = quad_max(max_low);
    max_high = quad_max(max_high);
    const float rescale_low = ex2((state.max_low - max_low) * scale_log2);
    const float rescale_high = ex2((state.max_high - max_high) * scale_log2);
    state.max_low = max_low;
    state.max_high = max_high;

    const float base_low = max_low * scale_log2;
    const float base_high = max_high * scale_log2;
    float sum_low = 0.0f;
    float sum_high = 0.0f;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++) {
        scores[j][0] = ex2(fmaf(scores[j][0], scale_log2, -base_low));
        scores[j][1] = ex2(fmaf(scores[j][1], scale_log2, -base_low));
        scores[j][2] = ex2(fmaf(scores[j][2], scale_log2, -base_high));
        scores[j][3] = ex2(fmaf(scores[j][3], scale_log2, -base_high));
        sum_low += scores[j][0] + scores[j][1];
        sum_high += scores[j][2] + scores[j][3];
    }
    state.sum_low = state.sum_low * rescale_low + sum_low;
    state.sum_high = state.sum_high * rescale_high + sum_high;
#pragma unroll
    for (int d = 0; d < DIM / 8; d++) {
        state.out[d][0] *= rescale_low;
        state.out[d][1] *= rescale_low;
        state.out[d][2] *= rescale_high;
        state.out[d][3] *= rescale_high;
    }
}

// Accumulators of two neighbouring groups of 8 keys are, rounded to bf16, the a operand of 16 keys: the lanes hold the
// same rows and columns of both, so probabilities go from one product to the next without leaving their lane.
template <int DIM>
KT_DEV void add_values(State<DIM>& state, const Scores& scores, const bf16* v, int lane) {
#pragma unroll
    for (int j = 0; j < KEYS / 16; j++) {
        const float(&left)[4] = scores[2 * j];
        const float(&right)[4] = scores[2 * j + 1];
        const u32 p[4] = {pack_bf16(left[0], left[1]), pack_bf16(left[2], left[3]), pack_bf16(right[0], right[1]),
                          pack_bf16(right[2], right[3])};
#pragma unroll
        for (int d = 0; d < DIM / 16; d++) {
            u32 b[4];
            load_b_from_rows<DIM>(b, v, 16 * j, 2 * d, lane);
            mma_m16n8k16_bf16(state.out[2 * d], p, b[0], b[1]);
            mma_m16n8k16_bf16(state.out[2 * d + 1], p, b[2], b[3]);
        }
    }
}

// A tile of which `keys_left` keys are the sequence's; when causal, the warp's first query sees `diagonal` of them.
template <int DIM>
KT_DEV void attend_to_tile(State<DIM>& state, const u32 (&q)[DIM / 16][4], const bf16* k, const bf16* v, const Tensors& t,
                           int keys_left, int diagonal, int lane) {
    Scores scores;
    scores_of<DIM>(scores, q, k, lane);
    const bool crosses_diagonal = t.causal && diagonal < KEYS;
    if (keys_left < KEYS || crosses_diagonal) {
        int end_low = keys_left;
        int end_high = keys_left;
        if (t.causal) {
            end_low = lesser(end_low, diagonal + lane / 4);
            end_high = lesser(end_high, diagonal + lane / 4 + 8);
        }
        mask(scores, end_low, end_high, lane);
    }
    exponentials<DIM>(scores, state, t.scale_log2);
    add_values<DIM>(state, scores, v, lane);
}

// A quad stores 32 columns of a row at a time, 16 bytes a lane (quad.h). A sum of zero, of no keys, gives zeros; NaN stays.
template <int DIM>
KT_DEV void store(const State<DIM>& state, const Tensors& t, const Work& w, int warp_row, int lane) {
    const float sum_low = quad_sum(state.sum_low);
    const float sum_high = quad_sum(state.sum_high);
    const float divide_low = sum_low == 0.0f ? 0.0f : 1.0f / sum_low;
    const float divide_high = sum_high == 0.0f ? 0.0f : 1.0f / sum_high;
#pragma unroll
    for (int high = 0; high < 2; high++) {
        const int row = warp_row + lane / 4 + 8 * high;
        const float divide = high ? divide_high : divide_low;
#if BUG == 32
        // Wrong: rows beyond the sequence are written, which are the next sequence's.
        const bool inside = true;
#else
        const bool inside = row < w.queries;
#endif
#pragma unroll
        for (int d = 0; d < DIM / 8; d += 4) {
            u32 pairs[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float(&out)[4] = state.out[d + i];
                pairs[i] = pack_bf16(out[2 * high] * divide, out[2 * high + 1] * divide);
            }
            quad_transpose(pairs, lane);
            const u64 place = (u64)(w.query_row + row) * t.out_stride + w.column + (d + lane % 4) * 8;
            if (inside) store_16_bytes(t.out + place, pairs);
        }
    }
}

template <int DIM>
KT_DEV void copy_keys(bf16* k, bf16* v, const Tensors& t, const Work& w, int first, int thread) {
    const u64 place = (u64)(w.key_row + first) * t.kv_stride + w.column;
    copy_tile<KEYS, DIM, THREADS>(k, t.k + place, t.kv_stride, w.keys - first, DIM, thread);
    // Zeros beyond the last key here too: probabilities are zero there, but zero times an infinity would be NaN.
#if BUG == 38
    // Wrong: values beyond the last key are copied as they are, and spoil the sums where they are not finite.
    const int values_left = KEYS;
#else
    const int values_left = w.keys - first;
#endif
    copy_tile<KEYS, DIM, THREADS>(v, t.v + place, t.kv_stride, values_left, DIM, thread);
}

// How many tiles of keys the block's queries see.
KT_DEV int tiles_seen(const Work& w, bool causal) {
    const int all = (w.keys + KEYS - 1) / KEYS;
    if (!causal) return all;
    const int last_query = w.first + lesser(w.queries, QUERIES) - 1;
#if BUG == 33
    // Wrong: the tile on the diagonal is skipped with those to its right.
    return lesser(all, last_query < KEYS ? 1 : last_query / KEYS);
#else
    return lesser(all, last_query / KEYS + 1);
#endif
}

// Shared memory: queries, then two buffers of keys, then two of values; one is copied into while the other is used.
template <int DIM>
KT_DEV void run(const Tensors& t, const Work& w) {
    KT_DYN_SMEM(bytes);
    constexpr int TILE = KEYS * DIM;
    bf16* const shared_q = (bf16*)bytes;
    bf16* const shared_k = shared_q + TILE;
    bf16* const shared_v = shared_k + 2 * TILE;
    const int thread = threadIdx.x;
    const int lane = thread % 32;
    const int warp_row = thread / 32 * 16;
    const int tiles = tiles_seen(w, t.causal);

    const u64 place = (u64)w.query_row * t.q_stride + w.column;
    copy_tile<QUERIES, DIM, THREADS>(shared_q, t.q + place, t.q_stride, w.queries, DIM, thread);
    cp_async_commit();
    if (tiles > 0) copy_keys<DIM>(shared_k, shared_v, t, w, 0, thread);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    u32 q[DIM / 16][4];
#pragma unroll
    for (int step = 0; step < DIM / 16; step++) load_a<DIM>(q[step], shared_q, warp_row, 2 * step, lane);

    State<DIM> state = {};
    state.max_low = state.max_high = minus_infinity();
    // One query a sequence is common (the last layer needs no other): warps without a query only help with the copies.
    const bool has_queries = warp_row < w.queries;
    for (int tile = 0; tile < tiles; tile++) {
        const int buffer = tile % 2 * TILE;
        bf16* const next_k = shared_k + TILE - buffer;
        bf16* const next_v = shared_v + TILE - buffer;
#if BUG == 34  // Wrong: the next tile is copied into a buffer that other threads may still read.
        cp_async_wait<0>();
        if (tile + 1 < tiles) copy_keys<DIM>(next_k, next_v, t, w, (tile + 1) * KEYS, thread);
        cp_async_commit();
        __syncthreads();
#else
#if BUG != 35  // Wrong: nothing waits for the tile's copies.
        cp_async_wait<0>();
#endif
#if BUG == 36
        // Wrong: a divergent barrier, by which lanes without a query pass.
        if (warp_row + lane / 4 < w.queries)
#endif
#if BUG != 37  // Wrong: other threads' copies are read before they are there.
            __syncthreads();
#endif
        if (tile + 1 < tiles) copy_keys<DIM>(next_k, next_v, t, w, (tile + 1) * KEYS, thread);
        cp_async_commit();
#endif
        if (has_queries) {
            const int first_key = tile * KEYS;
#if BUG == 31
            // Wrong: the diagonal is masked, so that a query does not see its own key.
            const int diagonal = w.first + warp_row - first_key;
#else
            const int diagonal = w.first + warp_row - first_key + 1;
#endif
            attend_to_tile<DIM>(state, q, shared_k + buffer, shared_v + buffer, t, w.keys - first_key, diagonal, lane);
        }
    }
    cp_async_wait<0>();
    store<DIM>(state, t, w, warp_row, lane);
}

}  // namespace attention

// BLOCKS on a multiprocessor bounds the registers of a thread.
#define ATTENTION_KERNEL(NAME, DIM, BLOCKS)                                                                             \
    KT_KERNEL void __launch_bounds__(attention::THREADS, BLOCKS)                                                         \
        NAME(bf16* __restrict__ out, const bf16* __restrict__ q, const bf16* __restrict__ k, const bf16* __restrict__ v, \
             int q_stride, int kv_stride, int out_stride, const u32* __restrict__ q_starts,                              \
             const u32* __restrict__ starts, const u32* __restrict__ tiles, int causal, float scale_log2) {              \
        const attention::Tensors t = {out, q, k, v, q_stride, kv_stride, out_stride, causal != 0, scale_log2};           \
        attention::run<DIM>(t, attention::find_work(q_starts, starts, tiles, DIM));                                      \
    }

ATTENTION_KERNEL(attention_32, 32, 4)
ATTENTION_KERNEL(attention_64, 64, 3)
