// SPDX-License-Identifier: MIT
// Slabs of a heap that no thread has: blocks are taken, written, brought home, purged and stolen by
// hand, and the slab is checked after each step.
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pages/chunk.h"
#include "heap_test.h"

#define LIVE 20000

typedef struct live {
    qy_block_t *b;
    unsigned cls;
    uint64_t id;
} live_t;

static live_t live[LIVE];
static size_t nlive;
static uint64_t rng, next_id;

static size_t below(size_t n) { return test_random(&rng) % n; }

static void check_slab(qy_heap_t *h, const qy_slab_t *s) {
    const char *wrong = qy_slab_check(h, s);
    if (wrong) TEST_FAIL("slab %p of class %u: %s", (void *)s->base, s->cls, wrong);
}

// A block is marked as given out and filled to its last byte: one that were given out twice would
// be seen at the latest when it comes home.
static void enter(qy_heap_t *h, qy_block_t *b, unsigned c, bool fresh) {
    uint32_t i;
    size_t size = qy_class_size[c];
    qy_slab_t *s = span_of(b);
    CHECK(s && s->kind == QY_SPAN_SLAB);
    CHECK_EQ(s->cls, c);
    CHECK_PTR_EQ(atomic_load(&s->heap), h);
    CHECK(qy_slab_index(s, b, &i));
    CHECK(!qy_slab_is_purged(s, i));
    CHECK((char *)b >= s->base && (char *)b + size <= s->base + s->units * QY_UNIT);
    CHECK(qy_class_is_start(c, qy_class_offset(c, b)));
    CHECK_EQ(qy_map_tag(b), tag_of(h, s));
    if (fresh) CHECK(is_zero(b, size));
    else CHECK(qy_link_valid(b));
    CHECK_LT(nlive, LIVE);
    live[nlive++] = (live_t){b, c, ++next_id};
    fill(b, 0, size, next_id);
}

// One that was never touched has no link: it comes alone.
static qy_block_t *next_of(qy_block_t *b, bool fresh) { return fresh ? NULL : qy_link_next(b); }

// Takes what the heap gives; number of blocks.
static size_t take(qy_heap_t *h, unsigned c, bool one) {
    bool fresh = true;
    qy_heap_lock(h);
    uint32_t count = 1;
    qy_block_t *b = one ? qy_slab_take_one(h, c, &fresh) : qy_slab_take(h, c, &count, &fresh), *next;
    size_t n = 0;
    for (; b; b = next, n++) {
        next = next_of(b, fresh);
        enter(h, b, c, fresh);
    }
    qy_heap_unlock(h);
    if (n) CHECK_EQ(n, count);
    if (n) check_slab(h, span_of(live[nlive - 1].b));
    return n;
}

static void put(qy_heap_t *h, size_t at) {
    live_t l = live[at];
    live[at] = live[--nlive];
    check_filled(l.b, 0, qy_class_size[l.cls], l.id);
    qy_slab_t *s = span_of(l.b);
    qy_heap_lock(h);
    CHECK_PTR_EQ(atomic_load(&s->heap), h);
    qy_slab_put(h, s, l.b);
    qy_slab_settle(h, s);
    qy_heap_unlock(h);
    if (span_of(l.b) == s && s->kind == QY_SPAN_SLAB && atomic_load(&s->heap) == h && s->cls == l.cls) check_slab(h, s);
}

// The same of n blocks that are a list, as a cache gives them up: of any slabs, neighbours or not.
static void put_many(qy_heap_t *h, size_t n) {
    qy_block_t *list = NULL;
    size_t at = below(nlive), bytes = 0, out = blocks_out(h);
    bool neighbours = below(2);
    size_t given = 0;
    for (; given < n && nlive; given++) {
        at = neighbours && at > 0 ? qy_min(at, nlive) - 1 : below(nlive);
        check_filled(live[at].b, 0, qy_class_size[live[at].cls], live[at].id);
        qy_link_set(live[at].b, list);
        list = live[at].b;
        bytes += qy_class_size[live[at].cls];
        live[at] = live[--nlive];
    }
    if (!list) return;
    qy_heap_lock(h);
    CHECK_EQ(qy_slab_put_list(h, list), bytes);
    qy_heap_unlock(h);
    CHECK_EQ(blocks_out(h), out - given);
    verify(h);
}

static void put_all(qy_heap_t *h) {
    while (nlive) put(h, below(nlive));
    verify(h);
    CHECK_EQ(blocks_out(h), 0);
}

