// SPDX-License-Identifier: MIT
// fake.c: the switch behind fake.h. Empty in release builds.
#include "os/fake.h"

#if QY_CFG_FAKE
#include <stdatomic.h>

// Threads: any. Counters are exact; which thread meets the failing call is a matter of luck.
static struct {
    _Atomic uint64_t first, calls, hits;
    _Atomic uint32_t mask;
    _Atomic bool persist;
} fake;

_Atomic uint64_t qy_os_faked_page_size;
unsigned qy_os_faked_ticks_shift;

bool qy_os_fake_fails(qy_os_call_t call) {
    if (!(fake.mask >> call & 1)) return false;
    uint64_t n = ++fake.calls, first = fake.first;
    if (first == 0 || n < first || (n > first && !fake.persist)) return false;
    fake.hits++;
    return true;
}

void quarry_os_fault(uint64_t first, int persist, uint32_t mask) {
    fake.mask = 0;  // nothing counts while the rest changes
    fake.first = first;
    fake.persist = persist != 0;
    fake.calls = 0;
    fake.hits = 0;
    fake.mask = mask;
}

uint64_t quarry_os_fault_calls(void) { return fake.calls; }
uint64_t quarry_os_fault_hits(void) { return fake.hits; }
void quarry_os_fake_page_size(uint64_t bytes) { qy_os_faked_page_size = bytes; }
void quarry_os_fake_ticks_shift(unsigned more) { qy_os_faked_ticks_shift = more; }
#endif
