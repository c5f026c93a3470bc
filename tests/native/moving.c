/* Observations that move to other cells and other stores, and in the arrays beside them. */

#include "model.h"
#include "saved.h"

/* SB3X_TOO_LARGE only where there is no room. */
static void check_room(const model *to, const saved *segment) {
    saved_parts parts;
    sb3x_usage usage;
    CHECK(find_parts(&to->config, segment->bytes, segment->n, &parts));
    sb3x_measure(to->store, &usage);
    CHECK(usage.n_blocks + parts.n_blocks > most_blocks(&to->config));
}

int32_t copy_cells(model *to, const int64_t *targets, model *from, const int64_t *cells, int64_t n) {
    const int64_t n_columns = from->config.n_columns, nbytes = n_columns * from->observation_bytes;
    saved segment = save_cells(from->store, &from->config, cells, targets, n);
    if (!segment.bytes) return segment.error;
    int32_t status = load_saved(to->store, &to->config, segment.bytes, segment.n);
    if (status == SB3X_TOO_LARGE) check_room(to, &segment);
    free(segment.bytes);
    if (status != SB3X_OK) return status;
    to->has_codec = to->has_codec || from->has_codec;
    /* All of them are read first: cells may be written to here. */
    uint8_t *observations = exactly(n * nbytes), *written = exactly(n * n_columns);
    for (int64_t i = 0; i < n; i++) {
        memcpy(observations + i * nbytes, cell_of(from, cells[i], 0), (size_t)nbytes);
        memcpy(written + i * n_columns, from->written + cells[i] * n_columns, (size_t)n_columns);
    }
    for (int64_t i = 0; i < n; i++) {
        memcpy(cell_of(to, targets[i], 0), observations + i * nbytes, (size_t)nbytes);
        memcpy(to->written + targets[i] * n_columns, written + i * n_columns, (size_t)n_columns);
    }
    free(observations), free(written);
    return SB3X_OK;
}

int32_t reload(model *model, int64_t n_segments) {
    const int64_t n_cells = model->config.n_cells;
    int32_t status;
    sb3x_store *loaded = sb3x_create(&model->config, &status);
    int64_t *cells = exactly(8 * n_cells);
    for (int64_t i = 0; i < n_cells; i++) cells[i] = i;
    for (int64_t k = 0; status == SB3X_OK && k < n_segments; k++) {
        const int64_t begin = n_cells * k / n_segments, end = n_cells * (k + 1) / n_segments;
        saved segment = save_cells(model->store, &model->config, cells + begin, cells + begin, end - begin);
        status = segment.bytes ? load_saved(loaded, &model->config, segment.bytes, segment.n) : segment.error;
        free(segment.bytes);
    }
    free(cells);
    if (status == SB3X_OK) {
        sb3x_destroy(model->store);
        model->store = loaded;
        model->codec = 0; /* the new store keeps its blocks as its config says */
    } else {
        sb3x_destroy(loaded);
    }
    return status;
}
