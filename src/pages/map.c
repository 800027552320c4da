// SPDX-License-Identifier: MIT
// map.c: see map.h.
#include "pages/map.h"

#include "os/fake.h"
#include "os/os.h"

// covers 32 MiB. Not more: a program that locks all of its memory pays for what is reserved, too
#define TAG_BYTES_FIRST ((size_t)1 << 16)
#define TAG_BYTES_USUAL ((size_t)2 << 30)  // covers 1 TiB; larger ones only when a quarter of the entries is used
#define TAG_BYTES_MAX ((size_t)1 << 37)    // covers 64 TiB
#define SHARE 16u                          // a larger one takes this part of the address space that is left, at most
#define STEPS 256u                         // tags are made writable step by step, of as many at most
#define STEP_MIN ((size_t)1 << 16)
#define TABLES 24u

static struct {
    _Atomic(qy_map_record_t *) record;
    qy_tag_t tag;
} map_none;
qy_tag_t *qy_map_tags = &map_none.tag;
size_t qy_map_mask;
size_t qy_map_fake_first;

static struct {
    qy_lock_t lock;
    _Atomic uint32_t version;   // odd while a table is being made; changed under the lock
    size_t used;                // [lock] entries that are not empty
    size_t records;             // [lock] chunks that are entered
    uint64_t open[STEPS / 64];  // [lock] one bit per step of the tags that is writable
    _Atomic size_t bytes;       // that are
    unsigned count;             // [lock] tables there are, the last is in use
    struct {
        char *base;
        size_t bytes;
    } table[TABLES];
} map;

// ---- chunks of an entry -----------------------------------------------------------------------

// Units come first: what frees their blocks looks for them. Whoever finds no record, or another's, asks under the lock,
// so the order in which links are written does not matter.
static void enter_locked(qy_tag_t *tags, size_t i, qy_map_record_t *c) {
    QY_NEEDS(&map.lock);
    _Atomic(qy_map_record_t *) *slot = qy_map_slot(tags, i);
    qy_map_record_t *first = atomic_load_explicit(slot, memory_order_relaxed);
    if (!first) map.used++;
    if (first && first->tagged) {
        c->alias = first->alias;
        first->alias = c;
    } else {
        c->alias = first;
        atomic_store_explicit(slot, c, memory_order_release);
    }
}

static void leave_locked(qy_map_record_t *c) {
    QY_NEEDS(&map.lock);
    _Atomic(qy_map_record_t *) *slot = qy_map_slot(qy_map_tags, qy_map_index(c->base));
    qy_map_record_t *other = atomic_load_explicit(slot, memory_order_relaxed);
    if (other == c) {
        atomic_store_explicit(slot, c->alias, memory_order_release);
        if (!c->alias) map.used--;
    } else {
        while (other && other->alias != c) other = other->alias;
        if (!other) return;
        other->alias = c->alias;
    }
    map.records--;
}

static bool is_taken(const char *base) {
    _Atomic(qy_map_record_t *) *slot = qy_map_slot(qy_map_tags, qy_map_index(base));
    const qy_map_record_t *first = atomic_load_explicit(slot, memory_order_relaxed);
    return first && first->tagged;
}

// ---- a table ----------------------------------------------------------------------------------

// A test may pretend larger pages when there is a table already: there it consists of the largest.
static size_t table_page(void) { return QY_CFG_FAKE ? 65536 : qy_os_page_size(); }

static size_t chunk_bytes(size_t entries) {
    return qy_round_up(entries / QY_CHUNK_TAGS * sizeof(qy_map_record_t *), table_page());
}

// Make the tags of the chunk of tag i writable. `open` has a bit for each step that is.
static bool open_tags(qy_tag_t *tags, size_t entries, uint64_t *open, size_t i) {
    QY_NEEDS(&map.lock);
    size_t step = qy_max(entries * sizeof *tags / STEPS, STEP_MIN), at = i * sizeof *tags / step;
    if (open[at / 64] >> (at % 64) & 1) return true;
    if (!qy_os_commit((char *)tags + at * step, step)) return false;
    open[at / 64] |= UINT64_C(1) << (at % 64);
    map.bytes += step;
    return true;
}

// An empty one whose chunks can be entered; returns its tags.
static qy_tag_t *table_new(size_t entries) {
    QY_NEEDS(&map.lock);
    size_t chunks = chunk_bytes(entries), tags = entries * sizeof(qy_tag_t);
    char *base = map.count < TABLES ? qy_os_reserve_readable(chunks + tags, table_page()) : NULL;
    if (!base) return NULL;
    if (!qy_os_commit(base, chunks)) {
        qy_os_unmap(base, chunks + tags);
        return NULL;
    }
    qy_os_advise_nodump(base + chunks, tags);
    qy_os_name(base, chunks + tags, "quarry tags");
    map.table[map.count].base = base;
    map.table[map.count].bytes = chunks + tags;
    return (qy_tag_t *)(void *)(base + chunks);
}

