/* Operations on a store and on plain arrays beside it. */

#include "model.h"

#include "outside.h"

char check_context[256] = "";

/* From a byte to another, 0 .. size: none, those that are too near to predict from, the nearest that is not, and larger ones. */
static int64_t draw_distance(source *from, int64_t size) {
    static const int64_t distances[] = {0, 1, 15, 16, 17, 28, 33};
    int64_t kind = below(from, 10);
    int64_t distance = kind < 7 ? distances[kind] : kind == 7 ? size / 3 : kind == 8 ? size : below(from, size + 1);
    return distance < size ? distance : size;
}

/* Frames in a piece: all, as many as the store finds best, or any number, which may be more than a block has. */
static int64_t draw_piece(source *from, int64_t block_frames) {
    return once_in(from, 3) ? 0 : 1 + below(from, once_in(from, 2) ? 6 : block_frames + 3);
}

sb3x_config draw_config(source *from) {
    static const int64_t sizes[] = {1, 2, 7, 16, 31, 32, 33, 63, 64, 65, 100, 130, 144, 257, 400, 784, 1300, 2352};
    sb3x_config config = {0};
    config.frames = below(from, 4);
    config.stack = 1 + below(from, 5);
    config.n_streams = 1 + below(from, 9);
    config.n_columns = 1 + below(from, 2);
    config.n_cells = config.n_streams * (1 + below(from, 12));
    config.frame_bytes = sizes[below(from, sizeof sizes / sizeof *sizes)];
    static const int64_t more[] = {0, 0, 1, 2, 3, 5, 8, 11, 17, 40, 300};
    config.block_frames = config.stack + more[below(from, sizeof more / sizeof *more)];
    config.piece_frames = draw_piece(from, config.block_frames);
    config.row_bytes = draw_distance(from, config.frame_bytes);
    config.channel_bytes = draw_distance(from, config.frame_bytes);
    static const int64_t items[] = {0, 1, 2, 4};
    config.item_bytes = items[below(from, 4)];
    return config;
}

model *new_model(const sb3x_config *config, source *from, int32_t *error) {
    model *model = exactly(sizeof *model);
    model->config = *config;
    model->from = from;
    model->observation_bytes = config->stack * config->frame_bytes;
    model->has_codec = config->frames == SB3X_FRAMES_CODEC;
    model->store = sb3x_create(config, error);
    if (!model->store) return model;
    model->cells = exactly(config->n_cells * config->n_columns * model->observation_bytes);
    model->written = exactly(config->n_cells * config->n_columns);
    model->shown = exactly(config->n_streams * model->observation_bytes);
    model->is_camera = once_in(from, 3);
    model->is_calm = once_in(from, 2);
    return model;
}

void free_model(model *model) {
    sb3x_destroy(model->store);
    forget_frames(model);
    free(model->kept);
    free(model->cells);
    free(model->written);
    free(model->shown);
    free(model);
}

/* ---- what envs show */

void draw_picture(source *from, const sb3x_shape *shape, int64_t scene, uint8_t *frame) {
    const int64_t plane = shape->channel ? shape->channel : shape->bytes, row = shape->row ? shape->row : plane;
    source texture = source_of_seed((uint64_t)scene), noise = source_of_seed((uint64_t)below(from, 256));
    /* How much the light varies, as powers of two that are often 0: of each channel by itself, within the scene, and with time. */
    const int64_t apart = once_in(&texture, 2) ? 0 : below(&texture, 4), rough = once_in(&texture, 3) ? 0 : below(&texture, 9);
    const int64_t across = below(&texture, 6), down = once_in(&texture, 2) ? 0 : below(&texture, 6);
    const int64_t noisiest = once_in(from, 4) ? 9 : 4, noisy = once_in(from, 3) ? 0 : below(from, noisiest), brighter = below(from, 4);
    for (int64_t i = 0; i < shape->bytes; i++) {
        const uint64_t pixel = (uint64_t)(i % plane), channel = (uint64_t)(i / plane);
        source still = {texture.state + pixel, NULL, NULL}, moving = {noise.state + pixel, NULL, NULL};
        uint64_t light = pixel % (uint64_t)row * (uint64_t)across + pixel / (uint64_t)row * (uint64_t)down + (uint64_t)brighter;
        light += next_number(&still) % ((uint64_t)1 << rough) + next_number(&moving) % ((uint64_t)1 << noisy);
        light += 40 * channel + next_number(&noise) % ((uint64_t)1 << apart);
        frame[i] = (uint8_t)light;
    }
}

