// SPDX-License-Identifier: MIT
// misuse.c: every way to misuse the heap that it promises to find. Without arguments the program is
// the runner: it starts itself once for each case and expects that run to die by SIGABRT, with one
// line on stderr, that names the right fault and the right address.
#include <fcntl.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <sys/mman.h>

#include "api/family.h"
#include "threads/rerun.h"
#if FAMILY_QUARRY
#include <quarry/heap.h>
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

// The faults, as in src/rt/diag.h.
#define DOUBLE "double free"
#define INVALID "invalid free"
#define INTERIOR "free of an interior pointer"
#define LINK "corrupted free block"
#define WRONG_HEAP "block of another heap"
#define LIBC_S "looks like a block of the C library's own malloc"

// Where the fault is expected is said on stdout just before it happens: fault and address.
static void *expect(const char *fault, void *p) {
    char line[100];
    int n = snprintf(line, sizeof line, "%s: 0x%lx\n", fault, (unsigned long)(uintptr_t)p);
    if (write(3, line, (size_t)n) < 0) {}
    return opaque(p);
}
// And what the line says besides.
static void *expect_detail(const char *fault, void *p, const char *detail) {
    char line[200];
    int n = snprintf(line, sizeof line, "%s: 0x%lx, %s\n", fault, (unsigned long)(uintptr_t)p, detail);
    if (write(3, line, (size_t)n) < 0) {}
    return opaque(p);
}
static void *some(size_t n) {
    void *p = m.malloc(n);
    if (!p) _exit(50);
    memset(p, 0x5A, n);
    return p;
}

// ---- double free ------------------------------------------------------------------------------------

static void twice(size_t n) {
    void *p = some(n);
    m.free(p);
    m.free(expect(DOUBLE, p));
}
static void double_8(void) { twice(8); }
static void double_16(void) { twice(16); }
static void double_100(void) { twice(100); }
static void double_1024(void) { twice(1024); }
static void double_5000(void) { twice(5000); }
static void double_65536(void) { twice(65536); }
static void interleaved(size_t n) {
    void *p = some(n), *q = some(n);
    m.free(p);
    m.free(q);
    m.free(expect(DOUBLE, p));
}
static void double_interleaved_8(void) { interleaved(8); }
static void double_interleaved(void) { interleaved(48); }
static void double_interleaved_medium(void) { interleaved(9000); }
static void after_others(size_t n) {
    static void *p[1025];
    p[0] = some(n);
    void *live = some(n);  // beside it: what held only free blocks may be nobody's memory by then
    for (int i = 1; i < 1025; i++) p[i] = some(n);
    for (int i = 0; i < 1025; i++) m.free(p[i]);
    m.free(expect(DOUBLE, p[0]));
    m.free(live);
}
static void double_after_1024_of_8(void) { after_others(8); }
static void double_after_1024(void) { after_others(64); }
static void double_after_1024_medium(void) { after_others(2000); }
static void *free_there(void *p) {
    m.free(p);
    return NULL;
}
static void elsewhere(void *p) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_there, p)) _exit(51);
    pthread_join(thread, NULL);
}
static void by_other_of(size_t n) {
    void *p = some(n);
    m.free(p);
    expect(DOUBLE, p);
    elsewhere(p);
}
static void double_by_other(void) { by_other_of(100); }
static void double_by_other_8(void) { by_other_of(8); }
static void after_other_of(size_t n) {
    void *p = some(n);
    elsewhere(p);
    m.free(expect(DOUBLE, p));
}
static void double_after_other(void) { after_other_of(100); }
static void double_after_other_8(void) { after_other_of(8); }
static void others_both_of(size_t n) {
    void *p = some(n);
    elsewhere(p);
    expect(DOUBLE, p);
    elsewhere(p);
}
static void double_others_both(void) { others_both_of(100); }
static void double_others_both_8(void) { others_both_of(8); }
static void *free_twice_there(void *p) {
    m.free(p);
    m.free(expect(DOUBLE, p));
    return NULL;
}
static void within_other_of(size_t n) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_twice_there, some(n))) _exit(51);
    pthread_join(thread, NULL);
}
static void double_within_other(void) { within_other_of(100); }
static void double_within_other_8(void) { within_other_of(8); }
static void double_large(void) { twice(100 * KIB); }
static void double_large_by_other(void) {
    void *p = some(100 * KIB);
    elsewhere(p);
    m.free(expect(DOUBLE, p));
}
static void double_huge(void) { twice(8 * MIB); }
static void double_aligned(void) {
    void *p = m.aligned_alloc(4096, 100);
    m.free(p);
    m.free(expect(DOUBLE, p));
}
static void double_after_realloc(void) {
    void *p = some(100), *wall = some(100);
    void *q = m.realloc(p, 5000);
    if (q == p) _exit(52);
    m.free(expect(DOUBLE, p));
    m.free(wall);
}
static void double_after_realloc_zero(void) {
    void *p = some(100);
    if (m.realloc(p, 0)) _exit(52);
    m.free(expect(DOUBLE, p));
}
static void double_sized(void) {
    void *p = some(100);
    m.free_sized(p, 100);
    m.free_sized(expect(DOUBLE, p), 100);
}
static void realloc_freed(void) {
    void *p = some(100);
    m.free(p);
    if (m.realloc(expect(DOUBLE, p), 200)) _exit(53);
}
static void realloc_freed_medium(void) {
    void *p = some(9000);
    m.free(p);
    if (m.realloc(expect(DOUBLE, p), 20000)) _exit(53);
}
static void usable_size_of_freed(size_t n) {
    void *p = some(n);
    m.free(p);
    if (m.usable_size(expect(DOUBLE, p))) _exit(53);
}
static void usable_size_freed(void) { usable_size_of_freed(100); }
static void usable_size_freed_medium(void) { usable_size_of_freed(20000); }
static void usable_size_freed_large(void) { usable_size_of_freed(200 * KIB); }
static void usable_size_freed_by_other(void) {
    void *p = some(100);
    elsewhere(p);
    if (m.usable_size(expect(DOUBLE, p))) _exit(53);
}

