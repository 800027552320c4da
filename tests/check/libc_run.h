// SPDX-License-Identifier: MIT
// libc_run.h: runs the cases that test_libc.py has written; behind libc_prelude.h.
//
// To each call belongs a line in the file of the first argument: what was called, how, and with which block.

struct test_case {
    const char *function, *parameter;
    char letter;
    unsigned unit, at;
    void (*call)(char *p);
    size_t (*fill)(char *image);  // how many bytes the function needs there; and fills them
};

static FILE *answers;
static bool is_showing;  // results and memory, too
static char *others[16];
static size_t others_bytes[16];
static unsigned others_count;
static sigjmp_buf back;

// An argument that a case is not about. No function writes behind what it needs.
__attribute__((unused)) static char *other(size_t n) {
    char *p = spare(n + 4096);
    if (others_count < 16) {
        others_bytes[others_count] = n;
        others[others_count++] = p;
    }
    return p;
}

static const char *block_shown;
static size_t block_shown_bytes;
__attribute__((unused)) static void show_pointer(const void *r) {
    if (!is_showing) return;
    const char *p = r;
    if (p >= block_shown && p <= block_shown + block_shown_bytes) fprintf(answers, "  r block%+td\n", p - block_shown);
    else fprintf(answers, "  r %s\n", p ? "pointer" : "none");
}
__attribute__((unused)) static void show_number(long r) {
    if (is_showing) fprintf(answers, "  r %ld\n", r);
}
__attribute__((unused)) static void show_real(long double r) {
    if (is_showing) fprintf(answers, "  r %Lf\n", r);
}
static void show_bytes(const char *p, size_t n) {
    if (!is_showing) return;
    fprintf(answers, "  ");
    for (size_t i = 0; i < n; i++) fprintf(answers, "%02x", (unsigned char)p[i]);
    fprintf(answers, "\n");
}

// A function that follows what it has read from where it should not have may fault: that is what the report was for.
static void faulted(int number) {
    (void)number;
    siglongjmp(back, 1);
}

static void call(const struct test_case *t, const char *how, char *block, size_t n, char *p) {
    fprintf(answers, "%s %s %s %p %zu\n", t->function, t->parameter, how, (void *)block, n);
    fflush(answers);
    others_count = 0;
    block_shown = block;
    block_shown_bytes = n;
    if (sigsetjmp(back, 1) == 0) t->call(p);
    else if (strcmp(how, "good") == 0) fprintf(answers, "  faulted\n");
    fflush(stdout);
}

// Bytes of the case: which the time or chance has written are not shown.
static void run_case(const struct test_case *t) {
    size_t n = t->fill(NULL);
    char *image = spare(n + 64);
    t->fill(image);
    char *good = malloc(n);
    memcpy(good, image, n);
    call(t, "good", good, n, good);
    show_bytes(good, n);
    for (unsigned i = 0; i < others_count; i++) show_bytes(others[i], others_bytes[i]);
    if (is_showing) return;

    char *freed = malloc(n);
    memcpy(freed, image, n);
    free(freed);
    call(t, "freed", freed, n, freed);
    char *over = malloc(n - 1);
    memcpy(over, image, n - 1);
    call(t, "over", over, n - 1, over);
    // The block before gives the zone in which this begins.
    char *under = malloc(n);
    memcpy(under, image + t->unit, n - t->unit);
    call(t, "under", under, n, under - t->unit);
}

// Where a path has lost its end, a call may make a file of any name. In the folders of these paths only root may do so,
// so root becomes a user without rights. Such a process cannot look at its own maps, unless it says that it may.
static bool gives_rights_up(void) {
    if (access("/", W_OK) && access("/usr", W_OK)) return true;
    return setgid(65534) == 0 && setuid(65534) == 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0;
}

// Arguments: the file for the answers; "show".
static int run(int argc, char **argv, const struct test_case *cases, size_t n) {
    static char stack[65536];
    sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = sizeof stack}, NULL);
    struct sigaction fault = {.sa_handler = faulted, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &fault, NULL);
    sigaction(SIGBUS, &fault, NULL);
    answers = fopen(argv[1], "w");
    is_showing = argc > 2;
    if (!answers || !gives_rights_up()) return 1;
    for (size_t i = 0; i < n; i++) {
        if (chdir("/usr")) return 1;
        run_case(&cases[i]);
    }
    return fclose(answers) != 0;
}
