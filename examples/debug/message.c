// SPDX-License-Identifier: MIT
// message.c: two bugs to practise on: build_message returns a pointer into its own stack frame, and writes behind
// the end of it when the name is long. Mostly it works. The .gdb files beside it are sessions that find both.
//
//   cc -g -O0 -fno-stack-protector -o message message.c
//   gdb -x overwritten.gdb --args ./message
//   gdb -x overflow.gdb --args ./message
//   a_name_that_is_far_too_long_for_the_few_bytes_that_a_message_has_and_for_what_lies_behind
#include <stdio.h>
#include <string.h>

#ifndef MAX_LINE_SIZE
#define MAX_LINE_SIZE 32
#endif

static const char *build_message(const char *name) {
    char message[MAX_LINE_SIZE];
    strcpy(message, "hello ");
    strcat(message, name);
    strcat(message, "!\n");
    const char *result = message;  // a compiler that sees through this warns
    return result;
}

#ifdef OWN_FPUTS  // what a sanitizer sees of a library is what the program's own code does
static int my_fputs(const char *text, FILE *out) { return fwrite(text, 1, strlen(text), out) ? 0 : EOF; }
#define fputs my_fputs
#endif

int main(int argc, char **argv) {
    const char *text = build_message(argc > 1 ? argv[1] : "world");
    fputs(text, stdout);
    return 0;
}
