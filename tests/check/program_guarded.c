// SPDX-License-Identifier: MIT
// program_guarded.c: functions of the C library on blocks that end at a page without access, or that are freed; for
// test_guarded.py. It says what the function gave.
//
//   program_guarded CASE live|freed      CASE is the function's name, with a letter behind it for another way to fail
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <wchar.h>

enum { N = 16 };
static char *volatile text;     // N bytes without an end
static wchar_t *volatile wide;  // the same of wide characters
static char room[4096];

static const char longer[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const wchar_t longer_wide[] = L"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

// What depends on bytes that are not the program's is not shown.
#define CASE(name, expression) \
    static long name(void) { return (long)(expression); }
static volatile long unknown;  // else the compiler leaves the call out
#define UNKNOWN(expression) (unknown = (long)(expression), 0)
CASE(strlen_, UNKNOWN(strlen(text)))
CASE(strnlen_, UNKNOWN(strnlen(text, 100)))
CASE(strchr_, UNKNOWN(strchr(text, 'z')))
CASE(strchr_found, strchr(text, 'a') == text)
CASE(strrchr_, UNKNOWN(strrchr(text, 'z')))
CASE(strstr_, UNKNOWN(strstr(text, "zz")))
CASE(strstr_found, strstr(text, "aa") == text)
CASE(memchr_, UNKNOWN(memchr(text, 'z', N + 4)))
CASE(memchr_found, memchr(text, 'a', N + 4) == text)
CASE(strcmp_, UNKNOWN(strcmp(text, longer)))
CASE(strcmp_found, strcmp(text, "b") < 0)
CASE(strncmp_, UNKNOWN(strncmp(text, longer, N + 4)))
CASE(strcasecmp_, UNKNOWN(strcasecmp(longer, text)))
CASE(strncasecmp_, UNKNOWN(strncasecmp(text, longer, N + 4)))
CASE(strcpy_, UNKNOWN(strcpy(room, text)))
CASE(strncpy_, UNKNOWN(strncpy(room, text, 100)))
CASE(snprintf_, UNKNOWN(snprintf(room, sizeof room, "%s", text)))
CASE(open_, open(text, O_RDONLY))
CASE(wcslen_, UNKNOWN(wcslen(wide)))
CASE(wcsnlen_, UNKNOWN(wcsnlen(wide, 30)))
CASE(wcscmp_, UNKNOWN(wcscmp(wide, longer_wide)))
CASE(wcsncmp_, UNKNOWN(wcsncmp(wide, longer_wide, 30)))
CASE(stat_, stat("/", (struct stat *)(void *)text))
CASE(fstat_, fstat(0, (struct stat *)(void *)text))
CASE(statfs_, statfs("/", (struct statfs *)(void *)text))
CASE(uname_, uname((struct utsname *)(void *)text))
CASE(getrlimit_, getrlimit(RLIMIT_CORE, (struct rlimit *)(void *)(text + 8)))
CASE(getrusage_, getrusage(RUSAGE_SELF, (struct rusage *)(void *)text))
CASE(pipe_, pipe((int *)(void *)(text + 12)))
CASE(getrandom_, getrandom(text, 40, 0))
CASE(getentropy_, getentropy(text, 40))
CASE(readlink_, readlink("/proc/self/exe", text, 4000) > N)
CASE(getcwd_, getcwd(text, 4000) == text)
CASE(pread_, pread(open("/proc/self/exe", O_RDONLY), text, 40, 0))
static long read_(void) {
    int fd[2];
    return pipe(fd) || write(fd[1], longer, 40) != 40 ? -2 : read(fd[0], text, 40);
}
static long readv_(void) {
    const struct iovec v = {text, 40};
    return readv(open("/dev/zero", O_RDONLY), &v, 1);
}
static long fread_(void) {
    FILE *f = fopen("/proc/self/exe", "r");
    return !f || setvbuf(f, NULL, _IONBF, 0) ? -2 : (long)fread(text, 1, 40, f);
}
static long epoll_wait_(void) {
    struct epoll_event ready = {.events = EPOLLIN};
    int fd = epoll_create1(0);
    for (int i = 0; i < 2; i++)
        if (epoll_ctl(fd, EPOLL_CTL_ADD, eventfd(1, 0), &ready)) return -2;
    return epoll_wait(fd, (struct epoll_event *)(void *)text, 2, 0);
}

// Addresses of 32 bytes, which are in no folder.
enum { ADDRESS = 32 };
static struct sockaddr_un address(char first) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path + 1, ADDRESS - 2, "%c%028d", first, (int)getpid());
    return a;
}
static int named(int type, char first) {
    const struct sockaddr_un a = address(first);
    int fd = socket(AF_UNIX, type, 0);
    return bind(fd, (const struct sockaddr *)&a, ADDRESS) ? -1 : fd;
}
static long accept_(void) {
    const struct sockaddr_un to = address('s');
    int server = named(SOCK_STREAM, 's'), client = named(SOCK_STREAM, 'c');
    socklen_t n = 40;
    if (listen(server, 1) || connect(client, (const struct sockaddr *)&to, ADDRESS)) return -2;
    return accept(server, (struct sockaddr *)(void *)text, &n) >= 0;
}
static long recvfrom_(void) {
    const struct sockaddr_un to = address('s');
    int server = named(SOCK_DGRAM, 's'), client = named(SOCK_DGRAM, 'c');
    socklen_t n = 40;
    if (sendto(client, longer, 5, 0, (const struct sockaddr *)&to, ADDRESS) != 5) return -2;
    return recvfrom(server, room, sizeof room, 0, (struct sockaddr *)(void *)text, &n);
}

