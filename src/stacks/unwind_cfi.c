// SPDX-License-Identifier: MIT
// unwind_cfi.c: from an address to its rule: search the table, read the CIE and FDE, run their program.
//
// All numbers in the tables are suspect: each range is cut to what may be read before it is used. The
// work is bounded by the bytes of one entry, of which MAX_PROGRAM are looked at.
#include "stacks/unwind_cfi.h"

#include <string.h>

#define MAX_PROGRAM (1u << 20)
#define REMEMBERED 6  // compilers nest one or two

// Encodings of pointers: the lower four bits are the format, the next three what it is relative to.
enum { ENC_ABS = 0x00,
    ENC_ULEB = 0x01,
    ENC_UDATA2 = 0x02,
    ENC_UDATA4 = 0x03,
    ENC_UDATA8 = 0x04,
    ENC_SLEB = 0x09,
    ENC_SDATA2 = 0x0a,
    ENC_SDATA4 = 0x0b,
    ENC_SDATA8 = 0x0c,
    ENC_PCREL = 0x10,
    ENC_DATAREL = 0x30,
    ENC_INDIRECT = 0x80 };

enum { CFA_ADVANCE = 1,  // the upper two bits
    CFA_OFFSET = 2,
    CFA_RESTORE = 3 };
enum { CFA_NOP,
    CFA_SET_LOC,
    CFA_ADVANCE1,
    CFA_ADVANCE2,
    CFA_ADVANCE4,
    CFA_OFFSET_EXTENDED,
    CFA_RESTORE_EXTENDED,
    CFA_UNDEFINED,
    CFA_SAME_VALUE,
    CFA_REGISTER,
    CFA_REMEMBER,
    CFA_RESTORE_STATE,
    CFA_DEF,
    CFA_DEF_REGISTER,
    CFA_DEF_OFFSET,
    CFA_DEF_EXPRESSION,
    CFA_EXPRESSION,
    CFA_OFFSET_EXTENDED_SF,
    CFA_DEF_SF,
    CFA_DEF_OFFSET_SF,
    CFA_VAL_OFFSET,
    CFA_VAL_OFFSET_SF,
    CFA_VAL_EXPRESSION,
    CFA_WINDOW_SAVE = 0x2d,
    CFA_ARGS_SIZE = 0x2e,
    CFA_OFFSET_NEGATIVE = 0x2f };

typedef enum cfi_how { HOW_SAME,
    HOW_LOST,
    HOW_AT_CFA,
    HOW_EXPRESSION } cfi_how_t;

// Where a register lies, or (off, reg) how the CFA is made.
typedef struct cfi_place {
    union {
        int64_t off;
        const uint8_t *code;
    };
    uint32_t bytes;  // of code
    uint8_t how, reg;
} cfi_place_t;

typedef struct cfi_row {
    cfi_place_t cfa, fp, ra;
} cfi_row_t;

typedef struct cfi_entry {
    const qy_eh_t *eh;
    uint64_t code_align;
    int64_t data_align;
    uintptr_t begin, range;
    uint8_t encoding;
    bool augmented, signal;
    qy_bytes_t start, program;  // instructions of the CIE, and of the FDE
} cfi_entry_t;

// ---- pointers and entries ---------------------------------------------------------------------------

static qy_bytes_t bytes_from(const qy_eh_t *eh, uintptr_t at) {
    uintptr_t begin = (uintptr_t)eh->readable, end = (uintptr_t)eh->readable_end;
    if (at < begin || at > end) return (qy_bytes_t){eh->readable, eh->readable, true};
    return (qy_bytes_t){eh->readable + (at - begin), eh->readable_end, false};
}

static uint64_t formatted(qy_bytes_t *b, unsigned format) {
    switch (format) {
    case ENC_ABS: return qy_bytes_uint(b, sizeof(void *));
    case ENC_ULEB: return qy_bytes_uleb(b);
    case ENC_UDATA2: return qy_bytes_uint(b, 2);
    case ENC_UDATA4: return qy_bytes_uint(b, 4);
    case ENC_UDATA8: return qy_bytes_uint(b, 8);
    case ENC_SLEB: return (uint64_t)qy_bytes_sleb(b);
    case ENC_SDATA2: return (uint64_t)qy_bytes_int(b, 2);
    case ENC_SDATA4: return (uint64_t)qy_bytes_int(b, 4);
    case ENC_SDATA8: return (uint64_t)qy_bytes_int(b, 8);
    default: b->bad = true; return 0;
    }
}

