// SPDX-License-Identifier: MIT
// program.c: what test_record.py records: a program that knows how many calls of which kind it makes. The test runs it
// twice, with and without its calls, so that what the C library allocates for itself cancels out.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#include "os/fake.h"
#include "rt/record_pool.h"

// Not in the C library's headers, perhaps not in the library: the recorder has them.
__attribute__((weak)) void free_sized(void *p, size_t n);
__attribute__((weak)) void free_aligned_sized(void *p, size_t align, size_t n);

extern char **environ;
static volatile size_t huge = SIZE_MAX / 2 - 100;
static int rounds, common;  // `common`: only what all allocators agree on

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "program: %s failed, errno %d\n", what, errno);
    abort();
}
#define MUST(expr) must(!!(expr), #expr)

// The compiler shall neither leave a call out nor know what it returns.
static void *kept(void *p) {
    __asm__ volatile(""
                     : "+r"(p)
                     :
                     : "memory");
    return p;
}

// ---- one of each; test_record.py has the same list -----------------------------------------------------------

static void every_call(int round) {
    size_t n = 16 + (size_t)round % 500;
    errno = 77;
    char *p = kept(malloc(n));
    MUST(p && errno == 77);
    memset(p, 1, n);
    free(p);
    p = kept(calloc(n, 3));
    MUST(p && p[0] == 0 && p[3 * n - 1] == 0);
    p = kept(realloc(p, 4 * n));
    MUST(p);
    p = kept(realloc(p, 40000 + n));
    MUST(p);
    MUST(!kept(realloc(p, huge)));
    if (common) free(p);
    else MUST(!kept(realloc(p, 0)));
    p = kept(realloc(NULL, n));
    MUST(p);
    p = kept(reallocarray(p, n, 2));
    MUST(p);
    MUST(!kept(reallocarray(p, huge, 16)) && errno == ENOMEM);
    free(p);
    p = kept(reallocarray(NULL, n, 2));
    if (free_sized) free_sized(p, 2 * n);
    else free(p);
    p = kept(aligned_alloc(64, 64 * n));
    MUST((uintptr_t)p % 64 == 0);
    if (free_aligned_sized) free_aligned_sized(p, 64, 64 * n);
    else free(p);
    void *q = &q;
    MUST(posix_memalign(&q, 256, n) == 0 && (uintptr_t)q % 256 == 0);
    free(kept(q));
    if (!common) MUST(posix_memalign(&q, 3, n) == EINVAL);
    free(kept(memalign(32, n)));
    if (!common) {
        free(kept(valloc(n)));
        free(kept(pvalloc(n)));
    }
    free(kept(NULL));
    errno = 0;
    MUST(!kept(malloc(huge)) && errno == ENOMEM);
    MUST(!kept(calloc(huge, 16)));
    errno = 55;
    free(kept(malloc(0)));
    free(kept(malloc(200000)));  // large: how much of it was touched is recorded
    p = kept(malloc(400000));
    memset(p, 1, 200000);
    free(p);
    MUST(errno == 55);
}

static void *family_thread(void *arg) {
    (void)arg;
    for (int i = 0; i < rounds; i++) every_call(i);
    return NULL;
}

static void in_threads(int threads, void *(*fn)(void *arg)) {
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    for (int i = 0; i < threads; i++) MUST(pthread_create(&t[i], NULL, fn, NULL) == 0);
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    free(t);
}

// ---- threads -----------------------------------------------------------------------------------------------------

static pthread_barrier_t barrier;
static void *crowd_thread(void *arg) {
    (void)arg;
    void *p = kept(malloc(100));
    pthread_barrier_wait(&barrier);
    free(kept(malloc(50)));
    pthread_barrier_wait(&barrier);
    free(p);
    return NULL;
}

static void crowd(int threads) {
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 * 1024);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    pthread_t *t = calloc((size_t)threads, sizeof *t);
    for (int i = 0; i < threads; i++) MUST(pthread_create(&t[i], &small, crowd_thread, NULL) == 0);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
    free(t);
}

