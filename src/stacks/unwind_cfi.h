// SPDX-License-Identifier: MIT
// unwind_cfi.h: from an address to the rule that leads to its caller, by the tables of .eh_frame.
//
// Three registers are followed: pc, sp and the frame pointer (rbp). That suffices for what compilers make: they
// find the frame (the CFA, the value of sp before the call) from sp or rbp, at times through a word on the
// stack (frames that are aligned anew, signals). Not understood, and answered with QY_RULE_UNKNOWN: a frame
// found from another register (rbx in the dynamic linker's lazy binding, r10 for a few instructions of a prologue that
// aligns), a return address in a register, expressions with branches.
#ifndef QY_STACKS_UNWIND_CFI_H
#define QY_STACKS_UNWIND_CFI_H

#include "stacks/unwind_bytes.h"

// Numbers of registers in the tables.
#if defined(__aarch64__)
#define QY_DWARF_FP 29
#define QY_DWARF_SP 31
#define QY_DWARF_RA 30
#else
#define QY_DWARF_FP 6
#define QY_DWARF_SP 7
#define QY_DWARF_RA 16
#endif

typedef enum qy_rule_kind {
    QY_RULE_NOTHING,  // the tables don't mention the address
    QY_RULE_FRAME,
    QY_RULE_END,     // the outermost frame
    QY_RULE_UNKNOWN  // mentioned, but not in a way that is understood; or damaged
} qy_rule_kind_t;

typedef enum qy_base {
    QY_BASE_SP,
    QY_BASE_FP,
    QY_BASE_CFA,
    QY_BASE_SAME,  // of fp: it is what it was
    QY_BASE_LOST   // of fp: it cannot be known any more
} qy_base_t;

// CFA = base + off, or the word there, + add; the return address lies at base + off, the caller's fp too.
typedef struct qy_rule {
    uint8_t kind;
    uint8_t cfa_base, ra_base, fp_base;
    bool cfa_word;  // through memory
    bool signal;    // the frame of a signal handler's return: the caller was interrupted, not called
    uint8_t zero[2];
    int32_t cfa_off, cfa_add, ra_off, fp_off;
} qy_rule_t;

// A module's tables: what may be read, and where .eh_frame_hdr begins in it.
typedef struct qy_eh {
    const uint8_t *readable, *readable_end;
    const uint8_t *hdr;
} qy_eh_t;

// The rule at `pc` (for a return address: the byte before). Reads nothing outside [readable, readable_end),
// whatever is in there. No system call, no memory but 1.3 KiB of stack.
qy_rule_t qy_cfi_rule(const qy_eh_t *eh, uintptr_t pc);

// ---- parts ----------------------------------------------------------------------------------------

// An expression: what it comes to, in terms of the three registers (unwind_expr.c). The value is
// base + off, or the word there, + add; without base, add alone.
typedef struct qy_value {
    bool known, based, word;
    uint8_t base;
    int64_t off, add;
} qy_value_t;

// `pc` is known. `cfa`: the CFA lies on the stack at the beginning, as in rules for registers.
qy_value_t qy_expr_value(qy_bytes_t code, uintptr_t pc, bool cfa);

#endif
