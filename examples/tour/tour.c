// SPDX-License-Identifier: MIT
// tour.c: steps, claims and what else the chapters share.
#include "tour.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#include "read.h"

enum { STEPS = 32,
    NAME = 64,
    OUT = 16 * 1024 };

// Shared with children, so that parents find their steps. Only one process takes a step at a time.
typedef struct step {
    char name[NAME];
    tour_numbers numbers;
} step;
typedef struct shared {
    int steps, claims, failed;
    step step[STEPS];
} shared;

static shared *all;
static const char *process = "";
static const char *watch_from, *watch_to;

// ---- lines of JSON ----

static char out[OUT];
static size_t used;

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(out + used, OUT - used, format, list);
    va_end(list);
    tour_must(n >= 0 && used + (size_t)n < OUT, "a line that is not too long");
    used += (size_t)n;
}

static void put_text(const char *text) {
    put("\"");
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') put("\\%c", *text);
        else if ((unsigned char)*text < ' ') put("\\u%04x", *text);
        else put("%c", *text);
    }
    put("\"");
}

// A line is written at once, so that those of parent and child do not mix.
static void put_line(void) {
    put("\n");
    for (size_t done = 0; done < used;) {
        ssize_t n = write(STDOUT_FILENO, out + done, used - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(2);  // nobody is left to tell
        done += (size_t)n;
    }
    used = 0;
}

static void put_formatted(const char *format, va_list list) {
    char text[1024];
    vsnprintf(text, sizeof text, format, list);
    put_text(text);
}

#define PUT_FORMATTED(format)        \
    do {                             \
        va_list list;                \
        va_start(list, format);      \
        put_formatted(format, list); \
        va_end(list);                \
    } while (0)

// ---- steps ----

static void put_fields(const tour_numbers *numbers) {
    const char *open = "";
    for (const tour_field *f = tour_fields; f->group; f++) {
        long value = *tour_value((tour_numbers *)numbers, f);
        if (value < 0) continue;
        if (strcmp(open, f->group) != 0) {
            put("%s,\"%s\":{", *open ? "}" : "", f->group);
            open = f->group;
        } else {
            put(",");
        }
        put("\"%s\":%ld", f->name, value);
    }
    put("}");
}

static void put_step(const step *s) {
    put("{\"step\":");
    put_text(s->name);
    put(",\"process\":");
    put_text(process);
    put_fields(&s->numbers);
    put("}");
}

const tour_numbers *tour_step(const char *name) {
    tour_must(all->steps < STEPS && !tour_find(name), name);
    step *s = &all->step[all->steps++];
    snprintf(s->name, NAME, "%s", name);
    tour_measure(&s->numbers, watch_from, watch_to);
    put_step(s);
    put_line();
    return &s->numbers;
}

const tour_numbers *tour_find(const char *name) {
    for (int i = 0; i < all->steps; i++)
        if (strncmp(all->step[i].name, name, NAME - 1) == 0) return &all->step[i].numbers;
    return NULL;
}

void tour_watch(const void *from, size_t bytes) {
    watch_from = from;
    watch_to = watch_from + bytes;
}

static void put_mapping(void *count, const char *line, const tour_mapping *mapping) {
    (void)mapping;
    put("%s", (*(int *)count)++ ? "," : "{\"maps\":[");
    put_text(line);
}

void tour_maps(const void *from, const void *to) {
    int count = 0;
    tour_each_mapping(from, to, put_mapping, &count);
    if (!count) return;
    put("]}");
    put_line();
}

// ---- begin and end ----

void tour_begin(const char *show) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    // where it is forbidden, figures are less exact, which is no reason to stop
    sched_setaffinity(0, sizeof here, &here);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tour_must(all != MAP_FAILED, "mmap");
    memset(all, 0, sizeof *all);
    memset(out, 0, OUT);
    // Twice through everything that a step does, so that no page of it is touched for the first time later.
    for (int i = 0; i < 2; i++) {
        tour_measure(&all->step[0].numbers, (char *)all, (char *)all + 1);
        put_step(&all->step[0]);
        tour_maps(NULL, NULL);
        tour_size(i);
        used = 0;
    }
    memset(all, 0, sizeof *all);

    struct utsname name;
    uname(&name);
    put("{\"show\":");
    put_text(show);
    put(",\"kernel\":");
    put_text(name.release);
    put(",\"machine\":");
    put_text(name.machine);
    put(",\"page_kib\":%zu,\"memory_kib\":%ld}", tour_page() / KIB, tour_number_in("/proc/meminfo", "MemTotal:"));
    put_line();
}