static size_t purge(qy_heap_t *h, qy_slab_t *s) {
    qy_heap_lock(h);
    size_t before = resident(s->base, s->units * QY_UNIT), bytes = purge_slab(h, s);
    CHECK_EQ(before - resident(s->base, s->units * QY_UNIT), bytes / qy_os_page_size());
    check_slab(h, s);
    qy_heap_unlock(h);
    return bytes;
}

static qy_slab_t *random_slab(qy_heap_t *h) {
    qy_slab_t *s = h->all;
    for (size_t i = h->nslabs ? below(h->nslabs) : 0; i && s; i--) s = s->all_next;
    return s;
}

TEST(random_steps) {
    rng = test_seed;
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    static const unsigned classes[] = {1, 2, 3, 5, 6, 7, 16, 20, 40, 64, 65, 72, 88, 89, 100, 112};
    size_t purged_blocks = 0;
    for (int step = 0; step < 12000; step++) {
        bool grow = step / 500 % 2 == 0;
        size_t op = below(100);
        if (op < (grow ? 60u : 20u) && nlive < LIVE - 5000) {
            CHECK_GT(take(h, classes[below(sizeof classes / sizeof *classes)], below(2)), 0);
        } else if (op < 95) {
            size_t n = 1 + below(40);
            if (nlive && below(2)) put_many(h, n);
            for (; n && nlive; n--) put(h, below(nlive));
        } else if (h->all) {
            qy_slab_t *s = random_slab(h);
            if (s) purge(h, s);
            purged_blocks += h->purged_bytes > 0;
        }
        if (step % 64 == 0) {
            verify(h);
            CHECK_EQ(blocks_out(h), nlive);
        }
        if (step % 3000 == 2999) put_all(h);
    }
    CHECK_GT(purged_blocks, 0);
    put_all(h);
    // The small slabs stay, whatever the order was, and one that fills a frame if it was empty before all of them.
    size_t whole[QY_CLASS_COUNT] = {0};
    for (const qy_slab_t *s = h->all; s; s = s->all_next)
        if (s->kind == QY_SPAN_SLAB) whole[s->cls] += s->units == qy_class_frame_units(s->cls);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        CHECK_LE(whole[c], 1);
        CHECK_EQ(h->bins[c].nempty, h->bins[c].nslabs);
    }
    for (qy_slab_t *s = h->all, *next; s; s = next) {
        next = s->all_next;
        qy_heap_lock(h);
        h->bins[s->cls].nempty--;
        qy_slab_release(h, s);
        qy_heap_unlock(h);
    }
    CHECK_EQ(h->nslabs + h->slab_bytes + h->free_bytes + h->purged_bytes + h->held_bytes, 0);
    verify(h);
}

TEST(every_class) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        if (c == QY_CLASS_TINY) continue;  // test_tiny.c
        size_t slabs = 0;
        while (h->bins[c].nslabs < 6 && nlive < LIVE - 5000) {
            slabs = h->bins[c].nslabs;
            CHECK_GT(take(h, c, below(2)), 0);
            if (h->bins[c].nslabs == slabs) continue;
            // A slab wastes less than one block at each end; one of many large ones perhaps one more, so that their
            // number is odd.
            qy_slab_t *s = span_of(live[nlive - 1].b);
            CHECK_LT((size_t)(s->origin - s->base), qy_class_size[c]);
            bool odd = s->nblocks >= 127 && qy_class_size[c] >= 128;
            size_t rest = (size_t)(s->base + s->units * QY_UNIT - s->origin) - (size_t)s->nblocks * qy_class_size[c];
            if (odd) CHECK_EQ(s->nblocks % 2, 1);
            CHECK_LT(rest, qy_class_size[c] * (odd ? 2 : 1));
        }
        verify(h);
        put_all(h);
    }
}

// A slab is filed by what it has to give.
TEST(filing) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 20;
    take(h, c, true);
    qy_slab_t *s = span_of(live[0].b);
    CHECK_EQ(s->list, QY_LIST_FRESH);
    while (s->ncarved < s->nblocks) take(h, c, true);
    while (nlive > s->nblocks) put(h, nlive - 1);
    CHECK_EQ(s->list, QY_LIST_NONE);
    while (nlive) {
        put(h, below(nlive));
        CHECK_EQ(s->list, nlive ? QY_LIST_SOME : QY_LIST_EMPTY);
    }
    verify(h);
}

