// SPDX-License-Identifier: MIT
// test_persist_kill.c: the process dies: before each single store of a script, again during recovery, and at
// a thousand random moments of a random workload. Broken protocols are noticed.
#include <pthread.h>
#include <signal.h>

#include "persist_test.h"

// ---- a script, each of whose stores is the last one once ---------------------------------------------------

typedef enum kind { ALLOC,
    RESIZE,
    FREE,
    SWAP,       // a transaction: two slots exchange their blocks
    REPLACE,    // a transaction: a slot's block is freed, and it gets a new one, filled before commit
    TAKE_BACK,  // the same, aborted
} kind_t;
typedef struct op {
    kind_t kind;
    unsigned slot, other;
    size_t bytes;
} op_t;

#define SLOTS 12
static const op_t script[] = {
    {ALLOC, 0, 0, 40},
    {ALLOC, 1, 0, 1000},
    {ALLOC, 2, 0, 40},
    {ALLOC, 3, 0, 5000},
    {ALLOC, 4, 0, 24},
    {FREE, 1, 0, 0},      // between two blocks in use
    {ALLOC, 5, 0, 300},   // a part of it
    {RESIZE, 5, 0, 600},  // into the rest
    {RESIZE, 5, 0, 200},  // and back
    {FREE, 0, 0, 0},
    {FREE, 2, 0, 0},        // neighbours on one side and on both
    {RESIZE, 3, 0, 60000},  // moves
    {SWAP, 3, 4, 0},
    {REPLACE, 4, 0, 700},
    {TAKE_BACK, 5, 0, 99},
    {REPLACE, 6, 0, 64},
    {ALLOC, 7, 0, 300000},  // the file grows
    {FREE, 6, 0, 0},
    {ALLOC, 8, 0, 24},
    {FREE, 7, 0, 0},
    {ALLOC, 9, 0, 290000},
    {FREE, 3, 0, 0},
    {FREE, 9, 0, 0},
};
#define OPS (sizeof script / sizeof *script)

// Which slots have a block of what serial after each operation; row 0: before the first.
static struct {
    uint64_t serial[SLOTS], bytes[SLOTS];
} model[OPS + 1];

static void build_model(void) {
    for (unsigned i = 0; i < OPS; i++) {
        const op_t *o = &script[i];
        model[i + 1] = model[i];
#define AFTER(slot) model[i + 1].serial[slot]
#define BYTES(slot) model[i + 1].bytes[slot]
        if (o->kind == FREE) AFTER(o->slot) = BYTES(o->slot) = 0;
        if (o->kind == ALLOC || o->kind == RESIZE || o->kind == REPLACE)
            AFTER(o->slot) = i + 1, BYTES(o->slot) = o->bytes;
        if (o->kind == SWAP) {
            AFTER(o->slot) = model[i].serial[o->other], AFTER(o->other) = model[i].serial[o->slot];
            BYTES(o->slot) = model[i].bytes[o->other], BYTES(o->other) = model[i].bytes[o->slot];
        }
    }
}

static void need(bool good, const char *what) {
    if (!good) TEST_FAIL("%s: %s, %s", what, quarry_persist_error(NULL), strerror(errno));
}

