// SPDX-License-Identifier: MIT
// A program that defines all of the family but reallocarray and the operators.
#define OWN_MORE 1
#include "02-own-malloc/own_malloc.h"

#include "02-own-malloc/own_cases.h"

#include <malloc.h>

TEST(usable_size) {
    void *p = malloc(100);
    CHECK_GE(malloc_usable_size(p), 100);
    free(p);
    small *s = new small;
    keep(s);
    CHECK_GE(malloc_usable_size(s), sizeof *s);
    delete s;
}
TEST(aligned) {
    void *p = nullptr;
    CHECK_EQ(posix_memalign(&p, 64, 200), 0);
    free(p);
    free(aligned_alloc(64, 128));
    free(memalign(64, 100));
    free(valloc(100));
}
struct alignas(64) wide {
    char bytes[100];
};
TEST(aligned_new_then_free) {
    wide *p = new wide;
    keep(p);
    CHECK_EQ(uintptr_t(p) % 64, 0);
    free(p);
}

TEST_MAIN()
