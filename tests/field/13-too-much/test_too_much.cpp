// SPDX-License-Identifier: MIT
// Requests for several times what the machine has. With the kernel's default (overcommit_memory 0) these are refused at
// once under glibc, and programs count on that: an answer now instead of the OOM killer later. Nothing is touched here.
#include <new>
#include <sys/sysinfo.h>

#include "field.h"

static size_t all() {
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY);
    char mode = '?';
    if (fd >= 0 && read(fd, &mode, 1) < 0) mode = '?';
    close(fd);
    if (mode != '0') {
        printf("SKIP: needs vm.overcommit_memory=0, not %c\n", mode);
        exit(0);
    }
    struct sysinfo info;
    sysinfo(&info);
    return (info.totalram + info.totalswap) * info.mem_unit;
}
static void refused(void *p) {
    int error = errno;
    if (p) TEST_FAIL("%zu GiB given out on a machine with %zu GiB", 4 * all() >> 30, all() >> 30);
    CHECK_EQ(error, ENOMEM);
    free(opaque(malloc(100)));
}
TEST(half_is_given) {
    void *p = malloc(all() / 2);
    CHECK(opaque(p) != nullptr);
    free(p);
}
TEST(half_again_and_again) {
    for (int i = 0; i < 100; i++) {
        void *p = malloc(all() / 2);
        CHECK(opaque(p) != nullptr);
        free(p);
    }
}
TEST(many_untouched) {
    for (int i = 0; i < 64; i++) CHECK(opaque(malloc(all() / 64 / 2)) != nullptr);
}
TEST(by_malloc) { refused(malloc(4 * all())); }
TEST(by_calloc) { refused(calloc(4, all())); }
TEST(by_realloc) { refused(realloc(malloc(1 << 20), 4 * all())); }
TEST(by_realloc_of_large) { refused(realloc(malloc(size_t(100) << 20), 4 * all())); }
TEST(by_realloc_of_small) { refused(realloc(malloc(100), 4 * all())); }
TEST(by_reallocarray) { refused(reallocarray(malloc(100), all(), 4)); }
TEST(by_aligned_alloc) { refused(aligned_alloc(1 << 21, 4 * all())); }
TEST(by_memalign) { refused(memalign(4096, 4 * all())); }
TEST(by_valloc) { refused(valloc(4 * all())); }
TEST(by_posix_memalign) {
    void *p = nullptr;
    CHECK_EQ(posix_memalign(&p, 4096, 4 * all()), ENOMEM);
}
TEST(by_new) {
    bool thrown = false;
    try {
        opaque(::operator new(4 * all()));
    } catch (const std::bad_alloc &) { thrown = true; }
    CHECK(thrown);
}
TEST(by_new_nothrow) { CHECK(!opaque(::operator new(4 * all(), std::nothrow))); }
// What was there stays when it cannot grow.
TEST(kept_when_refused) {
    char *p = (char *)malloc(size_t(50) << 20);
    p[0] = 1;
    p[(50 << 20) - 1] = 2;
    CHECK(!realloc(p, 4 * all()));
    CHECK_EQ(p[0] + p[(50 << 20) - 1], 3);
    free(p);
}

TEST_MAIN()
