// SPDX-License-Identifier: MIT
// replay.h: the replayer: who holds what, and the functions of its files.
//
// The process plays a plan on whatever malloc it is linked with, usually one that is preloaded. It asks this malloc
// for the plan's operations only: its own memory is mapped before the clock starts (memory.c). That memory is shared,
// not private, so that the kernel counts it apart: the process's anonymous memory is then the allocator's, but for
// what libc and the stack of main have (rss.c).
//
// An instance is one performance of the plan, with its own slots and threads; -t 3 makes three at once. The
// main of instance 0 is the thread of main(), so that a plan of one thread runs in a process that never had
// another one. Threads of a plan are made by threads of the plan; each has a seat as long as it lives: a
// stack, counters, histograms. Seats are reused, so there are as many as threads live at once.
//
// The sampler (sampler.c) is a process of its own, which reads our counters in the shared memory.
#ifndef QUARRY_REPLAY_REPLAY_H
#define QUARRY_REPLAY_REPLAY_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan.h"

#define QY_LINE 64

// How the process ends.
enum { QY_DONE = 0,
    QY_USAGE = 2,
    QY_REFUSED = 3,  // the plan is none, or does not fit together
    QY_SYSTEM = 4,   // the system refused something
    QY_WRONG = 5 };  // the allocator was caught: contents changed, or a block is misaligned

typedef enum qy_touch { QY_TOUCH_ALL,
    QY_TOUCH_RECORDED,  // as all, but of blocks with a TOUCH only so much
    QY_TOUCH_FIRST,
    QY_TOUCH_NONE } qy_touch_t;

typedef struct qy_config {
    const char *plan, *report;
    uint32_t instances, repeats;
    qy_touch_t touch;
    bool verify, real, timed, sample, looks;
    bool classic, silent, talk;  // the lines of the tool that .ms files come from
    double idle_s;
    uint64_t curve_step;  // 0: no curve
    unsigned spin;        // how often a waiter looks before it sleeps
} qy_config_t;

// ---- blocks -------------------------------------------------------------------------------------------

// `ptr` and `size` belong to who may operate on the slot next, see plan.h.
typedef struct qy_slot {
    void *ptr;      // NULL: empty, or the allocator had nothing
    uint64_t size;  // as asked for
    _Atomic uint32_t stamp;
    _Atomic uint32_t waiters;
    uint64_t most;  // to be written of it; so two slots are a line, and none lies across two
} qy_slot_t;

// ---- numbers ------------------------------------------------------------------------------------------

#define QY_HISTOGRAM_SUB 5  // 32 buckets to a power of two: 3 %
#define QY_HISTOGRAM_BUCKETS 1408

typedef struct qy_histogram {
    uint64_t count, sum, max;  // ticks
    uint64_t buckets[QY_HISTOGRAM_BUCKETS];
} qy_histogram_t;

// The first line is written at each operation, and read by the sampler.
typedef struct qy_seat {
    _Alignas(QY_LINE) _Atomic int64_t live;  // bytes its threads allocated less those they freed
    _Atomic uint64_t operations;
    uint64_t waited_ns, busy_ns;
    uint64_t late_ns;                     // at most, behind the recorded times
    uint64_t failed[QY_PLAN_KINDS];       // calls that returned NULL
    uint64_t misaligned, wrong, checked;  // what --verify found
    uint64_t usable;                      // bytes that malloc said its blocks have, in runs that look
    qy_histogram_t *histograms;           // one for each kind if calls are timed
    char *stack;
    struct qy_seat *next;  // free ones
} qy_seat_t;

// What --verify found in all.
typedef struct qy_verdict {
    uint64_t checked, wrong, misaligned;
} qy_verdict_t;

typedef struct qy_wrong {
    _Atomic uint32_t found;  // who sets it to 1 writes the rest
    uint32_t thread, slot;
    uint64_t offset, size, expected, seen;
} qy_wrong_t;

// ---- the plan -----------------------------------------------------------------------------------------

typedef struct qy_part {
    const uint64_t *words;
    uint32_t count, next;  // next part of the same thread, QY_NONE at the end
    uint32_t epoch, thread;
} qy_part_t;

#define QY_NONE UINT32_MAX
#define QY_REPEATS_TOLD 1000  // one by one, in the report

