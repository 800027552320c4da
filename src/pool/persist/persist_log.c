// SPDX-License-Identifier: MIT
// persist_log.c: the undo log of a persistent pool: every change is taken back or committed, whole.
#include "pool/persist.h"

void (*qy_persist_hook)(void *where);
int qy_persist_mutant;

static uint64_t record_sum(uint64_t at, uint64_t old, uint64_t number, uint64_t index) {
    return qy_persist_mix(qy_persist_mix(qy_persist_mix(QY_PERSIST_SEED, at), old), number << 16 | index);
}

static uint64_t head(const quarry_persist_t *s) { return s->number << 16 | s->records; }

static void write_record(qy_persist_record_t *r, uint64_t at, uint64_t old, uint64_t sum) {
    qy_persist_raw(&r->at, at);
    qy_persist_raw(&r->old, old);
    qy_persist_raw(&r->sum, sum);
}

// The order is the protocol: the record, its count, the change.
void qy_persist_store(quarry_persist_t *s, uint64_t *where, uint64_t value) {
    uint64_t at = (uint64_t)((char *)where - s->base), old = *where, sum = record_sum(at, old, s->number, s->records);
    qy_persist_record_t *r = &s->log[s->records++];
    qy_assert(s->records <= s->log_words);
    if (QY_MUTANT(1)) qy_persist_raw(where, value);
    if (QY_MUTANT(2)) qy_persist_raw(&s->words->log, head(s));
    write_record(r, at, old, sum);
    qy_persist_raw(&s->words->log, head(s));
    qy_persist_raw(where, value);
}

bool qy_persist_room(quarry_persist_t *s, uint64_t records) {
    uint64_t needed = s->records + records + (uint64_t)s->frees * QY_PERSIST_FREE_WORDS;
    return needed <= s->log_words ||
           qy_persist_fail(E2BIG, "the transaction changes more words than the pool's log holds", 0);
}

void qy_persist_log_commit(quarry_persist_t *s) {
    if (!s->records) return;
    s->records = 0;
    s->number++;
    qy_persist_raw(&s->words->log, head(s));
}

// Last first, so that a word that was changed twice ends as it was before the first change. Killed in the middle, the
// next process starts with the last record again: what is restored already is restored to the same.
void qy_persist_rollback(quarry_persist_t *s, uint32_t mark) {
    qy_assert(mark <= s->records);
    for (uint32_t i = s->records; i > mark; i--) qy_persist_raw(qy_word(s, s->log[i - 1].at), s->log[i - 1].old);
    if (mark) {
        s->records = mark;
        qy_persist_raw(&s->words->log, head(s));
    } else {
        qy_persist_log_commit(s);
    }
}

// A damaged count must not restore old words of finished transactions: each record carries the number of its own.
bool qy_persist_log_check(quarry_persist_t *s) {
    uint64_t log = s->words->log, count = log & 0xFFFF, end = s->mapped;
    if (count > s->log_words)
        return qy_persist_fail(EUCLEAN, "the log counts more records than it holds", QY_PERSIST_UNIT);
    for (uint64_t i = 0; i < count; i++) {
        const qy_persist_record_t *r = &s->log[i];
        uint64_t place = (uint64_t)((const char *)r - s->base);
        if (r->sum != record_sum(r->at, r->old, log >> 16, i))
            return qy_persist_fail(EUCLEAN, "a record of the log is damaged", place);
        bool in_words = r->at > QY_PERSIST_UNIT && r->at < QY_PERSIST_UNIT + sizeof(qy_persist_words_t);
        if (r->at % 8 || !(in_words || (r->at >= s->first - 8 && r->at <= end - 8)))
            return qy_persist_fail(EUCLEAN, "a record of the log names no word of the pool", place);
    }
    return true;
}

void qy_persist_recover(quarry_persist_t *s) {
    s->number = s->words->log >> 16;
    s->records = (uint32_t)(s->words->log & 0xFFFF);
    qy_persist_rollback(s, 0);
}
