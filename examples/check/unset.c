// SPDX-License-Identifier: MIT
// unset.c: a branch depends on memory that was never written.
#include <stdio.h>
#include <stdlib.h>

int main(void) {
    int *flag = malloc(sizeof *flag);
    puts(*flag ? "yes" : "no");
    free(flag);
    return 0;
}
