// SPDX-License-Identifier: MIT
#include "rt/diag.h"

#include "captured.h"

#define FORMATS(expect, ...)                                               \
    do {                                                                   \
        char buf[128];                                                     \
        CHECK_EQ(qy_format(buf, sizeof buf, __VA_ARGS__), strlen(expect)); \
        CHECK_STR_EQ(buf, expect);                                         \
    } while (0)

TEST(format_each) {
    FORMATS("", "");
    FORMATS("plain", "plain");
    FORMATS("a b c", "a %s c", "b");
    FORMATS("(null)", "%s", (char *)NULL);
    FORMATS("0 -1 2147483647 -2147483648", "%d %d %d %d", 0, -1, INT32_MAX, INT32_MIN);
    FORMATS("0 4294967295", "%u %u", 0u, UINT32_MAX);
    FORMATS("0 ff deadbeef", "%x %x %x", 0u, 255u, 0xdeadbeefu);
    FORMATS("18446744073709551615", "%z", SIZE_MAX);
    FORMATS("18446744073709551615 7", "%l %d", UINT64_MAX, 7);
    FORMATS("0x7f0012345678 0x0", "%p %p", (void *)0x7f0012345678, NULL);
    FORMATS("0 bytes, 1 byte, 2 bytes", "%z byte%S, %u byte%S, %l byte%S", (size_t)0, 1u, (uint64_t)2);
    FORMATS("1 byte in 3 blocks, 1 other", "%l byte%S in %l block%S, %z other%S", (uint64_t)1, (uint64_t)3, (size_t)1);
    FORMATS("100%", "100%%");
    FORMATS("100", "100%");
    // More arguments than registers, mixed.
    FORMATS(
        "1 2 3 4 5 6 x 8 0x9", "%d %u %z %l %d %u %s %d %p", 1, 2u, (size_t)3, (uint64_t)4, 5, 6u, "x", 8, (void *)9);
}

TEST(format_is_cut) {
    char buf[8];
    for (size_t bytes = 0; bytes <= sizeof buf; bytes++) {
        memset(buf, '#', sizeof buf);
        size_t n = qy_format(buf, bytes, "%s%d", "abc", 12345678);
        CHECK_EQ(n, bytes ? bytes - 1 : 0);
        if (bytes) CHECK_EQ(buf[n], 0);
        CHECK_EQ(memcmp(buf, "abc1234", n), 0);
        for (size_t i = bytes; i < sizeof buf; i++) CHECK_EQ(buf[i], '#');
    }
}

// ---- messages, each in a child ------------------------------------------------------------------

static void refuse(int signal) { _exit(signal == SIGABRT ? 99 : 98); }

static void fatal_plain(void *fault) { qy_fatal(*(qy_fault_t *)fault, (void *)0x7f00deadbee0, NULL); }
static void fatal_hindered(void *unused) {
    (void)unused;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGABRT);
    signal(SIGABRT, refuse);
    sigprocmask(SIG_BLOCK, &set, NULL);
    qy_fatal(QY_FAULT_DOUBLE_FREE, (void *)0x7f0000001230, "a block of %z bytes", (size_t)48);
}
static void fatal_ignored(void *unused) {
    (void)unused;
    signal(SIGABRT, SIG_IGN);
    qy_fatal(QY_FAULT_CORRUPT_META, NULL, NULL);
}
static void fatal_long(void *unused) {
    (void)unused;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    qy_fatal(QY_FAULT_INVALID_FREE, (void *)0x10, "%s", text);
}
static void fatal_closed(void *unused) {
    (void)unused;
    close(2);
    qy_fatal(QY_FAULT_INVALID_FREE, (void *)0x10, NULL);
}

TEST(fatal_words) {
    static const struct {
        qy_fault_t fault;
        const char *line;
    } cases[] = {
        {QY_FAULT_DOUBLE_FREE, "quarry: double free: 0x7f00deadbee0\n"},
        {QY_FAULT_INVALID_FREE, "quarry: invalid free: 0x7f00deadbee0\n"},
        {QY_FAULT_INTERIOR_FREE, "quarry: free of an interior pointer: 0x7f00deadbee0\n"},
        {QY_FAULT_CORRUPT_LINK, "quarry: corrupted free block: 0x7f00deadbee0\n"},
        {QY_FAULT_CORRUPT_META, "quarry: corrupted metadata: 0x7f00deadbee0\n"},
        {QY_FAULT_WRONG_HEAP, "quarry: block of another heap: 0x7f00deadbee0\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        captured_t c = capture(fatal_plain, (void *)&cases[i].fault);
        CHECK_STR_EQ(c.text, cases[i].line);
        CHECK_EQ(c.exit_signal, SIGABRT);
    }
}

TEST(fatal_cannot_be_stopped) {
    captured_t c = capture(fatal_hindered, NULL);
    CHECK_STR_EQ(c.text, "quarry: double free: 0x7f0000001230, a block of 48 bytes\n");
    CHECK_EQ(c.exit_signal, SIGABRT);
    c = capture(fatal_ignored, NULL);
    CHECK_STR_EQ(c.text, "quarry: corrupted metadata: 0x0\n");
    CHECK_EQ(c.exit_signal, SIGABRT);
    c = capture(fatal_closed, NULL);
    CHECK_STR_EQ(c.text, "");
    CHECK_EQ(c.exit_signal, SIGABRT);
}

TEST(fatal_line_is_cut) {
    captured_t c = capture(fatal_long, NULL);
    CHECK_EQ(c.exit_signal, SIGABRT);
    CHECK_EQ(c.length, 512);
    CHECK_PTR_EQ(strchr(c.text, '\n'), c.text + 511);
    CHECK_EQ(strncmp(c.text, "quarry: invalid free: 0x10, xxxx", 32), 0);
}

static void warn(void *unused) {
    (void)unused;
    errno = 77;
    qy_warn("odd %s, %d", "\033[31mvalue\n\x7f", 5);
    if (errno != 77) _exit(1);
}

TEST(warning_is_harmless) {
    captured_t c = capture(warn, NULL);
    CHECK_STR_EQ(c.text, "quarry: warning: odd ?[31mvalue??, 5\n");
    CHECK_EQ(c.exit_code, 0);
}

static void assertions(void *value) {
    qy_assert(1 + 1 == 2);
    qy_assert_slow(1 + 1 == 2);
    qy_assert(*(int *)value == 3);
}

TEST(assertion) {
    int three = 3, four = 4;
    CHECK_EQ(capture(assertions, &three).exit_code, 0);
    captured_t c = capture(assertions, &four);
    CHECK_EQ(c.exit_signal, SIGABRT);
    CHECK_EQ(strncmp(c.text, "quarry: assertion failed: *(int *)value == 3, ", 46), 0);
    CHECK(strstr(c.text, "test_diag.c:") != NULL);
    CHECK_EQ(c.text[c.length - 1], '\n');
}

TEST_MAIN()
