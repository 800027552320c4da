// SPDX-License-Identifier: MIT
// test_charge.c: what the kernel charges to a process that promises memory it may never touch. Where
// overcommit is off (vm.overcommit_memory=2) every writable private page counts from the moment it is
// made writable, touched or not, and so does what once was and is still mapped. So reservations must
// have no access, tables be read-only until used, and what is open for blocks be near to what they need.
#include <fcntl.h>
#include <sys/mman.h>

#include "stress/shadow.h"

#define MIB ((size_t)1 << 20)

// ---- /proc/self/smaps, without malloc -------------------------------------------------------------------

typedef struct charge {
    size_t charged;   // bytes that are, or would be, charged
    size_t reserved;  // private anonymous bytes that are not
    size_t wrong;     // not writable and yet charged
    size_t mappings;
} charge_t;

// One mapping: its first line and, of the rest, its flags.
typedef struct mapping {
    size_t bytes;
    int anonymous, writable, charged;
} mapping_t;

static void add(charge_t *sum, const mapping_t *map) {
    if (!map->anonymous) return;
    sum->mappings++;
    if (map->writable || map->charged) sum->charged += map->bytes;
    else sum->reserved += map->bytes;
    if (map->charged && !map->writable) sum->wrong += map->bytes;
}

static void line(charge_t *sum, mapping_t *map, char *text) {
    unsigned long begin, end, offset, inode;
    char rights[8];
    int at = 0;
    if (sscanf(text, "%lx-%lx %7s %lx %*x:%*x %lu %n", &begin, &end, rights, &offset, &inode, &at) == 5 && at) {
        // Stacks, the data of programs and libraries, and brk are not ours.
        const char *name = text + at;
        *map = (mapping_t){end - begin,
            inode == 0 && rights[3] == 'p' && (!*name || !strncmp(name, "[anon:quarry", 12)), rights[1] == 'w', 0};
    } else if (!strncmp(text, "VmFlags:", 8)) {
        map->charged = strstr(text, " ac") != NULL;
        add(sum, map);
    }
}

static charge_t charge(void) {
    static char buffer[8192];
    charge_t sum = {0, 0, 0, 0};
    mapping_t map = {0, 0, 0, 0};
    int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    size_t have = 0;
    for (ssize_t n; (n = read(fd, buffer + have, sizeof buffer - 1 - have)) > 0;) {
        have += (size_t)n;
        buffer[have] = '\0';
        char *at = buffer;
        for (char *end; (end = strchr(at, '\n')); at = end + 1) {
            *end = '\0';
            line(&sum, &map, at);
        }
        have -= (size_t)(at - buffer);
        memmove(buffer, at, have);
    }
    close(fd);
    CHECK_GT(sum.charged, 0);
    return sum;
}

// '0' the kernel judges by what the machine has, '1' it gives everything, '2' it keeps to a limit; 0: not known.
static char overcommit(void) {
    char c = 0;
    int fd = open("/proc/sys/vm/overcommit_memory", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    if (read(fd, &c, 1) != 1) c = 0;
    close(fd);
    return c;
}

// ---- the audit --------------------------------------------------------------------------------------------

enum { BLOCKS = 1 << 20 };
static char **block;  // in shared memory, which does not count here

__attribute__((constructor)) static void make_table(void) {
    block = mmap(NULL, BLOCKS * sizeof *block, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) _exit(1);
}

static size_t fill(size_t size, size_t bytes) {
    size_t had = 0;
    for (size_t k = 0; k < BLOCKS && had < bytes; k++, had += size) {
        errno = 77;
        if (!(block[k] = m.malloc(size))) {
            CHECK_EQ(errno, ENOMEM);
            break;
        }
        block[k][0] = block[k][size - 1] = 1;
    }
    return had;
}
static void give_back(void) {
    for (size_t k = 0; k < BLOCKS && block[k]; k++) {
        m.free(block[k]);
        block[k] = NULL;
    }
}

static const size_t sizes[] = {64, 3000, 40000, 300000, 5000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

// A start costs the table of chunks, one step of the table of tags, metadata and the first chunk.
TEST(little_is_charged_at_the_start) {
    m.free(m.malloc(1));
    charge_t c = charge();
    printf("  %zu MiB charged, %zu MiB reserved\n", c.charged / MIB, c.reserved / MIB);
    CHECK_LE(c.charged, 12 * MIB);
    CHECK_LE(c.charged + c.reserved, 16 * MIB);
    CHECK_GE(c.charged, MIB);  // the first chunk; else this is not the heap we know
    CHECK_EQ(c.wrong, 0);
}

// Blocks cost what they are, and a tenth more; and what they cost is not lost.
TEST(blocks_are_charged_once) {
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SIZES; i++) {
            size_t live = fill(sizes[i], 48 * MIB);
            CHECK_GE(live, 48 * MIB);
            charge_t c = charge();
            if (round) printf("  %zu bytes: %zu MiB charged for %zu MiB\n", sizes[i], c.charged / MIB, live / MIB);
            give_back();
            m.trim(0);
            CHECK_EQ(c.wrong, 0);
            // Freed chunks stay open for the next: those of the largest objects, which fill a part of their last chunk,
            // too.
            if (c.charged > live + live / 10 + 32 * MIB) {
                TEST_FAIL("%zu bytes: %zu MiB charged for %zu MiB", sizes[i], c.charged / MIB, live / MIB);
            }
        }
    }
    CHECK_EQ(charge().wrong, 0);
}

