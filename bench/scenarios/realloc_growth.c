// SPDX-License-Identifier: MIT
// realloc-growth: arrays and strings that grow: in place, by moving pages, or by copying; and the memory that this
// takes at its highest.
#include <quarry/pow2.h>
#include <quarry/stack.h>

#include "scenario.h"

enum { MALLOC,
    STACK,
    POW2 };
enum { HALF,
    STEPS,
    STRINGS,
    MIXED };
enum { REALLOC,
    COPY };
enum { STRING_MAX = 16384 };

static uint64_t with, mode = HALF, by, count = 256, size = 64 << 20, step = 4096, rounds = 5, seed = 1;
static const option_t options[] = {
    CHOICE("with", &with, "malloc|stack|pow2", "a stack pool with a frame for each round; a pow2 pool; malloc"),
    CHOICE("mode", &mode, "half|steps|strings|mixed",
        "one array that grows by half each time; by --step bytes; many strings that grow by 1 to 64 bytes up to 16 "
        "KiB; as many vectors that grow by half up to 1 MiB beside these"),
    CHOICE("by", &by, "realloc|copy", "copy: a new block, memcpy and free, as programs do that do not call realloc"),
    NUMBER("count", &count, 1, 1 << 20, "strings at the same time, or strings and vectors together"),
    BYTES("size", &size, 1024, (uint64_t)1 << 36, "bytes of the array at last; of strings and vectors, in all"),
    BYTES("step", &step, 16, 1 << 30, "bytes"),
    NUMBER("rounds", &rounds, 1, 1000000, "how often"),
    OPTION_SEED(&seed),
    {0},
};

typedef struct item {
    unsigned char *data;
    size_t length, capacity, limit;
} item_t;

static phase_t all = {.name = ""};
static quarry_pool_t *pool;
static item_t *items;
static uint64_t resizes, moves, check;

static void *copy(void *p, size_t old_size, size_t to) {
    void *const q = malloc(to);
    if (q && p) memcpy(q, p, old_size);
    if (q) free(p);
    return q;
}
static void *larger(void *p, size_t old_size, size_t to) {
    if (pool) return quarry_pool_resize(pool, p, old_size, to, 16, 0);
    return by == COPY ? copy(p, old_size, to) : realloc(p, to);
}
static void *resize(void *p, size_t old_size, size_t to) {
    void *const q = must_have(larger(p, old_size, to));
    resizes++;
    moves += p && q != p;
    return q;
}
static void drop(void *p, size_t bytes) {
    if (pool) quarry_pool_free(pool, p, bytes);
    else free(p);
}

// What is new is written, one word in each cache line; at the end all of it is read.
static void array(void) {
    size_t bytes = 0, line = 0;
    unsigned char *a = NULL;
    while (bytes < size) {
        size_t to = mode == HALF ? (bytes + 64) / 2 * 3 : bytes + step;
        if (to > size) to = size;
        a = resize(a, bytes, to);
        bytes = to;
        for (; line + 8 <= bytes; line += 64) memcpy(a + line, &line, 8);
    }
    for (size_t at = 0; at < line; at += 64) {
        size_t found;
        memcpy(&found, a + at, 8);
        if (found != at) bench_fail("a part of the array was lost");
        check += found;
    }
    drop(a, bytes);
}

static void grow(item_t *it, size_t capacity) {
    it->data = resize(it->data, it->capacity, capacity);
    it->capacity = capacity;
}

// The first and the middle byte are what was written when the item was short.
static void finish(item_t *it) {
    const unsigned char mark = (unsigned char)it->limit;
    if (it->length && (it->data[0] != mark || it->data[it->length / 2] != mark || it->data[it->length - 1] != mark))
        bench_fail("a part of an item was lost");
    check += it->length;
    if (it->data) drop(it->data, it->capacity);
    *it = (item_t){0};
}

static void append(item_t *it, size_t more, bool by_half) {
    const size_t exact = it->length + more, half = it->capacity + it->capacity / 2;
    if (exact > it->capacity) grow(it, by_half && half > exact ? half : exact);
    memset(it->data + it->length, (int)(unsigned char)it->limit, more);
    it->length = exact;
}

static void many_strings(void) {
    uint64_t random = seed;
    for (uint64_t bytes = 0; bytes < size;) {
        const uint64_t r = bench_random(&random);
        item_t *const it = &items[bench_between((uint32_t)r, 0, count - 1)];
        if (!it->limit) it->limit = bench_between((uint32_t)(r >> 32), 16, STRING_MAX);
        const size_t more = 1 + (r >> 58);
        append(it, more, false);
        bytes += more;
        if (it->length >= it->limit) finish(it);
    }
    for (uint64_t i = 0; i < count; i++) finish(&items[i]);
}

// Every other item is a vector. One that gets long is as likely as one that stays short, and it takes pieces of a
// fiftieth of its length, so that it gets there. What is done is cut to fit.
static void strings_and_vectors(void) {
    uint64_t random = seed;
    for (uint64_t bytes = 0; bytes < size;) {
        const uint64_t r = bench_random(&random), n = r % count;
        const bool vector = n % 2;
        item_t *const it = &items[n];
        if (!it->limit)
            it->limit =
                vector ? bench_octaves(bench_random(&random), 64, 13) : bench_octaves(bench_random(&random), 16, 9);
        const size_t more = vector ? bench_between((uint32_t)(r >> 32), 8, 64 + it->limit / 50)
                                   : bench_between((uint32_t)(r >> 32), 1, 64);
        append(it, more, vector);
        bytes += more;
        if (it->length < it->limit) continue;
        if (it->length < it->capacity) grow(it, it->length);
        finish(it);
    }
    for (uint64_t i = 0; i < count; i++) finish(&items[i]);
}

// How many bytes of vectors there are at a time is not known.
static uint64_t payload(void) {
    if (mode == MIXED) return 0;
    return mode == STRINGS ? count * STRING_MAX / 2 : size;
}

int main(int argc, char **argv) {
    scenario_begin(argc, argv, "realloc-growth",
        "Arrays or strings grow. An operation is a call that enlarges one, or cuts it to fit.", options);
    if (with == STACK && mode >= STRINGS) scenario_not_applicable("on a stack only the newest block grows");
    if (with != MALLOC && by == COPY) scenario_not_applicable("pools are asked to resize");
    items = scenario_memory(count * sizeof *items);
    if (with == STACK) pool = must_have(quarry_stack_create(NULL));
    if (with == POW2) pool = must_have(quarry_pow2_create(NULL));
    for (uint64_t r = 0; r < rounds; r++) {
        quarry_stack_frame_t frame;
        const uint64_t before = resizes;
        phase_begin(&all);
        if (with == STACK) quarry_stack_push(pool, &frame);
        if (mode == STRINGS) many_strings();
        else if (mode == MIXED) strings_and_vectors();
        else array();
        if (with == STACK) quarry_stack_pop(pool, &frame);
        phase_end(&all, resizes - before);
    }
    scenario_value("moves_per_resize", (double)moves / (double)resizes);
    scenario_print(&all, payload(), check);
    quarry_pool_destroy(pool);
    return scenario_end();
}
