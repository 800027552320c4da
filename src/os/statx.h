// SPDX-License-Identifier: MIT
// statx.h: what the kernel says of a file, as it has it on every processor. Not all C libraries' headers have this, and
// those that do may not be included beside the kernel's own.
#ifndef QY_OS_STATX_H
#define QY_OS_STATX_H

#include <stdint.h>

typedef struct qy_statx {
    uint32_t mask, block_bytes;
    uint64_t attributes;
    uint32_t links, uid, gid;
    uint16_t mode, spare;
    uint64_t inode, bytes, blocks, attributes_mask;
    struct {
        int64_t seconds;
        uint32_t nanoseconds, spare;
    } accessed, created, changed, modified;
    uint32_t of_major, of_minor;    // a device: which
    uint32_t dev_major, dev_minor;  // where the file lies
    uint64_t spare2[14];
} qy_statx_t;
_Static_assert(sizeof(qy_statx_t) == 256, "as in linux/stat.h");

#define QY_STATX_TYPE 0x001u  // asked for
#define QY_STATX_LINKS 0x004u
#define QY_STATX_INO 0x100u
#define QY_STATX_SIZE 0x200u
#define QY_STATX_MODIFIED 0x040u

#endif
