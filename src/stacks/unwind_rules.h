// SPDX-License-Identifier: MIT
// unwind_rules.h: what is known of an address, one word each, in a table without locks.
//
// Bits 3 to 17 of an address (to 14 in a small table), changed by a hash of those from 15 on, choose a set of two
// words. Those from 15 on and the lowest three are kept in the word. So a word says exactly of which address it
// speaks, it is written and read whole, and there is nothing to tear: a reader sees a right answer or none. Neighbours
// in the code are neighbours in the table.
//
//   63..35  the code:
//     28..16  8-byte words from the base to the CFA        (or 28..8: number of an odd rule)
//     15..8   fp: 0 is the same, 1 lost, n saved at CFA - 8n
//     7..4    generation, 1 to 15; 0 only in empty words
//     3       the address follows a call instruction
//     2..0    kind
//   34..0   bits 46 to 15 of the address, and 2 to 0
//
// Threads: any. A word is replaced by whoever finds another answer; both are right.
#ifndef QY_STACKS_UNWIND_RULES_H
#define QY_STACKS_UNWIND_RULES_H

#include <stdatomic.h>

#include "base/compiler.h"
#include "stacks/unwind_cfi.h"

#define QY_PC_BITS 47
#define QY_RULE_SETS (1u << 15)
#define QY_RULE_SETS_SMALL (1u << 12)
#define QY_RULE_CODE 35  // its lowest bit

typedef enum qy_code_kind {
    QY_CODE_SP = 1,  // CFA = sp + 8n, return address at CFA - 8
    QY_CODE_FP,      // CFA = fp + 8n, the same
    QY_CODE_ODD,     // a rule of another form, see qy_rules_expand
    QY_CODE_NOTHING,
    QY_CODE_END,
    QY_CODE_UNKNOWN
} qy_code_kind_t;

typedef struct qy_rules {
    _Atomic uint64_t (*sets)[2];
    uintptr_t mask;               // of a set's place in bytes
    _Atomic uint32_t generation;  // counts; what the words hold is in `stamp`
    _Atomic uint64_t stamp;       // at its place in a word
    _Atomic uint64_t made;
} qy_rules_t;

extern qy_rules_t qy_rules;

// The same for a user who has little memory, and lets one thread in at a time. All zero: nothing is known.
#define QY_RULES_FEW 2048u
typedef struct qy_rules_few {
    struct {
        uintptr_t pc;
        uint32_t code, generation;
    } entry[QY_RULES_FEW];
    uint32_t generation;  // of those that count
    bool started;
} qy_rules_few_t;

// `small`: for one who looks seldom, and does not want 128 pages touched by it.
bool qy_rules_start(bool small);
// Without the table of all threads.
bool qy_rules_few_start(qy_rules_few_t *few);
void qy_rules_few_forget(qy_rules_few_t *few);
uint64_t qy_rules_memory(void);
// Forget everything.
void qy_rules_flush(void);
// Look the address up in the tables of its module and remember the answer.
uint32_t qy_rules_miss(uintptr_t pc);
uint32_t qy_rules_few_find(qy_rules_few_t *few, uintptr_t pc);
// A code as a rule.
qy_rule_t qy_rules_expand(uint32_t code);

QY_INLINE qy_code_kind_t qy_code_kind(uint32_t code) { return (qy_code_kind_t)(code & 7); }
QY_INLINE bool qy_code_call(uint32_t code) { return code >> 3 & 1; }
QY_INLINE uintptr_t qy_code_offset(uint32_t code) { return (uintptr_t)(code >> 16) * 8; }
QY_INLINE uintptr_t qy_code_fp(uint32_t code) { return code >> 8 & 0xff; }

QY_INLINE uint64_t qy_rules_tag(uintptr_t pc) { return (pc >> 15) << 3 | (pc & 7); }
QY_INLINE uint32_t qy_rules_code(uint64_t word) { return (uint32_t)(word >> QY_RULE_CODE); }
QY_INLINE _Atomic uint64_t *qy_rules_set(uintptr_t pc) {
    uintptr_t bytes = (pc / 8 * sizeof *qy_rules.sets ^ ((pc >> 15) * 0x9e3779b97f4a7c15u) >> 45) & qy_rules.mask;
    return *(_Atomic uint64_t(*)[2])((char *)qy_rules.sets + bytes);
}

// The code for an address below 2^47.
#define QY_RULE_IS (((UINT64_C(1) << QY_RULE_CODE) - 1) | UINT64_C(0xf0) << QY_RULE_CODE)
QY_INLINE uint32_t qy_rules_find(uintptr_t pc) {
    uint64_t want = qy_rules_tag(pc) | atomic_load_explicit(&qy_rules.stamp, memory_order_relaxed);
    _Atomic uint64_t *set = qy_rules_set(pc);
    uint64_t word = atomic_load_explicit(&set[0], memory_order_relaxed);
    if (QY_LIKELY(((word ^ want) & QY_RULE_IS) == 0)) return qy_rules_code(word);
    word = atomic_load_explicit(&set[1], memory_order_relaxed);
    if (QY_LIKELY(((word ^ want) & QY_RULE_IS) == 0)) return qy_rules_code(word);
    return qy_rules_miss(pc);
}

#endif
