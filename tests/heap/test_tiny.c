// SPDX-License-Identifier: MIT
// Blocks of 8 bytes: which requests get them, what they cost, where they go, and what is told of misuse.
#include <pthread.h>
#include <sys/wait.h>

#include "heap/draw.h"
#include "heap/samples.h"
#include "heap/tiny.h"
#include "heap_test.h"
#include "rt/stats_page.h"

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }
static qy_heap_t *mine(void) { return qy_thread_get()->heap; }
static bool is_tiny(const void *p) {
    const qy_slab_t *s = span_of(p);
    return s && s->kind == QY_SPAN_SLAB && s->cls == QY_CLASS_TINY;
}

// From here on the calling thread's heap has such blocks.
static void begin(void) {
    qy_thread_t *t = qy_thread_get();
    qy_heap_lock(t->heap);
    if (!t->heap->tiny) atomic_fetch_add(&t->heap->cls_version, 1);
    t->heap->tiny = true;
    qy_heap_unlock(t->heap);
    qy_cache_refresh_classes(t);
    CHECK(t->tiny_on);
}

static void **nodes_new(size_t n) {
    begin();
    void **p = quarry_malloc(n * sizeof *p);
    CHECK(p);
    for (size_t i = 0; i < n; i++) {
        CHECK(p[i] = quarry_malloc(8));
        *(uint64_t *)p[i] = (uintptr_t)p[i] ^ i;
    }
    return p;
}
static void nodes_check(void **p, size_t n) {
    for (size_t i = 0; i < n; i++) CHECK_EQ(*(uint64_t *)p[i], (uintptr_t)p[i] ^ i);
}
static void nodes_free(void **p, size_t n) {
    nodes_check(p, n);
    for (size_t i = 0; i < n; i++) quarry_free(p[i]);
    quarry_free(p);
}

// Of slabs of such blocks, in all heaps.
static size_t slab_bytes(void) {
    size_t bytes = 0;
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) {
        qy_heap_lock(h);
        for (const qy_slab_t *s = h->all; s; s = s->all_next)
            if (s->kind == QY_SPAN_SLAB && s->cls == QY_CLASS_TINY) bytes += (size_t)s->units * QY_UNIT;
        qy_heap_unlock(h);
    }
    return bytes;
}

static void in_thread(void *(*body)(void *), void *arg) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, arg), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

// ---- which requests ---------------------------------------------------------------------------------------

TEST(not_in_small_programs) {
    for (size_t n = 1; n <= 8; n++) {
        void *p = quarry_malloc(n);
        CHECK_EQ((uintptr_t)p % 16, 0);
        CHECK_EQ(quarry_usable_size(p), 16);
        quarry_free(p);
    }
    CHECK_EQ(mine()->bins[QY_CLASS_TINY].nslabs, 0);
}

// As many that are for more bytes have no need of them.
static void *larger(void *unused) {
    enum { MANY = 50000 };
    static void *p[MANY];
    for (int i = 0; i < MANY; i++) CHECK(p[i] = quarry_malloc(9 + i % 8));
    CHECK(!mine()->tiny);
    for (int i = 0; i < MANY; i++) quarry_free(p[i]);
    return unused;
}
TEST(not_for_larger_ones) { in_thread(larger, NULL); }

// Nor has a heap whose other blocks take more: there is little to save.
static void *among_others(void *unused) {
    enum { MANY = 40000 };
    static void *p[MANY], *other[MANY];
    for (int i = 0; i < MANY; i++) CHECK((other[i] = quarry_malloc(48)) && (p[i] = quarry_malloc(8)));
    CHECK(!mine()->tiny);
    for (int i = 0; i < MANY; i++) {
        quarry_free(p[i]);
        quarry_free(other[i]);
    }
    return unused;
}
TEST(not_among_others) { in_thread(among_others, NULL); }

