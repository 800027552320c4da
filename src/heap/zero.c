// SPDX-License-Identifier: MIT
// zero.c: see zero.h. A bit for each address says whether it is in use. No lock: who turns a bit on has the address,
// who turns it off freed it; a fork at any moment leaves all bits as they are.
#include "heap/zero.h"

#include "os/os.h"

#define SLOTS (QY_ZERO_BYTES / QY_ALIGN_MIN)
#define WORDS (SLOTS / 64)

_Atomic(char *) qy_zero_base;
static struct {
    _Atomic uint64_t used[WORDS];
    _Atomic uint32_t count;  // bits that are on, or about to be
    _Atomic uint32_t next;   // the one to look at first: an address that was freed comes last
    _Atomic bool denied;     // there is no address space for it, and nobody asks again
} zero;

static char *reserve(void) {
    char *base = atomic_load_explicit(&qy_zero_base, memory_order_acquire);
    if (base || atomic_load_explicit(&zero.denied, memory_order_relaxed)) return base;
    char *mine = qy_os_reserve(QY_ZERO_BYTES, QY_ZERO_BYTES, NULL);
    if (!mine) {
        atomic_store_explicit(&zero.denied, true, memory_order_relaxed);
        return NULL;
    }
    qy_os_name(mine, QY_ZERO_BYTES, "quarry malloc(0)");
    if (atomic_compare_exchange_strong(&qy_zero_base, &base, mine)) return mine;
    qy_os_unmap(mine, QY_ZERO_BYTES);
    return base;
}

// Bits of a word whose addresses are multiples of `every` * 16, from word w.
static uint64_t aligned_bits(size_t w, size_t every) {
    if (every >= 64) return w * 64 % every ? 0 : 1;
    uint64_t bits = 1;
    for (size_t i = every; i < 64; i *= 2) bits |= bits << i;
    return bits;
}

// A bit that was off, on now; -1: there is none.
static int turn_on(_Atomic uint64_t *word, uint64_t among) {
    uint64_t free = ~atomic_load_explicit(word, memory_order_relaxed) & among;
    while (free) {
        uint64_t bit = free & -free;
        uint64_t before = atomic_fetch_or_explicit(word, bit, memory_order_acq_rel);
        if (!(before & bit)) return __builtin_ctzll(bit);
        free = ~before & among & ~bit;
    }
    return -1;
}

void *qy_zero_alloc(size_t align) {
    char *base = align > QY_ZERO_BYTES ? NULL : reserve();
    if (!base) return NULL;
    if (atomic_fetch_add_explicit(&zero.count, 1, memory_order_relaxed) < SLOTS) {
        size_t every = qy_max(align, QY_ALIGN_MIN) / QY_ALIGN_MIN,
               first = atomic_load_explicit(&zero.next, memory_order_relaxed) % SLOTS;
        for (size_t i = 0; i <= WORDS; i++) {  // the first word twice: from there on, and what is before
            size_t w = (first / 64 + i) % WORDS;
            int bit = turn_on(&zero.used[w], aligned_bits(w, every) & (i ? UINT64_MAX : UINT64_MAX << first % 64));
            if (bit < 0) continue;
            size_t slot = w * 64 + (size_t)bit;
            atomic_store_explicit(&zero.next, (uint32_t)slot + 1, memory_order_relaxed);
            return base + slot * QY_ALIGN_MIN;
        }
    }
    atomic_fetch_sub_explicit(&zero.count, 1, memory_order_relaxed);
    return NULL;
}

static size_t slot_of(const void *p) {
    return (size_t)((const char *)p - atomic_load_explicit(&qy_zero_base, memory_order_relaxed)) / QY_ALIGN_MIN;
}
static bool is_slot(const void *p) { return (uintptr_t)p % QY_ALIGN_MIN == 0; }

bool qy_zero_is_used(const void *p) {
    size_t i = slot_of(p);
    return is_slot(p) && (atomic_load_explicit(&zero.used[i / 64], memory_order_relaxed) >> (i % 64) & 1);
}

bool qy_zero_free(void *p) {
    size_t i = slot_of(p);
    uint64_t bit = UINT64_C(1) << (i % 64);
    if (!is_slot(p) || !(atomic_fetch_and_explicit(&zero.used[i / 64], ~bit, memory_order_acq_rel) & bit)) return false;
    atomic_fetch_sub_explicit(&zero.count, 1, memory_order_relaxed);
    return true;
}
