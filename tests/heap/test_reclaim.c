// SPDX-License-Identifier: MIT
// What classes keep goes where others can take it, each time a heap has made slabs of an eighth of what it holds, and
// not more often.
#include "heap_test.h"

enum { MANY = 4000 };  // of 4 KiB: 16 MiB, twice as much as is needed for what the tests keep in lists to be an eighth

static void *block[MANY];

static qy_heap_t *mine(void) { return qy_thread_get()->heap; }
static size_t listed(unsigned c) {
    size_t n = 0;
    for (qy_block_t *b = qy_cache_list(QY_CACHE, c); b; b = qy_link_next(b)) n++;
    return n;
}
// Lists of other classes would go home (cache.h).
static void no_period_ends(void) { qy_thread_get()->moved = qy_thread_get()->period = 0; }
static void *get(size_t size) {
    no_period_ends();
    void *p = quarry_malloc(size);
    CHECK(p);
    memset(p, 1, size);
    return p;
}
// Slabs of other classes, but for those that serve this one, too: the next larger ones.
static size_t kept(const qy_heap_t *h, unsigned but) {
    size_t n = 0, size = qy_class_size[but];
    for (const qy_slab_t *s = h->all; s; s = s->all_next) {
        bool serves = qy_class_size[s->cls] >= size && qy_class_size[s->cls] <= size + size / 4;
        n += s->kind == QY_SPAN_SLAB && !serves;
    }
    return n;
}

// As if all that was before had been long ago.
static void long_ago(qy_heap_t *h) {
    h->made_bytes = 0;
    h->reclaim_at = 0;
}

// Of each class some blocks that were freed, in slabs of all sizes: in the thread's lists, and they keep the slabs.
static void use_each_class(void) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (qy_class_is_learned(c) || c == QY_CLASS_TINY) continue;
        void *p[256];
        int n = 0;
        do {
            long_ago(mine());
            CHECK_LT(n, 256);
            p[n++] = get(qy_class_most(c));
        } while (c > QY_CLASS_SMALL && mine()->bins[c].nslabs <= QY_SLABS_FIRST);
        while (n) quarry_free(p[--n]);
    }
    long_ago(mine());
}

// Another class grows, beyond n blocks, until the heap has made slabs of so many bytes. Blocks then.
static size_t grow_from(size_t n, size_t bytes) {
    const qy_bin_t *bin = &mine()->bins[qy_class_fine(4096)];
    size_t begin = qy_class_slabs_bytes(qy_class_fine(4096), bin->nslabs);
    while (qy_class_slabs_bytes(qy_class_fine(4096), bin->nslabs) < begin + bytes) {
        CHECK_LT(n, MANY);
        block[n++] = get(4096);
    }
    return n;
}
static size_t grow(size_t bytes) { return grow_from(0, bytes); }
static void shrink(size_t n) {
    while (n) quarry_free(block[--n]);
    quarry_trim(0);
    CHECK_EQ(blocks_out(mine()), 0);
    verify_all();
}

TEST(what_classes_keep_is_brought_together) {
    quarry_trim(0);
    use_each_class();
    qy_heap_t *h = mine();
    size_t bytes = h->slab_bytes, n = 0;
    CHECK_GT(kept(h, 0), 40);
    unsigned c = qy_class_fine(4096);
    while (kept(h, c) && h->slab_bytes < 2 * bytes) {
        CHECK_LT(n, MANY);
        block[n++] = get(4096);
    }
    CHECK_EQ(kept(h, c), 0);
    CHECK_LT(h->slab_bytes, bytes);
    for (unsigned d = 1; d < QY_CLASS_COUNT; d++)
        if (d != c) CHECK_EQ(listed(d), 0);
    verify_all();
    // The lists serve as before.
    use_each_class();
    verify_all();
    shrink(n);
}

// Phases of different sizes need no more than the largest of them, and a part.
TEST(phases_do_not_add_up) {
    quarry_trim(0);
    size_t most = 0;
    for (unsigned c = 65; c < QY_CLASS_COUNT; c += 3) {
        size_t n = ((size_t)4 << 20) / qy_class_size[c];
        CHECK_LE(n, MANY);
        for (size_t i = 0; i < n; i++) block[i] = get(qy_class_most(c));
        most = qy_max(most, mine()->slab_bytes);
        for (size_t i = 0; i < n; i++) quarry_free(block[i]);
        mine()->reclaim_at = 0;
    }
    CHECK_LT(most, (size_t)6 << 20);
    shrink(0);
}

