// SPDX-License-Identifier: MIT
// pinpoint.h: evidence of a run before says which call sites to guard in this one.
//
// A canary or a freed block that was written to says which block it was, and not who did it. In the next run blocks of
// that call site are guarded, on the side of the damage, and no others: then the access itself is a fault. Option
// guard_mb has memory for 16,384 guarded blocks of a page. So it is kept for the blocks about as late as that one, and
// of the others no more than QY_PINPOINT_OTHERS have a guard at a time: a program that does the same each time does not
// need them.
//
// A call site is known again by a number of its innermost frames, which does not depend on where files are mapped. The
// file has a line for each:
//
//   number, 16 hexadecimal digits; ordinal of the block; offset of the damage from the block's begin; before or behind
//
// The number is the 64-bit FNV-1a hash of QY_PINPOINT_FRAMES frames at most, innermost first: of each the bytes of its
// file's build id (of its path if it has none), and the 8 bytes of its address in the file, the lowest first.
#ifndef QY_CHECK_PINPOINT_H
#define QY_CHECK_PINPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/guard.h"

#define QY_PINPOINT_FRAMES 16u
#define QY_PINPOINT_OTHERS 8192u
#define QY_PINPOINT_NEAR 2048u  // blocks of a call stack before and after that of the evidence

// Reads option sites. False: there is none.
bool qy_pinpoint_begin(void);

typedef struct qy_pinpoint_site {
    uint64_t number, ordinal;
    int64_t offset;
    qy_guard_side_t side;
} qy_pinpoint_site_t;

// The site that blocks of this stack belong to; NULL: none of the file's.
const qy_pinpoint_site_t *qy_pinpoint_find(uint32_t stack);
// Is the `ordinal`th block of its stack about as late as one that the file names of this site?
bool qy_pinpoint_is_near(const qy_pinpoint_site_t *site, uint64_t ordinal);
// The largest alignment, at most `align`, with which a block of n bytes ends so that the damage lies behind its page.
size_t qy_pinpoint_align(const qy_pinpoint_site_t *site, size_t align, size_t n);

#endif
