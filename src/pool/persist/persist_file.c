// SPDX-License-Identifier: MIT
// persist_file.c: from a path to a mapping that may be trusted; making, growing and closing the file.
#include <errno.h>

#include "base/num.h"
#include "os/os.h"
#include "pool/persist.h"
#include "pool/trace.h"

#define INITIAL_BYTES (4 * QY_PERSIST_UNIT)
#define RESERVE_BYTES (UINT64_C(16) << 30)
#define BASE_ALIGNMENT ((size_t)2 << 20)  // so that aligned offsets are aligned addresses
#define GROW_MAX (UINT64_C(256) << 20)
#define READ_TRIES 500u  // of a reader whose writer is busy; 1 ms each

// ---- errors -----------------------------------------------------------------------------------------------

static __thread struct {
    const char *reason;
    uint64_t offset;
} last;

bool qy_persist_fail(int error, const char *reason, uint64_t offset) {
    errno = error;
    last.reason = reason;
    last.offset = offset;
    return false;
}

const char *quarry_persist_error(uint64_t *ret_offset) {
    if (ret_offset) *ret_offset = last.offset;
    return last.reason ? last.reason : "no error";
}

// ---- the file -----------------------------------------------------------------------------------------------

static bool same_file(const qy_file_stat_t *a, const qy_file_stat_t *b) {
    return a->inode == b->inode && a->device == b->device;
}

// Does the path lead elsewhere by now, or nowhere? (A file may be without a name from the start, as that of a memfd.)
static bool was_removed(const char *path, unsigned how, const qy_file_stat_t *st) {
    qy_file_stat_t now;
    int fd = qy_os_file_open(path, how), r = fd < 0 ? fd : qy_os_file_stat(fd, &now);
    if (fd >= 0) qy_os_close(fd);
    return r || !same_file(st, &now);
}

// The descriptors, the lock, the size. False: what is open is closed by the caller (fd >= 0).
static bool persist_file_open(quarry_persist_t *s, const char *path, qy_file_stat_t *ret_stat) {
    unsigned how = s->flags & QUARRY_PERSIST_READ_ONLY ? 0 : QY_FILE_WRITE;
    qy_file_stat_t other;
    s->fd = qy_os_file_open(path, how);
    if (s->fd == -ENOENT && (s->flags & QUARRY_PERSIST_CREATE)) {
        s->fd = qy_os_file_open(path, how | QY_FILE_CREATE);
        s->made = s->fd >= 0;
        if (s->fd == -EEXIST) s->fd = qy_os_file_open(path, how);  // somebody was faster
    }
    if (s->fd < 0) return qy_persist_fail(-s->fd, "the file cannot be opened", 0);
    int r = qy_os_file_stat(s->fd, ret_stat);
    if (r) return qy_persist_fail(-r, "the file cannot be examined", 0);
    if (!ret_stat->regular) return qy_persist_fail(EMEDIUMTYPE, "this is not a regular file", 0);
    if (!how) return true;
    // A second description for the lock: one that is mapped keeps its lock until it is unmapped everywhere, also in
    // a child that outlives us.
    s->lock_fd = qy_os_file_open(path, how);
    if (s->lock_fd < 0) return qy_persist_fail(-s->lock_fd, "the file cannot be opened twice", 0);
    r = qy_os_file_stat(s->lock_fd, &other);
    if (r || !same_file(ret_stat, &other))
        return qy_persist_fail(r ? -r : EAGAIN, "the file was replaced meanwhile", 0);
    r = qy_os_file_lock(s->lock_fd);
    if (r)
        return qy_persist_fail(
            -r, r == -EAGAIN ? "the pool is open for writing elsewhere" : "the file cannot be locked", 0);
    r = qy_os_file_stat(s->fd, ret_stat);  // as it is now that nobody else writes
    if (r) return qy_persist_fail(-r, "the file cannot be examined", 0);
    // Its maker failed, and has removed it.
    bool nameless = (s->flags & QUARRY_PERSIST_CREATE) && !ret_stat->links && was_removed(path, how, ret_stat);
    return !nameless || qy_persist_fail(EAGAIN, "the file was removed meanwhile", 0);
}

