// SPDX-License-Identifier: MIT
// libc_traps.c: calls that are right though they look wrong, and some that are wrong beside their bytes. It prints the
// reports that must come, as kind and function; test_libc.py compares.
#include <errno.h>
#include <locale.h>
#include <malloc.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

// Kept from the compiler, which knows what these calls do and which of them are wrong.
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
static char *(*volatile copy_string)(char *, const char *) = strcpy;
static size_t (*volatile length)(const char *) = strlen;
static volatile size_t minus_one = (size_t)-1;

static char *block;
static void handler(int number) {
    (void)number;
    char *(*volatile find)(const char *, int) = strchr;
    if (find(block, 'z')) abort();
}

static void right(void) {
    int fd[2];
    char *p = malloc(8);
    copy(p, p, 8);  // the same place twice
    memcpy(p, "1234567", 8);
    copy_string(p, p);
    memmove(p, p + 1, 7);
    strncmp(p, "2345", (size_t)-1);  // no limit
    strnlen(p, (size_t)-1);
    memchr(p, '2', (size_t)-1);
    snprintf(p, 1000, "%s", "short");  // less room is needed than is said
    if (pipe(fd) || write(fd[1], "12345", 5) != 5 || read(fd[0], p, 4096) != 5) abort();
    copy(p + 8, p + 8, 0);  // nothing, at the end
    char *empty = malloc(0);
    copy(empty, p, 0);
    memset(empty, 0, 0);
    printf("%.3s%.*s\n", memcpy(p, "abcdefgh", 8) ? p : p, 8, p);  // no end, and none is looked for
    printf("%s\n", (char *)NULL ? "" : "(null)");
    if (setlocale(LC_CTYPE, "C.UTF-8")) {  // two characters of two bytes, of which one has room
        wchar_t *wide = malloc(2 * sizeof *wide);
        char narrow[4];
        wide[0] = wide[1] = 0xe9;
        if (wcstombs(narrow, wide, 3) != 2) abort();
        free(wide);
        setlocale(LC_CTYPE, "C");
    }
    errno = 77;
    strtol("12", NULL, 10);
    if (errno != 77 || getline(NULL, NULL, stdin) != -1 || errno != EINVAL) abort();
    errno = 77;
    length("x");
    if (errno != 77) abort();
    signal(SIGUSR1, handler);
    block = memcpy(p, "abcdefg", 8);
    raise(SIGUSR1);
    free(p);
    free(empty);
}

// The kernel says how long an address is, and writes no more of it than there is room for.
static void short_name(void) {
    int fd[2];
    char text[8], *name = malloc(4);
    const struct sockaddr named_by_kernel = {.sa_family = AF_UNIX};
    struct iovec into = {text, sizeof text};
    struct msghdr message = {.msg_name = name, .msg_namelen = 4, .msg_iov = &into, .msg_iovlen = 1};
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fd) || bind(fd[0], &named_by_kernel, sizeof named_by_kernel.sa_family) ||
        send(fd[0], "12345", 5, 0) != 5 || recvmsg(fd[1], &message, 0) != 5 || message.msg_namelen <= 4)
        abort();
    free(name);
}

// TCP throws away what is asked for by this flag, and writes nothing.
static void discarded(void) {
    static const char bytes[100];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof to;
    int server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server, (struct sockaddr *)&to, n) || listen(server, 1) ||
        getsockname(server, (struct sockaddr *)&to, &n) || connect(client, (struct sockaddr *)&to, n))
        abort();
    int fd = accept(server, NULL, NULL);
    char *p = malloc(1);
    struct iovec into = {p, 65536};
    struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
    if (send(client, bytes, sizeof bytes, 0) != sizeof bytes || recv(fd, p, 50, MSG_TRUNC | MSG_WAITALL) != 50 ||
        recvmsg(fd, &message, MSG_TRUNC) <= 1)
        abort();
    free(p);
}

// The memory of a huge block goes back to the kernel, which gives its address to others.
static void elsewhere(void) {
    enum { HUGE_BYTES = 300 << 20 };  // more than waits in quarantine
    char *p = malloc(HUGE_BYTES);
    uintptr_t place = (uintptr_t)p;
    free(p);
    char *other = mmap((void *)place, HUGE_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (other == MAP_FAILED) return;  // the heap has kept it
    copy(other + 100, "12345", 5);
    if (length(other + 100) != 5) abort();
    munmap(other, HUGE_BYTES);
    puts("elsewhere");
}

// Where address space is scarce, whole chunks of the heap go back to the kernel, which gives their addresses to others.
static void elsewhere_in_chunks(void) {
    enum { BLOCKS = 2000,
        BYTES = 60000,
        CHUNK = 2 << 20,
        MORE = 400 << 20 };
    static char *p[BLOCKS];
    struct rlimit was, little;
    size_t pages = 0, chunks = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%zu", &pages) != 1 || getrlimit(RLIMIT_AS, &was)) abort();
    fclose(f);
    little = was;
    little.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + MORE;
    if (setrlimit(RLIMIT_AS, &little)) abort();
    for (int i = 0; i < BLOCKS; i++) p[i] = malloc(BYTES);
    for (int i = 0; i < BLOCKS; i++) free(p[i]);
    malloc_trim(0);
    for (int i = 0; i < BLOCKS; i++) {
        char *chunk = (char *)((uintptr_t)p[i] & -(uintptr_t)CHUNK);
        if (!chunk) continue;
        void *other = mmap(chunk, CHUNK, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
        if (other == MAP_FAILED) continue;  // the heap has kept it
        copy(p[i], "12345", 6);
        if (length(p[i]) != 5) abort();
        munmap(other, CHUNK);
        chunks++;
    }
    if (setrlimit(RLIMIT_AS, &was)) abort();
    if (chunks) puts("chunks went");
}

static void expect(const char *kind, const char *function) { fprintf(stderr, "%s %s\n", kind, function); }

static void wrong(void) {
    char *p = malloc(64), *q = malloc(4);
    memset(p, 'x', 64);
    expect("overlap", "memcpy");
    copy(p + 1, p, 8);
    p[20] = 0;
    expect("overlap", "strcpy");
    copy_string(p + 4, p + 12);
    expect("bad-argument", "memcmp");
    int (*volatile compare)(const void *, const void *, size_t) = memcmp;
    *p = 1;
    *q = 2;
    errno = 55;
    if (compare(p, q, minus_one) >= 0 || errno != 55) abort();
    memset(q, 'x', 4);
    expect("unterminated", "strlen");
    length(q);
    free(q);
    expect("use-after-free-read", "strlen");
    length(q);
    free(p);
}

int main(void) {
    right();
    short_name();
    discarded();
    elsewhere();
    elsewhere_in_chunks();
    wrong();
    return 0;
}
