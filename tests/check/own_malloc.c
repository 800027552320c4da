// SPDX-License-Identifier: MIT
// own_malloc.c: a program with a malloc of its own: the checker sees none of its blocks, and says nothing of them.
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[1 << 20] __attribute__((aligned(16)));
static size_t used;

void *malloc(size_t n) {
    size_t *p = (size_t *)(void *)(memory + used);
    used += (n + 31) & ~(size_t)15;
    if (used > sizeof memory) return NULL;
    p[0] = n;
    return p + 2;
}
void free(void *p) { (void)p; }
void *calloc(size_t count, size_t size) { return malloc(count * size); }
void *realloc(void *p, size_t n) {
    void *q = malloc(n);
    return p && q ? memcpy(q, p, ((size_t *)p)[-2] < n ? ((size_t *)p)[-2] : n) : q;
}

int main(void) {
    char *p = malloc(20);
    p[20] = 1;
    free(p);
    free(p);
    p = reallocarray(p, 5, 7);
    free(strdup("text"));
    printf("%d\n", (int)((uintptr_t)p - (uintptr_t)memory < sizeof memory));
    return 7;
}