static bool map_more(quarry_persist_t *s, uint64_t end) {
    bool reads = s->foreign || (s->flags & QUARRY_PERSIST_READ_ONLY);
    unsigned how = s->private_map ? QY_MAP_WRITE : QY_MAP_SHARED | (reads ? 0 : QY_MAP_WRITE);
    if (end == s->mapped) return true;
    if (end > s->reserved) return qy_persist_fail(ENOMEM, "the pool needs more address space than max_bytes", 0);
    if (!qy_os_map_at(s->base + s->mapped, end - s->mapped, s->fd, s->mapped, how))
        return qy_persist_fail(ENOMEM, "the file cannot be mapped", 0);
    __atomic_store_n(&s->mapped, end, __ATOMIC_RELAXED);  // quarry_persist_at reads it without the lock
    return true;
}

// Address space for the file and its growth; less than wished where there is less.
static bool persist_file_reserve(quarry_persist_t *s, uint64_t bytes, uint64_t max) {
    uint64_t want = qy_max(bytes, max ? max : RESERVE_BYTES);
    want = qy_round_up(want, QY_PERSIST_UNIT);
    while (!(s->base = qy_os_reserve(want, BASE_ALIGNMENT, NULL)) && want > bytes)
        want = qy_max(qy_round_up(want / 2, QY_PERSIST_UNIT), bytes);
    if (s->base) qy_os_advise_nodump(s->base, want);  // so that a core has what is mapped over it, and not all this
    s->reserved = s->base ? want : 0;
    s->mapped = 0;
    return s->base || qy_persist_fail(ENOMEM, "no address space for the pool", 0);
}

static bool take_layout(quarry_persist_t *s, const qy_persist_header_t *h) {
    s->log_words = h->log_words;
    s->first = h->heap_at + 16;
    s->words = (qy_persist_words_t *)(void *)(s->base + h->words_at);
    s->log = (qy_persist_record_t *)(void *)(s->base + h->log_at);
    return true;
}

// That is `more` than before. It never becomes less.
static void holds_what_is_mapped(quarry_persist_t *s, uint64_t more) {
    atomic_store_explicit(&s->pool.info->held, s->mapped, memory_order_relaxed);
    atomic_store_explicit(&s->pool.info->peak_held, s->mapped, memory_order_relaxed);
    qy_pool_grown(&s->pool, more);
}

// Within the caller's transaction. The blocks of the file are there before the pool relies on them.
bool qy_persist_extend(quarry_persist_t *s, uint64_t bytes) {
    qy_pool_info_t *info = s->pool.info;
    uint64_t need = qy_round_up(bytes + 64, QY_PERSIST_UNIT), more = qy_round_up(s->mapped / 4, QY_PERSIST_UNIT);
    uint64_t limit = atomic_load_explicit(&info->limit, memory_order_relaxed),
             most = qy_min(s->reserved, UINT64_C(1) << QY_PERSIST_MAX_LOG2);
    if (limit) most = qy_min(most, qy_round_down(limit, QY_PERSIST_UNIT));
    if (most < s->mapped || need > most - s->mapped)
        return qy_persist_fail(ENOMEM, "the pool would exceed its limit or max_bytes", 0);
    more = qy_min(qy_max(qy_min(more, GROW_MAX), need), most - s->mapped);
    uint64_t start = qy_os_now_ns();
    int r = qy_os_file_allocate(s->fd, s->mapped, more);
    if (r == -ENOSPC || r == -EFBIG) r = qy_os_file_allocate(s->fd, s->mapped, more = need);
    if (r) {
        // Part of it may have been made. Where a sync failed for good, its journal may lie there, and the mark name it.
        if (!s->sync_failed) qy_os_file_truncate(s->fd, s->mapped);
        return qy_persist_fail(-r, "the file cannot grow", s->mapped);
    }
    if (!map_more(s, s->mapped + more)) return false;
    qy_bump(&info->chunk_gets, 1);
    qy_bump(&info->slow_calls, 1);
    qy_bump(&info->slow_ns, qy_os_now_ns() - start);
    holds_what_is_mapped(s, more);
    return true;
}