// ---- freed as what it is not --------------------------------------------------------------------------

static void freed_as(size_t had, size_t said) {
    void *p = some(had), *other = some(had);
    m.free_sized(other, had);
    m.free_sized(expect("wrong size", p), said);
}
static void size_of_none(void) { freed_as(0, 1); }
static void size_of_small(void) { freed_as(40, 56); }
static void size_of_medium(void) { freed_as(2000, 5000); }
static void size_of_larger(void) { freed_as(20000, 50000); }
static void size_of_run(void) { freed_as(100 * KIB, 400 * KIB); }
static void size_of_huge(void) { freed_as(50 * MIB, 60 * MIB); }
static void size_beyond_all(void) { freed_as(40, SIZE_MAX); }
static void *free_as_larger_there(void *p) {
    m.free_sized(p, 100);
    return NULL;
}
static void size_by_other(void) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_as_larger_there, expect("wrong size", some(40)))) _exit(51);
    pthread_join(thread, NULL);
}
static void aligned_as(size_t had, size_t size, size_t said) {
    char *p = m.aligned_alloc(had, size);
    while (!((uintptr_t)p & (said - 1))) p = m.aligned_alloc(had, size);
    m.free_aligned_sized(expect("wrong alignment", p), said, size);
}
static void align_of_small(void) { aligned_as(16, 40, 64); }
static void align_of_medium(void) { aligned_as(64, 4096, 8192); }
static void align_of_run(void) { aligned_as(4096, 100 * KIB, MIB); }
static void size_of_aligned(void) {
    void *p = m.aligned_alloc(64, 128);
    m.free_aligned_sized(expect("wrong size", p), 64, 1000);
}

// ---- what was never given out -----------------------------------------------------------------------

