// SPDX-License-Identifier: MIT
// pages.c: a cache of file blocks whose memory two processes share, and a file mapped on a boundary.
//
//   cc pages.c $(pkg-config --cflags --libs quarry)
#include <quarry/pages.h>

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

int main(void) {
    // Runs of pages in a nameless file: another process may map it by its descriptor.
    quarry_pool_t *pages = quarry_pages_create(
        &(quarry_pages_options_t){.pool.name = "blocks", .flags = QUARRY_PAGES_MEMFD | QUARRY_PAGES_PARTS});
    char *block = pages ? quarry_pool_alloc(pages, 4 * MIB, MIB, QUARRY_POOL_ZERO) : NULL;
    if (!block) return 1;
    printf("on a 1 MiB boundary: %s\n", (uintptr_t)block % MIB == 0 ? "yes" : "no");

    pid_t pid = fork();
    if (pid == 0) {
        strcpy(block, "written by the child");
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    puts(block);

    // The same memory once more, at a place of its own, through the descriptor.
    char *again = quarry_map_aligned(quarry_pages_fd(pages), quarry_pages_file_offset(pages, block), MIB, MIB,
        QUARRY_MAP_SHARED | QUARRY_MAP_READ_ONLY);
    if (!again) return 1;
    printf("seen twice: %s\n", again != block && !strcmp(again, block) ? "yes" : "no");
    quarry_unmap(again, MIB);

    // A run may shrink from both ends.
    quarry_pages_free_part(pages, block, MIB);
    quarry_pages_free_part(pages, block + 3 * MIB, MIB);
    printf("left: %zu MiB\n", quarry_pool_usable(pages, block + MIB) / MIB);
    quarry_pool_free(pages, block + MIB, 2 * MIB);
    printf("given back: %s\n", quarry_pages_trim(pages, 0) >= 3 * MIB ? "at least 3 MiB" : "less");
    quarry_pool_destroy(pages);
    return 0;
}
