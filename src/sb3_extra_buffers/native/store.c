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
        config->frames < SB3X_FRAMES_RAW || config->frames > SB3X_FRAMES_OUTSIDE || config->piece_frames < 0 ||
        config->row_bytes < 0 || config->row_bytes > config->frame_bytes || config->channel_bytes < 0 ||
        config->channel_bytes > config->frame_bytes || !is_item(config->item_bytes))
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
    return config->stack + config->block_frames + config->n_columns * config->stack;
}

/* What is needed to encode blocks, if it is not there yet. */
int allocate_encodings(sb3x_store *store, int64_t frames) {
    const int64_t n_streams = store->config.n_streams;
    if (frames != SB3X_FRAMES_DELTA && frames != SB3X_FRAMES_CODEC) return 1;
    if (!store->encodings) {
        store->encodings_bytes = n_streams * store->block_bytes;
        store->encodings = sb3x_map((size_t)store->encodings_bytes);
        if (!store->encodings) return 0;
        for (int64_t i = 0; i < n_streams; i++) store->streams[i].encoding = store->encodings + i * store->block_bytes;
    }
    if (frames == SB3X_FRAMES_CODEC && !store->parts) {
        /* Those of an open block that was loaded, and those of new frames. */
        store->parts_room = MOST_PIECES + store->config.n_columns * store->config.stack + 1;
        store->parts = sb3x_allocate_zeros((size_t)(n_streams * store->parts_room) * sizeof(part));
        if (!store->parts) return 0;
        for (int64_t i = 0; i < n_streams; i++) store->streams[i].parts = store->parts + i * store->parts_room;
        for (int64_t i = 0; i < n_streams * store->parts_room; i++) store->parts[i].length = -1;
    }
    const sb3x_shape shape = shape_of(&store->config);
    return store->writer.zeros || make_delta_writer(&store->writer, &shape);
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
    if (config->frames == SB3X_FRAMES_OUTSIDE) {
        store->new_frames_bytes = most_items * store->observation_bytes;
        store->new_frames = sb3x_map((size_t)store->new_frames_bytes);
        store->new_tokens = sb3x_allocate((size_t)(most_items * config->stack) * sizeof(int64_t));
        store->freed_room = 2 * most_items + 2 * n_streams; /* an observation is in two blocks, a stream seals two */
        store->freed = sb3x_allocate((size_t)store->freed_room * sizeof(int64_t));
        if (!store->new_frames || !store->new_tokens || !store->freed) return 0;
    }
    for (int64_t i = 0; i < n_streams; i++) store->streams[i].rows = store->rows + i * stream_bytes;
    return allocate_encodings(store, config->frames);
}

void reset_index(sb3x_store *store) {
    const sb3x_config *config = &store->config;
    const int64_t apart = config->block_frames < MOST_APART ? config->block_frames : MOST_APART;
    store->n_written = store->n_blocks = store->n_items = store->n_freed = 0;
    store->base_age = store->unhelpful = store->best_piece = 0;
    store->writer.packs = store->writer.patches = 0;
    drop_given(store);
    store->free_blocks = store->base = -1;
    for (int64_t i = 0; i < config->n_streams; i++) {
        stream *stream = &store->streams[i];
        int32_t before = -1, ids[3];
        for (int k = 0; k < 3; k++, before = ids[k - 1]) {
            ids[k] = new_block(store, before);
            store->blocks[ids[k]].place = -1 - (int32_t)i;
        }
        stream->reserved[0] = ids[1];
        stream->reserved[1] = ids[2];
        stream->head = -1;
        stream->first = stream->fill = stream->seals = stream->sealed = stream->n_parts = stream->taken = 0;
        open_block(store, stream, ids[0]);
        if (config->frames == SB3X_FRAMES_OUTSIDE) continue;
        /* Streams begin at different places of their first block, so that they are not all sealed at one step. */
        stream->fill = i * apart / config->n_streams;
        memset(stream->rows, 0, (size_t)((config->stack + stream->fill) * config->frame_bytes));
        if (stream->encoded >= 0 && is_coded(store->blocks[stream->open].base))
            /* Nobody will read what stands before the first frame, so pieces of it are left empty. */
            for (; (stream->pieces + 1) * piece_frames(store, &store->blocks[stream->open]) <= stream->fill; stream->pieces++)
                stream->begins[stream->pieces] = 0;
        encode_open_block(store, stream, 0, NULL);
    }
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
    store->frames = config->frames;
    store->codec = 0;
    store->piece = config->piece_frames;
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
    if (store->parts) drop_given(store);
    sb3x_release(store->parts);
    sb3x_release(store->streams);
    sb3x_release(store->blocks);
    sb3x_release(store->items);
    sb3x_unmap(store->rows, (size_t)store->rows_bytes);
    sb3x_unmap(store->encodings, (size_t)store->encodings_bytes);
    free_delta_writer(&store->writer);
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

int32_t sb3x_read_as(sb3x_store *store, int64_t codec, int64_t format, int64_t channels) {
    if (codec < 0 || codec >= MOST_CODECS || format < SB3X_READ_BY_CALLER || format > SB3X_READ_ZSTD || channels < 1 ||
        channels > INT32_MAX || store->config.frame_bytes % channels)
        return SB3X_BAD_ARGUMENT;
    store->formats[codec] = (uint8_t)format;
    store->channels[codec] = (int32_t)channels;
    if (format != SB3X_READ_BY_CALLER) store->pieces_read = channels > 1 ? 2 : store->pieces_read > 1 ? 2 : 1;
    return SB3X_OK;
}

int32_t sb3x_keep_as(sb3x_store *store, int64_t frames, int64_t codec, int64_t piece_frames) {
    if (store->config.frames == SB3X_FRAMES_OUTSIDE || frames < SB3X_FRAMES_RAW || frames > SB3X_FRAMES_CODEC || codec < 0 ||
        codec >= MOST_CODECS || piece_frames < 0)
        return SB3X_BAD_ARGUMENT;
    if (!allocate_encodings(store, frames)) return SB3X_NO_MEMORY;
    if (frames != store->frames || codec != store->codec) {
        store->unhelpful = 0;
        for (int64_t i = 0; i < store->config.n_streams; i++) store->streams[i].is_old = 1;
    }
    store->frames = frames;
    store->codec = codec;
    store->piece = piece_frames;
    store->n_items = 0; /* a plan may have counted on the old way */
    drop_given(store);
    return SB3X_OK;
}
