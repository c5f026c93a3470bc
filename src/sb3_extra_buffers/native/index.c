/* The index: which frames make up the observation in a cell, and who still needs a block.

   A write is planned first: observations are compared with the ends of their streams, and all memory that the write may need
   is reserved. What can fail has failed by then; carrying out the plan cannot. */

#include <string.h>

#include "internal.h"

#define MOST_BLOCKS ((int64_t)INT32_MAX - 1)

/* ---- heads and blocks */

void set_head(sb3x_store *store, int64_t cell, int64_t column, int64_t token) {
    int64_t at = cell * store->config.n_columns + column;
    if (cell >= store->cells_end) store->cells_end = cell + 1;
    if (store->wide_heads)
        ((int64_t *)store->heads)[at] = token + 1;
    else
        ((int32_t *)store->heads)[at] = (int32_t)(token + 1);
}

int32_t new_block(sb3x_store *store, int32_t previous) {
    int32_t id = store->free_blocks;
    if (id >= 0)
        store->free_blocks = store->blocks[id].previous;
    else
        id = (int32_t)store->n_blocks++;
    store->blocks[id] = (block){.references = 1, .previous = previous, .base = BLOCK_RAW, .place = NO_PLACE};
    return id;
}

static block free_block(int32_t next) { return (block){.previous = next, .base = BLOCK_RAW, .place = NO_PLACE}; }

void release_block(sb3x_store *store, int32_t id) {
    while (id >= 0) {
        block *released = &store->blocks[id];
        if (--released->references > 0) return;
        int32_t base = released->base;
        if (store->config.frames == SB3X_FRAMES_OUTSIDE) {
            store->freed[store->n_freed++] = id; /* used again when the caller has let go of its frames */
        } else {
            free_bytes(store, released);
            *released = free_block(store->free_blocks);
            store->free_blocks = id;
        }
        id = base;
    }
}

void retain_observation(sb3x_store *store, int64_t token) {
    block *last = &store->blocks[token / store->config.block_frames];
    last->references++;
    if (token % store->config.block_frames < store->config.stack - 1) store->blocks[last->previous].references++;
}

void release_observation(sb3x_store *store, int64_t token) {
    int32_t last = (int32_t)(token / store->config.block_frames);
    if (token % store->config.block_frames < store->config.stack - 1) release_block(store, store->blocks[last].previous);
    release_block(store, last);
}

/* ---- planning */

/* Never trust, always compare: only what is really there already is shared. */
static int64_t count_new_frames(const sb3x_store *store, const uint8_t *observation, const uint8_t *last) {
    const int64_t stack = store->config.stack, size = store->config.frame_bytes;
    if (memcmp(observation, last, (size_t)store->observation_bytes) == 0) return 0;
    if (stack > 1 && memcmp(observation, last + size, (size_t)((stack - 1) * size)) == 0) return 1;
    return stack;
}

static const uint8_t *last_observation(const sb3x_store *store, const stream *stream) {
    int is_outside = store->config.frames == SB3X_FRAMES_OUTSIDE;
    return stream->rows + (is_outside ? 0 : stream->fill * store->config.frame_bytes);
}

/* The token of a frame that is added so many places behind the end of the open block's beginning. */
static int64_t token_at(const sb3x_store *store, const stream *stream, int64_t position) {
    const int64_t block_frames = store->config.block_frames;
    int64_t ahead = position / block_frames;
    int32_t id = ahead == 0 ? stream->open : stream->reserved[ahead - 1];
    return (int64_t)id * block_frames + position % block_frames;
}

static void plan_observation(sb3x_store *store, int64_t cell, int64_t column, const uint8_t *observation) {
    int32_t number = (int32_t)(cell % store->config.n_streams);
    const stream *stream = &store->streams[number];
    const item *before = store->n_items > 0 ? &store->items[store->n_items - 1] : NULL;
    int64_t n_new = store->config.stack;
    if (before && before->stream == number) /* the other column of the same cell */
        n_new = count_new_frames(store, observation, before->observation);
    else if (stream->head >= 0)
        n_new = count_new_frames(store, observation, last_observation(store, stream));
    store->items[store->n_items++] = (item){cell, observation, n_new, number, (int32_t)column, NULL};
}

