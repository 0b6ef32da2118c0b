// What the lanes of a warp do together: shuffles, the warp's barrier, ldmatrix and mma.sync.
#pragma once
#include "block.h"

namespace kt {

inline float bits_to_float(u32 bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

inline u32 float_to_bits(float f) {
    u32 bits;
    memcpy(&bits, &f, 4);
    return bits;
}

// A copy that ThreadSanitizer does not see.
KT_QUIET inline void copy_words(void* to, const void* from, size_t bytes) {
#ifdef KT_TSAN
    for (size_t i = 0; i < bytes / 4; i++) ((volatile u32*)to)[i] = ((const volatile u32*)from)[i];
#else
    memcpy(to, from, bytes);
#endif
}

// Waits until all lanes that have not ended are here with the same operation. The last one runs `compute`. Returns which
// of the two sets of buffers is this collective's.
template <class Compute>
KT_QUIET inline int meet(Collective op, const void* in, size_t bytes, Compute compute) {
    Fiber* f = cur;
    Warp* w = f->warp;
    int set = w->generation & 1;
    if (w->arrived && w->op != op) die("lanes of one warp reached different collectives");
    w->op = op;
    copy_words(w->in[set][f->lane], in, bytes);
    w->arrived |= 1u << f->lane;
    if (w->arrived == w->alive) {
        w->members[set] = w->arrived;
        compute(w, set);
        w->ready |= w->arrived & ~(1u << f->lane);
        w->arrived = 0;
        w->generation++;
    } else {
        pause_thread();
    }
    return set;
}

struct Nothing {
    void operator()(Warp*, int) const {}
};

struct WholeWarp {
    KT_QUIET void operator()(Warp* w, int set) const {
        if (w->members[set] != 0xffffffff) die("ldmatrix needs all 32 lanes");
    }
};

KT_QUIET inline void syncwarp() {
#ifdef KT_TSAN
    __tsan_release(&cur->warp->sync[blk->number]);
#endif
    u32 none = 0;
    meet(Collective::barrier, &none, 4, Nothing());
#ifdef KT_TSAN
    __tsan_acquire(&cur->warp->sync[blk->number]);
#endif
}

KT_QUIET inline u32 shuffle_xor(u32 value, int mask) {
    Fiber* f = cur;
    int set = meet(Collective::shuffle, &value, 4, Nothing());
    unsigned from = f->lane ^ mask;
    if (from > 31 || !(f->warp->members[set] >> from & 1)) die("a shuffle reads a lane that is not there");
    u32 result;
    copy_words(&result, f->warp->in[set][from], 4);
    return result;
}

// Reads the matrices through the kernel's own eyes: a sanitizer sees each element's load.
template <bool TRANSPOSED>
inline void load_matrices(u32 (&r)[4], const void* row) {
    Fiber* f = cur;
    if ((uintptr_t)row & 15) die("misaligned ldmatrix");
    int set = meet(Collective::ldmatrix, &row, sizeof row, WholeWarp());
    unsigned group = f->lane >> 2, pair = (f->lane & 3) * 2;
    for (int matrix = 0; matrix < 4; matrix++) {
        const u16* at[2];
        for (unsigned half = 0; half < 2; half++) {
            const u16* start;
            copy_words(&start, f->warp->in[set][matrix * 8 + (TRANSPOSED ? pair + half : group)], sizeof start);
            at[half] = start + (TRANSPOSED ? group : pair + half);
        }
        r[matrix] = *at[0] | (u32)*at[1] << 16;
    }
}

struct MmaIn {
    u32 a[4];
    u32 b[2];
    float c[4];
};

// The 16x8x16 product of a warp, in the layout of fragments that the PTX manual gives. Products are summed in f32 in the
// order of k, and then added to c.
struct Mma {
    KT_QUIET void operator()(Warp* w, int set) const {
        typedef float Row __attribute__((vector_size(32)));
        if (w->members[set] != 0xffffffff) die("mma.sync needs all 32 lanes");
        float a[16][16];
        union {
            float element[16][8];
            Row row[16];
        } b, c;
        for (int lane = 0; lane < 32; lane++) {
            const MmaIn& in = *(const MmaIn*)w->in[set][lane];
            int g = lane >> 2, t = (lane & 3) * 2;
            split(in.a[0], &a[g][t]);
            split(in.a[1], &a[g + 8][t]);
            split(in.a[2], &a[g][t + 8]);
            split(in.a[3], &a[g + 8][t + 8]);
            for (int half = 0; half < 2; half++) {
                float pair[2];
                split(in.b[half], pair);
                b.element[t + half * 8][g] = pair[0];
                b.element[t + half * 8 + 1][g] = pair[1];
            }
        }
        for (int m = 0; m < 16; m += 2) {  // two at a time: neither waits for the other's sum
            Row first = {}, second = {};
            for (int k = 0; k < 16; k++) {
                first += a[m][k] * b.row[k];
                second += a[m + 1][k] * b.row[k];
            }
            c.row[m] = first;
            c.row[m + 1] = second;
        }
        for (int lane = 0; lane < 32; lane++) {
            const MmaIn& in = *(const MmaIn*)w->in[set][lane];
            float* out = (float*)w->out[set][lane];
            int g = lane >> 2, t = (lane & 3) * 2;
            out[0] = in.c[0] + c.element[g][t];
            out[1] = in.c[1] + c.element[g][t + 1];
            out[2] = in.c[2] + c.element[g + 8][t];
            out[3] = in.c[3] + c.element[g + 8][t + 1];
        }
    }

    // Two bf16, the first in the low half.
    KT_QUIET static void split(u32 pair, float* two) {
        two[0] = bits_to_float(pair << 16);
        two[1] = bits_to_float(pair & 0xffff0000);
    }
};

KT_QUIET inline void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    MmaIn in = {{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}};
    static_assert(sizeof in <= sizeof Warp::in[0][0], "a lane's part must fit");
    Fiber* f = cur;
    int set = meet(Collective::mma, &in, sizeof in, Mma());
    copy_words(c, f->warp->out[set][f->lane], sizeof c);
}

}  // namespace kt
