// SPDX-License-Identifier: MIT
// fake.c: the switches behind fake.h. Empty in release builds.
#include "os/fake.h"

#if QY_CFG_FAKE
#include <stdatomic.h>

// Threads: any. Counters are exact; which thread meets the failing call is a matter of luck.
typedef struct fake {
    _Atomic uint64_t first, calls, hits;
    _Atomic uint32_t mask;
    _Atomic bool persist;
} fake_t;
static fake_t refusal, lie;

_Atomic uint64_t qy_os_faked_page_size;
unsigned qy_os_faked_ticks_shift;

static bool is_met(fake_t *f, qy_os_call_t call) {
    if (!(f->mask >> call & 1)) return false;
    uint64_t n = ++f->calls, first = f->first;
    if (first == 0 || n < first || (n > first && !f->persist)) return false;
    f->hits++;
    return true;
}
bool qy_os_fake_fails(qy_os_call_t call) { return is_met(&refusal, call); }
bool qy_os_fake_lies(qy_os_call_t call) { return is_met(&lie, call); }

static void fake_set(fake_t *f, uint64_t first, int persist, uint32_t mask) {
    f->mask = 0;  // nothing counts while the rest changes
    f->first = first;
    f->persist = persist != 0;
    f->calls = 0;
    f->hits = 0;
    f->mask = mask;
}
void quarry_os_fault(uint64_t first, int persist, uint32_t mask) { fake_set(&refusal, first, persist, mask); }
void quarry_os_lie(uint64_t first, int persist, uint32_t mask) { fake_set(&lie, first, persist, mask); }

uint64_t quarry_os_fault_calls(void) { return refusal.calls; }
uint64_t quarry_os_fault_hits(void) { return refusal.hits; }
void quarry_os_fake_page_size(uint64_t bytes) { qy_os_faked_page_size = bytes; }
void quarry_os_fake_ticks_shift(unsigned more) { qy_os_faked_ticks_shift = more; }
#endif
