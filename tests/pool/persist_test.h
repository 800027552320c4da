// SPDX-License-Identifier: MIT
// persist_test.h: what the tests of persistent pools share: a folder, files, and a pool of slots whose every
// block can be accounted for.
//
// The root block is an array of links (slots). A block begins with a stamp; it is made with zeroes, filled,
// and stamped last. So after any crash: a block of the pool that no slot names is lost, one that two name
// is doubly owned, and one whose stamp is there must have the contents the stamp promises.
#ifndef QUARRY_TESTS_PERSIST_TEST_H
#define QUARRY_TESTS_PERSIST_TEST_H

#include <fcntl.h>
#include <quarry/persist.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "harness.h"
#include "os/fake.h"
#include "os/mapfile.h"
#include "pool/persist.h"

// ---- files --------------------------------------------------------------------------------------------

static char pt_folder[256];
static char pt_path[300], pt_other[300];
static int pt_owner;

static void pt_clean(void) {
    if (getpid() != pt_owner) return;
    unlink(pt_path);
    unlink(pt_other);
    rmdir(pt_folder);
}

// Memory if there is: flushes cost nothing there. What they order is tested by recording them.
__attribute__((constructor)) static void pt_begin(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(pt_folder, sizeof pt_folder, "%s/quarry-persist-XXXXXX",
        access("/dev/shm", W_OK) == 0 ? "/dev/shm"
        : tmp                         ? tmp
                                      : "/tmp");
    if (!mkdtemp(pt_folder)) abort();
    snprintf(pt_path, sizeof pt_path, "%s/a.pool", pt_folder);
    snprintf(pt_other, sizeof pt_other, "%s/b.pool", pt_folder);
    pt_owner = getpid();
    atexit(pt_clean);
}

__attribute__((unused)) static size_t pt_read(const char *path, char *buf, size_t bytes) {
    int fd = open(path, O_RDONLY);
    CHECK_GE(fd, 0);
    ssize_t n = read(fd, buf, bytes);
    CHECK_GE(n, 0);
    close(fd);
    return (size_t)n;
}

__attribute__((unused)) static void pt_write(const char *path, const char *buf, size_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK_GE(fd, 0);
    CHECK_EQ(write(fd, buf, bytes), (ssize_t)bytes);
    close(fd);
}

static unsigned pt_pool_flags;  // QUARRY_POOL_PASS: a checker, if there is one, is told nothing

__attribute__((unused)) static quarry_persist_t *pt_try(const char *path, unsigned flags) {
    return quarry_persist_open(path,
        &(quarry_persist_options_t){.pool.flags = pt_pool_flags, .flags = flags, .max_bytes = (size_t)1 << 30});
}

__attribute__((unused)) static quarry_persist_t *pt_open(const char *path, unsigned flags) {
    quarry_persist_t *s = pt_try(path, flags);
    if (!s) {
        uint64_t at;
        const char *why = quarry_persist_error(&at);
        TEST_FAIL("open: %s (%llu), %s", why, (unsigned long long)at, strerror(errno));
    }
    return s;
}

// A new pool in place of what was there.
__attribute__((unused)) static quarry_persist_t *pt_new(const char *path, unsigned flags) {
    unlink(path);
    return pt_open(path, flags | QUARRY_PERSIST_CREATE);
}

// ---- slots ----------------------------------------------------------------------------------------------

#define PT_STAMP UINT64_C(0x5157415252590000)

typedef struct pt_block {
    uint64_t stamp;  // 0: not filled yet
    uint64_t serial, bytes;
    unsigned char data[];
} pt_block_t;

static inline uint64_t pt_stamp(uint64_t serial, uint64_t bytes) {
    return PT_STAMP ^ serial * 0x9E3779B97F4A7C15u ^ bytes;
}

static inline void pt_set(uint64_t *where, uint64_t value) { __atomic_store_n(where, value, __ATOMIC_RELEASE); }

__attribute__((unused)) static uint64_t *pt_slots(quarry_persist_t *s, unsigned n) {
    uint64_t root = quarry_persist_root(s);
    if (!root) root = quarry_persist_alloc_to(s, quarry_persist_root_link(s), n * sizeof(uint64_t), QUARRY_POOL_ZERO);
    return quarry_persist_at(s, root);
}

// `bytes` of contents behind the stamp.
__attribute__((unused)) static void pt_fill(quarry_persist_t *s, uint64_t at, uint64_t serial, uint64_t bytes) {
    pt_block_t *b = quarry_persist_at(s, at);
    pt_set(&b->stamp, 0);
    b->serial = serial;
    b->bytes = bytes;
    memset(b->data, (int)(serial * 7 + 1), bytes);
    pt_set(&b->stamp, pt_stamp(serial, bytes));
}

__attribute__((unused)) static const char *pt_block_wrong(quarry_persist_t *s, uint64_t at) {
    const pt_block_t *b = quarry_persist_at(s, at);
    if (!b->stamp) return NULL;
    if (b->stamp != pt_stamp(b->serial, b->bytes)) return "a block's stamp is damaged";
    if (b->bytes + sizeof *b > quarry_persist_size(s, at)) return "a block has become shorter";
    // All are as the first, which is as it should be: as a whole, see bytes.h.
    if (b->bytes && (b->data[0] != (unsigned char)(b->serial * 7 + 1) || memcmp(b->data, b->data + 1, b->bytes - 1)))
        return "a block's contents have changed";
    return NULL;
}

typedef struct pt_blocks {
    uint64_t n, at[1 << 16];
} pt_blocks_t;
static pt_blocks_t pt_found;

static int pt_collect(uint64_t at, size_t size, void *arg) {
    (void)size;
    (void)arg;
    if (pt_found.n < 1 << 16) pt_found.at[pt_found.n++] = at;
    return 0;
}
static int pt_compare(const void *a, const void *b) {
    return *(const uint64_t *)a < *(const uint64_t *)b ? -1 : *(const uint64_t *)a > *(const uint64_t *)b;
}

// Nothing lost, nothing doubly owned, every stamped block as promised. NULL, or what is wrong.
__attribute__((unused)) static const char *pt_audit(quarry_persist_t *s, unsigned n) {
    static uint64_t named[1 << 16];
    uint64_t count = 0, root = quarry_persist_root(s);
    if (quarry_persist_check(s)) return quarry_persist_error(NULL);
    pt_found.n = 0;
    if (quarry_persist_walk(s, pt_collect, NULL)) return quarry_persist_error(NULL);
    if (!root) return pt_found.n ? "a block but no root" : NULL;
    named[count++] = root;
    const uint64_t *slots = quarry_persist_at(s, root);
    for (unsigned i = 0; i < n; i++)
        if (slots[i]) named[count++] = slots[i];
    if (count < pt_found.n) return "a block is lost";
    if (count > pt_found.n) return "a slot names no block";
    qsort(named, count, sizeof *named, pt_compare);
    for (uint64_t i = 0; i < count; i++) {
        if (i && named[i] == named[i - 1]) return "a block is doubly owned";
        if (named[i] != pt_found.at[i]) return "a slot names something else";
    }
    for (unsigned i = 0; i < n; i++) {
        const char *wrong = slots[i] ? pt_block_wrong(s, slots[i]) : NULL;
        if (wrong) return wrong;
    }
    return NULL;
}

#endif
