// SPDX-License-Identifier: MIT
// test_guarded.c: errors at blocks that option guard guards, in production: each kind is told with the stacks of the
// use, the free and the allocation, and the process ends as it would have ended without the report.
//
// The option is guard:1: a request is drawn but for one in e^n. Each case is a child, where the site of `make` is new.
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

#include "api/family.h"
#include "captured.h"

// A function's code is all within so many bytes from its beginning, and nothing else is.
#define CODE 1024
#ifdef __clang__
#define OWN_CODE __attribute__((noinline, aligned(CODE)))
#else
#define OWN_CODE __attribute__((noinline, noclone, aligned(CODE)))
#endif

#define BYTES 40

OWN_CODE static char *make(void) {
    char *p = m.malloc(BYTES);
    __asm__ volatile("" ::
                         : "memory");
    return p;
}
OWN_CODE static void drop(char *p) {
    m.free(p);
    __asm__ volatile("" ::
                         : "memory");
}
OWN_CODE static void load(volatile char *p) {
    (void)*p;
    __asm__ volatile("" ::
                         : "memory");
}
OWN_CODE static void store(volatile char *p) {
    *p = 1;
    __asm__ volatile("" ::
                         : "memory");
}
OWN_CODE static void *resize(char *p) {
    p = m.realloc(p, 2 * BYTES);
    __asm__ volatile("" ::
                         : "memory");
    return p;
}

static size_t page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static bool has_access(const char *p) {
    static int fds[2] = {-1, -1};
    char byte;
    if (fds[0] < 0) CHECK_EQ(pipe(fds), 0);
    return write(fds[1], p, 1) == 1 && read(fds[0], &byte, 1) == 1;
}

// A guarded one, on a page without neighbours, that begins there or ends there.
static char *make_at(bool begins) {
    for (int i = 0; i < 1000; i++) {
        char *p = make();
        char *there = p - (uintptr_t)p % page();
        bool right = begins ? p == there : p + 48 == there + page();
        if (right && !has_access(there - 1) && !has_access(there + page())) return p;
        m.free(p);
    }
    TEST_FAIL("no block %s at a page", begins ? "begins" : "ends");
}

// ---- what was told ------------------------------------------------------------------------------------------

static int first_object(struct dl_phdr_info *info, size_t size, void *ret) {
    (void)size;
    *(uintptr_t *)ret = info->dlpi_addr;
    return 1;
}

// Does the line of this word name the function? Its addresses are of files: ours is the one whose name is `program`.
static bool names(const char *text, const char *word, void (*function)(void)) {
    char begin[80], own[64];
    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    snprintf(begin, sizeof begin, "quarry: note: %s by thread ", word);
    snprintf(own, sizeof own, " %s+0x", program_invocation_short_name);
    const char *line = strstr(text, begin), *end = line ? strchr(line, '\n') : NULL;
    for (const char *at = line; at && (at = strstr(at, own)) && at < end; at++) {
        uintptr_t pc = base + strtoul(at + strlen(own), NULL, 16);
        if (pc - (uintptr_t)function < CODE) return true;
    }
    return false;
}
#define MUST_NAME(text, word, function)                                        \
    do {                                                                       \
        if (!names(text, word, (void (*)(void))(function)))                    \
            TEST_FAIL("no %s in what was %s: %.1500s", #function, word, text); \
    } while (0)

static captured_t must_end(void (*body)(void *), int by, const char *line) {
    captured_t c = capture(body, NULL);
    if (c.exit_signal != by || !strstr(c.text, line))
        TEST_FAIL("wanted signal %d and \"%s\", got signal %d, exit %d: %.1500s", by, line, c.exit_signal, c.exit_code,
            c.text);
    return c;
}

#define NEEDS_FAULTS() \
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they have a handler of their own")
// Without call stacks all blocks of one size are of one site, and only the first is guarded for sure.
#if defined(__GLIBC__)
#define NEEDS_STACKS()
#else
#define NEEDS_STACKS() TEST_SKIP("needs a C library that lets malloc unwind its callers")
#endif

// ---- accesses -----------------------------------------------------------------------------------------------

static void reads_freed(void *unused) {
    (void)unused;
    char *p = make();
    drop(p);
    load(p + 3);
}
TEST(use_after_free_read) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    captured_t c = must_end(reads_freed, SIGSEGV, ", 3 bytes into a freed block of 40 bytes at 0x");
    CHECK(strstr(c.text, "quarry: use-after-free-read: 0x"));
    MUST_NAME(c.text, "used", load);
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

static void writes_freed(void *unused) {
    (void)unused;
    char *p = make();
    drop(p);
    store(p);
}
TEST(use_after_free_write) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    captured_t c = must_end(writes_freed, SIGSEGV, ", 0 bytes into a freed block of 40 bytes at 0x");
    CHECK(strstr(c.text, "quarry: use-after-free-write: 0x"));
    MUST_NAME(c.text, "used", store);
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

static void uses_moved(void *unused) {
    (void)unused;
    char *p = make();
    resize(p);
    load(p);
}
TEST(use_of_what_was_moved) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    captured_t c = must_end(uses_moved, SIGSEGV, "quarry: use-after-free-read: 0x");
    MUST_NAME(c.text, "freed", resize);
    MUST_NAME(c.text, "allocated", make);
}