TEST(index) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    static const unsigned classes[] = {1, 3, 7, 11, 64, 70, 90, 112};
    for (unsigned k = 0; k < sizeof classes / sizeof *classes; k++) {
        unsigned c = classes[k];
        take(h, c, false);
        qy_slab_t *s = span_of(live[0].b);
        for (char *p = s->base; p < s->base + s->units * QY_UNIT; p += 8) {
            uint32_t i = 99999;
            ptrdiff_t offset = p - s->origin;
            bool start =
                offset >= 0 && (size_t)offset % qy_class_size[c] == 0 && (size_t)offset / qy_class_size[c] < s->ncarved;
            CHECK_EQ(qy_slab_index(s, p, &i), start);
            if (start) CHECK_EQ(i, (size_t)offset / qy_class_size[c]);
        }
        put_all(h);
    }
}

TEST(spare_slabs) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 64, n = 0;
    qy_slab_t *slab[QY_SLABS_FIRST + 3];
    const unsigned all = sizeof slab / sizeof *slab;
    while (h->bins[c].nslabs < all) take(h, c, true);
    // the newest first: three of a frame, then the small ones
    for (qy_slab_t *s = h->all; s; s = s->all_next) slab[n++] = s;
    CHECK_EQ(n, all);
    size_t bytes = h->slab_bytes;
    unsigned kept = 0;
    for (unsigned k = 0; k < all; k++) {
        char *base = slab[k]->base;
        bool stays = k == 0 || k >= 3;
        size_t own = slab[k]->units * QY_UNIT;
        for (size_t i = nlive; i-- > 0;)
            if (span_of(live[i].b) == slab[k]) put(h, i);
        // Of those that fill a frame the first to become empty stays; and all small ones.
        kept += stays;
        bytes -= stays ? 0 : own;
        CHECK_EQ(h->bins[c].nempty, kept);
        CHECK_EQ(h->bins[c].nslabs, all - (k + 1 - kept));
        CHECK_EQ(h->slab_bytes, bytes);
        CHECK_EQ(span_of(base) != NULL, stays);
        CHECK_EQ(qy_map_tag(base), stays ? h->owner | c : 0);
        verify(h);
    }
    CHECK_EQ(nlive, 0);
    CHECK_EQ(h->held_bytes, h->slab_bytes);
    // Purging stopped at one that goes: it goes on with the next.
    qy_heap_lock(h);
    qy_slab_t *leaves = h->all, *next = leaves->all_next;
    h->purge_at = leaves;
    qy_span_leave(h, leaves);
    CHECK_PTR_EQ(h->purge_at, next);
    qy_span_enter(h, leaves);
    h->purge_at = NULL;
    qy_heap_unlock(h);
    verify(h);
    // And they serve again, without a new one.
    for (unsigned k = 0; k < kept; k++) {
        while (h->bins[c].nempty == kept - k) take(h, c, false);
        CHECK_EQ(h->bins[c].nslabs, kept);
    }
    CHECK_EQ(h->bins[c].nempty, 0);
    put_all(h);
    CHECK_GE(h->bins[c].nempty, QY_SLABS_FIRST);
    kept = h->bins[c].nempty;
    qy_heap_lock(h);
    CHECK_EQ(qy_slab_release_empty(h), kept);
    qy_heap_unlock(h);
    CHECK_EQ(h->slab_bytes, 0);
    verify(h);
}