TEST(not_more_often_than_an_eighth) {
    quarry_trim(0);
    size_t n = grow((size_t)12 << 20);
    use_each_class();
    qy_heap_t *h = mine();
    size_t eighth = h->slab_bytes / 8;
    void *more[MANY / 2];
    size_t k = 0;
    // The slab that makes it an eighth is the one before which all goes.
    while (h->made_bytes + 65536 < eighth) {
        CHECK_LT(k, MANY / 2);
        more[k++] = get(3072);
    }
    CHECK_GT(listed(20), 0);
    while (listed(20)) {
        CHECK_LT(k, MANY / 2);
        more[k++] = get(3072);
    }
    CHECK_EQ(listed(20), 0);
    CHECK_LT(h->made_bytes, 65536 + 1);
    while (k) quarry_free(more[--k]);
    shrink(n);
}

// Who makes slabs because of it, over and over, does not pay for it each time.
TEST(no_more_than_a_part_of_the_time) {
    quarry_trim(0);
    use_each_class();
    qy_heap_t *h = mine();
    h->reclaim_at = UINT64_MAX;
    size_t n = grow(h->slab_bytes / 2);
    CHECK_GT(listed(20), 0);
    // It does not ask for the time before each slab.
    CHECK_LE(h->made_bytes, qy_max(h->slab_bytes / 8, (size_t)128 << 10) + 65536);
    // It comes when it may.
    uint64_t before = qy_os_now_ns();
    h->reclaim_at = before;
    n = grow_from(n, h->slab_bytes / 8 + 65536);
    CHECK_EQ(listed(20), 0);
    // At least what the lists cost: one class in ten had one.
    CHECK_GT(h->reclaim_at, before + (uint64_t)32 * 500 * QY_CLASS_COUNT / 10);
    shrink(n);
}

// Slabs that a heap at its limit could not make do not count.
TEST(what_was_not_made) {
    quarry_heap_t *first = quarry_heap_create(&(quarry_heap_options_t){.limit = (size_t)1 << 20});
    CHECK(first);
    qy_heap_t *h = NULL;
    for (qy_heap_t *other = qy_heap_first(); other; other = other->next)
        if (other->kind == QY_HEAP_FIRST_CLASS && other->limit) h = other;
    CHECK(h);
    while (quarry_heap_alloc(first, 3072)) h->made_bytes = 0;
    for (int i = 0; i < 100; i++) CHECK(!quarry_heap_alloc(first, 3072));
    CHECK_EQ(h->made_bytes, 0);
    quarry_heap_destroy(first);
    verify_all();
}

// Blocks of the thread's own heap stay in its lists while a first-class heap grows, whose empty slabs go.
TEST(of_the_heap_that_grows) {
    quarry_trim(0);
    use_each_class();
    size_t before = listed(20);
    CHECK_GT(before, 0);
    quarry_heap_t *first = quarry_heap_create(NULL);
    CHECK(first);
    qy_heap_t *h = NULL;
    for (qy_heap_t *other = qy_heap_first(); other; other = other->next)
        if (other->kind == QY_HEAP_FIRST_CLASS) h = other;
    CHECK(h);
    for (unsigned c = 65; c < QY_CLASS_COUNT; c++) {
        long_ago(h);
        no_period_ends();
        quarry_free(quarry_heap_alloc(first, qy_class_most(c)));
    }
    CHECK_GT(kept(h, 0), 10);
    unsigned c = qy_class_fine(512);
    for (int i = 0; kept(h, c); i++) {
        CHECK_LT(i, 100000);
        h->reclaim_at = 0;
        no_period_ends();
        CHECK(quarry_heap_alloc(first, 512));
    }
    CHECK_EQ(listed(20), before);
    verify_all();
    quarry_heap_destroy(first);
    verify_all();
}

TEST_MAIN()
