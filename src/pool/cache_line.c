// SPDX-License-Identifier: MIT
// cache_line.c: the size of a cache line, asked of the processor.
#include <quarry/pool.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

size_t quarry_cache_line(void) {
    size_t bytes = 0;
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) bytes = (b >> 8 & 0xff) * 8;  // what clflush writes back
#elif defined(__aarch64__)
    uint64_t type;
    __asm__("mrs %0, ctr_el0"
            : "=r"(type));
    bytes = (size_t)4 << (type >> 16 & 15);
#endif
    return bytes ? bytes : 64;
}
