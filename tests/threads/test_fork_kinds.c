// SPDX-License-Identifier: MIT
// Forks that are not plain ones: trees of them, daemon(), and _Fork(), which calls no handlers.
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "api/family.h"

extern pid_t _Fork(void) __attribute__((weak));

enum { KEPT = 300 };
static unsigned char *kept[KEPT];

static size_t size_of(int i) { return (size_t)1 << i % 19; }
static void keep(void) {
    for (int i = 0; i < KEPT; i++) {
        CHECK((kept[i] = m.malloc(size_of(i))) != NULL);
        memset(kept[i], i, size_of(i));
    }
}
static void *churn(void *arg) {
    uint64_t random = (uint64_t)(uintptr_t)arg + 1;
    void *p[20] = {0};
    for (int i = 0; i < 2000; i++) {
        size_t k = test_random(&random) % 20;
        m.free(p[k]);
        if (!(p[k] = m.malloc((size_t)1 << test_random(&random) % 18))) return arg;
    }
    for (int k = 0; k < 20; k++) m.free(p[k]);
    return NULL;
}
// What the parent had is there and can be freed; so can what this process has, by threads of its own.
static int lives(void) {
    for (int i = 0; i < KEPT; i++) {
        if (kept[i][0] != (unsigned char)i || kept[i][size_of(i) - 1] != (unsigned char)i) return 1;
        if (i % 2) {
            m.free(kept[i]);
            if (!(kept[i] = m.malloc(size_of(i)))) return 2;
            memset(kept[i], i, size_of(i));
        }
    }
    pthread_t thread[2];
    void *failed[2];
    for (long i = 0; i < 2; i++)
        if (pthread_create(&thread[i], NULL, churn, (void *)(uintptr_t)(i + 1))) return 3;
    if (churn((void *)3)) return 4;
    for (int i = 0; i < 2; i++)
        if (pthread_join(thread[i], &failed[i]) || failed[i]) return 5;
    return 0;
}
static int end_of(pid_t pid) {
    int status = 0;
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return 100;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Each of a node's children forks again, beside its own threads.
static int node(int depth) {
    pthread_t beside;
    int worst = lives();
    if (worst || !depth) return worst;
    if (pthread_create(&beside, NULL, churn, (void *)9)) return 6;
    pid_t child[3];
    for (int i = 0; i < 3; i++) {
        if ((child[i] = fork()) == 0) {
            alarm(TEST_PATIENCE);
            _exit(node(depth - 1));
        }
    }
    for (int i = 0; i < 3; i++) {
        int code = end_of(child[i]);
        if (code) worst = code;
    }
    pthread_join(beside, NULL);
    return worst;
}
TEST(a_tree) {
    if (FAMILY_TSAN)
        TEST_SKIP("needs a build without ThreadSanitizer, which ends children that begin threads beside others");
    keep();
    CHECK_EQ(node(3), 0);
}

TEST(no_handlers) {
    if (!_Fork) TEST_SKIP("needs a C library that has _Fork");
    if (FAMILY_SANITIZED) TEST_SKIP("needs a build without sanitizers: they want their handlers called");
    keep();
    for (int i = 0; i < 50; i++) {
        pid_t pid = _Fork();
        if (!pid) _exit(lives());
        CHECK_EQ(end_of(pid), 0);
        m.free(m.malloc(size_of(i)));
    }
    CHECK_EQ(lives(), 0);
}

TEST(a_daemon) {
    int fds[2];
    char said = 'x';
    CHECK_EQ(pipe(fds), 0);
    keep();
    pid_t pid = fork();
    if (!pid) {
        close(fds[0]);
        alarm(TEST_PATIENCE);
        if (daemon(1, 1)) _exit(1);
        said = (char)('0' + lives());
        _exit(write(fds[1], &said, 1) != 1);
    }
    close(fds[1]);
    CHECK_EQ(end_of(pid), 0);
    CHECK_EQ(read(fds[0], &said, 1), 1);
    CHECK_EQ(said, '0');
    close(fds[0]);
}

int main(int argc, char **argv) { return test_main(argc, argv); }