static uintptr_t pointer(const qy_eh_t *eh, qy_bytes_t *b, unsigned encoding) {
    uintptr_t field = (uintptr_t)b->at, value = formatted(b, encoding & 0xf);
    switch (encoding & 0xf0) {
    case 0: return value;
    case ENC_PCREL: return value + field;
    case ENC_DATAREL: return value + (uintptr_t)eh->hdr;
    default: b->bad = true; return 0;
    }
}

// A length and that many bytes; what follows the length.
static qy_bytes_t body(qy_bytes_t *b) {
    uint64_t length = qy_bytes_uint(b, 4);
    if (length == 0xffffffff) length = qy_bytes_uint(b, 8);
    const uint8_t *at = qy_bytes_take(b, length);
    if (!at || length == 0) return (qy_bytes_t){b->end, b->end, true};
    return (qy_bytes_t){at, at + length, false};
}

// The augmentation's letters say what its data are. Personality and language data don't concern us.
static bool read_augmentation(cfi_entry_t *e, const char *letters, qy_bytes_t *cie) {
    if (letters[0] != 'z') return letters[0] == 0;
    e->augmented = true;
    uint64_t length = qy_bytes_uleb(cie);
    const uint8_t *at = qy_bytes_take(cie, length);
    if (!at) return false;
    qy_bytes_t data = {at, at + length, false};
    for (const char *l = letters + 1; *l; l++) {
        if (*l == 'R') e->encoding = (uint8_t)qy_bytes_uint(&data, 1);
        else if (*l == 'L') qy_bytes_uint(&data, 1);
        else if (*l == 'P') formatted(&data, (unsigned)qy_bytes_uint(&data, 1) & 0xf);
        else if (*l == 'S') e->signal = true;
        else if (*l != 'B' && *l != 'G') return false;
    }
    return !data.bad;
}

static bool read_cie(cfi_entry_t *e, uintptr_t at) {
    qy_bytes_t all = bytes_from(e->eh, at), cie = body(&all);
    if (qy_bytes_uint(&cie, 4) != 0) return false;
    unsigned version = (unsigned)qy_bytes_uint(&cie, 1);
    const uint8_t *letters = cie.at, *zero = cie.bad ? NULL : memchr(letters, 0, qy_bytes_left(&cie));
    if (!zero || (version != 1 && version != 3)) return false;
    qy_bytes_take(&cie, (uint64_t)(zero - letters) + 1);
    e->code_align = qy_bytes_uleb(&cie);
    e->data_align = qy_bytes_sleb(&cie);
    uint64_t return_register = version == 1 ? qy_bytes_uint(&cie, 1) : qy_bytes_uleb(&cie);
    if (cie.bad || return_register != QY_DWARF_RA || !read_augmentation(e, (const char *)letters, &cie)) return false;
    e->start = cie;
    return !cie.bad;
}

static bool read_fde(cfi_entry_t *e, uintptr_t at) {
    qy_bytes_t all = bytes_from(e->eh, at), fde = body(&all);
    uintptr_t field = (uintptr_t)fde.at;
    uint64_t back = qy_bytes_uint(&fde, 4);
    if (fde.bad || back == 0 || !read_cie(e, field - back)) return false;
    if (e->encoding & ENC_INDIRECT) return false;
    e->begin = pointer(e->eh, &fde, e->encoding);
    e->range = formatted(&fde, e->encoding & 0xf);
    if (e->augmented) qy_bytes_take(&fde, qy_bytes_uleb(&fde));
    e->program = fde;
    return !fde.bad && qy_bytes_left(&fde) <= MAX_PROGRAM && qy_bytes_left(&e->start) <= MAX_PROGRAM;
}