/* Both columns of a cell, as they nearly always are: obs is what was written last, next_obs goes on from it by one frame. So
   each frame is compared twice while it is in the cache, and the new one is encoded. 0 if they are anything else. */
static int plan_usual_pair(sb3x_store *store, int64_t cell, const uint8_t *first, const uint8_t *second) {
    const int64_t stack = store->config.stack;
    const size_t size = (size_t)store->config.frame_bytes;
    int32_t number = (int32_t)(cell % store->config.n_streams);
    const stream *stream = &store->streams[number];
    if (stream->head < 0) return 0;
    const uint8_t *frame = last_observation(store, stream);
    for (int64_t k = 0; k < stack; k++, frame += size) {
        const uint8_t *seen = first + k * (int64_t)size, *again = k > 0 ? second + (k - 1) * (int64_t)size : seen;
        if (memcmp(seen, frame, size) != 0) return 0;
        if (again != seen && memcmp(again, frame, size) != 0) return 0; /* the same bytes where stacks overlap in memory */
    }
    const uint8_t *newest = second + (stack - 1) * (int64_t)size;
    if (memcmp(newest, frame - size, size) == 0) return 0;
    store->items[store->n_items++] = (item){cell, first, 0, number, 0, NULL};
    store->items[store->n_items++] = (item){cell, second, 1, number, 1, stage_frame(store, stream, newest)};
    return 1;
}

int grow_blocks(sb3x_store *store, int64_t n) {
    if (store->n_blocks + n <= store->blocks_room) return 1;
    if (store->n_blocks + n > MOST_BLOCKS) return 0;
    int64_t room = store->blocks_room + store->blocks_room / 2 + n;
    if (room > MOST_BLOCKS) room = MOST_BLOCKS;
    block *blocks = sb3x_reallocate(store->blocks, (size_t)room * sizeof(block));
    if (!blocks) return 0;
    store->blocks = blocks;
    store->blocks_room = room;
    return 1;
}

/* Reserve all memory that the planned write may need. */
static int32_t reserve_for_plan(sb3x_store *store) {
    int64_t seals = 0;
    for (int64_t i = 0; i < store->n_items; i++) {
        stream *stream = &store->streams[store->items[i].stream];
        int64_t total = stream->fill;
        int64_t first = i;
        while (i + 1 < store->n_items && store->items[i + 1].stream == store->items[first].stream) i++;
        for (int64_t k = first; k <= i; k++) total += store->items[k].n_new;
        stream->seals = (int32_t)(total / store->config.block_frames);
        stream->sealed = 0;
        seals += stream->seals;
    }
    if (seals == 0) return SB3X_OK;
    if (!grow_blocks(store, 2 * seals)) return SB3X_NO_MEMORY; /* for each a reserved block, and perhaps a base */
    if (store->config.frames == SB3X_FRAMES_OUTSIDE) return SB3X_OK;
    int has_bases = store->has_encoded || store->frames == SB3X_FRAMES_DELTA;
    return reserve_chunks(store, has_bases ? 2 * seals : seals) ? SB3X_OK : refusal_of(store);
}

static int32_t plan_step(sb3x_store *store, int64_t slot, const uint8_t *first, const uint8_t *second) {
    const int64_t n_streams = store->config.n_streams;
    store->n_items = 0;
    if (slot < 0 || slot >= store->config.n_cells / n_streams) return SB3X_BAD_CELL;
    for (int64_t i = 0; i < n_streams; i++) {
        int64_t cell = slot * n_streams + i, at = i * store->observation_bytes;
        if (store->config.n_columns == 1) { /* there is no second */
            plan_observation(store, cell, 0, first + at);
        } else if (!plan_usual_pair(store, cell, first + at, second + at)) {
            plan_observation(store, cell, 0, first + at);
            plan_observation(store, cell, 1, second + at);
        }
    }
    return reserve_for_plan(store);
}

/* ---- carrying out */

void drop_given(sb3x_store *store) {
    for (int64_t i = 0; store->any_given && i < store->config.n_streams * store->parts_room; i++) {
        sb3x_release(store->parts[i].given);
        store->parts[i].given = NULL;
        store->parts[i].length = -1;
    }
    store->any_given = 0;
}

