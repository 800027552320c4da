// SPDX-License-Identifier: MIT
// cgroup.c: the CPU quota. /proc/self/cgroup names our groups, one line per hierarchy:
//
//   0::/user.slice/app.scope       version 2; quota in <mount>/user.slice/app.scope/cpu.max
//   4:cpu,cpuacct:/docker/0a1b     version 1; in <mount>/docker/0a1b/cpu.cfs_{quota,period}_us
//
// A group is bound by its own quota and by those of all groups above it. The mounts are taken to be
// where everybody has them, under /sys/fs/cgroup. Absent files are no limit.
#include "os/cgroup.h"

#include "base/num.h"
#include "os/file.h"
#include "os/syscall.h"

// Longer paths are ignored. Together about 1.3 KiB of stack: the first malloc may be on a small one.
#define PATH_BYTES 640
#define LINE_BYTES 512
#define BLOCK_BYTES 128
#define FILE_NAME_MAX 24  // longest of the file names below, with its NUL

// ---- strings ------------------------------------------------------------------------------------

typedef struct path {
    size_t length;
    char text[PATH_BYTES];
} path_t;

static bool cgroup_append(path_t *p, const char *s) {
    size_t n = 0;
    while (s[n]) n++;
    if (p->length + n + FILE_NAME_MAX > PATH_BYTES) return false;
    for (size_t i = 0; i <= n; i++) p->text[p->length + i] = s[i];
    p->length += n;
    return true;
}

static void cgroup_cut(path_t *p, size_t length) { p->text[p->length = length] = '\0'; }

// Is `word` in the comma-separated list that ends at a ':'?
static bool listed(const char *list, const char *word) {
    for (;;) {
        const char *w = word;
        while (*w && *list == *w) list++, w++;
        if (!*w && (*list == ',' || *list == ':')) return true;
        while (*list != ',' && *list != ':') list++;
        if (*list++ == ':') return false;
    }
}

// Digits at *at, which is moved behind them; -1 if there are none (so "max" and "-1" are -1).
static int64_t cgroup_number(const char **at) {
    const char *begin = *at;
    int64_t n = 0;
    for (; **at >= '0' && **at <= '9'; (*at)++) n = n < INT64_MAX / 16 ? n * 10 + (**at - '0') : n;
    return *at == begin ? -1 : n;
}

// ---- quotas -------------------------------------------------------------------------------------

static bool read_in(path_t *dir, const char *file, char *value, size_t bytes) {
    size_t length = dir->length, i = 0;
    do dir->text[length + i] = file[i];
    while (file[i++]);
    bool read = qy_os_read_small(dir->text, value, bytes) > 0;
    cgroup_cut(dir, length);
    return read;
}

// The quota written in one directory.
static unsigned quota_of(path_t *dir, bool v2) {
    char value[64];
    const char *at = value;
    int64_t quota = -1, period = -1;
    if (v2) {
        if (!read_in(dir, "/cpu.max", value, sizeof value)) return UINT32_MAX;
        quota = cgroup_number(&at);
        at += *at == ' ';
        period = cgroup_number(&at);
    } else {
        if (!read_in(dir, "/cpu.cfs_quota_us", value, sizeof value)) return UINT32_MAX;
        quota = cgroup_number(&at);
        at = value;
        if (read_in(dir, "/cpu.cfs_period_us", value, sizeof value)) period = cgroup_number(&at);
    }
    if (quota <= 0 || period <= 0) return UINT32_MAX;
    return (unsigned)qy_min((size_t)((quota - 1) / period + 1), UINT32_MAX);
}

// The least quota of a group and all above it. In a container the group's path may be one that only
// exists outside; the mount is then the container's own group, and the walk ends there.
static unsigned quota_upwards(const char *root, const char *mount, const char *group, bool v2) {
    path_t dir = {.length = 0};
    if (!cgroup_append(&dir, root) || !cgroup_append(&dir, mount)) return UINT32_MAX;
    size_t top = dir.length;
    if (!cgroup_append(&dir, group)) return UINT32_MAX;
    unsigned least = UINT32_MAX;
    for (;;) {
        while (dir.length > top && dir.text[dir.length - 1] == '/') cgroup_cut(&dir, dir.length - 1);
        least = (unsigned)qy_min(least, quota_of(&dir, v2));
        if (dir.length == top) return least;
        while (dir.text[dir.length - 1] != '/') cgroup_cut(&dir, dir.length - 1);
    }
}

// One line "ID:CONTROLLERS:PATH".
static unsigned quota_of_line(const char *root, const char *line) {
    const char *list = line;
    while (*list && *list != ':') list++;
    const char *group = *list ? ++list : list;
    while (*group && *group != ':') group++;
    if (!*group++ || *group != '/') return UINT32_MAX;
    if (*list == ':') {
        unsigned unified = quota_upwards(root, "/sys/fs/cgroup", group, true);
        return (unsigned)qy_min(unified, quota_upwards(root, "/sys/fs/cgroup/unified", group, true));
    }
    return listed(list, "cpu") ? quota_upwards(root, "/sys/fs/cgroup/cpu", group, false) : UINT32_MAX;
}

unsigned qy_os_cgroup_cpus(const char *root) {
    path_t groups = {.length = 0};
    if (!cgroup_append(&groups, root) || !cgroup_append(&groups, "/proc/self/cgroup")) return UINT32_MAX;
    int fd = qy_os_open_read(groups.text);
    if (fd < 0) return UINT32_MAX;
    char line[LINE_BYTES], block[BLOCK_BYTES];
    size_t length = 0;
    unsigned least = UINT32_MAX;
    long n;
    while ((n = qy_os_read(fd, block, sizeof block)) > 0) {
        for (long i = 0; i < n; i++) {
            if (block[i] != '\n') {
                if (length < LINE_BYTES) line[length] = block[i];
                length++;  // beyond LINE_BYTES: a line to ignore
                continue;
            }
            if (length < LINE_BYTES) {
                line[length] = '\0';
                least = (unsigned)qy_min(least, quota_of_line(root, line));
            }
            length = 0;
        }
    }
    qy_os_close(fd);
    return least;
}