TEST(purged_pages) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    static const unsigned classes[] = {1, 2, 3, 6, 7, 13, 30, 63, 64, 66, 81, 88, 95, 112};
    for (unsigned k = 0; k < sizeof classes / sizeof *classes; k++) {
        unsigned c = classes[k];
        size_t size = qy_class_size[c], page = qy_os_page_size();
        // One that has some blocks to mix up: the first slabs of large ones have two or three.
        while (h->bins[c].nslabs < (c > QY_CLASS_SMALL ? QY_SLABS_FIRST + 2 : 2)) take(h, c, true);
        qy_slab_t *s = span_of(live[c > QY_CLASS_SMALL ? nlive - 2 : 0].b);
        size_t bytes = s->units * QY_UNIT;
        CHECK_EQ(s->ncarved, s->nblocks);
        CHECK_EQ(purge(h, s), 0);  // all in use
        // Blocks that touch pages 1 and 2 go home; so exactly these pages are free.
        char *from = s->base + page, *to = s->base + 3 * page;
        for (size_t i = nlive; i-- > 0;)
            if (span_of(live[i].b) == s && (char *)live[i].b < to && (char *)live[i].b + size > from) put(h, i);
        uint32_t home = qy_slab_home(s);
        size_t resident_before = resident(s->base, bytes);
        size_t went = purge(h, s);
        CHECK_GE(went, 2 * page);
        CHECK_EQ(resident(from, 2 * page), 0);
        CHECK_EQ(resident_before - resident(s->base, bytes), went / page);
        CHECK_EQ(qy_slab_home(s), home);
        CHECK_GT(s->npurged, 0);
        CHECK_EQ(h->purged_bytes, s->npurged * size);
        CHECK_EQ(purge(h, s), 0);  // nothing new
        verify(h);
        // Nothing else was touched; purged blocks are taken before new memory and serve again.
        for (size_t i = 0; i < nlive; i++) check_filled(live[i].b, 0, size, live[i].id);
        uint32_t slabs = h->bins[c].nslabs;
        for (uint32_t n = 0; n < home;) {
            size_t got = take(h, c, below(2));
            CHECK_GT(got, 0);
            for (size_t i = nlive - got; i < nlive; i++) n += span_of(live[i].b) == s;
            CHECK_EQ(h->bins[c].nslabs, slabs);
        }
        CHECK_EQ(s->npurged, 0);
        CHECK_EQ(h->purged_bytes, 0);
        verify(h);
        put_all(h);
    }
}

static void put_twice(void *arg) {
    qy_block_t *b = arg;
    qy_heap_lock(atomic_load(&span_of(b)->heap));
    qy_slab_put(atomic_load(&span_of(b)->heap), span_of(b), b);
}

static qy_slab_t *into;
static void put_into(void *arg) {
    qy_heap_lock(atomic_load(&into->heap));
    qy_slab_put(atomic_load(&into->heap), into, arg);
}
static void put_list(void *arg) {
    qy_heap_lock(atomic_load(&into->heap));
    qy_slab_put_list(atomic_load(&into->heap), arg);
}

TEST(purged_block_freed_again) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    while (h->bins[16].nslabs < 2) take(h, 16, true);
    qy_slab_t *s = span_of(live[0].b);
    qy_block_t *b = live[1].b;
    for (size_t i = nlive; i-- > 1;)
        if (span_of(live[i].b) == s) put(h, i);
    CHECK_GT(purge(h, s), 0);
    qy_block_t *gone = NULL;
    for (uint32_t i = 0; i < s->ncarved && !gone; i++)
        if (qy_slab_is_purged(s, i)) gone = (qy_block_t *)(s->origin + i * 256);
    CHECK(gone);
    must_die(put_twice, gone, "double free");
    into = s;
    must_die(put_list, gone, "double free");
    must_die(put_into, s->origin + (size_t)s->ncarved * 256, "invalid free");
    must_die(put_into, s->origin - 256, "invalid free");
    take(h, 32, false);
    qy_slab_t *begun = span_of(live[nlive - 1].b);
    CHECK_LT(begun->ncarved, begun->nblocks);
    must_die(put_list, begun->origin + (size_t)begun->ncarved * 512, "invalid free");
    must_die(put_list, &into, "not a block of the heap");
    must_die(put_twice, (char *)b + 16, "invalid free");
    put_all(h);
}

// The mark of a block at home is written over, so that a second free of it is not seen at once: it is when that, too,
// comes home.
TEST(unmarked_block_freed_again) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    while (h->bins[4].nslabs < 2) take(h, 4, true);
    qy_block_t *b = live[7].b;
    put(h, 7);
    qy_link_set(b, NULL);
    into = span_of(b);
    must_die(put_list, b, "double free");
    must_die(put_twice, b, "double free");
    put_all(h);
}

static void take_some(void *arg) {
    uint32_t count;
    bool fresh;
    qy_heap_lock(arg);
    qy_slab_take(arg, 4, &count, &fresh);
}

static void purge_into(void *arg) {
    qy_heap_lock(arg);
    purge_slab(arg, into);
}
static int ignore(void *block, size_t usable, void *arg) {
    (void)block, (void)usable, (void)arg;
    return 0;
}
static void walk(void *arg) { qy_heap_walk(arg, ignore, NULL); }

