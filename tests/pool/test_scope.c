// SPDX-License-Identifier: MIT
// test_scope.c: t_scope and t_new: every way out of a scope, ends of threads, fork, longjmp.
#include <pthread.h>
#include <quarry/scope.h>
#include <setjmp.h>

#include "captured.h"
#include "os/fake.h"
#include "pool/stack.h"
#include "pool_test.h"

static size_t used(void) { return stats_of(t_pool()).used_bytes; }
static bool checked(void) { return t_pool()->mode & QY_MODE_OBSERVED; }

// ---- the macros ------------------------------------------------------------------------------------------

typedef struct text {
    int n;
    char bytes[];
} text_t;
typedef struct pair {
    void *a, *b;
} pair_t;

TEST(macros) {
    t_scope;
    long *a = t_new(long, 10);
    for (int i = 0; i < 10; i++) CHECK_EQ(a[i], 0);
    a[9] = 9;
    char *raw = t_new_raw(char, 33);
    memset(raw, 1, 33);
    pair_t *pairs = t_new(pair_t, 3);
    CHECK(!pairs[2].b && (uintptr_t)pairs % _Alignof(pair_t) == 0);
    text_t *t = t_new_extra(text_t, 10), *u = t_new_extra_field(text_t, bytes, 3);
    CHECK(t && !t->bytes[9] && u && !u->bytes[2]);
    CHECK(t_new_extra_raw(text_t, 5) && t_new_extra_field_raw(text_t, bytes, 7));
    CHECK(t_renew(&a, 10, 1000) == a && a[9] == 9 && a[999] == 0);
    CHECK(t_renew_raw(&a, 1000, 5) == a);
    long *copy = t_dup(a, 5);
    CHECK(copy && copy != a);
    long double wide[2] = {1, 2}, *w = t_dup(wide, 2);
    CHECK_EQ((uintptr_t)w % _Alignof(long double), 0);
    const char *next = "hello";
    CHECK_STR_EQ(t_strdup(next++), "hello");
    CHECK_STR_EQ(next, "ello");
    CHECK_STR_EQ(t_dupz("hello", 2), "he");
    CHECK_STR_EQ(t_printf("%d-%s", 42, "x"), "42-x");
    CHECK_STR_EQ(t_fmt("plain"), "plain");
    CHECK_EQ(strlen(t_printf("%*d", 3000, 1)), 3000);
    volatile size_t n = SIZE_MAX / sizeof(long) + 2, huge = SIZE_MAX - 2;
    errno = 0;
    CHECK(!t_new(long, n) && errno == ENOMEM);
    CHECK(!t_new_raw(char, huge) && !t_new_extra(long, huge) && !t_new_extra_field(text_t, bytes, huge) &&
          !t_renew(&a, 5, n) && !t_dupz("x", huge));
    long *none = NULL;
    CHECK(t_renew(&none, 0, 3) && none[2] == 0);
    CHECK(quarry_pool_alloc(t_pool(), 100, 8, 0));
    CHECK_EQ(quarry_pool_check(t_pool()), 0);
}

// ---- ways out ----------------------------------------------------------------------------------------------

static int by_return(int n) {
    t_scope;
    char *p = t_new(char, 1000);
    if (n) return p[0] + n;
    return -1;
}
static char *t_for_the_caller(size_t n) { return t_new(char, n); }

TEST(every_way_out) {
    size_t before = used();
    t_scope;
    t_new(char, 10);
    size_t base = used();
    CHECK_GT(base, before);
    CHECK_EQ(by_return(5), 5);
    CHECK_EQ(used(), base);
    for (int i = 0; i < 10; i++) {
        t_scope;
        t_new(char, 2000);
        if (i == 3) continue;
        if (i == 7) break;
        CHECK_GT(used(), base);
    }
    CHECK_EQ(used(), base);
    int rounds = 0;
again : {
    t_scope;
    t_scope;  // several in one block, also on one line
    t_scope;
    t_scope;
    t_new(char, 3000);
    if (++rounds < 5) goto again;
}
    CHECK_EQ(used(), base);
    switch (rounds) {
    case 5: {
        t_scope;
        t_new(char, 100);
        break;
    }
    default: CHECK(0);
    }
    CHECK_EQ(used(), base);
    char *p;
    {
        t_scope;
        p = t_for_the_caller(100);  // for this scope
        memset(p, 1, 100);
    }
    CHECK_EQ(used(), base);
}

