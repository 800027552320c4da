// SPDX-License-Identifier: MIT
// guards.c: see guards.h.
//
//   | no access | pad | block | pad | no access |       a pad is what alignment leaves, and what the page has besides
//
// Up to PAD bytes of each pad have a pattern, which is looked at when the block is freed.
#include "check/guards.h"

#include <string.h>

#include "base/num.h"
#include "check/budget.h"
#include "check/frames.h"
#include "check/guarded.h"
#include "check/mismatch.h"
#include "check/options.h"
#include "check/pinpoint.h"
#include "check/quarantine.h"
#include "heap/guards.h"
#include "os/os.h"
#include "rt/opts.h"
#include "stacks/own.h"
#include "rt/diag.h"

#define LIVE_LEAST ((size_t)4 << 20)
#define LIVE_SHARE 8
// Address space: little, since programs limit theirs while they run (RLIMIT_AS), but where all blocks are guarded.
#define SPACE ((size_t)128 << 20)
#define SPACE_ALL ((size_t)4 << 30)
#define PAD 64u
#define PATTERN 0xC9u

bool qy_check_guards_on;
static struct {
    bool all;
    bool pinpoint;
    qy_guard_side_t odd, even;  // side of the first, third... block of a stack, and of the others
    size_t live_most;
    _Atomic size_t live;    // bytes of pages
    _Atomic size_t others;  // live blocks of a site of pinpoint.h that are not near
} policy;

static bool option_is(const char *value, const char *word) {
    char text[16];
    return qy_opts_str(value, text, sizeof text) && strcmp(text, word) == 0;
}

static void sides_read(const char *value) {
    policy.odd = option_is(value, "before") || option_is(value, "turns-before") ? QY_GUARD_BEFORE : QY_GUARD_BEHIND;
    policy.even = option_is(value, "behind") || option_is(value, "turns-before") ? QY_GUARD_BEHIND : QY_GUARD_BEFORE;
    if (value && !option_is(value, "turns") && !option_is(value, "turns-before") && !option_is(value, "behind") &&
        !option_is(value, "before"))
        qy_check_note("option guard_side: it is turns, turns-before, behind or before; turns is taken");
}

// ---- pads -----------------------------------------------------------------------------------------------------------

// The bytes beside the block that have access, at most PAD of them on each side.
typedef struct pads {
    uintptr_t begin, end;
} pads_t;

static pads_t pads_of(uintptr_t block, size_t n) {
    uintptr_t page = qy_os_page_size(), begin = block & -page, end = (block + n + page - 1) & -page;
    pads_t pads = {qy_max(begin, block - PAD), qy_min(end, block + n + PAD)};
    qy_assert(pads.begin && pads.begin <= block && block + n <= pads.end);
    return pads;
}

static void pads_make(uintptr_t block, size_t n) {
    pads_t pads = pads_of(block, n);
    memset((void *)pads.begin, PATTERN, block - pads.begin);
    memset((void *)(block + n), PATTERN, pads.end - block - n);
}

// ---- the begin ------------------------------------------------------------------------------------------------------

void qy_check_guards_begin(void) {
    qy_guards_deny();  // those of the heap: there is one space for both
    const char *option = qy_check_options.guards;
    if (option_is(option, "off")) return;
    policy.pinpoint = qy_pinpoint_begin();
    policy.all = option_is(option, "all");
    sides_read(qy_check_options.guard_side);
    policy.live_most = qy_check_options.guard_mb << 20;
    qy_guard_limits_t limits = {.space = policy.all || policy.pinpoint ? SPACE_ALL : SPACE,
        .live = policy.live_most,
        .prepare = pads_make};
    limits.space = qy_max(limits.space, 2 * limits.live);
    limits.slots = (uint32_t)(limits.space / (2 * qy_os_page_size()));
    if (option_is(option, "mprotect")) limits.way = QY_GUARD_PROTECT;
    if (!qy_guard_start(&limits)) {
        qy_check_note("no guarded blocks: no address space for them; accesses are seen in functions of libc only");
        return;
    }
    // Not a root of leaks, and not the program's: its live blocks are looked at one by one.
    qy_own_add((void *)qy_guard_base, qy_guard_bytes);
    qy_check_guards_on = qy_check_guarded_begin();
    if (!qy_check_guards_on) qy_check_note("no guarded blocks: faults cannot be caught here");
}

// ---- which ----------------------------------------------------------------------------------------------------------

// Their pages are memory that the program does not need: a share of what it has, and of that one in `part`.
static bool guards_have_room(unsigned part) {
    size_t live = qy_check_live_bytes(), most = qy_min(policy.live_most, LIVE_LEAST + live / LIVE_SHARE);
    return atomic_load_explicit(&policy.live, memory_order_relaxed) < most / part;
}

static bool is_chosen(uint32_t stack, uint64_t ordinal, size_t n) {
    if (policy.all) return true;
    unsigned part = qy_check_budget_allows(stack, ordinal, n);
    return part && guards_have_room(part);
}

// Does the block, which is of a site of pinpoint.h, count as one of its others?
static bool is_other(const qy_pinpoint_site_t *site, uint64_t ordinal) {
    return policy.pinpoint && site && !qy_pinpoint_is_near(site, ordinal);
}

// ---- pads, looked at ------------------------------------------------------------------------------------------------

// The bytes of [begin, end) that were written to; from == to: none.
static pads_t pad_look(uintptr_t begin, uintptr_t end) {
    while (begin < end && *(const unsigned char *)begin == PATTERN) begin++;
    while (begin < end && *(const unsigned char *)(end - 1) == PATTERN) end--;
    return (pads_t){begin, end};
}

