// SPDX-License-Identifier: MIT
// A sandbox that denies system calls after the start: each alone, many together, and all but the few
// that a heap cannot do without. Requests may fail with ENOMEM where memory itself is denied;
// everything else must go on.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "captured.h"
#include "stress/shadow.h"

enum { SLOTS = 300 };
static shadow_t slot[SLOTS];

// For all threads. The purge thread of a privileged process still has a filter of its own while it lives,
// which the kernel does not replace: wait until it has ended.
static int filter_all(const struct sock_fprog *program) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    for (int i = 0; i < TEST_PATIENCE * 100; i++) {
        long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program);
        if (r <= 0) return r == 0;
        usleep(10000);
    }
    TEST_FAIL("a thread keeps its own filter");
}

// Denies the calls of a list, which ends with -1, with this error; false: no seccomp here.
static int deny(const int *calls, int error) {
    struct sock_filter code[64];
    unsigned n = 0, count = 0;
    while (calls[count] >= 0) count++;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        code[n] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], (unsigned char)(count - i), 0);
        n++;
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    struct sock_fprog program = {(unsigned short)n, code};
    return filter_all(&program);
}

// A failed request is allowed only where memory is denied.
static int may_fail;
static void make(shadow_t *s, uint64_t *random) {
    size_t n = shadow_size(random);
    errno = 77;
    void *p = test_random(random) % 2 ? m.malloc(n) : m.calloc(1, n);
    if (p) {
        shadow_set(s, p, n, shadow_least(n));
        return;
    }
    if (errno != ENOMEM || !may_fail) TEST_FAIL("%zu bytes: NULL, errno %d", n, errno);
}
static void work(int ops) {
    uint64_t random = test_seed;
    for (int i = 0; i < ops; i++) {
        shadow_t *s = &slot[test_random(&random) % SLOTS];
        if (s->p && test_random(&random) % 3 == 0) {
            size_t n = shadow_size(&random) + 1;
            shadow_t old = *s;
            errno = 77;
            unsigned char *p = m.realloc(s->p, n);
            if (!p) {
                if (errno != ENOMEM || !may_fail) TEST_FAIL("realloc to %zu bytes: errno %d", n, errno);
                shadow_check(s, s->n);
                continue;
            }
            for (size_t j = 0; j < old.n && j < n; j = pattern_next(j, old.n)) CHECK_EQ(p[j], pattern_at(old.key, j));
            shadow_set(s, p, n, shadow_least(n));
        } else if (s->p) {
            shadow_check(s, s->n);
            errno = 77;
            m.free(s->p);
            CHECK_EQ(errno, 77);
            s->p = NULL;
        } else {
            make(s, &random);
        }
        if (i % 1000 == 999) m.trim(0);
    }
}
static void clear(void) {
    for (int i = 0; i < SLOTS; i++) {
        if (slot[i].p) shadow_check(&slot[i], slot[i].n);
        m.free(slot[i].p);
        slot[i].p = NULL;
    }
}

typedef struct sandbox {
    const char *name;
    int calls[16];
    int error;
    int may_fail;
    int threads;  // may threads be made?
} sandbox_t;

static void *in_thread(void *unused) {
    (void)unused;
    for (int i = 0; i < 1000; i++) {
        void *p = m.malloc((size_t)1 << i % 21);
        CHECK(p || may_fail);
        m.free(p);
    }
    return NULL;
}

static void inside(void *arg) {
    const sandbox_t *box = arg;
    if (box->threads >= 0) work(2000);  // the heap is in use already; else it starts inside
    if (!deny(box->calls, box->error)) _exit(77);
    may_fail = box->may_fail;
    work(6000);
    usleep(50000);  // QUARRY_CONF=purge_delay:10: the purge runs inside, too
    work(6000);
    if (box->threads > 0) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, in_thread, NULL), 0);
        pthread_join(thread, NULL);
    }
    clear();
}

static void in_all(const sandbox_t *boxes, size_t count) {
    static const int errors[] = {EPERM, ENOSYS, ENOMEM, EINVAL};
    for (size_t i = 0; i < count; i++) {
        for (int e = 0; e < 4; e++) {
            sandbox_t box = boxes[i];
            if (box.error && e) continue;
            if (!box.error) box.error = errors[e];
            captured_t c = capture(inside, &box);
            if (c.exit_code == 77) TEST_SKIP("needs seccomp");
            if (c.exit_code)
                TEST_FAIL("without %s (error %d): exit %d, signal %d: %.300s", box.name, box.error, c.exit_code,
                    c.exit_signal, c.text);
        }
    }
}

