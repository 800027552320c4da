// SPDX-License-Identifier: MIT
// test_trace.c: what each kind of pool tells the recorder, event by event; plain, checked and logged.
#include <quarry/fifo.h>
#include <quarry/heap.h>
#include <quarry/pages.h>
#include <quarry/persist.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/scope.h>
#include <quarry/short.h>
#include <quarry/tlsf.h>
#include <setjmp.h>
#include <sys/wait.h>

#include "kinds.h"
#include "pool/pool.h"
#include "trace_model.h"

pool_kind_t *pool_kinds;

static bool observed(const quarry_pool_t *pool) { return pool->mode & QY_MODE_OBSERVED; }
static void *must(void *p) {
    CHECK(p);
    return p;
}
#define ALLOC(pool, size) must(quarry_pool_alloc((pool), (size), 8, 0))

// All that are made as pools: malloc as a pool is not, its blocks are recorded as malloc's.
#define EACH_KIND(k)                                  \
    for (pool_kind_t *k = pool_kinds; k; k = k->next) \
        if (strcmp(k->name, "libc") == 0) continue;   \
        else

static void end_of(const pool_kind_t *k, quarry_pool_t *pool) {
    if (k->destroy) k->destroy(pool);
    else quarry_pool_destroy(pool);
}

static void in_thread(void *(*fn)(void *arg), void *arg) {
    pthread_t t;
    CHECK(pthread_create(&t, NULL, fn, arg) == 0);
    CHECK(pthread_join(t, NULL) == 0);
}

// ---- whether at all ------------------------------------------------------------------------------------

TEST(recorded_or_not) {
    EACH_KIND(k) {
        script_begin();
        quarry_pool_t *pool = must(k->create(&(quarry_pool_options_t){.name = "n"}));
        char words[64];
        snprintf(words, sizeof words, "created:%s/n/0", pool->ops->kind);
        TOLD(words);
        CHECK((pool->mode & (QY_MODE_RECORDED | QY_MODE_COUNTED)) == (QY_MODE_RECORDED | QY_MODE_COUNTED));
        end_of(k, pool);
        TOLD("destroyed");
        model.refuse = true;
        pool = must(k->create(NULL));
        CHECK(!(pool->mode & QY_MODE_RECORDED));
        quarry_pool_free(pool, k->begin ? NULL : ALLOC(pool, 10), 10);
        end_of(k, pool);
        model.refuse = false;
        TOLD("");
    }
}

// ---- pools without frames --------------------------------------------------------------------------------

static void plain_script(quarry_pool_t *pool) {
    bool moves = observed(pool);
    char *a = ALLOC(pool, 100), *b = ALLOC(pool, 30);
    quarry_pool_free(pool, NULL, 0);
    quarry_pool_free(pool, a, 100);
    TOLD("+100 +30 -1");
    b = must(quarry_pool_resize(pool, b, 30, 25, 8, 0));
    TOLD(moves ? "2>25" : "2=25");
    a = must(quarry_pool_resize(pool, NULL, 0, 0, 8, QUARRY_POOL_ZERO));
    CHECK(!quarry_pool_alloc(pool, QUARRY_POOL_MAX, 8, 0) && !quarry_pool_alloc(pool, 1, 3, 0) &&
          !quarry_pool_resize(pool, a, 0, QUARRY_POOL_MAX, 8, 0));
    TOLD("+0");
    char *old = b;
    b = must(quarry_pool_resize(pool, b, 25, 3000000, 8, 0));
    moves |= b != old;
    TOLD(observed(pool) ? "3>3000000" : moves ? "2>3000000"
                                              : "2=3000000");
    quarry_pool_free(pool, b, 3000000);
    TOLD(observed(pool) ? "-5" : moves ? "-4"
                                       : "-2");
    for (int i = 0; i < 3; i++) ALLOC(pool, 7);
    TOLD("+7 +7 +7");
    quarry_pool_free(pool, a, 0);  // so that its pages, too, are left with live blocks
    TOLD(observed(pool) ? "-4" : "-3");
}

TEST(kinds_without_frames) {
    static const char *const kinds[] = {"tlsf", "tlsf_locked", "pow2", "pow2_small", "pages", "heap", "general_heap"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        EACH_KIND(k) {
            if (strcmp(k->name, kinds[i]) != 0) continue;
            quarry_pool_t *pool = must(k->create(NULL));
            printf("  %s\n", k->name);
            script_begin();
            plain_script(pool);
            end_of(k, pool);
            TOLD("destroyed");
        }
    }
}

