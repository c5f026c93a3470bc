/* Segments: cells with all the blocks that they need, taken out of a store and put into another.

   A segment has its own numbers for blocks, from 0 on, and tokens that follow from them. Sealed blocks leave and arrive as they
   are. Open blocks are written as `delta`, or as they are where that is not smaller: with as many frames as they have, so that
   such a block is never one that others go on from.

     take:     cells -> their tokens -> blocks, the blocks before them, bases -> table and bytes
     receive:  table -> numbers of the store -> bytes -> cells, in one call that refuses all or nothing */

#include <string.h>

#include "internal.h"

/* A row of the table of blocks. */
enum { ROW_PREVIOUS, ROW_BASE, ROW_LENGTH, ROW_PIECE, ROW_NUMBERS };

/* ---- taking */

typedef struct {
    int32_t id;          /* in the store */
    int64_t previous;    /* in the segment, if anything reaches back to it; else -1 */
    uint8_t *open_bytes; /* an open block that was encoded here */
} taken_block;

struct sb3x_segment {
    const sb3x_store *store;
    int64_t *heads; /* (n, n_columns): token + 1 */
    int64_t *table; /* (n_blocks, ROW_NUMBERS) */
    taken_block *blocks;
    int32_t *numbers; /* of the store's blocks in the segment, + 1 */
    int64_t n_blocks, room, n_bytes;
    int64_t next, at; /* the block that is read next, and from where */
};

void sb3x_free_segment(sb3x_segment *segment) {
    if (!segment) return;
    for (int64_t i = 0; i < segment->n_blocks; i++) sb3x_release(segment->blocks[i].open_bytes);
    sb3x_release(segment->heads);
    sb3x_release(segment->table);
    sb3x_release(segment->blocks);
    sb3x_release(segment->numbers);
    sb3x_release(segment);
}

/* The number of a block in the segment, or -1 if memory was refused. */
static int64_t number_of(sb3x_segment *segment, int32_t id) {
    if (segment->numbers[id]) return segment->numbers[id] - 1;
    if (segment->n_blocks == segment->room) {
        int64_t room = segment->room + segment->room / 2 + 64;
        taken_block *blocks = sb3x_reallocate(segment->blocks, (size_t)room * sizeof(taken_block));
        if (!blocks) return -1;
        segment->blocks = blocks;
        segment->room = room;
    }
    segment->blocks[segment->n_blocks] = (taken_block){id, -1, NULL};
    segment->numbers[id] = (int32_t)++segment->n_blocks;
    return segment->n_blocks - 1;
}

static int take_cells(sb3x_segment *segment, const int64_t *cells, int64_t n) {
    const sb3x_store *store = segment->store;
    const int64_t n_columns = store->config.n_columns, block_frames = store->config.block_frames;
    for (int64_t i = 0; i < n * n_columns; i++) {
        int64_t token = head_of(store, cells[i / n_columns], i % n_columns);
        segment->heads[i] = 0;
        if (token < 0) continue;
        int32_t id = (int32_t)(token / block_frames);
        int64_t number = number_of(segment, id);
        if (number < 0) return 0;
        if (token % block_frames < store->config.stack - 1 && segment->blocks[number].previous < 0) {
            int64_t previous = number_of(segment, store->blocks[id].previous);
            if (previous < 0) return 0;
            segment->blocks[number].previous = previous;
        }
        segment->heads[i] = number * block_frames + token % block_frames + 1;
    }
    for (int64_t i = 0, n_here = segment->n_blocks; i < n_here; i++) {
        int32_t base = store->blocks[segment->blocks[i].id].base;
        if (base >= 0 && store->blocks[segment->blocks[i].id].length > 0 && number_of(segment, base) < 0) return 0;
    }
    return 1;
}

