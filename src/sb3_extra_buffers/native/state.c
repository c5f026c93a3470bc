/* A store as a whole: what it takes, whether it is consistent, and its bytes for saving.

   Saved, all numbers little endian, one part behind the other:
     10 x int64    magic, blocks, heads, base, age of the base, unhelpful blocks, frames, codec, piece, best piece
     blocks        int32 previous, int32 base, int48 length, int16 piece: both -1 free; length 0 open, reserved or kept outside,
                   else sealed
     heads         int64 token + 1, up to the last cell that was written
     streams       int64 fill, head, open, reserved 0, reserved 1, bytes; then the rows as `delta`, or as they are
     sealed blocks, one behind the other
   References and free blocks are not saved: they follow from the rest. */

#include <string.h>

#include "internal.h"

#define MAGIC 0x3258334253LL /* "SB3X2" */

/* No count of blocks gets there. */
#define MOST_COUNTED ((int64_t)1 << 62)

enum { HEADER_NUMBERS = 10, STREAM_NUMBERS = 6 };

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

static int check_links(const sb3x_store *store);

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

/* ---- saving */

typedef struct {
    uint8_t *at; /* NULL: only count */
    int64_t n;
} writer;

static void write_bytes(writer *writer, const void *data, int64_t n) {
    if (writer->at && n > 0) memcpy(writer->at + writer->n, data, (size_t)n);
    writer->n += n;
}

static void write_number(writer *writer, int64_t number) { write_bytes(writer, &number, 8); }

static int64_t used_heads(const sb3x_store *store) {
    const int64_t n_columns = store->config.n_columns;
    int64_t used = store->cells_end * n_columns;
    while (used > 0 && head_of(store, (used - 1) / n_columns, (used - 1) % n_columns) < 0) used--;
    return used;
}

static int64_t rows_to_save(const sb3x_store *store, const stream *stream) {
    return store->config.stack + (store->config.frames == SB3X_FRAMES_OUTSIDE ? 0 : stream->fill);
}

/* The rows of a stream; encoded to `room`, which has space for them, where that makes them smaller. */
static void write_stream(writer *writer, const sb3x_store *store, const stream *stream, uint8_t *room) {
    int64_t nbytes = rows_to_save(store, stream) * store->config.frame_bytes, length = -1;
    const sb3x_shape shape = shape_of(&store->config);
    if (room) length = sb3x_delta_encode(&shape, stream->rows, rows_to_save(store, stream), NULL, room, nbytes);
    const int64_t numbers[STREAM_NUMBERS] = {
        stream->fill, stream->head, stream->open, stream->reserved[0], stream->reserved[1], length};
    write_bytes(writer, numbers, sizeof numbers);
    if (length >= 0)
        write_bytes(writer, room, length);
    else
        write_bytes(writer, stream->rows, nbytes);
}

static void write_store(writer *writer, const sb3x_store *store, uint8_t *room) {
    const int64_t heads = used_heads(store), n_columns = store->config.n_columns;
    const int64_t header[HEADER_NUMBERS] = {MAGIC,           store->n_blocks, heads,        store->base,  store->base_age,
                                            store->unhelpful, store->frames,   store->codec, store->piece, store->best_piece};
    write_bytes(writer, header, sizeof header);
    for (int64_t i = 0; i < store->n_blocks; i++) {
        const block *one = &store->blocks[i];
        write_bytes(writer, &one->previous, 4);
        write_bytes(writer, &one->base, 4);
        write_number(writer, one->references > 0 ? one->length | (int64_t)one->piece << 48 : -1);
    }
    for (int64_t i = 0; i < heads; i++) write_number(writer, head_of(store, i / n_columns, i % n_columns) + 1);
    for (int64_t i = 0; i < store->config.n_streams; i++) write_stream(writer, store, &store->streams[i], room);
    for (int64_t i = 0; i < store->n_blocks; i++)
        if (store->blocks[i].references > 0) write_bytes(writer, store->blocks[i].data, store->blocks[i].length);
}

uint8_t *sb3x_save(const sb3x_store *store, int64_t *n) {
    int64_t most_rows = 0;
    for (int64_t i = 0; i < store->config.n_streams; i++) {
        int64_t rows = rows_to_save(store, &store->streams[i]);
        if (rows > most_rows) most_rows = rows;
    }
    const int64_t room_bytes = most_rows * store->config.frame_bytes;
    uint8_t *room = sb3x_map((size_t)room_bytes);
    writer counter = {NULL, 0};
    write_store(&counter, store, NULL); /* at most this */
    *n = counter.n;
    writer writer = {room ? sb3x_allocate((size_t)counter.n) : NULL, 0};
    if (writer.at) {
        write_store(&writer, store, room);
        *n = writer.n;
    }
    sb3x_unmap(room, (size_t)room_bytes);
    return writer.at;
}

