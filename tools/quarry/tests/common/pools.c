// SPDX-License-Identifier: MIT
// pools.c: a program whose pools are logged: two FIFOs, one of which gets its chunks from a TLSF, a ring frame by
// frame, and a child process that goes on with what it inherited. Argument: rounds. Prints the operations of each.
// The ring is in no list of pools, and left when the program ends.
#include <quarry/fifo.h>
#include <quarry/ring.h>
#include <quarry/tlsf.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW 1000
#define BYTES 500

static void *window[WINDOW];

// First in, first out, with a constant number of blocks; in the end all are freed. How many operations that was.
static long loop(quarry_pool_t *pool, long rounds) {
    for (long i = 0; i < rounds; i++) {
        quarry_pool_free(pool, window[i % WINDOW], BYTES);
        window[i % WINDOW] = quarry_pool_alloc(pool, BYTES, 8, 0);
        if (!window[i % WINDOW]) abort();
    }
    for (int i = 0; i < WINDOW; i++) {
        quarry_pool_free(pool, window[i], BYTES);
        window[i] = NULL;
    }
    return 2 * rounds;
}

// Two frames live at a time. Newframe, ten allocations and release are operations.
static long frames(quarry_pool_t *ring, long rounds) {
    quarry_ring_frame_t before = 0;
    for (long i = 0; i < rounds / 10; i++) {
        quarry_ring_frame_t frame = quarry_ring_newframe(ring);
        for (int k = 0; k < 10; k++)
            if (!quarry_pool_alloc(ring, 100, 8, 0)) abort();
        quarry_ring_seal(ring);
        if (before) quarry_ring_release(before);
        before = frame;
    }
    if (before) quarry_ring_release(before);
    return rounds / 10 * 12;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10000;
    quarry_pool_t *replies = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "replies"});
    quarry_pool_t *below = quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.name = "below"});
    if (!replies || !below) return 1;
    quarry_pool_t *queries = quarry_fifo_create(&(quarry_fifo_options_t){.pool = {.name = "queries", .parent = below}});
    quarry_pool_t *ring =
        quarry_ring_create(&(quarry_ring_options_t){.pool = {.name = "requests", .flags = QUARRY_POOL_UNTRACKED}});
    if (!queries || !ring) return 1;
    printf("replies %ld\n", loop(replies, rounds));
    printf("queries %ld\n", loop(queries, rounds / 2));
    printf("requests %ld\n", frames(ring, rounds));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("child %ld\n", loop(replies, rounds / 4));
        quarry_pool_destroy(replies);
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) return 1;
    quarry_pool_destroy(replies);
    quarry_pool_destroy(queries);
    quarry_pool_destroy(below);
    return 0;
}
