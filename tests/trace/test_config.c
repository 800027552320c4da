// SPDX-License-Identifier: MIT
// test_config.c: the variable QUARRY_RECORD, and JSON.
#include "captured.h"
#include "trace/config.h"
#include "rt/json.h"
#include "trace/record.h"

static qy_trace_config_t config;

TEST(all_keys) {
    CHECK(qy_trace_config_parse(&config, "file:/tmp/a b%p.qtr,stacks:cfi,sample:4k,follow:on,pid:123"));
    CHECK_STR_EQ(config.file, "/tmp/a b%p.qtr");
    CHECK_EQ(config.stacks, QY_STACKS_CFI);
    CHECK_EQ(config.sample, 4096);
    CHECK(config.follow);
    CHECK_EQ(config.pid, 123);
    CHECK(qy_trace_config_parse(&config, "file:x"));
    CHECK_EQ(config.stacks, QY_STACKS_NONE);
    CHECK(!config.sample && !config.follow && !config.pid);
    CHECK(qy_trace_config_parse(&config, ",file:x:y,,stacks:fp,"));
    CHECK_STR_EQ(config.file, "x:y");
    CHECK_EQ(config.stacks, QY_STACKS_FP);
}

static void parse(void *text) { _exit(qy_trace_config_parse(&config, text)); }

TEST(mistakes_say_what) {
    static const char *const cases[][2] = {{"", "no file:PATH"}, {"stacks:fp", "no file:PATH"},
        {"file:", "what is file:?"}, {"file", "what is file?"}, {"file:x,sample:", "sample:"},
        {"file:x,sample:-1", "sample:-1"}, {"file:x,sample:99999999999999999999", "sample:9"},
        {"file:x,sample:8000000000g", "sample"}, {"file:x,stacks:all", "stacks:all"}, {"file:x,follow:on", "%p"},
        {"file:x,follow:yes", "follow:yes"}, {"file:x,pid:x", "pid:x"}, {"file:x\x1b[2J,\x1b:", "what is ?:?"}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        captured_t c = capture(parse, (void *)(uintptr_t)cases[i][0]);
        CHECK_EQ(c.exit_code, 0);
        if (!strstr(c.text, cases[i][1])) TEST_FAIL("%s: %s", cases[i][0], c.text);
        CHECK_PTR_EQ(strchr(c.text, '\n'), c.text + c.length - 1);
    }
}

TEST(names) {
    char path[32];
    CHECK(qy_trace_config_parse(&config, "file:/t/%e-%p%c%%%x"));
    CHECK(qy_trace_config_path(&config, 42, "prog", 1, path, sizeof path));
    CHECK_STR_EQ(path, "/t/prog-42,%x");
    CHECK(qy_trace_config_path(&config, 42, "prog", 3, path, sizeof path));
    CHECK_STR_EQ(path, "/t/prog-42,%x.3");
    CHECK(!qy_trace_config_path(&config, 42, "a program of a long name", 3, path, sizeof path));
    CHECK(qy_trace_config_inherit("file:a", 7, path, sizeof path - 1));
    CHECK_STR_EQ(path, "QUARRY_RECORD=file:a,pid:7");
    CHECK(!qy_trace_config_inherit("file:aaaaaaaaaaaaaaa", 7, path, sizeof path));
}

TEST(json) {
    char buf[64];
    qy_json_t j;
    qy_json_begin(&j, buf, sizeof buf);
    qy_json_raw(&j, "{");
    qy_json_key(&j, "a\"");
    qy_json_number(&j, UINT64_MAX);
    qy_json_key(&j, "b");
    qy_json_string(&j, "\\\n\x7f\xc3\xa4\xff\xed\xa0\x80", SIZE_MAX);
    CHECK_STR_EQ(buf, "{\"a\\\"\":18446744073709551615,\"b\":"
                      "\"\\\\\\u000a\\u007f\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
    CHECK(!j.full);
    // A string that does not fit is cut between characters, and still closed.
    for (size_t bytes = 2; bytes < 20; bytes++) {
        qy_json_begin(&j, buf, bytes);
        qy_json_string(&j, "\xc3\xa4\xc3\xa4\xc3\xa4\"x", SIZE_MAX);
        size_t n = qy_json_length(&j);
        CHECK_LT(n, bytes);
        if (n) CHECK_EQ(buf[n - 1], '"');
        CHECK(n != 1);
        for (size_t i = 0; i + 1 < n; i++)
            if ((unsigned char)buf[i] == 0xc3) CHECK_EQ((unsigned char)buf[i + 1], 0xa4);
    }
    qy_json_begin(&j, buf, sizeof buf);
    qy_json_string(&j, "abcdef", 3);
    CHECK_STR_EQ(buf, "\"abc\"");
}

// However little room there is, nothing is stored behind it.
static void heads(void *arg) {
    static char buf[4096];
    (void)arg;
    // As /proc has it, this process has many arguments now.
    char *name = program_invocation_name;
    for (size_t i = 1, n = strlen(name); i < n; i += 2) name[i] = '\0';
    for (size_t bytes = 2; bytes < sizeof buf / 2; bytes++) {
        memset(buf, '#', sizeof buf);
        CHECK_LT(qy_record_head_text(buf, bytes), bytes);
        for (size_t i = bytes; i < sizeof buf; i++) CHECK_EQ(buf[i], '#');
    }
}
TEST(head_in_little_room) { run_apart(heads, NULL); }

TEST_MAIN()
