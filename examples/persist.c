// SPDX-License-Identifier: MIT
// persist.c: a list of notes in a file: written, interrupted in the middle of a change, found whole again.
//
//   cc persist.c $(pkg-config --cflags --libs quarry)
#include <quarry/persist.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// In the file: offsets, not addresses.
typedef struct note {
    quarry_persist_ptr_t next;
    char text[56];
} note_t;
typedef struct notes {
    quarry_persist_ptr_t first;
    uint64_t count;
} notes_t;

static quarry_persist_t *open_notes(const char *path) {
    quarry_persist_t *store = quarry_persist_open(path, &(quarry_persist_options_t){.flags = QUARRY_PERSIST_CREATE});
    if (!store) {
        uint64_t at;
        const char *why = quarry_persist_error(&at);
        fprintf(stderr, "%s: %s (at %llu)\n", path, why, (unsigned long long)at);
        exit(1);
    }
    quarry_persist_ptr_t *root = quarry_persist_root_link(store);
    if (!*root && !quarry_persist_alloc_to(store, root, sizeof(notes_t), QUARRY_POOL_ZERO)) exit(1);
    return store;
}

// One step: the note is in the list, the list's count is right, and the block has an owner; or nothing happened.
static void add(quarry_persist_t *store, const char *text, int die) {
    notes_t *notes = quarry_persist_at(store, quarry_persist_root(store));
    quarry_persist_ptr_t rest = notes->first;
    if (quarry_persist_begin(store)) return;
    note_t *note =
        quarry_persist_at(store, quarry_persist_alloc_to(store, &notes->first, sizeof *note, QUARRY_POOL_ZERO));
    if (!note) {
        quarry_persist_abort(store);
        return;
    }
    note->next = rest;  // the block is of this transaction: plain stores will do
    snprintf(note->text, sizeof note->text, "%s", text);
    if (die) raise(SIGKILL);
    quarry_persist_set(store, &notes->count, notes->count + 1);
    quarry_persist_commit(store);
}

static void print(quarry_persist_t *store) {
    const notes_t *notes = quarry_persist_at(store, quarry_persist_root(store));
    printf("%llu:", (unsigned long long)notes->count);
    for (quarry_persist_ptr_t at = notes->first; at;) {
        const note_t *note = quarry_persist_at(store, at);
        printf(" %s", note->text);
        at = note->next;
    }
    printf("\n");
}

int main(void) {
    char path[] = "/tmp/notes-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);

    quarry_persist_t *store = open_notes(path);
    add(store, "bread", 0);
    add(store, "milk", 0);
    print(store);
    quarry_persist_close(store);

    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        store = open_notes(path);
        add(store, "tea", 0);
        add(store, "a half-written no", 1);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("killed: %s\n", WIFSIGNALED(status) ? "yes" : "no");

    store = open_notes(path);
    print(store);
    printf("sound: %s\n", quarry_persist_check(store) == 0 ? "yes" : "no");
    quarry_persist_close(store);
    unlink(path);
    return 0;
}
