// SPDX-License-Identifier: MIT
// stack.c: a stack of one's own: frames that outlive functions, tied to the levels of a document.
#include <quarry/short.h>
#include <quarry/stack.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH = 16 };

// A parser that is called for each piece of the text. What an element holds ends with the element.
typedef struct element {
    quarry_stack_frame_t frame;
    const char *name;
} element;

typedef struct parser {
    quarry_pool_t *stack;
    element open[DEPTH];
    int depth;
} parser;

static int begin(parser *p, const char *name) {
    if (p->depth == DEPTH) return -1;
    element *e = &p->open[p->depth++];
    quarry_stack_push(p->stack, &e->frame);
    e->name = p_strdup(p->stack, name);
    return e->name ? 0 : -1;
}

static void end(parser *p) {
    element *e = &p->open[--p->depth];
    quarry_pool_stats_t stats;
    quarry_pool_stats(p->stack, &stats);
    printf("%*s</%s> with %zu bytes in use\n", 2 * p->depth, "", e->name, stats.used_bytes);
    quarry_stack_pop(p->stack, &e->frame);
}

static void text(parser *p, const char *words) {
    char *copy = p_strdup(p->stack, words);
    if (copy) printf("%*s%s: %s\n", 2 * p->depth, "", p->open[p->depth - 1].name, copy);
}

int main(void) {
    parser p = {
        .stack = quarry_stack_create(&(quarry_stack_options_t){.pool.name = "document", .pool.limit = 1 << 20})};
    if (!p.stack || begin(&p, "book")) return 1;
    for (int chapter = 0; chapter < 3; chapter++) {
        if (begin(&p, "chapter")) return 1;
        text(&p, chapter == 1 ? "a long one, which costs the next nothing" : "short");
        end(&p);
    }
    end(&p);
    quarry_pool_destroy(p.stack);
    return 0;
}
