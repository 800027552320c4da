// SPDX-License-Identifier: MIT
// check_libc.c: see check_libc.h. The C library's functions are found, and what is not as it should be is reported.
#include "api/check_libc.h"

#include <ctype.h>
#include <dlfcn.h>
#include <string.h>

#include "base/num.h"
#include "check/guarded.h"
#include "os/os.h"

// Of another thread that finds the same no harm comes.
void qy_libc_find(const qy_libc_name_t *names, size_t n) {
    for (size_t i = 0; i < n; i++)
        __atomic_store_n(names[i].real, (uintptr_t)dlsym(RTLD_NEXT, names[i].name), __ATOMIC_RELAXED);
}

// A resolver of an ifunc may run before we are relocated, and calls the likes of memcpy and strlen, not more.
QY_COLD uintptr_t qy_libc_early(const char *name) {
    uintptr_t plain = qy_libc_plain(name);
    return plain ? plain : (uintptr_t)dlsym(RTLD_NEXT, name);
}

static void libc_report(qy_check_fault_t *f) {
    f->has_block = qy_check_find(f->address, &f->block);
    f->offset = f->has_block ? (int64_t)(f->address - f->block.address) : 0;
    qy_check_report(f, NULL);
}

static void string_fault(const void *p, size_t bytes, const char *function) {
    uintptr_t at = (uintptr_t)p;
    qy_check_block_t b;
    bool is_inside = qy_check_find(at, &b) && !b.freed && at >= b.address && at - b.address < b.size;
    if (!is_inside) {
        qy_check_read(p, bytes, function);
        return;
    }
    // How far behind the block a zero byte was met says nothing: the first byte there should not have been read.
    qy_check_fault_t f = {.kind = "unterminated", .function = function, .address = at};
    f.bytes = (size_t)(b.address + b.size - at) + 1;
    f.detail = "the string has no end in its block";
    libc_report(&f);
}

QY_COLD void qy_libc_string_cold(const void *p, size_t bytes, const char *function) {
    string_fault(p, bytes, function);
    if (qy_guard_is_near(p)) qy_libc_open(p);
}

QY_COLD void qy_libc_overlap(const void *to, size_t bytes, const char *function) {
    qy_check_fault_t f = {.kind = "overlap", .function = function, .address = (uintptr_t)to, .is_write = true};
    f.bytes = bytes;
    f.detail = "what is copied overlaps the place that it is copied to";
    libc_report(&f);
}

QY_COLD void qy_libc_negative(const void *p, size_t n, const char *function) {
    qy_check_fault_t f = {.kind = "bad-argument", .function = function, .address = (uintptr_t)p, .bytes = n};
    f.detail = "a size that is a negative number";
    libc_report(&f);
}

// ---- guarded strings ----------------------------------------------------------------------------------------------

QY_COLD size_t qy_libc_room_guarded(const void *p) {
    uintptr_t at = (uintptr_t)p;
    qy_check_block_t b;
    if (!qy_check_guarded_find(at, &b)) return SIZE_MAX;
    return !b.freed && at - b.address < b.size ? b.address + b.size - at : 0;
}

QY_COLD void qy_libc_open(const void *p) {
    uintptr_t at = (uintptr_t)p, page = qy_os_page_size();
    qy_check_block_t b;
    if (!qy_check_guarded_find(at, &b)) return;
    for (at &= -page; at <= ((b.address + b.size + page - 1) & -page) && qy_guard_is_near((void *)at); at += page)
        if (!qy_os_readable((void *)at)) qy_guard_open(at);
}

QY_COLD void qy_libc_make_room_guarded(const void *p, size_t n) {
    uintptr_t at = (uintptr_t)p, page = qy_os_page_size();
    qy_check_block_t b;
    if (!n || qy_guard_has(at, n) || !qy_check_guarded_find(at, &b)) return;
    uintptr_t behind = (b.address + b.size + page - 1) & -page, end = behind + page;
    if (at >= end) return;
    if (n < end - at) end = at + n;
    at &= -page;
    if (!b.freed && (uintptr_t)p >= b.address) at = qy_max(at, behind);  // its own pages are open
    for (; at < end; at += page)
        if (!qy_os_readable((void *)at)) qy_guard_open(at);
}

QY_COLD size_t qy_libc_length_guarded(const char *s, const char *function) {
    size_t room = qy_libc_room_guarded(s), n = LENGTH_MAX(s, room);
    if (n < room) return n;
    qy_libc_string_cold(s, room + 1, function);
    return LENGTH(s);
}

QY_COLD size_t qy_libc_length_max_guarded(const char *s, size_t max, const char *function) {
    size_t room = qy_libc_room_guarded(s), n = LENGTH_MAX(s, qy_min(room, max));
    if (n < room || max <= room) return n;
    qy_check_read(s, room + 1, function);
    qy_libc_open(s);
    return LENGTH_MAX(s, max);
}

// How many bytes of each are read to compare them.
size_t qy_libc_same(const char *a, const char *b, size_t n) {
    size_t room = qy_min(qy_libc_room(a), qy_libc_room(b));
    for (size_t i = 0; i < n; i++)
        if (i == room || a[i] != b[i] || !a[i]) return i + 1;
    return n;
}

size_t qy_libc_alike(const char *a, const char *b, size_t n) {
    size_t room = qy_min(qy_libc_room(a), qy_libc_room(b));
    for (size_t i = 0; i < n; i++)
        if (i == room || tolower((unsigned char)a[i]) != tolower((unsigned char)b[i]) || !a[i]) return i + 1;
    return n;
}

void qy_libc_find_string(void);
void qy_libc_find_wide(void);
void qy_libc_find_io(void);
void qy_libc_find_format(void);
void qy_libc_find_system(void);

__attribute__((constructor(101))) static void libc_start(void) {
    qy_libc_find_string();
    qy_libc_find_wide();
    qy_libc_find_io();
    qy_libc_find_format();
    qy_libc_find_system();
}
