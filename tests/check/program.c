// SPDX-License-Identifier: MIT
// program.c: errors on purpose, one function each; test_check.py runs them by name and knows what each must report.
// Sizes come from the command line, so that nothing can be keyed to them.
#include <malloc.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

// Not in every C library; under the checker they are.
__attribute__((weak)) void free_sized(void *p, size_t n);
__attribute__((weak)) void free_aligned_sized(void *p, size_t align, size_t n);

static size_t size;
static volatile char *v;  // the compiler keeps what is stored through it

__attribute__((noinline)) static void *made(size_t n) { return malloc(n); }
__attribute__((noinline)) static void freed(void *p) { free(p); }

static void clean(void) {
    for (size_t n = 0; n < 3000; n += 7) {
        char *p = made(n);
        memset(p, 1, n);
        p = realloc(p, n / 2 + 1);
        char *q = calloc(n / 8 + 1, 8), *r = memalign(64, n + 1);
        if (malloc_usable_size(p) != n / 2 + 1 || (uintptr_t)r % 64) _exit(9);
        for (size_t i = 0; i < n; i++)
            if (i < n / 2 + 1 ? p[i] != 1 : q[i] != 0) _exit(8);
        freed(p);
        freed(q);
        freed(r);
    }
    char *large = made((size_t)3 << 20);
    memset(large, 2, (size_t)3 << 20);
    freed(realloc(large, (size_t)5 << 20));
}

static void double_free(void) {
    void *p = made(size);
    freed(p);
    free(p);
}
static void double_free_by_realloc(void) {
    void *p = made(size);
    freed(p);
    if (realloc(p, 2 * size)) _exit(9);
}
static void invalid_stack(void) {
    char here[64];
    free(here + 16);
}
static void invalid_null_page(void) { free((void *)(uintptr_t)0x1230); }
static void interior(void) {
    char *p = made(size);
    free(p + size / 2);
    freed(p);
}
static void usable_freed(void) {
    void *p = made(size);
    freed(p);
    if (malloc_usable_size(p)) _exit(9);
}

static void sized_wrong(void) { free_sized(made(size), size + 1); }
static void sized_right(void) {
    free_sized(made(size), size);
    free_aligned_sized(aligned_alloc(128, size), 128, size);
}
static void aligned_wrong(void) { free_aligned_sized(aligned_alloc(128, size), 64, size); }
static void malloc_negative(void) {
    if (malloc((size_t) - (ptrdiff_t)size)) _exit(9);
}
static void malloc_most(void) {
    if (malloc(PTRDIFF_MAX)) _exit(9);
}
static void calloc_overflow(void) {
    if (calloc(SIZE_MAX / 2, size)) _exit(9);
}
static void align_odd(void) {
    volatile size_t odd = 48;  // the compiler knows better
    if (aligned_alloc(odd, size)) _exit(9);
}

