// SPDX-License-Identifier: MIT
// test_threads.c: the recorder's threads, in this process, which calls it as the interposed functions do: streams of
// many threads, their ends, the end of the recording while they run, and children. Under ThreadSanitizer, too.
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "captured.h"
#include "os/fake.h"
#include "stacks/own.h"
#include "stacks/stacks_tree.h"
#include "trace/encode.h"
#include "trace/record.h"

static char pattern[64];
static _Atomic uint64_t written;

// An event as malloc and free make them. False: it was not recorded.
static bool event(uintptr_t addr, bool alloc) {
    qy_writer_t *w = qy_record_mine;
    if (!qy_record_ready(w) && !(w = qy_record_writer())) return false;
    bool recorded = qy_writer_begin(w);
    if (recorded && alloc) qy_write_alloc(w, QY_BY_MALLOC, qy_os_ticks(), addr % 1000, addr, 0, 0);
    else if (recorded) qy_write_free(w, QY_FREE_PLAIN, qy_os_ticks(), addr);
    qy_writer_end(w);
    return recorded;
}

static void *stream(void *arg) {
    uint64_t done = 0, count = *(uint64_t *)arg;
    for (uint64_t i = 0; i < count; i++) done += event(0x10000 + i * 48, i & 1);
    written += done;
    return NULL;
}

// The sum of the records that are no clock, memory, module or thread records; checks every block.
static uint64_t read_events(const char *name, unsigned *ret_unsealed) {
    static unsigned char data[64 << 20];
    int fd = open(name, O_RDONLY);
    if (fd < 0) TEST_FAIL("%s: %s", name, strerror(errno));
    ssize_t n = read(fd, data, sizeof data);
    close(fd);
    uint64_t found = 0;
    *ret_unsealed = 0;
    for (ssize_t at = 0; at < n;) {
        qy_trace_block_t b;
        memcpy(&b, data + at, sizeof b);
        if (!b.magic) {
            at += QY_TRACE_GRAIN;
            continue;
        }
        CHECK_EQ(b.magic, QY_TRACE_MAGIC);
        const unsigned char *p = data + at + sizeof b, *end = p + b.used;
        if (b.flags) CHECK_EQ(b.sum, qy_trace_sum(p, b.used));
        else ++*ret_unsealed;
        unsigned records = 0;
        while (b.kind == QY_TRACE_EVENTS && p < end) {
            unsigned op = *p & 15, fields = op == QY_OP_ALLOC || op == QY_OP_MEMORY || op == QY_OP_LOST ? 3 : 2;
            if (op == QY_OP_THREAD) fields = *p >> 4 == 0 ? 3 : *p >> 4 == 1 ? 1
                                                                             : 2;
            found += op == QY_OP_ALLOC || op == QY_OP_FREE;
            bool text = op == QY_OP_MODULE || op == QY_OP_EXTENSION || (op == QY_OP_THREAD && *p >> 4 == 2);
            if (op == QY_OP_MODULE) fields = 3;
            CHECK(op == QY_OP_ALLOC || op == QY_OP_FREE || op == QY_OP_CLOCK || op == QY_OP_MEMORY ||
                  op == QY_OP_LOST || op == QY_OP_THREAD || op == QY_OP_MODULE || op == QY_OP_PROCESS ||
                  op == QY_OP_EXTENSION);
            if (op == QY_OP_PROCESS) fields = 2;
            p++;
            uint64_t value = 0;
            for (; fields; fields--) {
                value = 0;
                for (unsigned shift = 0; p < end; shift += 7) {
                    value |= (uint64_t)(*p & 0x7f) << shift;
                    if (*p++ < 0x80) break;
                }
            }
            if (text) p += value;
            records++;
        }
        CHECK(p <= end);
        if (b.kind == QY_TRACE_EVENTS && b.flags) CHECK_EQ(records, b.events);
        at += b.span;
    }
    return found;
}

static const char *name_of(int pid) {
    static char name[96];
    snprintf(name, sizeof name, "%s.%d", pattern, pid);
    return name;
}

// Each test in a process of its own: a recording is begun once.
static void prepare(const char *more) {
    char value[160];
    snprintf(pattern, sizeof pattern, "/tmp/trace_threads.%d", (int)getpid());
    snprintf(value, sizeof value, "file:%s.%%p%s", pattern, more);
    setenv("QUARRY_RECORD", value, 1);
    unlink(name_of(getpid()));  // of a process that had this number, and failed
}

