// SPDX-License-Identifier: MIT
// planted.c: a malloc with one fault, of a kind that mallocs in the field had. tests/fault/scenarios.py shows with it
// that each scenario can fail. glibc's malloc does the work. The name of the preloaded file says which fault:
// planted-FAULT.so. With planted-none.so nothing is wrong.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define VISIBLE __attribute__((visibility("default")))

extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t count, size_t n);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void *__libc_valloc(size_t n);
extern void *__libc_pvalloc(size_t n);
extern void __libc_free(void *p);

// clang-format off
#define FAULTS(X)                                                                                                   \
    X(none)                                                                                                         \
    X(abort)        /* a refused request ends the process */                                                        \
    X(silent)       /* a refused request says 0 in errno */                                                         \
    X(errno)        /* a request that is served changes errno, and so does free */                                  \
    X(refuse)       /* some requests are refused for no reason */                                                   \
    X(lax)          /* sizes and products wrap, alignments are taken as they come, nothing for malloc(0) */         \
    X(lost)         /* a refused realloc frees the block; one that is served spoils the last byte */                \
    X(usable)       /* the usable size is said too large */                                                         \
    X(dirty)        /* calloc gives what was there */                                                               \
    X(reserve)      /* address space is reserved at the start, and must be had */                                   \
    X(ahead)        /* sixteen times as much is mapped as is asked for */                                           \
    X(keep)         /* large blocks are never used again */                                                         \
    X(split)        /* mprotect must succeed */                                                                     \
    X(descriptor)   /* a file of /proc must open */                                                                 \
    X(comm)         /* the process's name must be written to /proc */                                               \
    X(log)          /* a descriptor stays open */                                                                   \
    X(files)        /* a file must be written, in the folder for such */                                            \
    X(segment)      /* shared memory is left behind */                                                              \
    X(call)         /* calls to the kernel that are rare must succeed */                                            \
    X(processors)   /* there is more than one processor */                                                          \
    X(helper)       /* a thread can be made */                                                                      \
    X(environment)  /* there is an environment */                                                                   \
    X(handler)      /* SIGSEGV is taken from the program */                                                         \
    X(children)     /* whatever child has ended was the heap's */                                                   \
    X(stack)        /* malloc needs 16 KiB of stack */                                                              \
    X(recursion)    /* at times it needs 320 KiB */                                                                 \
    X(below)        /* a mapping lies below the one before */                                                       \
    X(threads)      /* each thread costs 64 KiB for ever */                                                         \
    X(census)       /* a thread that has called is there until it says that it ends */                              \
    X(first)        /* realloc must not be a thread's first call */                                                 \
    X(interrupted)  /* a signal makes a request fail */                                                             \
    X(process)      /* a child is no process of its own */                                                          \
    X(lock)         /* one lock, which fork does not know, and the end takes */                                     \
    X(atfork)       /* fork holds the lock while handlers of others run, and before libc takes its own locks */     \
    X(teardown)     /* the heap is gone at the end, and threads still call */
// clang-format on
#define FAULT_NAME(name) FAULT_##name,
#define FAULT_TEXT(name) #name,
static const char *const names[] = {FAULTS(FAULT_TEXT)};
static enum fault { FAULTS(FAULT_NAME) FAULT_COUNT } fault;

static pid_t owner;
static _Atomic long calls;
static _Atomic int gone;

static void die(const char *why) {
    if (write(2, why, strlen(why)) < 0) {}
    abort();
}

// ---- the lock: who waits this long waits for ever --------------------------------------------------------

enum { LOCK_MS = 1000 };
static _Atomic int locked;

static void lock(void) {
    for (int waited = 0; atomic_exchange(&locked, 1); waited++) {
        struct timespec ms = {0, 1000000};
        if (waited == LOCK_MS + 100) die("planted: waits for ever\n");
        if (waited < 100) sched_yield();
        else nanosleep(&ms, NULL);
    }
}
static void unlock(void) { locked = 0; }

