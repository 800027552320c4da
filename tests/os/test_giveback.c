// SPDX-License-Identifier: MIT
// Whether somebody watches libc's munmap, madvise, mremap and mmap: told for each way of changing their code, and
// untold when it is put back; and their wrappers say what the kernel says, with errno as it was.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/compiler.h"
#include "harness.h"
#include "os/giveback.h"
#include "os/os.h"

static const char *const names[] = {"munmap", "madvise", "mremap", "mmap"};

static void write_code(unsigned char *to, const unsigned char *from, size_t bytes) {
    uintptr_t page = (uintptr_t)to & -(uintptr_t)qy_os_page_size();
    CHECK_EQ(syscall(SYS_mprotect, page, 2 * qy_os_page_size(), PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    memcpy(to, from, bytes);
    CHECK_EQ(syscall(SYS_mprotect, page, 2 * qy_os_page_size(), PROT_READ | PROT_EXEC), 0);
}

#if QY_TSAN || QY_ASAN
#define NEED_LIBC() TEST_SKIP("needs a build without sanitizers: they have functions of their own in place of libc's")
#else
#define NEED_LIBC() (void)0
#endif

#if defined(__x86_64__)
#define ENDBR 0xF3, 0x0F, 0x1E, 0xFA
static const unsigned char changes[][14] = {{0xCC}, {0xE9, 1, 2, 3, 4}, {0xEB, 5}, {0xE8, 1, 2, 3, 4}, {0xFF, 0x25},
    {0x49, 0xBB}, {0x48, 0xB8}, {0x50, 0x48, 0xB8}, {0x68}, {0x0F, 0x0B}, {ENDBR, 0xE9}, {ENDBR, 0xCC}};
#elif defined(__aarch64__)
#define BTI_C 0x5F, 0x24, 0x03, 0xD5
#define PACIASP 0x3F, 0x23, 0x03, 0xD5
// brk, b, bl, br x16, blr x17, ldr x16, adrp x17, movz x16
static const unsigned char changes[][14] = {{0, 0, 0x20, 0xD4}, {4, 0, 0, 0x14}, {4, 0, 0, 0x94}, {0, 2, 0x1F, 0xD6},
    {0x20, 2, 0x3F, 0xD6}, {0x50, 0, 0, 0x58}, {0x11, 0, 0, 0x90}, {0x30, 0, 0x80, 0xD2}, {BTI_C, 4, 0, 0, 0x14},
    {PACIASP, 0, 0, 0x20, 0xD4}};
#else
#error "how is code changed on this processor?"
#endif
enum { CHANGES = sizeof changes / sizeof *changes };

// What was noted then is what was changed, so only the beginning of the code tells.
TEST(code_changed_before_the_start) {
    NEED_LIBC();
    for (size_t i = 0; i < CHANGES; i++)
        for (int f = 0; f < 4; f++) {
            pid_t pid = fork();
            if (!pid) {
                write_code(dlsym(RTLD_DEFAULT, names[f]), changes[i], sizeof changes[i]);
                qy_os_watch_begin();
                _exit(qy_os_is_watched() ? 0 : 1);
            }
            int status;
            CHECK_EQ(waitpid(pid, &status, 0), pid);
            if (status) TEST_FAIL("%s, change %zu: 0x%x", names[f], i, (unsigned)status);
        }
}

// An entry of this program that is not bound, since nothing is called by it, is nobody's doing.
TEST(nobody_watches) {
    static volatile bool call;
    NEED_LIBC();
    if (call) munmap(NULL, 0);
    qy_os_watch_begin();
    CHECK(!qy_os_is_watched());
    qy_os_watch_begin();
    CHECK(!qy_os_is_watched());
}

TEST(code_changed_since) {
    NEED_LIBC();
    for (size_t i = 0; i < CHANGES; i++)
        for (int f = 0; f < 4; f++) {
            unsigned char *code = dlsym(RTLD_DEFAULT, names[f]), before[sizeof changes[i]];
            memcpy(before, code, sizeof before);
            write_code(code, changes[i], sizeof before);
            bool seen = qy_os_is_watched();
            write_code(code, before, sizeof before);
            if (!seen) TEST_FAIL("%s, change %zu", names[f], i);
            CHECK(!qy_os_is_watched());
        }
}

TEST(answers_are_the_kernel_s) {
    size_t page = qy_os_page_size();
    char *p = qy_os_map(4 * page, page, NULL);
    CHECK(p);
    memset(p, 1, 4 * page);
    errno = 77;
    CHECK_EQ(qy_os_seen_madvise(p, page, MADV_DONTNEED), 0);
    CHECK_EQ(p[0], 0);
    CHECK_EQ(qy_os_seen_madvise(p, page, 12345), -EINVAL);
    CHECK_EQ(qy_os_seen_munmap(p + 1, page), -EINVAL);
    CHECK_EQ(qy_os_seen_mremap(p + 1, page, page, 0, NULL), -EINVAL);
    CHECK_EQ(qy_os_seen_mmap(p, page, PROT_READ, MAP_FIXED | MAP_SHARED, -1, 0), -EBADF);
    CHECK_EQ(qy_os_seen_mmap(p, page, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), (long)(uintptr_t)p);
    CHECK_EQ(qy_os_seen_munmap(p, 4 * page), 0);
    CHECK_EQ(errno, 77);
}

// It runs on the stack it was given, and only it.
static _Atomic int result;
static void in_bare_thread(void *arg) {
    char *p = arg;
    size_t page = qy_os_page_size();
    result = qy_os_seen_munmap(p + 1, page) == -EINVAL && qy_os_seen_madvise(p, page, 12345) == -EINVAL &&
                     qy_os_seen_munmap(p, page) == 0
                 ? 1
                 : 2;
}
TEST(a_bare_thread_calls_the_kernel) {
    size_t bytes = 65536;
    void *stack = qy_os_map(bytes, qy_os_page_size(), NULL), *p = qy_os_map(qy_os_page_size(), qy_os_page_size(), NULL);
    _Atomic uint32_t alive;
    if (!qy_os_spawn(in_bare_thread, p, stack, bytes, &alive))
        TEST_SKIP("needs a kernel and a build with bare threads");
    CHECK(qy_os_join(&alive, 0));
    CHECK_EQ(result, 1);
}

TEST_MAIN()
