// cp.async: copies that are made at once, or as late as the program allows, as the launch says.
//
// Late copies land when their thread waits for their group: a missing wait reads poison, and a buffer that is filled
// again too early is caught by the eager mode under a schedule that runs one warp ahead of another.
#pragma once
#include "block.h"

namespace kt {

inline void make_copy(const PendingCopy& c) {
    if (c.in_range)
        memcpy(c.shared, c.global, 16);
    else
        memset(c.shared, 0, 16);
}

KT_QUIET inline void queue_copy(const PendingCopy& c) {
    Fiber* f = cur;
    if (f->last_copy - f->first_copy >= Fiber::COPIES) die("a thread has more than 128 cp.async copies under way");
    f->copies[f->last_copy++ % Fiber::COPIES] = c;
}

KT_QUIET inline bool copies_are_late() {
    return blk->late_copies;
}

inline void copy_async(void* shared, const void* global, bool in_range) {
    if (((uintptr_t)shared | (in_range ? (uintptr_t)global : 0)) & 15) die("misaligned cp.async");
    PendingCopy c{shared, global, in_range};
    if (copies_are_late())
        queue_copy(c);
    else
        make_copy(c);
}

KT_QUIET inline void commit_copies() {
    Fiber* f = cur;
    if (f->last_group - f->first_group >= Fiber::GROUPS) die("a thread has more than 16 cp.async groups under way");
    f->committed = f->last_copy;
    f->group_end[f->last_group++ % Fiber::GROUPS] = f->committed;
}

KT_QUIET inline bool take_group(u32 keep, u32& end) {
    Fiber* f = cur;
    if (f->last_group - f->first_group <= keep) return false;
    end = f->group_end[f->first_group++ % Fiber::GROUPS];
    return true;
}

KT_QUIET inline bool take_copy(u32 end, PendingCopy& c) {
    Fiber* f = cur;
    if (f->first_copy == end) return false;
    c = f->copies[f->first_copy++ % Fiber::COPIES];
    return true;
}

inline void wait_copies(u32 keep) {
    u32 end;
    PendingCopy c;
    while (take_group(keep, end))
        while (take_copy(end, c)) make_copy(c);
}

}  // namespace kt
