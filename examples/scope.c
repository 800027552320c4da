// SPDX-License-Identifier: MIT
// scope.c: temporary data with t_scope: no free, no goto for errors, no leak on any way out.
#include <quarry/scope.h>
#include <stdio.h>
#include <string.h>

typedef struct header {
    const char *name, *value;
} header;

// For the caller's scope: its name begins with t_, and it has no scope of its own.
static header *t_parse(const char *text, size_t *ret_count) {
    size_t count = 0, room = 0;
    header *headers = NULL;
    for (const char *end; (end = strchr(text, '\n')) != NULL; text = end + 1) {
        const char *colon = memchr(text, ':', (size_t)(end - text));
        if (!colon) return NULL;  // what was made so far ends with the caller's scope
        if (count == room) {
            size_t more = room * 2 + 4;
            if (!t_renew(&headers, room, more)) return NULL;
            room = more;
        }
        // These lie behind the array, so it moves when it grows; its old place ends with all the rest.
        headers[count].name = t_dupz(text, (size_t)(colon - text));
        headers[count].value = t_dupz(colon + 2, (size_t)(end - colon) - 2);
        count++;
    }
    *ret_count = count;
    return headers;
}

static int answer(const char *request) {
    t_scope;
    size_t count;
    const header *headers = t_parse(request, &count);
    if (!headers) {
        puts("  bad request");
        return 400;
    }
    for (size_t i = 0; i < count; i++) {
        t_scope;  // a scope in a loop: each turn's text ends with the turn
        puts(t_printf("  %s is \"%s\"", headers[i].name, headers[i].value));
    }
    return 200;
}

int main(void) {
    static const char *const requests[] = {
        "Host: example.org\nAccept: text/plain\n", "this is no header\n", "A: 1\nB: 2\nC: 3\nD: 4\nE: 5\nF: 6\n"};
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        printf("request %zu\n", i + 1);
        printf("  -> %d\n", answer(requests[i]));
    }
    quarry_pool_stats_t stats;
    quarry_pool_stats(t_pool(), &stats);
    printf("bytes still in use: %zu\n", stats.used_bytes);
    return 0;
}
