// SPDX-License-Identifier: MIT
// Memory that was freed goes back to the kernel when the program asks for it, on pages of any size; and what comes in
// its place is zero for calloc, and whole for everybody.
#include "api/family.h"

enum { MIB = 1 << 20,
    TOTAL = 96 * MIB,
    MOST = TOTAL / 3000 + 1 };

// In KiB, as the kernel says. (Pages of /proc/self/statm are the emulator's, where one runs.)
static long resident_mib(void) {
    char line[256];
    long kib = -1;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    while (kib < 0 && fgets(line, sizeof line, f)) sscanf(line, "VmRSS: %ld", &kib);
    fclose(f);
    CHECK_GE(kib, 0);
    return kib / 1024;
}

static unsigned char *block[MOST];

static void goes_back(size_t n) {
    size_t count = TOTAL / n;
    for (size_t i = 0; i < count; i++) {
        CHECK(block[i] = m.malloc(n));
        memset(block[i], 0xA5, n);
    }
    long most = resident_mib();
    for (size_t i = 0; i < count; i++) m.free(block[i]);
    m.trim(0);
    long after = resident_mib();
    // an emulator keeps some for itself
    if (most - after < TOTAL / MIB * 7 / 8)
        TEST_FAIL("blocks of %zu: %ld MiB, and %ld when all are free", n, most, after);
    for (size_t i = 0; i < count; i++) {
        CHECK(block[i] = m.calloc(1, n));
        for (size_t k = 0; k < n; k += 61) CHECK_EQ(block[i][k], 0);
        memset(block[i], (int)i, n);
    }
    // A part stays: pages of these keep what is in them.
    for (size_t i = 0; i < count; i++)
        if (i % 16) m.free(block[i]);
    m.trim(0);
    for (size_t i = 0; i < count; i += 16) {
        for (size_t k = 0; k < n; k += 61) CHECK_EQ(block[i][k], (unsigned char)i);
        m.free(block[i]);
    }
}

TEST(small) { goes_back(3000); }
TEST(medium) { goes_back(40000); }
TEST(runs) { goes_back(300000); }
TEST(huge) { goes_back(5 * MIB); }

TEST_MAIN()
