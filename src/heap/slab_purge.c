// SPDX-License-Identifier: MIT
// slab_purge.c: the OS pages of a slab that only free blocks lie on go back.
#include "heap/link.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "os/os.h"
#include "pages/meta.h"
#include "pages/purging.h"

#define BLOCKS_MAX QY_META_BITS_MAX  // 64 KiB of 16-byte blocks

// Are all blocks that touch [from, to) of the slab free, and at least one not purged yet?
static bool page_is_free(const qy_slab_t *s, const uint64_t *home, size_t from, size_t to) {
    size_t size = qy_class_size[s->cls], start = (size_t)(s->origin - s->base);
    if (to <= start) return false;
    uint32_t i = from > start ? (uint32_t)((from - start) / size) : 0;
    uint32_t end = (uint32_t)qy_min((to - start + size - 1) / size, s->ncarved);
    bool news = false;
    for (; i < end; i++) {
        bool purged = qy_slab_is_purged(s, i);
        if (!purged && !qy_slab_bit(home, i)) return false;
        news |= !purged;
    }
    return news;
}

static void check_links(const qy_slab_t *s, uint64_t bits, uint32_t w) {
    for (; bits; bits &= bits - 1) (void)qy_link_next(qy_slab_block(s, w * 64 + (uint32_t)__builtin_ctzll(bits)));
}

// The blocks at home of one word.
static void link_again(const qy_slab_t *s, uint32_t w) {
    for (uint64_t left = s->home[w]; left; left &= left - 1)
        qy_link_set(qy_slab_block(s, w * 64 + (uint32_t)__builtin_ctzll(left)), NULL);
}

size_t qy_slab_purge(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    if (s->cls == QY_CLASS_TINY) return qy_tiny_purge(h, s);
    size_t page = qy_os_page_size(), size = qy_class_size[s->cls], start = (size_t)(s->origin - s->base);
    size_t bytes = (size_t)s->units << QY_UNIT_SHIFT, carved_end = start + s->ncarved * size;
    if ((size_t)(s->nhome + s->nchain) * size < page || s->nblocks > BLOCKS_MAX || page > bytes) return 0;

    // Whether one was written to after it was freed could not be seen later.
    uint64_t home[BLOCKS_MAX / 64];
    for (uint32_t w = 0; w <= (s->nblocks - 1) / 64; w++) {
        home[w] = s->home[w];
        check_links(s, home[w], w);
    }
    for (int k = 0; k < 2; k++)
        for (qy_block_t *b = k ? s->chain2 : s->chain; b; b = qy_link_next(b)) {
            uint32_t i = (uint32_t)((size_t)((char *)b - s->origin) / size);
            home[i / 64] |= UINT64_C(1) << (i % 64);
        }

    // Find the ranges of free pages, and mark every block that touches one.
    size_t total = 0;
    bool denied = false;
    uint64_t gone[BLOCKS_MAX / 64] = {0};
    for (size_t from = 0; from < qy_min(carved_end, bytes);) {
        size_t to = from;
        while (to + page <= bytes && to < carved_end && page_is_free(s, home, to, to + page)) to += page;
        if (to == from) {
            from += page;
            continue;
        }
        if (!s->purged) {
            s->purged = qy_slab_bits(s) <= 64 ? &s->purged_word : qy_meta_bits_new(qy_slab_bits(s));
            if (!s->purged) return 0;
        }
        if (qy_purging_pages(s->base + from, to - from)) {
            total += to - from;
            uint32_t i = from > start ? (uint32_t)((from - start) / size) : 0;
            uint32_t end = (uint32_t)qy_min((to - start + size - 1) / size, s->ncarved);
            for (; i < end; i++)
                if (!qy_slab_is_purged(s, i)) gone[i / 64] |= UINT64_C(1) << (i % 64);
        } else {
            denied = true;  // perhaps halfway (a locked page): links may have gone with their pages
        }
        from = to;
    }
    if (!total && !denied) return 0;
    s->purged_ns = qy_os_now_coarse_ns();

    // What is still there is at home by its bit, also what was on a chain: links of blocks that are gone read as zero.
    s->chain = s->chain2 = NULL;
    s->nchain = s->nchain2 = s->nhome = s->low = 0;
    for (uint32_t w = 0; w <= (s->nblocks - 1) / 64; w++) {
        uint32_t n = (uint32_t)__builtin_popcountll(gone[w]);
        s->purged[w] |= gone[w];
        s->npurged += n;
        h->purged_bytes += n * size;
        s->home[w] = home[w] & ~gone[w];
        s->nhome += (uint32_t)__builtin_popcountll(s->home[w]);
        if (denied) link_again(s, w);
    }
    qy_slab_set_tags(h, s, 0);
    qy_slab_relist(h, s);
    return total;
}