static void draw_frame(model *model, uint8_t *frame) {
    source *from = model->from;
    const int64_t n = model->config.frame_bytes;
    const sb3x_shape shape = {n, model->config.row_bytes, model->config.channel_bytes, model->config.item_bytes};
    if (once_in(from, model->is_camera ? 2 : 8)) {
        draw_picture(from, &shape, below(from, 64) / 28, frame); /* mostly one of two */
        return;
    }
    switch (model->is_calm ? 2 + below(from, 3) : below(from, 5)) {
        case 0: /* noise */
            for (int64_t i = 0; i < n; i++) frame[i] = (uint8_t)(from->bytes ? below(from, 256) : (int64_t)next_number(from));
            break;
        case 1: memset(frame, (int)below(from, 256), (size_t)n); break;
        case 2: { /* something moves */
            int64_t begin = below(from, n), length = 1 + below(from, n - begin);
            if (once_in(from, 2) && !from->bytes && !model->is_calm) /* of a fuzzer, this would use up too much */
                for (int64_t i = 0; i < length; i++) frame[begin + i] = (uint8_t)next_number(from);
            else
                memset(frame + begin, (int)below(from, 4), (size_t)length);
            break;
        }
        default: /* a few bytes */
            for (int64_t k = below(from, 4); k >= 0; k--) set_byte(from, frame, n, 256);
    }
}

void show_next(model *model, int64_t stream) {
    const int64_t size = model->config.frame_bytes, nbytes = model->observation_bytes;
    uint8_t *shown = model->shown + stream * nbytes, *last = shown + nbytes - size;
    int64_t kind = below(model->from, 16);
    if (kind == 0) return;
    if (kind == 1) { /* an episode begins */
        memset(shown, 0, (size_t)nbytes);
        if (!once_in(model->from, 4)) draw_frame(model, last);
    } else if (kind == 2) {
        for (int64_t i = 0; i < model->config.stack; i++) draw_frame(model, shown + i * size);
    } else if (kind == 3) {
        int64_t at = below(model->from, nbytes);
        shown[at] ^= (uint8_t)(1 + below(model->from, 255));
    } else {
        memmove(shown, shown + size, (size_t)(nbytes - size));
        draw_frame(model, last);
    }
}

/* ---- operations */

static void set_cell(model *model, int64_t cell, int64_t column, const uint8_t *observation) {
    memcpy(cell_of(model, cell, column), observation, (size_t)model->observation_bytes);
    model->written[cell * model->config.n_columns + column] = 1;
}

static void draw_step(model *model, operation *drawn) {
    const int64_t n = model->config.n_streams, nbytes = n * model->observation_bytes;
    int64_t n_slots = model->config.n_cells / n;
    drawn->slot = once_in(model->from, 8) ? below(model->from, n_slots) : model->ring++ % n_slots;
    drawn->observations = exactly(2 * nbytes);
    memcpy(drawn->observations, model->shown, (size_t)nbytes);
    for (int64_t i = 0; i < n; i++) show_next(model, i);
    memcpy(drawn->observations + nbytes, model->shown, (size_t)nbytes);
    for (int64_t i = 0; i < n; i++)
        if (once_in(model->from, 16)) show_next(model, i); /* what comes next is no part of this step */
}

/* Steps of which each goes on from the one before. Of one stream, they are frames one behind the other; of several, observations, the
   next ones of which are those of the step after. */
static void draw_steps(model *model, operation *drawn) {
    const sb3x_config *config = &model->config;
    const int64_t n = config->n_streams, nbytes = n * model->observation_bytes, size = config->frame_bytes, n_slots = config->n_cells / n;
    drawn->slot = once_in(model->from, 4) ? below(model->from, n_slots) : model->ring % n_slots;
    drawn->n = below(model->from, n_slots - drawn->slot + 1);
    model->ring += drawn->n;
    drawn->stride = n == 1 && once_in(model->from, 2) ? size : nbytes;
    drawn->observations = exactly(drawn->n * drawn->stride + nbytes);
    memcpy(drawn->observations, model->shown, (size_t)nbytes);
    for (int64_t k = 1; k <= drawn->n; k++) {
        uint8_t *at = drawn->observations + k * drawn->stride;
        if (drawn->stride == nbytes) {
            for (int64_t i = 0; i < n; i++) show_next(model, i);
            memcpy(at, model->shown, (size_t)nbytes);
            continue;
        }
        memmove(model->shown, model->shown + size, (size_t)(nbytes - size));
        if (!once_in(model->from, 8)) draw_frame(model, model->shown + nbytes - size);
        memcpy(at + nbytes - size, model->shown + nbytes - size, (size_t)size);
    }
}

