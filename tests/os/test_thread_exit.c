// SPDX-License-Identifier: MIT
#include <limits.h>
#include <pthread.h>
#include <sched.h>

#include "base/compiler.h"
#include "captured.h"
#include "os/os.h"

// ---- what happened, in order ------------------------------------------------------------------------

static char story[256];  // of the one thread that runs; read after it was joined
static size_t story_length;
static void tell(char c) { story[story_length++] = c, story[story_length] = '\0'; }
static void begin(void) { story_length = 0, story[0] = '\0'; }

static void ours(void *arg) {
    CHECK_EQ(*(int *)arg, 42);
    tell('#');
}
static int arg __attribute__((aligned(8))) = 42;
static int wrong __attribute__((aligned(8))) = 43;

// A neighbour: a key whose destructor allocates, and sets its value again `rounds` - 1 times.
typedef struct neighbour {
    pthread_key_t key;
    char name;
    int rounds;
} neighbour_t;

static void neighbour_end(void *p) {
    neighbour_t *n = p;
    char *block = malloc(1000);
    CHECK(block != NULL);
    memset(block, 1, 1000);
    free(block);
    tell(n->name);
    if (--n->rounds > 0) CHECK_EQ(pthread_setspecific(n->key, n), 0);
}

static neighbour_t early = {.name = 'e'}, late = {.name = 'l'};

static void *run(void *unused) {
    (void)unused;
    CHECK_EQ(pthread_setspecific(late.key, late.rounds ? &late : NULL), 0);
    errno = 77;
    CHECK(qy_os_at_thread_exit(ours, &arg));
    CHECK_EQ(errno, 77);
    CHECK_EQ(pthread_setspecific(early.key, early.rounds ? &early : NULL), 0);
    return NULL;
}

static const char *thread_story(int early_rounds, int late_rounds) {
    pthread_t t;
    begin();
    early.rounds = early_rounds;
    late.rounds = late_rounds;
    CHECK_EQ(pthread_create(&t, NULL, run, NULL), 0);
    pthread_join(t, NULL);
    return story;
}

// With glibc ours comes late in a round, with others in the order in which the keys were made.
#ifdef __GLIBC__
#define STORY(late, in_turn) late
#define LATEST_ROUND PTHREAD_DESTRUCTOR_ITERATIONS
#else
#define STORY(late, in_turn) in_turn
#define LATEST_ROUND (PTHREAD_DESTRUCTOR_ITERATIONS - 1)
#endif

// `late` is made after ours, but its key lies before it all the same.
TEST(set_up) {
    CHECK_EQ(pthread_key_create(&early.key, neighbour_end), 0);
    qy_os_thread_exit_late();
    CHECK(qy_os_at_thread_exit(ours, &arg));  // the main thread never ends
    CHECK_EQ(pthread_key_create(&late.key, neighbour_end), 0);
    CHECK_LT(early.key, late.key);
}

TEST(alone) { CHECK_STR_EQ(thread_story(0, 0), "#"); }
TEST(after_all_others) {
    CHECK_STR_EQ(thread_story(1, 0), "e#");
    CHECK_STR_EQ(thread_story(0, 1), STORY("l#", "#l"));
    CHECK_STR_EQ(thread_story(1, 1), STORY("el#", "e#l"));
}
// Who comes back in later rounds comes after us, who ends once.
TEST(later_rounds) {
    CHECK_STR_EQ(thread_story(2, 2), STORY("el#el", "e#lel"));
    if (QY_TSAN) TEST_SKIP("needs a build without ThreadSanitizer, whose own end comes in the last round");
    CHECK_STR_EQ(thread_story(0, 4), STORY("l#lll", "#llll"));
}

// The first use of a thread is in another key's destructor, in any of the rounds.
static pthread_key_t first_key;
static int rounds_to_wait;
static void use_late(void *p) {
    if (rounds_to_wait-- > 0) {
        CHECK_EQ(pthread_setspecific(first_key, p), 0);
        return;
    }
    tell('u');
    CHECK(qy_os_at_thread_exit(ours, &arg));
}
static void *run_late(void *p) {
    CHECK_EQ(pthread_setspecific(first_key, p), 0);
    return NULL;
}
TEST(registered_in_a_destructor) {
    CHECK_EQ(pthread_key_create(&first_key, use_late), 0);
    for (int round = 0; round < LATEST_ROUND - QY_TSAN; round++) {  // its own end is in the last
        pthread_t t;
        begin();
        rounds_to_wait = round;
        CHECK_EQ(pthread_create(&t, NULL, run_late, &arg), 0);
        pthread_join(t, NULL);
        CHECK_STR_EQ(story, "u#");
    }
    pthread_key_delete(first_key);
}

