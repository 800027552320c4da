// SPDX-License-Identifier: MIT
// whole_pages.c: what malloc and pools ask of the kernel is whole pages, at page boundaries. A tracer looks at each of
// their system calls for memory.
#include <quarry/fifo.h>
#include <quarry/pages.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/stack.h>
#include <quarry/tlsf.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "harness.h"

enum { BLOCKS = 400 };

// ---- what is traced ---------------------------------------------------------------------------------------

static size_t size_of(int i) { return (size_t)(i * i * 7 + 1) % 300001 + (i % 40 ? 0 : 5000001); }

static void with_malloc(void) {
    static void *blocks[BLOCKS];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(size_of(i));
            memset(blocks[i], 1, size_of(i) < 5000 ? size_of(i) : 5000);
        }
        for (int i = 0; i < BLOCKS; i += 3) blocks[i] = realloc(blocks[i], size_of(i) * 2 + 4097);
        for (int i = 0; i < BLOCKS; i += 7) free(blocks[i]), blocks[i] = calloc(3, size_of(i) / 2 + 1);
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
}

static void with_pool(quarry_pool_t *pool) {
    void *blocks[BLOCKS];
    quarry_stack_frame_t frame;
    quarry_ring_frame_t ring = 0;
    if (!pool) _exit(3);
    bool is_stack = !strcmp(quarry_pool_kind(pool), "stack"), is_ring = !strcmp(quarry_pool_kind(pool), "ring");
    if (is_stack) quarry_stack_push(pool, &frame);
    if (is_ring) ring = quarry_ring_newframe(pool);
    for (int i = 0; i < BLOCKS; i++)
        if (!(blocks[i] = quarry_pool_alloc(pool, size_of(i), 16, i & 1 ? QUARRY_POOL_ZERO : 0))) _exit(3);
    for (int i = 0; i < BLOCKS; i++) quarry_pool_free(pool, blocks[i], size_of(i));
    if (is_stack) quarry_stack_pop(pool, &frame);
    if (is_ring) quarry_ring_seal(pool), quarry_ring_release(ring);
    quarry_pool_destroy(pool);
}

static void with_pools(void) {
    with_pool(quarry_stack_create(NULL));
    with_pool(quarry_fifo_create(NULL));
    with_pool(quarry_ring_create(NULL));
    with_pool(quarry_tlsf_create(NULL));
    with_pool(quarry_pow2_create(NULL));
    with_pool(quarry_pages_create(NULL));
}

// ---- who looks --------------------------------------------------------------------------------------------

typedef struct seen {
    unsigned maps, unmaps, others;
} seen_t;

static void must_be_pages(const char *call, uint64_t addr, uint64_t bytes, uint64_t page) {
    if ((addr | bytes) % page)
        TEST_FAIL("%s of %llu bytes at %#llx", call, (unsigned long long)bytes, (unsigned long long)addr);
}

static void look(uint64_t number, const uint64_t *a, uint64_t page, seen_t *seen) {
    switch (number) {
    case SYS_mmap: must_be_pages("mmap", a[0], a[1], page), seen->maps++; break;
    case SYS_munmap: must_be_pages("munmap", a[0], a[1], page), seen->unmaps++; break;
    case SYS_mprotect: must_be_pages("mprotect", a[0], a[1], page), seen->others++; break;
    case SYS_madvise: must_be_pages("madvise", a[0], a[1], page), seen->others++; break;
    case SYS_mremap: must_be_pages("mremap", a[0] | (a[3] & 2 ? a[4] : 0), a[1] | a[2], page), seen->others++; break;
    case SYS_brk: must_be_pages("brk", a[0], 0, page); break;
    default: break;
    }
}

// The process is traced from its first call of `work` on. False: this kernel does not let it be traced.
static bool trace(void (*work)(void), seen_t *seen) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL)) _exit(77);
        raise(SIGSTOP);
        work();
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    if (!WIFSTOPPED(status)) return false;
    CHECK_EQ(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)), 0);
    for (;;) {
        struct __ptrace_syscall_info info;
        CHECK_EQ(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) break;
        if (!WIFSTOPPED(status) || WSTOPSIG(status) != (SIGTRAP | 0x80)) TEST_FAIL("status %#x", status);
        if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof info, &info) <= 0) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return false;
        }
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
            look(info.entry.nr, (const uint64_t *)info.entry.args, (uint64_t)sysconf(_SC_PAGESIZE), seen);
    }
    CHECK_EQ(WEXITSTATUS(status), 0);
    return true;
}

#define NEEDS_A_TRACER(work, seen) \
    if (!trace(work, seen)) TEST_SKIP("needs ptrace, and Linux 5.3")

TEST(malloc_asks_for_whole_pages) {
    seen_t seen = {0, 0, 0};
    NEEDS_A_TRACER(with_malloc, &seen);
    printf("  %u maps, %u unmaps, %u others\n", seen.maps, seen.unmaps, seen.others);
    CHECK_GT(seen.maps + seen.others, 3);
}

TEST(pools_ask_for_whole_pages) {
    seen_t seen = {0, 0, 0};
    NEEDS_A_TRACER(with_pools, &seen);
    printf("  %u maps, %u unmaps, %u others\n", seen.maps, seen.unmaps, seen.others);
    CHECK_GT(seen.maps, 6);
    CHECK_GT(seen.unmaps, 6);
}

TEST_MAIN()
