// SPDX-License-Identifier: MIT
// heaps.c: memory of one purpose in a heap of its own: counted, limited, gone in one call.
//
//   cc heaps.c $(pkg-config --cflags --libs quarry)
#include <quarry/heap.h>
#include <quarry/malloc.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct node {
    struct node *next;
    char word[24];
} node_t;

// A list of n words, all of it in `heap`. NULL when the heap is at its limit.
static node_t *make_list(quarry_heap_t *heap, unsigned n) {
    node_t *list = NULL;
    for (unsigned i = 0; i < n; i++) {
        node_t *node = quarry_heap_alloc(heap, sizeof *node);
        if (!node) return NULL;
        snprintf(node->word, sizeof node->word, "word %u", i);
        node->next = list;
        list = node;
    }
    return list;
}

static int count_block(void *block, size_t usable_size, void *arg) {
    (void)block;
    (void)usable_size;
    ++*(unsigned *)arg;
    return 0;
}

int main(void) {
    // The general-purpose heap: malloc under another name.
    char *text = quarry_malloc(16);
    strcpy(text, "quarry");
    text = quarry_realloc(text, 1000);
    printf("%s, %s\n", text, quarry_usable_size(text) >= 1000 ? "grown" : "too small");
    quarry_free(text);

    // A heap for one job.
    quarry_heap_t *heap = quarry_heap_create(&(quarry_heap_options_t){.name = "words"});
    if (!heap || !make_list(heap, 1000)) return 1;

    unsigned blocks = 0;
    quarry_heap_walk(heap, count_block, &blocks);
    quarry_heap_stats_t stats;
    quarry_heap_stats(heap, &stats);
    printf("%u blocks by walking, %zu by counting\n", blocks, stats.live_blocks);

    // A limit keeps a job within bounds: the call fails, the program goes on.
    quarry_heap_set_limit(heap, stats.held_bytes);
    errno = 0;
    node_t *rest = make_list(heap, 10 * 1000 * 1000);
    printf("beyond the limit: %s\n", !rest && errno == ENOMEM ? "ENOMEM" : "no limit");

    // Every node goes at once; no list is walked.
    quarry_heap_destroy(heap);
    puts("destroyed");
    return 0;
}
