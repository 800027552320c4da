// SPDX-License-Identifier: MIT
// bad.cpp: wrong uses of scopes in C++. BAD: RULE at the end of a line says what check_scopes.py must report there.
// The layout is part of the cases:
// clang-format off
#include <quarry/scope.h>
#include <quarry/scope.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace app {

static char *global = t_strdup("x");  // BAD: no-scope

template <typename T, typename = std::enable_if_t<(sizeof(T) > 8) && true>>
T *array(std::size_t n) {
    return t_new(T, n);  // BAD: no-scope
}

template <typename T> T *t_array(std::size_t n) { return t_new(T, n); }

class parser {
  public:
    explicit parser(const char *text) : text_{text}, name_(t_strdup(text)) {}  // BAD: no-scope
    parser(const char *text, int lines) : text_(text), lines_{lines} {
        quarry::scope scope;
        this->name_ = t_strdup(text);  // BAD: escapes
    }
    char *name() const { return t_strdup(text_); }  // BAD: no-scope
    bool operator==(const parser &other) const {
        return t_strdup(text_) == other.text_;  // BAD: no-scope
    }
    int lines() const;
    std::string_view view() const;
    char *t_name() const;

  private:
    const char *text_;
    int lines_ = 0;
    char *name_ = t_strdup("none");  // BAD: no-scope
};

int parser::lines() const {
    quarry::scope();                                // BAD: no-scope
    return static_cast<int>(t_array<long>(3)[0]);   // BAD: no-scope
}

std::string_view parser::view() const {
    quarry::scope scope;
    char *p = t_strdup(text_);
    return p;  // BAD: escapes
}

char *parser::t_name() const {
    quarry::scope scope;
    auto p = t_strdup(text_);
    return static_cast<char *>(p);  // BAD: t-function
}

void lambdas(std::vector<int> &v) {
    auto make = [](const char *s) -> char * { return t_strdup(s); };  // BAD: no-scope
    auto keep = [&](const char *s) {
        quarry::scope scope;
        return t_strdup(s);  // BAD: escapes
    };
    v.push_back(make("x")[0] + keep("y")[0]);
    v.push_back([] {
        return t_new(int, 1)[0];  // BAD: no-scope
    }());
}

int exceptions(const char *s) try {
    quarry::scope scope;
    throw std::string(s);
} catch (const std::string &e) {
    return t_strdup(e.c_str())[0];  // BAD: no-scope
}

struct outer {
    int f() {
        t_scope;
        struct inner {
            int g() { return t_strdup("x")[0]; }  // BAD: no-scope
        };
        return inner{}.g();
    }
};

}  // namespace app

int other_stack(quarry_pool_t *stack) {
    quarry::scope other(stack);
    quarry_stack_frame_t frame;
    quarry_stack_push(stack, &frame);
    return t_strdup("x")[0];  // BAD: no-scope
}

void by_reference(char *&out, std::string &copy) {
    quarry::scope scope;
    copy = t_strdup("x");
    out = t_strdup("x");  // BAD: escapes
}

struct entry {
    char *text;
    std::string copy;
};
static const char *kept;
static std::string kept_copy;

char *of_all_kinds(entry *e, char **out, std::string *copy, char *array[], std::string copies[]) {
    quarry::scope scope;
    std::string local = t_strdup("x"), other;
    other = t_strdup("x");
    e->copy = t_strdup("x");
    *copy = t_strdup("x");
    copies[3] = t_strdup("x");
    kept_copy = t_strdup("x");
    kept = t_strdup("x");     // BAD: escapes
    e->text = t_strdup("x");  // BAD: escapes
    *out = t_strdup("x");     // BAD: escapes
    array[3] = t_strdup("x"); // BAD: escapes
    return local.size() > 3 ? new char[3] : nullptr;
}

std::string copied_out_of_its_scope() {
    std::string s;
    {
        t_scope;
        s = t_strdup("x");
    }
    return s;
}
