// SPDX-License-Identifier: MIT
// program_life.c: what a process does besides allocating: threads, children, other programs, modules, odd stacks, and
// ends of all kinds; test_life.py runs them by name.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PATIENCE = 250 };  // seconds; this only ends a hang

static const char *argument;
static volatile char *v;

__attribute__((noinline)) static void twice(void *p) {
    free(p);
    free(p);
}
__attribute__((noinline)) static void fault(void) { twice(malloc(33)); }

static void *in_thread(void *unused) {
    fault();
    return unused;
}
static void thread(void) {
    pthread_t t;
    void *p = malloc(50);
    if (pthread_create(&t, NULL, in_thread, NULL) || pthread_join(t, NULL)) _exit(9);
    free(p);
}

// Each thread frees what the one before it allocated; no error.
enum { THREADS = 8,
    ROUNDS = 3000 };
static _Atomic(void *) handed[THREADS];
static void *worker(void *arg) {
    uintptr_t me = (uintptr_t)arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        size_t n = (i * 37 + me * 11) % 700 + (i % 97 == 0 ? 70000 : 0);
        char *p = malloc(n + 1);
        memset(p, (int)me, n + 1);
        p = realloc(p, n + 20);
        free(atomic_exchange(&handed[(me + i) % THREADS], p));
    }
    return NULL;
}
static void threads(void) {
    pthread_t t[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&t[i], NULL, worker, (void *)i)) _exit(9);
    for (unsigned i = 0; i < THREADS; i++) pthread_join(t[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) free(handed[i]);
}

// ---- a thousand threads, one after the other: what each had for its stacks serves the next one --------------------