static void over_by_one(void) {
    v = made(size);
    v[size] = 'x';
    freed((char *)v);
}
// Of a known function, and with a known end: its canary has nothing to add.
static void told_memset(void) {
    v = made(size);
    memset((char *)v, 'x', size + 3);
    freed((char *)v);
}
// fread says how much it has written when it has.
static void told_fread(void) {
    FILE *f = fopen("/proc/self/exe", "r");
    if (!f) _exit(9);
    v = made(size);
    if (fread((char *)v, 1, size + 24, f) != size + 24) _exit(9);
    freed((char *)v);
    fclose(f);
}
// So does fgets, which reads it from the stream's own room.
static void told_fgets(void) {
    static char line[8192];
    memset(line, 'x', size + 23);
    FILE *f = fmemopen(line, size + 23, "r");
    if (!f) _exit(9);
    v = made(size);
    if (!fgets((char *)v, (int)size + 24, f)) _exit(9);
    freed((char *)v);
    fclose(f);
}
static void told_loop(void) {
    v = made(size);
    for (size_t i = 0; i < size + 24; i++) v[i] = 'x';
    freed((char *)v);
}
// The canary has more to say than the function has.
static void told_in_part(void) {
    v = made(size);
    memset((char *)v, 'x', size + 1);
    v[size + 4] = 'x';
    freed((char *)v);
}
// Bytes within the block, which may not be written any more.
static void told_and_freed(void) {
    v = made(size);
    memset((char *)v, 'x', size + 1);
    freed((char *)v);
    v[size / 2] = 'y';
}
// Another block at the same place.
static void told_before(void) {
    v = made(size);
    memset((char *)v, 'x', size + 3);
    for (unsigned i = 0; i < 2; i++) {
        char *p = (char *)v;
        freed(p);
        v = made(size);
        v[size + 1] = 'x';
    }
    freed((char *)v);
}
static void over_by_a_zero(void) {
    v = made(size);
    v[size] = 0;
    freed((char *)v);
}
static void over_found_at_exit(void) {
    v = made(size);
    v[size + 3] = 'x';
}
static void over_found_by_realloc(void) {
    v = made(size);
    v[size] = 'x';
    freed(realloc((char *)v, size + 1));
}
static void under_by_one(void) {
    void *before[64];
    for (unsigned i = 0; i < 64; i++) before[i] = made(size);
    v = before[60];
    v[-1] = 'x';
    freed((char *)v);
}
static void write_after_free(void) {
    v = made(size);
    freed((char *)v);
    v[size / 2] = 'x';
}
// So many frees later that the block has left the quarantine of 64 KiB.
static void write_after_free_evicted(void) {
    v = made(size);
    freed((char *)v);
    v[size / 2] = 'x';
    for (unsigned i = 0; i < 3000; i++) freed(made(100));
    puts("still here");
}
// Beyond the zone, into a block that nobody has: the heap meets it.
static void over_into_free(void) {
    v = made(8);
    v[8 + 31] ^= 'A';
    for (int i = 0; i < 100; i++) made(8);
}
static void over_large(void) {
    v = made((size_t)700 << 10);
    v[(size_t)700 << 10] = 'x';
    freed((char *)v);
}

// ---- guarded blocks: the first of a site ends, and the second begins, beside a page without access -----------------

static void guard_over_read(void) {
    v = made(size);
    if (v[(size + 15) / 16 * 16] == 17) puts("17");
    freed((char *)v);
}
static void guard_over_write(void) {
    v = made(size);
    v[(size + 15) / 16 * 16] = 'x';
    freed((char *)v);
}
static void guard_over_exact(void) {
    v = made(size);
    if (v[size] == 17) puts("17");
}
static volatile int twice = 2;  // one call site: the compiler does not write it twice
static void guard_under_read(void) {
    for (int i = 0; i < twice; i++) v = made(size);
    if (v[-1] == 17) puts("17");
}
static void guard_under_first(void) {
    v = made(size);
    if (v[-1] == 17) puts("17");
}
static void guard_after_read(void) {
    v = made(size);
    freed((char *)v);
    if (v[size / 2] == 17) puts("17");
}
static void guard_after_write(void) {
    v = made(size);
    freed((char *)v);
    v[size / 2] = 'x';
}
static void guard_large_late(void) {
    for (int i = 0; i < 101; i++) v = made(size);
    if (v[size] == 17) puts("17");
}
// 32,768 stacks of few call sites, and then a place that is new.
static volatile int returned;
__attribute__((noinline)) static void branch(int levels) {
    if (!levels) {
        freed(made(size));
        return;
    }
    branch(levels - 1);
    returned++;
    branch(levels - 1);
    returned++;
}
static void guard_many_stacks(void) {
    branch(15);
    guard_over_read();
    returned++;
}
static void guard_late(void) {
    for (int i = 0; i < 1001; i++) v = made(size);
    if (v[size] == 17) puts("17");
}

// ---- of a call site that was right 500 times -----------------------------------------------------------------------

