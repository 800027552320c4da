// SPDX-License-Identifier: MIT
// A store of tiles whose sizes are powers of two: nothing is lost to headers, and neighbours join when tiles grow.
#include <stdio.h>
#include <string.h>

#include <quarry/pow2.h>

typedef struct tile {
    unsigned char *pixels;
    size_t bytes;
} tile_t;

static int tile_resize(quarry_pool_t *pool, tile_t *t, size_t bytes) {
    unsigned char *p = quarry_pool_resize(pool, t->pixels, t->bytes, bytes, 16, QUARRY_POOL_ZERO);
    if (!p) return -1;
    *t = (tile_t){p, bytes};
    return 0;
}

int main(void) {
    quarry_pool_t *pool = quarry_pow2_create(&(quarry_pow2_options_t){.pool.name = "tiles", .partitions = 1});
    if (!pool) return 1;

    tile_t tiles[4] = {{0}};
    for (int i = 0; i < 4; i++)
        if (tile_resize(pool, &tiles[i], 4096)) return 1;
    memset(tiles[3].pixels, 'x', 4096);
    printf("4096 bytes take %zu, at a multiple of 4096: %s\n", quarry_pool_usable(pool, tiles[0].pixels),
        (size_t)tiles[0].pixels % 4096 ? "no" : "yes");

    // The right neighbour of the third tile goes to it; the fourth is the other way round: its content moves down.
    unsigned char *third = tiles[2].pixels;
    quarry_pool_free(pool, third, 4096);
    if (tile_resize(pool, &tiles[3], 8192)) return 1;
    printf("the fourth tile grew into the third's place: %s, content kept: %s\n",
        tiles[3].pixels == third ? "yes" : "no",
        tiles[3].pixels[4095] == 'x' && tiles[3].pixels[4096] == 0 ? "yes" : "no");

    quarry_pool_free(pool, tiles[0].pixels, 4096);
    quarry_pool_free(pool, tiles[1].pixels, 4096);
    quarry_pool_free(pool, tiles[3].pixels, 8192);
    quarry_pow2_stats_t s;
    quarry_pow2_stats(pool, &s);
    printf("%llu joins later %zu MiB are free in %zu region\n", (unsigned long long)s.joins, s.free_bytes >> 20,
        s.regions);
    printf("given back: %zu MiB\n", quarry_pow2_trim(pool) >> 20);
    quarry_pool_destroy(pool);
    return 0;
}
