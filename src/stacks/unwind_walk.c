// SPDX-License-Identifier: MIT
// unwind_walk.c: the loop over frames, and the few frames that are not plain.
#include "stacks/unwind.h"

#include "os/os.h"

#define WORD sizeof(uintptr_t)
#define FIRST_PC 4096u
#if defined(__x86_64__)
#define LAST_PC (((uintptr_t)1 << QY_PC_BITS) - 1)
#else
#define LAST_PC (((uintptr_t)1 << 56) - 1)
#endif
#define FOREIGN_FRAME (1u << 20)  // larger frames on foreign stacks are not believed

typedef struct regs {
    uintptr_t pc, sp, fp;
    uintptr_t lo, hi;  // the own stack, if sp is on it; else 0
} regs_t;

static bool is_code(uintptr_t pc) { return pc - FIRST_PC <= LAST_PC - FIRST_PC; }

QY_INLINE uintptr_t lookup_pc(uintptr_t pc) { return (pc - 1 + (pc >> 63)) & ~QY_PC_EXACT; }

static void walk_find_bounds(qy_walk_t *w, regs_t *r) {
    bool own = qy_bounds_cover(w->bounds, r->sp);
    r->lo = own ? w->bounds->lo : 0;
    r->hi = own ? w->bounds->hi : 0;
    if (!own) w->foreign = true;
}

static regs_t walk_begin(qy_walk_t *w, const qy_stack_regs_t *from) {
    w->frames = w->words = w->joined = 0;
    if (!w->frames_most) w->frames_most = QY_STACK_DEPTH;
    w->foreign = false;
    w->window_page = 1;
    regs_t r = {from->pc | (from->exact ? QY_PC_EXACT : 0), from->sp, from->fp, 0, 0};
    walk_find_bounds(w, &r);
    if (!is_code(from->pc)) w->end = QY_WALK_CUT;
    return r;
}

QY_INLINE uint32_t walk_rule(qy_walk_t *w, uintptr_t pc) {
    return QY_LIKELY(!w->few) ? qy_rules_find(pc) : qy_rules_few_find(w->few, pc);
}

// ---- reading ------------------------------------------------------------------------------------------

static void note_word(qy_walk_t *w, uintptr_t at, uintptr_t value) {
    if (w->words < QY_WALK_WORDS) w->word[w->words++] = (qy_word_t){at, value};
    else w->foreign = true;  // cannot be joined then
}

static bool read_word(qy_walk_t *w, const regs_t *r, uintptr_t at, uintptr_t *ret) {
    if (at % WORD) return false;
    if (at - r->lo < r->hi - r->lo) {
        *ret = qy_load(at);
        note_word(w, at, *ret);
        return true;
    }
    w->foreign = true;
    uintptr_t page = at & ~(uintptr_t)(QY_WINDOW - 1);
    if (w->window_page != page) {
        w->window_page = 1;
        if (!qy_os_peek((const void *)page, w->window, QY_WINDOW)) return false;
        w->window_page = page;
    }
    *ret = *(const uintptr_t *)(const void *)(w->window + (at - page));
    return true;
}

// ---- frames that are not plain --------------------------------------------------------------------------

static uintptr_t base_value(const regs_t *r, unsigned base, uintptr_t cfa) {
    return base == QY_BASE_SP ? r->sp : base == QY_BASE_FP ? r->fp
                                                           : cfa;
}

// No table here: code made at run time. Does the frame pointer lead to a place that made a call?
static bool step_by_fp(qy_walk_t *w, regs_t *r) {
    uintptr_t fp, ra, most = r->hi ? r->hi - r->sp : FOREIGN_FRAME;
    if (r->fp < r->sp || r->fp - r->sp >= most || !read_word(w, r, r->fp, &fp) || !read_word(w, r, r->fp + WORD, &ra))
        return false;
    if (!is_code(ra) || !qy_code_call(walk_rule(w, ra - 1))) return false;
    r->pc = ra;
    r->sp = r->fp + 2 * WORD;
    r->fp = fp;
    return true;
}