// A huge object that grows by moving, and one that shrinks, leave no charge behind.
TEST(resized_is_charged_once) {
    size_t before = charge().charged;
    for (int round = 0; round < 10; round++) {
        char *p = m.malloc(2 * MIB), *wall = m.malloc(2 * MIB);
        for (size_t n = 3 * MIB; n < 64 * MIB; n += n / 2) {
            CHECK((p = m.realloc(p, n)) != NULL);
            p[n - 1] = 1;
        }
        CHECK((p = m.realloc(p, 3 * MIB)) != NULL);
        m.free(p);
        m.free(wall);
    }
    m.trim(0);
    charge_t c = charge();
    CHECK_EQ(c.wrong, 0);
    if (c.charged > before + 8 * MIB) TEST_FAIL("from %zu to %zu MiB", before / MIB, c.charged / MIB);
}

// The table of mappings is limited, too: one for 64 MiB, and few more.
TEST(few_mappings) {
    size_t before = charge().mappings;
    for (int i = 0; i < SIZES - 1; i++) {
        size_t live = fill(sizes[i], 512 * MIB < BLOCKS * sizes[i] ? 512 * MIB : BLOCKS * sizes[i]),
               now = charge().mappings;
        printf("  %zu bytes: %zu mappings for %zu MiB\n", sizes[i], now, live / MIB);
        give_back();
        CHECK_LE(now, before + live / (64 * MIB) + 8);
    }
    m.trim(0);
}

// ---- overcommit off ----------------------------------------------------------------------------------------

static size_t meminfo_bytes(const char *key) {
    static char text[4096];
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK_GT(n, 0);
    text[n] = '\0';
    char *at = strstr(text, key);
    CHECK(at != NULL);
    return strtoull(at + strlen(key), NULL, 10) * 1024;
}

// Not to be set on a machine that does other things: a virtual one is (tests/torture/machine.py).
TEST(refused_by_the_kernel) {
    if (overcommit() != '2') TEST_SKIP("needs vm.overcommit_memory=2, as in tests/torture/machine.py");
    // What this process has already is freed, and can be had again.
    size_t room = meminfo_bytes("CommitLimit:") - meminfo_bytes("Committed_AS:") + charge().charged;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SIZES; i++) {
            size_t had = fill(sizes[i], SIZE_MAX);
            printf("  %zu bytes: %zu of %zu MiB\n", sizes[i], had / MIB, room / MIB);
            // What is longer than a chunk of 2 MiB begins with one: here each leaves a fifth of three chunks, which
            // only smaller ones could have.
            size_t least = sizes[i] > 2 * MIB ? room / 3 * 2 : room / 4 * 3;
            if (had < least && had / sizes[i] < BLOCKS)
                TEST_FAIL("%zu bytes: only %zu of %zu MiB", sizes[i], had / MIB, room / MIB);
            CHECK(!m.malloc(2 * room) && errno == ENOMEM);
            for (size_t k = 0; k < BLOCKS && block[k]; k++) CHECK(block[k][0] == 1 && block[k][sizes[i] - 1] == 1);
            give_back();
        }
    }
    CHECK(!m.malloc(2 * room));  // what can be given back is
    size_t left = meminfo_bytes("CommitLimit:") - meminfo_bytes("Committed_AS:");
    if (left + 16 * MIB < room) TEST_FAIL("of %zu MiB %zu are left", room / MIB, left / MIB);
}

// ---- objects that are larger than the machine --------------------------------------------------------------

static int is_given_by_the_kernel(size_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p != MAP_FAILED && !munmap(p, n);
}

// As libc does, an object is had if a plain mapping of its size is. The virtual machine has each of the three modes.
TEST(judged_by_the_kernel) {
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they have limits of their own");
    size_t machine = meminfo_bytes("MemTotal:") + meminfo_bytes("SwapTotal:"), given = 0;
    const size_t objects[] = {64 * MIB, 4 * machine, 500 * 1024 * MIB, 3000 * 1024 * MIB};
    enum { OBJECTS = sizeof objects / sizeof *objects };
    for (int i = 0; i < OBJECTS; i++) {
        size_t n = objects[i];
        int expected = is_given_by_the_kernel(n);
        for (int zeroed = 0; zeroed < 2; zeroed++) {
            errno = 0;
            char *p = zeroed ? m.calloc(1, n) : m.malloc(n);
            int error = errno;
            if (!!p != expected)
                TEST_FAIL("%zu MiB: given by the kernel: %d, by the heap: %d", n / MIB, expected, p != NULL);
            if (!p) CHECK_EQ(error, ENOMEM);
            if (p) p[0] = p[n / 2] = p[n - 1] = 1;
            m.free(p);
        }
        given += (size_t)expected;
    }
    printf("  overcommit_memory %c: %zu of %d objects\n", overcommit(), given, OBJECTS);
    if (overcommit() == '1') CHECK_EQ(given, OBJECTS);
    if (overcommit() == '0' || overcommit() == '2') CHECK(!is_given_by_the_kernel(objects[OBJECTS - 1]));
}

TEST_MAIN()