TEST(requests_of_1_to_8_bytes) {
    begin();
    for (size_t n = 1; n <= 8; n++) {
        void *p = quarry_malloc(n), *z = quarry_calloc(1, n), *r = quarry_realloc(NULL, n);
        void *a = quarry_aligned_alloc(8, n), *b = NULL;
        CHECK_EQ(quarry_posix_memalign(&b, 8, n), 0);
        void *all[] = {p, z, r, a, b};
        for (int i = 0; i < 5; i++) {
            CHECK(all[i] && is_tiny(all[i]));
            CHECK_EQ((uintptr_t)all[i] % 8, 0);
            CHECK_EQ(quarry_usable_size(all[i]), 8);
            for (int k = 0; k < i; k++) CHECK(all[i] != all[k]);
        }
        CHECK(is_zero(z, n));
        for (int i = 0; i < 5; i++) quarry_free(all[i]);
    }
    CHECK(!is_tiny(quarry_malloc(0)));
    void *p = quarry_malloc(9);
    CHECK(!is_tiny(p));
    CHECK_EQ((uintptr_t)p % 16, 0);
    quarry_free(p);
    // What must be aligned to more has more.
    for (size_t align = 16; align <= 4096; align *= 2) {
        CHECK((p = quarry_aligned_alloc(align, 8)) && !is_tiny(p));
        CHECK_EQ((uintptr_t)p % align, 0);
        quarry_free(p);
    }
}

TEST(zeroed) {
    enum { MANY = 3000 };
    static unsigned char *p[MANY];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < MANY; i++) {
            CHECK(is_zero(p[i] = quarry_calloc(1 + i % 8, 1), 1 + i % 8));
            memset(p[i], 0xA5, 8);
        }
        for (size_t i = 0; i < MANY; i++) quarry_free(p[i]);
    }
}

TEST(resized) {
    unsigned char *p = quarry_malloc(3);
    memset(p, 7, 3);
    CHECK_PTR_EQ(quarry_realloc(p, 8), p);
    memset(p, 7, quarry_usable_size(p));
    CHECK_PTR_EQ(quarry_realloc(p, 1), p);
    unsigned char *q = quarry_realloc(p, 9);
    CHECK(q && !is_tiny(q) && q[0] == 7 && q[7] == 7);
    CHECK(!quarry_realloc(q, 0));
    p = quarry_malloc(8);
    CHECK(!quarry_realloc(p, 0));
    quarry_free_sized(quarry_malloc(8), 8);
    verify_all();
}

