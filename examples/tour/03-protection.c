// SPDX-License-Identifier: MIT
// 03-protection.c: what happens at addresses that are not ours
//
// Idea: A process can only name addresses of its own space, and each page of it has permissions: to be read, written,
// executed. Breaking them does not reach anybody's memory. The processor calls the kernel, which finds no page that it
// might put there, and sends SIGSEGV. All of that knows pages only: one byte too far within a page is seen by nobody.
//
// Then and now: As in part 1 of the series. The signal says which of the two cases it was: SEGV_MAPERR, nothing is
// mapped at the address, or SEGV_ACCERR, there is something but not for this use. To find the byte too far in the same
// page takes a checker: docs/pools/checkers.md.
#include "tour.h"

#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;

static void caught(int signal, siginfo_t *about, void *context) {
    (void)signal, (void)context;
    siglongjmp(back, about->si_code);
}

// 0, or the code of the signal.
static int try_write(volatile char *at) {
    int code = sigsetjmp(back, 1);
    if (code == 0) *at = 1;
    return code;
}

static int try_read(volatile char *at) {
    int code = sigsetjmp(back, 1);
    if (code == 0) (void)*at;
    return code;
}

int main(void) {
    tour_begin("map.Size map.Rss");
    sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = caught, .sa_flags = SA_SIGINFO}, NULL);
    const size_t page = tour_page();
    // tour: show
    char *p = mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    tour_watch(p, 3 * page);
    char *text = strcpy(p, "13 characters");  // 14 bytes
    int too_far = try_write(text + 14);       // not ours to write, but in the same page
    tour_step("three pages");

    mprotect(p + page, page, PROT_READ);
    int read_only = try_write(p + page), reading = try_read(p + page);
    munmap(p + 2 * page, page);
    int nothing = try_read(p + 2 * page);
    tour_step("rw-, r--, none");
    tour_maps(p, p + 3 * page);

    mprotect(p + page, page, PROT_NONE);
    int no_access = try_read(p + page);
    mprotect(p + page, page, PROT_READ | PROT_WRITE);
    int allowed = try_write(p + page);
    tour_step("rw- again");
    // tour: hide
    tour_must(p != MAP_FAILED, "mmap");
    tour_near(
        too_far, 0, 0, "A byte behind the end of a string, in the same page, could be written: nobody has noticed.");
    tour_near(read_only, SEGV_ACCERR, 0,
        "Writing into a page that may only be read: SIGSEGV with code %d (SEGV_ACCERR is %d).", read_only, SEGV_ACCERR);
    tour_near(reading, 0, 0, "Reading it is allowed.");
    tour_near(nothing, SEGV_MAPERR, 0, "Reading where nothing is mapped: SIGSEGV with code %d (SEGV_MAPERR is %d).",
        nothing, SEGV_MAPERR);
    tour_near(no_access, SEGV_ACCERR, 0, "A page without any permission is there, but for nobody: code %d.", no_access);
    tour_near(allowed, 0, 0, "mprotect changes permissions at any time: written again.");
    return tour_end();
}
