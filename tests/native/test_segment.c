/* Segments: parts of a store, put into other cells and other stores. */

#include "internal.h"
#include "model.h"
#include "saved.h"
#include "tests.h"

static model *model_of(const sb3x_config *config, source *from) {
    int32_t error;
    model *model = new_model(config, from, &error);
    CHECK(model->store);
    return model;
}

/* ---- parts at random, into stores of other sizes */

enum { FIRST_ONES, A_RANGE, LAST_TO_FIRST, ONE, NONE, ANY, N_CHOICES };

/* Which cells go where; not more than the receiver has. */
static int64_t choose_cells(source *from, int choice, int64_t n_cells, int64_t n_targets, int64_t *cells, int64_t *targets) {
    const int64_t most = n_cells < n_targets ? n_cells : n_targets;
    int64_t n = 1 + below(from, most);
    if (choice == FIRST_ONES || choice == LAST_TO_FIRST) n = most;
    if (choice == ONE || choice == NONE) n = choice == ONE;
    const int64_t first = choice == FIRST_ONES ? 0 : below(from, n_cells - n + 1);
    const int64_t first_target = choice == FIRST_ONES ? 0 : below(from, n_targets - n + 1);
    for (int64_t i = 0; i < n; i++) {
        cells[i] = choice == LAST_TO_FIRST ? n_cells - 1 - i : first + i;
        targets[i] = first_target + i;
        if (choice != ANY) continue;
        cells[i] = below(from, n_cells);
        targets[i] = below(from, n_targets);
    }
    return n;
}

static void check_parts(int64_t seed) {
    source from = source_of_seed((uint64_t)seed + 5000);
    sb3x_config config = draw_config(&from);
    config.frames = seed % SB3X_FRAMES_OUTSIDE;
    sb3x_config other = config; /* what must be the same, and what need not be */
    other.n_streams = 1 + below(&from, 9);
    other.n_cells = other.n_streams * (1 + below(&from, 12));
    other.frames = below(&from, SB3X_FRAMES_OUTSIDE);
    other.piece_frames = below(&from, 5);
    const int choice = (int)(seed / 3 % N_CHOICES), is_used = (int)below(&from, 3) > 0;
    snprintf(check_context, sizeof check_context, "seed %lld: frames %lld to %lld, choice %d, into a %s store", (long long)seed,
             (long long)config.frames, (long long)other.frames, choice, is_used ? "used" : "new");
    model *sender = model_of(&config, &from), *receiver = model_of(&other, &from);
    for (int i = 0; i < 40; i++) play(sender);
    for (int i = 0; is_used && i < 40; i++) play(receiver);
    int64_t *cells = exactly(8 * config.n_cells), *targets = exactly(8 * config.n_cells);
    for (int round = 0; round < 3; round++) { /* the second and third time, into cells that hold received ones */
        int64_t n = choose_cells(&from, choice, config.n_cells, other.n_cells, cells, targets);
        int32_t status = copy_cells(receiver, targets, sender, cells, n);
        CHECK(status == SB3X_OK || (status == SB3X_TOO_LARGE && (is_used || round > 0)));
        verify(receiver);
        verify(sender);
        for (int i = 0; i < 4; i++) play(receiver), play(sender);
    }
    /* What was received can be taken again, in blocks that may not be full. */
    int64_t n = choose_cells(&from, choice, other.n_cells, config.n_cells, targets, cells);
    int32_t status = copy_cells(sender, cells, receiver, targets, n);
    CHECK(status == SB3X_OK || status == SB3X_TOO_LARGE);
    verify(sender);
    for (int i = 0; i < 20; i++) {
        play(receiver);
        verify_some(receiver);
    }
    write_over(receiver);
    write_over(sender);
    free(cells), free(targets);
    free_model(sender), free_model(receiver);
}

/* ---- open blocks */

/* How the blocks were kept that were open when they were taken, and what they were written as. */
static struct {
    int64_t raw, delta, delta_on_base, coded, cut_delta, cut_coded, written_raw, written_delta;
} seen;

static void look_at_open_blocks(const model *model) {
    const sb3x_store *store = model->store;
    for (int64_t i = 0; i < model->config.n_streams; i++) {
        const stream *stream = &store->streams[i];
        const block *open = &store->blocks[stream->open];
        if (stream->head < 0 || stream->fill == 0) continue;
        seen.raw += stream->encoded < 0;
        if (stream->encoded < 0) continue;
        seen.delta += open->base == BLOCK_DELTA;
        seen.delta_on_base += open->base >= 0;
        seen.coded += is_coded(open->base) && stream->pieces > 0;
        seen.cut_delta += is_delta(open->base) && stream->pieces > 1;
        seen.cut_coded += is_coded(open->base) && stream->pieces > 1;
    }
    saved all = save_all(store, &model->config);
    saved_parts parts;
    CHECK(all.bytes && find_parts(&model->config, all.bytes, all.n, &parts));
    const int64_t *table = (const int64_t *)(all.bytes + parts.table);
    for (int64_t i = 0; i < parts.n_blocks; i++) {
        const int64_t *row = table + i * SAVED_ROW, base = row[SAVED_BASE], n_frames = row[SAVED_LENGTH] / model->config.frame_bytes;
        seen.written_raw += base == BLOCK_RAW && n_frames > 1 && n_frames < model->config.block_frames;
        seen.written_delta += base == BLOCK_DELTA;
    }
    free(all.bytes);
}