static size_t address_space(void) {
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu", &pages) != 1) _exit(9);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}
static void thousand_threads(void *(*run)(void *block)) {
    size_t before = 0;
    for (int i = 0; i < 1100; i++) {
        pthread_t t;
        if (i == 100) before = address_space();
        if (pthread_create(&t, NULL, run, malloc(10)) || pthread_join(t, NULL)) _exit(9);
    }
    if (address_space() > before + ((size_t)64 << 20)) _exit(8);
}

static void *free_it(void *block) {
    free(block);
    return NULL;
}
static void threads_free_only(void) { thousand_threads(free_it); }

// The C library has a table for a late key, which it frees when all destructors have been called.
static pthread_key_t late;
static void *keep_it(void *block) {
    if (pthread_setspecific(late, block)) _exit(9);
    return NULL;
}
static void threads_free_late(void) {
    for (int i = 0; i < 40; i++)
        if (pthread_key_create(&late, free)) _exit(9);
    thousand_threads(keep_it);
}

// ---- more call stacks than there is room for ----------------------------------------------------------------------

enum { DEEP = 19 };
// Two places to call from, which the compiler does not make one.
__attribute__((noinline)) static void branch(unsigned path, int depth) {
    if (!depth) {
        free(malloc(10));
    } else if (path >> (depth - 1) & 1) {
        __asm__ volatile("/* one */");
        branch(path, depth - 1);
        __asm__ volatile("/* one */");
    } else {
        __asm__ volatile("/* zero */");
        branch(path, depth - 1);
        __asm__ volatile("/* zero */");
    }
}
static void many_stacks(void) {
    for (unsigned path = 0; path < 1u << DEEP; path++) branch(path, DEEP);
}

static void wait_for(pid_t child, int status) {
    int s;
    if (child < 0 || waitpid(child, &s, 0) != child || !WIFEXITED(s) || WEXITSTATUS(s) != status) _exit(9);
}
static void forks(void) {
    void *p = malloc(40);
    pid_t child = fork();
    if (!child) {
        twice(p);
        exit(5);
    }
    wait_for(child, 5);
    fault();
    free(p);
}
static void forks_clean(void) {
    pid_t child = fork();
    if (!child) {
        free(malloc(10));
        exit(5);
    }
    wait_for(child, 5);
}
// The process in between has nothing to say.
static void forks_twice(void) {
    pid_t child = fork();
    if (!child) {
        child = fork();
        if (!child) {
            fault();
            exit(5);
        }
        wait_for(child, 5);
        exit(5);
    }
    wait_for(child, 5);
}
static void vforks(void) {
    pid_t child = vfork();
    if (!child) _exit(5);
    wait_for(child, 5);
    child = vfork();
    if (!child) {
        execl("/bin/true", "true", NULL);
        _exit(6);
    }
    wait_for(child, 0);
    fault();
}
static void execs(void) {
    fault();
    execl("/nowhere/at/all", "all", NULL);
    fault();
    execl("/proc/self/exe", "again", "exits", argument, NULL);
    _exit(9);
}
static void exits(void) {
    fault();
    exit(7);
}
static void exits_now(void) {
    v = malloc(20);
    v[20] = 1;
    _exit(7);
}
// What was overwritten is found before the other program runs, and once if it cannot be run.
static void execs_overwritten(void) {
    v = malloc(20);
    v[20] = 1;
    execl("/nowhere/at/all", "all", NULL);
    v = malloc(21);
    v[21] = 1;
    execl("/proc/self/exe", "again", "exits", argument, NULL);
    _exit(9);
}
static void on_quick_exit(void) { fault(); }
static void exits_quickly(void) {
    at_quick_exit(on_quick_exit);
    quick_exit(7);
}
static void at_end(void) { fault(); }
static void handler(void) { atexit(at_end); }

// As at a time limit: within malloc, free, or what they call.
static void end_now(int number) {
    (void)number;
    _exit(7);
}
static void exits_in_handler(void) {
    const struct itimerval once = {.it_value = {.tv_usec = 20000}};
    signal(SIGALRM, end_now);
    if (setitimer(ITIMER_REAL, &once, NULL)) _exit(9);
    for (size_t i = 0;; i++) free(malloc(i % 300));
}

// The argument is a module with allocate(), which is gone when its block is freed twice.
static void unloads(void) {
    void *module = dlopen(argument, RTLD_NOW);
    void *(*allocate)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(module, "module_allocate");
    void *p = allocate(44);
    if (dlclose(module)) _exit(9);
    twice(p);
}

// A block of operator new here is given to free in a module.
static void across(void) {
    void *module = dlopen(argument, RTLD_NOW);
    void (*release)(void *) = (void (*)(void *))(uintptr_t)dlsym(module, "module_free");
    void *(*new)(size_t) = (void *(*)(size_t))(uintptr_t)dlsym(RTLD_DEFAULT, "_Znwm");
    release(new (24));
    release(new (25));
}

static jmp_buf back;
static void jumps_from(int depth);
// Through a pointer, so that the compiler does not ask whether it ever ends.
static void (*volatile jumps_on)(int depth) = jumps_from;
static void jumps_from(int depth) {
    char here[200];
    memset(here, depth, sizeof here);
    __asm__ volatile(""
                     :
                     : "r"(here)
                     : "memory");
    free(malloc(10));
    if (depth) jumps_on(depth - 1);
    else longjmp(back, 1);
}
static void jumps(void) {
    for (volatile int i = 0; i < 100; i++)
        if (!setjmp(back)) jumps_from(i);
    fault();
}

static ucontext_t main_context, other_context;
static void on_other_stack(void) {
    free(malloc(12));
    fault();
    swapcontext(&other_context, &main_context);
}
static void contexts(void) {
    static char stack[65536];
    getcontext(&other_context);
    other_context.uc_stack.ss_sp = stack;
    other_context.uc_stack.ss_size = sizeof stack;
    other_context.uc_link = &main_context;
    makecontext(&other_context, on_other_stack, 0);
    swapcontext(&main_context, &other_context);
    free(malloc(13));
}

static void on_signal(int number) {
    (void)number;
    fault();
}
static void signals(void) {
    signal(SIGUSR1, on_signal);
    raise(SIGUSR1);
}

// As in a container of little memory.
static void limited(void) {
    struct rlimit limit = {(rlim_t)300 << 20, (rlim_t)300 << 20};
    if (setrlimit(RLIMIT_AS, &limit)) _exit(9);
    void *p[200];
    unsigned n = 0;
    while (n < 200 && (p[n] = malloc((size_t)4 << 20))) n++;
    if (n == 200 || n < 10) _exit(8);
    while (n) free(p[--n]);
    fault();
}

// The program goes on with these system calls; for each other the kernel does `otherwise`.
static void allow_only(const int *allowed, unsigned count, unsigned otherwise) {
    struct sock_filter code[100];
    unsigned short n = 0;
    if (2 * count + 2 > sizeof code / sizeof *code) _exit(9);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise);
    struct sock_fprog program = {n, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) _exit(77);
    if (argument && strcmp(argument, "syscall") == 0) {  // as libseccomp does
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == 0) _exit(8);
        if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) _exit(77);
    } else if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) {
        _exit(77);
    }
}

