// SPDX-License-Identifier: MIT
// slab.c: carving, taking and bringing home blocks. See slab.h and the equation in types.h.
#include "heap/slab.h"

#include "heap/age.h"
#include "heap/chunk.h"
#include "heap/depot.h"
#include "heap/heap.h"
#include "heap/link.h"
#include "heap/map.h"
#include "heap/meta.h"
#include "heap/purge.h"
#include "heap/remote.h"
#include "heap/sizeclass.h"
#include "os/os.h"

// ---- the spans of a heap ----------------------------------------------------------------------

void qy_span_enter(qy_heap_t *h, qy_slab_t *s) {
    s->all_prev = NULL;
    s->all_next = h->all;
    if (h->all) h->all->all_prev = s;
    h->all = s;
}

void qy_span_leave(qy_heap_t *h, qy_slab_t *s) {
    if (h->purge_at == s) h->purge_at = s->all_next;
    if (s->all_prev) s->all_prev->all_next = s->all_next;
    else h->all = s->all_next;
    if (s->all_next) s->all_next->all_prev = s->all_prev;
}

// ---- lists of a bin ---------------------------------------------------------------------------

static unsigned wanted_list(const qy_slab_t *s) {
    uint32_t home = qy_slab_home(s);
    if (home) {
        if (home * 2 >= s->nblocks) return QY_LIST_MANY;
        return home * 8 >= s->nblocks ? QY_LIST_SOME : QY_LIST_SCARCE;
    }
    return s->ncarved < s->nblocks ? QY_LIST_FRESH : QY_LIST_NONE;
}

static void file_as(qy_heap_t *h, qy_slab_t *s, unsigned list) {
    if (s->list == list) return;
    qy_bin_t *bin = &h->bins[s->cls];
    if (s->list != QY_LIST_NONE) {
        if (s->prev) s->prev->next = s->next;
        else bin->list[s->list] = s->next;
        if (s->next) s->next->prev = s->prev;
    }
    s->list = (uint8_t)list;
    if (list != QY_LIST_NONE) {
        s->prev = NULL;
        s->next = bin->list[list];
        if (s->next) s->next->prev = s;
        bin->list[list] = s;
    }
}

static bool is_empty(const qy_slab_t *s) {
    return qy_slab_home(s) == s->ncarved && atomic_load_explicit(&s->remote, memory_order_acquire) == 0;
}

void qy_slab_settle(qy_heap_t *h, qy_slab_t *s) {
    // One empty slab per bin stays, so that a class that crosses a slab's boundary to and fro does
    // not open and release one each time; purging gives its pages back when it is not used.
    if (is_empty(s) && h->bins[s->cls].nempty++ > 0) {
        h->bins[s->cls].nempty--;
        qy_slab_release(h, s);
        return;
    }
    file_as(h, s, wanted_list(s));
}

// Call before blocks leave a slab that may be empty.
static void leaves_empty(qy_heap_t *h, qy_slab_t *s) {
    if (is_empty(s)) h->bins[s->cls].nempty--;
}

static uint32_t wanted_tag(const qy_heap_t *h, const qy_slab_t *s) { return h->id << 8 | (s->npurged ? QY_TAG_PURGED : 0) | s->cls; }

static void set_tags(const qy_heap_t *h, const qy_slab_t *s) {
    for (unsigned i = 0; i < s->units; i++) qy_map_set_tag(s->base + i * QY_UNIT, wanted_tag(h, s));
}

// ---- making and releasing slabs -----------------------------------------------------------------