static quarry_pool_t *theirs;
static void *free_it(void *p) {
    quarry_pool_free(theirs, p, 7);
    return NULL;
}

TEST(fifo) {
    quarry_pool_t *pool = theirs = must(quarry_fifo_create(NULL));
    script_begin();
    plain_script(pool);
    char *mine = ALLOC(pool, 7), *other = ALLOC(pool, 7), *last = ALLOC(pool, 7);
    quarry_pool_free(pool, mine, 7);
    in_thread(free_it, other);
    TOLD(observed(pool) ? "+7 +7 +7 -9 -10" : "+7 +7 +7 -8 -9");
    quarry_pool_destroy(pool);
    TOLD("");  // with live blocks: three of plain_script, and
    in_thread(free_it, last);
    TOLD(observed(pool) ? "-11" : "-10");
    CHECK_EQ(model_of("fifo")->live, 3);
}

TEST(fifo_ends_with_its_last_block) {
    quarry_pool_t *pool = theirs = must(quarry_fifo_create(NULL));
    script_begin();
    char *a = ALLOC(pool, 7), *big = ALLOC(pool, 100000);
    quarry_pool_destroy(pool);
    quarry_pool_free(pool, big, 100000);
    TOLD("+7 +100000 -2");
    in_thread(free_it, a);
    TOLD("-1 destroyed");
}

// ---- stacks ------------------------------------------------------------------------------------------------

TEST(stack) {
    quarry_stack_frame_t f1, f2, f3;
    quarry_pool_t *pool = must(quarry_stack_create(NULL));
    bool checked = observed(pool);
    script_begin();
    ALLOC(pool, 1);
    quarry_stack_push(pool, &f1);
    quarry_stack_push(pool, &f2);
    quarry_stack_pop(pool, &f2);
    TOLD("+1");  // a frame that has no block is none
    ALLOC(pool, 2);
    quarry_stack_push(pool, &f2);
    quarry_stack_push(pool, &f3);
    char *p = ALLOC(pool, 3);
    p = must(quarry_pool_resize(pool, p, 3, 30, 8, 0));
    TOLD(checked ? "( +2 ( +3 3>30" : "( +2 ( +3 3=30");
    ALLOC(pool, 4);
    p = must(quarry_pool_resize(pool, p, 30, 40, 8, 0));
    TOLD(checked ? "+4 4>40" : "+4 3>40");
    quarry_stack_pop(pool, &f3);
    CHECK_EQ(model_of("stack")->live, 2);
    quarry_stack_pop(pool, &f2);  // has nothing, though what it has inherited of f3 must be looked at
    TOLD(")");
    ALLOC(pool, 5);
    CHECK_EQ(model_of("stack")->live, 3);
    quarry_stack_pop(pool, &f1);
    TOLD("+5 )");
    CHECK_EQ(model_of("stack")->live, 1);
    quarry_stack_push(pool, &f1);
    quarry_stack_seal(pool);
    quarry_stack_push(pool, &f2);
    ALLOC(pool, 6);
    quarry_stack_pop(pool, &f2);
    quarry_stack_unseal(pool);
    quarry_stack_pop(pool, &f1);
    TOLD("( +6 )");
    quarry_stack_push(pool, &f1);
    for (int i = 0; i < 100; i++) ALLOC(pool, 10000);
    quarry_stack_push(pool, &f2);
    ALLOC(pool, 100000);
    CHECK_EQ(model_of("stack")->live, 102);
    script_begin();
    quarry_pool_destroy(pool);  // with open frames
    TOLD(") ) destroyed");
}

static jmp_buf out;
static char *volatile kept;
__attribute__((noinline)) static void deeper(int depth) {
    t_scope;
    kept = t_new(char, 10);
    if (depth) deeper(depth - 1);
    else if (kept) longjmp(out, 1);
}
__attribute__((noinline)) static void jumps(void) {
    t_scope;
    kept = t_new(char, 5);
    if (!setjmp(out)) deeper(2);
    kept = t_new(char, 6);  // belongs to the innermost frame, which is no more
}

