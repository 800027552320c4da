// SPDX-License-Identifier: MIT
// program_plugin.cpp: a plugin in C++, for program.c, which is in C: so the C++ runtime comes with it. Its constructor
// runs with the dynamic linker's lock taken, and waits for a thread that allocates and forks for the first time.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <thread>

static void work() {
    // A plain expression may be left out.
    operator delete(operator new(7321));
    operator delete[](operator new[](7322, std::nothrow), std::nothrow);
    try {
        operator delete(operator new(static_cast<std::size_t>(-1) / 2 - 100));
        std::abort();
    } catch (const std::bad_alloc &) {  // so it is the runtime's
    }
    int status = 1;
    const pid_t child = fork();
    if (child == 0) _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0) std::abort();
}

namespace {
struct plugin {
    plugin() { std::thread(work).join(); }
} instance;
}  // namespace