static qy_slab_t *new_slab(qy_heap_t *h, unsigned c) {
    unsigned shift = qy_class_slab_shift(c, h->bins[c].nslabs);
    size_t bytes = (size_t)1 << shift, size = qy_class_size[c];
    unsigned n = (unsigned)(bytes >> QY_UNIT_SHIFT);
    if (h->limit && h->held_bytes + bytes > h->limit) return NULL;
    qy_slab_t *s = qy_meta_slab_new();
    if (!s) return NULL;
    qy_units_t u;
    if (!qy_units_take(n, n, &u)) {
        qy_meta_slab_delete(s);
        return NULL;
    }
    s->kind = QY_SPAN_SLAB;
    s->cls = (uint8_t)c;
    s->units = (uint16_t)n;
    s->base = u.chunk->base + u.first * QY_UNIT;
    s->fresh = u.dirty == 0;
    s->list = QY_LIST_NONE;
    // Small blocks lie at multiples of their size from the 64 KiB frame (sizeclass.h).
    size_t phase = c <= QY_CLASS_SMALL ? (uintptr_t)s->base & 0xFFFF : 0;
    size_t first = (phase + size - 1) / size, end = (phase + bytes) / size;
    s->origin = s->base - phase + first * size;
    s->nblocks = (uint32_t)(end - first);
    atomic_store_explicit(&s->heap, h, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++) atomic_store_explicit(&u.chunk->span[u.first + i], s, memory_order_release);
    set_tags(h, s);
    qy_span_enter(h, s);
    h->bins[c].nslabs++;
    h->bins[c].nempty++;  // until the first block leaves
    h->nslabs++;
    h->slab_bytes += bytes;
    h->held_bytes += bytes;
    return s;
}

void qy_slab_release(qy_heap_t *h, qy_slab_t *s) {
    qy_chunk_t *chunk = qy_map_chunk(s->base);
    unsigned first = (unsigned)((size_t)(s->base - chunk->base) >> QY_UNIT_SHIFT), n = s->units;
    // Only the carved part of a fresh slab has been touched.
    qy_bits_t dirty = qy_bits_run(0, n);
    if (s->fresh) dirty = qy_bits_run(0, (unsigned)(qy_round_up((size_t)(s->origin - s->base) + (size_t)s->ncarved * qy_class_size[s->cls], QY_UNIT) >> QY_UNIT_SHIFT));
    if (s->fresh && s->ncarved == 0) dirty = 0;
    file_as(h, s, QY_LIST_NONE);
    qy_span_leave(h, s);
    size_t bytes = (size_t)n << QY_UNIT_SHIFT;
    h->bins[s->cls].nslabs--;
    h->nslabs--;
    h->slab_bytes -= bytes;
    h->held_bytes -= bytes;
    h->free_bytes -= (size_t)qy_slab_home(s) * qy_class_size[s->cls];
    h->purged_bytes -= (size_t)s->npurged * qy_class_size[s->cls];
    for (unsigned i = 0; i < n; i++) {
        qy_map_set_tag(s->base + i * QY_UNIT, 0);
        atomic_store_explicit(&chunk->span[first + i], NULL, memory_order_relaxed);
    }
    if (s->purged && s->purged != &s->purged_word) qy_meta_bitmap_delete(s->purged);
    qy_meta_slab_delete(s);
    qy_units_give(chunk, first, n, dirty);
    qy_purge_wanted();
}

// ---- taking ---------------------------------------------------------------------------------

// Cut new blocks from the uncarved part: to the end of the OS page the first one begins on, so that
// a small heap touches no page it does not use; four pages once the class has some slabs.
static qy_block_t *carve(qy_heap_t *h, qy_slab_t *s, unsigned want, bool *ret_fresh) {
    size_t size = qy_class_size[s->cls], page = 4096;
    if (h->bins[s->cls].nslabs >= 4) page *= 4;
    char *at = s->origin + (size_t)s->ncarved * size;
    char *page_end = (char *)qy_round_down((uintptr_t)at, page) + page;
    uint32_t n = (uint32_t)qy_max(1, (size_t)(page_end - at) / size);
    n = (uint32_t)qy_min(qy_min(n, want), s->nblocks - s->ncarved);
    leaves_empty(h, s);
    s->ncarved += n;
    qy_block_t *first = (qy_block_t *)at, *b = first;
    for (uint32_t i = 1; i < n; i++) {
        qy_block_t *next = (qy_block_t *)((char *)b + size);
        qy_link_set(b, next, qy_link_secret);
        b = next;
    }
    qy_link_set(b, NULL, qy_link_secret);
    *ret_fresh = n == 1 && s->fresh;
    return first;
}

