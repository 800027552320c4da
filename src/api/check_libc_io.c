// SPDX-License-Identifier: MIT
// check_libc_io.c: see check_libc.h. Files, sockets and streams.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

#include "api/check_libc.h"
#include "base/num.h"
#include "check/report.h"
#include "os/os.h"

// Not <sys/socket.h>: its functions take a union of pointers where this table has one type.
typedef unsigned socklen_t;
struct msghdr {
    void *name;
    socklen_t name_bytes;
    struct iovec *v;
    size_t n;
    void *control;
    size_t control_bytes;
    int flags;
};
#define MSG_TRUNC 0x20
#define SOL_SOCKET 1
#define SO_PROTOCOL 38
#define TCP 6
#define MULTIPATH_TCP 262
QY_HIDDEN int __wrap_getsockopt(int fd, int level, int name, void *p, socklen_t *n);

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

// As many bytes as `size` items of n; a product that is no number of bytes is more than any block has.
static size_t io_items(size_t size, size_t n) {
    size_t bytes;
    return __builtin_mul_overflow(size, n, &bytes) ? SIZE_MAX : bytes;
}

// The first `bytes` of the buffers have come from outside.
static void io_vector_out(const struct iovec *v, size_t n, size_t bytes, const char *function) {
    for (size_t i = 0; i < n && bytes; i++) {
        size_t part = least(v[i].iov_len, bytes);
        qy_libc_out(v[i].iov_base, part, function);
        bytes -= part;
    }
}

static bool io_vector(const struct iovec *v, int n, const char *function) {
    if (n <= 0 || !v) return false;
    qy_libc_in(v, (size_t)n * sizeof *v, function);
    return true;
}

// What cannot be read is for the kernel to refuse, and so are more parts than it takes.
static size_t io_parts(const struct iovec *v, size_t n) {
    const size_t most = 1024;
    return n <= most && qy_os_readable(v) ? n : 0;
}

static void io_vector_make_room(const struct iovec *v, size_t n) {
    for (size_t i = 0, parts = io_parts(v, n); i < parts; i++) qy_libc_make_room(v[i].iov_base, v[i].iov_len);
}

static void io_vector_in(const struct iovec *v, int n, const char *function) {
    if (!io_vector(v, n, function)) return;
    for (int i = 0; i < n; i++) qy_libc_in(v[i].iov_base, v[i].iov_len, function);
}

// By this flag TCP throws away what comes, and writes nothing. Another socket says how much there was. Behind a filter
// of system calls it cannot be asked which one it is.
static bool io_discards(int fd, int how) {
    int protocol = 0, saved = errno;
    socklen_t n = sizeof protocol;
    if (QY_LIKELY(!(how & MSG_TRUNC))) return false;
    bool known = !qy_check_report_is_filtered() &&
                 __wrap_getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0;
    errno = saved;
    return !known || protocol == TCP || protocol == MULTIPATH_TCP;
}

// With MSG_TRUNC the result may be more than there was room for. So may the length of the address be.
static void io_message_out(const struct msghdr *m, size_t parts, socklen_t room, size_t bytes, const char *function) {
    io_vector_out(m->v, parts, bytes, function);
    if (m->name) qy_libc_out(m->name, least(room, m->name_bytes), function);
    if (m->control && m->control_bytes) qy_libc_out(m->control, m->control_bytes, function);
}

static void io_message_make_room(const struct msghdr *m, const char *function) {
    if (!m) return;
    if (io_vector(m->v, (int)m->n, function)) io_vector_make_room(m->v, m->n);
    qy_libc_make_room(m->name, m->name_bytes);
    qy_libc_make_room(m->control, m->control_bytes);
}

static void io_message_in(const struct msghdr *m, const char *function) {
    if (!m) return;
    qy_libc_in(m, sizeof *m, function);
    io_vector_in(m->v, (int)m->n, function);
    if (m->name) qy_libc_in(m->name, m->name_bytes, function);
    if (m->control) qy_libc_in(m->control, m->control_bytes, function);
}

#define VECTOR(v, n) \
    if (io_vector(v, n, fn)) io_vector_make_room(v, (size_t)(n))
#define RECEIVED                                                         \
    {                                                                    \
        if (r > 0 && !io_discards(fd, how)) OUT(p, least((size_t)r, n)); \
        else if (r < 0 && errno == EFAULT) OUT(p, n);                    \
    }
// The room for an address, and what was written: the kernel says how long the address is, not how much was written.
#define SOCKET_NAME_ROOM(p, bytes)   \
    socklen_t room_ = 0;             \
    if (p) {                         \
        OUT(bytes, sizeof *(bytes)); \
        if (bytes) room_ = *(bytes); \
        MAKE_ROOM(p, room_);         \
    }
#define SOCKET_NAME(p, bytes)                                         \
    {                                                                 \
        if ((p) && (bytes) && r >= 0) OUT(p, least(room_, *(bytes))); \
        else if ((p) && (bytes) && errno == EFAULT) OUT(p, room_);    \
    }
#define PATH_AND(mode)  \
    CHECK_STRING(path); \
    CHECK_STRING(mode)

// Macros of the header.
#undef fread_unlocked
#undef fwrite_unlocked
#define TABLE "api/check_libc_io.def"
#define TABLE_FIND qy_libc_find_io
#include "api/check_libc_define.h"
