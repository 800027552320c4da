// SPDX-License-Identifier: MIT
// unwind_rules.c: answers made and kept.
//
// A flush changes the stamp, so that no word counts any more. The stamp comes round after 15 flushes, and so each fifth
// one clears the table too: the others touch none of it. A thread that is just making an answer from a module
// that goes away looks at the generation again before it stores. If it is slower still, its word has the old stamp, and
// is cleared before that comes round, unless the thread was late by ten flushes.
#include "stacks/own.h"

#include <string.h>

#include "base/num.h"
#include "os/module.h"
#include "os/os.h"
#include "rt/diag.h"
#include "stacks/unwind_rules.h"

#define ODD_RULES 4096u
#define STAMPS 15u
#define CLEAR_EACH 5u
_Static_assert(STAMPS > 2 * CLEAR_EACH, "a slow thread's word is cleared before its stamp comes round");

qy_rules_t qy_rules;

// Rules that don't fit into a word: signals, frames aligned anew, very large frames. Kept for ever:
// a program has few, and equal ones are kept once (as far as threads don't meet).
typedef struct odd_rule {
    qy_rule_t rule;
    _Atomic bool there;
} odd_rule_t;
static struct {
    _Atomic(odd_rule_t *) rules;
    _Atomic uint32_t taken;  // numbers given out, and may be more than there are
} odd;

static size_t rules_table_bytes(void) { return qy_rules.mask + sizeof(*qy_rules.sets); }
static size_t odd_bytes(void) { return (sizeof(odd_rule_t) * ODD_RULES + 65535) & ~(size_t)65535; }

static uint32_t stamp_of(uint32_t generation) { return (1 + generation % STAMPS) << 4; }

// Two that start at once: what the second one mapped is not needed.
static bool odd_start(void) {
    if (atomic_load_explicit(&odd.rules, memory_order_acquire)) return true;
    odd_rule_t *rules = qy_os_map(odd_bytes(), qy_os_page_size(), NULL), *none = NULL;
    if (!rules) return false;
    if (atomic_compare_exchange_strong(&odd.rules, &none, rules)) qy_own_add(rules, odd_bytes());
    else qy_os_unmap(rules, odd_bytes());
    return true;
}

bool qy_rules_start(bool small) {
    if (qy_rules.sets) return true;
    if (!odd_start()) return false;
    qy_rules.mask = ((small ? QY_RULE_SETS_SMALL : QY_RULE_SETS) - 1) * sizeof(*qy_rules.sets);
    void *sets = qy_os_map(rules_table_bytes(), qy_os_page_size(), NULL);
    if (!sets) return false;
    qy_os_name(sets, rules_table_bytes(), "quarry rules");
    qy_own_add(sets, rules_table_bytes());
    // Soon all of it is touched, twice a page: by a look that finds nothing, and by what that writes.
    if (small) (void)qy_os_populate(sets, rules_table_bytes());
    qy_rules.sets = sets;
    qy_rules.stamp = (uint64_t)stamp_of(0) << QY_RULE_CODE;
    return true;
}

uint64_t qy_rules_memory(void) { return qy_rules.sets ? rules_table_bytes() + odd_bytes() : 0; }

void qy_rules_flush(void) {
    if (!qy_rules.sets) return;
    uint32_t generation = atomic_fetch_add_explicit(&qy_rules.generation, 1, memory_order_acq_rel) + 1;
    uint64_t stamp = (uint64_t)stamp_of(generation) << QY_RULE_CODE;
    atomic_store_explicit(&qy_rules.stamp, stamp, memory_order_release);
    if (generation % CLEAR_EACH) return;
    for (size_t i = 0; i < rules_table_bytes() / sizeof *qy_rules.sets; i++) {
        atomic_store_explicit(&qy_rules.sets[i][0], 0, memory_order_relaxed);
        atomic_store_explicit(&qy_rules.sets[i][1], 0, memory_order_relaxed);
    }
}

// ---- odd rules ----------------------------------------------------------------------------------------

static odd_rule_t *odd_at(uint32_t number) {
    return &atomic_load_explicit(&odd.rules, memory_order_acquire)[number];
}

static bool odd_is_there(uint32_t number) {
    return atomic_load_explicit(&odd_at(number)->there, memory_order_acquire);
}

