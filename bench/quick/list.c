// SPDX-License-Identifier: MIT
// list: linked lists built, walked and freed. Eight lists grow at once, so that neighbours in a list
// are not neighbours in memory unless the malloc keeps sizes apart. One list in four is freed last
// to first, one with every other node first, which leaves holes; the others first to last.
#include "bench.h"

enum { LISTS = 8 };
enum { NODES = 20000 };

typedef struct node {
    struct node *next;
    uint64_t value;
    char more[];
} node_t;

static node_t *reversed(node_t *n) {
    node_t *head = NULL;
    while (n) {
        node_t *next = n->next;
        n->next = head;
        head = n;
        n = next;
    }
    return head;
}

// Free every other node; what remains is still a list.
static void thin(node_t *n) {
    while (n && n->next) {
        node_t *gone = n->next;
        n->next = gone->next;
        free(gone);
        n = n->next;
    }
}

static void drop(node_t *n) {
    while (n) {
        node_t *next = n->next;
        free(n);
        n = next;
    }
}

static void *lists(void *arg) {
    bench_thread_t *t = arg;
    for (uint64_t done = 0; done < t->ops; done += LISTS * NODES) {
        node_t *head[LISTS] = {NULL};
        for (size_t i = 0; i < LISTS * NODES; i++) {
            const uint64_t r = bench_random(&t->random);
            node_t *n = malloc(sizeof *n + r % 5 * 16);
            if (!n) bench_fail("out of memory");
            n->value = r;
            n->next = head[i % LISTS];
            head[i % LISTS] = n;
        }
        for (size_t l = 0; l < LISTS; l++) {
            for (const node_t *n = head[l]; n; n = n->next) t->check = t->check * 31 + n->value;
            if (l % 4 == 1) head[l] = reversed(head[l]);
            if (l % 4 == 2) thin(head[l]);
            drop(head[l]);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    const bench_t b = bench_begin(argc, argv, "list", 1, 4800000);
    return bench_end(&b, bench_threads(&b, lists, NULL, b.ops, 0));
}
