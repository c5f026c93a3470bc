/* Receiving: calls out of order, plans that are pending, room. */

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

/* ---- calls that are out of order, or for another kind of store */

static void check_outside(void) {
    const sb3x_config config = {6, 2, 1, 2, 10, 4, SB3X_FRAMES_OUTSIDE, 0, 0, 0, 0};
    const int64_t cell = 0, row[SAVED_ROW] = {-1, -1, 10, 0};
    source from = source_of_seed(1);
    model *model = model_of(&config, &from);
    for (int i = 0; i < 20; i++) {
        int32_t error = SB3X_OK;
        CHECK(!sb3x_take(model->store, &cell, i % 2, &error) && error == SB3X_BAD_ARGUMENT);
        CHECK(!sb3x_receive(model->store, row, i % 2, &error) && error == SB3X_BAD_ARGUMENT);
        verify(model);
        play(model);
    }
    free_model(model);
}

/* Two blocks of one frame each, and a head for each. */
static void check_calls(int64_t frames) {
    const sb3x_config config = {6, 2, 1, 1, 10, 4, frames, 0, 0, 0, 0};
    const int64_t table[2][SAVED_ROW] = {{-1, -1, 10, 0}, {-1, -1, 10, 0}}, heads[2] = {1, 5}, too_far[2] = {1, 6};
    const int64_t bad[] = {-1, 6, INT64_MIN, INT64_MAX};
    uint8_t bytes[21];
    snprintf(check_context, sizeof check_context, "calls, frames %lld", (long long)frames);
    source from = source_of_seed(2);
    model *model = model_of(&config, &from);
    for (int i = 0; i < 30; i++) play(model);
    for (int i = 0; i < 21; i++) bytes[i] = (uint8_t)i;
    int32_t error = -1;
    for (int i = 0; i < 4; i++) {
        const int64_t cells[2] = {1, bad[i]};
        CHECK(!sb3x_take(model->store, cells, 2, &error) && error == SB3X_BAD_CELL);
        sb3x_incoming *incoming = sb3x_receive(model->store, table[0], 2, &error);
        CHECK(incoming && sb3x_receive_bytes(incoming, bytes, 20) == SB3X_OK);
        CHECK(sb3x_receive_cells(incoming, cells, 2, heads) == SB3X_BAD_CELL);
        sb3x_end_receiving(incoming);
        verify(model);
    }
    CHECK(!sb3x_receive(model->store, table[0], -1, &error) && error == SB3X_BAD_ARGUMENT);
    const int64_t cells[2] = {4, 1};
    sb3x_incoming *incoming = sb3x_receive(model->store, table[0], 2, &error);
    CHECK(incoming && error == SB3X_OK);
    CHECK(sb3x_receive_cells(incoming, cells, 2, heads) == SB3X_CORRUPT); /* nothing is there yet */
    CHECK(sb3x_receive_bytes(incoming, bytes, 0) == SB3X_OK && sb3x_receive_bytes(incoming, bytes, 9) == SB3X_CORRUPT);
    CHECK(sb3x_receive_bytes(incoming, bytes, 10) == SB3X_OK);
    CHECK(sb3x_receive_cells(incoming, cells, 1, heads) == SB3X_CORRUPT);
    CHECK(sb3x_receive_bytes(incoming, bytes + 10, 10) == SB3X_OK && sb3x_receive_bytes(incoming, bytes + 20, 1) == SB3X_CORRUPT);
    CHECK(sb3x_receive_cells(incoming, cells, 2, too_far) == SB3X_CORRUPT);
    CHECK(sb3x_receive_cells(incoming, cells, 2, heads) == SB3X_OK);
    CHECK(sb3x_receive_cells(incoming, cells + 1, 1, heads + 1) == SB3X_OK); /* the same into the same cell: no harm */
    sb3x_end_receiving(incoming);
    for (int i = 0; i < 2; i++) {
        memcpy(model->cells + cells[i] * 10, bytes + 10 * i, 10);
        model->written[cells[i]] = 1;
    }
    verify(model);
    /* An empty segment empties cells. */
    incoming = sb3x_receive(model->store, NULL, 0, &error);
    CHECK(incoming && sb3x_receive_cells(incoming, cells, 1, (int64_t[]){0}) == SB3X_OK);
    sb3x_end_receiving(incoming);
    memset(model->cells + 4 * 10, 0, 10);
    model->written[4] = 0;
    verify(model);
    /* One that nobody wanted, with all of its bytes and with some. */
    for (int64_t n = 0; n <= 20; n += 10) {
        incoming = sb3x_receive(model->store, table[0], 2, &error);
        CHECK(incoming && sb3x_receive_bytes(incoming, bytes, n) == SB3X_OK);
        sb3x_end_receiving(incoming);
        verify(model);
    }
    sb3x_end_receiving(NULL);
    sb3x_free_segment(NULL);
    write_over(model);
    free_model(model);
}

