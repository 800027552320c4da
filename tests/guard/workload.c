// SPDX-License-Identifier: MIT
// workload.c: a program with an ordinary life: it reads words, counts them in a table, sorts them, and joins them, in
// rounds. What it does depends on nothing but its arguments. At its end it says how much memory of its own it has.
//
//   workload ROUNDS
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    struct entry *next;
    char *word;
    unsigned count;
} entry_t;

enum { BUCKETS = 4096,
    WORDS = 20000 };
static entry_t *table[BUCKETS];
static unsigned entries;

static uint64_t next_number(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

// As from a file: a line of words.
static char *read_line(uint64_t *state) {
    size_t room = 16, used = 0;
    char *line = malloc(room);
    for (unsigned words = 1 + next_number(state) % 12; words--;) {
        unsigned length = 2 + (unsigned)(next_number(state) % 9);
        // Few words are common.
        uint64_t of = next_number(state) % (next_number(state) % 3 ? 500 : 100000);
        if (used + length + 2 > room) line = realloc(line, room *= 2);
        for (unsigned i = 0; i < length; i++) line[used++] = (char)('a' + (of = of * 31 + 7) % 26);
        line[used++] = ' ';
    }
    line[used] = '\0';
    return line;
}

static void count_word(const char *word, size_t length) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)word[i]) * 16777619u;
    for (entry_t *e = table[hash % BUCKETS]; e; e = e->next) {
        if (strncmp(e->word, word, length) != 0 || e->word[length]) continue;
        e->count++;
        return;
    }
    entry_t *e = calloc(1, sizeof *e);
    e->word = strndup(word, length);
    e->count = 1;
    e->next = table[hash % BUCKETS];
    table[hash % BUCKETS] = e;
    entries++;
}

static int by_count(const void *a, const void *b) {
    const entry_t *x = *(entry_t *const *)a, *y = *(entry_t *const *)b;
    return x->count != y->count ? x->count < y->count ? 1 : -1 : strcmp(x->word, y->word);
}

// Sorted, the most common ones joined; then all go.
static size_t report(void) {
    entry_t **all = malloc(entries * sizeof(*all));
    size_t n = 0, length = 0;
    for (unsigned b = 0; b < BUCKETS; b++)
        for (entry_t *e = table[b]; e; e = e->next) all[n++] = e;
    qsort(all, n, sizeof(*all), by_count);
    char *text = strdup("");
    for (size_t i = 0; i < n && i < 400; i++) {
        size_t more = strlen(all[i]->word);
        text = realloc(text, length + more + 2);
        memcpy(text + length, all[i]->word, more + 1);
        length += more;
    }
    free(text);
    for (size_t i = 0; i < n; i++) {
        free(all[i]->word);
        free(all[i]);
    }
    free(all);
    memset(table, 0, sizeof table);
    entries = 0;
    return length;
}

static size_t anonymous_kib(void) {
    static char text[4096];
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    const char *line = strstr(text, "\nAnonymous:");
    return line ? strtoul(line + 11, NULL, 10) : 0;
}

int main(int argc, char **argv) {
    uint64_t state = 1;
    size_t sum = 0;
    for (int rounds = argc > 1 ? atoi(argv[1]) : 1; rounds; rounds--) {
        for (unsigned words = 0; words < WORDS;) {
            char *line = read_line(&state), *at = line;
            for (size_t length; (length = strcspn(at, " ")); at += length + 1) {
                count_word(at, length);
                words++;
            }
            free(line);
        }
        sum += report();
    }
    printf("%zu %zu\n", sum, anonymous_kib());
    return 0;
}
