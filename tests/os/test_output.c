// SPDX-License-Identifier: MIT
// test_output.c: a file that stays open in a program that closes what it finds.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "captured.h"
#include "os/fake.h"
#include "os/output.h"

static char path[] = "/tmp/quarry-output-XXXXXX";

static void limit_to(rlim_t files) { CHECK_EQ(setrlimit(RLIMIT_NOFILE, &(struct rlimit){files, files}), 0); }

static void under_a_limit(void *arg) {
    limit_to(*(const rlim_t *)arg);
    int lowest = dup(2);
    close(lowest);
    qy_output_t out;
    CHECK(qy_os_output_open(path, &out));
    CHECK_GE(out.fd, *(const rlim_t *)arg == 1024 ? 960 : 3);
    CHECK_EQ(fcntl(out.fd, F_GETFD), FD_CLOEXEC);
    CHECK(fcntl(out.fd, F_GETFL) & O_APPEND);
    CHECK(qy_os_output_is(&out));
    CHECK_EQ(open("/dev/null", O_RDONLY), lowest);  // the program finds its descriptors as if there were no log
    int fd = out.fd;
    qy_os_output_close(&out);
    CHECK_EQ(out.fd, -1);
    CHECK_EQ(fcntl(fd, F_GETFD), -1);
    CHECK(!qy_os_output_is(&out));
}

TEST(out_of_the_way) {
    close(mkstemp(path));
    static const rlim_t limits[] = {1024, 256, 100};
    for (size_t i = 0; i < 3; i++) run_apart(under_a_limit, (void *)&limits[i]);
    unlink(path);
}

// Below the lowest place there is: any number but the first three, or none.
static void no_room(void *unused) {
    (void)unused;
    limit_to(20);
    qy_output_t out;
    CHECK(qy_os_output_open(path, &out) && out.fd >= 3);
    qy_os_output_close(&out);
    for (int fd = 3; fd < 20; fd++) dup2(2, fd);
    close(0);  // the only number left
    CHECK(!qy_os_output_open(path, &out));
    CHECK_EQ(out.fd, -1);
    CHECK_EQ(fcntl(0, F_GETFD), -1);
}

TEST(never_the_first_three) {
    strcpy(path, "/tmp/quarry-output-XXXXXX");
    close(mkstemp(path));
    run_apart(no_room, NULL);
    unlink(path);
}

TEST(another_file_with_its_number) {
    strcpy(path, "/tmp/quarry-output-XXXXXX");
    close(mkstemp(path));
    qy_output_t out, again;
    CHECK(qy_os_output_open(path, &out));
    CHECK(qy_os_output_open(path, &again));
    CHECK(again.fd != out.fd && again.inode == out.inode);
    CHECK_EQ(dup2(again.fd, out.fd), out.fd);  // closed and opened again is the same file
    CHECK(qy_os_output_is(&out));
    int null = open("/dev/null", O_WRONLY);
    CHECK_EQ(dup2(null, out.fd), out.fd);
    CHECK(!qy_os_output_is(&out));
    int number = out.fd;
    qy_os_output_close(&out);
    CHECK_EQ(fcntl(number, F_GETFD), 0);  // not ours to close
    close(number);
    close(null);
    qy_os_output_close(&again);
    unlink(path);
}

TEST(refused) {
    qy_output_t out;
    errno = 77;
    CHECK(!qy_os_output_open("/nonexistent/file", &out) && out.fd == -1);
    CHECK(!qy_os_output_know(-1, &out));
    static const qy_os_call_t calls[] = {QY_OS_OPEN, QY_OS_FILE_STAT};
    int before = dup(2);
    close(before);
    for (size_t i = 0; i < 2; i++) {
        quarry_os_fault(1, 0, 1u << calls[i]);
        CHECK(!qy_os_output_open("/dev/null", &out) && out.fd == -1);
        quarry_os_fault(0, 0, 0);
        int after = dup(2);
        CHECK_EQ(after, before);  // nothing is left open
        close(after);
    }
    CHECK_EQ(errno, 77);
}

TEST_MAIN()