static void prepare(void) { lock(); }

// ---- threads ----------------------------------------------------------------------------------------------

enum { MOST = 4096 };
static _Atomic int thread_ids[MOST];
static pthread_key_t thread_key;
static _Thread_local int known __attribute__((tls_model("initial-exec")));
static _Thread_local int allocated __attribute__((tls_model("initial-exec")));

static void thread_ends(void *place) { *(_Atomic int *)place = 0; }
static void thread_begins(void) {
    known = 1;
    if (fault == FAULT_threads) {
        void *p = mmap(NULL, 64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) memset(p, 1, 64 << 10);
    }
    for (int i = 0; fault == FAULT_census && i < MOST; i++) {
        int none = 0;
        if (!atomic_compare_exchange_strong(&thread_ids[i], &none, (int)syscall(SYS_gettid))) continue;
        pthread_setspecific(thread_key, (void *)&thread_ids[i]);
        break;
    }
}
static void count_threads(void) {
    static _Atomic pid_t of;
    if (atomic_exchange(&of, getpid()) != getpid()) {  // in a child the others are not there
        for (int i = 0; i < MOST; i++) thread_ids[i] = 0;
    }
    for (int i = 0; i < MOST; i++) {
        int id = thread_ids[i];
        if (id && syscall(SYS_tgkill, getpid(), id, 0) && thread_ids[i] == id) die("planted: a thread has gone\n");
    }
}
static void *be_there(void *unused) { return unused; }
static void begin_helper(void) {
    static _Atomic int beginning;
    pthread_t thread;
    if (atomic_exchange(&beginning, 1)) return;  // to begin one is to allocate
    if (pthread_create(&thread, NULL, be_there, NULL)) die("planted: no thread\n");
    pthread_detach(thread);
    beginning = 0;
}

// ---- before each call -------------------------------------------------------------------------------------

__attribute__((noinline)) static void deep(void) {
    volatile char stack[16384];
    for (size_t i = 0; i < sizeof stack; i += 512) stack[i] = 1;
}
__attribute__((noinline)) static void deeper(void) {
    volatile char stack[320 << 10];
    for (size_t i = sizeof stack; i >= 512; i -= 512) stack[i - 1] = 1;
}
static void map_twice(void) {
    void *p[2];
    for (int i = 0; i < 2; i++) p[i] = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p[0] != MAP_FAILED && p[1] != MAP_FAILED && p[1] > p[0]) die("planted: a mapping lies above\n");
}
static int log_file = -1;
static void write_a_file(void);
static void fault_handler(int number) {
    (void)number;
    die("planted: SIGSEGV\n");
}
static void count_processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < 2) die("planted: no processor for the heap\n");
}
static void must_work(long result) {
    if (result < 0) die("planted: a call was refused\n");
}

