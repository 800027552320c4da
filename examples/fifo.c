// SPDX-License-Identifier: MIT
// fifo.c: requests that wait for their replies. They are made in order and end nearly in order, in the thread that
// reads replies: what a FIFO is for.
//
//   cc fifo.c $(pkg-config --cflags --libs quarry) -pthread
#include <quarry/fifo.h>
#include <quarry/short.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { REQUESTS = 20000,
    UNDER_WAY = 64 };

typedef struct request {
    unsigned number, bytes;
    char text[];
} request_t;

static quarry_pool_t *requests;
static _Atomic(request_t *) wire[UNDER_WAY];  // by number; NULL: free

// Replies come a little out of order: pairs are exchanged.
static void *read_replies(void *arg) {
    unsigned long *sum = arg;
    for (unsigned i = 0; i < REQUESTS; i++) {
        request_t *r;
        while (!(r = atomic_exchange(&wire[(i ^ 1) % UNDER_WAY], NULL))) {}
        *sum += r->number;
        p_delete(requests, &r);  // any thread may free; r is NULL now
    }
    return NULL;
}

int main(void) {
    requests = quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "requests"});
    if (!requests) return 1;

    unsigned long sum = 0;
    pthread_t reader;
    if (pthread_create(&reader, NULL, read_replies, &sum)) return 1;
    for (unsigned i = 0; i < REQUESTS; i++) {
        // The owner allocates: no lock, no header, zeroed.
        request_t *r = p_new_extra_field(requests, request_t, text, 40 + i % 100);
        if (!r) return 1;
        r->number = i;
        r->bytes = 40 + i % 100;
        snprintf(r->text, r->bytes, "request %u", i);
        while (atomic_load(&wire[i % UNDER_WAY])) {}
        atomic_store(&wire[i % UNDER_WAY], r);
    }
    pthread_join(reader, NULL);
    printf("sum of replies: %lu\n", sum);

    quarry_pool_stats_t stats;
    quarry_pool_stats(requests, &stats);
    printf("%llu allocated, %llu freed, %zu bytes in use\n", (unsigned long long)stats.allocs,
        (unsigned long long)stats.frees, stats.used_bytes);
    printf(
        "%s\n", stats.peak_held_bytes <= 512 * 1024 ? "a few pages did for two megabytes" : "more pages than expected");

    // A pool with live blocks ends with the last of them.
    request_t *late = p_new_extra_field(requests, request_t, text, 10);
    if (!late) return 1;
    quarry_pool_destroy(requests);
    late->number = 7;
    printf("late request %u\n", late->number);
    p_delete(requests, &late);
    return 0;
}
