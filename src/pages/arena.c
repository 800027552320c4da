// SPDX-License-Identifier: MIT
// arena.c: see arena.h.
#include "pages/arena.h"

#include "os/os.h"
#include "pages/chunk_state.h"
#include "pages/map.h"
#include "pages/meta.h"

#define ARENA_FIRST ((size_t)2 << 20)
#define ARENA_QUICK ((size_t)64 << 20)  // up to here each is four times the one before, then twice
#define SHARE 16u                       // an arena takes at most this part of the address space that is left
#define TRIES 256u                      // addresses that the map may refuse, one after the other
#define NAME "quarry heap"

static unsigned room(const qy_arena_t *a) { return a ? a->chunks - a->opened : 0; }

void qy_arena_trim(void) {
    QY_NEEDS(&qy_units.lock);
    qy_arena_t *newest = qy_units.arenas;
    if (room(newest) && qy_os_unmap(qy_arena_at(newest, newest->opened), (size_t)room(newest) * QY_CHUNK))
        newest->chunks = newest->writable = newest->opened;
    for (qy_arena_t **link = &qy_units.arenas, *a; (a = *link) != NULL;) {
        if (a->present || room(a)) {
            link = &a->next;
        } else {  // nothing of it is left
            *link = a->next;
            a->next = qy_units.spare_arenas;
            qy_units.spare_arenas = a;
        }
    }
}

static qy_arena_t *arena_record_new(char *base, size_t bytes) {
    qy_arena_t *a = qy_units.spare_arenas;
    if (a) qy_units.spare_arenas = a->next;
    else a = qy_meta_alloc(sizeof *a);
    if (!a) return NULL;
    *a = (qy_arena_t){.base = base, .chunks = (uint32_t)(bytes / QY_CHUNK)};
    return a;
}

// The program's own mappings and stacks must find room beside an arena. What is left only a try can tell: limits come
// and go, there are several kinds of them (RLIMIT_AS, locked memory), and a sandbox need not allow to ask.
bool qy_arena_is_plenty(size_t bytes) { return qy_os_has_space(bytes * SHARE); }

static size_t fair_share(size_t want, size_t least) {
    while (want > least && !qy_arena_is_plenty(want)) want = qy_max(qy_round_down(want / 2, QY_CHUNK), least);
    return want;
}

// It is from when an arena is smaller than it was to be until one is not. The least one does not say.
static void note_scarce(bool scarce) { atomic_store_explicit(&qy_units.scarce, scarce, memory_order_relaxed); }

bool qy_arena_reserve(unsigned chunks) {
    QY_NEEDS(&qy_units.lock);
    if (room(qy_units.arenas) >= chunks) return true;
    size_t least = (size_t)chunks * QY_CHUNK,
           want = qy_max(qy_units.arena_next ? qy_units.arena_next : ARENA_FIRST, least);
    const qy_arena_t *newest = qy_units.arenas;
    size_t fair = fair_share(want, least);
    if (want > least) note_scarce(fair < want);
    want = fair;
    for (; want >= least; want = qy_round_down(want / 2, QY_CHUNK)) {
        char *base = qy_os_reserve(want, QY_CHUNK, newest ? qy_arena_at(newest, newest->chunks) : NULL);
        if (!base) continue;
        qy_arena_t *a = arena_record_new(base, want);
        if (!a) {
            qy_os_unmap(base, want);
            return false;
        }
        // As a whole, and before a chunk of it is opened: the kernel does not join neighbours of different names, so a
        // chunk that got its name after it was opened would be a mapping of its own meanwhile.
        qy_os_name(base, want, NAME);
        qy_arena_trim();  // the one before
        a->next = qy_units.arenas;
        qy_units.arenas = a;
        qy_units.arena_next = qy_min(want < ARENA_QUICK ? want * 4 : want * 2, QY_ARENA_MAX);
        return true;
    }
    note_scarce(true);
    return false;
}

// Chunks [from, to) of the arena are only address space again.
static void arena_close(const qy_arena_t *a, unsigned from, unsigned to) {
    char *base = qy_arena_at(a, from);
    size_t bytes = (size_t)(to - from) * QY_CHUNK;
    qy_os_decommit(base, bytes);
    qy_os_name(base, bytes, NAME);  // which a fresh mapping has not
}

bool qy_arena_commit(unsigned chunks) {
    QY_NEEDS(&qy_units.lock);
    qy_arena_t *a = qy_units.arenas;
    if (!qy_os_commit(qy_arena_at(a, a->opened), (size_t)chunks * QY_CHUNK)) return false;
    a->writable = a->opened + chunks;
    return true;
}

void qy_arena_uncommit(void) {
    QY_NEEDS(&qy_units.lock);
    qy_arena_t *a = qy_units.arenas;
    if (!a || a->writable <= a->opened) return;
    arena_close(a, a->opened, a->writable);
    a->writable = a->opened;
}

// The next chunk's memory and its entry in the map.
static qy_map_answer_t enter_next(qy_arena_t *a, qy_chunk_t *c) {
    if (a->writable <= a->opened && !qy_arena_commit(1)) return QY_MAP_NO_MEMORY;
    qy_map_answer_t answer = qy_map_add(&c->record, qy_arena_at(a, a->opened), true);
    if (answer == QY_MAP_NO_MEMORY) qy_arena_uncommit();
    else if (answer == QY_MAP_TAKEN) arena_close(a, a->opened, a->opened + 1);
    if (answer != QY_MAP_NO_MEMORY) a->opened++;  // taken: leave this address alone
    return answer;
}

bool qy_arena_enter(qy_chunk_t *c) {
    QY_NEEDS(&qy_units.lock);
    for (unsigned tries = 0; tries < TRIES; tries++) {
        if (!qy_arena_reserve(1)) return false;
        c->arena = qy_units.arenas;
        qy_map_answer_t answer = enter_next(c->arena, c);
        if (answer == QY_MAP_TAKEN) continue;
        if (answer == QY_MAP_NO_MEMORY) return false;
        c->arena->present++;
        return true;
    }
    return false;
}