static volatile int late = 501;
static void late_over(void) {
    for (int i = 0; i < late; i++) v = made(size);
    v[size] = 'x';
    freed((char *)v);
}
// Later than there is memory for guarded blocks.
__attribute__((noinline)) static void latest_over(void) {
    late = 60001;
    late_over();
    returned++;
}
static void late_under(void) {
    for (int i = 0; i < late; i++) v = made(size);
    v[-1] = 'x';
    freed((char *)v);
}
// No fault: ends by 8 if no block of this site lies right before the one that late_under takes.
static void late_alone(void) {
    uintptr_t all[501], last = 0, gap = UINTPTR_MAX, least = UINTPTR_MAX;
    for (int i = 0; i < late; i++) last = all[i] = (uintptr_t)made(size);
    for (int i = 0; i + 1 < late; i++) {
        gap = last > all[i] && last - all[i] < gap ? last - all[i] : gap;
        if (i && all[i] > all[i - 1] && all[i] - all[i - 1] < least) least = all[i] - all[i - 1];
    }
    if (gap != least) _exit(8);
}
static void late_after(void) {
    for (int i = 0; i < late; i++) v = made(size);
    freed((char *)v);
    v[size / 2] = 'x';
}

// ---- a handler of the program's own --------------------------------------------------------------------------------

static volatile char *page;
static volatile int faulted;
static void on_fault(int number, siginfo_t *info, void *context) {
    (void)context;
    if (number != SIGSEGV || info->si_addr != (void *)page) _exit(9);
    faulted++;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}
static void on_plain_fault(int number) {
    if (number != SIGSEGV) _exit(9);
    faulted++;
    mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}
static void fault_of_its_own(void) {
    page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *page = 1;
    if (faulted != 1) _exit(8);
}
static void handle(void) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}, before;
    if (sigaction(SIGSEGV, &action, &before) || before.sa_handler != SIG_DFL) _exit(8);
    if (sigaction(SIGSEGV, NULL, &before) || before.sa_sigaction != on_fault) _exit(8);
}
static void over_read(void) {
    v = made(size);
    if (v[size] == 17) puts("17");
}
static void handler_first(void) {
    handle();
    fault_of_its_own();
    over_read();
}
static void handler_late(void) {
    over_read();
    handle();
    fault_of_its_own();
}
static void handler_signal(void) {
    if (signal(SIGSEGV, on_plain_fault) != SIG_DFL) _exit(8);
    fault_of_its_own();
    over_read();
    if (signal(SIGSEGV, SIG_DFL) != on_plain_fault) _exit(8);
}

static const struct {
    const char *name;
    void (*run)(void);
} faults[] = {{"clean", clean}, {"double-free", double_free}, {"double-free-realloc", double_free_by_realloc},
    {"invalid-stack", invalid_stack}, {"invalid-null-page", invalid_null_page}, {"interior", interior},
    {"usable-freed", usable_freed}, {"sized-wrong", sized_wrong}, {"sized-right", sized_right},
    {"aligned-wrong", aligned_wrong}, {"malloc-negative", malloc_negative}, {"malloc-most", malloc_most},
    {"calloc-overflow", calloc_overflow},
    {"align-odd", align_odd}, {"over-by-one", over_by_one}, {"over-by-a-zero", over_by_a_zero},
    {"told-memset", told_memset}, {"told-fread", told_fread}, {"told-fgets", told_fgets},
    {"told-loop", told_loop},
    {"told-in-part", told_in_part}, {"told-before", told_before},
    {"told-and-freed", told_and_freed},
    {"over-found-at-exit", over_found_at_exit}, {"over-found-by-realloc", over_found_by_realloc},
    {"under-by-one", under_by_one}, {"write-after-free", write_after_free},
    {"write-after-free-evicted", write_after_free_evicted}, {"over-large", over_large},
    {"over-into-free", over_into_free},
    {"guard-over-read", guard_over_read}, {"guard-over-write", guard_over_write},
    {"guard-over-exact", guard_over_exact}, {"guard-under-read", guard_under_read},
    {"guard-under-first", guard_under_first},
    {"guard-after-read", guard_after_read}, {"guard-after-write", guard_after_write},
    {"guard-large-late", guard_large_late}, {"guard-late", guard_late}, {"guard-many-stacks", guard_many_stacks},
    {"late-over", late_over}, {"latest-over", latest_over},
    {"late-under", late_under}, {"late-alone", late_alone}, {"late-after", late_after},
    {"handler-first", handler_first},
    {"handler-late", handler_late}, {"handler-signal", handler_signal}};

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size = strtoul(argv[2], NULL, 10);
    for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (strcmp(faults[i].name, argv[1]) != 0) continue;
        faults[i].run();
        return 7;
    }
    return 2;
}