// ---- making -----------------------------------------------------------------------------------------------------

static bool write_header(quarry_persist_t *s, uint64_t magic, uint64_t log_words) {
    uint64_t heap_at = qy_round_up(QY_PERSIST_LOG_AT + log_words * sizeof(qy_persist_record_t), 4096);
    qy_persist_header_t h = {magic, QY_PERSIST_ORDER, QY_PERSIST_VERSION, QY_PERSIST_UNIT, QY_PERSIST_LOG_AT, log_words,
        heap_at, qy_os_random(), 0};
    h.sum = qy_persist_sum_of(&h);
    int r = qy_os_file_write_at(s->fd, &h, sizeof h, 0);
    if (!r) r = qy_os_file_sync(s->fd);
    if (r) return qy_persist_fail(-r, "the file cannot be written", 0);
    return take_layout(s, &h);
}

// All of it is on the disk before the header says that it is a pool.
static bool create(quarry_persist_t *s, const char *path, const quarry_persist_options_t *o, uint64_t *ret_bytes) {
    uint64_t log_words = o->log_words ? o->log_words : QY_PERSIST_LOG_DEFAULT;
    uint64_t least =
        qy_round_up(QY_PERSIST_LOG_AT + log_words * sizeof(qy_persist_record_t) + 4096 + 64, QY_PERSIST_UNIT);
    uint64_t bytes = qy_max(qy_round_up(o->initial_bytes ? o->initial_bytes : INITIAL_BYTES, QY_PERSIST_UNIT), least);
    uint64_t limit = o->pool.limit ? o->pool.limit : UINT64_MAX;
    // What was asked for fits, and its last unit does not.
    if (o->initial_bytes <= limit && bytes > limit) bytes = qy_max(qy_round_down(limit, QY_PERSIST_UNIT), least);
    if (bytes > limit) return qy_persist_fail(EINVAL, "the limit is less than a new file has", 0);
    int r = qy_os_file_truncate(s->fd, 0);
    if (r) return qy_persist_fail(-r, "the file cannot be written", 0);
    if (!persist_file_reserve(s, bytes, o->max_bytes) || !write_header(s, QY_PERSIST_CREATING, log_words)) return false;
    r = qy_os_file_allocate(s->fd, 0, bytes);
    if (r) return qy_persist_fail(-r, "there is no room for the file", 0);
    s->private_map = false;
    if (!map_more(s, bytes)) return false;
    qy_persist_format(s, *ret_bytes = bytes);
    r = qy_os_map_sync(s->base, bytes);
    if (!r) r = qy_persist_write_state(s, false);
    if (!r) r = qy_persist_clear_mark(s->fd, 0);
    if (r || !write_header(s, QY_PERSIST_MAGIC, log_words))
        return qy_persist_fail(r ? -r : errno, "the file cannot be written", 0);
    r = qy_os_file_sync_folder(path);
    s->mapped = 0;  // it is opened like any other now
    return !r || qy_persist_fail(-r, "the folder cannot be synced", 0);
}

// ---- opening ----------------------------------------------------------------------------------------------------

static bool check_header(const qy_persist_header_t *h, uint64_t bytes) {
    if (h->magic != QY_PERSIST_MAGIC) {
        if (h->magic == QY_PERSIST_CREATING)
            return qy_persist_fail(EUCLEAN, "the making of this pool was interrupted", 0);
        if (h->magic == __builtin_bswap64(QY_PERSIST_MAGIC))
            return qy_persist_fail(EMEDIUMTYPE, "a pool of a machine with the other byte order", 8);
        return qy_persist_fail(EMEDIUMTYPE, "this is no persistent pool", 0);
    }
    if (h->order != QY_PERSIST_ORDER) return qy_persist_fail(EMEDIUMTYPE, "the byte order is damaged", 8);
    if (h->sum != qy_persist_sum_of(h))
        return qy_persist_fail(EUCLEAN, "the header is damaged", offsetof(qy_persist_header_t, sum));
    if (h->version != QY_PERSIST_VERSION)
        return qy_persist_fail(EMEDIUMTYPE, "a pool of another version", offsetof(qy_persist_header_t, version));
    bool sane = h->words_at == QY_PERSIST_UNIT && h->log_at == QY_PERSIST_LOG_AT &&
                h->log_words >= QY_PERSIST_LOG_MIN && h->log_words <= QY_PERSIST_LOG_MAX &&
                h->heap_at == qy_round_up(h->log_at + h->log_words * sizeof(qy_persist_record_t), 4096);
    if (!sane)
        return qy_persist_fail(EUCLEAN, "the header names impossible places", offsetof(qy_persist_header_t, words_at));
    if (bytes > UINT64_C(1) << QY_PERSIST_MAX_LOG2) return qy_persist_fail(EFBIG, "the file is too long", 0);
    return bytes >= h->heap_at + 64 || qy_persist_fail(EUCLEAN, "the file ends too early", bytes);
}