// The one that a datagram of 40 bytes has come to.
static int datagram(void) {
    int fd[2];
    return socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) || send(fd[0], longer, 40, 0) != 40 ? -1 : fd[1];
}
CASE(recv_, recv(datagram(), text, 40, 0))
static long recvmsg_(void) {
    struct iovec v = {text, 40};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    return recvmsg(datagram(), &m, 0);
}
static long getsockopt_(void) {
    socklen_t n = 4;
    return getsockopt(socket(AF_UNIX, SOCK_STREAM, 0), SOL_SOCKET, SO_TYPE, text + 14, &n);
}
static long getsockname_(void) {
    socklen_t n = 40;
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    return getsockname(fd, (struct sockaddr *)(void *)text, &n);
}

static const struct {
    const char *name;
    long (*run)(void);
} cases[] = {
#define NAME(f) \
    { #f, f }
    NAME(strlen_), NAME(strnlen_), NAME(strchr_), NAME(strchr_found), NAME(strrchr_), NAME(strstr_),
    NAME(strstr_found), NAME(memchr_), NAME(memchr_found), NAME(strcmp_), NAME(strcmp_found), NAME(strncmp_),
    NAME(strcasecmp_), NAME(strncasecmp_), NAME(strcpy_), NAME(strncpy_), NAME(snprintf_), NAME(open_),
    NAME(wcslen_), NAME(wcsnlen_), NAME(wcscmp_), NAME(wcsncmp_), NAME(stat_), NAME(fstat_), NAME(statfs_),
    NAME(uname_), NAME(getrlimit_), NAME(getrusage_), NAME(pipe_), NAME(getrandom_), NAME(getentropy_),
    NAME(readlink_), NAME(getcwd_), NAME(getsockname_), NAME(pread_), NAME(read_), NAME(readv_), NAME(fread_),
    NAME(epoll_wait_), NAME(accept_), NAME(recvfrom_), NAME(recv_), NAME(recvmsg_), NAME(getsockopt_)};

int main(int argc, char **argv) {
    if (argc < 3) {
        for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) puts(cases[i].name);
        return 0;
    }
    text = malloc(N);
    wide = malloc(N);
    memset(text, 'a', N);
    for (size_t i = 0; i < N / sizeof *wide; i++) wide[i] = L'a';
    if (strcmp(argv[2], "freed") == 0) {
        free(text);
        free(wide);
    }
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
        if (strcmp(cases[i].name, argv[1]) == 0) return printf("%ld\n", cases[i].run()) < 0;
    return 2;
}
