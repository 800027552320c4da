// SPDX-License-Identifier: MIT
// test_persist_fresh.c: what was never written of a persistent pool's file stays untouched by zeros, and only that.
#include <linux/magic.h>
#include <sys/vfs.h>

#include "bytes.h"
#include "os/os.h"
#include "persist_test.h"
#include "resident.h"

#define MIB ((size_t)1 << 20)
#define DIRT 0xEE

// A disk's file system reads around each page that is touched first, as far as the machine is set to. What it has read
// counts as written.
static size_t most(size_t pages) {
    struct statfs fs;
    CHECK_EQ(statfs(pt_folder, &fs), 0);
    return fs.f_type == TMPFS_MAGIC ? pages : SIZE_MAX / 2;
}

static void *at(quarry_persist_t *s, uint64_t place) { return quarry_persist_at(s, place); }

static uint64_t zeros(quarry_persist_t *s, size_t size) {
    uint64_t place = quarry_persist_alloc(s, size, QUARRY_POOL_ZERO);
    CHECK(place);
    return place;
}
// Pages behind a block, before it is read; and it is zero.
static size_t pages_of_zeros(quarry_persist_t *s, size_t size) {
    uint64_t place = zeros(s, size);
    size_t pages = resident_pages(at(s, place), size);
    CHECK_EQ(bytes_nonzero(at(s, place), size), size);
    return pages;
}

TEST(growth_is_fresh) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    size_t pages = 0;
    for (int i = 0; i < 10; i++) pages += pages_of_zeros(s, 3 * MIB);
    printf("  %zu pages\n", pages);
    // Heads, links and ends: those of a block that was the last one lie within the next.
    CHECK_LE(pages, most(10 * 8 + 40));
    CHECK_EQ(quarry_persist_close(s), 0);
}

// What a program stored is cleared, in the same block or in one that lies over several.
TEST(what_was_written_is_cleared) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t a = quarry_persist_alloc(s, 8 * MIB, 0), guard = quarry_persist_alloc(s, 100, 0);
    for (size_t i = 100; i < 8 * MIB; i += MIB / 2) memset((char *)at(s, a) + i, DIRT, 5000);
    CHECK(guard && quarry_persist_free(s, a) == 0);
    CHECK_EQ(zeros(s, 8 * MIB), a);
    CHECK_LE(resident_pages(at(s, a), 8 * MIB), most(17 * 3 + 40));
    CHECK_EQ(bytes_nonzero(at(s, a), 8 * MIB), 8 * MIB);
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST(growth_in_place_and_elsewhere) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t *link = quarry_persist_root_link(s), place = quarry_persist_alloc_to(s, link, 100000, 0);
    memset(at(s, place), DIRT, 100000);
    size_t old = quarry_persist_size(s, place);
    memset(at(s, place), DIRT, old);
    for (size_t size = MIB; size <= 16 * MIB; size *= 2) {
        if (size == 4 * MIB) CHECK(quarry_persist_alloc(s, 100, 0));  // it has to move
        CHECK((place = quarry_persist_resize_at(s, link, size, QUARRY_POOL_ZERO)));
        unsigned char *p = at(s, place);
        CHECK_EQ(p[old - 1], DIRT);
        CHECK_LE(resident_pages(p, size), most(40 + old / qy_os_page_size()));
        CHECK_EQ(bytes_nonzero(p + old, size - old), size - old);
        old = quarry_persist_size(s, place);
        memset(p, DIRT, old);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
}