static void carry_out(sb3x_store *store) {
    const int is_outside = store->config.frames == SB3X_FRAMES_OUTSIDE;
    int64_t seals = 0;
    for (int64_t i = 0; i < store->n_items; i++) {
        const item *item = &store->items[i];
        stream *stream = &store->streams[item->stream];
        if (item->n_new > 0) {
            stream->head = token_at(store, stream, stream->fill + item->n_new - 1);
            if (is_outside) {
                stream->fill += item->n_new;
                memcpy(stream->rows, item->observation, (size_t)store->observation_bytes);
            } else {
                const int64_t size = store->config.frame_bytes;
                add_frames(store, stream, item->observation + (store->config.stack - item->n_new) * size, item->n_new, item->staged);
            }
        }
        /* Retain the new blocks before the old ones are released: they may be the same. */
        retain_observation(store, stream->head);
        int64_t old = head_of(store, item->cell, item->column);
        set_head(store, item->cell, item->column, stream->head);
        if (old >= 0)
            release_observation(store, old);
        else
            store->n_written++;
        for (; stream->fill >= store->config.block_frames; seals++) seal_block(store, stream);
    }
    store->n_items = 0;
    drop_given(store);
    if (!is_outside && seals > 0) tidy_chunks(store);
}

/* ---- pieces that the caller encodes */

/* List the pieces that a stream will fill, counted from the beginning of its open block. */
static void list_parts(const sb3x_store *store, stream *stream, int64_t n_new) {
    const int64_t block_frames = store->config.block_frames, end = stream->fill + n_new;
    const block *open = &store->blocks[stream->open];
    stream->n_parts = stream->taken = 0;
    for (int64_t begin = 0; begin < end && stream->n_parts < store->parts_room;) {
        int is_next = begin >= block_frames;
        /* The caller encodes by the codec that is in use now: a block that was opened for another one is kept as it is. */
        if (store->frames != SB3X_FRAMES_CODEC ||
            (!is_next && (stream->encoded < 0 || open->base != BLOCK_CODED - store->codec))) {
            begin += block_frames;
            continue;
        }
        block next = {.piece = piece_of_new_block(store)};
        int64_t stop = begin + piece_frames(store, is_next ? &next : open), block_end = (begin / block_frames + 1) * block_frames;
        if (stop > block_end) stop = block_end;
        if (stop > end) return;
        int is_there = !is_next && begin / piece_frames(store, open) < stream->pieces;
        if (!is_there) {
            part *listed = &stream->parts[stream->n_parts++];
            listed->begin = begin;
            listed->end = stop;
        }
        begin = stop;
    }
}

/* Put the new frames behind the open blocks of which pieces will be full, where nobody sees them yet. Whether any must be
   encoded. */
static int stage_parts(sb3x_store *store) {
    const int64_t size = store->config.frame_bytes, stack = store->config.stack;
    store->next_full = 0;
    for (int64_t i = 0; i < store->n_items;) {
        stream *stream = &store->streams[store->items[i].stream];
        int64_t first = i, n_new = 0;
        for (; i < store->n_items && store->items[i].stream == store->items[first].stream; i++) n_new += store->items[i].n_new;
        list_parts(store, stream, n_new);
        if (stream->n_parts == 0) continue;
        uint8_t *at = stream->rows + (stack + stream->fill) * size;
        for (int64_t k = first; k < i; k++) {
            const item *item = &store->items[k];
            memcpy(at, item->observation + (stack - item->n_new) * size, (size_t)(item->n_new * size));
            at += item->n_new * size;
        }
    }
    int64_t number, part, n_frames;
    return sb3x_full_piece(store, &number, &part, &n_frames) != NULL;
}

const uint8_t *sb3x_full_piece(sb3x_store *store, int64_t *number, int64_t *index, int64_t *n_frames) {
    if (!store->parts) return NULL;
    for (; store->next_full < store->n_items; store->next_full++) {
        int32_t i = store->items[store->next_full].stream;
        const stream *stream = &store->streams[i];
        for (int32_t k = 0; k < stream->n_parts; k++) {
            const part *part = &stream->parts[k];
            if (part->length >= 0) continue;
            *number = i;
            *index = k;
            *n_frames = part->end - part->begin;
            return stream->rows + (store->config.stack + part->begin) * store->config.frame_bytes;
        }
    }
    return NULL;
}

