// SPDX-License-Identifier: MIT
// faults.c: see faults.h.
#include "pool/faults.h"

#include <string.h>

#include "pool/checker.h"
#include "pool/filling.h"
#include "pool/origin.h"

// What a use of an ended block is called, by what ended it.
static const char *use_after(const quarry_pool_t *pool, const char *else_kind) {
    if (!(pool->ops->capabilities & QUARRY_POOL_FRAMES)) return else_kind;
    return strcmp(pool->ops->kind, "ring") ? "use-after-pop" : "use-after-release";
}

static quarry_check_pool_fault_t fault_about(const quarry_pool_t *pool, const qy_block_node_t *n, const char *kind) {
    quarry_check_pool_fault_t f = {.kind = kind, .pool = pool->info->name, .pool_kind = pool->ops->kind};
    if (!n) return f;
    f.has_block = true;
    f.block = (uintptr_t)qy_shown_pointer(n->ptr);
    f.size = n->size;
    f.freed = n->freed;
    f.alloc_stack = n->born;
    f.free_stack = n->died;
    return f;
}

static void fault_at(quarry_check_pool_fault_t *f, const qy_stack_regs_t *caller, const char *function, uintptr_t at) {
    f->function = function;
    f->address = at;
    f->offset = f->has_block ? (int64_t)(at - f->block) : 0;
    if (caller) f->pc = caller->pc, f->sp = caller->sp, f->fp = caller->fp;
}

// From the first to the last byte of [from, to) that is not `byte`. False: all are.
static bool fault_bytes(quarry_check_pool_fault_t *f, uintptr_t from, uintptr_t to, unsigned char byte) {
    while (from < to && *(const unsigned char *)from == byte) from++;
    if (from == to) return false;
    while (*(const unsigned char *)(to - 1) == byte) to--;
    fault_at(f, NULL, NULL, from);
    f->bytes = to - from;
    f->is_write = f->is_evidence = true;
    return true;
}

void qy_found_canary(quarry_pool_t *pool, const qy_block_node_t *n) {
    uintptr_t raw = (uintptr_t)qy_shown_pointer(n->raw), p = (uintptr_t)qy_shown_pointer(n->ptr);
    quarry_check_pool_fault_t f = fault_about(pool, n, "pool-overflow");
    f.freed = false;  // it is about to end
    f.free_stack = 0;
    bool before = fault_bytes(&f, raw, p, QY_CANARY_BYTE);
    bool found = before || fault_bytes(&f, p + n->size, raw + n->raw_bytes, QY_CANARY_BYTE);
    if (found && qy_checker()) {
        qy_checker()->fault(&f);
        return;
    }
    qy_node_print_traces(n);
    qy_fatal(QY_FAULT_CANARY, (void *)p, "block of %z byte%S in %s \"%s\" was written %s", n->size, pool->ops->kind,
        pool->info->name, before ? "before its start" : "behind its end");
}

void qy_found_written(quarry_pool_t *pool, const qy_block_node_t *n) {
    quarry_check_pool_fault_t f = fault_about(pool, n, use_after(pool, "write-after-free"));
    if (qy_checker()) {
        size_t bytes;
        const unsigned char *dead = qy_node_dead(n, &bytes);
        bool is_large = bytes > 3 * QY_FILLED, found = false;
        for (unsigned i = 0; i < (is_large ? 3 : 1) && !found; i++) {
            uintptr_t part = (uintptr_t)dead + (is_large ? qy_filled_part(dead, bytes, i) : 0);
            found = fault_bytes(&f, part, part + (is_large ? QY_FILLED : bytes), QY_DEAD_BYTE);
        }
        qy_checker()->fault(&f);
        return;
    }
    qy_node_print_traces(n);
    qy_fatal(QY_FAULT_QUARANTINE, qy_shown_pointer(n->ptr), "block of %z byte%S in %s \"%s\"", n->size, pool->ops->kind,
        pool->info->name);
}