// What lies behind the pool's end is a journal that is no longer needed, or growth that was not finished.
static bool map_file(quarry_persist_t *s, const qy_persist_header_t *h, uint64_t bytes, uint64_t max) {
    uint64_t whole = qy_round_down(bytes, QY_PERSIST_UNIT), end;
    int r = qy_os_file_read_at(s->fd, &end, 8, QY_PERSIST_UNIT + offsetof(qy_persist_words_t, end));
    if (r) return qy_persist_fail(-r, "the file cannot be read", QY_PERSIST_UNIT);
    if (end % QY_PERSIST_UNIT || end > whole || end < h->heap_at + 64)
        return qy_persist_fail(EUCLEAN, end > whole ? "the file is shorter than its pool" : "the pool's end is damaged",
            QY_PERSIST_UNIT + offsetof(qy_persist_words_t, end));
    // A rollback may take `end` back, never forward: all of the file is mapped, for what its records name.
    if (!s->base && !persist_file_reserve(s, whole, max)) return false;
    return map_more(s, whole) && take_layout(s, h);
}

static bool unsafe_state(quarry_persist_t *s, const qy_persist_state_t *state, bool readable) {
    uint64_t boot[2];
    if (s->flags & QUARRY_PERSIST_ACCEPT_TORN) return false;
    if (!readable) return !qy_persist_fail(EUCLEAN, "the record of the pool's state is damaged", QY_PERSIST_SECTOR);
    if (!state->open) return false;
    if (qy_os_boot_id(boot) && boot[0] == state->boot[0] && boot[1] == state->boot[1]) return false;
    return !qy_persist_fail(EUCLEAN, "the machine went down while the pool was open in shared mode", QY_PERSIST_SECTOR);
}

static bool verify(quarry_persist_t *s) { return (s->flags & QUARRY_PERSIST_NO_CHECK) || qy_persist_verify(s); }

// An old value in the log may be anything.
static bool recover(quarry_persist_t *s) {
    if (!qy_persist_log_check(s)) return false;
    qy_persist_recover(s);
    return qy_persist_check_words(s) && verify(s);
}