int64_t sb3x_codec_of(const sb3x_store *store, int64_t number, int64_t index) {
    if (!store->parts || number < 0 || number >= store->config.n_streams) return -1;
    const stream *stream = &store->streams[number];
    if (index < 0 || index >= stream->n_parts) return -1;
    return stream->parts[index].begin < store->config.block_frames ? BLOCK_CODED - store->blocks[stream->open].base : store->codec;
}

int32_t sb3x_give_encoded(sb3x_store *store, int64_t number, int64_t index, const uint8_t *data, int64_t length) {
    if (!store->parts || number < 0 || number >= store->config.n_streams || index < 0 ||
        index >= store->streams[number].n_parts || length < 0)
        return SB3X_BAD_ARGUMENT;
    part *part = &store->streams[number].parts[index];
    uint8_t *copy = NULL;
    if (length > 0 && length < (part->end - part->begin) * store->config.frame_bytes) {
        copy = sb3x_allocate((size_t)length);
        if (!copy) return SB3X_NO_MEMORY;
        memcpy(copy, data, (size_t)length);
    }
    sb3x_release(part->given);
    part->given = copy;
    part->length = copy ? length : 0;
    store->any_given = 1;
    return SB3X_OK;
}

/* What planning ends with: blocks that are to be encoded are laid out, or the plan is given up. */
static int32_t finish_plan(sb3x_store *store, int32_t planned) {
    store->waits_for_encoded = planned == SB3X_OK && store->parts && stage_parts(store);
    if (store->waits_for_encoded) return SB3X_ENCODE;
    if (planned != SB3X_OK) {
        store->n_items = 0;
        drop_given(store);
    }
    return planned;
}

int32_t sb3x_write(sb3x_store *store, int64_t column, const int64_t *cells, int64_t n, const uint8_t *observations,
                   int64_t *done) {
    if (store->config.frames == SB3X_FRAMES_OUTSIDE || column < 0 || column >= store->config.n_columns)
        return SB3X_BAD_ARGUMENT;
    if (*done < 0) {
        *done = 0;
        store->n_items = 0;
        drop_given(store);
        for (int64_t i = 0; i < n; i++)
            if (cells[i] < 0 || cells[i] >= store->config.n_cells) return SB3X_BAD_CELL;
    }
    for (; *done < n; ++*done) {
        store->n_items = 0;
        plan_observation(store, cells[*done], column, observations + *done * store->observation_bytes);
        int32_t status = finish_plan(store, reserve_for_plan(store));
        if (status != SB3X_OK) return status;
        carry_out(store);
    }
    return SB3X_OK;
}

int32_t sb3x_write_steps(sb3x_store *store, int64_t slot, int64_t n, const uint8_t *first, const uint8_t *second, int64_t stride,
                         int64_t *done) {
    const int64_t n_slots = store->config.n_cells / store->config.n_streams;
    if (store->config.frames == SB3X_FRAMES_OUTSIDE || n < 0) return SB3X_BAD_ARGUMENT;
    if (*done < 0) {
        *done = 0;
        store->n_items = 0;
        drop_given(store);
        if (slot < 0 || n > n_slots || slot > n_slots - n) return SB3X_BAD_CELL;
    }
    for (; *done < n; ++*done) {
        const uint8_t *next = second ? second + *done * stride : NULL;
        int32_t status = finish_plan(store, plan_step(store, slot + *done, first + *done * stride, next));
        if (status != SB3X_OK) return status;
        carry_out(store);
    }
    return SB3X_OK;
}

/* ---- frames that the caller keeps */

