// SPDX-License-Identifier: MIT
// test_persist_damage.c: damaged and foreign files: an error with a reason, or no harm; never a crash.
#include "persist_test.h"

#define SLOTS 16
#define STRIDE (QY_ASAN || QY_TSAN ? 7 : 1)

static char sound[1 << 20], bad[1 << 20];
static size_t bytes;
static pt_blocks_t sound_blocks;
static uint64_t sound_root;

// A small pool with blocks in use and free ones between them.
static void make_sound(void) {
    unlink(pt_path);
    quarry_persist_t *s = quarry_persist_open(
        pt_path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE, .log_words = 256, .max_bytes = 1 << 24});
    CHECK(s);
    uint64_t *slots = pt_slots(s, SLOTS);
    for (unsigned i = 0; i < SLOTS; i++) {
        CHECK(quarry_persist_alloc_to(s, &slots[i], 50 + i * 40, QUARRY_POOL_ZERO));
        pt_fill(s, slots[i], i, i * 20);
    }
    for (unsigned i = 0; i < SLOTS; i += 3) CHECK_EQ(quarry_persist_free_from(s, &slots[i]), 0);
    CHECK(!pt_audit(s, SLOTS));
    sound_blocks = pt_found;
    sound_root = quarry_persist_root(s);
    CHECK_EQ(quarry_persist_close(s), 0);
    bytes = pt_read(pt_path, sound, sizeof sound);
    CHECK_LT(bytes, sizeof sound);
}

