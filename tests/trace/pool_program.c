// SPDX-License-Identifier: MIT
// pool_program.c: what test_pools.py records: a program that uses every kind of pool and says itself, line by line,
// what the recorder must have been told: the pool's name, then an event of docs/trace-format.md with its fields.
#include <pthread.h>
#include <quarry/fifo.h>
#include <quarry/heap.h>
#include <quarry/pages.h>
#include <quarry/persist.h>
#include <quarry/pow2.h>
#include <quarry/ring.h>
#include <quarry/scope.h>
#include <quarry/tlsf.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int checked;  // blocks always move, and those of a ring end with its frame

#define MUST(expr) ((expr) ? (void)0 : (fprintf(stderr, "pool_program: %s failed\n", #expr), abort()))

// The compiler shall not leave anything out.
static void *kept(void *p) {
    __asm__ volatile(""
                     : "+r"(p)
                     :
                     : "memory");
    return p;
}

static const char *name_of(quarry_pool_t *pool) { return quarry_pool_name(pool); }
static void say_alloc(const char *name, size_t size, void *p) {
    MUST(kept(p));
    printf("%s alloc %zu %p\n", name, size, p);
}
static void say(const char *name, const char *what) { printf("%s %s\n", name, what); }

static void *made(quarry_pool_t *pool, size_t size) {
    void *p = quarry_pool_alloc(pool, size, 8, 0);
    say_alloc(name_of(pool), size, p);
    return p;
}
static void *resized(quarry_pool_t *pool, void *old, size_t old_size, size_t size) {
    void *p = quarry_pool_resize(pool, old, old_size, size, 8, 0);
    MUST(p);
    printf("%s resized %p %zu %p\n", name_of(pool), old, size, p);
    return p;
}
static void freed(quarry_pool_t *pool, void *p, size_t size) {
    printf("%s free %p\n", name_of(pool), p);
    quarry_pool_free(pool, p, size);
}
// `parent`: its name, or "-".
static quarry_pool_t *created(quarry_pool_t *pool, const char *parent) {
    MUST(pool);
    printf("%s created %s %s\n", name_of(pool), quarry_pool_kind(pool), parent);
    return pool;
}
static void destroyed(quarry_pool_t *pool) {
    say(name_of(pool), "destroyed");
    quarry_pool_destroy(pool);
}

static void in_thread(void *(*fn)(void *arg), void *arg) {
    pthread_t t;
    MUST(pthread_create(&t, NULL, fn, arg) == 0 && pthread_join(t, NULL) == 0);
}

// ---- pools without frames --------------------------------------------------------------------------------

static void blocks(quarry_pool_t *pool) {
    enum { N = 300 };
    static void *p[N];
    static size_t size[N];
    for (int i = 0; i < 3000; i++) {
        int n = i * 7919 % N;
        size_t now = (size_t)(i * 31 % 1000 + (i % 100 ? 0 : 300000));
        if (p[n] && i % 3 == 0) p[n] = resized(pool, p[n], size[n], now);
        else if (p[n]) freed(pool, p[n], size[n]), p[n] = NULL;
        else p[n] = made(pool, now);
        size[n] = now;
    }
    for (int i = 0; i < N; i += 2)
        if (p[i]) freed(pool, p[i], size[i]);
    memset(p, 0, sizeof p);
}

static quarry_pool_t *fifo;
static void *free_theirs(void *arg) {
    void **p = arg;
    for (int i = 0; i < 10; i++) freed(fifo, p[i], 20);
    return NULL;
}