// Blocks that one thread allocates and another frees: their order must come out.
#define SLOTS 64
static _Atomic(void *) slots[SLOTS];
static void *exchange_thread(void *arg) {
    uint64_t x = (uintptr_t)&arg | 1;
    for (int i = 0; i < rounds; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        void *p = malloc(1 + x % 2000);
        free(atomic_exchange(&slots[x >> 32 & (SLOTS - 1)], p));
    }
    return NULL;
}

// Destructors that allocate and free, in every round there is.
static pthread_key_t keys[3];
static _Atomic int late_calls;
static void late_destructor(void *arg) {
    uintptr_t left = (uintptr_t)arg;
    late_calls++;
    free(kept(malloc(333)));
    if (left > 1) pthread_setspecific(keys[left % 3], (void *)(left - 1));
}
static void *late_thread(void *arg) {
    (void)arg;
    free(kept(malloc(10)));
    for (int i = 0; i < 3; i++) pthread_setspecific(keys[i], (void *)(uintptr_t)3);
    return NULL;
}
static void *short_thread(void *arg) {
    (void)arg;
    free(kept(malloc(44)));
    return NULL;
}

// A thread that ends without a word: no destructor runs.
static void *vanishing_thread(void *arg) {
    (void)arg;
    free(kept(malloc(45)));
    syscall(SYS_exit, 0);
    return NULL;
}

// Each thread is created by the one before, in turn by pthread_create and thrd_create; each size says which it is.
static int created_c11(void *arg);
static void *created(void *arg) {
    int left = *(int *)arg;
    free(kept(malloc(9000 + (size_t)left)));
    if (left--) {
        pthread_t t;
        thrd_t u;
        if (left % 2) MUST(pthread_create(&t, NULL, created, &left) == 0 && pthread_join(t, NULL) == 0);
        else MUST(thrd_create(&u, created_c11, &left) == thrd_success && thrd_join(u, NULL) == thrd_success);
    }
    return arg;
}
static int created_c11(void *arg) { return created(arg) == arg ? 0 : 1; }

// Creation that fails leaves nothing behind, however often.
static void not_created(void) {
    pthread_t t;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    MUST(pthread_attr_setstacksize(&attr, (size_t)1 << 46) == 0);
    for (int i = 0; i < 1000; i++) MUST(pthread_create(&t, &attr, created, NULL) != 0);
}

// ---- children ------------------------------------------------------------------------------------------------------

static void work(int count, size_t size) {
    for (int i = 0; i < count; i++) free(kept(malloc(size)));
}

static void wait_for(pid_t pid) {
    int status;
    MUST(waitpid(pid, &status, 0) == pid);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void children(char *self) {
    work(rounds, 1001);
    pid_t pid = fork();
    if (pid == 0) {
        work(rounds, 2002);
        pid = fork();
        if (pid == 0) {
            work(rounds, 3003);
            exit(0);
        }
        wait_for(pid);
        exit(0);
    }
    wait_for(pid);
    // A child that no handler knows of: its first event finds it out.
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        work(rounds, 4004);
        _exit(0);
    }
    wait_for(pid);
    pid = vfork();
    if (pid == 0) {
        execl(self, self, "work", "100", "5005", (char *)NULL);
        _exit(1);
    }
    wait_for(pid);
    char *argv[] = {self, "work", "100", "6006", NULL};
    MUST(posix_spawn(&pid, self, NULL, NULL, argv, environ) == 0);
    wait_for(pid);
    work(rounds, 7007);
}

// A child of a process in which threads allocate all the time.
static _Atomic int going = 1;
static void *busy_thread(void *arg) {
    (void)arg;
    for (int i = 1; going; i++) {
        free(kept(malloc(77)));
        if (i % 256 == 0) usleep(300);  // the reader of the test is slow
    }
    return NULL;
}
static void busy_forks(void) {
    pthread_t t[3];
    for (int i = 0; i < 3; i++) MUST(pthread_create(&t[i], NULL, busy_thread, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            work(10, 88);
            _exit(0);
        }
        wait_for(pid);
    }
    going = 0;
    for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
}

