// SPDX-License-Identifier: MIT
// process.c: what a process can find out about itself.
#include "os/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/num.h"
#include "os/fake.h"
#include "os/file.h"
#include "os/syscall.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#define MEMBARRIER_PRIVATE 8  // MEMBARRIER_CMD_PRIVATE_EXPEDITED
#define MEMBARRIER_REGISTER 16

int qy_os_parent_id(void) { return (int)qy_syscall(SYS_getppid); }

uint64_t qy_os_now_unix_ns(void) {
    struct timespec t;
    if (qy_syscall(SYS_clock_gettime, CLOCK_REALTIME, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

size_t qy_os_program_path(char *buf, size_t bytes) {
    long n = qy_syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", buf, bytes - 1);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

size_t qy_os_command_line(char *buf, size_t bytes) { return qy_os_read_small("/proc/self/cmdline", buf, bytes); }

size_t qy_os_thread_name(char *buf, size_t bytes) {
    char name[16] = {0};
    if (qy_syscall(SYS_prctl, PR_GET_NAME, name) != 0) name[0] = '\0';
    size_t n = 0;
    for (; n + 1 < bytes && n < sizeof name && name[n]; n++) buf[n] = name[n];
    buf[n] = '\0';
    return n;
}

size_t qy_os_name_of_thread(int thread_id, char *buf, size_t bytes) {
    char path[64] = "/proc/self/task/", digits[12];
    size_t n = 0, at = sizeof "/proc/self/task/" - 1;
    for (unsigned rest = (unsigned)thread_id; rest || !n; rest /= 10) digits[n++] = (char)('0' + rest % 10);
    while (n) path[at++] = digits[--n];
    for (const char *c = "/comm"; *c; c++) path[at++] = *c;
    path[at] = '\0';
    n = qy_os_read_small(path, buf, bytes);
    if (n && buf[n - 1] == '\n') buf[--n] = '\0';
    if (!n) buf[0] = '\0';
    return n;
}

// Signal 0 asks only.
bool qy_os_thread_lives(int thread_id) { return qy_syscall(SYS_tgkill, qy_os_process_id(), thread_id, 0) != -ESRCH; }

// ---- memory ---------------------------------------------------------------------------------------------

bool qy_os_memory_use(uint64_t *ret_anonymous, uint64_t *ret_file) {
    char text[128];
    uint64_t field[3] = {0};  // pages: of address space, resident, of them shared
    size_t n = qy_os_read_small("/proc/self/statm", text, sizeof text), i = 0;
    for (size_t k = 0; k < n && i < 3; k++) {
        if (text[k] >= '0' && text[k] <= '9') field[i] = field[i] * 10 + (uint64_t)(text[k] - '0');
        else i++;
    }
    if (i < 3 || field[2] > field[1]) return false;
    *ret_anonymous = (field[1] - field[2]) * qy_os_page_size();
    *ret_file = field[2] * qy_os_page_size();
    return true;
}

#define SAMPLES ((size_t)16)
#define SAMPLE_PAGES ((size_t)256)

// Pages of [addr, addr + pages) in memory, at most SAMPLE_PAGES of them asked for.
static size_t resident_pages(uintptr_t addr, size_t pages) {
    unsigned char in_core[SAMPLE_PAGES];
    size_t count = 0;
    if (qy_syscall(SYS_mincore, addr, pages * qy_os_page_size(), in_core) != 0) return 0;
    for (size_t i = 0; i < pages; i++) count += in_core[i] & 1;
    return count;
}

size_t qy_os_resident(const void *addr, size_t bytes) {
    size_t page = qy_os_page_size(), found = 0, asked = 0;
    uintptr_t begin = qy_round_down((uintptr_t)addr, page);
    size_t pages = (qy_round_up((uintptr_t)addr + bytes, page) - begin) / page;
    size_t step = qy_max(SAMPLE_PAGES, pages / SAMPLES);
    for (size_t at = 0; at < pages; at += step) {
        size_t n = qy_min(SAMPLE_PAGES, pages - at);
        found += resident_pages(begin + at * page, n);
        asked += n;
    }
    size_t whole = asked ? (size_t)((double)found / (double)asked * (double)pages) * page : 0;
    return qy_min(whole, bytes);
}

bool qy_os_wipe_on_fork(void *addr, size_t bytes) {
    return !qy_os_fake_fails(QY_OS_WIPE) && qy_syscall(SYS_madvise, addr, bytes, MADV_WIPEONFORK) == 0;
}

// ---- threads --------------------------------------------------------------------------------------------

void qy_os_barrier_prepare(void) { qy_syscall(SYS_membarrier, MEMBARRIER_REGISTER, 0); }
bool qy_os_barrier(void) { return qy_syscall(SYS_membarrier, MEMBARRIER_PRIVATE, 0) == 0; }

long qy_os_leave_namespaces(int flags) { return qy_syscall(SYS_unshare, flags); }
long qy_os_join_namespace(int fd, int type) { return qy_syscall(SYS_setns, fd, type); }

// ---- the environment ------------------------------------------------------------------------------------

bool qy_os_environment_known(void) { return environ != NULL; }

void qy_os_replace_env(const char *name, char *entry) {
    for (char **e = environ; e && *e; e++) {
        size_t i = 0;
        while (name[i] && (*e)[i] == name[i]) i++;
        if (name[i] || (*e)[i] != '=') continue;
        *e = entry;
        return;
    }
}
