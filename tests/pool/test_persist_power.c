// SPDX-License-Identifier: MIT
// test_persist_power.c: the power fails: every write to the file is recorded, and disks are made up on which
// any of those since the last flush are missing, sector by sector.
#include "persist_test.h"

#define SLOTS 64
#define DISK_MAX ((size_t)4 << 20)
#define SECTOR 512u
#define WRITES_MAX 8192u

// ---- a disk -------------------------------------------------------------------------------------------------

// What is on the plate, and the sectors that may or may not be.
static struct {
    char plate[DISK_MAX];
    uint64_t bytes;      // its size on the plate
    uint64_t now_bytes;  // the file's size as the process sees it
    struct {
        uint64_t at;
        char data[SECTOR];
    } writes[WRITES_MAX];
    unsigned n;
} disk;

static char made[DISK_MAX];

// The states that the pool had when a sync was done, and the one that is being synced.
static uint64_t state_before, state_after;
static uint64_t disks_seen;
static const char *violation;  // the first
static bool looking;           // at a made-up disk: its own writes are not recorded
static uint64_t chance;
static unsigned tries;

// A number for everything a user can see: root, places and contents of all blocks.
static uint64_t contents;
static int add_block(uint64_t at, size_t size, void *arg) {
    contents = qy_persist_mix(contents, at);
    contents = qy_persist_sum(quarry_persist_at(arg, at), size & ~(size_t)7, contents);
    return 0;
}
static uint64_t state_of(quarry_persist_t *s) {
    contents = quarry_persist_root(s);
    CHECK_EQ(quarry_persist_walk(s, add_block, s), 0);
    return contents;
}

static void look_at(uint64_t bytes) {
    if (violation) return;
    looking = true;
    pt_write(pt_other, made, bytes);
    quarry_persist_t *s = pt_try(pt_other, QUARRY_PERSIST_JOURNAL);
    if (!s) {
        violation = quarry_persist_error(NULL);
    } else {
        violation = pt_audit(s, SLOTS);
        uint64_t state = violation ? 0 : state_of(s);
        if (!violation && state != state_before && state != state_after) violation = "the state is that of no sync";
        qy_persist_abandon(s);
    }
    disks_seen++;
    looking = false;
}

// which: one bit per write, taken from `seed`; 0: none, 1: all.
static void make_disk(uint64_t seed, int missing) {
    memcpy(made, disk.plate, DISK_MAX);
    uint64_t bytes = seed & 2 ? disk.now_bytes : disk.bytes;
    if (seed & 2 && disk.now_bytes < disk.bytes) memset(made + disk.now_bytes, 0, DISK_MAX - disk.now_bytes);
    for (unsigned i = 0; i < disk.n; i++) {
        bool there = missing >= 0 ? (int)i != missing : seed == 1 || (seed && test_random(&seed) % 2);
        if (!there) continue;
        // Worse than a disk should be: the record that commits is torn word by word.
        bool tear = disk.writes[i].at == 2 * SECTOR && (seed & 8);
        for (unsigned w = 0; w < SECTOR; w += 8)
            if (!tear || test_random(&seed) % 2) memcpy(made + disk.writes[i].at + w, disk.writes[i].data + w, 8);
        if (bytes < disk.writes[i].at + SECTOR) bytes = disk.writes[i].at + SECTOR;
    }
    look_at(bytes);
}

static void fail_power(void) {
    make_disk(0, -1);
    make_disk(1, -1);
    for (unsigned i = 0; i < tries; i++) make_disk(test_random(&chance) | 4, -1);
    for (unsigned i = 0; i < 2 && disk.n; i++) make_disk(2, (int)(test_random(&chance) % disk.n));  // all but one
}

static void record(qy_file_event_t event, const void *data, uint64_t bytes, uint64_t offset) {
    if (looking) return;
    fail_power();
    if (event == QY_FILE_EVENT_WRITE) {
        CHECK_EQ(offset % SECTOR, 0);
        CHECK_EQ(bytes % SECTOR, 0);
        CHECK_LE(offset + bytes, DISK_MAX);
        for (uint64_t i = 0; i < bytes; i += SECTOR) {
            CHECK_LT(disk.n, WRITES_MAX);
            disk.writes[disk.n].at = offset + i;
            memcpy(disk.writes[disk.n++].data, (const char *)data + i, SECTOR);
        }
        if (disk.now_bytes < offset + bytes) disk.now_bytes = offset + bytes;
    } else if (event == QY_FILE_EVENT_SIZE) {
        disk.now_bytes = bytes ? (offset + bytes > disk.now_bytes ? offset + bytes : disk.now_bytes) : offset;
    } else if (event == QY_FILE_EVENT_SYNC) {
        for (unsigned i = 0; i < disk.n; i++) memcpy(disk.plate + disk.writes[i].at, disk.writes[i].data, SECTOR);
        disk.n = 0;
        if (disk.now_bytes < disk.bytes) memset(disk.plate + disk.now_bytes, 0, DISK_MAX - disk.now_bytes);
        disk.bytes = disk.now_bytes;
    }
}

