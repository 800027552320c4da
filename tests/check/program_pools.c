// SPDX-License-Identifier: MIT
// program_pools.c: a fault in a pool, by name.
//
//   program_pools KIND FAULT SIZE
//
// Exit status 7, whatever is found. Misuse of a pool itself ends the process by SIGABRT.
#include <quarry/fifo.h>
#include <quarry/pages.h>
#include <quarry/persist.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/stack.h>
#include <quarry/tlsf.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static quarry_pool_t *pool;
static const char *kind, *fault;
static size_t size;

static int is(const char *what) { return !strcmp(fault, what); }

static __attribute__((noinline)) volatile char *made(void) {
    return quarry_pool_alloc(pool, size, strcmp(kind, "pages") ? 8 : 4096, 0);
}
static __attribute__((noinline)) void freed(void *p) { quarry_pool_free(pool, p, size); }
static __attribute__((noinline)) void wrong(void *p) { quarry_pool_free(pool, p, size); }
static __attribute__((noinline)) void resized(void *p) { quarry_pool_resize(pool, p, size, size + 8, 8, 0); }

// By functions of libc, into and out of the block.
static char other[1 << 16];
static __attribute__((noinline)) void copied_in(void *to, size_t n) { memcpy(to, other, n); }
static __attribute__((noinline)) void copied_out(const void *from, size_t n) { memcpy(other, from, n); }

static void live_faults(volatile char *p) {
    if (is("overflow")) p[size] = 1;
    if (is("underflow")) p[-1] = 1;
    if (is("copy-over")) copied_in((void *)p, size + 1);
    if (is("copy-under")) copied_in((void *)(p - 1), 2);
    if (is("copy-out-over")) copied_out((void *)p, size + 5);
    if (is("none")) copied_in((void *)p, size), copied_out((void *)p, size);
}
static void late_faults(volatile char *p) {
    if (is("write-after")) p[size / 2] = 1;
    if (is("copy-after")) copied_in((void *)(p + size / 2), 1);
    if (is("copy-out-after")) copied_out((void *)(p + size / 2), 1);
}

static void block_fault(void) {
    volatile char *p = made();
    live_faults(p);
    if (is("interior")) wrong((void *)(p + size / 2));
    if (is("invalid")) wrong((void *)&size);
    freed((void *)p);
    if (is("double")) wrong((void *)p);
    late_faults(p);
}

static quarry_stack_frame_t frame;
static __attribute__((noinline)) void popped(void) { quarry_stack_pop(pool, &frame); }

static void stack_fault(void) {
    quarry_stack_push(pool, &frame);
    volatile char *p = made();
    live_faults(p);
    if (is("wrong-frame")) {
        quarry_stack_frame_t inner;
        quarry_stack_push(pool, &inner);
        made();
        resized((void *)p);
        quarry_stack_pop(pool, &inner);
    }
    if (is("out-of-order")) {
        quarry_stack_frame_t inner;
        quarry_stack_push(pool, &inner);
        popped();
    }
    if (is("sealed")) {
        quarry_stack_seal(pool);
        made();
    }
    popped();
    late_faults(p);
    if (is("resize-after")) resized((void *)p);
    made();
}

static __attribute__((noinline)) void released(quarry_ring_frame_t f) { quarry_ring_release(f); }

static void ring_fault(void) {
    quarry_ring_frame_t f = quarry_ring_newframe(pool);
    volatile char *p = made();
    live_faults(p);
    quarry_ring_seal(pool);
    released(f);
    if (is("released-twice")) released(f);
    late_faults(p);
    if (is("resize-after")) {
        quarry_ring_frame_t other = quarry_ring_newframe(pool);
        resized((void *)p);
        quarry_ring_seal(pool);
        quarry_ring_release(other);
    }
}

static void persist_fault(void) {
    char path[] = "/tmp/program_pools_XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) exit(1);
    close(fd);
    quarry_persist_t *store = quarry_persist_open(
        path, &(quarry_persist_options_t){.pool.name = "checked", .flags = QUARRY_PERSIST_CREATE});
    unlink(path);
    if (!store) exit(1);
    pool = quarry_persist_pool(store);
    block_fault();
    quarry_persist_close(store);
}

// The only pointer to a block of malloc lies in a block of the pool. That lives until the end, and there is a pointer
// to its begin, to a place within it, from a block that is lost, or none.
static void *volatile kept;
static void destroy(void) { quarry_pool_destroy(pool); }
static __attribute__((noinline)) void hold(void) {
    static quarry_stack_frame_t lasting;
    quarry_ring_frame_t f = {0};
    if (!strcmp(kind, "stack")) quarry_stack_push(pool, &lasting);
    if (!strcmp(kind, "ring")) f = quarry_ring_newframe(pool);
    void *p = (void *)made();
    memset(p, 0, size);
    *(void **)p = malloc(77);
    if (!strcmp(kind, "ring")) quarry_ring_seal(pool);
    if (is("holds")) kept = p;
    if (is("holds-within")) kept = (char *)p + 8;
    if (is("holds-lost")) *(void *volatile *)calloc(1, 88) = p;
    if (is("ends")) atexit(destroy);
    if (strcmp(fault, "drops")) return;
    if (!strcmp(kind, "stack")) quarry_stack_pop(pool, &lasting);
    else if (!strcmp(kind, "ring")) quarry_ring_release(f);
    else freed(p);
}

// What is left of pointers on the stack and in registers goes away.
static __attribute__((noinline)) void forget(void) {
    volatile char big[8192];
    for (size_t i = 0; i < sizeof big; i++) big[i] = 0;
}

// From another pool, which has it from malloc, so that blocks lie within blocks within blocks.
static quarry_pool_t *parent_of(const char *what) {
    if (strcmp(what, "nested")) return NULL;
    quarry_pool_t *outer = quarry_pow2_create(&(quarry_pow2_options_t){.pool.parent = quarry_libc_pool()});
    return quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = {.name = "outer", .parent = outer}});
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) {
        fputs("usage: program_pools stack|ring|fifo|tlsf|pow2|pages|persist FAULT SIZE [nested]\n", stderr);
        return 2;
    }
    kind = argv[1], fault = argv[2], size = (size_t)atol(argv[3]);
    const quarry_pool_options_t named = {.name = "checked", .parent = argc == 5 ? parent_of(argv[4]) : NULL};
    if (!strcmp(kind, "stack")) pool = quarry_stack_create(&(quarry_stack_options_t){.pool = named});
    if (!strcmp(kind, "ring")) pool = quarry_ring_create(&(quarry_ring_options_t){.pool = named});
    if (!strcmp(kind, "fifo")) pool = quarry_fifo_create(&(quarry_fifo_options_t){.pool = named});
    if (!strcmp(kind, "tlsf")) pool = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = named});
    if (!strcmp(kind, "pow2")) pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool = named});
    if (!strcmp(kind, "pages")) pool = quarry_pages_create(&(quarry_pages_options_t){.pool = named});
    if (!strcmp(kind, "persist")) {
        persist_fault();
        return 7;
    }
    if (!pool) return 1;
    if (!strncmp(fault, "holds", 5) || is("drops") || is("loses") || is("ends")) {
        hold();
        forget();
        return 7;
    }
    (!strcmp(kind, "stack") ? stack_fault : !strcmp(kind, "ring") ? ring_fault
                                                                  : block_fault)();
    quarry_pool_destroy(pool);
    if (is("destroyed")) made();
    return 7;
}