static bool open_writer(quarry_persist_t *s, const qy_persist_header_t *h, uint64_t bytes, uint64_t max) {
    qy_persist_mark_t mark;
    qy_persist_state_t state;
    bool had = qy_persist_read_mark(s->fd, &mark);
    if (had && mark.count % 2) {
        if (mark.journal_at > bytes)
            return qy_persist_fail(EUCLEAN, "the journal of a sync is missing", 2 * QY_PERSIST_SECTOR);
        if (!qy_persist_replay(s->fd, &mark, NULL)) return false;
        bytes = mark.journal_at;
        mark.count++;
    }
    if (!had && qy_persist_clear_mark(s->fd, 0))
        return qy_persist_fail(EIO, "the file cannot be written", 2 * QY_PERSIST_SECTOR);
    s->mark_count = mark.count;
    had = qy_persist_read_state(s->fd, &state);
    if (unsafe_state(s, &state, had)) return false;
    // a copy may have holes: no SIGBUS later
    int r = qy_os_file_allocate(s->fd, 0, qy_round_down(bytes, QY_PERSIST_UNIT));
    if (r) return qy_persist_fail(-r, "there is no room for the file", 0);
    bool journal = s->flags & QUARRY_PERSIST_JOURNAL, dirty = !had || state.open;
    s->private_map = journal && !dirty;
    if (!map_file(s, h, bytes, max) || !recover(s)) return false;
    if (!journal) {
        r = qy_persist_write_state(s, true);
    } else if (dirty) {
        // What a shared writer left becomes the state that the first sync starts from.
        r = qy_os_map_sync(s->base, s->mapped);
        if (!r) r = qy_os_file_sync(s->fd);
        if (!r) r = qy_persist_write_state(s, false);
        s->private_map = true;
        s->mapped = 0;
        if (!r && !map_more(s, qy_round_down(bytes, QY_PERSIST_UNIT))) return false;
    }
    if (r) return qy_persist_fail(-r, "the file cannot be written", 0);
    if (!journal) return true;
    r = qy_os_file_read_at(s->fd, &s->file_log, 8, QY_PERSIST_UNIT);
    if (r) return qy_persist_fail(-r, "the file cannot be read", QY_PERSIST_UNIT);
    qy_persist_probe_pages(s);
    return true;
}

// Alone with a file whose writer died: repaired in our private view of it.
static bool repair_privately(
    quarry_persist_t *s, const qy_persist_header_t *h, const qy_persist_mark_t *mark, uint64_t bytes, uint64_t max) {
    s->private_map = true;
    s->mark_count = mark->count;
    if (mark->count % 2) bytes = qy_min(bytes, mark->journal_at);
    if (!map_file(s, h, bytes, max)) return false;
    if (mark->count % 2 && !qy_persist_replay(s->fd, mark, s->base)) return false;
    if (s->words->end > s->mapped)
        return qy_persist_fail(EUCLEAN, "the file is shorter than its pool", QY_PERSIST_UNIT);
    return recover(s);
}

// What a reader sees of writers: one is there, or was there since it last looked.
typedef struct moment {
    int writer;
    uint64_t log, mark;
} moment_t;

static bool persist_file_look(quarry_persist_t *s, moment_t *ret_now, qy_persist_mark_t *ret_mark) {
    ret_now->writer = qy_os_file_locked(s->fd);
    if (ret_now->writer < 0) return qy_persist_fail(-ret_now->writer, "the file's lock cannot be examined", 0);
    int r = qy_os_file_read_at(s->fd, &ret_now->log, 8, QY_PERSIST_UNIT);
    if (r) return qy_persist_fail(r == -ENODATA ? EUCLEAN : -r, "the file cannot be read", QY_PERSIST_UNIT);
    qy_persist_read_mark(s->fd, ret_mark);
    ret_now->mark = ret_mark->count;
    return true;
}

static bool try_reader(quarry_persist_t *s, const qy_persist_header_t *h, uint64_t max, const moment_t *now,
    const qy_persist_mark_t *mark) {
    qy_persist_state_t state;
    qy_file_stat_t st;
    int r = qy_os_file_stat(s->fd, &st);
    if (r < 0) return qy_persist_fail(-r, "the file cannot be examined", 0);
    bool had = qy_persist_read_state(s->fd, &state);
    if (!had && now->writer) had = qy_persist_read_state(s->fd, &state);  // that was writing it
    if (unsafe_state(s, &state, had)) return false;
    s->mapped = 0;
    if (!now->writer && ((now->log & 0xFFFF) || mark->count % 2)) {
        s->file_log = now->log;
        return repair_privately(s, h, mark, st.bytes, max);
    }
    s->private_map = false;
    return map_file(s, h, st.bytes, max) && verify(s);
}

