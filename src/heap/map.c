// SPDX-License-Identifier: MIT
// map.c: see map.h.
#include "heap/map.h"

#include "heap/chunk.h"
#include "os/os.h"

#define TAG_BYTES_MAX ((size_t)2 << 30)  // covers 1 TiB
#define TAG_BYTES_MIN ((size_t)1 << 16)  // covers 32 MiB
#define OPEN_STEP ((size_t)1 << 23)      // tags of 4 GiB are made writable at once

static qy_tag_t zero_tag;
qy_tag_t *qy_map_tags = &zero_tag;
size_t qy_map_mask;
qy_map_t qy_map;

// One bit per step of the tag table that is writable already; a chunk is entered under the lock.
static struct {
    qy_lock_t lock;
    uint64_t open[(TAG_BYTES_MAX / OPEN_STEP) / 64];
    _Atomic size_t bytes;
} map;

bool qy_map_init(void) {
    // Under an address space limit the tables take at most 1/64 of it: they need not be large,
    // since there cannot be more heap than the limit.
    size_t bytes = TAG_BYTES_MAX, limit = qy_os_address_limit();
    while (bytes > TAG_BYTES_MIN && bytes > limit / 64) bytes >>= 1;
    for (; bytes >= TAG_BYTES_MIN; bytes >>= 1) {
        qy_tag_t *tag = qy_os_reserve_readable(bytes, qy_os_page_size());
        if (!tag) continue;
        size_t entries = bytes / sizeof *tag;
        size_t chunk_entries = entries / QY_CHUNK_TAGS;
        void *chunks = qy_os_map(qy_round_up(chunk_entries * sizeof *qy_map.chunks, qy_os_page_size()), qy_os_page_size(), NULL);
        if (!chunks) {
            qy_os_unmap(tag, bytes);
            continue;
        }
        qy_os_advise_nodump(tag, bytes);
        qy_os_name(tag, bytes, "quarry tags");
        qy_map.chunks = chunks;
        qy_map.chunk_mask = chunk_entries - 1;
        qy_map_tags = tag;
        // The mask is stored last: with the old mask every address finds entry 0, which is zero in both.
        __atomic_store_n(&qy_map_mask, entries - 1, __ATOMIC_RELEASE);
        return true;
    }
    return false;
}

static bool open_tags_locked(const char *base) {
    size_t table = (qy_map_mask + 1) * sizeof(qy_tag_t);
    size_t at = (((uintptr_t)base >> QY_TAG_SHIFT) & qy_map_mask) * sizeof(qy_tag_t);
    size_t step = at / OPEN_STEP;
    if (map.open[step / 64] >> (step % 64) & 1) return true;
    size_t begin = step * OPEN_STEP, end = qy_min(begin + OPEN_STEP, table);
    if (!qy_os_commit((char *)qy_map_tags + begin, end - begin)) return false;
    map.open[step / 64] |= UINT64_C(1) << (step % 64);
    map.bytes += end - begin;
    return true;
}

static _Atomic(qy_chunk_t *) *slot_of(const char *base) { return &qy_map.chunks[((uintptr_t)base >> QY_CHUNK_SHIFT) & qy_map.chunk_mask]; }

qy_map_answer_t qy_map_add(qy_chunk_t *chunk, bool units) {
    _Atomic(qy_chunk_t *) *slot = slot_of(chunk->base);
    qy_map_answer_t answer = QY_MAP_TAKEN;
    qy_lock_take(&map.lock);
    // Tag 0 stays empty: it is where NULL and, before start-up, every address look.
    if ((!units || slot != qy_map.chunks) && !atomic_load_explicit(slot, memory_order_relaxed)) {
        answer = QY_MAP_NO_MEMORY;
        if (!units || open_tags_locked(chunk->base)) {
            atomic_store_explicit(slot, chunk, memory_order_release);
            answer = QY_MAP_ADDED;
        }
    }
    qy_lock_drop(&map.lock);
    return answer;
}

void qy_map_remove(qy_chunk_t *chunk) { qy_map_remove_from(chunk->base, chunk); }

void qy_map_remove_from(const char *base, qy_chunk_t *chunk) {
    atomic_compare_exchange_strong_explicit(slot_of(base), &chunk, NULL, memory_order_release, memory_order_relaxed);
}

size_t qy_map_bytes(void) { return map.bytes; }
qy_lock_t *qy_map_lock(void) { return &map.lock; }
