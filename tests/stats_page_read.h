// SPDX-License-Identifier: MIT
// stats_page_read.h: a reader of the statistics page by its protocol, and the page of another process as the kernel gives it.
#ifndef QUARRY_TESTS_STATS_PAGE_READ_H
#define QUARRY_TESTS_STATS_PAGE_READ_H

#include <quarry/stats_page.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/shm.h>

#include "harness.h"

static uint64_t page_word(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

static void page_copy(void *to, const void *from, size_t bytes) {
    for (size_t i = 0; i < bytes / 8; i++) ((uint64_t *)to)[i] = page_word((const uint64_t *)from + i);
}

// The newest sums, whole. False: there are none yet.
__attribute__((unused)) static bool page_sums(const quarry_stats_page_t *p, quarry_stats_page_sums_t *ret) {
    for (;;) {
        uint64_t turn = page_word(&p->heap.turn);
        if (!turn) return false;
        page_copy(ret, &p->heap.sums[turn & 1], sizeof *ret);
        if (page_word(&p->heap.turn) == turn) return true;
    }
}

// The newest list of classes: number of rows, into rows[112].
__attribute__((unused)) static size_t page_classes(const quarry_stats_page_t *p, quarry_stats_page_class_t *rows) {
    for (;;) {
        uint64_t turn = page_word(&p->heap.class_turn), n = page_word(&p->heap.class_rows[turn & 1]);
        CHECK_LE(n, QUARRY_STATS_PAGE_CLASSES);
        for (size_t i = 0; i < n; i++) page_copy(&rows[i], &p->heap.classes[i][turn & 1], sizeof *rows);
        if (page_word(&p->heap.class_turn) == turn) return n;
    }
}

// The pool of this name. False: no entry has it.
__attribute__((unused)) static bool page_pool(const quarry_stats_page_t *p, const char *name, quarry_stats_page_pool_t *ret) {
    for (size_t i = 0; i < QUARRY_STATS_PAGE_POOL_COUNT; i++) {
        const quarry_stats_page_pool_t *e = &p->pools.pools[i];
        for (;;) {
            uint64_t turn = page_word(&e->turn);
            if (!(turn & 2)) break;
            page_copy(ret, e, sizeof *ret);
            if (page_word(&e->turn) != turn || (turn & 1)) continue;
            if (!strcmp(ret->name, name)) return true;
            break;
        }
    }
    return false;
}

// The page that a process made, attached for reading; NULL: it has none. To be given back with shmdt.
__attribute__((unused)) static const quarry_stats_page_t *page_of(int pid) {
    char line[512];
    const quarry_stats_page_t *found = NULL;
    FILE *list = fopen("/proc/sysvipc/shm", "r");
    CHECK(list);
    while (!found && fgets(line, sizeof line, list)) {
        int id, creator;
        if (sscanf(line, "%*d %d %*o %*u %d", &id, &creator) != 2 || creator != pid) continue;
        void *p = shmat(id, NULL, SHM_RDONLY);
        if (p == (void *)-1) continue;
        found = p;
        if (page_word(&found->head.magic) == QUARRY_STATS_PAGE_MAGIC) break;
        shmdt(p);
        found = NULL;
    }
    fclose(list);
    return found;
}

// Does the machine have segments at all?
__attribute__((unused)) static bool page_possible(void) {
    int id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
    if (id < 0) return false;
    shmctl(id, IPC_RMID, NULL);
    return true;
}

#endif
