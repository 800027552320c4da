// SPDX-License-Identifier: MIT
// test_misuse_kinds.c: what a checked pool finds, on every kind: overflow, use after the end, double free, and pools
// that are left. With canaries, and with pages without access, where the processor finds it at the instruction.
#include <quarry/pow2.h>

#include "captured.h"
#include "kinds.h"
#include "os/os.h"
#include "pool/filling.h"
#include "pool/node.h"
#include "pool/observe.h"
#include "pool/pool.h"

pool_kind_t *pool_kinds;

enum { BYTES = 40 };

static pool_kind_t *kind;
static unsigned flags;
static const char *fault;  // NULL: SIGSEGV

static quarry_pool_t *checked(void) {
    quarry_pool_t *pool = kind->create(&(quarry_pool_options_t){.name = "checked", .flags = flags});
    CHECK(pool);
    if (kind->begin) kind->begin(pool);
    return pool;
}
static char *message(quarry_pool_t *pool) {
    char *p = quarry_pool_alloc(pool, BYTES, 8, 0);
    CHECK(p);
    memset(p, 'm', BYTES);
    return p;
}
static bool frees(quarry_pool_t *pool) { return quarry_pool_capabilities(pool) & QUARRY_POOL_FREES; }
// Its block ends, alone or with its frame.
static void end_of(quarry_pool_t *pool, char *p) {
    if (kind->end) kind->end(pool);
    else quarry_pool_free(pool, p, BYTES);
}
static void leave(quarry_pool_t *pool) {
    if (kind->destroy) kind->destroy(pool);
    else quarry_pool_destroy(pool);
}

// A process that was ended by SIGSEGV says which: of memory that is mapped without access, or of no memory.
static void on_fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    static const char denied[] = "denied\n", nothing[] = "nothing\n";
    bool is_denied = info->si_code == SEGV_ACCERR;
    if (write(2, is_denied ? denied : nothing, is_denied ? sizeof denied - 1 : sizeof nothing - 1) < 0) {}
    _exit(signal);
}
static void watch_faults(void) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, NULL);
}

static void nothing_wrong(void *arg) {
    (void)arg;
    quarry_pool_t *pool = checked();
    char *p = message(pool), *q = quarry_pool_resize(pool, message(pool), BYTES, 3 * BYTES, 8, 0);
    CHECK(q && q[BYTES - 1] == 'm' && p[BYTES - 1] == 'm');
    q[3 * BYTES - 1] = 'x';
    CHECK_EQ(quarry_pool_check(pool), 0);
    for (int i = 0; i < 3000; i++) end_of(pool, message(pool)), kind->begin ? kind->begin(pool) : (void)0;
    if (kind->end) kind->end(pool);
    leave(pool);
}
static void overflow_write(void *arg) {
    (void)arg;
    quarry_pool_t *pool = checked();
    char *p = message(pool);
    *(volatile char *)(p + BYTES) = 'x';
    end_of(pool, p);
    leave(pool);
}
static void overflow_read(void *arg) {
    (void)arg;
    char *p = message(checked());
    _exit(*(volatile char *)(p + BYTES) == 'x');
}
static void underflow(void *arg) {
    (void)arg;
    quarry_pool_t *pool = checked();
    char *p = message(pool);
    *(volatile char *)(p - 1) = 'x';
    end_of(pool, p);
    leave(pool);
}
static void late_read(void *arg) {
    (void)arg;
    quarry_pool_t *pool = checked();
    char *p = message(pool);
    end_of(pool, p);
    _exit(*(volatile char *)p == 'm');
}
static void late_write(void *arg) {
    (void)arg;
    quarry_pool_t *pool = checked();
    char *p = message(pool);
    end_of(pool, p);
    *(volatile char *)p = 'x';
    leave(pool);
}
// Of a long block both ends are looked at, however far its alignment sets it from the memory's begin.
typedef struct late {
    size_t size, alignment, at;
} late_t;
static void late_write_far(void *arg) {
    const late_t *late = arg;
    quarry_pool_t *pool = checked();
    char *p = quarry_pool_alloc(pool, late->size, late->alignment, 0);
    CHECK(p);
    quarry_pool_free(pool, p, late->size);
    *(volatile char *)(p + late->at) = 'x';
    leave(pool);
}
static void twice(void *arg) {
    (void)arg;
    quarry_pool_t *pool = checked();
    char *p = message(pool);
    quarry_pool_free(pool, p, BYTES);
    quarry_pool_free(pool, p, BYTES);
}
static void of_another(void *arg) {
    (void)arg;
    static char other[BYTES];
    quarry_pool_free(checked(), other, BYTES);
}

