// SPDX-License-Identifier: MIT
// tor's filter refuses SIG_BLOCK. glibc's pthread_create asks for it, does not look whether it worked, and then sets
// the mask that it was not told: what lies on the stack. A malloc that is called before must not decide what that is.
// tor heard no SIGINT any more.
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#include "field.h"

static int refuse_block(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SIG_BLOCK, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 0;
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

static void *in_thread(void *mask) {
    pthread_sigmask(SIG_SETMASK, NULL, mask);
    free(opaque(malloc(100)));
    return NULL;
}

static uint64_t word(const sigset_t *set) {
    uint64_t bits;
    memcpy(&bits, set, sizeof bits);
    return bits;
}

// The program's first thread, made so deep in its stack.
static void *volatile depth;
__attribute__((noinline)) static void first_thread(size_t deep) {
    depth = alloca(deep + 1);
    sigset_t before, after, inside;
    sigemptyset(&before);
    sigaddset(&before, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_t t;
    CHECK_EQ(pthread_create(&t, NULL, in_thread, &inside), 0);
    CHECK_EQ(pthread_join(t, NULL), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    CHECK_EQ(word(&after), word(&before));
    CHECK_EQ(word(&inside), word(&before));
}

TEST(masks_behind_tors_filter) {
    many(100, 10000);
    for (size_t deep = 0; deep < 1024; deep += 16) {
        pid_t child = fork();
        if (!child) {
            if (!refuse_block()) {
                printf("SKIP: needs seccomp\n");
                fflush(stdout);
                _exit(0);
            }
            first_thread(deep);
            _exit(0);
        }
        int status = 0;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
}

TEST_MAIN()
