/* Every single allocation is refused once: nothing changes, nothing is lost, and the next try goes through. */

#include "model.h"
#include "saved.h"
#include "tests.h"

/* More allocations than any one call makes. */
enum { MOST_ALLOCATIONS = 1000 };

/* The counts of allocations that are allowed before one fails: all small ones, and in between, `forever` or not. */
static void refuse(source *from, int64_t n) { sb3x_fail_allocation(n, (int32_t)below(from, 2)); }

static model *create_with_refusals(const sb3x_config *config, source *from) {
    for (int64_t n = 0;; n++) {
        int32_t error = -1;
        refuse(from, n);
        model *model = new_model(config, from, &error);
        sb3x_fail_allocation(-1, 0);
        if (model->store) {
            CHECK(error == SB3X_OK && n > 4);
            return model;
        }
        CHECK(error == SB3X_NO_MEMORY && n < MOST_ALLOCATIONS);
        free_model(model);
    }
}

/* All calls that read: each is refused at each allocation, and says so. */
static void read_with_refusals(model *model, source *from) {
    const int64_t n = model->config.n_cells;
    int32_t columns = model->config.n_columns == 2 ? SB3X_BOTH_COLUMNS : SB3X_FIRST_COLUMN;
    int64_t *cells = exactly(8 * n);
    uint8_t *out = exactly(n * model->config.n_columns * model->observation_bytes);
    for (int64_t i = 0; i < n; i++) cells[i] = i;
    int32_t status = SB3X_NO_MEMORY;
    for (int64_t k = 0; status != SB3X_OK; k++) {
        refuse(from, k);
        status = gather(model, cells, NULL, n, columns, out);
        sb3x_fail_allocation(-1, 0);
        CHECK((status == SB3X_OK && k > 0) || (status == SB3X_NO_MEMORY && k < MOST_ALLOCATIONS));
    }
    free(cells), free(out);
    status = SB3X_NO_MEMORY;
    for (int64_t k = 0; status != SB3X_OK; k++) {
        refuse(from, k);
        status = sb3x_check(model->store);
        sb3x_fail_allocation(-1, 0);
        CHECK((status == SB3X_OK && k > 0) || (status == SB3X_NO_MEMORY && k < MOST_ALLOCATIONS));
    }
}

/* Cells go to a store that holds others: refused, with both stores as they were, or all there. */
static void copy_with_refusals(model *sender, source *from, sb3x_config config) {
    int32_t error, status = SB3X_NO_MEMORY;
    config.n_streams = 1 + below(from, 4);
    config.n_cells = config.n_streams * (1 + below(from, 8));
    config.frames = below(from, SB3X_FRAMES_OUTSIDE);
    model *receiver = new_model(&config, from, &error);
    CHECK(receiver->store);
    for (int64_t i = below(from, 20); i > 0; i--) play(receiver);
    const int64_t n_cells = sender->config.n_cells, n = 1 + below(from, n_cells < config.n_cells ? n_cells : config.n_cells);
    int64_t *cells = exactly(8 * n), *targets = exactly(8 * n);
    for (int64_t i = 0; i < n; i++) {
        cells[i] = below(from, n_cells);
        targets[i] = below(from, config.n_cells);
    }
    for (int64_t k = 0; status == SB3X_NO_MEMORY; k++) {
        refuse(from, k);
        status = copy_cells(receiver, targets, sender, cells, n);
        sb3x_fail_allocation(-1, 0);
        CHECK(status == SB3X_OK || status == SB3X_TOO_LARGE || (status == SB3X_NO_MEMORY && k < MOST_ALLOCATIONS));
        verify(receiver);
    }
    verify(sender);
    free(cells), free(targets);
    free_model(receiver);
}

/* Taking: refused, or all there. Open blocks that could not be encoded are written as they are. */
static void take_with_refusals(model *model, source *from) {
    const int64_t most = 16 + 4 * model->config.n_streams; /* more allocations than are made */
    for (int64_t k = 0; k < most; k++) {
        refuse(from, k);
        saved all = save_all(model->store, &model->config);
        sb3x_fail_allocation(-1, 0);
        CHECK(all.bytes ? k > 2 : all.error == SB3X_NO_MEMORY && k < most - 1);
        if (!all.bytes) continue;
        int32_t error;
        sb3x_store *store = model->store;
        model->store = sb3x_create(&model->config, &error);
        CHECK(model->store && load_saved(model->store, &model->config, all.bytes, all.n) == SB3X_OK);
        verify(model);
        sb3x_destroy(model->store);
        model->store = store;
        free(all.bytes);
    }
    verify(model);
}

void test_refused_memory(int64_t rounds) {
    for (int64_t seed = 0; seed < 12 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 2000);
        sb3x_config config = draw_config(&from);
        config.frames = seed % 4;
        if (config.block_frames > 20) config.block_frames = config.stack + 3;
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        model *model = create_with_refusals(&config, &from);
        verify(model);
        for (int64_t i = 0; i < 60; i++) {
            operation drawn = draw_operation(model);
            int32_t status = SB3X_NO_MEMORY;
            for (int64_t n = 0; status != SB3X_OK; n++) {
                refuse(&from, n);
                status = try_operation(model, &drawn);
                sb3x_fail_allocation(-1, 0);
                CHECK(status == SB3X_OK || (status == SB3X_NO_MEMORY && n < MOST_ALLOCATIONS));
                /* Nothing is left of a plan that was refused. */
                if (status != SB3X_OK) CHECK(sb3x_commit(model->store, NULL) == SB3X_OK);
                verify(model);
            }
            if (drawn.kind == PLAN_ONLY && config.frames != SB3X_FRAMES_OUTSIDE) CHECK(sb3x_commit(model->store, NULL) == SB3X_OK);
            if (drawn.kind == PLAN_ONLY) { /* it was committed, or it is replaced here */
                drawn.kind = STEP;
                CHECK(try_operation(model, &drawn) == SB3X_OK);
            }
            free_operation(&drawn);
            sb3x_set_threads(1 + (int32_t)below(&from, 3));
            if (i % 10 == 0) read_with_refusals(model, &from);
            if (i % 30 == 29 && config.frames != SB3X_FRAMES_OUTSIDE) take_with_refusals(model, &from);
            if (i % 15 == 14 && config.frames != SB3X_FRAMES_OUTSIDE) copy_with_refusals(model, &from, config);
        }
        verify(model);
        free_model(model);
    }
    sb3x_set_threads(1);
    /* The codec on its own. */
    uint8_t frames[200] = {1, 2, 3}, out[300];
    const sb3x_shape shape = {100, 20, 0, 1};
    for (int64_t n = 0; n < 2; n++) {
        sb3x_fail_allocation(n, 0);
        CHECK(sb3x_delta_encode(&shape, frames, 2, NULL, out, 300) == -1);
        CHECK(sb3x_delta_encode(&shape, frames, 2, NULL, out, 300) > 0);
    }
    sb3x_fail_allocation(0, 0);
    CHECK(sb3x_delta_decode(&shape, out, 300, NULL, 1, frames) == SB3X_NO_MEMORY);
    CHECK(sb3x_delta_decode(&shape, out, 300, NULL, 1, frames) == SB3X_OK);
    sb3x_fail_allocation(-1, 0);
}
