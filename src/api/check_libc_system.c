// SPDX-License-Identifier: MIT
// check_libc_system.c: see check_libc.h. Paths, small structures, time, sorting and conversions.
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <iconv.h>
#include <poll.h>
#include <regex.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/utsname.h>
#include <time.h>

#include "api/check_libc.h"

// What iconv has used and made is told by how it moved the pointers. It has looked at one byte more, where it failed
// for what is there and not for want of room.
#define ICONV_BEFORE                                   \
    char *from_ = s ? *s : NULL, *to_ = d ? *d : NULL; \
    if (s) {                                           \
        OUT(s, sizeof *s);                             \
        OUT(n, sizeof *n);                             \
    }                                                  \
    if (d) {                                           \
        OUT(d, sizeof *d);                             \
        OUT(m, sizeof *m);                             \
    }
#define ICONV_AFTER                                                                           \
    if (from_) IN(from_, (size_t)(*s - from_) + (r == SIZE_MAX && errno != E2BIG && *n > 0)); \
    if (to_) OUT(to_, (size_t)(*d - to_))

#define TABLE "api/check_libc_system.def"
#define TABLE_FIND qy_libc_find_system
#include "api/check_libc_define.h"
