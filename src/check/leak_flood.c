// SPDX-License-Identifier: MIT
// leak_flood.c: see leak_flood.h.
#include "check/leak_flood.h"

#include "base/num.h"
#include "check/leak_memory.h"
#include "check/leak_sort.h"
#include "os/os.h"

#define WORD sizeof(uint64_t)
#define PIECE ((size_t)64 * 1024)  // bytes between two looks at the clock
// A block that is smaller has no page to itself, so the program cannot have taken the right to read it away.
#define ASK_FROM 4096u

// A block whose words are being looked at, and how far that is.
typedef struct leak_frame {
    uintptr_t at;
    uint32_t block, spare;
} leak_frame_t;

bool qy_leak_flood_begin(qy_leak_flood_t *f) {
    f->stack_bytes = f->space.blocks->count * sizeof *f->stack;
    f->stack = qy_leak_memory(f->stack_bytes);
    if (!f->stack) f->stopped = "no memory for the scan";
    qy_os_touched_begin(&f->touched);
    return f->stack != NULL;
}

void qy_leak_flood_end(qy_leak_flood_t *f) {
    qy_leak_memory_end(f->stack, f->stack_bytes);
    qy_os_touched_end(&f->touched);
    f->stack = NULL;
}

static bool is_time_up(qy_leak_flood_t *f, size_t bytes) {
    uint64_t before = f->words;
    f->words += bytes / WORD;
    bool look = f->deadline && before / (PIECE / WORD) != f->words / (PIECE / WORD);
    if (look && qy_os_now_ns() >= f->deadline) f->stopped = "the time for the scan was up";
    return f->stopped != NULL;
}

// The first whole word of it.
static uintptr_t block_words(const qy_leak_block_t *b) { return qy_round_up(b->address, WORD); }

static void flood_push(qy_leak_flood_t *f, uint32_t block) {
    f->stack[f->depth++] = (leak_frame_t){block_words(&f->space.blocks->all[block]), block, 0};
}

// What one word does; `how` is the pass: the state that a block gets by a pointer to it.
static void flood_word(qy_leak_flood_t *f, uint64_t word, unsigned how) {
    bool sure = false;
    uint32_t at = qy_leak_target(&f->space, word, &sure);
    if (QY_LIKELY(at == QY_LEAK_NONE)) return;
    qy_leak_block_t *b = &f->space.blocks->all[at];
    if (b->state & (QY_LEAK_REACHED | how) || (f->in_records && b->pool)) return;
    if (how == QY_LEAK_REACHED && !sure) {
        b->state |= QY_LEAK_HINTED;
        return;
    }
    b->state |= how;
    flood_push(f, at);
}

static void flood_words(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end, unsigned how) {
    for (uintptr_t at = begin; at < end; at += WORD) flood_word(f, *(const volatile uint64_t *)at, how);
}

// Of a range of which pages may be missing, or not readable.
static void flood_range(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end, unsigned how) {
    begin = qy_round_up(begin, WORD);
    end = qy_round_down(end, WORD);
    while (begin < end && !f->stopped) {
        uintptr_t piece = qy_min(end, qy_round_down(begin, PIECE) + PIECE);
        uintptr_t to = qy_leak_readable_to(&f->touched, begin, piece);
        flood_words(f, begin, to, how);
        if (is_time_up(f, to - begin + ASK_FROM)) return;
        begin = to < piece ? qy_round_down(to, ASK_FROM) + ASK_FROM : to;
    }
}

static void flood_part(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end, unsigned how) {
    if (end - begin >= ASK_FROM) {
        flood_range(f, begin, end, how);
        return;
    }
    is_time_up(f, end - begin);
    flood_words(f, qy_round_up(begin, WORD), qy_round_down(end, WORD), how);
}