/* Cells to copy within the store, and where to: all, moved by some places, or a few, which may be in a row. */
static void draw_copy(model *model, operation *drawn) {
    const int64_t n_cells = model->config.n_cells, first = below(model->from, n_cells);
    int all = once_in(model->from, 4), in_a_row = once_in(model->from, 2);
    drawn->n = all ? n_cells : below(model->from, 7);
    drawn->cells = exactly(drawn->n * 8);
    drawn->targets = exactly(drawn->n * 8);
    for (int64_t i = 0; i < drawn->n; i++) {
        drawn->cells[i] = all ? i : in_a_row ? (first + i) % n_cells : below(model->from, n_cells);
        drawn->targets[i] = all ? (first + i) % n_cells : below(model->from, n_cells);
    }
}

static void draw_write(model *model, operation *drawn) {
    const sb3x_config *config = &model->config;
    int is_outside = config->frames == SB3X_FRAMES_OUTSIDE;
    drawn->column = below(model->from, config->n_columns);
    drawn->n = is_outside ? below(model->from, config->n_streams + 1) : below(model->from, 7);
    drawn->cells = exactly(drawn->n * 8);
    drawn->observations = exactly(drawn->n * model->observation_bytes);
    int64_t turn = below(model->from, config->n_streams);
    for (int64_t i = 0; i < drawn->n; i++) {
        drawn->cells[i] = below(model->from, config->n_cells);
        if (is_outside) /* each of another stream */
            drawn->cells[i] = drawn->cells[i] / config->n_streams * config->n_streams + (i + turn) % config->n_streams;
        int64_t stream = drawn->cells[i] % config->n_streams;
        show_next(model, stream);
        memcpy(drawn->observations + i * model->observation_bytes, model->shown + stream * model->observation_bytes,
               (size_t)model->observation_bytes);
    }
}

operation draw_operation(model *model) {
    static const enum operation_kind often[] = {STEP, STEP, STEP, STEP, STEP, STEP, STEP, STEP,
                                                WRITE, WRITE, STEPS, PLAN_ONLY, ERASE, RELOAD, KEEP_AS};
    const sb3x_config *config = &model->config;
    int is_outside = config->frames == SB3X_FRAMES_OUTSIDE;
    operation drawn = {.kind = once_in(model->from, 64) ? CLEAR : often[below(model->from, sizeof often / sizeof *often)]};
    if (drawn.kind == STEPS && is_outside) drawn.kind = STEP;
    if ((drawn.kind == KEEP_AS || drawn.kind == RELOAD) && is_outside) drawn.kind = ERASE;
    if (drawn.kind == RELOAD && !once_in(model->from, 3)) drawn.kind = COPY;
    switch (drawn.kind) {
        case STEP:
        case PLAN_ONLY: draw_step(model, &drawn); break;
        case STEPS: draw_steps(model, &drawn); break;
        case WRITE: draw_write(model, &drawn); break;
        case ERASE:
            draw_write(model, &drawn);
            if (drawn.n > config->n_streams) drawn.n = config->n_streams;
            break;
        case COPY: draw_copy(model, &drawn); break;
        case RELOAD: drawn.n = 1 + below(model->from, 3); break;
        case KEEP_AS:
            drawn.frames = below(model->from, 3);
            drawn.codec = below(model->from, once_in(model->from, 2) ? 3 : 256);
            drawn.piece_frames = draw_piece(model->from, config->block_frames);
            break;
        default: break;
    }
    return drawn;
}

void free_operation(operation *operation) {
    free(operation->cells);
    free(operation->targets);
    free(operation->observations);
}