// Whoever looks at it next says so: who gives it out, who would give its page back, who tells what is in use.
TEST(written_at_home) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    while (h->bins[4].nslabs < 2) take(h, 4, true);
    into = span_of(live[0].b);
    for (size_t i = nlive; i-- > 0;)
        if (span_of(live[i].b) == into && (char *)live[i].b != into->origin + 64) put(h, i);
    qy_block_t *b = (qy_block_t *)into->origin;
    b->link = 0;
    must_die(take_some, h, "written to after it was freed");
    must_die(purge_into, h, "written to after it was freed");
    must_die(walk, h, "written to after it was freed");
    qy_link_set(b, NULL);
    CHECK_GT(purge(h, into), 0);
    put_all(h);
}

// In whatever order blocks come home, they are given out in the order of their addresses, the lowest first and of small
// ones no more than a generation at once; one that comes home between is not passed over.
TEST(order_of_addresses) {
    for (unsigned c = 1; c < QY_CLASS_COUNT; c += c < 16 ? 5 : 13) {
        qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
        // The first ones of a large class may have no more than two blocks.
        while (h->bins[c].nslabs <= QY_SLABS_FIRST) take(h, c, true);
        qy_slab_t *s = span_of(live[nlive - 1].b);
        while (s->ncarved < s->nblocks) take(h, c, true);
        for (size_t left = nlive; left > nlive / 4; left--) {
            size_t at = below(nlive);
            if (span_of(live[at].b) == s && qy_slab_home(s) + 2 < s->ncarved) put(h, at);
        }
        for (size_t at = nlive; at-- > 0 && !s->nhome;)
            if (span_of(live[at].b) == s) put(h, at);
        while (s->nhome) {
            if (below(2) && span_of(live[nlive / 2].b) == s && qy_slab_home(s) + 2 < s->ncarved) put(h, nlive / 2);
            uint32_t i = 0, n = c <= QY_CLASS_SMALL ? qy_min(s->nhome, qy_class_limit[c]) : s->nhome;
            while (!(s->home[i / 64] >> (i % 64) & 1)) i++;
            CHECK_EQ(take(h, c, false), n);
            char *before = s->origin + i * (size_t)qy_class_size[c];
            CHECK_PTR_EQ((char *)live[nlive - n].b, before);
            for (size_t k = nlive - n + 1; k < nlive; before = (char *)live[k++].b) CHECK((char *)live[k].b > before);
        }
        put_all(h);
    }
}

// The kernel refuses to drop pages: all at once, or (locked pages) after it has dropped some.
TEST(purge_denied) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    while (h->bins[64].nslabs < 6) take(h, 64, true);
    qy_slab_t *s = span_of(live[nlive / 2].b);
    for (size_t i = nlive, kept = 0; i-- > 0;)
        if (span_of(live[i].b) == s && kept++) put(h, i);
    quarry_os_fault(1, 1, FAULT(PURGE));
    CHECK_EQ(purge(h, s), 0);
    quarry_os_fault(0, 0, 0);
    CHECK_EQ(s->npurged, 0);
    verify(h);
    // By system call: sanitizers make mlock a call without effect.
    if (syscall(SYS_mlock, s->base + 5 * 4096, 4096) == 0) {
        qy_heap_lock(h);
        purge_slab(h, s);
        check_slab(h, s);
        qy_heap_unlock(h);
        syscall(SYS_munlock, s->base + 5 * 4096, 4096);
    }
    verify(h);
    size_t slabs = h->bins[64].nslabs;
    while (h->bins[64].nslabs == slabs) CHECK_GT(take(h, 64, true), 0);
    put_all(h);
}

static void chains(bool purging) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 12;
    while (h->bins[c].nslabs < 2) take(h, c, true);
    qy_slab_t *s = span_of(live[0].b);
    uint32_t most = s->ncarved;
    // Three chains: the first two find a place, the third is put before one of them.
    uint32_t lengths[3] = {3, most * 3 / 4, 4};
    size_t at = nlive;
    for (int k = 0; k < 3; k++) {
        qy_block_t *chain = NULL, *last = NULL;
        for (uint32_t i = 0; i < lengths[k];) {
            at--;
            if (span_of(live[at].b) != s) continue;
            check_filled(live[at].b, 0, qy_class_size[c], live[at].id);
            qy_link_set(live[at].b, chain);
            chain = live[at].b;
            if (!last) last = chain;
            live[at] = live[--nlive];
            i++;
        }
        qy_heap_lock(h);
        qy_slab_put_chain(h, s, chain, last, lengths[k]);
        qy_slab_settle(h, s);
        check_slab(h, s);
        qy_heap_unlock(h);
    }
    verify(h);
    uint32_t home = lengths[0] + lengths[1] + lengths[2];
    CHECK_EQ(s->nchain, home);
    // Both chains are looked through for pages to give back.
    CHECK(s->chain && s->chain2);
    if (purging) {
        CHECK_GT(purge(h, s), 0);
        CHECK_GT(s->npurged, lengths[0]);
        CHECK_EQ(qy_slab_home(s), home);
        verify(h);
    }
    // A single block from the first chain, then the rest of it, then the others: all come out again.
    for (uint32_t n = 0; n < home;) {
        size_t got = take(h, c, n == 0);
        for (size_t i = nlive - got; i < nlive; i++) n += span_of(live[i].b) == s;
    }
    CHECK_EQ(qy_slab_home(s), 0);
    put_all(h);
}

