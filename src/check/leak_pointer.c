// SPDX-License-Identifier: MIT
// leak_pointer.c: see leak_pointer.h. The rules are memcheck's --leak-check-heuristics, from its manual.
#include "check/leak_pointer.h"

#include "base/num.h"
#include "os/os.h"

#define WORD sizeof(uint64_t)

static uint64_t leak_word(uintptr_t address) { return *(const volatile uint64_t *)address; }

// Length, capacity and a count of users, then the characters and a NUL.
static bool is_old_string(const qy_leak_block_t *b, uint64_t inside) {
    if (inside != 3 * WORD || b->size < 3 * WORD) return false;
    uint64_t length = leak_word(b->address), capacity = leak_word(b->address + WORD);
    return length <= capacity && b->size == 3 * WORD + capacity + 1;
}

// The length of the rest. Of sqlite3, MPI libraries and others.
static bool is_behind_length(const qy_leak_block_t *b, uint64_t inside) {
    return inside == WORD && b->size > WORD && leak_word(b->address) == b->size - WORD;
}

// The number of elements, which have destructors.
static bool is_behind_count(const qy_leak_space_t *space, const qy_leak_block_t *b, uint64_t inside) {
    if (inside != WORD || b->size <= WORD || b->family != space->new_array) return false;
    uint64_t count = leak_word(b->address);
    return count > 0 && count <= b->size - WORD && (b->size - WORD) % count == 0;
}

// An object begins with the address of its table of virtual functions, and so does the part that is a second base.
static bool is_second_base(const qy_leak_space_t *space, const qy_leak_block_t *b, uint64_t inside) {
    if (inside % WORD || inside + WORD > b->size || !space->is_vtable) return false;
    uint64_t inner = leak_word(b->address + inside), outer = leak_word(b->address);
    return inner != outer && space->is_vtable(inner, space->arg) && space->is_vtable(outer, space->arg);
}

bool qy_leak_is_owner(const qy_leak_space_t *space, const qy_leak_block_t *block, uintptr_t pointer) {
    uint64_t inside = pointer - block->address;
    bool ask = block->size >= 4096;  // a smaller one has no page to itself that could not be read
    if (block->size < WORD) return false;
    if (ask && !(qy_os_readable((const void *)block->address) && qy_os_readable((const void *)pointer))) return false;
    return is_old_string(block, inside) || is_behind_length(block, inside) || is_behind_count(space, block, inside) ||
           is_second_base(space, block, inside);
}

uintptr_t qy_leak_readable_to(qy_os_touched_t *touched, uintptr_t at, uintptr_t end) {
    const size_t page = 4096;  // the smallest there is
    uintptr_t to = at;
    while (to < end && qy_os_touched(touched, to) && qy_os_readable((const void *)to))
        to = qy_round_down(to, page) + page;
    return qy_min(to, end);
}
