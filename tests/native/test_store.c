/* Stores of all kinds against plain arrays. */

#include "internal.h"
#include "model.h"
#include "tests.h"

static void describe(const sb3x_config *config, int64_t seed) {
    snprintf(check_context, sizeof check_context,
             "seed %lld: cells %lld, streams %lld, columns %lld, stack %lld, frame_bytes %lld, block_frames %lld, frames %lld",
             (long long)seed, (long long)config->n_cells, (long long)config->n_streams, (long long)config->n_columns,
             (long long)config->stack, (long long)config->frame_bytes, (long long)config->block_frames,
             (long long)config->frames);
}

void test_store(int64_t rounds) {
    for (int64_t seed = 0; seed < 40 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed);
        sb3x_config config = draw_config(&from);
        describe(&config, seed);
        int32_t error;
        model *model = new_model(&config, &from, &error);
        CHECK(model->store && error == SB3X_OK);
        verify(model);
        for (int64_t i = 0; i < 60 + below(&from, 100); i++) {
            sb3x_set_threads(1 + (int32_t)below(&from, 4));
            play(model);
            verify_some(model);
            if (once_in(&from, 8)) verify(model);
        }
        verify(model);
        free_model(model);
    }
    sb3x_set_threads(1);
}

/* ---- calls that are out of order, or for another kind of store */

static void check_bad_cells(model *model) {
    const sb3x_config *config = &model->config;
    const int64_t n_slots = config->n_cells / config->n_streams;
    const int64_t bad[] = {-1, config->n_cells, INT64_MIN, INT64_MAX};
    uint8_t *out = exactly(8 * model->observation_bytes);
    int64_t zero = 0, order[16], distinct[16];
    sb3x_changes changes;
    for (int i = 0; i < 4; i++) {
        int64_t done = -1, cells[2] = {0, bad[i]}, n_distinct, slot = bad[i] == config->n_cells ? n_slots : bad[i];
        int64_t env = bad[i] == config->n_cells ? config->n_streams : bad[i];
        CHECK(sb3x_plan(model->store, slot, model->shown, model->shown, 0, &changes) == SB3X_BAD_CELL);
        CHECK(sb3x_commit(model->store, NULL) == SB3X_OK);
        if (config->frames == SB3X_FRAMES_OUTSIDE) {
            CHECK(sb3x_plan_cells(model->store, 0, bad + i, 1, out, &changes) == SB3X_BAD_CELL);
            CHECK(sb3x_erase(model->store, bad + i, 1, &changes) == SB3X_BAD_CELL);
            CHECK(sb3x_tokens(model->store, bad + i, NULL, 1, 1, distinct, order, &n_distinct) == SB3X_BAD_CELL);
            CHECK(sb3x_tokens(model->store, &slot, &zero, 1, 1, distinct, order, &n_distinct) == SB3X_BAD_CELL);
            CHECK(sb3x_tokens(model->store, &zero, &env, 1, 1, distinct, order, &n_distinct) == SB3X_BAD_CELL);
        } else {
            CHECK(sb3x_write(model->store, 0, cells, 2, out, &done) == SB3X_BAD_CELL && done == 0);
            CHECK(sb3x_gather(model->store, cells, NULL, 2, 1, NULL, out) == SB3X_BAD_CELL);
            CHECK(sb3x_gather(model->store, &slot, &zero, 1, 1, NULL, out) == SB3X_BAD_CELL);
            CHECK(sb3x_gather(model->store, &zero, &env, 1, 1, NULL, out) == SB3X_BAD_CELL);
        }
        verify(model);
    }
    free(out);
}

