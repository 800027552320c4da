// SPDX-License-Identifier: MIT
// test_pages_map.c: mappings at an alignment: the four quadrants, the tail of a file, what /proc/self/maps says.
#include <fcntl.h>
#include <quarry/pages.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "harness.h"
#include "os/fake.h"
#include "os/os.h"

#define MIB ((size_t)1 << 20)

static size_t page;

// Bytes that are mapped in [from, to), and the longest mapping's start and end around `at`.
static size_t mapped(uintptr_t from, uintptr_t to) {
    static char text[1 << 18];
    size_t n = 0, sum = 0;
    int fd = open("/proc/self/maps", O_RDONLY);
    CHECK_GE(fd, 0);
    for (ssize_t got; (got = read(fd, text + n, sizeof text - 1 - n)) > 0;) n += (size_t)got;
    close(fd);
    text[n] = '\0';
    for (char *line = text; line; line = strchr(line, '\n')) {
        unsigned long a, b;
        if (*line == '\n') line++;
        if (sscanf(line, "%lx-%lx ", &a, &b) != 2) break;
        if (a < from) a = from;
        if (b > to) b = to;
        if (a < b) sum += b - a;
    }
    return sum;
}
static size_t mapped_in_all(void) { return mapped(0, UINTPTR_MAX); }

static int file_of(const char *path, size_t bytes) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK_GE(fd, 0);
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = i * 3 + 1;
        CHECK_EQ(pwrite(fd, &word, bytes - i < 8 ? bytes - i : 8, (off_t)i), bytes - i < 8 ? (ssize_t)(bytes - i) : 8);
    }
    return fd;
}
static void good_file(const char *at, size_t bytes, uint64_t offset) {
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        CHECK_EQ(word, (offset + i) * 3 + 1);
    }
}

static char path[] = "/tmp/quarry-map-XXXXXX";
__attribute__((constructor)) static void begin(void) {
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
}
__attribute__((destructor)) static void end(void) { unlink(path); }

// 256 MiB on a 256 MiB boundary, as in "an mmap() whose result is aligned": nothing beside it, one munmap.
TEST(a_file_on_a_256_mib_boundary) {
    page = qy_os_page_size();
    int fd = file_of(path, 3 * MIB);
    CHECK_EQ(ftruncate(fd, 256 * MIB), 0);
    size_t before = mapped_in_all();
    char *p = quarry_map_aligned(fd, 0, 256 * MIB, 256 * MIB, 0);
    CHECK(p);
    CHECK_EQ((uintptr_t)p % (256 * MIB), 0);
    CHECK_EQ(mapped_in_all(), before + 256 * MIB);
    good_file(p, 3 * MIB, 0);
    CHECK_EQ(p[3 * MIB], 0);
    CHECK_EQ(quarry_unmap(p, 256 * MIB), 0);
    CHECK_EQ(mapped_in_all(), before);
    CHECK_EQ(mapped((uintptr_t)p, (uintptr_t)p + 256 * MIB), 0);
    // A part of it, from the middle.
    p = quarry_map_aligned(fd, MIB, MIB, 256 * MIB, QUARRY_MAP_READ_ONLY);
    CHECK(p);
    CHECK_EQ((uintptr_t)p % (256 * MIB), 0);
    good_file(p, MIB, MIB);
    CHECK_EQ(quarry_unmap(p, MIB), 0);
    close(fd);
}

// A file that is larger than the memory of the machine is memory all the same: pages come as they are touched.
TEST(a_file_larger_than_memory) {
    page = qy_os_page_size();
    int fd = file_of(path, page);
    size_t bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE) + 1024 * MIB;
    if (ftruncate(fd, (off_t)bytes)) {
        close(fd);
        TEST_SKIP("needs ext4 or xfs in /tmp, and no limit on the size of files, for one of %zu bytes", bytes);
    }
    char *p = quarry_map_aligned(fd, 0, bytes, page, QUARRY_MAP_SHARED);
    CHECK(p);
    good_file(p, page, 0);
    const size_t places[] = {page, bytes / 2, bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char found = 0;
        CHECK_EQ(p[places[i]], 0);
        p[places[i]] = (char)(i + 7);
        CHECK_EQ(pread(fd, &found, 1, (off_t)places[i]), 1);
        CHECK_EQ(found, (char)(i + 7));
    }
    CHECK_EQ(quarry_unmap(p, bytes), 0);
    CHECK_EQ(ftruncate(fd, 0), 0);
    close(fd);
}

// Private or shared, of a file or of nothing.
TEST(four_quadrants) {
    page = qy_os_page_size();
    int fd = file_of(path, 4 * page), status;
    for (unsigned quadrant = 0; quadrant < 4; quadrant++) {
        unsigned flags = quadrant & 1 ? QUARRY_MAP_SHARED : 0;
        int from = quadrant & 2 ? fd : -1;
        uint64_t first = 0, in_file;
        char *p = quarry_map_aligned(from, 0, 4 * page, 4 * MIB, flags);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % (4 * MIB), 0);
        memcpy(&first, p, 8);
        CHECK_EQ(first, from >= 0 ? 1 : 0);
        CHECK_EQ(p[3 * page] != 0, from >= 0);
        pid_t pid = fork();
        if (pid == 0) {
            p[page] = 77;
            _exit(0);
        }
        waitpid(pid, &status, 0);
        CHECK_EQ(p[page] == 77, flags != 0);  // does another process's store show here?
        p[0] = 99;
        CHECK_EQ(pread(fd, &in_file, 8, 0), 8);
        CHECK_EQ((in_file & 0xFF) == 99, quadrant == 3);
        CHECK_EQ(quarry_unmap(p, 4 * page), 0);
    }
    close(fd);
}

