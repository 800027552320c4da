// SPDX-License-Identifier: MIT
// log.c: see log.h. Records of 64 bytes, gathered per pool and written in one piece, so that processes and
// threads may share the file (it is opened for appending).
#include "pool/log.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/num.h"
#include "os/output.h"
#include "os/streams.h"
#include "rt/opts.h"

#define MAGIC "QYPOOLS1"
#define RECORDS 32  // 2 KiB at a time

// As they stand in the file: little-endian, on the machines we build for as in memory. docs/pool-log.md.
typedef struct record {
    uint64_t time_ns;  // monotonic
    uint32_t process, pool;
    uint16_t event;  // qy_log_event_t; 0xFFFE: name_record, 0xFFFF: head_record
    uint16_t reserved;
    uint32_t chunk_gets;
    uint64_t held, used, requested, operations, slow_ns;
} record_t;

typedef struct name_record {
    uint64_t time_ns;
    uint32_t process, pool;
    uint16_t event, reserved;
    uint32_t parent;  // 0: the kernel, or a pool that is not logged
    char kind[8];
    char name[32];
} name_record_t;

typedef struct head_record {
    char magic[8];
    uint32_t process, record_bytes;
    uint16_t event, version;
    uint32_t every;
    uint64_t start_ns;
    char program[32];
} head_record_t;

_Static_assert(
    sizeof(record_t) == 64 && sizeof(name_record_t) == 64 && sizeof(head_record_t) == 64, "one size for all");

typedef struct qy_log {
    qy_lock_t lock;
    uint32_t id;
    _Atomic uint32_t process;  // whose records these are; after a fork not ours until `adopt`
    uint32_t filled;
    struct qy_log *next, **prev_next;  // of all logs; logs.lock
    _Atomic uint64_t operations;       // cheap ones, all kinds
    record_t records[RECORDS];
} qy_log_t;

// Locks: the list of logs, or those of a kind; then a log; then the file.
static struct {
    qy_lock_t lock;
    qy_log_t *first;
    _Atomic uint32_t number;  // of the newest pool
} logs;

typedef enum state {
    UNOPENED,
    OPEN,
    GONE,  // cannot be opened, or the program has closed it
} state_t;

static struct {
    qy_lock_t lock;
    state_t state;
    qy_output_t out, errors;   // errors: what fd 2 was when it was opened
    uint32_t headed;           // the process whose head was written to it last
    bool own;                  // its name holds the process id, so that each process has one
    _Atomic uint32_t process;  // the calling process, kept right across forks; 0: not asked yet
} file;

// ---- the file -----------------------------------------------------------------------------------------

static uint32_t process_of(qy_log_t *log) { return atomic_load_explicit(&log->process, memory_order_relaxed); }
static uint32_t process(void) { return atomic_load_explicit(&file.process, memory_order_relaxed); }

static void expand(char *path, size_t bytes, const char *pattern) {
    size_t n = 0;
    for (const char *c = pattern; *c && n < bytes - 1; c++) {
        if (c[0] == '%' && c[1] == 'p') {
            n += qy_format(path + n, bytes - n, "%d", qy_os_process_id());
            file.own = true;
            c++;
        } else path[n++] = *c;
    }
    path[n] = '\0';
}

// A program may close any descriptor, and get the number for a file of its own. It may have done so with fd 2 as well:
// then nobody is told.
static bool still_ours(void) {
    if (file.state == OPEN && !qy_os_output_is(&file.out)) {
        file.state = GONE;
        if (qy_os_output_is(&file.errors)) qy_warn("the program has closed the pool log: no more is written to it");
    }
    return file.state == OPEN;
}

static void write_head(void) {
    head_record_t head = {.process = process(),
        .record_bytes = sizeof(record_t),
        .event = 0xFFFF,
        .version = 1,
        .every = (uint32_t)qy_opts.pool_log_every,
        .start_ns = qy_os_now_ns()};
    memcpy(head.magic, MAGIC, sizeof head.magic);
    qy_os_program_name(head.program, sizeof head.program);
    qy_os_write(file.out.fd, &head, sizeof head);
}

