// SPDX-License-Identifier: MIT
// What glibc's malloc says about itself, the drop-in says too: programs call these functions.
#include <sys/wait.h>

#include "api/family.h"
#include "captured.h"

#define MIB ((size_t)1 << 20)

TEST(mallinfo2_counts) {
    struct mallinfo2 before = mallinfo2();
    enum { SMALL = 1000 };
    static void *p[SMALL];
    for (int i = 0; i < SMALL; i++) memset(p[i] = m.malloc(4096), 1, 4096);
    void *large = m.malloc(10 * MIB);
    struct mallinfo2 during = mallinfo2();
    CHECK_GE(during.uordblks, before.uordblks + SMALL * 4096 + 10 * MIB);
    CHECK_LE(during.uordblks, before.uordblks + SMALL * 5000 + 11 * MIB);
    CHECK_EQ(during.arena + during.hblkhd, during.uordblks + during.fordblks);  // as glibc's numbers do
    for (int i = 0; i < SMALL; i++) m.free(p[i]);
    m.free(large);
    struct mallinfo2 after = mallinfo2();
    CHECK_LE(after.uordblks, before.uordblks + MIB);
    CHECK_GE(after.fordblks, 0);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
TEST(mallinfo_is_the_same_in_ints) {
    void *p = m.malloc(10 * MIB);
    struct mallinfo2 wide = mallinfo2();
    struct mallinfo narrow = mallinfo();
    CHECK_EQ((size_t)narrow.uordblks, wide.uordblks);
    CHECK_EQ((size_t)narrow.arena, wide.arena);
    m.free(p);
    // What does not fit is not negative.
    p = m.malloc((size_t)3 << 30);
    if (!p) TEST_SKIP("needs address space for 3 GiB");
    narrow = mallinfo();
    CHECK_GT(narrow.uordblks, 1 << 30);
    m.free(p);
}
#pragma GCC diagnostic pop

TEST(malloc_info_writes_xml) {
    char text[4096];
    FILE *f = tmpfile();
    CHECK(f != NULL);
    CHECK_EQ(malloc_info(0, f), 0);
    rewind(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    CHECK(n > 50 && n < sizeof text - 1);
    CHECK(strncmp(text, "<malloc version=\"1\">", 20) == 0);
    CHECK_STR_EQ(text + n - 10, "</malloc>\n");
    int depth = 0;  // elements close as often as they open
    for (char *c = text; *c; c++) depth += c[0] == '<' ? (c[1] == '/' ? -1 : 1) : c[0] == '/' && c[1] == '>' ? -1
                                                                                                             : 0;
    CHECK_EQ(depth, 0);
    errno = 0;
    CHECK_EQ(malloc_info(1, f), -1);
    CHECK_EQ(errno, EINVAL);
    fclose(f);
    // To a stream that allocates while it is written to.
    char *memory = NULL;
    size_t length = 0;
    f = open_memstream(&memory, &length);
    CHECK_EQ(malloc_info(0, f), 0);
    fclose(f);
    CHECK(length > 50 && strstr(memory, "</malloc>"));
    free(memory);
}

static void stats_body(void *unused) {
    (void)unused;
    malloc_stats();
}

TEST(malloc_stats_goes_to_stderr) {
    captured_t c = capture(stats_body, NULL);
    CHECK_EQ(c.exit_code, 0);
    CHECK_GT(c.length, 50);
    for (size_t i = 0; i < c.length; i++) CHECK(c.text[i] == '\n' || (c.text[i] >= ' ' && c.text[i] < 127));
    CHECK_EQ(c.text[c.length - 1], '\n');
}

TEST(trim_gives_back) {
    m.trim(0);
    // A tenth of what is freed stays in use, spread over all of it.
    enum { COUNT = 20000 };
    static void *p[COUNT];
    for (int i = 0; i < COUNT; i++) memset(p[i] = m.malloc(4000), 1, 4000);
    void *large = m.malloc(20 * MIB);
    memset(large, 1, 20 * MIB);
    struct {
        long all, resident;
    } before = {0, 0}, after = {0, 0};
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &before.all, &before.resident) == 2);
    for (int i = 0; i < COUNT; i++) {
        if (i % 100) m.free(p[i]);
    }
    m.free(large);
    errno = 77;
    m.trim(0);  // 0 if all was given back by the frees themselves
    CHECK_EQ(errno, 77);
    rewind(f);
    fflush(f);
    CHECK(fscanf(f, "%ld %ld", &after.all, &after.resident) == 2);
    fclose(f);
    CHECK_LT(after.resident, before.resident - (long)(60 * MIB / (size_t)sysconf(_SC_PAGESIZE)));
    for (int i = 0; i < COUNT; i++) {
        if (i % 100 == 0) {
            for (int j = 0; j < 4000; j++) CHECK_EQ(((char *)p[i])[j], 1);
            m.free(p[i]);
        }
    }
    int result = m.trim(0);
    CHECK(result == 0 || result == 1);
    CHECK_EQ(m.trim(SIZE_MAX), 0);
}

