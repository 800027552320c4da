// SPDX-License-Identifier: MIT
// test_trace_threads.c: what pools tell while threads use them: in the order in which it can be, whoever frees what.
#include <quarry/fifo.h>
#include <quarry/heap.h>
#include <quarry/pages.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/scope.h>
#include <quarry/tlsf.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "pool/pow2.h"
#include "trace_model.h"

#define THREADS 4
#define SLOTS 64

static unsigned steps;  // of each thread

static quarry_pool_t *pool;
static _Atomic(void *) slots[SLOTS];
static size_t usual, largest;  // sizes: seven of eight, and one

static void in_threads(void *(*fn)(void *arg)) {
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, fn, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(t[i], NULL) == 0);
}

// ---- pools that any thread may use ------------------------------------------------------------------------

static void *share(void *arg) {
    uint64_t rng = test_seed + (uintptr_t)arg;
    for (unsigned i = 0; i < steps; i++) {
        _Atomic(void *) *slot = &slots[test_random(&rng) % SLOTS];
        size_t size = test_random(&rng) % (test_random(&rng) % 8 ? usual : largest);
        void *p = atomic_exchange(slot, NULL);
        if (p && test_random(&rng) % 2) {
            void *to = quarry_pool_resize(pool, p, QUARRY_SIZE_UNKNOWN, size, 8, 0);
            if (to) p = to;
        } else {
            quarry_pool_free(pool, p, QUARRY_SIZE_UNKNOWN);
            p = quarry_pool_alloc(pool, size, 8, 0);
        }
        quarry_pool_free(pool, atomic_exchange(slot, p), QUARRY_SIZE_UNKNOWN);
    }
    return NULL;
}