// Things that are done at times; false: the request fails.
static int at_times(void) {
    int fd;
    struct timespec soon = {0, 1000000};
    switch (fault) {
    case FAULT_descriptor:
        must_work(fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
        close(fd);
        break;
    case FAULT_comm:
        must_work(fd = open("/proc/self/comm", O_WRONLY | O_CLOEXEC));
        close(fd);
        break;
    case FAULT_log: must_work(write(log_file, "", 1)); break;
    case FAULT_files: write_a_file(); break;
    case FAULT_recursion: deeper(); break;
    case FAULT_below: map_twice(); break;
    case FAULT_call:
        must_work(syscall(SYS_membarrier, 0, 0, 0));
        must_work(syscall(SYS_sched_yield));
        break;
    case FAULT_helper: begin_helper(); break;
    case FAULT_handler: signal(SIGSEGV, fault_handler); break;
    case FAULT_children: waitpid(-1, NULL, WNOHANG); break;
    case FAULT_census: count_threads(); break;
    case FAULT_interrupted:
        if (nanosleep(&soon, NULL)) return 0;
        break;
    case FAULT_refuse: return calls % 4096 != 0;
    default: break;
    }
    return 1;
}
static int enter(void) {
    if (fault == FAULT_none) return 1;
    int saved = errno, good = 1;
    if (!known) thread_begins();
    if (fault == FAULT_stack) deep();
    if (fault == FAULT_process && getpid() != owner) die("planted: not the process that began\n");
    if (fault == FAULT_processors && calls == 0) count_processors();
    if (fault == FAULT_environment && !*environ) die("planted: no environment\n");
    if (gone) die("planted: the heap is gone\n");
    if (fault == FAULT_atfork && !__libc_single_threaded) {
        static _Atomic int registered;
        if (!atomic_exchange(&registered, 1)) pthread_atfork(prepare, unlock, unlock);
    }
    if (++calls % 64 == 0) good = at_times();
    if (fault == FAULT_lock || fault == FAULT_atfork) lock();
    errno = saved;
    return good;
}
static void leave(void) {
    if (fault == FAULT_lock || fault == FAULT_atfork) unlock();
}

// ---- the calls --------------------------------------------------------------------------------------------

static void map_ahead(size_t n) {
    static _Atomic size_t handed_out;
    size_t before = atomic_fetch_add(&handed_out, n);
    for (size_t k = before >> 20; k < (before + n) >> 20 && k < (before >> 20) + 64; k++)
        mmap(NULL, (size_t)16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}
// What becomes of a result, served or not.
static void *result(void *p, size_t n) {
    leave();
    if (!p) {
        if (fault == FAULT_abort) die("planted: out of memory\n");
        if (fault == FAULT_silent) errno = 0;
        return NULL;
    }
    if (fault == FAULT_errno) errno = EAGAIN;
    if (fault == FAULT_ahead) map_ahead(n);
    return p;
}
static void *refused(void) {
    leave();
    errno = ENOMEM;
    return NULL;
}
static size_t wrapped(size_t n) { return fault == FAULT_lax && n > PTRDIFF_MAX ? n & 0xFFFF : n; }

VISIBLE void *malloc(size_t n) {
    if (!enter()) return refused();
    allocated = 1;
    if (fault == FAULT_lax && !n) return NULL;
    return result(__libc_malloc(wrapped(n)), n);
}
VISIBLE void *calloc(size_t count, size_t size) {
    size_t n;
    if (!enter()) return refused();
    allocated = 1;
    if (__builtin_mul_overflow(count, size, &n) && fault != FAULT_lax) n = SIZE_MAX;
    if (fault == FAULT_dirty) return result(__libc_malloc(n), n);
    if (fault == FAULT_lax) return n ? result(__libc_calloc(1, wrapped(n)), n) : NULL;
    return result(__libc_calloc(count, size), n);
}
VISIBLE void *realloc(void *p, size_t n) {
    if (!enter()) return refused();
    if (fault == FAULT_first && !allocated) die("planted: no heap of this thread\n");
    size_t old = p ? malloc_usable_size(p) : 0;
    if (fault == FAULT_usable && p) old -= 8;
    void *q = __libc_realloc(p, wrapped(n));
    if (fault == FAULT_lost && p && !q && n) __libc_free(p);
    if (fault == FAULT_lost && q && old && n > old) ((unsigned char *)q)[old - 1] ^= 0xFF;
    if (fault == FAULT_lost && q && old && n <= old && n > 16) ((unsigned char *)q)[n - 1] ^= 0xFF;
    if (!q && !n) return leave(), NULL;
    return result(q, n);
}
VISIBLE void *reallocarray(void *p, size_t count, size_t size) {
    size_t n;
    if (__builtin_mul_overflow(count, size, &n) && fault != FAULT_lax) n = SIZE_MAX;
    return realloc(p, n);
}
static void *aligned(size_t align, size_t n) {
    if (!enter()) return refused();
    allocated = 1;
    return result(fault == FAULT_lax ? __libc_malloc(wrapped(n)) : __libc_memalign(align, n), n);
}
VISIBLE void *memalign(size_t align, size_t n) { return aligned(align, n); }
VISIBLE void *aligned_alloc(size_t align, size_t n) { return aligned(align, n); }
VISIBLE int posix_memalign(void **ret, size_t align, size_t n) {
    if (fault != FAULT_lax && (align % sizeof(void *) || !align || (align & (align - 1)))) return EINVAL;
    void *p = aligned(align, n);
    if (p) *ret = p;
    return p ? 0 : ENOMEM;
}
VISIBLE void *valloc(size_t n) { return aligned((size_t)sysconf(_SC_PAGESIZE), n); }
VISIBLE void *pvalloc(size_t n) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return aligned(page, n ? (n > SIZE_MAX - page ? n : (n + page - 1) & ~(page - 1)) : page);
}

static size_t usable(void *p) {
    // As glibc counts it: the word before the block has its length, and whether it has a mapping of its own.
    size_t word = ((size_t *)p)[-1];
    return (word & ~(size_t)7) - (word & 2 ? 16 : 8);
}
VISIBLE size_t malloc_usable_size(void *p) {
    if (!p) return 0;
    return usable(p) + (fault == FAULT_usable ? 8 : 0);
}
VISIBLE void free(void *p) {
    if (!p || !enter()) return (void)(p && (leave(), 0));
    int saved = errno;
    if (fault == FAULT_split && usable(p) >= 100000) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *inner = (char *)(((uintptr_t)p + 2 * page - 1) & ~(uintptr_t)(page - 1));
        must_work(mprotect(inner, page, PROT_NONE));
        mprotect(inner, page, PROT_READ | PROT_WRITE);
    }
    if (fault != FAULT_keep || usable(p) < 5000) __libc_free(p);
    errno = fault == FAULT_errno ? EAGAIN : saved;
    leave();
}