// The number of an equal rule, a new one, or ODD_RULES if there is no room. Nobody waits: what others are just writing
// is passed over, and is there twice if it was the same.
static uint32_t odd_number(const qy_rule_t *rule) {
    uint32_t taken = qy_min(atomic_load_explicit(&odd.taken, memory_order_acquire), ODD_RULES);
    for (uint32_t i = 0; i < taken; i++)
        if (odd_is_there(i) && memcmp(&odd_at(i)->rule, rule, sizeof *rule) == 0) return i;
    if (taken == ODD_RULES) return ODD_RULES;
    uint32_t mine = atomic_fetch_add_explicit(&odd.taken, 1, memory_order_relaxed);
    if (mine >= ODD_RULES) return ODD_RULES;
    odd_at(mine)->rule = *rule;
    atomic_store_explicit(&odd_at(mine)->there, true, memory_order_release);
    return mine;
}

// ---- making a code ------------------------------------------------------------------------------------

static uint32_t pack_frame(const qy_rule_t *rule) {
    bool plain = !rule->signal && !rule->cfa_word && rule->cfa_base <= QY_BASE_FP && rule->ra_base == QY_BASE_CFA &&
                 rule->ra_off == -8;
    if (rule->cfa_off < 0 || rule->cfa_off % 8 || rule->cfa_off / 8 > 0x1fff) plain = false;
    uint32_t fp = rule->fp_base == QY_BASE_SAME ? 0 : 1;
    if (rule->fp_base != QY_BASE_SAME && rule->fp_base != QY_BASE_LOST) {
        fp = (uint32_t)(-rule->fp_off / 8);
        if (rule->fp_base != QY_BASE_CFA || rule->fp_off > -16 || rule->fp_off < -8 * 255 || rule->fp_off % 8)
            plain = false;
    }
    if (plain)
        return (rule->cfa_base == QY_BASE_SP ? QY_CODE_SP : QY_CODE_FP) | (uint32_t)(rule->cfa_off / 8) << 16 | fp << 8;
    uint32_t number = odd_number(rule);
    return number < ODD_RULES ? QY_CODE_ODD | number << 8 : QY_CODE_UNKNOWN;
}

#if defined(__x86_64__)
// mov $SYS_rt_sigreturn, %rax; syscall: where a handler returns to. Some C libraries have no tables for it.
static bool returns_from_signal(uintptr_t pc) {
    static const uint8_t code[9] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
    uint8_t bytes[9];
    return qy_os_peek((const void *)pc, bytes, sizeof bytes) && memcmp(bytes, code, sizeof code) == 0;
}

// The kernel's frame: a context of registers above sp.
static const qy_rule_t signal_rule = {.kind = QY_RULE_FRAME,
    .signal = true,
    .cfa_base = QY_BASE_SP,
    .cfa_word = true,
    .cfa_off = 160,
    .ra_base = QY_BASE_SP,
    .ra_off = 168,
    .fp_base = QY_BASE_SP,
    .fp_off = 120};

// Does a call instruction end at pc? E8 and four bytes, or FF /2 in its various lengths.
static bool follows_call(uintptr_t pc) {
    uint8_t b[8];
    if (pc < 8 || !qy_os_peek((const void *)(pc - 8), b, sizeof b)) return false;
    if (b[3] == 0xe8) return true;
    for (int length = 2; length <= 7; length++) {
        const uint8_t *at = b + 8 - length;
        if (at[0] != 0xff || (at[1] >> 3 & 7) != 2) continue;
        int mod = at[1] >> 6, rm = at[1] & 7;
        int want = 2 + (mod == 1) + (mod == 2 ? 4 : 0) + (mod == 0 && rm == 5 ? 4 : 0);
        if (mod != 3 && rm == 4) want += 1 + (length > 2 && mod == 0 && (at[2] & 7) == 5 ? 4 : 0);
        if (want == length) return true;
    }
    return false;
}
#else
static bool returns_from_signal(uintptr_t pc) {
    (void)pc;
    return false;
}
static const qy_rule_t signal_rule = {.kind = QY_RULE_UNKNOWN};
static bool follows_call(uintptr_t pc) {
    (void)pc;
    return true;
}
#endif

