// top_k: for each query the k items of its group with the largest dot product. Many groups in one launch.
//
// Mathematics  score(q, i) = sum over d of queries[q, d] items[i, d]; the k best i, best first, ties to the lower index
// Shapes       queries (., dim), items (., dim) f32; groups (., 2) u32: a group's first item and its end; group_of (queries)
//              u32; indices, scores (queries, k). Indices count from the group's first item. k is at most 1,024. Where a
//              group has fewer items, the rest is index 0xffffffff with score -inf. Scores that are NaN come last.
// Launch       grid queries, block 256. 16 KiB of static shared memory.
// Numerics     f32; the order of a sum depends on dim only, so equal items have equal scores in every group.
// Work         4 dim bytes and 2 dim operations for each pair: bound by memory (L2, where queries of a group run together);
//              sorting 256 keys costs a tenth of scoring 256 items of 1,024 columns.
// Source       Bitonic sort and merge (Batcher 1968). Score and index make one key of 64 bits, all keys differ, and so the
//              result does not depend on the order in which they are compared.
#include "rows.h"

const int TOP_THREADS = 256;
const int TOP_MAX = 1024;
const int TOP_ITEMS = 4;  // that a warp scores at once

// --- Keys: a larger key is a better item ---

const u32 TOP_NAN = 1;  // below the key of -inf; 0 is for no item

KT_DEV u32 top_float_bits(float f) {
    union {
        float f;
        u32 bits;
    } both;
    both.f = f;
    return both.bits;
}

KT_DEV float top_bits_float(u32 bits) {
    union {
        u32 bits;
        float f;
    } both;
    both.bits = bits;
    return both.f;
}

KT_DEV u64 top_key(float score, u32 index) {
    u32 bits = top_float_bits(score + 0.0f);  // -0 becomes 0: the two are equal
    u32 order = score != score ? TOP_NAN : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
#if BUG == 18  // ties go to the higher index
    return (u64)order << 32 | index;
#else
    return (u64)order << 32 | (0xffffffffu - index);
#endif
}

KT_DEV u32 top_index(u64 key) {
    if (key == 0) return 0xffffffffu;
#if BUG == 18
    return (u32)key;
#else
    return 0xffffffffu - (u32)key;
#endif
}

KT_DEV float top_score(u64 key) {
    u32 order = (u32)(key >> 32);
    if (key == 0) return top_bits_float(0xff800000u);
    if (order == TOP_NAN) return top_bits_float(0x7fffffffu);
    return top_bits_float(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

// --- Sorting n keys in shared memory, n a power of two, best first ---

// Makes pairs at this distance descending, or, in every other run of `run` keys, ascending. All threads take part.
KT_DEV void top_compare(u64* keys, int n, int run, int distance) {
    for (int i = threadIdx.x; i < n / 2; i += TOP_THREADS) {
        int low = 2 * i - (i & (distance - 1)), high = low + distance;
        u64 a = keys[low], b = keys[high];
        bool descending = (low & run) == 0;
        if (descending ? a < b : a > b) {
            keys[low] = b;
            keys[high] = a;
        }
    }
    __syncthreads();
}

KT_DEV void top_sort(u64* keys, int n) {
    for (int run = 2; run <= n; run *= 2)
        for (int distance = run / 2; distance > 0; distance /= 2) top_compare(keys, n, run, distance);
}

// The best n of two descending lists, into the first. The larger of each pair taken from opposite ends makes a list that
// rises and falls once, which one round of comparisons sorts.
KT_DEV void top_merge(u64* best, const u64* more, int n) {
    for (int i = threadIdx.x; i < n; i += TOP_THREADS) {
        u64 other = more[n - 1 - i];
        if (other > best[i]) best[i] = other;
    }
    __syncthreads();
    for (int distance = n / 2; distance > 0; distance /= 2) top_compare(best, n, n, distance);
}

// --- Scores ---

// The dot products of a query with TOP_ITEMS items, of which `count` exist, for every lane of the warp.
KT_DEV void top_dots(float (&dots)[TOP_ITEMS], const float* __restrict__ query, const float* __restrict__ items, int count, int dim) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < TOP_ITEMS; i++) dots[i] = 0.0f;
    if (dim % 4 == 0) {
        for (int d = lane * 4; d < dim; d += 128) {
            float4 q = *(const float4*)(query + d);
#pragma unroll
            for (int i = 0; i < TOP_ITEMS; i++)
                if (i < count) {
                    float4 v = *(const float4*)(items + (u64)i * dim + d);
                    dots[i] += q.x * v.x + q.y * v.y + q.z * v.z + q.w * v.w;
                }
        }
    } else {  // rows do not begin at multiples of 16 bytes
#pragma unroll 1  // rare: registers go to the other path
        for (int d = lane; d < dim; d += 32)
#pragma unroll
            for (int i = 0; i < TOP_ITEMS; i++)
                if (i < count) dots[i] += query[d] * items[(u64)i * dim + d];
    }
#pragma unroll
    for (int i = 0; i < TOP_ITEMS; i++) dots[i] = warp_sum(dots[i]);
}

// Keys of the items [first, first + n) of a group of `size` items; keys of no item beyond its end.
KT_DEV void top_score_items(u64* keys, const float* query, const float* items, u32 first, int n, u32 size, int dim) {
    int lane = threadIdx.x & 31;
    for (int at = (int)(threadIdx.x >> 5) * TOP_ITEMS; at < n; at += TOP_THREADS / 32 * TOP_ITEMS) {
        u32 item = first + at;
        int count = item >= size ? 0 : size - item < TOP_ITEMS ? (int)(size - item) : TOP_ITEMS;
        float dots[TOP_ITEMS];
        top_dots(dots, query, items + (u64)item * dim, count, dim);
#pragma unroll
        for (int i = 0; i < TOP_ITEMS; i++)
            if (lane == i) keys[at + i] = i < count ? top_key(dots[i], item + i) : 0;
    }
}

KT_KERNEL void __launch_bounds__(TOP_THREADS, 4)
    top_k(u32* __restrict__ indices, float* __restrict__ scores, const float* __restrict__ queries, const float* __restrict__ items,
          const u32* __restrict__ groups, const u32* __restrict__ group_of, int dim, int k) {
    KT_SHARED(u64[TOP_MAX], best);
    KT_SHARED(u64[TOP_MAX], more);
    u32 group = group_of[blockIdx.x], start = groups[2 * group], size = groups[2 * group + 1] - start;
    const float* query = queries + (u64)blockIdx.x * dim;
    int n = TOP_THREADS;  // keys that are kept, and items that are scored at a time
    while (n < k) n *= 2;

    for (int i = threadIdx.x; i < n; i += TOP_THREADS) best[i] = 0;
    for (u32 first = 0; first < size; first += n) {
        top_score_items(more, query, items + (u64)start * dim, first, n, size, dim);
#if BUG != 19  // keys are sorted before they are there
        __syncthreads();
#endif
        top_sort(more, n);
        top_merge(best, more, n);
    }
    for (int i = threadIdx.x; i < k; i += TOP_THREADS) {
        u64 out = (u64)blockIdx.x * k + i;
        indices[out] = top_index(best[i]);
        scores[out] = top_score(best[i]);
    }
}
