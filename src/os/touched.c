// SPDX-License-Identifier: MIT
// touched.c: see touched.h.
#include "os/touched.h"

#include "os/file.h"
#include "os/os.h"
#include "os/syscall.h"

#define PRESENT_OR_SWAPPED (UINT64_C(3) << 62)

void qy_os_touched_begin(qy_os_touched_t *t) {
    t->fd = qy_os_open_read("/proc/self/pagemap");
    t->page = qy_os_page_size();
    t->first = t->count = 0;
}

void qy_os_touched_end(qy_os_touched_t *t) {
    if (t->fd >= 0) qy_os_close(t->fd);
    t->fd = -1;
}

bool qy_os_touched(qy_os_touched_t *t, uintptr_t address) {
    if (t->fd < 0) return true;
    size_t number = address / t->page;
    if (number - t->first >= t->count) {
        long n = qy_syscall(SYS_pread64, t->fd, t->entry, sizeof t->entry, number * sizeof *t->entry);
        t->first = number;
        t->count = n > 0 ? (size_t)n / sizeof *t->entry : 0;
        if (!t->count) return true;
    }
    return (t->entry[number - t->first] & PRESENT_OR_SWAPPED) != 0;
}
