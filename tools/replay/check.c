// SPDX-License-Identifier: MIT
// check.c: proof that a plan can be played, by playing it without a heap
//
// The parts are played epoch by epoch, each until it would wait, and on from there when what it waits for has
// come. If that reaches the end, then so does every real performance: each wait is for something that this
// order has before it, so the first operation in it that is not done is never held up. And it is known for each
// operation on a slot that the one before it on the same slot happened before: in the same thread, before a
// WAIT, or a window of epochs ago.
#include "replay.h"

typedef struct slot_state {
    uint32_t stamp, owner, epoch;  // owner: thread + 1 that touched it last, or waited for it; 0: nobody
    uint32_t waiting;              // a list of parts
    bool full, signalled;          // signalled: the operation that made the stamp looks for waiters
} slot_state_t;

typedef struct thread_state {
    uint32_t parts;                  // not yet played to the end
    uint32_t until_born, until_end;  // lists of parts: its own one of this epoch; those that JOIN it
    bool born, joined;
} thread_state_t;

typedef struct check {
    qy_plan_t *plan;
    slot_state_t *slots;
    thread_state_t *threads;
    uint32_t *spawners;  // by number of the SPAWN: a list of parts
    uint32_t *done;      // words of each part that were played
    uint32_t *link;      // of each part, in the list it is in
    uint32_t ready;      // a list of parts
    uint32_t spawned, alive;
    uint64_t operations[QY_PLAN_KINDS];
} check_t;

static _Noreturn void refuse(const qy_part_t *part, uint32_t at, const char *why) {
    qy_fail(QY_REFUSED, "the plan is damaged: thread %u, epoch %u, word %u: %s", part->thread, part->epoch, at, why);
}

static void enlist(check_t *c, uint32_t *list, uint32_t part) {
    c->link[part] = *list;
    *list = part;
}

// All parts of the list may go on.
static void release(check_t *c, uint32_t *list) {
    while (*list != QY_NONE) {
        uint32_t part = *list;
        *list = c->link[part];
        enlist(c, &c->ready, part);
    }
}

static slot_state_t *slot_of(check_t *c, const qy_part_t *part, uint32_t at) {
    uint32_t slot = qy_plan_index(part->words[at]);
    if (slot >= c->plan->head->slots) refuse(part, at, "no such slot");
    return &c->slots[slot];
}

static void touch(check_t *c, const qy_part_t *part, uint32_t at) {
    uint64_t word = part->words[at];
    unsigned kind = qy_plan_kind(word);
    slot_state_t *slot = slot_of(c, part, at);
    bool ordered = c->plan->strict || !slot->owner || slot->owner == part->thread + 1 ||
                   slot->epoch + (uint64_t)c->plan->head->window <= part->epoch;
    if (!ordered) refuse(part, at, "the slot is another thread's, and nothing waits");
    if (kind == QY_PLAN_FREE && !slot->full) refuse(part, at, "nothing to free");
    if (kind <= QY_PLAN_MEMALIGN && slot->full) refuse(part, at, "the slot is taken");
    slot->full = kind != QY_PLAN_FREE;
    slot->signalled = word & QY_PLAN_SIGNAL;
    slot->stamp++;
    slot->owner = part->thread + 1;
    slot->epoch = part->epoch;
    release(c, &slot->waiting);
}

// A list to wait in, or NULL when the wait is over.
static uint32_t *await_stamp(check_t *c, const qy_part_t *part, uint32_t at) {
    slot_state_t *slot = slot_of(c, part, at);
    if (c->plan->strict) refuse(part, at, "a wait in a strict plan");
    if (slot->stamp != qy_plan_value(part->words[at])) return &slot->waiting;
    if (!slot->signalled) refuse(part, at, "nobody would wake it");
    slot->owner = part->thread + 1;
    slot->epoch = part->epoch;
    return 0;
}