// Take purged blocks into use again: the lowest ones, a page's worth.
static qy_block_t *recarve(qy_heap_t *h, qy_slab_t *s, unsigned want) {
    size_t size = qy_class_size[s->cls];
    uint32_t n = (uint32_t)qy_min(qy_max(1, 4096 / size), qy_min(want, s->npurged));
    leaves_empty(h, s);
    qy_block_t *first = NULL, *last = NULL;
    s->npurged -= n;
    h->free_bytes -= n * size;
    h->purged_bytes -= n * size;
    qy_age_again(n * size);
    for (uint32_t w = 0; n; w++) {
        while (n && s->purged[w]) {
            uint32_t i = w * 64 + (uint32_t)__builtin_ctzll(s->purged[w]);
            s->purged[w] &= s->purged[w] - 1;
            qy_block_t *b = (qy_block_t *)(s->origin + i * size);
            if (last) qy_link_set(last, b, qy_link_secret);
            else first = b;
            last = b;
            n--;
        }
    }
    qy_link_set(last, NULL, qy_link_secret);
    if (!s->npurged) set_tags(h, s);
    return first;
}

static qy_block_t *take_from(qy_heap_t *h, qy_slab_t *s, unsigned want, uint32_t *ret_count, bool *ret_fresh) {
    *ret_fresh = false;
    s->epoch = qy_purge_epoch();
    uint32_t out = s->ncarved - qy_slab_home(s);
    qy_block_t *chain;
    if (s->free && want == 1) {
        leaves_empty(h, s);
        chain = s->free;
        s->free = qy_link_next(chain);
        qy_link_set(chain, NULL, qy_link_secret);
        s->nfree--;
        h->free_bytes -= qy_class_size[s->cls];
        if (!s->free) {
            s->free = s->free2;
            s->free2 = NULL;
            s->nfree2 = 0;
        }
    } else if (s->free) {
        leaves_empty(h, s);
        chain = s->free;
        s->free = s->free2;
        s->free2 = NULL;
        h->free_bytes -= (size_t)(s->nfree - s->nfree2) * qy_class_size[s->cls];
        s->nfree = s->nfree2;
        s->nfree2 = 0;
    } else if (s->npurged) {
        chain = recarve(h, s, want);
    } else {
        chain = carve(h, s, want, ret_fresh);
    }
    *ret_count = s->ncarved - qy_slab_home(s) - out;
    if (s->cls <= QY_CLASS_SMALL) h->lent += (size_t)*ret_count * qy_class_size[s->cls];
    file_as(h, s, wanted_list(s));
    return chain;
}

// Refine the heap's class table around class c once enough blocks of it exist: twice as fine from
// 1,024 blocks and 256 KiB on, down to 16-byte steps from 4,096 blocks on.
static void refine(qy_heap_t *h, unsigned c) {
    if (c > QY_CLASS_SMALL || c <= 8) return;
    unsigned n = h->bins[c].nslabs, first = n < 4 ? n : 4;  // the first slabs are small ones
    size_t bytes = ((size_t)first << qy_class_slab_shift(c, 0)) + ((size_t)(n - first) << qy_class_slab_shift(c, 4));
    size_t blocks = bytes / qy_class_size[c];
    if (blocks < 1024 || bytes < ((size_t)256 << 10)) return;
    unsigned coarse = 1u << (qy_log2_floor(c - 1) - 2), step = blocks < 4096 ? coarse / 2 : 1;
    if (!step) step = 1;
    unsigned low = c;
    while (low > 1 && h->cls[low - 1] == c) low--;
    if (h->cls[low] == qy_round_up(low, step)) return;
    for (unsigned i = low; i <= c; i++) h->cls[i] = (uint8_t)qy_round_up(i, step);
    atomic_fetch_add_explicit(&h->cls_version, 1, memory_order_release);
}