static void many_streams(void *arg) {
    (void)arg;
    prepare("");
    uint64_t count = 30000;
    unsigned unsealed;
    event(16, true);  // programs have one thread when they begin
    CHECK(!qy_record.shared);
    for (int round = 0; round < 5; round++) {
        pthread_t t[8];
        for (int i = 0; i < 8; i++) CHECK_EQ(pthread_create(&t[i], NULL, stream, &count), 0);
        for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    }
    CHECK_EQ(written, 5 * 8 * count);
    CHECK(qy_record.shared);
    stream(&count);
    qy_record_end(0, "exit");
    CHECK_EQ(read_events(name_of(getpid()), &unsealed), written + 1);
    CHECK_EQ(unsealed, 0);
    CHECK(!event(16, true));
    unlink(name_of(getpid()));
}
TEST(streams) { run_apart(many_streams, NULL); }

// What many threads at a time have lies in a few ranges: own.h knows 64.
static void count_range(const void *memory, size_t bytes, void *arg) {
    (void)memory, (void)bytes;
    ++*(unsigned *)arg;
}
static pthread_barrier_t all_write;
static void *write_and_wait(void *unused) {
    CHECK(event(16, true));
    pthread_barrier_wait(&all_write);
    return unused;
}
static void many_at_a_time(void *arg) {
    enum { MANY = 200 };
    unsigned before = 0, after = 0;
    pthread_t t[MANY];
    (void)arg;
    prepare("");
    event(16, true);
    qy_own_each(count_range, &before);
    CHECK_EQ(pthread_barrier_init(&all_write, NULL, MANY), 0);
    for (int i = 0; i < MANY; i++) CHECK_EQ(pthread_create(&t[i], NULL, write_and_wait, NULL), 0);
    for (int i = 0; i < MANY; i++) pthread_join(t[i], NULL);
    pthread_barrier_destroy(&all_write);
    qy_own_each(count_range, &after);
    CHECK_LE(after - before, 3);
    qy_record_end(0, "exit");
    unlink(name_of(getpid()));
}
TEST(streams_at_a_time) { run_apart(many_at_a_time, NULL); }

// A stack that comes again is not walked again, but for the first times.
__attribute__((noinline)) static uint32_t stack_here(void) {
    qy_writer_t *w = qy_record_mine;
    qy_stack_regs_t from = QY_STACK_CALLER();
    CHECK(qy_writer_begin(w));
    uint32_t id = qy_record_stack(w, &from);
    qy_writer_end(w);
    return id;
}

static void known_stacks(void *arg) {
    (void)arg;
    prepare(",stacks:cfi");
    event(16, true);
    qy_stacks_stats_t before, after;
    qy_stacks_get_stats(&before);
    uint32_t id = 0;
    for (int i = 0; i < 1000; i++) {
        uint32_t now = stack_here();
        CHECK(now && (now == id || !i));
        id = now;
    }
    qy_stacks_get_stats(&after);
    CHECK_LT(after.captures - before.captures, 100);
    qy_record_end(0, "exit");
    unlink(name_of(getpid()));
}
TEST(stacks_that_come_again) { run_apart(known_stacks, NULL); }

static bool told_somewhere(void *arg, uint32_t id, uint32_t parent, uintptr_t pc, bool is_return) {
    (void)arg, (void)id, (void)parent, (void)pc, (void)is_return;
    return true;
}

// How often the file has this text.
static unsigned texts_in(const char *name, const char *text) {
    static char data[16 << 20];
    FILE *f = fopen(name, "r");
    CHECK(f);
    size_t bytes = fread(data, 1, sizeof data, f);
    fclose(f);
    unsigned found = 0;
    for (const char *at = data; (at = memmem(at, (size_t)(data + bytes - at), text, strlen(text))); at++) found++;
    return found;
}