// Blocks within it, of a pool whose chunk it is, are reached or not by themselves.
static void flood_block(qy_leak_flood_t *f, const qy_leak_block_t *b, unsigned how) {
    const qy_leak_block_t *behind = f->space.blocks->all + f->space.blocks->count;
    uintptr_t at = b->address, end = b->address + b->size;
    for (const qy_leak_block_t *inner = b + 1; inner < behind && inner->address < end; inner++) {
        if (inner->address < at) continue;  // within the one before
        flood_part(f, at, inner->address, how);
        at = inner->address + inner->size;
    }
    flood_part(f, at, end, how);
}

static void drain(qy_leak_flood_t *f, unsigned how) {
    while (f->depth && !f->stopped) flood_block(f, &f->space.blocks->all[f->stack[--f->depth].block], how);
}

void qy_leak_flood_root(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end) {
    flood_range(f, begin, end, QY_LEAK_REACHED);
    drain(f, QY_LEAK_REACHED);
}

void qy_leak_flood_records(qy_leak_flood_t *f, uintptr_t begin, uintptr_t end) {
    f->in_records = true;
    flood_range(f, begin, end, QY_LEAK_REACHED);
    f->in_records = false;
    drain(f, QY_LEAK_REACHED);
}

void qy_leak_flood_block(qy_leak_flood_t *f, uint32_t block) {
    if (f->space.blocks->all[block].state & QY_LEAK_REACHED) return;
    f->space.blocks->all[block].state |= QY_LEAK_REACHED;
    flood_push(f, block);
    drain(f, QY_LEAK_REACHED);
}

void qy_leak_flood_possible(qy_leak_flood_t *f) {
    for (uint32_t i = 0; i < f->space.blocks->count && !f->stopped; i++) {
        qy_leak_block_t *b = &f->space.blocks->all[i];
        if (!(b->state & QY_LEAK_HINTED) || b->state & (QY_LEAK_REACHED | QY_LEAK_POSSIBLE)) continue;
        b->state |= QY_LEAK_POSSIBLE;
        flood_push(f, i);
        drain(f, QY_LEAK_POSSIBLE);
    }
}

// ---- what cannot be reached -----------------------------------------------------------------------
//
// Heads without a search for circles: each block's words are followed, and the blocks noted in the order in which that
// is done with (a block after all to which it leads, but for circles). Backwards in this order, a block that no head
// before has led to is a head itself: a block with a pointer to it from outside its circle would have been done later,
// and so be earlier backwards. Of a circle that nothing leads to, the block at which the search came in is done last.

#define LOST(b) (!((b)->state & (QY_LEAK_REACHED | QY_LEAK_POSSIBLE)))

typedef struct lost {
    qy_leak_flood_t *flood;
    uint32_t *list, *order;  // of lost blocks: by site and age; as they were done with
    uint32_t count, done;
} lost_t;

// The next block with none of the bits `mark` that words of the frame lead to, from where it stands; it gets them.
static uint32_t next_lost(qy_leak_flood_t *f, leak_frame_t *frame, unsigned mark) {
    const qy_leak_block_t *from = &f->space.blocks->all[frame->block];
    uintptr_t end = qy_round_down(from->address + from->size, WORD), begin = frame->at;
    while (frame->at < end) {
        if (from->size >= ASK_FROM && frame->at % ASK_FROM == 0 &&
            qy_leak_readable_to(&f->touched, frame->at, frame->at + WORD) == frame->at) {
            frame->at += ASK_FROM;
            continue;
        }
        bool sure;
        uint32_t at = qy_leak_target(&f->space, *(const volatile uint64_t *)frame->at, &sure);
        frame->at += WORD;
        if (QY_LIKELY(at == QY_LEAK_NONE)) continue;
        qy_leak_block_t *b = &f->space.blocks->all[at];
        if (!LOST(b) || b->state & mark) continue;
        b->state |= mark;
        is_time_up(f, frame->at - begin);
        return at;
    }
    is_time_up(f, frame->at - begin);
    return QY_LEAK_NONE;
}

