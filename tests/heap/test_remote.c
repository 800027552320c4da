// SPDX-License-Identifier: MIT
// Frees from other threads: what is handed over is counted exactly, reaches its owner whatever
// happens meanwhile, and in groups of the size remote.c promises.
#include "heap_test.h"

#include <pthread.h>

#define SLAB_BLOCKS 4096

static uint64_t rng;
static size_t below(size_t n) { return test_random(&rng) % n; }

// All blocks of a slab of class c, taken from h.
typedef struct taken {
    qy_slab_t *s;
    qy_block_t *b[SLAB_BLOCKS];
    size_t n;
} taken_t;

static void take_slab(qy_heap_t *h, unsigned c, taken_t *t) {
    bool fresh = false;
    qy_heap_lock(h);
    t->n = 0;
    t->s = NULL;
    do {
        qy_block_t *b = qy_slab_take_one(h, c, &fresh);
        CHECK(b);
        b->mark = 0;
        if (!t->s) t->s = span_of(b);
        CHECK_PTR_EQ(span_of(b), t->s);
        t->b[t->n++] = b;
    } while (t->s->ncarved < t->s->nblocks || qy_slab_home(t->s));
    CHECK_EQ(t->n, t->s->nblocks);
    qy_heap_unlock(h);
}

static void drain(qy_heap_t *h) {
    qy_heap_lock(h);
    qy_remote_drain(h);
    qy_heap_unlock(h);
}

// All mail of h has been read, and no slab waits for a drain that will not come.
static void check_no_mail(qy_heap_t *h) {
    CHECK(!atomic_load(&h->mailbox));
    qy_heap_lock(h);
    for (qy_slab_t *s = h->all; s; s = s->all_next) CHECK_EQ(atomic_load(&s->remote), 0);
    qy_heap_unlock(h);
}

static size_t pending_bytes(void) {
    qy_thread_t *t = qy_thread_get();
    size_t n = 0;
    for (unsigned i = 0; i < QY_PEND_COUNT; i++)
        n += t->pend[i].slab ? t->pend[i].count * qy_class_size[t->pend[i].slab->cls] : 0;
    return n;
}
static size_t pending(void) {
    qy_thread_t *t = qy_thread_get();
    size_t n = 0;
    for (unsigned i = 0; i < QY_PEND_COUNT; i++) n += t->pend[i].slab ? t->pend[i].count : 0;
    return n;
}

static void put_home(qy_heap_t *h, taken_t *t, size_t from) {
    qy_thread_flush(qy_thread_get());
    drain(h);
    qy_heap_lock(h);
    for (size_t i = from; i < t->n; i++) {
        qy_slab_put(h, t->s, t->b[i]);
        qy_slab_settle(h, t->s);
    }
    qy_heap_unlock(h);
    verify(h);
}

TEST(group_size) {
    static const unsigned classes[] = {1, 2, 4, 8, 16, 17, 32, 48, 64, 65, 80, 96, 112};
    static taken_t t;
    for (unsigned k = 0; k < sizeof classes / sizeof *classes; k++) {
        unsigned c = classes[k];
        qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
        take_slab(h, c, &t);
        qy_thread_flush(qy_thread_get());
        size_t group = t.n / 4, size = qy_class_size[c];
        if (group < 8) group = 8;
        if (group > 256) group = 256;
        size_t published = 0, waiting = 0;
        for (size_t i = 0; i < t.n; i++) {
            quarry_free(t.b[i]);
            waiting++;
            if (waiting >= group || waiting * size > QY_PEND_BYTES) {
                published += waiting;
                waiting = 0;
            }
            CHECK_EQ(remote_count(t.s), published);
            CHECK_EQ(pending(), waiting);
            CHECK_EQ(qy_thread_get()->pend_bytes, waiting * size);
            CHECK_PTR_EQ(atomic_load(&h->mailbox), published ? t.s : NULL);
            CHECK_EQ(atomic_load(&h->publishes), published ? 1 : 0);  // queued once, until it is drained
            CHECK_EQ(blocks_out(h), t.n - published);
        }
        verify(h);
        size_t adoptions = h->adoptions;
        drain(h);
        CHECK_EQ(h->adoptions, adoptions + (published > 0));
        CHECK_EQ(qy_slab_home(t.s), published);
        CHECK_EQ(atomic_load(&t.s->remote), 0);
        put_home(h, &t, t.n);
        CHECK_EQ(blocks_out(h), 0);
    }
}

