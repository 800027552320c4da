// SPDX-License-Identifier: MIT
// What classes keep goes where others can take it, each time a heap has made slabs of an eighth of what it holds, and not more often.
#include "heap_test.h"

enum { MANY = 4000 };  // of 4 KiB: 16 MiB, twice as much as is needed for what the tests keep in lists to be an eighth

static void *block[MANY];

static qy_heap_t *mine(void) { return qy_thread_get()->heap; }
static size_t listed(unsigned c) {
    size_t n = 0;
    for (qy_block_t *b = qy_cache_list(QY_CACHE, c); b; b = qy_link_next(b)) n++;
    return n;
}
static void *get(size_t size) {
    void *p = quarry_malloc(size);
    CHECK(p);
    memset(p, 1, size);
    return p;
}
static size_t slabs_with_nothing_live(qy_heap_t *h, unsigned but) {
    size_t n = 0;
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++)
        if (c != but) n += h->bins[c].nslabs;
    return n;
}

// Of each class two blocks that were freed: in the thread's lists, where they keep a slab. As if that had taken long.
static void use_each_class(void) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        mine()->made_bytes = 0;
        void *a = get(qy_class_size[c]), *b = get(qy_class_size[c]);
        quarry_free(a);
        quarry_free(b);
    }
}

// Another class grows until the heap has made so many bytes of slabs.
static size_t grow(size_t bytes) {
    size_t n = 0, begin = mine()->slab_bytes;
    while (mine()->slab_bytes < begin + bytes) {
        CHECK_LT(n, MANY);
        block[n++] = get(4096);
    }
    return n;
}
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
    size_t kept = slabs_with_nothing_live(h, 0), bytes = h->slab_bytes, n = 0;
    CHECK_GT(kept, 60);
    unsigned c = qy_class_fine(4096);
    while (slabs_with_nothing_live(h, c)) {
        CHECK_LT(n, MANY);
        block[n++] = get(4096);
        if (h->slab_bytes > 2 * bytes) break;
    }
    CHECK_EQ(slabs_with_nothing_live(h, c), 0);
    CHECK_LT(h->slab_bytes, 2 * bytes);
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
        for (size_t i = 0; i < n; i++) block[i] = get(qy_class_size[c]);
        most = qy_max(most, mine()->slab_bytes);
        for (size_t i = 0; i < n; i++) quarry_free(block[i]);
    }
    CHECK_LT(most, (size_t)6 << 20);
    shrink(0);
}

TEST(not_more_often_than_an_eighth) {
    quarry_trim(0);
    size_t n = grow((size_t)12 << 20);
    use_each_class();
    qy_heap_t *h = mine();
    h->made_bytes = 0;
    size_t flushes = h->flushes, eighth = h->slab_bytes / 8;
    void *more[MANY / 2];
    size_t k = 0;
    // The slab that makes it an eighth is the one before which all goes.
    while (h->made_bytes + 65536 < eighth) {
        CHECK_LT(k, MANY / 2);
        more[k++] = get(3072);
    }
    CHECK_EQ(h->flushes, flushes);
    CHECK_GT(listed(20), 0);
    while (h->flushes == flushes) {
        CHECK_LT(k, MANY / 2);
        more[k++] = get(3072);
    }
    CHECK_EQ(listed(20), 0);
    CHECK_EQ(h->made_bytes, 0);
    while (k) quarry_free(more[--k]);
    shrink(n);
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
        h->made_bytes = 0;
        quarry_free(quarry_heap_alloc(first, qy_class_size[c]));
    }
    CHECK_GT(slabs_with_nothing_live(h, 0), 20);
    unsigned c = qy_class_fine(512);
    for (int i = 0; slabs_with_nothing_live(h, c); i++) {
        CHECK_LT(i, 100000);
        CHECK(quarry_heap_alloc(first, 512));
    }
    CHECK_EQ(listed(20), before);
    verify_all();
    quarry_heap_destroy(first);
    verify_all();
}

TEST_MAIN()