static void reads_behind(void *unused) {
    (void)unused;
    load(make_at(false) + 48);
}
static void writes_behind(void *unused) {
    (void)unused;
    store(make_at(false) + 50);
}
static void reads_before(void *unused) {
    (void)unused;
    load(make_at(true) - 1);
}
static void writes_before(void *unused) {
    (void)unused;
    store(make_at(true) - 4);
}
static void must_end_beside(void (*body)(void *), const char *line, void (*use)(volatile char *p)) {
    captured_t c = must_end(body, SIGSEGV, line);
    MUST_NAME(c.text, "used", use);
    MUST_NAME(c.text, "allocated", make);
    CHECK(!strstr(c.text, "freed"));
}
TEST(overflow_and_underflow) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    must_end_beside(reads_behind, ", 8 bytes behind a block of 40 bytes at 0x", load);
    must_end_beside(reads_behind, "quarry: overflow-read: 0x", load);
    must_end_beside(writes_behind, ", 10 bytes behind a block of 40 bytes at 0x", store);
    must_end_beside(writes_behind, "quarry: overflow-write: 0x", store);
    must_end_beside(reads_before, ", 1 byte before a block of 40 bytes at 0x", load);
    must_end_beside(reads_before, "quarry: underflow-read: 0x", load);
    must_end_beside(writes_before, ", 4 bytes before a block of 40 bytes at 0x", store);
    must_end_beside(writes_before, "quarry: underflow-write: 0x", store);
}

static void reads_freed_of_a_rare_size(void *unused) {
    (void)unused;
    volatile char *p = m.malloc(7777);
    m.free((void *)p);
    load(p + 5000);
}
TEST(also_without_call_stacks) {
    NEEDS_FAULTS();
    captured_t c = must_end(reads_freed_of_a_rare_size, SIGSEGV, ", 5000 bytes into a freed block of 7777 bytes at 0x");
    CHECK(strstr(c.text, "quarry: note: freed by thread "));
    CHECK(strstr(c.text, "quarry: note: allocated by thread "));
}

// ---- frees --------------------------------------------------------------------------------------------------

