// SPDX-License-Identifier: MIT
// program.c: leaks of each kind, by the name of a case. Every block has a size of its own, by which cases.py knows it.
//
// No pointer to a block stays on the stack by accident: cases run in a frame of their own, which is wiped after them.
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __clang__
#define NOINLINE __attribute__((noinline))
#else
#define NOINLINE __attribute__((noinline, noclone))
#endif

// Roots. Not static: what nobody reads, the compiler does not write.
void **slot;
void *roots[64];
static int ready[2];  // a pipe: a thread is where it shall be

static NOINLINE void wipe(void) {
    volatile char stack[32768];
    for (size_t i = 0; i < sizeof stack; i++) stack[i] = 0;
}

static void **node(size_t bytes) {
    void **p = malloc(bytes);
    memset(p, 0, bytes);
    return p;
}

static void tell_ready(void) {
    if (write(ready[1], "x", 1) != 1) abort();
}
static void wait_ready(void) {
    char c;
    if (read(ready[0], &c, 1) != 1) abort();
}

// ---- shapes -----------------------------------------------------------------------------------------

static void none(void) { free(node(40)); }
static void definite(void) {
    node(101);
    node(202);
}
static void chain(void) {
    void **head = node(24), **last = head;
    for (int i = 0; i < 3; i++) {
        void **next = node(40);
        last[0] = next;
        last = next;
    }
}
static void circle(void) {
    void **a = node(24), **b = node(40), **c = node(56);
    a[0] = b, b[0] = c, c[0] = a;
}
static void tree(void) {
    void **root = node(72);
    for (int i = 0; i < 4; i++) {
        void **side = root[i] = node(88);
        for (int k = 0; k < 4; k++) side[k] = node(104);
    }
}
static void shared_leaf(void) {
    void **a = node(24), **b = node(40), **leaf = node(300);
    a[0] = b[0] = leaf;
}
static void interior(void) { roots[0] = (char *)node(120) + 40; }
static void tagged(void) {
    roots[0] = (void *)((uintptr_t)node(120) | 1);
    roots[1] = (void *)((uintptr_t)node(136) | (uintptr_t)0x1234 << 48);
}
static void reachable(void) {
    roots[0] = node(24);
    ((void **)roots[0])[1] = node(40);
    slot = malloc(sizeof *slot);
    *slot = node(56);
}
static void freed_is_no_root(void) {
    void **holder = node(64);
    holder[3] = node(80);
    free(holder);
}
static void mapped(void) {
    void **page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[100] = node(24);
}
// As of tables that are filled once.
static void read_only(void) {
    void **page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[100] = node(24);
    if (mprotect(page, 4096, PROT_READ)) abort();
}
// Only touched pages are looked at: all of them would be two million.
static void sparse(void) {
    const size_t bytes = (size_t)8 << 30;
    char *wide = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) abort();
    *(void **)(wide + bytes / 3 * 2 / 8 * 8) = node(24);
    node(101);
}
static void shared_map(void) {
    void **page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page[100] = node(24);
}
static void huge(void) {
    char *large = malloc(9 << 20);
    void *small = node(24);
    memcpy(large + (9 << 20) - 64, &small, sizeof small);
    roots[0] = large;
    ((char *)malloc(7 << 20))[0] = 1;
}
static void realloced(void) {
    roots[0] = realloc(node(24), 100000);
    roots[0] = realloc(roots[0], 48);
    roots[1] = calloc(10, 10);
    roots[2] = aligned_alloc(64, 640);
    roots[1] = roots[2] = NULL;
}

// ---- threads ----------------------------------------------------------------------------------------

static NOINLINE void *hold_on_stack(void *arg) {
    void *volatile held = node(24);
    tell_ready();
    pause();
    return held ? arg : NULL;
}
static void thread_stack(void) {
    pthread_t t;
    pthread_create(&t, NULL, hold_on_stack, NULL);
    wait_ready();
}

// The address of a block, hidden.
static NOINLINE uintptr_t hidden_node(size_t bytes) { return ~(uintptr_t)node(bytes); }

static void *hold_in_register(void *arg) {
    uintptr_t hidden = hidden_node(24);
    wipe();
#if defined(__x86_64__)
    // Only %r13 has the address when the byte is written.
    __asm__ volatile(
        "movq %0, %%r13\n\tnotq %%r13\n\tmovl $1, %%eax\n\tmovl %1, %%edi\n\tleaq -1(%%rsp), %%rsi\n\t"
        "movl $1, %%edx\n\tsyscall\n1:\tpause\n\tjmp 1b"
        :
        : "r"(hidden), "r"(ready[1])
        : "rax", "rcx", "rdx", "rsi", "rdi", "r11", "r13", "memory");
#else
    void *volatile held = (void *)~hidden;
    tell_ready();
    pause();
    if (held) return arg;
#endif
    return arg;
}
static void thread_register(void) {
    pthread_t t;
    pthread_create(&t, NULL, hold_in_register, NULL);
    wait_ready();
}

__thread void *local;
static void tls(void) { local = node(24); }