TEST(in_a_loop) {
    quarry_pool_t *pool = t_pool();
    size_t peak = stats_of(pool).held_bytes;
    for (int i = 0; i < (checked() ? 20000 : 1000000); i++) {
        t_scope;
        long *p = t_new(long, 40);
        p[i % 40] = i;
    }
    CHECK_EQ(stats_of(pool).held_bytes, peak);
    CHECK_EQ(used(), 0);
}

static unsigned deep(unsigned n, uint64_t *state) {
    t_scope;
    size_t size = test_random(state) % 300;
    unsigned char *p = size % 3 ? t_new(unsigned char, size) : NULL, *q = p;
    if (p) {
        for (size_t i = 0; i < size; i++) CHECK(!p[i]);
        memset(p, (int)n, size);
    }
    unsigned sum = n;
    for (unsigned i = 0; n && i < 1 + (n % 9 == 0); i++) sum += deep(n - 1, state);
    if (p) {
        for (size_t i = 0; i < size; i++) CHECK_EQ(p[i], (unsigned char)n);
        CHECK(t_renew(&q, size, size + 10));
    }
    return sum;
}
TEST(recursion) {
    uint64_t state = test_seed;
    for (int i = 0; i < 20; i++) CHECK(deep(80, &state));
    CHECK_EQ(used(), 0);
    CHECK_EQ(quarry_pool_check(t_pool()), 0);
}

TEST(sealing) {
    t_scope;
    t_new(char, 10);
    t_seal();
    {
        t_scope;
        CHECK(t_new(char, 10));
        {
            t_scope;
            CHECK(t_new(char, 10));
        }
    }
    t_unseal();
    CHECK(t_new(char, 10));
}

// Frames of the thread's stack by hand, in a structure.
TEST(by_hand) {
    struct request {
        quarry_stack_frame_t frame;
        char *text;
    } r;
    quarry_stack_push(t_pool(), &r.frame);
    r.text = t_strdup("kept from call to call");
    CHECK_EQ(by_return(1), 1);
    CHECK_STR_EQ(r.text, "kept from call to call");
    quarry_stack_pop(t_pool(), &r.frame);
    CHECK_EQ(used(), 0);
}

// ---- threads -------------------------------------------------------------------------------------------------

static void *work(void *arg) {
    uint64_t state = test_seed + (uintptr_t)arg;
    for (int i = 0; i < 30; i++) deep(40, &state);
    return NULL;
}

static size_t mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    size_t lines = 0;
    for (int c; (c = fgetc(file)) != EOF;) lines += c == '\n';
    fclose(file);
    return lines;
}

// The second round has stacks that threads of the first one left. More rounds are other threads
// at the same place, which a sanitizer or a register of all blocks makes long.
TEST(threads_have_their_own) {
    pthread_t t[4];
    int rounds = QY_TSAN || QY_ASAN || checked() ? 4 : 20;
    for (int round = 0; round < rounds; round++) {
        for (long i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, work, (void *)(i + 1)), 0);
        for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    }
    CHECK_LE(qy_stacks_of_threads(), 1);
}

// Blocks of several threads that live at one time: no two of them share a byte. Each thread writes bytes of its own, so
// a block that two have is also a race for ThreadSanitizer.
enum { OWNERS = 4,
    OWNED = 600 };
static struct {
    unsigned char *p;
    size_t size;
} owned[OWNERS][OWNED];
static pthread_barrier_t all_have, all_seen;

static void *owns(void *arg) {
    size_t self = (size_t)(uintptr_t)arg;
    uint64_t state = test_seed + self;
    t_scope;
    for (int i = 0; i < OWNED; i++) {
        // Small ones, and now and then one that needs a chunk; some in frames that end, whose place is used again.
        size_t size = i % 100 == 99 ? 100000 : 1 + test_random(&state) % 900;
        {
            t_scope;
            memset(t_new_raw(unsigned char, size), 0xEE, size);
        }
        owned[self][i].p = t_new_raw(unsigned char, size);
        owned[self][i].size = size;
        memset(owned[self][i].p, (int)(1 + self), size);
    }
    pthread_barrier_wait(&all_have);  // the main thread looks
    pthread_barrier_wait(&all_seen);
    for (int i = 0; i < OWNED; i++)
        for (size_t k = 0; k < owned[self][i].size; k++) CHECK_EQ(owned[self][i].p[k], 1 + self);
    return NULL;
}

