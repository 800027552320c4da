// SPDX-License-Identifier: MIT
// read.c: from files of /proc to numbers, without allocating.
#include "read.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define STATUS(name) \
    { "status", #name, offsetof(tour_numbers, name) }
#define IN(group, name) \
    { #group, #name, offsetof(tour_numbers, group.name) }
#define SMAPS(group)                                                                                   \
    IN(group, Size), IN(group, Rss), IN(group, Pss), IN(group, Shared_Clean), IN(group, Shared_Dirty), \
        IN(group, Private_Clean), IN(group, Private_Dirty), IN(group, Anonymous), IN(group, LazyFree), \
        IN(group, AnonHugePages), IN(group, Swap)

const tour_field tour_fields[] = {
    //
    STATUS(VmSize), STATUS(VmRSS), STATUS(RssAnon), STATUS(RssFile), STATUS(RssShmem), STATUS(VmData), STATUS(VmStk),
    STATUS(VmExe), STATUS(VmPTE), STATUS(VmSwap),
    //
    IN(top, VIRT), IN(top, RES), IN(top, SHR), IN(top, CODE), IN(top, DATA), IN(top, lib), IN(top, dt),
    //
    SMAPS(all),
    //
    SMAPS(map),
    //
    {"faults", "minor", offsetof(tour_numbers, minor)}, {"faults", "major", offsetof(tour_numbers, major)},
    {NULL, NULL, 0}};

// Each line of a file, without its end; one that is longer than the buffer comes in pieces. false: it cannot be opened.
static bool each_line(const char *path, void (*use)(void *, char *line), void *with) {
    static char buffer[16 * 1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    size_t have = 0;
    for (;;) {
        ssize_t n = read(fd, buffer + have, sizeof buffer - 1 - have);
        have += n > 0 ? (size_t)n : 0;
        buffer[have] = 0;
        char *line = buffer;
        for (char *end; (end = strchr(line, '\n')); line = end + 1) {
            *end = 0;
            use(with, line);
        }
        have -= (size_t)(line - buffer);
        if (n <= 0 || have == sizeof buffer - 1) {
            if (have) use(with, line);
            have = 0;
        } else {
            memmove(buffer, line, have);
        }
        if (n <= 0) break;
    }
    close(fd);
    return true;
}

// What is to be read of one file: the fields of a group, added up over paragraphs.
typedef struct reading {
    tour_numbers *to;
    const char *group;
    const char *from, *end;  // of smaps: paragraphs of mappings in here count
    bool counts;
} reading;

static void add_field(void *with, char *line) {
    reading *r = with;
    char *colon = strchr(line, ':');
    if (!colon || !r->counts) return;
    size_t length = (size_t)(colon - line);
    for (const tour_field *f = tour_fields; f->group; f++) {
        if (strcmp(f->group, r->group) != 0 || strlen(f->name) != length || memcmp(f->name, line, length) != 0)
            continue;
        long *value = tour_value(r->to, f);
        *value = (*value < 0 ? 0 : *value) + strtol(colon + 1, NULL, 10);
    }
}

static bool parse_mapping(const char *line, tour_mapping *to) {
    *to = (tour_mapping){0};
    return sscanf(line, "%lx-%lx %4s %*x %*s %lu %127[^\n]", &to->from, &to->to, to->modes, &to->inode, to->name) >= 4;
}

static bool overlaps(const tour_mapping *mapping, const char *from, const char *to) {
    return mapping->from < (uintptr_t)to && mapping->to > (uintptr_t)from;
}

// In smaps a mapping's line, which begins with digits, is followed by its fields, which begin with capitals.
static void add_smaps(void *with, char *line) {
    reading *r = with;
    if (*line < 'A' || *line > 'Z') {
        tour_mapping mapping;
        r->counts = parse_mapping(line, &mapping) && overlaps(&mapping, r->from, r->end);
    } else {
        add_field(with, line);
    }
}

static void read_statm(void *with, char *line) {
    tour_numbers *to = with;
    long *fields[] = {
        &to->top.VIRT, &to->top.RES, &to->top.SHR, &to->top.CODE, &to->top.lib, &to->top.DATA, &to->top.dt};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        *fields[i] = strtol(line, &line, 10) * (long)(tour_page() / KIB);
}

void tour_measure(tour_numbers *numbers, const char *from, const char *to) {
    memset(numbers, 0xff, sizeof *numbers);  // -1 each
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    numbers->minor = usage.ru_minflt;
    numbers->major = usage.ru_majflt;
    each_line("/proc/self/status", add_field, &(reading){.to = numbers, .group = "status", .counts = true});
    each_line("/proc/self/statm", read_statm, numbers);
    each_line("/proc/self/smaps_rollup", add_field, &(reading){.to = numbers, .group = "all", .counts = true});
    if (from)
        each_line("/proc/self/smaps", add_smaps, &(reading){.to = numbers, .group = "map", .from = from, .end = to});
}

typedef struct walk {
    const char *from, *to;
    void (*each)(void *, const char *, const tour_mapping *);
    void *with;
} walk;

static void walk_line(void *with, char *line) {
    walk *w = with;
    tour_mapping mapping;
    if (parse_mapping(line, &mapping) && overlaps(&mapping, w->from, w->to)) w->each(w->with, line, &mapping);
}

void tour_each_mapping(
    const void *from, const void *to, void (*each)(void *, const char *, const tour_mapping *), void *with) {
    each_line("/proc/self/maps", walk_line, &(walk){.from = from, .to = to, .each = each, .with = with});
}

typedef struct search {
    const char *key;
    long found;
} search;

static void search_line(void *with, char *line) {
    search *s = with;
    size_t length = strlen(s->key);
    if (s->found < 0 && strncmp(line, s->key, length) == 0) s->found = strtol(line + length, NULL, 10);
}

long tour_number_in(const char *path, const char *key) {
    search s = {.key = key, .found = -1};
    each_line(path, search_line, &s);
    return s.found;
}
