// SPDX-License-Identifier: MIT
// snapshot.c: a fork is a snapshot of the process's private memory. A child works on it without locks while the parent
// goes on writing, and its result comes back in one of four ways. What the snapshot costs is the pages that are written
// meanwhile, by either side.
//
//   cc snapshot.c $(pkg-config --cflags --libs quarry)
#include <quarry/pages.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// ---- the snapshot ---------------------------------------------------------------------------------------

// What the child is to do. What it returns is the exit status.
typedef int work_t(void *arg);

typedef struct snapshot {
    pid_t child;
    int go;  // the end of a pipe: the child begins when it is closed
} snapshot_t;

// The memory is frozen for `work` when this returns. The child must not rely on other threads, nor on their locks: it
// reads memory, writes its result, and ends.
static snapshot_t snapshot_begin(work_t *work, void *arg) {
    int begin[2];
    if (pipe(begin)) exit(1);
    snapshot_t s = {.child = fork(), .go = begin[1]};
    if (s.child < 0) exit(1);
    if (s.child == 0) {
        char nothing;
        close(begin[1]);
        if (read(begin[0], &nothing, 1) < 0) _exit(1);
        _exit(work(arg));
    }
    close(begin[0]);
    return s;
}

// The child may begin. A program that has no reason to wait calls this at once.
static void snapshot_go(snapshot_t *s) { close(s->go); }

static int snapshot_end(snapshot_t *s) {
    int status;
    if (waitpid(s->child, &status, 0) != s->child || !WIFEXITED(status)) exit(1);
    return WEXITSTATUS(status);
}

// ---- four ways for a result -----------------------------------------------------------------------------

enum { NUMBERS = 1 << 20 };

typedef struct job {
    const unsigned *numbers;
    unsigned long *shared;  // memory of both
    FILE *file;             // a file of both
    int pipe;               // the child's end
} job_t;

static unsigned long sum_of(const unsigned *numbers) {
    unsigned long sum = 0;
    for (int i = 0; i < NUMBERS; i++) sum += numbers[i];
    return sum;
}

static int by_all_ways(void *arg) {
    const job_t *job = arg;
    unsigned long sum = sum_of(job->numbers);
    *job->shared = sum;
    fprintf(job->file, "%lu\n", sum);
    fflush(job->file);
    if (write(job->pipe, &sum, sizeof sum) != sizeof sum) return 1;
    return (int)(sum % 251);
}

static int four_ways(unsigned *numbers) {
    unsigned long by_file = 0, by_pipe = 0, sum = sum_of(numbers);
    int ends[2];
    job_t job = {.numbers = numbers, .file = tmpfile()};
    job.shared = quarry_map_aligned(-1, 0, sizeof *job.shared, 4096, QUARRY_MAP_SHARED);
    if (!job.shared || !job.file || pipe(ends)) return 1;
    job.pipe = ends[1];
    snapshot_t s = snapshot_begin(by_all_ways, &job);
    for (int i = 0; i < NUMBERS; i++) numbers[i] = 0;  // the parent goes on, and the child does not see it
    snapshot_go(&s);
    if (read(ends[0], &by_pipe, sizeof by_pipe) != sizeof by_pipe) return 1;
    int status = snapshot_end(&s);
    rewind(job.file);
    if (fscanf(job.file, "%lu", &by_file) != 1) return 1;
    printf("by exit status: %s\n", status == (int)(sum % 251) ? "right" : "wrong");
    printf("by a file: %s\n", by_file == sum ? "right" : "wrong");
    printf("by shared memory: %s\n", *job.shared == sum ? "right" : "wrong");
    printf("by a pipe: %s\n", by_pipe == sum ? "right" : "wrong");
    printf("what the parent has meanwhile: %lu\n", sum_of(numbers));
    fclose(job.file);
    close(ends[0]);
    close(ends[1]);
    return quarry_unmap(job.shared, sizeof *job.shared);
}

// ---- what it costs --------------------------------------------------------------------------------------

enum { PAGES = 4096 };

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static int nothing(void *arg) {
    (void)arg;
    return 0;
}

// So many writes, to pages at random. Returns how many pages they were.
static long scatter(char *memory, size_t page, long writes) {
    static char seen[PAGES];
    unsigned long state = 1;
    long pages = 0;
    memset(seen, 0, sizeof seen);
    for (long i = 0; i < writes; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t at = (state >> 33) % PAGES;
        memory[at * page]++;
        pages += !seen[at];
        seen[at] = 1;
    }
    return pages;
}

// Each page that is written while the snapshot lives is copied once, in a page fault of who writes it.
static int pages_copied(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *memory = quarry_map_aligned(-1, 0, PAGES * page, page, 0);
    if (!memory) return 1;
    quarry_advise(memory, PAGES * page, QUARRY_ADVICE_NO_HUGE);  // a huge page would be copied as pages, too
    memset(memory, 1, PAGES * page);
    scatter(memory, page, 1);
    puts("writes meanwhile   pages written   copied");
    for (long writes = 0; writes <= 4L * PAGES; writes = writes ? writes * 4 : 64) {
        snapshot_t s = snapshot_begin(nothing, NULL);
        long before = faults(), written = scatter(memory, page, writes), copied = faults() - before;
        snapshot_go(&s);
        snapshot_end(&s);
        // A few faults are the program's own.
        printf("%16ld %15ld   %s\n", writes, written,
            copied >= written && copied < written + 32 ? "as many" : "another number");
    }
    return quarry_unmap(memory, PAGES * page);
}

int main(void) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    unsigned *numbers = malloc(NUMBERS * sizeof *numbers);
    if (!numbers) return 1;
    for (int i = 0; i < NUMBERS; i++) numbers[i] = (unsigned)i * 2654435761u;
    int failed = four_ways(numbers) || pages_copied();
    free(numbers);
    return failed;
}
