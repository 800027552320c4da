// SPDX-License-Identifier: MIT
// program_cxx.cpp: operators new and delete, matched and mixed up; test_check.py runs them by name. With OWN_OPERATORS
// the program has a new of its own, which is made of malloc, and the library's delete.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <string>
#include <vector>

static size_t size;

#ifdef OWN_OPERATORS
void *operator new(size_t n) {
    void *p = std::malloc(n);
    if (!p) throw std::bad_alloc();
    return p;
}
#endif

struct alignas(64) wide {
    char bytes[64];
};

static void clean() {
    std::map<int, std::string> m;
    for (int i = 0; i < 1000; i++) m[i] = std::string(static_cast<size_t>(i), 'x');
    std::vector<wide> w(10);
    w.resize(100);
    delete new int(1);
    delete[] new std::string[3];
    ::operator delete(::operator new(size), size);
    ::operator delete[](::operator new[](size, std::nothrow), std::nothrow);
    ::operator delete(::operator new(size, std::align_val_t(128)), size, std::align_val_t(128));
    ::operator delete[](
        ::operator new[](size, std::align_val_t(32), std::nothrow), std::align_val_t(32), std::nothrow);
    try {
        volatile size_t much = static_cast<size_t>(1) << 46;
        ::operator delete(::operator new(much));
        std::_Exit(9);
    } catch (const std::bad_alloc &) {
    }
    if (::operator new(static_cast<size_t>(1) << 46, std::nothrow)) std::_Exit(9);
}

static void malloc_delete() { ::operator delete(std::malloc(size)); }
// The C library allocates, in the name of this file.
static void strdup_delete() {
    static char text[8192];
    std::memset(text, 'x', size - 1);
    ::operator delete(strdup(text));
}
static void new_free() { std::free(::operator new(size)); }
static void new_delete_array() { ::operator delete[](::operator new(size)); }
static void array_delete() { ::operator delete(::operator new[](size)); }
static void new_realloc() { std::free(std::realloc(::operator new(size), 2 * size)); }
static void sized_delete() { ::operator delete(::operator new(size), size + 8); }
static void aligned_delete() { ::operator delete(::operator new(size, std::align_val_t(64))); }
static void other_align() { ::operator delete(::operator new(size, std::align_val_t(64)), std::align_val_t(128)); }
static void double_delete() {
    void *p = ::operator new(size);
    ::operator delete(p);
    ::operator delete(p);
}

static const struct {
    const char *name;
    void (*run)();
} faults[] = {{"clean", clean}, {"malloc-delete", malloc_delete}, {"new-free", new_free},
    {"strdup-delete", strdup_delete},
    {"new-delete-array", new_delete_array}, {"array-delete", array_delete}, {"new-realloc", new_realloc},
    {"sized-delete", sized_delete}, {"aligned-delete", aligned_delete}, {"other-align", other_align},
    {"double-delete", double_delete}};

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    size = std::strtoul(argv[2], nullptr, 10);
    for (const auto &f : faults) {
        if (std::strcmp(f.name, argv[1]) != 0) continue;
        f.run();
        return 7;
    }
    return 2;
}