static void play(quarry_persist_t *s, uint64_t *slots, const op_t *o, uint64_t serial) {
    size_t all = o->bytes + sizeof(pt_block_t);
    switch (o->kind) {
    case ALLOC:
        need(quarry_persist_alloc_to(s, &slots[o->slot], all, QUARRY_POOL_ZERO), "alloc");
        pt_fill(s, slots[o->slot], serial, o->bytes);
        break;
    case RESIZE:
        // The promise must not name more than there will be.
        pt_set(&((pt_block_t *)quarry_persist_at(s, slots[o->slot]))->stamp, 0);
        need(quarry_persist_resize_at(s, &slots[o->slot], all, 0), "resize");
        pt_fill(s, slots[o->slot], serial, o->bytes);
        break;
    case FREE: need(!quarry_persist_free_from(s, &slots[o->slot]), "free"); break;
    case SWAP: {
        uint64_t a = slots[o->slot], b = slots[o->other];
        need(!quarry_persist_begin(s), "begin");
        need(!quarry_persist_set(s, &slots[o->slot], b), "set");
        need(!quarry_persist_set(s, &slots[o->other], a), "set");
        need(!quarry_persist_commit(s), "commit");
        break;
    }
    case REPLACE:
    case TAKE_BACK:
        need(!quarry_persist_begin(s), "begin");
        need(!quarry_persist_free_from(s, &slots[o->slot]), "free");
        need(quarry_persist_alloc_to(s, &slots[o->slot], all, 0), "alloc");
        pt_fill(s, slots[o->slot], serial, o->bytes);
        if (o->kind == REPLACE) need(!quarry_persist_commit(s), "commit");
        else need(!quarry_persist_abort(s), "abort");
        break;
    }
}

// ---- dying at a store ---------------------------------------------------------------------------------------

static uint64_t dies_at, stores;
static void count_store(void *where) {
    (void)where;
    if (++stores == dies_at) _exit(99);
}

static _Atomic uint32_t *begun;  // shared with children: the operation that is on; in a storm, how many are done
static void share_begun(void) {
    if (!begun) begun = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(begun != MAP_FAILED);
    atomic_store(begun, 0);
}

static void run_script(void) {
    quarry_persist_t *s = pt_try(pt_path, 0);
    if (!s) _exit(98);
    uint64_t *slots = pt_slots(s, SLOTS);
    qy_persist_hook = count_store;
    for (unsigned i = 0; i < OPS; i++) {
        atomic_store(begun, i);
        play(s, slots, &script[i], i + 1);
    }
    qy_persist_hook = NULL;
    _exit(0);  // without closing: only a store may be the last thing
}

static void recover_only(void) {
    qy_persist_hook = count_store;
    quarry_persist_t *s = pt_try(pt_path, 0);
    _exit(s ? 0 : 98);
}

// Runs body in a child that dies before its k-th store. True: it got through.
static bool child_dies(void (*body)(void), uint64_t k, int mutant) {
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        dies_at = k;
        stores = 0;
        qy_persist_mutant = mutant;
        body();
        _exit(97);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 99 && WEXITSTATUS(status) != 0))
        TEST_FAIL("the child ended with %x", (unsigned)status);
    return WEXITSTATUS(status) == 0;
}

// The state is that before or after operation `op`. NULL, or what is wrong.
static const char *audit_script(unsigned op) {
    pt_pool_flags = QUARRY_POOL_PASS;
    quarry_persist_t *s = pt_try(pt_path, 0);
    pt_pool_flags = 0;
    if (!s) return quarry_persist_error(NULL);
    const char *wrong = pt_audit(s, SLOTS);
    const uint64_t *slots = wrong ? NULL : quarry_persist_at(s, quarry_persist_root(s));
    bool before = true, after = true;
    for (unsigned i = 0; i < SLOTS && !wrong; i++) {
        const pt_block_t *b = slots[i] ? quarry_persist_at(s, slots[i]) : NULL;
        uint64_t serial = b && b->stamp ? b->serial : 0;
        bool touched = i == script[op].slot || (script[op].kind == SWAP && i == script[op].other);
        // What the operation is about may be unstamped; all else has its old contents.
        if (!touched && serial != model[op].serial[i]) wrong = "a block that was not touched has changed";
        before &= !b == !model[op].serial[i] && (!serial || serial == model[op].serial[i]);
        after &= !b == !model[op + 1].serial[i] &&
                 (!serial || serial == model[op + 1].serial[i] || script[op].kind == RESIZE);
    }
    if (!wrong && !before && !after) wrong = "an operation happened in part";
    qy_persist_abandon(s);
    return wrong;
}

static char image[1 << 22];
static size_t image_bytes;