static int by_address(const void *a, const void *b) {
    const uintptr_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

TEST(threads_share_no_block) {
    static uintptr_t ranges[OWNERS * OWNED][2];  // begin, end
    pthread_t t[OWNERS];
    pthread_barrier_init(&all_have, NULL, OWNERS + 1);
    pthread_barrier_init(&all_seen, NULL, OWNERS + 1);
    for (uintptr_t i = 0; i < OWNERS; i++) CHECK_EQ(pthread_create(&t[i], NULL, owns, (void *)i), 0);
    pthread_barrier_wait(&all_have);
    CHECK_GE(qy_stacks_of_threads(), OWNERS);
    size_t n = 0;
    for (int o = 0; o < OWNERS; o++)
        for (int i = 0; i < OWNED; i++, n++) {
            ranges[n][0] = (uintptr_t)owned[o][i].p;
            ranges[n][1] = ranges[n][0] + owned[o][i].size;
        }
    qsort(ranges, n, sizeof *ranges, by_address);
    for (size_t i = 1; i < n; i++) CHECK_LE(ranges[i - 1][1], ranges[i][0]);
    pthread_barrier_wait(&all_seen);
    for (int i = 0; i < OWNERS; i++) pthread_join(t[i], NULL);
    pthread_barrier_destroy(&all_have);
    pthread_barrier_destroy(&all_seen);
}

// Once a thread has its stack it takes no lock of ours: neither for blocks and frames nor for chunks.
static __thread bool watched;
static _Atomic unsigned locks_taken;
static void count_lock(const qy_lock_t *lock) {
    (void)lock;
    if (watched) locks_taken++;
}

static void *without_locks(void *arg) {
    {
        t_scope;
        t_new(char, 10);
    }
    quarry_pool_stats_t before = stats_of(t_pool());
    uint64_t state = test_seed;
    watched = true;
    for (int i = 0; i < 20; i++) {
        t_scope;
        deep(40, &state);
        char *p = t_new(char, (size_t)1000000 * (size_t)i + 1);
        CHECK(t_renew(&p, (size_t)1000000 * (size_t)i + 1, (size_t)2000000 * (size_t)i + 2));
    }
    quarry_stack_reset(t_pool());
    watched = false;
    quarry_pool_stats_t after = stats_of(t_pool());
    CHECK_GT(after.chunk_gets, before.chunk_gets);
    CHECK_GT(after.chunk_puts, before.chunk_puts);
    return arg;
}

TEST(threads_take_no_lock) {
    if (checked()) TEST_SKIP("needs pools:off: the register of a checked stack's blocks has a lock");
    void (*was)(const qy_lock_t *) = qy_lock_before;
    qy_lock_before = count_lock;
    watched = true;
    qy_stacks_of_threads();  // takes one, so it would be seen
    watched = false;
    CHECK_EQ(locks_taken, 1);
    pthread_t t[OWNERS];
    for (int i = 0; i < OWNERS; i++) CHECK_EQ(pthread_create(&t[i], NULL, without_locks, NULL), 0);
    for (int i = 0; i < OWNERS; i++) pthread_join(t[i], NULL);
    qy_lock_before = was;
    CHECK_EQ(locks_taken, 1);
}

// In a thread without a stack: scopes without blocks, then the first block deep inside.
static void *first_block(void *arg) {
    t_scope;
    {
        t_scope;
        t_scope;
    }
    CHECK(!quarry_thread_stack.stack);
    for (int i = 0; i < 3; i++) {
        t_scope;
        {
            t_scope;
            {
                t_scope;
                CHECK(t_new(char, 10));
            }
            if (i == 1) CHECK(t_new(char, 100000));
        }
        CHECK_EQ(used(), 0);
    }
    CHECK(t_new(char, 10));
    return arg;
}
static void *pool_first(void *arg) {
    t_scope;
    {
        t_scope;
        CHECK(t_pool());
    }
    CHECK(t_new(char, 10));
    return arg;
}
static void *leaves_scopes_open(void *arg) {
    quarry_stack_frame_t f;
    t_scope;
    if (!arg) quarry_stack_push(t_pool(), &f);
    t_new(char, 200000);
    pthread_exit(NULL);
}
static pthread_key_t early, late;
static __thread int rounds_of_late;
static void use_at_the_end(void *arg) {
    {
        t_scope;
        char *p = t_new(char, 300000);
        CHECK(!p[299999]);
        t_scope;
        CHECK(t_new(char, 10));
    }
    // The last round included.
    if (++rounds_of_late < 4 && arg != &early) pthread_setspecific(late, &late);
}
static void *used_at_the_end(void *arg) {
    pthread_setspecific(early, &early);
    pthread_setspecific(late, &late);
    if (arg) leaves_scopes_open(NULL);
    t_scope;
    t_new(char, 10);
    return NULL;
}

static void run_in_thread(void *(*body)(void *), void *arg) {
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, body, arg), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
}

