// SPDX-License-Identifier: MIT
// records.c: see records.h.
#include "check/records.h"

#include <string.h>

#include "base/num.h"
#include "check/memory.h"
#include "heap/lookup.h"
#include "heap/sizeclass.h"
#include "rt/diag.h"

#define SHEET_GRAIN 256u
#define SHEET_MOST (QY_UNIT / QY_ALIGN_MIN * sizeof(qy_check_record_t) + sizeof(qy_check_sheet_t))
#define SHEET_KINDS (SHEET_MOST / SHEET_GRAIN + 2)
#define WAIT_NS UINT64_C(1000000)
#define WAITS 1000u
#define LONGEST_BLOCK_UNITS (QY_MEDIUM_MAX / QY_UNIT + 1)

_Atomic(qy_check_entry_t *) qy_check_leaves[QY_CHECK_LEAVES];
// Of each table, the entries that were ever used: from .low up to .high. Only grows.
static struct {
    _Atomic uint32_t low, high;
} leaf_used[QY_CHECK_LEAVES];

#define TIDY_LEAST ((size_t)4 << 20)

static struct {
    qy_lock_t lock;                        // of all changes of entries
    qy_check_sheet_t *spare[SHEET_KINDS];  // by SHEET_GRAIN of their length
    size_t bytes;                          // [lock] of sheets that units have
    size_t tidy_at;                        // [lock] with so many, those that nobody uses are looked for
} sheets;

qy_lock_t *qy_check_records_lock(void) { return &sheets.lock; }

// ---- look-ups ---------------------------------------------------------------------------------------------------

QY_INLINE qy_check_place_t record_place(qy_check_sheet_t *s, uint32_t i) {
    uint32_t version = s->version, size = s->size;
    return (qy_check_place_t){
        s, &s->record[i], s->begin + (uintptr_t)i * size, size ? size : s->extent, version};
}

QY_INLINE uint32_t sheet_index(const qy_check_sheet_t *s, uintptr_t offset) {
    return (uint32_t)((uint64_t)offset * s->reciprocal >> 32);
}

// A unit begins with the rest of a block of a unit before it, which may be four away. Its sheet, or NULL.
QY_COLD static qy_check_sheet_t *sheet_from_before(uintptr_t address, uint32_t cls) {
    for (uintptr_t n = 1; n <= LONGEST_BLOCK_UNITS; n++) {
        qy_check_sheet_t *s = qy_check_sheet(address - n * QY_UNIT);
        uint32_t count = s ? s->count : 0, size = s ? s->size : 0;
        if (!size || s->cls != cls) return NULL;
        if (count) return address - s->begin - (uintptr_t)(count - 1) * size < size ? s : NULL;
    }
    return NULL;
}

// Perhaps of a sheet that is being replaced. The sheet of the record, which is the unit's or one before it; NULL: none.
QY_INLINE qy_check_sheet_t *place_look(qy_check_sheet_t *s, uintptr_t address, uint32_t *ret_i) {
    uintptr_t begin = s->begin;
    uint32_t count = s->count;
    *ret_i = 0;
    if (QY_UNLIKELY(!s->size)) return address - begin < s->extent ? s : NULL;
    if (QY_UNLIKELY(address < begin || !count)) {
        s = sheet_from_before(address, s->cls);
        *ret_i = s ? s->count - 1 : 0;
        return s;
    }
    uintptr_t offset = address - begin;
    *ret_i = offset < QY_UNIT ? sheet_index(s, offset) : count;
    return *ret_i < count ? s : NULL;
}

// The fields are read once, into registers: to copy a place that was just written waits for the writes.
qy_check_place_t qy_check_place(uintptr_t address) {
    for (;;) {
        qy_check_sheet_t *s = qy_check_sheet(address);
        if (!s) return (qy_check_place_t){0};
        uint32_t version = s->version, i;
        qy_check_sheet_t *of = place_look(s, address, &i);
        uint32_t of_version = of ? of->version : 0, size = of ? of->size : 0;
        uintptr_t begin = of ? of->begin + (uintptr_t)i * size : 0;
        size_t room = size || !of ? size : of->extent;
        atomic_thread_fence(memory_order_acquire);
        bool same = s->version == version && qy_check_sheet(address) == s;
        if (QY_UNLIKELY(of && of != s))
            same = same && !(of_version & 1) && of->version == of_version && qy_check_sheet(begin) == of;
        if (QY_LIKELY(same)) return (qy_check_place_t){of, of ? &of->record[i] : NULL, begin, room, of_version};
    }
}

