// SPDX-License-Identifier: MIT
// A registration cache, as communication libraries for RDMA keep it (UCX, Open MPI, libfabric): which page frames an
// address has is looked up once, and forgotten when the memory goes away. They learn of that by patching the code of
// libc's munmap, madvise, mremap, mmap and brk. It is wrong if the frames of a registered address are others than
// before and no patched function was called for it.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>

#include "field.h"

typedef struct range {
    uintptr_t from, to;
} range_t;
enum { EVENTS = 200000,
    BLOCKS = 40 };
static range_t event[EVENTS];
static _Atomic int events;
static int frames_fd;

static void tell(const void *p, size_t n) {
    int i = events++;
    if (i < EVENTS) event[i] = (range_t){(uintptr_t)p, (uintptr_t)p + n};
}
static int our_munmap(void *p, size_t n) {
    tell(p, n);
    return (int)syscall(SYS_munmap, p, n);
}
static int our_madvise(void *p, size_t n, int advice) {
    if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE) tell(p, n);
    return (int)syscall(SYS_madvise, p, n, advice);
}
static void *our_mremap(void *p, size_t old, size_t n, int flags, void *to) {
    tell(p, old);
    if (flags & MREMAP_FIXED) tell(to, n);
    return (void *)syscall(SYS_mremap, p, old, n, flags, to);
}
static void *our_mmap(void *p, size_t n, int protection, int flags, int fd, long offset) {
    if (flags & MAP_FIXED) tell(p, n);
    return (void *)syscall(SYS_mmap, p, n, protection, flags, fd, offset);
}
extern void *__curbrk;
static int our_brk(void *p) {
    char *old = (char *)syscall(SYS_brk, 0);
    if ((char *)p < old) tell(p, (size_t)(old - (char *)p));
    __curbrk = (void *)syscall(SYS_brk, p);
    if (__curbrk >= p) return 0;
    errno = ENOMEM;
    return -1;
}
// A jump over the first 13 bytes of the function.
static void patch(const char *name, void *to) {
    unsigned char jump[13] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x41, 0xff, 0xe3};
    memcpy(jump + 2, &to, sizeof to);
    void *libc = dlopen("libc.so.6", RTLD_NOW), *code = libc ? dlsym(libc, name) : NULL;
    CHECK(code != NULL);
    void *page = (void *)((uintptr_t)code & ~(uintptr_t)4095);
    CHECK_EQ(mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    memcpy(code, jump, sizeof jump);
    CHECK_EQ(mprotect(page, 8192, PROT_READ | PROT_EXEC), 0);
}
static void patch_all(void) {
#ifndef __x86_64__
    printf("SKIP: needs x86-64: the patch is for it\n");
    exit(0);
#endif
    frames_fd = open("/proc/self/pagemap", O_RDONLY);
    uint64_t e = 0;
    if (pread(frames_fd, &e, 8, (off_t)((uintptr_t)&events / 4096 * 8)) != 8 || !(e & 0x7fffffffffffff)) {
        printf("SKIP: needs CAP_SYS_ADMIN, to see page frames\n");
        exit(0);
    }
    patch("munmap", (void *)our_munmap);
    patch("madvise", (void *)our_madvise);
    patch("mremap", (void *)our_mremap);
    patch("mmap", (void *)our_mmap);
    patch("brk", (void *)our_brk);
}

typedef struct registered {
    char *p;
    size_t n;
    uint64_t *frame;
    int events_before;
} registered_t;

static uint64_t frame_of(const char *p) {
    uint64_t e = 0;
    if (pread(frames_fd, &e, 8, (off_t)((uintptr_t)p / 4096 * 8)) != 8) return 0;
    return e >> 63 ? e & 0x7fffffffffffff : 0;
}
static registered_t look_up(char *p, size_t n) {
    registered_t r = {p, n,
        (uint64_t *)syscall(
            SYS_mmap, 0, (n / 4096 + 2) * 8, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
        events};
    for (size_t i = 0; i < n; i += 4096) r.frame[i / 4096] = frame_of(p + i);
    return r;
}
static int told(uintptr_t page, int from) {
    for (int i = from; i < events && i < EVENTS; i++) {
        if (event[i].from < page + 4096 && page < event[i].to) return 1;
    }
    return 0;
}
static long stale(const registered_t *r) {
    long n = 0;
    for (size_t i = 0; i < r->n; i += 4096) {
        if (r->frame[i / 4096] && frame_of(r->p + i) != r->frame[i / 4096])
            n += !told((uintptr_t)(r->p + i) & ~(uintptr_t)4095, r->events_before);
    }
    return n;
}
static void trim(void) { malloc_trim(0); }
static void rest(void) { sleep(3); }
static void nothing(void) {}
static void *free_there(void *p) {
    free(p);
    return NULL;
}

typedef enum { HERE,
    GROW,
    SHRINK,
    THERE } end_t;
static void run(size_t n, end_t end, void (*then)(void)) {
    static char *p[BLOCKS];
    static registered_t r[BLOCKS];
    int count = n > (size_t)4 << 20 ? 5 : BLOCKS;
    free(opaque(malloc(n)));
    patch_all();
    for (int i = 0; i < count; i++) {
        p[i] = memset(malloc(n), i + 1, n);
        r[i] = look_up(p[i], n);
    }
    for (int i = 0; i < count; i++) {
        pthread_t t;
        if (end == GROW) p[i] = realloc(p[i], 4 * n);
        if (end == SHRINK) p[i] = realloc(p[i], n / 8);
        if (end == THERE && pthread_create(&t, NULL, free_there, p[i]) == 0) pthread_join(t, NULL);
    }
    for (int i = 0; i < count && end != THERE; i++) free(p[i]);
    then();
    for (int i = 0; i < count; i++) p[i] = memset(malloc(n), 100 + i, n);
    long bad = 0;
    for (int i = 0; i < count; i++) bad += stale(&r[i]);
    if (bad) TEST_FAIL("%ld pages are others and nobody was told; %d events", bad, (int)events);
}
#define SIZE(name, n)                             \
    TEST(free_##name) { run(n, HERE, nothing); }  \
    TEST(trim_##name) { run(n, HERE, trim); }     \
    TEST(wait_##name) { run(n, HERE, rest); }     \
    TEST(grow_##name) { run(n, GROW, nothing); }  \
    TEST(shrink_##name) { run(n, SHRINK, trim); } \
    TEST(free_in_a_thread_##name) { run(n, THERE, trim); }
SIZE(4k, 4096)
SIZE(70k, 70000)
SIZE(300k, 300000)
SIZE(2m, 2000000)
SIZE(40m, 40000000)

TEST_MAIN()
