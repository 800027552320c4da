// SPDX-License-Identifier: MIT
// test_wild.c: free, realloc and malloc_usable_size of pointers that no malloc returned, of 23 kinds, each in a process
// of its own: it ends with one line of the heap's and SIGABRT. One that is not told goes on allocating: nothing that it
// gets may lie where something else is, and it may not crash. And two threads that free the same block at the same
// time. --rounds=N.
#include <pthread.h>
#include <sys/mman.h>

#include "api/family.h"
#include "captured.h"

static long rounds = 20000;

// ---- something to point at ------------------------------------------------------------------------------

enum { LIVE = 600,
    PLACES = 64 };
#define MAPPED ((size_t)1 << 20)
static char *live[LIVE], *dead[LIVE], *filled, *zero, *hole;
static size_t size_of[LIVE];
static char data[4096];
typedef struct range {
    char *from, *to;
} range_t;
static range_t anonymous[PLACES], libc_data[PLACES];
static unsigned nanonymous, nlibc_data;

static int is_in(const char *p, const char *from, size_t n) { return p >= from && p < from + n; }
static int is_live(const char *p) {
    for (int i = 0; i < LIVE; i++)
        if (live[i] == p) return 1;
    return 0;
}

// The heap's tables and records are mappings without a name in which no block of ours lies.
static void read_maps(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    static char line[4096];
    CHECK(maps);
    while (fgets(line, sizeof line, maps)) {
        char *from, *to, access[8], *name = strchr(line, '/');
        if (sscanf(line, "%p-%p %7s", (void **)&from, (void **)&to, access) != 3 || access[0] != 'r') continue;
        if (name && nlibc_data < PLACES && access[1] == 'w' && (strstr(name, "libc") || strstr(name, "ld-")))
            libc_data[nlibc_data++] = (range_t){from, to};
        if (name || (strchr(line, '[') && !strstr(line, "[anon:")) || from == filled || from == zero) continue;
        int ours = 0;
        for (int i = 0; i < LIVE; i++)
            ours |= is_in(live[i], from, (size_t)(to - from)) || is_in(dead[i], from, (size_t)(to - from));
        if (!ours && nanonymous < PLACES) anonymous[nanonymous++] = (range_t){from, to};
    }
    fclose(maps);
    CHECK(nanonymous);
}