static void check_bad_arguments(model *model) {
    const sb3x_config *config = &model->config;
    sb3x_store *store = model->store;
    int is_outside = config->frames == SB3X_FRAMES_OUTSIDE, is_coded = config->frames == SB3X_FRAMES_CODEC;
    uint8_t *out = exactly(16 * model->observation_bytes);
    int64_t cell = 0, done = -1, length, blocks[8], n_frames[8], order[16], distinct[16], n_distinct, stream, part;
    sb3x_changes changes;
    sb3x_decoded decoded = {0, blocks, n_frames, NULL};
    for (int32_t columns = -1; columns < 6; columns++) {
        if (columns >= 1 && columns <= (config->n_columns == 2 ? 3 : 1)) continue;
        CHECK(sb3x_gather(store, &cell, NULL, 1, columns, NULL, out) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_coded_blocks(store, &cell, NULL, 1, columns, &decoded) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_tokens(store, &cell, NULL, 1, columns, distinct, order, &n_distinct) == SB3X_BAD_ARGUMENT);
    }
    const int64_t bad[] = {-1, config->n_columns};
    for (int i = 0; i < 2; i++) {
        CHECK(sb3x_write(store, bad[i], &cell, 1, out, &done) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_plan_cells(store, bad[i], &cell, 1, out, &changes) == SB3X_BAD_ARGUMENT);
    }
    const int64_t many = config->n_streams + 1;
    int64_t *cells = exactly(8 * many);
    uint8_t *observations = exactly(many * model->observation_bytes);
    CHECK(sb3x_plan_cells(store, 0, cells, many, observations, &changes) == SB3X_BAD_ARGUMENT);
    CHECK(sb3x_erase(store, cells, many, &changes) == SB3X_BAD_ARGUMENT);
    if (config->n_streams >= 2) /* a stream twice */
        CHECK(sb3x_plan_cells(store, 0, cells, 2, observations, &changes) == SB3X_BAD_ARGUMENT);
    CHECK(sb3x_commit(store, NULL) == SB3X_OK);
    free(cells), free(observations);
    if (is_outside) {
        CHECK(sb3x_write(store, 0, &cell, 1, out, &done) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_gather(store, &cell, NULL, 1, 1, NULL, out) == SB3X_BAD_ARGUMENT);
    } else {
        CHECK(sb3x_plan_cells(store, 0, &cell, 1, out, &changes) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_erase(store, &cell, 1, &changes) == SB3X_BAD_ARGUMENT);
    }
    if (!is_coded) {
        CHECK(sb3x_coded_blocks(store, &cell, NULL, 1, 1, &decoded) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_give_encoded(store, 0, 0, out, 1) == SB3X_BAD_ARGUMENT);
    }
    CHECK(sb3x_full_block(store, &stream, &part) == NULL);
    const int64_t wrong[][3] = {{-1, 0, 1}, {config->n_streams, 0, 1}, {0, -1, 1}, {0, 2, 1}, {0, 0, -1}};
    for (int i = 0; i < 5; i++)
        CHECK(sb3x_give_encoded(store, wrong[i][0], wrong[i][1], out, wrong[i][2]) == SB3X_BAD_ARGUMENT);
    CHECK(sb3x_encoded(store, -1, &length) == NULL && sb3x_encoded(store, INT64_MAX, &length) == NULL);
    verify(model);
    free(out);
}

void test_order_of_calls(int64_t rounds) {
    for (int64_t seed = 0; seed < 6 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 1000);
        sb3x_config config = draw_config(&from);
        config.frames = seed % 4;
        describe(&config, seed);
        int32_t error;
        model *model = new_model(&config, &from, &error);
        CHECK(model->store);
        for (int64_t i = 0; i < 20; i++) {
            play(model);
            CHECK(sb3x_commit(model->store, NULL) == SB3X_OK); /* nothing is planned */
            if (i % 5 == 0) check_bad_cells(model);
            if (i % 5 == 1) check_bad_arguments(model);
            verify(model);
        }
        /* Encoded bytes that nobody has asked for are no harm. */
        if (config.frames == SB3X_FRAMES_CODEC) CHECK(sb3x_give_encoded(model->store, 0, 1, model->cells, 1) == SB3X_OK);
        for (int64_t i = 0; i < 20; i++) play(model);
        CHECK(sb3x_clear(model->store) == SB3X_OK);
        sb3x_usage usage;
        sb3x_measure(model->store, &usage);
        CHECK(usage.n_written == 0 && usage.live_bytes == 0 && usage.n_blocks == 3 * config.n_streams);
        const int64_t block_bytes = config.block_frames * config.frame_bytes;
        CHECK(usage.held_bytes <= (block_bytes > CHUNK_BYTES ? block_bytes : CHUNK_BYTES)); /* one chunk */
        if (config.frames == SB3X_FRAMES_CODEC && block_bytes > 1) /* and a store that goes away takes them along */
            CHECK(sb3x_give_encoded(model->store, 0, 0, model->cells, 1) == SB3X_OK);
        free_model(model);
    }
}

