// SPDX-License-Identifier: MIT
#include "rt/opts.h"

#include <fcntl.h>

#include "captured.h"

static qy_opts_t parsed;

// Parsed twice: in a child for its warnings, and here, silenced, for the values.
static void parse_body(void *conf) {
    qy_opts_t o = qy_opts;
    _exit(qy_opts_parse(&o, conf));
}
static captured_t parse(const char *conf) {
    captured_t c = capture(parse_body, (void *)conf);
    int stderr_copy = dup(2), null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    parsed = qy_opts;
    int problems = qy_opts_parse(&parsed, conf);
    dup2(stderr_copy, 2);
    close(stderr_copy);
    close(null);
    CHECK_EQ(c.exit_signal, 0);
    CHECK_EQ(c.exit_code, problems);
    return c;
}

#define QUIET(conf) CHECK_STR_EQ(parse(conf).text, "")
#define WARNS(conf, problems, warning)                                       \
    do {                                                                     \
        captured_t c = parse(conf);                                          \
        CHECK_EQ(c.exit_code, problems);                                     \
        CHECK_STR_EQ(c.text, "quarry: warning: QUARRY_CONF: " warning "\n"); \
        CHECK_EQ(memcmp(&parsed, &qy_opts, sizeof parsed), 0);               \
    } while (0)

TEST(defaults) {
#define X(name, type, def, min, max, doc) CHECK(qy_opts.name == (def));
#include "rt/opts.def"
#undef X
    QUIET("");
    QUIET(",");
    QUIET(",,,");
    CHECK_EQ(memcmp(&parsed, &qy_opts, sizeof parsed), 0);
}

TEST(booleans) {
    static const char *const yes[] = {"on", "1", "true", "yes"}, *const no[] = {"off", "0", "false", "no"};
    char conf[64];
    for (int i = 0; i < 4; i++) {
        snprintf(conf, sizeof conf, "stats:%s,tcache:%s", yes[i], no[i]);
        QUIET(conf);
        CHECK(parsed.stats);
        CHECK(!parsed.tcache);
    }
    WARNS("stats:2", 1, "stats: '2' is neither on nor off");
    WARNS("stats:", 1, "stats: '' is neither on nor off");
    WARNS("stats:o", 1, "stats: 'o' is neither on nor off");
    WARNS("stats:onn", 1, "stats: 'onn' is neither on nor off");
}

TEST(numbers) {
    QUIET("arenas:7,purge_delay:600000");
    CHECK_EQ(parsed.arenas, 7);
    CHECK_EQ(parsed.purge_delay, 600000);
    QUIET("purge_delay:10");
    CHECK_EQ(parsed.purge_delay, 10);
    QUIET("purge_delay:0000000000000000000000000000011");
    CHECK_EQ(parsed.purge_delay, 11);
    QUIET("arenas:1k,purge_delay:2K");
    CHECK_EQ(parsed.arenas, 1024);
    CHECK_EQ(parsed.purge_delay, 2048);
    QUIET("arenas:0k");
    CHECK_EQ(parsed.arenas, 0);
    WARNS("arenas:1025", 1, "arenas: '1025' is not within 0 and 1024");
    WARNS("purge_delay:9", 1, "purge_delay: '9' is not within 10 and 600000");
    WARNS("purge_delay:1m", 1, "purge_delay: '1m' is not within 10 and 600000");
    WARNS("purge_delay:1G", 1, "purge_delay: '1G' is not within 10 and 600000");
    // 2^64, 2^64 + 1024, and 2^34 g: sums and products that wrap to small numbers.
    WARNS("arenas:18446744073709551616", 1, "arenas: '18446744073709551616' is not within 0 and 1024");
    WARNS("arenas:18446744073709552640", 1, "arenas: '18446744073709552640' is not within 0 and 1024");
    WARNS("arenas:17179869184g", 1, "arenas: '17179869184g' is not within 0 and 1024");
    WARNS("arenas:", 1, "arenas: '' is not a number");
    WARNS("arenas:k", 1, "arenas: 'k' is not a number");
    WARNS("arenas:-1", 1, "arenas: '-1' is not a number");
    WARNS("arenas:+1", 1, "arenas: '+1' is not a number");
    WARNS("arenas:1kk", 1, "arenas: '1kk' is not a number");
    WARNS("arenas:0x10", 1, "arenas: '0x10' is not a number");
    WARNS("arenas: 1", 1, "arenas: ' 1' is not a number");
}

