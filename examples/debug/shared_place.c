// SPDX-License-Identifier: MIT
// shared_place.c: a pointer that outlives its variable. The scopes of `a`, `b` and `c` do not overlap, so the compiler
// may give them one place: then *pointer is b, and later c. Nothing promises it.
//
//   cc -g -O0 shared_place.c                       prints whatever the compiler has made of it
//   cc -g -O0 -fsanitize=address shared_place.c    stops at the first use: stack-use-after-scope
#include <stdio.h>

int main(void) {
    int *pointer;
    {
        int a = 1;
        pointer = &a;
    }
    {
        int b = 2;
        printf("at b's place: %s, %d\n", pointer == &b ? "yes" : "no", *pointer);
    }
    {
        int c = 3;
        printf("at c's place: %s, %d\n", pointer == &c ? "yes" : "no", *pointer);
    }
    return 0;
}
