// SPDX-License-Identifier: MIT
// maps.h: which file the kernel has mapped at an address. The dynamic linker only knows the name it was asked for:
// relative to a folder that may be another one by now, or through links that may lead elsewhere.
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
// The absolute path of the file at `address`, as mapped, NUL-terminated. False: there is none, or no room for it.
bool qy_os_maps_find(const qy_os_maps_t *maps, uintptr_t address, char *path, size_t room, qy_os_mapped_t *ret);

#endif