void sb3x_free_saved(uint8_t *saved) { sb3x_release(saved); }

/* ---- loading */

typedef struct {
    const uint8_t *at, *end;
    int is_refused; /* memory was */
} reader;

/* The next n bytes, or NULL if there are not as many. */
static const uint8_t *read_bytes(reader *reader, int64_t n) {
    if (n < 0 || n > reader->end - reader->at) return NULL;
    const uint8_t *found = reader->at;
    reader->at += n;
    return found;
}

static int read_numbers(reader *reader, int64_t *numbers, int64_t n) {
    const uint8_t *found = read_bytes(reader, 8 * n);
    if (found) memcpy(numbers, found, (size_t)(8 * n));
    return found != NULL;
}

/* Block lengths while loading: what the file says, before it is checked. */
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

/* Whether a block that holds frames of a stream can be before another. A base of one-frame blocks looks like one of them. */
static int is_stream_block(const sb3x_store *store, int64_t id) {
    if (!is_sealed(store, id)) return 0;
    const block *one = &store->blocks[id];
    return store->config.frames == SB3X_FRAMES_OUTSIDE || one->base != BLOCK_RAW || one->length == store->block_bytes;
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
    if (one->base == BLOCK_RAW) return one->length == store->block_bytes || is_base(store, id);
    return one->length < store->block_bytes;
}

static int load_blocks(sb3x_store *store, reader *reader, int64_t n) {
    if (n < 3 * store->config.n_streams || n > store->most_blocks || n > (reader->end - reader->at) / 16) return 0;
    if (n > store->blocks_room) {
        block *blocks = sb3x_reallocate(store->blocks, (size_t)n * sizeof(block));
        reader->is_refused = !blocks;
        if (!blocks) return 0;
        store->blocks = blocks;
        store->blocks_room = n;
    }
    store->n_blocks = n;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *row = read_bytes(reader, 16);
        block *one = &store->blocks[i];
        int64_t length;
        *one = (block){.references = 1, .place = NO_PLACE};
        memcpy(&one->previous, row, 4);
        memcpy(&one->base, row + 4, 4);
        memcpy(&length, row + 8, 8);
        one->length = length & (((int64_t)1 << 47) - 1);
        one->piece = (uint64_t)length >> 48;
        if (length >= 0 && length >> 47 & 1) return 0; /* lengths are positive */
        if (length < 0) *one = (block){.previous = -1, .base = BLOCK_RAW, .place = NO_PLACE};
    }
    return 1;
}

static int load_stream(sb3x_store *store, reader *reader, int64_t number) {
    const sb3x_config *config = &store->config;
    stream *stream = &store->streams[number];
    int64_t numbers[STREAM_NUMBERS];
    if (!read_numbers(reader, numbers, STREAM_NUMBERS)) return 0;
    if (numbers[0] < 0 || numbers[0] >= config->block_frames) return 0;
    for (int k = 2; k < 5; k++) { /* open and reserved blocks: of this stream alone, one behind the other */
        if (!is_block(store, numbers[k]) || store->blocks[numbers[k]].length != 0) return 0;
        if (store->blocks[numbers[k]].place != NO_PLACE) return 0;
        if (k > 2 && store->blocks[numbers[k]].previous != numbers[k - 1]) return 0;
        store->blocks[numbers[k]].place = -1 - (int32_t)number;
    }
    stream->fill = numbers[0];
    stream->head = numbers[1];
    stream->open = (int32_t)numbers[2];
    stream->reserved[0] = (int32_t)numbers[3];
    stream->reserved[1] = (int32_t)numbers[4];
    int64_t rows = rows_to_save(store, stream), nbytes = rows * config->frame_bytes;
    const uint8_t *data = read_bytes(reader, numbers[5] >= 0 ? numbers[5] : nbytes);
    if (!data) return 0;
    if (numbers[5] >= 0) {
        const sb3x_shape shape = shape_of(config);
        int32_t status = sb3x_delta_decode(&shape, data, numbers[5], NULL, rows, stream->rows);
        reader->is_refused = status == SB3X_NO_MEMORY;
        return status == SB3X_OK;
    }
    memcpy(stream->rows, data, (size_t)nbytes);
    return 1;
}

/* Whether the links of a stream and of the heads lead to frames that are there. */
static int check_links(const sb3x_store *store) {
    const sb3x_config *config = &store->config;
    for (int64_t i = 0; i < store->n_blocks; i++)
        if (is_block(store, i) && !check_block(store, i)) return 0;
    for (int64_t i = 0; i < config->n_streams; i++) {
        const stream *stream = &store->streams[i];
        int64_t previous = store->blocks[stream->open].previous;
        if (previous >= 0 && !is_stream_block(store, previous)) return 0;
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
            if (is_open ? id != stream->open || index >= stream->fill : !is_stream_block(store, id)) return 0;
            if (index < config->stack - 1 && !is_stream_block(store, store->blocks[id].previous)) return 0;
        }
    }
    return 1;
}

