/* Stores of all kinds against plain arrays. */

#include "internal.h"
#include "model.h"
#include "tests.h"

static void describe(const sb3x_config *config, int64_t seed) {
    snprintf(check_context, sizeof check_context,
             "seed %lld: cells %lld, streams %lld, columns %lld, stack %lld, frame_bytes %lld, block_frames %lld, frames %lld, "
             "piece_frames %lld, row_bytes %lld, channel_bytes %lld, item_bytes %lld",
             (long long)seed, (long long)config->n_cells, (long long)config->n_streams, (long long)config->n_columns,
             (long long)config->stack, (long long)config->frame_bytes, (long long)config->block_frames,
             (long long)config->frames, (long long)config->piece_frames, (long long)config->row_bytes,
             (long long)config->channel_bytes, (long long)config->item_bytes);
}

/* ---- blocks that are open while something changes */

/* A step in which each stream goes on by a frame that hardly differs. */
static void take_calm_step(model *model) {
    const int64_t nbytes = model->observation_bytes, size = model->config.frame_bytes, n_streams = model->config.n_streams;
    operation step = {.kind = STEP, .slot = model->ring++ % (model->config.n_cells / n_streams), .observations = model->shown};
    for (int64_t i = 0; i < n_streams; i++) {
        uint8_t *shown = model->shown + i * nbytes;
        memmove(shown, shown + size, (size_t)(nbytes - size));
        shown[nbytes - 1] = (uint8_t)model->ring;
    }
    CHECK(try_operation(model, &step) == SB3X_OK);
}

static int64_t count_blocks(const sb3x_store *store, int64_t kind) {
    int64_t count = 0;
    for (int64_t i = 0; i < store->n_blocks; i++) {
        const block *one = &store->blocks[i];
        int is_it = kind == SB3X_FRAMES_RAW ? one->base == BLOCK_RAW && one->length == store->block_bytes
                                            : kind == SB3X_FRAMES_DELTA ? is_delta(one->base) : is_coded(one->base);
        count += one->references > 0 && one->length > 0 && is_it;
    }
    return count;
}

/* Blocks of the old way, however many, say nothing about the new one: it is tried at once. Open blocks of another codec stay raw. */
static void check_other_ways(int64_t before, int64_t after) {
    enum { STREAMS = 30 };
    const sb3x_config config = {STREAMS * 40, STREAMS, 1, 2, 64, 8, before, 3, 0, 0, 0};
    snprintf(check_context, sizeof check_context, "frames %lld, then %lld", (long long)before, (long long)after);
    source from = source_of_seed(1);
    int32_t error;
    model *model = new_model(&config, &from, &error);
    CHECK(model->store);
    for (int i = 0; i < 12; i++) take_calm_step(model);
    CHECK(count_blocks(model->store, before) >= STREAMS);
    /* The blocks that are open now, one of each stream. */
    const int64_t kept = before == SB3X_FRAMES_CODEC ? SB3X_FRAMES_RAW : before, n_kept = count_blocks(model->store, kept);
    operation other = {.kind = KEEP_AS, .frames = after, .codec = 7, .piece_frames = 5};
    CHECK(try_operation(model, &other) == SB3X_OK);
    for (int i = 0; i < 8; i++) take_calm_step(model);
    CHECK(count_blocks(model->store, kept) == n_kept + STREAMS);
    const int64_t n_after = count_blocks(model->store, after);
    for (int i = 0; i < 16; i++) take_calm_step(model);
    CHECK(count_blocks(model->store, after) >= n_after + 2 * STREAMS * 5 / 6); /* the model does not encode all of them */
    verify(model);
    free_model(model);
}

/* Sealed blocks of a codec arrive as they are, and new ones are encoded again from their first frame on. */
static void check_loaded_codec(int64_t piece_frames) {
    const sb3x_config config = {3 * 40, 3, 1, 2, 64, 8, SB3X_FRAMES_CODEC, piece_frames, 0, 0, 0};
    snprintf(check_context, sizeof check_context, "codec in pieces of %lld", (long long)piece_frames);
    source from = source_of_seed(2);
    int32_t error;
    model *model = new_model(&config, &from, &error);
    CHECK(model->store);
    for (int i = 0; i < 100; i++) {
        take_calm_step(model);
        if (i % 20 == 19) {
            const int64_t n_coded = count_blocks(model->store, SB3X_FRAMES_CODEC);
            CHECK(reload(model, 1) == SB3X_OK && count_blocks(model->store, SB3X_FRAMES_CODEC) == n_coded);
        }
        if (i % 8 == 7) verify(model);
    }
    CHECK(count_blocks(model->store, SB3X_FRAMES_CODEC) > 3 * count_blocks(model->store, SB3X_FRAMES_RAW));
    verify(model);
    free_model(model);
}

/* ---- everything at random */

/* How the sealed blocks of all stores are kept: the test is worth nothing where something never happens. */
static struct {
    int64_t raw, delta, delta_on_base, coded, cut_delta, cut_coded, mixed_stores;
} seen;

