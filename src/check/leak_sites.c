// SPDX-License-Identifier: MIT
// leak_sites.c: see leak_sites.h.
#include "check/leak_sites.h"

#include <stdatomic.h>

#include "base/num.h"
#include "check/leak_memory.h"
#include "check/leak_sort.h"
#include "os/mapfile.h"
#include "os/os.h"

#define FIRST_ENTRIES ((size_t)1024)

static size_t sites_bytes(size_t entries) { return entries * sizeof(qy_leak_site_t); }

static qy_leak_site_t *site_at(qy_leak_site_t *table, size_t entries, uint32_t stack, uint8_t kind) {
    size_t i = (stack * (size_t)0x9e3779b1u + kind) & (entries - 1);
    while (table[i].used && (table[i].stack != stack || table[i].kind != kind)) i = (i + 1) & (entries - 1);
    return &table[i];
}

static bool sites_grow(qy_leak_sites_t *s) {
    size_t entries = s->entries ? 2 * s->entries : FIRST_ENTRIES;
    qy_leak_site_t *table = qy_leak_memory(sites_bytes(entries));
    if (!table) return false;
    for (size_t i = 0; i < s->entries; i++)
        if (s->table[i].used) *site_at(table, entries, s->table[i].stack, s->table[i].kind) = s->table[i];
    qy_leak_memory_end(s->table, sites_bytes(s->entries));
    s->table = table;
    s->entries = entries;
    return true;
}

void qy_leak_sites_add(
    qy_leak_sites_t *s, const qy_leak_block_t *block, qy_leak_kind_t kind, uint64_t held_bytes, uint64_t held_blocks) {
    if (2 * s->used >= s->entries && !sites_grow(s) && s->used + 1 >= s->entries) {
        s->full = true;
        return;
    }
    qy_leak_site_t *site = site_at(s->table, s->entries, block->stack, kind);
    s->used += !site->used;
    if (!site->used || block->ordinal < site->ordinal) {
        site->example = block->address;
        site->ordinal = block->ordinal;
        site->family = block->family;
        site->pool = block->pool;
    }
    site->used = true;
    site->stack = block->stack;
    site->kind = (uint8_t)kind;
    site->bytes += block->size;
    site->blocks++;
    site->held_bytes += held_bytes;
    site->held_blocks += held_blocks;
}

static bool site_before(size_t a, size_t b, void *arg) {
    const qy_leak_site_t *x = (const qy_leak_site_t *)arg + a, *y = (const qy_leak_site_t *)arg + b;
    if (x->kind != y->kind) return x->kind < y->kind;
    uint64_t of_x = x->bytes + x->held_bytes, of_y = y->bytes + y->held_bytes;
    return of_x != of_y ? of_x > of_y : x->stack < y->stack;
}
static void site_swap(size_t a, size_t b, void *arg) {
    qy_leak_site_t *table = arg, kept = table[a];
    table[a] = table[b];
    table[b] = kept;
}

void qy_leak_sites_sort(qy_leak_sites_t *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->entries; i++)
        if (s->table[i].used) s->table[n++] = s->table[i];
    for (size_t i = n; i < s->entries; i++) s->table[i].used = false;
    qy_leak_sort(n, &(qy_leak_sort_t){site_before, site_swap, s->table});
}

void qy_leak_sites_end(qy_leak_sites_t *s) {
    qy_leak_memory_end(s->table, sites_bytes(s->entries));
    *s = (qy_leak_sites_t){0};
}

// ---- growth ---------------------------------------------------------------------------------------

#define HISTORY_ENTRIES ((size_t)1 << 16)
#define HISTORY_PROBES 64u  // more sites than it has room for: the last ones are not followed

typedef struct past {
    uint32_t stack;
    uint32_t scans;                           // up to the last one, in a row, that found more than all before
    uint64_t bytes[QY_LEAK_GROWN_SCANS - 1];  // the last one first
    uint64_t scan;                            // the number of the last one
    uint64_t most;                            // bytes in any scan so far
} past_t;

struct qy_leak_history {
    uint64_t scan;
    _Atomic uint64_t ready;
    past_t past[HISTORY_ENTRIES];
};

qy_leak_history_t *qy_leak_history_new(void) {
    size_t bytes = qy_round_up(sizeof(qy_leak_history_t), qy_os_page_size());
    void *memory = qy_os_reserve(bytes, qy_os_page_size(), NULL);
    if (!memory || qy_os_map_at(memory, bytes, -1, 0, QY_MAP_SHARED | QY_MAP_WRITE)) return memory;
    qy_os_unmap(memory, bytes);
    return NULL;
}

void qy_leak_history_ready(qy_leak_history_t *h, uint64_t number) { atomic_store(&h->ready, number); }
bool qy_leak_history_is_ready(const qy_leak_history_t *h, uint64_t number) { return atomic_load(&h->ready) == number; }

// Stack 0 is that of blocks without one, which are of many sites.
static past_t *past_of(qy_leak_history_t *h, uint32_t stack) {
    for (size_t i = stack * (size_t)0x9e3779b1u, n = 0; n < HISTORY_PROBES; i++, n++) {
        past_t *p = &h->past[i & (HISTORY_ENTRIES - 1)];
        if (p->stack == stack || !p->stack) return p;
    }
    return NULL;
}

static bool past_next(past_t *p, uint64_t scan, const qy_leak_site_t *site, uint64_t *ret_before) {
    if (site->bytes <= p->most) p->scans = 0;
    else p->scans = p->scan + 1 == scan ? p->scans + 1 : 1;
    *ret_before = p->bytes[QY_LEAK_GROWN_SCANS - 2];
    for (unsigned i = QY_LEAK_GROWN_SCANS - 2; i; i--) p->bytes[i] = p->bytes[i - 1];
    p->bytes[0] = site->bytes;
    p->stack = site->stack;
    p->scan = scan;
    if (site->bytes > p->most) p->most = site->bytes;
    return p->scans >= QY_LEAK_GROWN_SCANS;
}

void qy_leak_history_scan(qy_leak_history_t *h, const qy_leak_sites_t *s,
    void (*grows)(const qy_leak_site_t *site, uint64_t before, void *arg), void *arg) {
    h->scan++;
    for (size_t i = 0; i < s->entries; i++) {
        const qy_leak_site_t *site = &s->table[i];
        past_t *p = site->used && site->kind == QY_LEAK_REACHABLE && site->stack ? past_of(h, site->stack) : NULL;
        uint64_t before;
        if (p && past_next(p, h->scan, site, &before)) grows(site, before, arg);
    }
}
