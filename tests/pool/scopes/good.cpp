// SPDX-License-Identifier: MIT
// good.cpp: right uses of scopes in C++, for check_scopes.py: nothing in here may be reported.
// The layout is part of the cases:
// clang-format off
#include <algorithm>
#include <quarry/scope.h>
#include <quarry/scope.hpp>
#include <string>
#include <vector>

namespace app {

template <typename T, bool large = (sizeof(T) > 8), typename = std::enable_if_t<large && true>>
T *t_array(std::size_t n) {
    return t_new(T, n);
}

class parser {
  public:
    explicit parser(const char *text) noexcept : text_{text}, lines_(0), names_{} { ++lines_; }
    parser(const char *text, int lines) : text_(text), lines_{lines} {
        quarry::scope scope;
        name_ = t_strdup(text);
        use(name_);
        name_ = nullptr;
    }
    ~parser() { text_ = nullptr; }
    char *t_name() const { return t_strdup(text_); }
    std::string name() const {
        quarry::scope scope;
        char *p = t_name();
        return p;  // copied
    }
    bool operator==(const parser &other) const {
        t_scope;
        return t_name() == other.t_name();
    }
    char operator()(int i) const {
        t_scope;
        return t_name()[i];
    }
    int lines() const;

  private:
    static void use(const char *s);
    const char *text_;
    int lines_ = 0;
    std::vector<std::string> names_{};
    char *name_ = nullptr;
};

int parser::lines() const {
    const quarry::scope scope{};
    return static_cast<int>(t_array<long>(3)[0]);
}

auto lambdas(std::vector<int> &v) -> int {
    quarry::scope scope;
    std::sort(v.begin(), v.end(), [](int a, int b) { return t_new(int, 1)[0] + a < b; });
    auto each = [&v](int n) mutable -> int {
        t_scope;
        char *p = t_new(char, n);
        return p[0];
    };
    auto t_make = [](const char *s) { return t_strdup(s); };
    int table[] = {1, 2, 3};
    auto [a, b] = std::pair{1, 2};
    delete[] new int[3]{1, 2, 3};
    return each(table[0]) + a + b + t_make("x")[0];
}

auto t_later = [](const char *s) { return t_strdup(s); };

int exceptions(const char *s) try {
    quarry::scope scope;
    if (char *p = t_strdup(s); p[0]) return p[0];
    throw std::string(t_strdup(s));
} catch (const std::string &e) {
    t_scope;
    return t_strdup(e.c_str())[0];
}

struct local {
    int f() {
        struct inner {
            int g() {
                t_scope;
                return t_strdup("x")[0];
            }
        };
        return inner{}.g();
    }
};

const char *raw = R"(t_strdup("x") { )" R"x(t_new(" )" )x";
constexpr long million = 1'000'000;
bool less(int t_a, int b) { return t_a < b && b > (t_a); }

}  // namespace app

using quarry::scope;
extern "C" int with_using(void) {
    scope s;
    return t_strdup("x")[0];
}
int own_stack(void) {
    quarry::scope own{t_pool()};
    return t_strdup("x")[0];
}
int own_by_name(void) {
    quarry_stack_frame_t frame;
    quarry_stack_push(quarry_stack_of_thread(), &frame);
    return t_strdup("x")[0];
}
