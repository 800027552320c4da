// SPDX-License-Identifier: MIT
// fatal.c: see fatal.h.
#include "check/fatal.h"

#include <stdatomic.h>

#include "check/evidence.h"
#include "check/find.h"
#include "check/report.h"
#include "os/os.h"
#include "rt/diag.h"

// A free block of the heap has no canary. What was written to it came from the block before it, or belongs to whoever
// had it last.
static void link_report(uintptr_t address) {
    qy_check_fault_t f = {.kind = "write-after-free",
        .address = address,
        .is_write = true,
        .bytes = sizeof(void *),
        .is_evidence = true,
        .detail = "memory that no block has was overwritten"};
    qy_check_place_t place = qy_check_place(address), before = {0};
    if (place.record) before = qy_check_place_before(&place);
    if (qy_check_block_at(&before, &f.block) && !f.block.freed) {
        f.kind = "overflow-write";
        f.detail = "free memory behind the block was overwritten";
        f.has_block = true;
    } else {
        f.has_block = qy_check_block_at(&place, &f.block);
    }
    if (f.has_block) f.offset = (int64_t)(address - f.block.address);
    qy_check_report(&f, NULL);
}

// No scan for leaks: it would stop threads that wait for the heap's locks.
void qy_check_fatal_end(void) {
    static _Atomic bool met;
    if (atomic_exchange(&met, true)) return;
    qy_check_blocks_sweep();
    qy_check_report_end("signal", QY_OS_ABORT_SIGNAL);
}

static void at_fatal(qy_fault_t fault, const void *ptr, const char *detail) {
    (void)detail;
    if (fault == QY_FAULT_CORRUPT_LINK) link_report((uintptr_t)ptr);
    qy_check_fatal_end();
}

void qy_check_fatal_begin(void) { qy_fatal_watch(at_fatal); }