static void count_sampled(void) {
    __atomic_store_n(&qy_stats_sampler.control, QY_DRAW_ON | 1 << 8 | 7, __ATOMIC_RELAXED);  // a point in 128 bytes
    enum { MANY = 20000 };
    static void *p[MANY];
    size_t sampled = 0;
    for (int i = 0; i < MANY; i++) {
        CHECK(p[i] = quarry_malloc(8));
        memset(p[i], 1, 8);
        sampled += !is_tiny(p[i]);
    }
    for (int i = 0; i < MANY; i++) quarry_free(p[i]);
    // One in 16.5; six standard deviations on each side.
    CHECK_GT(sampled, 1009);
    CHECK_LT(sampled, 1414);
    __atomic_store_n(&qy_stats_sampler.control, 0, __ATOMIC_RELAXED);
    void *q = quarry_malloc(8);
    CHECK(is_tiny(q));
    quarry_free(q);
    verify_all();
}
// Requests are counted, and the sampler is asked when the count is over.
static void hear_of_it(void) {
    static void *p[10 * QY_DRAW_TINY_MOST];
    begin();
    for (unsigned round = 1; round <= 3; round++) {
        size_t n = 0;
        for (size_t i = 0; i < 100 * round; i++) CHECK(is_tiny(p[n++] = quarry_malloc(8)));
        __atomic_store_n(&qy_stats_sampler.control, QY_DRAW_ON | round << 8, __ATOMIC_RELAXED);  // a point in a byte
        size_t before = n;
        while (n < 10 * QY_DRAW_TINY_MOST && is_tiny(p[n] = quarry_malloc(8))) n++;
        CHECK_LE(n - before, QY_DRAW_TINY_MOST + 8);
        n++;
        __atomic_store_n(&qy_stats_sampler.control, 0, __ATOMIC_RELAXED);
        CHECK(is_tiny(p[n++] = quarry_malloc(8)));
        while (n) quarry_free(p[--n]);
    }
    verify_all();
}
static void apart(void (*body)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (!pid) {
        body();
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}
TEST(the_sampler_sees_them) { apart(count_sampled); }
TEST(the_sampler_is_heard_of) { apart(hear_of_it); }

static void off_by_an_option(void) {
    begin();
    void *before = quarry_malloc(8);
    CHECK(is_tiny(before));
    qy_opts.tiny = 0;
    qy_thread_options_changed();
    for (size_t n = 1; n <= 8; n++) {
        void *p = quarry_malloc(n);
        CHECK_EQ((uintptr_t)p % 16, 0);
        CHECK_EQ(quarry_usable_size(p), 16);
        quarry_free(p);
    }
    quarry_free(before);
    verify_all();
}
TEST(off) { apart(off_by_an_option); }
static void without_a_cache(void) {
    begin();
    void *before = quarry_malloc(8);
    qy_opts.tcache = false;
    qy_thread_options_changed();
    void *p = quarry_malloc(8);
    CHECK_EQ(quarry_usable_size(p), 16);
    quarry_free(p);
    quarry_free(before);
    verify_all();
}
TEST(off_without_a_cache) { apart(without_a_cache); }

// ---- what they cost -----------------------------------------------------------------------------------------

static size_t taken(void) {
    quarry_stats_t st = stats_add_up();
    return st.mapped_bytes - st.pages_dirty_bytes - st.pages_clean_bytes + st.metadata_bytes;
}

// 8 bytes each and a twentieth, but for the slab that was begun, and what was needed to see that there are many. With
// 16 bytes each it was more than twice that.
static void *make_a_list(void *unused) {
    enum { MANY = 200000 };
    static struct node {
        struct node *next;
    } * head, *next;
    quarry_free(quarry_malloc(8));
    size_t before = taken();
    for (int i = 0; i < MANY; i++) {
        CHECK(next = quarry_malloc(sizeof *next));
        next->next = head;
        head = next;
    }
    CHECK_LE(taken() - before, MANY * 8 + MANY * 8 / 20 + 65536 + qy_opts.tiny / 2);
    quarry_stats_t st = stats_add_up();
    CHECK_GE(st.live_bytes, MANY * 8);
    CHECK(is_tiny(head));
    for (; head; head = next) {
        next = head->next;
        quarry_free(head);
    }
    quarry_stats_t end = stats_add_up();
    CHECK_EQ(st.live_blocks - end.live_blocks, MANY);
    CHECK_GE(st.live_bytes - end.live_bytes, MANY * 8);
    verify_all();
    return unused;
}
TEST(memory_of_a_list) { in_thread(make_a_list, NULL); }

// All that is free goes back, and is used again.
TEST(given_back) {
    enum { MANY = 100000 };
    void **p = nodes_new(MANY);
    // One block of each fourth page stays.
    for (size_t i = 0; i < MANY; i++)
        if (i % 2048) quarry_free(p[i]);
    size_t live = stats_add_up().live_blocks;
    quarry_trim(0);
    verify_all();
    CHECK_EQ(stats_add_up().live_blocks, live);
    size_t pages = 0;
    for (size_t i = 0; i < MANY; i += 2048) {
        CHECK_EQ(*(uint64_t *)p[i], (uintptr_t)p[i] ^ i);
        pages += resident((void *)qy_round_down((uintptr_t)p[i], 16384), 16384);
    }
    if (qy_os_page_size() == 4096) CHECK_LE(pages, 2 * (MANY / 2048 + 1));
    CHECK_GT(stats_add_up().slab_purged_bytes, MANY * 8 / 2);
    void **q = nodes_new(MANY);
    for (size_t i = 0; i < MANY; i += 2048) CHECK_EQ(*(uint64_t *)p[i], (uintptr_t)p[i] ^ i);
    verify_all();
    nodes_free(q, MANY);
    for (size_t i = 0; i < MANY; i += 2048) quarry_free(p[i]);
    quarry_free(p);
    verify_all();
    quarry_trim(0);
    CHECK_EQ(mine()->bins[QY_CLASS_TINY].nslabs, 0);
}

// A thread remembers where the bits of slabs are. These go, and others lie where they were, with bits elsewhere: for
// the same thread, and for the next one with its record.
static void *again(void *unused) {
    enum { MANY = 100000 };
    for (int round = 0; round < 4; round++) {
        void **p = nodes_new(MANY), **q = nodes_new(MANY);
        nodes_free(round % 2 ? p : q, MANY);
        quarry_trim(0);
        nodes_free(round % 2 ? q : p, MANY);
        quarry_trim(0);
        verify_all();
        CHECK_EQ(mine()->bins[QY_CLASS_TINY].nslabs, 0);
    }
    return unused;
}
TEST(slabs_that_lie_where_others_were) {
    again(NULL);
    for (int i = 0; i < 3; i++) in_thread(again, NULL);
}

// ---- a model ------------------------------------------------------------------------------------------------

enum { SLOTS = 6000 };
typedef struct freer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *p[64];
    size_t n;
    bool tell, stop;
} freer_t;

