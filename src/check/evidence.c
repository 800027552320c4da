// SPDX-License-Identifier: MIT
// evidence.c: see evidence.h.
#include "check/evidence.h"

#include <string.h>

#include "base/num.h"
#include "check/find.h"
#include "check/quarantine.h"
#include "check/zone.h"

static void evidence_report(const char *kind, const qy_check_block_t *b, qy_check_damage_t d, const char *detail) {
    qy_check_fault_t f = {.kind = kind,
        .address = b->address + d.first,
        .is_write = true,
        .bytes = d.last - d.first,
        .is_evidence = true,
        .has_block = true,
        .block = *b,
        .offset = (int64_t)d.first,
        .detail = detail};
    qy_check_report(&f, NULL);
}

// Written from the block's end on, or from the next one's begin backwards? By which of them it is nearer.
static void zone_report(const qy_check_place_t *place, const qy_check_block_t *b, qy_check_damage_t d) {
    qy_check_place_t behind = qy_check_place_behind(place);
    qy_check_block_t next;
    if (d.first - b->size > place->room - d.last && qy_check_block_at(&behind, &next)) {
        qy_check_damage_t before = {d.first - place->room, d.last - place->room};  // as numbers below 0
        evidence_report("underflow-write", &next, before, "the bytes before the block were overwritten");
        return;
    }
    if (b->freed) evidence_report("write-after-free", b, d, "behind the end of the freed block");
    else evidence_report("overflow-write", b, d, "the bytes behind the block were overwritten");
}

// Of blocks that others free or get meanwhile nothing is said: their record is another one by then.
static bool is_same(const qy_check_place_t *place, uint64_t word, qy_check_block_t *ret) {
    return qy_check_word(place->record) == word && qy_check_block_at(place, ret);
}

QY_COLD static void zone_damaged(const qy_check_place_t *place, uint64_t word, qy_check_damage_t d) {
    qy_check_block_t b;
    if (!is_same(place, word, &b)) return;
    zone_report(place, &b, d);
    qy_check_zone_mend(place->begin, word & QY_CHECK_SIZE, place->room);
}

QY_COLD static void fill_damaged(const qy_check_place_t *place, uint64_t word, qy_check_damage_t d) {
    qy_check_block_t b;
    if (!is_same(place, word, &b)) return;
    evidence_report("write-after-free", &b, d, NULL);
    qy_check_fill(place->begin, word & QY_CHECK_SIZE);
}

void qy_check_verify_exactly(const qy_check_place_t *place, uint64_t word) {
    size_t n = word & QY_CHECK_SIZE;
    qy_check_damage_t d = qy_check_zone_look(place->begin, n, place->room);
    if (QY_UNLIKELY(d.last)) zone_damaged(place, word, d);
    if (qy_check_state_of(word) != QY_CHECK_FREED) return;
    d = qy_check_fill_look(place->begin, n);
    if (QY_UNLIKELY(d.last)) fill_damaged(place, word, d);
}

void qy_check_verify_before_exactly(const qy_check_place_t *place) {
    qy_check_place_t before = qy_check_place_before(place);
    if (!before.record || before.room < 2 * QY_CHECK_ZONE) return;
    uint64_t word = qy_check_word(before.record);
    qy_check_state_t state = qy_check_state_of(word);
    if (state != QY_CHECK_LIVE && state != QY_CHECK_FREED) return;
    if (!qy_check_zone_end_is_good(before.begin, word & QY_CHECK_SIZE, before.room)) qy_check_verify(&before, word);
}

static bool block_sweep(const qy_check_place_t *place, void *arg) {
    (void)arg;
    uint64_t word = qy_check_word(place->record);
    qy_check_state_t state = qy_check_state_of(word);
    bool there = (state == QY_CHECK_LIVE || state == QY_CHECK_FREED) && qy_check_place_is_good(place);
    if (there) qy_check_verify(place, word);
    return true;
}

void qy_check_blocks_sweep(void) {
    qy_check_quarantine_hold();
    qy_check_each_place(block_sweep, NULL);
    qy_check_quarantine_go_on();
}
