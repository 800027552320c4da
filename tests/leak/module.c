// SPDX-License-Identifier: MIT
// module.c: a thread-local variable of a file that is loaded late.
__thread void *kept[200];
void keep(void *p);
void keep(void *p) { kept[150] = p; }
