// SPDX-License-Identifier: MIT
// plans.h: plans made of random operations, and the replayer as a child process
//
// All operations are first noted in one order, with the epoch each is in; then they are cut into segments. The slots
// are few and chosen at random, so that most operations follow one of another thread on the same slot.
#ifndef QUARRY_TESTS_REPLAY_PLANS_H
#define QUARRY_TESTS_REPLAY_PLANS_H

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "harness.h"
#include "plan.h"

enum { EPOCH = 64,
    WINDOW = 2,
    SLOTS_MOST = 512,
    THREADS_MOST = 4096 };

typedef struct noted {
    uint64_t word;
    uint32_t thread, epoch;
} noted_t;

typedef struct plan_maker {
    uint64_t seed;
    bool strict;
    uint32_t slots, threads, alive, alive_most, spawned;
    noted_t *noted;
    size_t count, room;
    uint32_t epoch, in_epoch;
    struct {
        uint32_t stamp, thread, epoch;
        size_t at;  // of the last operation
        uint64_t size;
        bool full;
    } slot[SLOTS_MOST];
    bool lives[THREADS_MOST];
    uint64_t operations[QY_PLAN_KINDS], live, peak;
} plan_maker_t;

static void note(plan_maker_t *m, uint32_t thread, uint64_t word) {
    if (m->count == m->room) m->noted = realloc(m->noted, (m->room = m->room * 2 + 1024) * sizeof *m->noted);
    m->noted[m->count++] = (noted_t){word, thread, m->epoch};
}

static uint64_t plan_word(unsigned kind, uint32_t index, uint32_t value) {
    return kind | (uint64_t)index << QY_PLAN_INDEX_SHIFT | (uint64_t)value << QY_PLAN_VALUE_SHIFT;
}

static void counted(plan_maker_t *m, unsigned kind) {
    m->operations[kind]++;
    m->operations[0]++;
    if (!m->strict && ++m->in_epoch == EPOCH) m->in_epoch = 0, m->epoch++;
}

// What the thread does next on the slot is done after what was done last.
static void order(plan_maker_t *m, uint32_t thread, uint32_t slot) {
    if (m->strict || !m->slot[slot].stamp || m->slot[slot].thread == thread || m->slot[slot].epoch + WINDOW <= m->epoch)
        return;
    m->noted[m->slot[slot].at].word |= QY_PLAN_SIGNAL;
    note(m, thread, plan_word(QY_PLAN_WAIT, slot, m->slot[slot].stamp));
}

static void operate(plan_maker_t *m, uint32_t thread, uint32_t slot, unsigned kind, uint32_t size) {
    order(m, thread, slot);
    if (kind == QY_PLAN_MEMALIGN) note(m, thread, plan_word(QY_PLAN_ALIGN, 0, (uint32_t)(test_random(&m->seed) % 13)));
    note(m, thread, plan_word(kind, slot, size));
    m->slot[slot].at = m->count - 1;
    m->slot[slot].stamp++;
    m->slot[slot].thread = thread;
    m->slot[slot].epoch = m->epoch;
    m->slot[slot].full = kind != QY_PLAN_FREE;
    m->live += size - m->slot[slot].size;
    m->slot[slot].size = size;
    if (m->live > m->peak) m->peak = m->live;
    counted(m, kind);
}

__attribute__((unused)) static void operate_somehow(plan_maker_t *m, uint32_t thread) {
    uint64_t chance = test_random(&m->seed);
    uint32_t slot = (uint32_t)(chance >> 8) % m->slots,
             size = (uint32_t)(chance >> 20) % (UINT32_C(1) << (4 + (chance >> 60)));
    // realloc of NULL too
    if (!m->slot[slot].full) operate(m, thread, slot, QY_PLAN_MALLOC + (unsigned)(chance & 3), size);
    else if (chance & 3) operate(m, thread, slot, QY_PLAN_FREE, 0);
    else operate(m, thread, slot, QY_PLAN_REALLOC, size + 1);  // of 0 bytes it may be a free
    if ((chance >> 4 & 63) == 0) {
        note(m, thread, QY_PLAN_FREE_NULL);
        counted(m, QY_PLAN_FREE_NULL);
    }
}

static void begin_thread(plan_maker_t *m, uint32_t creator) {
    note(m, creator, plan_word(QY_PLAN_SPAWN, m->threads, m->spawned++));
    m->lives[m->threads++] = true;
    if (++m->alive > m->alive_most) m->alive_most = m->alive;
}

__attribute__((unused)) static void end_thread(plan_maker_t *m, uint32_t thread, uint32_t joiner) {
    note(m, joiner, plan_word(QY_PLAN_JOIN, thread, 0));
    m->lives[thread] = false;
    m->alive--;
}

static void plan_begin(plan_maker_t *m, uint64_t seed, bool strict, uint32_t slots) {
    memset(m, 0, sizeof *m);
    m->seed = seed;
    m->strict = strict;
    m->slots = slots;
    m->threads = m->alive = m->alive_most = 1;
    m->lives[0] = true;
}