static void wild(uintptr_t address) { m.free(expect_detail(INVALID, (void *)address, "not memory of this heap")); }
static void invalid_one(void) { wild(1); }
static void invalid_sixteen(void) { wild(16); }
static void invalid_max(void) { wild(UINTPTR_MAX); }
static void invalid_max_16(void) { wild(UINTPTR_MAX - 15); }
static void invalid_kernel(void) { wild((uintptr_t)0xffff800000000010u); }
static void invalid_noncanonical(void) { wild((uintptr_t)0x4141414141414140u); }
static void invalid_noncanonical_high(void) { wild((uintptr_t)1 << 56 | 0x10000); }
static void invalid_noncanonical_48(void) { wild((uintptr_t)1 << 48); }
static void invalid_unmapped(void) { wild((uintptr_t)0x123456780000u); }
static void invalid_top_of_user(void) { wild((uintptr_t)0x7ffffffff000u); }
static void invalid_stack(void) {
    char on_stack[64] __attribute__((aligned(16)));
    m.free(expect(INVALID, on_stack));
}
static void invalid_static(void) {
    static char in_data[64] __attribute__((aligned(16))) = "x";
    m.free(expect(INVALID, in_data));
}
static void invalid_code(void) { m.free(expect(INVALID, (void *)((uintptr_t)invalid_code & ~(uintptr_t)15))); }
static void invalid_mapping(void) {
    void *p = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m.free(expect(INVALID, p));
}
static void invalid_mapping_aligned(void) {  // where one of ours could begin
    char *p = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m.free(expect(INVALID, p + (-(uintptr_t)p & (2 * MIB - 1))));
}
#if defined(__GLIBC__) && !FAMILY_SANITIZED
// Of the C library in a namespace of its own; where Quarry has other names, of the program's.
static void *of_libc(size_t n) {
    void *libc = FAMILY_QUARRY ? dlopen("libc.so.6", RTLD_LAZY) : dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_LAZY);
    void *(*libc_malloc)(size_t) = libc ? (void *(*)(size_t))(uintptr_t)dlsym(libc, "malloc") : NULL;
    if (!libc_malloc) _exit(54);
    void *p = libc_malloc(n);
    if (!p || !libc_malloc(n)) _exit(50);
    return p;
}
static void invalid_libc_s(void) { m.free(expect_detail(INVALID, of_libc(100), LIBC_S)); }
static void invalid_libc_s_mapping(void) { m.free(expect_detail(INVALID, of_libc(MIB), LIBC_S)); }
#endif
static void invalid_realloc(void) {
    char on_stack[64] __attribute__((aligned(16)));
    if (m.realloc(expect(INVALID, on_stack), 100)) _exit(53);
}
static void invalid_usable_size(void) {
    char on_stack[64] __attribute__((aligned(16)));
    if (m.usable_size(expect(INVALID, on_stack))) _exit(53);
}
static void invalid_by_other(void) {
    static char in_data[64] __attribute__((aligned(16))) = "x";
    expect(INVALID, in_data);
    elsewhere(in_data);
}

// Where a block could be, but none was cut yet.
static void invalid_never_allocated(void) {
    enum { SIZE = 192 };
    char *p = some(SIZE);
    m.free(expect(INVALID, p + SIZE * 40));
}
static void invalid_never_allocated_by_other(void) {
    enum { SIZE = 192 };
    char *p = some(SIZE);
    expect(INVALID, p + SIZE * 40);
    elsewhere(p + SIZE * 40);
}
// Where the next block would be if the slab went on: 340 of 192 bytes fill one of 64 KiB but for 256.
static void invalid_end_of_slab(void) {
    enum { SIZE = 192 };
    char *p = some(SIZE);
    for (;;) {
        char *q = some(SIZE);
        if (q != p + SIZE && (uintptr_t)p % 65536 > 65536 - 2 * SIZE - 64) break;
        p = q;
    }
    m.free(expect(INVALID, p + SIZE));
}
static void invalid_other_high_bits(void) {
    char *p = some(192);
    m.free(expect(INVALID, (char *)((uintptr_t)p ^ (uintptr_t)5 << 40)));
}
static void invalid_tagged(void) {
    char *p = some(192);
    m.free(expect(INVALID, (char *)((uintptr_t)p ^ (uintptr_t)0x5A << 56)));
}
static void invalid_tagged_realloc(void) {
    char *p = some(192);
    (void)!m.realloc(expect(INVALID, (char *)((uintptr_t)p ^ (uintptr_t)0x5A << 56)), 10);
}
static void invalid_tagged_usable_size(void) {
    char *p = some(192);
    (void)!m.usable_size(expect(INVALID, (char *)((uintptr_t)p ^ (uintptr_t)3 << 48)));
}
static void overflow_into_new(void) {
    enum { SIZE = 192 };
    char *p = some(SIZE);
    // the next one begins on a page that nothing was cut from
    while ((uintptr_t)(p + SIZE) % 4096 > SIZE) p = some(SIZE);
    memset(expect(LINK, p + SIZE), 0x5A, 8);
    for (int i = 0; i < 200; i++) some(SIZE);
}

