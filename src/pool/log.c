// SPDX-License-Identifier: MIT
// log.c: see log.h. Records of 64 bytes, gathered per pool and written in one piece, so that processes and
// threads may share the file (it is opened for appending).
#include "pool/log.h"

#include <errno.h>
#include <string.h>

#include "base/num.h"
#include "os/os.h"
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

_Static_assert(sizeof(record_t) == 64 && sizeof(name_record_t) == 64 && sizeof(head_record_t) == 64, "one size for all");

typedef struct qy_log {
    qy_lock_t lock;
    uint32_t id;
    uint32_t filled;
    _Atomic uint64_t operations;  // cheap ones, all kinds
    uint64_t last_entry;          // `operations` at the last entry; the lock's
    record_t records[RECORDS];
} qy_log_t;

static struct {
    qy_lock_t lock;
    int fd;  // 0: not opened yet; -1: cannot be
    int process;
    _Atomic uint32_t pools;
} file;

// ---- the file -----------------------------------------------------------------------------------------

static void expand(char *path, size_t bytes, const char *pattern) {
    size_t n = 0;
    for (const char *c = pattern; *c && n < bytes - 1; c++) {
        if (c[0] == '%' && c[1] == 'p') {
            n += qy_format(path + n, bytes - n, "%d", qy_os_process_id());
            c++;
        } else path[n++] = *c;
    }
    path[n] = '\0';
}

static void write_head(void) {
    head_record_t head = {.process = (uint32_t)file.process, .record_bytes = sizeof(record_t), .event = 0xFFFF, .version = 1, .every = (uint32_t)qy_opts.pool_log_every, .start_ns = qy_os_now_ns()};
    memcpy(head.magic, MAGIC, sizeof head.magic);
    qy_os_program_name(head.program, sizeof head.program);
    qy_os_write(file.fd, &head, sizeof head);
}

// The file's descriptor, or -1. Opened on first need, also anew in the child of a fork (another process id).
static int file_open(void) {
    char pattern[1024], path[1100];
    if (!qy_opts_str(qy_opts.pool_log, pattern, sizeof pattern)) return -1;
    qy_lock_take(&file.lock);
    if (!file.fd) {
        expand(path, sizeof path, pattern);
        file.process = qy_os_process_id();
        file.fd = qy_os_open_append(path);
        if (file.fd == 0) file.fd = -1;  // standard input was closed; not worth a dup
        if (file.fd < 0) qy_warn("cannot write the pool log %s", path);
        else write_head();
    }
    int fd = file.fd;
    qy_lock_drop(&file.lock);
    return fd;
}

// ---- records ------------------------------------------------------------------------------------------

static void flush(qy_log_t *log) {
    if (log->filled) qy_os_write(file.fd, log->records, log->filled * sizeof *log->records);
    log->filled = 0;
}

static void *next_record(qy_log_t *log) {
    if (log->filled == RECORDS) flush(log);
    return memset(&log->records[log->filled++], 0, sizeof(record_t));
}

static void add_entry(quarry_pool_t *pool, qy_log_t *log, qy_log_event_t event) {
    quarry_pool_stats_t s;
    quarry_pool_stats(pool, &s);
    *(record_t *)next_record(log) = (record_t){
        .time_ns = qy_os_now_ns(),
        .process = (uint32_t)file.process,
        .pool = log->id,
        .event = event,
        .chunk_gets = (uint32_t)s.chunk_gets,
        .held = s.held_bytes,
        .used = s.used_bytes,
        .requested = s.requested_bytes,
        .operations = log->operations,
        .slow_ns = s.slow_ns,
    };
    log->last_entry = log->operations;
}

static void add_name(quarry_pool_t *pool, qy_log_t *log) {
    name_record_t *r = next_record(log);
    *r = (name_record_t){.time_ns = qy_os_now_ns(), .process = (uint32_t)file.process, .pool = log->id, .event = 0xFFFE};
    quarry_pool_t *parent = pool->info->parent;
    if (parent && parent->info->log) r->parent = parent->info->log->id;
    qy_format(r->kind, sizeof r->kind, "%s", pool->ops->kind);
    qy_format(r->name, sizeof r->name, "%s", pool->info->name);
}

bool qy_log_open(quarry_pool_t *pool) {
    if (QY_LIKELY(!qy_opts.pool_log) || file_open() < 0) return true;
    qy_log_t *log = qy_object_alloc(sizeof *log);
    if (!log) return false;
    log->id = atomic_fetch_add_explicit(&file.pools, 1, memory_order_relaxed) + 1;
    pool->info->log = log;
    pool->mode |= QY_MODE_COUNTED;
    add_name(pool, log);
    return true;
}

void qy_log_close(quarry_pool_t *pool) {
    qy_log_t *log = pool->info->log;
    if (!log) return;
    qy_log_event(pool, QY_LOG_DEATH);
    flush(log);
    pool->info->log = NULL;
    qy_object_free(log, sizeof *log);
}

void qy_log_event(quarry_pool_t *pool, qy_log_event_t event) {
    qy_log_t *log = pool->info->log;
    if (!log) return;
    int saved = errno;
    qy_lock_take(&log->lock);
    add_entry(pool, log, event);
    if (event == QY_LOG_DEATH) flush(log);
    qy_lock_drop(&log->lock);
    errno = saved;
}

void qy_count(quarry_pool_t *pool, qy_count_t what, size_t size) {
    qy_pool_info_t *i = pool->info;
    if (what == QY_COUNT_ALLOC || what == QY_COUNT_RESIZE) atomic_fetch_add_explicit(&i->requested, size, memory_order_relaxed);
    if (what == QY_COUNT_ALLOC) atomic_fetch_add_explicit(&i->allocs, 1, memory_order_relaxed);
    if (what == QY_COUNT_FREE) atomic_fetch_add_explicit(&i->frees, 1, memory_order_relaxed);
    if (what == QY_COUNT_RESIZE) atomic_fetch_add_explicit(&i->resizes, 1, memory_order_relaxed);
    qy_log_t *log = i->log;
    if (!log) return;
    uint64_t n = atomic_fetch_add_explicit(&log->operations, 1, memory_order_relaxed) + 1;
    if (n % qy_opts.pool_log_every == 0) qy_log_event(pool, QY_LOG_PERIOD);
}

// ---- end of the process, and fork -----------------------------------------------------------------------

static int flush_one(quarry_pool_t *pool, void *arg) {
    (void)arg;
    qy_log_t *log = pool->info->log;
    if (!log) return 0;
    qy_lock_take(&log->lock);
    flush(log);
    qy_lock_drop(&log->lock);
    return 0;
}

__attribute__((destructor(101))) static void flush_all(void) { quarry_pools_walk(flush_one, NULL); }

void qy_log_fork(quarry_pool_t *pool, int phase) {
    qy_log_t *log = pool->info->log;
    if (!log) return;
    if (phase == 0) qy_lock_freeze(&log->lock);
    else if (phase == 1) qy_lock_thaw(&log->lock);
    else {
        // What was gathered is the parent's to write. Child pools of the same number differ in `process`.
        qy_lock_reset(&log->lock);
        log->filled = 0;
        file.process = qy_os_process_id();
        add_name(pool, log);
    }
}
