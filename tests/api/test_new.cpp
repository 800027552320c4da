// SPDX-License-Identifier: MIT
// Every operator new and delete: block, alignment, the handler, the exception.
#include <dlfcn.h>
#include <initializer_list>
#include <new>

#include <malloc.h>
#include <sys/resource.h>

#include "captured.h"
#include "harness.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

typedef std::align_val_t align_t;

// Some compilers declare the sized forms only when asked to.
void operator delete(void *p, size_t n) noexcept;
void operator delete[](void *p, size_t n) noexcept;
void operator delete(void *p, size_t n, align_t align) noexcept;
void operator delete[](void *p, size_t n, align_t align) noexcept;

// Too much, but not for the compiler to see.
static size_t hidden(size_t n) {
    __asm__ volatile(""
                     : "+r"(n));
    return n;
}
static size_t too_much() { return hidden((size_t)1 << 62); }

// ---- the sixteen forms, by function so that none is left out by the compiler ----------------------

struct form_t {
    const char *name;
    void *(*make)(size_t n, size_t align);
    bool aligned, nothrow;
};
static const form_t forms[] = {
    {"new", [](size_t n, size_t) { return operator new(n); }, false, false},
    {"new[]", [](size_t n, size_t) { return operator new[](n); }, false, false},
    {"new nothrow", [](size_t n, size_t) { return operator new(n, std::nothrow); }, false, true},
    {"new[] nothrow", [](size_t n, size_t) { return operator new[](n, std::nothrow); }, false, true},
    {"new aligned", [](size_t n, size_t a) { return operator new(n, align_t(a)); }, true, false},
    {"new[] aligned", [](size_t n, size_t a) { return operator new[](n, align_t(a)); }, true, false},
    {"new aligned nothrow", [](size_t n, size_t a) { return operator new(n, align_t(a), std::nothrow); }, true, true},
    {"new[] aligned nothrow", [](size_t n, size_t a) { return operator new[](n, align_t(a), std::nothrow); }, true,
        true},
};

static void remove(void *p, size_t n, size_t align, bool aligned, unsigned way) {
    if (aligned) {
        switch (way % 6) {
        case 0: return operator delete(p, align_t(align));
        case 1: return operator delete[](p, align_t(align));
        case 2: return operator delete(p, n, align_t(align));
        case 3: return operator delete[](p, n, align_t(align));
        case 4: return operator delete(p, align_t(align), std::nothrow);
        default: return operator delete[](p, align_t(align), std::nothrow);
        }
    }
    switch (way % 6) {
    case 0: return operator delete(p);
    case 1: return operator delete[](p);
    case 2: return operator delete(p, n);
    case 3: return operator delete[](p, n);
    case 4: return operator delete(p, std::nothrow);
    default: return operator delete[](p, std::nothrow);
    }
}

TEST(every_form_gives_and_takes) {
    unsigned way = 0;
    for (const form_t &f : forms) {
        for (size_t align = 1; align <= (f.aligned ? (size_t)1 << 22 : 1); align *= 2) {
            for (size_t n = 0; n < 5000000; n = n * 3 + 1) {
                errno = 77;
                void *p = f.make(n, align), *q = f.make(n, align);
                if (!p || !q || p == q || (uintptr_t)p % align || (uintptr_t)p % (n - 1 < 8 ? 8 : 16) ||
                    malloc_usable_size(p) < n)
                    TEST_FAIL("%s(%zu, %zu) gave %p and %p", f.name, n, align, p, q);
                memset(p, 1, n);
                memset(q, 2, n);
                for (size_t i = 0; i < n; i += 61) CHECK_EQ(((char *)p)[i], 1);
                remove(p, n, align, f.aligned, way++);
                remove(q, n, align, f.aligned, way++);
                CHECK_EQ(errno, 77);
            }
        }
    }
    for (unsigned w = 0; w < 6; w++) {
        remove(nullptr, 0, 16, false, w);
        remove(nullptr, 0, 64, true, w);
    }
}