/* The frames of an open block; `row` gets what they are written as. */
static int take_open_block(sb3x_segment *segment, taken_block *taken, int64_t *row) {
    const sb3x_store *store = segment->store;
    const stream *stream = &store->streams[-1 - store->blocks[taken->id].place];
    const sb3x_shape shape = shape_of(&store->config);
    const uint8_t *frames = stream->rows + store->config.stack * store->config.frame_bytes;
    const int64_t n_bytes = stream->fill * store->config.frame_bytes;
    taken->open_bytes = sb3x_allocate((size_t)n_bytes);
    if (!taken->open_bytes) return 0;
    int64_t length = sb3x_delta_encode(&shape, frames, stream->fill, NULL, taken->open_bytes, n_bytes - 1);
    row[ROW_BASE] = length > 0 ? BLOCK_DELTA : BLOCK_RAW;
    row[ROW_LENGTH] = length > 0 ? length : n_bytes;
    row[ROW_PIECE] = 0;
    if (length <= 0) memcpy(taken->open_bytes, frames, (size_t)n_bytes);
    return 1;
}

static int take_blocks(sb3x_segment *segment) {
    const sb3x_store *store = segment->store;
    for (int64_t i = 0; i < segment->n_blocks; i++) {
        taken_block *taken = &segment->blocks[i];
        const block *one = &store->blocks[taken->id];
        int64_t *row = segment->table + i * ROW_NUMBERS;
        row[ROW_PREVIOUS] = taken->previous;
        if (one->length == 0) {
            if (!take_open_block(segment, taken, row)) return 0;
        } else {
            row[ROW_BASE] = one->base >= 0 ? segment->numbers[one->base] - 1 : one->base;
            row[ROW_LENGTH] = one->length;
            row[ROW_PIECE] = (int64_t)one->piece;
        }
        segment->n_bytes += row[ROW_LENGTH];
    }
    return 1;
}

sb3x_segment *sb3x_take(const sb3x_store *store, const int64_t *cells, int64_t n, int32_t *error) {
    *error = store->config.frames == SB3X_FRAMES_OUTSIDE ? SB3X_BAD_ARGUMENT : SB3X_OK;
    for (int64_t i = 0; i < n && *error == SB3X_OK; i++)
        if (cells[i] < 0 || cells[i] >= store->config.n_cells) *error = SB3X_BAD_CELL;
    if (*error != SB3X_OK) return NULL;
    *error = SB3X_NO_MEMORY;
    sb3x_segment *segment = sb3x_allocate_zeros(sizeof(sb3x_segment));
    if (!segment) return NULL;
    segment->store = store;
    segment->heads = sb3x_allocate((size_t)(n * store->config.n_columns) * sizeof(int64_t));
    segment->numbers = sb3x_allocate_zeros((size_t)store->n_blocks * sizeof(int32_t));
    int is_taken = segment->heads && segment->numbers && take_cells(segment, cells, n);
    if (is_taken) segment->table = sb3x_allocate((size_t)(segment->n_blocks * ROW_NUMBERS) * sizeof(int64_t));
    if (!is_taken || !segment->table || !take_blocks(segment)) {
        sb3x_free_segment(segment);
        return NULL;
    }
    *error = SB3X_OK;
    return segment;
}

void sb3x_look_at_segment(const sb3x_segment *segment, sb3x_taken *taken) {
    *taken = (sb3x_taken){segment->heads, segment->n_blocks, segment->table, segment->n_bytes};
}

int64_t sb3x_read_segment(sb3x_segment *segment, uint8_t *out, int64_t room) {
    int64_t n = 0;
    while (n < room && segment->next < segment->n_blocks) {
        const taken_block *taken = &segment->blocks[segment->next];
        const uint8_t *data = taken->open_bytes ? taken->open_bytes : segment->store->blocks[taken->id].data;
        int64_t left = segment->table[segment->next * ROW_NUMBERS + ROW_LENGTH] - segment->at;
        int64_t copied = left < room - n ? left : room - n;
        memcpy(out + n, data + segment->at, (size_t)copied);
        n += copied;
        segment->at += copied;
        if (copied < left) break;
        segment->next++;
        segment->at = 0;
    }
    return n;
}