// Only what malloc of the C library itself calls, and what the rest of this program does.
static void sandboxed(void) {
    static const int allowed[] = {SYS_mmap, SYS_munmap, SYS_mprotect, SYS_brk, SYS_mremap, SYS_madvise, SYS_futex,
        SYS_write, SYS_exit_group, SYS_exit, SYS_rt_sigprocmask, SYS_getpid, SYS_gettid, SYS_fstat, SYS_newfstatat,
        SYS_getrandom, SYS_clock_gettime, SYS_read, SYS_close, SYS_openat, SYS_tgkill, SYS_rt_sigaction, SYS_fcntl,
        SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rseq, SYS_sched_getaffinity, SYS_prctl, SYS_seccomp};
    allow_only(allowed, sizeof allowed / sizeof *allowed, SECCOMP_RET_ERRNO | EPERM);
    for (size_t i = 1; i < 3000; i++) free(realloc(malloc(i), 2 * i));
    free(malloc((size_t)3 << 20));
    thread();
}

// What docs/check.md asks of a program whose filter kills. The stacks of its errors are walked on a stack that is not
// the thread's own.
static void strict(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
        SYS_brk, SYS_futex, SYS_exit_group, SYS_exit, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_getpid,
        SYS_clock_gettime};
    allow_only(allowed, sizeof allowed / sizeof *allowed, SECCOMP_RET_KILL_PROCESS);
    for (size_t i = 1; i < 3000; i++) free(realloc(malloc(i), 2 * i));
    for (size_t i = 1; i < 40; i++) free(malloc(i << 20));
    contexts();
}

// The same, and children.
static void strict_forks(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_mremap, SYS_madvise,
        SYS_brk, SYS_futex, SYS_exit_group, SYS_exit, SYS_rt_sigreturn, SYS_rt_sigprocmask, SYS_getpid,
        SYS_clock_gettime, SYS_clone, SYS_set_robust_list, SYS_wait4, SYS_getppid};
    allow_only(allowed, sizeof allowed / sizeof *allowed, SECCOMP_RET_KILL_PROCESS);
    forks();
}

// A program that closes all descriptors that it finds.
static void closes(void) {
    fault();
    for (int fd = 3; fd < 2000; fd++) close(fd);
    fault();
}

// A program that lists its descriptors.
static void lists(void) {
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) _exit(77);
    for (struct dirent *e; (e = readdir(folder));) {
        int fd = atoi(e->d_name);
        if (*e->d_name != '.' && fd > 2 && fd != dirfd(folder)) _exit(3);
    }
    closedir(folder);
}

// Its child has no descriptor of the parent's file, which is open since the error.
static void forks_and_lists(void) {
    fault();
    pid_t child = fork();
    if (!child) {
        lists();
        exit(5);
    }
    wait_for(child, 5);
}

// Programs in which the path of the reports leads nowhere from some time on.
static void opens_nothing(void) {
    const struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {sizeof code / sizeof *code, (struct sock_filter *)code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) _exit(77);
    fault();
}
// As a filter of tor does: the mask of signals may be set as a whole.
static void blocks_nothing(void) {
    const struct sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIG_BLOCK, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    const struct sock_fprog program = {sizeof code / sizeof *code, (struct sock_filter *)code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)) _exit(77);
    fault();
}
static void changes_root(void) {
    if (chroot("/proc") || chdir("/")) _exit(77);
    fault();
}
static void drops_rights(void) {
    if (setgid(65534) || setuid(65534)) _exit(77);
    fault();
}
static void has_no_number(void) {
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_NOFILE, &none)) _exit(77);
    fault();
}

// It has all descriptors that it was started with the right to, and can open nothing more.
static void open_all(void) {
    while (open("/dev/null", O_RDONLY) >= 0) {}
    if (errno != EMFILE) _exit(9);
}
static void opens_all(void) {
    open_all();
    fault();
}
static void opens_all_and_forks(void) {
    open_all();
    pid_t child = fork();
    if (!child) {
        fault();
        exit(5);
    }
    wait_for(child, 5);
}

