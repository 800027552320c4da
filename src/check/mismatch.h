// SPDX-License-Identifier: MIT
// mismatch.h: does a free fit the block: its function, the size and the alignment that it names?
#ifndef QY_CHECK_MISMATCH_H
#define QY_CHECK_MISMATCH_H

#include "check/call.h"

// What of the families goes together: malloc, new and new[] are three kinds.
typedef enum qy_check_kind { QY_CHECK_KIND_MALLOC,
    QY_CHECK_KIND_NEW,
    QY_CHECK_KIND_NEW_ARRAY,
    QY_CHECK_KIND_OTHER } qy_check_kind_t;
// Two bits for each family.
#define QY_CHECK_KINDS                                                \
    ((unsigned)QY_CHECK_KIND_NEW << 2 * QY_CHECK_NEW |                \
        (unsigned)QY_CHECK_KIND_NEW_ARRAY << 2 * QY_CHECK_NEW_ARRAY | \
        (unsigned)QY_CHECK_KIND_OTHER << 2 * QY_CHECK_POOL)
QY_INLINE qy_check_kind_t qy_check_kind_of(uint64_t family) {
    return (qy_check_kind_t)(QY_CHECK_KINDS >> 2 * family & 3);
}

QY_NOINLINE void qy_check_mismatch_exactly(
    const qy_check_call_t *call, const qy_check_place_t *place, uint64_t word, const qy_check_claim_t *claim);
QY_INLINE void qy_check_mismatch(
    const qy_check_call_t *call, const qy_check_place_t *place, uint64_t word, const qy_check_claim_t *claim) {
    bool fits = qy_check_kind_of(word >> QY_CHECK_FAMILY_SHIFT & 15) == qy_check_kind_of(call->family);
    if (QY_UNLIKELY(claim || !fits)) qy_check_mismatch_exactly(call, place, word, claim);
}

// Operators new and delete, malloc and free are not all ours. A program's own operators may be made of malloc and free,
// and so blocks of one may be given to the other: that is no error then. Written by a constructor.
extern QY_HIDDEN bool qy_check_operators_mixed;
extern QY_HIDDEN bool qy_check_malloc_mixed;  // malloc or free

#endif
