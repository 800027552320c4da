// SPDX-License-Identifier: MIT
// field.h: what the programs of tests/field share. They see public functions of libc alone, since any malloc may serve
// them.
#ifndef QUARRY_TESTS_FIELD_H
#define QUARRY_TESTS_FIELD_H

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "captured.h"

#define UNUSED __attribute__((unused))

// A pointer of which the compiler knows nothing.
UNUSED static void *opaque(void *p) {
    __asm__ volatile(""
                     : "+r"(p)::"memory");
    return p;
}

// So many blocks of a size at once, touched at their first page, and freed again.
UNUSED static void many(size_t size, int count) {
    char **p = (char **)malloc((size_t)count * sizeof *p);
    CHECK(p != NULL);
    for (int i = 0; i < count; i++) {
        p[i] = (char *)malloc(size);
        if (!p[i]) TEST_FAIL("block %d of %zu bytes: errno %d", i, size, errno);
        memset(p[i], i, size < 4096 ? size : 4096);
    }
    for (int i = 0; i < count; i++) free(p[i]);
    free(p);
}

// Work that reaches all parts of an allocator: small, medium and huge blocks, growth by realloc.
UNUSED static void work(void) {
    many(100, 20000);
    many(5000, 500);
    many(100000, 50);
    many((size_t)3 << 20, 4);
    many((size_t)40 << 20, 2);
    char *p = NULL;
    for (size_t n = 100; n < (size_t)20 << 20; n = n * 3 / 2) {
        p = (char *)realloc(p, n);
        CHECK(p != NULL);
        p[n - 1] = 1;
    }
    free(p);
}

// Column 0 of /proc/self/statm is address space, 1 is resident memory; in MiB.
UNUSED static double memory_mib(int column) {
    char text[200];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    CHECK_GE(fd, 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    CHECK_GT(n, 0);
    text[n] = '\0';
    char *at = text;
    long pages = strtol(at, &at, 10);
    if (column) pages = strtol(at, &at, 10);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576.0;
}

UNUSED static int entries(const char *folder) {
    DIR *d = opendir(folder);
    if (!d) return -1;
    int n = 0;
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

// How much longer than usual to wait for what must come: run.py says so.
UNUSED static int patience(void) {
    const char *text = getenv("FIELD_PATIENCE");
    return text ? atoi(text) : 1;
}

UNUSED static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}
// The processor's time that this thread has used.
UNUSED static double used_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

// A seccomp filter for this thread: the listed calls get one answer, all others the other. SECCOMP_RET_ERRNO | EPERM,
// for one.
UNUSED static int filter(const int *calls, unsigned count, unsigned listed, unsigned others) {
    struct sock_filter code[128];
    if (count > 120) return 0;
    code[0] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++)
        code[1 + i] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], (unsigned char)(count - i), 0);
    code[count + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, others);
    code[count + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, listed);
    struct sock_fprog program = {(unsigned short)(count + 3), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

#endif
