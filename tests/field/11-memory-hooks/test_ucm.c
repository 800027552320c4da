// SPDX-License-Identifier: MIT
// The real one: libucm of UCX. Does it hear of memory that malloc gives back?
#include <dlfcn.h>

#include "field.h"

static _Atomic size_t unmapped;
typedef struct unmap {
    void *address;
    size_t size;
} unmap_t;
static void hears(int type, void *event, void *unused) {
    (void)unused;
    if (type == 1 << 17) unmapped += ((unmap_t *)event)->size;
}
static void listen(void) {
    dlopen("libucs.so.0", RTLD_NOW | RTLD_GLOBAL);  // libucm uses it and does not say so
    void *ucm = dlopen("libucm.so.0", RTLD_NOW | RTLD_GLOBAL);
    int (*set)(int, int, void (*)(int, void *, void *), void *) =
        ucm ? (int (*)(int, int, void (*)(int, void *, void *), void *))dlsym(ucm, "ucm_set_event_handler") : NULL;
    if (!set) {
        printf("SKIP: needs the package libucx0\n");
        exit(0);
    }
    int status = set(1 << 17, 1000, hears, NULL);
    if (status) {
        printf("SKIP: needs a UCX that listens: status %d\n", status);
        exit(0);
    }
}
static void told(size_t at_least_mib) {
    if (unmapped >> 20 < at_least_mib) TEST_FAIL("%zu MiB reported of %zu", (size_t)unmapped >> 20, at_least_mib);
}
TEST(huge_block) {
    listen();
    free(memset(malloc((size_t)300 << 20), 1, (size_t)300 << 20));
    malloc_trim(0);
    sleep(2);
    told(290);
}
TEST(large_blocks) {
    listen();
    static char *p[300];
    for (int i = 0; i < 300; i++) p[i] = memset(malloc(1 << 20), 1, 1 << 20);
    for (int i = 0; i < 300; i++) free(p[i]);
    malloc_trim(0);
    sleep(2);
    told(memory_mib(1) < 60 ? 200 : 0);
}
// What is resident no more was reported; how much stays is the allocator's own business.
TEST(small_blocks) {
    listen();
    double before = memory_mib(1);
    enum { N = 200000 };
    static char *p[N];
    for (int i = 0; i < N; i++) p[i] = memset(malloc(1000), 1, 1000);
    double full = memory_mib(1);
    for (int i = 0; i < N; i++) free(p[i]);
    malloc_trim(0);
    sleep(2);
    double gone = full - memory_mib(1);
    CHECK_GT((int)(full - before), 150);
    told(gone > 20 ? (size_t)(gone * 0.9) : 0);
}

TEST_MAIN()