// The trace says so once: at the next block, or at the end.
static void more_stacks_than_have_room(void *arg) {
    const uint32_t room = 4096;
    uint64_t after = *(uint64_t *)arg;
    prepare(",stacks:cfi");
    CHECK(qy_stacks_start(QY_STACKS_CFI, room));  // so the recorder does not make a larger one
    event(16, true);
    CHECK(stack_here());
    while (!qy_stacks_full()) {
        uint32_t id, spare = 0;
        CHECK_EQ(qy_tree_add(0, 0x1000 + 16 * qy_stacks_ids(), &spare, told_somewhere, NULL, &id), QY_ADD_NEW);
    }
    CHECK_EQ(qy_stacks_ids(), room);
    stream(&after);
    qy_record_end(0, "exit");
    CHECK_EQ(texts_in(name_of(getpid()), "no room for more call stacks"), 1);
    unlink(name_of(getpid()));
}
TEST(a_full_tree_of_stacks_is_told) {
    for (uint64_t after = 1; after < 100000; after *= 300) {
        captured_t c = capture(more_stacks_than_have_room, &after);
        if (c.exit_code != 0) TEST_FAIL("the child ended with %d: %.400s", c.exit_code, c.text);
        CHECK(strstr(c.text, "no room for more call stacks"));
    }
}

#define BUSY 300  // events of a thread that is well under way
// Threads that are not seen outside of a record for so long, since they get no processor, are left as they are.
#define SETTLES_NS UINT64_C(1000000000)
static _Atomic bool stopped;
static _Atomic int busy;
static void *endless(void *arg) {
    (void)arg;
    uint64_t done = 0;
    while (event(0x10000 + done * 16, done & 1))
        if (++done == BUSY) busy++;
    written += done;
    // Not without a pause: a thread that is nearly always in the middle of an attempt, and seldom gets a processor, is
    // waited for in vain (qy_threads_settle).
    while (!stopped) {
        event(16, true);
        usleep(1000);
    }
    return NULL;
}

// What was recorded before the end is in the file, what came after is not, and nothing is written to memory that is
// gone.
static void ends_while_they_run(void *arg) {
    prepare("");
    pthread_t t[4];
    unsigned unsealed;
    event(16, true);
    for (int i = 0; i < 4; i++) CHECK_EQ(pthread_create(&t[i], NULL, endless, NULL), 0);
    while (busy < 4) usleep(100);
    usleep(*(unsigned *)arg);
    uint64_t before = qy_os_now_ns();
    qy_record_end(0, "exit");
    bool in_time = qy_os_now_ns() - before < SETTLES_NS;
    stopped = true;
    for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
    // What was begun before it, and found no room after, is counted.
    uint64_t found = read_events(name_of(getpid()), &unsealed);
    CHECK_LE(found, written + 1);
    CHECK_GE(found + qy_record.lost, written + 1);
    CHECK_LE(qy_record.lost, 8);
    if (in_time) CHECK_EQ(unsealed, 0);
    CHECK_GE(written, 4 * BUSY);
    unlink(name_of(getpid()));
}
TEST(end_while_threads_run) {
    uint64_t state = test_seed;
    for (int i = 0; i < 10; i++) {
        unsigned more = (unsigned)(test_random(&state) % 30000);
        run_apart(ends_while_they_run, &more);
    }
}

// A thread that ends makes its writer idle, and that may be another thread's at once: it must be done with it by then.
// With the lock held here it stops in front of that.
static _Atomic(qy_writer_t *) leaving;
static void *leave(void *arg) {
    event(16, true);
    qy_writer_t *w = qy_record_mine;
    CHECK(qy_writer_begin(w));
    qy_writer_seal(w);
    w->without = 1;  // without a block, and without asking for one, it needs the lock for nothing else
    qy_writer_end(w);
    leaving = w;
    while (!*(_Atomic bool *)arg) usleep(100);
    return NULL;
}

static void ends_with_the_lock_held(void *arg) {
    (void)arg;
    prepare("");
    _Atomic bool go = false;
    pthread_t t;
    event(16, true);
    CHECK_EQ(pthread_create(&t, NULL, leave, (void *)&go), 0);
    while (!leaving) usleep(100);
    qy_lock_take(&qy_record.lock);
    go = true;
    while ((qy_record.lock.state & QY_LOCK_KIND) != QY_LOCK_WAITED) usleep(100);
    CHECK(leaving->thread_id != 0);
    CHECK_EQ(leaving->attention, 0);
    qy_lock_drop(&qy_record.lock);
    pthread_join(t, NULL);
    CHECK(qy_record.idle == leaving);
    qy_record_end(0, "exit");
    unlink(name_of(getpid()));
}
TEST(an_idle_writer_is_nobodys) { run_apart(ends_with_the_lock_held, NULL); }

// A signal handler may interrupt whoever has the lock, and what it allocates must not wait for it. It is not recorded.
static void *begin_with_the_lock(void *arg) {
    (void)arg;
    qy_lock_take(&qy_record.lock);
    CHECK(!event(32, true));
    qy_lock_drop(&qy_record.lock);
    CHECK(event(48, true));
    return NULL;
}