TEST(stack_of_a_thread) {
    kept = NULL;
    {
        t_scope;
        kept = t_new(char, 1);
        const model_pool_t *m = model_of("t_stack");
        script_begin();
        jumps();
        TOLD("( +5 ( +10 ( +10 ( +10 +6 ) ) ) )");
        CHECK_EQ(m->live, 1);
        CHECK_EQ(m->nopen, 1);
        kept = t_new(char, 2);
    }
    TOLD("+2 )");
}

static void *scoped(void *arg) {
    t_scope;
    kept = t_new(char, 3);
    if (arg) pthread_exit(NULL);  // leaves the frame open
    return NULL;
}

TEST(stack_of_a_thread_that_ends) {
    script_begin();
    in_thread(scoped, NULL);
    TOLD("created:stack/t_stack/0 ( +3 ) destroyed");
    in_thread(scoped, "exit");
    TOLD("created:stack/t_stack/0 ( +3 ) destroyed");
}

// ---- rings ---------------------------------------------------------------------------------------------------

static void *release_it(void *frame) {
    quarry_ring_release(*(quarry_ring_frame_t *)frame);
    return NULL;
}

TEST(ring) {
    quarry_pool_t *pool = must(quarry_ring_create(NULL));
    bool checked = observed(pool);
    script_begin();
    quarry_ring_newframe(pool);
    char *p = ALLOC(pool, 10);
    ALLOC(pool, 20);
    p = must(quarry_pool_resize(pool, p, 10, 50, 8, 0));
    TOLD("( +10 +20 1>50");
    p = must(quarry_pool_resize(pool, p, 50, 60, 8, 0));
    TOLD(checked ? "3>60" : "3=60");
    quarry_ring_frame_t first = quarry_ring_seal(pool);
    quarry_ring_newframe(pool);
    quarry_ring_frame_t second = quarry_ring_seal(pool);
    TOLD("]1 ( ]2");
    CHECK_EQ(model_of("ring")->live, 2);
    in_thread(release_it, &first);
    TOLD("!1");
    CHECK_EQ(model_of("ring")->live, 0);
    quarry_ring_newframe(pool);
    ALLOC(pool, 30);
    quarry_ring_frame_t third = quarry_ring_seal(pool);
    quarry_ring_newframe(pool);
    ALLOC(pool, 40);
    TOLD("( +30 ]3 ( +40");
    quarry_pool_destroy(pool);  // with an open frame and two sealed ones
    TOLD(")");
    CHECK_EQ(model_of("ring")->live, 1);
    quarry_ring_release(second);
    in_thread(release_it, &third);
    TOLD("!2 !3 destroyed");
}

TEST(ring_rewound) {
    quarry_pool_t *pool = must(quarry_ring_create(NULL));
    if (observed(pool)) {  // a checker's blocks end with the frame
        quarry_pool_destroy(pool);
        return;
    }
    script_begin();
    quarry_ring_newframe(pool);
    char *p = ALLOC(pool, 10);
    quarry_ring_mark_t mark = quarry_ring_checkpoint(pool);
    quarry_ring_rewind(pool, mark);
    TOLD("( +10");
    ALLOC(pool, 20);
    ALLOC(pool, 0);
    p = must(quarry_pool_resize(pool, p, 10, 50, 8, 0));  // what was older than the mark is newer now
    p = must(quarry_pool_resize(pool, p, 50, 70000, 8, 0));
    for (int i = 0; i < 3; i++) ALLOC(pool, 60000);  // in chunks of their own
    TOLD("+20 +0 1>50 4>70000 +60000 +60000 +60000");
    quarry_ring_mark_t inner = quarry_ring_checkpoint(pool);
    ALLOC(pool, 1);
    quarry_ring_rewind(pool, inner);
    TOLD("+1 -9");
    quarry_ring_rewind(pool, mark);
    TOLD("-8 -7 -6 -5 -3 -2");
    CHECK_EQ(model_of("ring")->live, 0);
    ALLOC(pool, 11);
    mark = quarry_ring_checkpoint(pool);
    model.script = false;
    for (int i = 0; i < 20000; i++) ALLOC(pool, 40);
    CHECK_EQ(model_of("ring")->live, 20001);
    quarry_ring_rewind(pool, mark);
    CHECK_EQ(model_of("ring")->live, 1);
    script_begin();
    ALLOC(pool, 12);
    quarry_ring_release(quarry_ring_seal(pool));
    TOLD("+12 ]1 !1");
    CHECK_EQ(model_of("ring")->live, 0);
    quarry_pool_destroy(pool);
}

