// SPDX-License-Identifier: MIT
// program_module.c: a module that program.c loads and unloads.
#include <stdlib.h>

void module_work(void);
static void *volatile kept;

void module_work(void) {
    kept = malloc(6006);
    free(kept);
}
