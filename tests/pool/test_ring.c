// SPDX-License-Identifier: MIT
// test_ring.c: frames of a ring, which chunks they hold, and what is done with released ones.
#include <pthread.h>
#include <quarry/ring.h>
#include <quarry/short.h>

#include "captured.h"
#include "os/os.h"
#include "pool/ring.h"
#include "pool_test.h"

#define KIB ((size_t)1024)
#define CHUNK (64 * KIB)

static quarry_pool_t *make(quarry_ring_options_t options) {
    quarry_pool_t *pool = quarry_ring_create(&options);
    CHECK(pool);
    return pool;
}
static qy_ring_t *inside(quarry_pool_t *pool) { return (qy_ring_t *)pool; }

// A sealed frame of n blocks of `size`, each filled with `byte`.
static quarry_ring_frame_t message(quarry_pool_t *pool, size_t n, size_t size, int byte, char **ret_first) {
    quarry_ring_frame_t frame = quarry_ring_newframe(pool);
    CHECK(frame);
    CHECK_EQ(quarry_ring_getframe(pool), frame);
    for (size_t i = 0; i < n; i++) {
        char *p = quarry_pool_alloc(pool, size, 8, 0);
        CHECK(p);
        memset(p, byte, size);
        if (!i && ret_first) *ret_first = p;
    }
    CHECK_EQ(quarry_ring_seal(pool), frame);
    CHECK_EQ(quarry_ring_getframe(pool), 0);
    return frame;
}

// ---- records of frames ---------------------------------------------------------------------------------

// Those that were put back are all used again: none is lost, in whatever order they come and go.
TEST(records_are_used_again) {
    enum { TAKEN = 8 };
    qy_ring_frame_t *chain[TAKEN];
    uint32_t most = 0, again = 0;
    for (int turn = 0; turn < 20; turn++) {
        uint32_t *highest = turn ? &again : &most;
        for (int i = 0; i < TAKEN; i++) {
            CHECK(chain[i] = qy_frames_get());
            for (qy_ring_frame_t *f = chain[i]; f; f = f->next) *highest = f->index > *highest ? f->index : *highest;
        }
        for (int i = 0; i < TAKEN; i++) qy_frames_put(chain[(i * 3 + turn) % TAKEN]);
    }
    CHECK_LE(again, most);
}

// ---- blocks --------------------------------------------------------------------------------------------

TEST(blocks_are_adjacent_and_not_rounded) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    quarry_ring_newframe(pool);
    char *p = quarry_pool_alloc(pool, 8, 8, 0);
    CHECK_EQ((uintptr_t)p % 64, 0);  // a frame begins on a line of its own
    for (int i = 1; i < 1000; i++) {
        char *q = quarry_pool_alloc(pool, 8, 8, 0);
        CHECK_PTR_EQ(q, p + 8);
        p = q;
    }
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 3, 1, 0), p + 8);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 5, 1, 0), p + 11);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 1, 2, 0), p + 16);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 4, 4, 0), p + 20);
    for (size_t a = 1; a <= 4096; a *= 2)
        CHECK_EQ((uintptr_t)quarry_pool_alloc(pool, 24, a, QUARRY_POOL_ZERO) & (a - 1), 0);
    errno = 0;
    CHECK(!quarry_pool_alloc(pool, 1, 8192, 0));
    CHECK_EQ(errno, EINVAL);
    quarry_ring_release(quarry_ring_seal(pool));
    end(pool);
}

TEST(footprint_is_the_payload) {
    enum { NODES = 4000000 };
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    quarry_ring_newframe(pool);
    for (int i = 0; i < NODES; i++) CHECK(quarry_ring_alloc(pool, 8, 8, 0));
    CHECK_LE(stats_of(pool).used_bytes, NODES * 8 * 1.01);
    CHECK_LE(held(pool), NODES * 8 * 1.08);  // the last chunk is a sixteenth at most
    quarry_ring_release(quarry_ring_seal(pool));
    quarry_ring_reset(pool);
    CHECK_LE(held(pool), 2 * CHUNK + QY_RING_CHUNK_MAX);
    end(pool);
}