/* ---- chunks that are nearly empty are given back */

static int32_t write_cell(model *model, int64_t cell) {
    operation write = {.kind = WRITE, .n = 1, .cells = &cell, .observations = model->shown};
    return try_operation(model, &write);
}

static void draw_noise(model *model) {
    for (int64_t i = 0; i < model->observation_bytes; i++) model->shown[i] = (uint8_t)next_number(model->from);
}

/* A block and the base that is made from it, in chunks that hold no more than one block. */
static void check_full_chunks(void) {
    const int64_t size = CHUNK_BYTES + 100;
    const sb3x_config config = {40, 1, 1, 1, size, 2, SB3X_FRAMES_DELTA};
    source from = source_of_seed(3);
    int32_t error;
    model *model = new_model(&config, &from, &error);
    CHECK(model->store);
    for (int64_t cell = 0; cell < config.n_cells; cell++) {
        for (int64_t i = 0; i < size * 7 / 10; i++) model->shown[i] = (uint8_t)next_number(&from);
        CHECK(write_cell(model, cell) == SB3X_OK);
        if (cell < 6) verify(model);
    }
    verify(model);
    free_model(model);
}

void test_chunks(int64_t rounds) {
    (void)rounds;
    check_full_chunks();
    CHECK(sb3x_version() == SB3X_VERSION);
    for (int64_t frames = SB3X_FRAMES_RAW; frames <= SB3X_FRAMES_CODEC; frames++) {
        source from = source_of_seed((uint64_t)frames);
        /* 150 blocks to a chunk, 12 chunks. */
        const sb3x_config config = {3600, 1, 1, 1, CHUNK_BYTES / 300, 2, frames};
        describe(&config, frames);
        int32_t error;
        model *model = new_model(&config, &from, &error);
        CHECK(model->store);
        for (int64_t cell = 0; cell < config.n_cells; cell++) {
            draw_noise(model);
            CHECK(write_cell(model, cell) == SB3X_OK);
        }
        verify(model);
        sb3x_usage before, after;
        sb3x_measure(model->store, &before);
        CHECK(before.held_bytes >= 11 * CHUNK_BYTES);
        /* One in forty keeps its observation, the others show the same. */
        for (int64_t cell = 0; cell < config.n_cells; cell++)
            if (cell % 40 != 7) CHECK(write_cell(model, cell) == SB3X_OK);
        for (int64_t i = 0; i < 60; i++) {
            draw_noise(model);
            sb3x_fail_allocation(i < 10 ? 0 : -1, 1); /* without memory they stay as they are */
            int32_t status = write_cell(model, 0);
            sb3x_fail_allocation(-1, 0);
            CHECK(status == SB3X_OK || (i < 10 && status == SB3X_NO_MEMORY));
            if (i % 5 == 0) verify(model);
        }
        sb3x_measure(model->store, &after);
        CHECK(after.live_bytes < before.live_bytes / 10);
        CHECK(after.held_bytes <= 2 * after.live_bytes + 5 * CHUNK_BYTES);
        verify(model);
        CHECK(reload(model) == SB3X_OK);
        verify(model);
        free_model(model);
    }
}
