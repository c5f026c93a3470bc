/* Loading bytes of unknown origin. */

#include "loaded.h"

/* n_cells, n_streams, n_columns, stack, frame_bytes, block_frames, frames */
const sb3x_config loaded_configs[N_LOADED_CONFIGS] = {
    {12, 2, 2, 3, 40, 5, SB3X_FRAMES_DELTA},   {12, 2, 2, 3, 40, 5, SB3X_FRAMES_RAW},
    {12, 2, 2, 3, 40, 5, SB3X_FRAMES_CODEC},   {12, 2, 2, 3, 40, 5, SB3X_FRAMES_OUTSIDE},
    {6, 1, 1, 1, 70, 1, SB3X_FRAMES_DELTA},    {6, 1, 1, 1, 8, 1, SB3X_FRAMES_CODEC},
    {9, 3, 1, 4, 33, 4, SB3X_FRAMES_DELTA},    {8, 1, 2, 2, 3, 1 << 22, SB3X_FRAMES_OUTSIDE},
    {1, 1, 1, 1, 1, 1 << 25, SB3X_FRAMES_RAW}, {8, 4, 2, 2, 16, 1 << 20, SB3X_FRAMES_DELTA},
};

static void read_everything(sb3x_store *store, const sb3x_config *config) {
    const int64_t nbytes = config->stack * config->frame_bytes;
    for (int64_t cell = 0; cell < config->n_cells; cell++) {
        int32_t columns = config->n_columns == 2 ? SB3X_BOTH_COLUMNS : SB3X_FIRST_COLUMN;
        uint8_t *out = exactly(2 * nbytes);
        int64_t blocks[4], n_frames[4], order[16], distinct[16], n_distinct = 0;
        if (config->frames == SB3X_FRAMES_OUTSIDE) {
            CHECK(sb3x_tokens(store, &cell, NULL, 1, columns, distinct, order, &n_distinct) == SB3X_OK);
            for (int64_t i = 0; i < n_distinct; i++) CHECK(distinct[i] >= -1 && distinct[i] < sb3x_token_end(store));
            free(out);
            continue;
        }
        const uint8_t *frames[4];
        sb3x_decoded decoded = {0, blocks, n_frames, frames};
        if (config->frames == SB3X_FRAMES_CODEC) {
            CHECK(sb3x_coded_blocks(store, &cell, NULL, 1, columns, &decoded) == SB3X_OK);
            CHECK(decoded.n <= 4);
        }
        uint64_t sum = 0;
        for (int64_t i = 0; i < decoded.n; i++) {
            int64_t length;
            const uint8_t *data = sb3x_encoded(store, blocks[i], &length);
            CHECK(data && length > 0 && n_frames[i] <= config->block_frames);
            sum = fnv(sum, data, length); /* all of it is there */
            frames[i] = exactly(n_frames[i] * config->frame_bytes);
        }
        int32_t status = sb3x_gather(store, &cell, NULL, 1, columns, &decoded, out);
        CHECK(status == SB3X_OK || status == SB3X_CORRUPT);
        CHECK(status == SB3X_OK || config->frames == SB3X_FRAMES_DELTA);
        for (int64_t i = 0; i < decoded.n; i++) free((void *)frames[i]);
        free(out);
    }
}

/* Write a step, whatever that takes. */
static void write_step(sb3x_store *store, const sb3x_config *config, int64_t slot, uint8_t *observations) {
    const uint8_t *second = observations + config->n_streams * config->stack * config->frame_bytes;
    const uint8_t encoded[4] = {1, 2, 3, 4};
    sb3x_changes changes = {0};
    int64_t stream, part;
    int32_t status = sb3x_plan(store, slot, observations, second, 0, &changes);
    while (status == SB3X_ENCODE) {
        while (sb3x_full_block(store, &stream, &part))
            CHECK(sb3x_give_encoded(store, stream, part, encoded, slot % 3 ? 4 : 0) == SB3X_OK);
        status = sb3x_plan(store, slot, observations, second, 1, &changes);
    }
    CHECK(status == SB3X_OK);
    CHECK(sb3x_commit(store, &changes) == SB3X_OK);
    sb3x_let_go(store);
}

static void write_over_everything(sb3x_store *store, const sb3x_config *config) {
    const int64_t n_slots = config->n_cells / config->n_streams, nbytes = config->stack * config->frame_bytes;
    uint8_t *observations = exactly(2 * config->n_streams * nbytes);
    source from = source_of_seed(1);
    for (int64_t step = 0; step < 3 * n_slots; step++) {
        for (int64_t i = 0; i < 2 * config->n_streams; i++) {
            uint8_t *one = observations + i * nbytes;
            memmove(one, one + config->frame_bytes, (size_t)(nbytes - config->frame_bytes));
            one[nbytes - 1 - below(&from, config->frame_bytes)] = (uint8_t)next_number(&from);
            if (once_in(&from, 6)) memset(one, (int)below(&from, 256), (size_t)nbytes);
        }
        write_step(store, config, step % n_slots, observations);
        CHECK(sb3x_check(store) == SB3X_OK);
        if (step % 4 == 0) read_everything(store, config);
    }
    free(observations);
}

int load_and_use(const sb3x_config *config, const uint8_t *data, int64_t n) {
    int32_t error;
    sb3x_store *store = sb3x_create(config, &error);
    CHECK(store);
    int32_t status = sb3x_load(store, data, n);
    CHECK(status == SB3X_OK || status == SB3X_CORRUPT);
    CHECK(sb3x_check(store) == SB3X_OK);
    sb3x_usage usage;
    sb3x_measure(store, &usage);
    if (status != SB3X_OK) CHECK(usage.n_written == 0 && usage.live_bytes == 0 && usage.n_blocks == 3 * config->n_streams);
    read_everything(store, config);
    write_over_everything(store, config);
    sb3x_measure(store, &usage);
    CHECK(usage.n_written == config->n_cells * config->n_columns);
    read_everything(store, config);
    int64_t n_saved;
    uint8_t *saved = sb3x_save(store, &n_saved);
    CHECK(saved);
    sb3x_store *again = sb3x_create(config, &error);
    CHECK(again && sb3x_load(again, saved, n_saved) == SB3X_OK && sb3x_check(again) == SB3X_OK);
    sb3x_free_saved(saved);
    sb3x_destroy(again);
    CHECK(sb3x_clear(store) == SB3X_OK && sb3x_check(store) == SB3X_OK);
    read_everything(store, config);
    sb3x_destroy(store);
    return status == SB3X_OK;
}