static void *reset_before_the_first_block(void *arg) {
    {
        t_scope;
        quarry_stack_reset(t_pool());
    }
    t_scope;
    char *p = t_new_raw(char, 100), *q = t_new_raw(char, 100);
    CHECK(p && q == p + 100);
    memset(p, 1, 200);
    CHECK_EQ(quarry_pool_check(t_pool()), 0);
    return arg;
}
TEST(reset) {
    if (checked()) TEST_SKIP("needs pools:off: blocks of checked stacks are not adjacent");
    run_in_thread(reset_before_the_first_block, NULL);
}

TEST(ends_of_threads) {
    CHECK_EQ(pthread_key_create(&early, use_at_the_end), 0);
    run_in_thread(first_block, NULL);  // makes our key
    CHECK_EQ(pthread_key_create(&late, use_at_the_end), 0);
    static char yes;
    for (int i = 0; i < 30; i++) {
        run_in_thread(first_block, NULL);
        run_in_thread(pool_first, NULL);
        run_in_thread(leaves_scopes_open, NULL);
        run_in_thread(leaves_scopes_open, &yes);
        run_in_thread(used_at_the_end, NULL);
        run_in_thread(used_at_the_end, &yes);
        CHECK_LE(qy_stacks_of_threads(), 1);  // this thread's
    }
    size_t before = mappings();
    for (int i = 0; i < 100; i++) run_in_thread(used_at_the_end, i % 2 ? &yes : NULL);
    CHECK_LE(mappings(), before + 5);
    pthread_key_delete(early);
    pthread_key_delete(late);
}

// ---- fork ----------------------------------------------------------------------------------------------------

static pthread_barrier_t both;
static void *holds_memory(void *arg) {
    t_scope;
    memset(t_new_raw(char, 50000000), 1, 50000000);
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return arg;
}
static void in_child(void *arg) {
    (void)arg;
    CHECK_EQ(qy_stacks_of_threads(), 1);  // our own; that of the other thread is gone
    uint64_t state = 1;
    deep(40, &state);
#ifndef QUARRY_STACK_TSAN  // which allows no threads in a fork's child
    run_in_thread(first_block, NULL);
#endif
    CHECK_EQ(qy_stacks_of_threads(), 1);
}
TEST(forks) {
    t_scope;
    char *p = t_strdup("of the parent");
    pthread_t t;
    pthread_barrier_init(&both, NULL, 2);
    CHECK_EQ(pthread_create(&t, NULL, holds_memory, NULL), 0);
    pthread_barrier_wait(&both);
    CHECK_EQ(qy_stacks_of_threads(), 2);
    if (!checked()) run_apart(in_child, NULL);
    CHECK_STR_EQ(p, "of the parent");
    pthread_barrier_wait(&both);
    pthread_join(t, NULL);
}

// ---- longjmp -------------------------------------------------------------------------------------------------

static jmp_buf back;
static __attribute__((noinline)) void jumps(int depth, size_t bytes) {
    t_scope;
    volatile char pad[300];
    pad[0] = (char)depth;
    if (bytes) memset(t_new_raw(char, bytes), depth, bytes);
    if (depth > 0) jumps(depth - 1, bytes);
    else if (depth == 0) longjmp(back, 1);
    pad[1] = pad[0];
}
static __attribute__((noinline)) void catches(int depth, size_t bytes) {
    t_scope;
    char *volatile mine = t_strdup("mine");
    if (!setjmp(back)) jumps(depth, bytes);
    // What was skipped lies under what comes now, until this scope ends.
    char *more = t_strdup("more");
    {
        t_scope;
        t_new(char, 100000);
        by_return(3);
    }
    CHECK_STR_EQ(mine, "mine");
    CHECK_STR_EQ(more, "more");
}
TEST(longjmp_over_scopes) {
    for (int i = 0; i < 300; i++) {
        t_scope;
        char *p = t_strdup("outer");
        size_t before = used();
        static const size_t bytes[] = {0, 10, 500, 70000};
        catches(i % 20, bytes[i % 4]);
        CHECK_EQ(used(), before);
        CHECK_STR_EQ(p, "outer");
        CHECK(t_renew(&p, 6, 100) == p);
        CHECK_EQ(quarry_pool_check(t_pool()), 0);
    }
    CHECK_EQ(used(), 0);
    // Again and again, from one scope.
    t_scope;
    t_new(char, 1);
    for (volatile int i = 0; i < 1000; i++)
        if (!setjmp(back)) jumps(3, 30);
}