/* Everything is taken after each step, into a new store that keeps its own blocks in another way. */
static void check_open_blocks(int64_t frames, int64_t piece_frames, int is_calm) {
    const sb3x_config config = {3 * 12, 3, 2, 3, 64, 8, frames, piece_frames, 0, 0, 0};
    sb3x_config other = config;
    other.n_streams = 4;
    snprintf(check_context, sizeof check_context, "frames %lld, pieces of %lld, %s", (long long)frames, (long long)piece_frames,
             is_calm ? "calm" : "noise");
    source from = source_of_seed(6);
    model *sender = model_of(&config, &from);
    const int64_t nbytes = sender->observation_bytes;
    int64_t cells[3 * 12];
    for (int64_t i = 0; i < config.n_cells; i++) cells[i] = i;
    for (int64_t turn = 0; turn < 40; turn++) {
        operation write = {.kind = STEP, .slot = turn % 12, .observations = exactly(2 * 3 * nbytes)};
        memcpy(write.observations, sender->shown, (size_t)(3 * nbytes));
        for (int64_t i = 0; i < 3; i++) { /* goes on by a frame, in which a byte changes or all of them */
            uint8_t *shown = sender->shown + i * nbytes, *last = shown + 2 * 64;
            memmove(shown, shown + 64, 2 * 64);
            for (int k = is_calm ? 63 : 0; k < 64; k++) last[k] = (uint8_t)next_number(&from);
        }
        memcpy(write.observations + 3 * nbytes, sender->shown, (size_t)(3 * nbytes));
        CHECK(try_operation(sender, &write) == SB3X_OK);
        free_operation(&write);
        look_at_open_blocks(sender);
        other.frames = turn % SB3X_FRAMES_OUTSIDE;
        model *receiver = model_of(&other, &from);
        CHECK(copy_cells(receiver, cells, sender, cells, config.n_cells) == SB3X_OK);
        verify(receiver);
        if (turn % 8 == 0) write_over(receiver);
        free_model(receiver);
    }
    free_model(sender);
}

/* ---- what a segment holds */

/* The blocks that cells need, counted in the store. */
static int64_t count_needed(const sb3x_store *store, const int64_t *cells, int64_t n) {
    uint8_t *is_needed = exactly(store->n_blocks);
    int64_t count = 0;
    for (int64_t i = 0; i < n * store->config.n_columns; i++) {
        int64_t token = head_of(store, cells[i / store->config.n_columns], i % store->config.n_columns);
        if (token < 0) continue;
        int64_t id = token / store->config.block_frames;
        is_needed[id] = 1;
        if (token % store->config.block_frames < store->config.stack - 1) is_needed[store->blocks[id].previous] = 1;
    }
    for (int64_t id = 0; id < store->n_blocks; id++) /* open blocks are written without their base */
        if (is_needed[id] == 1 && store->blocks[id].length > 0 && store->blocks[id].base >= 0 && !is_needed[store->blocks[id].base])
            is_needed[store->blocks[id].base] = 2;
    for (int64_t id = 0; id < store->n_blocks; id++) count += is_needed[id] > 0;
    free(is_needed);
    return count;
}

/* Only what the cells need, and nothing twice. */
static void check_sizes(int64_t seed) {
    source from = source_of_seed((uint64_t)seed + 5500);
    sb3x_config config = draw_config(&from);
    config.frames = seed % SB3X_FRAMES_OUTSIDE;
    snprintf(check_context, sizeof check_context, "sizes, seed %lld", (long long)seed);
    model *model = model_of(&config, &from);
    int64_t cells[20];
    for (int turn = 0; turn < 40; turn++) {
        const int64_t n = below(&from, 20);
        for (int64_t i = 0; i < n; i++) cells[i] = below(&from, config.n_cells);
        saved some = save_cells(model->store, &config, cells, cells, n);
        saved_parts parts;
        CHECK(some.bytes && find_parts(&config, some.bytes, some.n, &parts));
        CHECK(parts.n_blocks == count_needed(model->store, cells, n));
        if (n == 0) CHECK(some.n == 16);
        free(some.bytes);
        play(model);
    }
    free_model(model);
}

void test_segments(int64_t rounds) {
    for (int64_t seed = 0; seed < 18 * rounds; seed++) check_parts(seed);
    for (int64_t seed = 0; seed < 6 * rounds; seed++) check_sizes(seed);
    for (int64_t frames = 0; frames < SB3X_FRAMES_OUTSIDE; frames++)
        for (int64_t piece_frames = 0; piece_frames < 6; piece_frames++)
            for (int is_calm = 0; is_calm < 2; is_calm++) check_open_blocks(frames, piece_frames, is_calm);
    CHECK(seen.raw > 0 && seen.delta > 0 && seen.delta_on_base > 0 && seen.coded > 0 && seen.cut_delta > 0 && seen.cut_coded > 0);
    CHECK(seen.written_raw > 0 && seen.written_delta > 0);
}