void tour_claim(bool holds, const char *format, ...) {
    all->claims++;
    all->failed += !holds;
    put("{\"claim\":");
    PUT_FORMATTED(format);
    put(",\"holds\":%s}", holds ? "true" : "false");
    put_line();
}

void tour_near(long measured, long expected, long slack, const char *format, ...) {
    bool holds = measured >= expected - slack && measured <= expected + slack;
    all->claims++;
    all->failed += !holds;
    put("{\"claim\":");
    PUT_FORMATTED(format);
    put(",\"holds\":%s,\"measured\":%ld,\"expected\":%ld,\"slack\":%ld}", holds ? "true" : "false", measured, expected,
        slack);
    put_line();
}

void tour_note(const char *format, ...) {
    put("{\"note\":");
    PUT_FORMATTED(format);
    put("}");
    put_line();
}

void tour_skip(const char *format, ...) {
    put("{\"skip\":");
    PUT_FORMATTED(format);
    put("}");
    put_line();
    exit(77);
}

void tour_must(bool done, const char *what) {
    if (done) return;
    fprintf(stderr, "tour: %s: %s\n", what, strerror(errno));
    exit(2);
}

int tour_end(void) {
    put("{\"end\":{\"steps\":%d,\"claims\":%d,\"failed\":%d}}", all->steps, all->claims, all->failed);
    put_line();
    return all->failed ? 1 : 0;
}

long tour_slack(void) {
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    long held_back = 2 * processors > 64 ? 2 * processors : 64;
    return 256 + held_back * (long)(tour_page() / KIB);
}

const char *tour_size(long kib) {
    static char text[8][32];
    static unsigned next;
    char *to = text[next++ % 8];
    long hundredths = labs(kib) * 100;
    const char *unit = "KiB";
    for (const char *const *larger = (const char *const[]){"MiB", "GiB", "TiB", NULL}; *larger && hundredths >= 102400;
         larger++) {
        hundredths = (hundredths + 512) / 1024;
        unit = *larger;
    }
    const char *sign = kib < 0 ? "-" : "";
    if (hundredths % 100 == 0 || hundredths >= 10000)
        snprintf(to, sizeof text[0], "%s%ld %s", sign, (hundredths + 50) / 100, unit);
    else snprintf(to, sizeof text[0], "%s%ld.%02ld %s", sign, hundredths / 100, hundredths % 100, unit);
    return to;
}

// ---- tools ----

size_t tour_page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

typedef struct found {
    tour_mapping *to;
    bool is;
} found;

static void keep(void *where, const char *line, const tour_mapping *mapping) {
    (void)line;
    found *f = where;
    *f->to = *mapping;
    f->is = true;
}

bool tour_mapping_of(const void *address, tour_mapping *mapping) {
    found f = {.to = mapping};
    tour_each_mapping(address, (const char *)address + 1, keep, &f);
    return f.is;
}

// Is the directory on a file system that is memory itself?
static bool is_memory(const char *directory) {
    struct statfs about;
    enum { TMPFS = 0x01021994,
        RAMFS = (int)0x858458f6 };
    return statfs(directory, &about) != 0 || (int)about.f_type == TMPFS || (int)about.f_type == RAMFS;
}

int tour_file(size_t bytes) {
    const char *directories[] = {getenv("TMPDIR"), "/var/tmp", "/tmp", "."};
    static char block[64 * 1024];
    memset(block, 'f', sizeof block);
    for (size_t i = 0; i < sizeof directories / sizeof *directories; i++) {
        char path[4096];
        if (!directories[i] || is_memory(directories[i])) continue;
        if ((size_t)snprintf(path, sizeof path, "%s/quarry-tour-XXXXXX", directories[i]) >= sizeof path) continue;
        int fd = mkostemp(path, O_CLOEXEC);
        if (fd < 0) continue;
        unlink(path);
        for (size_t done = 0; done < bytes;) {
            ssize_t n = write(fd, block, bytes - done < sizeof block ? bytes - done : sizeof block);
            tour_must(n > 0, "writing a file");
            done += (size_t)n;
        }
        tour_must(fsync(fd) == 0, "fsync");
        return fd;
    }
    tour_skip("needs a file on a disk: neither TMPDIR nor /var/tmp, /tmp or this directory can be written to and is "
              "on one");
}

pid_t tour_fork(const char *name) {
    pid_t child = fork();
    tour_must(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        process = name;
    }
    return child;
}

void tour_pause(void) {
    raise(SIGSTOP);
}

int tour_wait(pid_t child) {
    int status;
    while (waitpid(child, &status, WUNTRACED) != child) tour_must(errno == EINTR, "waitpid");
    if (WIFSTOPPED(status)) return PAUSED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void tour_continue(pid_t child) {
    kill(child, SIGCONT);
}