// .eh_frame_hdr: pairs (address, FDE) in order of addresses, as offsets from the section. The last pair
// whose address is not above pc; 0: none, or a table of another form.
static uintptr_t find_fde(const qy_eh_t *eh, uintptr_t pc) {
    qy_bytes_t hdr = bytes_from(eh, (uintptr_t)eh->hdr);
    unsigned version = (unsigned)qy_bytes_uint(&hdr, 1), frame_encoding = (unsigned)qy_bytes_uint(&hdr, 1);
    unsigned count_encoding = (unsigned)qy_bytes_uint(&hdr, 1), table_encoding = (unsigned)qy_bytes_uint(&hdr, 1);
    if (version != 1 || table_encoding != (ENC_DATAREL | ENC_SDATA4)) return 0;
    pointer(eh, &hdr, frame_encoding);
    uint64_t count = pointer(eh, &hdr, count_encoding);
    if (hdr.bad) return 0;
    const uint8_t *table = hdr.at;
    if (count > qy_bytes_left(&hdr) / 8) count = qy_bytes_left(&hdr) / 8;
    uint64_t low = 0, high = count;  // pairs below low are not above pc, those from high on are
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        int32_t offset;
        memcpy(&offset, table + middle * 8, 4);
        if ((uintptr_t)eh->hdr + (uintptr_t)(intptr_t)offset <= pc) low = middle + 1;
        else high = middle;
    }
    if (low == 0) return 0;
    int32_t offset;
    memcpy(&offset, table + (low - 1) * 8 + 4, 4);
    return (uintptr_t)eh->hdr + (uintptr_t)(intptr_t)offset;
}

// ---- the program --------------------------------------------------------------------------------------

typedef struct cfi_run {
    const cfi_entry_t *e;
    qy_bytes_t code;
    uintptr_t location, pc;
    cfi_row_t row, initial, remembered[REMEMBERED];
    unsigned depth;
    bool failed, done;
} run_t;

static cfi_place_t *register_place(cfi_row_t *row, uint64_t reg) {
    return reg == QY_DWARF_FP ? &row->fp : reg == QY_DWARF_RA ? &row->ra
                                                              : NULL;
}

static void cfi_set(run_t *r, uint64_t reg, cfi_how_t how, int64_t off) {
    cfi_place_t *p = register_place(&r->row, reg);
    if (p) *p = (cfi_place_t){.how = (uint8_t)how, .off = off};
}

static void set_expression(run_t *r, uint64_t reg, bool cfa, bool understood) {
    uint64_t bytes = qy_bytes_uleb(&r->code);
    const uint8_t *code = qy_bytes_take(&r->code, bytes);
    cfi_place_t *p = cfa ? &r->row.cfa : register_place(&r->row, reg);
    if (!code || bytes > MAX_PROGRAM || !p) return;
    *p = (cfi_place_t){.how = understood ? HOW_EXPRESSION : HOW_LOST, .code = code, .bytes = (uint32_t)bytes};
}

static int64_t scaled(const run_t *r, uint64_t n) { return (int64_t)(n * (uint64_t)r->e->data_align); }

static void restore(run_t *r, uint64_t reg) {
    cfi_place_t *p = register_place(&r->row, reg), *was = register_place(&r->initial, reg);
    if (p) *p = *was;
}

static void advance(run_t *r, uint64_t delta) {
    r->location += delta * r->e->code_align;
    if (r->location > r->pc) r->done = true;
}

static void def_cfa(run_t *r, uint64_t reg, int64_t off) {
    r->row.cfa = (cfi_place_t){.how = HOW_AT_CFA, .reg = reg < 255 ? (uint8_t)reg : 255, .off = off};
}

static void remember(run_t *r) {
    if (r->depth == REMEMBERED) r->failed = true;
    else r->remembered[r->depth++] = r->row;
}

static void recall(run_t *r) {
    if (r->depth == 0) r->failed = true;
    else r->row = r->remembered[--r->depth];
}

