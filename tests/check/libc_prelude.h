// SPDX-License-Identifier: MIT
// libc_prelude.h: what libc_cases.txt calls to make arguments; included by the program that test_libc.py writes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <iconv.h>
#include <locale.h>
#include <netinet/in.h>
#include <regex.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

// Memory that is no heap's: arguments that a case is not about.
static char *spare(size_t n) {
    static char *at, *end;
    if (!at || (size_t)(end - at) < n) {
        at = mmap(NULL, 1 << 24, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        end = at + (1 << 24);
    }
    char *p = at;
    at += (n + 63) / 64 * 64;
    return p;
}
static void *room(void) { return spare(16384); }
static void *zeros(void) { return spare(512); }
static char *text(const char *s) { return strcpy(spare(strlen(s) + 1), s); }
static void *pointer(const void *p) { return memcpy(spare(8), &p, sizeof p); }
static void *number(long n) { return memcpy(spare(8), &n, sizeof n); }
static void *locale(void) { return newlocale(LC_ALL_MASK, "C", NULL); }

static struct iovec *vector(void *p, size_t n) {
    struct iovec *v = (void *)spare(sizeof *v);
    *v = (struct iovec){p, n};
    return v;
}
static struct msghdr *message(void *p, size_t n) {
    struct msghdr *m = (void *)spare(sizeof *m);
    *m = (struct msghdr){.msg_iov = vector(p, n), .msg_iovlen = 1};
    return m;
}

// ---- descriptors and streams: n bytes can be read, or all can be written --------------------------------------

static const char digits[] = "0123456789abcdef0123456789abcdef";
static int pipe_with(size_t n) {
    int fd[2];
    if (pipe(fd) || write(fd[1], digits, n) < 0 || close(fd[1])) abort();
    return fd[0];
}
static int file_with(size_t n) {
    int fd = memfd_create("test", 0);
    if (fd < 0 || write(fd, digits, n) < 0) abort();
    return fd;
}
static int nowhere(void) { return open("/dev/null", O_RDWR); }
static FILE *stream_to(void) { return fopen("/dev/null", "w"); }
static FILE *stream_with(const char *s) {
    FILE *f = tmpfile();
    if (!f || pwrite(fileno(f), s, strlen(s), 0) < 0) abort();
    return f;
}
static void stdin_with(const char *s) {
    int fd = memfd_create("test", 0);
    if (fd < 0 || write(fd, s, strlen(s)) < 0 || lseek(fd, 0, SEEK_SET) || dup2(fd, 0) < 0) abort();
    clearerr(stdin);
    fseek(stdin, 0, SEEK_SET);
    fflush(stdin);
}
static int socket_with(size_t n) {
    int fd[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd) || write(fd[1], digits, n) < 0) abort();
    return fd[0];
}
static int socket_to(void) { return socket_with(0); }

static struct sockaddr_in *loopback(void) {
    struct sockaddr_in *a = zeros();
    a->sin_family = AF_INET;
    a->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
}
static int datagram(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (void *)loopback(), sizeof(struct sockaddr_in))) abort();
    return fd;
}
static int datagram_with(size_t n) {
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    int fd = datagram();
    if (getsockname(fd, (void *)&a, &bytes) || sendto(fd, digits, n, 0, (void *)&a, bytes) < 0) abort();
    return fd;
}
// A server to which one has connected.
static int connected(bool is_client) {
    struct sockaddr_in a;
    socklen_t bytes = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM, 0), to = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(fd, (void *)loopback(), bytes) || listen(fd, 8) || getsockname(fd, (void *)&a, &bytes) ||
        connect(to, (void *)&a, bytes))
        abort();
    return is_client ? to : fd;
}
static int server(void) { return connected(false); }
static int client(void) { return connected(true); }
static int epoll_ready(void) {
    int fd = epoll_create1(0), from = pipe_with(1);
    if (epoll_ctl(fd, EPOLL_CTL_ADD, from, &(struct epoll_event){.events = EPOLLIN})) abort();
    return fd;
}
// With one that can be read at once among the first eight.
static fd_set *ready_set(void) {
    fd_set *set = zeros();
    stdin_with("x");
    FD_SET(0, set);
    return set;
}
// ---- the rest -------------------------------------------------------------------------------------------------

static size_t host_bytes(void) {
    char name[300];
    return gethostname(name, sizeof name) ? 0 : strlen(name) + 1;
}
static size_t domain_bytes(void) {
    char name[300];
    return getdomainname(name, sizeof name) ? 0 : strlen(name) + 1;
}
static int compare(const void *a, const void *b) { return *(const char *)a - *(const char *)b; }
static iconv_t to_wide(void) { return iconv_open("UTF-16LE", "UTF-8"); }
static regex_t *pattern(void) {
    regex_t *x = (void *)spare(sizeof *x);
    if (regcomp(x, "a.b", 0)) abort();
    return x;
}
