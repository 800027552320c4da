// SPDX-License-Identifier: MIT
// persist_journal.c: what is on the disk, and when.
//
// Shared mode. The kernel may write any page of the mapping at any time, so between syncs a power failure
// leaves any mixture of old and new pages; no order of stores can help. The state record says that the pool
// is open, since which start of the machine; it is on the disk before the first store and is taken back
// after everything else is on the disk. A reader who finds it, with another start, knows.
//
// Journal mode. The mapping is private; the file changes only here:
//
//   1 the changed pages are written behind the end of the pool       flush
//   2 the mark: where, how many, their sum                           flush     <- the commit
//   3 the same pages go to their places                              flush
//   4 the mark is taken back                                         flush     then the journal is cut off
//
// Before 2 is on the disk the pool is as it was; after it, whoever opens the file repeats 3 and 4. A mark
// that is torn is no mark: it is torn only if 2 or 4 was not finished, and then the pool is whole. Without the last
// flush the next journal could overwrite the pages of a mark that is still on the disk.
#include "os/os.h"
#include "pool/persist.h"

#define STATE_AT QY_PERSIST_SECTOR
#define MARK_AT (2 * QY_PERSIST_SECTOR)
#define INDEX_WORDS 512u  // of page numbers, written and read at once
#define PIECE 4096u       // bytes read at once: callers' stacks may be small

// ---- the two records in the first unit --------------------------------------------------------------------

static int write_sector(int fd, const void *record, size_t bytes, uint64_t at) {
    char sector[QY_PERSIST_SECTOR] = {0};
    __builtin_memcpy(sector, record, bytes);
    int r = qy_os_file_write_at(fd, sector, sizeof sector, at);
    return r ? r : qy_os_file_sync(fd);
}

int qy_persist_write_state(quarry_persist_t *s, bool open) {
    qy_persist_state_t state = {.open = open};
    if (open) qy_os_boot_id(state.boot);
    state.sum = qy_persist_sum_of(&state);
    return write_sector(s->fd, &state, sizeof state, STATE_AT);
}

bool qy_persist_read_state(int fd, qy_persist_state_t *ret_state) {
    if (qy_os_file_read_at(fd, ret_state, sizeof *ret_state, STATE_AT)) return false;
    return ret_state->sum == qy_persist_sum_of(ret_state) && ret_state->open <= 1;
}

static int write_mark(int fd, qy_persist_mark_t mark) {
    mark.sum = qy_persist_sum_of(&mark);
    return write_sector(fd, &mark, sizeof mark, MARK_AT);
}

int qy_persist_clear_mark(int fd, uint64_t count) { return write_mark(fd, (qy_persist_mark_t){.count = count}); }

// True: there is one, valid or taken back. A torn one is none.
bool qy_persist_read_mark(int fd, qy_persist_mark_t *ret_mark) {
    if (qy_os_file_read_at(fd, ret_mark, sizeof *ret_mark, MARK_AT) == 0 &&
        ret_mark->sum == qy_persist_sum_of(ret_mark))
        return true;
    *ret_mark = (qy_persist_mark_t){0};
    return false;
}

// ---- replay -----------------------------------------------------------------------------------------------------

// The journal: the places of its pages (a word each, in whole index blocks), then the pages.
static uint64_t index_bytes(uint64_t pages) { return (pages + INDEX_WORDS - 1) / INDEX_WORDS * INDEX_WORDS * 8; }

typedef bool (*page_fn)(void *arg, uint64_t place, const void *page, size_t bytes);

static bool each_page(int fd, const qy_persist_mark_t *m, page_fn fn, void *arg, uint64_t *ret_sum) {
    uint64_t index[INDEX_WORDS], piece[PIECE / 8];
    uint64_t at = m->journal_at + index_bytes(m->pages), bytes = qy_min(m->page_bytes, PIECE);
    *ret_sum = QY_PERSIST_SEED;
    for (uint64_t i = 0; i < m->pages; i++) {
        if (i % INDEX_WORDS == 0 && qy_os_file_read_at(fd, index, sizeof index, m->journal_at + i * 8)) return false;
        uint64_t place = index[i % INDEX_WORDS];
        if (place % m->page_bytes || place < QY_PERSIST_UNIT || place > m->journal_at - m->page_bytes) return false;
        *ret_sum = qy_persist_mix(*ret_sum, place);
        for (uint64_t done = 0; done < m->page_bytes; done += bytes, at += bytes) {
            if (qy_os_file_read_at(fd, piece, bytes, at)) return false;
            *ret_sum = qy_persist_sum(piece, bytes, *ret_sum);
            if (fn && !fn(arg, place + done, piece, bytes)) return false;
        }
    }
    return true;
}

