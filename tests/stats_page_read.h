// SPDX-License-Identifier: MIT
// stats_page_read.h: a reader of the statistics page by its protocol, and the page of another process as the kernel
// gives it.
#ifndef QUARRY_TESTS_STATS_PAGE_READ_H
#define QUARRY_TESTS_STATS_PAGE_READ_H

#include <fcntl.h>
#include <quarry/stats_page.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <unistd.h>

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
__attribute__((unused)) static bool page_pool(
    const quarry_stats_page_t *p, const char *name, quarry_stats_page_pool_t *ret) {
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

// ---- pages of other processes ---------------------------------------------------------------------------
// Found as docs/stats-page.md says: variables of modules lie in writable mappings of files and in those without a name
// right behind.

// The address of the first page that starts in [begin, end) and names this process; 0: none. No more is looked through
// than variables of a test take: sanitizers have mappings of terabytes.
static uintptr_t page_in(int memory, int pid, uintptr_t begin, uintptr_t end) {
    if (end - begin > (uintptr_t)64 << 20) end = begin + ((uintptr_t)64 << 20);
    for (uintptr_t at = begin; at < end; at += QUARRY_STATS_PAGE_ALIGN) {
        quarry_stats_page_head_t head;
        if (pread(memory, &head, sizeof head, (off_t)at) != sizeof head) return 0;
        if (head.magic == QUARRY_STATS_PAGE_MAGIC && head.pid == pid) return at;
    }
    return 0;
}

// Where it is in another process, or in this one; 0: it has none of its own.
__attribute__((unused)) static uintptr_t page_at(int pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int memory = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    uintptr_t found = 0, file_end = 0;
    while (memory >= 0 && maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long begin, end, inode;
        char rights[8];
        if (sscanf(line, "%lx-%lx %7s %*x %*s %lu", &begin, &end, rights, &inode) != 4) continue;
        if (!strncmp(rights, "rw-p", 4) && (inode || begin == file_end)) found = page_in(memory, pid, begin, end);
        if (inode) file_end = end;
    }
    if (maps) fclose(maps);
    if (memory >= 0) close(memory);
    return found;
}

__attribute__((unused)) static bool page_fetch(int pid, uintptr_t at, void *to, size_t bytes) {
    struct iovec mine = {to, bytes}, its = {(void *)at, bytes};
    return process_vm_readv(pid, &mine, 1, &its, 1, 0) == (ssize_t)bytes;
}

// A copy of the page of a process as it is now, for which the caller calls free; NULL: it has none. Parts may be of
// different moments.
__attribute__((unused)) static const quarry_stats_page_t *page_of(int pid) {
    uintptr_t at = page_at(pid);
    quarry_stats_page_t *copy = at ? malloc(sizeof *copy) : NULL;
    if (copy && page_fetch(pid, at, copy, sizeof *copy)) return copy;
    free(copy);
    return NULL;
}

// The newest sums of the page at `at` in another process, whole. False: none yet, or it has ended.
__attribute__((unused)) static bool page_sums_of(int pid, uintptr_t at, quarry_stats_page_sums_t *ret) {
    for (;;) {
        uint64_t turn, after;
        uintptr_t word = at + offsetof(quarry_stats_page_t, heap.turn);
        if (!page_fetch(pid, word, &turn, sizeof turn) || !turn) return false;
        if (!page_fetch(
                pid, at + offsetof(quarry_stats_page_t, heap.sums) + (turn & 1) * sizeof *ret, ret, sizeof *ret))
            return false;
        if (!page_fetch(pid, word, &after, sizeof after)) return false;
        if (after == turn) return true;
    }
}

#endif
