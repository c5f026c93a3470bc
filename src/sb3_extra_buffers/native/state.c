/* A store as a whole: what it takes, and whether it is consistent. */

#include <string.h>

#include "internal.h"

/* ---- looking */

void sb3x_measure(const sb3x_store *store, sb3x_usage *usage) {
    const sb3x_config *config = &store->config;
    int64_t in_use = 0, open_bytes = store->rows_bytes;
    for (int64_t i = 0; i < store->n_blocks; i++) in_use += store->blocks[i].references > 0;
    for (int64_t i = 0; i < config->n_streams; i++)
        if (store->encodings && store->streams[i].encoded > 0) open_bytes += store->streams[i].encoded;
    /* Of the heads only what was written to is in memory: the rest are pages that were never touched. */
    int64_t tables = store->n_written * (store->wide_heads ? 8 : 4) + store->blocks_room * (int64_t)sizeof(block);
    *usage = (sb3x_usage){
        .n_written = store->n_written,
        .n_blocks = in_use,
        .stored_bytes = store->arena.live_bytes + open_bytes + tables,
        .held_bytes = store->arena.held_bytes,
        .live_bytes = store->arena.live_bytes,
    };
}

void count_references(const sb3x_store *store, uint32_t *counts) {
    const sb3x_config *config = &store->config;
    memset(counts, 0, (size_t)store->n_blocks * sizeof(uint32_t));
    for (int64_t cell = 0; cell < store->cells_end; cell++) {
        for (int64_t column = 0; column < config->n_columns; column++) {
            int64_t token = head_of(store, cell, column);
            if (token < 0) continue;
            counts[token / config->block_frames]++;
            if (token % config->block_frames < config->stack - 1)
                counts[store->blocks[token / config->block_frames].previous]++;
        }
    }
    for (int64_t i = 0; i < config->n_streams; i++) {
        const stream *stream = &store->streams[i];
        const int32_t ids[4] = {stream->open, stream->reserved[0], stream->reserved[1], store->blocks[stream->open].previous};
        for (int k = 0; k < 4; k++)
            if (ids[k] >= 0) counts[ids[k]]++;
    }
    if (store->base >= 0) counts[store->base]++;
    /* Blocks keep their base; a base is no block of a stream, so this needs no second round. */
    for (int64_t i = 0; i < store->n_blocks; i++)
        if (counts[i] > 0 && store->blocks[i].base >= 0) counts[store->blocks[i].base]++;
}

static int is_freed(const sb3x_store *store, int64_t id) {
    for (int64_t i = 0; i < store->n_freed; i++)
        if (store->freed[i] == id) return 1;
    return 0;
}

/* Whether the lists of chunks hold what they should, each chunk once. */
static int check_chunks(const arena *arena) {
    int64_t n_unused = 0, n_ready = 0, n_mapped = 0, n_listed = 0;
    for (int32_t id = arena->unused; id >= 0 && n_unused <= arena->n_chunks; id = arena->chunks[id].next, n_unused++)
        if (arena->chunks[id].memory) return 0;
    for (int32_t id = arena->ready; id >= 0 && n_listed <= arena->n_chunks; id = arena->chunks[id].next, n_listed++)
        n_ready += arena->chunks[id].memory && arena->chunks[id].live == 0 && id != arena->current;
    for (int32_t id = 0; id < arena->n_chunks; id++) n_mapped += arena->chunks[id].memory != NULL;
    return n_unused == arena->n_chunks - n_mapped && n_ready == n_listed && n_ready == arena->n_ready &&
           arena->held_bytes == n_mapped * arena->chunk_bytes && arena->current < arena->n_chunks &&
           (arena->current < 0 || arena->chunks[arena->current].memory);
}

static int is_block(const sb3x_store *store, int64_t id) {
    return id >= 0 && id < store->n_blocks && store->blocks[id].references > 0;
}

static int is_sealed(const sb3x_store *store, int64_t id) {
    if (!is_block(store, id)) return 0;
    return store->config.frames == SB3X_FRAMES_OUTSIDE ? store->blocks[id].place == NO_PLACE : store->blocks[id].length > 0;
}

static int is_base(const sb3x_store *store, int64_t id) {
    return is_sealed(store, id) && store->blocks[id].base == BLOCK_RAW && store->blocks[id].length == store->config.frame_bytes;
}

/* Whether a block can hold this frame, counted from its first. A base of one-frame blocks looks like one of them. */
static int has_frame(const sb3x_store *store, int64_t id, int64_t index) {
    if (!is_sealed(store, id)) return 0;
    const block *one = &store->blocks[id];
    return store->config.frames == SB3X_FRAMES_OUTSIDE || one->base != BLOCK_RAW || index < one->length / store->config.frame_bytes;
}