/* ---- receiving */

struct sb3x_incoming {
    sb3x_store *store;
    int64_t *table; /* (n, ROW_NUMBERS), as it was given */
    int32_t *ids;   /* in the store; each has a reference from here */
    int64_t n, filled;
};

void sb3x_end_receiving(sb3x_incoming *incoming) {
    if (!incoming) return;
    sb3x_store *store = incoming->store;
    for (int64_t i = 0; incoming->ids && i < incoming->n; i++)
        if (incoming->ids[i] >= 0) release_block(store, incoming->ids[i]);
    sb3x_release(incoming->table);
    sb3x_release(incoming->ids);
    sb3x_release(incoming);
    tidy_chunks(store);
}

/* Whether what the table says of a block is something that sb3x_take would say. */
static int check_row(const sb3x_store *store, const int64_t *table, int64_t n, int64_t i) {
    const int64_t *row = table + i * ROW_NUMBERS, size = store->config.frame_bytes, block_bytes = store->block_bytes;
    const int64_t previous = row[ROW_PREVIOUS], base = row[ROW_BASE], length = row[ROW_LENGTH];
    if (previous < -1 || previous >= n || previous == i || base >= n || base <= BLOCK_CODED - MOST_CODECS) return 0;
    if (length < 1 || length > block_bytes || row[ROW_PIECE] < 0 || row[ROW_PIECE] > INT16_MAX) return 0;
    if (base == BLOCK_RAW ? length % size != 0 : length == block_bytes) return 0;
    if (base >= 0) {
        const int64_t *frame = table + base * ROW_NUMBERS;
        if (frame[ROW_BASE] != BLOCK_RAW || frame[ROW_LENGTH] != size) return 0;
    }
    const block pieces = {.piece = (uint64_t)row[ROW_PIECE]};
    return !pieces.piece || (base != BLOCK_RAW && row[ROW_PIECE] < store->config.block_frames &&
                             count_pieces(store, &pieces) <= MOST_PIECES);
}

/* Numbers of the store for all blocks, with links among them. */
static int32_t number_blocks(sb3x_incoming *incoming) {
    sb3x_store *store = incoming->store;
    const int64_t n = incoming->n;
    int64_t in_use = 0;
    for (int64_t i = 0; i < store->n_blocks; i++) in_use += store->blocks[i].references > 0;
    if (in_use + n > store->most_blocks) return SB3X_TOO_LARGE; /* free ones are used again */
    if (!grow_blocks(store, n)) return SB3X_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) incoming->ids[i] = new_block(store, -1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t *row = incoming->table + i * ROW_NUMBERS;
        block *one = &store->blocks[incoming->ids[i]];
        if (row[ROW_PREVIOUS] >= 0) one->previous = incoming->ids[row[ROW_PREVIOUS]];
        one->piece = (uint64_t)row[ROW_PIECE];
        one->base = row[ROW_BASE] >= 0 ? incoming->ids[row[ROW_BASE]] : (int32_t)row[ROW_BASE];
        if (one->base >= 0) store->blocks[one->base].references++;
        if (one->base != BLOCK_RAW) store->has_encoded = 1;
    }
    return SB3X_OK;
}