static void make_template(void) {
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK(pt_slots(s, SLOTS));
    CHECK_EQ(quarry_persist_close(s), 0);
    image_bytes = pt_read(pt_path, image, sizeof image);
    share_begun();
    build_model();
}

TEST(killed_before_every_store) {
    make_template();
    unsigned points = 0;
    for (uint64_t k = 1;; k++) {
        pt_write(pt_path, image, image_bytes);
        bool through = child_dies(run_script, k, 0);
        const char *wrong = audit_script(atomic_load(begun));
        if (wrong)
            TEST_FAIL(
                "killed before store %llu, in operation %u: %s", (unsigned long long)k, atomic_load(begun), wrong);
        if (through) break;
        points++;
    }
    printf("%u points\n", points);
    CHECK_GT(points, 1000);
}

// Depth 2: recovery dies before each of its stores, too.
TEST(killed_in_recovery) {
    static char torn[sizeof image];
    make_template();
    unsigned points = 0;
    for (uint64_t k = 1 + test_seed % 29;; k += 29) {
        pt_write(pt_path, image, image_bytes);
        if (child_dies(run_script, k, 0)) break;
        unsigned op = atomic_load(begun);
        size_t bytes = pt_read(pt_path, torn, sizeof torn);
        for (uint64_t m = 1;; m++, points++) {
            pt_write(pt_path, torn, bytes);
            bool through = child_dies(recover_only, m, 0);
            const char *wrong = audit_script(op);
            if (wrong)
                TEST_FAIL("killed before store %llu, then before store %llu of recovery: %s", (unsigned long long)k,
                    (unsigned long long)m, wrong);
            if (through) break;
        }
    }
    printf("%u points\n", points);
    CHECK_GT(points, 100);
}

// Can this test fail at all? Each broken protocol must be found out.
TEST(broken_protocols_are_noticed) {
    make_template();
    for (int mutant = 1; mutant <= 4; mutant++) {
        const char *wrong = NULL;
        uint64_t k = 1;
        for (bool through = false; !through && !wrong; k++) {
            pt_write(pt_path, image, image_bytes);
            through = child_dies(run_script, k, mutant);
            wrong = audit_script(atomic_load(begun));
        }
        if (!wrong) TEST_FAIL("protocol %d is broken and nothing was noticed", mutant);
        printf("broken protocol %d: store %llu: %s\n", mutant, (unsigned long long)k - 1, wrong);
    }
}

// ---- SIGKILL from outside -----------------------------------------------------------------------------------

#define THREADS 2
#define EACH 200

typedef struct worker {
    quarry_persist_t *s;
    uint64_t *slots, seed;
} worker_t;

static void random_op(quarry_persist_t *s, uint64_t *slots, uint64_t *seed) {
    uint64_t r = test_random(seed), i = r % EACH, k = (r >> 16) % EACH, serial = test_random(seed) >> 20;
    size_t bytes = (r >> 32) % (r % 16 ? 300 : 9000);
    if (!slots[i]) {
        if (!quarry_persist_alloc_to(s, &slots[i], bytes + sizeof(pt_block_t), QUARRY_POOL_ZERO)) _exit(96);
        pt_fill(s, slots[i], serial, bytes);
    } else if (r >> 60 < 7) {
        if (quarry_persist_free_from(s, &slots[i])) _exit(95);
    } else if (r >> 60 < 12) {
        pt_set(quarry_persist_at(s, slots[i]), 0);
        if (!quarry_persist_resize_at(s, &slots[i], bytes + sizeof(pt_block_t), 0)) _exit(94);
        pt_fill(s, slots[i], serial, bytes);
    } else {
        if (quarry_persist_begin(s)) _exit(93);
        uint64_t a = slots[i], b = slots[k];
        if (quarry_persist_set(s, &slots[i], b) || quarry_persist_set(s, &slots[k], a)) _exit(92);
        if (i != k && quarry_persist_free_from(s, &slots[k])) _exit(91);
        if (quarry_persist_commit(s)) _exit(90);
    }
}