// ---- misuse --------------------------------------------------------------------------------------------------

static void must_die(void (*body)(void *), const char *word) {
    captured_t c = capture(body, NULL);
    if (c.exit_signal != SIGABRT || !strstr(c.text, word))
        TEST_FAIL("signal %d, \"%.300s\", wanted \"%s\"", c.exit_signal, c.text, word);
}
static void no_scope(void *arg) {
    (void)arg;
    t_new(char, 10);
}
static void no_scope_any_more(void *arg) {
    (void)arg;
    {
        t_scope;
        t_scope;
        t_new(char, 10);
    }
    t_new(char, 10);
}
static void no_scope_opened_inside(void *arg) {
    (void)arg;
    {
        t_scope;
        {
            t_scope;
            t_new(char, 100000);
        }
        {
            t_scope;
            t_new(char, 10);
        }
    }
    t_new(char, 10);
}
static void no_scope_after_longjmp(void *arg) {
    (void)arg;
    catches(5, 70000);
    t_new(char, 10);
}
static void no_scope_printf(void *arg) {
    (void)arg;
    t_printf("x");
}
static void sealed_below(void *arg) {
    (void)arg;
    t_scope;
    t_seal();
    {
        t_scope;
        {
            t_scope;
            t_new(char, 10);
        }
    }
    t_new(char, 1);
}
static void sealed_before_the_first_block(void *arg) {
    (void)arg;
    t_scope;
    t_seal();
    t_new(char, 1);
}
static void seal_without(void *arg) {
    (void)arg;
    t_seal();
}
static void inner_resize(void *arg) {
    (void)arg;
    t_scope;
    char *p = t_new(char, 10);
    t_scope;
    t_renew(&p, 10, 20);
}
static void longjmp_within(void *arg) {
    (void)arg;
    t_scope;
    if (!setjmp(back)) {
        t_scope;
        longjmp(back, 1);
    }
}
static void leave_order(void *arg) {
    (void)arg;
    quarry_stack_frame_t f, g;
    quarry_stack_push(t_pool(), &f);
    quarry_stack_push(t_pool(), &g);
    t_new(char, 10);
    quarry_stack_pop(t_pool(), &f);
}
static void *destroy_it(void *pool) {
    quarry_pool_destroy(pool);
    return NULL;
}
static void other_thread(void *arg) {
    (void)arg;
    run_in_thread(destroy_it, t_pool());
}

TEST(misuse_ends_it) {
    must_die(no_scope, "no open frame");
    must_die(no_scope_any_more, "no open frame");
    must_die(no_scope_opened_inside, "no open frame");
    must_die(no_scope_after_longjmp, "no open frame");
    must_die(no_scope_printf, "no open frame");
    must_die(sealed_below, "sealed frame");
    must_die(sealed_before_the_first_block, "sealed frame");
    must_die(seal_without, "no open frame");
    must_die(inner_resize, "block of another frame");
    must_die(longjmp_within, "unbalanced frames");
    must_die(leave_order, "unbalanced frames");
    must_die(other_thread, "wrong thread");
}

// ---- refusals ------------------------------------------------------------------------------------------------

static void *refused(void *arg) {
    uint64_t n = *(uint64_t *)arg;
    quarry_os_fault(n, 0, ~(1u << QY_OS_WRITE));
    {
        t_scope;
        {
            t_scope;
            char *p = t_new(char, 1000);
            if (!p) CHECK_EQ(errno, ENOMEM);
        }
        t_new(char, 200000);
    }
    *(uint64_t *)arg = quarry_os_fault_hits();
    quarry_os_fault(0, 0, 0);
    t_scope;
    CHECK(t_new(char, 200000));
    return NULL;
}
TEST(kernel_refuses) {
    uint64_t hits = 1, n = 1;
    for (; hits; n++) {
        hits = n;
        run_in_thread(refused, &hits);
    }
    CHECK_GE(n, 3);
    CHECK_LE(qy_stacks_of_threads(), 1);
}

TEST_MAIN()
