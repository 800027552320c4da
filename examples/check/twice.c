// SPDX-License-Identifier: MIT
// twice.c: two owners of one name, and both free it.
#include <stdlib.h>
#include <string.h>

typedef struct user {
    char *name;
} user;

static void user_end(user *u) { free(u->name); }

int main(void) {
    user first = {strdup("world")};
    user second = first;
    user_end(&first);
    user_end(&second);
    return 0;
}
