// SPDX-License-Identifier: MIT
// 05-quadrants.c: private or shared, anonymous or of a file
//
// Idea: Two questions sort all memory of a process. Whose are the changes: private, then they are seen by nobody else,
// or shared? And where does the content come from: from a file, or from nowhere (anonymous)? That makes four kinds, and
// each of them is counted elsewhere: stacks, malloc and the like are private and anonymous; programs and libraries are
// private and of a file; the other two are there only when somebody asks for them.
//
// Then and now: The series (part 1) draws this table with RES made of two counters. Since Linux 4.5 there are three,
// and shared anonymous memory has its own, RssShmem. SHR in top is still all that is not anonymous: RssFile + RssShmem.
// A private page of a file that was written to is anonymous from then on.
#include "tour.h"

enum { SIZE = 8 << 20 };

int main(void) {
    tour_begin("RssAnon RssFile RssShmem top.SHR");
    int fd = tour_file(SIZE);
    const tour_numbers *start = tour_step("at the start");
    // tour: show
    const int rw = PROT_READ | PROT_WRITE;
    char *private_anonymous = mmap(NULL, SIZE, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(private_anonymous, '1', SIZE);
    const tour_numbers *first = tour_step("1: private, anonymous");

    char *shared_anonymous = mmap(NULL, SIZE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(shared_anonymous, '2', SIZE);
    const tour_numbers *second = tour_step("2: shared, anonymous");

    char *private_file = mmap(NULL, SIZE, rw, MAP_PRIVATE, fd, 0);
    memset(private_file, '3', SIZE);
    char in_file_after_private;
    pread(fd, &in_file_after_private, 1, 0);
    const tour_numbers *third = tour_step("3: private, of a file");

    char *shared_file = mmap(NULL, SIZE, rw, MAP_SHARED, fd, 0);
    memset(shared_file, '4', SIZE);
    char in_file_after_shared;
    pread(fd, &in_file_after_shared, 1, 0);
    const tour_numbers *fourth = tour_step("4: shared, of a file");

    pid_t child = tour_fork("child");
    if (child == 0) {
        *private_anonymous = *shared_anonymous = *private_file = *shared_file = 'c';
        _exit(0);
    }
    tour_wait(child);
    // tour: hide
    tour_maps(private_anonymous, private_anonymous + 1);
    tour_maps(shared_anonymous, shared_anonymous + 1);
    tour_maps(private_file, private_file + 1);
    tour_maps(shared_file, shared_file + 1);
    long size = SIZE / KIB, slack = tour_slack();
    long one = first->RssAnon - start->RssAnon, two = second->RssShmem - first->RssShmem;
    long three = third->RssAnon - second->RssAnon, four = fourth->RssFile - third->RssFile;
    tour_near(one, size, slack, "Private and anonymous: RssAnon + %s.", tour_size(one));
    tour_near(two, size, slack, "Shared and anonymous: RssShmem + %s.", tour_size(two));
    tour_near(three, size, slack,
        "Private, of a file, and written to: RssAnon + %s, for these pages are no longer the file's.",
        tour_size(three));
    tour_near(four, size, slack, "Shared, of a file: RssFile + %s.", tour_size(four));
    long shr = fourth->top.SHR - start->top.SHR;
    tour_near(shr, 2 * size, slack, "SHR in top is the second and the fourth: + %s.", tour_size(shr));
    tour_near(in_file_after_private, 'f', 0,
        "What was written to the private mapping is not in the file: '%c' as before.", in_file_after_private);
    tour_near(in_file_after_shared, '4', 0, "What was written to the shared one is: '%c'.", in_file_after_shared);
    tour_claim(*private_anonymous == '1' && *shared_anonymous == 'c' && *private_file == '3' && *shared_file == 'c',
        "A child wrote 'c' to all four, and its parent reads '%c', '%c', '%c', '%c': the shared ones are one memory.",
        *private_anonymous, *shared_anonymous, *private_file, *shared_file);
    return tour_end();
}