static void list_new_frames(sb3x_store *store, sb3x_changes *changes) {
    const int64_t stack = store->config.stack, size = store->config.frame_bytes;
    int64_t n = 0, position = 0;
    for (int64_t i = 0; i < store->n_items; i++) {
        const item *item = &store->items[i];
        const stream *stream = &store->streams[item->stream];
        if (i == 0 || store->items[i - 1].stream != item->stream) position = stream->fill;
        int is_padding = item->n_new == stack; /* a reset begins with frames of zeros, which need no place */
        for (int64_t k = stack - item->n_new; k < stack; k++, position++) {
            const uint8_t *frame = item->observation + k * size;
            is_padding = is_padding && frame[0] == 0 && memcmp(frame, frame + 1, (size_t)(size - 1)) == 0;
            if (is_padding) continue;
            store->new_tokens[n] = token_at(store, stream, position);
            memcpy(store->new_frames + n * size, frame, (size_t)size);
            n++;
        }
    }
    *changes = (sb3x_changes){n, store->new_tokens, store->new_frames, store->n_freed, store->freed};
}

int32_t sb3x_plan(sb3x_store *store, int64_t slot, const uint8_t *first, const uint8_t *second, int32_t resume,
                  sb3x_changes *changes) {
    if (store->n_freed > 0) return SB3X_BAD_ARGUMENT;
    if (!resume) drop_given(store);
    int32_t status = finish_plan(store, plan_step(store, slot, first, second));
    if (status == SB3X_OK && store->config.frames == SB3X_FRAMES_OUTSIDE) list_new_frames(store, changes);
    return status;
}

int32_t sb3x_plan_cells(sb3x_store *store, int64_t column, const int64_t *cells, int64_t n, const uint8_t *observations,
                        sb3x_changes *changes) {
    if (store->config.frames != SB3X_FRAMES_OUTSIDE || store->n_freed > 0 || column < 0 || column >= store->config.n_columns ||
        n > store->config.n_streams)
        return SB3X_BAD_ARGUMENT;
    store->n_items = 0;
    for (int64_t i = 0; i < store->config.n_streams; i++) store->streams[i].seals = 0;
    for (int64_t i = 0; i < n; i++)
        if (cells[i] < 0 || cells[i] >= store->config.n_cells) return SB3X_BAD_CELL;
    for (int64_t i = 0; i < n; i++) {
        stream *stream = &store->streams[cells[i] % store->config.n_streams];
        if (stream->seals < 0) { /* this stream was named before */
            store->n_items = 0;
            return SB3X_BAD_ARGUMENT;
        }
        plan_observation(store, cells[i], column, observations + i * store->observation_bytes);
        stream->seals = -1;
    }
    int32_t status = finish_plan(store, reserve_for_plan(store));
    if (status == SB3X_OK) list_new_frames(store, changes);
    return status;
}

int32_t sb3x_commit(sb3x_store *store, sb3x_changes *changes) {
    if (store->n_items > 0 && !store->waits_for_encoded) carry_out(store);
    if (changes) sb3x_freed(store, changes);
    return SB3X_OK;
}

int32_t sb3x_erase(sb3x_store *store, const int64_t *cells, int64_t n, sb3x_changes *changes) {
    const int is_outside = store->config.frames == SB3X_FRAMES_OUTSIDE;
    if (store->n_freed > 0 || n > store->config.n_streams) return SB3X_BAD_ARGUMENT;
    for (int64_t i = 0; i < n; i++)
        if (cells[i] < 0 || cells[i] >= store->config.n_cells) return SB3X_BAD_CELL;
    store->n_items = 0;
    drop_given(store);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t column = 0; column < store->config.n_columns; column++) {
            int64_t old = head_of(store, cells[i], column);
            if (old < 0) continue;
            set_head(store, cells[i], column, -1);
            store->n_written--;
            release_observation(store, old);
        }
    }
    if (!is_outside) tidy_chunks(store);
    sb3x_freed(store, changes);
    return SB3X_OK;
}

void sb3x_freed(const sb3x_store *store, sb3x_changes *changes) {
    *changes = (sb3x_changes){0, store->new_tokens, store->new_frames, store->n_freed, store->freed};
}

void sb3x_let_go(sb3x_store *store) {
    for (int64_t i = 0; i < store->n_freed; i++) {
        int32_t id = (int32_t)store->freed[i];
        store->blocks[id] = free_block(store->free_blocks);
        store->free_blocks = id;
    }
    store->n_freed = 0;
}

int64_t sb3x_token_end(const sb3x_store *store) { return store->n_blocks * store->config.block_frames; }