static int check_block(const sb3x_store *store, int64_t id) {
    const block *one = &store->blocks[id];
    if (one->previous < -1 || one->previous >= store->n_blocks || one->previous == id) return 0;
    if (one->base <= BLOCK_CODED - MOST_CODECS || one->base >= store->n_blocks) return 0;
    if (one->base >= 0 && !is_base(store, one->base)) return 0;
    if (one->piece && (one->base == BLOCK_RAW || one->piece >= store->config.block_frames || count_pieces(store, one) > MOST_PIECES))
        return 0;
    if (store->config.frames == SB3X_FRAMES_OUTSIDE) return one->length == 0 && one->base == BLOCK_RAW;
    if (one->length == 0) return one->place != NO_PLACE; /* open or reserved by a stream */
    if (one->base == BLOCK_RAW) return one->length <= store->block_bytes && one->length % store->config.frame_bytes == 0;
    return one->length < store->block_bytes;
}

/* Whether the links of a stream and of the heads lead to frames that are there. */
static int check_links(const sb3x_store *store) {
    const sb3x_config *config = &store->config;
    for (int64_t i = 0; i < store->n_blocks; i++)
        if (is_block(store, i) && !check_block(store, i)) return 0;
    for (int64_t i = 0; i < config->n_streams; i++) {
        const stream *stream = &store->streams[i];
        int64_t previous = store->blocks[stream->open].previous;
        if (previous >= 0 && !has_frame(store, previous, config->block_frames - 1)) return 0;
        for (int k = 0; k < 2; k++) /* as new_block leaves them */
            if (store->blocks[stream->reserved[k]].base != BLOCK_RAW) return 0;
        int64_t expected = (int64_t)stream->open * config->block_frames + stream->fill - 1;
        if (stream->fill == 0) expected = previous < 0 ? -1 : previous * config->block_frames + config->block_frames - 1;
        if (stream->head != -1 && stream->head != expected) return 0;
        /* An observation must not reach back beyond what is there. */
        if (stream->head != -1 && stream->fill < config->stack && previous < 0) return 0;
    }
    for (int64_t cell = 0; cell < store->cells_end; cell++) {
        for (int64_t column = 0; column < config->n_columns; column++) {
            int64_t token = head_of(store, cell, column);
            if (token < 0) continue;
            int64_t id = token / config->block_frames, index = token % config->block_frames;
            if (!is_block(store, id)) return 0;
            int is_open = store->blocks[id].place < 0 && store->blocks[id].place != NO_PLACE;
            const stream *stream = &store->streams[cell % config->n_streams];
            if (is_open ? id != stream->open || index >= stream->fill : !has_frame(store, id, index)) return 0;
            if (index < config->stack - 1 && !has_frame(store, store->blocks[id].previous, config->block_frames - 1)) return 0;
        }
    }
    return 1;
}

int32_t sb3x_check(const sb3x_store *store) {
    const arena *arena = &store->arena;
    if (!check_links(store) || !check_chunks(arena)) return SB3X_CORRUPT;
    uint32_t *counts = sb3x_allocate((size_t)(store->n_blocks + 1) * sizeof(uint32_t));
    int64_t *live = sb3x_allocate_zeros((size_t)(arena->n_chunks + 1) * sizeof(int64_t));
    int is_right = counts && live;
    int64_t n_free = 0, n_listed = 0, total = 0, n_written = 0;
    if (is_right) count_references(store, counts);
    for (int64_t i = 0; is_right && i < store->n_blocks; i++) {
        const block *one = &store->blocks[i];
        is_right = one->references == counts[i];
        n_free += counts[i] == 0 && !is_freed(store, i);
        if (counts[i] == 0 || one->length == 0) continue;
        is_right = is_right && one->place >= 0 && one->place < arena->n_chunks;
        if (!is_right) break;
        const chunk *holder = &arena->chunks[one->place];
        int64_t begin = one->data - holder->memory;
        is_right = is_right && begin >= 0 && begin + one->length <= arena->chunk_bytes;
        live[one->place] += one->length;
        total += one->length;
    }
    for (int32_t id = store->free_blocks; is_right && id >= 0 && n_listed <= n_free; id = store->blocks[id].previous) {
        is_right = counts[id] == 0;
        n_listed++;
    }
    for (int32_t i = 0; is_right && i < arena->n_chunks; i++) is_right = arena->chunks[i].live == live[i];
    for (int64_t i = 0; is_right && i < store->config.n_cells * store->config.n_columns; i++)
        n_written += head_of(store, i / store->config.n_columns, i % store->config.n_columns) >= 0;
    is_right = is_right && n_listed == n_free && total == arena->live_bytes && n_written == store->n_written;
    int is_refused = !counts || !live;
    sb3x_release(counts);
    sb3x_release(live);
    return is_refused ? SB3X_NO_MEMORY : is_right ? SB3X_OK : SB3X_CORRUPT;
}
