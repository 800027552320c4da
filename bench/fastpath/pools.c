// SPDX-License-Identifier: MIT
// pools.c: the operations of pools that scripts/fastpath.py counts the instructions of.
//
//   fastpath_pools COUNT
//
// Each operation is a function of its own, which callgrind knows by its name and which is called COUNT times: what is
// counted is what the compiler makes of the public header in a function that does nothing else, with its call and its
// return.
#include <quarry/fifo.h>
#include <quarry/ring.h>
#include <quarry/scope.h>
#include <quarry/tlsf.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIVE = 64,  // blocks or messages alive, so that they end in the order in which they were made, but later
    SIZE = 48 };

#ifdef __clang__
#define COUNTED static __attribute__((noinline))  // makes no clones
#else
#define COUNTED static __attribute__((noinline, noclone))
#endif

static quarry_pool_t *stack, *fifo, *ring, *tlsf;

// Keeps the compiler from seeing that nothing is done with the block.
static inline void use(void *p) { __asm__ volatile("" ::"r"(p)
                                                   : "memory"); }

COUNTED void *t_count_new(void) { return t_new(char, SIZE); }
COUNTED void *t_count_new_raw(void) { return t_new_raw(char, SIZE); }
COUNTED void count_scope(void) {
    t_scope;
    __asm__ volatile("" ::
                         : "memory");
}

// Within another scope, as nearly all are: the first block of a thread's outermost one finds no chunk open and takes
// the slow path.
static void scopes(long count) {
    t_scope;
    use(t_new_raw(char, 1));
    for (long i = 0; i < count; i++) {
        t_scope;
        use(t_count_new());
        use(t_count_new_raw());
        count_scope();
    }
}

COUNTED void count_push(quarry_stack_frame_t *frame) { quarry_stack_push(stack, frame); }
COUNTED void count_pop(quarry_stack_frame_t *frame) { quarry_stack_pop(stack, frame); }
COUNTED void *count_stack_alloc(void) { return quarry_stack_alloc(stack, SIZE, 8, 0); }

static void frames(long count) {
    quarry_stack_frame_t frame;
    for (long i = 0; i < count; i++) {
        count_push(&frame);
        use(count_stack_alloc());
        count_pop(&frame);
    }
}

COUNTED void *count_fifo_alloc(void) { return quarry_fifo_alloc(fifo, SIZE, 8, 0); }
COUNTED void count_fifo_free(void *p) { quarry_fifo_free(fifo, p, SIZE); }

static void queue(long count) {
    void *places[LIVE] = {NULL};
    for (long i = 0; i < count; i++) {
        if (places[i % LIVE]) count_fifo_free(places[i % LIVE]);
        places[i % LIVE] = count_fifo_alloc();
    }
    for (int i = 0; i < LIVE; i++) quarry_pool_free(fifo, places[i], SIZE);
}

COUNTED quarry_ring_frame_t count_ring_newframe(void) { return quarry_ring_newframe(ring); }
COUNTED void *count_ring_alloc(void) { return quarry_ring_alloc(ring, SIZE, 8, 0); }
COUNTED void count_ring_seal(void) { quarry_ring_seal(ring); }
COUNTED void count_ring_release(quarry_ring_frame_t frame) { quarry_ring_release(frame); }

static void messages(long count) {
    quarry_ring_frame_t open[LIVE];
    for (long i = 0; i < count; i++) {
        if (i >= LIVE) count_ring_release(open[i % LIVE]);
        open[i % LIVE] = count_ring_newframe();
        use(count_ring_alloc());
        count_ring_seal();
    }
    for (long i = count < LIVE ? 0 : count - LIVE; i < count; i++) quarry_ring_release(open[i % LIVE]);
}

COUNTED void *count_tlsf_alloc(size_t size) { return quarry_pool_alloc(tlsf, size, 16, 0); }
COUNTED void *count_tlsf_resize(void *p, size_t old_size, size_t size) {
    return quarry_pool_resize(tlsf, p, old_size, size, 16, 0);
}
COUNTED void count_tlsf_free(void *p, size_t size) { quarry_pool_free(tlsf, p, size); }

// Sizes by chance, always the same chance, so that there are holes of all sizes: blocks are split and joined.
static size_t some_size(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return 16 + (*state >> 22);
}

static void holes(long count) {
    struct {
        void *p;
        size_t size;
    } places[LIVE] = {{NULL, 0}};
    uint32_t state = 1;
    for (long i = 0; i < count; i++) {
        const size_t at = some_size(&state) % LIVE, size = some_size(&state), other = some_size(&state);
        if (places[at].p) count_tlsf_free(places[at].p, places[at].size);
        places[at].p = count_tlsf_resize(count_tlsf_alloc(size), size, other);
        places[at].size = other;
    }
}

int main(int argc, char **argv) {
    const long count = argc == 2 ? strtol(argv[1], NULL, 10) : 0;
    if (count < 1) {
        fputs("usage: fastpath_pools COUNT\n", stderr);
        return 2;
    }
    stack = quarry_stack_create(NULL);
    fifo = quarry_fifo_create(NULL);
    ring = quarry_ring_create(NULL);
    tlsf = quarry_tlsf_create(NULL);
    if (!stack || !fifo || !ring || !tlsf) {
        fputs("fastpath_pools: out of memory\n", stderr);
        return 1;
    }
    scopes(count);
    frames(count);
    queue(count);
    messages(count);
    holes(count);
    quarry_pool_destroy(stack);
    quarry_pool_destroy(fifo);
    quarry_pool_destroy(ring);
    quarry_pool_destroy(tlsf);
    return 0;
}
