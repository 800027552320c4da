// SPDX-License-Identifier: MIT
// ticks.c: which clock, and how fast it is.
#include "os/ticks.h"

#include <string.h>

#include "base/num.h"
#include "os/file.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

qy_ticks_t qy_ticks = {QY_TICKS_MONOTONIC, 0, 1000000000u >> QY_TICKS_NS_SHIFT};

#define MEASURE_NS 50000
#define TICK_PS 4000  // wished for

// A counter may be used if it runs at one speed, and if the kernel (which compares those of all processors with each
// other) uses it, too. It stops using one that it found to be wrong.
#if defined(__x86_64__)
static bool counter_is_good(void) {
    static const char *const trusted[] = {"tsc\n", "kvm-clock\n", "hyperv_clocksource_tsc_page\n"};
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || !(d >> 8 & 1)) return false;   // invariant
    if (!__get_cpuid(0x80000001u, &a, &b, &c, &d) || !(d >> 27 & 1)) return false;  // has rdtscp
    char name[64];
    qy_os_read_small("/sys/devices/system/clocksource/clocksource0/current_clocksource", name, sizeof name);
    for (unsigned i = 0; i < sizeof trusted / sizeof trusted[0]; i++)
        if (strcmp(name, trusted[i]) == 0) return true;
    return false;
}
#define COUNTER QY_TICKS_TSC
#elif defined(__aarch64__)
static bool counter_is_good(void) { return true; }  // the architecture promises one counter for all processors
#define COUNTER QY_TICKS_COUNTER
#else
static bool counter_is_good(void) { return false; }
#define COUNTER QY_TICKS_MONOTONIC
#endif

const char *qy_os_ticks_name(void) {
    return qy_ticks.source == QY_TICKS_TSC ? "tsc" : qy_ticks.source == QY_TICKS_COUNTER ? "counter"
                                                                                         : "monotonic";
}

// The clock lies between two readings of the counter; of a few tries the one with the nearest readings.
void qy_os_ticks_pair(uint64_t *ret_ticks, uint64_t *ret_ns) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t from = qy_os_ticks(), ns = qy_os_now_ns(), to = qy_os_ticks();
        if (to - from >= best) continue;
        best = to - from;
        *ret_ticks = from + best / 2;
        *ret_ns = ns;
    }
}

#if defined(QY_CFG_FAKE) && QY_CFG_FAKE
static unsigned faked_shift(void) { return qy_os_faked_ticks_shift; }
#else
static unsigned faked_shift(void) { return 0; }
#endif

void qy_os_ticks_init(void) {
    qy_ticks = (qy_ticks_t){QY_TICKS_MONOTONIC, 0, 1000000000u >> QY_TICKS_NS_SHIFT};
    if (!counter_is_good()) return;
    uint64_t ticks[2], ns[2];
    qy_ticks.source = COUNTER;
    qy_os_ticks_pair(&ticks[0], &ns[0]);
    do qy_os_ticks_pair(&ticks[1], &ns[1]);
    while (ns[1] - ns[0] < MEASURE_NS);
    if (ticks[1] <= ticks[0]) {  // it stands still: an emulator
        qy_ticks.source = QY_TICKS_MONOTONIC;
        return;
    }
    uint64_t rate = (uint64_t)((double)(ticks[1] - ticks[0]) * 1e9 / (double)(ns[1] - ns[0]));
    // The power of two nearest to the wish: within a factor of the square root of two.
    uint64_t counts = rate * (TICK_PS * 1414ull / 1000) / 1000000000000ull;
    qy_ticks.shift = (counts ? qy_log2_floor(counts) : 0) + faked_shift();
    qy_ticks.per_second = rate >> qy_ticks.shift;
}
