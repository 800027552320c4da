// SPDX-License-Identifier: MIT
// mapfile.h: files that are mapped, for pools whose memory is a file.
//
// Functions that return int return 0 (or a descriptor) or -errno; none touches errno. Descriptors are
// close-on-exec and never 0, 1 or 2: a program that closed those must not find its diagnostics in a
// pool. Offsets and lengths of mappings are multiples of the page size.
// Threads: all functions are thread-safe.
#ifndef QY_OS_MAPFILE_H
#define QY_OS_MAPFILE_H

#include "os/os.h"

#define QY_FILE_WRITE 0x1u   // open for writing too
#define QY_FILE_CREATE 0x2u  // must not exist yet; mode 0600

typedef struct qy_file_stat {
    uint64_t bytes;
    uint64_t inode;
    uint64_t device;
    uint32_t links;  // names
    bool regular;
} qy_file_stat_t;

int qy_os_file_open(const char *path, unsigned flags);
int qy_os_file_memory(const char *name);  // a file without a name, in memory
// The same file under a descriptor out of the way of the program's, which mostly are small and are closed in
// loops; `fd` is closed. If there is none, `fd` itself.
int qy_os_file_hide(int fd);
int qy_os_file_stat(int fd, qy_file_stat_t *ret_stat);
// Remove the file's name.
int qy_os_file_remove(const char *path);

// A writer's lock that belongs to the open file description of fd: it goes when the last descriptor of it is closed,
// at the latest with the process. -EAGAIN: another one has it.
int qy_os_file_lock(int fd);
// Does another description hold the lock? 1 or 0.
int qy_os_file_locked(int fd);

// Make the file at least offset + bytes long, with disk blocks behind every byte of the range: a store to
// a mapping of it cannot fail for lack of space. -ENOSPC, -EFBIG (also where a limit would raise SIGXFSZ).
int qy_os_file_allocate(int fd, uint64_t offset, uint64_t bytes);
int qy_os_file_truncate(int fd, uint64_t bytes);
// Give the blocks of a range back; it reads as zero.
int qy_os_file_punch(int fd, uint64_t offset, uint64_t bytes);

// All of it, or -errno; -ENODATA if the file ends before.
int qy_os_file_read_at(int fd, void *buf, size_t bytes, uint64_t offset);
int qy_os_file_write_at(int fd, const void *buf, size_t bytes, uint64_t offset);
// The contents and size are on the disk.
int qy_os_file_sync(int fd);
// The name is on the disk.
int qy_os_file_sync_folder(const char *path);

#define QY_MAP_SHARED 0x1u
#define QY_MAP_WRITE 0x2u
// Replace the range at addr, which is the caller's, by a mapping of the file (fd -1: of fresh pages).
// False: the range is as it was.
bool qy_os_map_at(void *addr, size_t bytes, int fd, uint64_t offset, unsigned flags);
// Shared mappings: what was stored is on the disk.
int qy_os_map_sync(void *addr, size_t bytes);
// Private mappings: forget own changes; the range shows the file again.
bool qy_os_map_forget(void *addr, size_t bytes);
bool qy_os_map_read_only(void *addr, size_t bytes);
// Bring the pages of a shared, writable mapping into memory, ready to be written. 0, or -errno: a store there
// would end in a signal (no space, an error of the disk). A kernel that can't say this says 0.
int qy_os_map_touch(void *addr, size_t bytes);

// For each page from addr on: does this process have its own copy of a private mapping's page? One bit
// per page into `bits`, which is zeroed before. False: the kernel doesn't tell.
bool qy_os_map_own_pages(const void *addr, size_t pages, uint64_t *bits);

// Of the bytes from `from` to `to` of a file that is mapped shared, with its byte 0 at `base`: the first stretch that
// may have been written. False: there is none, and all of them read as zero. The caller knows that nobody writes there
// meanwhile. A file system that can't say where a file has no data counts as one where it has.
bool qy_os_map_written(int fd, const char *base, uint64_t from, uint64_t to, uint64_t *ret_from, uint64_t *ret_to);

// Names this run of the kernel: it changes when the machine starts anew. False: unknown, zeros.
bool qy_os_boot_id(uint64_t ret_id[2]);

#if defined(QY_CFG_FAKE) && QY_CFG_FAKE
// Tests see every change of a file in its order, before it is made.
typedef enum qy_file_event { QY_FILE_EVENT_WRITE,
    QY_FILE_EVENT_SYNC,
    QY_FILE_EVENT_SIZE,
    QY_FILE_EVENT_MSYNC } qy_file_event_t;
extern void (*qy_os_file_hook)(qy_file_event_t event, const void *data, uint64_t bytes, uint64_t offset);
// Not 0: the boot id, so that tests can restart the machine.
extern uint64_t qy_os_faked_boot_id;
#endif

#endif