TEST(zero_always) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    uint64_t state = test_seed;
    quarry_ring_frame_t frames[5] = {0};
    for (int i = 0; i < 20000; i++) {
        if (frames[i % 5]) quarry_ring_release(frames[i % 5]);
        quarry_ring_newframe(pool);
        quarry_ring_mark_t mark = quarry_ring_checkpoint(pool);
        for (int k = 0; k < 4; k++) {
            size_t n = test_random(&state) % (i % 100 ? 700 : 90000);
            unsigned char *p = test_random(&state) % 2 ? quarry_pool_alloc(pool, n, 1, QUARRY_POOL_ZERO)
                                                       : quarry_ring_alloc(pool, n = 40, 8, QUARRY_POOL_ZERO);
            for (size_t b = 0; b < n; b++) CHECK(!p[b]);
            memset(p, 0xEE, n);
            size_t m = n / 3, g = n + n / 2 + 1;
            if (k == 1) CHECK_PTR_EQ(quarry_pool_resize(pool, p, n, m, 1, 0), p);
            if (k == 1) CHECK((p = quarry_pool_resize(pool, p, m, g, 1, QUARRY_POOL_ZERO)));
            for (size_t b = m; k == 1 && b < g; b++) CHECK(!p[b]);
            if (k == 1) memset(p, 0xEE, g);
            if (k == 2 && i % 3 == 0) quarry_ring_rewind(pool, mark);
        }
        frames[i % 5] = quarry_ring_seal(pool);
        if (i % 1000 == 0) CHECK_EQ(quarry_pool_check(pool), 0);
    }
    end(pool);
}

TEST(resize) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    quarry_ring_newframe(pool);
    char *p = quarry_pool_alloc(pool, 100, 1, 0);
    memset(p, 'p', 100);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 100, 1000, 1, 0), p);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 1000, 50, 1, 0), p);
    char *q = quarry_pool_alloc(pool, 10, 1, 0);
    CHECK_PTR_EQ(q, p + 50);
    CHECK_PTR_EQ(quarry_pool_resize(pool, p, 50, 40, 1, 0), p);
    char *r = quarry_pool_resize(pool, p, 40, 60, 1, QUARRY_POOL_ZERO);
    CHECK_PTR_EQ(r, q + 10);
    CHECK(r[39] == 'p' && r[40] == 0 && r[59] == 0);
    errno = 0;
    CHECK(!quarry_pool_resize(pool, r, QUARRY_SIZE_UNKNOWN, 100, 1, 0));
    CHECK_EQ(errno, EINVAL);
    // Over many chunks, with what it was before in it.
    size_t n = 60;
    for (int i = 0; i < 12; i++, n *= 2) {
        CHECK(quarry_pool_alloc(pool, 10, 1, 0));
        r = quarry_pool_resize(pool, r, n, 2 * n, 1, QUARRY_POOL_ZERO);
        CHECK(r[39] == 'p' && r[n] == 0 && r[2 * n - 1] == 0);
    }
    quarry_ring_release(quarry_ring_seal(pool));
    end(pool);
}

// ---- frames --------------------------------------------------------------------------------------------

TEST(frames_are_independent) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    enum { N = 200 };
    static quarry_ring_frame_t frames[N];
    static char *first[N];
    uint64_t state = test_seed;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < N; i++) {
            if (frames[i] && test_random(&state) % 3) continue;
            if (frames[i]) {
                for (int b = 0; b < 100; b++) CHECK_EQ(first[i][b], (char)i);
                quarry_ring_release(frames[i]);
            }
            frames[i] = message(pool, 1 + test_random(&state) % 30, 100, i, &first[i]);
        }
        if (round % 20 == 0) CHECK_EQ(quarry_pool_check(pool), 0);
    }
    // Random order, yet bounded: 200 frames of 1,600 bytes on average.
    CHECK_LE(stats_of(pool).peak_held_bytes, 8 * N * 1600 + 2 * CHUNK);
    for (int i = 0; i < N; i++) {
        quarry_ring_release(frames[i]);
        frames[i] = 0;
    }
    quarry_ring_reset(pool);
    CHECK_EQ(held(pool), CHUNK);
    end(pool);
}

