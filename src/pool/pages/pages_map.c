// SPDX-License-Identifier: MIT
// pages_map.c: mappings of files and memory at a chosen alignment.
//
// Address space is reserved at the alignment (nothing is mapped there yet, nothing remains beside it), then the
// file is mapped in its place: one mapping in all, so one munmap ends it.
#include <errno.h>

#include "base/num.h"
#include "os/mapfile.h"
#include "os/os.h"
#include "pool/pages.h"

void *quarry_map_aligned(int fd, uint64_t offset, size_t bytes, size_t alignment, unsigned flags) {
    size_t page = qy_os_page_size();
    qy_file_stat_t st;
    alignment = qy_max(alignment, 1);
    if (!bytes || bytes > QUARRY_POOL_MAX || !qy_is_pow2(alignment) || offset % page || offset > INT64_MAX ||
        flags & ~(QUARRY_MAP_SHARED | QUARRY_MAP_READ_ONLY)) {
        errno = EINVAL;
        return NULL;
    }
    int r = fd < -1 ? -EBADF : 0;
    if (fd >= 0) r = qy_os_file_stat(fd, &st);
    if (r) {
        errno = -r;
        return NULL;
    }
    bytes = qy_round_up(bytes, page);
    char *at = qy_os_reserve(bytes, qy_max(alignment, page), NULL);
    unsigned how = (flags & QUARRY_MAP_SHARED ? QY_MAP_SHARED : 0) | (flags & QUARRY_MAP_READ_ONLY ? 0 : QY_MAP_WRITE);
    if (at && qy_os_map_at(at, bytes, fd, offset, how)) return at;
    if (at) qy_os_unmap(at, bytes);
    errno = ENOMEM;
    return NULL;
}

int quarry_unmap(void *addr, size_t bytes) {
    size_t page = qy_os_page_size();
    if (!addr || !bytes || bytes > QUARRY_POOL_MAX || (uintptr_t)addr % page) {
        errno = EINVAL;
        return -1;
    }
    if (qy_os_unmap(addr, qy_round_up(bytes, page))) return 0;
    errno = ENOMEM;
    return -1;
}