/* ---- a plan that is pending */

/* A step that fills blocks is planned, as far as that goes without encoding or with some pieces encoded. It is forgotten. */
static void check_pending_plan(int64_t frames, int64_t n_given) {
    const sb3x_config config = {12, 3, 2, 2, 64, 4, frames, 2, 0, 0, 0};
    const int64_t cells[2] = {5, 0}, targets[2] = {1, 11};
    snprintf(check_context, sizeof check_context, "plan, frames %lld, %lld given", (long long)frames, (long long)n_given);
    source from = source_of_seed(3);
    model *model = model_of(&config, &from);
    int64_t n_encoded = 0;
    for (int64_t turn = 0; turn < 30; turn++) {
        write_over(model);
        uint8_t *observations = exactly(2 * 3 * model->observation_bytes);
        for (int64_t i = 0; i < 6 * model->observation_bytes; i++) observations[i] = (uint8_t)(turn + i / 64);
        const uint8_t *second = observations + 3 * model->observation_bytes, encoded[2] = {1, 2};
        sb3x_changes changes;
        int32_t status = sb3x_plan(model->store, turn % 4, observations, second, 0, &changes);
        CHECK(status == SB3X_OK || (frames == SB3X_FRAMES_CODEC && status == SB3X_ENCODE));
        int64_t stream, part, n_frames;
        for (int64_t i = 0; i < n_given && sb3x_full_piece(model->store, &stream, &part, &n_frames); i++, n_encoded++)
            CHECK(sb3x_give_encoded(model->store, stream, part, encoded, 2) == SB3X_OK);
        CHECK(copy_cells(model, targets, model, cells, turn % 3) == SB3X_OK);
        /* What was given is forgotten too: to go on with the plan begins it anew. */
        CHECK(sb3x_plan(model->store, turn % 4, observations, second, 1, &changes) == status);
        CHECK(copy_cells(model, targets, model, cells, turn % 3) == SB3X_OK);
        if (turn % 2) memset(observations, 0xEE, (size_t)(6 * model->observation_bytes));
        CHECK(!sb3x_full_piece(model->store, &stream, &part, &n_frames));
        CHECK(sb3x_commit(model->store, NULL) == SB3X_OK);
        verify(model);
        free(observations);
    }
    CHECK((n_encoded > 0) == (frames == SB3X_FRAMES_CODEC && n_given > 0));
    write_over(model);
    free_model(model);
}

/* Observations are written one after the other, and cells are received whenever one of them waits to be encoded: the pieces are
   asked for again, and all observations arrive. */
static void check_pending_write(void) {
    enum { N = 10 };
    const sb3x_config config = {12, 3, 1, 2, 64, 4, SB3X_FRAMES_CODEC, 2, 0, 0, 0};
    snprintf(check_context, sizeof check_context, "pending write");
    source from = source_of_seed(7);
    model *model = model_of(&config, &from);
    int64_t cells[N], done = -1, n_waits = 0, stream, part, n_frames;
    const int64_t kept = 11;
    uint8_t *observations = exactly(N * model->observation_bytes);
    write_over(model);
    for (int64_t i = 0; i < N * model->observation_bytes; i++) observations[i] = (uint8_t)next_number(&from);
    for (int64_t i = 0; i < N; i++) cells[i] = i;
    int32_t status;
    while ((status = sb3x_write(model->store, 0, cells, N, observations, &done)) == SB3X_ENCODE) {
        const int64_t before = done;
        CHECK(n_waits++ < 4 * N && sb3x_full_piece(model->store, &stream, &part, &n_frames));
        CHECK(sb3x_give_encoded(model->store, stream, part, observations, 1) == SB3X_OK); /* nonsense, that is forgotten */
        for (int64_t i = 0; i < done; i++)
            memcpy(cell_of(model, cells[i], 0), observations + i * model->observation_bytes, (size_t)model->observation_bytes);
        CHECK(copy_cells(model, &kept, model, &kept, 1) == SB3X_OK);
        CHECK(sb3x_write(model->store, 0, cells, N, observations, &done) == SB3X_ENCODE && done == before);
        while (sb3x_full_piece(model->store, &stream, &part, &n_frames))
            CHECK(sb3x_give_encoded(model->store, stream, part, NULL, 0) == SB3X_OK);
    }
    CHECK(status == SB3X_OK && done == N && n_waits > 2);
    for (int64_t i = 0; i < N; i++)
        memcpy(cell_of(model, cells[i], 0), observations + i * model->observation_bytes, (size_t)model->observation_bytes);
    verify(model);
    free(observations);
    free_model(model);
}

