// SPDX-License-Identifier: MIT
// mismatch.c: see mismatch.h.
#include "check/mismatch.h"

#include <errno.h>

#include "check/find.h"
#include "check/options.h"
#include "os/module.h"
#include "rt/diag.h"
#include "stacks/stacks_tree.h"

bool qy_check_operators_mixed, qy_check_malloc_mixed;

static const char *expected(qy_check_kind_t kind) {
    static const char *const detail[] = {[QY_CHECK_KIND_MALLOC] = "a block of malloc: free() is its end",
        [QY_CHECK_KIND_NEW] = "a block of operator new: operator delete is its end",
        [QY_CHECK_KIND_NEW_ARRAY] = "a block of operator new[]: operator delete[] is its end",
        [QY_CHECK_KIND_OTHER] = "a block of a pool: the pool is its end"};
    return detail[kind];
}

static void mismatch_report(
    const char *kind, const qy_check_call_t *call, const qy_check_place_t *place, size_t bytes, const char *detail) {
    qy_check_fault_t f = {
        .kind = kind, .function = call->function, .address = place->begin, .bytes = bytes, .detail = detail};
    f.has_block = qy_check_block_at(place, &f.block);
    qy_check_report(&f, &call->from);
}

// The file that allocated the block. What the C library allocates for its caller (strdup, getline) is the caller's: the
// C library has no operators of its own.
static bool module_of_maker(uint32_t stack, qy_os_module_t *ret) {
    // By a function of the C library that is not interposed. Those that are call it from this library.
    qy_os_module_t libc, own;
    bool has_libc = qy_os_module_at((uintptr_t)&__errno_location, &libc);
    bool has_own = qy_os_module_at((uintptr_t)&module_of_maker, &own);
    for (; stack; stack = atomic_load_explicit(&qy_tree.nodes[stack].parent, memory_order_relaxed) & ~QY_NODE_THERE) {
        uintptr_t pc = atomic_load_explicit(&qy_tree.nodes[stack].pc, memory_order_relaxed);
        if (pc == QY_NODE_GONE || !qy_os_module_at(pc, ret)) return false;
        if ((!has_libc || ret->begin != libc.begin) && (!has_own || ret->begin != own.begin)) return true;
    }
    return false;
}

// Did another file of the program allocate it than frees it now? Then each may have operators of its own, made of
// malloc and free, and the two look mixed up though they are not.
static bool is_across(const qy_check_call_t *call, const qy_check_place_t *place) {
    qy_check_block_t block;
    uint32_t stack = qy_check_block_at(place, &block) ? block.alloc_stack : 0;
    qy_os_module_t here, there;
    return qy_os_module_at(call->from.pc, &here) && module_of_maker(stack, &there) && here.begin != there.begin;
}

QY_COLD static void families_differ(const qy_check_call_t *call, const qy_check_place_t *place, qy_check_kind_t made) {
    bool with_malloc = made == QY_CHECK_KIND_MALLOC || qy_check_kind_of(call->family) == QY_CHECK_KIND_MALLOC;
    if (with_malloc && qy_check_operators_mixed) return;
    if (with_malloc && !qy_check_options.strict && is_across(call, place)) {
        static _Atomic bool noted;
        if (!atomic_exchange(&noted, true))
            qy_check_note(
                "malloc and operator new are mixed across two libraries; with option strict each case is an error");
        return;
    }
    mismatch_report("mismatched-free", call, place, 0, expected(made));
}

static void claim_check(
    const qy_check_call_t *call, const qy_check_place_t *place, uint64_t word, const qy_check_claim_t *claim) {
    size_t size = word & QY_CHECK_SIZE, log2 = word >> QY_CHECK_ALIGN_SHIFT & QY_CHECK_ALIGN_MASK;
    char detail[96];
    if (claim->has_size && claim->size != size) {
        qy_format(detail, sizeof detail, "freed as %z byte%S, and it has %z", claim->size, size);
        mismatch_report("wrong-size", call, place, claim->size, detail);
    }
    size_t align = log2 ? (size_t)1 << log2 : 0;
    if (claim->has_align && claim->align != align) {
        if (claim->align && align)
            qy_format(detail, sizeof detail, "freed as aligned to %z, and made as aligned to %z", claim->align, align);
        else if (align) qy_format(detail, sizeof detail, "freed without its alignment, which is %z", align);
        else qy_format(detail, sizeof detail, "freed as aligned to %z, and made without an alignment", claim->align);
        mismatch_report("wrong-alignment", call, place, size, detail);
    }
}

void qy_check_mismatch_exactly(
    const qy_check_call_t *call, const qy_check_place_t *place, uint64_t word, const qy_check_claim_t *claim) {
    qy_check_kind_t made = qy_check_kind_of(word >> QY_CHECK_FAMILY_SHIFT & 15);
    if (made != qy_check_kind_of(call->family)) families_differ(call, place, made);
    else if (claim) claim_check(call, place, word, claim);
}