static void frees_twice(void *unused) {
    (void)unused;
    char *p = make();
    drop(p);
    drop(p);
}
TEST(double_free) {
    NEEDS_STACKS();
    captured_t c = must_end(frees_twice, SIGABRT, "quarry: double free: 0x");
    MUST_NAME(c.text, "freed again", drop);
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

static void frees_inside(void *unused) {
    (void)unused;
    drop(make() + 16);
}
TEST(free_of_an_interior_pointer) {
    NEEDS_STACKS();
    captured_t c = must_end(frees_inside, SIGABRT, "quarry: free of an interior pointer: 0x");
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

static void frees_behind(void *unused) {
    (void)unused;
    drop(make_at(false) + 48);
}
TEST(free_of_what_is_no_block) {
    NEEDS_STACKS();
    captured_t c = must_end(frees_behind, SIGABRT, "quarry: invalid free: 0x");
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

static void resizes_freed(void *unused) {
    (void)unused;
    char *p = make();
    drop(p);
    resize(p);
}
TEST(realloc_of_what_was_freed) {
    NEEDS_STACKS();
    captured_t c = must_end(resizes_freed, SIGABRT, "quarry: double free: 0x");
    MUST_NAME(c.text, "freed again", resize);
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

// ---- the program's own handler ------------------------------------------------------------------------------

static void own_handler(int sig) {
    (void)sig;
    _exit(7);
}
static void has_a_handler(void *unused) {
    CHECK(signal(SIGSEGV, own_handler) != SIG_ERR);
    reads_freed(unused);
}
static char *volatile nowhere;
static void faults_elsewhere(void *unused) {
    (void)unused;
    CHECK(signal(SIGSEGV, own_handler) != SIG_ERR);
    drop(make());
    load(nowhere);
}
// One that was there before the first guarded block. A later one comes in the place of ours.
TEST(the_programs_handler_comes_after_the_report) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    captured_t c = capture(has_a_handler, NULL);
    CHECK_EQ(c.exit_code, 7);
    CHECK(strstr(c.text, "quarry: use-after-free-read: 0x"));
    MUST_NAME(c.text, "allocated", make);
    c = capture(faults_elsewhere, NULL);
    CHECK_EQ(c.exit_code, 7);
    CHECK_EQ(c.length, 0);
}

// ---- fork and threads ---------------------------------------------------------------------------------------

// The parent has its block as before.
static void child_uses_parents(void *unused) {
    (void)unused;
    char *p = make();
    pid_t child = fork();
    if (child == 0) {
        drop(p);
        store(p + 1);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    store(p);
    drop(p);
}
TEST(a_child_reports_its_parents_block) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    captured_t c = capture(child_uses_parents, NULL);
    CHECK_EQ(c.exit_code, 0);
    CHECK(strstr(c.text, "quarry: use-after-free-write: 0x"));
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
}

static void *drops(void *p) {
    drop(p);
    return NULL;
}
static void another_thread_frees(void *unused) {
    (void)unused;
    char *p = make();
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, drops, p), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    store(p);
}
TEST(another_thread_freed_it) {
    NEEDS_STACKS();
    NEEDS_FAULTS();
    captured_t c = must_end(another_thread_frees, SIGSEGV, "quarry: use-after-free-write: 0x");
    MUST_NAME(c.text, "used", store);
    MUST_NAME(c.text, "freed", drop);
    MUST_NAME(c.text, "allocated", make);
    const char *freed = strstr(c.text, "note: freed by"), *made = strstr(c.text, "note: allocated by");
    CHECK_NE(atoi(freed + strlen("note: freed by thread ")), atoi(made + strlen("note: allocated by thread ")));
}

// ---- going on -----------------------------------------------------------------------------------------------

static unsigned count(const char *text, const char *word) {
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, word)); at++) n++;
    return n;
}
static void errs_and_goes_on(void *unused) {
    (void)unused;
    char *p = make();
    drop(p);
    for (int i = 0; i < 10; i++) store(p + i);
    drop(p);
    drop(make() + 16);
    p = make();
    drop(p);
    char *q = resize(p);
    CHECK(q != NULL);
    memset(q, 1, 80);
    drop(q);
    p = make();
    memset(p, 1, BYTES);
    drop(p);
}
// Not a test of its own: run with guard_go_on:on.
TEST(goes_on) {
    NEEDS_STACKS();
    const char *conf = getenv("QUARRY_CONF");
    if (!conf || !strstr(conf, "guard_go_on")) TEST_SKIP("needs QUARRY_CONF=guard:1,guard_go_on:on");
    NEEDS_FAULTS();
    captured_t c = capture(errs_and_goes_on, NULL);
    if (c.exit_code != 0) TEST_FAIL("exit %d, signal %d: %.1500s", c.exit_code, c.exit_signal, c.text);
    CHECK_EQ(count(c.text, "quarry: use-after-free-write: 0x"), 1);
    CHECK_EQ(count(c.text, "quarry: double free: 0x"), 2);
    CHECK_EQ(count(c.text, "quarry: free of an interior pointer: 0x"), 1);
}

// ---- without it ---------------------------------------------------------------------------------------------

static int lines_of_maps(void) {
    static char text[1 << 16];
    FILE *maps = fopen("/proc/self/maps", "r");
    int n = 0;
    while (maps && fgets(text, sizeof text, maps)) n++;
    if (maps) fclose(maps);
    return n;
}
// Run with guard:1g, or without the option.
TEST(nothing_is_there_before_it_is_needed) {
    const char *conf = getenv("QUARRY_CONF");
    if (conf && !strstr(conf, "guard:1g")) TEST_SKIP("needs another QUARRY_CONF, or none");
    NEEDS_FAULTS();
    drop(make());
    int lines = lines_of_maps();
    for (int i = 0; i < 1000; i++) drop(make());
    struct sigaction now;
    CHECK_EQ(sigaction(SIGSEGV, NULL, &now), 0);
    CHECK(now.sa_handler == SIG_DFL);
    CHECK_EQ(lines_of_maps(), lines);
}

TEST_MAIN()