// ---- not the start of a block -----------------------------------------------------------------------

static void interior(size_t n, size_t offset) {
    char *p = some(n);
    m.free(expect(INTERIOR, p + offset));
}
static void interior_least_1(void) { interior(8, 1); }
static void interior_least_4(void) { interior(8, 4); }
static void interior_small_8(void) { interior(64, 8); }
static void interior_small_16(void) { interior(64, 16); }
static void interior_small_middle(void) { interior(1000, 496); }
static void interior_small_1(void) { interior(64, 1); }
static void interior_medium_8(void) { interior(9000, 8); }
static void interior_medium_16(void) { interior(9000, 16); }
static void interior_medium_middle(void) { interior(40000, 20000); }
static void interior_large_8(void) { interior(100 * KIB, 8); }
static void interior_large_16(void) { interior(100 * KIB, 16); }
static void interior_large_page(void) { interior(100 * KIB, 16 * KIB); }
static void interior_large_middle(void) { interior(500 * KIB, 250 * KIB); }
static void interior_huge_8(void) { interior(8 * MIB, 8); }
static void interior_huge_16(void) { interior(8 * MIB, 16); }
static void interior_huge_middle(void) { interior(8 * MIB, 4 * MIB); }
static void interior_huge_later(void) { interior(8 * MIB, 5 * MIB + 4096); }
static void interior_by_other(void) {
    char *p = some(200);
    expect(INTERIOR, p + 16);
    elsewhere(p + 16);
}
static void interior_realloc(void) {
    char *p = some(100);
    if (m.realloc(expect(INTERIOR, p + 16), 1000)) _exit(53);
}
static void interior_realloc_large(void) {
    char *p = some(100 * KIB);
    if (m.realloc(expect(INTERIOR, p + 4096), 1000)) _exit(53);
}
static void interior_realloc_huge(void) {
    char *p = some(8 * MIB);
    if (m.realloc(expect(INTERIOR, p + 2 * MIB), 1000)) _exit(53);
}
static void interior_usable_size(void) {
    char *p = some(100);
    if (m.usable_size(expect(INTERIOR, p + 16))) _exit(53);
}

// ---- written to after it was freed --------------------------------------------------------------------