// The number of a frame's blocks does not matter to its release.
TEST(a_slow_frame_holds_its_own_chunks_only) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    char *p;
    quarry_ring_frame_t slow = message(pool, 10, 1000, 's', &p), live[20] = {0};
    for (int i = 0; i < 20000; i++) {
        if (live[i % 20]) quarry_ring_release(live[i % 20]);
        live[i % 20] = message(pool, 3, 1000, i, NULL);
    }
    CHECK_LE(stats_of(pool).peak_held_bytes, 6 * CHUNK);  // 60 MB went through
    for (int i = 0; i < 10000; i++) CHECK_EQ(p[i], 's');
    quarry_ring_release(slow);
    for (int i = 0; i < 20; i++) quarry_ring_release(live[i]);
    end(pool);
}

TEST(frames_without_blocks_cost_nothing) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    for (int i = 0; i < 100000; i++) quarry_ring_release(message(pool, 0, 0, 0, NULL));
    CHECK_EQ(held(pool), CHUNK);
    size_t records = 0;
    for (qy_ring_frame_t *f = inside(pool)->free_frames; f; f = f->next) records++;
    CHECK_LE(records, 64);
    end(pool);
}

TEST(a_peak_goes_back_by_itself) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    static quarry_ring_frame_t frames[3000];
    for (int i = 0; i < 3000; i++) frames[i] = message(pool, 10, 1000, i, NULL);
    size_t peak = held(pool);
    CHECK_GT(peak, 30000000);
    for (int i = 0; i < 3000; i++) quarry_ring_release(frames[i]);
    for (int i = 0; i < 256 * 40; i++) quarry_ring_release(message(pool, 1, 100, i, NULL));
    CHECK_LT(held(pool), peak / 10);
    // And steady work does not take and give back in turn.
    for (int i = 0; i < 5000; i++) quarry_ring_release(message(pool, 10, 1000, i, NULL));
    uint64_t gets = stats_of(pool).chunk_gets;
    for (int i = 0; i < 20000; i++) quarry_ring_release(message(pool, 10, 1000, i, NULL));
    CHECK_LE(stats_of(pool).chunk_gets, gets + 1);
    end(pool);
}

TEST(checkpoint_and_rewind) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    quarry_ring_newframe(pool);
    char *kept = quarry_pool_alloc(pool, 1000, 8, 0);
    memset(kept, 'k', 1000);
    quarry_ring_mark_t mark = quarry_ring_checkpoint(pool);
    for (int round = 0; round < 50; round++) {
        char *p = quarry_pool_alloc(pool, 100, 8, QUARRY_POOL_ZERO);
        CHECK_PTR_EQ(p, kept + 1000);
        for (int i = 0; i < 100; i++) CHECK(!p[i]);
        for (int i = 0; i < round * 3; i++) memset(quarry_pool_alloc(pool, i % 7 ? 3000 : 50000, 8, 0), 'x', 3000);
        CHECK_EQ(quarry_pool_check(pool), 0);
        quarry_ring_rewind(pool, mark);
        CHECK_EQ(quarry_pool_check(pool), 0);
    }
    // In the frame's second chunk as well.
    while (inside(pool)->current == inside(pool)->began) CHECK(quarry_pool_alloc(pool, 1000, 8, 0));
    mark = quarry_ring_checkpoint(pool);
    char *p = quarry_pool_alloc(pool, 1000, 8, 0);
    for (int i = 0; i < 100; i++) CHECK(quarry_pool_alloc(pool, 20000, 8, 0));
    quarry_ring_rewind(pool, mark);
    CHECK_PTR_EQ(quarry_pool_alloc(pool, 1000, 8, 0), p);
    for (int i = 0; i < 1000; i++) CHECK_EQ(kept[i], 'k');
    quarry_ring_release(quarry_ring_seal(pool));
    quarry_ring_reset(pool);
    CHECK_LE(held(pool), 2 * CHUNK);
    end(pool);
}

