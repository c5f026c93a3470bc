/* Reading a store in the way that its kind asks for, and comparing it with the model. */

#include "outside.h"

/* ---- frames outside */

void forget_frames(model *model) {
    for (int64_t i = 0; i < model->n_kept; i++) free(model->kept[i].frame);
    model->n_kept = 0;
}

void keep_frames(model *model, const sb3x_changes *changes) {
    CHECK(changes->n_freed == 0);
    for (int64_t i = 0; i < changes->n_new; i++) {
        int64_t token = changes->tokens[i];
        CHECK(token >= 0 && token < sb3x_token_end(model->store));
        for (int64_t k = 0; k < model->n_kept; k++) CHECK(model->kept[k].token != token); /* still in use */
        if (model->n_kept == model->kept_room) {
            model->kept_room = 2 * model->kept_room + 16;
            model->kept = realloc(model->kept, (size_t)model->kept_room * sizeof(kept_frame));
        }
        const uint8_t *frame = changes->frames + i * model->config.frame_bytes;
        model->kept[model->n_kept++] = (kept_frame){token, copy_of(frame, model->config.frame_bytes)};
    }
}

void let_go(model *model, const sb3x_changes *changes) {
    int64_t kept = 0;
    for (int64_t i = 0; i < model->n_kept; i++) {
        int is_freed = 0;
        for (int64_t k = 0; k < changes->n_freed; k++)
            is_freed |= model->kept[i].token / model->config.block_frames == changes->freed[k];
        if (is_freed)
            free(model->kept[i].frame);
        else
            model->kept[kept++] = model->kept[i];
    }
    model->n_kept = kept;
    if (changes->n_freed > 0) { /* nothing can be planned before */
        sb3x_changes others;
        CHECK(sb3x_plan(model->store, 0, model->shown, model->shown, 0, &others) == SB3X_BAD_ARGUMENT);
        CHECK(sb3x_erase(model->store, NULL, 0, &others) == SB3X_BAD_ARGUMENT);
        sb3x_freed(model->store, &others);
        CHECK(others.n_freed == changes->n_freed);
        CHECK(sb3x_check(model->store) != SB3X_CORRUPT);
    }
    sb3x_let_go(model->store);
}

const uint8_t *find_frame(const model *model, int64_t token) {
    for (int64_t i = 0; i < model->n_kept; i++)
        if (model->kept[i].token == token) return model->kept[i].frame;
    return NULL;
}

static int64_t count_columns(int32_t columns) { return columns == SB3X_BOTH_COLUMNS ? 2 : 1; }

static int32_t gather_outside(model *model, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns, uint8_t *out) {
    const int64_t size = model->config.frame_bytes, total = n * count_columns(columns) * model->config.stack;
    int64_t *distinct = exactly(8 * total), *order = exactly(8 * total), n_distinct = 0;
    int32_t status = sb3x_tokens(model->store, slots, envs, n, columns, distinct, order, &n_distinct);
    const uint8_t **frames = exactly(n_distinct * (int64_t)sizeof *frames);
    for (int64_t i = 0; i < n_distinct; i++) {
        CHECK(distinct[i] >= -1 && distinct[i] < sb3x_token_end(model->store));
        frames[i] = find_frame(model, distinct[i]);
        for (int64_t k = 0; k < i; k++) CHECK(distinct[k] != distinct[i]);
    }
    int64_t seen = 0;
    for (int64_t i = 0; status == SB3X_OK && i < total; i++) {
        CHECK(order[i] >= 0 && order[i] < n_distinct && order[i] <= seen); /* in the order of their first use */
        if (order[i] == seen) seen++;
        if (frames[order[i]])
            memcpy(out + i * size, frames[order[i]], (size_t)size);
        else
            memset(out + i * size, 0, (size_t)size);
    }
    CHECK(status != SB3X_OK || seen == n_distinct);
    free(distinct), free(order), free(frames);
    return status;
}

/* ---- pieces that the caller decodes */

static uint8_t *decode_piece(const model *model, const uint8_t *data, int64_t length, int64_t codec, int64_t n_frames) {
    const int64_t nbytes = n_frames * model->config.frame_bytes, runs = length / 2;
    uint8_t *decoded = exactly(nbytes), *piece = copy_of(data, length);
    for (int64_t i = runs; i < length; i++) piece[i] ^= (uint8_t)codec;
    CHECK(length > 0 && length % 2 == 0);
    CHECK(sb3x_write_runs(piece + runs, piece, runs, 1, 1, decoded, nbytes) == nbytes);
    free(piece);
    return decoded;
}

/* Decode everything, into memory of exactly the size that is asked for. */
static int32_t decode_pieces(model *model, sb3x_decoded *decoded, int64_t n_bytes, const uint8_t **frames) {
    uint8_t *data = exactly(n_bytes);
    int32_t status = sb3x_coded_bytes(model->store, decoded, data);
    int64_t end = 0;
    for (int64_t i = 0; status == SB3X_OK && i < decoded->n; i++) {
        CHECK(i == 0 || decoded->pieces[i] > decoded->pieces[i - 1]);
        CHECK(decoded->begins[i] == end && decoded->codecs[i] >= 0 && decoded->codecs[i] < 256);
        CHECK(decoded->n_frames[i] >= 1 && decoded->n_frames[i] <= model->config.block_frames);
        end += decoded->lengths[i];
        CHECK(decoded->lengths[i] > 0 && end <= n_bytes);
        frames[i] = decode_piece(model, data + decoded->begins[i], decoded->lengths[i], decoded->codecs[i], decoded->n_frames[i]);
    }
    CHECK(status != SB3X_OK || end == n_bytes);
    free(data);
    return status;
}

