// SPDX-License-Identifier: MIT
// twice.c: a block is freed twice. On Quarry the program ends there, in one line that names the fault.
#include <stdlib.h>
#include <string.h>

int main(void) {
    char *name = malloc(32);
    strcpy(name, "quarry");
    free(name);
    free(name);
    return 0;
}
