// SPDX-License-Identifier: MIT
// fuzz_persist.c: any bytes as the file of a persistent pool: open, walk, check, operate. It may be refused in
// every way but a crash, a hang, or a read outside of it.
//
// With libFuzzer (clang -fsanitize=fuzzer,address -DQUARRY_LIBFUZZER) inputs are what it thinks of. Without, as in
// the suite, they are a small pool with damage of many kinds, by the seed.
//
// An input: the first byte is the mode; then records of (offset: 3 bytes, value: 1 byte) that are applied to a sound
// pool, with its header's and state's sums put right if the mode says so; or, with bit 7, the file itself.
#include "persist_test.h"

#define SLOTS 16

static char sound[1 << 19], file[1 << 19];
static size_t sound_bytes;

static void make_sound(void) {
    unlink(pt_path);
    quarry_persist_t *s = quarry_persist_open(
        pt_path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE, .log_words = 256, .max_bytes = 1 << 24});
    CHECK(s);
    uint64_t *slots = pt_slots(s, SLOTS);
    for (unsigned i = 0; i < SLOTS; i++) CHECK(quarry_persist_alloc_to(s, &slots[i], 30 + i * 60, QUARRY_POOL_ZERO));
    for (unsigned i = 0; i < SLOTS; i += 3) CHECK_EQ(quarry_persist_free_from(s, &slots[i]), 0);
    // A transaction that was interrupted, so that there is a log to damage.
    CHECK_EQ(quarry_persist_begin(s), 0);
    CHECK(quarry_persist_alloc_to(s, &slots[0], 500, 0));
    qy_persist_abandon(s);
    sound_bytes = pt_read(pt_path, sound, sizeof sound);
}

static int look(uint64_t at, size_t size, void *arg) {
    quarry_persist_t *s = arg;
    volatile const char *p = quarry_persist_at(s, at);
    return p && size ? (p[0] + p[size - 1]) * 0 : 0;
}

static void operate(quarry_persist_t *s) {
    uint64_t root = quarry_persist_root(s);
    quarry_persist_walk(s, look, s);
    quarry_persist_check(s);
    for (unsigned i = 0; i < 6; i++) quarry_persist_alloc(s, 20 + i * 200, i % 2 ? QUARRY_POOL_ZERO : 0);
    if (quarry_persist_size(s, root) >= SLOTS * 8) {
        uint64_t *slots = quarry_persist_at(s, root);
        for (unsigned i = 0; i < SLOTS; i++) quarry_persist_free_from(s, &slots[i]);
        quarry_persist_resize_at(s, &slots[1], 5000, QUARRY_POOL_ZERO);
    }
    quarry_persist_sync(s);
}

static void try_file(const char *bytes, size_t n, unsigned mode) {
    static const unsigned flags[] = {QUARRY_PERSIST_READ_ONLY, 0, QUARRY_PERSIST_JOURNAL,
        QUARRY_PERSIST_NO_CHECK | QUARRY_PERSIST_ACCEPT_TORN,
        QUARRY_PERSIST_READ_ONLY | QUARRY_PERSIST_NO_CHECK | QUARRY_PERSIST_ACCEPT_TORN,
        QUARRY_PERSIST_JOURNAL | QUARRY_PERSIST_ACCEPT_TORN | QUARRY_PERSIST_NO_CHECK};
    pt_write(pt_other, bytes, n);
    quarry_persist_t *s = quarry_persist_open(
        pt_other, &(quarry_persist_options_t){.flags = flags[mode % 6], .max_bytes = 1 << 24, .pool.limit = 1 << 21});
    if (!s) return;
    operate(s);
    quarry_persist_close(s);
}

// As a forger would: wrong contents under right sums.
static void put_sums_right(void) {
    qy_persist_header_t *h = (void *)file;
    qy_persist_state_t *state = (void *)(file + QY_PERSIST_SECTOR);
    qy_persist_mark_t *mark = (void *)(file + 2 * QY_PERSIST_SECTOR);
    h->sum = qy_persist_sum_of(h);
    state->sum = qy_persist_sum_of(state);
    mark->sum = qy_persist_sum_of(mark);
    for (size_t i = 0; i < 64; i++) {
        qy_persist_record_t *r = (void *)(file + QY_PERSIST_LOG_AT + i * sizeof *r);
        const qy_persist_words_t *w = (const void *)(file + QY_PERSIST_UNIT);
        r->sum = qy_persist_mix(qy_persist_mix(qy_persist_mix(QY_PERSIST_SEED, r->at), r->old), w->log >> 16 << 16 | i);
    }
    for (size_t at = QY_PERSIST_LOG_AT + 256 * sizeof(qy_persist_record_t); at + 8 < 2 * QY_PERSIST_UNIT; at += 16) {
        uint64_t *header = (void *)(file + at - at % 16 + 8);
        uint64_t place = at - at % 16 + 16;
        if (*header >> 48) *header = qy_block_header(place, *header & QY_BLOCK_LOW48, 0);
    }
}

static void one_input(const uint8_t *data, size_t n) {
    if (!sound_bytes) make_sound();
    if (!n) return;
    if (data[0] & 0x80) {
        try_file((const char *)data + 1, n - 1, data[0]);
        return;
    }
    memcpy(file, sound, sound_bytes);
    for (size_t i = 1; i + 4 <= n; i += 4) {
        size_t at = data[i] | (size_t)data[i + 1] << 8 | (size_t)(data[i + 2] & 7) << 16;
        if (at < sound_bytes) file[at] = (char)data[i + 3];
    }
    if (data[0] & 0x40) put_sums_right();
    try_file(file, sound_bytes, data[0] & 0x3F);
}

#ifdef QUARRY_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    one_input(data, n);
    return 0;
}
#else
// Where damage is interesting: headers, words, the log, blocks.
static void random_input(uint64_t *seed) {
    static const uint32_t places[][2] = {
        {0, 80}, {512, 40}, {1024, 56}, {65536, 120}, {65616, 4800}, {73728, 600}, {81920 - 4096, 12000}};
    uint8_t data[1 + 4 * 24];
    uint64_t r = test_random(seed);
    size_t n = 1 + r % 24;
    data[0] = (uint8_t)(r >> 20 & 0x7F);
    for (size_t i = 0; i < n; i++) {
        uint64_t q = test_random(seed);
        const uint32_t *place = places[q % 7];
        uint32_t at = place[0] + (uint32_t)(q >> 8) % place[1];
        data[1 + i * 4] = (uint8_t)at;
        data[2 + i * 4] = (uint8_t)(at >> 8);
        data[3 + i * 4] = (uint8_t)(at >> 16);
        data[4 + i * 4] = (uint8_t)(q >> 60 < 8 ? q >> 40 : q >> 60 < 12 ? 0
                                                                         : 1u << (q >> 50 & 7));
    }
    one_input(data, 1 + n * 4);
}

TEST(damage_of_many_kinds) {
    uint64_t seed = test_seed;
    for (unsigned i = 0; i < (QY_ASAN || QY_TSAN ? 3000 : 20000); i++) random_input(&seed);
}

TEST(files_of_noise) {
    static uint8_t data[70000];
    uint64_t seed = test_seed;
    for (unsigned i = 0; i < 300; i++) {
        for (size_t k = 0; k < sizeof data; k++) data[k] = (uint8_t)test_random(&seed);
        data[0] |= 0x80;
        if (i % 2 && sound_bytes) memcpy(data + 1, sound, 64);
        one_input(data, 1 + test_random(&seed) % sizeof data);
    }
}

TEST_MAIN()
#endif
