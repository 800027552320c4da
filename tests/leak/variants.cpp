// SPDX-License-Identifier: MIT
// variants.cpp: ways to lose memory that programs have, each in a function of its own: its block has 1,000 bytes more
// than its number. With the argument "good" the same functions lose nothing.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <exception>
#include <memory>
#include <vector>

namespace {

bool good;
int number;  // of the variant that runs

std::size_t bytes() { return 1000 + static_cast<std::size_t>(number); }
void end(void *p) {
    if (good) std::free(p);
}

void by_malloc() { end(std::malloc(bytes())); }
void by_calloc() { end(std::calloc(bytes(), 1)); }
void by_realloc() { end(std::realloc(std::malloc(10), bytes())); }
void by_strdup() {
    char text[3000] = "";
    std::memset(text, 'x', bytes() - 1);
    end(strdup(text));
}
void by_aligned_alloc() {
    void *p = nullptr;
    if (posix_memalign(&p, 64, bytes()) == 0) end(p);
}
void by_new() {
    auto *p = static_cast<char *>(::operator new(bytes()));
    if (good) ::operator delete(p);
}
void by_new_array() {
    char *p = new char[bytes()];
    p[0] = 1;
    if (good) delete[] p;
}
void overwritten() {
    void *p = std::malloc(bytes());
    void *volatile kept = p;
    if (good) std::free(p);
    kept = nullptr;
    (void)kept;
}
int early_return(int error) {
    void *p = std::malloc(bytes());
    if (error && !good) return -1;
    std::free(p);
    return 0;
}
void on_error_path() { early_return(1); }
void by_exception() {
    void *p = std::malloc(bytes());
    std::unique_ptr<void, void (*)(void *)> owner(good ? p : nullptr, std::free);
    try {
        throw number;
    } catch (int) {
    }
}
void *make() { return std::malloc(bytes()); }
void returned() { end(make()); }
void take(void (*fn)(void *)) { fn(std::malloc(bytes())); }
void by_pointer() {
    take([](void *p) { end(p); });
}
struct Holder {
    void *p = std::malloc(bytes());
    ~Holder() { end(p); }
};
void in_destructor() { Holder h; }
void in_loop() {
    for (int i = 0; i < 3; i++) {
        void *p = std::malloc(i == 1 ? bytes() : 10);
        if (i != 1 || good) std::free(p);
    }
}
void raw_in_vector() {
    std::vector<void *> v{std::malloc(bytes())};
    for (void *p : v) end(p);
}
struct Ring {
    std::shared_ptr<Ring> next;
    char fill[976] = {};
};
void cycle() {  // 1,000 bytes or so, of one block with its counts
    auto a = std::make_shared<Ring>();
    a->next = a;
    if (good) a->next.reset();
}
struct Base {
    virtual ~Base() = default;
};
struct Derived : Base {
    void *p = std::malloc(bytes());
    ~Derived() override { end(p); }
};
void by_base() { std::unique_ptr<Base> b = std::make_unique<Derived>(); }
void in_union() {
    union {
        void *p;
        long n;
    } u{std::malloc(bytes())};
    end(u.p);
}
void wide() {
    auto *p = static_cast<wchar_t *>(std::malloc(bytes()));
    p[0] = L'x';
    end(p);
}

void (*const variants[])() = {by_malloc, by_calloc, by_realloc, by_strdup, by_aligned_alloc, by_new, by_new_array,
    overwritten, on_error_path, by_exception, returned, by_pointer, in_destructor, in_loop, raw_in_vector, by_base,
    in_union, wide, cycle};

__attribute__((noinline)) void wipe() {
    volatile char stack[32768];
    for (auto &c : stack) c = 0;
}

}  // namespace

int main(int argc, char **argv) {
    good = argc > 1 && std::strcmp(argv[1], "good") == 0;
    for (void (*const run)() : variants) {
        run();
        number++;
    }
    wipe();
}
