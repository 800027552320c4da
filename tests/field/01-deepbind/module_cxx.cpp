// SPDX-License-Identifier: MIT
// The same in C++: operators, and a container that one side fills and the other destroys.
#include <stdexcept>
#include <string>
#include <vector>

extern "C" {
void *cxx_new(void) { return new std::vector<std::string>(100, std::string(1000, 'x')); }
void cxx_delete(void *p) { delete static_cast<std::vector<std::string> *>(p); }
void cxx_delete_bytes(void *p) { ::operator delete(p); }
int cxx_throw(void) {
    try {
        throw std::runtime_error(std::string(500, 'e'));
    } catch (const std::exception &e) {
        return int(std::string(e.what()).size());
    }
}
}