static void *thread_ring(void *arg) {
    r_newframe();
    kept = r_new(char, 5);
    *(quarry_ring_frame_t *)arg = r_seal();
    return NULL;
}

TEST(ring_of_a_thread) {
    quarry_ring_frame_t frame;
    script_begin();
    in_thread(thread_ring, &frame);
    TOLD("created:ring/r_pool/0 ( +5 ]1");  // the thread is gone, the ring waits
    quarry_ring_release(frame);
    TOLD("!1 destroyed");
}

// ---- pages in parts, mappings, regions of the caller -----------------------------------------------------------

TEST(parts_of_runs) {
    quarry_pool_t *pool = must(quarry_pages_create(&(quarry_pages_options_t){.flags = QUARRY_PAGES_PARTS}));
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char words[200];
    script_begin();
    char *run = ALLOC(pool, 10 * page - 5);
    quarry_pages_free_part(pool, run + 2 * page, page);      // [0, 2) and [3, 10)
    quarry_pages_free_part(pool, run + 3 * page, 2 * page);  // [5, 10)
    quarry_pages_free_part(pool, run + 9 * page, 1);         // [5, 9)
    quarry_pages_free_part(pool, run + 5 * page, 4 * page);
    snprintf(
        words, sizeof words, "+%zu 1=%zu +%zu 2>%zu 3=%zu -3", 10 * page - 5, 2 * page, 7 * page, 5 * page, 4 * page);
    TOLD(words);
    quarry_pool_free(pool, run, 2 * page);
    TOLD("-1");
    quarry_pool_destroy(pool);
}

TEST(mapped_blocks_of_pow2) {
    quarry_pool_t *pool =
        must(quarry_pow2_create(&(quarry_pow2_options_t){.map_bytes = 64 * 1024, .region_bytes = 1 << 20}));
    if (observed(pool)) {
        quarry_pool_destroy(pool);
        return;
    }
    script_begin();
    char *p = ALLOC(pool, 1000000);
    p = must(quarry_pool_resize(pool, p, 1000000, 900000, 8, 0));
    TOLD("+1000000 1=900000");
    char *q = p;
    for (size_t size = 2000000; q == p; size *= 2) q = must(quarry_pool_resize(pool, p, size / 2, size, 4 << 20, 0));
    CHECK_EQ(model_of("pow2")->live, 1);
    script_begin();
    q = must(quarry_pool_resize(pool, q, 100, 100, 8, 0));  // into a region
    quarry_pool_free(pool, q, 100);
    CHECK_EQ(model_of("pow2")->live, 0);
    // Joined with its left neighbour, it begins there.
    script_begin();
    char *a = ALLOC(pool, 32), *b = ALLOC(pool, 32);
    if (b < a) p = a, a = b, b = p;
    quarry_pool_free(pool, a, 32);
    p = must(quarry_pool_resize(pool, b, 32, 64, 8, 0));
    CHECK_EQ(model_of("pow2")->live, 1);
    quarry_pool_free(pool, p, 64);
    CHECK_EQ(model_of("pow2")->live, 0);
    quarry_pool_destroy(pool);
}

TEST(what_is_held) {
    static _Alignas(16) char buffer[4096], more[8192];
    quarry_pool_t *pool = must(quarry_tlsf_create(
        &(quarry_tlsf_options_t){.pool.name = "lent", .buffer = buffer, .buffer_bytes = sizeof buffer}));
    CHECK_EQ(model_of("lent")->held, sizeof buffer);
    CHECK(quarry_tlsf_add_region(pool, more, sizeof more) == 0);
    CHECK_EQ(model_of("lent")->held, sizeof buffer + sizeof more);
    CHECK(quarry_tlsf_remove_region(pool, more) == 0);
    CHECK_EQ(model_of("lent")->held, sizeof buffer);
    ALLOC(pool, 100000);
    if (!(pool->mode & QY_MODE_PASS)) CHECK_GE(model_of("lent")->held, 100000);
    quarry_pool_destroy(pool);
    pool = must(quarry_stack_create(&(quarry_stack_options_t){.pool.name = "held"}));
    uint64_t one = model_of("held")->held, events = model_of("held")->helds;
    CHECK_EQ(one, 64 * 1024);
    CHECK_EQ(events, 1);
    quarry_stack_frame_t frame;
    quarry_stack_push(pool, &frame);
    ALLOC(pool, 1000000);
    if (!(pool->mode & QY_MODE_PASS)) CHECK_GE(model_of("held")->held, one + 1000000);
    quarry_stack_pop(pool, &frame);
    quarry_stack_reset(pool);
    if (!(pool->mode & QY_MODE_PASS)) {
        CHECK_EQ(model_of("held")->helds, 3);
        quarry_pool_stats_t s;
        quarry_pool_stats(pool, &s);
        CHECK_EQ(model_of("held")->held, s.held_bytes);
    }
    quarry_pool_destroy(pool);
}

