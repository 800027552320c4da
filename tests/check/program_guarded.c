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
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
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
static long readv_(void) {
    const struct iovec v = {text, 40};
    int fd = open("/dev/zero", O_RDONLY);
    return readv(fd, &v, 1) < 40;
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
    NAME(readlink_), NAME(getcwd_), NAME(readv_), NAME(getsockname_)};

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