/* Encode what the plan asks for: runs of bytes, changed by the number of the codec, or not at all. */
static int32_t give_pieces(model *model) {
    int64_t stream = -1, part = -1, n_frames = -1;
    for (const uint8_t *piece; (piece = sb3x_full_piece(model->store, &stream, &part, &n_frames));) {
        CHECK(model->has_codec && stream >= 0 && stream < model->config.n_streams && part >= 0);
        CHECK(n_frames >= 1 && n_frames <= model->config.block_frames);
        const int64_t nbytes = n_frames * model->config.frame_bytes;
        uint8_t *values = exactly(nbytes), *lengths = exactly(nbytes), *encoded = exactly(2 * nbytes);
        int64_t runs = sb3x_find_runs(piece, nbytes, 1, 255, nbytes, 1, values, lengths);
        CHECK(runs >= 1);
        memcpy(encoded, lengths, (size_t)runs);
        for (int64_t i = 0; i < runs; i++) encoded[runs + i] = (uint8_t)(values[i] ^ model->codec);
        int64_t length = once_in(model->from, 8) ? 0 : 2 * runs;
        int32_t status = sb3x_give_encoded(model->store, stream, part, encoded, length);
        free(values), free(lengths), free(encoded);
        if (status != SB3X_OK) return status;
        if (once_in(model->from, 16)) return SB3X_OK; /* the others will be asked for again */
    }
    return SB3X_OK;
}

static int32_t try_plan(model *model, const operation *operation, sb3x_changes *changes) {
    const uint8_t *first = operation->observations;
    const uint8_t *second = first + model->config.n_streams * model->observation_bytes;
    if (model->config.n_columns == 1) second = NULL;
    if (operation->kind == WRITE)
        return sb3x_plan_cells(model->store, operation->column, operation->cells, operation->n, first, changes);
    int32_t status = sb3x_plan(model->store, operation->slot, first, second, 0, changes);
    while (status == SB3X_ENCODE) {
        status = give_pieces(model);
        if (status == SB3X_OK) status = sb3x_plan(model->store, operation->slot, first, second, 1, changes);
    }
    return status;
}

static int32_t try_step(model *model, const operation *operation) {
    const int64_t n = model->config.n_streams;
    int is_outside = model->config.frames == SB3X_FRAMES_OUTSIDE;
    sb3x_changes changes = {0};
    int32_t status = try_plan(model, operation, &changes);
    if (status != SB3X_OK) return status;
    if (is_outside) keep_frames(model, &changes);
    CHECK(sb3x_commit(model->store, &changes) == SB3X_OK);
    if (is_outside) let_go(model, &changes);
    if (operation->kind == WRITE) {
        for (int64_t i = 0; i < operation->n; i++)
            set_cell(model, operation->cells[i], operation->column, operation->observations + i * model->observation_bytes);
        return SB3X_OK;
    }
    for (int64_t column = 0; column < model->config.n_columns; column++)
        for (int64_t i = 0; i < n; i++)
            set_cell(model, operation->slot * n + i, column,
                     operation->observations + (column * n + i) * model->observation_bytes);
    return SB3X_OK;
}

static int32_t try_steps(model *model, const operation *operation) {
    const int64_t n = model->config.n_streams, nbytes = model->observation_bytes;
    const uint8_t *first = operation->observations, *second = model->config.n_columns == 1 ? NULL : first + operation->stride;
    int64_t done = -1;
    int32_t status;
    do {
        status = sb3x_write_steps(model->store, operation->slot, operation->n, first, second, operation->stride, &done);
        if (status == SB3X_ENCODE && give_pieces(model) != SB3X_OK) status = SB3X_NO_MEMORY;
    } while (status == SB3X_ENCODE);
    CHECK(done >= 0 && done <= operation->n && (status != SB3X_OK || done == operation->n));
    for (int64_t k = 0; k < done; k++)
        for (int64_t column = 0; column < model->config.n_columns; column++)
            for (int64_t i = 0; i < n; i++)
                set_cell(model, (operation->slot + k) * n + i, column, first + (k + column) * operation->stride + i * nbytes);
    return status;
}

static int32_t try_write(model *model, const operation *operation) {
    int64_t done = -1;
    int32_t status;
    do {
        status = sb3x_write(model->store, operation->column, operation->cells, operation->n, operation->observations, &done);
        if (status == SB3X_ENCODE && give_pieces(model) != SB3X_OK) status = SB3X_NO_MEMORY;
    } while (status == SB3X_ENCODE);
    CHECK(done >= 0 && done <= operation->n && (status != SB3X_OK || done == operation->n));
    for (int64_t i = 0; i < done; i++)
        set_cell(model, operation->cells[i], operation->column, operation->observations + i * model->observation_bytes);
    return status;
}

