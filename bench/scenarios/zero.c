// SPDX-License-Identifier: MIT
// zero: memory that reads as zero: malloc and memset, or calloc; with nothing else done, with a read or a write in each
// page; and by a buffer that is reused. Which one is faster depends on who has to clear, and whether anybody comes to
// look.
#include <unistd.h>

#include "scenario.h"

enum { MALLOC_MEMSET,
    MALLOC_MEMSET_WRITE,
    CALLOC,
    CALLOC_READ,
    CALLOC_WRITE,
    REUSE_MALLOC,
    REUSE_CALLOC };
enum { BUFFERS = 100000 };

static uint64_t with, mode = CALLOC, count, size;
static const option_t options[] = {
    CHOICE("with", &with, "malloc", "the allocator"),
    CHOICE("mode", &mode, "m|M|c|C|V|reuse-m|reuse-c",
        "m: malloc and memset; M: and a write in each page; c: calloc; C: and a read in each page; V: and a write; "
        "reuse: one buffer, taken and freed again and again, by malloc and memset or by calloc"),
    NUMBER("count", &count, 0, BUFFERS, "buffers; 0: 10, with reuse 100000"),
    BYTES("size", &size, 0, (uint64_t)1 << 40, "bytes of a buffer; 0: 256M, with reuse 1M"),
    {0},
};

static char **buffers;
static size_t page;

static char *zeroed(bool by_calloc) {
    char *const p = must_have(by_calloc ? calloc(1, size) : malloc(size));
    if (!by_calloc) memset(p, 0, size);
    __asm__ volatile("" ::"r"(p)
                     : "memory");  // malloc and memset shall not become calloc
    return p;
}

static uint64_t touch(void) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        for (uint64_t k = 0; k < size; k += page) {
            if (mode == CALLOC_READ) sum += (uint64_t) * (volatile char *)(buffers[i] + k);
            else buffers[i][k] = 1;
        }
    return sum;
}

// Without touching what nobody touched: the ends of each buffer.
static void verify(uint64_t sum) {
    const bool written = mode == MALLOC_MEMSET_WRITE || mode == CALLOC_WRITE;
    for (uint64_t i = 0; i < count; i++)
        if (buffers[i][0] != written || (buffers[i][size - 1] && (size - 1) % page))
            bench_fail("a buffer holds something else");
    if (sum) bench_fail("memory of calloc was not zero");
}

static void reuse(phase_t *all) {
    uint64_t dirty = 0;
    phase_begin(all);
    for (uint64_t i = 0; i < count; i++) {
        char *const p = zeroed(mode == REUSE_CALLOC);
        // What is found there next time, if nobody clears.
        dirty |= (uint64_t)(p[0] | p[size - 1] | p[size / 2]);
        p[0] = p[size - 1] = p[size / 2] = 1;
        free(p);
    }
    phase_end(all, count);
    if (dirty) bench_fail("a buffer was not zero");
    scenario_print(all, size, count);
}

int main(int argc, char **argv) {
    phase_t alloc = {.name = "alloc"}, drop = {.name = "free"}, all = {.name = ""};
    scenario_begin(argc, argv, "zero",
        "Buffers that read as zero, in the ways of the articles. An operation is a buffer.", options);
    if (!count) count = mode >= REUSE_MALLOC ? 100000 : 10;
    if (!size) size = mode >= REUSE_MALLOC ? 1 << 20 : 256 << 20;
    page = (size_t)sysconf(_SC_PAGESIZE);
    if (mode >= REUSE_MALLOC) {
        reuse(&all);
        return scenario_end();
    }
    uint64_t sum = 0;
    buffers = scenario_memory(count * sizeof *buffers);
    const long before = scenario_rss_kib();
    phase_begin(&alloc);
    for (uint64_t i = 0; i < count; i++) buffers[i] = zeroed(mode >= CALLOC);
    if (mode != MALLOC_MEMSET && mode != CALLOC) sum = touch();
    phase_end(&alloc, count);
    scenario_value("resident_bytes", (double)(scenario_rss_kib() - before) * 1024);
    verify(sum);
    phase_begin(&drop);
    for (uint64_t i = 0; i < count; i++) free(buffers[i]);
    phase_end(&drop, count);
    scenario_print(&alloc, count * size, count);
    scenario_print(&drop, count * size, count);
    return scenario_end();
}
