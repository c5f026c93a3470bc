/* Stores come and go: sizes are checked and all tables allocated here. */

#include <limits.h>
#include <string.h>

#include "internal.h"

#define MOST_CELLS ((int64_t)1 << 31)
/* A size that, with a few rows more, still fits a signed 64-bit number. */
#define MOST_BYTES ((int64_t)1 << 60)

/* Frames that the beginnings of streams are apart at most: they are zeros, which take memory until the first blocks are full. */
#define MOST_APART 256

int32_t sb3x_version(void) { return SB3X_VERSION; }

/* a * b, or MOST_BYTES if that is more. */
static int64_t limited_product(int64_t a, int64_t b) { return b > 0 && a > MOST_BYTES / b ? MOST_BYTES : a * b; }

static int32_t check_config(const sb3x_config *config) {
    if (config->n_streams < 1 || config->n_cells < 0 || config->n_cells % config->n_streams || config->stack < 1 ||
        config->frame_bytes < 1 || config->block_frames < config->stack || config->n_columns < 1 || config->n_columns > 2 ||
        config->frames < SB3X_FRAMES_RAW || config->frames > SB3X_FRAMES_OUTSIDE)
        return SB3X_BAD_ARGUMENT;
    if (config->n_streams > INT32_MAX / 8 || limited_product(config->n_cells, config->n_columns) >= MOST_CELLS ||
        config->block_frames >= MOST_CELLS || config->stack >= MOST_CELLS / 8 || config->frame_bytes >= PATCH_FRAME_LIMIT)
        return SB3X_TOO_LARGE;
    /* A stream has its context, the open block and room behind it. */
    int64_t rows = config->block_frames + 4 * config->stack;
    int64_t all = limited_product(limited_product(rows, config->frame_bytes), config->n_streams);
    return all >= MOST_BYTES ? SB3X_TOO_LARGE : SB3X_OK;
}

/* Rows of one stream. */
static int64_t rows_of(const sb3x_config *config) {
    if (config->frames == SB3X_FRAMES_OUTSIDE) return config->stack;
    /* Whatever fills the block may be longer than its rest; what is to be encoded must lie in one piece. */
    int64_t room = config->frames == SB3X_FRAMES_CODEC ? config->n_columns * config->stack : config->stack;
    return config->stack + config->block_frames + room;
}

static int allocate(sb3x_store *store) {
    const sb3x_config *config = &store->config;
    const int64_t cells = config->n_cells * config->n_columns, n_streams = config->n_streams;
    const int64_t most_items = n_streams * config->n_columns;
    /* Each block is needed by a cell, by a stream or by another block. */
    store->most_blocks = 4 * cells + 16 * n_streams + 16;
    store->wide_heads = limited_product(store->most_blocks, config->block_frames) > INT32_MAX;
    store->heads = sb3x_map((size_t)cells * (store->wide_heads ? 8 : 4));
    store->streams = sb3x_allocate_zeros((size_t)n_streams * sizeof(stream));
    store->blocks_room = 4 * n_streams + 16;
    store->blocks = sb3x_allocate((size_t)store->blocks_room * sizeof(block));
    store->items = sb3x_allocate((size_t)most_items * sizeof(item));
    int64_t stream_bytes = rows_of(config) * config->frame_bytes;
    store->rows_bytes = n_streams * stream_bytes;
    store->rows = sb3x_map((size_t)store->rows_bytes);
    if (!store->heads || !store->streams || !store->blocks || !store->items || !store->rows) return 0;
    if (config->frames == SB3X_FRAMES_DELTA) {
        store->patches_bytes = n_streams * store->block_bytes;
        store->patches = sb3x_map((size_t)store->patches_bytes);
        if (!store->patches || !make_patch_scratch(&store->scratch, config->frame_bytes)) return 0;
    }
    if (config->frames == SB3X_FRAMES_OUTSIDE) {
        store->new_frames_bytes = most_items * store->observation_bytes;
        store->new_frames = sb3x_map((size_t)store->new_frames_bytes);
        store->new_tokens = sb3x_allocate((size_t)(most_items * config->stack) * sizeof(int64_t));
        store->freed_room = 2 * most_items + 2 * n_streams; /* an observation is in two blocks, a stream seals two */
        store->freed = sb3x_allocate((size_t)store->freed_room * sizeof(int64_t));
        if (!store->new_frames || !store->new_tokens || !store->freed) return 0;
    }
    for (int64_t i = 0; i < n_streams; i++) {
        store->streams[i].rows = store->rows + i * stream_bytes;
        store->streams[i].patches = store->patches ? store->patches + i * store->block_bytes : NULL;
    }
    return 1;
}

