// SPDX-License-Identifier: MIT
// Each function as the very first one that is called, in each place of a process's life where that
// can happen, each in a process of its own.
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>

#include "api/family.h"
#include "threads/rerun.h"
#if FAMILY_QUARRY
#include <quarry/heap.h>
#include <quarry/stats.h>
#endif

// Reasons of failure are exit codes: stdio has no place in a constructor.
#define MUST(expr)               \
    do {                         \
        if (!(expr)) _exit(100); \
    } while (0)

static void use(void *p, size_t n) {
    MUST(p && (uintptr_t)p % 16 == 0 && m.usable_size(p) >= n);
    memset(p, 1, n);
    m.free(p);
}
static void op_malloc(void) { use(m.malloc(100), 100); }
static void op_malloc_zero(void) { use(m.malloc(0), 0); }
static void op_malloc_medium(void) { use(m.malloc(30000), 30000); }
static void op_malloc_large(void) { use(m.malloc(500000), 500000); }
static void op_malloc_huge(void) { use(m.malloc(5000000), 5000000); }
static void op_malloc_too_much(void) { MUST(!m.malloc(SIZE_MAX) && errno == ENOMEM); }
static void op_calloc(void) { use(m.calloc(10, 10), 100); }
static void op_calloc_large(void) { use(m.calloc(10, 50000), 500000); }
static void op_realloc(void) { use(m.realloc(NULL, 100), 100); }
static void op_realloc_large(void) { use(m.realloc(NULL, 500000), 500000); }
static void op_reallocarray(void) { use(m.reallocarray(NULL, 10, 10), 100); }
static void op_free_null(void) { m.free(NULL); }
static void op_free_sized_null(void) { m.free_sized(NULL, 0); }
static void op_free_aligned_null(void) { m.free_aligned_sized(NULL, 16, 0); }
static void op_aligned_alloc(void) { use(m.aligned_alloc(256, 100), 100); }
static void op_aligned_alloc_huge(void) { use(m.aligned_alloc(1 << 22, 100), 100); }
static void op_aligned_alloc_bad(void) {
    void *p = m.aligned_alloc(3, 100);
    MUST(family_other || (!p && errno == EINVAL));  // glibc before 2.38 rounds up
    m.free(p);
}
static void op_posix_memalign(void) {
    void *p;
    MUST(m.posix_memalign(&p, 64, 100) == 0);
    use(p, 100);
}
static void op_memalign(void) { use(m.memalign(64, 100), 100); }
static void op_valloc(void) { use(m.valloc(100), 100); }
static void op_pvalloc(void) { use(m.pvalloc(100), 100); }
static void op_usable_size_null(void) { MUST(m.usable_size(NULL) == 0); }
static void op_trim(void) { m.trim(0); }
#if FAMILY_QUARRY
static void op_heap(void) {
    quarry_heap_t *h = quarry_heap_create(NULL);
    MUST(h && quarry_heap_alloc(h, 100));
    quarry_heap_destroy(h);
}
static void op_stats_read(void) {
    quarry_stats_t stats;
    quarry_stats_read(&stats);
}
static void op_stats_write(void) { MUST(quarry_stats_write(1, 1) == 0); }
static void op_version(void) { MUST(quarry_version()[0]); }
#else
static void op_mallinfo2(void) { mallinfo2(); }
static void op_mallopt(void) { mallopt(M_MMAP_THRESHOLD, 1 << 20); }
static void op_malloc_stats(void) { malloc_stats(); }
#endif
#define OP(name) \
    { #name, op_##name }
typedef struct op {
    const char *name;
    void (*run)(void);
} op_t;
static const op_t ops[] = {
    OP(malloc),
    OP(malloc_zero),
    OP(malloc_medium),
    OP(malloc_large),
    OP(malloc_huge),
    OP(malloc_too_much),
    OP(calloc),
    OP(calloc_large),
    OP(realloc),
    OP(realloc_large),
    OP(reallocarray),
    OP(free_null),
    OP(free_sized_null),
    OP(free_aligned_null),
    OP(aligned_alloc),
    OP(aligned_alloc_huge),
    OP(aligned_alloc_bad),
    OP(posix_memalign),
    OP(memalign),
    OP(valloc),
    OP(pvalloc),
    OP(usable_size_null),
    OP(trim),
#if FAMILY_QUARRY
    OP(heap),
    OP(stats_read),
    OP(stats_write),
    OP(version),
#else
    OP(mallinfo2),
    OP(mallopt),
    OP(malloc_stats),
#endif
};
enum { OP_COUNT = sizeof ops / sizeof *ops };
static const char *const places[] = {"preinit", "constructor", "main", "thread", "key", "last_key", "atfork", "child",
    "child_thread", "atexit", "destructor"};
enum { PLACES = sizeof places / sizeof *places };

// ---- in the fresh process: argv is "first" OP PLACE ---------------------------------------------------

static int op = -1;
static const char *place = "";
static pid_t of_process;

// Do it, if this is the place; then all other operations must work, too.
static void here(const char *name) {
    if (op < 0 || strcmp(name, place)) return;
    int first = op;
    op = -1;
    ops[first].run();
    for (int i = 0; i < OP_COUNT; i++) {
        if (strcmp(ops[i].name, "malloc_stats")) ops[i].run();
    }
    if (!strcmp(place, "atfork") || !strcmp(place, "child") || !strcmp(place, "child_thread"))
        _exit(getpid() == of_process ? 101 : 42);
    _exit(42);
}

static void preinit(int argc, char **argv, char **env) {
    if (!environ) environ = env;  // libc sets it later than this
    if (argc != 4 || strcmp(argv[1], "first")) return;
    place = argv[3];
    op = atoi(argv[2]);
#if !FAMILY_QUARRY && !FAMILY_LINKED
    // The table's constructor comes later than this.
    family_look_up();
#endif
    here("preinit");
}
// musl calls no functions before constructors, and these without arguments.
static void without_preinit(void) {
#ifndef __GLIBC__
    static char text[4200];
    char *argv[5] = {text};
    int argc = 0, fd = open("/proc/self/cmdline", O_RDONLY);
    ssize_t n = read(fd, text, sizeof text - 1);
    for (ssize_t i = 0; i < n && argc < 4; i += (ssize_t)strlen(text + i) + 1) argv[argc++] = text + i;
    close(fd);
    preinit(argc, argv, NULL);
#endif
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit_entry)(int, char **, char **) = preinit;
__attribute__((constructor(101))) static void constructor(void) {
    if (!*place) without_preinit();
    here("constructor");
}
__attribute__((destructor(101))) static void destructor(void) { here("destructor"); }
static void at_exit(void) { here("atexit"); }
static void at_fork(void) { here("atfork"); }

static pthread_key_t key;
static int key_round;
static void key_destructor(void *value) {
    if (key_round++ == 0) here("key");
    // A sanitizer is gone in the very last round.
    if (key_round == PTHREAD_DESTRUCTOR_ITERATIONS - FAMILY_SANITIZED) here("last_key");
    pthread_setspecific(key, value);
}
static void *in_thread(void *arg) {
    here(arg);
    pthread_setspecific(key, &key);
    return NULL;
}
static void run_thread(const char *name) {
    pthread_t thread;
    MUST(pthread_create(&thread, NULL, in_thread, (void *)(uintptr_t)name) == 0);
    pthread_join(thread, NULL);
}

static int fresh(void) {
    of_process = getpid();
    here("main");
    atexit(at_exit);
    if (!strcmp(place, "thread")) run_thread("thread");
    if (!strcmp(place, "key") || !strcmp(place, "last_key")) {
        pthread_key_create(&key, key_destructor);
        run_thread("none");
    }
    if (!strcmp(place, "atfork") || !strncmp(place, "child", 5)) {
        pthread_atfork(NULL, NULL, at_fork);
        pid_t pid = fork();
        if (pid == 0) {
            here("child");
            run_thread("child_thread");
            _exit(102);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 103);
    }
    return 99;  // through atexit and destructors
}

// ---- the matrix -----------------------------------------------------------------------------------------

TEST(matrix) {
    for (int p = 0; p < PLACES; p++) {
#ifndef __GLIBC__
        if (!strcmp(places[p], "preinit")) continue;  // musl calls no such functions
#endif
        for (int o = 0; o < OP_COUNT; o++) {
            // A process of a sanitizer takes long to start: a third of them, another third next time.
            if (FAMILY_SANITIZED && (unsigned)(p + o + (int)(test_seed % 3)) % 3) continue;
            char number[12];
            snprintf(number, sizeof number, "%d", o);
            char *argv[] = {NULL, (char *)"first", number, (char *)(uintptr_t)places[p], NULL};
            rerun_t r = rerun(argv, 0);
            if (!WIFEXITED(r.status) || WEXITSTATUS(r.status) != 42)
                TEST_FAIL("%s first, in %s: %s %.200s", ops[o].name, places[p], rerun_end(&r), r.text);
        }
    }
}

int main(int argc, char **argv) { return op >= 0 ? fresh() : test_main(argc, argv); }