static void *work(void *arg) {
    worker_t *w = arg;
    for (;;) {
        random_op(w->s, w->slots, &w->seed);
        atomic_fetch_add(begun, 1);
    }
    return NULL;
}

static void storm_child(uint64_t seed) {
    static worker_t workers[THREADS];
    quarry_persist_t *s = pt_try(pt_path, 0);
    if (!s) _exit(89);
    uint64_t *slots = pt_slots(s, THREADS * EACH);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_t id;
        workers[i] = (worker_t){s, slots + i * EACH, seed + i * 77777 + 1};
        if (pthread_create(&id, NULL, work, &workers[i])) _exit(88);
    }
    for (;;) pause();
}

// Kills the child at a random moment, in three of four rounds one after its first operation: where the disk is
// slow to write through, a short while is over before a child has opened the file. Returns how many operations it did.
static unsigned kill_some_time(pid_t pid, unsigned round, uint64_t *seed, unsigned most_us) {
    for (unsigned ms = 0; round % 4 && !atomic_load(begun) && ms < 20000; ms++) usleep(1000);
    usleep((unsigned)(test_random(seed) % most_us));
    kill(pid, SIGKILL);
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status)) TEST_FAIL("kill %u: the child ended with %x", round, (unsigned)status);
    return atomic_exchange(begun, 0);
}

TEST(killed_from_outside) {
    const char *env = getenv("QUARRY_KILLS");
    unsigned kills = env ? (unsigned)atoi(env) : QY_ASAN || QY_TSAN ? 100
                                                                    : 1000;
    uint64_t seed = test_seed;
    quarry_persist_t *s = pt_new(pt_path, 0);
    CHECK(pt_slots(s, THREADS * EACH));
    CHECK_EQ(quarry_persist_close(s), 0);
    uint64_t kept = 0, done = 0;
    share_begun();
    for (unsigned i = 0; i < kills; i++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            storm_child(test_random(&seed));
            _exit(0);
        }
        test_random(&seed);
        done += kill_some_time(pid, i, &seed, 3000);
        s = pt_open(pt_path, 0);
        const char *wrong = pt_audit(s, THREADS * EACH);
        if (wrong) TEST_FAIL("kill %u: %s", i, wrong);
        kept += pt_found.n;
        qy_persist_abandon(s);
    }
    printf("%u kills in %llu operations, %llu blocks looked at\n", kills, (unsigned long long)done,
        (unsigned long long)kept);
    CHECK_GE(done, kills / 2);
    CHECK_GT(kept, kills);
}

// Journal mode: whatever was not synced is gone together.
TEST(journal_killed_from_outside) {
    uint64_t seed = test_seed + 1;
    quarry_persist_t *s = pt_new(pt_path, QUARRY_PERSIST_JOURNAL);
    CHECK(pt_slots(s, EACH));
    CHECK_EQ(quarry_persist_close(s), 0);
    unsigned synced = 0;
    share_begun();
    for (unsigned i = 0; i < 100; i++) {
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (pid == 0) {
            s = pt_try(pt_path, QUARRY_PERSIST_JOURNAL);
            if (!s) _exit(89);
            for (uint64_t own = seed + 1;;) {
                for (unsigned k = 0; k < 20; k++) random_op(s, pt_slots(s, EACH), &own);
                if (quarry_persist_sync(s)) _exit(87);
                atomic_fetch_add(begun, 1);
            }
        }
        synced += kill_some_time(pid, i, &seed, 5000);
        s = pt_open(pt_path, i % 2 ? QUARRY_PERSIST_READ_ONLY : QUARRY_PERSIST_JOURNAL);
        const char *wrong = pt_audit(s, EACH);
        if (wrong) TEST_FAIL("kill %u: %s", i, wrong);
        qy_persist_abandon(s);
    }
    CHECK_GE(synced, 50);
}

TEST_MAIN()