static void writes_no_files(void) {
    const struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_FSIZE, &none)) _exit(77);
    fault();
}

// A line of its report is cut, and later ones have room.
static void writes_less(void) {
    struct rlimit was, less;
    if (getrlimit(RLIMIT_FSIZE, &was)) _exit(9);
    less = was;
    less.rlim_cur = 1000;
    if (setrlimit(RLIMIT_FSIZE, &less)) _exit(77);
    fault();
    if (setrlimit(RLIMIT_FSIZE, &was)) _exit(77);
}

static int used_late(void) {
    volatile char *p = malloc(16);
    free((void *)p);
    return p[0] & 0;
}
static void on_signal_late(int number) {
    (void)number;
    used_late();
}
static void *in_thread_late(void *unused) {
    used_late();
    return unused;
}
// Names that the header calls deprecated.
int hold_signal(int number) __asm__("sighold");
int release_signal(int number) __asm__("sigrelse");

// All signals are blocked where freed blocks are used: by the thread, in a child, in a handler, and from a thread's
// begin.
static void blocks_signals(void) {
    sigset_t all, now;
    sigfillset(&all);
    sigemptyset(&now);
    struct sigaction action = {.sa_handler = on_signal_late, .sa_mask = all};
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    pthread_t t;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) || pthread_attr_setsigmask_np(&attributes, &all)) _exit(9);
    if (pthread_create(&t, &attributes, in_thread_late, NULL) || pthread_join(t, NULL)) _exit(9);
    if (hold_signal(SIGSEGV)) _exit(9);
    used_late();
    if (pthread_sigmask(SIG_BLOCK, NULL, &now) || sigismember(&now, SIGSEGV) != 1) _exit(8);
    if (release_signal(SIGSEGV) || pthread_sigmask(SIG_BLOCK, NULL, &now) || sigismember(&now, SIGSEGV) != 0) _exit(8);
    if (pthread_sigmask(SIG_BLOCK, &all, NULL)) _exit(9);
    used_late();
    pid_t child = fork();
    if (!child) exit(5 + used_late());
    wait_for(child, 5);
    if (pthread_sigmask(SIG_BLOCK, NULL, &now) || sigismember(&now, SIGSEGV) != 1) _exit(8);
    sigdelset(&all, SIGSEGV);
    if (sigprocmask(SIG_SETMASK, &all, &now) || sigismember(&now, SIGSEGV) != 1) _exit(8);
    if (sigprocmask(SIG_SETMASK, &all, &now) || sigismember(&now, SIGSEGV) != 0) _exit(8);
}

// Threads are within malloc and free when others fork; no error.
static _Atomic int is_over;
static void *busy(void *unused) {
    for (size_t i = 0; !atomic_load(&is_over); i++) {
        char *p = malloc(i % 300 + 1);
        memset(p, 0, i % 300 + 1);
        free(p);
    }
    return unused;
}
static void forks_beside(bool waits_seldom) {
    pthread_t t[2];
    for (unsigned i = 0; i < 2; i++)
        if (pthread_create(&t[i], NULL, busy, NULL)) _exit(9);
    for (unsigned i = 0; i < 30; i++) {
        pid_t child = fork();
        if (!child) {
            free(malloc(50));
            exit(5);
        }
        struct rusage used;
        int s;
        if (child < 0 || wait4(child, &s, 0, &used) != child || !WIFEXITED(s) || WEXITSTATUS(s) != 5) _exit(9);
        if (waits_seldom && used.ru_nvcsw > 500) _exit(8);
    }
    atomic_store(&is_over, 1);
    for (unsigned i = 0; i < 2; i++) pthread_join(t[i], NULL);
}
static void forks_busy(void) { forks_beside(false); }
// A child does not wait for threads that let blocks leave the quarantine in its parent.
static void forks_draining(void) { forks_beside(true); }