// `crowd` threads that do something at random, some of which end and are replaced.
__attribute__((unused)) static void plan_crowd(
    plan_maker_t *m, uint64_t seed, bool strict, uint32_t crowd, uint32_t steps) {
    plan_begin(m, seed, strict, SLOTS_MOST / 2);
    while (m->threads < crowd) begin_thread(m, (uint32_t)(test_random(&m->seed) % m->threads));
    uint32_t first = 0;
    for (uint32_t i = 0; i < steps; i++) {
        uint64_t chance = test_random(&m->seed);
        uint32_t thread = first + (uint32_t)(chance % (m->threads - first));
        if (chance >> 40 & 127 || !m->lives[thread] || thread == 0 || m->threads == THREADS_MOST) {
            if (m->lives[thread]) operate_somehow(m, thread);
            continue;
        }
        // Some other living thread waits for its end and makes the next one.
        uint32_t other = (uint32_t)(test_random(&m->seed) % m->threads);
        while (!m->lives[other] || other == thread) other = (other + 1) % m->threads;
        end_thread(m, thread, other);
        begin_thread(m, other);
    }
}

typedef struct plan_bytes {
    char *bytes;
    size_t size;
} plan_bytes_t;

static void append(plan_bytes_t *to, const void *bytes, size_t size) {
    to->bytes = realloc(to->bytes, to->size + size);
    memcpy(to->bytes + to->size, bytes, size);
    to->size += size;
}

// A segment of `thread` with its words of noted[first..end).
static uint32_t segment(plan_maker_t *m, plan_bytes_t *to, uint32_t thread, size_t first, size_t end) {
    qy_plan_segment_t head = {thread, m->noted[first].epoch, 0, 0};
    for (size_t i = first; i < end; i++) {
        if (m->noted[i].thread != thread) continue;
        head.words++;
        if ((m->noted[i].word & QY_PLAN_KIND_MASK) < QY_PLAN_KINDS) head.operations++;
    }
    if (!head.words) return 0;
    append(to, &head, sizeof head);
    for (size_t i = first; i < end; i++) {
        if (m->noted[i].thread == thread) append(to, &m->noted[i].word, 8);
    }
    return 1;
}

static plan_bytes_t plan_end(plan_maker_t *m) {
    qy_plan_head_t head = {.version = QY_PLAN_VERSION,
        .flags = m->strict ? QY_PLAN_STRICT : 0,
        .threads = m->threads,
        .alive = m->alive_most,
        .slots = m->slots,
        .window = WINDOW,
        .epochs = m->epoch + 1,
        .peak_live = m->peak,
        .end_live = m->live};
    memcpy(head.magic, QY_PLAN_MAGIC, sizeof head.magic);
    memcpy(head.operations, m->operations, sizeof head.operations);
    plan_bytes_t to = {0, 0};
    append(&to, &head, sizeof head);
    for (size_t first = 0, end; first < m->count; first = end) {
        for (end = first + 1; end < m->count && (m->strict ? m->noted[end].thread == m->noted[first].thread
                                                           : m->noted[end].epoch == m->noted[first].epoch);)
            end++;
        if (m->strict) head.segments += segment(m, &to, m->noted[first].thread, first, end);
        else
            for (uint32_t t = 0; t < m->threads; t++) head.segments += segment(m, &to, t, first, end);
    }
    head.bytes = to.size;
    memcpy(to.bytes, &head, sizeof head);
    free(m->noted);
    m->noted = 0;
    return to;
}

// ---- the replayer -------------------------------------------------------------------------------------

static char plan_path[64], report_path[64], said_path[64];

static void make_paths(void) {
    const char *dir = getenv("TMPDIR");
    dir = dir && strlen(dir) < 24 ? dir : "/tmp";
    snprintf(plan_path, sizeof plan_path, "%s/qy-plan-%d", dir, (int)getpid());
    snprintf(report_path, sizeof report_path, "%s/qy-report-%d", dir, (int)getpid());
    snprintf(said_path, sizeof said_path, "%s/qy-said-%d", dir, (int)getpid());
}

static char *read_whole(const char *path) {
    static char text[1 << 20];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[n > 0 ? n : 0] = 0;
    if (fd >= 0) close(fd);
    return text;
}

// Play a plan; how it ended, as wait() tells. `preload` may be NULL. At most two options.
static int replay(plan_bytes_t plan, const char *preload, const char *first, const char *second) {
    if (!*plan_path) make_paths();
    int fd = open(plan_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, plan.bytes, plan.size) == (ssize_t)plan.size);
    close(fd);
    unlink(report_path);
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        int said = open(said_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        dup2(said, 2);
        alarm(TEST_PATIENCE);  // kept over exec
        if (preload) setenv("LD_PRELOAD", preload, 1);
        execl(REPLAYER, REPLAYER, "--report", report_path, plan_path, first, second, (char *)0);
        _exit(127);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    return status;
}

static void replay_done(void) {
    unlink(plan_path);
    unlink(report_path);
    unlink(said_path);
}

// The number behind `"name":` in the report, the first from `after` on.
__attribute__((unused)) static long long reported(const char *report, const char *after, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(report, after);
    at = at ? strstr(at, key) : 0;
    if (!at) TEST_FAIL("the report has no %s behind %s: %.300s", name, after, report);
    return strtoll(at + strlen(key), 0, 10);
}

#endif