// What lies behind the end of a file in its last page reads as zero, may be written, and never reaches it.
TEST(tail_of_a_file) {
    page = qy_os_page_size();
    int fd = file_of(path, page + 100);
    char *p = quarry_map_aligned(fd, 0, 2 * page, page, QUARRY_MAP_SHARED), got[300];
    CHECK(p);
    for (size_t i = page + 100; i < 2 * page; i++) CHECK_EQ(p[i], 0);
    memset(p + page + 100, 'x', 100);
    CHECK_EQ(msync(p, 2 * page, MS_SYNC), 0);
    CHECK_EQ(quarry_unmap(p, 2 * page), 0);
    CHECK_EQ(lseek(fd, 0, SEEK_END), (off_t)(page + 100));
    CHECK_EQ(pread(fd, got, sizeof got, (off_t)page + 50), 50);
    close(fd);
}

// Unmapping need not mirror mapping: in parts, and several mappings in one call.
TEST(unmapping_in_other_pieces) {
    page = qy_os_page_size();
    char *p = quarry_map_aligned(-1, 0, 8 * page, MIB, 0);
    CHECK(p);
    memset(p, 1, 8 * page);
    CHECK_EQ(quarry_unmap(p + 2 * page, 3 * page), 0);
    CHECK_EQ(mapped((uintptr_t)p, (uintptr_t)p + 8 * page), 5 * page);
    CHECK(p[0] == 1 && p[2 * page - 1] == 1 && p[5 * page] == 1 && p[8 * page - 1] == 1);
    CHECK_EQ(quarry_unmap(p, 8 * page), 0);  // the rest, and what is unmapped already
    CHECK_EQ(mapped((uintptr_t)p, (uintptr_t)p + 8 * page), 0);
    // Two side by side.
    char *both = quarry_map_aligned(-1, 0, 4 * page, MIB, 0);
    CHECK(both);
    CHECK_PTR_EQ(
        mmap(both + 2 * page, 2 * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), both + 2 * page);
    CHECK_EQ(quarry_unmap(both, 4 * page), 0);
    CHECK_EQ(mapped((uintptr_t)both, (uintptr_t)both + 4 * page), 0);
}

// MAP_FIXED on mapped pages replaces what they are; the mapping around it stays.
TEST(replacing_pages) {
    page = qy_os_page_size();
    int fd = file_of(path, 4 * page);
    char *p = quarry_map_aligned(-1, 0, 4 * page, 16 * page, 0);
    memset(p, 5, 4 * page);
    size_t before = mapped_in_all();
    CHECK_PTR_EQ(mmap(p + page, page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0), p + page);
    CHECK_EQ(mapped_in_all(), before);
    good_file(p + page, page, 0);
    CHECK(p[0] == 5 && p[2 * page] == 5);
    CHECK_EQ(quarry_unmap(p, 4 * page), 0);
    close(fd);
}

TEST(the_cache_line_is_that_of_the_machine) {
    size_t line = quarry_cache_line();
    CHECK(line >= 16 && line <= 1024 && (line & (line - 1)) == 0);
#ifdef _SC_LEVEL1_DCACHE_LINESIZE
    long told = sysconf(_SC_LEVEL1_DCACHE_LINESIZE);
    if (told > 0) CHECK_EQ(line, told);
#endif
}

TEST(refusals) {
    page = qy_os_page_size();
    size_t before = mapped_in_all();
    CHECK(!quarry_map_aligned(-1, 0, 0, page, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK(!quarry_map_aligned(-1, 0, page, 3 * page, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK(!quarry_map_aligned(-1, 7, page, page, 0));
    CHECK_EQ(errno, EINVAL);
    CHECK(!quarry_map_aligned(-1, 0, page, page, 64));
    CHECK_EQ(errno, EINVAL);
    CHECK(!quarry_map_aligned(12345, 0, page, page, 0));
    CHECK_EQ(errno, EBADF);
    CHECK(!quarry_map_aligned(-2, 0, page, page, 0));
    CHECK_EQ(errno, EBADF);
    CHECK(!quarry_map_aligned(-1, 0, SIZE_MAX / 2 - page, page, 0));
    CHECK_EQ(errno, ENOMEM);
    CHECK(!quarry_map_aligned(-1, 0, page, (size_t)1 << 62, 0));
    CHECK_EQ(errno, ENOMEM);
    int fd = open("/dev/null", O_WRONLY);
    CHECK(!quarry_map_aligned(fd, 0, page, page, 0));
    close(fd);
    CHECK_EQ(quarry_unmap(NULL, page), -1);
    CHECK_EQ(quarry_unmap((void *)3, page), -1);
    for (unsigned n = 1; n < 4; n++) {
        quarry_os_fault(n, 1, (1u << QY_OS_RESERVE) | (1u << QY_OS_FILE_MAP));
        char *p = quarry_map_aligned(-1, 0, page, MIB, 0);
        quarry_os_fault(0, 0, 0);
        CHECK_EQ(p == NULL, n < 3);
        if (p) CHECK_EQ(quarry_unmap(p, page), 0);
    }
    CHECK_EQ(mapped_in_all(), before);
}

TEST_MAIN()