static void plug_in(void) {
    disk.n = 0;
    memset(disk.plate, 0, DISK_MAX);
    disk.bytes = disk.now_bytes = pt_read(pt_path, disk.plate, DISK_MAX);
    violation = NULL;
    disks_seen = 0;
    qy_os_file_hook = record;
}

static void change(quarry_persist_t *s, uint64_t *seed) {
    uint64_t *slots = pt_slots(s, SLOTS), r = test_random(seed), i = r % SLOTS;
    size_t bytes = (r >> 32) % (r % 8 ? 200 : 20000);
    if (slots[i]) CHECK_EQ(quarry_persist_free_from(s, &slots[i]), 0);
    else CHECK(quarry_persist_alloc_to(s, &slots[i], bytes + sizeof(pt_block_t), QUARRY_POOL_ZERO));
    if (slots[i]) pt_fill(s, slots[i], r, bytes);
}

// Syncs of some changes each, at every event of which the power fails in many ways.
static void run_journal(unsigned syncs, int mutant) {
    uint64_t seed = test_seed;
    quarry_persist_t *s = pt_new(pt_path, QUARRY_PERSIST_JOURNAL);
    pt_slots(s, SLOTS);
    CHECK_EQ(quarry_persist_sync(s), 0);
    state_before = state_after = state_of(s);
    plug_in();
    qy_persist_mutant = mutant;
    for (unsigned i = 0; i < syncs && !violation; i++) {
        for (unsigned k = 0; k < 1 + i % 7; k++) change(s, &seed);
        fail_power();
        state_after = state_of(s);
        CHECK_EQ(quarry_persist_sync(s), 0);
        state_before = state_after;
        fail_power();  // what was done is kept
    }
    qy_persist_mutant = 0;
    qy_os_file_hook = NULL;
    CHECK_EQ(quarry_persist_close(s), 0);
}

TEST(journal_survives_power_failure) {
    chance = test_seed;
    tries = QY_ASAN || QY_TSAN ? 2 : 12;
    run_journal(QY_ASAN || QY_TSAN ? 10 : 30, 0);
    if (violation) TEST_FAIL("disk %llu: %s", (unsigned long long)disks_seen, violation);
    printf("%llu disks\n", (unsigned long long)disks_seen);
    CHECK_GT(disks_seen, 500);
}

// A pool with a journal whose second sync meets a disk that fails at its n-th write, and what that sync answered.
static quarry_persist_t *after_a_sync_that_fails(unsigned n, int *ret) {
    uint64_t seed = test_seed;
    quarry_persist_t *s = pt_new(pt_path, QUARRY_PERSIST_JOURNAL);
    pt_slots(s, SLOTS);
    for (unsigned i = 0; i < 20; i++) change(s, &seed);
    CHECK_EQ(quarry_persist_sync(s), 0);
    state_before = state_of(s);
    for (unsigned i = 0; i < 20; i++) change(s, &seed);
    state_after = state_of(s);
    quarry_os_fault(n, 1, 1u << QY_OS_FILE_WRITE);
    *ret = quarry_persist_sync(s);
    quarry_os_fault(0, 0, 0);
    return s;
}

// And recovery may be interrupted in the same way. First the disk fails at the n-th write of a sync, from there on;
// then the file is opened while the power fails at every event.
TEST(power_fails_again_in_recovery) {
    static char first[DISK_MAX];
    unsigned finished = 0, undone = 0;
    tries = 6;
    for (unsigned n = 1;; n++) {
        chance = test_seed + n;
        int r;
        quarry_persist_t *s = after_a_sync_that_fails(n, &r);
        qy_persist_abandon(s);
        if (r == 0) break;
        size_t bytes = pt_read(pt_path, first, sizeof first);
        for (unsigned i = 0; i < 3; i++) {
            pt_write(pt_path, first, bytes);
            plug_in();
            s = pt_try(pt_path, QUARRY_PERSIST_JOURNAL);
            qy_os_file_hook = NULL;
            if (!s) TEST_FAIL("%s", quarry_persist_error(NULL));
            if (violation) TEST_FAIL("write %u, disk %llu: %s", n, (unsigned long long)disks_seen, violation);
            uint64_t state = state_of(s);
            CHECK(state == state_after || state == state_before);
            *(state == state_after ? &finished : &undone) += 1;
            qy_persist_abandon(s);
        }
    }
    printf("%u syncs finished by recovery, %u undone\n", finished, undone);
    CHECK(finished && undone);
}