static void shared_sizes(const char *name, quarry_pool_t *made, size_t mostly, size_t most) {
    printf("  %s\n", name);
    CHECK((pool = made) != NULL);
    usual = mostly;
    largest = most;
    in_threads(share);
    uint64_t live = 0;
    for (int i = 0; i < SLOTS; i++) live += slots[i] != NULL;
    CHECK_EQ(model_of(name)->live, live);
    for (int i = 0; i < SLOTS; i++) quarry_pool_free(pool, atomic_exchange(&slots[i], NULL), QUARRY_SIZE_UNKNOWN);
    CHECK_EQ(model_of(name)->live, 0);
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

static void shared(const char *name, quarry_pool_t *made, size_t most) { shared_sizes(name, made, 500, most); }

TEST(shared_pools) {
    shared("pow2", quarry_pow2_create(NULL), 100000);
    // Mappings that move while others are made where they were.
    shared("mapped",
        quarry_pow2_create(&(quarry_pow2_options_t){
            .pool.name = "mapped", .region_bytes = 1 << 20, .map_bytes = 4096, .give_back_bytes = 1}),
        300000);
    // And blocks of regions that become mappings there.
    shared_sizes("crossing",
        quarry_pow2_create(&(quarry_pow2_options_t){
            .pool.name = "crossing", .region_bytes = 1 << 20, .map_bytes = 4096, .give_back_bytes = 1}),
        8000, 20000);
    shared("tlsf", quarry_tlsf_create(&(quarry_tlsf_options_t){.flags = QUARRY_TLSF_LOCK}), 100000);
    shared("pages", quarry_pages_create(NULL), 100000);
    shared("heap", quarry_heap_pool(NULL, NULL), 3000000);
    quarry_pool_t *parent = quarry_pow2_create(
        &(quarry_pow2_options_t){.pool.name = "parent", .map_bytes = 65536, .region_bytes = 1 << 20});
    shared("child",
        quarry_pow2_create(&(quarry_pow2_options_t){
            .pool = {.name = "child", .parent = parent}, .map_bytes = 65536, .region_bytes = 1 << 20}),
        300000);
    CHECK_EQ(model_of("parent")->live, 0);
    quarry_pool_destroy(parent);
}

// One block has moved, and this is not told yet, when others come to its old place.
#define COMERS 8
static struct {
    void *here, *was[COMERS], *is[COMERS];
    pthread_t thread;
} comers;

static void *come(void *arg) {
    (void)arg;
    for (int i = 0; i < COMERS; i++)
        CHECK(comers.is[i] = quarry_pool_resize(pool, comers.was[i], QUARRY_SIZE_UNKNOWN, 16384, 8, 0));
    return NULL;
}

static void let_others_come(void) {
    model.when_held = NULL;
    CHECK(pthread_create(&comers.thread, NULL, come, NULL) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

TEST(a_place_that_a_move_left) {
    CHECK((pool = quarry_pow2_create(
               &(quarry_pow2_options_t){.region_bytes = 1 << 20, .map_bytes = 4096, .give_back_bytes = 1})) != NULL);
    comers.here = quarry_pool_alloc(pool, 16384, 8, 0);
    void *behind = quarry_pool_alloc(pool, 16384, 8, 0);  // it cannot grow where it is, wherever this one is
    for (int i = 0; i < COMERS; i++) comers.was[i] = quarry_pool_alloc(pool, 100, 8, 0);
    model.when_held = let_others_come;
    char *moved = quarry_pool_resize(pool, comers.here, QUARRY_SIZE_UNKNOWN, 1 << 20, 8, 0);
    CHECK(moved && pthread_join(comers.thread, NULL) == 0);
    bool came = false;
    for (int i = 0; i < COMERS; i++) came |= comers.is[i] == comers.here;
    printf("  it moved: %d, another came: %d\n", moved != comers.here, came);
    quarry_pool_free(pool, moved, QUARRY_SIZE_UNKNOWN);
    quarry_pool_free(pool, behind, QUARRY_SIZE_UNKNOWN);
    for (int i = 0; i < COMERS; i++) quarry_pool_free(pool, comers.is[i], QUARRY_SIZE_UNKNOWN);
    CHECK_EQ(model_of("pow2")->live, 0);
    quarry_pool_destroy(pool);
}

// ---- pools with an owner --------------------------------------------------------------------------------------

static _Atomic bool over;

static void *free_theirs(void *arg) {
    uint64_t rng = test_seed + (uintptr_t)arg;
    while (!over) {
        void *p = atomic_exchange(&slots[test_random(&rng) % SLOTS], NULL);
        if (p) quarry_pool_free(pool, p, 16);
        else sched_yield();  // to who makes them
    }
    return NULL;
}

static void *release_theirs(void *arg) {
    uint64_t rng = test_seed + (uintptr_t)arg;
    while (!over) {
        void *frame = atomic_exchange(&slots[test_random(&rng) % SLOTS], NULL);
        if (frame) quarry_ring_release((quarry_ring_frame_t)(uintptr_t)frame);
        else sched_yield();
    }
    return NULL;
}

static void start(pthread_t t[THREADS], void *(*fn)(void *arg)) {
    over = false;
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&t[i], NULL, fn, (void *)(i + 1)) == 0);
}

// Nothing is left in the slots: the pool that was destroyed ends now.
static void drain_and_stop(pthread_t t[THREADS]) {
    for (int i = 0; i < SLOTS; i++)
        while (atomic_load(&slots[i])) sched_yield();
    over = true;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(t[i], NULL) == 0);
}

TEST(fifo_freed_by_others) {
    pthread_t t[THREADS];
    for (int round = 0; round < 20; round++) {
        CHECK((pool = quarry_fifo_create(NULL)) != NULL);
        start(t, free_theirs);
        uint64_t rng = test_seed;
        for (unsigned i = 0; i < steps / 8; i++) {
            void *p = quarry_pool_alloc(pool, test_random(&rng) % (i % 100 ? 200 : 50000), 8, 0);
            CHECK(p);
            void *old = atomic_exchange(&slots[test_random(&rng) % SLOTS], p);
            if (old) quarry_pool_free(pool, old, 16);
        }
        quarry_pool_destroy(pool);  // while others free
        drain_and_stop(t);
        CHECK(!model_of("fifo")->alive);
    }
}

