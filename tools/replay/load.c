// SPDX-License-Identifier: MIT
// load.c: from a file to a plan: the head, and an index of the segments
#include "replay.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The file is mapped, so that a plan of any length takes no memory that is not the page cache's.
static const char *map_file(const char *path, uint64_t *bytes) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (fd < 0 || fstat(fd, &about)) qy_fail(QY_SYSTEM, "%s: %s", path, strerror(errno));
    *bytes = (uint64_t)about.st_size;
    if (!S_ISREG(about.st_mode) || *bytes < sizeof(qy_plan_head_t)) qy_fail(QY_REFUSED, "%s: not a plan", path);
    void *p = mmap(0, *bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
    if (p == MAP_FAILED) qy_fail(QY_SYSTEM, "%s: cannot be mapped: %s", path, strerror(errno));
    close(fd);
    return p;
}

static void check_head(const qy_plan_head_t *head, uint64_t bytes) {
    if (memcmp(head->magic, QY_PLAN_MAGIC, sizeof head->magic)) qy_fail(QY_REFUSED, "not a plan");
    if (head->version != QY_PLAN_VERSION)
        qy_fail(QY_REFUSED, "a plan of version %u; this replayer knows version %u", head->version, QY_PLAN_VERSION);
    if (head->flags & ~(uint32_t)QY_PLAN_STRICT) qy_fail(QY_REFUSED, "unknown flags %x", head->flags);
    if (head->bytes != bytes || bytes % 8)
        qy_fail(QY_REFUSED, "the plan has %llu bytes and should have %llu", (unsigned long long)bytes,
            (unsigned long long)head->bytes);
    // Whatever is counted takes at least a word, so the tables made from the counts are not much larger than the file.
    uint64_t words = bytes / 8;
    if (!head->threads || head->threads - 1 > words || !head->alive || head->alive > head->threads)
        qy_fail(QY_REFUSED, "%u threads, %u at once", head->threads, head->alive);
    if (head->slots > QY_PLAN_SLOTS_MAX || head->slots > words * 64 + 65536)
        qy_fail(QY_REFUSED, "%u slots", head->slots);
    if (!head->window || head->window > QY_PLAN_WINDOW_MAX) qy_fail(QY_REFUSED, "a window of %u epochs", head->window);
    if (!head->epochs || head->epochs - 1 > words || head->segments > words / 3)
        qy_fail(QY_REFUSED, "%u epochs, %u segments", head->epochs, head->segments);
}

void qy_load(const char *path, qy_plan_t *plan) {
    uint64_t bytes;
    const char *file = map_file(path, &bytes);
    const qy_plan_head_t *head = (const qy_plan_head_t *)file;
    check_head(head, bytes);
    *plan = (qy_plan_t){.head = head, .strict = head->flags & QY_PLAN_STRICT};
    plan->parts = qy_own(head->segments, sizeof *plan->parts);
    plan->first = qy_own(head->threads, sizeof *plan->first);
    plan->epoch_parts = qy_own(head->epochs, sizeof *plan->epoch_parts);
    uint32_t *last = qy_own(head->threads, sizeof *last);
    for (uint32_t t = 0; t < head->threads; t++) plan->first[t] = last[t] = QY_NONE;
    uint64_t at = sizeof *head;
    uint32_t epoch = 0;
    for (uint32_t i = 0; i < head->segments; i++) {
        if (bytes - at < sizeof(qy_plan_segment_t)) qy_fail(QY_REFUSED, "segment %u is missing", i);
        const qy_plan_segment_t *s = (const qy_plan_segment_t *)(file + at);
        at += sizeof *s;
        if (!s->words || s->words > (bytes - at) / 8) qy_fail(QY_REFUSED, "segment %u has %u words", i, s->words);
        if (s->thread >= head->threads || s->epoch < epoch || s->epoch >= head->epochs || (plan->strict && s->epoch))
            qy_fail(QY_REFUSED, "segment %u is of thread %u, epoch %u", i, s->thread, s->epoch);
        epoch = s->epoch;
        plan->parts[i] = (qy_part_t){(const uint64_t *)(file + at), s->words, QY_NONE, epoch, s->thread};
        plan->epoch_parts[epoch]++;
        if (last[s->thread] == QY_NONE) plan->first[s->thread] = i;
        else plan->parts[last[s->thread]].next = i;
        last[s->thread] = i;
        at += (uint64_t)s->words * 8;
    }
    if (at != bytes) qy_fail(QY_REFUSED, "%llu bytes behind the last segment", (unsigned long long)(bytes - at));
    qy_disown(last, head->threads, sizeof *last);
}