// More slabs than pending groups: nothing is lost when there is no place for another one.
TEST(many_slabs) {
    enum { SLABS = QY_PEND_COUNT * 3 / 2 };
    static taken_t t[SLABS];
    rng = test_seed;
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    size_t total = 0, freed = 0;
    for (int i = 0; i < SLABS; i++) {
        take_slab(h, 20 + (unsigned)i % 3, &t[i]);
        total += t[i].n;
    }
    while (freed < total) {
        taken_t *x = &t[below(SLABS)];
        if (!x->n) continue;
        size_t at = below(x->n);
        quarry_free(x->b[at]);
        x->b[at] = x->b[--x->n];
        freed++;
        CHECK_EQ(blocks_out(h), total - freed + pending());
        CHECK_LE(qy_thread_get()->pend_bytes, QY_PEND_BYTES);
        CHECK_EQ(qy_thread_get()->pend_bytes, pending_bytes());
        if (below(500) == 0) {
            drain(h);
            check_no_mail(h);
        }
        if (below(400) == 0) verify(h);
    }
    qy_thread_flush(qy_thread_get());
    drain(h);
    check_no_mail(h);
    CHECK_EQ(blocks_out(h), 0);
    verify_all();
}

// Groups of more heaps than a flush has posts: each heap is mailed its own slabs, each of them once.
TEST(many_heaps) {
    enum { HEAPS = 12,
        EACH = 4,
        FEW = 7 };  // of each slab: a group is larger
    static taken_t t[HEAPS][EACH];
    static qy_heap_t *h[HEAPS];
    qy_thread_flush(qy_thread_get());
    for (int i = 0; i < HEAPS; i++) {
        h[i] = qy_heap_new(QY_HEAP_THREAD);
        for (int k = 0; k < EACH; k++) take_slab(h[i], 2 + (unsigned)k, &t[i][k]);
    }
    for (size_t n = 0; n < FEW; n++)
        for (int k = 0; k < EACH; k++)
            for (int i = 0; i < HEAPS; i++) quarry_free(t[i][k].b[--t[i][k].n]);
    qy_remote_flush(qy_thread_get());
    CHECK_EQ(pending(), 0);
    for (int i = 0; i < HEAPS; i++) {
        size_t slabs = 0, adoptions = h[i]->adoptions;
        for (qy_slab_t *s = atomic_load(&h[i]->mailbox); s; s = s->mail_next, slabs++)
            CHECK_PTR_EQ(atomic_load(&s->heap), h[i]);
        CHECK_EQ(slabs, EACH);
        CHECK_EQ(atomic_load(&h[i]->publishes), EACH);
        for (int k = 0; k < EACH; k++) CHECK_EQ(remote_count(t[i][k].s), FEW);
        drain(h[i]);
        check_no_mail(h[i]);
        CHECK_EQ(h[i]->adoptions, adoptions + EACH);
        for (int k = 0; k < EACH; k++) {
            CHECK_EQ(qy_slab_home(t[i][k].s), FEW);
            put_home(h[i], &t[i][k], 0);
        }
        CHECK_EQ(blocks_out(h[i]), 0);
    }
}