void qy_found_pointer(
    quarry_pool_t *pool, const qy_stack_regs_t *caller, const char *function, const void *ptr) {
    static const struct {
        const char *kind;
        qy_fault_t fault;
    } faults[] = {[QY_IS_NOTHING] = {"invalid-free", QY_FAULT_INVALID_FREE},
        [QY_IS_BLOCK] = {"invalid-free", QY_FAULT_INVALID_FREE},  // by another thread, meanwhile
        [QY_IS_INSIDE] = {"interior-free", QY_FAULT_INTERIOR_FREE},
        [QY_WAS_FREED] = {"double-free", QY_FAULT_DOUBLE_FREE}};
    qy_block_node_t found;
    qy_what_t what = qy_observer_explain(pool->info->observer, ptr, &found);
    bool known = what == QY_IS_INSIDE || what == QY_WAS_FREED;
    const char *kind = what == QY_WAS_FREED ? use_after(pool, "double-free") : faults[what].kind;
    if (qy_checker()) {
        quarry_check_pool_fault_t f = fault_about(pool, known ? &found : NULL, kind);
        fault_at(&f, caller, function, (uintptr_t)ptr);
        qy_checker()->fault(&f);
        return;
    }
    if (what == QY_WAS_FREED) qy_node_print_traces(&found);
    if (!known) qy_fatal(faults[what].fault, ptr, "no block of %s \"%s\"", pool->ops->kind, pool->info->name);
    qy_fatal(
        faults[what].fault, ptr, "block of %z byte%S in %s \"%s\"", found.size, pool->ops->kind, pool->info->name);
}

void qy_found_frame(
    quarry_pool_t *pool, const qy_stack_regs_t *caller, const qy_block_node_t *n, uint64_t group) {
    uintptr_t p = (uintptr_t)qy_shown_pointer(n->ptr);
    if (qy_checker()) {
        quarry_check_pool_fault_t f = fault_about(pool, n, "pool-wrong-frame");
        fault_at(&f, caller, "resize", p);
        qy_checker()->fault(&f);
        return;
    }
    qy_node_print_traces(n);
    qy_fatal(QY_FAULT_WRONG_FRAME, (void *)p, "block of %z byte%S in %s \"%s\", frame %l resized from frame %l",
        n->size, pool->ops->kind, pool->info->name, n->group, group);
}

void qy_found_misuse(qy_fault_t fault, const void *ptr, const char *detail) {
    static const char *const kinds[] = {[QY_FAULT_DOUBLE_FREE] = "double-free",
        [QY_FAULT_INVALID_FREE] = "invalid-free",
        [QY_FAULT_INTERIOR_FREE] = "interior-free",
        [QY_FAULT_WRONG_POOL] = "invalid-free",
        [QY_FAULT_DEAD_POOL] = "pool-destroyed",
        [QY_FAULT_POOL_IN_USE] = "pool-destroyed",
        [QY_FAULT_DAMAGED_POOL] = "pool-overflow",
        [QY_FAULT_UNBALANCED] = "pool-wrong-frame",
        [QY_FAULT_NO_FRAME] = "pool-wrong-frame",
        [QY_FAULT_SEALED_FRAME] = "pool-wrong-frame",
        [QY_FAULT_WRONG_FRAME] = "pool-wrong-frame",
        [QY_FAULT_STALE_FRAME] = "pool-wrong-frame",
        [QY_FAULT_DOUBLE_RELEASE] = "pool-double-release"};
    const char *kind = fault < sizeof kinds / sizeof kinds[0] ? kinds[fault] : NULL;
    if (!kind) return;  // no error of the program's memory
    quarry_check_pool_fault_t f = {.kind = kind, .address = (uintptr_t)ptr, .is_last = true, .detail = detail};
    f.is_write = f.is_evidence = fault == QY_FAULT_DAMAGED_POOL;
    qy_checker()->fault(&f);
}
