// SPDX-License-Identifier: MIT
// scenario.h: what the programs of bench/scenarios share: options, phases, threads, and the lines of JSON at the end
// (README.md has the format).
//
// Nothing here allocates between scenario_begin and the last phase_end: what is measured is the allocator's.
#ifndef BENCH_SCENARIO_H
#define BENCH_SCENARIO_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "../common/counters.h"
#include "../common/work.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// ---- options ----

typedef enum option_kind { OPTION_NUMBER,
    OPTION_BYTES,  // may end with k, M or G
    OPTION_CHOICE } option_kind_t;

typedef struct option {
    const char *name;  // without dashes; NULL ends a table
    option_kind_t kind;
    uint64_t *value;      // what it is if not given, then what was given; of a choice: its number
    uint64_t low, high;   // of a number, in bytes of bytes
    const char *choices;  // "one|other"
    const char *help;
} option_t;

#define NUMBER(name, variable, low, high, help) \
    { name, OPTION_NUMBER, variable, low, high, NULL, help }
#define BYTES(name, variable, low, high, help) \
    { name, OPTION_BYTES, variable, low, high, NULL, help }
#define CHOICE(name, variable, choices, help) \
    { name, OPTION_CHOICE, variable, 0, 0, choices, help }

// The ones that many have.
typedef enum touch { TOUCH_NONE,
    TOUCH_FIRST,
    TOUCH_ALL } touch_t;
#define OPTION_TOUCH(variable)                  \
    CHOICE("touch", variable, "none|first|all", \
        "what is written of a block: nothing, its first 8 bytes, each cache line")
#define OPTION_SEED(variable) NUMBER("seed", variable, 1, UINT64_MAX, "of the random numbers")

// Reads the options. --help is answered, an error ends the process with status 2. `name` is the member `scenario`;
// `about`: lines for --help.
void scenario_begin(int argc, char **argv, const char *name, const char *about, const option_t *options);

// The option `with`, as text; "malloc" for programs without it.
const char *scenario_with(void);

// This combination has no meaning: status 77.
void scenario_not_applicable(const char *why) __attribute__((noreturn));

// ---- phases ----

// Of one phase; all rounds together. Starts as {.name = "..."}. `who` says whose processor time and faults it has:
// RUSAGE_SELF, of all threads; RUSAGE_THREAD, for phases that run beside each other, each in a thread of its own;
// RUSAGE_CHILDREN, of processes that end in it. A phase that never began by phase_begin has none: they are null.
typedef struct phase {
    const char *name;
    int who;
    double seconds, cpu_seconds, user_seconds, system_seconds;
    double best_ns;  // of an operation, in the fastest interval; 0: none yet
    uint64_t operations, intervals;
    bool begun;
    double start, start_cpu, start_user, start_system;
    long faults, start_faults;
    long peak_kib;  // the most resident memory, where it is not that of this process
    counters_t counters;
} phase_t;

// An interval of the phase begins, and ends after so many operations. Phases may take turns, but not overlap.
void phase_begin(phase_t *p);
void phase_end(phase_t *p, uint64_t operations);
// The same for who has timed it better: `seconds` in the place of what the clock says.
void phase_end_timed(phase_t *p, double seconds, uint64_t operations);

// ---- results ----

// For the next line: a member of `values`; the columns of the series (up to the NULL), then its rows.
void scenario_value(const char *name, double value);
void scenario_columns(const char *first, ...) __attribute__((sentinel));
void scenario_row(double x, ...);  // as many doubles as columns

// The line of a phase, with what was said before. Threads and rounds are those of the options.
void scenario_print(const phase_t *p, uint64_t payload_bytes, uint64_t check);

// Ends main: the lines are written.
int scenario_end(void);

// ---- the process ----

long scenario_rss_kib(void);   // resident now
long scenario_anon_kib(void);  // the same without pages of files, of which code brings 16 at a time
long scenario_peak_kib(void);  // the most so far

// Memory that is not the allocator's: from the kernel, resident at once.
void *scenario_memory(size_t bytes);

// ---- threads ----

enum { SCENARIO_THREADS = 1024 };

typedef struct worker {
    unsigned number, of;
    uint64_t random;  // its random numbers
    uint64_t check;   // its part of the result
    void *shared;
    void (*body)(struct worker *worker);
    double begin, end;
    pthread_t id;
} worker_t;

// body in so many threads (in this one, if one: a process that never had a second thread is another case for many
// mallocs). All begin at the same time. Returns the seconds from the first one's begin to the last one's end; the sum
// of their checks is added to *check.
double workers_run(unsigned threads, void (*body)(worker_t *worker), void *shared, uint64_t seed, uint64_t *check);

// ---- what is written to blocks ----

// A word that tells blocks of different sizes and origins apart.
ALWAYS_INLINE uint64_t touch_tag(uint64_t mark, size_t size) { return mark * 0x9e3779b97f4a7c15 ^ size; }

// `size` is 8 or more, unless nothing is touched.
ALWAYS_INLINE void touch_write(char *p, size_t size, touch_t touch, uint64_t tag) {
    if (touch == TOUCH_NONE) return;
    memcpy(p, &tag, 8);
    if (touch == TOUCH_FIRST) return;
    for (size_t i = 64; i + 8 <= size; i += 64) memcpy(p + i, &tag, 8);
    memcpy(p + size - 8, &tag, 8);
}

ALWAYS_INLINE void touch_check(const char *p, size_t size, touch_t touch, uint64_t tag) {
    if (touch == TOUCH_NONE) return;
    // Where the last 8 bytes overlap the first, those were written last.
    if (__builtin_expect(memcmp(p, &tag, 8) != 0 && (touch == TOUCH_FIRST || size >= 16), 0))
        bench_fail("a block's first bytes have changed");
    if (touch == TOUCH_ALL && __builtin_expect(memcmp(p + size - 8, &tag, 8) != 0, 0))
        bench_fail("a block's last bytes have changed");
}

ALWAYS_INLINE void *must_have(void *p) {
    if (__builtin_expect(!p, 0)) bench_fail("out of memory");
    return p;
}

#endif