static qy_block_t *take(qy_heap_t *h, unsigned c, unsigned want, uint32_t *ret_count, bool *ret_fresh) {
    // Fuller slabs first would serve few blocks at a time; the emptiest should drain. So: the middle.
    static const uint8_t order[QY_LISTS] = {QY_LIST_SOME, QY_LIST_MANY, QY_LIST_SCARCE, QY_LIST_FRESH};
    qy_bin_t *bin = &h->bins[c];
    h->refills++;
    // What others gave back comes before fresh memory, and so do generations on their way home, of all classes: a slab may become
    // empty by them.
    qy_remote_drain(h);
    for (int more = 0; more < 3; more++) {
        if (more == 1 && !qy_depot_home(h)) continue;
        if (more == 2 && !qy_heap_steal_for(h, c)) break;
        for (unsigned i = 0; i < QY_LISTS; i++)
            if (bin->list[order[i]]) return take_from(h, bin->list[order[i]], want, ret_count, ret_fresh);
    }
    qy_slab_t *s = new_slab(h, c);
    if (!s) return NULL;
    refine(h, c);  // only now: a heap at its limit could not use another class
    return take_from(h, s, want, ret_count, ret_fresh);
}

qy_block_t *qy_slab_take(qy_heap_t *h, unsigned c, uint32_t *ret_count, bool *ret_fresh) { return take(h, c, UINT32_MAX, ret_count, ret_fresh); }
qy_block_t *qy_slab_take_one(qy_heap_t *h, unsigned c, bool *ret_fresh) {
    uint32_t one;
    return take(h, c, 1, &one, ret_fresh);
}

// ---- bringing home ----------------------------------------------------------------------------

bool qy_slab_index(const qy_slab_t *s, const void *p, uint32_t *ret_index) {
    size_t offset = (size_t)((const char *)p - s->origin), size = qy_class_size[s->cls];
    if ((const char *)p < s->origin) return false;
    *ret_index = (uint32_t)(offset / size);
    return offset == *ret_index * size && *ret_index < s->ncarved;
}

void qy_slab_put(qy_heap_t *h, qy_slab_t *s, qy_block_t *b) {
    size_t size = qy_class_size[s->cls], offset = (size_t)((char *)b - s->origin);  // huge if b lies before
    // Without a division: this is done for every block that goes home. Its number is needed only if some blocks are purged.
    if (QY_UNLIKELY(offset >= s->ncarved * size || !qy_class_is_start(s->cls, qy_class_offset(s->cls, b)))) qy_fatal(QY_FAULT_INVALID_FREE, b, "never allocated");
    if (QY_UNLIKELY(s->npurged) && qy_slab_is_purged(s, (uint32_t)(offset / size))) qy_fatal(QY_FAULT_DOUBLE_FREE, b, "block of %z bytes", size);
    qy_link_set(b, s->free, qy_link_secret);
    s->free = b;
    s->nfree++;
    s->epoch = qy_purge_epoch();
    h->free_bytes += size;
}

qy_block_t *qy_slab_put_front(qy_heap_t *h, qy_slab_t *s, qy_block_t *list) {
    // Those of one slab mostly follow each other: their links stay as they are, and only the last one is written to.
    size_t size = qy_class_size[s->cls], end = s->ncarved * size;
    qy_block_t *last = NULL, *b = list;
    uint32_t n = 0;
    for (; b && (size_t)((char *)b - s->origin) < end; b = qy_link_next(b), n++) {
        qy_assert(qy_class_is_start(s->cls, qy_class_offset(s->cls, b)));
        if (QY_UNLIKELY(s->npurged) && qy_slab_is_purged(s, (uint32_t)((size_t)((char *)b - s->origin) / size)))
            qy_fatal(QY_FAULT_DOUBLE_FREE, b, "block of %z bytes", size);
        last = b;
    }
    if (QY_UNLIKELY(!last)) qy_fatal(QY_FAULT_INVALID_FREE, list, "never allocated");
    qy_link_set(last, s->free, qy_link_secret);
    s->free = list;
    s->nfree += n;
    s->epoch = qy_purge_epoch();
    h->free_bytes += n * size;
    return b;
}