TEST(ring_released_by_others) {
    pthread_t t[THREADS];
    start(t, release_theirs);
    for (int round = 0; round < 20; round++) {
        CHECK((pool = quarry_ring_create(NULL)) != NULL);
        uint64_t rng = test_seed;
        for (unsigned i = 0; i < steps / 16; i++) {
            CHECK(quarry_ring_newframe(pool) != 0);
            for (uint64_t n = test_random(&rng) % 8; n; n--)
                CHECK(quarry_pool_alloc(pool, test_random(&rng) % 3000, 8, 0));
            void *frame = (void *)(uintptr_t)quarry_ring_seal(pool);
            frame = atomic_exchange(&slots[test_random(&rng) % SLOTS], frame);
            if (frame) quarry_ring_release((quarry_ring_frame_t)(uintptr_t)frame);
        }
        quarry_pool_destroy(pool);  // while others release
    }
    drain_and_stop(t);
    for (uint32_t i = 1; i <= model.pools; i++) CHECK(!model.pool[i].alive || strcmp(model.pool[i].name, "ring") != 0);
}

static void t_scopes(uint64_t *rng, int depth) {
    t_scope;
    for (uint64_t n = test_random(rng) % 4; n; n--) CHECK(t_new(char, test_random(rng) % 2000));
    if (depth) t_scopes(rng, depth - 1);
    if (test_random(rng) % 2) CHECK(t_new(char, 10));
}

static void *scopes(void *arg) {
    uint64_t rng = test_seed + (uintptr_t)arg;
    for (unsigned i = 0; i < steps / 32; i++) t_scopes(&rng, (int)(test_random(&rng) % 10));
    return NULL;
}

TEST(scopes_of_threads) {
    in_threads(scopes);
    for (uint32_t i = 1; i <= model.pools; i++)
        CHECK(!model.pool[i].alive || strcmp(model.pool[i].name, "t_stack") != 0);
}

// ---- what is held -----------------------------------------------------------------------------------------------
// It changes, and is told, while another thread has looked and not told yet: in a kind that lets it happen there.

static _Atomic bool changes;
static qy_pool_chunk_t more;

static void *hold_more(void *arg) {
    CHECK(qy_chunk_get(pool, 65536, 65536, 4096, &more));
    return arg;
}

static void late_stats(quarry_pool_t *of, quarry_pool_stats_t *stats) {
    (void)of, (void)stats;
    pthread_t t;
    if (atomic_exchange(&changes, false))
        CHECK(pthread_create(&t, NULL, hold_more, NULL) == 0 && pthread_join(t, NULL) == 0);
}

TEST(what_is_held_is_told_last) {
    static const quarry_pool_ops_t ops = {.kind = "late",
        .capabilities = QUARRY_POOL_SHARED,
        .max_alignment = 16,
        .stats = late_stats,
        .destroy = qy_pool_drop};
    qy_pool_chunk_t chunk;
    CHECK((pool = qy_pool_new(&ops, sizeof *pool, NULL)) != NULL);
    changes = true;
    CHECK(qy_chunk_get(pool, 65536, 65536, 4096, &chunk));
    CHECK_EQ(pool->info->held, 131072);
    CHECK_EQ(model_of("late")->held, 131072);
    qy_chunk_put(pool, chunk.base, chunk.bytes);
    qy_chunk_put(pool, more.base, more.bytes);
    CHECK_EQ(model_of("late")->held, 0);
    quarry_pool_destroy(pool);
}

// ---- fork while others are in the middle of it ---------------------------------------------------------------------

static void *share_until_over(void *arg) {
    uint64_t rng = test_seed + (uintptr_t)arg;
    while (!over) {
        void *p = quarry_pool_alloc(pool, test_random(&rng) % 1000, 8, 0);
        void *to = quarry_pool_resize(pool, p, QUARRY_SIZE_UNKNOWN, 100000, 8, 0);
        quarry_pool_free(pool, to ? to : p, QUARRY_SIZE_UNKNOWN);
    }
    return NULL;
}

