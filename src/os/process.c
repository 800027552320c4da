// SPDX-License-Identifier: MIT
// process.c: what a process can find out about itself.
#include "os/process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
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

static size_t process_link(const char *link, char *buf, size_t bytes) {
    long n = qy_syscall(SYS_readlinkat, AT_FDCWD, link, buf, bytes - 1);
    buf[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

// Without a NUL.
static size_t put_decimal(unsigned number, char *text) {
    char digits[12];
    size_t n = 0, length = 0;
    for (unsigned rest = number; rest || !n; rest /= 10) digits[n++] = (char)('0' + rest % 10);
    while (n) text[length++] = digits[--n];
    return length;
}

size_t qy_os_program_path(char *buf, size_t bytes) { return process_link("/proc/self/exe", buf, bytes); }

size_t qy_os_descriptor_path(int fd, char *buf, size_t bytes) {
    char link[32] = "/proc/self/fd/";
    buf[0] = '\0';
    if (fd < 0) return 0;
    put_decimal((unsigned)fd, link + sizeof "/proc/self/fd/" - 1);
    return process_link(link, buf, bytes);
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
    char path[64] = "/proc/self/task/";
    size_t at = sizeof "/proc/self/task/" - 1;
    at += put_decimal((unsigned)thread_id, path + at);
    for (const char *c = "/comm"; *c; c++) path[at++] = *c;
    path[at] = '\0';
    size_t n = qy_os_read_small(path, buf, bytes);
    if (n && buf[n - 1] == '\n') buf[--n] = '\0';
    if (!n) buf[0] = '\0';
    return n;
}

// Signal 0 asks only.
bool qy_os_thread_lives(int thread_id) { return qy_syscall(SYS_tgkill, qy_os_process_id(), thread_id, 0) != -ESRCH; }

// ---- memory ---------------------------------------------------------------------------------------------

// The number behind `name` in the text of /proc/self/status, which has it in KiB.
static bool status_bytes(const char *text, const char *name, uint64_t *ret) {
    const char *at = strstr(text, name);
    if (!at) return false;
    uint64_t kib = 0;
    for (at += strlen(name); *at == ' ' || *at == '\t'; at++) {}
    for (; *at >= '0' && *at <= '9'; at++) kib = kib * 10 + (uint64_t)(*at - '0');
    *ret = kib * 1024;
    return true;
}

uint64_t qy_os_cpu_ns(void) {
    struct timespec cpu = {0, 0};
    qy_syscall(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &cpu);
    return (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec;
}

bool qy_os_usage(qy_os_usage_t *ret) {
    char text[2048];  // the names stand in the first 1000 bytes, but for those who are in many groups
    if (!qy_os_read_small("/proc/self/status", text, sizeof text)) return false;
    ret->no_huge_pages = qy_syscall(SYS_prctl, PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1;
    ret->cpu_ns = qy_os_cpu_ns();
    return status_bytes(text, "\nVmHWM:", &ret->peak) && status_bytes(text, "\nRssAnon:", &ret->anonymous) &&
           status_bytes(text, "\nRssFile:", &ret->file) && status_bytes(text, "\nRssShmem:", &ret->shared);
}

#define PAGEMAP_ENTRIES ((size_t)128)
#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_OF_FILE (UINT64_C(1) << 61)  // or shared

void qy_os_mapped(uintptr_t begin, size_t bytes, uint64_t *sum_anonymous, uint64_t *sum_file) {
    uint64_t entry[PAGEMAP_ENTRIES];
    size_t page = qy_os_page_size(), first = begin / page, count = (begin % page + bytes + page - 1) / page;
    int fd = qy_os_open_read("/proc/self/pagemap");
    if (fd < 0) return;
    for (size_t at = 0; at < count;) {
        size_t wanted = qy_min(PAGEMAP_ENTRIES, count - at);
        long n = qy_syscall(SYS_pread64, fd, entry, wanted * sizeof *entry, (first + at) * sizeof *entry);
        if (n < (long)sizeof *entry) break;
        size_t got = (size_t)n / sizeof *entry;
        for (size_t i = 0; i < got; i++) {
            if (!(entry[i] & PAGE_PRESENT)) continue;
            *(entry[i] & PAGE_OF_FILE ? sum_file : sum_anonymous) += page;
        }
        at += got;
    }
    qy_os_close(fd);
}

#define SAMPLES ((size_t)16)
#define SAMPLE_PAGES ((size_t)256)

bool qy_os_present(uintptr_t first, size_t pages, unsigned char *ret_present) {
    return qy_syscall(SYS_mincore, first, pages * qy_os_page_size(), ret_present) == 0;
}

// Pages of [addr, addr + pages) in memory, at most SAMPLE_PAGES of them asked for.
static size_t resident_pages(uintptr_t addr, size_t pages) {
    unsigned char in_core[SAMPLE_PAGES];
    size_t count = 0;
    if (!qy_os_present(addr, pages, in_core)) return 0;
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