static bool step_by_rule(qy_walk_t *w, regs_t *r, const qy_rule_t *rule) {
    uintptr_t cfa = base_value(r, rule->cfa_base, 0) + (uintptr_t)(intptr_t)rule->cfa_off, ra, fp = r->fp;
    if (rule->cfa_word && !read_word(w, r, cfa, &cfa)) return false;
    cfa += (uintptr_t)(intptr_t)rule->cfa_add;
    if (!read_word(w, r, base_value(r, rule->ra_base, cfa) + (uintptr_t)(intptr_t)rule->ra_off, &ra)) return false;
    if (rule->fp_base == QY_BASE_LOST) fp = 0;
    else if (rule->fp_base != QY_BASE_SAME &&
             !read_word(w, r, base_value(r, rule->fp_base, cfa) + (uintptr_t)(intptr_t)rule->fp_off, &fp))
        return false;
    if (cfa % WORD || (cfa <= r->sp && !rule->signal)) return false;
    bool up = cfa > r->sp;
    if (!is_code(ra)) {
        if (ra == 0) w->end = QY_WALK_OUTER;
        return false;
    }
    r->pc = ra | (rule->signal ? QY_PC_EXACT : 0);
    r->sp = cfa;
    r->fp = fp;
    if (rule->signal) walk_find_bounds(w, r);  // from an alternative stack back to the other
    else if (cfa > r->hi) r->lo = r->hi = 0;
    if (!up) w->foreign = true;
    return true;
}

// One frame, whatever its rule. False: w->end says why.
static bool walk_step(qy_walk_t *w, regs_t *r, uint32_t code) {
    qy_rule_t rule = qy_rules_expand(code);
    w->end = rule.kind == QY_RULE_END ? QY_WALK_OUTER : QY_WALK_CUT;
    if (rule.kind == QY_RULE_FRAME) return step_by_rule(w, r, &rule);
    return rule.kind == QY_RULE_NOTHING && step_by_fp(w, r);
}

static uintptr_t without_signature(uintptr_t pc) {
#if defined(__aarch64__)
    register uintptr_t lr __asm__("x30") = pc;
    __asm__("hint #7"  // xpaclri: takes a signature off, does nothing on older processors
            : "+r"(lr));
    return lr;
#else
    return pc;
#endif
}

static bool step_fp(qy_walk_t *w, regs_t *r) {
    uintptr_t fp, ra, most = r->hi ? r->hi - r->sp : FOREIGN_FRAME;
    w->end = r->fp == 0 ? QY_WALK_OUTER : QY_WALK_CUT;
    if (r->fp < r->sp || r->fp - r->sp >= most || !read_word(w, r, r->fp, &fp) || !read_word(w, r, r->fp + WORD, &ra))
        return false;
    ra = without_signature(ra);
    if (ra == 0) w->end = QY_WALK_OUTER;
    if (!is_code(ra)) return false;
    r->pc = ra;
    r->sp = r->fp + 2 * WORD;
    r->fp = fp;
    return true;
}

// The frame goes into the walk, or the walk ends here.
QY_INLINE bool enter(qy_walk_t *w, const qy_trail_t *trail, uint32_t *candidates, const regs_t *r) {
    if (trail && qy_trail_meets(trail, candidates, r->pc, r->sp, r->fp)) {
        w->joined = *candidates;
        w->end = QY_WALK_JOINED;
        return false;
    }
    if (w->frames == w->frames_most) {
        w->end = QY_WALK_DEEP;
        return false;
    }
    qy_unwind_frame_t *f = &w->frame[w->frames++];
    f->pc = r->pc;
    f->sp = r->sp;
    f->fp = r->fp;
    return true;
}

// ---- by tables ------------------------------------------------------------------------------------------

typedef enum plain { PLAIN_DONE,
    PLAIN_END,
    PLAIN_NOT } plain_t;

