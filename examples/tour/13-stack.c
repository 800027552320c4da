// SPDX-License-Identifier: MIT
// 13-stack.c: stacks and their guards
//
// Idea: Each thread has a stack. That of the first thread is made by the kernel and grows by itself when a call goes
// deeper, up to a limit (ulimit -s); it never shrinks. Those of other threads are ordinary private anonymous memory,
// reserved whole by the thread library at the start and resident only as deep as it was used. Below lies a guard that
// nobody may touch, so that a stack that overflows ends in SIGSEGV and not in a neighbour's memory.
//
// Then and now: Part 3 of the series reads the stacks of threads in /proc/PID/maps, as [stack:TID]. Linux does not name
// them any more (since 4.5): they are memory like any other. The guard of a thread is
// a mapping without permissions; newer C libraries (glibc 2.42) mark the pages instead, and then maps does not show it.
#include "tour.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

enum { STACK = 8 << 20,
    FRAME = 64 << 10 };

static const tour_numbers *in_thread;
static tour_mapping thread_stack, below;
static char *lowest;  // of a thread's stack that may be used

// tour: show
static __attribute__((noinline)) long deeper(int calls) {
    volatile char frame[64 << 10];
    for (size_t at = 0; at < sizeof frame; at += tour_page()) frame[at] = 1;
    return frame[0] + (calls > 1 ? deeper(calls - 1) : 0);
}
// tour: hide

static void find_stack(void) {
    char local = 0;
    size_t size;
    void *start = NULL;
    pthread_attr_t attributes;
    tour_must(tour_mapping_of(&local, &thread_stack), "the mapping of a thread's stack");
    if (!tour_mapping_of((char *)thread_stack.from - 1, &below)) below = (tour_mapping){0};
    tour_must(
        pthread_getattr_np(pthread_self(), &attributes) == 0 && pthread_attr_getstack(&attributes, &start, &size) == 0,
        "pthread_getattr_np");
    pthread_attr_destroy(&attributes);
    lowest = start;
}

static void *thread(void *touch_guard) {
    if (!touch_guard) in_thread = tour_step("a thread, in it");  // before anything here allocates
    find_stack();
    if (touch_guard) {
        *(volatile char *)lowest = 1;
        *(volatile char *)(lowest - 1) = 1;
        return NULL;
    }
    tour_maps((char *)thread_stack.from - 1, (char *)thread_stack.to);
    return NULL;
}

static void run_thread(bool touch_guard) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_t id;
    tour_must(pthread_create(&id, &attributes, thread, touch_guard ? &attributes : NULL) == 0, "pthread_create");
    pthread_join(id, NULL);
}

int main(void) {
    tour_begin("VmStk RssAnon VmSize");
    char local = 0;
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 6 * MIB)
        tour_skip("needs a stack of 6 MiB and more (ulimit -s)");
    tour_mapping before, after;
    tour_must(tour_mapping_of(&local, &before), "the mapping of the stack");
    const tour_numbers *start = tour_step("at the start");
    // tour: show

    long calls = deeper(64);  // 64 calls, 64 KiB each
    const tour_numbers *deep = tour_step("64 calls deep and back");
    // tour: hide
    tour_must(tour_mapping_of(&local, &after), "the mapping of the stack");
    // tour: show

    run_thread(false);  // with a stack of 8 MiB

    pid_t child = tour_fork("child");
    if (child == 0) {
        run_thread(true);  // one that writes below the lowest byte of its stack
        _exit(0);
    }
    int status = tour_wait(child);
    // tour: hide
    long slack = tour_slack(), size = 64 * FRAME / (long)KIB, page = (long)(tour_page() / KIB);
    tour_near(calls, 64, 0, "There were %ld calls within each other, with %s of locals each.", calls,
        tour_size(FRAME / (long)KIB));
    tour_near(deep->VmStk - start->VmStk, size, 256, "The stack has grown by %s without anybody asking for it.",
        tour_size(deep->VmStk - start->VmStk));
    tour_near(deep->RssAnon - start->RssAnon, size, slack, "%s more are resident, though all calls have returned.",
        tour_size(deep->RssAnon - start->RssAnon));
    tour_claim(after.from < before.from && after.to == before.to,
        "It is one mapping (%s), which has grown at its lower end.", after.name);
    if (limit.rlim_cur == RLIM_INFINITY) tour_note("This stack has no limit (ulimit -s).");
    else tour_note("This stack may grow to %s (ulimit -s).", tour_size((long)(limit.rlim_cur / KIB)));
    tour_near(in_thread->VmSize - deep->VmSize, STACK / KIB, 160 + 16 * page,
        "A thread reserves its stack at the start: VmSize + %s.", tour_size(in_thread->VmSize - deep->VmSize));
    tour_near(in_thread->RssAnon - deep->RssAnon, 0, slack, "It takes what it uses: RssAnon + %s.",
        tour_size(in_thread->RssAnon - deep->RssAnon));
    tour_claim(
        thread_stack.inode == 0 && strcmp(thread_stack.modes, "rw-p") == 0 && !strstr(thread_stack.name, "stack:"),
        "To the kernel it is private anonymous memory without a name: modes %s, name \"%s\".", thread_stack.modes,
        thread_stack.name);
    if (below.to == thread_stack.from && strcmp(below.modes, "---p") == 0)
        tour_note("Its guard is the mapping below, without any permission: %s.",
            tour_size((long)((below.to - below.from) / KIB)));
    else tour_note("Its guard is not to be seen in maps.");
    tour_near(status, -SIGSEGV, 0,
        "Who writes a byte below the stack of a thread is ended by signal %d (SIGSEGV is %d).", -status, SIGSEGV);
    return tour_end();
}
