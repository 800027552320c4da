// SPDX-License-Identifier: MIT
// advice.c: what a program expects of its pages, told to the kernel.
//
// Advice that takes pages away goes through libc's madvise, where other libraries see it (giveback.h).
#include "os/advice.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "os/fake.h"
#include "os/giveback.h"
#include "os/syscall.h"

// Numbers of the kernel's that a C library may not have yet. They are the same on all processors we build for.
enum { FREE = 8,
    WIPE_ON_FORK = 18,
    KEEP_ON_FORK = 19,
    COLD = 20,
    PAGE_OUT = 21,
    POPULATE_READ = 22,
    POPULATE_WRITE = 23,
    COLLAPSE = 25 };

static const unsigned char numbers[QY_ADVICES] = {
    [QY_ADVICE_NORMAL] = MADV_NORMAL,
    [QY_ADVICE_SEQUENTIAL] = MADV_SEQUENTIAL,
    [QY_ADVICE_RANDOM] = MADV_RANDOM,
    [QY_ADVICE_WILL_NEED] = MADV_WILLNEED,
    [QY_ADVICE_POPULATE_READ] = POPULATE_READ,
    [QY_ADVICE_POPULATE] = POPULATE_WRITE,
    [QY_ADVICE_COLD] = COLD,
    [QY_ADVICE_PAGE_OUT] = PAGE_OUT,
    [QY_ADVICE_FREE] = FREE,
    [QY_ADVICE_DROP] = MADV_DONTNEED,
    [QY_ADVICE_REMOVE] = MADV_REMOVE,
    [QY_ADVICE_HUGE] = MADV_HUGEPAGE,
    [QY_ADVICE_NO_HUGE] = MADV_NOHUGEPAGE,
    [QY_ADVICE_COLLAPSE] = COLLAPSE,
    [QY_ADVICE_MERGE] = MADV_MERGEABLE,
    [QY_ADVICE_NO_MERGE] = MADV_UNMERGEABLE,
    [QY_ADVICE_NO_DUMP] = MADV_DONTDUMP,
    [QY_ADVICE_DUMP] = MADV_DODUMP,
    [QY_ADVICE_NO_FORK] = MADV_DONTFORK,
    [QY_ADVICE_FORK] = MADV_DOFORK,
    [QY_ADVICE_WIPE_ON_FORK] = WIPE_ON_FORK,
    [QY_ADVICE_KEEP_ON_FORK] = KEEP_ON_FORK,
};

static bool takes_pages(qy_advice_t advice) {
    return advice == QY_ADVICE_FREE || advice == QY_ADVICE_DROP || advice == QY_ADVICE_REMOVE;
}

int qy_os_advise(void *addr, size_t bytes, qy_advice_t advice) {
    if (qy_os_fake_fails(QY_OS_ADVISE)) return -ENOMEM;
    int number = numbers[advice];
    long r = takes_pages(advice) ? qy_os_seen_madvise(addr, bytes, number)
                                 : qy_syscall(SYS_madvise, addr, bytes, number);
    // The kernel looks at the number first, and has nothing else to refuse in no pages at all.
    if (r == -EINVAL && qy_syscall(SYS_madvise, addr, 0, number) == -EINVAL) r = -ENOTSUP;
    return (int)r;
}