static void visit_from(lost_t *l, uint32_t root) {
    qy_leak_flood_t *f = l->flood;
    if (f->space.blocks->all[root].state & QY_LEAK_VISITED) return;
    f->space.blocks->all[root].state |= QY_LEAK_VISITED;
    flood_push(f, root);
    while (f->depth && !f->stopped) {
        leak_frame_t *top = &f->stack[f->depth - 1];
        uint32_t next = next_lost(f, top, QY_LEAK_VISITED);
        if (next != QY_LEAK_NONE) {
            flood_push(f, next);
        } else {
            l->order[l->done++] = top->block;
            f->depth--;
        }
    }
}

static void report_head(lost_t *l, uint32_t head, qy_leak_found_t *found, void *arg) {
    qy_leak_flood_t *f = l->flood;
    uint64_t bytes = 0, blocks = 0;
    f->space.blocks->all[head].state |= QY_LEAK_ASSIGNED | QY_LEAK_HEAD;
    flood_push(f, head);
    while (f->depth && !f->stopped) {
        leak_frame_t frame = f->stack[--f->depth];
        for (uint32_t next; !f->stopped && (next = next_lost(f, &frame, QY_LEAK_ASSIGNED)) != QY_LEAK_NONE;) {
            bytes += f->space.blocks->all[next].size;
            blocks++;
            flood_push(f, next);
        }
    }
    if (!f->stopped) found(&f->space.blocks->all[head], QY_LEAK_DEFINITE, bytes, blocks, arg);
}

static bool older(size_t a, size_t b, void *arg) {
    const lost_t *l = arg;
    const qy_leak_block_t *all = l->flood->space.blocks->all;
    const qy_leak_block_t *x = &all[l->list[a]], *y = &all[l->list[b]];
    if (x->stack != y->stack) return x->stack < y->stack;
    return x->ordinal != y->ordinal ? x->ordinal < y->ordinal : x->address < y->address;
}
static void exchange(size_t a, size_t b, void *arg) {
    const lost_t *l = arg;
    uint32_t kept = l->list[a];
    l->list[a] = l->list[b];
    l->list[b] = kept;
}

static void sort_out_lost(lost_t *l, qy_leak_found_t *found, void *arg) {
    qy_leak_flood_t *f = l->flood;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->space.blocks->count; i++)
        if (LOST(&f->space.blocks->all[i])) l->list[n++] = i;
    qy_leak_sort(n, &(qy_leak_sort_t){older, exchange, l});
    for (uint32_t i = 0; i < n && !f->stopped; i++) visit_from(l, l->list[i]);
    for (uint32_t i = l->done; i-- && !f->stopped;)
        if (!(f->space.blocks->all[l->order[i]].state & QY_LEAK_ASSIGNED)) report_head(l, l->order[i], found, arg);
}

static void report_rest(const qy_leak_flood_t *f, qy_leak_found_t *found, void *arg) {
    for (uint32_t i = 0; i < f->space.blocks->count && !f->stopped; i++) {
        const qy_leak_block_t *b = &f->space.blocks->all[i];
        if (b->state & QY_LEAK_REACHED) found(b, QY_LEAK_REACHABLE, 0, 0, arg);
        else if (b->state & QY_LEAK_POSSIBLE) found(b, QY_LEAK_IS_POSSIBLE, 0, 0, arg);
        else if (!(b->state & QY_LEAK_HEAD)) found(b, QY_LEAK_INDIRECT, 0, 0, arg);
    }
}

void qy_leak_flood_sort_out(qy_leak_flood_t *f, qy_leak_found_t *found, void *arg) {
    lost_t l = {.flood = f};
    for (uint32_t i = 0; i < f->space.blocks->count; i++) l.count += LOST(&f->space.blocks->all[i]);
    size_t bytes = 2 * (size_t)l.count * sizeof *l.list;
    l.list = qy_leak_memory(bytes);
    if (!l.list) f->stopped = "no memory for the scan";
    l.order = l.list + l.count;
    if (l.list && l.count) sort_out_lost(&l, found, arg);
    report_rest(f, found, arg);
    qy_leak_memory_end(l.list, bytes);
}