// The usual frame: the CFA from sp or fp, the return address below it, on the own stack.
QY_INLINE plain_t step_plain(qy_walk_t *w, regs_t *r, uint32_t code, uint8_t *ret_fp_use) {
    uintptr_t kind = qy_code_kind(code), saved = qy_code_fp(code);
    if (QY_UNLIKELY(kind > QY_CODE_FP)) return PLAIN_NOT;
    // Without branches from here on: which frames save fp has no pattern that the processor could learn.
    uintptr_t by_fp = 0 - (kind - QY_CODE_SP), keeps = 0 - (uintptr_t)(saved == 0), saves = 0 - (uintptr_t)(saved > 1);
    uintptr_t cfa = ((r->sp & ~by_fp) | (r->fp & by_fp)) + qy_code_offset(code),
              at = cfa - WORD - ((saved - 1) * WORD & saves);
    uint32_t words = w->words;
    if (QY_UNLIKELY(cfa <= r->sp || cfa > r->hi || cfa % WORD || at < r->lo || words + 2 > QY_WALK_WORDS))
        return PLAIN_NOT;
    uintptr_t ra = qy_load(cfa - WORD), fp = qy_load(at);
    w->word[words] = (qy_word_t){cfa - WORD, ra};
    w->word[words + 1] = (qy_word_t){at, fp};  // counts only if something is saved
    w->words = words + 1 + (saves & 1);
    *ret_fp_use = (uint8_t)((~keeps & QY_FP_ENDS) | (by_fp & QY_FP_BASE));
    r->fp = (fp & saves) | (r->fp & keeps);
    if (QY_UNLIKELY(!is_code(ra))) {
        w->end = ra == 0 ? QY_WALK_OUTER : QY_WALK_CUT;
        return PLAIN_END;
    }
    r->pc = ra;
    r->sp = cfa;
    return PLAIN_DONE;
}

// Our own frames are left out by the tables where there are some: they need no frame pointers then.
static bool leave_own(qy_walk_t *w, regs_t *r, uintptr_t skip, uintptr_t skip_bytes) {
    while (QY_UNLIKELY((r->pc & ~QY_PC_EXACT) - skip < skip_bytes)) {
#if defined(__x86_64__)
        uint32_t code = walk_rule(w, lookup_pc(r->pc));
        uint8_t fp_use;
        plain_t plain = step_plain(w, r, code, &fp_use);
        if (plain == PLAIN_END || (plain == PLAIN_NOT && !walk_step(w, r, code))) return false;
#else
        if (!step_fp(w, r)) return false;
#endif
    }
    w->words = 0;  // nothing of ours is to be compared later
    return true;
}

// An address without a table to which no call leads is no frame.
QY_INLINE bool no_frame(uintptr_t pc, uint32_t code) {
    return qy_code_kind(code) == QY_CODE_NOTHING && !qy_code_call(code) && !(pc & QY_PC_EXACT);
}

void qy_walk_cfi(
    qy_walk_t *w, const qy_stack_regs_t *from, const qy_trail_t *trail, uintptr_t skip, uintptr_t skip_bytes) {
    regs_t r = walk_begin(w, from);
    if (!is_code(from->pc) || !leave_own(w, &r, skip, skip_bytes)) return;
    uint32_t candidates = trail ? trail->frames : 0;
    bool more = true;
    while (more && enter(w, trail, &candidates, &r)) {
        qy_unwind_frame_t *f = &w->frame[w->frames - 1];
        uint32_t code = walk_rule(w, lookup_pc(r.pc));
        plain_t plain = step_plain(w, &r, code, &f->fp_use);
        if (QY_UNLIKELY(plain == PLAIN_NOT)) {
            f->fp_use = QY_FP_UNKNOWN;
            if (no_frame(r.pc, code)) {
                w->frames--;
                w->end = QY_WALK_CUT;
                return;
            }
            more = walk_step(w, &r, code);
        } else {
            more = plain == PLAIN_DONE;
        }
        f->words = w->words;
    }
}

// ---- by frame pointers ------------------------------------------------------------------------------------

void qy_walk_fp(
    qy_walk_t *w, const qy_stack_regs_t *from, const qy_trail_t *trail, uintptr_t skip, uintptr_t skip_bytes) {
    regs_t r = walk_begin(w, from);
    if (!is_code(from->pc) || !leave_own(w, &r, skip, skip_bytes)) return;
    uint32_t candidates = trail ? trail->frames : 0;
    bool more = true;
    while (more && enter(w, trail, &candidates, &r)) {
        qy_unwind_frame_t *f = &w->frame[w->frames - 1];
        more = step_fp(w, &r);
        f->fp_use = QY_FP_UNKNOWN;
        f->words = w->words;
    }
}