TEST(chains_come_home) {
    chains(false);
    chains(true);
}

static void too_long_chain(void *arg) {
    qy_slab_t *s = arg;
    qy_heap_t *h = atomic_load(&s->heap);
    qy_heap_lock(h);
    qy_slab_put_chain(h, s, NULL, NULL, s->nblocks + 1);
}
// The word says which block is the last one. It is looked at where another chain is put behind it.
static void chain_that_goes_on(void *arg) {
    qy_slab_t *s = arg;
    qy_heap_t *h = atomic_load(&s->heap);
    qy_heap_lock(h);
    for (int k = 0; k < 3; k++) {
        qy_block_t *a = live[nlive - 1].b, *b = live[nlive - 2].b;
        nlive -= 2;
        CHECK(span_of(a) == s && span_of(b) == s);
        qy_link_set(a, b);
        qy_link_set(b, NULL);
        qy_slab_put_chain(h, s, a, k < 2 ? b : a, 2);
    }
}
TEST(miscounted_chain_is_named) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    while (nlive < 8) take(h, 9, true);
    must_die(too_long_chain, span_of(live[0].b), "corrupted metadata");
    must_die(chain_that_goes_on, span_of(live[nlive - 1].b), "longer than its count");
    put_all(h);
}

TEST(steal) {
    qy_heap_t *idle = qy_heap_new(QY_HEAP_THREAD), *h = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 32;
    while (idle->bins[c].nslabs < 6) take(idle, c, true);
    take(idle, 33, true);  // of another class: must not move
    qy_heap_lock(h);
    CHECK(qy_heap_trylock(idle));
    CHECK(!qy_slab_steal(h, idle, c + 2));
    qy_heap_unlock(idle);
    qy_heap_unlock(h);
    // Slab A is queued, B has a few free blocks, C most of them, the rest none.
    qy_slab_t *a = NULL, *b = NULL, *most = NULL;
    for (qy_slab_t *s = idle->all; s; s = s->all_next) {
        if (s->cls != c || s->ncarved < s->nblocks) continue;
        if (!a) a = s;
        else if (!b) b = s;
        else if (!most) most = s;
    }
    size_t kept = 0, few = 0;
    for (size_t i = nlive; i-- > 0;) {
        qy_slab_t *s = span_of(live[i].b);
        if ((s == b && few++ < 2) || (s == most && kept++ >= 3) || (s == a && i % 2)) put(idle, i);
    }
    verify(idle);
    uint64_t word = QY_REMOTE_QUEUED;  // as a freer leaves it before it has pushed the slab
    atomic_store(&a->remote, word);
    size_t slab_bytes = idle->slab_bytes, free_bytes = idle->free_bytes;
    qy_heap_lock(h);
    CHECK(qy_heap_trylock(idle));
    CHECK(qy_slab_steal(h, idle, c));
    CHECK(!qy_slab_steal(h, idle, c) || h->bins[c].list[QY_LIST_SOME]);
    qy_heap_unlock(idle);
    qy_heap_unlock(h);
    CHECK_PTR_EQ(atomic_load(&a->heap), idle);
    CHECK_PTR_EQ(atomic_load(&most->heap), h);
    CHECK_EQ(qy_map_tag(most->base), tag_of(h, most));
    CHECK_GT(h->steals, 0);
    CHECK_EQ(h->slab_bytes + idle->slab_bytes, slab_bytes);
    CHECK_EQ(h->free_bytes + idle->free_bytes, free_bytes);
    atomic_store(&a->remote, 0);
    verify(h);
    verify(idle);
    for (size_t i = 0; i < nlive; i++) check_filled(live[i].b, 0, qy_class_size[live[i].cls], live[i].id);
    // Blocks of moved slabs go home to the new heap.
    while (nlive) put(atomic_load(&span_of(live[0].b)->heap), 0);
    verify(h);
    verify(idle);
    CHECK_EQ(blocks_out(h) + blocks_out(idle), 0);
}