static int32_t gather_pieces(model *model, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns, uint8_t *out) {
    const int64_t most = sb3x_most_pieces(model->store, n, columns);
    int64_t *numbers[5], n_bytes = 0;
    for (int k = 0; k < 5; k++) numbers[k] = exactly(8 * most);
    const uint8_t **frames = exactly(most * (int64_t)sizeof *frames);
    sb3x_decoded decoded = {0, numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], frames};
    int32_t status = sb3x_coded_pieces(model->store, slots, envs, n, columns, &decoded, &n_bytes);
    CHECK(decoded.n <= most && (model->has_codec || decoded.n == 0));
    if (status == SB3X_OK) status = decode_pieces(model, &decoded, n_bytes, frames);
    if (status == SB3X_OK && decoded.n > 0) { /* it does not go without them, nor with less */
        const int64_t one = decoded.n / 2;
        CHECK(sb3x_gather(model->store, slots, envs, n, columns, NULL, out) != SB3X_OK);
        int64_t held = decoded.n_frames[one];
        decoded.n_frames[one] = 0;
        CHECK(sb3x_gather(model->store, slots, envs, n, columns, &decoded, out) != SB3X_OK);
        decoded.n_frames[one] = held;
        decoded.pieces[decoded.n - 1]++;
        CHECK(sb3x_gather(model->store, slots, envs, n, columns, &decoded, out) != SB3X_OK);
        decoded.pieces[decoded.n - 1]--;
    }
    if (status == SB3X_OK) status = sb3x_gather(model->store, slots, envs, n, columns, decoded.n > 0 ? &decoded : NULL, out);
    for (int64_t i = 0; i < decoded.n; i++) free((void *)frames[i]);
    for (int k = 0; k < 5; k++) free(numbers[k]);
    free(frames);
    return status;
}

int32_t gather(model *model, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns, uint8_t *out) {
    if (model->config.frames == SB3X_FRAMES_OUTSIDE) return gather_outside(model, slots, envs, n, columns, out);
    return gather_pieces(model, slots, envs, n, columns, out);
}

/* ---- comparing */

static void verify_batch(model *model, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns) {
    const int64_t nbytes = model->observation_bytes;
    uint8_t *out = exactly(n * count_columns(columns) * nbytes);
    memset(out, 0xEE, (size_t)(n * count_columns(columns) * nbytes));
    CHECK(gather(model, slots, envs, n, columns, out) == SB3X_OK);
    const uint8_t *found = out;
    for (int64_t column = 0; column < 2; column++) {
        if (!(columns >> column & 1)) continue;
        for (int64_t i = 0; i < n; i++, found += nbytes) {
            int64_t cell = envs ? slots[i] * model->config.n_streams + envs[i] : slots[i];
            const uint8_t *expected = model->cells + (cell * model->config.n_columns + column) * nbytes;
            CHECK(memcmp(found, expected, (size_t)nbytes) == 0);
        }
    }
    free(out);
}

static void verify_counts(model *model) {
    const int64_t cells = model->config.n_cells * model->config.n_columns;
    CHECK(sb3x_check(model->store) == SB3X_OK);
    sb3x_usage usage;
    sb3x_measure(model->store, &usage);
    int64_t n_written = 0;
    for (int64_t i = 0; i < cells; i++) n_written += model->written[i];
    CHECK(usage.n_written == n_written);
    CHECK(usage.live_bytes >= 0 && usage.live_bytes <= usage.held_bytes && usage.stored_bytes >= usage.live_bytes);
    /* Each block is needed by a cell, which may reach into two, by a stream, or, if it is a base, by a block. */
    CHECK(usage.n_blocks <= 2 * (2 * n_written + 4 * model->config.n_streams) + 1);
    CHECK(sb3x_token_end(model->store) <= most_blocks(&model->config) * model->config.block_frames);
}

void verify_cells(model *model, const int64_t *cells, int64_t n) {
    verify_batch(model, cells, NULL, n, model->config.n_columns == 2 ? SB3X_BOTH_COLUMNS : SB3X_FIRST_COLUMN);
}

void verify(model *model) {
    const int64_t n = model->config.n_cells;
    verify_counts(model);
    int64_t *cells = exactly(8 * n);
    for (int64_t i = 0; i < n; i++) cells[i] = i;
    verify_cells(model, cells, n);
    free(cells);
}

void verify_some(model *model) {
    const int64_t n_streams = model->config.n_streams, n_slots = model->config.n_cells / n_streams;
    verify_counts(model);
    int64_t n = below(model->from, 20);
    int64_t *slots = exactly(8 * n), *envs = exactly(8 * n);
    int with_envs = !once_in(model->from, 3);
    for (int64_t i = 0; i < n; i++) {
        slots[i] = below(model->from, with_envs ? n_slots : model->config.n_cells);
        envs[i] = below(model->from, n_streams);
    }
    verify_batch(model, slots, with_envs ? envs : NULL, n, 1 + (int32_t)below(model->from, model->config.n_columns == 2 ? 3 : 1));
    free(slots), free(envs);
}