// Random frames, marks, sizes and orders of release, against what was written.
TEST(random_model) {
    enum { FRAMES = 40,
        BLOCKS = 30 };
    static struct {
        quarry_ring_frame_t frame;
        int n;
        unsigned char *p[BLOCKS], byte[BLOCKS];
        size_t size[BLOCKS];
    } f[FRAMES];
    memset(f, 0, sizeof f);
    uint64_t state = test_seed;
    quarry_pool_t *pool = make((quarry_ring_options_t){.chunk_bytes = 100000});
    for (int i = 0; i < 20000; i++) {
        int k = (int)(test_random(&state) % 3 ? i % FRAMES : (int)(test_random(&state) % FRAMES));
        for (int b = 0; b < f[k].n; b++)
            for (size_t at = 0; at < f[k].size[b]; at += 1 + f[k].size[b] / 50) CHECK_EQ(f[k].p[b][at], f[k].byte[b]);
        if (f[k].frame) quarry_ring_release(f[k].frame);
        f[k].frame = quarry_ring_newframe(pool);
        f[k].n = 0;
        quarry_ring_mark_t mark = {0};
        int marked = -1;
        for (int todo = (int)(test_random(&state) % BLOCKS); todo > 0 && f[k].n < BLOCKS; todo--) {
            uint64_t r = test_random(&state);
            int b = f[k].n;
            size_t n = r % 200 == 0 ? r / 256 % 300000 : r / 256 % 500, align = (size_t)1 << r % 13;
            if (r % 16 == 1) {
                mark = quarry_ring_checkpoint(pool);
                marked = b;
            } else if (r % 16 == 2 && marked >= 0) {
                quarry_ring_rewind(pool, mark);
                f[k].n = marked;
                continue;
            }
            if (b && b != marked && r % 16 < 6) {
                b--;
                if (b < marked) continue;
                f[k].p[b] = quarry_pool_resize(pool, f[k].p[b], f[k].size[b], n, 1, QUARRY_POOL_ZERO);
                CHECK(f[k].p[b]);
                for (size_t at = 0; at < f[k].size[b] && at < n; at++) CHECK_EQ(f[k].p[b][at], f[k].byte[b]);
                for (size_t at = f[k].size[b]; at < n; at++) CHECK(!f[k].p[b][at]);
            } else {
                f[k].n++;
                f[k].p[b] = quarry_pool_alloc(pool, n, align, r & 64 ? QUARRY_POOL_ZERO : 0);
                CHECK_EQ((uintptr_t)f[k].p[b] & (align - 1), 0);
                for (size_t at = 0; at < n && (r & 64); at++) CHECK(!f[k].p[b][at]);
            }
            f[k].size[b] = n;
            memset(f[k].p[b], f[k].byte[b] = (unsigned char)r | 1, n);
        }
        CHECK_EQ(quarry_ring_seal(pool), f[k].frame);
        if (i % 500 == 0) CHECK_EQ(quarry_pool_check(pool), 0);
    }
    for (int k = 0; k < FRAMES; k++)
        if (f[k].frame) quarry_ring_release(f[k].frame);
    quarry_ring_reset(pool);
    CHECK_LE(held(pool), QY_RING_CHUNK_MAX);
    end(pool);
}

// ---- the thread's own ring -------------------------------------------------------------------------------

typedef struct text {
    int n;
    char bytes[];
} text_t;