enum { QY_NEVER,         // no SPAWN makes it
    QY_MADE,             // the main of the instance joins it at the end
    QY_MADE_AND_ENDS };  // the plan joins it

typedef struct qy_plan {
    const qy_plan_head_t *head;
    qy_part_t *parts;       // in the order of the file
    uint32_t *first;        // of each thread, QY_NONE if it has none
    uint32_t *epoch_parts;  // number of parts of each epoch
    uint8_t *life;          // of each thread: what check.c found out
    uint32_t looks;         // with numbers below this
    bool strict;
} qy_plan_t;

// ---- a performance ------------------------------------------------------------------------------------

typedef struct qy_actor {
    struct qy_instance *instance;
    uint32_t thread;
    pthread_t handle;
    qy_seat_t *seat;
    _Atomic uint32_t born, born_waiters;  // handle and seat are valid
    _Atomic uint32_t bell, sleeping;      // strict: rung when it may be its turn, if it sleeps
} qy_actor_t;

typedef struct qy_usage {
    uint64_t user_ns, system_ns, minor_faults, major_faults, voluntary, involuntary;
} qy_usage_t;

typedef struct qy_instance {
    const qy_plan_t *plan;
    uint32_t number;
    qy_slot_t *slots;
    qy_actor_t *actors;
    _Atomic uint32_t *remaining;                  // parts of each epoch that are not done
    _Alignas(QY_LINE) _Atomic uint32_t frontier;  // epochs below it are done
    _Atomic uint32_t frontier_waiters;
    _Atomic uint32_t turn;  // strict: the part that is played
    _Atomic uint32_t ticket, ticket_waiters;
    pthread_mutex_t seats_lock;  // free_seats
    qy_seat_t *free_seats;
    qy_seat_t *main_seat;
    pthread_t main_handle;
    uint64_t start_ns;                          // of this repeat
    uint64_t play_ns;                           // of all repeats
    uint64_t *repeat_ns;                        // of the first QY_REPEATS_TOLD, of instance 0 only
    uint64_t left_blocks, left_bytes, left_ns;  // freed behind the end of the repeats
    qy_usage_t between;                         // what was used between the repeats
    // Where the order is exact: live bytes at every curve_step-th operation of the first repeat of instance 0.
    uint64_t exact_operations, exact_live, exact_peak, curve_next;
    uint64_t *curve, curve_length;
} qy_instance_t;

extern qy_config_t qy_config;
extern qy_plan_t qy_plan;
extern qy_instance_t *qy_instances;
extern qy_seat_t *qy_seats;  // of all instances
extern uint32_t qy_seat_count;
extern qy_wrong_t *qy_wrong;
extern char **environ;

// memory.c: memory of our own: zero, present, shared with the sampler. Ends the process where there is none.
void *qy_own(size_t count, size_t size);
void qy_disown(void *p, size_t count, size_t size);
char *qy_own_stack(size_t size);
size_t qy_stack_size(void);

