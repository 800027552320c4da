// SPDX-License-Identifier: MIT
// The kernel refuses the n-th request, for n = 1, 2, 3... until a run has no refusal left to meet;
// once only, or from then on; all requests, or those of one kind. Each time: what fails gives NULL and
// ENOMEM, no block changes, afterwards everything works, and nothing is lost.
// Runs under libquarry-malloc-fake.so, which can be told to refuse.
#include <malloc.h>
#include <pthread.h>
#include <quarry/heap.h>
#include <sys/wait.h>

#include "stress/shadow.h"

// src/os/fake.h. The order of the kinds is that of its enum.
static void (*fault)(uint64_t first, int persist, uint32_t mask);
static uint64_t (*fault_hits)(void), (*fault_calls)(void);
static const char *const kinds[] = {"reserve", "reserve_readable", "map", "commit", "decommit", "purge", "unmap",
    "move", "resize", "protect", "populate", "spawn", "thread_exit", "random", "open"};
enum { KINDS = sizeof kinds / sizeof *kinds };
#define ALL ((1u << KINDS) - 1)  // but not write: a diagnosis shall be seen

// Calls of libquarry.h that the program is not linked with.
static quarry_heap_t *(*heap_create)(const quarry_heap_options_t *);
static void (*heap_destroy)(quarry_heap_t *);
static void *(*heap_alloc)(quarry_heap_t *, size_t);
static int (*heap_check)(quarry_heap_t *);

static void *function(const char *name) {
    void *f = dlsym(RTLD_DEFAULT, name);
    if (!f) TEST_FAIL("%s: run this under libquarry-malloc-fake.so", name);
    return f;
}
static void look_up(void) {
    fault = (void (*)(uint64_t, int, uint32_t))(uintptr_t)function("quarry_os_fault");
    fault_hits = (uint64_t(*)(void))(uintptr_t)function("quarry_os_fault_hits");
    fault_calls = (uint64_t(*)(void))(uintptr_t)function("quarry_os_fault_calls");
    heap_create = (quarry_heap_t * (*)(const quarry_heap_options_t *))(uintptr_t)function("quarry_heap_create");
    heap_destroy = (void (*)(quarry_heap_t *))(uintptr_t)function("quarry_heap_destroy");
    heap_alloc = (void *(*)(quarry_heap_t *, size_t))(uintptr_t)function("quarry_heap_alloc");
    heap_check = (int (*)(quarry_heap_t *))(uintptr_t)function("quarry_heap_check");
}

// ---- the workload -----------------------------------------------------------------------------------

enum { SLOTS = 300 };
static shadow_t slot[SLOTS];
static int next_slot, refused;

static shadow_t *free_slot(void) {
    next_slot = (next_slot + 1) % SLOTS;
    shadow_t *s = &slot[next_slot];
    if (s->p) {
        shadow_check(s, s->n);
        m.free(s->p);
        s->p = NULL;
    }
    return s;
}

// A result that may be NULL, but then with ENOMEM; errno was 77 before.
static void got(void *p, size_t n, size_t align) {
    int error = errno;
    shadow_t *s = free_slot();
    if (p) {
        if (error != 77) TEST_FAIL("%zu bytes, alignment %zu: success, but errno %d", n, align, error);
        shadow_set(s, p, n, align);
        return;
    }
    if (error != ENOMEM) TEST_FAIL("%zu bytes: NULL with errno %d", n, error);
    refused++;
    errno = 77;
}
#define GET(call, n, align) (errno = 77, got((call), (n), (align)))

static void resize(shadow_t *s, size_t n) {
    if (!s->p) return;
    shadow_t old = *s;
    errno = 77;
    unsigned char *p = m.realloc(s->p, n);
    if (!p) {
        CHECK_EQ(errno, ENOMEM);
        refused++;
        shadow_check(s, s->n);  // as it was
        return;
    }
    CHECK_EQ(errno, 77);
    for (size_t i = 0; i < old.n && i < n; i = pattern_next(i, old.n)) CHECK_EQ(p[i], pattern_at(old.key, i));
    shadow_set(s, p, n, shadow_least(n));
}