// The child has only the thread that forked; whoever held the lock is gone.
static void log_fork_prepare(void) {
    qy_os_streams_hold();
    qy_lock_fork(&logs.lock, 0);
}
static void log_fork_parent(void) {
    qy_lock_fork(&logs.lock, 1);
    qy_os_streams_let_go();
}
static void log_fork_child(void) {
    qy_os_streams_in_child();
    qy_lock_fork(&logs.lock, 2);
    qy_lock_fork(&file.lock, 2);
    atomic_store_explicit(&file.process, (uint32_t)qy_os_process_id(), memory_order_relaxed);
}
static void log_begin(void) {
    atomic_store_explicit(&file.process, (uint32_t)qy_os_process_id(), memory_order_relaxed);
    pthread_atfork(log_fork_prepare, log_fork_parent, log_fork_child);
}

static void log_open(void) {
    QY_NEEDS(&file.lock);
    static char pattern[4096], path[4096 + 64];  // as long as the options (rt/opts.c), and too long for small stacks
    file.state = GONE;
    if (!qy_opts_str(qy_opts.pool_log, pattern, sizeof pattern)) return;
    expand(path, sizeof path, pattern);
    qy_os_output_know(2, &file.errors);
    if (qy_os_output_open(path, &file.out)) file.state = OPEN;
    else qy_warn("cannot write the pool log %s", path);
}

// The descriptor of the file that has this process's head, or -1. Opened on first need; the child of a fork
// that logs nothing leaves no trace.
static int ready_file(void) {
    qy_lock_take(&file.lock);
    if (file.headed != process()) {
        if (file.state == OPEN && file.own) {
            qy_os_output_close(&file.out);
            file.state = UNOPENED;
        }
        if (file.state == UNOPENED) log_open();
        if (still_ours()) write_head();
        file.headed = process();
    }
    int fd = still_ours() ? file.out.fd : -1;
    qy_lock_drop(&file.lock);
    return fd;
}

// ---- records ------------------------------------------------------------------------------------------

static void log_flush(qy_log_t *log) {
    int fd = log->filled && process_of(log) == process() ? ready_file() : -1;
    if (fd >= 0) qy_os_write(fd, log->records, log->filled * sizeof *log->records);
    log->filled = 0;
}

static void *next_record(qy_log_t *log) {
    if (log->filled == RECORDS) log_flush(log);
    return memset(&log->records[log->filled++], 0, sizeof(record_t));
}

static void add_entry(qy_log_t *log, qy_log_event_t event, const quarry_pool_stats_t *s) {
    *(record_t *)next_record(log) = (record_t){
        .time_ns = qy_os_now_ns(),
        .process = process_of(log),
        .pool = log->id,
        .event = event,
        .chunk_gets = (uint32_t)s->chunk_gets,
        .held = s->held_bytes,
        .used = s->used_bytes,
        .requested = s->requested_bytes,
        .operations = log->operations,
        .slow_ns = s->slow_ns,
    };
}

static void add_name(quarry_pool_t *pool, qy_log_t *log) {
    name_record_t *r = next_record(log);
    *r = (name_record_t){.time_ns = qy_os_now_ns(), .process = process_of(log), .pool = log->id, .event = 0xFFFE};
    quarry_pool_t *parent = pool->info->parent;
    if (parent && parent->info->log) r->parent = parent->info->log->id;
    qy_format(r->kind, sizeof r->kind, "%s", pool->ops->kind);
    qy_format(r->name, sizeof r->name, "%s", pool->info->name);
}

// After a fork: what was gathered is the parent's to write, and the counters so far are the parent's. The
// pools of the child have the same numbers; `process` tells them apart.
static void adopt(quarry_pool_t *pool, qy_log_t *log, const quarry_pool_stats_t *s) {
    if (QY_LIKELY(process_of(log) == process())) return;
    atomic_store_explicit(&log->process, process(), memory_order_relaxed);
    log->filled = 0;
    add_name(pool, log);
    add_entry(log, QY_LOG_BIRTH, s);
}

