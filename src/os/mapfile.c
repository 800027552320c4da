// SPDX-License-Identifier: MIT
// mapfile.c: files that are mapped.
#include "os/mapfile.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "base/num.h"
#include "os/fake.h"
#include "os/giveback.h"
#include "os/file.h"
#include "os/statx.h"
#include "os/syscall.h"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1u
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#if QY_CFG_FAKE
void (*qy_os_file_hook)(qy_file_event_t event, const void *data, uint64_t bytes, uint64_t offset);
uint64_t qy_os_faked_boot_id;
#define TELL(event, data, bytes, offset) \
    if (qy_os_file_hook) qy_os_file_hook(event, data, bytes, offset)
#else
#define TELL(event, data, bytes, offset) (void)0
#endif

// ---- opening --------------------------------------------------------------------------------------

// Out of the way of the standard three.
static int mapfile_move_up(long fd) {
    if (fd > 2 || fd < 0) return (int)fd;
    long up = qy_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    qy_syscall(SYS_close, fd);
    return (int)up;
}

// O_NONBLOCK: opening a FIFO must not wait; for regular files it means nothing.
int qy_os_file_open(const char *path, unsigned flags) {
    if (qy_os_fake_fails(QY_OS_OPEN)) return -EMFILE;
    int how = O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (flags & QY_FILE_WRITE ? O_RDWR : O_RDONLY) |
              (flags & QY_FILE_CREATE ? O_CREAT | O_EXCL : 0);
    return mapfile_move_up(qy_syscall(SYS_openat, AT_FDCWD, path, how, 0600));
}

int qy_os_file_memory(const char *name) {
    if (qy_os_fake_fails(QY_OS_OPEN)) return -EMFILE;
    return mapfile_move_up(qy_syscall(SYS_memfd_create, name, MFD_CLOEXEC));
}

#define HIDDEN 1000  // the kernel's table of descriptors is still small then

int qy_os_file_hide(int fd) {
    struct rlimit limit;
    rlim_t at = HIDDEN;
    if (qy_syscall(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit) == 0 && limit.rlim_cur < HIDDEN + 24)
        at = limit.rlim_cur - qy_min(24, limit.rlim_cur);
    long up = qy_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, at);
    if (up < 0 && fd <= 2) up = qy_syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
    if (up < 0) return fd;
    qy_syscall(SYS_close, fd);
    return (int)up;
}

int qy_os_file_stat(int fd, qy_file_stat_t *ret_stat) {
    if (qy_os_fake_fails(QY_OS_FILE_STAT)) return -EIO;
    qy_statx_t st;
    const unsigned wanted = QY_STATX_TYPE | QY_STATX_SIZE | QY_STATX_INO | QY_STATX_LINKS;
    long r = qy_syscall(SYS_statx, fd, "", AT_EMPTY_PATH, wanted, &st);
    if (r < 0) return (int)r;
    *ret_stat = (qy_file_stat_t){
        st.bytes, st.inode, (uint64_t)st.dev_major << 32 | st.dev_minor, st.links, S_ISREG(st.mode)};
    return 0;
}

int qy_os_file_remove(const char *path) { return (int)qy_syscall(SYS_unlinkat, AT_FDCWD, path, 0); }

// ---- the lock -------------------------------------------------------------------------------------

int qy_os_file_lock(int fd) {
    if (qy_os_fake_fails(QY_OS_FILE_LOCK)) return -ENOLCK;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    long r = qy_syscall(SYS_fcntl, fd, F_OFD_SETLK, &lock);
    return r == -EACCES ? -EAGAIN : (int)r;
}

int qy_os_file_locked(int fd) {
    if (qy_os_fake_fails(QY_OS_FILE_LOCK)) return -ENOLCK;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
    long r = qy_syscall(SYS_fcntl, fd, F_OFD_GETLK, &lock);
    return r < 0 ? (int)r : lock.l_type != F_UNLCK;
}

// ---- size and blocks --------------------------------------------------------------------------------

// Beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which ends a process that did not expect it.
static bool within_limit(uint64_t end) {
    struct rlimit limit;
    if (qy_syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &limit) != 0) return true;
    return limit.rlim_cur == RLIM_INFINITY || end <= limit.rlim_cur;
}

// File systems without fallocate: zeros are written where the file had no bytes yet. What it had may be
// a hole, so it is written again as it is.
static int allocate_by_writing(int fd, uint64_t offset, uint64_t bytes) {
    char page[4096];
    for (uint64_t at = offset, end = offset + bytes; at < end;) {
        size_t n = (size_t)qy_min(sizeof page, end - at);
        long got = qy_syscall(SYS_pread64, fd, page, n, at);
        if (got < 0 && got != -EINTR) return (int)got;
        for (size_t i = got > 0 ? (size_t)got : 0; i < n; i++) page[i] = 0;
        long put = got == -EINTR ? got : qy_syscall(SYS_pwrite64, fd, page, n, at);
        if (put == -EINTR) continue;
        if (put <= 0) return put ? (int)put : -ENOSPC;
        at += (uint64_t)put;
    }
    return 0;
}