TEST(children) {
#if defined(__SANITIZE_THREAD__)
    TEST_SKIP("needs a build without ThreadSanitizer, which does not know what a fork leaves behind");
#endif
    pthread_t t[THREADS];
    CHECK((pool = quarry_pow2_create(&(quarry_pow2_options_t){.map_bytes = 65536, .region_bytes = 1 << 20})) != NULL);
    start(t, share_until_over);
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            // A thread that is no more may have been within the model: a new one.
            pthread_mutex_init(&model.lock, NULL);
            model.pools = 0;
            model.block = NULL;
            model.blocks = model.places = 0;
            void *p = quarry_pool_alloc(pool, 100000, 8, 0);
            CHECK(p && model_of("pow2")->live == 1);
            quarry_pool_free(pool, p, QUARRY_SIZE_UNKNOWN);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
    }
    over = true;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(t[i], NULL) == 0);
    CHECK_EQ(model_of("pow2")->live, 0);
    quarry_pool_destroy(pool);
}

// A recorder begins with what it is told first, and registers its handlers then. Pools wait for its locks under theirs,
// so theirs must have been frozen before.
static bool frozen_before;

static void recorder_prepares(void) {
    if (pool) frozen_before = qy_lock_is_frozen(&((pow2_t *)pool)->mapped_lock);
}
static void register_recorder(void) { CHECK(pthread_atfork(recorder_prepares, NULL, NULL) == 0); }
static void recorder_begins(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, register_recorder);
}

// A program's handler, registered before, finds the pool in order while a block of it is moving.
static struct {
    pthread_t thread;
    _Atomic bool on, started, entered;
    void *block;
} mover;

static void *moves(void *arg) {
    (void)arg;
    CHECK(mover.block = quarry_pool_resize(pool, mover.block, QUARRY_SIZE_UNKNOWN, 1 << 20, 8, 0));
    return NULL;
}

// The block has no place, and this is not known; the pool's own locks are free. Until the fork is after them, or waits
// for this move.
static void while_it_moves(void) {
    model.when_held = NULL;
    mover.started = true;
    while (!mover.entered && (pool->info->moving.state & QY_LOCK_KIND) != QY_LOCK_WAITED) sched_yield();
}

static void program_prepares(void) {
    if (!mover.on) return;
    mover.entered = true;
    void *p = quarry_pool_alloc(pool, 100, 8, 0);
    CHECK(p);
    quarry_pool_free(pool, p, QUARRY_SIZE_UNKNOWN);
}

TEST(fork_while_a_block_moves) {
    alarm(TEST_PATIENCE);
    CHECK((pool = quarry_pow2_create(&(quarry_pow2_options_t){.region_bytes = 1 << 20, .map_bytes = 4096})) != NULL);
    CHECK(mover.block = quarry_pool_alloc(pool, 16384, 8, 0));
    model.when_held = while_it_moves;
    mover.on = true;
    CHECK(pthread_create(&mover.thread, NULL, moves, NULL) == 0);
    while (!mover.started) sched_yield();
    pid_t pid = fork();
    CHECK(pid >= 0);
    mover.on = false;
    // for _exit a sanitizer counts the parent's threads
    if (pid == 0) syscall(SYS_exit_group, pool->info->moving.state != 0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    CHECK(pthread_join(mover.thread, NULL) == 0);
    CHECK(mover.entered);
    quarry_pool_free(pool, mover.block, QUARRY_SIZE_UNKNOWN);
    CHECK_EQ(model_of("pow2")->live, 0);
    quarry_pool_destroy(pool);
    alarm(0);
}

TEST(pools_are_frozen_before_the_recorder) {
    CHECK((pool = quarry_pow2_create(NULL)) != NULL);
    frozen_before = false;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(0);
    CHECK(waitpid(pid, NULL, 0) == pid);
    CHECK(frozen_before);
    quarry_pool_destroy(pool);
}

__attribute__((constructor)) static void begin(void) {
    const char *text = getenv("QUARRY_STEPS");
    steps = text ? (unsigned)strtoul(text, NULL, 0) : 4000;
    CHECK(pthread_atfork(program_prepares, NULL, NULL) == 0);
    model.when_created = recorder_begins;
}

TEST_MAIN()