// Chains that meet in a slab's word, and at home, until both places there are taken: all their blocks come out again.
TEST(chains_meet) {
    static taken_t t, again;
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 6;
    take_slab(h, c, &t);
    size_t left = t.n;
    for (int chains = 1; chains <= 4; chains++) {  // so many in the word when it is drained
        for (int k = 0; k < chains; k++) {
            for (int i = 0; i < 3; i++) quarry_free(t.b[--left]);
            qy_remote_flush(qy_thread_get());
        }
        drain(h);
        CHECK_EQ(qy_slab_home(t.s), t.n - left);
        verify(h);
    }
    CHECK(t.s->chain && t.s->chain2);
    for (size_t i = left; i < t.n; i++) {
        bool fresh = false;
        qy_heap_lock(h);
        qy_block_t *b = qy_slab_take_one(h, c, &fresh);
        qy_heap_unlock(h);
        CHECK_PTR_EQ(span_of(b), t.s);
        b->mark = 0;
        again.b[again.n++] = b;
        for (size_t k = 0; k + 1 < again.n; k++) CHECK(again.b[k] != b);
    }
    CHECK_EQ(qy_slab_home(t.s), 0);
    verify(h);
    for (size_t i = 0; i < again.n; i++) t.b[left + i] = again.b[i];
    put_home(h, &t, 0);
    CHECK_EQ(blocks_out(h), 0);
}

static void *free_some(void *arg) {
    taken_t *t = arg;
    for (size_t i = 0; i < t->n; i++) quarry_free(t->b[i]);
    return NULL;
}

// A freer that read the slab's owner before the slab was stolen pushes it to the old owner.
TEST(forwarded_after_steal) {
    static taken_t t;
    qy_heap_t *old = qy_heap_new(QY_HEAP_THREAD), *new = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 24;
    take_slab(old, c, &t);
    qy_heap_lock(old);
    for (size_t i = 0; i < 3; i++) {  // something at home, so that it can be found
        qy_slab_put(old, t.s, t.b[--t.n]);
        qy_slab_settle(old, t.s);
    }
    qy_heap_unlock(old);
    size_t count = t.n;
    for (size_t i = 0; i < count / 2; i++) quarry_free(t.b[i]);
    qy_remote_flush(qy_thread_get());
    CHECK_EQ(remote_count(t.s), count / 2);
    CHECK_PTR_EQ(atomic_load(&old->mailbox), t.s);
    // The steal looked just before the freer's first step: it saw an empty word.
    uint64_t word = atomic_exchange(&t.s->remote, 0);
    qy_heap_lock(new);
    CHECK(qy_heap_trylock(old));
    CHECK(qy_slab_steal(new, old, c));
    atomic_store(&t.s->remote, word);
    qy_heap_unlock(old);
    qy_heap_unlock(new);
    CHECK_PTR_EQ(atomic_load(&t.s->heap), new);

    // More arrives meanwhile: the slab is queued, so it is not pushed again.
    for (size_t i = count / 2; i < count - 1; i++) quarry_free(t.b[i]);
    qy_remote_flush(qy_thread_get());
    CHECK(!atomic_load(&new->mailbox));
    size_t adoptions = new->adoptions;
    drain(new);
    CHECK_EQ(new->adoptions, adoptions);
    drain(old);
    CHECK_EQ(old->adoptions, 0);
    CHECK(!atomic_load(&old->mailbox));
    CHECK_PTR_EQ(atomic_load(&new->mailbox), t.s);
    CHECK_EQ(remote_count(t.s), count - 1);
    drain(new);
    CHECK(!atomic_load(&new->mailbox));
    CHECK_EQ(new->adoptions, adoptions + 1);
    CHECK_EQ(qy_slab_home(t.s), 3 + count - 1);
    CHECK_EQ(blocks_out(new), 1);
    CHECK_EQ(blocks_out(old), 0);
    verify(new);
    verify(old);
    quarry_free(t.b[count - 1]);
    qy_remote_flush(qy_thread_get());
    CHECK_PTR_EQ(atomic_load(&new->mailbox), t.s);
    drain(new);
    CHECK_EQ(blocks_out(new), 0);
    verify(new);
}