static bool to_file(void *arg, uint64_t place, const void *page, size_t bytes) {
    return qy_os_file_write_at(*(int *)arg, page, bytes, place) == 0;
}
static bool to_memory(void *arg, uint64_t place, const void *page, size_t bytes) {
    __builtin_memcpy((char *)arg + place, page, bytes);
    return true;
}

// Twice: the sum must be right before anything is touched.
bool qy_persist_replay(int fd, const qy_persist_mark_t *m, char *base) {
    uint64_t sum, page = m->page_bytes;
    bool sane = qy_is_pow2(page) && page >= 512 && page <= QY_PERSIST_UNIT && m->journal_at % QY_PERSIST_UNIT == 0 &&
                m->journal_at >= 2 * QY_PERSIST_UNIT && m->journal_at <= UINT64_C(1) << QY_PERSIST_MAX_LOG2 &&
                m->pages && m->pages <= m->journal_at / page;
    if (!sane || !each_page(fd, m, NULL, NULL, &sum) || sum != m->journal_sum)
        return qy_persist_fail(EUCLEAN, "the journal of a sync is damaged", MARK_AT);
    if (base)
        return each_page(fd, m, to_memory, base, &sum) ||
               qy_persist_fail(EIO, "the journal cannot be read", m->journal_at);
    if (!each_page(fd, m, to_file, &fd, &sum) || qy_os_file_sync(fd))
        return qy_persist_fail(EIO, "the journal cannot be applied", m->journal_at);
    int r = qy_persist_clear_mark(fd, m->count + 1);
    if (!r) r = qy_os_file_truncate(fd, m->journal_at);
    return !r || qy_persist_fail(-r, "the journal cannot be taken back", MARK_AT);
}

// ---- which pages have changed --------------------------------------------------------------------------------------

// Is the kernel's word good? (It may be denied, or emulated.) A page that was stored to and one that was only read must
// differ. Otherwise pages are compared with the file.
void qy_persist_probe_pages(quarry_persist_t *s) {
    uint64_t bits = 0;
    uint64_t first = *(volatile uint64_t *)(void *)s->base;
    (void)first;
    __atomic_store_n(&s->words->log, s->words->log, __ATOMIC_RELEASE);
    s->own_pages = qy_os_map_own_pages(s->base, 1, &bits) && bits == 0 &&
                   qy_os_map_own_pages((char *)s->words, 1, &bits) && bits == 1;
}

static bool find_changed(quarry_persist_t *s, uint64_t *bits, uint64_t pages, size_t page) {
    uint64_t copy[PIECE / 8];
    if (s->own_pages && qy_os_map_own_pages(s->base, pages, bits)) return true;
    for (uint64_t i = 0; i < (pages + 63) / 64; i++) bits[i] = 0;
    for (uint64_t at = 0; at < pages * page; at += PIECE) {
        if (qy_os_file_read_at(s->fd, copy, PIECE, at)) return false;
        if (__builtin_memcmp(copy, s->base + at, PIECE) != 0) bits[at / page / 64] |= UINT64_C(1) << at / page % 64;
    }
    return true;
}

// ---- sync
// -------------------------------------------------------------------------------------------------------------

typedef struct job {
    quarry_persist_t *s;
    const uint64_t *bits;
    uint64_t pages;  // of the pool
    size_t page;
    qy_persist_mark_t mark;
} job_t;

static bool journal_changed(const job_t *j, uint64_t i) { return i < j->pages && (j->bits[i / 64] >> i % 64 & 1); }

static int write_index(job_t *j) {
    uint64_t index[INDEX_WORDS], n = 0, at = j->mark.journal_at;
    for (uint64_t i = 0; i <= j->pages; i++) {
        if (journal_changed(j, i)) index[n++] = i * j->page;
        if (n < INDEX_WORDS && (i < j->pages || !n)) continue;
        while (n < INDEX_WORDS) index[n++] = 0;
        int r = qy_os_file_write_at(j->s->fd, index, sizeof index, at);
        if (r) return r;
        at += sizeof index;
        n = 0;
    }
    return 0;
}

