// SPDX-License-Identifier: MIT
// lost.c: a list is dropped while it still has members.
#include <stdlib.h>

typedef struct member {
    struct member *next;
    char text[56];
} member;

static member *list;

static void add(void) {
    member *m = calloc(1, sizeof *m);
    m->next = list;
    list = m;
}

int main(void) {
    for (int i = 0; i < 3; i++) add();
    list = NULL;
    return 0;
}