static void *in_thread(void *unused) {
    (void)unused;
    static const size_t sizes[] = {10, 200, 3000, 40000, 100000, 2000000};
    for (int i = 0; i < 6; i++) {
        errno = 77;
        unsigned char *p = m.malloc(sizes[i]);
        if (!p) {
            CHECK_EQ(errno, ENOMEM);
            continue;
        }
        memset(p, 1, sizes[i]);
        m.free(p);
    }
    for (int i = 0; i < SLOTS; i += 5) {  // blocks of the other thread; it waits
        if (!slot[i].p) continue;
        shadow_check(&slot[i], slot[i].n);
        m.free(slot[i].p);
        slot[i].p = NULL;
    }
    return NULL;
}

static void use_heap(void) {
    errno = 77;
    quarry_heap_t *h = heap_create(&(quarry_heap_options_t){.name = "faulty"});
    if (!h) {
        CHECK_EQ(errno, ENOMEM);
        refused++;
        return;
    }
    for (size_t n = 16; n < 3000000; n *= 6) {
        errno = 77;
        char *p = heap_alloc(h, n);
        if (p) memset(p, 1, n);
        else if (errno != ENOMEM) TEST_FAIL("heap: errno %d", errno);
        else refused++;
    }
    CHECK_EQ(heap_check(h), 0);
    heap_destroy(h);
}

// About 450 operations: every class of sizes, every way to get and resize a block.
static void workload(void) {
    for (size_t n = 1; n <= 65536; n += n < 128 ? 16 : n / 8) GET(m.malloc(n), n, shadow_least(n));
    for (size_t n = 1; n <= 65536; n *= 3) GET(m.calloc(1, n), n, shadow_least(n));
    static const size_t large[] = {65537, 300000, 1 << 20, (1 << 20) + 1, 3 << 20};
    for (int i = 0; i < 5; i++) {
        GET(m.malloc(large[i]), large[i], 16);
        GET(m.calloc(large[i], 1), large[i], 16);
        GET(m.aligned_alloc(65536, large[i]), large[i], 65536);
    }
    for (size_t align = 32; align <= (8 << 20); align *= 4) {
        GET(m.aligned_alloc(align, 100), 100, align);
        GET(m.memalign(align, 5000), 5000, align);
        void *p = NULL;
        errno = 77;
        int error = m.posix_memalign(&p, align, 300000);
        CHECK(error ? error == ENOMEM && errno == ENOMEM : errno == 77);  // as glibc leaves it
        if (error) refused++;
        else GET(p, 300000, align);
    }
    shadow_t *s = &slot[(next_slot + SLOTS / 2) % SLOTS];
    for (size_t n = 10; n < (5 << 20); n = n * 2 + n / 3) resize(s, n);
    for (size_t n = 3 << 20; n > 100; n /= 2) resize(s, n);
    for (int i = 0; i < SLOTS; i += 7) resize(&slot[i], slot[i].n * 2 + 1);
    pthread_t thread;
    for (int i = 0; i < 2; i++) {
        int error = pthread_create(&thread, NULL, in_thread, NULL);
        if (error) CHECK(error == EAGAIN || error == ENOMEM);
        else pthread_join(thread, NULL);
    }
    use_heap();
    for (int i = 0; i < SLOTS; i += 3) {
        if (!slot[i].p) continue;
        shadow_check(&slot[i], slot[i].n);
        errno = 77;
        m.free(slot[i].p);
        CHECK_EQ(errno, 77);
        slot[i].p = NULL;
    }
    m.trim(0);
    CHECK_EQ(m.trim(SIZE_MAX) & ~1, 0);
    for (size_t n = 20; n < 200000; n *= 2) GET(m.malloc(n), n, shadow_least(n));
}

static void free_all(void) {
    for (int i = 0; i < SLOTS; i++) {
        if (!slot[i].p) continue;
        shadow_check(&slot[i], slot[i].n);
        m.free(slot[i].p);
        slot[i].p = NULL;
    }
}

