// SPDX-License-Identifier: MIT
// good.c: right uses of scopes, for check_scopes.py: nothing in here may be reported.
// The layout is part of the cases:
// clang-format off
#include <quarry/scope.h>
#include <stdio.h>
#include <string.h>

#define BUFFER 4096
#define t_pair(a, b) t_printf("%s=%s", (a), (b))
#define WITH_SCOPE(what) \
    do {                 \
        t_scope;         \
        puts(what);      \
        puts(t_strdup(what)); \
    } while (0)

typedef struct node {
    struct node *next;
    char *text;
    int t_count;  // a member, not a call
} node;

static const char *kept;
static node *list;

static char *t_join(const char *a, const char *b) { return t_printf("%s%s", a, b); }

// A t_ function may have t_ calls anywhere, and return what it wants.
static node *t_make(const char *text) {
    node *n = t_new(node, 1);
    n->text = t_strdup(text);
    return n;
}

static int t_count_words(const char *s) {
    t_scope;  // for its own work only
    int n = 0;
    char *copy = t_strdup(s);
    for (char *p = strtok(copy, " "); p; p = strtok(NULL, " ")) n++;
    return n;
}

static int *(*t_table(int n))[4] { return (int *(*)[4])t_new(int *[4], n); }

static int simple(const char *s) {
    t_scope;
    return (int)strlen(t_join(s, "!"));
}

static int value_of_what_ends(const char *s) {
    t_scope;
    char *copy = t_strdup(s);
    node *n = t_make(s);
    return copy[0] + n->t_count + *copy + (copy != NULL) + (copy == n->text);
}

static size_t difference(const char *s) {
    t_scope;
    char *copy = t_strdup(s);
    char *end = copy + strlen(copy);
    return end - copy;
}

static int same_name_as_global(void) {
    t_scope;
    node *list = t_make("local");
    return list->t_count;
}

static void nested(int n) {
    t_scope;
    for (int i = 0; i < n; i++) {
        t_scope;
        char *p = t_strdup("inner");
        if (i & 1) continue;
        puts(p);
    }
    if (n) puts(t_strdup("a")); else puts(t_strdup("b"));
    do puts(t_strdup("c")); while (--n > 0);
    while (n < 3) { puts(t_strdup("d")); n++; }
}

static void in_inner_block(int on) {
    if (on) {
        t_scope;
        puts(t_strdup("x"));
    } else {
        t_scope;
        puts(t_strdup("y"));
    }
    { t_scope; t_scope; puts(t_strdup("z")); }
    WITH_SCOPE("w");
}

static void cases(int what) {
    switch (what) {
    case 1: {
        t_scope;
        puts(t_strdup("one"));
        break;
    }
    case 'b':
    case 3 ? 4 : 5: {
        t_scope;
        puts(t_strdup("more"));
    } break;
    default: break;
    }
}

static void before_switch(int what) {
    t_scope;
    switch (what) {
    case 1: puts(t_strdup("one")); break;
    default: puts(t_strdup("other"));
    }
    goto end;
end:
    puts(t_strdup("end"));
}

static void restored(node *n) {
    t_scope;
    char *before = n->text;
    n->text = t_strdup("for a while");
    puts(n->text);
    n->text = before;
}

static int left_early(const char *s) {
    const char *p = s;
    if (s[0] == '#') {
        t_scope;
        p = t_strdup(s + 1);
        puts(p);
        return 1;
    }
    return p[0];
}

static char *reassigned(char *fallback) {
    char *p;
    {
        t_scope;
        p = t_strdup("x");
        puts(p);
    }
    p = fallback;
    return p;
}

static char *copied(void) {
    t_scope;
    char *p = t_strdup("x");
    return strdup(p);
}

static const char *global_is_not_local(void) {
    t_scope;
    node *n = t_make("x");
    puts(n->text);
    return kept;
}

static char *other_way(int which, char *mine) {
    t_scope;
    char *p = t_strdup("x");
    puts(p);
    return which ? mine : NULL;
}

static int count_outside(const char *s) {
    t_scope;
    int n = t_count_words(s);
    return n;
}

static size_t unevaluated(void) { return sizeof(*t_new(node, 1)) + sizeof(__typeof__(t_make("x"))); }

static int prototype(void) {
    extern char *t_elsewhere(const char *s);
    char *(*make)(const char *) = t_elsewhere;  // no call
    return make != NULL;
}

/* scope: caller */
static char *opened_by_who_calls(void) { return t_strdup("x"); }

static void in_parts(void) {
    puts(t_strdup("begun elsewhere"));  // scope: caller
}

static void manual(void) {
    quarry_stack_frame_t frame;
    quarry_stack_push(t_pool(), &frame);
    puts(t_strdup("x"));
    quarry_stack_pop(t_pool(), &frame);
}

static void statement_expression(void) {
    int n = ({
        t_scope;
        (int)strlen(t_strdup("x"));
    });
    printf("%d\n", n);
}

static int old_style(a, b)
    const char *a;
    int b;
{
    t_scope;
    return (int)strlen(t_join(a, "x")) + b;
}

#if BUFFER > 100
static void branches(int n) {
#else
static void branches(long n) {
#endif
    t_scope;
#ifdef DEBUG
    if (n) {
#else
    {
#endif
        puts(t_strdup("x"));
    }
}

#if 0
static void never(void) { puts(t_strdup("x")); }
#endif

/* char *p = t_strdup("in a comment"); */
static const char *text = "t_strdup(\"in a string\")" "'";
static const char quote = '"', *after = "t_new(";
static int t_other = 3;
static int compare(int a) { return t_other < a && a > (t_other); }

__attribute__((constructor(101))) static void attributed(void) {
    t_scope;
    puts(t_strdup(text));
}

static void for_each_macro(node *n) {
    t_scope;
    LIST_EACH(at, n) {
        t_scope;
        puts(t_strdup("x"));
    }
    puts(t_strdup("y"));
}

static int initializers(void) {
    t_scope;
    node n = {.text = t_strdup("x"), .next = &(node){.text = t_strdup("y")}};
    char *both[] = {[0] = t_strdup("a"), [1] = t_strdup("b")};
    return n.text[0] + both[1][0];
}

static int nested_function(void) {
    t_scope;
    int inner(int x) { return x + (int)strlen(t_strdup("x")); }
    return inner(1);
}

static void grown(void) {
    t_scope;
    int *p = NULL;
    t_renew(&p, 0, 100);
    p[99] = 1;
}

static int own_scope_of_t(void) {
    t_scope;
    int (*x)[4] = (int (*)[4])t_table(1);
    return (*x)[0] + quote + after[0] + simple("") + same_name_as_global();
}

static void each_its_own(int what, char *p) {
    switch (what) {
    case 1: {
        t_scope;
        p = t_strdup("x");
        puts(p);
        break;
    }
    case 2: puts(p); break;
    }
}

static void parameter_as_variable(char *p, node by_value) {
    t_scope;
    p = t_strdup(p);
    by_value.text = p;
    puts(by_value.text);
}

static size_t only_looks_at_it(void) {
    quarry_pool_stats_t stats;
    quarry_pool_t *pool = t_pool();
    quarry_pool_stats(t_pool(), &stats);
    return pool ? stats.used_bytes : 0;
}
