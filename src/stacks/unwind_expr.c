// SPDX-License-Identifier: MIT
// unwind_expr.c: expressions of the tables, evaluated without the registers.
//
// A rule is made once per address and used for many stacks, so an expression is reduced to base + off, or
// the word there, + add. The address is known, and with it what expressions of lazy binding's stubs make of
// it; frames that were aligned anew and frames of signals are of this form too. All else is not known.
#include "stacks/unwind_cfi.h"

#define STACK 8

// DWARF 5, 7.7.1
enum { OP_ADDR = 0x03,
    OP_DEREF = 0x06,
    OP_CONST1U = 0x08,  // to 0x0f: 1, 2, 4, 8 bytes, each unsigned and signed
    OP_CONST8S = 0x0f,
    OP_CONSTU = 0x10,
    OP_CONSTS = 0x11,
    OP_DUP = 0x12,
    OP_DROP = 0x13,
    OP_OVER = 0x14,
    OP_SWAP = 0x16,
    OP_AND = 0x1a,
    OP_MINUS = 0x1c,
    OP_MUL = 0x1e,
    OP_OR = 0x21,
    OP_PLUS = 0x22,
    OP_PLUS_UCONST = 0x23,
    OP_SHL = 0x24,
    OP_SHR = 0x25,
    OP_XOR = 0x27,
    OP_EQ = 0x29,
    OP_GE = 0x2a,
    OP_GT = 0x2b,
    OP_LE = 0x2c,
    OP_LT = 0x2d,
    OP_NE = 0x2e,
    OP_LIT0 = 0x30,
    OP_BREG0 = 0x70,
    OP_NOP = 0x96 };

typedef struct machine {
    qy_value_t stack[STACK];
    unsigned depth;
    bool failed;
} machine_t;

static void push(machine_t *m, qy_value_t v) {
    if (m->depth == STACK || !v.known) m->failed = true;
    else m->stack[m->depth++] = v;
}

static qy_value_t pop(machine_t *m) {
    if (m->depth == 0) {
        m->failed = true;
        return (qy_value_t){0};
    }
    return m->stack[--m->depth];
}

static qy_value_t expr_number(uint64_t n) { return (qy_value_t){.known = true, .add = (int64_t)n}; }
static qy_value_t based(unsigned base, int64_t off) {
    return (qy_value_t){.known = true, .based = true, .base = (uint8_t)base, .off = off};
}

static int64_t sum(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

static qy_value_t plus(qy_value_t v, int64_t n) {
    if (v.based && !v.word) v.off = sum(v.off, n);
    else v.add = sum(v.add, n);
    return v;
}

static uint64_t compute(unsigned op, uint64_t a, uint64_t b, bool *ret_known) {
    int64_t x = (int64_t)a, y = (int64_t)b;
    switch (op) {
    case OP_AND: return a & b;
    case OP_MINUS: return a - b;
    case OP_MUL: return a * b;
    case OP_OR: return a | b;
    case OP_PLUS: return a + b;
    case OP_SHL: return b < 64 ? a << b : 0;
    case OP_SHR: return b < 64 ? a >> b : 0;
    case OP_XOR: return a ^ b;
    case OP_EQ: return x == y;
    case OP_GE: return x >= y;
    case OP_GT: return x > y;
    case OP_LE: return x <= y;
    case OP_LT: return x < y;
    case OP_NE: return x != y;
    default: *ret_known = false; return 0;
    }
}

static qy_value_t two(unsigned op, qy_value_t a, qy_value_t b) {
    bool known = true;
    if (!a.based && !b.based) {
        uint64_t n = compute(op, (uint64_t)a.add, (uint64_t)b.add, &known);
        return known ? expr_number(n) : (qy_value_t){0};
    }
    if (op == OP_PLUS && !b.based) return plus(a, b.add);
    if (op == OP_PLUS && !a.based) return plus(b, a.add);
    if (op == OP_MINUS && !b.based) return plus(a, (int64_t)(0 - (uint64_t)b.add));
    return (qy_value_t){0};
}

// A word of memory: only once, and not of a fixed address.
static qy_value_t word_at(qy_value_t v) {
    if (!v.based || v.word) return (qy_value_t){0};
    v.word = true;
    return v;
}

static qy_value_t breg(unsigned reg, int64_t off, uintptr_t pc) {
    if (reg == QY_DWARF_SP) return based(QY_BASE_SP, off);
    if (reg == QY_DWARF_FP) return based(QY_BASE_FP, off);
    if (reg == QY_DWARF_RA) return expr_number(pc + (uint64_t)off);
    return (qy_value_t){0};
}

static void stack_op(machine_t *m, unsigned op) {
    qy_value_t top = pop(m);
    if (op == OP_DROP) return;
    if (op == OP_DUP) {
        push(m, top);
        push(m, top);
        return;
    }
    qy_value_t below = pop(m);
    if (op == OP_SWAP) {
        push(m, top);
        push(m, below);
        return;
    }
    push(m, below);  // over
    push(m, top);
    push(m, below);
}

static void expr_step(machine_t *m, qy_bytes_t *code, uintptr_t pc) {
    unsigned op = (unsigned)qy_bytes_uint(code, 1);
    if (op >= OP_LIT0 && op < OP_LIT0 + 32) push(m, expr_number(op - OP_LIT0));
    else if (op >= OP_BREG0 && op < OP_BREG0 + 32) push(m, breg(op - OP_BREG0, qy_bytes_sleb(code), pc));
    else if (op >= OP_CONST1U && op <= OP_CONST8S) {
        unsigned bytes = 1u << ((op - OP_CONST1U) / 2);
        push(m, expr_number((op & 1) ? (uint64_t)qy_bytes_int(code, bytes) : qy_bytes_uint(code, bytes)));
    } else if (op == OP_ADDR) push(m, expr_number(qy_bytes_uint(code, sizeof(void *))));
    else if (op == OP_CONSTU) push(m, expr_number(qy_bytes_uleb(code)));
    else if (op == OP_CONSTS) push(m, expr_number((uint64_t)qy_bytes_sleb(code)));
    else if (op == OP_PLUS_UCONST) push(m, plus(pop(m), (int64_t)qy_bytes_uleb(code)));
    else if (op == OP_DEREF) push(m, word_at(pop(m)));
    else if (op == OP_DUP || op == OP_DROP || op == OP_OVER || op == OP_SWAP) stack_op(m, op);
    else if (op != OP_NOP) {
        qy_value_t b = pop(m), a = pop(m);
        push(m, two(op, a, b));
    }
}

qy_value_t qy_expr_value(qy_bytes_t code, uintptr_t pc, bool cfa) {
    machine_t m;
    m.depth = 0;
    m.failed = false;
    if (cfa) push(&m, based(QY_BASE_CFA, 0));
    while (qy_bytes_left(&code) && !m.failed) expr_step(&m, &code, pc);
    if (code.bad) m.failed = true;
    qy_value_t v = pop(&m);
    return m.failed ? (qy_value_t){0} : v;
}