TEST(strings) {
    char buf[16];
    QUIET("stats_file:/tmp/a:b=c,stats:on");
    CHECK(qy_opts_str(parsed.stats_file, buf, sizeof buf));
    CHECK_STR_EQ(buf, "/tmp/a:b=c");
    CHECK(parsed.stats);
    QUIET("stats:on,stats_file:0123456789abcdefgh");
    CHECK(qy_opts_str(parsed.stats_file, buf, sizeof buf));
    CHECK_STR_EQ(buf, "0123456789abcde");
    CHECK(qy_opts_str(parsed.stats_file, buf, 1));
    CHECK_STR_EQ(buf, "");
    CHECK(!qy_opts_str(parsed.stats_file, buf, 0));
    QUIET("stats_file:x,stats_file:");
    CHECK(!qy_opts_str(parsed.stats_file, buf, sizeof buf));
    CHECK(!qy_opts_str(NULL, buf, sizeof buf));
}

TEST(last_wins) {
    QUIET("arenas:3,arenas:5,");
    CHECK_EQ(parsed.arenas, 5);
    captured_t c = parse("arenas:3,arenas:x");
    CHECK_EQ(c.exit_code, 1);
    CHECK_EQ(parsed.arenas, 3);
}

TEST(unknown_keys) {
    WARNS("arena:1", 1, "unknown option 'arena', did you mean 'arenas'?");
    WARNS("aernas:1", 1, "unknown option 'aernas', did you mean 'arenas'?");
    WARNS("tcahce:off", 1, "unknown option 'tcahce', did you mean 'tcache'?");
    WARNS("purgedelay:5", 1, "unknown option 'purgedelay', did you mean 'purge_delay'?");
    WARNS("ar:1", 1, "unknown option 'ar'");
    WARNS("completely:1", 1, "unknown option 'completely'");
    WARNS("Arenas", 1, "unknown option 'Arenas', did you mean 'arenas'?");
    WARNS(":1", 1, "unknown option ''");
    WARNS(" ", 1, "unknown option ' '");
    WARNS("arenas", 1, "arenas: no value, write arenas:VALUE");
    WARNS("arenas=4", 1, "unknown option 'arenas=4', did you mean 'arenas'?");
    WARNS("an_option_with_a_name_that_goes_on_and_on_and_on_and_on:1", 1,
        "unknown option 'an_option_with_a_name_that_goes_on_and_on_an...'");
    WARNS("\x1b[2J:1", 1, "unknown option '?[2J'");
}

TEST(many_problems) {
    captured_t c = parse("a:1,b:1,c:1,d:1,e:1,f:1,g:1,h:1");
    CHECK_EQ(c.exit_code, 8);
    CHECK(strstr(c.text, "'h'") != NULL);
    CHECK(strstr(c.text, "more") == NULL);
    c = parse("a:1,b:1,c:1,arenas:x,e:1,f:1,g:1,h:1,i:1,arenas:9,j:1");
    CHECK_EQ(c.exit_code, 10);
    CHECK_EQ(parsed.arenas, 9);
    CHECK(strstr(c.text, "'h'") != NULL);
    CHECK(strstr(c.text, "'i'") == NULL);
    CHECK(strstr(c.text, "\nquarry: warning: QUARRY_CONF: and 2 more\n") != NULL);
}

// Whatever is in the environment: no crash, and values stay within their ranges.
TEST(noise) {
    static const char alphabet[] = "arenstcoffhupgdly_:,,::0123456789kmg \x7f\xff";
    uint64_t seed = test_seed;
    char conf[200];
    int stderr_copy = dup(2), null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    for (int i = 0; i < 20000; i++) {
        size_t n = test_random(&seed) % (sizeof conf - 1), at = 0;
        while (at < n) {
            static const char *const words[] = {"arenas:", "tcache:", "purge_delay:", "stats_file:", ","};
            const char *w = words[test_random(&seed) % 5];
            if (test_random(&seed) % 8 == 0 && at + strlen(w) < n) at += (size_t)sprintf(conf + at, "%s", w);
            else conf[at++] = alphabet[test_random(&seed) % (sizeof alphabet - 1)];
        }
        conf[n] = '\0';
        qy_opts_t o = qy_opts;
        qy_opts_parse(&o, conf);
        CHECK_LE(o.arenas, 1024);
        CHECK(o.purge_delay >= 10 && o.purge_delay <= 600000);
        CHECK(!o.stats_file || (o.stats_file > conf && o.stats_file < conf + n));
    }
    dup2(stderr_copy, 2);
    close(stderr_copy);
    close(null);
}

static void read_environment(void *conf) {
    if (conf) setenv("QUARRY_CONF", conf, 1);
    else unsetenv("QUARRY_CONF");
    qy_opts_read();
    _exit((int)qy_opts.arenas);
}
TEST(environment) {
    CHECK_EQ(capture(read_environment, NULL).exit_code, 0);
    CHECK_EQ(capture(read_environment, "arenas:42").exit_code, 42);
}

TEST_MAIN()