void qy_slab_put_chain(qy_heap_t *h, qy_slab_t *s, qy_block_t *first, qy_block_t *last, uint32_t count) {
    // The chain is not walked: its blocks are in the cache of who freed them. Only if both places are taken the last one is touched.
    if (!s->free) {
        s->free = first;
    } else if (!s->free2) {
        s->free2 = first;
        s->nfree2 = count;
    } else {
        if (QY_UNLIKELY(qy_link_next(last))) qy_fatal(QY_FAULT_CORRUPT_META, last, "remote chain is longer than its count");
        qy_link_set(last, s->free2, qy_link_secret);
        s->free2 = first;
        s->nfree2 += count;
    }
    s->nfree += count;
    if (QY_UNLIKELY(qy_slab_home(s) > s->ncarved)) qy_fatal(QY_FAULT_CORRUPT_META, s->base, "more free blocks than were given out");
    s->epoch = qy_purge_epoch();
    h->free_bytes += (size_t)count * qy_class_size[s->cls];
}

// ---- from an idle heap --------------------------------------------------------------------------

bool qy_slab_steal(qy_heap_t *h, qy_heap_t *idle, unsigned c) {
    bool any = false;
    qy_bin_t *bin = &idle->bins[c];
    for (unsigned l = 0; l < QY_LISTS; l++) {
        for (qy_slab_t *s = bin->list[l], *next; s; s = next) {
            next = s->next;
            // One that lies in a mailbox stays: who drains that must find it in its own heap.
            if (atomic_load_explicit(&s->remote, memory_order_acquire) != 0) continue;
            size_t bytes = (size_t)s->units << QY_UNIT_SHIFT, home = (size_t)qy_slab_home(s) * qy_class_size[c];
            bool empty = is_empty(s);
            file_as(idle, s, QY_LIST_NONE);
            qy_span_leave(idle, s);
            bin->nslabs--;
            bin->nempty -= empty;
            idle->nslabs--;
            idle->slab_bytes -= bytes;
            idle->held_bytes -= bytes;
            idle->free_bytes -= home;
            idle->purged_bytes -= (size_t)s->npurged * qy_class_size[c];
            // From here a freer that published before sends the slab to its new heap (remote.c).
            atomic_store_explicit(&s->heap, h, memory_order_release);
            set_tags(h, s);
            qy_span_enter(h, s);
            h->bins[c].nslabs++;
            h->bins[c].nempty += empty;
            h->nslabs++;
            h->slab_bytes += bytes;
            h->held_bytes += bytes;
            h->free_bytes += home;
            h->purged_bytes += (size_t)s->npurged * qy_class_size[c];
            h->steals++;
            file_as(h, s, wanted_list(s));
            any = true;
            if (h->bins[c].list[QY_LIST_MANY]) return true;  // enough for now
        }
    }
    return any;
}

// ---- giving pages back ----------------------------------------------------------------------------

#define BLOCKS_MAX 4096u  // 64 KiB of 16-byte blocks

static bool bit(const uint64_t *bits, uint32_t i) { return bits[i / 64] >> (i % 64) & 1; }

// Are all blocks that touch [from, to) of the slab free, and at least one not purged yet?
static bool page_is_free(const qy_slab_t *s, const uint64_t *home, size_t from, size_t to) {
    size_t size = qy_class_size[s->cls], start = (size_t)(s->origin - s->base);
    if (to <= start) return false;
    uint32_t i = from > start ? (uint32_t)((from - start) / size) : 0;
    uint32_t end = (uint32_t)qy_min((to - start + size - 1) / size, s->ncarved);
    bool news = false;
    for (; i < end; i++) {
        bool purged = qy_slab_is_purged(s, i);
        if (!purged && !bit(home, i)) return false;
        news |= !purged;
    }
    return news;
}

