// SPDX-License-Identifier: MIT
// A C++ program linked with the drop-in: malloc and new are Quarry's, which it proves by asking the
// heap for the size of their blocks and by where the names lead.
#include <quarry/quarry.h>

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <vector>

// The object file a function is in: the program itself (static) or the drop-in.
static std::string home_of(void *function) {
    Dl_info info;
    return dladdr(function, &info) ? info.dli_fname : "";
}

int main() {
    std::vector<std::string> words(100, "a string that is too long for the short string form");
    void *block = std::malloc(100);
    bool sized = quarry_usable_size(block) >= 100 && quarry_usable_size(words.data()) >= 100 * sizeof(std::string);
    bool ours = home_of(reinterpret_cast<void *>(&std::malloc)) == home_of(reinterpret_cast<void *>(&quarry_malloc));
    std::free(block);
    std::printf(
        "c++: quarry %s, malloc and new are %s\n", quarry_version(), sized && ours ? "replaced" : "NOT replaced");
    return sized && ours ? 0 : 1;
}