qy_check_place_t qy_check_place_before(const qy_check_place_t *place) {
    qy_check_sheet_t *s = place->sheet;
    uint32_t i = (uint32_t)(place->record - s->record);
    if (!s->size) return (qy_check_place_t){0};
    if (QY_LIKELY(i))
        return (qy_check_place_t){s, place->record - 1, place->begin - place->room, place->room, place->version};
    qy_check_place_t before = qy_check_place(place->begin - 1);
    return before.record && before.sheet->cls == s->cls ? before : (qy_check_place_t){0};
}

qy_check_place_t qy_check_place_behind(const qy_check_place_t *place) {
    if (!place->sheet->size) return (qy_check_place_t){0};
    qy_check_place_t behind = qy_check_place(place->begin + place->room);
    return behind.record && behind.sheet->cls == place->sheet->cls ? behind : (qy_check_place_t){0};
}

void qy_check_each_place(bool (*visit)(const qy_check_place_t *place, void *arg), void *arg) {
    for (size_t i = 0; i < QY_CHECK_LEAVES; i++) {
        qy_check_entry_t *leaf = atomic_load_explicit(&qy_check_leaves[i], memory_order_acquire);
        qy_check_sheet_t *seen = NULL;
        uint32_t end = atomic_load_explicit(&leaf_used[i].high, memory_order_acquire);
        for (size_t u = atomic_load_explicit(&leaf_used[i].low, memory_order_acquire); leaf && u < end; u++) {
            qy_check_sheet_t *s = atomic_load_explicit(&leaf[u], memory_order_acquire);
            // A large object is met where it begins.
            uintptr_t unit = (i << QY_CHECK_LEAF_SHIFT) + (u << QY_UNIT_SHIFT);
            if (!s || s == seen || (!s->size && s->begin - unit >= QY_UNIT)) continue;
            seen = s;
            for (uint32_t k = 0; k < s->count; k++) {
                qy_check_place_t place = record_place(s, k);
                if (qy_check_state_of(qy_check_word(place.record)) != QY_CHECK_NONE && !visit(&place, arg)) return;
            }
        }
    }
}

// ---- sheets -------------------------------------------------------------------------------------------------------

static size_t sheet_bytes(uint32_t count) {
    return qy_round_up(sizeof(qy_check_sheet_t) + count * sizeof(qy_check_record_t), SHEET_GRAIN);
}

// Its version is odd until sheet_ready.
static qy_check_sheet_t *sheet_new(uint32_t count) {
    QY_NEEDS(&sheets.lock);
    size_t bytes = sheet_bytes(count);
    qy_check_sheet_t **spare = &sheets.spare[bytes / SHEET_GRAIN], *s = *spare;
    if (s) *spare = s->spare;
    else if (!(s = qy_check_memory(bytes, false))) return NULL;
    else {
        s->version = 1;
        s->used = QY_CHECK_REPLACED;
    }
    sheets.bytes += bytes;
    s->count = count;
    for (uint32_t i = 0; i < count; i++) atomic_store_explicit(&s->record[i].word, 0, memory_order_relaxed);
    return s;
}

static void sheet_ready(qy_check_sheet_t *s) {
    QY_NEEDS(&sheets.lock);
    // Added, not stored: a thread that counted itself in the sheet before may still have to take that back.
    atomic_fetch_sub(&s->used, QY_CHECK_REPLACED);
    s->version++;
}

// Nobody uses it, and nobody can begin to.
static void sheet_delete(qy_check_sheet_t *s) {
    QY_NEEDS(&sheets.lock);
    size_t bytes = sheet_bytes(s->count);
    s->version |= 1;
    sheets.bytes -= bytes;
    s->spare = sheets.spare[bytes / SHEET_GRAIN];
    sheets.spare[bytes / SHEET_GRAIN] = s;
}

