// SPDX-License-Identifier: MIT
// share.c: see share.h.
#include "os/share.h"

#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>

#include "os/fake.h"
#include "os/syscall.h"

#define INDEX_MASK 0x7FFF  // a segment's number is its place in the table, and above it a count of who had the place before

#if defined(SYS_shmget) && defined(SYS_shmat)
void *qy_os_share(size_t bytes) {
    if (qy_os_fake_fails(QY_OS_SHARE)) return NULL;
    long id = qy_syscall(SYS_shmget, IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    if (id < 0) return NULL;
    long addr = (id & INDEX_MASK) < QY_SHARE_PLACES ? qy_syscall(SYS_shmat, id, NULL, 0) : -EAGAIN;
    // Attached or not, from here on nobody has to think of it again.
    qy_syscall(SYS_shmctl, id, IPC_RMID, NULL);
    if (qy_syscall_failed(addr)) return NULL;
    if (qy_syscall(SYS_madvise, addr, bytes, MADV_DONTFORK) != 0) {
        qy_os_unshare((void *)addr);
        return NULL;
    }
    return (void *)addr;
}

void qy_os_unshare(void *addr) { qy_syscall(SYS_shmdt, addr); }
#else
void *qy_os_share(size_t bytes) {
    (void)bytes;
    return NULL;
}
void qy_os_unshare(void *addr) { (void)addr; }
#endif
