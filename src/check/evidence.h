// SPDX-License-Identifier: MIT
// evidence.h: what a canary or a freed block says that was written to, as a report.
#ifndef QY_CHECK_EVIDENCE_H
#define QY_CHECK_EVIDENCE_H

#include "check/check.h"
#include "check/zone.h"

// The block whose record has this word is LIVE or FREED: are its canary and fill as they were? What is not is reported,
// and mended so that it is reported once.
QY_COLD void qy_check_verify_exactly(const qy_check_place_t *place, uint64_t word);
QY_INLINE void qy_check_verify(const qy_check_place_t *place, uint64_t word) {
    size_t n = word & QY_CHECK_SIZE;
    bool good = qy_check_zone_is_good(place->begin, n, place->room);
    if (qy_check_state_of(word) == QY_CHECK_FREED) good = qy_check_fill_is_good(place->begin, n) && good;
    if (QY_UNLIKELY(!good)) qy_check_verify_exactly(place, word);
}

// The same of the canary before the block, which belongs to the block before it.
QY_NOINLINE void qy_check_verify_before_exactly(const qy_check_place_t *place);
QY_INLINE void qy_check_verify_before(const qy_check_place_t *place) {
    const qy_check_sheet_t *s = place->sheet;
    bool good = false;
    if (QY_LIKELY(place->record != s->record)) {
        uint64_t word = qy_check_word(place->record - 1);
        qy_check_state_t state = qy_check_state_of(word);
        // The heap writes to the first 16 bytes of a block that it gets, which may be at this moment.
        good = (state != QY_CHECK_LIVE && state != QY_CHECK_FREED) || place->room < 2 * QY_CHECK_ZONE ||
               qy_check_zone_end_is_good(place->begin - place->room, word & QY_CHECK_SIZE, place->room);
    }
    if (QY_UNLIKELY(!good)) qy_check_verify_before_exactly(place);
}

// All blocks that are live or wait.
void qy_check_blocks_sweep(void);

#endif