static uint32_t *spawn(check_t *c, const qy_part_t *part, uint32_t at) {
    uint32_t thread = qy_plan_index(part->words[at]), number = qy_plan_value(part->words[at]);
    if (thread >= c->plan->head->threads || c->threads[thread].born) refuse(part, at, "no such thread to make");
    if (number < c->spawned || number >= c->plan->head->threads) refuse(part, at, "no such number of a thread");
    if (number > c->spawned) return &c->spawners[number];
    c->threads[thread].born = true;
    c->plan->life[thread] = QY_MADE;
    release(c, &c->threads[thread].until_born);
    if (!c->threads[thread].parts) release(c, &c->threads[thread].until_end);
    if (++c->alive > c->plan->head->alive) refuse(part, at, "more threads at once than it says");
    if (++c->spawned < c->plan->head->threads) release(c, &c->spawners[c->spawned]);
    return 0;
}

static uint32_t *join(check_t *c, const qy_part_t *part, uint32_t at) {
    uint32_t thread = qy_plan_index(part->words[at]);
    if (!thread || thread == part->thread || thread >= c->plan->head->threads)
        refuse(part, at, "no such thread to wait for");
    thread_state_t *state = &c->threads[thread];
    if (state->joined) refuse(part, at, "a thread waited for twice");
    if (!state->born || state->parts) return &state->until_end;
    state->joined = true;
    c->plan->life[thread] = QY_MADE_AND_ENDS;
    c->alive--;
    return 0;
}

// Each has a word, so that there are no more than words in the file.
static void look(check_t *c, const qy_part_t *part, uint32_t at) {
    uint32_t number = qy_plan_value(part->words[at]);
    if (number >= c->plan->head->bytes / 8) refuse(part, at, "no such look");
    if (number >= c->plan->looks) c->plan->looks = number + 1;
}

// Play one word: NULL, or the list to wait in.
static uint32_t *step(check_t *c, const qy_part_t *part, uint32_t at) {
    unsigned kind = qy_plan_kind(part->words[at]);
    switch (kind) {
    case QY_PLAN_MALLOC:
    case QY_PLAN_CALLOC:
    case QY_PLAN_MEMALIGN:
    case QY_PLAN_REALLOC:
    case QY_PLAN_FREE: touch(c, part, at); break;
    case QY_PLAN_FREE_NULL:
    case QY_PLAN_STATS:
    case QY_PLAN_TIME:
    case QY_PLAN_TOUCH:
    case QY_PLAN_WIDE: break;
    case QY_PLAN_LOOK: look(c, part, at); break;
    case QY_PLAN_ALIGN:
        if (qy_plan_value(part->words[at]) > QY_PLAN_ALIGN_MAX) refuse(part, at, "an alignment that large");
        break;
    case QY_PLAN_WAIT: return await_stamp(c, part, at);
    case QY_PLAN_SPAWN: return spawn(c, part, at);
    case QY_PLAN_JOIN: return join(c, part, at);
    default: refuse(part, at, "no such operation");
    }
    if (kind < QY_PLAN_KINDS) {
        c->operations[kind]++;
        c->operations[0]++;
    }
    return 0;
}

// TOUCH, ALIGN and WIDE, in this order, belong to the word behind them. `open` has a bit for each that stands.
static unsigned prefix(const qy_part_t *part, uint32_t at, unsigned open) {
    enum { ALIGN = 1,
        WIDE = 2,
        TOUCH = 4 };
    unsigned kind = qy_plan_kind(part->words[at]);
    if (kind == QY_PLAN_TOUCH && !open) return TOUCH;
    if (kind == QY_PLAN_ALIGN && !(open & ~TOUCH)) return open | ALIGN;
    if (kind == QY_PLAN_WIDE && !(open & WIDE)) return open | WIDE;
    bool sized = kind >= QY_PLAN_MALLOC && kind <= QY_PLAN_REALLOC;
    if ((open & (WIDE | TOUCH) && !sized) || (kind == QY_PLAN_MEMALIGN) != ((open & ALIGN) != 0))
        refuse(part, at, "what belongs together is apart");
    return 0;
}