void reset_index(sb3x_store *store) {
    const sb3x_config *config = &store->config;
    const int64_t apart = config->block_frames < MOST_APART ? config->block_frames : MOST_APART;
    store->n_written = store->n_blocks = store->n_items = store->n_freed = 0;
    store->base_age = store->unhelpful = 0;
    store->free_blocks = store->base = -1;
    for (int64_t i = 0; i < config->n_streams; i++) {
        stream *stream = &store->streams[i];
        for (int part = 0; part < 2; part++) {
            sb3x_release(stream->given[part]);
            stream->given[part] = NULL;
            stream->given_length[part] = -1;
        }
        int32_t before = -1, ids[3];
        for (int k = 0; k < 3; k++, before = ids[k - 1]) {
            ids[k] = new_block(store, before);
            store->blocks[ids[k]].place = -1 - (int32_t)i;
        }
        stream->reserved[0] = ids[1];
        stream->reserved[1] = ids[2];
        stream->head = -1;
        stream->first = stream->fill = stream->seals = stream->sealed = 0;
        open_block(store, stream, ids[0]);
        if (config->frames == SB3X_FRAMES_OUTSIDE) continue;
        /* Streams begin at different places of their first block, so that they are not all sealed at one step. */
        stream->fill = i * apart / config->n_streams;
        memset(stream->rows, 0, (size_t)((config->stack + stream->fill) * config->frame_bytes));
        if (config->frames == SB3X_FRAMES_DELTA) encode_open_block(store, stream, 0, NULL);
    }
    store->any_given = 0;
}

sb3x_store *sb3x_create(const sb3x_config *config, int32_t *error) {
    *error = check_config(config);
    if (*error != SB3X_OK) return NULL;
    sb3x_store *store = sb3x_allocate_zeros(sizeof(sb3x_store));
    *error = SB3X_NO_MEMORY;
    if (!store) return NULL;
    store->config = *config;
    store->observation_bytes = config->stack * config->frame_bytes;
    store->block_bytes = config->block_frames * config->frame_bytes;
    store->arena.chunk_bytes = store->block_bytes > CHUNK_BYTES ? store->block_bytes : CHUNK_BYTES;
    store->arena.current = store->arena.ready = store->arena.unused = -1;
    if (!allocate(store)) {
        sb3x_destroy(store);
        return NULL;
    }
    reset_index(store);
    *error = SB3X_OK;
    return store;
}

void sb3x_destroy(sb3x_store *store) {
    if (!store) return;
    const sb3x_config *config = &store->config;
    sb3x_unmap(store->heads, (size_t)(config->n_cells * config->n_columns) * (store->wide_heads ? 8 : 4));
    for (int64_t i = 0; store->streams && i < config->n_streams; i++)
        for (int part = 0; part < 2; part++) sb3x_release(store->streams[i].given[part]);
    sb3x_release(store->streams);
    sb3x_release(store->blocks);
    sb3x_release(store->items);
    sb3x_unmap(store->rows, (size_t)store->rows_bytes);
    sb3x_unmap(store->patches, (size_t)store->patches_bytes);
    free_patch_scratch(&store->scratch);
    sb3x_unmap(store->new_frames, (size_t)store->new_frames_bytes);
    sb3x_release(store->new_tokens);
    sb3x_release(store->freed);
    destroy_chunks(&store->arena);
    sb3x_release(store);
}

int32_t sb3x_clear(sb3x_store *store) {
    const sb3x_config *config = &store->config;
    memset(store->heads, 0, (size_t)(store->cells_end * config->n_columns) * (store->wide_heads ? 8 : 4));
    store->cells_end = 0;
    clear_chunks(&store->arena);
    reset_index(store);
    return SB3X_OK;
}
