// SPDX-License-Identifier: MIT
// told.c: see told.h. The table is found as that of libquarry-check is, and the checker's own register keeps blocks.
#include "told.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "check/pool_blocks.h"

unsigned told_faults;
quarry_check_pool_fault_t told_last;

// Each call has a stack of its own.
static uint32_t told_stack(uintptr_t pc, uintptr_t sp, uintptr_t fp) {
    static _Atomic uint32_t stacks;
    (void)sp, (void)fp;
    return pc ? ++stacks : 0;
}

static void told_fault(const quarry_check_pool_fault_t *f) {
    printf("  told: %s at %lld of %zu bytes\n", f->kind, (long long)f->offset, f->size);
    told_faults++;
    told_last = *f;
    if (getenv("QUARRY_TOLD_ENDS")) _exit(TOLD_ENDS);
}

extern const quarry_check_pool_t quarry_check_pool_v1;
const quarry_check_pool_t quarry_check_pool_v1 = {.bytes = sizeof(quarry_check_pool_t),
    .stack = told_stack,
    .fault = told_fault,
    .opened = qy_check_pool_opened,
    .closed = qy_check_pool_closed,
    .began = qy_check_pool_began,
    .held = qy_check_pool_held,
    .ended = qy_check_pool_ended,
    .gone = qy_check_pool_gone,
    .records = qy_check_pool_records};
