/* Receiving segments of unknown origin. */

#include "loaded.h"

#include "model.h"
#include "saved.h"

/* n_cells, n_streams, n_columns, stack, frame_bytes, block_frames, frames, piece_frames, row_bytes, channel_bytes, item_bytes */
const sb3x_config loaded_configs[N_LOADED_CONFIGS] = {
    {12, 2, 2, 3, 40, 5, SB3X_FRAMES_DELTA, 0, 0, 0, 0},      {12, 2, 2, 3, 40, 5, SB3X_FRAMES_RAW, 0, 0, 0, 0},
    {12, 2, 2, 3, 40, 5, SB3X_FRAMES_CODEC, 0, 0, 0, 0},      {12, 3, 1, 2, 40, 4, SB3X_FRAMES_DELTA, 1, 8, 0, 2},
    {6, 1, 1, 1, 70, 1, SB3X_FRAMES_DELTA, 0, 0, 0, 0},       {6, 1, 1, 1, 8, 1, SB3X_FRAMES_CODEC, 0, 0, 0, 0},
    {9, 3, 1, 4, 33, 4, SB3X_FRAMES_DELTA, 0, 16, 0, 0},      {8, 2, 2, 2, 1, 1 << 26, SB3X_FRAMES_RAW, 0, 0, 0, 0},
    {1, 1, 1, 1, 1, 1 << 25, SB3X_FRAMES_RAW, 0, 0, 0, 0},    {8, 4, 2, 2, 16, 1 << 20, SB3X_FRAMES_DELTA, 0, 0, 0, 0},
    {12, 2, 2, 3, 144, 9, SB3X_FRAMES_DELTA, 2, 32, 48, 0},   {12, 2, 2, 3, 48, 9, SB3X_FRAMES_CODEC, 4, 0, 0, 0},
    {30, 2, 2, 2, 100, 7, SB3X_FRAMES_DELTA, 0, 20, 33, 0},   {8, 1, 2, 4, 33, 70, SB3X_FRAMES_CODEC, 1, 0, 0, 0},
    {40, 1, 1, 2, 20, 130, SB3X_FRAMES_DELTA, 1, 0, 0, 0},    {12, 3, 2, 2, 64, 6, SB3X_FRAMES_RAW, 3, 17, 0, 0},
};

/* ---- what can be right: the rules of sb3x.h, once more and without regard to speed */

/* Of a row of the table. */
static int is_row_right(const sb3x_config *config, const int64_t *table, int64_t n_blocks, int64_t i) {
    const int64_t *row = table + i * SAVED_ROW, block_bytes = config->block_frames * config->frame_bytes;
    const int64_t base = row[SAVED_BASE], length = row[SAVED_LENGTH], piece = row[SAVED_PIECE];
    const int is_raw = base == -1;
    if (row[SAVED_PREVIOUS] < -1 || row[SAVED_PREVIOUS] >= n_blocks || row[SAVED_PREVIOUS] == i) return 0;
    if (base < -3 - 255 || base >= n_blocks) return 0;
    if (base >= 0) {
        const int64_t *frame = table + base * SAVED_ROW;
        if (frame[SAVED_BASE] != -1 || frame[SAVED_LENGTH] != config->frame_bytes) return 0;
    }
    if (length < 1 || length > block_bytes - !is_raw || (is_raw && length % config->frame_bytes)) return 0;
    if (piece == 0) return 1;
    return !is_raw && piece > 0 && piece < config->block_frames && piece <= INT16_MAX && piece * 64 >= config->block_frames;
}

static int is_head_right(const sb3x_config *config, const int64_t *table, int64_t n_blocks, int64_t head) {
    if (head <= 0) return head == 0;
    const int64_t number = (head - 1) / config->block_frames, index = (head - 1) % config->block_frames;
    if (number >= n_blocks) return 0;
    const int64_t *row = table + number * SAVED_ROW;
    if (row[SAVED_BASE] == -1 && index * config->frame_bytes >= row[SAVED_LENGTH]) return 0;
    if (index + 1 >= config->stack) return 1;
    const int64_t *before = row[SAVED_PREVIOUS] < 0 ? NULL : table + row[SAVED_PREVIOUS] * SAVED_ROW;
    return before && (before[SAVED_BASE] != -1 || before[SAVED_LENGTH] == config->block_frames * config->frame_bytes);
}

static int can_be_right(const sb3x_config *config, const uint8_t *bytes, int64_t n) {
    saved_parts parts;
    if (!find_parts(config, bytes, n, &parts)) return 0;
    const int64_t *cells = (const int64_t *)(bytes + parts.cells), *heads = (const int64_t *)(bytes + parts.heads);
    const int64_t *table = (const int64_t *)(bytes + parts.table);
    int64_t left = n - parts.bytes;
    for (int64_t i = 0; i < parts.n_blocks; i++) {
        if (!is_row_right(config, table, parts.n_blocks, i)) return 0;
        left -= table[i * SAVED_ROW + SAVED_LENGTH];
    }
    for (int64_t i = 0; i < parts.n_cells; i++)
        if (cells[i] < 0 || cells[i] >= config->n_cells) return 0;
    for (int64_t i = 0; i < parts.n_cells * config->n_columns; i++)
        if (!is_head_right(config, table, parts.n_blocks, heads[i])) return 0;
    return left == 0;
}