// ---- parents ---------------------------------------------------------------------------------------------------

TEST(parents) {
    script_begin();
    quarry_pool_t *parent = must(quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.name = "parent"}));
    uint32_t number = model.pools;
    char words[100];
    quarry_pool_t *child =
        must(quarry_stack_create(&(quarry_stack_options_t){.pool = {.name = "child", .parent = parent}}));
    snprintf(words, sizeof words, "created:tlsf/parent/0 created:stack/child/%u +65536", number);
    TOLD(words);
    ALLOC(child, 5);
    quarry_pool_t *on_libc =
        must(quarry_fifo_create(&(quarry_fifo_options_t){.pool = {.name = "on malloc", .parent = quarry_libc_pool()}}));
    quarry_pool_free(quarry_libc_pool(), ALLOC(quarry_libc_pool(), 5), 5);  // malloc's own
    TOLD("+5 created:fifo/on malloc/0");
    quarry_pool_destroy(on_libc);
    quarry_pool_destroy(child);  // its blocks end before their memory goes back
    quarry_pool_destroy(parent);
    TOLD("destroyed destroyed -1 destroyed");
}

// ---- persistent pools --------------------------------------------------------------------------------------------

TEST(persist) {
    char path[100];
    snprintf(path, sizeof path, "/tmp/quarry-tell-%d", (int)getpid());
    quarry_persist_t *s = must(quarry_persist_open(path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE}));
    CHECK_EQ(model_of("persist")->held, 256 * 1024);
    script_begin();
    quarry_persist_ptr_t *root = quarry_persist_root_link(s), a, b;
    CHECK(quarry_persist_alloc_to(s, root, 100, 0));
    CHECK(quarry_persist_resize_at(s, root, 200, 0));  // what follows is free
    CHECK((a = quarry_persist_alloc(s, 50, 0)) != 0);
    CHECK(quarry_persist_resize_at(s, root, 5000, 0));
    TOLD("+100 1=200 +50 +5000 -1");  // it moves: a block, and at the commit the end of the old one
    CHECK(quarry_persist_free(s, a) == 0 && quarry_persist_free_from(s, root) == 0);
    CHECK(quarry_persist_free(s, 12345) == -1);
    TOLD("-2 -3");
    // A transaction: what it frees ends with its commit, what it makes does not outlive an abort.
    CHECK((a = quarry_persist_alloc_to(s, root, 300, 0)) != 0);
    CHECK(quarry_persist_begin(s) == 0);
    CHECK((b = quarry_persist_alloc(s, 10, 0)) != 0 && quarry_persist_alloc(s, 20, 0));
    CHECK(quarry_persist_free(s, a) == 0 && quarry_persist_free(s, b) == 0);
    CHECK(!quarry_persist_alloc(s, (size_t)1 << 60, 0));
    TOLD("+300 +10 +20");
    CHECK(quarry_persist_commit(s) == 0);
    TOLD("-4 -5");
    CHECK(quarry_persist_alloc_to(s, root, 400, 0));
    CHECK(quarry_persist_begin(s) == 0);
    CHECK((b = quarry_persist_alloc(s, 10, 0)) != 0 && quarry_persist_free_from(s, root) == 0);
    TOLD("+400 +10");
    CHECK(quarry_persist_abort(s) == 0);
    TOLD("-8");
    CHECK_EQ(model_of("persist")->live, 2);
    CHECK(quarry_persist_begin(s) == 0);
    CHECK(quarry_persist_resize_at(s, root, 600, 0));
    CHECK(quarry_persist_abort(s) == 0);
    CHECK_EQ(model_of("persist")->live, 2);
    CHECK_GE(model_of("persist")->live_bytes, 420);
    CHECK_LT(model_of("persist")->live_bytes, 500);  // as long as it was: what could be used of it
    script_begin();
    quarry_pool_t *pool = quarry_persist_pool(s);
    char *p = must(quarry_pool_alloc(pool, 70, 4096, 0));
    p = must(quarry_pool_resize(pool, p, 70, 60, 8, 0));
    quarry_pool_free(pool, p, 60);
    TOLD("+70 1=60 -1");
    CHECK(!quarry_persist_close(s));
    TOLD("destroyed");
    unlink(path);
}