// fork() in a signal handler that interrupts malloc, free, or the recorder. (Not async-signal-safe by the letter;
// programs do it.)
static volatile sig_atomic_t forks, signals;
static void on_alarm(int signal) {
    (void)signal;
    signals++;
    pid_t pid = fork();
    if (pid == 0) return;  // goes on where it was interrupted, then leaves
    forks++;
    int status;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) _exit(99);
}
static void signal_forks(void) {
    pid_t parent = getpid();
    signal(SIGUSR1, on_alarm);
    for (int i = 0; i < rounds; i++) {
        if (i % 50 == 0) raise(SIGUSR1);
        work(3, 99);
        if (getpid() != parent) _exit(0);
    }
}

// ---- ends
// ---------------------------------------------------------------------------------------------------------------

int execveat(int fd, const char *path, char *const argv[], char *const envp[], int flags) __attribute__((weak));

static void at_end(void) { free(kept(malloc(501))); }
__attribute__((destructor)) static void destructor(void) { free(kept(malloc(502))); }
__attribute__((constructor)) static void constructor(void) { free(kept(malloc(503))); }

static int end_by(const char *how, char *self) {
    work(rounds, 1001);
    if (!strcmp(how, "exit")) exit(3);
    if (!strcmp(how, "_exit")) _exit(3);
    if (!strcmp(how, "_Exit")) _Exit(3);
    if (!strcmp(how, "exit_group")) syscall(SYS_exit_group, 3);
    if (!strcmp(how, "quick_exit")) quick_exit(3);
    if (!strcmp(how, "abort")) abort();
    if (!strcmp(how, "segv")) raise(SIGSEGV);
    if (!strcmp(how, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(how, "exec")) {
        char *none[] = {NULL};
        MUST(execve("/nonexistent", none, environ) == -1 && errno == ENOENT && execl("/", "x", (char *)NULL) == -1);
        // What cannot be read is the kernel's to refuse.
        char *volatile nowhere = (char *)1;
        MUST(execve(nowhere, none, environ) == -1 && errno == EFAULT);
        MUST(fexecve(open(self, O_RDONLY), (char **)(void *)nowhere, environ) == -1 && errno == EFAULT);
        // An older C library has none, and then that of the recorder is not called.
        MUST(!execveat || execveat(open("/usr", O_RDONLY), "nowhere/x", none, environ, 0) == -1);
        work(rounds, 4004);
        if (execveat) execveat(AT_FDCWD, self, (char *[]){self, "work", "50", "2002", NULL}, environ, 0);
        execl(self, self, "work", "50", "2002", (char *)NULL);
    }
    if (!strcmp(how, "running")) {  // others still allocate
        pthread_t t[3];
        for (int i = 0; i < 3; i++) MUST(pthread_create(&t[i], NULL, busy_thread, NULL) == 0);
        usleep(20000);
        exit(3);
    }
    return 3;
}

static void open_module(const char *path) {
    for (int i = 0; i < rounds; i++) {
        void *module = dlopen(path, RTLD_NOW);
        MUST(module);
        void (*fn)(void) = (void (*)(void))(uintptr_t)dlsym(module, "module_work");
        MUST(fn);
        fn();
        MUST(dlclose(module) == 0);
    }
}

// In a folder that is left again.
static void open_module_from(const char *path, const char *folder) {
    for (int i = 0; i < rounds; i++) {
        MUST(chdir(folder) == 0);
        void *module = dlopen(path, RTLD_NOW);
        MUST(module && chdir("/") == 0);
        ((void (*)(void))(uintptr_t)dlsym(module, "module_work"))();
        MUST(dlclose(module) == 0);
    }
}

// ---- names ----------------------------------------------------------------------------------------------------------

static pthread_barrier_t named;

// 0 and 1 go on for long enough to need another block; 2 names itself and waits; 3 is named by others; 4 ends.
static void *named_thread(void *arg) {
    int number = *(int *)arg;
    free(kept(malloc(46)));
    if (number < 2) {
        prctl(PR_SET_NAME, number ? "busy-1" : "busy-0");
        for (int i = 0; i < 40000; i++) free(kept(malloc(47)));
    } else if (number != 3) pthread_setname_np(pthread_self(), number == 2 ? "idle" : "ends");
    pthread_barrier_wait(&named);
    if (number == 4) return NULL;
    for (;;) pause();
}

static int named_threads(const char *how, char *self) {
    static int numbers[] = {0, 1, 2, 3, 4};
    pthread_t t[5];
    if (!strcmp(how, "rename")) {
        free(kept(malloc(48)));
        pthread_setname_np(pthread_self(), "first");
        pthread_setname_np(pthread_self(), "second");
        pthread_setname_np(pthread_self(), "second");
        prctl(PR_SET_NAME, "main-at-last");
        return 0;
    }
    pthread_barrier_init(&named, NULL, 6);
    for (int i = 0; i < 5; i++) MUST(pthread_create(&t[i], NULL, named_thread, &numbers[i]) == 0);
    MUST(pthread_setname_np(t[3], "is-named") == 0);
    pthread_barrier_wait(&named);
    pthread_join(t[4], NULL);
    rounds = 1;
    end_by(how, self);
    return 0;
}

static void churn(void) {
    static void *table[512];
    uint64_t x = 88172645463325252u;
    for (long i = 0; rounds == 0 || i < rounds; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        void **slot = &table[x >> 20 & 511];
        free(*slot);
        *slot = malloc(x >> 40 & 1023);
    }
}

// Every function by which pools tell what they do, with addresses that are none.
static void pools(void) {
    const quarry_record_pool_t *table = dlsym(RTLD_DEFAULT, QUARRY_RECORD_POOL_TABLE);
    MUST(table && table->bytes >= sizeof *table);
    uint32_t parent = 0;
    for (int i = 0; i < rounds; i++) {
        const void *a = (void *)0x10000, *b = (void *)0x10073, *c = (void *)0x20000;
        uint32_t pool = table->created(parent, "stack", "n\xc3\xa4me");
        table->pushed(pool);
        table->alloc(pool, 100, a, 16);
        table->alloc(pool, 5, b, 1);
        table->resized(pool, a, 300, c);
        table->free(pool, b);
        table->sealed(pool, 77);
        table->released(pool, 77);
        table->held(pool, 65536, 305);
        table->popped(pool);
        table->emptied(pool);
        table->destroyed(pool);
        parent = pool;
    }
}

// Run a command with variables (NAME=VALUE... COMMAND...), and kill it when it stops at a system call for the n-th
// time.
static int cut(int n, char **words) {
    pid_t pid = fork();
    MUST(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
        for (; strchr(*words, '='); words++) putenv(*words);
        execv(*words, words);
        _exit(127);
    }
    int status, stops = 0;
    MUST(waitpid(pid, &status, 0) == pid);
    if (WIFSTOPPED(status)) MUST(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(uintptr_t)PTRACE_O_TRACESYSGOOD) == 0);
    while (WIFSTOPPED(status)) {
        bool call = WSTOPSIG(status) == (SIGTRAP | 0x80);
        int signal = call || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        if (call && ++stops == n) kill(pid, SIGKILL);
        else MUST(ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(uintptr_t)signal) == 0);
        MUST(waitpid(pid, &status, 0) == pid);
    }
    printf("%d\n", stops);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 9;
}

