// SPDX-License-Identifier: MIT
// maps.c: see maps.h.
#include "os/maps.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/num.h"
#include "os/file.h"
#include "os/os.h"
#include "os/statx.h"
#include "os/syscall.h"

#define FIRST_ROOM ((size_t)64 * 1024)
#define MOST_ROOM ((size_t)64 * 1024 * 1024)
#define GONE " (deleted)"  // what the kernel puts behind the path of a file that has no name any more

static bool maps_grow(qy_os_maps_t *m) {
    size_t room = m->room * 2;
    char *text = room <= MOST_ROOM ? qy_os_map(room, qy_os_page_size(), NULL) : NULL;
    if (!text) return false;
    memcpy(text, m->text, m->bytes);
    qy_os_unmap(m->text, m->room);
    m->text = text;
    m->room = room;
    return true;
}

qy_os_maps_t qy_os_maps_read(void) {
    qy_os_maps_t m = {.room = FIRST_ROOM};
    int fd = qy_os_open_read("/proc/self/maps");
    if (fd < 0) return m;
    m.text = qy_os_map(m.room, qy_os_page_size(), NULL);
    for (long n = 1; m.text && n > 0; m.bytes += n > 0 ? (size_t)n : 0) {
        if (m.bytes == m.room && !maps_grow(&m)) break;
        n = qy_os_read(fd, m.text + m.bytes, m.room - m.bytes);
    }
    qy_os_close(fd);
    return m;
}

void qy_os_maps_free(qy_os_maps_t *maps) {
    if (maps->text) qy_os_unmap(maps->text, maps->room);
    maps->text = NULL;
}

static const char *take_hex(const char *at, const char *end, uintptr_t *ret) {
    for (*ret = 0; at < end; at++) {
        if (*at >= '0' && *at <= '9') *ret = *ret << 4 | (uintptr_t)(*at - '0');
        else if (*at >= 'a' && *at <= 'f') *ret = *ret << 4 | (uintptr_t)(*at - 'a' + 10);
        else break;
    }
    return at;
}

// Behind "begin-end rights offset device inode" and blanks.
static const char *path_of(const char *at, const char *end) {
    for (unsigned fields = 0; fields < 5 && at < end; fields++) {
        while (at < end && *at != ' ') at++;
        while (at < end && *at == ' ') at++;
    }
    return at;
}

// A newline in a path is written as \012, and nothing else is changed.
static size_t copy_path(char *to, size_t room, const char *at, const char *end) {
    size_t n = 0;
    while (at < end && n + 1 < room) {
        bool newline = end - at >= 4 && memcmp(at, "\\012", 4) == 0;
        to[n++] = *at;
        if (newline) to[n - 1] = '\n';
        at += newline ? 4 : 1;
    }
    to[n] = '\0';
    return at == end ? n : 0;
}

// A file may be called so that its name looks like that of one that is gone: then it is there.
static void look_at_file(char *path, qy_os_mapped_t *mapped) {
    qy_statx_t st;
    const unsigned wanted = QY_STATX_TYPE | QY_STATX_SIZE | QY_STATX_MODIFIED;
    if (qy_syscall(SYS_statx, AT_FDCWD, path, 0, wanted, &st) == 0) {
        if (!S_ISREG(st.mode)) return;
        mapped->bytes = st.bytes;
        mapped->modified_ns = (uint64_t)st.modified.seconds * 1000000000u + st.modified.nanoseconds;
        return;
    }
    size_t suffix = sizeof GONE - 1;
    if (mapped->length > suffix && memcmp(path + mapped->length - suffix, GONE, suffix) == 0)
        path[mapped->length -= suffix] = '\0';
}

bool qy_os_maps_find(const qy_os_maps_t *maps, uintptr_t address, char *path, size_t room, qy_os_mapped_t *ret) {
    *ret = (qy_os_mapped_t){0};
    if (!maps->text) return false;
    const char *stop = maps->text + maps->bytes, *end;
    for (const char *at = maps->text; at < stop; at = end + 1) {
        uintptr_t from, to;
        end = memchr(at, '\n', (size_t)(stop - at));
        if (!end) break;
        const char *dash = take_hex(at, end, &from);
        take_hex(dash < end ? dash + 1 : end, end, &to);
        if (address < from || address >= to) continue;
        const char *name = path_of(at, end);
        if (name == end || *name != '/') return false;
        ret->length = copy_path(path, room, name, end);
        if (!ret->length) return false;
        look_at_file(path, ret);
        return true;
    }
    return false;
}

static unsigned region_flags(const char *rights, const char *name, const char *end) {
    unsigned flags = 0;
    const char stack[] = "[stack]";
    if (end - rights < 4) return 0;
    if (rights[0] == 'r') flags |= QY_REGION_READ;
    if (rights[1] == 'w') flags |= QY_REGION_WRITE;
    if (rights[2] == 'x') flags |= QY_REGION_EXEC;
    if (rights[3] == 's') flags |= QY_REGION_SHARED;
    if (name < end && *name == '/') flags |= QY_REGION_FILE;
    if (end - name > 2 && name[0] == '[' && name[1] == 'v') flags |= QY_REGION_KERNEL;  // [vvar], [vdso], ...
    size_t length = (size_t)(end - name);
    if (length == sizeof stack - 1 && memcmp(name, stack, length) == 0) flags |= QY_REGION_STACK;
    return flags;
}

bool qy_os_maps_next(const qy_os_maps_t *maps, size_t *at, qy_os_region_t *ret) {
    if (!maps->text || *at >= maps->bytes) return false;
    const char *begin = maps->text + *at, *end = memchr(begin, '\n', maps->bytes - *at);
    if (!end) return false;
    const char *dash = take_hex(begin, end, &ret->begin);
    const char *blank = take_hex(dash < end ? dash + 1 : end, end, &ret->end);
    ret->flags = region_flags(blank < end ? blank + 1 : end, path_of(begin, end), end);
    *at = (size_t)(end + 1 - maps->text);
    return true;
}