static qy_rule_t rule_at(uintptr_t pc, bool call) {
    qy_os_module_t m;
    qy_rule_t rule = {.kind = QY_RULE_NOTHING};
    bool known = qy_os_module_at(pc, &m);
    if (known) rule = qy_cfi_rule(&(qy_eh_t){m.readable, m.readable_end, m.eh_frame_hdr}, pc);
    if (rule.kind != QY_RULE_NOTHING) return rule;
    if (returns_from_signal(pc + 1)) return signal_rule;
    // In a file that has tables, but not for this, and nothing was called from there: the end that somebody put under
    // a stack that he made (makecontext does).
    if (known && !call) rule.kind = QY_RULE_END;
    return rule;
}

static void rules_keep(uintptr_t pc, uint32_t code) {
    _Atomic uint64_t *set = qy_rules_set(pc);
    // What was first becomes second, what was second goes. Whoever sees an odd rule's number sees the rule.
    atomic_store_explicit(&set[1], atomic_load_explicit(&set[0], memory_order_relaxed), memory_order_relaxed);
    atomic_store_explicit(&set[0], (uint64_t)code << QY_RULE_CODE | qy_rules_tag(pc), memory_order_release);
}

static uint32_t rules_make(uintptr_t pc) {
    bool call = follows_call(pc + 1);
    qy_rule_t rule = rule_at(pc, call);
    uint32_t code;
    switch (rule.kind) {
    case QY_RULE_FRAME: code = pack_frame(&rule); break;
    case QY_RULE_END: code = QY_CODE_END; break;
    case QY_RULE_UNKNOWN: code = QY_CODE_UNKNOWN; break;
    default: code = QY_CODE_NOTHING;
    }
    atomic_fetch_add_explicit(&qy_rules.made, 1, memory_order_relaxed);
    return code | (uint32_t)call << 3;
}

QY_COLD uint32_t qy_rules_miss(uintptr_t pc) {
    uint32_t generation = atomic_load_explicit(&qy_rules.generation, memory_order_acquire);
    uint32_t code = rules_make(pc) | stamp_of(generation);
    if (atomic_load_explicit(&qy_rules.generation, memory_order_acquire) == generation) rules_keep(pc, code);
    return code;
}

// ---- for one thread at a time -------------------------------------------------------------------------

bool qy_rules_few_start(qy_rules_few_t *few) {
    if (!few->started && odd_start()) {
        few->started = true;
        few->generation = 1;
    }
    return few->started;
}

void qy_rules_few_forget(qy_rules_few_t *few) { few->generation++; }

uint32_t qy_rules_few_find(qy_rules_few_t *few, uintptr_t pc) {
    qy_assert(few->started);
    unsigned at = (unsigned)(pc * UINT64_C(0x9e3779b97f4a7c15) >> 53);
    _Static_assert(QY_RULES_FEW == 1u << 11, "at");
    if (few->entry[at].pc != pc || few->entry[at].generation != few->generation) {
        few->entry[at].code = rules_make(pc);
        few->entry[at].pc = pc;
        few->entry[at].generation = few->generation;
    }
    return few->entry[at].code;
}

// ---- reading a code -----------------------------------------------------------------------------------

qy_rule_t qy_rules_expand(uint32_t code) {
    qy_rule_t rule = {.kind = QY_RULE_UNKNOWN};
    switch (qy_code_kind(code)) {
    case QY_CODE_SP:
    case QY_CODE_FP: break;
    case QY_CODE_ODD:
        if (odd_is_there(code >> 8)) rule = odd_at(code >> 8)->rule;
        return rule;
    case QY_CODE_NOTHING: rule.kind = QY_RULE_NOTHING; return rule;
    case QY_CODE_END: rule.kind = QY_RULE_END; return rule;
    default: return rule;
    }
    rule = (qy_rule_t){.kind = QY_RULE_FRAME,
        .cfa_base = qy_code_kind(code) == QY_CODE_SP ? QY_BASE_SP : QY_BASE_FP,
        .cfa_off = (int32_t)qy_code_offset(code),
        .ra_base = QY_BASE_CFA,
        .ra_off = -8,
        .fp_base = QY_BASE_SAME};
    if (qy_code_fp(code) == 1) rule.fp_base = QY_BASE_LOST;
    else if (qy_code_fp(code)) {
        rule.fp_base = QY_BASE_CFA;
        rule.fp_off = -8 * (int32_t)qy_code_fp(code);
    }
    return rule;
}