// What a pointer is depends on its slab, whose heap may change while its lock is waited for: then the new one's counts.
typedef struct asked {
    qy_block_t *b;
    _Atomic bool done;
} asked_t;
static void *ask(void *arg) {
    asked_t *a = arg;
    CHECK_EQ(qy_lookup_must(a->b).kind, QY_OBJECT_BLOCK);
    atomic_store(&a->done, true);
    return NULL;
}
TEST(asked_while_a_slab_moves) {
    qy_heap_t *idle = qy_heap_new(QY_HEAP_THREAD), *h = qy_heap_new(QY_HEAP_THREAD);
    while (idle->bins[72].nslabs < 1 || nlive < 20) take(idle, 72, true);
    qy_slab_t *s = span_of(live[0].b);
    for (size_t i = nlive; i-- > 1;) put(idle, i);
    CHECK_GT(purge(idle, s), 0);
    CHECK(qy_map_tag(live[0].b) & QY_TAG_PURGED);
    qy_heap_lock(h);
    CHECK(qy_heap_trylock(idle));
    static asked_t a;
    a = (asked_t){.b = live[0].b};
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, ask, &a), 0);
    while ((atomic_load(&idle->lock.state) & QY_LOCK_KIND) != QY_LOCK_WAITED) usleep(100);
    atomic_store(&s->heap, h);
    qy_heap_unlock(idle);
    usleep(20000);
    CHECK(!atomic_load(&a.done));
    atomic_store(&s->heap, idle);
    qy_heap_unlock(h);
    pthread_join(thread, NULL);
    CHECK(atomic_load(&a.done));
    put_all(idle);
}

TEST(stealing_comes_before_growing) {
    qy_heap_t *first = qy_heap_attach(), *h = qy_heap_new(QY_HEAP_THREAD);
    unsigned c = 40;
    while (first->bins[c].nslabs < 3) take(first, c, true);
    for (size_t i = nlive; i-- > 0;)
        if (i % 4) put(first, i);
    size_t mapped = h->slab_bytes + first->slab_bytes;
    qy_heap_t *fc = qy_heap_new(QY_HEAP_FIRST_CLASS);
    take(h, c, true);
    CHECK_EQ(h->steals, 0);  // it has an owner: hands off
    qy_heap_detach(first);
    size_t before = h->bins[c].nslabs;
    while (h->bins[c].nslabs == before) take(h, c, false);
    CHECK_GT(h->steals, 0);
    CHECK_LE(h->slab_bytes + first->slab_bytes, mapped + 65536);
    take(fc, c, true);
    CHECK_EQ(fc->steals, 0);  // a heap of its own has only what it will destroy
    verify_all();
    while (nlive) put(atomic_load(&span_of(live[0].b)->heap), 0);
    verify_all();
}

TEST(classes_are_refined) {
    for (unsigned index = 9; index < QY_STEP_COUNT; index += index < 64 ? 5 : 19) {
        qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
        uint32_t version = atomic_load(&h->cls_version);
        unsigned coarse = h->cls[index], seen = 1;
        unsigned step = 1u << (qy_log2_floor(qy_min(index, 64) - 1) - 2), finest = qy_class_of_step(index);
        size_t bytes = 0;
        bool fresh = false;
        uint32_t count;
        // As a thread would: ask for the class the table names, until it is the finest.
        while (h->cls[index] != finest && bytes < (size_t)64 << 20) {
            unsigned c = h->cls[index];
            qy_heap_lock(h);
            CHECK(qy_slab_take(h, c, &count, &fresh));
            qy_heap_unlock(h);
            bytes = h->slab_bytes;
            if (atomic_load(&h->cls_version) == version) continue;
            version = atomic_load(&h->cls_version);
            // Small ones first twice as fine, and only then to steps of 16 bytes; medium ones at once.
            if (seen++ == 1 && c <= QY_CLASS_SMALL)
                for (unsigned i = coarse - step + 1; i <= coarse; i++)
                    CHECK_EQ(h->cls[i], qy_round_up(i, qy_max(step / 2, 1)));
            // Still large enough, rising and nested; and not before the class has its first full slabs.
            CHECK_GT(bytes, 4 * QY_UNIT);
            for (unsigned i = 1; i < QY_STEP_COUNT; i++) {
                CHECK_GE(h->cls[i], qy_class_of_step(i));
                CHECK_GE(h->cls[i], h->cls[i - 1]);
                CHECK_EQ(h->cls[qy_step(qy_class_most(h->cls[i]))], h->cls[i]);
            }
        }
        CHECK_EQ(h->cls[index], finest);
        if (coarse != finest) CHECK_GT(seen, 1);
        else CHECK_EQ(seen, 1);
    }
}