static void pad_report(const qy_check_block_t *b, pads_t written, const char *kind) {
    if (written.begin == written.end) return;
    qy_check_fault_t f = {.kind = kind,
        .address = written.begin,
        .is_write = true,
        .bytes = written.end - written.begin,
        .is_evidence = true,
        .has_block = true,
        .block = *b,
        .offset = (int64_t)(written.begin - b->address)};
    qy_check_report(&f, NULL);
    memset((void *)written.begin, PATTERN, written.end - written.begin);
}

static void pads_verify(const qy_check_block_t *b) {
    pads_t pads = pads_of(b->address, b->size);
    pad_report(b, pad_look(pads.begin, b->address), "underflow-write");
    pad_report(b, pad_look(b->address + b->size, pads.end), "overflow-write");
}

static bool pads_visit(const qy_check_block_t *b, void *arg) {
    (void)arg;
    pads_verify(b);
    return true;
}
void qy_check_guards_sweep(void) {
    if (qy_check_guards_on) qy_check_guarded_each_live(pads_visit, NULL);
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

// What malloc must give for so many bytes: no object of less than 16 bytes needs more than 8.
static size_t least_align(size_t align, size_t n, size_t asked) {
    if (asked || align > QY_ALIGN_MIN) return align;
    if (qy_check_options.exact) return 1;
    return n <= 8 ? 8 : align;
}

static size_t guard_pages(size_t n) { return qy_round_up(qy_max(n, 1), qy_os_page_size()); }

void *qy_check_guards_alloc(
    const qy_check_call_t *call, size_t align, size_t n, size_t asked, uint32_t stack, uint64_t ordinal) {
    const qy_pinpoint_site_t *site = policy.pinpoint ? qy_pinpoint_find(stack) : NULL;
    if (policy.pinpoint ? !site : !is_chosen(stack, ordinal, n)) return NULL;
    bool other = is_other(site, ordinal);
    if (other && atomic_load_explicit(&policy.others, memory_order_relaxed) >= QY_PINPOINT_OTHERS) return NULL;
    if (call->family != QY_CHECK_MEMALIGN) align = least_align(align, n, asked);
    qy_guard_side_t side = ordinal % 2 ? policy.odd : policy.even;
    if (site) {
        side = site->side;
        if (!asked && call->family != QY_CHECK_MEMALIGN) align = qy_pinpoint_align(site, align, n);
    }
    uint64_t tag = qy_check_guarded_tag(call->family, asked ? qy_log2_floor(asked) : 0, ordinal);
    qy_guard_note_t born = {.stack = stack, .thread = (uint32_t)qy_os_thread_id_known()};
    bool zero;
    uint32_t slot;
    void *p = qy_guard_alloc(align, n, side, &born, tag, &zero, &slot);
    if (!p) return NULL;
    qy_assert(zero);
    qy_check_budget_spend(n);
    atomic_fetch_add_explicit(&policy.live, guard_pages(n), memory_order_relaxed);
    if (other) atomic_fetch_add_explicit(&policy.others, 1, memory_order_relaxed);
    return p;
}

static void guards_free_fault(const qy_check_call_t *call, const void *p, qy_guard_answer_t answer,
    const qy_guard_block_t *g) {
    qy_check_fault_t f = {.kind = answer == QY_GUARD_FREED ? "double-free" : "interior-free",
        .function = call->function,
        .address = (uintptr_t)p};
    if (g->address) {
        f.has_block = true;
        f.block = qy_check_guarded_block(g);
        f.offset = (int64_t)(f.address - g->address);
    }
    if (!g->address || (answer == QY_GUARD_INTERIOR && f.address - g->address >= g->size)) f.kind = "invalid-free";
    qy_check_report(&f, &call->from);
}

void qy_check_guards_free(const qy_check_call_t *call, void *p, const qy_check_claim_t *claim) {
    qy_guard_block_t g;
    if (qy_guard_find((uintptr_t)p, &g) && !g.freed && g.address == (uintptr_t)p) {
        qy_check_block_t b = qy_check_guarded_block(&g);
        qy_check_place_t place = {.begin = b.address};
        uint64_t word = b.size | (uint64_t)b.family << QY_CHECK_FAMILY_SHIFT |
                        (uint64_t)qy_check_guarded_align(g.tag) << QY_CHECK_ALIGN_SHIFT;
        qy_check_mismatch(call, &place, word, claim);
        pads_verify(&b);
    }
    qy_guard_note_t died = {.stack = qy_check_stack(&call->from), .thread = (uint32_t)qy_os_thread_id_known()};
    qy_guard_answer_t answer = qy_guard_free(p, &died, &g);
    if (answer != QY_GUARD_DONE) {
        guards_free_fault(call, p, answer, &g);
        return;
    }
    atomic_fetch_sub_explicit(&policy.live, guard_pages(g.size), memory_order_relaxed);
    const qy_pinpoint_site_t *site = policy.pinpoint ? qy_pinpoint_find(g.born.stack) : NULL;
    if (is_other(site, qy_check_guarded_block(&g).ordinal))
        atomic_fetch_sub_explicit(&policy.others, 1, memory_order_relaxed);
}

bool qy_check_guards_size(const qy_check_call_t *call, const void *p, size_t *ret_size) {
    qy_guard_block_t g;
    bool known = qy_guard_find((uintptr_t)p, &g);
    if (known && !g.freed && g.address == (uintptr_t)p) {
        *ret_size = g.size;
        return true;
    }
    if (!known) g.address = 0;
    bool begins = known && g.address == (uintptr_t)p;
    guards_free_fault(call, p, begins ? QY_GUARD_FREED : QY_GUARD_INTERIOR, &g);
    return false;
}
