// SPDX-License-Identifier: MIT
// told.c: see told.h.
#include "check/told.h"

#include <string.h>

#include "base/num.h"
#include "check/threads.h"

#define TOLD_MOST 64u  // the last faults of this kind. An older one is reported twice

typedef struct told {
    const char *kind;
    uintptr_t block, from, to;  // what was accessed; from == to: none
    uint64_t ordinal;
    uint32_t stack;
    uint16_t thread;
    bool is_write, inside;
} told_t;

static struct {
    told_t last[TOLD_MOST];
    uint32_t count;
} reported;  // of the lock of reports

static bool is_of(const told_t *t, const qy_check_block_t *b) {
    return t->block == b->address && t->stack == b->alloc_stack && t->ordinal == b->ordinal;
}

// What is known of the bytes outside of a block that is live. Those within it are another matter, also once they are
// freed. Between the block and a page that has stopped the access, they were written before, without a fault.
static void told_extent(const qy_check_fault_t *f, told_t *t) {
    uintptr_t begin = f->block.address, end = begin + f->block.size;
    t->from = f->address;
    t->to = f->address + qy_max(f->bytes, 1);
    if (f->block.freed) return;
    if (t->from < begin) t->to = begin;
    else if (t->from < end || !f->function) t->from = end;
}

// A write that reached the canary of the block before is told as that of the block behind, if it ended nearer to that.
static bool damage_is_told(const qy_check_fault_t *f) {
    uintptr_t at = f->address, end = at + f->bytes;
    for (bool grows = true; grows && at < end;) {
        grows = false;
        for (uint32_t i = 0; i < TOLD_MOST; i++) {
            const told_t *t = &reported.last[i];
            bool same = f->offset < 0 || is_of(t, &f->block);
            if (!t->is_write || !same || at < t->from || at >= t->to) continue;
            at = t->to;
            grows = true;
        }
    }
    return at >= end;
}

// The function that was stopped by a page looks at the same block as soon as it is done. If it knows better what the
// fault is (a string without an end), it says so.
static bool call_is_told(const qy_check_fault_t *f) {
    for (uint32_t i = 0; i < TOLD_MOST; i++) {
        told_t *t = &reported.last[i];
        if (!t->inside || !is_of(t, &f->block) || t->thread != qy_check_thread_number()) continue;
        if (f->address > t->from || strcmp(f->kind, t->kind) != 0) continue;
        t->inside = false;
        if (t->to < f->address + f->bytes) t->to = f->address + f->bytes;
        return true;
    }
    return false;
}

bool qy_check_told(const qy_check_fault_t *f, bool inside) {
    // A wrong free accesses nothing.
    if (!f->has_block || (f->function && !f->bytes)) return false;
    if (f->is_evidence) return damage_is_told(f);
    if (f->function && call_is_told(f)) return true;
    told_t *t = &reported.last[reported.count++ % TOLD_MOST];
    *t = (told_t){.kind = f->kind,
        .block = f->block.address,
        .ordinal = f->block.ordinal,
        .stack = f->block.alloc_stack,
        .thread = qy_check_thread_number(),
        .is_write = f->is_write,
        .inside = inside};
    told_extent(f, t);
    return false;
}