int qy_os_file_allocate(int fd, uint64_t offset, uint64_t bytes) {
    if (qy_os_fake_fails(QY_OS_FILE_ALLOCATE)) return -ENOSPC;
    uint64_t end;
    if (__builtin_add_overflow(offset, bytes, &end) || end > INT64_MAX || !within_limit(end)) return -EFBIG;
    TELL(QY_FILE_EVENT_SIZE, NULL, bytes, offset);
    long r;
    do r = qy_syscall(SYS_fallocate, fd, 0, offset, bytes);
    while (r == -EINTR);
    if (r == -EOPNOTSUPP || r == -ENOSYS) return allocate_by_writing(fd, offset, bytes);
    return (int)r;
}

int qy_os_file_truncate(int fd, uint64_t bytes) {
    if (qy_os_fake_fails(QY_OS_FILE_TRUNCATE)) return -EIO;
    if (!within_limit(bytes)) return -EFBIG;
    TELL(QY_FILE_EVENT_SIZE, NULL, 0, bytes);
    return (int)qy_syscall(SYS_ftruncate, fd, bytes);
}

int qy_os_file_punch(int fd, uint64_t offset, uint64_t bytes) {
    if (qy_os_fake_fails(QY_OS_PURGE)) return -EOPNOTSUPP;
    return (int)qy_syscall(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

// ---- contents -----------------------------------------------------------------------------------------

int qy_os_file_read_at(int fd, void *buf, size_t bytes, uint64_t offset) {
    if (qy_os_fake_fails(QY_OS_FILE_READ)) return -EIO;
    for (char *at = buf; bytes;) {
        long n = qy_syscall(SYS_pread64, fd, at, bytes, offset);
        if (n == -EINTR) continue;
        if (n <= 0) return n ? (int)n : -ENODATA;
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int qy_os_file_write_at(int fd, const void *buf, size_t bytes, uint64_t offset) {
    if (qy_os_fake_fails(QY_OS_FILE_WRITE)) return -EIO;
    if (!within_limit(offset + bytes)) return -EFBIG;
    TELL(QY_FILE_EVENT_WRITE, buf, bytes, offset);
    for (const char *at = buf; bytes;) {
        long n = qy_syscall(SYS_pwrite64, fd, at, bytes, offset);
        if (n == -EINTR) continue;
        if (n <= 0) return n ? (int)n : -ENOSPC;
        at += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

int qy_os_file_sync(int fd) {
    if (qy_os_fake_fails(QY_OS_FILE_SYNC)) return -EIO;
    TELL(QY_FILE_EVENT_SYNC, NULL, 0, 0);
    long r;
    do r = qy_syscall(SYS_fdatasync, fd);
    while (r == -EINTR);
    return (int)r;
}

// A path that is too long for us is left to the kernel's own habits; the file itself is synced anyway.
int qy_os_file_sync_folder(const char *path) {
    char folder[4096] = ".";
    size_t cut = 0, n = 0;
    for (; path[n] && n < sizeof folder - 1; n++)
        if (path[n] == '/') cut = n + 1;
    if (path[n]) return 0;
    for (size_t i = 0; i < cut; i++) folder[i] = path[i];
    if (cut) folder[cut] = '\0';
    if (qy_os_fake_fails(QY_OS_FILE_SYNC)) return -EIO;
    long fd = qy_syscall(SYS_openat, AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return (int)fd;
    long r = qy_syscall(SYS_fsync, fd);
    qy_syscall(SYS_close, fd);
    return r == -EINVAL ? 0 : (int)r;  // some file systems keep no order of names
}

// ---- mappings -------------------------------------------------------------------------------------------

bool qy_os_map_at(void *addr, size_t bytes, int fd, uint64_t offset, unsigned flags) {
    if (qy_os_fake_fails(QY_OS_FILE_MAP)) return false;
    int prot = PROT_READ | (flags & QY_MAP_WRITE ? PROT_WRITE : 0);
    int how =
        MAP_FIXED | MAP_NORESERVE | (flags & QY_MAP_SHARED ? MAP_SHARED : MAP_PRIVATE) | (fd < 0 ? MAP_ANONYMOUS : 0);
#if QY_TSAN
    int saved = errno;  // as in memory.c: ThreadSanitizer must see mappings
    bool mapped = mmap(addr, bytes, prot, how, fd, (off_t)offset) == addr;
    errno = saved;
    return mapped;
#else
    return qy_syscall(SYS_mmap, addr, bytes, prot, how, fd, offset) == (long)(uintptr_t)addr;
#endif
}

int qy_os_map_sync(void *addr, size_t bytes) {
    if (qy_os_fake_fails(QY_OS_FILE_SYNC)) return -EIO;
    TELL(QY_FILE_EVENT_MSYNC, addr, bytes, 0);
    return (int)qy_syscall(SYS_msync, addr, bytes, MS_SYNC);
}

bool qy_os_map_forget(void *addr, size_t bytes) {
    return !qy_os_fake_fails(QY_OS_PURGE) && qy_os_seen_madvise(addr, bytes, MADV_DONTNEED) == 0;
}

bool qy_os_map_read_only(void *addr, size_t bytes) { return qy_syscall(SYS_mprotect, addr, bytes, PROT_READ) == 0; }

int qy_os_map_touch(void *addr, size_t bytes) {
    if (qy_os_fake_fails(QY_OS_POPULATE)) return -EFAULT;
    long r = qy_syscall(SYS_madvise, addr, bytes, MADV_POPULATE_WRITE);
    return r == -EFAULT || r == -ENOMEM || r == -EHWPOISON ? (int)r : 0;
}

// Bits of an entry of /proc/self/pagemap that anyone may read.
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_OF_FILE (UINT64_C(1) << 61)

bool qy_os_map_own_pages(const void *addr, size_t pages, uint64_t *bits) {
    uint64_t entries[512];
    size_t page = qy_os_page_size();
    for (size_t i = 0; i < (pages + 63) / 64; i++) bits[i] = 0;
    int fd = qy_os_open_read("/proc/self/pagemap");
    if (fd < 0) return false;
    bool told = true;
    for (size_t i = 0; i < pages && told;) {
        size_t n = qy_min(pages - i, 512);
        told = qy_os_file_read_at(fd, entries, n * 8, ((uintptr_t)addr / page + i) * 8) == 0;
        for (size_t k = 0; k < n && told; k++, i++)
            if ((entries[k] & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entries[k] & ENTRY_OF_FILE))
                bits[i / 64] |= UINT64_C(1) << i % 64;
    }
    qy_os_close(fd);
    return told;
}

#ifndef SEEK_DATA
#define SEEK_DATA 3
#define SEEK_HOLE 4
#endif
#define WRITTEN_PAGES 512

// The kernel counts in its own pages, whatever size a test pretends.
static size_t kernel_page(void) { return QY_CFG_FAKE ? 4096 : qy_os_page_size(); }

// How many of the pages from `at` on are alike, and whether they are in memory. `most` at the most.
static size_t pages_alike(const char *at, size_t most, bool *ret_resident) {
    unsigned char in[WRITTEN_PAGES];
    size_t n = 1;
    *ret_resident = true;
    if (qy_syscall(SYS_mincore, at, most * kernel_page(), in) != 0) return most;
    *ret_resident = in[0] & 1;
    while (n < most && !((in[n] ^ in[0]) & 1)) n++;
    return n;
}

// The first data of the file from `from` on, before `to`. A refusal counts as data.
static bool data_between(int fd, uint64_t from, uint64_t to, uint64_t *ret_from, uint64_t *ret_to) {
    long data = qy_syscall(SYS_lseek, fd, from, SEEK_DATA);
    if (data == -ENXIO || (data >= 0 && (uint64_t)data >= to)) return false;
    long hole = data < 0 ? data : qy_syscall(SYS_lseek, fd, data, SEEK_HOLE);
    *ret_from = data < 0 ? from : qy_max((uint64_t)data, from);
    *ret_to = hole < 0 ? to : qy_min((uint64_t)hole, to);
    return true;
}

// What was stored through a mapping may be known to the page cache alone, and the file system may not count it yet. So
// a page in memory counts as written. The cache is asked first: what has left it since is known to the file system.
bool qy_os_map_written(int fd, const char *base, uint64_t from, uint64_t to, uint64_t *ret_from, uint64_t *ret_to) {
    size_t page = kernel_page();
    while (from < to) {
        uint64_t first = qy_round_down(from, page);
        bool resident;
        size_t n = pages_alike(base + first, qy_min((qy_round_up(to, page) - first) / page, WRITTEN_PAGES), &resident);
        uint64_t end = qy_min(first + n * page, to);
        *ret_from = from;
        *ret_to = end;
        if (resident || data_between(fd, from, end, ret_from, ret_to)) return true;
        from = end;
    }
    return false;
}

// ---- the machine ------------------------------------------------------------------------------------------

bool qy_os_boot_id(uint64_t ret_id[2]) {
    char text[64];
    unsigned digits = 0;
    ret_id[0] = ret_id[1] = 0;
#if QY_CFG_FAKE
    if (qy_os_faked_boot_id) {
        ret_id[0] = qy_os_faked_boot_id;
        return true;
    }
#endif
    size_t n = qy_os_read_small("/proc/sys/kernel/random/boot_id", text, sizeof text);
    for (size_t i = 0; i < n && digits < 32; i++) {
        char c = text[i];
        unsigned value = c >= '0' && c <= '9' ? (unsigned)(c - '0') : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                                                           : 16;
        if (value > 15) continue;
        ret_id[digits / 16] = ret_id[digits / 16] << 4 | value;
        digits++;
    }
    return digits == 32;
}