// Play a part until it waits, then put it where it waits; true: it is done.
static bool play(check_t *c, uint32_t number) {
    const qy_part_t *part = &c->plan->parts[number];
    if (!c->threads[part->thread].born) {
        enlist(c, &c->threads[part->thread].until_born, number);
        return false;
    }
    unsigned open = 0;  // nothing waits within an operation
    for (uint32_t at = c->done[number]; at < part->count; at++) {
        open = prefix(part, at, open);
        uint32_t *list = step(c, part, at);
        if (!list) continue;
        c->done[number] = at;
        enlist(c, list, number);
        return false;
    }
    if (open) refuse(part, part->count, "it ends within an operation");
    c->done[number] = part->count;
    thread_state_t *thread = &c->threads[part->thread];
    if (!--thread->parts) release(c, &thread->until_end);
    return true;
}

static void play_epoch(check_t *c, uint32_t first, uint32_t count) {
    for (uint32_t i = first + count; i-- > first;) enlist(c, &c->ready, i);
    while (c->ready != QY_NONE) {
        uint32_t part = c->ready;
        c->ready = c->link[part];
        count -= play(c, part);
    }
    if (count)
        qy_fail(QY_REFUSED, "the plan is damaged: %u parts of epoch %u wait for each other or for nothing", count,
            c->plan->parts[first].epoch);
}

static void set_all(uint32_t *links, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) links[i] = QY_NONE;
}

void qy_check(qy_plan_t *plan) {
    const qy_plan_head_t *head = plan->head;
    check_t c = {.plan = plan, .ready = QY_NONE, .alive = 1};
    c.slots = qy_own(head->slots, sizeof *c.slots);
    c.threads = qy_own(head->threads, sizeof *c.threads);
    c.spawners = qy_own(head->threads, sizeof *c.spawners);
    c.done = qy_own(head->segments, sizeof *c.done);
    c.link = qy_own(head->segments, sizeof *c.link);
    plan->life = qy_own(head->threads, sizeof *plan->life);
    for (uint32_t s = 0; s < head->slots; s++) c.slots[s].waiting = QY_NONE;
    for (uint32_t t = 0; t < head->threads; t++) c.threads[t].until_born = c.threads[t].until_end = QY_NONE;
    set_all(c.spawners, head->threads);
    for (uint32_t i = 0; i < head->segments; i++) {
        // One part for each thread and epoch: so the order of a thread's parts is kept.
        const qy_part_t *part = &plan->parts[i];
        if (!plan->strict && part->next != QY_NONE && plan->parts[part->next].epoch == part->epoch)
            refuse(part, 0, "two parts of a thread in one epoch");
        c.threads[part->thread].parts++;
    }
    c.threads[0].born = true;
    for (uint32_t i = 0; i < head->segments;) {
        // In a strict plan, each part alone: it may not wait for later ones.
        uint32_t count = plan->strict ? 1 : plan->epoch_parts[plan->parts[i].epoch];
        play_epoch(&c, i, count);
        i += count;
    }
    for (unsigned k = 0; k < QY_PLAN_KINDS; k++) {
        if (c.operations[k] != head->operations[k])
            qy_fail(QY_REFUSED, "the plan is damaged: it says %llu operations of kind %u and has %llu",
                (unsigned long long)head->operations[k], k, (unsigned long long)c.operations[k]);
    }
    qy_disown(c.slots, head->slots, sizeof *c.slots);
    qy_disown(c.threads, head->threads, sizeof *c.threads);
    qy_disown(c.spawners, head->threads, sizeof *c.spawners);
    qy_disown(c.done, head->segments, sizeof *c.done);
    qy_disown(c.link, head->segments, sizeof *c.link);
}
