// SPDX-License-Identifier: MIT
// unwind.h: from a frame to its caller's.
//
// A walk is a function of the registers it begins with, the rules of the addresses it meets, and the words it
// reads from the stack, nothing else. It writes down which words these were (as long as they lie on the
// thread's own stack), so that a later walk which comes to the same registers, and finds the same words
// there, knows the rest without going it (stacks.c).
//
// By tables (CFI): where an address has no table (code made at run time), the frame pointer is tried: it must
// lie above sp, and lead to an address behind a call instruction. By frame pointers (FP): the chain from rbp
// as long as it goes up the stack; the function a signal interrupted is missing, and so is all beyond an
// alternative stack; functions without a frame pointer are skipped, or end the walk.
#ifndef QY_STACKS_UNWIND_H
#define QY_STACKS_UNWIND_H

#include "stacks/stack.h"
#include "stacks/unwind_bounds.h"
#include "stacks/unwind_rules.h"

#define QY_WINDOW 4096u  // bytes of foreign memory that are copied at a time
#define QY_WALK_WORDS (QY_STACK_DEPTH * 3)
#define QY_WALK_WORDS_ROOM (QY_WALK_WORDS + 2)  // words are copied two at a time

// Set in an address that was interrupted, not returned to: it is looked up as it is, else the byte before.
#define QY_PC_EXACT ((uintptr_t)1 << 63)

// Most code keeps anything in fp. Where no frame further out goes by it, nobody need compare it, nor where it is saved.
enum qy_fp_use {
    QY_FP_ENDS = 1,    // the caller's is saved, in the second word that was read, or lost
    QY_FP_BASE = 2,    // the frame begins at it
    QY_FP_UNKNOWN = 4  // perhaps anything
};

typedef struct qy_word {
    uintptr_t at, value;
} qy_word_t;

typedef struct qy_unwind_frame {
    uintptr_t pc;  // with QY_PC_EXACT
    uintptr_t sp, fp;
    uint32_t words;  // read up to the caller of this frame, from the walk's beginning
    uint32_t id;
    uint8_t fp_use;  // qy_fp_use: what the way to its caller does with fp
    bool fp_counts;  // of a trail: with another fp the way on from here would be another
} qy_unwind_frame_t;

typedef enum qy_walk_end {
    QY_WALK_OUTER,   // the outermost frame was reached
    QY_WALK_CUT,     // no further from here
    QY_WALK_DEEP,    // no room for more frames
    QY_WALK_JOINED,  // the rest is as it was
} qy_walk_end_t;

// The walk before, outermost frame first; words in order of the frames they belong to.
typedef struct qy_trail {
    uint32_t frames, words;
    qy_unwind_frame_t frame[QY_STACK_DEPTH];
    qy_word_t word[QY_WALK_WORDS_ROOM];
} qy_trail_t;

typedef struct qy_walk {
    // Set by the caller.
    qy_bounds_t *bounds;
    uint8_t *window;       // QY_WINDOW bytes
    qy_rules_few_t *few;   // what is known of addresses; NULL: the table of all threads
    uint32_t frames_most;  // 0: QY_STACK_DEPTH
    // Results.
    qy_walk_end_t end;
    uint32_t frames, words;
    uint32_t joined;  // frames of the trail that are the outer part of this stack
    bool foreign;     // something was read from elsewhere than the own stack: not to be joined later
    uintptr_t window_page;
    qy_unwind_frame_t frame[QY_STACK_DEPTH];  // innermost first
    qy_word_t word[QY_WALK_WORDS_ROOM];
} qy_walk_t;

// Walk from `from`; frames whose pc lies in [skip, skip + skip_bytes) are left out at the beginning. `trail`
// may be joined if it is of the same mode, bounds and rules; NULL: none.
void qy_walk_cfi(
    qy_walk_t *w, const qy_stack_regs_t *from, const qy_trail_t *trail, uintptr_t skip, uintptr_t skip_bytes);
void qy_walk_fp(
    qy_walk_t *w, const qy_stack_regs_t *from, const qy_trail_t *trail, uintptr_t skip, uintptr_t skip_bytes);

// ---- for the two of them --------------------------------------------------------------------------------

// A load that no sanitizer sees: the words between a frame's variables are theirs.
QY_INLINE uintptr_t qy_load(uintptr_t at) {
    uintptr_t value;
#if defined(__x86_64__)
    __asm__("mov %1, %0"
            : "=r"(value)
            : "m"(*(const uintptr_t *)at));
#elif defined(__aarch64__)
    __asm__("ldr %0, %1"
            : "=r"(value)
            : "m"(*(const uintptr_t *)at));
#else
    value = *(const volatile uintptr_t *)at;
#endif
    return value;
}

// Does the frame stand in the trail, with everything outside it as it was? *candidates: frames of the trail
// that can still be met; sp only grows.
QY_INLINE bool qy_trail_meets(const qy_trail_t *t, uint32_t *candidates, uintptr_t pc, uintptr_t sp, uintptr_t fp) {
    uint32_t n = *candidates;
    while (n && t->frame[n - 1].sp < sp) n--;
    *candidates = n;
    if (!n) return false;
    const qy_unwind_frame_t *f = &t->frame[n - 1];
    if (f->sp != sp || f->pc != pc || (f->fp_counts && f->fp != fp)) return false;
    for (uint32_t i = f->words; i-- > 0;) {
        if (QY_LIKELY(qy_load(t->word[i].at) == t->word[i].value)) continue;
        // The frames that this word had a part in are not there any more.
        while (n && t->frame[n - 1].words > i) n--;
        *candidates = n;
        return false;
    }
    return true;
}

#endif
