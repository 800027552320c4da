// SPDX-License-Identifier: MIT
// slab.c: slabs come and go, and lie on the lists of their bins. See slab.h and the equation in types.h.
#include "heap/heaps.h"
#include "heap/link.h"
#include "heap/waste.h"
#include "heap/slab.h"
#include "heap/tiny.h"
#include "pages/chunk.h"
#include "pages/map.h"
#include "pages/meta.h"
#include "rt/heuristics.h"

// ---- the spans of a heap ----------------------------------------------------------------------

void qy_span_enter(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    s->all_prev = NULL;
    s->all_next = h->all;
    if (h->all) h->all->all_prev = s;
    h->all = s;
}

void qy_span_leave(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    if (h->purge_at == s) h->purge_at = s->all_next;
    if (s->all_prev) s->all_prev->all_next = s->all_next;
    else h->all = s->all_next;
    if (s->all_next) s->all_next->all_prev = s->all_prev;
}

// ---- lists of a bin ---------------------------------------------------------------------------

static unsigned wanted_list(const qy_slab_t *s) {
    uint32_t home = qy_slab_home(s);
    if (home) return home == s->ncarved ? QY_LIST_EMPTY : QY_LIST_SOME;
    if (s->cls == QY_CLASS_TINY && qy_tiny_any(s)) return QY_LIST_SOME;
    return s->ncarved < s->nblocks ? QY_LIST_FRESH : QY_LIST_NONE;
}

// With how many in nhome, at least, that changes, or the slab is empty.
static uint32_t next_change(const qy_slab_t *s) {
    return qy_slab_home(s) ? s->ncarved - s->nchain - s->npurged : 1;
}