// What glibc says; programs look at it, and none goes on without.
TEST(mallopt_returns) {
    void *p = m.malloc(100);
    static const struct {
        int param, value, result;
    } calls[] = {{M_MXFAST, 0, 1}, {M_MXFAST, 160, 1}, {M_MXFAST, 161, 0}, {M_MXFAST, -1, 0}, {M_TOP_PAD, 65536, 1},
        {M_MMAP_THRESHOLD, 65536, 1}, {M_MMAP_THRESHOLD, 32 << 20, 1}, {M_MMAP_THRESHOLD, (32 << 20) + 1, 0},
        {M_MMAP_THRESHOLD, -1, 0}, {M_MMAP_MAX, 0, 1}, {M_MMAP_MAX, 65536, 1}, {M_CHECK_ACTION, 3, 1},
        {M_PERTURB, 0xA5, 1}, {M_ARENA_TEST, 1, 1}, {M_ARENA_MAX, 1, 1}, {M_TRIM_THRESHOLD, -1, 1},
        {M_TRIM_THRESHOLD, 131072, 1}, {1000, 1, 1}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        int result = mallopt(calls[i].param, calls[i].value);
        if (result != calls[i].result) TEST_FAIL("mallopt(%d, %d) is %d", calls[i].param, calls[i].value, result);
    }
    m.free(p);
}

static void stats_tail(void *unused) {
    (void)unused;
    void *p = m.malloc(1000000);
    malloc_stats();
    m.free(p);
}
TEST(malloc_stats_has_glibc_s_lines) {
    captured_t c = capture(stats_tail, NULL);
    size_t system = 0, in_use = 0;
    char *at = strstr(c.text, "Total (incl. mmap):\n");
    CHECK(at && sscanf(at, "Total (incl. mmap):\nsystem bytes = %zu\nin use bytes = %zu", &system, &in_use) == 2);
    CHECK_GE(in_use, 1000000);
    CHECK_GE(system, in_use);
    CHECK(strstr(at, "max mmap regions = ") && strstr(at, "max mmap bytes   = "));
}

// The fields that tools take out of it, within the one arena and of all.
TEST(malloc_info_has_glibc_s_fields) {
    char *text = NULL;
    size_t length = 0;
    FILE *f = open_memstream(&text, &length);
    CHECK_EQ(malloc_info(0, f), 0);
    fclose(f);
    static const char *const fields[] = {"<heap nr=\"0\">", "<sizes>", "<total type=\"fast\" ", "<total type=\"rest\" ",
        "<system type=\"current\" ", "<system type=\"max\" ", "<aspace type=\"total\" ", "<aspace type=\"mprotect\" ",
        "</heap>", "<total type=\"fast\" ", "<total type=\"rest\" ", "<total type=\"mmap\" ",
        "<system type=\"current\" ", "<system type=\"max\" ", "<aspace type=\"total\" ", "<aspace type=\"mprotect\" ",
        "</malloc>"};
    char *at = text;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char *found = strstr(at, fields[i]);
        if (!found) TEST_FAIL("no %s behind \"%.40s\"", fields[i], at);
        at = found + 1;
    }
    free(text);
}

TEST(names_of_old) {
    void (*cfree)(void *) = (void (*)(void *))(uintptr_t)dlsym(RTLD_DEFAULT, "cfree");
    if (FAMILY_LINKED && !cfree) TEST_SKIP("needs a program that exports cfree");
    CHECK(cfree != NULL);
    for (int i = 0; i < 10000; i++) cfree(m.malloc(MIB));  // 10 GiB if it did nothing
    cfree(NULL);
    // What other libraries find by name is this heap, too.
    static const char *const names[] = {"malloc", "free", "calloc", "realloc", "memalign", "posix_memalign",
        "aligned_alloc", "valloc", "pvalloc", "reallocarray", "malloc_usable_size"};
    Dl_info ours, theirs;
    CHECK(dladdr((void *)(uintptr_t)m.malloc, &ours));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *f = dlsym(RTLD_DEFAULT, names[i]);
        if (!f || !dladdr(f, &theirs) || theirs.dli_fbase != ours.dli_fbase)
            TEST_FAIL("%s is of %s, but malloc of %s", names[i], f ? theirs.dli_fname : "nobody", ours.dli_fname);
    }
}

TEST_MAIN()