TEST(without_helpers) {
    static const sandbox_t boxes[] = {
        {"madvise", {SYS_madvise, -1}, 0, 0, 1},
        {"mremap", {SYS_mremap, -1}, 0, 0, 1},
        {"prctl", {SYS_prctl, -1}, 0, 0, 1},
        {"getrandom", {SYS_getrandom, -1}, 0, 0, 1},
        {"sched_getaffinity", {SYS_sched_getaffinity, -1}, 0, 0, 1},
        {"membarrier", {SYS_membarrier, -1}, 0, 0, 1},
        {"clone", {SYS_clone, SYS_clone3, -1}, 0, 0, 0},
        {"files", {SYS_openat, SYS_read, SYS_close, SYS_readlinkat, -1}, 0, 0, 0},
        {"clocks", {SYS_clock_gettime, SYS_gettid, SYS_getpid, SYS_sched_yield, -1}, 0, 0, 1},
        {"all of these",
            {SYS_madvise, SYS_mremap, SYS_prctl, SYS_getrandom, SYS_sched_getaffinity, SYS_membarrier, SYS_clone,
                SYS_clone3, SYS_openat, SYS_read, SYS_clock_gettime, SYS_sched_yield, -1},
            0, 0, 0},
        {"munmap", {SYS_munmap, -1}, 0, 1, 0},
    };
    in_all(boxes, sizeof boxes / sizeof *boxes);
}

// What malloc gets from then on is what it has; all of it still works.
TEST(without_memory) {
    static const sandbox_t boxes[] = {
        {"mmap", {SYS_mmap, -1}, ENOMEM, 1, 0},
        {"mprotect", {SYS_mprotect, -1}, ENOMEM, 1, 0},
        {"mmap, mprotect and mremap", {SYS_mmap, SYS_mprotect, SYS_mremap, SYS_brk, -1}, ENOMEM, 1, 0},
        {"mmap (EPERM)", {SYS_mmap, -1}, EPERM, 1, 0},
        {"any memory call", {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise, SYS_brk, -1}, EPERM, 1, 0},
    };
    in_all(boxes, sizeof boxes / sizeof *boxes);
}

// Both threads want the page layer's lock all the time: who must wait for it makes no other calls either.
static _Atomic int rivalry;
static void rival(void) {
    for (int i = 0; i < 20000; i++) m.free(opaque(m.malloc(100000)));
}
static void *rival_there(void *unused) {
    (void)unused;
    m.free(opaque(m.malloc(100)));
    while (rivalry != 1) {}
    rival();
    rivalry = 2;
    for (;;) __asm__ volatile("");  // to end is a call
    return NULL;
}

// Only these are allowed after the start; any other ends the process. What a strict sandbox permits
// for malloc is a promise of ours.
static void only_the_promised(void *worked) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, rival_there, NULL), 0);
    for (int i = 0; i < 5; i++) {  // the start: helper threads run
        if (worked) work(2000);
        for (int k = 0; !worked && k < 100; k++) shadow_set(&slot[k], m.malloc(k % 2 ? 100000 : 100), 100, 16);
        if (!worked) clear();
        usleep(30000);
    }
    static const int allowed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
        SYS_futex, SYS_exit_group, SYS_exit, SYS_rt_sigreturn};
    enum { COUNT = sizeof allowed / sizeof *allowed };
    struct sock_filter code[COUNT + 3] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
    for (unsigned i = 0; i < COUNT; i++)
        code[1 + i] = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], (unsigned char)(COUNT - i), 0);
    code[COUNT + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[COUNT + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {COUNT + 3, code};
    if (!filter_all(&program)) _exit(77);
    rivalry = 1;
    rival();
    while (rivalry != 2) {}
    if (worked) work(20000);
    clear();
    for (int i = 0; i < 300; i++) shadow_set(&slot[i], m.malloc(100000), 100000, 16);
    clear();
    // Runs through chunks, whose pages are moved.
    for (int i = 0; i < 10; i++) shadow_set(&slot[i], m.malloc((size_t)9 << 20), (size_t)9 << 20, 16);
    for (int i = 0; i < 10; i += 2) m.free(slot[i].p);
    for (int i = 0; i < 10; i += 2) shadow_set(&slot[i], m.malloc((size_t)13 << 20), (size_t)13 << 20, 16);
    clear();
    m.trim(0);
}
static void with_the_promised(void *worked) {
    captured_t c = capture(only_the_promised, worked);
    if (c.exit_code == 77) TEST_SKIP("needs seccomp");
    if (c.exit_code) TEST_FAIL("exit %d, signal %d (31 is the filter): %.300s", c.exit_code, c.exit_signal, c.text);
}
TEST(nothing_but_the_promised_calls) {
    static int yes = 1;
    with_the_promised(&yes);
}
// Also where nothing larger than a chunk was asked for before.
TEST(nothing_but_the_promised_calls_ever) { with_the_promised(NULL); }

// With QY_KERNEL_WITH_NAMES the program runs on a kernel that names mappings when it is asked to, or seems so: not each
// test machine's does.
int main(int argc, char **argv) {
    const char *wanted = getenv("QY_KERNEL_WITH_NAMES");
    if (wanted && !strcmp(wanted, "1")) {
        struct sock_filter code[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x53564d41, 0, 1),  // PR_SET_VMA
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof code / sizeof *code, code};
        if (!filter_all(&program)) return 77;
        setenv("QY_KERNEL_WITH_NAMES", "now", 1);
        execv("/proc/self/exe", argv);
        return 1;
    }
    return test_main(argc, argv);
}
