// SPDX-License-Identifier: MIT
// 11-columns.c: the columns of top
//
// Idea: VIRT, RES, SHR, CODE and DATA of top are seven numbers of /proc/PID/statm, of which two are always zero. VIRT
// is all that is reserved, RES what is resident, SHR what is resident of files and of shared memory. DATA looks like a
// part of RES and is not: it counts addresses, not memory.
//
// Then and now: The series (part 2) found DATA to be VIRT less everything that is of a file or shared, which is the
// reserved private anonymous memory. Linux counts differently now: DATA is the private mappings that may be written to,
// and the stack (VmData + VmStk). Private anonymous memory that may only be read was in it and is not; a thread's stack
// is, its guard is not. The manual of top is still no help: DATA has nothing to do with what is resident.
#include "tour.h"

#include <pthread.h>
#include <semaphore.h>

enum { SIZE = 16 << 20,
    STACK = 1 << 20 };

static sem_t end;

static void *thread(void *nothing) {
    sem_wait(&end);
    return nothing;
}

int main(void) {
    tour_begin("top.VIRT top.RES top.SHR top.DATA top.CODE");
    sem_init(&end, 0, 0);
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const tour_numbers *writable = tour_step("private, may be written");

    mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const tour_numbers *readable = tour_step("private, read-only");

    mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const tour_numbers *shared = tour_step("shared, may be written");

    sbrk(SIZE);
    const tour_numbers *heap = tour_step("the heap, by sbrk");

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_t id;
    tour_must(pthread_create(&id, &attributes, thread, NULL) == 0, "pthread_create");
    const tour_numbers *stack = tour_step("a thread, stack of 1 MiB");
    // tour: hide
    sem_post(&end);
    pthread_join(id, NULL);
    long size = SIZE / KIB, slack = 16 * (long)(tour_page() / KIB);
    tour_near(writable->top.DATA - start->top.DATA, size, 0,
        "Private memory that may be written to: DATA + %s, without a byte being written.",
        tour_size(writable->top.DATA - start->top.DATA));
    tour_near(readable->top.DATA - writable->top.DATA, 0, 0,
        "Private memory that may only be read: DATA + %s. By the old rule it would be + %s.",
        tour_size(readable->top.DATA - writable->top.DATA), tour_size(size));
    tour_near(shared->top.DATA - readable->top.DATA, 0, 0,
        "Shared memory: DATA + %s, and SHR + %s as nothing is resident.",
        tour_size(shared->top.DATA - readable->top.DATA), tour_size(shared->top.SHR - readable->top.SHR));
    tour_near(heap->top.DATA - shared->top.DATA, size, 0, "The heap: DATA + %s.",
        tour_size(heap->top.DATA - shared->top.DATA));
    // What the thread library allocates for itself comes on top.
    tour_near(stack->top.DATA - heap->top.DATA, STACK / KIB, 160 + slack,
        "A thread: DATA + %s, its stack and what belongs to it.", tour_size(stack->top.DATA - heap->top.DATA));
    tour_near(stack->top.VIRT - start->top.VIRT, 4 * size + STACK / (long)KIB, 160 + slack,
        "VIRT grew by all of it: %s.", tour_size(stack->top.VIRT - start->top.VIRT));
    tour_near(stack->top.RES - start->top.RES, 0, tour_slack(), "RES grew by %s.",
        tour_size(stack->top.RES - start->top.RES));
    tour_near(stack->top.DATA, stack->VmData + stack->VmStk, 0, "DATA %s is VmData + VmStk of /proc/self/status.",
        tour_size(stack->top.DATA));
    tour_near(stack->top.VIRT, stack->VmSize, 0,
        "VIRT %s is VmSize, CODE %s is the program's own instructions (VmExe %s).", tour_size(stack->top.VIRT),
        tour_size(stack->top.CODE), tour_size(stack->VmExe));
    tour_claim(stack->top.lib == 0 && stack->top.dt == 0,
        "The fields lib and dt of statm are %ld and %ld, as in every process.", stack->top.lib, stack->top.dt);
    return tour_end();
}