static void *churn_thread(void *arg) {
    (void)arg;
    void *table[64] = {0};
    uint64_t x = (uintptr_t)&table | 1;
    for (long i = 0; rounds == 0 || i < rounds; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        void **slot = &table[x >> 20 & 63];
        free(*slot);
        *slot = malloc(x >> 40 & 1023);
    }
    return NULL;
}

// Standard error becomes a file of the program's. Then a child that is recorded finds no room at all, and this process
// no more.
static void swap_errors(const char *path) {
    close(2);
    MUST(open(path, O_CREAT | O_WRONLY, 0600) == 2);
    struct rlimit limit = {0, 0};
    MUST(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        work(10, 2002);
        _exit(0);
    }
    wait_for(pid);
    churn();
}

int main(int argc, char **argv) {
    static char buffer[4096];
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    const char *mode = argc > 1 ? argv[1] : "";
    rounds = argc > 2 ? atoi(argv[2]) : 1;
    int number = argc > 3 ? atoi(argv[3]) : 0;
    if (!strcmp(mode, "family") || !strcmp(mode, "common")) {
        common = mode[0] == 'c';
        family_thread(NULL);
        if (number) in_threads(number, family_thread);
    } else if (!strcmp(mode, "work")) work(rounds, (size_t)number);
    else if (!strcmp(mode, "crowd")) crowd(rounds);
    else if (!strcmp(mode, "series") || !strcmp(mode, "vanish")) {
        for (int i = 0; i < rounds; i++) in_threads(1, mode[0] == 's' ? short_thread : vanishing_thread);
    } else if (!strcmp(mode, "exchange")) in_threads(number, exchange_thread);
    else if (!strcmp(mode, "late")) {
        for (int i = 0; i < 3; i++) pthread_key_create(&keys[i], late_destructor);
        in_threads(number, late_thread);
        printf("%d\n", late_calls);
    } else if (!strcmp(mode, "creators")) {
        not_created();
        created(&rounds);
    } else if (!strcmp(mode, "cut")) return cut(rounds, argv + 3);
    else if (!strcmp(mode, "children")) children(argv[0]);
    else if (!strcmp(mode, "busy_forks")) busy_forks();
    else if (!strcmp(mode, "signal_forks")) signal_forks();
    else if (!strcmp(mode, "end")) {
        atexit(at_end);
        return end_by(argv[3], argv[0]);
    } else if (!strcmp(mode, "module")) open_module(argv[3]);
    else if (!strcmp(mode, "module_from")) open_module_from(argv[3], argv[4]);
    else if (!strcmp(mode, "module_gone")) {
        void *module = dlopen(argv[3], RTLD_NOW);
        MUST(module && unlink(argv[3]) == 0);
        ((void (*)(void))(uintptr_t)dlsym(module, "module_work"))();
    } else if (!strcmp(mode, "names")) return named_threads(argv[3], argv[0]);
    else if (!strcmp(mode, "plugin")) MUST(dlopen(argv[3], RTLD_NOW));
    else if (!strcmp(mode, "pools")) pools();
    else if (!strcmp(mode, "churn")) churn();
    else if (!strcmp(mode, "swapped")) swap_errors(argv[3]);
    else if (!strcmp(mode, "jail")) {
        MUST(chdir(argv[3]) == 0 && chroot(".") == 0 && setgid(65534) == 0 && setuid(65534) == 0);
        churn();
    } else if (!strcmp(mode, "fault")) {
        void (*fault)(uint64_t, int, uint32_t) =
            (void (*)(uint64_t, int, uint32_t))(uintptr_t)dlsym(RTLD_DEFAULT, "quarry_os_fault");
        MUST(fault);
        fault((uint64_t)number, argv[4][0] == 'p', ~(1u << QY_OS_WRITE));  // the warning itself is counted
        in_threads(3, churn_thread);
    } else if (!strcmp(mode, "churn_threads")) in_threads(number, churn_thread);
    else if (!strcmp(mode, "killed")) {  // after so many microseconds, whatever it is doing then
        struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
        struct itimerspec when = {.it_value = {.tv_nsec = 1000L * rounds + 1}};
        timer_t timer;
        MUST(timer_create(CLOCK_MONOTONIC, &how, &timer) == 0 && timer_settime(timer, 0, &when, NULL) == 0);
        rounds = 0;
        if (number) in_threads(number, churn_thread);
        else churn();
    } else if (!strcmp(mode, "closed")) {
        churn();
        for (int fd = 3; fd < 2000; fd++) close(fd);
        if (number) MUST(open("/dev/null", O_RDONLY) == 3);  // what has our number must not be written to
        churn();
    } else {
        fprintf(stderr, "program: no mode %s\n", mode);
        return 2;
    }
    printf("done\n");
    return 0;
}