static void *run_twice(void *unused) {
    (void)unused;
    CHECK(qy_os_at_thread_exit(ours, &wrong));
    CHECK(qy_os_at_thread_exit(ours, &arg));  // replaces
    return NULL;
}
TEST(registered_twice) {
    pthread_t t;
    begin();
    CHECK_EQ(pthread_create(&t, NULL, run_twice, NULL), 0);
    pthread_join(t, NULL);
    CHECK_STR_EQ(story, "#");
}

static void other(void *unused) { (void)unused; }
TEST(refusals) {
    CHECK(!qy_os_at_thread_exit(other, &arg));
    CHECK(!qy_os_at_thread_exit(ours, NULL));
}

// ---- from many threads, first use included, in processes of their own -------------------------------

static _Atomic int ends;
static _Atomic bool go;
static void count_end(void *p) { ends += *(int *)p; }
static void *run_counted(void *one) {
    while (!go) sched_yield();
    CHECK(qy_os_at_thread_exit(count_end, one));
    return NULL;
}
static void race(void *unused) {
    (void)unused;
    static int one __attribute__((aligned(8))) = 1;
    pthread_t t[8];
    for (int i = 0; i < 8; i++) CHECK_EQ(pthread_create(&t[i], NULL, run_counted, &one), 0);
    go = true;
    for (int i = 0; i < 8; i++) pthread_join(t[i], NULL);
    CHECK_EQ(ends, 8);
}
// With so many keys that libc allocates a table for them.
static void race_with_many_keys(void *count) {
    pthread_key_t key;
    for (int i = 0; i < *(int *)count; i++) CHECK_EQ(pthread_key_create(&key, NULL), 0);
    race(NULL);
}
// Behind all of these ours comes, too, though a key from before says when the thread ends.
static void late_beside_many_keys(void *unused) {
    (void)unused;
    pthread_key_t key;
    pthread_t t;
    qy_os_thread_exit_late();
    for (int i = 0; i < 40; i++) CHECK_EQ(pthread_key_create(&key, NULL), 0);
    CHECK_EQ(pthread_key_create(&early.key, neighbour_end), 0);
    early.rounds = 1;
    late.rounds = 0;
    late.key = key;
    CHECK_EQ(pthread_create(&t, NULL, run, NULL), 0);
    pthread_join(t, NULL);
    CHECK_STR_EQ(story, STORY("e#", "#e"));
}
static void no_key_left(void *unused) {
    (void)unused;
    pthread_key_t key = 0, last = 0;
    while (pthread_key_create(&key, NULL) == 0) last = key;
    errno = 77;
    CHECK(!qy_os_at_thread_exit(count_end, &arg));
    CHECK_EQ(errno, 77);
    pthread_key_delete(last);
    CHECK(qy_os_at_thread_exit(count_end, &arg));  // later it works
}

// One was kept from the start on; not for a program that has threads before, which has it back then.
static void kept_key(void *unused) {
    (void)unused;
    pthread_key_t key, before;
    CHECK_EQ(pthread_key_create(&before, NULL), 0);
    pthread_key_delete(before);
    qy_os_thread_exit_late();
    qy_os_thread_exit_late();
    int taken = 0;
    while (pthread_key_create(&key, NULL) == 0) taken++;
#ifdef __GLIBC__
    CHECK_GE(taken, PTHREAD_KEYS_MAX - 4);  // sanitizers have some
#endif
    race(NULL);
}
static void kept_key_is_given_back(void *unused) {
    (void)unused;
    pthread_key_t before, after;
    CHECK_EQ(pthread_key_create(&before, NULL), 0);
    pthread_key_delete(before);
    qy_os_thread_exit_late();
    race(NULL);
    CHECK_EQ(pthread_key_create(&after, NULL), 0);
#ifdef __GLIBC__
    CHECK_EQ(after, before);
#endif
}

// A child would inherit our key: these run this program anew.
static void again(const char *name) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "test", name, (char *)NULL);
        _exit(127);
    }
    int status;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

TEST(first_use_by_many) { again("+race"); }
TEST(many_keys) { again("+many"); }
TEST(late_of_many_keys) { again("+late"); }
TEST(no_keys) { again("+none"); }
TEST(no_keys_but_the_kept_one) { again("+kept"); }
TEST(the_kept_key_is_given_back) { again("+back"); }

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "+race")) return race(NULL), 0;
    if (argc == 2 && !strcmp(argv[1], "+many")) return race_with_many_keys(&(int){100}), 0;
    if (argc == 2 && !strcmp(argv[1], "+late")) return late_beside_many_keys(NULL), 0;
    if (argc == 2 && !strcmp(argv[1], "+none")) return no_key_left(NULL), 0;
    if (argc == 2 && !strcmp(argv[1], "+kept")) return kept_key(NULL), 0;
    if (argc == 2 && !strcmp(argv[1], "+back")) return kept_key_is_given_back(NULL), 0;
    return test_main(argc, argv);
}
