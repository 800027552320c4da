// SPDX-License-Identifier: MIT
// program_cxx.cpp: what C++ keeps of its blocks: pointers behind a count, to a second base, and in containers.
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

struct First {
    virtual ~First() = default;
    long a = 1;
};
struct Second {
    virtual ~Second() = default;
    virtual int two() { return 2; }
    long b = 2;
};
struct Both : First, Second {
    long c = 3;
    int two() override { return 3; }
};
struct Element {
    ~Element() { std::puts("end"); }
    long n = 7;
};
struct Handle {
    ~Handle() { std::puts("end"); }
    int fd = 3;
};

namespace {

__attribute__((noinline)) void wipe() {
    volatile char stack[32768];
    for (auto &c : stack) c = 0;
}

}  // namespace

// Not of this file alone: what nobody reads, the compiler does not write.
Second *second;
Element *elements;
Handle *handles;
std::map<int, std::string> *tree;
std::unordered_map<std::string, std::shared_ptr<Both>> *table;
std::list<std::vector<int>> lists;
std::vector<std::unique_ptr<std::string>> strings;

namespace {

void reachable() {
    second = new Both;
    elements = new Element[3];
    handles = new Handle[1];
    tree = new std::map<int, std::string>;
    table = new std::unordered_map<std::string, std::shared_ptr<Both>>;
    for (int i = 0; i < 100; i++) {
        (*tree)[i] = std::string(50, 'x');
        (*table)[std::string(40, 'k') + std::to_string(i)] = std::make_shared<Both>();
        lists.emplace_back(100, i);
        strings.push_back(std::make_unique<std::string>(200, 'y'));
    }
}

void lost() { new std::string(1000, 'z'); }

}  // namespace

int main(int argc, char **argv) {
    if (argc > 1 && std::strcmp(argv[1], "lost") == 0) lost();
    else reachable();
    wipe();
}
