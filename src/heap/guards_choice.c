// SPDX-License-Identifier: MIT
// guards_choice.c: see guards_choice.h.
#include "heap/guards_choice.h"

#include "base/num.h"

#define SETS 256u
#define WAYS 4u
#define FORGETS 4096u  // draws after which a guard is forgotten
#define COUNT_MOST 12u

// A site that was guarded. Those whose stacks have the same hash are one.
typedef struct guards_place {
    uint32_t site;                  // 0: none
    uint32_t last : 24, count : 8;  // the draw at which it was guarded last; how often
} guards_place_t;

static struct {
    guards_place_t place[SETS][WAYS];
    uint32_t draws;
} choice;

qy_guard_credit_t qy_guards_credit = {.ns = QY_GUARDS_START * QY_GUARDS_COST_NS,
    .most_ns = QY_GUARDS_SAVED * QY_GUARDS_COST_NS,
    .one_in = QY_GUARDS_ONE_IN};

uint32_t qy_guards_site(const uintptr_t *pc, unsigned frames, size_t n) {
    uint64_t hash = frames ? 0 : n;
    for (unsigned i = 0; i < qy_min(frames, QY_GUARDS_SITE_FRAMES); i++) {
        hash = (hash ^ pc[i]) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    hash *= UINT64_C(0xD1B54A32D192ED03);
    return (uint32_t)(hash >> 32) | 1;
}

// Draws since the site of this place was guarded.
static uint32_t choice_age(const guards_place_t *place) { return (choice.draws - place->last) & 0xffffffu; }

static guards_place_t *choice_place(uint32_t site) {
    guards_place_t *set = choice.place[(site >> 1) % SETS];
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i].site == site) return &set[i];
    return NULL;
}

// The one that was guarded longest ago makes room.
static guards_place_t *choice_make_place(uint32_t site) {
    guards_place_t *set = choice.place[(site >> 1) % SETS], *oldest = &set[0];
    for (unsigned i = 0; i < WAYS; i++) {
        if (!set[i].site) return &set[i];
        if (choice_age(&set[i]) > choice_age(oldest)) oldest = &set[i];
    }
    return oldest;
}

// Parts of four of time and pages that are left to others.
static bool may_use(unsigned reserved, size_t live, size_t most) {
    return live <= most - most / 4 * reserved &&
           qy_guard_credit_has(&qy_guards_credit, qy_guards_credit.most_ns / 4 * (int64_t)reserved);
}

bool qy_guards_choose(uint32_t site, size_t live, size_t most, qy_guards_turn_t *ret) {
    choice.draws++;
    const guards_place_t *place = choice_place(site);
    unsigned reserved = 0;
    *ret = (qy_guards_turn_t){.site = site};
    if (place) {
        uint32_t age = choice_age(place);
        ret->count = place->count - (unsigned)qy_min(place->count, age / FORGETS);
        reserved = age >> ret->count ? 1 : 2;
    }
    ret->side = ret->count % 2 ? QY_GUARD_BEFORE : QY_GUARD_BEHIND;
    return may_use(reserved, live, most);
}

void qy_guards_chosen(const qy_guards_turn_t *turn) {
    guards_place_t *place = choice_place(turn->site);
    if (!place) place = choice_make_place(turn->site);
    *place = (guards_place_t){.site = turn->site,
        .last = choice.draws & 0xffffffu,
        .count = qy_min(turn->count + 1, COUNT_MOST) & 0xffu};
    qy_guard_credit_spend(&qy_guards_credit, QY_GUARDS_COST_NS);
}
