// SPDX-License-Identifier: MIT
// A mixer that may never wait: voices come and go while sound is played, all from a buffer that was there at the start.
#include <stdio.h>

#include <quarry/short.h>
#include <quarry/tlsf.h>

typedef struct voice {
    int pitch;
    size_t samples;
    short wave[];
} voice_t;

static _Alignas(16) char memory[64 * 1024];

static voice_t *start_voice(quarry_pool_t *pool, int pitch, size_t samples) {
    voice_t *v = p_new_extra_field(pool, voice_t, wave, samples);  // zeroed: silence
    if (!v) return NULL;
    v->pitch = pitch;
    v->samples = samples;
    return v;
}

static int print_block(void *block, size_t bytes, int used, void *arg) {
    (void)block;
    printf("%s%s %zu", *(int *)arg ? ", " : "  ", used ? "used" : "free", bytes);
    *(int *)arg = 1;
    return 0;
}

int main(void) {
    // FIXED: no call ever leaves this buffer, so none can meet the kernel; and none has a loop.
    quarry_pool_t *pool = quarry_tlsf_create(&(quarry_tlsf_options_t){
        .pool.name = "voices", .buffer = memory, .buffer_bytes = sizeof memory, .flags = QUARRY_TLSF_FIXED});
    if (!pool) return 1;

    voice_t *bass = start_voice(pool, 36, 4000), *lead = start_voice(pool, 72, 9000),
            *bell = start_voice(pool, 96, 2000);
    if (!bass || !lead || !bell) return 1;

    p_delete(pool, &lead);                       // ends in the middle of the buffer
    voice_t *pad = start_voice(pool, 48, 8000);  // and what fits takes its place
    printf("pad takes the place of lead: %s\n", pad && pad > bass && pad < bell ? "yes" : "no");

    voice_t *choir = start_voice(pool, 60, 30000);
    printf("choir is refused: %s\n", choir ? "no" : "yes");

    int some = 0;
    printf("blocks, in order:\n");
    quarry_tlsf_walk(pool, print_block, &some);

    p_delete(pool, &bass);
    p_delete(pool, &pad);
    p_delete(pool, &bell);
    some = 0;
    printf("\nafter all are gone:\n");
    quarry_tlsf_walk(pool, print_block, &some);
    printf("\nsound: %s\n", quarry_pool_check(pool) == 0 ? "yes" : "no");
    quarry_pool_destroy(pool);
    return 0;
}