// The instructions that say how the CFA is made.
static bool run_cfa(run_t *r, unsigned op) {
    qy_bytes_t *c = &r->code;
    uint64_t reg;
    switch (op) {
    case CFA_DEF:
        reg = qy_bytes_uleb(c);
        def_cfa(r, reg, (int64_t)qy_bytes_uleb(c));
        return true;
    case CFA_DEF_SF:
        reg = qy_bytes_uleb(c);
        def_cfa(r, reg, scaled(r, (uint64_t)qy_bytes_sleb(c)));
        return true;
    case CFA_DEF_REGISTER:
        reg = qy_bytes_uleb(c);
        if (r->row.cfa.how != HOW_AT_CFA) r->failed = true;
        else def_cfa(r, reg, r->row.cfa.off);
        return true;
    case CFA_DEF_OFFSET: r->row.cfa.off = (int64_t)qy_bytes_uleb(c); break;
    case CFA_DEF_OFFSET_SF: r->row.cfa.off = scaled(r, (uint64_t)qy_bytes_sleb(c)); break;
    case CFA_DEF_EXPRESSION: set_expression(r, 0, true, true); return true;
    default: return false;
    }
    if (r->row.cfa.how != HOW_AT_CFA) r->failed = true;  // an offset without a register
    return true;
}

// The instructions that say where a register lies.
static bool run_register(run_t *r, unsigned op) {
    qy_bytes_t *c = &r->code;
    if (op < CFA_OFFSET_EXTENDED) return false;
    uint64_t reg = qy_bytes_uleb(c);
    switch (op) {
    case CFA_OFFSET_EXTENDED: cfi_set(r, reg, HOW_AT_CFA, scaled(r, qy_bytes_uleb(c))); return true;
    case CFA_OFFSET_EXTENDED_SF: cfi_set(r, reg, HOW_AT_CFA, scaled(r, (uint64_t)qy_bytes_sleb(c))); return true;
    case CFA_OFFSET_NEGATIVE:
        cfi_set(r, reg, HOW_AT_CFA, (int64_t)(0 - (uint64_t)scaled(r, qy_bytes_uleb(c))));
        return true;
    case CFA_RESTORE_EXTENDED: restore(r, reg); return true;
    case CFA_UNDEFINED: cfi_set(r, reg, HOW_LOST, 0); return true;
    case CFA_SAME_VALUE: cfi_set(r, reg, HOW_SAME, 0); return true;
    case CFA_REGISTER:
    case CFA_VAL_OFFSET: qy_bytes_uleb(c); break;
    case CFA_VAL_OFFSET_SF: qy_bytes_sleb(c); break;
    case CFA_EXPRESSION: set_expression(r, reg, false, true); return true;
    case CFA_VAL_EXPRESSION: set_expression(r, reg, false, false); break;
    case CFA_ARGS_SIZE: return true;  // its one operand has been read
    default: return false;
    }
    cfi_set(r, reg, HOW_LOST, 0);  // a value that lies nowhere in memory
    if (reg == QY_DWARF_RA) r->failed = true;
    return true;
}

static void run_other(run_t *r, unsigned op) {
    qy_bytes_t *c = &r->code;
    switch (op) {
    case CFA_NOP: break;
    case CFA_SET_LOC:
        r->location = pointer(r->e->eh, c, r->e->encoding);
        if (r->location > r->pc) r->done = true;
        break;
    case CFA_ADVANCE1: advance(r, qy_bytes_uint(c, 1)); break;
    case CFA_ADVANCE2: advance(r, qy_bytes_uint(c, 2)); break;
    case CFA_ADVANCE4: advance(r, qy_bytes_uint(c, 4)); break;
    case CFA_REMEMBER: remember(r); break;
    case CFA_RESTORE_STATE: recall(r); break;
    default: r->failed = true;
    }
}