// The disk fails at the n-th write of a sync, and then refuses growth: what the sync has committed stays.
TEST(growth_is_refused_after_a_failed_sync) {
    unsigned finished = 0;
    for (unsigned n = 1;; n++) {
        int r;
        quarry_persist_t *s = after_a_sync_that_fails(n, &r);
        quarry_os_fault(1, 1, 1u << QY_OS_FILE_ALLOCATE);
        CHECK(!quarry_persist_alloc(s, DISK_MAX, 0));
        CHECK_EQ(errno, ENOSPC);
        quarry_os_fault(0, 0, 0);
        qy_persist_abandon(s);
        s = pt_try(pt_path, QUARRY_PERSIST_JOURNAL);
        if (!s) TEST_FAIL("write %u: %s", n, quarry_persist_error(NULL));
        uint64_t state = state_of(s);
        CHECK(state == state_after || state == state_before);
        if (r && state == state_after) finished++;
        qy_persist_abandon(s);
        if (r == 0) break;
    }
    printf("%u syncs finished by recovery\n", finished);
    CHECK(finished);
}

TEST(broken_syncs_are_noticed) {
    chance = test_seed;
    tries = 24;
    for (int mutant = 5; mutant <= 7; mutant++) {
        run_journal(30, mutant);
        if (!violation) TEST_FAIL("sync %d is broken and nothing was noticed", mutant);
        printf("broken sync %d: disk %llu: %s\n", mutant, (unsigned long long)disks_seen, violation);
    }
}

// Shared mode promises less, and says so: after a power failure the pool is refused, whatever is on the disk.
TEST(shared_mode_knows_that_power_failed) {
    static char synced[DISK_MAX], later[DISK_MAX];
    uint64_t seed = test_seed, accepted = 0;
    qy_os_faked_boot_id = 1;
    quarry_persist_t *s = pt_new(pt_path, 0);
    pt_slots(s, SLOTS);
    for (unsigned i = 0; i < 40; i++) change(s, &seed);
    CHECK_EQ(quarry_persist_sync(s), 0);
    size_t bytes = pt_read(pt_path, synced, DISK_MAX);
    for (unsigned i = 0; i < 40; i++) change(s, &seed);
    size_t later_bytes = pt_read(pt_path, later, DISK_MAX);
    qy_persist_abandon(s);

    for (unsigned i = 0; i < 400; i++) {
        size_t size = i % 2 ? bytes : later_bytes;
        for (size_t at = 0; at < size; at += SECTOR)
            memcpy(made + at, (test_random(&seed) % (2u << i % 14) == 0 && at < bytes ? synced : later) + at, SECTOR);
        pt_write(pt_other, made, size);
        qy_os_faked_boot_id = 2;
        CHECK(!pt_try(pt_other, i % 3 ? 0 : QUARRY_PERSIST_READ_ONLY));
        CHECK_EQ(errno, EUCLEAN);
        // Those who insist get a sound structure or an error.
        s = pt_try(pt_other, QUARRY_PERSIST_ACCEPT_TORN);
        if (s) {
            CHECK_EQ(quarry_persist_check(s), 0);
            CHECK(quarry_persist_alloc(s, 100, 0));
            CHECK_EQ(quarry_persist_close(s), 0);
            accepted++;
            CHECK((s = pt_try(pt_other, 0)));  // it is whole again
            qy_persist_abandon(s);
        }
    }
    printf("%llu of 400 mixtures have a sound structure\n", (unsigned long long)accepted);
    CHECK(accepted > 0 && accepted < 400);
    // The same start of the machine: only the process died.
    pt_write(pt_other, later, later_bytes);
    qy_os_faked_boot_id = 1;
    s = pt_open(pt_other, 0);
    qy_persist_abandon(s);
    qy_os_faked_boot_id = 0;
}

// "Closed" is written when everything else is on the disk, "open" before the first change.
static unsigned order, at_state[2], at_sync, at_msync;
static void watch_order(qy_file_event_t event, const void *data, uint64_t bytes, uint64_t offset) {
    order++;
    if (event == QY_FILE_EVENT_MSYNC) at_msync = order;
    if (event == QY_FILE_EVENT_SYNC) at_sync = order;
    if (event == QY_FILE_EVENT_WRITE && offset == QY_PERSIST_SECTOR && bytes == QY_PERSIST_SECTOR)
        at_state[*(const uint64_t *)data] = order;
}

static uint64_t first_store;
static void watch_stores(void *where) {
    (void)where;
    if (!first_store) first_store = ++order;
}

TEST(shared_mode_marks_in_order) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK_EQ(quarry_persist_close(s), 0);
    qy_os_file_hook = watch_order;
    qy_persist_hook = watch_stores;
    s = pt_open(pt_path, 0);
    CHECK(at_state[1] && at_sync > at_state[1] && !first_store);
    pt_slots(s, SLOTS);
    CHECK_GT(first_store, at_sync);
    CHECK_EQ(quarry_persist_close(s), 0);
    qy_os_file_hook = NULL;
    qy_persist_hook = NULL;
    CHECK_GT(at_msync, first_store);
    CHECK_EQ(at_state[0], at_msync + 2);  // msync, flush, mark, flush
    CHECK_EQ(at_sync, at_state[0] + 1);
}

TEST_MAIN()