static void *new_mapping(int access) {
    void *p = mmap(NULL, MAPPED, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    return p;
}

static size_t some_size(uint64_t *random) {
    uint64_t r = test_random(random) % 16, bits = test_random(random);
    if (r < 9) return 1 + bits % 1024;
    if (r < 15) return 1025 + bits % 64000;
    return bits % 3 ? 70000 + bits % 300000 : 2000000;
}

static void *nothing(void *p) { return p; }

static void prepare(void) {
    uint64_t random = test_seed;
    pthread_t thread;
    if (live[0]) return;
    // What libc allocates for a thread it keeps for the next one. Else a thread that frees a freed block could have
    // just that block.
    CHECK_EQ(pthread_create(&thread, NULL, nothing, NULL), 0);
    pthread_join(thread, NULL);
    for (int i = 0; i < LIVE; i++) {
        size_of[i] = i < 3 ? (size_t[]){100, 5000, 100000}[i] : some_size(&random);
        CHECK((live[i] = m.malloc(size_of[i])) && (dead[i] = m.malloc(size_of[i])));
        memset(live[i], 0x5A, size_of[i]);
    }
    for (int i = 0; i < LIVE; i++) m.free(dead[i]);
    filled = new_mapping(PROT_READ | PROT_WRITE);
    zero = new_mapping(PROT_READ | PROT_WRITE);
    hole = new_mapping(PROT_NONE);
    memset(filled, 0x41, MAPPED);
    read_maps();
}

// ---- the kinds ------------------------------------------------------------------------------------------

typedef enum kind {
    IN_SMALL,
    IN_MEDIUM,
    IN_LARGE,
    IN_BY_16,
    END,
    DISTANCE,
    FREED,
    IN_FREED,
    NEVER,
    STACK,
    DATA,
    CODE,
    FILLED,
    ZERO,
    NULL_PAGE,
    RECORDS,
    TIB,
    TIB_MAPPED,
    BITS_47,
    BITS_64,
    TOP_BITS,
    LIBC,
    RANGE,
    KINDS
} kind_t;
static const char *const name_of[KINDS] = {"inside a small block", "inside a medium block", "inside a large block",
    "inside, by 16", "end of a block", "another block's distance", "freed block", "inside a freed block",
    "never given out", "stack", "data", "code", "filled mapping", "zero mapping", "NULL page", "heap's own records",
    "TiB away", "TiB away, mapped", "random 47 bits", "random 64 bits", "tag in the top bits", "libc's data",
    "random in the heap's range"};

static int one_of_size(uint64_t *random, size_t from, size_t to) {
    for (;;) {
        int i = (int)(test_random(random) % LIVE);
        if (size_of[i] > from && size_of[i] <= to) return i;
    }
}

static char *in_range(range_t r, uint64_t at) { return r.from + at % (uint64_t)(r.to - r.from) / 16 * 16; }

// Never NULL and never a block that is live.
static char *wild(uint64_t *random, kind_t kind) {
    uint64_t r = test_random(random), k = test_random(random) % LIVE, j = test_random(random) % LIVE;
    char *p = live[k], *low = p, *high = p;
    switch (kind) {
    case IN_SMALL: p = live[one_of_size(random, 0, 1024)] + 1 + r % 64; break;
    case IN_MEDIUM: p = live[one_of_size(random, 1024, 65536)] + 1 + r % 64; break;
    case IN_LARGE: p = live[one_of_size(random, 65536, SIZE_MAX)] + 1 + r % 64; break;
    case IN_BY_16: p += size_of[k] > 16 ? (1 + r % (size_of[k] / 16)) * 16 : 8; break;
    case END: p += m.usable_size(p); break;
    case DISTANCE: p += (r % 2 ? 1 : -1) * (dead[j] - live[test_random(random) % LIVE]); break;
    case FREED: p = dead[k]; break;
    case IN_FREED: p = dead[k] + 1 + r % size_of[k]; break;
    // Where a block of its slab could be, or anywhere near it.
    case NEVER:
        p = size_of[k] <= 8192 && r % 4 ? p + m.usable_size(p) * (1 + r / 4 % 200)
                                        : (char *)((uintptr_t)p & ~(uintptr_t)0x3FFF) + r % 0x4000 / 16 * 16;
        break;
    case STACK: p = (char *)random + r % 512; break;
    case DATA: p = data + r % sizeof data; break;
    case CODE: p = (char *)(uintptr_t)&some_size + r % 256; break;
    case FILLED: p = filled + (r % 2 ? r / 2 % MAPPED : r / 2 % 64 * 16384); break;
    case ZERO: p = zero + (r % 2 ? r / 2 % MAPPED : r / 2 % 64 * 16384); break;
    case NULL_PAGE: p = (char *)(uintptr_t)(1 + r % 4095); break;
    case RECORDS: p = in_range(anonymous[k % nanonymous], r); break;
    case TIB:
    case TIB_MAPPED: p = (char *)((uintptr_t)p ^ ((1 + r % 63) << 40)); break;
    case BITS_47: p = (char *)(uintptr_t)(r >> 17 & ~UINT64_C(15)); break;
    case BITS_64: p = (char *)(uintptr_t)(r & ~UINT64_C(15)); break;
    case TOP_BITS: p = (char *)((uintptr_t)p ^ (1 + r % 65535) << 48); break;
    case LIBC: p = nlibc_data ? in_range(libc_data[k % nlibc_data], r) : data; break;
    default:
        for (int i = 0; i < LIVE; i++) {
            if (live[i] < low) low = live[i];
            if (live[i] > high) high = live[i];
        }
        p = low + r % (uint64_t)(high - low + 1) / 16 * 16;
    }
    return p && !is_live(p) ? p : live[k] + 1;
}

// ---- an attempt -----------------------------------------------------------------------------------------

typedef struct attempt {
    char *p;
    kind_t kind;
    unsigned how;
} attempt_t;

static void *free_there(void *p) {
    m.free(p);
    return NULL;
}
static void misuse(const attempt_t *a) {
    pthread_t thread;
    switch (a->how) {
    case 0: (void)!m.realloc(a->p, 100); break;
    case 1: (void)!m.usable_size(a->p); break;
    case 2:
        if (!pthread_create(&thread, NULL, free_there, a->p)) pthread_join(thread, NULL);
        break;
    default: m.free(a->p);
    }
}

#define OVERLAP 77
static void must_be_apart(const char *p, size_t n, const char *q, size_t nq) {
    if (q && p < q + nq && q < p + n) _exit(OVERLAP);
}
// Goes on as a program would that was told nothing.
static void go_on(uint64_t random) {
    enum { MORE = 500 };
    static char *more[MORE];
    static size_t n[MORE];
    char on_stack[64];
    for (int i = 0; i < MORE; i++) {
        n[i] = i % 2 ? size_of[test_random(&random) % LIVE] : some_size(&random);
        char *p = more[i] = m.malloc(n[i]);
        if (!p) continue;
        for (int k = 0; k < LIVE; k++) must_be_apart(p, n[i], live[k], size_of[k]);
        for (int k = 0; k < i; k++) must_be_apart(p, n[i], more[k], n[k]);
        must_be_apart(p, n[i], filled, MAPPED);
        must_be_apart(p, n[i], zero, MAPPED);
        must_be_apart(p, n[i], data, sizeof data);
        must_be_apart(p, n[i], on_stack, sizeof on_stack);
        for (unsigned k = 0; k < nanonymous; k++)
            must_be_apart(p, n[i], anonymous[k].from, (size_t)(anonymous[k].to - anonymous[k].from));
        memset(p, 0xA5, n[i]);
    }
    for (int i = 0; i < LIVE; i++)
        for (size_t at = 0; at < size_of[i]; at += 16)
            if (live[i][at] != 0x5A) _exit(OVERLAP);
    for (int i = 0; i < MORE; i++) m.free(more[i]);
}

static const char late[] = "later: ";
static void attempt(void *arg) {
    const attempt_t *a = arg;
    if (a->kind == TIB_MAPPED && !FAMILY_TSAN) {  // which ends a program for asking for most addresses
        char *at = (char *)((uintptr_t)a->p & ~(uintptr_t)0xFFFF);
        char *got = mmap(at, 1 << 17, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (got != MAP_FAILED) memset(got, (uintptr_t)a->p >> 16 & 1 ? 0x41 : 0, 1 << 17);
    }
    misuse(a);
    if (write(2, late, sizeof late - 1) < 0) {}
    go_on((uintptr_t)a->p);
}

typedef struct count {
    long told, later, silent, overlaps, crashes, all;
} count_t;
static int is_line(const char *text, size_t length) {
    return !strncmp(text, "quarry: ", 8) && strchr(text, '\n') == text + length - 1;
}

TEST(free_of_anything) {
    static count_t counts[KINDS];
    count_t sum = {0};
    uint64_t random = test_seed;
    prepare();
    for (long i = 0; i < rounds; i++) {
        kind_t kind = (kind_t)(i % KINDS);
        attempt_t a = {wild(&random, kind), kind, (unsigned)(test_random(&random) % 20)};
        captured_t c = capture(attempt, &a);
        count_t *n = &counts[kind];
        n->all++;
        if (c.exit_signal == SIGABRT && is_line(c.text, c.length)) {
            n->told++;
            continue;
        }
        size_t skip = strncmp(c.text, late, sizeof late - 1) ? 0 : sizeof late - 1;
        if (c.exit_signal == SIGABRT && skip && is_line(c.text + skip, c.length - skip)) n->later++;
        else if (c.exit_code == OVERLAP) n->overlaps++;
        else if (c.exit_code == 0) n->silent++;
        else n->crashes++;
        if (n->all - n->told <= 3)
            printf("  %s, way %u, %p: exit %d, signal %d: %.200s\n", name_of[kind], a.how, (void *)a.p, c.exit_code,
                c.exit_signal, c.text);
    }
    printf("  %-28s %9s %7s %7s %8s %7s\n", "", "told", "later", "silent", "overlap", "crash");
    for (kind_t k = 0; k < KINDS; k++) {
        const count_t *n = &counts[k];
        printf("  %-28s %9ld %7ld %7ld %8ld %7ld\n", name_of[k], n->told, n->later, n->silent, n->overlaps, n->crashes);
        sum.told += n->told, sum.later += n->later, sum.silent += n->silent, sum.overlaps += n->overlaps,
            sum.crashes += n->crashes;
    }
    printf("  %-28s %9ld %7ld %7ld %8ld %7ld\n", "all", sum.told, sum.later, sum.silent, sum.overlaps, sum.crashes);
    CHECK_EQ(sum.overlaps, 0);
    CHECK_EQ(sum.crashes, 0);
    CHECK_LE((rounds - sum.told) * 1000, rounds);
}

// ---- a race ------------------------------------------------------------------------------------------------

// Both threads free the same blocks at the same time. One that sees the other's mark says so; two that
// meet in the very same instructions may both take the block for live, which no check between two loads
// can see. Then the block is in two lists, and that is seen when it is freed or given out next; or so many came home
// twice that their slab was given up, and the next of its blocks is nobody's.
static _Atomic int ready;
enum { TWICE = 2000 };
static char *both[TWICE];
static void *free_all(void *unused) {
    (void)unused;
    ready++;
    while (ready < 2) {}
    for (int i = 0; i < TWICE; i++) m.free(both[i]);
    return NULL;
}
static void race(void *unused) {
    (void)unused;
    pthread_t thread;
    for (int i = 0; i < TWICE; i++) both[i] = m.malloc(100);
    if (pthread_create(&thread, NULL, free_all, NULL)) _exit(50);
    free_all(NULL);
    pthread_join(thread, NULL);
}
TEST(double_free_by_two_threads) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: its races are meant");
    for (int i = 0; i < 50; i++) {
        ready = 0;
        captured_t c = capture(race, NULL);
        if (c.exit_signal != SIGABRT || !(strstr(c.text, "double free") || strstr(c.text, "invalid free")))
            TEST_FAIL("round %d: exit %d, signal %d: %.200s", i, c.exit_code, c.exit_signal, c.text);
    }
}

// One resizes what the other frees: the same, since a block that moves is freed.
static void *resize_all(void *unused) {
    (void)unused;
    ready++;
    while (ready < 2) {}
    for (int i = 0; i < TWICE; i++) {
        if (!m.realloc(both[i], 200)) _exit(51);
    }
    return NULL;
}
static void race_of_two_kinds(void *unused) {
    (void)unused;
    pthread_t thread;
    for (int i = 0; i < TWICE; i++) both[i] = m.malloc(100);
    if (pthread_create(&thread, NULL, resize_all, NULL)) _exit(50);
    free_all(NULL);
    pthread_join(thread, NULL);
}
TEST(realloc_beside_free) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: its races are meant");
    for (int i = 0; i < 50; i++) {
        ready = 0;
        captured_t c = capture(race_of_two_kinds, NULL);
        if (c.exit_signal != SIGABRT || !(strstr(c.text, "double free") || strstr(c.text, "invalid free")))
            TEST_FAIL("round %d: exit %d, signal %d: %.200s", i, c.exit_code, c.exit_signal, c.text);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--rounds=", 9)) rounds = atol(argv[i] + 9);
    }
    if (FAMILY_SANITIZED) rounds /= 4;
    return test_main(argc, argv);
}