// One of several free blocks is overwritten; it is found when the heap meets it again.
static void overwrite(size_t n, size_t from, size_t to, uintptr_t value) {
    enum { COUNT = 64 };
    static char *p[COUNT];
    for (int i = 0; i < COUNT; i++) {
        p[i] = some(n);
        some(n);  // stays: memory of which all is free goes back whole, and has no link
    }
    for (int i = 0; i < COUNT; i++) m.free(p[i]);
    for (size_t i = from; i < to; i += sizeof value) memcpy(p[COUNT / 2] + i, &value, sizeof value);
    expect(LINK, p[COUNT / 2]);
    for (int i = 0; i < 100000 / (int)(n / 16); i++) some(n);
}
static void link_first_8(void) { overwrite(64, 0, 8, 0x4141414141414141u); }
static void link_second_8(void) { overwrite(64, 8, 16, 0x4141414141414141u); }
static void link_both(void) { overwrite(64, 0, 16, 0x4141414141414141u); }
static void link_all(void) { overwrite(256, 0, 256, 0x4242424242424242u); }
static void link_zero(void) { overwrite(64, 0, 16, 0); }
static void link_zero_first(void) { overwrite(64, 0, 8, 0); }
static void link_zero_second(void) { overwrite(64, 8, 16, 0); }
static void link_16(void) { overwrite(16, 0, 8, 0x4141414141414141u); }
static void link_1024(void) { overwrite(1024, 0, 8, 0x4141414141414141u); }
static void link_medium(void) { overwrite(5000, 0, 8, 0x4141414141414141u); }
static void link_to_stack(void) {
    char on_stack[64] __attribute__((aligned(16))) = {0};
    overwrite(64, 0, 8, (uintptr_t)on_stack);
}
static void link_to_live(void) { overwrite(64, 0, 8, (uintptr_t)some(64)); }
static void link_to_itself(void) {
    char *p = some(64);
    m.free(p);
    overwrite(64, 0, 8, (uintptr_t)p);
}

// The same when nobody asks for such a block again: it is found when the slabs fill the list of another class.
static void fill_another(void) {
    for (int i = 0; i < 100; i++) some(7000);
}
// What the slabs filled last is the list of blocks of n bytes. They are in order, so some two lie side by side.
static char *beside_the_next(size_t n, char **ret_next) {
    char *p = some(n), *next = some(n);
    for (int i = 0; i < 1000 || p + m.usable_size(p) != next; i++) p = next, next = some(n);
    *ret_next = next;
    return p;
}
static void unasked(size_t n, size_t at, char value) {
    char *p;
    beside_the_next(n, &p);
    m.free(p);
    p[at] ^= value;
    expect(LINK, p);
    fill_another();
}
static void unasked_16(void) { unasked(16, 0, 1); }
static void unasked_mark(void) { unasked(16, 15, 1); }
static void unasked_300(void) { unasked(300, 7, 64); }
static void unasked_2000(void) { unasked(2000, 3, 'A'); }
static void past_the_end(size_t n) {
    char *next, *p = beside_the_next(n, &next);
    m.free(expect(LINK, next));
    p[m.usable_size(p)] ^= 'A';
    fill_another();
}
static void past_the_end_16(void) { past_the_end(16); }
static void past_the_end_500(void) { past_the_end(500); }
// The third of the list.
static void past_the_second(void) {
    char *next, *p = beside_the_next(32, &next), *first = some(32), *second = some(32);
    m.free(expect(LINK, next));
    m.free(second);
    m.free(first);
    memset(p + m.usable_size(p), 'A', 16);
    fill_another();
}

// ---- heaps of their own ---------------------------------------------------------------------------------

#if FAMILY_QUARRY
static void heap_free_of_other(void) {
    quarry_heap_t *a = quarry_heap_create(NULL), *b = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(a, 100);
    quarry_heap_free(b, expect(WRONG_HEAP, p));
}
static void heap_free_of_none(void) {
    quarry_heap_t *a = quarry_heap_create(NULL);
    quarry_heap_free(a, expect(WRONG_HEAP, some(100)));
}
static void heap_free_of_other_huge(void) {
    quarry_heap_t *a = quarry_heap_create(NULL), *b = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(a, 5 * MIB);
    quarry_heap_free(b, expect(WRONG_HEAP, p));
}
static void heap_free_of_other_large(void) {
    quarry_heap_t *a = quarry_heap_create(NULL), *b = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(a, 100 * KIB);
    quarry_heap_free(b, expect(WRONG_HEAP, p));
}
static void heap_double(void) {
    quarry_heap_t *a = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(a, 100);
    quarry_heap_free(a, p);
    quarry_heap_free(a, expect(DOUBLE, p));
}
static void heap_double_by_free(void) {
    quarry_heap_t *a = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(a, 100);
    m.free(p);
    m.free(expect(DOUBLE, p));
}
static void heap_interior(void) {
    quarry_heap_t *a = quarry_heap_create(NULL);
    char *p = quarry_heap_alloc(a, 100);
    quarry_heap_free(a, expect(INTERIOR, p + 16));
}
static void heap_invalid(void) {
    char on_stack[64] __attribute__((aligned(16)));
    quarry_heap_free(quarry_heap_create(NULL), expect(INVALID, on_stack));
}
static void heap_realloc_of_other(void) {
    quarry_heap_t *a = quarry_heap_create(NULL), *b = quarry_heap_create(NULL);
    void *p = quarry_heap_alloc(a, 100);
    if (quarry_heap_realloc(b, expect(WRONG_HEAP, p), 1000)) _exit(53);
}
#endif

