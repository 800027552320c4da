// SPDX-License-Identifier: MIT
// ring: messages of many small blocks, chained; one thread makes them, and ends them some messages later, or another
// thread does at the same time. The articles' list, uncontended and contended, as a ring is used.
#include <quarry/ring.h>

#include <sched.h>
#include <stdatomic.h>

#include "scenario.h"

enum { RING,
    MALLOC,
    NOTHING };
enum { PLACES = 1024 };

typedef struct item {
    struct item *next;
} item_t;

typedef struct place {
    _Alignas(128) _Atomic(item_t *) head;  // messages are handed over a cache line each
    quarry_ring_frame_t frame;
} place_t;

static uint64_t with = RING, threads = 1, count = 40000000, size = 8, message = 1000, pending = 32;
static const option_t options[] = {
    CHOICE("with", &with, "ring|malloc|nothing",
        "a frame of a ring for each message; each block freed; no allocator: a message's blocks lie in a buffer"),
    NUMBER("threads", &threads, 1, 2, "2: another thread ends the messages while this one makes more"),
    NUMBER("count", &count, 1, (uint64_t)1 << 40, "blocks in all"),
    BYTES("size", &size, sizeof(item_t), 4096, "bytes of a block, of which the link is written"),
    NUMBER("message", &message, 1, 1 << 20, "blocks of a message"),
    NUMBER("pending", &pending, 1, PLACES, "most messages alive"),
    {0},
};

static quarry_pool_t *pool;
static place_t queue[PLACES];
static char *buffers;  // of `nothing`: one for each message that is alive
static double making, ending;
static uint64_t messages, found;  // found: by the one who ends
static _Atomic uint64_t ended;

ALWAYS_INLINE item_t *chain(uint64_t kind, char *at) {
    item_t *head = NULL;
    for (uint64_t i = 0; i < message; i++, at += size) {
        item_t *const item = must_have(kind == RING     ? quarry_ring_alloc(pool, size, 8, 0)
                                       : kind == MALLOC ? malloc(size)
                                                        : (void *)at);
        item->next = head;
        head = item;
    }
    return head;
}

static void make(uint64_t number) {
    place_t *const place = &queue[number % pending];
    item_t *head;
    const double start = bench_now();
    if (with == RING) {
        place->frame = quarry_ring_newframe(pool);
        head = chain(RING, NULL);
        quarry_ring_seal(pool);
    } else if (with == MALLOC) {
        head = chain(MALLOC, NULL);
    } else {
        head = chain(NOTHING, buffers + number % pending * message * size);
    }
    making += bench_now() - start;
    atomic_store_explicit(&place->head, head, memory_order_release);
}

// One message in 64 is read before it ends; the time of that does not count.
static void end(uint64_t number) {
    place_t *const place = &queue[number % pending];
    item_t *head = atomic_load_explicit(&place->head, memory_order_relaxed);
    uint64_t blocks = 0;
    if (number % 64 == 0) {
        for (const item_t *item = head; item; item = item->next) blocks++;
        if (blocks != message) bench_fail("a message is not whole");
    }
    found += message;
    const double start = bench_now();
    if (with == RING) quarry_ring_release(place->frame);
    for (item_t *next; with == MALLOC && head; head = next) {
        next = head->next;
        free(head);
    }
    ending += bench_now() - start;
    atomic_store_explicit(&ended, number + 1, memory_order_relaxed);
    atomic_store_explicit(&place->head, NULL, memory_order_release);
}

static void *ender(void *unused) {
    (void)unused;
    for (uint64_t i = 0; i < messages; i++) {
        while (!atomic_load_explicit(&queue[i % pending].head, memory_order_acquire)) sched_yield();
        end(i);
    }
    return NULL;
}

int main(int argc, char **argv) {
    // A message takes microseconds, so only their sum has a processor time: the phases themselves have none.
    phase_t alloc = {.name = "alloc"}, drop = {.name = "free"}, both = {.name = "both"};
    uint64_t most = 1;
    pthread_t other;
    scenario_begin(argc, argv, "ring",
        "Messages are made (phase alloc) and ended (phase free). An operation is a block. Waiting for the other thread "
        "is not in\nthe seconds; processor time and page faults of both phases together, with waiting, are values.",
        options);
    messages = (count + message - 1) / message;
    buffers = with == NOTHING ? scenario_memory(pending * message * size) : NULL;
    pool = must_have(quarry_ring_create(NULL));
    phase_begin(&both);
    if (threads == 2 && pthread_create(&other, NULL, ender, NULL)) bench_fail("no thread");
    for (uint64_t i = 0; i < messages; i++) {
        if (threads == 2)
            while (atomic_load_explicit(&queue[i % pending].head, memory_order_acquire)) sched_yield();
        else if (i >= pending) end(i - pending);
        make(i);
        // The one that is being ended is no longer whole.
        const uint64_t there = i + (threads == 1) - atomic_load_explicit(&ended, memory_order_relaxed);
        if (there > most) most = there;
    }
    if (threads == 2) pthread_join(other, NULL);
    for (uint64_t i = messages < pending ? 0 : messages - pending; threads == 1 && i < messages; i++) end(i);
    phase_end(&both, messages * message);
    alloc.seconds = making;
    drop.seconds = ending;
    alloc.operations = drop.operations = messages * message;
    scenario_value("both_user_seconds", both.user_seconds);
    scenario_value("both_system_seconds", both.system_seconds);
    scenario_value("both_page_faults", (double)both.faults);
    scenario_print(&alloc, most * message * size, found);
    scenario_print(&drop, most * message * size, found);
    quarry_pool_destroy(pool);
    return scenario_end();
}
