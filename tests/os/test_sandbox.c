// SPDX-License-Identifier: MIT
// A bare thread of a privileged process may give memory back and do nothing else.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/compiler.h"
#include "harness.h"
#include "os/os.h"
#include "os/syscall.h"

static _Atomic uint32_t alive;
static char stack[64 * 1024] __attribute__((aligned(4096)));
static struct {
    bool sandboxed;
    long open, kill, prctl, setuid, futex, madvise;
} seen;

static void body(void *page) {
    static const char path[] = "/dev/null";
    seen.sandboxed = qy_os_sandbox_thread();
    seen.open = qy_syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
    seen.kill = qy_syscall(SYS_tgkill, qy_os_process_id(), qy_os_process_id(), 0);
    seen.prctl = qy_syscall(SYS_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);
    seen.setuid = qy_syscall(SYS_setuid, 0);
    _Atomic uint32_t word = 1;
    seen.futex = qy_syscall(SYS_futex, &word, 128, 2, 0);  // private wait for another value
    seen.madvise = qy_syscall(SYS_madvise, page, 4096, MADV_DONTNEED);
}

static bool run(void) {
    char *page = qy_os_map(qy_os_page_size(), qy_os_page_size(), NULL);
    CHECK(page != NULL);
    if (!qy_os_spawn(body, page, stack, sizeof stack, &alive)) return false;
    CHECK(qy_os_join(&alive, 0));
    CHECK(qy_os_unmap(page, qy_os_page_size()));
    return true;
}

TEST(privileged_process) {
    if (geteuid() != 0) TEST_SKIP("needs root");
    if (!run()) TEST_SKIP("needs a kernel and a build with bare threads");
    if (!seen.sandboxed) TEST_SKIP("needs a kernel with seccomp filters");
    CHECK_EQ(seen.open, -EPERM);
    CHECK_EQ(seen.kill, -EPERM);
    CHECK_EQ(seen.prctl, -EPERM);
    CHECK_EQ(seen.setuid, -EPERM);
    CHECK_EQ(seen.futex, -EAGAIN);
    CHECK_EQ(seen.madvise, 0);
    // The process itself is as free as before.
    int fd = open("/dev/null", O_RDONLY);
    CHECK_GE(fd, 0);
    close(fd);
    CHECK_EQ(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
}

// Last: there is no way back.
TEST(without_privileges_no_filter) {
    if (geteuid() == 0 && syscall(SYS_setresuid, 65534, 65534, 65534) != 0)
        TEST_SKIP("needs the right to drop privileges");
    if (!run()) TEST_SKIP("needs a kernel and a build with bare threads");
    CHECK(seen.sandboxed);
    CHECK_GE(seen.open, 0);
    CHECK_EQ(seen.madvise, 0);
}

TEST_MAIN()
