// SPDX-License-Identifier: MIT
// tour.h: what the chapters of `quarry tour` share: a step is what the kernel counts at that moment, one line of JSON.
//
// A chapter is one program. The first comment of its source tells the idea, the lines between `// tour: show` and
// `// tour: hide` are the experiment, and claims after them say what was to be seen, with the figures of this run. Run
// by hand, a chapter prints its lines; `quarry tour` draws them. README.md has the format and how to write another
// chapter.
//
// Measuring does not change what is measured: nothing here allocates, and all that a step needs was touched in
// tour_begin. Single-threaded, but for tour_step, which may be called in a thread while all others wait for it.
#ifndef QUARRY_TOUR_H
#define QUARRY_TOUR_H

#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

// All figures are in KiB, or counts; -1: this kernel does not say. Names are the kernel's.

// Sums over mappings, from /proc/self/smaps.
typedef struct tour_smaps {
    long Size, Rss, Pss, Shared_Clean, Shared_Dirty, Private_Clean, Private_Dirty, Anonymous, LazyFree, AnonHugePages,
        Swap;
} tour_smaps;

typedef struct tour_numbers {
    // /proc/self/status
    long VmSize, VmRSS, RssAnon, RssFile, RssShmem, VmData, VmStk, VmExe, VmPTE, VmSwap;
    // /proc/self/statm, under the names that top has for them; lib and dt are fields without a meaning.
    struct {
        long VIRT, RES, SHR, CODE, DATA, lib, dt;
    } top;
    tour_smaps all;     // /proc/self/smaps_rollup: the whole process
    tour_smaps map;     // of the mapping that is watched, all -1 without one
    long minor, major;  // page faults so far
} tour_numbers;

// One mapping.
typedef struct tour_mapping {
    uintptr_t from, to;
    char modes[5];  // "rw-p"
    unsigned long inode;
    char name[128];  // cut off where longer
} tour_mapping;

// ---- telling ----

// First of all. `show`: the figures that tell the story, as "RssAnon map.Pss top.SHR minor", at most eight.
// Pages are small ones in the whole process unless the chapter asks for others, and it stays on one processor: since
// Linux 6.2 the counters of resident pages are kept by processor, and what others hold back is not seen.
void tour_begin(const char *show);

// What the kernel counts now, under this name (unique in the chapter). Lives as long as the program, and steps of
// children can be found by their parent.
const tour_numbers *tour_step(const char *name);
const tour_numbers *tour_find(const char *name);

// From here on `map` is about the mappings in [from, from + bytes).
void tour_watch(const void *from, size_t bytes);

// Show the mappings that lie in [from, to).
void tour_maps(const void *from, const void *to);

// What is to be seen: a sentence with its figures. It is no claim if it cannot be wrong: then it is a note.
void tour_claim(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tour_near(long measured, long expected, long slack, const char *format, ...) __attribute__((format(printf, 4, 5)));
void tour_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

// The experiment is impossible here, and why: the program ends with status 77.
void tour_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

// A call that has to succeed: otherwise the program ends with status 2 and says which one it was.
void tour_must(bool done, const char *what);

// The status to end with: 0, or 1 if a claim did not hold.
int tour_end(void);

// How far process-wide figures may be off, in KiB: libc's and our own pages that are touched for the first time, and
// what the kernel's counters may hold back (64 pages of a thread before Linux 6.2, twice as many as there are
// processors since).
long tour_slack(void);

// "1.50 MiB" of KiB; good until the eighth call after this one.
const char *tour_size(long kib);

// ---- tools for experiments ----

size_t tour_page(void);

// One byte of each page.
static inline void tour_write_pages(void *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += tour_page()) ((volatile char *)from)[at] = 1;
}

// The sum of these bytes.
static inline long tour_read_pages(const void *from, size_t bytes) {
    long sum = 0;
    for (size_t at = 0; at < bytes; at += tour_page()) sum += ((const volatile char *)from)[at];
    return sum;
}

// The mapping that has this address; false: none has.
bool tour_mapping_of(const void *address, tour_mapping *mapping);

// A file of `bytes` times 'f', on the disk and not in memory only, that goes away with the program. Owned by the
// caller. The chapter is skipped where only file systems are at hand that are memory themselves.
int tour_file(size_t bytes);

// The first number in a file of /proc or /sys that follows `key`; -1: not there.
long tour_number_in(const char *path, const char *key);

// fork; the child's steps are marked with its name, and it ends with its parent.
pid_t tour_fork(const char *name);

// In a child: wait to be continued. In the parent: until the child pauses or ends; then its exit status, or -1 and more
// for a signal (-SIGSEGV), or PAUSED. tour_continue lets it go on.
enum { PAUSED = 1000 };
void tour_pause(void);
int tour_wait(pid_t child);
void tour_continue(pid_t child);

#endif