static void move_to(qy_heap_t *h, qy_slab_t *s, unsigned list) {
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

void qy_slab_relist(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    s->settle_at = next_change(s);
    move_to(h, s, wanted_list(s));
    qy_assert_sound(qy_slab_sound(h, s));
}

void qy_slab_settle(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    // The small first slabs of a class stay when they are empty (sizeclass.h), a whole frame if no other is, so that a
    // class that crosses a slab's boundary to and fro does not open and release one each time; slab_take.c takes them
    // when other classes need memory, purging when nobody does.
    if (qy_slab_is_empty(s)) {
        qy_bin_t *bin = &h->bins[s->cls];
        bool whole = s->units == qy_class_frame_units(s->cls);
        bool enough = !QY_WITH(small_first) || (bin->nempty > 0 && (whole || bin->nempty > QY_SLABS_FIRST));
        if (enough && qy_slab_is_left_alone(s)) {
            qy_slab_release(h, s);
            return;
        }
        bin->nempty++;
    }
    qy_slab_relist(h, s);
}

static qy_tag_t wanted_tag(const qy_heap_t *h, const qy_slab_t *s) {
    // Blocks of 8 bytes carry no marks that could be gone.
    return h->owner | (s->npurged && s->cls != QY_CLASS_TINY ? QY_TAG_PURGED : 0) | s->cls;
}

// Bytes of the slab that have tags when n blocks are carved: whole pages, the last is the one that the last block
// begins on.
static size_t tagged_bytes(const qy_slab_t *s, uint32_t n) {
    return n ? qy_round_down((size_t)((char *)qy_slab_block(s, n - 1) - s->base), QY_TAG_PAGE) + QY_TAG_PAGE : 0;
}

void qy_slab_set_tags(const qy_heap_t *h, const qy_slab_t *s, uint32_t since) {
    qy_tag_t tag = wanted_tag(h, s);
    size_t from = tagged_bytes(s, since), end = tagged_bytes(s, s->ncarved);
    if (from < end) qy_map_set_tags(s->base + from, end - from, tag);
}

// ---- making and releasing slabs -----------------------------------------------------------------

static qy_meta_records_t spans;
qy_slab_t qy_span_freed;

qy_slab_t *qy_span_new(void) { return qy_meta_record_new(&spans, sizeof(qy_slab_t)); }
void qy_span_delete(qy_slab_t *span) { qy_meta_record_delete(&spans, span); }

// A descriptor for a slab of class c, of at most n blocks, with bits for them.
static qy_slab_t *new_record(unsigned c, uint32_t n) {
    qy_slab_t *s = qy_span_new();
    if (!s) return NULL;
    s->cls = (uint8_t)c;
    if (c == QY_CLASS_TINY) s->tiny = qy_tiny_record_new(s);
    else s->home = n <= 64 ? &s->home_word : qy_meta_bits_new(n);
    if (s->home) return s;
    qy_span_delete(s);
    return NULL;
}

static void delete_record(qy_slab_t *s, uint32_t n) {
    if (s->cls == QY_CLASS_TINY) qy_tiny_record_delete(s->tiny);
    else if (s->home != &s->home_word) qy_meta_bits_delete(s->home, n);
    if (s->purged && s->purged != &s->purged_word) qy_meta_bits_delete(s->purged, n);
    qy_span_delete(s);
}

// A slab of many blocks of two cache lines and more has an odd number of them, which costs one in 128 at most. A
// program that builds records of some blocks each, and later looks at one field of each record, finds that field every
// so many blocks; were their number even, it would find it at the same offsets of every slab, and in few of the caches'
// sets. Smaller blocks spread over half of the sets even so.
static uint32_t odd_if_many(uint32_t nblocks, size_t size) {
    return QY_WITH(colour) && size >= 2 * QY_CACHE_LINE && nblocks >= 128 && nblocks % 2 == 0 ? nblocks - 1 : nblocks;
}

static void count(qy_heap_t *h, unsigned c) {
    h->nslabs++;
    if (!h->bins[c].nslabs++) h->used[c / 64] |= UINT64_C(1) << c % 64;
}
static void uncount(qy_heap_t *h, unsigned c) {
    h->nslabs--;
    if (!--h->bins[c].nslabs) h->used[c / 64] &= ~(UINT64_C(1) << c % 64);
}

qy_slab_t *qy_slab_new(qy_heap_t *h, unsigned c) {
    QY_NEEDS(&h->lock);
    unsigned n = qy_class_slab_units(c, h->bins[c].nslabs);
    size_t bytes = n * QY_UNIT, size = qy_class_size[c];
    if (h->limit && h->held_bytes + bytes > h->limit) return NULL;
    qy_slab_t *s = new_record(c, (uint32_t)(bytes / size));
    if (!s) return NULL;
    qy_units_t u;
    if (!qy_units_take_at(n, qy_class_frame_units(c), qy_class_slab_places(c, n), &u)) {
        delete_record(s, (uint32_t)(bytes / size));
        return NULL;
    }
    s->kind = QY_SPAN_SLAB;
    s->units = (uint16_t)n;
    s->base = u.chunk->record.base + u.first * QY_UNIT;
    s->touched = (uint16_t)u.dirty;
    s->fresh = u.dirty == 0;
    s->list = QY_LIST_NONE;
    // Blocks lie at multiples of their size from where they are counted from in the frame (sizeclass.h).
    ptrdiff_t phase = (ptrdiff_t)qy_class_offset(c, s->base);  // negative: before that
    size_t first = phase > 0 ? ((size_t)phase + size - 1) / size : 0, end = (size_t)(phase + (ptrdiff_t)bytes) / size;
    s->origin = s->base - phase + first * size;
    s->nblocks = odd_if_many((uint32_t)(end - first), size);
    atomic_store_explicit(&s->heap, h, memory_order_relaxed);
    for (unsigned i = 0; i < n; i++) atomic_store_explicit(&u.chunk->span[u.first + i], s, memory_order_release);
    qy_span_enter(h, s);
    count(h, c);
    h->bins[c].nempty++;  // until the first block leaves
    h->slab_bytes += bytes;
    h->held_bytes += bytes;
    h->made_bytes += bytes;
    return s;
}

void qy_slab_release(qy_heap_t *h, qy_slab_t *s) {
    QY_NEEDS(&h->lock);
    qy_chunk_t *chunk = qy_map_chunk(s->base);
    unsigned first = (unsigned)((size_t)(s->base - chunk->record.base) >> QY_UNIT_SHIFT), n = s->units;
    // What was touched before, and what was carved, which begins in the first unit.
    size_t end = s->ncarved ? (size_t)(s->origin - s->base) + (size_t)s->ncarved * qy_class_size[s->cls] : 0;
    qy_bits_t dirty = s->touched | qy_bits_run(0, (unsigned)(qy_round_up(end, QY_UNIT) >> QY_UNIT_SHIFT));
    move_to(h, s, QY_LIST_NONE);
    qy_span_leave(h, s);
    size_t bytes = (size_t)n << QY_UNIT_SHIFT;
    uncount(h, s->cls);
    h->slab_bytes -= bytes;
    h->held_bytes -= bytes;
    h->free_bytes -= (size_t)qy_slab_home(s) * qy_class_size[s->cls];
    h->purged_bytes -= (size_t)s->npurged * qy_class_size[s->cls];
    qy_map_set_tags(s->base, tagged_bytes(s, s->ncarved), 0);
    for (unsigned i = 0; i < n; i++) atomic_store_explicit(&chunk->span[first + i], NULL, memory_order_relaxed);
    delete_record(s, qy_slab_bits(s));
    qy_units_give(chunk, first, n, dirty);
    qy_waste_of_pages();
}

size_t qy_slab_release_empty(qy_heap_t *h) {
    QY_NEEDS(&h->lock);
    size_t n = 0;
    for (unsigned c = 1; c < QY_CLASS_COUNT; c++) {
        for (qy_slab_t *s = h->bins[c].list[QY_LIST_EMPTY], *next; s; s = next) {
            next = s->next;
            // In a mailbox: somebody freed a block twice. Or somebody is about to tell of frees that are known by now.
            if (!qy_slab_is_empty(s) || !qy_slab_is_left_alone(s)) continue;
            h->bins[c].nempty--;
            qy_slab_release(h, s);
            n++;
        }
    }
    return n;
}

// ---- from an idle heap --------------------------------------------------------------------------

bool qy_slab_steal(qy_heap_t *h, qy_heap_t *idle, unsigned c) {
    QY_NEEDS(&idle->lock);
    QY_NEEDS(&h->lock);
    qy_bin_t *bin = &idle->bins[c];
    for (unsigned l = 0; l < QY_LISTS; l++) {
        for (qy_slab_t *s = bin->list[l], *next; s; s = next) {
            next = s->next;
            // One that lies in a mailbox stays: who drains that must find it in its own heap.
            if (atomic_load_explicit(&s->remote, memory_order_acquire) != 0) continue;
            size_t bytes = (size_t)s->units << QY_UNIT_SHIFT, home = (size_t)qy_slab_home(s) * qy_class_size[c];
            bool empty = qy_slab_is_empty(s);
            move_to(idle, s, QY_LIST_NONE);
            qy_span_leave(idle, s);
            uncount(idle, c);
            bin->nempty -= empty;
            idle->slab_bytes -= bytes;
            idle->held_bytes -= bytes;
            idle->free_bytes -= home;
            idle->purged_bytes -= (size_t)s->npurged * qy_class_size[c];
            // From here a freer that published before sends the slab to its new heap (remote.c).
            atomic_store_explicit(&s->heap, h, memory_order_release);
            qy_slab_set_tags(h, s, 0);
            qy_span_enter(h, s);
            count(h, c);
            h->bins[c].nempty += empty;
            h->slab_bytes += bytes;
            h->held_bytes += bytes;
            h->free_bytes += home;
            h->purged_bytes += (size_t)s->npurged * qy_class_size[c];
            h->steals++;
            qy_slab_relist(h, s);
            return true;  // whichever list it was on, it serves
        }
    }
    return false;
}

// ---- checking -----------------------------------------------------------------------------------

static const char written[] = "a free block was written to";  // by the program: not this library's fault

static const char *check_blocks(const qy_slab_t *s) {
    uint32_t n = 0, i;
    for (int k = 0; k < 2; k++) {
        for (const qy_block_t *b = k ? s->chain2 : s->chain; b; b = qy_link_next(b)) {
            if (!qy_slab_index(s, b, &i)) return "a free link leads out of the slab";
            if (!qy_link_valid(b)) return written;
            if (qy_slab_bit(s->home, i) || qy_slab_is_purged(s, i))
                return "a block handed over is marked as at home or purged";
            if (++n > s->nchain) return "a chain is longer than its count";
        }
        if (!k && s->nchain2 != s->nchain - n) return "the second chain is not counted right";
    }
    if (n != s->nchain) return "a chain is shorter than its count";
    uint32_t home = 0, purged = 0;
    for (i = 0; i < qy_slab_bits(s); i++) {
        bool gone = qy_slab_is_purged(s, i);
        purged += gone;
        if (!qy_slab_bit(s->home, i)) continue;
        if (i / 64 < s->low) return "a free block lies below the lowest";
        home++;
        if (i >= s->ncarved) return "a free block was never carved";
        if (gone) return "a free block is marked as purged";
        if (!qy_link_valid(qy_slab_block(s, i))) return written;
    }
    if (home != s->nhome) return "free blocks are miscounted";
    return purged != s->npurged ? "purged blocks are miscounted" : NULL;
}

const char *qy_slab_check(const qy_heap_t *h, const qy_slab_t *s) {
    if (s->kind != QY_SPAN_SLAB || s->cls == 0 || s->cls >= QY_CLASS_COUNT) return "descriptor has no class";
    if (atomic_load(&s->heap) != h) return "slab belongs to another heap";
    if (s->ncarved > s->nblocks || qy_slab_home(s) > s->ncarved) return "more free blocks than were carved";
    bool tiny = s->cls == QY_CLASS_TINY;
    const char *wrong = tiny ? qy_tiny_check(h, s) : check_blocks(s);
    if (wrong) return wrong;
    if (s->settle_at != next_change(s)) return "when the slab is to be settled is wrong";
    unsigned wanted = wanted_list(s);
    if (s->list != wanted && !(tiny && qy_tiny_may_be_on(h, s, wanted))) return "slab is on the wrong list";
    for (size_t at = 0; at < (size_t)s->units * QY_UNIT; at += QY_TAG_PAGE)
        if (qy_map_tag_now(s->base + at) != (at < tagged_bytes(s, s->ncarved) ? wanted_tag(h, s) : 0))
            return "a tag of the slab is wrong";
    return NULL;
}

const char *qy_slab_sound(const qy_heap_t *h, const qy_slab_t *s) {
    const char *wrong = qy_slab_check(h, s);
    return wrong == written ? NULL : wrong;
}