static void interrupted(void *arg) {
    (void)arg;
    prepare("");
    unsigned unsealed;
    pthread_t t;
    alarm(TEST_PATIENCE);
    event(16, true);
    CHECK_EQ(pthread_create(&t, NULL, begin_with_the_lock, NULL), 0);
    pthread_join(t, NULL);
    CHECK_EQ(qy_record.lost, 1);
    // The block is full.
    qy_writer_t *w = qy_record_mine;
    uint64_t count = 2;
    while (w->at <= w->limit) count += event(16, true);
    qy_lock_take(&qy_record.lock);
    for (int i = 0; i < 10; i++) event(16, true);
    qy_lock_drop(&qy_record.lock);
    CHECK_EQ(qy_record.lost, 11);
    CHECK(event(16, true));
    qy_record_end(0, "exit");
    CHECK_EQ(read_events(name_of(getpid()), &unsealed), count + 1);
    unlink(name_of(getpid()));
}
TEST(a_handler_interrupts_who_has_the_lock) { run_apart(interrupted, NULL); }

// A child that is made by the bare system call, and has its parent's number, in a namespace of its own. The recording
// is not its to end.
static void same_number(void *arg) {
    (void)arg;
    prepare("");
    unsigned unsealed;
    int status;
    CHECK(event(16, true));
    long pid = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        qy_record.pid = getpid();
        qy_record_end(0, "exit");
        syscall(SYS_exit_group, 0);
    }
    CHECK_EQ(waitpid((pid_t)pid, &status, 0), pid);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(qy_record.file.end->magic == 0);
    CHECK(event(32, true));
    qy_record_end(0, "exit");
    CHECK_EQ(read_events(name_of(getpid()), &unsealed), 2);
    CHECK_EQ(unsealed, 0);
    unlink(name_of(getpid()));
}
TEST(a_child_with_its_parents_number) { run_apart(same_number, NULL); }

static void forks(void *arg) {
    (void)arg;
    prepare(",follow:on");
    uint64_t count = 20000;
    pthread_t t[2];
    unsigned unsealed;
    event(16, true);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&t[i], NULL, stream, &count), 0);
    for (int i = 0; i < 10; i++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) {
            unlink(name_of(getpid()));
            for (int k = 0; k < 100; k++) event(0x1000 + (uintptr_t)k * 16, true);
            qy_record_end(0, "exit");
            bool right = read_events(name_of(getpid()), &unsealed) == 100 && unsealed == 0;
            // ThreadSanitizer would complain that the parent's threads are not joined here
            syscall(SYS_exit_group, right ? 0 : 1);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        unlink(name_of(pid));
    }
    for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
    qy_record_end(0, "exit");
    CHECK_EQ(read_events(name_of(getpid()), &unsealed), 2 * count + 1);
    CHECK_EQ(unsealed, 0);
    unlink(name_of(getpid()));
}
TEST(children_have_files_of_their_own) { run_apart(forks, NULL); }

// The start fails at every call: it is said once, and nothing is recorded, or it is.
static void start_fails(void *arg) {
    prepare("");
    quarry_os_fault(*(uint64_t *)arg, 0, UINT32_MAX & ~(1u << QY_OS_WRITE));
    bool recorded = event(16, true);
    bool hit = quarry_os_fault_hits() > 0;
    quarry_os_fault(0, 0, 0);
    for (int i = 0; i < 1000; i++) recorded |= event(16, i & 1);  // what was refused for the moment is had later
    if (recorded) qy_record_end(0, "exit");
    unlink(name_of(getpid()));
    _exit(hit ? recorded ? 10 : 11 : 12);
}
TEST(start_with_a_kernel_that_refuses) {
    int without = 0, with = 0;
    for (uint64_t n = 1; n < 200; n++) {
        captured_t c = capture(start_fails, &n);
        CHECK_EQ(c.exit_signal, 0);
        if (c.exit_code == 12) break;
        CHECK(c.exit_code == 10 || c.exit_code == 11);
        without += c.exit_code == 11;
        with += c.exit_code == 10;
        if (c.exit_code == 11 && !strstr(c.text, "nothing is recorded") && !strstr(c.text, "recording stopped"))
            TEST_FAIL("call %d: %s", (int)n, c.text);
    }
    CHECK_GE(without, 3);
    CHECK_GE(with, 1);
}

TEST_MAIN()
