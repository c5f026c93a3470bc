/* Loading bytes of unknown origin. */

#include "loaded.h"

/* n_cells, n_streams, n_columns, stack, frame_bytes, block_frames, frames, piece_frames, row_bytes, channel_bytes, item_bytes */
const sb3x_config loaded_configs[N_LOADED_CONFIGS] = {
    {12, 2, 2, 3, 40, 5, SB3X_FRAMES_DELTA, 0, 0, 0, 0},      {12, 2, 2, 3, 40, 5, SB3X_FRAMES_RAW, 0, 0, 0, 0},
    {12, 2, 2, 3, 40, 5, SB3X_FRAMES_CODEC, 0, 0, 0, 0},      {12, 2, 2, 3, 40, 5, SB3X_FRAMES_OUTSIDE, 0, 0, 0, 0},
    {6, 1, 1, 1, 70, 1, SB3X_FRAMES_DELTA, 0, 0, 0, 0},       {6, 1, 1, 1, 8, 1, SB3X_FRAMES_CODEC, 0, 0, 0, 0},
    {9, 3, 1, 4, 33, 4, SB3X_FRAMES_DELTA, 0, 16, 0, 0},      {8, 1, 2, 2, 3, 1 << 22, SB3X_FRAMES_OUTSIDE, 0, 0, 0, 0},
    {1, 1, 1, 1, 1, 1 << 25, SB3X_FRAMES_RAW, 0, 0, 0, 0},    {8, 4, 2, 2, 16, 1 << 20, SB3X_FRAMES_DELTA, 0, 0, 0, 0},
    {12, 2, 2, 3, 144, 9, SB3X_FRAMES_DELTA, 2, 32, 48, 0},   {12, 2, 2, 3, 48, 9, SB3X_FRAMES_CODEC, 4, 0, 0, 0},
    {30, 2, 2, 2, 100, 7, SB3X_FRAMES_DELTA, 0, 20, 33, 0},   {8, 1, 2, 4, 33, 70, SB3X_FRAMES_CODEC, 1, 0, 0, 0},
    {40, 1, 1, 2, 20, 130, SB3X_FRAMES_DELTA, 1, 0, 0, 0},    {12, 3, 2, 2, 64, 6, SB3X_FRAMES_RAW, 3, 17, 0, 0},
};

static void read_outside(sb3x_store *store, int64_t cell, int32_t columns) {
    int64_t order[16], distinct[16], n_distinct = 0;
    CHECK(sb3x_tokens(store, &cell, NULL, 1, columns, distinct, order, &n_distinct) == SB3X_OK);
    for (int64_t i = 0; i < n_distinct; i++) CHECK(distinct[i] >= -1 && distinct[i] < sb3x_token_end(store));
}

/* Read a cell, with zeros for whatever a codec would decode. */
static void read_cell(sb3x_store *store, const sb3x_config *config, int64_t cell, int32_t columns) {
    const int64_t most = sb3x_most_pieces(store, 1, columns);
    int64_t *numbers[5], n_bytes = -1;
    for (int k = 0; k < 5; k++) numbers[k] = exactly(8 * most);
    const uint8_t **frames = exactly(most * (int64_t)sizeof *frames);
    uint8_t *out = exactly(2 * config->stack * config->frame_bytes);
    sb3x_decoded decoded = {0, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], frames};
    int32_t listed = sb3x_coded_pieces(store, &cell, NULL, 1, columns, &decoded, &n_bytes);
    CHECK(listed == SB3X_OK || listed == SB3X_CORRUPT);
    CHECK(decoded.n <= most && n_bytes >= 0);
    uint8_t *data = exactly(n_bytes);
    if (listed == SB3X_OK) CHECK(sb3x_coded_bytes(store, &decoded, data) == SB3X_OK);
    int64_t end = 0;
    for (int64_t i = 0; listed == SB3X_OK && i < decoded.n; i++) {
        CHECK(decoded.begins[i] == end && decoded.lengths[i] >= 0 && decoded.codecs[i] >= 0 && decoded.codecs[i] < 256);
        CHECK(decoded.n_frames[i] >= 1 && decoded.n_frames[i] <= config->block_frames);
        end += decoded.lengths[i];
        frames[i] = exactly(decoded.n_frames[i] * config->frame_bytes);
    }
    CHECK(listed != SB3X_OK || end == n_bytes);
    if (listed != SB3X_OK) decoded.n = 0; /* as far as it got, they are of no use */
    int32_t status = sb3x_gather(store, &cell, NULL, 1, columns, &decoded, out);
    CHECK(listed == SB3X_OK ? status == SB3X_OK || status == SB3X_CORRUPT : status != SB3X_OK);
    for (int64_t i = 0; i < decoded.n; i++) free((void *)frames[i]);
    for (int k = 0; k < 5; k++) free(numbers[k]);
    free(frames), free(out), free(data);
}

static void read_everything(sb3x_store *store, const sb3x_config *config) {
    int32_t columns = config->n_columns == 2 ? SB3X_BOTH_COLUMNS : SB3X_FIRST_COLUMN;
    for (int64_t cell = 0; cell < config->n_cells; cell++) {
        if (config->frames == SB3X_FRAMES_OUTSIDE)
            read_outside(store, cell, columns);
        else
            read_cell(store, config, cell, columns);
    }
}

/* Write a step, whatever that takes. */
static void write_step(sb3x_store *store, const sb3x_config *config, int64_t slot, uint8_t *observations) {
    const uint8_t *second = observations + config->n_streams * config->stack * config->frame_bytes;
    const uint8_t encoded[4] = {1, 2, 3, 4};
    sb3x_changes changes = {0};
    int64_t stream, part, n_frames;
    int32_t status = sb3x_plan(store, slot, observations, second, 0, &changes);
    while (status == SB3X_ENCODE) {
        uint64_t sum = 0;
        for (const uint8_t *piece; (piece = sb3x_full_piece(store, &stream, &part, &n_frames));) {
            sum = fnv(sum, piece, n_frames * config->frame_bytes); /* all of it is there */
            CHECK(sb3x_give_encoded(store, stream, part, encoded, slot % 3 ? 4 : 0) == SB3X_OK);
        }
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
    for (int64_t step = 0; step < 4 * n_slots; step++) {
        for (int64_t i = 0; i < 2 * config->n_streams; i++) {
            uint8_t *one = observations + i * nbytes;
            memmove(one, one + config->frame_bytes, (size_t)(nbytes - config->frame_bytes));
            one[nbytes - 1 - below(&from, config->frame_bytes)] = (uint8_t)next_number(&from);
            if (once_in(&from, 6)) memset(one, (int)below(&from, 256), (size_t)nbytes);
        }
        if (step % n_slots == n_slots - 1) { /* in the way that was loaded at first, then in others */
            int32_t status = sb3x_keep_as(store, step / n_slots % 3, step % 256, step % 5);
            CHECK(status == (config->frames == SB3X_FRAMES_OUTSIDE ? SB3X_BAD_ARGUMENT : SB3X_OK));
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