static void without_frames(void) {
    quarry_pool_t *pool = created(quarry_tlsf_create(&(quarry_tlsf_options_t){.pool.name = "a tlsf"}), "-");
    blocks(pool);
    destroyed(pool);
    pool = created(quarry_pow2_create(&(quarry_pow2_options_t){.pool.name = "a pow2", .map_bytes = 65536}), "-");
    blocks(pool);
    destroyed(pool);
    pool = created(quarry_pages_create(&(quarry_pages_options_t){.pool.name = "pages"}), "-");
    quarry_pool_t *child = created(
        quarry_tlsf_create(&(quarry_tlsf_options_t){.pool = {.name = "on malloc", .parent = quarry_libc_pool()}}), "-");
    blocks(pool);
    blocks(child);
    destroyed(child);
    destroyed(pool);
    quarry_heap_t *heap = quarry_heap_create(NULL);
    pool = created(quarry_heap_pool(heap, &(quarry_pool_options_t){.name = "a heap"}), "-");
    blocks(pool);
    destroyed(pool);
    quarry_heap_destroy(heap);
    fifo = created(quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "a fifo"}), "-");
    blocks(fifo);
    void *p[20];
    for (int i = 0; i < 20; i++) p[i] = made(fifo, 20);
    in_thread(free_theirs, p);
    quarry_pool_destroy(fifo);  // 150 of blocks() and ten of these are live
    in_thread(free_theirs, p + 10);
    fifo = created(quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "fifo that ends"}), "-");
    for (int i = 0; i < 10; i++) p[i] = made(fifo, 20);
    quarry_pool_destroy(fifo);
    in_thread(free_theirs, p);
    say("fifo that ends", "destroyed");
}

static void parents(void) {
    quarry_pool_t *parent = quarry_pow2_create(&(quarry_pow2_options_t){.pool.name = "parent"});
    quarry_pool_t *child =
        created(quarry_stack_create(&(quarry_stack_options_t){.pool = {.name = "child", .parent = parent}}), "parent");
    made(child, 10);
    destroyed(child);
    quarry_pool_destroy(parent);  // whose blocks are the child's chunks: not in this list
}

static void persistent(const char *path) {
    quarry_persist_t *s =
        quarry_persist_open(path, &(quarry_persist_options_t){.pool.name = "file", .flags = QUARRY_PERSIST_CREATE});
    created(quarry_persist_pool(s), "-");
    quarry_persist_ptr_t at[10];
    for (size_t i = 0; i < 10; i++) {
        at[i] = quarry_persist_alloc(s, 100 * i, 0);
        say_alloc("file", 100 * i, quarry_persist_at(s, at[i]));
    }
    MUST(quarry_persist_begin(s) == 0);
    quarry_persist_ptr_t lost = quarry_persist_alloc(s, 50, 0);
    MUST(quarry_persist_free(s, at[0]) == 0);
    say_alloc("file", 50, quarry_persist_at(s, lost));
    MUST(quarry_persist_abort(s) == 0);
    printf("file free %p\n", quarry_persist_at(s, lost));
    MUST(quarry_persist_begin(s) == 0 && quarry_persist_free(s, at[0]) == 0 && quarry_persist_commit(s) == 0);
    printf("file free %p\n", quarry_persist_at(s, at[0]));
    say("file", "destroyed");
    MUST(quarry_persist_close(s) == 0);
    // A later run: it knows of no block, and frees one.
    s = quarry_persist_open(path, &(quarry_persist_options_t){.pool.name = "file again"});
    created(quarry_persist_pool(s), "-");
    printf("file again free %p\n", quarry_persist_at(s, at[5]));
    MUST(quarry_persist_free(s, at[5]) == 0);
    say("file again", "destroyed");
    MUST(quarry_persist_close(s) == 0);
    unlink(path);
}

// ---- frames ------------------------------------------------------------------------------------------------

static void t_said(size_t size) { say_alloc("t_stack", size, t_new_raw(char, size)); }

__attribute__((noinline)) static void nested(int depth) {
    t_scope;
    if (depth % 3) {  // the others have no block of their own before those inside are over
        say("t_stack", "pushed");
        t_said((size_t)depth * 1000 + 1);
    }
    if (depth < 40) nested(depth + 1);
    if (depth % 3) {
        t_said(7);
        say("t_stack", "popped");
    }
}

static jmp_buf out;
__attribute__((noinline)) static void jumps_out(int depth) {
    t_scope;
    say("t_stack", "pushed");
    t_said(33);
    if (depth) jumps_out(depth - 1);
    else if (fifo) longjmp(out, 1);
}
__attribute__((noinline)) static void over_frames(void) {
    t_scope;
    say("t_stack", "pushed");
    t_said(44);
    if (!setjmp(out)) jumps_out(2);
    for (int i = 0; i < 4; i++) say("t_stack", "popped");
}