static void look_at_blocks(const sb3x_store *store) {
    int kinds = 0;
    for (int64_t i = 0; i < store->n_blocks; i++) {
        const block *one = &store->blocks[i];
        if (one->references == 0 || one->length == 0) continue;
        int is_base = one->base == BLOCK_RAW && one->length < store->block_bytes;
        seen.raw += one->base == BLOCK_RAW && !is_base;
        seen.delta += is_delta(one->base);
        seen.delta_on_base += one->base >= 0;
        seen.coded += is_coded(one->base);
        seen.cut_delta += is_delta(one->base) && one->piece > 0;
        seen.cut_coded += is_coded(one->base) && one->piece > 0;
        kinds |= is_base ? 0 : one->base == BLOCK_RAW ? 1 : is_delta(one->base) ? 2 : 4;
    }
    seen.mixed_stores += kinds == 7;
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
            if (i % 20 == 0) look_at_blocks(model->store);
        }
        verify(model);
        free_model(model);
    }
    sb3x_set_threads(1);
    CHECK(seen.raw > 0 && seen.delta > 0 && seen.delta_on_base > 0 && seen.coded > 0 && seen.mixed_stores > 0);
    CHECK(seen.cut_delta > 0 && seen.cut_coded > 0);
    for (int64_t before = 0; before < 3; before++)
        for (int64_t after = 0; after < 3; after++) check_other_ways(before, after);
    for (int64_t piece_frames = 0; piece_frames < 9; piece_frames++) check_loaded_codec(piece_frames);
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
            done = -1;
            CHECK(sb3x_write_steps(model->store, slot, 1, out, out, 0, &done) == SB3X_BAD_CELL && done == 0);
            const int64_t begin = bad[i] < 0 ? 0 : n_slots - 1, many = bad[i] < 0 ? n_slots + 1 : 2;
            done = -1;
            CHECK(sb3x_write_steps(model->store, begin, many, out, out, 0, &done) == SB3X_BAD_CELL && done == 0);
            done = -1;
            CHECK(sb3x_write_steps(model->store, 0, INT64_MAX, out, out, 0, &done) == SB3X_BAD_CELL && done == 0);
            CHECK(sb3x_gather(model->store, cells, NULL, 2, 1, NULL, out) == SB3X_BAD_CELL);
            CHECK(sb3x_gather(model->store, &slot, &zero, 1, 1, NULL, out) == SB3X_BAD_CELL);
            CHECK(sb3x_gather(model->store, &zero, &env, 1, 1, NULL, out) == SB3X_BAD_CELL);
        }
        verify(model);
    }
    free(out);
}

/* Pieces that there are not, of blocks that there are not or that are open, or of another length: refused, and nothing is read. */
static void check_wrong_pieces(model *model) {
    const int64_t end = sb3x_token_end(model->store) / model->config.block_frames * 64;
    const int64_t wrong[] = {-1, -64, INT64_MIN, end, INT64_MAX};
    int64_t length = INT64_MAX, begin = 0, number;
    sb3x_decoded decoded = {1, &number, NULL, &begin, &length, NULL, NULL};
    for (int i = 0; i < 5; i++) {
        number = wrong[i];
        CHECK(sb3x_coded_bytes(model->store, &decoded, NULL) != SB3X_OK);
    }
    for (number = 0; number < end; number++) CHECK(sb3x_coded_bytes(model->store, &decoded, NULL) != SB3X_OK);
    decoded.n = 0;
    CHECK(sb3x_coded_bytes(model->store, &decoded, NULL) == SB3X_OK);
}

static void check_bad_arguments(model *model) {
    const sb3x_config *config = &model->config;
    sb3x_store *store = model->store;
    int is_outside = config->frames == SB3X_FRAMES_OUTSIDE;
    uint8_t *out = exactly(16 * model->observation_bytes);
    int64_t cell = 0, done = -1, n_bytes, numbers[5][16], order[16], distinct[16], n_distinct, stream, part, n_frames;
    sb3x_changes changes;
    sb3x_decoded decoded = {0, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], NULL};
    for (int32_t columns = -1; columns < 6; columns++) {
        if (columns >= 1 && columns <= (config->n_columns == 2 ? 3 : 1)) continue;
        CHECK(sb3x_gather(store, &cell, NULL, 1, columns, NULL, out) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_coded_pieces(store, &cell, NULL, 1, columns, &decoded, &n_bytes) == SB3X_BAD_ARGUMENT);
        CHECK(decoded.n == 0 && n_bytes == 0);
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
        CHECK(sb3x_write_steps(store, 0, 1, out, out, 0, &done) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_gather(store, &cell, NULL, 1, 1, NULL, out) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_coded_pieces(store, &cell, NULL, 1, 1, &decoded, &n_bytes) == SB3X_BAD_ARGUMENT);
        for (int64_t frames = 0; frames < 4; frames++) CHECK(sb3x_keep_as(store, frames, 0, 0) == SB3X_BAD_ARGUMENT);
    } else {
        CHECK(sb3x_plan_cells(store, 0, &cell, 1, out, &changes) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_write_steps(store, 0, -1, out, out, 0, &done) == SB3X_BAD_ARGUMENT);
    }
    if (!model->has_codec) CHECK(sb3x_give_encoded(store, 0, 0, out, 1) == SB3X_BAD_ARGUMENT);
    const int64_t ways[][3] = {{-1, 0, 0}, {3, 0, 0}, {4, 0, 0}, {INT64_MIN, 0, 0}, {1, -1, 0}, {2, 256, 0}, {2, INT64_MAX, 0}, {0, 0, -1}};
    for (int i = 0; i < 8; i++) CHECK(sb3x_keep_as(store, ways[i][0], ways[i][1], ways[i][2]) == SB3X_BAD_ARGUMENT);
    CHECK(sb3x_full_piece(store, &stream, &part, &n_frames) == NULL);
    const int64_t wrong[][3] = {{-1, 0, 1}, {config->n_streams, 0, 1}, {0, -1, 1}, {0, 500, 1}, {0, 0, -1}};
    for (int i = 0; i < 5; i++)
        CHECK(sb3x_give_encoded(store, wrong[i][0], wrong[i][1], out, wrong[i][2]) == SB3X_BAD_ARGUMENT);
    check_wrong_pieces(model);
    verify(model);
    free(out);
}

