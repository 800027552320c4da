// SPDX-License-Identifier: MIT
// own_cases.h: what a program with its own malloc does with libc, libstdc++ and others, each of which must end in the
// program's free.
#include <cxxabi.h>
#include <dirent.h>
#include <glob.h>
#include <locale.h>
#include <new>
#include <pthread.h>
#include <regex.h>
#include <search.h>
#include <string>
#include <vector>

#include "harness.h"

#ifndef __cpp_sized_deallocation  // clang declares it by a flag only
void operator delete(void *p, std::size_t n) noexcept;
#endif

struct small {
    char bytes[40];
};
static void *keep(void *p) {
    __asm__ volatile(""
                     : "+r"(p)::"memory");
    return p;
}

TEST(reallocarray) {
    int *p = (int *)malloc(40);
    p[9] = 5;
    p = (int *)reallocarray(p, 100, sizeof(int));
    CHECK(p && p[9] == 5);
    free(p);
    p = (int *)reallocarray(nullptr, 10, 4);
    free(realloc(p, 400));
}
TEST(reallocarray_overflow) {
    void *p = malloc(10);
    errno = 0;
    CHECK(!reallocarray(p, SIZE_MAX / 2, 3));
    CHECK_EQ(errno, ENOMEM);
    free(p);
}
TEST(new_then_free) {
    small *s = new small;
    keep(s);
    free(s);
}
TEST(malloc_then_delete) {
    ::operator delete(keep(malloc(40)));
    ::operator delete(keep(strdup("hello")));
    ::operator delete(keep(malloc(40)), size_t(40));
    ::operator delete[](keep(malloc(40)));
}
TEST(new_is_made_of_malloc) {
    size_t before = own_blocks;
    for (int i = 0; i < 1000; i++) {
        small *s = new small;
        keep(s);
        delete s;
    }
    CHECK_GE(own_blocks - before, 1000);
}
TEST(new_nothrow_and_arrays) {
    size_t before = own_blocks;
    char *p = new (std::nothrow) char[100], *q = new char[100];
    keep(p);
    keep(q);
    free(p);
    delete[] q;
    CHECK_GE(own_blocks - before, 2);
}
TEST(new_then_realloc) {
    char *s = (char *)::operator new(100);
    keep(s);
    s = (char *)realloc(s, 1000);
    free(s);
}
TEST(demangled_names) {
    int status;
    char *p = abi::__cxa_demangle("_ZNSt6vectorIiSaIiEE9push_backEOi", nullptr, nullptr, &status);
    CHECK(p != nullptr);
    free(p);
}
TEST(containers) {
    std::vector<std::string> x;
    for (int i = 0; i < 1000; i++) x.push_back(std::string(size_t(i), 'x'));
    CHECK_EQ(x.size(), 1000);
}
TEST(exceptions) {
    try {
        throw std::string(1000, 'x');
    } catch (const std::string &s) {
        CHECK_EQ(s.size(), 1000);
    }
}
TEST(lines_and_formats) {
    char *line = nullptr, *made = nullptr;
    size_t n = 0;
    FILE *f = fopen("/etc/passwd", "r");
    CHECK(f != nullptr);
    while (getline(&line, &n, f) > 0) {}
    fclose(f);
    free(line);
    CHECK_GT(asprintf(&made, "%0500d", 5), 0);
    free(made);
    f = open_memstream(&made, &n);
    for (int i = 0; i < 10000; i++) fprintf(f, "%d,", i);
    fclose(f);
    free(made);
}
TEST(names_of_files) {
    free(realpath("/etc/../usr", nullptr));
    free(getcwd(nullptr, 0));
    struct dirent **list;
    int n = scandir("/etc", &list, nullptr, alphasort);
    CHECK_GT(n, 0);
    for (int i = 0; i < n; i++) free(list[i]);
    free(list);
    glob_t g;
    CHECK_EQ(glob("/etc/*", 0, nullptr, &g), 0);
    globfree(&g);
}
TEST(inside_libc) {
    regex_t re;
    CHECK_EQ(regcomp(&re, "(a|b)*[c-e]+x{3,5}", REG_EXTENDED), 0);
    CHECK_EQ(regexec(&re, "ababcdexxxx", 0, nullptr, 0), 0);
    regfree(&re);
    setlocale(LC_ALL, "C.UTF-8");
    void *root = nullptr;
    static int keys[500];
    for (int i = 0; i < 500; i++)
        tsearch(&keys[i], &root, [](const void *a, const void *b) { return (a > b) - (a < b); });
    tdestroy(root, [](void *) {});
    setenv("FIELD_NEW", std::string(3000, 'v').c_str(), 1);
}
static void *in_thread(void *) {
    for (int i = 0; i < 2000; i++) {
        small *s = new small;
        keep(s);
        free(s);
        free(reallocarray(nullptr, size_t(i), 8));
    }
    return strdup("from a thread");
}
TEST(threads) {
    pthread_t t[4];
    for (auto &x : t) CHECK_EQ(pthread_create(&x, nullptr, in_thread, nullptr), 0);
    for (auto &x : t) {
        void *p;
        pthread_join(x, &p);
        free(p);
    }
}