sb3x_incoming *sb3x_receive(sb3x_store *store, const int64_t *table, int64_t n, int32_t *error) {
    *error = store->config.frames == SB3X_FRAMES_OUTSIDE || n < 0 ? SB3X_BAD_ARGUMENT : SB3X_OK;
    int any_delta = 0;
    for (int64_t i = 0; i < n && *error == SB3X_OK; i++) {
        if (!check_row(store, table, n, i)) *error = SB3X_CORRUPT;
        any_delta = any_delta || is_delta((int32_t)table[i * ROW_NUMBERS + ROW_BASE]);
    }
    if (*error != SB3X_OK) return NULL;
    store->n_items = 0; /* a plan counts on room that the blocks may take */
    drop_given(store);
    *error = SB3X_NO_MEMORY;
    if (any_delta && !allocate_encodings(store, SB3X_FRAMES_DELTA)) return NULL;
    sb3x_incoming *incoming = sb3x_allocate_zeros(sizeof(sb3x_incoming));
    if (!incoming) return NULL;
    const size_t bytes = (size_t)(n * ROW_NUMBERS) * sizeof(int64_t);
    incoming->store = store;
    incoming->table = sb3x_allocate(bytes);
    incoming->ids = sb3x_allocate((size_t)n * sizeof(int32_t));
    if (incoming->table && incoming->ids) {
        if (n > 0) memcpy(incoming->table, table, bytes);
        incoming->n = n;
        for (int64_t i = 0; i < n; i++) incoming->ids[i] = -1;
        *error = number_blocks(incoming);
    }
    if (*error == SB3X_OK) return incoming;
    sb3x_end_receiving(incoming);
    return NULL;
}

int32_t sb3x_receive_bytes(sb3x_incoming *incoming, const uint8_t *data, int64_t n) {
    sb3x_store *store = incoming->store;
    for (; n > 0; incoming->filled++) {
        if (incoming->filled == incoming->n) return SB3X_CORRUPT;
        int64_t length = incoming->table[incoming->filled * ROW_NUMBERS + ROW_LENGTH];
        if (length > n) return SB3X_CORRUPT;
        if (!reserve_chunks(store, 1)) return refusal_of(store);
        put_bytes(store, incoming->ids[incoming->filled], data, length);
        data += length;
        n -= length;
    }
    return SB3X_OK;
}

/* Whether an observation that ends with this token can be read as far as the table shows. */
static int check_token(const sb3x_incoming *incoming, int64_t token) {
    const sb3x_config *config = &incoming->store->config;
    const int64_t number = token / config->block_frames, index = token % config->block_frames;
    if (number >= incoming->n) return 0;
    const int64_t *row = incoming->table + number * ROW_NUMBERS;
    if (row[ROW_BASE] == BLOCK_RAW && index >= row[ROW_LENGTH] / config->frame_bytes) return 0;
    if (index >= config->stack - 1) return 1;
    if (row[ROW_PREVIOUS] < 0) return 0;
    const int64_t *before = incoming->table + row[ROW_PREVIOUS] * ROW_NUMBERS;
    return before[ROW_BASE] != BLOCK_RAW || before[ROW_LENGTH] == incoming->store->block_bytes;
}

int32_t sb3x_receive_cells(sb3x_incoming *incoming, const int64_t *cells, int64_t n, const int64_t *heads) {
    sb3x_store *store = incoming->store;
    const int64_t n_columns = store->config.n_columns, block_frames = store->config.block_frames;
    if (incoming->filled < incoming->n) return SB3X_CORRUPT;
    for (int64_t i = 0; i < n; i++)
        if (cells[i] < 0 || cells[i] >= store->config.n_cells) return SB3X_BAD_CELL;
    for (int64_t i = 0; i < n * n_columns; i++)
        if (heads[i] < 0 || (heads[i] > 0 && !check_token(incoming, heads[i] - 1))) return SB3X_CORRUPT;
    for (int64_t i = 0; i < n * n_columns; i++) {
        const int64_t cell = cells[i / n_columns], column = i % n_columns, old = head_of(store, cell, column);
        int64_t token = heads[i] - 1;
        if (token >= 0) {
            token = incoming->ids[token / block_frames] * block_frames + token % block_frames;
            retain_observation(store, token);
        }
        if (token >= 0 || old >= 0) set_head(store, cell, column, token);
        store->n_written += (token >= 0) - (old >= 0);
        if (old >= 0) release_observation(store, old);
    }
    return SB3X_OK;
}
