// SPDX-License-Identifier: MIT
// file.c: see file.h.
#include "trace/file.h"

#include <stdatomic.h>
#include <string.h>

#include "base/num.h"
#include "os/mapfile.h"
#include "os/newfile.h"
#include "os/os.h"
#include "trace/encode.h"

#define STEP_LEAST ((size_t)256 * 1024)
#define STEP_MOST ((size_t)4 * 1024 * 1024)

// ---- blocks ---------------------------------------------------------------------------------------------

// The magic number comes last: who looks at a killed process's file sees a whole head or none.
void qy_trace_block_begin(qy_trace_block_t *b, qy_trace_kind_t kind, size_t span, uint32_t process) {
    b->kind = (uint8_t)kind;
    b->version = QY_TRACE_VERSION;
    b->span = (uint32_t)span;
    b->process = process;
    atomic_thread_fence(memory_order_release);
    __atomic_store_n(&b->magic, QY_TRACE_MAGIC, __ATOMIC_RELAXED);
}

void qy_trace_block_seal(qy_trace_block_t *b) {
    uint32_t used = atomic_load_explicit(&b->used, memory_order_acquire);
    b->raw = used;
    b->sum = qy_trace_sum(b + 1, used);
    atomic_store_explicit(&b->flags, QY_TRACE_SEALED, memory_order_release);
}

void qy_trace_block_unmap(qy_trace_block_t *block) { qy_os_unmap(block, block->span); }

static void file_write_text(qy_trace_block_t *b, const char *text, size_t bytes) {
    memcpy(b + 1, text, bytes);
    atomic_store_explicit(&b->used, (uint32_t)bytes, memory_order_release);
    qy_trace_block_seal(b);
}

// ---- space ----------------------------------------------------------------------------------------------

static bool file_still_ours(const qy_trace_file_t *f) {
    qy_file_stat_t st;
    return f->fd >= 0 && qy_os_file_stat(f->fd, &st) == 0 && st.inode == f->inode && st.device == f->device;
}

// The program may have closed our descriptor, and its number may be another file's by now. The name is known.
static int have_descriptor(qy_trace_file_t *f) {
    if (file_still_ours(f)) return 0;
    f->fd = -1;
    if (f->path[0] != '/') return -EBADF;  // relative to a folder that may be another one by now
    int fd = qy_os_file_open(f->path, QY_FILE_WRITE);
    if (fd < 0) return -EBADF;
    f->fd = fd;
    if (!file_still_ours(f)) {
        qy_os_close(fd);
        f->fd = -1;
        return -EBADF;
    }
    f->fd = qy_os_file_hide(fd);
    return 0;
}

// Map a range of the file, ready to be written. NULL and *ret_error.
static char *map_range(qy_trace_file_t *f, uint64_t offset, size_t bytes, int *ret_error) {
    *ret_error = -ENOMEM;
    char *p = qy_os_reserve(bytes, qy_os_page_size(), NULL);
    if (!p) return NULL;
    if (qy_os_map_at(p, bytes, f->fd, offset, QY_MAP_SHARED | QY_MAP_WRITE)) return p;
    qy_os_unmap(p, bytes);
    return NULL;
}

// The next window: as large as there is room for, at least `least`. What is left of the last one stays unused.
static int file_grow(qy_trace_file_t *f, size_t least) {
    int error = have_descriptor(f);
    if (error) return error;
    size_t step = qy_max(least, qy_min(qy_max(STEP_LEAST, f->bytes), STEP_MOST));
    for (step = qy_round_up(step, f->grain);; step = qy_max(least, qy_round_up(step / 2, f->grain))) {
        error = qy_os_file_allocate(f->fd, f->bytes, step);
        if (error == 0) break;
        if ((error != -ENOSPC && error != -EFBIG && error != -EDQUOT) || step <= least) return error;
    }
    char *p = map_range(f, f->bytes, step, &error);
    if (!p) return error;
    if (f->left) qy_os_unmap(f->window, f->left);
    f->window = p;
    f->left = step;
    f->offset = f->bytes;
    f->bytes += step;
    return 0;
}

static char *file_cut(qy_trace_file_t *f, size_t bytes) {
    char *p = f->window;
    f->window += bytes;
    f->left -= bytes;
    f->offset += bytes;
    return p;
}