// ---- forks -------------------------------------------------------------------------------------------------------

TEST(children) {
    quarry_pool_t *parent =
        must(quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.name = "parent", .flags = QUARRY_TLSF_LOCK}));
    quarry_pool_t *child =
        must(quarry_stack_create(&(quarry_stack_options_t){.pool = {.name = "child", .parent = parent}}));
    ALLOC(parent, 1);
    script_begin();
    fflush(NULL);
    for (int refused = 0; refused < 2; refused++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            char words[200];
            uint32_t next = model.pools + 1;
            model.refuse = refused;
            model.lenient = true;
            TOLD("");  // who tells nothing leaves no trace
            ALLOC(child, 2);
            snprintf(words, sizeof words, "created:tlsf/parent/0 created:stack/child/%u +2", next);
            TOLD(refused ? "" : words);
            ALLOC(parent, 3);
            quarry_pool_t *fresh = must(quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "fresh"}));
            CHECK_EQ((fresh->mode & QY_MODE_RECORDED) == 0, refused);
            TOLD(refused ? "" : "+3 created:fifo/fresh/0");
            quarry_pool_destroy(child);
            model.script = false;
            quarry_pool_destroy(parent);
            _exit(0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), 0);
    }
    ALLOC(child, 4);
    TOLD("+4");
    quarry_pool_destroy(child);
    quarry_pool_destroy(parent);
}

// ---- at random, every kind ------------------------------------------------------------------------------------------

#define SLOTS 200
TEST(every_kind_at_random) {
    EACH_KIND(k) {
        uint64_t rng = test_seed, live = 0;
        static struct {
            char *p;
            size_t size;
        } slot[SLOTS];
        memset(slot, 0, sizeof slot);
        quarry_pool_t *pool = must(k->create(&(quarry_pool_options_t){.name = k->name}));
        bool frees = quarry_pool_capabilities(pool) & QUARRY_POOL_FREES;
        model.script = false;
        if (k->begin) k->begin(pool);
        for (int i = 0; i < 20000; i++) {
            size_t n = test_random(&rng) % SLOTS, size = test_random(&rng) % (i % 50 ? 300 : 200000);
            size_t alignment = (size_t)1 << test_random(&rng) % 8;
            if (slot[n].p && test_random(&rng) % 2) {
                char *p = quarry_pool_resize(pool, slot[n].p, slot[n].size, size, alignment, 0);
                if (p) slot[n].p = p, slot[n].size = size;
            } else if (slot[n].p && frees) {
                quarry_pool_free(pool, slot[n].p, slot[n].size);
                slot[n].p = NULL, live--;
            } else if ((slot[n].p = quarry_pool_alloc(pool, size, alignment, i % 3 ? 0 : QUARRY_POOL_ZERO)) != NULL) {
                slot[n].size = size, live++;
            }
            if (i % 5000 == 4999) {
                CHECK_EQ(model_of(k->name)->live, live);
                if (!k->begin) continue;
                k->end(pool);
                CHECK_EQ(model_of(k->name)->live, 0);
                k->begin(pool);
                memset(slot, 0, sizeof slot);
                live = 0;
            }
        }
        for (int i = 0; i < SLOTS; i++)
            if (slot[i].p) quarry_pool_free(pool, slot[i].p, slot[i].size);
        if (frees) CHECK_EQ(model_of(k->name)->live, 0);
        if (k->end) k->end(pool);
        CHECK_EQ(quarry_pool_check(pool), 0);
        end_of(k, pool);
        CHECK(!model_of(k->name)->alive);
    }
}

TEST_MAIN()
