// SPDX-License-Identifier: MIT
// after_free.c: a counter is raised after its owner has freed it.
#include <stdio.h>
#include <stdlib.h>

typedef struct counter {
    int users;
    int total;
} counter;

static void leave(counter *c) {
    if (--c->users == 0) free(c);
}

int main(void) {
    counter *c = calloc(1, sizeof *c);
    c->users = 1;
    leave(c);
    c->total = 7;
    puts("done");
    return 0;
}