static int load_payload(sb3x_store *store, reader *reader) {
    for (int64_t i = 0; i < store->n_blocks; i++) {
        int64_t length = store->blocks[i].length;
        if (store->blocks[i].references == 0 || length == 0) continue;
        const uint8_t *data = read_bytes(reader, length);
        if (!data) return 0;
        reader->is_refused = !reserve_chunks(store, 1);
        if (reader->is_refused) return 0;
        put_bytes(store, (int32_t)i, data, length);
    }
    return reader->at == reader->end;
}

/* Count references, and make a list of the blocks that have none. */
static int rebuild(sb3x_store *store, reader *reader) {
    uint32_t *counts = sb3x_allocate((size_t)store->n_blocks * sizeof(uint32_t));
    reader->is_refused = !counts;
    if (!counts) return 0;
    count_references(store, counts);
    int is_right = 1;
    for (int64_t i = store->n_blocks - 1; i >= 0; i--) {
        block *one = &store->blocks[i];
        is_right = is_right && (one->references > 0) == (counts[i] > 0);
        one->references = counts[i];
        if (counts[i] > 0) continue;
        one->previous = store->free_blocks;
        store->free_blocks = (int32_t)i;
    }
    sb3x_release(counts);
    return is_right;
}

/* How new blocks are kept, and what reading the loaded ones needs. */
static int load_ways(sb3x_store *store, reader *reader, const int64_t *ways) {
    if (store->config.frames == SB3X_FRAMES_OUTSIDE) return ways[0] == SB3X_FRAMES_OUTSIDE;
    int any_delta = 0;
    for (int64_t i = 0; i < store->n_blocks; i++) {
        if (!is_block(store, i)) continue;
        any_delta = any_delta || is_delta(store->blocks[i].base);
        store->has_encoded = store->has_encoded || store->blocks[i].base != BLOCK_RAW;
    }
    if (ways[3] < 0 || ways[3] > MOST_COUNTED) return 0;
    int32_t status = any_delta ? sb3x_keep_as(store, SB3X_FRAMES_DELTA, 0, 0) : SB3X_OK;
    if (status == SB3X_OK) status = sb3x_keep_as(store, ways[0], ways[1], ways[2]);
    store->best_piece = ways[3];
    reader->is_refused = status == SB3X_NO_MEMORY;
    return status == SB3X_OK;
}

static int load_all(sb3x_store *store, reader *reader) {
    const sb3x_config *config = &store->config;
    int64_t header[HEADER_NUMBERS];
    if (!read_numbers(reader, header, HEADER_NUMBERS) || header[0] != MAGIC) return 0;
    if (header[2] < 0 || header[2] > config->n_cells * config->n_columns) return 0;
    if (header[4] < 0 || header[4] > MOST_COUNTED || header[5] < 0 || header[5] > MOST_COUNTED) return 0;
    if (!load_blocks(store, reader, header[1])) return 0;
    for (int64_t i = 0; i < header[2]; i++) {
        int64_t head;
        if (!read_numbers(reader, &head, 1) || head < 0 || head > store->n_blocks * config->block_frames) return 0;
        set_head(store, i / config->n_columns, i % config->n_columns, head - 1);
        store->n_written += head > 0;
    }
    for (int64_t i = 0; i < config->n_streams; i++)
        if (!load_stream(store, reader, i)) return 0;
    store->base = (int32_t)header[3];
    if (header[3] != -1 && !is_base(store, header[3])) return 0;
    store->base_age = header[4];
    if (!load_ways(store, reader, header + 6)) return 0;
    store->unhelpful = header[5];
    if (!check_links(store) || !rebuild(store, reader) || !load_payload(store, reader)) return 0;
    for (int64_t i = 0; i < config->n_streams; i++) {
        stream *stream = &store->streams[i];
        stream->encoded = store->blocks[stream->open].base == BLOCK_RAW ? -1 : 0;
        stream->pieces = stream->changes = 0;
        encode_open_block(store, stream, 0, NULL); /* the caller's codec gets to it with the next step */
    }
    return 1;
}

int32_t sb3x_load(sb3x_store *store, const uint8_t *data, int64_t n) {
    reader reader = {data, n > 0 ? data + n : data, 0};
    sb3x_clear(store);
    store->n_blocks = 0;
    store->free_blocks = -1;
    if (load_all(store, &reader)) return SB3X_OK;
    store->frames = store->config.frames;
    store->codec = 0;
    store->piece = store->config.piece_frames;
    sb3x_clear(store);
    return reader.is_refused ? SB3X_NO_MEMORY : SB3X_CORRUPT;
}
