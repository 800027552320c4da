// SPDX-License-Identifier: MIT
// start: a program that does next to nothing, for scripts/start.py. With "block" it makes one block; with a second
// argument it then writes what the kernel says of its memory.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *volatile block;
static char text[1 << 16];

static int copy_maps(void) {
    const int file = open("/proc/self/smaps", O_RDONLY);
    ssize_t n;
    while ((n = read(file, text, sizeof text)) > 0)
        if (write(1, text, (size_t)n) != n) return 1;
    return n != 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "block") == 0) block = malloc(100);
    return argc > 2 ? copy_maps() : 0;
}