static bool cfi_run(run_t *r, qy_bytes_t code) {
    r->code = code;
    while (qy_bytes_left(&r->code) && !r->done && !r->failed) {
        unsigned op = (unsigned)qy_bytes_uint(&r->code, 1), low = op & 0x3f;
        if (op >> 6 == CFA_ADVANCE) advance(r, low);
        else if (op >> 6 == CFA_OFFSET) cfi_set(r, low, HOW_AT_CFA, scaled(r, qy_bytes_uleb(&r->code)));
        else if (op >> 6 == CFA_RESTORE) restore(r, low);
        else if (op == CFA_NOP || (op >= CFA_SET_LOC && op <= CFA_ADVANCE4) || op == CFA_REMEMBER ||
                 op == CFA_RESTORE_STATE)
            run_other(r, op);
        else if (!run_cfa(r, op) && !run_register(r, op)) r->failed = true;
    }
    return !r->failed && !r->code.bad;
}

// ---- the rule -----------------------------------------------------------------------------------------

static bool cfi_fits(int64_t n, int32_t *ret) {
    *ret = (int32_t)n;
    return n == *ret;
}

static bool put_cfa(qy_rule_t *rule, const cfi_place_t *p, uintptr_t pc) {
    if (p->how == HOW_AT_CFA) {
        rule->cfa_base = p->reg == QY_DWARF_FP ? QY_BASE_FP : QY_BASE_SP;
        return (p->reg == QY_DWARF_SP || p->reg == QY_DWARF_FP) && cfi_fits(p->off, &rule->cfa_off);
    }
    if (p->how != HOW_EXPRESSION) return false;
    qy_value_t v = qy_expr_value((qy_bytes_t){p->code, p->code + p->bytes, false}, pc, false);
    rule->cfa_base = v.base;
    rule->cfa_word = v.word;
    return v.known && v.based && cfi_fits(v.off, &rule->cfa_off) && cfi_fits(v.add, &rule->cfa_add);
}

static bool put_place(const cfi_place_t *p, uintptr_t pc, uint8_t *ret_base, int32_t *ret_off) {
    if (p->how == HOW_AT_CFA) {
        *ret_base = QY_BASE_CFA;
        return cfi_fits(p->off, ret_off);
    }
    qy_value_t v = qy_expr_value((qy_bytes_t){p->code, p->code + p->bytes, false}, pc, true);
    *ret_base = v.base;
    return v.known && v.based && !v.word && cfi_fits(v.off, ret_off);
}

static qy_rule_t make_rule(const run_t *r) {
    const cfi_row_t *row = &r->row;
    qy_rule_t rule = {.kind = QY_RULE_UNKNOWN, .signal = r->e->signal}, unknown = rule;
    if (row->ra.how == HOW_LOST) {
        rule.kind = QY_RULE_END;
        return rule;
    }
    if (!put_cfa(&rule, &row->cfa, r->pc) || row->ra.how == HOW_SAME ||
        !put_place(&row->ra, r->pc, &rule.ra_base, &rule.ra_off))
        return unknown;
    if (row->fp.how == HOW_SAME) rule.fp_base = QY_BASE_SAME;
    else if (row->fp.how == HOW_LOST || !put_place(&row->fp, r->pc, &rule.fp_base, &rule.fp_off))
        rule.fp_base = QY_BASE_LOST;
    rule.kind = QY_RULE_FRAME;
    return rule;
}

qy_rule_t qy_cfi_rule(const qy_eh_t *eh, uintptr_t pc) {
    qy_rule_t nothing = {.kind = QY_RULE_NOTHING}, unknown = {.kind = QY_RULE_UNKNOWN};
    uintptr_t fde = find_fde(eh, pc);
    if (!fde) return nothing;
    cfi_entry_t e = {.eh = eh};
    if (!read_fde(&e, fde)) return unknown;
    if (pc - e.begin >= e.range) return nothing;
    run_t r;  // not cleared: the rows below `depth` are written before they are read
    r.e = &e;
    r.pc = pc;
    r.depth = 0;
    r.failed = r.done = false;
    r.row = (cfi_row_t){.cfa = {.how = HOW_LOST}};
    r.location = e.begin;
    r.initial = r.row;
    if (!cfi_run(&r, e.start)) return unknown;
    r.initial = r.row;
    r.location = e.begin;
    r.done = false;
    if (!cfi_run(&r, e.program)) return unknown;
    return make_rule(&r);
}