static void tls_dlopen(void) {
    void *module = dlopen(getenv("LEAK_MODULE"), RTLD_NOW);
    void (*keep)(void *) = module ? (void (*)(void *))(uintptr_t)dlsym(module, "keep") : NULL;
    if (!keep) abort();
    keep(node(24));
}
static void *tls_in_thread_body(void *arg) {
    tls_dlopen();
    wipe();
    tell_ready();
    pause();
    return arg;
}
static void tls_in_thread(void) {
    pthread_t t;
    pthread_create(&t, NULL, tls_in_thread_body, NULL);
    wait_ready();
}

static void *specific_body(void *arg) {
    pthread_key_t keys[40];
    for (int i = 0; i < 40; i++) pthread_key_create(&keys[i], NULL);
    pthread_setspecific(keys[0], node(24));
    pthread_setspecific(keys[39], node(40));  // libc allocates a table for these
    wipe();
    tell_ready();
    pause();
    return arg;
}
static void specific(void) {
    pthread_t t;
    pthread_create(&t, NULL, specific_body, NULL);
    wait_ready();
}

static void *deaf_body(void *arg) {
    uint64_t all = ~UINT64_C(0);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
    tell_ready();
    pause();
    return arg;
}
static void deaf(void) {
    pthread_t t;
    pthread_create(&t, NULL, deaf_body, NULL);
    wait_ready();
    node(101);
}

// All signals there are, as programs block them. The thread must stop all the same.
static void *blocking_body(void *arg) {
    void *volatile held = node(24);
    sigset_t all;
    int got;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    tell_ready();
    sigwait(&all, &got);
    return held ? arg : NULL;
}
static void blocking(void) {
    pthread_t t;
    pthread_create(&t, NULL, blocking_body, NULL);
    wait_ready();
    node(101);
}

// ---- ways to end ------------------------------------------------------------------------------------

// Not before the first thread is past all that still had the block's address.
static void *exit_body(void *arg) {
    (void)arg;
    wait_ready();
    exit(0);
}
static void exit_from_thread(void) {
    void *volatile held = node(24);
    pthread_t t;
    node(101);
    wipe();
    pthread_create(&t, NULL, exit_body, NULL);
    wipe();
    tell_ready();
    for (;;) pause();
    if (held) abort();
}
static void exit_now(void) {
    node(101);
    wipe();
    _exit(0);
}
// Another thread is asked for a search, and waits for the first one to stand, which keeps the signal out and ends.
static _Atomic unsigned beats;
static void *beat(void *arg) {
    for (;;) atomic_fetch_add(&beats, 1);
    return arg;
}
static void asked_at_exit(void) {
    uint64_t all = ~UINT64_C(0);
    pthread_t t;
    pthread_create(&t, NULL, beat, NULL);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
    if (kill(getpid(), 63)) abort();  // src/os/stop.h
    for (unsigned before = 0, now; (now = atomic_load(&beats)) == 0 || now != before; before = now) usleep(20000);
}
static NOINLINE void hold_root(void) { roots[0] = node(24); }
static void forked(void) {
    hold_root();
    wipe();
    pid_t child = fork();
    if (child == 0) {
        roots[0] = NULL;
        node(101);
        wipe();
        exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
}
static void vforked(void) {
    node(101);
    pid_t child = vfork();
    if (child == 0) _exit(0);
    int status;
    if (waitpid(child, &status, 0) != child || status != 0) abort();
}

// ---- on demand: a line of input, a line of output -----------------------------------------------------

static void steps(void) {
    char line[16];
    // As a program does that starts anew: all signals are as at the beginning.
    for (int i = 1; i < NSIG; i++) {
        struct sigaction plain = {.sa_handler = SIG_DFL};
        signal(i, SIG_DFL);
        sigaction(i, &plain, NULL);
    }
    for (unsigned i = 1; fgets(line, sizeof line, stdin); i++) {
        if (i < 64) roots[i] = node(64 * 8);
        printf("step\n");
        fflush(stdout);
    }
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"none", none},
    {"definite", definite},
    {"chain", chain},
    {"circle", circle},
    {"tree", tree},
    {"shared_leaf", shared_leaf},
    {"interior", interior},
    {"tagged", tagged},
    {"reachable", reachable},
    {"freed_is_no_root", freed_is_no_root},
    {"mapped", mapped},
    {"read_only", read_only},
    {"sparse", sparse},
    {"shared_map", shared_map},
    {"huge", huge},
    {"realloced", realloced},
    {"thread_stack", thread_stack},
    {"thread_register", thread_register},
    {"tls", tls},
    {"tls_dlopen", tls_dlopen},
    {"tls_in_thread", tls_in_thread},
    {"specific", specific},
    {"deaf", deaf},
    {"blocking", blocking},
    {"exit_from_thread", exit_from_thread},
    {"exit_now", exit_now},
    {"forked", forked},
    {"vforked", vforked},
    {"asked_at_exit", asked_at_exit},
    {"steps", steps}};

// So many MiB in blocks of 256 bytes, each with pointers to others: for the pause of a search.
static void fill(size_t mib) {
    for (size_t i = 0; i < (mib << 20) / 256; i++) {
        void **p = node(256);
        for (size_t k = 1; k < 32; k += 4) p[k] = roots[0];
        p[0] = roots[0];
        roots[0] = p;
    }
}

int main(int argc, char **argv) {
    if (pipe(ready) != 0) return 2;
    if (argc > 2) fill(strtoull(argv[2], NULL, 10));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            wipe();
            return 0;
        }
    return 2;
}