TEST(macros) {
    quarry_ring_frame_t frame = r_newframe();
    CHECK(frame && r_getframe() == frame);
    long *a = r_new(long, 10);
    for (int i = 0; i < 10; i++) CHECK_EQ(a[i], 0);
    a[9] = 9;
    char *raw = r_new_raw(char, 33);
    memset(raw, 1, 33);
    text_t *t = r_new_extra(text_t, 10), *u = r_new_extra_field(text_t, bytes, 3);
    CHECK(t && !t->bytes[9] && u && !u->bytes[2]);
    CHECK(r_new_extra_raw(text_t, 5) && r_new_extra_field_raw(text_t, bytes, 7));
    CHECK(r_renew(&a, 10, 1000) == a && a[9] == 9 && a[999] == 0);
    CHECK(r_renew_raw(&a, 1000, 5) == a);
    long *copy = r_dup(a, 5);
    CHECK(copy && copy != a);
    long double wide[2] = {1, 2}, *w = r_dup(wide, 2);
    CHECK_EQ((uintptr_t)w % _Alignof(long double), 0);
    CHECK_STR_EQ(r_strdup("hello"), "hello");
    CHECK_STR_EQ(r_dupz("hello", 2), "he");
    quarry_ring_mark_t mark = r_checkpoint();
    char *p = r_new(char, 100);
    r_rewind(mark);
    CHECK_PTR_EQ(r_new(char, 100), p);
    volatile size_t n = SIZE_MAX / sizeof(long) + 2, huge = SIZE_MAX - 2;
    errno = 0;
    CHECK(!r_new(long, n));
    CHECK_EQ(errno, ENOMEM);
    CHECK(!r_new_raw(long, n) && !r_dup(a, n) && !r_new_extra(long, huge) && !r_new_extra_field(text_t, bytes, huge));
    long *before = a;
    CHECK(!r_renew(&a, 5, n) && a == before);
    CHECK_PTR_EQ(quarry_pool_printf(r_pool(), "%d", 7), r_getframe() ? (char *)p + 100 : NULL);
    CHECK_EQ(r_seal(), frame);
    r_release(frame);
    CHECK_EQ(r_pool()->ops->capabilities, QUARRY_POOL_FRAMES | QUARRY_POOL_GROWS);
    CHECK_PTR_EQ(r_pool(), &quarry_thread_ring->pool);
}

static void *leave_a_message(void *arg) {
    quarry_ring_frame_t *frame = arg;
    frame[0] = r_newframe();
    char **p = (char **)&frame[1];
    *p = r_strdup("from a thread that is gone");
    r_seal();
    r_newframe();  // left open: ends with the thread
    CHECK(r_new(long, 10));
    return NULL;
}
TEST(messages_outlive_their_thread) {
    quarry_ring_frame_t frame[200][2];
    for (int round = 0; round < 200; round++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, leave_a_message, frame[round]), 0);
        pthread_join(t, NULL);
    }
    for (int round = 0; round < 200; round++) {
        CHECK_STR_EQ((char *)frame[round][1], "from a thread that is gone");
        r_release(frame[round][0]);
    }
}

// A destructor of another key that uses the ring after it was destroyed.
static pthread_key_t late_key;
static _Atomic int late_calls;
static void late(void *arg) {
    r_newframe();
    memset(r_new_raw(char, 100), 1, 100);
    r_release(r_seal());
    if (++late_calls % 3) pthread_setspecific(late_key, arg);
}
static void *use_late(void *arg) {
    pthread_setspecific(late_key, arg);
    r_newframe();
    r_release(r_seal());
    return NULL;
}
TEST(late_destructors) {
    CHECK_EQ(pthread_key_create(&late_key, late), 0);
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        CHECK_EQ(pthread_create(&t, NULL, use_late, &late_calls), 0);
        pthread_join(t, NULL);
    }
    CHECK_EQ(late_calls, 150);
    pthread_key_delete(late_key);
}

// A thread may end its ring before it ends itself: then it has none.
static void *end_own_ring(void *unused) {
    (void)unused;
    r_newframe();
    r_release(r_seal());
    quarry_pool_destroy(r_pool());
    quarry_pool_t *other = quarry_ring_create(NULL);  // in the record of the first, unless another has it
    CHECK(other);
    r_newframe();
    CHECK(r_new(long, 10));
    CHECK_EQ(quarry_ring_getframe(other), 0);
    r_release(r_seal());
    return other;
}
TEST(a_thread_ends_its_own_ring) {
    pthread_t t;
    void *other;
    CHECK_EQ(pthread_create(&t, NULL, end_own_ring, NULL), 0);
    pthread_join(t, &other);
    CHECK(exists(other));
    quarry_ring_adopt(other);
    quarry_pool_destroy(other);
}

// ---- destruction -----------------------------------------------------------------------------------------

