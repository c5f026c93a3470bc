/* Saved cells that were damaged: they are refused, or whatever is received is consistent and can be used. */

#include "damage.h"
#include "loaded.h"
#include "tests.h"

/* Every number of the tables replaced by values that are likely to hurt. */
static void replace_numbers(const sb3x_config *config, const saved *saved, int64_t stride) {
    saved_parts parts;
    CHECK(find_parts(config, saved->bytes, saved->n, &parts));
    const int64_t n_blocks = parts.n_blocks;
    const int64_t values[] = {0, 1, 2, 3, -1, -2, -3, n_blocks - 1, n_blocks, n_blocks + 1, INT32_MAX, INT32_MIN, INT64_MAX,
                              INT64_MIN, (int64_t)1 << 31, (int64_t)1 << 32, config->block_frames - 1, config->block_frames,
                              n_blocks * config->block_frames, n_blocks * config->block_frames + 1, config->frame_bytes,
                              config->frame_bytes * config->block_frames, (int64_t)1 << 47, (int64_t)1 << 48, -258, -259, 256,
                              config->n_cells - 1, config->n_cells};
    int64_t turn = 0;
    for (int64_t at = 0; at < parts.bytes && at + 8 <= saved->n; at += 8) {
        for (size_t k = 0; k < sizeof values / sizeof *values + 3; k++) {
            if (turn++ % stride) continue;
            uint8_t *damaged = copy_of(saved->bytes, saved->n);
            int64_t value = number_at(damaged, at);
            if (k < sizeof values / sizeof *values)
                value = values[k];
            else if (k == sizeof values / sizeof *values)
                value = (int64_t)((uint64_t)value + 1);
            else
                value = (int64_t)((uint64_t)value + (k % 2 ? (uint64_t)-1 : (uint64_t)1 << 32));
            put_value(damaged + at, value, 8);
            snprintf(check_context, sizeof check_context, "frames %lld: number at %lld replaced by %lld",
                     (long long)config->frames, (long long)at, (long long)value);
            load_and_use(config, damaged, saved->n);
            free(damaged);
        }
    }
}

void test_damaged(int64_t rounds) {
    int64_t n_loaded = 0;
    for (int64_t k = 0; k < N_LOADED_CONFIGS; k++) {
        const sb3x_config *config = &loaded_configs[k];
        int is_slow = config->block_frames * config->frame_bytes > 1 << 16;
        saved saved = save_used(config, (uint64_t)k, 40);
        const int64_t n = saved.n;
        snprintf(check_context, sizeof check_context, "config %lld", (long long)k);
        CHECK(load_and_use(config, saved.bytes, n) == 1);
        CHECK(load_and_use(config, NULL, 0) == 0);
        replace_numbers(config, &saved, (is_slow ? 200 : 80) / rounds + 1);
        source from = source_of_seed((uint64_t)k + 3000);
        for (int64_t i = 0; i < (is_slow ? 5 : 40) * rounds; i++) {
            int64_t length = once_in(&from, 4) ? below(&from, n + 20) : n;
            uint8_t *damaged = exactly(length);
            memcpy(damaged, saved.bytes, (size_t)(length < n ? length : n));
            for (int64_t changes = below(&from, 5); length > 0 && changes >= 0; changes--) {
                int64_t at = below(&from, once_in(&from, 2) ? length : length < 400 ? length : 400);
                int is_bit = once_in(&from, 2);
                damaged[at] = is_bit ? (uint8_t)(damaged[at] ^ 1 << below(&from, 8)) : (uint8_t)below(&from, 256);
            }
            snprintf(check_context, sizeof check_context, "config %lld, round %lld", (long long)k, (long long)i);
            n_loaded += load_and_use(config, damaged, length);
            free(damaged);
        }
        /* Random bytes, and those of a store of another config. */
        for (int64_t i = 0; i < rounds; i++) {
            uint8_t *noise = copy_of(saved.bytes, n);
            for (int64_t at = i % 2 ? 16 : 0; at < n; at++) noise[at] = (uint8_t)next_number(&from);
            CHECK(load_and_use(config, noise, n) == 0);
            free(noise);
        }
        for (int64_t other = 0; other < N_LOADED_CONFIGS; other++)
            if (rounds >= 10) load_and_use(&loaded_configs[other], saved.bytes, n);
        free(saved.bytes);
    }
    CHECK(n_loaded > 0); /* damage within encoded frames cannot be seen */
}