TEST(idle_owner_is_served_at_once) {
    static taken_t t;
    quarry_free(quarry_malloc(1));  // else this thread would take the idle heap for its own
    qy_heap_t *h = qy_heap_attach();
    take_slab(h, 28, &t);
    qy_heap_detach(h);
    for (size_t i = 0; i < t.n; i++) {
        quarry_free(t.b[i]);
        CHECK(!atomic_load(&h->mailbox));
        CHECK_EQ(remote_count(t.s), 0);
        CHECK_EQ(blocks_out(h), t.n - (i + 1) + pending());
    }
    qy_remote_flush(qy_thread_get());
    CHECK_EQ(blocks_out(h), 0);
    verify(h);
}

// ---- threads --------------------------------------------------------------------------------------

TEST(two_freers_into_one_slab) {
    static taken_t t, half[2];
    for (int round = 0; round < 60; round++) {
        qy_heap_t *h = round % 2 ? qy_heap_new(QY_HEAP_THREAD) : qy_heap_new(QY_HEAP_FIRST_CLASS);
        unsigned c = 1 + (unsigned)round % 30;
        take_slab(h, c, &t);
        half[0].n = half[1].n = 0;
        for (size_t i = 0; i + 1 < t.n; i++) {
            taken_t *x = &half[i % 2];
            x->b[x->n++] = t.b[i];
        }
        pthread_t thread[2];
        for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&thread[i], NULL, free_some, &half[i]), 0);
        for (int i = 0; i < 100; i++) drain(h);  // the owner looks while they write
        for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
        drain(h);
        CHECK_EQ(blocks_out(h), 1);
        CHECK_EQ(qy_slab_home(t.s), t.n - 1);
        CHECK(!atomic_load(&h->mailbox));
        if (h->kind == QY_HEAP_FIRST_CLASS) CHECK_EQ(atomic_load(&h->publishes), 0);  // no mail: all took the lock
        verify(h);
        qy_heap_lock(h);
        qy_slab_put(h, t.s, t.b[t.n - 1]);
        qy_slab_settle(h, t.s);
        qy_heap_unlock(h);
        verify(h);
    }
}

#define BLOCKS 20000
static void *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static _Atomic size_t next_block;

static void *free_all(void *unused) {
    (void)unused;
    for (size_t i; (i = atomic_fetch_add(&next_block, 1)) < BLOCKS;) {
        check_filled(blocks[i], 0, sizes[i], i);
        quarry_free(blocks[i]);
    }
    return NULL;
}

TEST(threads_free_what_one_makes) {
    rng = test_seed;
    quarry_free(quarry_malloc(1));
    qy_heap_t *mine = qy_thread_get()->heap;
    for (int round = 0; round < 8; round++) {
        qy_thread_flush(qy_thread_get());
        size_t out = blocks_out(mine);
        for (size_t i = 0; i < BLOCKS; i++) {
            sizes[i] = 1 + (below(20) ? below(300) : below(4000));
            CHECK(blocks[i] = quarry_malloc(sizes[i]));
            fill(blocks[i], 0, sizes[i], i);
        }
        qy_thread_flush(qy_thread_get());
        CHECK_EQ(blocks_out(mine), out + BLOCKS);
        next_block = 0;
        pthread_t thread[3];
        for (int i = 0; i < 3; i++) CHECK_EQ(pthread_create(&thread[i], NULL, free_all, NULL), 0);
        void *own[100];  // the owner goes on meanwhile
        for (int n = 0; n < 100; n++) {
            for (int i = 0; i < 100; i++) own[i] = quarry_malloc(1 + below(500));
            for (int i = 0; i < 100; i++) quarry_free(own[i]);
        }
        for (int i = 0; i < 3; i++) pthread_join(thread[i], NULL);
        qy_thread_flush(qy_thread_get());
        CHECK_EQ(blocks_out(mine), out);
        check_no_mail(mine);
        verify_all();
    }
}

// Threads that come and go leave idle heaps behind; others steal from these while blocks of them are
// freed by yet others. At the end nothing is missing.
#define EXCHANGE 512
static _Atomic(void *) exchange[EXCHANGE];
static _Atomic uint64_t made, freed;