// ---- circumstances in which the line must come, too ----------------------------------------------------

static volatile sig_atomic_t handled;
static void returns(int sig) { handled = sig; }
static void with_handler(void) {  // neither runs the program's handler nor loops
    signal(SIGABRT, returns);
    twice(64);
}
static void with_ignored_signal(void) {
    signal(SIGABRT, SIG_IGN);
    twice(64);
}
static void with_blocked_signal(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    twice(64);
}
static void with_closed_stdout(void) {
    close(0);
    close(1);
    twice(64);
}
static void *twice_there(void *arg) {
    (void)arg;
    void *p = m.malloc(64);
    m.free(p);
    // No room for expect() on this stack: said without snprintf.
    char line[] = DOUBLE ": 0x????????????????\n";
    for (int i = 0; i < 16; i++)
        line[sizeof DOUBLE ": 0x" - 1 + (size_t)i] = "0123456789abcdef"[(uintptr_t)p >> (60 - 4 * i) & 15];
    if (write(3, line, sizeof line - 1) < 0) {}
    m.free(opaque(p));
    return NULL;
}
static void on_small_stack(void) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    if (pthread_attr_setstacksize(&attr, 16384) || pthread_create(&thread, &attr, twice_there, NULL)) _exit(51);
    pthread_join(thread, NULL);
}
static void in_signal(int sig) {
    (void)sig;
    char c[32] __attribute__((aligned(16)));
    m.free(expect(INVALID, c));
}
static void in_signal_handler(void) {
    signal(SIGUSR1, in_signal);
    raise(SIGUSR1);
}
__attribute__((destructor)) static void in_destructor(void);
static int in_destructor_wanted;
static void at_end(void) { in_destructor_wanted = 1; }
static void in_destructor(void) {
    if (in_destructor_wanted) twice(64);
}