TEST(every_delete_frees) {
    // 6 TiB in turn, if one did not.
    for (const form_t &f : forms) {
        for (unsigned way = 0; way < 6; way++) {
            for (int i = 0; i < 4096; i++) remove(f.make(hidden(32u << 20), 128), 32u << 20, 128, f.aligned, way);
            for (int i = 0; i < 400000; i++) remove(f.make(hidden(500), 128), 500, 128, f.aligned, way);
        }
    }
    struct mallinfo2 info = mallinfo2();
    CHECK_LT(info.uordblks, 64u << 20);
}

TEST(failure_throws) {
    for (const form_t &f : forms) {
        for (int round = 0; round < 100; round++) {
            bool thrown = false;
            void *p = &thrown;
            try {
                p = f.make(round % 2 ? too_much() : hidden(SIZE_MAX - 100), 64);
            } catch (const std::bad_alloc &) {
                thrown = true;
            }
            if (thrown == f.nothrow || (f.nothrow && p)) TEST_FAIL("%s: thrown %d, result %p", f.name, thrown, p);
        }
    }
}

// ---- the handler ----------------------------------------------------------------------------------

static int handled;
static void *reserve;

static void throwing_handler() {
    handled++;
    throw std::bad_alloc();
}
struct own_t : std::bad_alloc {};
static void own_handler() {
    if (++handled == 3) throw own_t();
}
static void giving_up_handler() {
    if (++handled == 5) std::set_new_handler(nullptr);
}
static void helping_handler() {  // the third call gives back what is missing
    if (++handled == 3) {
        free(reserve);
        reserve = nullptr;
    }
}

