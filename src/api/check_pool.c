// SPDX-License-Identifier: MIT
// check_pool.c: the table through which Quarry's pools tell what they find (rt/check_pool.h); in libquarry-check only.
#include "rt/check_pool.h"

#include "base/compiler.h"
#include "check/check.h"
#include "check/fatal.h"
#include "check/frames.h"
#include "check/pool_blocks.h"

#define QY_EXPORT __attribute__((visibility("default")))

extern const quarry_check_pool_t quarry_check_pool_v1;

static uint32_t pool_stack(uintptr_t pc, uintptr_t sp, uintptr_t fp) {
    return qy_check_stack(&(qy_stack_regs_t){.pc = pc, .sp = sp, .fp = fp});
}

static void pool_fault(const quarry_check_pool_fault_t *f) {
    if (f->is_evidence && f->has_block && qy_check_pool_was_told(f->block)) return;
    const qy_stack_regs_t from = {.pc = f->pc, .sp = f->sp, .fp = f->fp};
    const qy_check_fault_t fault = {.kind = f->kind,
        .function = f->function,
        .address = f->address,
        .is_write = f->is_write,
        .bytes = f->bytes,
        .is_evidence = f->is_evidence,
        .has_block = f->has_block,
        .block = {.address = f->block,
            .size = f->size,
            .alloc_stack = f->alloc_stack,
            .free_stack = f->free_stack,
            .family = QY_CHECK_POOL,
            .freed = f->freed,
            .pool = f->pool,
            .pool_kind = f->pool_kind},
        .offset = f->offset,
        .detail = f->detail};
    qy_check_report(&fault, f->pc ? &from : NULL);
    if (f->is_last) qy_check_fatal_end();
}

QY_EXPORT const quarry_check_pool_t quarry_check_pool_v1 = {.bytes = sizeof(quarry_check_pool_t),
    .stack = pool_stack,
    .fault = pool_fault,
    .opened = qy_check_pool_opened,
    .closed = qy_check_pool_closed,
    .began = qy_check_pool_began,
    .held = qy_check_pool_held,
    .ended = qy_check_pool_ended,
    .gone = qy_check_pool_gone,
    .records = qy_check_pool_records};