// Its mask is the last to be stored.
static void publish(qy_tag_t *tags, size_t entries) {
    map.count++;
    __atomic_store_n(&qy_map_tags, tags, __ATOMIC_RELEASE);
    __atomic_store_n(&qy_map_mask, entries - 1, __ATOMIC_RELEASE);
}

static bool first_locked(void) {
    QY_NEEDS(&map.lock);
    size_t bytes = QY_CFG_FAKE && qy_map_fake_first ? qy_map_fake_first : TAG_BYTES_FIRST;
    qy_tag_t *tags = table_new(bytes / sizeof *tags);
    if (tags) publish(tags, bytes / sizeof *tags);
    return tags != NULL;
}

// ---- growing ----------------------------------------------------------------------------------

static size_t place_of(const qy_map_record_t *c, size_t entries) {
    return ((uintptr_t)c->base >> QY_TAG_SHIFT) & (entries - 1);
}

QY_COLD static bool open_all(qy_tag_t *to, size_t entries, uint64_t *open) {
    for (size_t i = 0; i <= qy_map_mask; i += QY_CHUNK_TAGS) {
        const qy_map_record_t *c = atomic_load_explicit(qy_map_slot(qy_map_tags, i), memory_order_relaxed);
        if (c && c->tagged && !open_tags(to, entries, open, place_of(c, entries))) return false;
    }
    return true;
}

QY_COLD static void copy_all(qy_tag_t *to, size_t entries) {
    map.used = 0;
    for (size_t i = 0; i <= qy_map_mask; i += QY_CHUNK_TAGS) {
        qy_map_record_t *next;
        qy_map_record_t *c = atomic_load_explicit(qy_map_slot(qy_map_tags, i), memory_order_relaxed);
        for (; c; c = next) {
            next = c->alias;
            size_t place = place_of(c, entries);
            enter_locked(to, place, c);
            for (size_t k = 0; c->tagged && k < QY_CHUNK_TAGS; k++) {
                qy_tag_t tag = __atomic_load_n(&qy_map_tags[i + k], __ATOMIC_RELAXED);
                if (tag) __atomic_store_n(&to[place + k], tag, __ATOMIC_RELAXED);
            }
        }
    }
}

QY_COLD static bool replace_locked(size_t entries) {
    QY_NEEDS(&map.lock);
    size_t bytes = map.bytes;
    uint64_t open[STEPS / 64] = {0};
    qy_tag_t *to = table_new(entries);
    if (!to) return false;
    if (!open_all(to, entries, open)) {
        qy_os_unmap(map.table[map.count].base, map.table[map.count].bytes);
        map.bytes = bytes;
        return false;
    }
    // Who writes a tag from here on sees the odd version, or the copy has what he wrote: fences of both are between the
    // two.
    atomic_fetch_add(&map.version, 1);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    copy_all(to, entries);
    for (size_t i = 0; i < STEPS / 64; i++) map.open[i] = open[i];
    publish(to, entries);
    atomic_fetch_add(&map.version, 1);
    if (qy_os_empty(map.table[map.count - 2].base, map.table[map.count - 2].bytes)) map.bytes -= bytes;
    return true;
}

// Four times as large, or twice where that is not to be had.
QY_COLD static bool grow_locked(void) {
    QY_NEEDS(&map.lock);
    size_t have = (qy_map_mask + 1) * sizeof(qy_tag_t);
    bool few = map.used < (qy_map_mask + 1) / QY_CHUNK_TAGS / 4;
    for (size_t want = qy_min(have * 4, few ? TAG_BYTES_USUAL : TAG_BYTES_MAX); want > have; want /= 2)
        if (qy_os_has_space(want * SHARE) && replace_locked(want / sizeof(qy_tag_t))) return true;
    return false;
}

// ---- chunks -----------------------------------------------------------------------------------

static qy_map_answer_t add_locked(qy_map_record_t *c, char *base, bool units) {
    QY_NEEDS(&map.lock);
    if (!qy_map_mask && !first_locked()) return QY_MAP_NO_MEMORY;
    if (units && is_taken(base) && (!grow_locked() || is_taken(base))) return QY_MAP_TAKEN;
    size_t i = qy_map_index(base);
    if (units && !open_tags(qy_map_tags, qy_map_mask + 1, map.open, i)) return QY_MAP_NO_MEMORY;
    __atomic_store_n(&c->base, base, __ATOMIC_RELAXED);  // a reader may have the record from where it was before
    c->tagged = units;
    enter_locked(qy_map_tags, i, c);
    // Of huge objects as many may share an entry as come. With many, whole rows would be searched for each; it is tried
    // now and then.
    size_t entries = (qy_map_mask + 1) / QY_CHUNK_TAGS;
    if (QY_UNLIKELY(++map.records > entries) && qy_is_pow2(map.records)) grow_locked();
    return QY_MAP_ADDED;
}

