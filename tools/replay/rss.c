// SPDX-License-Identifier: MIT
// rss.c: resident bytes of this process, from /proc, read without stdio
#include "replay.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A line at a time; lines longer than the buffer come in pieces.
typedef struct lines {
    int fd;
    size_t used, at;
    char text[8192];
} lines_t;

// Not in .bss, which would look like memory of the allocator. All threads have this one: it is the caller's from the
// open to the last line.
static lines_t *lines;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

static bool open_lines(const char *path) {
    pthread_mutex_lock(&lines_lock);
    if (!lines) lines = qy_own(1, sizeof *lines);
    lines->fd = open(path, O_RDONLY | O_CLOEXEC);
    lines->used = lines->at = 0;
    if (lines->fd >= 0) return true;
    pthread_mutex_unlock(&lines_lock);
    return false;
}

static char *next_line(void) {
    for (;;) {
        char *start = lines->text + lines->at, *end = memchr(start, '\n', lines->used - lines->at);
        if (end) {
            *end = 0;
            lines->at = (size_t)(end + 1 - lines->text);
            return start;
        }
        memmove(lines->text, start, lines->used -= lines->at);
        lines->at = 0;
        if (lines->used == sizeof lines->text - 1) lines->used = 0;
        ssize_t n = read(lines->fd, lines->text + lines->used, sizeof lines->text - 1 - lines->used);
        if (n <= 0) {
            close(lines->fd);
            pthread_mutex_unlock(&lines_lock);
            return 0;
        }
        lines->used += (size_t)n;
    }
}

// Of a line "Name:   123 kB"; false if it is another one.
static bool field(const char *line, const char *name, uint64_t *bytes) {
    size_t length = strlen(name);
    if (strncmp(line, name, length) || line[length] != ':') return false;
    *bytes = strtoull(line + length + 1, 0, 10) * 1024;
    return true;
}

qy_rss_t qy_rss_now(void) {
    qy_rss_t rss = {0, 0};
    uint64_t all = 0;
    if (!open_lines("/proc/self/smaps_rollup")) return rss;
    for (char *line; (line = next_line());) {
        if (!field(line, "Rss", &all)) field(line, "Anonymous", &rss.anonymous);
    }
    rss.other = all > rss.anonymous ? all - rss.anonymous : 0;
    return rss;
}

// Is this mapping, by the end of its line in smaps, libc's or ours? The path is the sixth field.
static bool is_own(const char *line, const char *exe) {
    const char *path = strchr(line, '/'), *name = path ? strrchr(path, '/') + 1 : 0;
    if (!path) return strstr(line, "[stack]") != 0;
    static const char *const libc[] = {"libc.so", "libc-", "ld-linux", "ld-musl", "libpthread", "libm.so", "ld.so"};
    for (size_t i = 0; i < sizeof libc / sizeof *libc; i++) {
        if (!strncmp(name, libc[i], strlen(libc[i]))) return true;
    }
    return !strcmp(path, exe);
}

void qy_rss_files(void (*fn)(const char *path, uint64_t bytes, void *arg), void *arg) {
    char exe[4096], path[4096];
    uint64_t rss = 0, anonymous;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    *path = 0;
    if (!open_lines("/proc/self/smaps")) return;
    for (char *line; (line = next_line());) {
        if (*line < 'A' || *line > 'Z') {
            const char *at = strchr(line, '/');
            bool is_other = at && !is_own(line, exe) && strlen(at) < sizeof path && strcmp(at, qy_config.plan);
            strcpy(path, is_other ? at : "");
            rss = 0;
        } else if (*path && !field(line, "Rss", &rss) && field(line, "Anonymous", &anonymous) && rss > anonymous) {
            fn(path, rss - anonymous, arg);
        }
    }
}

uint64_t qy_rss_own(void) {
    char exe[4096];
    uint64_t sum = 0, bytes;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    if (!open_lines("/proc/self/smaps")) return 0;
    bool own = false;
    for (char *line; (line = next_line());) {
        // A mapping begins with its addresses; what is said of it with a capital letter.
        if (*line < 'A' || *line > 'Z') own = is_own(line, exe);
        else if (own && field(line, "Anonymous", &bytes)) sum += bytes;
    }
    return sum;
}

bool qy_rss_reset_peak(void) {
    int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool done = write(fd, "5", 1) == 1;
    close(fd);
    return done;
}

// The kernel keeps the peak of all resident memory. Files and shared memory are those of now: they were made
// present before the start, and hardly change.
static uint64_t from_status(const char *name) {
    uint64_t all = 0, file = 0, shared = 0;
    if (!open_lines("/proc/self/status")) return 0;
    for (char *line; (line = next_line());) {
        if (!field(line, name, &all) && !field(line, "RssFile", &file)) field(line, "RssShmem", &shared);
    }
    return all > file + shared ? all - file - shared : 0;
}

uint64_t qy_rss_peak(void) { return from_status("VmHWM"); }
uint64_t qy_rss_anonymous(void) { return from_status("VmRSS"); }
