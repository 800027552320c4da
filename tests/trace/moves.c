// SPDX-License-Identifier: MIT
// moves.c: what test_moves.py records: a thread moves a block to another place by realloc, and before that has
// returned, so before its record is written, another thread gets the old place.
//
//   moves WHO WHAT SIZE ROUNDS
//
// WHO moves it: `first`: a new thread each time, of which it is the first event; `same`: always the same one; `stale`:
// the same
// one, left by an operator new that threw; `late`: one that has ended, while another one that has ended allocates.
// WHAT: `realloc` to SIZE (0: the block ends; huge ones fail), or `free`.
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "moves.h"

void *_Znwm(size_t n);

#define MUST(expr)                                         \
    do {                                                   \
        if (!(expr)) {                                     \
            fprintf(stderr, "moves: %s: not so\n", #expr); \
            abort();                                       \
        }                                                  \
    } while (0)

typedef enum turn { MOVE,
    LEFT,
    GO_ON,
    MOVED,
    OTHER,
    OTHER_DONE,
    TURNS } turn_t;
static sem_t turns[TURNS];
static void give(turn_t t) { sem_post(&turns[t]); }
static void await(turn_t t) {
    while (sem_wait(&turns[t])) {}
}

static const char *who;
static bool frees, over;
static size_t size;
static void *block, *moved;

// ---- the thread that moves it ---------------------------------------------------------------------------------

static void left(void) {
    give(LEFT);
    await(GO_ON);
}

static void move(void) {
    moved = NULL;
    if (frees) free(block);
    else moved = realloc(block, size);
    give(MOVED);
}

static void move_all(void) {
    for (await(MOVE); !over; await(MOVE)) move();
}

static void allocate_all(void) {
    for (await(OTHER); !over; await(OTHER)) {
        free(malloc(64));
        give(OTHER_DONE);
    }
}

static jmp_buf thrown;
static void throws(void) { longjmp(thrown, 1); }

static void *run(void *arg) {
    (void)arg;
    if (!strcmp(who, "stale") && !setjmp(thrown)) _Znwm(100);
    if (!strcmp(who, "first")) {
        await(MOVE);
        move();
    } else move_all();
    return NULL;
}

// The fourth round of destructors is the last: the recorder has let the thread go.
static pthread_key_t key;
static _Thread_local unsigned destructors;
static void at_end(void *fn) {
    if (++destructors < 4) pthread_setspecific(key, fn);
    else (*(void (**)(void))fn)();
}

static void *end(void *fn) {
    free(malloc(10));
    pthread_setspecific(key, fn);
    return NULL;
}

// ---- the thread that gets its place ---------------------------------------------------------------------------

static void one_round(void) {
    bool leaves = !frees && size <= PTRDIFF_MAX;
    block = malloc(frees ? MOVES_LARGE : MOVES_SMALL);
    MUST(block == moves()->place);
    memset(block, 1, MOVES_SMALL);
    give(MOVE);
    if (leaves) {
        await(LEFT);
        MUST(malloc(MOVES_SMALL) == block);
        if (!strcmp(who, "late")) {
            give(OTHER);
            await(OTHER_DONE);
        }
        give(GO_ON);
    }
    await(MOVED);
    if (frees) MUST(malloc(MOVES_SMALL) == block);
    free(block);
    free(moved);
}

int main(int argc, char **argv) {
    MUST(argc == 5);
    static void (*const fns[])(void) = {move_all, allocate_all};
    int rounds = atoi(argv[4]);
    pthread_t t[2];
    who = argv[1];
    frees = !strcmp(argv[2], "free");
    size = strtoul(argv[3], NULL, 0);
    *moves() = (moves_t){.place = moves()->place, .bytes = moves()->bytes, .left = left, .throws = throws};
    for (int i = 0; i < TURNS; i++) MUST(sem_init(&turns[i], 0, 0) == 0);
    bool late = !strcmp(who, "late"), first = !strcmp(who, "first");
    if (late) {
        MUST(pthread_key_create(&key, at_end) == 0);
        for (int i = 0; i < 2; i++) MUST(pthread_create(&t[i], NULL, end, (void *)(size_t)&fns[i]) == 0);
    } else if (!first) MUST(pthread_create(&t[0], NULL, run, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        if (first) MUST(pthread_create(&t[0], NULL, run, NULL) == 0);
        one_round();
        if (first) pthread_join(t[0], NULL);
    }
    over = true;
    give(MOVE);
    give(OTHER);
    for (int i = 0; i < (late ? 2 : first ? 0
                                          : 1);
         i++) pthread_join(t[i], NULL);
    printf("%#zx %zu\n", (size_t)moves()->place, moves()->bytes);
}
