// SPDX-License-Identifier: MIT
// newfile.c: see newfile.h.
#include "os/newfile.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>

#include "os/fake.h"
#include "os/mapfile.h"
#include "os/statx.h"
#include "os/syscall.h"

#define BESIDE ".quarry-"
#define DESCRIPTOR "/proc/self/fd/"

// ".quarry-0123456789abcdef", or with base 10 the path of a descriptor.
static void write_name(char *to, const char *begin, uint64_t number, unsigned base, unsigned digits) {
    while (*begin) *to++ = *begin++;
    if (!digits) {
        uint64_t rest = number;
        do digits++;
        while (rest /= base);
    }
    to[digits] = '\0';
    for (; digits; number /= base) to[--digits] = "0123456789abcdef"[number % base];
}

typedef struct {
    char text[sizeof BESIDE + 16];
} beside_t;
static beside_t newfile_beside(uint64_t number) {
    beside_t name;
    write_name(name.text, BESIDE, number, 16, 16);
    return name;
}

static int open_folder(const char *path) {
    char folder[4096] = ".";
    size_t cut = 0, n = 0;
    for (; path[n] && n < sizeof folder - 1; n++)
        if (path[n] == '/') cut = n + 1;
    if (path[n]) return -ENAMETOOLONG;
    for (size_t i = 0; i < cut; i++) folder[i] = path[i];
    if (cut) folder[cut] = '\0';
    return (int)qy_syscall(SYS_openat, AT_FDCWD, folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int open_unnamed(int folder) {
    if (qy_os_fake_fails(QY_OS_FILE_UNNAMED)) return -EOPNOTSUPP;
    int fd = (int)qy_syscall(SYS_openat, folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    // What the kernel says that knows no such files, and takes it for a folder.
    return fd == -EISDIR || fd == -ENOENT || fd == -EINVAL ? -EOPNOTSUPP : fd;
}

int qy_os_new_file(const char *path, bool named, qy_new_file_t *ret_file) {
    if (qy_os_fake_fails(QY_OS_OPEN)) return -EMFILE;
    int folder = open_folder(path), fd;
    if (folder < 0) return folder;
    uint64_t number = named ? qy_os_random() : 0;
    if (named)
        fd = (int)qy_syscall(
            SYS_openat, folder, newfile_beside(number).text, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    else fd = open_unnamed(folder);
    if (fd < 0 || !named) {
        qy_syscall(SYS_close, folder);
        folder = -1;
    } else folder = qy_os_file_hide(folder);
    if (fd < 0) return fd;
    *ret_file = (qy_new_file_t){qy_os_file_hide(fd), folder, number};
    return 0;
}

static int link_unnamed(int fd, const char *path) {
    char name[sizeof DESCRIPTOR + 20];
    write_name(name, DESCRIPTOR, (uint64_t)(unsigned)fd, 10, 0);
    long r = qy_os_fake_fails(QY_OS_FILE_LINK)
                 ? -ENOENT
                 : qy_syscall(SYS_linkat, AT_FDCWD, name, AT_FDCWD, path, AT_SYMLINK_FOLLOW);
    return r == 0 || r == -EEXIST ? (int)r : -EOPNOTSUPP;
}

// Where a file system can neither rename without replacing nor link: the name is taken first, by a file that is empty
// for a moment.
static int take_and_replace(int folder, const char *from, const char *path) {
    long fd = qy_syscall(SYS_openat, AT_FDCWD, path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) return (int)fd;
    qy_syscall(SYS_close, fd);
    long r = qy_syscall(SYS_renameat2, folder, from, AT_FDCWD, path, 0);
    if (r < 0) qy_syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return (int)r;
}

static int rename_named(int folder, const char *from, const char *path) {
    long r = qy_os_fake_fails(QY_OS_FILE_RENAME)
                 ? -EINVAL
                 : qy_syscall(SYS_renameat2, folder, from, AT_FDCWD, path, RENAME_NOREPLACE);
    if (r != -EINVAL && r != -ENOSYS) return (int)r;
    r = qy_os_fake_fails(QY_OS_FILE_LINK) ? -EPERM : qy_syscall(SYS_linkat, folder, from, AT_FDCWD, path, 0);
    if (r == 0) qy_syscall(SYS_unlinkat, folder, from, 0);
    return r == 0 || r == -EEXIST ? (int)r : take_and_replace(folder, from, path);
}

int qy_os_new_file_finish(qy_new_file_t *file, const char *path) {
    if (file->folder < 0) return link_unnamed(file->fd, path);
    int error = rename_named(file->folder, newfile_beside(file->number).text, path);
    if (error) return error;
    qy_syscall(SYS_close, file->folder);
    file->folder = -1;
    return 0;
}

void qy_os_new_file_abandon(qy_new_file_t *file) {
    if (file->folder >= 0) {
        qy_syscall(SYS_unlinkat, file->folder, newfile_beside(file->number).text, 0);
        qy_syscall(SYS_close, file->folder);
    }
    qy_syscall(SYS_close, file->fd);
    *file = (qy_new_file_t){-1, -1, 0};
}

bool qy_os_file_exists(const char *path) {
    qy_statx_t st;
    return qy_syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, QY_STATX_TYPE, &st) == 0;
}