// ---- the beginning and the end ----------------------------------------------------------------------------

static void write_a_file(void) {
    char path[PATH_MAX], text[8192] = {0};
    const char *folder = getenv("TMPDIR");
    if (!folder) folder = "/tmp";
    if (strlen(folder) > sizeof path - 40) return;
    strcpy(path, folder);
    strcat(path, "/planted-XXXXXX");
    int fd = mkstemp(path);
    must_work(fd);
    unlink(path);
    must_work(write(fd, text, sizeof text) == sizeof text ? 0 : -1);
    close(fd);
}
__attribute__((constructor)) static void begin(void) {
    Dl_info info;
    owner = getpid();
    const char *file = dladdr((void *)(uintptr_t)begin, &info) ? strrchr(info.dli_fname, '/') : NULL;
    const char *name = file ? strchr(file, '-') : NULL, *dot = name ? strrchr(name, '.') : NULL;
    enum fault wanted = FAULT_COUNT;
    for (int i = 0; dot && i < FAULT_COUNT; i++) {
        size_t length = (size_t)(dot - name - 1);
        if (strlen(names[i]) == length && !strncmp(names[i], name + 1, length)) wanted = (enum fault)i;
    }
    if (wanted == FAULT_COUNT) die("planted: the file's name names no fault\n");
    if (wanted == FAULT_census) pthread_key_create(&thread_key, thread_ends);
    if (wanted == FAULT_files) write_a_file();
    if (wanted == FAULT_log) must_work(log_file = open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (wanted == FAULT_segment) must_work(shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600));
    if (wanted == FAULT_helper) begin_helper();
    if (wanted == FAULT_reserve &&
        mmap(NULL, (size_t)2 << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        die("planted: no address space\n");
    fault = wanted;
}
__attribute__((destructor)) static void end(void) {
    struct timespec while_threads_call = {0, 30000000};
    if (fault == FAULT_lock) lock(), unlock();
    if (fault != FAULT_teardown) return;
    gone = 1;
    nanosleep(&while_threads_call, NULL);
}
