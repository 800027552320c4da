// SPDX-License-Identifier: MIT
// A program that debuggers look at: threads at work, data that a core file must hold, a function to call.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "field.h"

char *field_text;
__attribute__((used, noinline)) char *field_call(int n) {
    char *p = malloc((size_t)n);
    memset(p, 'c', (size_t)n);
    p[n - 1] = '\0';
    return p;
}
static void *churn(void *unused) {
    for (;;) free(opaque(malloc((size_t)(rand() % 50000))));
    return unused;
}
static void begin(void) {
    field_text = strdup("what a core file must hold");
    pthread_t t;
    for (int i = 0; i < 2; i++) pthread_create(&t, NULL, churn, NULL);
}
// These two are run by cases.py, and pass by themselves.
TEST(runs_until_killed) {
    if (!getenv("FIELD_DEBUGGED")) return;
    begin();
    printf("ready %d\n", (int)getpid());
    fflush(stdout);
    sleep(3 * TEST_PATIENCE);
}
TEST(aborts) {
    if (!getenv("FIELD_DEBUGGED")) return;
    begin();
    char *p = malloc((size_t)200 << 20);
    memset(p, 1, (size_t)200 << 20);
    free(p);
    usleep(100000);
    abort();
}
// Memory given up is not in the core file: its size is that of what is live.
TEST(core_file_is_small) {
    char folder[] = "/tmp/field-core-XXXXXX", pattern[100] = "";
    int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
    if (fd >= 0 && read(fd, pattern, sizeof pattern - 1) < 0) pattern[0] = '|';
    close(fd);
    if (pattern[0] == '|' || pattern[0] == '/')
        TEST_SKIP("needs core files in the working folder (kernel.core_pattern): they go to %.60s", pattern);
    CHECK(mkdtemp(folder) != NULL);
    pid_t pid = fork();
    if (!pid) {
        struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
        if (chdir(folder) || setrlimit(RLIMIT_CORE, &all)) _exit(77);
        many(1000, 100000);
        free(memset(malloc((size_t)200 << 20), 1, (size_t)200 << 20));
        malloc_trim(0);
        abort();
    }
    int status;
    waitpid(pid, &status, 0);
    DIR *d = opendir(folder);
    long blocks = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600];
        struct stat s;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.' && stat(path, &s) == 0) blocks += s.st_blocks;
        if (e->d_name[0] != '.') unlink(path);
    }
    if (d) closedir(d);
    rmdir(folder);
    if (!WCOREDUMP(status)) TEST_SKIP("needs core files (ulimit -c unlimited)");
    CHECK_LE(blocks / 2048, 60);
}

TEST_MAIN()