// A writer may come, go or die at any moment. What was found counts only if nobody changed anything meanwhile.
static bool open_reader(quarry_persist_t *s, const qy_persist_header_t *h, uint64_t max) {
    _Atomic uint32_t nobody = 0;
    qy_persist_mark_t mark;
    moment_t before, after;
    for (unsigned i = 0; i < READ_TRIES; i++) {
        if (!persist_file_look(s, &before, &mark)) return false;
        if (try_reader(s, h, max, &before, &mark)) return true;
        int error = errno;
        uint64_t offset;
        const char *reason = quarry_persist_error(&offset);
        if (!persist_file_look(s, &after, &mark)) return false;
        bool busy = after.writer && ((before.log & 0xFFFF) || before.mark % 2);
        if (error != EUCLEAN ||
            (!busy && before.writer == after.writer && before.log == after.log && before.mark == after.mark))
            return qy_persist_fail(error, reason, offset);
        qy_os_wait(&nobody, 0, 1000000);
    }
    return qy_persist_fail(EAGAIN, "the writer is busy", 0);
}

static int read_header(int fd, qy_persist_header_t *ret_h) { return qy_os_file_read_at(fd, ret_h, sizeof *ret_h, 0); }

// `r`: what reading its header gave. If not, its maker has the lock, and is at it, or died in it.
static bool is_made(int r, const qy_persist_header_t *h) {
    return r != -ENODATA && (r || h->magic != QY_PERSIST_CREATING);
}

static bool open_pool(quarry_persist_t *s, const char *path, uint64_t bytes, const quarry_persist_options_t *o) {
    qy_persist_header_t h;
    qy_file_stat_t st;
    bool writer = !(s->flags & QUARRY_PERSIST_READ_ONLY), may_create = writer && (s->flags & QUARRY_PERSIST_CREATE);
    if (bytes == 0 && may_create && !create(s, path, o, &bytes)) return false;
    int r = read_header(s->fd, &h);
    if (!writer && !is_made(r, &h)) {
        if (qy_os_file_locked(s->fd) > 0) return qy_persist_fail(EAGAIN, "the pool is being made", 0);
        r = read_header(s->fd, &h);  // it may be made by now
    }
    // And then have its length.
    if (!r && !writer && !(r = qy_os_file_stat(s->fd, &st))) bytes = st.bytes;
    if (r)
        return qy_persist_fail(r == -ENODATA ? EMEDIUMTYPE : -r,
            r == -ENODATA ? "the file is too short for a pool" : "the file cannot be read", 0);
    if (h.magic == QY_PERSIST_CREATING && may_create) {
        if (!create(s, path, o, &bytes)) return false;
        r = read_header(s->fd, &h);
        if (r) return qy_persist_fail(-r, "the file cannot be read", 0);
    }
    if (!check_header(&h, bytes)) return false;
    return writer ? open_writer(s, &h, bytes, o->max_bytes) : open_reader(s, &h, o->max_bytes);
}

// ---- life of the object -------------------------------------------------------------------------------------------

// Not amid a fork, whose child closes and protects what the record names: by then others may have the same descriptors
// and addresses.
void qy_persist_let_go(quarry_persist_t *s) {
    qy_lock_take(&s->step);
    s->words = NULL;
    if (s->base) qy_os_unmap(s->base, s->reserved);
    s->base = NULL;
    s->mapped = 0;
    atomic_store_explicit(&s->pool.info->held, 0, memory_order_relaxed);
    if (s->fd >= 0) qy_os_close(s->fd);
    if (s->lock_fd >= 0) qy_os_close(s->lock_fd);
    s->fd = s->lock_fd = -1;
    qy_lock_drop(&s->step);
}

void qy_persist_abandon(quarry_persist_t *s) {
    qy_pool_retire(&s->pool);
    qy_pool_trace_close(&s->pool);
    qy_persist_watch_close(s);
    qy_persist_let_go(s);
    if (s->freed) qy_pool_meta_free(s->freed, QY_PERSIST_FREES_MAX * sizeof *s->freed);
    if (s->traced) qy_pool_meta_free(s->traced, s->room_for_traced * sizeof *s->traced);
    qy_pool_drop(&s->pool);
}