/* ---- room for blocks, and for bytes */

/* Write an observation with so many frames that are new to the stream. */
static void write_noise(model *model, int64_t cell, int64_t n_new) {
    const int64_t nbytes = model->observation_bytes, kept = nbytes - n_new * model->config.frame_bytes;
    memmove(model->shown, model->shown + nbytes - kept, (size_t)kept);
    for (int64_t i = kept; i < nbytes; i++) model->shown[i] = (uint8_t)next_number(model->from);
    operation write = {.kind = WRITE, .n = 1, .cells = &cell, .observations = model->shown};
    CHECK(try_operation(model, &write) == SB3X_OK);
}

/* A store that needs two blocks for each cell receives all of them again and again: those that became free are used again. */
static void check_received_again(void) {
    const sb3x_config config = {40, 1, 1, 2, 8, 2, SB3X_FRAMES_RAW, 0, 0, 0, 0};
    source from = source_of_seed(4);
    model *model = model_of(&config, &from);
    int64_t cells[40];
    for (int64_t i = 0; i < 40; i++) cells[i] = i;
    write_noise(model, 39, 2);
    write_noise(model, 39, 1); /* from now on observations begin in the middle of a block */
    for (int64_t cell = 0; cell < 39; cell++) {
        write_noise(model, cell, 2);
        write_noise(model, 39, 2); /* and the next one begins in another block than this one ends */
    }
    verify(model);
    sb3x_usage before, after;
    sb3x_measure(model->store, &before);
    CHECK(before.n_blocks >= 2 * 39);
    for (int turn = 0; turn < 6; turn++) {
        snprintf(check_context, sizeof check_context, "received again, turn %d", turn);
        CHECK(copy_cells(model, cells, model, cells, 40) == SB3X_OK);
        verify(model);
        sb3x_measure(model->store, &after);
        CHECK(after.n_blocks <= before.n_blocks + 3);
    }
    write_over(model);
    free_model(model);
}

/* Nothing is written, only received: chunks that are nearly empty are given back all the same. */
static void check_chunks_of_received(void) {
    const sb3x_config config = {3600, 1, 1, 1, CHUNK_BYTES / 300, 2, SB3X_FRAMES_RAW, 0, 0, 0, 0};
    snprintf(check_context, sizeof check_context, "chunks of what was received");
    source from = source_of_seed(5);
    model *model = model_of(&config, &from);
    for (int64_t cell = 0; cell < config.n_cells; cell++) write_noise(model, cell, 1);
    sb3x_usage before, after;
    sb3x_measure(model->store, &before);
    CHECK(before.held_bytes >= 11 * CHUNK_BYTES);
    int64_t cells[3600] = {0}, targets[3600], n = 0; /* the first observation, to all but one in forty */
    for (int64_t cell = 0; cell < config.n_cells; cell++)
        if (cell % 40 != 7) targets[n++] = cell;
    CHECK(copy_cells(model, targets, model, cells, n) == SB3X_OK);
    for (int i = 0; i < 60; i++) CHECK(copy_cells(model, targets, model, cells, i % 2) == SB3X_OK);
    sb3x_measure(model->store, &after);
    CHECK(after.live_bytes < before.live_bytes / 10);
    CHECK(after.held_bytes <= 2 * after.live_bytes + 5 * CHUNK_BYTES);
    verify(model);
    free_model(model);
}

void test_receiving(int64_t rounds) {
    (void)rounds;
    for (int64_t frames = 0; frames < SB3X_FRAMES_OUTSIDE; frames++) {
        check_calls(frames);
        for (int64_t n_given = 0; n_given < 4; n_given++) check_pending_plan(frames, n_given);
    }
    check_pending_write();
    check_outside();
    check_received_again();
    check_chunks_of_received();
}
