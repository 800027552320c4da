// SPDX-License-Identifier: MIT
// 12-static.c: .rodata, .data and .bss
//
// Idea: Variables that live as long as the program come with its file, in sections by kind: instructions (.text),
// constants (.rodata), variables with a value (.data) and those that begin as zeros (.bss). The file is mapped in parts
// with the permissions that each needs. Of .bss only the size is in the file: it begins in the last page of .data,
// whose rest the loader clears, and goes on as anonymous memory right behind.
//
// Then and now: As in part 3 of the series, but for two things. Linkers put constants and instructions into mappings of
// their own today (r--, r-x, r--, rw-), so that constants cannot be executed. And where zero constants go, .rodata or
// .bss, is up to the compiler.
#include "tour.h"

#include <sys/stat.h>

// tour: show
static const char constants[1 << 20] = {1};  // .rodata
static char values[1 << 20] = {1};           // .data
static char zeros[16 << 20];                 // .bss
// tour: hide

// The linker's names for the ends of the program's sections.
extern const char __executable_start[], __bss_start[], end[];

int main(void) {
    tour_begin("RssFile RssAnon map.Rss VmData");
    tour_watch(constants, sizeof constants);
    const tour_numbers *start = tour_step("at the start");
    // tour: show

    long sum = tour_read_pages(constants, sizeof constants);
    const tour_numbers *constant = tour_step("constants read");

    tour_write_pages(values, sizeof values);
    const tour_numbers *value = tour_step("values written");

    sum += tour_read_pages(zeros, sizeof zeros);
    const tour_numbers *zero = tour_step("zeros read");

    tour_write_pages(zeros, sizeof zeros);
    const tour_numbers *written = tour_step("zeros written");
    tour_maps(__executable_start, end);
    // tour: hide
    struct stat file;
    tour_must(stat("/proc/self/exe", &file) == 0, "stat");
    tour_mapping of_constants = {0}, of_values = {0}, of_bss = {0}, of_zeros = {0}, of_text = {0};
    bool found = tour_mapping_of(constants, &of_constants) && tour_mapping_of(values, &of_values) &&
                 tour_mapping_of(zeros + sizeof zeros / 2, &of_zeros) &&
                 tour_mapping_of((const void *)(uintptr_t)main, &of_text) && tour_mapping_of(__bss_start, &of_bss);
    tour_must(found, "mappings of our own variables");
    long slack = tour_slack(), constants_kib = (long)(sizeof constants / KIB), values_kib = (long)(sizeof values / KIB),
         zeros_kib = (long)(sizeof zeros / KIB);
    tour_near(
        sum, 1, 0, "A variable without a value is 0: all of them together with the constants add up to %ld.", sum);
    tour_claim(file.st_size < (off_t)(sizeof zeros / 2),
        "The file has %s for %s of variables: .bss is a size and nothing else.", tour_size(file.st_size / (off_t)KIB),
        tour_size(constants_kib + values_kib + zeros_kib));
    tour_claim(constant->map.Rss >= constants_kib && constant->map.Anonymous == 0,
        "Constants that were read are pages of the file: %s of their mapping are resident, %s anonymous.",
        tour_size(constant->map.Rss), tour_size(constant->map.Anonymous));
    tour_note("Before anybody read them it was %s already: what is near to a page that is needed comes along.",
        tour_size(start->map.Rss));
    tour_near(value->RssAnon - constant->RssAnon, values_kib, slack,
        "Values that were written are pages of the process: RssAnon + %s.",
        tour_size(value->RssAnon - constant->RssAnon));
    tour_near(zero->RssAnon - value->RssAnon, 0, slack, "Zeros that were read take nothing: RssAnon + %s.",
        tour_size(zero->RssAnon - value->RssAnon));
    tour_near(written->RssAnon - zero->RssAnon, zeros_kib, slack,
        "Zeros that were written take their size: RssAnon + %s.", tour_size(written->RssAnon - zero->RssAnon));
    tour_claim(strcmp(of_text.modes, "r-xp") == 0 && of_text.inode != 0,
        "Instructions are in a mapping of the file with modes %s.", of_text.modes);
    tour_claim(
        of_constants.modes[1] == '-' && of_constants.inode != 0, "Constants are in one with %s.", of_constants.modes);
    tour_claim(
        strcmp(of_values.modes, "rw-p") == 0 && of_values.inode != 0, "Values are in one with %s.", of_values.modes);
    tour_claim(strcmp(of_zeros.modes, "rw-p") == 0 && of_zeros.inode == 0, "Most of .bss is of no file: %s, inode %lu.",
        of_zeros.modes, of_zeros.inode);
    bool inside = (uintptr_t)__bss_start % tour_page() != 0;
    tour_claim((of_bss.inode != 0) == inside, "It begins at %p, %zu bytes into a page, which is %s.",
        (const void *)__bss_start, (size_t)((uintptr_t)__bss_start % tour_page()),
        of_bss.inode ? "the last page of .data" : "not one of the file");
    tour_near((long)(of_zeros.from - of_values.to), 0, 0,
        "Between the end of the file's mapping and the anonymous one lie %ld bytes.",
        (long)(of_zeros.from - of_values.to));
    tour_note("The heap is not there: it begins %s behind, at a distance that chance decides.",
        tour_size((long)(((uintptr_t)sbrk(0) - (uintptr_t)end) / KIB)));
    return tour_end();
}
