# SPDX-License-Identifier: MIT
"""Compilers: their object files must be bit-identical whatever the malloc."""
import shutil

from harness import SOURCE, program

CXX = r'''
#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#if __cplusplus >= 202002L
#include <ranges>
#endif
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

using value = std::variant<long, std::string, std::vector<long>>;

template <int N> struct chain { static std::shared_ptr<chain<N - 1>> next() { return std::make_shared<chain<N - 1>>(); } };
template <> struct chain<0> {};
template <int N> int depth() { if constexpr (N == 0) return 0; else { chain<N>::next(); return 1 + depth<N - 1>(); } }

static long work(int seed) {
    std::map<std::string, value> m;
    std::unordered_map<long, std::list<std::string>> u;
    for (long i = 0; i < 30000; i++) {
        const long k = i * 7919 % 5003 + seed;
        auto key = "k" + std::to_string(k);
        if (i % 3 == 0) m[key] = std::vector<long>(size_t(k % 50), i);
        else if (i % 3 == 1) m[key] = std::string(size_t(k % 70), 'x');
        else m.erase(key);
        u[k % 100].push_back(key);
        if (u[k % 100].size() > 20) u[k % 100].pop_front();
    }
    long sum = 0;
    for (auto &[k, v] : m)
        sum += std::visit([](auto &x) -> long { if constexpr (std::is_same_v<std::decay_t<decltype(x)>, long>) return x; else return long(x.size()); }, v);
    for (auto &[k, l] : u) sum += std::accumulate(l.begin(), l.end(), 0L, [](long a, auto &s) { return a + long(s.size()); });
    return sum;
}

int main() {
    std::vector<std::future<long>> jobs;
    for (int i = 0; i < 4; i++) jobs.push_back(std::async(std::launch::async, work, i));
    for (auto &job : jobs) std::cout << job.get() << '\n';
    std::ostringstream text;
    for (int i = 0; i < 3000; i++) text << "name" << i << "=" << i * i << ";";
    const auto s = text.str();
    const std::regex pair("([a-z]+)([0-9]+)=([0-9]+);");
    long n = 0;
    for (std::sregex_iterator it(s.begin(), s.end(), pair), end; it != end; ++it) n += std::stol((*it)[3]) % 7;
    std::cout << n << '\n';
#ifdef __cpp_lib_ranges
    auto odd = std::views::iota(1, 100000) | std::views::filter([](int i) { return i % 2; }) | std::views::transform([](int i) { return i * 3L; });
#else
    std::vector<long> odd;
    for (long i = 1; i < 100000; i += 2) odd.push_back(i * 3);
#endif
    std::multiset<long> ms(odd.begin(), odd.end());
    std::cout << ms.size() << ' ' << *ms.rbegin() << ' ' << depth<40>() << '\n';
    try { std::vector<char> v(size_t(-1) / 4); } catch (const std::bad_alloc &) { std::cout << "bad_alloc\n"; }
}
'''


def largest_sources(box, count):
    for folder in ("src", "include"):
        shutil.copytree(SOURCE / folder, box.dir / folder)
    return sorted((box.dir / "src").rglob("*.c"), key=lambda f: (-f.stat().st_size, f))[:count]


@program({"gcc": "gcc", "as": "binutils"})
def gcc(box):
    """The larger C files of this project, with debug information."""
    flags = ["-std=gnu17", "-D_GNU_SOURCE", '-DQY_VERSION="0"', "-DQY_CFG_CHECK=1", "-DQY_CFG_FAKE=0",
             "-Iinclude", "-Isrc", "-O2", "-g3"]
    compiler = box.run("gcc", "-print-prog-name=cc1").text().strip()
    box.run(compiler, "-quiet", "-v", "/dev/null", "-o", "null.s", stdout=False)
    for number, file in enumerate(largest_sources(box, 6)):
        box.run("gcc", *flags, "-c", file.relative_to(box.dir), "-o", f"{number}.o")
        box.result(f"{number}.o")


@program({"g++": "g++", "as": "binutils"})
def gxx(box):
    """Templates and headers; what comes out is run, too: threads, containers, exceptions."""
    (box.dir / "x.cpp").write_text(CXX)
    box.run("g++", "-std=c++20", "-O1", "-c", "x.cpp", "-o", "x.o", timeout=120)
    box.result("x.o")
    box.run("g++", "x.o", "-o", "x")
    box.result("x")
    box.run(box.dir / "x")


@program({"clang++": "clang", "ld.lld": "lld"}, torture=True)
def clang(box):
    """One compiler process for all the work, and a linker with threads."""
    (box.dir / "x.cpp").write_text(CXX)
    box.run("clang++", "-std=c++17", "-O2", "-g", "-c", "x.cpp", "-o", "x.o", timeout=180)
    box.result("x.o")
    box.run("clang++", "-fuse-ld=lld", "-Wl,--threads=2", "x.o", "-o", "x")
    box.result("x")
    box.run(box.dir / "x")


@program({"cmake": "cmake", "ninja": "ninja-build", "gcc": "gcc", "g++": "g++"}, torture=True)
def self_host(box):
    """Quarry is built while everything that takes part, from CMake to the linker, runs on Quarry."""
    for name in ("src", "include", "cmake", "tools/replay"):
        shutil.copytree(SOURCE / name, box.dir / "quarry" / name)
    for name in ("CMakeLists.txt", "LICENSE"):
        shutil.copy(SOURCE / name, box.dir / "quarry")
    box.run("cmake", "-G", "Ninja", "-S", "quarry", "-B", "build", "-DQUARRY_TESTS=OFF", "-DQUARRY_BENCH=OFF",
            "-DQUARRY_EXAMPLES=OFF", "-DQUARRY_INSTALL=OFF", timeout=180, stdout=False, ours=True)
    box.run("cmake", "--build", "build", "--", "-j2", timeout=600, stdout=False, ours=True)
    box.result("build/lib/libquarry-malloc.so", "build/lib/libquarry.a")