TEST(handler_is_called_until_it_gives_up) {
    for (const form_t &f : forms) {
        handled = 0;
        std::set_new_handler(giving_up_handler);
        bool thrown = false;
        void *p = nullptr;
        try {
            p = f.make(too_much(), 64);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        if (p || handled != 5 || thrown == f.nothrow)
            TEST_FAIL("%s: handler called %d times, thrown %d, result %p", f.name, handled, thrown, p);
    }
    CHECK(std::get_new_handler() == nullptr);
}

TEST(handler_may_throw) {
    for (const form_t &f : forms) {
        for (int own = 0; own < 2; own++) {
            handled = 0;
            std::set_new_handler(own ? own_handler : throwing_handler);
            int thrown = 0;
            void *p = nullptr;
            try {
                p = f.make(too_much(), 64);
            } catch (const own_t &) {
                thrown = 2;
            } catch (const std::bad_alloc &) {
                thrown = 1;
            }
            int expected = f.nothrow ? 0 : own ? 2
                                               : 1;
            if (p || handled != (own ? 3 : 1) || thrown != expected)
                TEST_FAIL("%s: handler called %d times, thrown %d, result %p", f.name, handled, thrown, p);
        }
    }
    std::set_new_handler(nullptr);
}

TEST(handler_may_help) {
    // There is address space for one large block only, and it is taken until the handler frees it.
    const size_t n = (size_t)1 << 30;
    reserve = malloc(n);
    CHECK(reserve != nullptr);
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld", &pages) == 1);
    fclose(f);
    struct rlimit old, limit;
    CHECK_EQ(getrlimit(RLIMIT_AS, &old), 0);
    limit = old;
    limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + n / 4;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    for (const form_t &f : forms) {
        CHECK(malloc(hidden(n)) == nullptr);
        handled = 0;
        std::set_new_handler(helping_handler);
        void *p = f.make(n, 64);
        std::set_new_handler(nullptr);
        if (!p || handled != 3) TEST_FAIL("%s: handler called %d times, result %p", f.name, handled, p);
        remove(p, n, 64, f.aligned, 0);
        reserve = malloc(hidden(n));
        CHECK(reserve != nullptr);
    }
    free(reserve);
    CHECK_EQ(setrlimit(RLIMIT_AS, &old), 0);
}

TEST(array_too_long) {
    // The compiler's own check of the product, and ours of the sum.
    int caught = 0;
    for (size_t n : {hidden(SIZE_MAX / 4), hidden(SIZE_MAX / 8), hidden(SIZE_MAX / 16), hidden((size_t)1 << 60)}) {
        try {
            long long *volatile p = new long long[n];
            delete[] p;
        } catch (const std::bad_alloc &) {
            caught++;
        }
    }
    CHECK_EQ(caught, 4);
}

// ---- what a delete says of the block ------------------------------------------------------------------

// Whoever deletes by a base class, or does not know, names less than there is.
TEST(less_than_there_is_is_no_fault) {
    for (size_t n : {1, 16, 40, 100, 1024, 3000, 5000, 60000, 100000, 3000000, 40000000}) {
        for (size_t said : {(size_t)0, (size_t)1, n / 2, n - 1, n}) {
            for (unsigned way = 0; way < 2; way++) {
                // Not by `?:`: clang 14 with -fsized-deallocation calls both.
                void *p = operator new(n);
                if (way) operator delete[](p, said);
                else operator delete(p, said);
                p = operator new(n, align_t(64));
                if (way) operator delete[](p, said, align_t(64));
                else operator delete(p, said, align_t(32));
            }
        }
        void *p = operator new(n);
        operator delete(p, malloc_usable_size(p));
    }
    operator delete(nullptr, (size_t)100);
    operator delete[](nullptr, (size_t)100, align_t(4096));
    struct base {
        long x;
    };
    struct derived : base {
        std::initializer_list<int> more[20];
    };
    base *b = new derived();
    __asm__ volatile(""
                     : "+r"(b)::"memory");
    delete b;
    struct counted {
        ~counted() { x = 0; }
        volatile char x;
    };
    delete[] new counted[hidden(1000)];  // the count lies before the objects
    struct alignas(128) wide {
        ~wide() { x[0] = 0; }
        volatile char x[128];
    };
    delete[] new wide[hidden(7)];
    delete new wide;
}

struct wrong_t {
    const char *fault;
    size_t had, align, said;
    void (*end)(void *p, size_t said);
};
static void delete_wrongly(void *arg) {
    const wrong_t *w = (const wrong_t *)arg;
    char *p = (char *)operator new(w->had, align_t(w->align));
    while (w->said == w->had && (uintptr_t)p % 4096 == 0) p = (char *)operator new(w->had, align_t(w->align));
    w->end(p, w->said);
}
TEST(more_than_there_is) {
    static const wrong_t wrong[] = {
        {"wrong size", 40, 16, 100, [](void *p, size_t n) { operator delete(p, n); }},
        {"wrong size", 40, 16, 100, [](void *p, size_t n) { operator delete[](p, n); }},
        {"wrong size", 40, 64, 5000, [](void *p, size_t n) { operator delete(p, n, align_t(64)); }},
        {"wrong size", 2000, 64, 5000, [](void *p, size_t n) { operator delete[](p, n, align_t(64)); }},
        {"wrong size", 100000, 16, 5000000, [](void *p, size_t n) { operator delete(p, n); }},
        {"wrong size", 50000000, 16, 60000000, [](void *p, size_t n) { operator delete[](p, n); }},
        {"wrong alignment", 40, 16, 40, [](void *p, size_t n) { operator delete(p, n, align_t(4096)); }},
        {"wrong alignment", 3000, 16, 3000, [](void *p, size_t n) { operator delete[](p, n, align_t(4096)); }},
    };
    for (const wrong_t &w : wrong) {
        captured_t c = capture(delete_wrongly, (void *)&w);
        if (c.exit_signal != SIGABRT || !strstr(c.text, w.fault) || strncmp(c.text, "quarry: ", 8) != 0)
            TEST_FAIL("%zu bytes freed as %zu: signal %d, %s", w.had, w.said, c.exit_signal, c.text);
    }
}

TEST_MAIN()