/* What was encoded for a plan goes away with the store. */
static void check_given_to_nobody(model *model) {
    if (model->config.frames == SB3X_FRAMES_OUTSIDE) return;
    CHECK(sb3x_keep_as(model->store, SB3X_FRAMES_CODEC, 3, 1) == SB3X_OK && sb3x_clear(model->store) == SB3X_OK);
    sb3x_changes changes;
    memset(model->shown, 1, (size_t)(model->config.n_streams * model->observation_bytes));
    int64_t stream, part, n_frames;
    if (sb3x_plan(model->store, 0, model->shown, model->shown, 0, &changes) != SB3X_ENCODE) return;
    CHECK(sb3x_full_piece(model->store, &stream, &part, &n_frames));
    CHECK(sb3x_give_encoded(model->store, stream, part, model->shown, 1) == SB3X_OK);
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
        for (int64_t part = 0; part < 4; part++) {
            int32_t status = sb3x_give_encoded(model->store, 0, part, model->cells, 1);
            CHECK(status == SB3X_BAD_ARGUMENT || (status == SB3X_OK && model->has_codec));
        }
        for (int64_t i = 0; i < 20; i++) play(model);
        CHECK(sb3x_clear(model->store) == SB3X_OK);
        sb3x_usage usage;
        sb3x_measure(model->store, &usage);
        CHECK(usage.n_written == 0 && usage.live_bytes == 0 && usage.n_blocks == 3 * config.n_streams);
        const int64_t block_bytes = config.block_frames * config.frame_bytes;
        CHECK(usage.held_bytes <= (block_bytes > CHUNK_BYTES ? block_bytes : CHUNK_BYTES)); /* one chunk */
        check_given_to_nobody(model);
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
    const sb3x_config config = {40, 1, 1, 1, size, 2, SB3X_FRAMES_DELTA, 0, 0, 0, 0};
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

/* One step fills two blocks: one that was opened raw, and one of `delta`, which needs room for a base too. */
static void check_chunks_of_other_ways(void) {
    const int64_t size = CHUNK_BYTES + 100;
    const sb3x_config config = {40, 1, 2, 2, size, 2, SB3X_FRAMES_RAW, 0, 0, 0, 0};
    source from = source_of_seed(4);
    int32_t error;
    model *model = new_model(&config, &from, &error);
    CHECK(model->store);
    const operation ways[] = {{.kind = KEEP_AS, .frames = SB3X_FRAMES_DELTA}, {.kind = KEEP_AS, .frames = SB3X_FRAMES_RAW}};
    for (int64_t slot = 0; slot < config.n_cells; slot++) {
        uint8_t *observations = exactly(4 * size);
        for (int64_t i = 0; i < 4 * size; i++)
            if (i % size < size * 7 / 10) observations[i] = (uint8_t)next_number(&from);
        CHECK(try_operation(model, &ways[slot / 2 % 2]) == SB3X_OK);
        operation step = {.kind = STEP, .slot = slot, .observations = observations};
        CHECK(try_operation(model, &step) == SB3X_OK);
        if (slot < 6) verify(model);
        free(observations);
    }
    verify(model);
    free_model(model);
}

void test_chunks(int64_t rounds) {
    (void)rounds;
    check_full_chunks();
    check_chunks_of_other_ways();
    CHECK(sb3x_version() == SB3X_VERSION);
    for (int64_t frames = SB3X_FRAMES_RAW; frames <= SB3X_FRAMES_CODEC; frames++) {
        source from = source_of_seed((uint64_t)frames);
        /* 150 blocks to a chunk, 12 chunks. */
        const sb3x_config config = {3600, 1, 1, 1, CHUNK_BYTES / 300, 2, frames, 0, 0, 0, 0};
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
        CHECK(reload(model, 1 + frames) == SB3X_OK);
        verify(model);
        free_model(model);
    }
}