// Runs of changed pages, to the journal (one behind the other) or to their places.
static int write_pages(job_t *j, bool home) {
    uint64_t at = j->mark.journal_at + index_bytes(j->mark.pages);
    for (uint64_t i = 0, n; i < j->pages; i += n) {
        for (n = 0; journal_changed(j, i + n);) n++;
        int r = n ? qy_os_file_write_at(j->s->fd, j->s->base + i * j->page, n * j->page, home ? i * j->page : at) : 0;
        if (r) return r;
        at += n * j->page;
        n += !n;
    }
    return 0;
}

static void count_and_sum(job_t *j) {
    uint64_t sum = QY_PERSIST_SEED;
    for (uint64_t i = 0; i < j->pages; i++)
        if (journal_changed(j, i))
            sum = qy_persist_sum(j->s->base + i * j->page, j->page, qy_persist_mix(sum, i * j->page)), j->mark.pages++;
    j->mark.journal_sum = sum;
}

static void forget_pages(job_t *j) {
    for (uint64_t i = 0, n; i < j->pages; i += n) {
        for (n = 0; journal_changed(j, i + n);) n++;
        // Refused (the pages are locked): they count as changed again next time, and are the same.
        if (n) qy_os_map_forget(j->s->base + i * j->page, n * j->page);
        n += !n;
    }
}

static bool failed(quarry_persist_t *s, int r, bool for_good) {
    s->sync_failed = for_good;
    if (!for_good) qy_os_file_truncate(s->fd, s->mapped);
    return qy_persist_fail(-r,
        for_good ? "the disk failed while a sync was brought home; open the pool again"
                 : "the journal cannot be written",
        0);
}

static bool sync_journal(quarry_persist_t *s, uint64_t *bits, size_t page) {
    job_t j = {.s = s,
        .bits = bits,
        .pages = s->mapped / page,
        .page = page,
        .mark = {.count = s->mark_count + 1, .journal_at = s->mapped, .page_bytes = page}};
    if (!find_changed(s, bits, j.pages, page)) return qy_persist_fail(EIO, "the file cannot be read", 0);
    // the records: not ours
    for (uint64_t i = 0; i < QY_PERSIST_UNIT / page; i++) bits[i / 64] &= ~(UINT64_C(1) << i % 64);
    count_and_sum(&j);
    if (!j.mark.pages) return true;
    int r = qy_os_file_allocate(s->fd, s->mapped, index_bytes(j.mark.pages) + j.mark.pages * page);
    if (!r) r = write_index(&j);
    if (!r) r = write_pages(&j, false);
    if (!r && !QY_MUTANT(5)) r = qy_os_file_sync(s->fd);
    if (r) return failed(s, r, false);
    r = QY_MUTANT(6) ? 0 : write_mark(s->fd, j.mark);  // failed: it may be there or not, so the journal must stay
    if (!r) r = write_pages(&j, true);
    if (!r && !QY_MUTANT(7)) r = qy_os_file_sync(s->fd);
    if (!r) r = qy_persist_clear_mark(s->fd, j.mark.count + 1);
    if (r) return failed(s, r, true);
    s->mark_count = j.mark.count + 1;
    s->file_log = s->words->log;
    qy_os_file_truncate(s->fd, s->mapped);  // refused: the next journal uses it
    forget_pages(&j);
    return true;
}

bool qy_persist_sync_file(quarry_persist_t *s) {
    if (s->sync_failed) return qy_persist_fail(EIO, "an earlier sync failed", 0);
    if (!s->private_map) {
        int r = qy_os_map_sync(s->base, s->mapped);
        if (!r) r = qy_os_file_sync(s->fd);
        s->sync_failed = r != 0;
        return !r || qy_persist_fail(-r, "the file cannot be synced", 0);
    }
    size_t page = qy_os_page_size(), bytes = (s->mapped / page + 63) / 64 * 8;
    uint64_t *bits = qy_pool_meta_alloc(bytes);
    if (!bits) return qy_persist_fail(ENOMEM, "no memory for a list of pages", 0);
    bool done = sync_journal(s, bits, page);
    qy_pool_meta_free(bits, bytes);
    return done;
}