// One thread forks while another is at the end of the process, which takes its time for many blocks.
static _Atomic int forked;
static void *fork_on(void *unused) {
    (void)unused;
    for (;;) {
        pid_t child = fork();
        if (!child) {
            fault();
            _exit(5);
        }
        wait_for(child, 5);
        atomic_store(&forked, 1);
    }
}
static void forks_at_end(void) {
    static void **blocks;
    for (int i = 0; i < 300000; i++) {
        void **p = malloc(40);
        *p = blocks;
        blocks = p;
    }
    pthread_t t;
    if (pthread_create(&t, NULL, fork_on, NULL)) _exit(9);
    while (!atomic_load(&forked)) usleep(1000);
}

#ifdef __GLIBC__
// One thread reads from a stream and frees, one has the list of streams and waits for that one, and one forks: so the
// fork must wait for the list before it keeps others from freeing.
static _Atomic int at;
static void stream_fork_begins(void) {
    if (atomic_load(&at) == 1) atomic_store(&at, 2);
}
static ssize_t read_and_free(void *unused, char *text, size_t n) {
    (void)unused, (void)n;
    for (atomic_store(&at, 1); atomic_load(&at) < 2;) usleep(1000);
    usleep(50000);                                        // the fork is under way. If it is not, that is no fault
    for (unsigned i = 0; i < 64; i++) free(malloc(100));  // at each sixteenth it is looked what leaves
    text[0] = '\n';
    return 1;
}
static void *read_line(void *f) {
    char line[8];
    return fgets(line, sizeof line, f) ? NULL : f;
}
static void *flush_all(void *unused) {
    fflush(NULL);
    return unused;
}
static void forks_in_streams(void) {
    pthread_t reads, flushes;
    FILE *f = fopencookie(NULL, "r", (cookie_io_functions_t){.read = read_and_free});
    if (!f || pthread_atfork(stream_fork_begins, NULL, NULL)) _exit(9);
    alarm(PATIENCE);
    if (pthread_create(&reads, NULL, read_line, f)) _exit(9);
    while (atomic_load(&at) < 1) usleep(1000);
    if (pthread_create(&flushes, NULL, flush_all, NULL)) _exit(9);
    usleep(50000);  // likewise
    pid_t child = fork();
    if (!child) exit(5);
    wait_for(child, 5);
    pthread_join(reads, NULL);
    pthread_join(flushes, NULL);
}
#else
static void forks_in_streams(void) { alarm(0); }
#endif

// The child is process 1 of a space of its own.
static void forks_apart(void) {
    if (unshare(CLONE_NEWPID)) _exit(77);
    forks();
}

static const struct {
    const char *name;
    void (*run)(void);
} lives[] = {{"thread", thread}, {"threads", threads},
    {"threads-free-only", threads_free_only},
    {"threads-free-late", threads_free_late},
    {"many-stacks", many_stacks},
    {"forks", forks}, {"forks-clean", forks_clean}, {"forks-twice", forks_twice},
    {"vforks", vforks}, {"execs", execs}, {"execs-overwritten", execs_overwritten},
    {"exits", exits}, {"exits-now", exits_now},
    {"exits-in-handler", exits_in_handler},
    {"exits-quickly", exits_quickly}, {"handler", handler}, {"unloads", unloads}, {"across", across}, {"jumps", jumps},
    {"contexts", contexts}, {"signals", signals}, {"limited", limited}, {"sandboxed", sandboxed}, {"strict", strict},
    {"strict-forks", strict_forks}, {"closes", closes}, {"lists", lists},
    {"forks-and-lists", forks_and_lists},
    {"opens-nothing", opens_nothing}, {"blocks-nothing", blocks_nothing},
    {"changes-root", changes_root}, {"drops-rights", drops_rights}, {"has-no-number", has_no_number},
    {"opens-all", opens_all}, {"opens-all-and-forks", opens_all_and_forks},
    {"writes-no-files", writes_no_files}, {"writes-less", writes_less},
    {"blocks-signals", blocks_signals}, {"forks-busy", forks_busy},
    {"forks-draining", forks_draining}, {"forks-at-end", forks_at_end},
    {"forks-in-streams", forks_in_streams},
    {"forks-apart", forks_apart}};

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    argument = argv[2];
    for (unsigned i = 0; i < sizeof lives / sizeof *lives; i++) {
        if (strcmp(lives[i].name, argv[1]) != 0) continue;
        lives[i].run();
        return 7;
    }
    return 2;
}