TEST(destruction_waits_for_the_last_frame) {
    for (int round = 0; round < 3; round++) {
        quarry_pool_t *pool = make((quarry_ring_options_t){0});
        quarry_ring_frame_t frames[100];
        char *p[100];
        for (int i = 0; i < 100; i++) frames[i] = message(pool, 5, 900, i, &p[i]);
        quarry_ring_release(frames[3]);
        if (round == 1) {
            quarry_ring_newframe(pool);  // left open
            CHECK(quarry_pool_alloc(pool, 100, 8, 0));
        }
        quarry_pool_destroy(pool);
        for (int i = 0; i < 100; i++) {
            int k = round ? 99 - i : i;
            if (k == 3) continue;
            CHECK(exists(pool));
            for (int b = 0; b < 900; b++) CHECK_EQ(p[k][b], (char)k);
            quarry_ring_release(frames[k]);
        }
        CHECK(!exists(pool));
    }
    quarry_pool_t *empty = make((quarry_ring_options_t){0});
    quarry_ring_release(message(empty, 5, 10, 1, NULL));
    quarry_pool_destroy(empty);
    CHECK(!exists(empty));
}

// ---- misuse ----------------------------------------------------------------------------------------------

static void dies(void (*body)(void *), void *arg, const char *words) {
    captured_t c = capture(body, arg);
    if (c.exit_signal != SIGABRT || !strstr(c.text, words))
        TEST_FAIL("signal %d, exit %d, \"%.300s\", wanted \"%s\"", c.exit_signal, c.exit_code, c.text, words);
}

static void newframe_twice(void *pool) { quarry_ring_newframe(pool), quarry_ring_newframe(pool); }
static void alloc_without(void *pool) { quarry_pool_alloc(pool, 8, 8, 0); }
static void alloc_sealed(void *pool) { message(pool, 1, 8, 0, NULL), quarry_pool_alloc(pool, 8, 8, 0); }
static void alloc_own_without(void *pool) { (void)pool, (void)r_new(long, 1); }
static void seal_without(void *pool) { quarry_ring_seal(pool); }
static void seal_twice(void *pool) { quarry_ring_newframe(pool), quarry_ring_seal(pool), quarry_ring_seal(pool); }
static void release_open(void *pool) { quarry_ring_release(quarry_ring_newframe(pool)); }
static void release_twice(void *pool) {
    quarry_ring_frame_t f = message(pool, 1, 8, 0, NULL);
    quarry_ring_release(f), quarry_ring_release(f);
}
static void release_reused(void *pool) {
    quarry_ring_frame_t f = message(pool, 1, 8, 0, NULL);
    quarry_ring_release(f);
    for (int i = 0; i < 10000 && QY_FRAME_GENERATION(qy_frame_of(f)->word) == f >> QY_FRAME_INDEX_BITS; i++)
        message(pool, 1, 1000, 0, NULL);
    quarry_ring_release(f);
}
static void release_nothing(void *pool) { (void)pool, quarry_ring_release(0); }
static void release_wild(void *pool) { (void)pool, quarry_ring_release(0x123456789abcdef0); }
static void release_after_destroy(void *pool) {
    quarry_ring_frame_t f = message(pool, 1, 8, 0, NULL);
    quarry_ring_release(f);
    quarry_pool_destroy(pool);
    quarry_ring_release(f);
}
static void release_orphan_twice(void *pool) {
    quarry_ring_frame_t f = message(pool, 1, 8, 0, NULL), g = message(pool, 1, 8, 0, NULL);
    (void)g;
    quarry_pool_destroy(pool);
    quarry_ring_release(f), quarry_ring_release(f);
}
static void resize_sealed(void *pool) {
    char *p;
    message(pool, 1, 80, 0, &p);
    quarry_ring_newframe(pool);
    quarry_pool_resize(pool, p, 80, 100, 8, 0);
}
static void alloc_dying(void *pool) {
    message(pool, 1, 8, 0, NULL);
    quarry_pool_destroy(pool);
    quarry_pool_alloc(pool, 8, 8, 0);
}
static void rewind_other(void *pool) {
    quarry_ring_newframe(pool);
    quarry_ring_mark_t mark = quarry_ring_checkpoint(pool);
    quarry_ring_seal(pool);
    quarry_ring_newframe(pool);
    quarry_ring_rewind(pool, mark);
}
static void rewind_back_and_forth(void *pool) {
    quarry_ring_newframe(pool);
    quarry_ring_mark_t early = quarry_ring_checkpoint(pool);
    quarry_pool_alloc(pool, 100, 8, 0);
    quarry_ring_mark_t late_mark = quarry_ring_checkpoint(pool);
    quarry_ring_rewind(pool, early);
    quarry_ring_rewind(pool, late_mark);
}
static void *newframe_here(void *pool) {
    quarry_ring_newframe(pool);
    return NULL;
}
static void newframe_elsewhere(void *pool) {
    pthread_t t;
    pthread_create(&t, NULL, newframe_here, pool);
    pthread_join(t, NULL);
}

