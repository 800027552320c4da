// SPDX-License-Identifier: MIT
// A C program that uses the names of libquarry and leaves malloc alone.
#include <quarry/quarry.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *block = quarry_calloc(10, 10);
    quarry_heap_t *heap = quarry_heap_create(NULL);
    char *other = heap ? quarry_heap_alloc(heap, 100) : NULL;
    char *plain = malloc(100);
    if (!block || !other || !plain || quarry_usable_size(block) < 100) return 1;
    memset(other, 1, 100);
    strcpy(plain, "plain malloc");
    printf("c: quarry %s, %s\n", quarry_version(), plain);
    free(plain);
    quarry_heap_destroy(heap);
    quarry_free(block);
    return 0;
}
