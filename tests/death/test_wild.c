// SPDX-License-Identifier: MIT
// test_wild.c: free and realloc of random pointers, each in a process of its own: whatever the value, it
// is found out. The process ends with the heap's line and SIGABRT. And two threads that free the same block
// at the same time. --rounds=N.
//
// Two things the fast path does not see, for an instruction each, and they are allowed for here, as
// narrowly as can be told from outside:
//   - its table is masked, so an address that is one of a block but for bits 40 and up is taken for it. The
//     process then ends with SIGSEGV, as no memory is there;
//   - the place of a block that was never given out, in a slab of others that were, is taken for a block.
#include <pthread.h>
#include <sys/mman.h>

#include "api/family.h"
#include "captured.h"

static long rounds = 2000;

// ---- something to point at ------------------------------------------------------------------------------

enum { LIVE = 400 };
static char *live[LIVE], *dead[LIVE], *mapped, *hole;
static size_t size_of[LIVE];
static char data[4096];

static void prepare(void) {
    uint64_t random = test_seed;
    for (int i = 0; i < LIVE; i++) {
        size_of[i] = i % 40 == 39 ? 2000000 : i % 10 == 9 ? 70000 + test_random(&random) % 300000
                                                          : 1 + test_random(&random) % 9000;
        CHECK((live[i] = m.malloc(size_of[i])) && (dead[i] = m.malloc(size_of[i])));
        memset(live[i], 0x5A, size_of[i]);
    }
    for (int i = 0; i < LIVE; i++) m.free(dead[i]);
    mapped = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    hole = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED && hole != MAP_FAILED);
}
static int is_live(const char *p) {
    for (int i = 0; i < LIVE; i++)
        if (live[i] == p) return 1;
    return 0;
}

// Never NULL and never a block that is live.
static char *wild(uint64_t *random, const char **ret_what) {
    static const char *const what[] = {"inside a block", "behind a block", "before a block", "a freed block", "inside a freed block", "stack", "data", "code",
        "a mapping", "no access", "any value", "any value of user space", "a block of another address space", "a bit flipped", "near a page"};
    uint64_t r = test_random(random), k = test_random(random) % LIVE;
    unsigned kind = r % (sizeof what / sizeof *what);
    char *p = live[k];
    *ret_what = what[kind];
    r = test_random(random);
    switch (kind) {
    case 0: p += size_of[k] > 1 ? 1 + r % (size_of[k] - 1) : 1; break;
    case 1: p += m.usable_size(p) + (r % 2 ? 0 : r % 100000); break;
    case 2: p -= 1 + (r % 2 ? r % 64 : r % 100000); break;
    case 3: p = dead[k]; break;
    case 4: p = dead[k] + 1 + r % size_of[k]; break;
    case 5: p = (char *)random + r % 512; break;
    case 6: p = data + r % sizeof data; break;
    case 7: p = (char *)(uintptr_t)&wild + r % 64; break;
    case 8: p = mapped + (r % 2 ? r % (1 << 20) : r % 64 * 16384); break;
    case 9: p = hole + (r % 2 ? r % (1 << 20) : r % 64 * 16384); break;
    case 10: p = (char *)(uintptr_t)(r % 2 ? r : r & ~UINT64_C(15)); break;
    case 11: p = (char *)(uintptr_t)(r >> 17 & ~UINT64_C(15)); break;
    case 12: p = (char *)((uintptr_t)p + ((1 + r % 100) << 40)); break;  // tables that are masked take it for the block
    case 13: p = (char *)((uintptr_t)p ^ UINT64_C(1) << r % 64); break;
    default: p = (char *)(((uintptr_t)p & ~UINT64_C(4095)) + r % 3 * 4096); break;
    }
    return p && !is_live(p) ? p : live[k] + 1;
}

typedef struct attempt {
    char *p;
    int resize;
} attempt_t;
static void free_it(void *arg) {
    const attempt_t *a = arg;
    if (a->resize) (void)!m.realloc(a->p, 100);
    else m.free(a->p);
}

// A multiple of 16 near live blocks may be where no block has been yet.
static int is_place(const char *p) {
    if ((uintptr_t)p % 16) return 0;
    for (int i = 0; i < LIVE; i++) {
        uintptr_t distance = p > live[i] ? (uintptr_t)p - (uintptr_t)live[i] : (uintptr_t)live[i] - (uintptr_t)p;
        if (distance < (1 << 18)) return 1;
    }
    return 0;
}
static int is_elsewhere(const char *p) { return (uintptr_t)p >> 40 != (uintptr_t)live[0] >> 40; }

TEST(free_of_anything) {
    uint64_t random = test_seed;
    long unseen = 0;
    prepare();
    for (long i = 0; i < rounds; i++) {
        const char *what;
        attempt_t a = {wild(&random, &what), i % 4 == 3};
        captured_t c = capture(free_it, &a);
        if (c.exit_signal == SIGABRT && !strncmp(c.text, "quarry: ", 8) && strchr(c.text, '\n') == c.text + c.length - 1) continue;
        if ((FAMILY_SANITIZED ? c.exit_code > 0 : c.exit_signal == SIGSEGV) && is_elsewhere(a.p)) continue;  // a sanitizer reports it
        if (c.exit_code == 0 && is_place(a.p)) unseen++;
        else TEST_FAIL("%s of %p (%s): exit %d, signal %d: %.200s", a.resize ? "realloc" : "free", (void *)a.p, what, c.exit_code, c.exit_signal, c.text);
    }
    printf("  %ld of %ld unseen\n", unseen, rounds);
    CHECK_LT(unseen * 50, rounds);
}

// ---- a race ------------------------------------------------------------------------------------------------

// Both threads free the same blocks at the same time. One that sees the other's mark says so; two that
// meet in the very same instructions may both take the block for live, which no check between two loads
// can see. Then the block is in two lists, and that is seen when it is freed or given out next; or so many came home twice that
// their slab was given up, and the next of its blocks is nobody's.
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
    if (FAMILY_SANITIZED) TEST_SKIP("the race is meant");
    for (int i = 0; i < 50; i++) {
        ready = 0;
        captured_t c = capture(race, NULL);
        if (c.exit_signal != SIGABRT || !(strstr(c.text, "double free") || strstr(c.text, "invalid free"))) TEST_FAIL("round %d: exit %d, signal %d: %.200s", i, c.exit_code, c.exit_signal, c.text);
    }
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--rounds=", 9)) rounds = atol(argv[i] + 9);
    }
    if (FAMILY_SANITIZED) rounds /= 4;
    return test_main(argc, argv);
}