qy_map_answer_t qy_map_add(qy_map_record_t *record, char *base, bool units) {
    qy_lock_take(&map.lock);
    qy_map_answer_t answer = add_locked(record, base, units);
    qy_lock_drop(&map.lock);
    return answer;
}

void qy_map_remove(qy_map_record_t *record) {
    qy_lock_take(&map.lock);
    leave_locked(record);
    qy_lock_drop(&map.lock);
}

QY_COLD void qy_map_replace(qy_map_record_t *other, qy_map_record_t *record) {
    qy_lock_take(&map.lock);
    leave_locked(record);
    leave_locked(other);
    add_locked(record, other->base, false);
    qy_lock_drop(&map.lock);
}

QY_COLD qy_map_record_t *qy_map_find(const void *p) {
    qy_lock_take(&map.lock);
    qy_map_record_t *c = atomic_load_explicit(qy_map_slot(qy_map_tags, qy_map_index(p)), memory_order_relaxed);
    while (c && !qy_map_record_holds(c, p)) c = c->alias;
    qy_lock_drop(&map.lock);
    return c;
}

// ---- tags -------------------------------------------------------------------------------------

static void write_tags(qy_tag_t *tags, size_t i, const char *from, size_t bytes, qy_tag_t tag) {
    qy_tag_t page = (uintptr_t)from >> QY_TAG_SHIFT;
    for (size_t n = bytes >> QY_TAG_SHIFT; n--; i++, page++)
        __atomic_store_n(&tags[i], tag ? tag ^ page : 0, __ATOMIC_RELAXED);
}

QY_COLD static void set_tags_again(const char *from, size_t bytes, qy_tag_t tag) {
    qy_lock_take(&map.lock);
    write_tags(qy_map_tags, qy_map_index(from), from, bytes, tag);
    qy_lock_drop(&map.lock);
}

void qy_map_set_tags(const char *from, size_t bytes, qy_tag_t tag) {
    uint32_t version = atomic_load_explicit(&map.version, memory_order_acquire);
    size_t i = qy_map_index(from);
    qy_tag_t *tags = __atomic_load_n(&qy_map_tags, __ATOMIC_ACQUIRE);
    // so both words are of one table
    bool same = !(version & 1) && atomic_load_explicit(&map.version, memory_order_acquire) == version;
    if (QY_LIKELY(same)) {
        write_tags(tags, i, from, bytes, tag);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
        same = atomic_load_explicit(&map.version, memory_order_relaxed) == version;
    }
    if (QY_UNLIKELY(!same)) set_tags_again(from, bytes, tag);
}

QY_COLD qy_tag_t qy_map_tag_now(const void *p) {
    qy_lock_take(&map.lock);
    qy_tag_t tag = qy_map_tag(p);
    qy_lock_drop(&map.lock);
    return tag;
}

// ---- looking ----------------------------------------------------------------------------------

size_t qy_map_bytes(void) { return map.bytes; }

QY_COLD void qy_map_each(void (*fn)(const void *base, size_t bytes, void *arg), void *arg) {
    qy_lock_take(&map.lock);
    for (unsigned i = map.count; i--;) fn(map.table[i].base, map.table[i].bytes, arg);
    qy_lock_drop(&map.lock);
}

QY_COLD static const char *check_locked(void) {
    QY_NEEDS(&map.lock);
    size_t used = 0, records = 0;
    for (size_t i = 0; map.count && i <= qy_map_mask; i += QY_CHUNK_TAGS) {
        const qy_map_record_t *c = atomic_load_explicit(qy_map_slot(qy_map_tags, i), memory_order_relaxed);
        used += c != NULL;
        for (bool first = true; c; c = c->alias, first = false, records++) {
            if (place_of(c, qy_map_mask + 1) != i) return "a chunk is in another's entry of the map";
            if (c->tagged && !first) return "a chunk of units is behind another in the map";
        }
    }
    if (used != map.used) return "entries of the map are miscounted";
    return records == map.records ? NULL : "chunks in the map are miscounted";
}

QY_COLD const char *qy_map_check(void) {
    qy_lock_take(&map.lock);
    const char *wrong = check_locked();
    qy_lock_drop(&map.lock);
    return wrong;
}

qy_lock_t *qy_map_lock(void) { return &map.lock; }
