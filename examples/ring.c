// SPDX-License-Identifier: MIT
// ring.c: a thread that makes jobs, and a pool of threads that do them. A job is many small blocks, made in
// one frame of the maker's own ring; whoever has done the job releases them all in one call.
//
//   cc ring.c $(pkg-config --cflags --libs quarry) -pthread
#include <quarry/ring.h>
#include <quarry/short.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORKERS = 3,
    JOBS = 300 };

typedef struct word {
    struct word *next;
    const char *text;
} word_t;

typedef struct job {
    struct job *next;
    quarry_ring_frame_t frame;
    word_t *words;
} job_t;

// ---- a queue of jobs: any will do ------------------------------------------------------------------

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    job_t *first, **last;
    int closed;
    size_t letters;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .last = &queue.first};

static void schedule(job_t *job) {
    pthread_mutex_lock(&queue.lock);
    if (job) {
        *queue.last = job;
        queue.last = &job->next;
    } else {
        queue.closed = 1;
    }
    pthread_cond_broadcast(&queue.more);
    pthread_mutex_unlock(&queue.lock);
}

static job_t *next_job(void) {
    pthread_mutex_lock(&queue.lock);
    while (!queue.first && !queue.closed) pthread_cond_wait(&queue.more, &queue.lock);
    job_t *job = queue.first;
    if (job && !(queue.first = job->next)) queue.last = &queue.first;
    pthread_mutex_unlock(&queue.lock);
    return job;
}

// ---- making and doing --------------------------------------------------------------------------------

// Everything between newframe and seal belongs to the job. Nothing is freed one by one, nothing is counted.
static job_t *make_job(int number) {
    quarry_ring_frame_t frame = r_newframe();
    job_t *job = frame ? r_new(job_t, 1) : NULL;
    for (int i = 0; job && i <= number % 5; i++) {
        word_t *word = r_new(word_t, 1);
        char text[16];
        snprintf(text, sizeof text, "word%d", i);
        if (!word || !(word->text = r_strdup(text))) return NULL;
        word->next = job->words;
        job->words = word;
    }
    if (job) job->frame = frame;
    r_seal();
    return job;
}

static void *worker(void *arg) {
    size_t letters = 0;
    for (job_t *job; (job = next_job());) {
        for (word_t *word = job->words; word; word = word->next) letters += strlen(word->text);
        r_release(job->frame);  // the job, its words and their text
    }
    pthread_mutex_lock(&queue.lock);
    queue.letters += letters;
    pthread_mutex_unlock(&queue.lock);
    return arg;
}

int main(void) {
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, worker, NULL)) return 1;
    for (int i = 0; i < JOBS; i++) {
        job_t *job = make_job(i);
        if (!job) return 1;
        schedule(job);
    }
    schedule(NULL);
    for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
    printf("%d jobs, %zu letters\n", JOBS, queue.letters);

    // All frames are released: one chunk is left for what comes next.
    quarry_ring_reset(r_pool());
    quarry_pool_stats_t stats;
    quarry_pool_stats(r_pool(), &stats);
    printf("%zu KiB held\n", stats.held_bytes / 1024);

    // A frame under construction can be taken back to a mark.
    quarry_ring_frame_t frame = r_newframe();
    quarry_ring_mark_t mark = r_checkpoint();
    for (int i = 0; i < 1000; i++)
        if (!r_new(word_t, 100)) return 1;
    r_rewind(mark);
    r_seal();
    r_release(frame);
    puts("rewound");
    return 0;
}