// Frees what it is given; and tells the owner at once where it is asked to.
static void *freeing(void *arg) {
    freer_t *f = arg;
    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (!f->n && !f->stop) pthread_cond_wait(&f->changed, &f->lock);
        if (!f->n) break;
        for (size_t i = 0; i < f->n; i++) quarry_free(f->p[i]);
        if (f->tell) qy_remote_flush(qy_thread_get());
        f->n = 0;
        pthread_cond_broadcast(&f->changed);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}
static void let_free(freer_t *f, void **p, size_t n, bool tell) {
    pthread_mutex_lock(&f->lock);
    memcpy(f->p, p, n * sizeof *p);
    f->n = n;
    f->tell = tell;
    pthread_cond_broadcast(&f->changed);
    while (f->n) pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

TEST(model) {
    rng = test_seed;
    begin();
    static void *slot[SLOTS];
    freer_t f = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, freeing, &f), 0);
    size_t live = 0, base = stats_add_up().live_blocks, steps = QY_TSAN ? 100000 : 400000, most = SLOTS;
    for (size_t step = 0; step < steps; step++) {
        size_t i = below(most);
        if (step % 20000 == 0) most = 1 + below(SLOTS);
        if (slot[i]) CHECK_EQ(*(uint64_t *)slot[i], (uintptr_t)slot[i] ^ i);
        if (!slot[i]) {
            CHECK((slot[i] = quarry_malloc(8)) && is_tiny(slot[i]));
            *(uint64_t *)slot[i] = (uintptr_t)slot[i] ^ i;
            live++;
        } else if (step % 64) {
            quarry_free(slot[i]);
            slot[i] = NULL;
            live--;
        } else {
            void *some[64];
            size_t n = 0;
            for (; n < 64 && i < SLOTS; i++)
                if (slot[i]) {
                    CHECK_EQ(*(uint64_t *)slot[i], (uintptr_t)slot[i] ^ i);
                    some[n++] = slot[i];
                    slot[i] = NULL;
                }
            let_free(&f, some, n, below(4) == 0);
            live -= n;
        }
        if (step % 997 == 0) verify(mine());
        if (step % 9973 == 0) CHECK_EQ(stats_add_up().live_blocks - base, live);
        if (below(50000) == 0) quarry_trim(0);
        if (below(50000) == 0) qy_thread_flush(qy_thread_get());
    }
    f.stop = true;
    pthread_mutex_lock(&f.lock);
    pthread_cond_broadcast(&f.changed);
    pthread_mutex_unlock(&f.lock);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < SLOTS; i++) {
        if (slot[i]) CHECK_EQ(*(uint64_t *)slot[i], (uintptr_t)slot[i] ^ i);
        quarry_free(slot[i]);
        slot[i] = NULL;
    }
    qy_thread_flush(qy_thread_get());
    verify_all();
    quarry_trim(0);
    CHECK_EQ(mine()->bins[QY_CLASS_TINY].nslabs, 0);
}