/* Load, and compare what the store says with what it should say. */
static int32_t load_anything(sb3x_store *store, const sb3x_config *config, const uint8_t *bytes, int64_t n) {
    saved_parts parts = {0};
    sb3x_usage usage;
    sb3x_measure(store, &usage);
    int has_room = !find_parts(config, bytes, n, &parts) || usage.n_blocks + parts.n_blocks <= most_blocks(config);
    int32_t status = load_saved(store, config, bytes, n);
    CHECK((status == SB3X_OK) == (has_room && can_be_right(config, bytes, n)));
    CHECK(status == SB3X_OK || status == SB3X_CORRUPT || status == SB3X_BAD_CELL || (status == SB3X_TOO_LARGE && !has_room));
    CHECK(sb3x_check(store) == SB3X_OK);
    return status;
}

/* ---- using the store */

/* Read a cell, with zeros for whatever a codec would decode. */
static int32_t read_cell(sb3x_store *store, const sb3x_config *config, int64_t cell, uint8_t *out) {
    const int32_t columns = config->n_columns == 2 ? SB3X_BOTH_COLUMNS : SB3X_FIRST_COLUMN;
    const int64_t most = sb3x_most_pieces(store, 1, columns);
    int64_t *numbers[5], n_bytes = -1;
    for (int k = 0; k < 5; k++) numbers[k] = exactly(8 * most);
    const uint8_t **frames = exactly(most * (int64_t)sizeof *frames);
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
    free(frames), free(data);
    return status;
}

static void read_everything(sb3x_store *store, const sb3x_config *config) {
    uint8_t *out = exactly(config->n_columns * config->stack * config->frame_bytes);
    for (int64_t cell = 0; cell < config->n_cells; cell++) read_cell(store, config, cell, out);
    free(out);
}

/* Take everything out and put it into a new store. If all blocks are sealed it must read the same, whether that can be decoded or
   not. The frames before an open block may come from a piece that read_cell has no decoder for. */
static void load_again(sb3x_store *store, const sb3x_config *config, int is_sealed) {
    const int64_t nbytes = config->n_columns * config->stack * config->frame_bytes;
    int32_t error;
    saved all = save_all(store, config);
    sb3x_store *again = sb3x_create(config, &error);
    CHECK(all.bytes && again && load_anything(again, config, all.bytes, all.n) == SB3X_OK);
    for (int64_t cell = 0; cell < config->n_cells; cell++) {
        uint8_t *one = exactly(nbytes), *other = exactly(nbytes);
        int32_t status = read_cell(store, config, cell, one);
        CHECK(read_cell(again, config, cell, other) == status);
        CHECK(!is_sealed || status != SB3X_OK || memcmp(one, other, (size_t)nbytes) == 0);
        free(one), free(other);
    }
    free(all.bytes);
    sb3x_destroy(again);
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
        if (step % n_slots == n_slots - 1) CHECK(sb3x_keep_as(store, step / n_slots % 3, step % 256, step % 5) == SB3X_OK);
        write_step(store, config, step % n_slots, observations);
        CHECK(sb3x_check(store) == SB3X_OK);
        if (step % 4 == 0) read_everything(store, config);
    }
    free(observations);
}

/* The same bytes into a store that holds other observations. */
static void load_beside_others(const sb3x_config *config, const uint8_t *bytes, int64_t n) {
    source from = source_of_seed(17);
    int32_t error;
    model *model = new_model(config, &from, &error);
    CHECK(model->store);
    for (int i = 0; i < 25; i++) play(model);
    int32_t status = load_anything(model->store, config, bytes, n);
    if (status == SB3X_OK) {
        saved_parts parts;
        CHECK(find_parts(config, bytes, n, &parts));
        int64_t *others = exactly(8 * config->n_cells), n_others = 0;
        for (int64_t cell = 0; cell < config->n_cells; cell++) {
            int is_other = 1;
            for (int64_t i = 0; i < parts.n_cells; i++) is_other = is_other && memcmp(bytes + parts.cells + 8 * i, &cell, 8) != 0;
            if (is_other) others[n_others++] = cell;
        }
        verify_cells(model, others, n_others);
        free(others);
    } else {
        verify(model);
    }
    read_everything(model->store, config);
    write_over_everything(model->store, config);
    free_model(model);
}

int load_and_use(const sb3x_config *config, const uint8_t *bytes, int64_t n) {
    int32_t error;
    sb3x_store *store = sb3x_create(config, &error);
    CHECK(store);
    int32_t status = load_anything(store, config, bytes, n);
    sb3x_usage usage;
    sb3x_measure(store, &usage);
    if (status != SB3X_OK) CHECK(usage.n_written == 0 && usage.live_bytes == 0 && usage.n_blocks == 3 * config->n_streams);
    /* What was refused has left nothing behind: then not each store is used to the end, but the same ones each time. */
    if (status == SB3X_OK || fnv(1, bytes, n) % 4 == 0) {
        read_everything(store, config);
        if (status == SB3X_OK) load_again(store, config, 1);
        write_over_everything(store, config);
        sb3x_measure(store, &usage);
        CHECK(usage.n_written == config->n_cells * config->n_columns);
        read_everything(store, config);
        load_again(store, config, 0);
        CHECK(sb3x_clear(store) == SB3X_OK && sb3x_check(store) == SB3X_OK);
        read_everything(store, config);
        load_beside_others(config, bytes, n);
    }
    sb3x_destroy(store);
    return status == SB3X_OK;
}