// One run with a fault, one without; returns how many requests were refused.
static uint64_t run(uint64_t n, int persist, uint32_t mask) {
    refused = 0;
    fault(n, persist, mask);
    workload();
    uint64_t hits = fault_hits();
    fault(0, 0, 0);
    for (int i = 0; i < SLOTS; i++) {
        if (slot[i].p) shadow_check(&slot[i], slot[i].n);
    }
    refused = 0;
    workload();
    if (refused)
        TEST_FAIL("request %llu %s: %d calls fail although the kernel gives again", (unsigned long long)n,
            persist ? "and all after it" : "alone", refused);
    free_all();
    return hits;
}

// ---- the loops ----------------------------------------------------------------------------------------

// In a process whose heap is hardly used yet, so that its first steps fail, too. False: nothing was refused.
static int run_fresh(uint64_t n, int persist, uint32_t mask) {
    fflush(stdout);
    pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (pid == 0) {
        alarm(TEST_PATIENCE);
        _exit(run(n, persist, mask) ? 10 : 11);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != 10 && WEXITSTATUS(status) != 11)) {
        TEST_FAIL("request %llu %s, mask 0x%x: the process ended with 0x%x", (unsigned long long)n,
            persist ? "and all after it" : "alone", mask, (unsigned)status);
    }
    return WEXITSTATUS(status) == 10;
}

static long stride = 1;

static void loop_fresh(int persist, uint32_t mask, const char *what) {
    uint64_t n = 1;
    while (run_fresh(n, persist, mask)) {
        // Every one of the first hundred, then as many as time allows.
        n += n < 100 ? 1 : (uint64_t)stride;
        CHECK_LT(n, 20000);
    }
    printf("  %s: %llu requests\n", what, (unsigned long long)n - 1);
}

TEST(fresh_once) {
    look_up();
    loop_fresh(0, ALL, "once");
}
TEST(fresh_from_then_on) {
    look_up();
    loop_fresh(1, ALL, "from then on");
}
// As where overcommit is off: address space can be had, but nothing that may be written to.
#define CHARGED (1u << 2 | 1u << 3 | 1u << 7 | 1u << 8 | 1u << 9)  // map, commit, move, resize, protect
TEST(fresh_without_charge) {
    look_up();
    CHECK(!strcmp(kinds[2], "map") && !strcmp(kinds[3], "commit") && !strcmp(kinds[9], "protect"));
    loop_fresh(0, CHARGED, "what is charged, once");
    loop_fresh(1, CHARGED, "what is charged, from then on");
}
TEST(fresh_by_kind) {
    look_up();
    for (int kind = 0; kind < KINDS; kind++) {
        loop_fresh(0, 1u << kind, kinds[kind]);
        if (run_fresh(1, 1, 1u << kind)) run_fresh(2, 1, 1u << kind);
    }
}

static size_t address_space(void) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

// What the heap says it has open for blocks.
static size_t open_for_blocks(void) {
    struct mallinfo2 (*info)(void) = (struct mallinfo2(*)(void))(uintptr_t)function("mallinfo2");
    return info().arena;
}

// Again and again in one process: nothing may get lost by being refused. What is lost lies beside what is open, or is
// open and never used again; both grow with each refusal. The newest arena has address space beside what is open, too.
#define NEWEST_ARENA ((size_t)64 << 20)
TEST(one_process) {
    look_up();
    for (int i = 0; i < 5; i++) run(0, 0, ALL);
    CHECK_GT(fault_calls() + 1, 0);
    size_t lost_before = address_space() - open_for_blocks();
    uint64_t runs = 0;
    for (int round = 0; round < 2; round++) {
        for (int persist = 0; persist < 2; persist++) {
            for (uint64_t n = 1; run(n, persist, ALL); n += n < 50 ? 1 : (uint64_t)(3 * stride)) runs++;
        }
        for (int kind = 0; kind < KINDS; kind++) run(1, 1, 1u << kind);
    }
    m.trim(0);
    size_t opened = open_for_blocks(), lost = address_space() - opened;
    printf("  %llu runs: %zu MiB open, beside them from %zu to %zu MiB\n", (unsigned long long)runs, opened >> 20,
        lost_before >> 20, lost >> 20);
    CHECK_LT(lost, lost_before + NEWEST_ARENA + ((size_t)16 << 20));
    CHECK_LT(opened, (size_t)128 << 20);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--stride=", 9)) stride = atol(argv[i] + 9);
    }
    return test_main(argc, argv);
}
