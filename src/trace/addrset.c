// SPDX-License-Identifier: MIT
// addrset.c: see addrset.h.
#include "trace/addrset.h"

#include <string.h>

#include "base/num.h"
#include "os/os.h"
#include "stacks/own.h"

#define FILLING ((uintptr_t)1)
#define COUNT_MOST 250

static size_t counts_bytes(unsigned bits) { return qy_round_up((size_t)1 << bits, QY_CACHE_LINE); }

bool qy_addrset_make(qy_addrset_t *set, unsigned bits) {
    size_t bytes = qy_round_up(counts_bytes(bits) + (sizeof(qy_addrset_bucket_t) << bits), qy_os_page_size());
    char *memory = qy_os_map(bytes, qy_os_page_size(), NULL);
    if (!memory) return false;
    set->counts = (_Atomic uint8_t *)memory;
    set->buckets = (qy_addrset_bucket_t *)(void *)(memory + counts_bytes(bits));
    set->bytes = bytes;
    set->bits = bits;
    qy_own_add(memory, bytes);
    return true;
}

void qy_addrset_clear(qy_addrset_t *set) {
    if (!set->bits) return;
    if (!qy_os_purge((void *)(uintptr_t)set->counts, set->bytes)) memset((void *)(uintptr_t)set->counts, 0, set->bytes);
}

static qy_addrset_bucket_t *addrset_bucket(const qy_addrset_t *set, uintptr_t addr, size_t further) {
    return &set->buckets[(qy_addrset_home(set, addr) + further) & (((size_t)1 << set->bits) - 1)];
}

bool qy_addrset_add(qy_addrset_t *set, uintptr_t addr, uint64_t value) {
    if (!set->bits) return false;
    _Atomic uint8_t *count = &set->counts[qy_addrset_home(set, addr)];
    if (atomic_fetch_add_explicit(count, 1, memory_order_relaxed) < COUNT_MOST) {
        for (size_t i = 0; i < 2 * QY_ADDRSET_WAYS; i++) {
            qy_addrset_bucket_t *b = addrset_bucket(set, addr, i / QY_ADDRSET_WAYS);
            uintptr_t empty = 0;
            if (!atomic_compare_exchange_strong(&b->slot[i % QY_ADDRSET_WAYS].addr, &empty, FILLING)) continue;
            atomic_store_explicit(&b->slot[i % QY_ADDRSET_WAYS].value, value, memory_order_relaxed);
            atomic_store_explicit(&b->slot[i % QY_ADDRSET_WAYS].addr, addr, memory_order_release);
            return true;
        }
    }
    atomic_fetch_sub_explicit(count, 1, memory_order_relaxed);
    return false;
}

bool qy_addrset_take(qy_addrset_t *set, uintptr_t addr, uint64_t *ret_value) {
    if (!set->bits) return false;
    for (size_t i = 0; i < 2 * QY_ADDRSET_WAYS; i++) {
        qy_addrset_bucket_t *b = addrset_bucket(set, addr, i / QY_ADDRSET_WAYS);
        if (atomic_load_explicit(&b->slot[i % QY_ADDRSET_WAYS].addr, memory_order_acquire) != addr) continue;
        *ret_value = atomic_load_explicit(&b->slot[i % QY_ADDRSET_WAYS].value, memory_order_relaxed);
        atomic_store_explicit(&b->slot[i % QY_ADDRSET_WAYS].addr, 0, memory_order_release);
        atomic_fetch_sub_explicit(&set->counts[qy_addrset_home(set, addr)], 1, memory_order_relaxed);
        return true;
    }
    return false;
}