// text.c: text without stdio, which might allocate.
typedef struct qy_out {
    int fd;
    uint32_t used;
    char text[8192];
} qy_out_t;
void qy_print(qy_out_t *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void qy_flush(qy_out_t *out);
_Noreturn void qy_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

// load.c, check.c: a plan that may be trusted, or the end of the process with QY_REFUSED.
void qy_load(const char *path, qy_plan_t *plan);
void qy_check(qy_plan_t *plan);

// run.c: one thread of a plan, from its first part to its last.
void qy_run(qy_instance_t *instance, uint32_t thread, qy_seat_t *seat);

// threads.c
void qy_prepare(void);                   // instances, seats, stacks
void qy_play_all(void);                  // all instances, all repeats; what is live at the end stays
void qy_leave(qy_instance_t *instance);  // free what a repeat left
void qy_spawn(qy_instance_t *instance, qy_seat_t *seat, uint32_t thread, uint32_t number);
void qy_join(qy_instance_t *instance, qy_seat_t *seat, uint32_t thread);
pthread_t qy_make_thread(qy_seat_t *seat, void *(*start)(void *), void *arg);

// sync.c: waiting. All return with what the other side did before visible.
void qy_wait_stamp(qy_seat_t *seat, qy_slot_t *slot, uint32_t stamp);
void qy_signal_stamp(qy_slot_t *slot, uint32_t stamp);
void qy_enter_epoch(qy_seat_t *seat, qy_instance_t *instance, uint32_t epoch);
void qy_leave_epoch(qy_instance_t *instance, uint32_t epoch);
void qy_advance(qy_instance_t *instance);
void qy_await_turn(qy_seat_t *seat, qy_instance_t *instance, uint32_t thread, uint32_t part);
void qy_pass_turn(qy_instance_t *instance, uint32_t part);
void qy_await_word(qy_seat_t *seat, _Atomic uint32_t *word, uint32_t wanted, _Atomic uint32_t *waiters);
void qy_set_word(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *waiters);
void qy_sleep_until(qy_seat_t *seat, uint64_t ns);

// measure.c
void qy_read_usage(qy_usage_t *usage, int who);  // as getrusage has it
void qy_calibrate_begin(void);
void qy_calibrate_end(void);  // at least 10 ms later, or it waits
void qy_usage_add(qy_usage_t *sum, const qy_usage_t *before, const qy_usage_t *after);
void qy_usage_less(qy_usage_t *usage, const qy_usage_t *other);
extern double qy_ns_per_tick;
extern uint64_t qy_timer_ticks;  // what a pair of readings costs, taken off each time
double qy_percentile_ns(const qy_histogram_t *histogram, double part);

// rss.c: bytes of the process, from /proc. 0 where it cannot be read.
typedef struct qy_rss {
    uint64_t anonymous, other;  // other: files and shared memory
} qy_rss_t;
qy_rss_t qy_rss_now(void);  // exact, slow
uint64_t qy_rss_own(void);  // anonymous memory that is libc's and the stack's, not the allocator's
bool qy_rss_reset_peak(void);
uint64_t qy_rss_peak(void);       // of anonymous memory since then
uint64_t qy_rss_anonymous(void);  // now, less exact than qy_rss_now()
// Resident pages of files that are neither libc's nor the replayer's, a mapping at a time.
void qy_rss_files(void (*fn)(const char *path, uint64_t bytes, void *arg), void *arg);

// look.c: memory where the recorder looked, for `quarry replay` to compare. Only instance 0 looks, in its first repeat.
typedef struct qy_look {
    uint64_t anonymous, peak;  // now; the most since the look before
} qy_look_t;
extern qy_look_t *qy_looks;
void qy_looks_prepare(void);
void qy_look(uint32_t number);
uint64_t qy_looks_peak(void);  // the most of all intervals that have ended

// late.c: call this when the process ends, after all destructors. False: that cannot be done, or nobody looks.
bool qy_late_call(void (*call)(void));

// sampler.c
#define QY_SAMPLES 2048
typedef struct qy_sample {
    uint64_t ns, anonymous, operations;
    int64_t live;
} qy_sample_t;
typedef struct qy_board {
    _Atomic uint32_t state;    // a futex: 0 not yet, 1 sample, 2 stop
    _Atomic uint32_t playing;  // instances that are not between two repeats
    uint64_t start_ns, interval_ns;
    uint32_t count;
    uint64_t peak_anonymous;
    int64_t peak_live;
    qy_sample_t samples[QY_SAMPLES];
} qy_board_t;
extern qy_board_t *qy_board;
void qy_sampler_start(void);
void qy_sampler_go(uint64_t start_ns);
void qy_sampler_stop(void);

// classic.c: the lines of the original tool.
void qy_classic_start(void);
void qy_classic_call(qy_instance_t *instance, unsigned kind, uint32_t slot, void *p, uint64_t size, uint64_t ticks);
void qy_classic_stats(qy_instance_t *instance);
void qy_classic_repeat(qy_instance_t *instance);
void qy_classic_end(uint64_t ns);
void qy_classic_verdict(const qy_verdict_t *verdict);

// report.c
typedef struct qy_results {
    qy_usage_t used;                                              // by the repeats
    uint64_t own, start, peak, end, end_idle, freed, freed_idle;  // anonymous bytes
    uint64_t after;                                               // likewise, after all destructors; 0: not known
    bool peak_exact;
} qy_results_t;
void qy_report(const qy_results_t *results, const qy_verdict_t *verdict);

#endif