static qy_check_entry_t *entry_made(uintptr_t address) {
    QY_NEEDS(&sheets.lock);
    if (address >> 48) return NULL;
    size_t i = address >> QY_CHECK_LEAF_SHIFT;
    uint32_t unit = (uint32_t)(address >> QY_UNIT_SHIFT & (QY_CHECK_LEAF_UNITS - 1));
    bool is_new = !qy_check_entry(address);
    qy_check_entry_t *leaf = is_new ? qy_check_memory(QY_CHECK_LEAF_UNITS * sizeof *leaf, true) : NULL;
    if (is_new && !leaf) return NULL;
    if (is_new || unit < leaf_used[i].low) atomic_store_explicit(&leaf_used[i].low, unit, memory_order_release);
    if (unit >= leaf_used[i].high) atomic_store_explicit(&leaf_used[i].high, unit + 1, memory_order_release);
    if (is_new) atomic_store_explicit(&qy_check_leaves[i], leaf, memory_order_release);
    return qy_check_entry(address);
}

// How many units have the sheet that is being replaced in this one: those of a large object, which are neighbours.
static void entries_clear(qy_check_sheet_t *s) {
    QY_NEEDS(&sheets.lock);
    uintptr_t first = s->count ? s->begin : s->begin - QY_UNIT, at = first & ~(QY_UNIT - 1);  // none begins in it
    size_t bytes = s->size ? QY_UNIT : s->extent + (s->begin - at);
    for (uintptr_t end = at + bytes; at < end; at += QY_UNIT) {
        qy_check_entry_t *entry = qy_check_entry(at);
        if (entry && atomic_load_explicit(entry, memory_order_relaxed) == s)
            atomic_store_explicit(entry, NULL, memory_order_release);
    }
}

// Take the sheet away from its units. False: a record of it is in use.
static bool sheet_retire(qy_check_sheet_t *s) {
    QY_NEEDS(&sheets.lock);
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&s->used, &none, QY_CHECK_REPLACED)) return false;
    entries_clear(s);
    sheet_delete(s);
    return true;
}

// Of a unit that the heap has given to others since. Only a thread that has met the sheet at this moment, and is about
// to see that it must not use it, can be in the way.
static bool sheet_must_go(qy_check_sheet_t *s) {
    QY_NEEDS(&sheets.lock);
    for (unsigned i = 0; i < WAITS; i++) {
        _Atomic uint32_t never = 0;
        if (sheet_retire(s)) return true;
        qy_os_wait(&never, 0, WAIT_NS);
    }
    return false;
}

// The unit at `unit` has a sheet for blocks of this class, one of which begins at `p`. NULL: no memory.
static qy_check_sheet_t *sheet_for_class(uintptr_t unit, uintptr_t p, unsigned cls, uint32_t size) {
    QY_NEEDS(&sheets.lock);
    qy_check_entry_t *entry = entry_made(unit);
    if (!entry) return NULL;
    qy_check_sheet_t *s = atomic_load_explicit(entry, memory_order_relaxed);
    if (s && s->size && s->cls == cls) return s;
    if (s && !sheet_must_go(s)) return NULL;
    // p + k * size, the first that is in the unit.
    uintptr_t begin = p < unit ? p + (unit - p + size - 1) / size * size : p - (p - unit) / size * size;
    uint32_t count = begin < unit + QY_UNIT ? (uint32_t)((unit + QY_UNIT - 1 - begin) / size) + 1 : 0;
    if (!(s = sheet_new(count))) return NULL;
    s->begin = count ? begin : unit + QY_UNIT;
    s->size = size;
    s->reciprocal = (uint32_t)((UINT64_C(1) << 32) / size + 1);
    s->cls = cls;
    sheet_ready(s);
    atomic_store_explicit(entry, s, memory_order_release);
    return s;
}

static bool sheets_of_block(uintptr_t p, unsigned cls, uint32_t size) {
    for (uintptr_t unit = p & ~(QY_UNIT - 1); unit < p + size; unit += QY_UNIT)
        if (!sheet_for_class(unit, p, cls, size)) return false;
    return true;
}

static bool sheet_of_large(uintptr_t p, size_t extent) {
    QY_NEEDS(&sheets.lock);
    qy_check_sheet_t *s = sheet_new(1);
    if (!s) return false;
    s->begin = p;
    s->size = s->cls = 0;
    s->extent = extent;
    sheet_ready(s);
    for (uintptr_t unit = p & ~(QY_UNIT - 1); unit < p + extent; unit += QY_UNIT) {
        qy_check_entry_t *entry = entry_made(unit);
        qy_check_sheet_t *old = entry ? atomic_load_explicit(entry, memory_order_relaxed) : NULL;
        if (!entry || (old && !sheet_must_go(old))) {
            sheet_retire(s);
            return false;
        }
        atomic_store_explicit(entry, s, memory_order_release);
    }
    return true;
}