static void is_found_of(void (*body)(void *), void *arg, const char *what) {
    captured_t c = capture(body, arg);
    bool found = fault ? c.exit_signal == SIGABRT && strstr(c.text, fault)
                       : c.exit_code == SIGSEGV && strstr(c.text, "denied");
    if (!found)
        TEST_FAIL("%s of %s: exit %d, signal %d, said %.300s", what, kind->name, c.exit_code, c.exit_signal, c.text);
}
static void is_found(void (*body)(void *), const char *what) { is_found_of(body, NULL, what); }

static void long_block_is_found(quarry_pool_t *pool, size_t alignment) {
    if (pool->ops->max_alignment < alignment) return;
    static const size_t sizes[] = {8160, 8192, 12288, 12345, 40000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t at[] = {0, 1000, QY_FILLED - QY_REDZONE - 1, sizes[i] - QY_FILLED + 2 * QY_REDZONE, sizes[i] - 1};
        for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
            late_t late = {.size = sizes[i], .alignment = alignment, .at = at[k]};
            char what[100];
            snprintf(what, sizeof what, "a late write at %zu of %zu bytes at %zu", at[k], sizes[i], alignment);
            is_found_of(late_write_far, &late, what);
        }
    }
}

// How many kinds were tried.
static int for_each_kind(unsigned checked_flags, void (*try)(quarry_pool_t *pool)) {
    int tried = 0;
    flags = checked_flags;
    for (kind = pool_kinds; kind; kind = kind->next) {
        quarry_pool_t *pool = kind->create(&(quarry_pool_options_t){.flags = flags});
        CHECK(pool);
        bool observed = pool->mode & QY_MODE_GUARD;
        if (observed) try(pool), tried++;
        else printf("  %s: passes blocks on, and is not checked\n", kind->name);
        leave(pool);
    }
    return tried;
}

static void try_canaries(quarry_pool_t *pool) {
    run_apart(nothing_wrong, NULL);
    fault = "overwritten canary";
    is_found(overflow_write, "an overflow");
    is_found(underflow, "an underflow");
    fault = "invalid free";
    is_found(of_another, "a block of another");
    if (!frees(pool)) return;
    fault = "double free";
    is_found(twice, "a double free");
    if (kind->end) return;
    fault = "write after free";
    is_found(late_write, "a late write");
    for (size_t alignment = 16; alignment <= 1 << 16; alignment *= 16) long_block_is_found(pool, alignment);
}
TEST(canaries_on_every_kind) { CHECK_GE(for_each_kind(QUARRY_POOL_GUARD, try_canaries), 7); }

static void try_fences(quarry_pool_t *pool) {
    run_apart(nothing_wrong, NULL);
    fault = NULL;
    is_found(overflow_write, "an overflow");
    is_found(overflow_read, "a read beyond the end");
    is_found(late_read, "a late read");
    is_found(late_write, "a late write");
    fault = "overwritten canary";
    is_found(underflow, "an underflow");
    fault = "invalid free";
    is_found(of_another, "a block of another");
    if (!frees(pool)) return;
    fault = "double free";
    is_found(twice, "a double free");
}
TEST(fences_on_every_kind) {
    watch_faults();
    CHECK_GE(for_each_kind(QUARRY_POOL_FENCE, try_fences), 7);
}

// A block whose alignment is less than its size reaches to the fence but for what the alignment leaves.
TEST(a_block_ends_at_its_fence) {
    watch_faults();
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.flags = QUARRY_POOL_FENCE});
    CHECK(pool);
    size_t page = qy_os_page_size();
    static const size_t sizes[] = {0, 1, 7, 24, 4095, 4096, 4097, 100001};
    for (size_t align = 1; align <= 1 << 20; align *= 4)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            char *p = quarry_pool_alloc(pool, sizes[i], align, QUARRY_POOL_ZERO);
            CHECK(p && (uintptr_t)p % align == 0);
            size_t end = (uintptr_t)p + (sizes[i] ? sizes[i] : 1), rest = (size_t)-end % page;
            CHECK_LT(rest, align < page ? align : page);
            for (size_t k = 0; k < sizes[i]; k += 97) CHECK_EQ(p[k], 0);
            quarry_pool_free(pool, p, sizes[i]);
        }
    CHECK_EQ(quarry_pool_check(pool), 0);
    quarry_pool_destroy(pool);
}

// What is left of a pool is said when its process ends (QUARRY_CONF of this test has pool_report:on).
static void left(void *arg) {
    (void)arg;
    flags = 0;
    message(checked());
    exit(0);
}
TEST(what_is_left_of_every_kind_is_named) {
    for (kind = pool_kinds; kind; kind = kind->next) {
        if (!strcmp(kind->name, "libc")) continue;  // one for the whole process, which never ends
        captured_t c = capture(left, NULL);
        if (c.exit_code || !strstr(c.text, "checked"))
            TEST_FAIL("%s: exit %d, said %.300s", kind->name, c.exit_code, c.text);
    }
}

TEST_MAIN()