static void log_insert(qy_log_t *log) {
    qy_lock_take(&logs.lock);
    log->next = logs.first;
    log->prev_next = &logs.first;
    if (log->next) log->next->prev_next = &log->next;
    logs.first = log;
    qy_lock_drop(&logs.lock);
}

static void log_take_out(qy_log_t *log) {
    qy_lock_take(&logs.lock);
    *log->prev_next = log->next;
    if (log->next) log->next->prev_next = log->prev_next;
    qy_lock_drop(&logs.lock);
}

bool qy_log_open(quarry_pool_t *pool) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (QY_LIKELY(!qy_opts.pool_log)) return true;
    pthread_once(&once, log_begin);
    if (ready_file() < 0) return true;
    qy_log_t *log = qy_pool_meta_alloc(sizeof *log);
    if (!log) return false;
    log->id = atomic_fetch_add_explicit(&logs.number, 1, memory_order_relaxed) + 1;
    atomic_init(&log->process, process());
    pool->info->log = log;
    pool->mode |= QY_MODE_COUNTED;
    add_name(pool, log);
    log_insert(log);
    return true;
}

void qy_log_close(quarry_pool_t *pool) {
    qy_log_t *log = pool->info->log;
    if (!log) return;
    log_take_out(log);
    qy_log_event(pool, QY_LOG_DEATH);
    pool->info->log = NULL;
    qy_pool_meta_free(log, sizeof *log);
}

void qy_log_event(quarry_pool_t *pool, qy_log_event_t event) {
    qy_log_t *log = pool->info->log;
    if (!log) return;
    int saved = errno;
    // Some kinds take their own lock for this, which comes before the log's. So entries of a shared pool can be
    // a moment older than their time.
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    qy_lock_take(&log->lock);
    adopt(pool, log, &s);
    add_entry(log, event, &s);
    if (event == QY_LOG_DEATH) log_flush(log);
    qy_lock_drop(&log->lock);
    errno = saved;
}

void qy_count(quarry_pool_t *pool, qy_count_t what, size_t size) {
    qy_pool_info_t *i = pool->info;
    if (what == QY_COUNT_ALLOC || what == QY_COUNT_RESIZE)
        atomic_fetch_add_explicit(&i->requested, size, memory_order_relaxed);
    if (what == QY_COUNT_ALLOC) atomic_fetch_add_explicit(&i->allocs, 1, memory_order_relaxed);
    if (what == QY_COUNT_FREE) atomic_fetch_add_explicit(&i->frees, 1, memory_order_relaxed);
    if (what == QY_COUNT_RESIZE) atomic_fetch_add_explicit(&i->resizes, 1, memory_order_relaxed);
    qy_log_t *log = i->log;
    if (!log) return;
    uint64_t n = atomic_fetch_add_explicit(&log->operations, 1, memory_order_relaxed) + 1;
    if (n % qy_opts.pool_log_every == 0) qy_log_event(pool, QY_LOG_PERIOD);
}

// ---- end of the process, and fork -----------------------------------------------------------------------

__attribute__((destructor(101))) static void flush_all(void) {
    qy_lock_take(&logs.lock);
    for (qy_log_t *log = logs.first; log; log = log->next) {
        // Pools that are in no list are not seen by fork handlers: their locks may be held by threads that the
        // child of a fork does not have. It has nothing to write for them either.
        if (process_of(log) != process()) continue;
        qy_lock_take(&log->lock);
        log_flush(log);
        qy_lock_drop(&log->lock);
    }
    qy_lock_drop(&logs.lock);
}

void qy_log_fork(quarry_pool_t *pool, int phase) {
    qy_log_t *log = pool->info->log;
    if (!log) return;
    qy_lock_fork(&log->lock, phase);
    if (phase == 2) {
        log_fork_child();  // this handler may run before that one
        // One that another thread was making or destroying has no figures, and never will.
        if (!atomic_load_explicit(&pool->info->ready, memory_order_relaxed)) return;
        quarry_pool_stats_t s;
        quarry_pool_stats(pool, &s);
        adopt(pool, log, &s);
    }
}