static void *live_shortly(void *arg) {
    uint64_t r = test_seed + (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 4000; i++) {
        void *p = NULL;
        if (test_random(&r) % 3) {
            size_t n = 16 + test_random(&r) % 4 * 250;
            CHECK(p = quarry_malloc(n));
            *(size_t *)p = n;
            ((unsigned char *)p)[n - 1] = 0x5A;
            atomic_fetch_add(&made, 1);
        }
        p = atomic_exchange(&exchange[test_random(&r) % EXCHANGE], p);
        if (!p) continue;
        size_t n = *(size_t *)p;
        CHECK(n >= 16 && n <= 766 && ((unsigned char *)p)[n - 1] == 0x5A);
        ((unsigned char *)p)[n - 1] = 0;
        quarry_free(p);
        atomic_fetch_add(&freed, 1);
    }
    return NULL;
}

TEST(heaps_come_and_go) {
    quarry_stats_t before, after;
    quarry_stats_read(&before);
    made = freed = 0;
    for (size_t round = 0; round < 12; round++) {
        pthread_t thread[4];
        for (size_t i = 0; i < 4; i++)
            CHECK_EQ(pthread_create(&thread[i], NULL, live_shortly, (void *)(round * 8 + i)), 0);
        for (int i = 0; i < 4; i++) pthread_join(thread[i], NULL);
        for (qy_heap_t *h = qy_heap_first(); h; h = h->next) drain(h);
        verify_all();
        quarry_stats_t st = stats_add_up();
        CHECK_EQ(st.live_blocks - before.live_blocks, made - freed);
    }
    for (int i = 0; i < EXCHANGE; i++) quarry_free(exchange[i]);
    qy_thread_flush(qy_thread_get());
    for (int i = 0; i < 2; i++)
        for (qy_heap_t *h = qy_heap_first(); h; h = h->next) drain(h);
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) check_no_mail(h);
    quarry_stats_read(&after);
    CHECK_EQ(after.live_blocks, before.live_blocks);
    CHECK_GT(after.heap_adoptions, before.heap_adoptions);
    CHECK_GT(after.remote_publishes, before.remote_publishes);
    verify_all();
}

// ---- threads whose end has begun ------------------------------------------------------------------

static void *dead_at_birth(void *arg) {
    taken_t *t = arg;
    qy_thread_state = QY_THREAD_DEAD;  // what the exit handler leaves
    for (size_t i = 0; i < t->n; i++) quarry_free(t->b[i]);
    CHECK(!qy_thread_get());
    void *p[50];
    for (int i = 0; i < 50; i++) {
        CHECK(p[i] = quarry_malloc((size_t)(i + 1) * 40));
        CHECK_EQ(atomic_load(&span_of(p[i])->heap) == qy_heap_shared(), true);
        memset(p[i], 1, (size_t)(i + 1) * 40);
    }
    for (int i = 0; i < 50; i++) quarry_free(p[i]);
    CHECK(!qy_thread_get());
    return NULL;
}

TEST(dead_threads_use_the_shared_heap) {
    static taken_t t;
    for (int round = 0; round < 3; round++) {
        qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD), *shared = qy_heap_shared();
        size_t out = blocks_out(shared);
        take_slab(h, 6 + (unsigned)round, &t);
        size_t heaps_idle, heaps = qy_heaps_count(&heaps_idle), idle_after;
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, dead_at_birth, &t), 0);
        pthread_join(thread, NULL);
        CHECK_EQ(blocks_out(h), 0);  // home at once, nothing waits anywhere
        CHECK(!atomic_load(&h->mailbox));
        CHECK_EQ(blocks_out(shared), out);
        CHECK_EQ(qy_heaps_count(&idle_after), heaps);  // no heap was made for it
        CHECK_EQ(idle_after, heaps_idle);
        verify_all();
    }
}

