// SPDX-License-Identifier: MIT
// mappings.c: a process with a mapping of each kind, which says what it made and then waits or ends.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <unistd.h>

#define MIB (1UL << 20)

char zeros[3 * MIB];
int value = 7;
const char constant[8192] = {1};

static void touch(char *bytes, size_t length) {
    for (size_t at = 0; at < length; at += 4096) bytes[at] = 1;
}

static char *map(size_t length, int access, int flags, int file) {
    char *bytes = mmap(NULL, length, access, flags, file, 0);
    if (bytes == MAP_FAILED) {
        perror("mmap");
        exit(9);
    }
    return bytes;
}

static void *thread(void *barrier) {
    char local[64 << 10];
    touch(local, sizeof local);
    prctl(PR_SET_NAME, "worker");
    pthread_barrier_wait(barrier);
    pause();
    return local[1] ? NULL : barrier;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *file = argv[1];
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    char block[4096];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 64; i++)
        if (write(fd, block, sizeof block) != sizeof block) return 9;

    // The articles' program: 50 MiB of shared anonymous memory, each page touched.
    char *shared = map(50 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    touch(shared, 50 * MIB);
    // Reserved, and never touched.
    char *reserved = map(1024 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    madvise(reserved, 1024 * MIB, MADV_DONTDUMP);
    // Half of a private mapping of a file is written, all of it read.
    char *private = map(64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
    for (int i = 0; i < 64; i++) {
        if (private[i * 4096L] != 'x') return 9;
        if (i < 32) private[i * 4096L] = 'y';
    }
    char *through = map(64 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
    touch(through, 16 * 4096);
    int memory = memfd_create("quarry-test", 0);
    if (ftruncate(memory, MIB)) return 9;
    char *anonymous_file = map(MIB, PROT_READ | PROT_WRITE, MAP_SHARED, memory);
    touch(anonymous_file, MIB);
    int segment = shmget(IPC_PRIVATE, MIB, IPC_CREAT | 0600);
    char *system_v = shmat(segment, NULL, 0);
    shmctl(segment, IPC_RMID, NULL);
    if (system_v == (void *)-1) return 9;
    touch(system_v, MIB);
    // POSIX shared memory, where there is a file system for it.
    int posix = shm_open("/quarry-map-test", O_RDWR | O_CREAT, 0600);
    char *posix_shared = NULL;
    if (posix >= 0) {
        shm_unlink("/quarry-map-test");
        if (ftruncate(posix, MIB)) return 9;
        posix_shared = map(MIB, PROT_READ | PROT_WRITE, MAP_SHARED, posix);
        touch(posix_shared, MIB / 2);
    }
    char *locked = map(64 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    int is_locked = mlock(locked, 64 << 10) == 0;
    char *lazy = map(16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    madvise(lazy, 16 * MIB, MADV_NOHUGEPAGE);
    touch(lazy, 16 * MIB);
    int is_lazy = madvise(lazy, 16 * MIB, MADV_FREE) == 0;
    // A file that is gone.
    char gone[4096];
    snprintf(gone, sizeof gone, "%s.gone", file);
    int deleted = open(gone, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (write(deleted, block, sizeof block) != sizeof block) return 9;
    char *of_deleted = map(4096, PROT_READ, MAP_SHARED, deleted);
    unlink(gone);
    touch(zeros, sizeof zeros);
    char *heap = sbrk(256 << 10);
    touch(heap, 256 << 10);

    pthread_barrier_t barrier;
    pthread_t threads[2];
    pthread_barrier_init(&barrier, NULL, 3);
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, thread, &barrier)) return 9;
    pthread_barrier_wait(&barrier);

    printf(
        "{\"shared\":\"%p\",\"reserved\":\"%p\",\"private\":\"%p\",\"through\":\"%p\",\"memfd\":\"%p\",\"sysv\":\"%p\","
        "\"posix\":\"%p\",\"locked\":\"%p\",\"is_locked\":%d,\"lazy\":\"%p\",\"is_lazy\":%d,\"deleted\":\"%p\",\"bss\":"
        "\"%p\","
        "\"data\":\"%p\",\"rodata\":\"%p\",\"text\":\"%p\",\"heap\":\"%p\",\"stack\":\"%p\"}\n",
        (void *)shared, (void *)reserved, (void *)private, (void *)through, (void *)anonymous_file, (void *)system_v,
        (void *)posix_shared, (void *)locked, is_locked, (void *)lazy, is_lazy, (void *)of_deleted,
        (void *)(zeros + sizeof zeros / 2), (void *)&value, (void *)constant, (void *)main, (void *)heap, (void *)&fd);
    fflush(stdout);
    if (strcmp(argv[2], "exit") == 0) return 3;
    if (strcmp(argv[2], "abort") == 0) abort();
    pause();
    return 0;
}