// A class that was refined because of its neighbours stays so, though it has fewer blocks of its own.
TEST(refined_stays_refined) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    while (h->cls[17] == 20) take(h, 20, false);
    while (h->cls[17] != 17) take(h, 18, false);
    uint32_t version = atomic_load(&h->cls_version);
    while (h->bins[17].nslabs < QY_SLABS_FIRST + 8) {
        take(h, 17, false);
        CHECK_EQ(h->cls[17], 17);
    }
    CHECK_EQ(atomic_load(&h->cls_version), version);
    put_all(h);
}

TEST(limit) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_FIRST_CLASS);
    h->limit = 100000;
    while (take(h, 30, true)) CHECK_LE(h->held_bytes, h->limit);
    CHECK_GT(h->held_bytes + 65536, h->limit);
    verify(h);
    h->limit += 65536;
    CHECK_EQ(take(h, 30, true), 1);
    put_all(h);
}

// Fresh blocks of a page and more come one by one, and no page of theirs is made present.
TEST(large_blocks_are_not_touched) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    qy_purge_everything();
    unsigned c = qy_class_fine(7000), checked = 0;
    size_t size = qy_class_size[c], page = qy_os_page_size();
    if (page != 4096) TEST_SKIP("needs pages of 4096 bytes, not %zu", page);
    for (unsigned i = 0; i < 60; i++) {
        bool fresh;
        uint32_t count = 0;
        qy_heap_lock(h);
        qy_block_t *b = qy_slab_take(h, c, &count, &fresh), *next;
        qy_heap_unlock(h);
        CHECK(b != NULL);
        CHECK_EQ(fresh, span_of(b)->fresh);
        if (fresh) {
            // The block before ends on the page that this one begins on, unless it begins with it.
            char *from = (char *)qy_round_up((uintptr_t)b, page);
            CHECK_EQ(count, 1);
            CHECK_EQ(resident(from, (uintptr_t)b + size - (uintptr_t)from), 0);
            checked++;
        }
        for (; b; b = next) {
            next = next_of(b, fresh);
            enter(h, b, c, fresh);
        }
    }
    CHECK_GT(checked, 5);
    put_all(h);
}

TEST(larger_pages) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    for (size_t bytes = QY_UNIT; bytes <= 4 * QY_UNIT; bytes *= 4) {
        quarry_os_fake_page_size(bytes);
        while (nlive < LIVE - 1024) CHECK_GT(take(h, 3, false), 0);
        quarry_os_fake_page_size(0);
        put_all(h);
    }
}

TEST(no_memory) {
    qy_heap_t *h = qy_heap_new(QY_HEAP_THREAD);
    qy_purge_everything();
    for (unsigned c = 1; c < QY_CLASS_COUNT; c += 3) {
        if (c == QY_CLASS_TINY) continue;
        bool fresh = false;
        uint32_t count = 1;
        size_t metadata = qy_meta_bytes();
        quarry_os_fault(1, 1, FAULT(RESERVE) | FAULT(COMMIT) | FAULT(MAP));
        qy_heap_lock(h);
        qy_block_t *b = qy_slab_take(h, c, &count, &fresh);
        qy_heap_unlock(h);
        quarry_os_fault(0, 0, 0);
        if (b) {  // a chunk was open still
            for (qy_block_t *next; b; b = next) {
                next = next_of(b, fresh);
                enter(h, b, c, fresh);
            }
            put_all(h);
            continue;
        }
        CHECK_EQ(h->bins[c].nslabs, 0);
        CHECK_LE(qy_meta_bytes() - metadata, 2 * sizeof(qy_chunk_t));
        verify(h);
        CHECK_GT(take(h, c, false), 0);
        put_all(h);
        qy_purge_everything();
    }
    verify_all();
}

TEST_MAIN()