#define CASE(name) \
    { #name, name, 0 }
// By a thread's own lists.
#define CASE_OF_LISTS(name) \
    { #name, name, OF_LISTS }
// Two threads have a part in it.
#define CASE_OF_THREADS(name) \
    { #name, name, OF_THREADS }
enum { OF_LISTS = 1,
    OF_THREADS };
typedef struct misuse {
    const char *name;
    void (*run)(void);
    int of;
} misuse_t;
static const misuse_t cases[] = {
    CASE(double_8),
    CASE(double_interleaved_8),
    CASE(double_after_1024_of_8),
    CASE_OF_THREADS(double_by_other_8),
    CASE_OF_THREADS(double_after_other_8),
    CASE_OF_THREADS(double_others_both_8),
    CASE_OF_THREADS(double_within_other_8),
    CASE(double_16),
    CASE(double_100),
    CASE(double_1024),
    CASE(double_5000),
    CASE(double_65536),
    CASE(double_interleaved),
    CASE(double_interleaved_medium),
    CASE(double_after_1024),
    CASE(double_after_1024_medium),
    CASE_OF_THREADS(double_by_other),
    CASE_OF_THREADS(double_after_other),
    CASE_OF_THREADS(double_others_both),
    CASE_OF_THREADS(double_within_other),
    CASE(double_large),
    CASE_OF_THREADS(double_large_by_other),
    CASE(double_huge),
    CASE(double_aligned),
    CASE(double_after_realloc),
    CASE(double_after_realloc_zero),
    CASE(double_sized),
    CASE(size_of_none),
    CASE(size_of_small),
    CASE(size_of_medium),
    CASE(size_of_larger),
    CASE(size_of_run),
    CASE(size_of_huge),
    CASE(size_beyond_all),
    CASE_OF_THREADS(size_by_other),
    CASE(align_of_small),
    CASE(align_of_medium),
    CASE(align_of_run),
    CASE(size_of_aligned),
    CASE(realloc_freed),
    CASE(realloc_freed_medium),
    CASE(usable_size_freed),
    CASE(invalid_never_allocated),
    CASE_OF_THREADS(invalid_never_allocated_by_other),
    CASE(invalid_end_of_slab),
    CASE(invalid_other_high_bits),
    CASE(invalid_tagged),
    CASE(invalid_tagged_realloc),
    CASE(invalid_tagged_usable_size),
    CASE(overflow_into_new),
    CASE(usable_size_freed_medium),
    CASE(usable_size_freed_large),
    CASE_OF_THREADS(usable_size_freed_by_other),
    CASE(invalid_one),
    CASE(invalid_sixteen),
    CASE(invalid_max),
    CASE(invalid_max_16),
    CASE(invalid_kernel),
    CASE(invalid_noncanonical),
    CASE(invalid_noncanonical_high),
    CASE(invalid_noncanonical_48),
    CASE(invalid_unmapped),
    CASE(invalid_top_of_user),
    CASE(invalid_stack),
    CASE(invalid_static),
    CASE(invalid_code),
    CASE(invalid_mapping),
    CASE(invalid_mapping_aligned),
#if defined(__GLIBC__) && !FAMILY_SANITIZED
    CASE(invalid_libc_s),
    CASE(invalid_libc_s_mapping),
#endif
    CASE(invalid_realloc),
    CASE(invalid_usable_size),
    CASE_OF_THREADS(invalid_by_other),
    CASE(interior_least_1),
    CASE(interior_least_4),
    CASE(interior_small_8),
    CASE(interior_small_16),
    CASE(interior_small_middle),
    CASE(interior_small_1),
    CASE(interior_medium_8),
    CASE(interior_medium_16),
    CASE(interior_medium_middle),
    CASE(interior_large_8),
    CASE(interior_large_16),
    CASE(interior_large_page),
    CASE(interior_large_middle),
    CASE(interior_huge_8),
    CASE(interior_huge_16),
    CASE(interior_huge_middle),
    CASE(interior_huge_later),
    CASE_OF_THREADS(interior_by_other),
    CASE(interior_realloc),
    CASE(interior_realloc_large),
    CASE(interior_realloc_huge),
    CASE(interior_usable_size),
    CASE(link_first_8),
    CASE(link_second_8),
    CASE(link_both),
    CASE(link_all),
    CASE(link_zero),
    CASE(link_zero_first),
    CASE(link_zero_second),
    CASE(link_16),
    CASE(link_1024),
    CASE(link_medium),
    CASE(link_to_stack),
    CASE(link_to_live),
    CASE(link_to_itself),
    CASE_OF_LISTS(unasked_16),
    CASE_OF_LISTS(unasked_mark),
    CASE_OF_LISTS(unasked_300),
    CASE_OF_LISTS(unasked_2000),
    CASE_OF_LISTS(past_the_end_16),
    CASE_OF_LISTS(past_the_end_500),
    CASE_OF_LISTS(past_the_second),
    CASE(with_handler),
    CASE(with_ignored_signal),
    CASE(with_blocked_signal),
    CASE(with_closed_stdout),
    CASE_OF_THREADS(on_small_stack),
    CASE(in_signal_handler),
    CASE(at_end),
#if FAMILY_QUARRY
    CASE(heap_free_of_other),
    CASE(heap_free_of_none),
    CASE(heap_free_of_other_huge),
    CASE(heap_free_of_other_large),
    CASE(heap_double),
    CASE(heap_double_by_free),
    CASE(heap_interior),
    CASE(heap_invalid),
    CASE(heap_realloc_of_other),
#endif
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

// ---- the runner -------------------------------------------------------------------------------------------

// NULL if the run ended as it must, else what was wrong with it.
static const char *wrong(const rerun_t *r, const char *expected) {
    static char text[300];
    if (!expected[0]) return "the fault was not reached";
    if (r->status == -1 || !WIFSIGNALED(r->status)) return "did not die of a signal";
    if (WTERMSIG(r->status) != SIGABRT) return "died of another signal than SIGABRT";
    regex_t line;
    CHECK_EQ(regcomp(&line, "^quarry: [a-z ]+: 0x[0-9a-f]+, [^\n]+\n$", REG_EXTENDED | REG_NOSUB), 0);
    int match = regexec(&line, r->text, 0, NULL, 0) == 0 && strchr(r->text, '\n') == r->text + r->length - 1;
    regfree(&line);
    if (!match) return "stderr is not one line \"quarry: FAULT: 0xADDRESS, DETAIL\"";
    // "FAULT: 0xADDRESS": the address as a number, since it may have leading zeros here.
    const char *number = strstr(expected, "0x");
    CHECK(number != NULL);
    int n = snprintf(
        text, sizeof text, "quarry: %.*s0x%lx,", (int)(number - expected), expected, strtoul(number, NULL, 16));
    if (strncmp(r->text, text, (size_t)n)) return "the line names another fault or address";
    const char *detail = strstr(number, ", ");
    if (!detail) return NULL;
    snprintf(text, sizeof text, "%.*s", (int)strcspn(detail + 2, "\n"), detail + 2);
    return strstr(r->text, text) ? NULL : "the line has another detail";
}

static void run_case(int i, int failures[1]) {
    int fds[2];
    char expected[200] = "";
    CHECK_EQ(pipe(fds), 0);
    CHECK_GE(fds[0], 3);
    // The run's fd 3 takes what it expects.
    int saved = fds[1] == 3 ? -1 : fcntl(3, F_DUPFD_CLOEXEC, 10);
    int reader = fcntl(fds[0], F_DUPFD_CLOEXEC, 10);
    close(fds[0]);
    if (fds[1] != 3) {
        CHECK_EQ(dup2(fds[1], 3), 3);
        close(fds[1]);
    }
    char *argv[] = {NULL, (char *)"case", (char *)(uintptr_t)cases[i].name, NULL};
    rerun_t r = rerun(argv, 0);
    close(3);
    if (saved >= 0) {
        dup2(saved, 3);
        close(saved);
    }
    ssize_t n = read(reader, expected, sizeof expected - 1);
    close(reader);
    expected[n > 0 ? n : 0] = '\0';
    const char *problem = wrong(&r, expected);
    if (!problem) return;
    printf("FAILED case %s: %s; it %s; expected %sgot %.300s\n", cases[i].name, problem, rerun_end(&r),
        expected[0] ? expected : "-\n", r.text);
    failures[0]++;
}

TEST(every_case) {
    int failures = 0, skipped = 0;
    const char *conf = getenv("QUARRY_CONF");
    // A sampled block comes from no thread's list; here all are.
    int lists = !conf || (!strstr(conf, "tcache:off") && !strstr(conf, "sample:1,"));
    for (int i = 0; i < CASE_COUNT; i++) {
        // ThreadSanitizer has nothing to compare in a run of one thread.
        if (FAMILY_TSAN ? cases[i].of != OF_THREADS : cases[i].of == OF_LISTS && !lists) skipped++;
        else run_case(i, &failures);
    }
    printf("  %d cases, %d left out\n", CASE_COUNT - skipped, skipped);
    CHECK_EQ(failures, 0);
}

int main(int argc, char **argv) {
    if (argc != 3 || strcmp(argv[1], "case")) return test_main(argc, argv);
    alarm(TEST_PATIENCE);
    for (int i = 0; i < CASE_COUNT; i++) {
        if (strcmp(argv[2], cases[i].name)) continue;
        cases[i].run();
        return 0;  // not found out
    }
    return 2;
}
