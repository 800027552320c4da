// SPDX-License-Identifier: MIT
// bad.c: wrong uses of scopes. BAD: RULE at the end of a line says what check_scopes.py must report there.
// The layout is part of the cases:
// clang-format off
#include <quarry/scope.h>
#include <quarry/short.h>
#include <stdio.h>
#include <string.h>

#define COPY(s) t_strdup(s)  // BAD: no-scope

typedef struct node {
    struct node *next;
    char *text;
} node;

static const char *kept;
static node *list, root;

static char *t_join(const char *a, const char *b) { return t_printf("%s%s", a, b); }

static int forgotten(const char *s) {
    return (int)strlen(t_join(s, "!"));  // BAD: no-scope
}

static char *wrong_name(const char *s) { return t_strdup(s); }  // BAD: no-scope

static void pool_too(void) { quarry_pool_alloc(t_pool(), 8, 8, 0); }  // BAD: no-scope
static void typed_too(void) { p_new(t_pool(), int, 8); }               // BAD: no-scope

static void too_late(void) {
    char *p = t_strdup("x");  // BAD: no-scope
    t_scope;
    puts(p);
}

static void sibling(int on) {
    if (on) {
        t_scope;
        puts(t_strdup("a"));
    }
    puts(t_strdup("b"));  // BAD: no-scope
    { t_scope; }
    puts(t_strdup("c"));  // BAD: no-scope
    if (!on) {
        t_scope;
    } else {
        puts(t_strdup("d"));  // BAD: no-scope
    }
}

static void without_braces(int on) {
    if (on) t_scope;  // BAD: no-scope
    puts("x");
    for (char *p = t_strdup("x"); *p; p++) puts(p);  // BAD: no-scope
    while (t_join("a", "b")[0] == on) {}             // BAD: no-scope
    if (on) puts("y"); else puts(t_strdup("z"));     // BAD: no-scope
}

static node broken(int n) {
    node x = {.text = t_strdup("x")};             // BAD: no-scope
    char *many[] = {[0] = t_strdup("a"), "b"};    // BAD: no-scope
    int length = ({ char *p = t_strdup("x"); (int)strlen(p); });  // BAD: no-scope
    x.next = &(node){.text = t_new(char, n)};     // BAD: no-scope
    x.text = many[0] + length;
    return x;
}

static int old_style(a, b)
    const char *a;
    int b;
{
    return (int)strlen(t_join(a, "x")) + b;  // BAD: no-scope
}

static int (*returns_a_function(int n))(int) {
    t_new(int, n);  // BAD: no-scope
    return NULL;
}

static int *(*returns_an_array(int n))[4] {
    t_new(int, n);  // BAD: no-scope
    return NULL;
}

#if defined(A)
static void conditional(int n) {
    if (n) {
#else
static void conditional(long n) {
    {
#endif
        puts(t_strdup("x"));  // BAD: no-scope
    }
}

__attribute__((constructor(101))) static void attributed(void) {
    puts(t_strdup("x"));  // BAD: no-scope
}

TEST(in_a_macro) {
    puts(t_strdup("x"));  // BAD: no-scope
}

static void for_each_macro(node *n) {
    LIST_EACH(at, n) {
        puts(t_strdup("x"));  // BAD: no-scope
    }
    LIST_EACH(at, n) {
        t_scope;
        puts(t_strdup("x"));
    }
    puts(t_strdup("y"));  // BAD: no-scope
}

static int nested_function(void) {
    int inner(int x) { return x + (int)strlen(t_strdup("x")); }  // BAD: no-scope
    return inner(1);
}

static void through_members(node *n) {
    n->t_grow(8);  // BAD: no-scope
}

static void cases(int what) {
    switch (what) {
    case 1:;
        t_scope;
        puts(t_strdup("one"));
        break;
    case 2: puts(t_strdup("two")); break;  // BAD: jumps-in
    }
}

static void jump(int on) {
    if (on) goto middle;  // BAD: jumps-in
    t_scope;
    puts("x");
middle:
    puts(t_strdup("y"));
}

static char *returned(const char *s) {
    t_scope;
    char *p = t_strdup(s);
    return p;  // BAD: escapes
}

static const char *returned_inside(const char *s) {
    t_scope;
    const char *p, *q;
    p = q = t_strdup(s);
    if (!s) return "";
    if (s[0]) return (const char *)(p + 1);  // BAD: escapes
    if (s[1]) return &q[3];                  // BAD: escapes
    return s[2] ? p : NULL;                  // BAD: escapes
}

static char *returned_call(const char *s) {
    t_scope;
    return t_join(s, "x");  // BAD: escapes
}

static node *returned_copy(const char *s) {
    t_scope;
    node *n = t_new(node, 1), *m = n;
    m->text = t_strdup(s);
    return m;  // BAD: escapes
}

static char *returned_later(const char *s) {
    char *p = NULL;
    if (s) {
        t_scope;
        p = t_strdup(s);
    }
    return p;  // BAD: escapes
}

static void used_later(const char *s) {
    char *p;
    {
        t_scope;
        p = t_strdup(s);
    }
    puts(p);  // BAD: escapes
}

static int *grown(int n) {
    t_scope;
    int *p = NULL;
    t_renew(&p, 0, n);
    return p;  // BAD: escapes
}

static int stored(char **out, node *into, char *array[]) {
    t_scope;
    *out = t_strdup("x");           // BAD: escapes
    into->text = t_strdup("y");     // BAD: escapes
    char *p = t_strdup("z");
    array[3] = p;                   // BAD: escapes
    return 0;
}

static void stored_for_good(void) {
    static char *once;
    t_scope;
    kept = t_strdup("x");                      // BAD: escapes
    list->next = t_new(node, 1);               // BAD: escapes
    root.text = t_strdup("y");                 // BAD: escapes
    if (!once) once = t_printf("%d", 3);       // BAD: escapes
}

static char *t_returned(const char *s) {
    t_scope;
    char *p = t_strdup(s);
    return p;  // BAD: t-function
}

static node *t_all(int n) {
    t_scope;
    return t_new(node, n);  // BAD: t-function
}

static int t_out(char **out) {
    t_scope;
    *out = t_strdup("x");  // BAD: t-function
    return 0;
}