// ---- threads --------------------------------------------------------------------------------------------------

// Each takes what it finds in a place, and frees it, or puts a block of its own there.
enum { PLACES = 2048,
    THREADS = 4 };
static _Atomic(uint64_t *) place[PLACES];
static void *churn(void *id) {
    uint64_t random = (uintptr_t)id * 77 + test_seed;
    begin();
    for (int i = 0; i < (QY_TSAN ? 40000 : 300000); i++) {
        uint64_t r = test_random(&random), *p = NULL, *was;
        if (r % 3) {
            CHECK(p = quarry_malloc(1 + r / 3 % 8));
            *p = ~(uintptr_t)p;
        }
        was = atomic_exchange(&place[r / 64 % PLACES], p);
        if (was) CHECK_EQ(*was, ~(uintptr_t)was);
        if (was) *was = 0;
        quarry_free(was);
        if (r / 131072 % 20000 == 0) quarry_trim(0);
    }
    return NULL;
}
static void *short_lives(void *id) {
    for (uintptr_t i = 0; i < 8; i++) in_thread(churn, (void *)((uintptr_t)id + i));
    return NULL;
}
TEST(threads) {
    pthread_t thread[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, i ? churn : short_lives, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < PLACES; i++) quarry_free(atomic_exchange(&place[i], NULL));
    verify_all();
    qy_thread_flush(qy_thread_get());
    verify_all();
}

enum { HANDED = 50000 };
static void *free_all(void *nodes) {
    nodes_free(nodes, HANDED);
    return NULL;
}
static void *make_all(void *ret) {
    *(void ***)ret = nodes_new(HANDED);
    return NULL;
}
static void *free_all_and_trim(void *nodes) {
    nodes_free(nodes, HANDED);
    quarry_trim(0);
    return NULL;
}

// What another thread freed is used again before there is more.
TEST(freed_by_another_thread) {
    in_thread(free_all, nodes_new(HANDED));
    size_t slabs = mine()->bins[QY_CLASS_TINY].nslabs;
    for (int i = 0; i < 5; i++) in_thread(free_all, nodes_new(HANDED));
    CHECK_LE(mine()->bins[QY_CLASS_TINY].nslabs, slabs + 1);
    verify_all();
}

// The owner does nothing, and its memory goes back even so, but for what its last page is part of.
TEST(of_a_thread_that_sleeps) {
    quarry_trim(0);
    void **p = nodes_new(HANDED);
    char *first = p[20000];
    size_t before = stats_add_up().slab_free_bytes - stats_add_up().slab_purged_bytes;
    in_thread(free_all_and_trim, p);
    quarry_stats_t st = stats_add_up();
    CHECK_LE(st.slab_free_bytes - st.slab_purged_bytes, before + 65536);
    (void)first;
    verify_all();
    qy_thread_flush(qy_thread_get());
    verify_all();
}

// A thread's heap goes to the next one, with its blocks.
TEST(of_a_thread_that_ended) {
    void **p, **q;
    in_thread(make_all, &p);
    nodes_check(p, HANDED);
    for (size_t i = 0; i < HANDED; i += 2) quarry_free(p[i]);
    qy_thread_flush(qy_thread_get());
    verify_all();
    size_t before = slab_bytes();
    in_thread(make_all, &q);
    // Half of them lie where the others were.
    CHECK_LE(slab_bytes() - before, HANDED * 8 / 2 + 65536);
    for (size_t i = 1; i < HANDED; i += 2) CHECK_EQ(*(uint64_t *)p[i], (uintptr_t)p[i] ^ i);
    nodes_free(q, HANDED);
    for (size_t i = 1; i < HANDED; i += 2) quarry_free(p[i]);
    quarry_free(p);
    qy_thread_flush(qy_thread_get());
    verify_all();
    // An idle heap's slabs are another thread's when it needs some.
    size_t steals = stats_add_up().slab_steals;
    p = nodes_new(HANDED);
    verify_all();
    CHECK_GE(stats_add_up().slab_steals, steals);
    nodes_free(p, HANDED);
}

