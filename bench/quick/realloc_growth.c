// SPDX-License-Identifier: MIT
// realloc_growth: vectors that grow by half each time, and strings that grow by a few bytes, many of
// both at once, up to 1 MiB and 16 KiB; then they are cut to fit, checked and freed.
#include "bench.h"

enum { ITEMS = 256 };

typedef struct item {
    unsigned char *data;
    size_t length, capacity, limit;
    unsigned char next;
} item_t;

static void item_reset(item_t *it, uint64_t random, int is_vector) {
    // A new one that will get long is as likely as one that stays short.
    *it = (item_t){.limit = is_vector ? bench_octaves(random, 64, 13) : bench_octaves(random, 16, 9), .next = (unsigned char)random};
}

static void item_resize(item_t *it, size_t capacity) {
    unsigned char *data = realloc(it->data, capacity);
    if (!data) bench_fail("out of memory");
    it->data = data;
    it->capacity = capacity;
}

static void item_append(item_t *it, size_t bytes, int is_vector) {
    if (it->length + bytes > it->capacity) {
        const size_t exact = it->length + bytes, half = it->capacity + it->capacity / 2;
        item_resize(it, is_vector && half > exact ? half : exact);
    }
    memset(it->data + it->length, it->next, bytes);
    it->length += bytes;
}

// The first and last piece are what was written when the item was short, and last.
static uint64_t item_finish(item_t *it) {
    item_resize(it, it->length);
    if (it->data[0] != it->next || it->data[it->length - 1] != it->next || it->data[it->length / 2] != it->next) bench_fail("bytes were lost by realloc");
    free(it->data);
    return it->length;
}

static void *grow(void *arg) {
    bench_thread_t *t = arg;
    item_t items[ITEMS];
    for (int i = 0; i < ITEMS; i++) item_reset(&items[i], bench_random(&t->random), i % 2);
    for (uint64_t i = 0; i < t->ops; i++) {
        const uint64_t r = bench_random(&t->random);
        const size_t n = r % ITEMS;
        const int is_vector = n % 2;
        // A vector takes pieces of a hundredth of its final length, so that long ones get there, too.
        const size_t bytes = is_vector ? bench_between((uint32_t)(r >> 32), 8, 64 + items[n].limit / 50) : bench_between((uint32_t)(r >> 32), 1, 64);
        item_append(&items[n], bytes, is_vector);
        if (items[n].length >= items[n].limit) {
            t->check += item_finish(&items[n]);
            item_reset(&items[n], bench_random(&t->random), is_vector);
        }
    }
    for (int i = 0; i < ITEMS; i++) {
        if (items[i].length) t->check += item_finish(&items[i]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "realloc_growth", 1, 2500000);
    return bench_end(&b, bench_threads(&b, grow, NULL, b.ops, 0));
}