static bool persist_file_options_sane(const char *path, const quarry_persist_options_t *o) {
    const unsigned all = QUARRY_PERSIST_CREATE | QUARRY_PERSIST_READ_ONLY | QUARRY_PERSIST_JOURNAL |
                         QUARRY_PERSIST_ACCEPT_TORN | QUARRY_PERSIST_NO_CHECK;
    bool clash = (o->flags & QUARRY_PERSIST_READ_ONLY) && (o->flags & (QUARRY_PERSIST_CREATE | QUARRY_PERSIST_JOURNAL));
    bool log = !o->log_words || (o->log_words >= QY_PERSIST_LOG_MIN && o->log_words <= QY_PERSIST_LOG_MAX);
    bool sizes = o->initial_bytes >> QY_PERSIST_MAX_LOG2 == 0 && o->max_bytes >> 47 == 0;
    return (path && !(o->flags & ~all) && !clash && log && sizes && !o->pool.parent) ||
           qy_persist_fail(EINVAL, "these options make no sense", 0);
}

quarry_persist_t *quarry_persist_open(const char *path, const quarry_persist_options_t *options) {
    static const quarry_persist_options_t none;
    const quarry_persist_options_t *o = options ? options : &none;
    quarry_pool_options_t pool = o->pool;
    qy_file_stat_t st;
    if (!persist_file_options_sane(path, o)) return NULL;
    pool.flags &= ~QUARRY_POOL_UNTRACKED;  // the fork handlers must find it
    quarry_persist_t *s = qy_pool_new(&qy_persist_ops, sizeof *s, &pool);
    if (!s) return qy_persist_fail(ENOMEM, "no memory for the pool", 0), NULL;
    s->flags = o->flags;
    s->fd = s->lock_fd = -1;
    s->freed = qy_pool_meta_alloc(QY_PERSIST_FREES_MAX * sizeof *s->freed);
    bool opened = s->freed ? persist_file_open(s, path, &st) && open_pool(s, path, st.bytes, o)
                           : qy_persist_fail(ENOMEM, "no memory for the pool", 0);
    if (!opened) {
        int saved = errno;
        // What this call has made, and still has the lock of.
        if (s->made && s->lock_fd >= 0 && saved != EAGAIN) qy_os_file_remove(path);
        qy_persist_abandon(s);
        errno = saved;
        return NULL;
    }
    qy_os_name(s->base + s->mapped, s->reserved - s->mapped, "quarry persist");
    holds_what_is_mapped(s, s->mapped);
    qy_persist_watch_open(s);
    qy_pool_ready(&s->pool);
    return s;
}

int quarry_persist_close(quarry_persist_t *s) {
    if (!s) return 0;
    qy_pool_must_live(&s->pool);
    size_t children = atomic_load_explicit(&s->pool.info->children, memory_order_relaxed);
    if (children)
        qy_fatal(
            QY_FAULT_POOL_IN_USE, s, "persist \"%s\" is the parent of %z other pool%S", s->pool.info->name, children);
    bool mine = atomic_load_explicit(&s->tx_owner, memory_order_relaxed) == qy_os_thread_token(), done = true;
    if (mine) quarry_persist_abort(s);
    if (!(s->flags & QUARRY_PERSIST_READ_ONLY) && !s->foreign) {
        done = qy_persist_sync_file(s);
        int r = done && !s->private_map ? qy_persist_write_state(s, false) : 0;
        if (r) done = qy_persist_fail(-r, "the file cannot be synced", 0);
    }
    int saved = errno;
    qy_persist_abandon(s);
    errno = saved;
    return done ? 0 : -1;
}

int quarry_persist_refresh(quarry_persist_t *s) {
    qy_file_stat_t st;
    if (s->private_map || !(s->foreign || (s->flags & QUARRY_PERSIST_READ_ONLY))) return 0;
    qy_persist_enter(s);
    qy_lock_take(&s->step);
    int r = qy_os_file_stat(s->fd, &st);
    uint64_t whole = r ? 0 : qy_round_down(st.bytes, QY_PERSIST_UNIT), before = s->mapped;
    bool done = r ? qy_persist_fail(-r, "the file cannot be examined", 0) : whole <= before || map_more(s, whole);
    if (s->mapped > before) holds_what_is_mapped(s, s->mapped - before);
    qy_lock_drop(&s->step);
    qy_persist_leave(s);
    return done ? 0 : -1;
}