// The file of a process that closed it, reopened: what was written is cleared, whoever wrote it.
TEST(after_it_was_opened_again) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    uint64_t a = quarry_persist_alloc(s, 4 * MIB, 0);
    memset((char *)at(s, a) + MIB, DIRT, 100000);
    CHECK_EQ(quarry_persist_free(s, a), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    s = pt_open(pt_path, 0);
    pages_of_zeros(s, 4 * MIB);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// In the child, which does not come back: a block of a transaction that is never committed is written.
static void dies_in_a_transaction(void) {
    quarry_persist_t *s = pt_open(pt_path, 0);
    CHECK_EQ(quarry_persist_begin(s), 0);
    uint64_t a = quarry_persist_alloc(s, 3 * MIB, QUARRY_POOL_ZERO);
    memset((char *)at(s, a) + 5000, DIRT, 2 * MIB);
    memset((char *)at(s, a) + 3 * MIB - 100, DIRT, 100);
    kill(getpid(), SIGKILL);
}

TEST(after_a_crash_in_a_transaction) {
    for (int round = 0; round < 3; round++) {
        quarry_persist_t *s = round ? pt_open(pt_path, 0) : pt_new(pt_path, 0);
        CHECK_EQ(quarry_persist_close(s), 0);
        pid_t child = fork();
        if (child == 0) dies_in_a_transaction();
        int status;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        s = pt_open(pt_path, 0);
        CHECK_EQ(quarry_persist_check(s), 0);
        uint64_t a = zeros(s, 3 * MIB);
        CHECK_EQ(bytes_nonzero(at(s, a), 3 * MIB), 3 * MIB);
        CHECK_EQ(quarry_persist_free(s, a), 0);
        CHECK_EQ(quarry_persist_close(s), 0);
    }
}

TEST(after_an_abort) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    for (int round = 0; round < 5; round++) {
        CHECK_EQ(quarry_persist_begin(s), 0);
        uint64_t a = zeros(s, 2 * MIB);
        CHECK_EQ(bytes_nonzero(at(s, a), 2 * MIB), 2 * MIB);
        memset((char *)at(s, a) + (size_t)round * 300000, DIRT, 300000);
        CHECK_EQ(quarry_persist_abort(s), 0);
    }
    pages_of_zeros(s, 2 * MIB);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// A private mapping has pages that the file knows nothing of; and the file has a journal where the pool grows.
TEST(with_a_journal) {
    quarry_persist_t *s = pt_new(pt_path, QUARRY_PERSIST_JOURNAL);
    for (int round = 0; round < 4; round++) {
        uint64_t a = quarry_persist_alloc(s, 3 * MIB, 0), guard = quarry_persist_alloc(s, 100, 0);
        memset(at(s, a), DIRT, 3 * MIB);
        CHECK(guard && quarry_persist_free(s, a) == 0);
        pages_of_zeros(s, 2 * MIB);
        CHECK_EQ(quarry_persist_sync(s), 0);
        pages_of_zeros(s, 5 * MIB);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
    // What the journals left behind the pool's end.
    s = pt_open(pt_path, 0);
    for (int i = 0; i < 4; i++) pages_of_zeros(s, 10 * MIB);
    CHECK_EQ(quarry_persist_close(s), 0);
}

// The pool's side of it, as other pools have it for a parent.
TEST(behind_the_common_interface) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    quarry_pool_t *pool = quarry_persist_pool(s);
    for (size_t align = 16; align <= 65536; align *= 64) {
        unsigned char *p = quarry_pool_alloc(pool, 2 * MIB, align, QUARRY_POOL_ZERO);
        CHECK(p);
        if (align == 16) CHECK_LE(resident_pages(p, 2 * MIB), most(40));
        CHECK_EQ(bytes_nonzero(p, 2 * MIB), 2 * MIB);
        memset(p, DIRT, 2 * MIB);
        CHECK((p = quarry_pool_resize(pool, p, 2 * MIB, 3 * MIB, align, QUARRY_POOL_ZERO)));
        CHECK_EQ(bytes_nonzero(p + 2 * MIB, MIB), MIB);
        memset(p, DIRT, 3 * MIB);
        quarry_pool_free(pool, p, 3 * MIB);
        CHECK((p = quarry_pool_alloc(pool, 3 * MIB, align, QUARRY_POOL_ZERO)));
        CHECK_EQ(bytes_nonzero(p, 3 * MIB), 3 * MIB);
    }
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST_MAIN()