static void *scoped_thread(void *arg) {
    (void)arg;
    say("t_stack", "created stack -");
    t_scope;
    say("t_stack", "pushed");
    t_said(55);
    say("t_stack", "popped");
    say("t_stack", "destroyed");
    return NULL;
}

static void stacks(void) {
    say("t_stack", "created stack -");
    {
        t_scope;
        say("t_stack", "pushed");
        t_said(1);
        nested(1);
        over_frames();
        say("t_stack", "popped");
    }
    in_thread(scoped_thread, NULL);
    quarry_pool_t *pool = created(quarry_stack_create(&(quarry_stack_options_t){.pool.name = "a stack"}), "-");
    quarry_stack_frame_t frames[3];
    made(pool, 5);
    for (int i = 0; i < 3; i++) {
        quarry_stack_push(pool, &frames[i]);
        say("a stack", "pushed");
        char *p = made(pool, 6);
        p = resized(pool, p, 6, 60);
        made(pool, 7);
        p = resized(pool, p, 60, 100000);
    }
    quarry_stack_pop(pool, &frames[2]);
    for (int i = 0; i < 3; i++) say("a stack", "popped");
    destroyed(pool);
}

static quarry_ring_frame_t ring_frames[10];
static void *release_theirs(void *arg) {
    (void)arg;
    for (int i = 9; i >= 0; i--) {
        printf("a ring released %llu\n", (unsigned long long)ring_frames[i]);
        quarry_ring_release(ring_frames[i]);
    }
    return NULL;
}

static void ring(void) {
    quarry_pool_t *pool = created(quarry_ring_create(&(quarry_ring_options_t){.pool.name = "a ring"}), "-");
    for (int i = 0; i < 10; i++) {
        quarry_ring_newframe(pool);
        say("a ring", "pushed");
        char *p = made(pool, 100);
        for (size_t n = 0; n < 100; n++) made(pool, n * 20);
        p = resized(pool, p, 100, 200);
        if (i % 2) {
            void *later[5];
            quarry_ring_mark_t mark = quarry_ring_checkpoint(pool);
            for (size_t n = 0; n < 5; n++) later[n] = made(pool, n * 20000);
            quarry_ring_rewind(pool, mark);
            for (int n = 4; n >= 0 && !checked; n--) printf("a ring free %p\n", later[n]);
        }
        ring_frames[i] = quarry_ring_seal(pool);
        printf("a ring sealed %llu\n", (unsigned long long)ring_frames[i]);
    }
    quarry_ring_newframe(pool);
    say("a ring", "pushed");
    made(pool, 1);
    say("a ring", "popped");
    quarry_pool_destroy(pool);
    in_thread(release_theirs, NULL);
    say("a ring", "destroyed");
}

// ---- a thread that goes on after its end, and a child ------------------------------------------------------------

static pthread_key_t key;
static void late(void *arg) {
    static __thread int rounds;
    if (rounds++ < 3) pthread_setspecific(key, arg);
    else freed(fifo, arg, 20);
}
static void *late_thread(void *arg) {
    free(kept(malloc(10)));
    pthread_setspecific(key, arg);
    return NULL;
}

static void ends(void) {
    pthread_key_create(&key, late);
    fifo = created(quarry_fifo_create(&(quarry_fifo_options_t){.pool.name = "late"}), "-");
    in_thread(late_thread, made(fifo, 20));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        puts("CHILD");
        created(fifo, "-");  // told again, when it is used
        void *p = made(fifo, 20);
        freed(fifo, p, 20);
        destroyed(fifo);
        exit(0);
    }
    int status;
    MUST(waitpid(pid, &status, 0) == pid && status == 0);
    puts("PARENT");
    destroyed(fifo);
}

int main(int argc, char **argv) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    checked = argc > 2 && !strcmp(argv[2], "checked");
    without_frames();
    parents();
    persistent(argv[1]);
    stacks();
    ring();
    ends();
    return 0;
}
