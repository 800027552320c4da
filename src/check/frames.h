// SPDX-License-Identifier: MIT
// frames.h: stacks by their number, and the files of the program that their addresses lie in, also when these are
// unloaded by now.
//
// A module stays known for good. An address of a stack lies in the module that was there when the stack was first seen:
// ids of nodes only grow, and a module knows the last one before it and the last one that may lie in it.
// The tree forgets the addresses of unloaded code (stacks_tree.h); they are kept here.
#ifndef QY_CHECK_FRAMES_H
#define QY_CHECK_FRAMES_H

#include "check/alone.h"
#include "os/loaded.h"
#include "stacks/stacks.h"

typedef struct qy_check_module {
    struct qy_check_module *next;
    uint32_t id;  // 1...
    uintptr_t begin, end, bias;
    uint32_t born, died;  // ids of nodes: above born, up to died
    bool gone;
    _Atomic bool told;  // the file of reports has it
    uint8_t build_id[QY_LOADED_ID_BYTES];
    unsigned id_bytes;
    char path[];
} qy_check_module_t;

// Once, before any capture. False: stacks are not to be had.
bool qy_check_frames_begin(void);
// The number of the stack that begins at `from`; NULL: at the caller of this library. 0: none.
uint32_t qy_check_stack(const qy_stack_regs_t *from);
// One more block was made on this stack: the how-manyeth.
extern QY_HIDDEN _Atomic uint32_t *qy_check_ordinals;  // by stack; NULL: no memory
QY_INLINE uint32_t qy_check_ordinal(uint32_t stack) {
    return stack && qy_check_ordinals ? qy_check_count_up(&qy_check_ordinals[stack], 1) + 1 : 0;
}
// Tell what was loaded and unloaded. Not while locks are held that others take within dlopen.
void qy_check_frames_look(void);

// The frame of a node: its address and module (NULL: unknown). Returns the node of its caller, 0: it was the last.
typedef struct qy_check_frame {
    uintptr_t pc;
    bool exact;
    qy_check_module_t *module;
} qy_check_frame_t;
uint32_t qy_check_frame(uint32_t node, qy_check_frame_t *ret);
// Does it lie in this library? People are not shown such a frame.
bool qy_check_frame_is_ours(const qy_check_frame_t *f);
// No file has any module.
void qy_check_modules_untold(void);

#endif