TEST(misuse_is_named) {
    static const struct {
        void (*body)(void *);
        const char *words;
    } cases[] = {
        {newframe_twice, "unbalanced frames"},
        {alloc_without, "no open frame"},
        {alloc_own_without, "frame"},
        {alloc_sealed, "sealed frame"},
        {seal_without, "no open frame"},
        {seal_twice, "sealed frame"},
        {release_open, "unbalanced frames"},
        {release_twice, "double release"},
        {release_reused, "stale frame"},
        {release_nothing, "stale frame"},
        {release_wild, "stale frame"},
        {release_after_destroy, "double release"},
        {release_orphan_twice, "double release"},
        {resize_sealed, "block of another frame"},
        {alloc_dying, "use of a destroyed pool"},
        {rewind_other, "unbalanced frames"},
        {rewind_back_and_forth, "unbalanced frames"},
        {newframe_elsewhere, "wrong thread"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        quarry_pool_t *pool = make((quarry_ring_options_t){0});
        if (!pool->mode || cases[i].body != rewind_back_and_forth) dies(cases[i].body, pool, cases[i].words);
        quarry_pool_destroy(pool);
    }
}

TEST(check_sees_damage) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    qy_ring_t *r = inside(pool);
    for (int i = 0; i < 100; i++) message(pool, 10, 1000, i, NULL);
    CHECK_EQ(quarry_pool_check(pool), 0);
    qy_ring_chunk_t *c = QY_LIST_ITEM(r->left.next, qy_ring_chunk_t, link);
    uint64_t *words[] = {(uint64_t *)(void *)&c->pos, (uint64_t *)(void *)&c->dirty, (uint64_t *)(void *)&c->last,
        (uint64_t *)&r->nleft, (uint64_t *)(void *)&r->pos, (uint64_t *)(void *)&r->dirty};
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        uint64_t saved = *words[i];
        *words[i] += (uint64_t)1 << 33;
        CHECK_EQ(quarry_pool_check(pool), -1);
        *words[i] = saved;
    }
    r->pos[100] = 1;
    CHECK_EQ(quarry_pool_check(pool), -1);
    r->pos[100] = 0;
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// ---- fork ------------------------------------------------------------------------------------------------

static void release_in_child(void *arg) {
    quarry_ring_release(*(quarry_ring_frame_t *)arg);
    r_newframe();
    CHECK(r_new(long, 10000));
    r_release(r_seal());
}
TEST(forks) {
    quarry_pool_t *pool = make((quarry_ring_options_t){0});
    quarry_ring_frame_t f = message(pool, 10, 1000, 1, NULL);
    run_apart(release_in_child, &f);
    quarry_ring_release(f);  // the child's memory is another
    end(pool);
}

// In a checked ring blocks lie elsewhere, and the tests of places mean nothing.
int main(int argc, char **argv) {
    quarry_pool_t *pool = quarry_ring_create(NULL);
    bool checked = pool && pool->mode;
    quarry_pool_destroy(pool);
    char *names[] = {argv[0], (char[]){"destruction_waits_for_the_last_frame"}, (char[]){"misuse_is_named"},
        (char[]){"forks"}, (char[]){"messages_outlive_their_thread"}, (char[]){"late_destructors"},
        (char[]){"a_thread_ends_its_own_ring"}, NULL};
    return checked ? test_main(7, names) : test_main(argc, argv);
}
