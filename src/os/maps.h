// SPDX-License-Identifier: MIT
// maps.h: what the kernel has mapped, and which file at an address. The dynamic linker only knows the name it was
// asked for: relative to a folder that may be another one by now, or through links that may lead elsewhere.
//
// Nothing here allocates through malloc or touches errno. Threads: each has a snapshot of its own.
#ifndef QY_OS_MAPS_H
#define QY_OS_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The text of /proc/self/maps at a moment.
typedef struct qy_os_maps {
    char *text;  // NULL: it could not be read
    size_t bytes, room;
} qy_os_maps_t;

typedef struct qy_os_mapped {
    uint64_t bytes, modified_ns;  // of the file; 0 and 0: not known, or the file has no name any more
    size_t length;                // of the path, which is not empty
} qy_os_mapped_t;

qy_os_maps_t qy_os_maps_read(void);
void qy_os_maps_free(qy_os_maps_t *maps);
// One mapping, as a line of that text tells it.
enum { QY_REGION_READ = 1,
    QY_REGION_WRITE = 2,
    QY_REGION_EXEC = 4,
    QY_REGION_SHARED = 8,
    QY_REGION_FILE = 16,
    QY_REGION_STACK = 32,     // of the first thread
    QY_REGION_KERNEL = 64 };  // of the kernel's own: parts of it cannot be read

typedef struct qy_os_region {
    uintptr_t begin, end;
    unsigned flags;
} qy_os_region_t;
// The line that begins at *at, which moves on to the next one. False: it was the last.
bool qy_os_maps_next(const qy_os_maps_t *maps, size_t *at, qy_os_region_t *ret);
// The absolute path of the file at `address`, as mapped, NUL-terminated. False: there is none, or no room for it.
bool qy_os_maps_find(const qy_os_maps_t *maps, uintptr_t address, char *path, size_t room, qy_os_mapped_t *ret);

#endif