// A child has what it had, and what its parent's other threads leave.
static _Atomic bool stop;
static void *at_work(void *id) {
    uint64_t random = (uintptr_t)id;
    static __thread uint64_t *own[512];
    begin();
    while (!atomic_load(&stop)) {
        uint64_t r = test_random(&random) % 512;
        quarry_free(own[r]);
        CHECK(own[r] = quarry_malloc(8));
        *own[r] = r;
    }
    for (int i = 0; i < 512; i++) quarry_free(own[i]);
    return NULL;
}
static void *child_at_work(void *unused) {
    void **p = nodes_new(5000);
    nodes_free(p, 5000);
    return unused;
}
TEST(forks) {
    pthread_t thread[2];
    atomic_store(&stop, false);
    for (uintptr_t i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, at_work, (void *)(i + 1)), 0);
    for (int i = 0; i < (QY_TSAN ? 0 : 20); i++) {
        void **p = nodes_new(1000);
        pid_t pid = fork();
        CHECK_GE(pid, 0);
        if (!pid) {
            for (int k = 0; k < 4; k++) in_thread(child_at_work, NULL);
            nodes_free(p, 1000);
            verify_all();
            _exit(0);
        }
        int status;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        nodes_free(p, 1000);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(thread[i], NULL), 0);
    verify_all();
}

// ---- misuse ---------------------------------------------------------------------------------------------------

static void free_it(void *p) { quarry_free(p); }
static void free_twice(void *p) {
    quarry_free(p);
    quarry_free(p);
}
static void free_twice_later(void *p) {
    quarry_free(p);
    void *other[700];
    for (int i = 0; i < 700; i++) quarry_free(other[i] = quarry_malloc(9));
    quarry_trim(0);
    quarry_free(p);
}
static void *free_there(void *p) {
    quarry_free(p);
    return NULL;
}
static void free_here_and_there(void *p) {
    quarry_free(p);
    in_thread(free_there, p);
}
static void free_there_and_here(void *p) {
    in_thread(free_there, p);
    quarry_free(p);
}
static void *free_twice_there(void *p) {
    free_twice(p);
    return NULL;
}
static void free_by_another_twice(void *p) { in_thread(free_twice_there, p); }
static void free_by_two_others(void *p) {
    in_thread(free_there, p);
    in_thread(free_there, p);
}
static void free_inside_there(void *p) { in_thread(free_there, (char *)p + 4); }
static void resize_freed(void *p) {
    quarry_free(p);
    (void)!quarry_realloc(p, 4);
}
static void ask_freed(void *p) {
    quarry_free(p);
    (void)!quarry_usable_size(p);
}
static void size_too_large(void *p) { quarry_free_sized(p, 9); }

TEST(misuse_is_told) {
    void **p = nodes_new(1000);
    char *b = p[500];
    must_die(free_twice, b, "double free");
    must_die(free_twice_later, b, "double free");
    must_die(free_here_and_there, b, "double free");
    must_die(free_there_and_here, b, "double free");
    must_die(free_by_another_twice, b, "double free");
    must_die(free_by_two_others, b, "double free");
    must_die(resize_freed, b, "double free");
    must_die(ask_freed, b, "double free");
    for (int i = 1; i < 8; i++) must_die(free_it, b + i, "free of an interior pointer");
    must_die(free_inside_there, b, "free of an interior pointer");
    must_die(size_too_large, b, "wrong size");
    const qy_slab_t *s = span_of(b);
    // A block of the same page that was never given out, and a page that never had one.
    quarry_free(p[999]);
    void *next = quarry_malloc(8);
    p[999] = next;
    char *end = s->base + (size_t)s->units * QY_UNIT;
    if (s->ncarved < s->nblocks) must_die(free_it, end - 8, "never allocated");
    nodes_free(p, 1000);
}

TEST_MAIN()