qy_trace_block_t *qy_trace_file_take(qy_trace_file_t *f, size_t want, size_t least, size_t *ret_bytes, int *ret_error) {
    *ret_error = 0;
    if (f->left < least) *ret_error = file_grow(f, least);
    if (*ret_error) return NULL;
    *ret_bytes = qy_min(want, f->left);
    *ret_error = qy_os_map_touch(f->window, *ret_bytes);
    return *ret_error ? NULL : (qy_trace_block_t *)(void *)file_cut(f, *ret_bytes);
}

// ---- life -----------------------------------------------------------------------------------------------

static int build(qy_trace_file_t *f, const char *text, size_t bytes) {
    qy_file_stat_t st;
    int error = qy_os_file_stat(f->fd, &st);
    if (error) return error;
    f->device = st.device;
    f->inode = st.inode;
    size_t head = qy_round_up(sizeof(qy_trace_block_t) + bytes, f->grain), span;
    qy_trace_block_t *b = qy_trace_file_take(f, head, head + f->grain, &span, &error);
    if (!b) return error;
    qy_trace_block_begin(b, QY_TRACE_HEAD, head, f->process);
    file_write_text(b, text, bytes);
    qy_trace_block_unmap(b);
    f->end = qy_trace_file_take(f, f->grain, f->grain, &span, &error);
    return f->end ? 0 : error;
}

static int file_make(qy_trace_file_t *f, bool named, const char *text, size_t bytes) {
    qy_new_file_t file;
    int error = qy_os_new_file(f->path, named, &file);
    if (error) return error;
    f->fd = file.fd;
    error = build(f, text, bytes);
    if (!error) error = qy_os_new_file_finish(&file, f->path);
    if (!error) return 0;
    if (f->left) qy_os_unmap(f->window, f->left);
    if (f->end) qy_os_unmap(f->end, f->grain);
    qy_os_new_file_abandon(&file);
    f->fd = -1;
    return error;
}

int qy_trace_file_create(qy_trace_file_t *f, const char *path, int process, const char *text, size_t bytes) {
    size_t n = strlen(path);
    int error = -EOPNOTSUPP;
    for (int named = 0; named < 2 && error == -EOPNOTSUPP; named++) {
        *f = (qy_trace_file_t){
            .fd = -1, .process = (uint32_t)process, .grain = (uint32_t)qy_max(QY_TRACE_GRAIN, qy_os_page_size())};
        if (n >= sizeof f->path) return -ENAMETOOLONG;
        memcpy(f->path, path, n + 1);
        error = qy_os_file_exists(path) ? -EEXIST : file_make(f, named, text, bytes);
    }
    return error;
}

static void file_write_end(const qy_trace_file_t *f, const char *text, size_t bytes) {
    qy_trace_block_begin(f->end, QY_TRACE_END, f->grain, f->process);
    file_write_text(f->end, text, qy_min(bytes, f->grain - sizeof *f->end));
}

void qy_trace_file_end(qy_trace_file_t *f, const char *text, size_t bytes) {
    if (!f->end) return;
    file_write_end(f, text, bytes);
    qy_trace_block_unmap(f->end);
    f->end = NULL;
}

void qy_trace_file_try_end(qy_trace_file_t *f, const char *text, size_t bytes) {
    if (!f->end) return;
    file_write_end(f, text, bytes);
    if (file_still_ours(f)) qy_os_file_truncate(f->fd, f->offset);
}

// What is left of the window is mapped still, and needs its space again before anybody stores there.
int qy_trace_file_go_on(qy_trace_file_t *f) {
    if (!f->end) return 0;
    int error = have_descriptor(f);
    if (!error && f->left) error = qy_os_file_allocate(f->fd, f->offset, f->left);
    if (!error) memset(f->end, 0, f->grain);
    return error;
}

void qy_trace_file_close(qy_trace_file_t *f) {
    if (f->left) qy_os_unmap(f->window, f->left);
    f->left = 0;
    if (file_still_ours(f)) {
        qy_os_file_truncate(f->fd, f->offset);
        qy_os_close(f->fd);
    }
    f->fd = -1;
}

void qy_trace_file_forget(qy_trace_file_t *f) {
    if (f->left) qy_os_unmap(f->window, f->left);
    if (f->end) qy_os_unmap(f->end, f->grain);
    if (file_still_ours(f)) qy_os_close(f->fd);
    f->left = 0;
    f->end = NULL;
    f->fd = -1;
}
