// SPDX-License-Identifier: MIT
// C++ objects of a thread whose constructors and destructors allocate; libstdc++ runs the latter
// when much of the thread is already gone.
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

#include "api/family.h"

struct hoard_t {
    std::vector<std::string> lines;
    hoard_t() {
        for (int i = 0; i < 20; i++) lines.push_back(std::string(10 + (size_t)i * 50, 'a'));
    }
    ~hoard_t();
};
struct last_t {  // made in a destructor: destroyed even later
    std::vector<std::vector<char>> pieces;
    ~last_t() {
        for (size_t n = 1; n < 100000; n *= 7) pieces.push_back(std::vector<char>(n));
    }
};
static thread_local last_t last;
static thread_local hoard_t hoard, second;

hoard_t::~hoard_t() {
    std::vector<std::string> copy = lines;
    copy.push_back(std::string(5000, 'b'));
    last.pieces.push_back(std::vector<char>(3000));
}

static void *body(void *) {
    hoard.lines.push_back("used");
    second.lines.push_back("used too");
    return nullptr;
}
static void *body_late(void *) {  // the first allocation is made by the object
    last.pieces.reserve(1);
    return nullptr;
}

static double resident_mib() {
    long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &all, &resident) == 2);
    fclose(f);
    return (double)(resident * sysconf(_SC_PAGESIZE)) / 1048576.0;
}

static void run(int count, void *(*f)(void *)) {
    for (int done = 0; done < count; done += 60) {
        pthread_t thread[60];
        for (pthread_t &t : thread) CHECK_EQ(pthread_create(&t, nullptr, f, nullptr), 0);
        for (pthread_t &t : thread) pthread_join(t, nullptr);
    }
}

TEST(destructors_allocate) {
    for (void *(*f)(void *) : {body, body_late}) {
        run(600, f);
        double before = resident_mib();
        run(1800, f);
        double after = resident_mib();
        printf("  from %.1f to %.1f MiB\n", before, after);
        if (after > before + 4) TEST_FAIL("from %.1f to %.1f MiB", before, after);
    }
}

TEST(std_threads) {
    for (int round = 0; round < 100; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 10; i++) threads.emplace_back([i] { hoard.lines.resize((size_t)i * 10); });
        for (std::thread &t : threads) t.join();
    }
}

TEST_MAIN()