static int32_t try_erase(model *model, const operation *operation) {
    const int64_t n_columns = model->config.n_columns;
    sb3x_changes changes;
    CHECK(sb3x_erase(model->store, operation->cells, operation->n, &changes) == SB3X_OK);
    let_go(model, &changes);
    for (int64_t i = 0; i < operation->n; i++) {
        memset(cell_of(model, operation->cells[i], 0), 0, (size_t)(n_columns * model->observation_bytes));
        memset(model->written + operation->cells[i] * n_columns, 0, (size_t)n_columns);
    }
    return SB3X_OK;
}

static int32_t try_clear(model *model) {
    const int64_t cells = model->config.n_cells * model->config.n_columns;
    CHECK(sb3x_clear(model->store) == SB3X_OK);
    forget_frames(model);
    memset(model->cells, 0, (size_t)(cells * model->observation_bytes));
    memset(model->written, 0, (size_t)cells);
    return SB3X_OK;
}

static int32_t try_copy(model *model, const operation *operation) {
    int32_t status = copy_cells(model, operation->targets, model, operation->cells, operation->n);
    return status == SB3X_TOO_LARGE ? SB3X_OK : status; /* then nothing has changed, in the arrays neither */
}

static int32_t try_keep_as(model *model, const operation *operation) {
    int32_t status = sb3x_keep_as(model->store, operation->frames, operation->codec, operation->piece_frames);
    if (status != SB3X_OK) return status;
    model->codec = operation->codec;
    model->has_codec = model->has_codec || operation->frames == SB3X_FRAMES_CODEC;
    return SB3X_OK;
}

int32_t try_operation(model *model, const operation *operation) {
    switch (operation->kind) {
        case STEP: return try_step(model, operation);
        case STEPS: return try_steps(model, operation);
        case WRITE:
            return model->config.frames == SB3X_FRAMES_OUTSIDE ? try_step(model, operation) : try_write(model, operation);
        case PLAN_ONLY: {
            sb3x_changes changes;
            return try_plan(model, operation, &changes);
        }
        case ERASE: return try_erase(model, operation);
        case CLEAR: return try_clear(model);
        case KEEP_AS: return try_keep_as(model, operation);
        case COPY: return try_copy(model, operation);
        default: return reload(model, operation->n);
    }
}

/* The observations of a plan go away: something else must take its place before a commit. */
static void forget_plan(model *model, int64_t slot, int is_large) {
    const int64_t choice = is_large ? 2 : below(model->from, 3), cell = slot % model->config.n_cells;
    sb3x_changes changes = {0};
    int64_t done = -1;
    if (model->config.frames == SB3X_FRAMES_OUTSIDE)
        CHECK(sb3x_erase(model->store, NULL, 0, &changes) == SB3X_OK && changes.n_freed == 0);
    else if (choice == 0)
        CHECK(try_operation(model, &(operation){.kind = KEEP_AS, .frames = slot % 3, .codec = slot}) == SB3X_OK);
    else if (choice == 1)
        CHECK(copy_cells(model, &cell, model, &cell, 1) == SB3X_OK);
    else
        CHECK(sb3x_write(model->store, 0, NULL, 0, NULL, &done) == SB3X_OK && done == 0);
    CHECK(sb3x_commit(model->store, NULL) == SB3X_OK);
}

void play(model *model) {
    operation drawn = draw_operation(model);
    int32_t status = try_operation(model, &drawn);
    /* Room to encode blocks of gigabytes in may not be there. */
    int is_large = model->config.block_frames * model->config.frame_bytes > 1 << 24;
    int may_be_refused = is_large && (drawn.kind == KEEP_AS || drawn.kind == COPY || drawn.kind == RELOAD);
    CHECK(status == SB3X_OK || (status == SB3X_NO_MEMORY && may_be_refused));
    if (drawn.kind == PLAN_ONLY) forget_plan(model, drawn.slot, is_large);
    free_operation(&drawn);
}

void write_over(model *model) {
    const int64_t n_streams = model->config.n_streams, nbytes = n_streams * model->observation_bytes;
    uint8_t *observations = exactly(2 * nbytes);
    for (int64_t slot = 0; slot < model->config.n_cells / n_streams; slot++) {
        memcpy(observations, model->shown, (size_t)nbytes);
        for (int64_t i = 0; i < n_streams; i++) show_next(model, i);
        memcpy(observations + nbytes, model->shown, (size_t)nbytes);
        CHECK(try_operation(model, &(operation){.kind = STEP, .slot = slot, .observations = observations}) == SB3X_OK);
        verify_some(model);
    }
    free(observations);
    verify(model);
}