size_t qy_slab_purge(qy_heap_t *h, qy_slab_t *s) {
    size_t page = qy_os_page_size(), size = qy_class_size[s->cls], start = (size_t)(s->origin - s->base);
    size_t bytes = (size_t)s->units << QY_UNIT_SHIFT, carved_end = start + s->ncarved * size;
    if ((size_t)s->nfree * size < page || s->nblocks > BLOCKS_MAX || page > bytes) return 0;

    uint64_t home[BLOCKS_MAX / 64];
    for (uint32_t w = 0; w <= (s->nblocks - 1) / 64; w++) home[w] = 0;
    for (int k = 0; k < 2; k++)
        for (qy_block_t *b = k ? s->free2 : s->free; b; b = qy_link_next(b)) {
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
            s->purged = s->nblocks <= 64 ? &s->purged_word : qy_meta_bitmap_new();
            if (!s->purged) return 0;
        }
        if (qy_os_purge(s->base + from, to - from)) {
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

    // Leave the lists with what is still there. Links of blocks that are gone read as zero: walk by bit.
    s->free = s->free2 = NULL;
    s->nfree = s->nfree2 = 0;
    for (uint32_t w = (s->nblocks - 1) / 64 + 1; w-- > 0;) {
        s->purged[w] |= gone[w];
        s->npurged += (uint32_t)__builtin_popcountll(gone[w]);
        h->purged_bytes += (size_t)__builtin_popcountll(gone[w]) * size;
        for (uint64_t left = home[w] & ~gone[w]; left;) {
            uint32_t i = w * 64 + 63 - (uint32_t)__builtin_clzll(left);
            left &= ~(UINT64_C(1) << (i % 64));
            qy_block_t *b = (qy_block_t *)(s->origin + i * size);
            qy_link_set(b, s->free, qy_link_secret);
            s->free = b;
            s->nfree++;
        }
    }
    set_tags(h, s);
    file_as(h, s, wanted_list(s));
    if (total) qy_purge_count(total);
    return total;
}

// ---- checking -----------------------------------------------------------------------------------

const char *qy_slab_check(const qy_heap_t *h, const qy_slab_t *s) {
    if (s->kind != QY_SPAN_SLAB || s->cls == 0 || s->cls >= QY_CLASS_COUNT) return "descriptor has no class";
    if (atomic_load(&s->heap) != h) return "slab belongs to another heap";
    if (s->ncarved > s->nblocks || qy_slab_home(s) > s->ncarved) return "more free blocks than were carved";
    uint32_t n = 0, i;
    for (int k = 0; k < 2; k++) {
        for (const qy_block_t *b = k ? s->free2 : s->free; b; b = qy_link_next(b)) {
            if (!qy_slab_index(s, b, &i)) return "a free link leads out of the slab";
            if (!qy_link_valid(b, qy_link_secret)) return "a free block was written to";
            if (qy_slab_is_purged(s, i)) return "a listed block is marked as purged";
            if (++n > s->nfree) return "a free list is longer than its count";
        }
        if (!k && s->nfree2 != s->nfree - n) return "the second free list is not counted right";
    }
    if (n != s->nfree) return "a free list is shorter than its count";
    uint32_t purged = 0;
    if (s->purged)
        for (i = 0; i <= (s->nblocks - 1) / 64; i++) purged += (uint32_t)__builtin_popcountll(s->purged[i]);
    if (purged != s->npurged) return "purged blocks are miscounted";
    if (s->list != wanted_list(s)) return "slab is on the wrong list";
    for (i = 0; i < s->units; i++)
        if (qy_map_tag(s->base + i * QY_UNIT) != wanted_tag(h, s)) return "a tag of the slab is wrong";
    return NULL;
}
