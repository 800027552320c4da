// SPDX-License-Identifier: MIT
// overflow.c: a message that is longer than its buffer. As in examples/debug/message.c, but the buffer is on the heap.
#include <stdio.h>
#include <stdlib.h>

#define MAX_LINE_SIZE 32

static char *put(char *at, const char *text) {
    while (*text) *at++ = *text++;
    return at;
}

static char *build_message(const char *name) {
    char *message = malloc(MAX_LINE_SIZE);
    char *at = put(put(put(message, "hello "), name), "!\n");
    *at = '\0';
    return message;
}

int main(int argc, char **argv) {
    char *message = build_message(argc > 1 ? argv[1] : "world");
    fputs(message, stdout);
    free(message);
    return 0;
}