// Refused with a reason, or the pool is what it was.
static bool refused(const char *path, unsigned flags) {
    errno = 0;
    quarry_persist_t *s = pt_try(path, flags);
    if (!s) {
        CHECK(errno == EUCLEAN || errno == EMEDIUMTYPE || errno == EFBIG || errno == EISDIR || errno == EACCES);
        CHECK(strcmp(quarry_persist_error(NULL), "no error"));
        return true;
    }
    CHECK(!pt_audit(s, SLOTS));
    CHECK_EQ(quarry_persist_root(s), sound_root);
    CHECK_EQ(pt_found.n, sound_blocks.n);
    CHECK_EQ(memcmp(pt_found.at, sound_blocks.at, pt_found.n * 8), 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    return false;
}

static unsigned flips, found;
static void flip_range(int fd, uint64_t from, uint64_t to) {
    for (uint64_t bit = from * 8 + test_seed % STRIDE; bit < to * 8; bit += STRIDE, flips++) {
        char byte = (char)(sound[bit / 8] ^ 1 << bit % 8);
        CHECK_EQ(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
        found += refused(pt_path, QUARRY_PERSIST_READ_ONLY);
        CHECK_EQ(pwrite(fd, &sound[bit / 8], 1, (off_t)(bit / 8)), 1);
    }
}

TEST(every_bit_of_the_records) {
    make_sound();
    int fd = open(pt_path, O_RDWR);
    flips = found = 0;
    flip_range(fd, 0, sizeof(qy_persist_header_t));
    CHECK_EQ(found, flips);
    flip_range(fd, QY_PERSIST_SECTOR, QY_PERSIST_SECTOR + sizeof(qy_persist_state_t));
    CHECK_EQ(found, flips);
    unsigned before = flips;
    flip_range(fd, QY_PERSIST_UNIT, QY_PERSIST_UNIT + sizeof(qy_persist_words_t));
    // Only the number of the next transaction may be any (48 bits), and the root another block's place.
    CHECK_GE(found, before + (flips - before) * 98 / 100);
    flip_range(fd, 2 * QY_PERSIST_SECTOR, 2 * QY_PERSIST_SECTOR + sizeof(qy_persist_mark_t));
    flip_range(fd, QY_PERSIST_LOG_AT, QY_PERSIST_LOG_AT + 256 * sizeof(qy_persist_record_t));
    printf("%u bits, %u refused\n", flips, found);
    close(fd);
}

TEST(every_bit_of_the_blocks) {
    make_sound();
    int fd = open(pt_path, O_RDWR);
    flips = found = 0;
    for (uint64_t i = 0; i < sound_blocks.n; i++) flip_range(fd, sound_blocks.at[i] - 8, sound_blocks.at[i]);
    CHECK_EQ(found, flips);
    for (uint64_t at = QY_PERSIST_UNIT + offsetof(qy_persist_words_t, bins);
         at < QY_PERSIST_UNIT + sizeof(qy_persist_words_t); at += 8) {
        uint64_t first;
        memcpy(&first, sound + at, 8);
        if (first) flip_range(fd, first - 8, first + 16);
    }
    CHECK_EQ(found, flips);
    flip_range(fd, bytes - 8, bytes);
    CHECK_EQ(found, flips);
    printf("%u bits\n", flips);
    close(fd);
}

// The writer, too, and without the walk at open: operations find out what they meet.
TEST(writers_meet_damage) {
    make_sound();
    uint64_t seed = test_seed;
    unsigned stopped = 0;
    for (unsigned i = 0; i < 3000 / STRIDE; i++) {
        memcpy(bad, sound, bytes);
        uint64_t at = i % 2 ? QY_PERSIST_UNIT + test_random(&seed) % sizeof(qy_persist_words_t)
                            : sound_blocks.at[0] - 8 + test_random(&seed) % 9000;
        bad[at] ^= (char)(1 << test_random(&seed) % 8);
        pt_write(pt_other, bad, bytes);
        quarry_persist_t *s = pt_try(pt_other, QUARRY_PERSIST_NO_CHECK);
        if (!s) {
            stopped++;
            continue;
        }
        uint64_t *slots = quarry_persist_at(s, quarry_persist_root(s));
        for (unsigned k = 0; k < SLOTS && slots == quarry_persist_at(s, sound_root); k++) {
            errno = 0;
            int r = slots[k]                                                  ? quarry_persist_free_from(s, &slots[k])
                    : quarry_persist_alloc_to(s, &slots[k], 100 + k * 999, 0) ? 0
                                                                              : -1;
            if (r) {
                CHECK(errno == EUCLEAN || errno == EINVAL || errno == EALREADY || errno == ENOMEM);
                stopped++;
                break;
            }
        }
        quarry_persist_check(s);
        quarry_persist_close(s);
    }
    printf("%u of %u stopped\n", stopped, 3000 / STRIDE);
    CHECK_GT(stopped, STRIDE == 1 ? 40u : 0u);  // on average 118, deviation 11
}

TEST(every_length) {
    make_sound();
    int fd = open(pt_path, O_RDWR);
    for (size_t n = bytes; n-- > 0;) {
        // Near what is written every length, else one in 509.
        bool near = n < 200 || (n >= QY_PERSIST_UNIT - 4 && n < QY_PERSIST_UNIT + 5000) || n > bytes - 100;
        if (!near && n % 509) continue;
        if (near && n % STRIDE) continue;
        CHECK_EQ(ftruncate(fd, (off_t)n), 0);
        if (!refused(pt_path, QUARRY_PERSIST_READ_ONLY)) TEST_FAIL("length %zu of %zu was accepted", n, bytes);
        if (n % 64 == 0 && !refused(pt_path, 0)) TEST_FAIL("length %zu of %zu was accepted", n, bytes);
    }
    CHECK_EQ(ftruncate(fd, 0), 0);
    close(fd);
    // Longer is no damage: growth that was not finished.
    memset(bad, 0x5A, sizeof bad);
    memcpy(bad, sound, bytes);
    for (size_t more = 1; more < 200000; more += 65521) {
        pt_write(pt_other, bad, bytes + more);
        CHECK(!refused(pt_other, QUARRY_PERSIST_READ_ONLY));
        CHECK(!refused(pt_other, 0));
    }
}

static void header_with(qy_persist_header_t *h, int sum) {
    if (sum) h->sum = qy_persist_sum_of(h);
    memcpy(bad, sound, bytes);
    memcpy(bad, h, sizeof *h);
    pt_write(pt_other, bad, bytes);
}

TEST(foreign_files) {
    uint64_t at;
    make_sound();
    const qy_persist_header_t *good = (const void *)sound;
    qy_persist_header_t h = *good;

    h.version = 2;
    header_with(&h, 1);
    CHECK(!pt_try(pt_other, 0));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK_STR_EQ(quarry_persist_error(&at), "a pool of another version");
    CHECK_EQ(at, 16);

    h = *good;
    h.magic = __builtin_bswap64(h.magic);
    header_with(&h, 0);
    CHECK(!pt_try(pt_other, 0));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK_STR_EQ(quarry_persist_error(NULL), "a pool of a machine with the other byte order");

    h = *good;
    h.order = __builtin_bswap64(h.order);
    header_with(&h, 1);
    CHECK(!pt_try(pt_other, 0));
    CHECK_EQ(errno, EMEDIUMTYPE);

    for (int i = 0; i < 4; i++) {  // places that no pool has
        h = *good;
        *(i == 0 ? &h.words_at : i == 1 ? &h.log_at
                             : i == 2   ? &h.log_words
                                        : &h.heap_at) += 4096;
        header_with(&h, 1);
        CHECK(!pt_try(pt_other, 0));
        CHECK_EQ(errno, EUCLEAN);
    }

    // Another program's file is not touched, also by CREATE.
    memset(bad, 'x', 5000);
    pt_write(pt_other, bad, 5000);
    CHECK(!pt_try(pt_other, QUARRY_PERSIST_CREATE));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK_EQ(pt_read(pt_other, sound, sizeof sound), 5000);
    CHECK_EQ(memcmp(sound, bad, 5000), 0);
    memset(bad, 0, 5000);  // nor is one that begins with zeros
    pt_write(pt_other, bad, 5000);
    CHECK(!pt_try(pt_other, QUARRY_PERSIST_CREATE));
    CHECK_EQ(errno, EMEDIUMTYPE);
    // An empty one may be made into a pool, on request only.
    pt_write(pt_other, bad, 0);
    CHECK(!pt_try(pt_other, 0));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK_EQ(quarry_persist_close(pt_open(pt_other, QUARRY_PERSIST_CREATE)), 0);
}

TEST(things_that_are_no_files) {
    CHECK(!pt_try(pt_folder, QUARRY_PERSIST_READ_ONLY));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK(!pt_try(pt_folder, 0));
    CHECK_EQ(errno, EISDIR);
    unlink(pt_other);
    CHECK_EQ(mkfifo(pt_other, 0600), 0);
    CHECK(!pt_try(pt_other, QUARRY_PERSIST_READ_ONLY));  // and it does not wait for a writer
    CHECK_EQ(errno, EMEDIUMTYPE);
    unlink(pt_other);
    CHECK(!pt_try("/dev/null", 0));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK(!pt_try("/proc/version", QUARRY_PERSIST_READ_ONLY));
    CHECK_EQ(errno, EMEDIUMTYPE);
    CHECK(!pt_try("/nowhere/a.pool", QUARRY_PERSIST_CREATE));
    CHECK_EQ(errno, ENOENT);
}

// A log whose sums are right, and which takes the pool's end back to where there is no file.
TEST(log_that_lies) {
    make_sound();
    memcpy(bad, sound, bytes);
    qy_persist_words_t *w = (void *)(bad + QY_PERSIST_UNIT);
    qy_persist_record_t *r = (void *)(bad + QY_PERSIST_LOG_AT);
    uint64_t number = w->log >> 16;
    memset(w->bins, 0, sizeof w->bins);
    memset(w->bitmap, 0, sizeof w->bitmap);
    w->log = number << 16 | 1;
    r->at = QY_PERSIST_UNIT + offsetof(qy_persist_words_t, end);
    r->old = UINT64_C(1) << 47;
    r->sum = qy_persist_mix(qy_persist_mix(qy_persist_mix(QY_PERSIST_SEED, r->at), r->old), number << 16);
    pt_write(pt_other, bad, bytes);
    for (unsigned readers = 2; readers--;) {
        errno = 0;
        quarry_persist_t *s = pt_try(pt_other, QUARRY_PERSIST_NO_CHECK | (readers ? QUARRY_PERSIST_READ_ONLY : 0));
        if (s) quarry_persist_alloc(s, 100, 0);
        CHECK(!s);
        CHECK_EQ(errno, EUCLEAN);
    }
}

// Free lists that lie: cycles, blocks in use, places inside of blocks.
TEST(lists_that_never_end) {
    make_sound();
    qy_persist_words_t *w = (void *)(bad + QY_PERSIST_UNIT);
    uint64_t frees[64], n = 0;
    for (unsigned b = 0; b < QY_PERSIST_BINS; b++) {
        const qy_persist_words_t *good = (const void *)(sound + QY_PERSIST_UNIT);
        if (good->bins[b]) frees[n++] = good->bins[b];
    }
    CHECK_GT(n, 2);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t targets[] = {frees[i], frees[(i + 1) % n], sound_blocks.at[0], sound_blocks.at[1] + 16, 8, bytes,
            bytes - 16, UINT64_MAX - 15, QY_PERSIST_UNIT};
        for (unsigned k = 0; k < sizeof targets / 8; k++) {
            memcpy(bad, sound, bytes);
            memcpy(bad + frees[i], &targets[k], 8);
            pt_write(pt_other, bad, bytes);
            CHECK(refused(pt_other, QUARRY_PERSIST_READ_ONLY));
            quarry_persist_t *s = pt_try(pt_other, QUARRY_PERSIST_NO_CHECK);
            CHECK(s);
            // whatever they say, they return
            for (unsigned j = 0; j < 50; j++) quarry_persist_alloc(s, 30 + j * 17, 0);
            CHECK_EQ(quarry_persist_check(s), -1);
            quarry_persist_close(s);
        }
    }
    (void)w;
}

TEST_MAIN()