// May a block of the unit before reach into this one, which has the sheet? Then a look-up of its rest begins here.
static bool is_reached(const qy_check_sheet_t *s, uintptr_t unit) {
    return s->size && s->begin > unit && qy_check_sheet(unit - QY_UNIT);
}

// Sheets of units that the heap has given back, or has no live block in, can be had again. From the lowest on: of a
// unit that blocks reach into, the sheet goes only after the one that they begin in.
static void sheets_tidy(void) {
    QY_NEEDS(&sheets.lock);
    for (size_t i = 0; i < QY_CHECK_LEAVES; i++) {
        qy_check_entry_t *leaf = atomic_load_explicit(&qy_check_leaves[i], memory_order_relaxed);
        for (size_t u = leaf_used[i].low; leaf && u < leaf_used[i].high; u++) {
            qy_check_sheet_t *s = atomic_load_explicit(&leaf[u], memory_order_relaxed);
            uintptr_t unit = (i << QY_CHECK_LEAF_SHIFT) + (u << QY_UNIT_SHIFT);
            if (s && !is_reached(s, unit)) sheet_retire(s);
        }
    }
}

// The first block of its class in this unit, or a large object.
QY_COLD static bool sheets_make(const void *p) {
    qy_object_t o = qy_lookup(p);  // before the lock: it may take the heap's
    bool made = false;
    qy_lock_take(&sheets.lock);
    if (sheets.bytes >= qy_max(sheets.tidy_at, TIDY_LEAST)) {
        sheets_tidy();
        sheets.tidy_at = 2 * sheets.bytes;
    }
    if (o.kind == QY_OBJECT_BLOCK) made = sheets_of_block((uintptr_t)p, o.slab->cls, (uint32_t)o.usable);
    else if (o.kind == QY_OBJECT_RUN || o.kind == QY_OBJECT_HUGE) made = sheet_of_large((uintptr_t)p, o.usable);
    qy_lock_drop(&sheets.lock);
    return made;
}

// Has the unit a sheet for blocks of this class, and have the units that this block reaches into?
static bool sheet_fits(const qy_check_sheet_t *s, uintptr_t p, unsigned cls) {
    if (!s || !s->size || s->cls != cls || p < s->begin) return false;
    uint32_t size = s->size;
    for (uintptr_t unit = (p & ~(QY_UNIT - 1)) + QY_UNIT; QY_UNLIKELY(unit < p + size); unit += QY_UNIT) {
        const qy_check_sheet_t *next = qy_check_sheet(unit);
        if (!next || !next->size || next->cls != cls) return false;
    }
    return true;
}

qy_check_place_t qy_check_place_open(const void *p) {
    uintptr_t at = (uintptr_t)p;
    unsigned cls = qy_map_tag(p) & QY_TAG_CLASS;
    for (;;) {
        qy_check_sheet_t *s = qy_check_sheet(at);
        if (!sheet_fits(s, at, cls)) {
            if (!sheets_make(p)) return (qy_check_place_t){0};
            s = qy_check_sheet(at);
            if (!s) continue;
        }
        if (!qy_check_sheet_use(s, at)) continue;
        return record_place(s, s->size ? sheet_index(s, at - s->begin) : 0);
    }
}

void qy_check_place_forget(const qy_check_place_t *place) {
    qy_lock_take(&sheets.lock);
    if (!place->sheet->size && qy_check_place_is_good(place)) sheet_must_go(place->sheet);
    qy_lock_drop(&sheets.lock);
}

typedef struct counted {
    const qy_check_sheet_t *sheet;
    uint32_t used;
    const char *wrong;
} counted_t;

static bool count_used(const qy_check_place_t *place, void *arg) {
    counted_t *c = arg;
    if (c->sheet != place->sheet) {
        if (c->sheet && atomic_load(&c->sheet->used) != c->used) c->wrong = "records in use are miscounted";
        *c = (counted_t){.sheet = place->sheet, .wrong = c->wrong};
    }
    qy_check_state_t state = qy_check_state_of(qy_check_word(place->record));
    c->used += state == QY_CHECK_LIVE || state == QY_CHECK_FREED || state == QY_CHECK_BUSY;
    return true;
}

const char *qy_check_records_wrong(void) {
    counted_t c = {0};
    qy_check_each_place(count_used, &c);
    if (c.sheet && atomic_load(&c.sheet->used) != c.used) c.wrong = "records in use are miscounted";
    return c.wrong;
}