// Mail to the shared heap: nobody is attached to it, so who sends also takes in.
static void *make_when_dead(void *arg) {
    qy_thread_state = QY_THREAD_DEAD;
    taken_t *t = arg;
    for (t->n = 0; t->n < 600; t->n++) CHECK(t->b[t->n] = quarry_malloc(100));
    return NULL;
}
TEST(shared_heap_gets_its_blocks_back) {
    static taken_t t;
    qy_heap_t *shared = qy_heap_shared();
    size_t out = blocks_out(shared);
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, make_when_dead, &t), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(blocks_out(shared), out + 600);
    free_some(&t);
    qy_remote_flush(qy_thread_get());
    CHECK_EQ(blocks_out(shared), out);
    CHECK(!atomic_load(&shared->mailbox));
    verify_all();
}

// Destructors of keys run before, between and after ours; each round frees and allocates.
static pthread_key_t late;
static _Atomic int late_runs;
typedef struct late_work {
    int rounds;
    void *mine[8], *foreign[8];
} late_work_t;
static void late_destructor(void *arg) {
    late_work_t *w = arg;
    int r = w->rounds++;
    if (r >= 8) return;
    quarry_free(w->mine[r]);
    quarry_free(w->foreign[r]);
    quarry_free(quarry_malloc(77));
    late_runs++;
    // In the last round of four ThreadSanitizer has ended the thread: instrumented code crashes then, now and again.
    if (!QY_TSAN || r < 2) pthread_setspecific(late, w);
}
static void *ends_slowly(void *arg) {
    late_work_t *w = arg;
    for (int i = 0; i < 8; i++) CHECK(w->mine[i] = quarry_malloc(200));
    pthread_setspecific(late, w);
    return NULL;
}
TEST(destructors_that_run_late) {
    CHECK_EQ(pthread_key_create(&late, late_destructor), 0);
    quarry_stats_t before, after;
    qy_thread_flush(qy_thread_get());
    quarry_stats_read(&before);
    for (int round = 0; round < 20; round++) {
        late_work_t w = {0};
        for (int i = 0; i < 8; i++) CHECK(w.foreign[i] = quarry_malloc(200));
        late_runs = 0;
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, ends_slowly, &w), 0);
        pthread_join(thread, NULL);
        CHECK_GT(late_runs, 1);
        for (int i = late_runs; i < 8; i++) {
            quarry_free(w.mine[i]);
            quarry_free(w.foreign[i]);
        }
        verify_all();
    }
    qy_thread_flush(qy_thread_get());
    for (qy_heap_t *h = qy_heap_first(); h; h = h->next) drain(h);
    quarry_stats_read(&after);
    CHECK_EQ(after.live_blocks, before.live_blocks);
    CHECK_EQ(after.live_bytes, before.live_bytes);
    verify_all();
}

// ---- arenas, and forks ------------------------------------------------------------------------------

static _Atomic int arena_step;
static void *arena_blocks[1000];
static void *fills_arena(void *unused) {
    for (int i = 0; i < 1000; i++) CHECK(arena_blocks[i] = quarry_malloc(100));
    arena_step = 1;
    while (arena_step < 2) usleep(1000);
    return unused;
}

// In the child the arenas of other threads have none: who frees looks into their mailboxes.
static void frees_for_arena(void *arena) {
    for (int i = 0; i < 1000; i++) quarry_free(arena_blocks[i]);
    qy_remote_flush(qy_thread_get());
    check_no_mail(arena);
}
static void forks_beside_arena(void *unused) {
    quarry_free(quarry_malloc(1));
    qy_opts.arenas = 2;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, fills_arena, unused), 0);
    TEST_AWAIT(arena_step == 1);
    run_apart(frees_for_arena, atomic_load(&span_of(arena_blocks[0])->heap));
    arena_step = 2;
    pthread_join(thread, NULL);
}
TEST(arenas_in_a_child) { run_apart(forks_beside_arena, NULL); }

TEST_MAIN()
