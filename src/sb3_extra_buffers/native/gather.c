/* Reading: cells -> tokens -> blocks -> observations. Each block is walked once for all observations that want it. */

#include <string.h>

#include "bytes.h"
#include "formats.h"
#include "internal.h"

/* How many observations ahead memory is asked for while one is decoded, and how many bytes of it. */
#define AHEAD 2
#define PREFETCHED_BYTES 1024
/* A batch of this many bytes or more is shared out to threads, in parts of so many bytes. */
#ifndef LARGE_BATCH_BYTES /* tests make it small */
#define LARGE_BATCH_BYTES ((int64_t)1 << 18)
#define PART_BYTES ((int64_t)1 << 17)
#endif

/* The system maps some pages around the one that was asked for. */
#define AROUND ((int64_t)1 << 16)

typedef struct {
    int64_t token; /* -1: nothing was written */
    int64_t row;   /* of the output */
} wanted;

/* ---- which tokens */

static void merge(const wanted *from, wanted *to, int64_t low, int64_t middle, int64_t high) {
    int64_t i = low, j = middle;
    for (int64_t k = low; k < high; k++) to[k] = i < middle && (j >= high || from[i].token <= from[j].token) ? from[i++] : from[j++];
}

/* Sort by token; `spare` has room for n. The result is in `list`. */
static void sort_by_token(wanted *list, wanted *spare, int64_t n) {
    enum { RUN = 16 };
    for (int64_t low = 0; low < n; low += RUN) {
        int64_t high = low + RUN < n ? low + RUN : n;
        for (int64_t i = low + 1; i < high; i++) {
            wanted one = list[i];
            int64_t j = i;
            for (; j > low && list[j - 1].token > one.token; j--) list[j] = list[j - 1];
            list[j] = one;
        }
    }
    wanted *from = list, *to = spare;
    for (int64_t width = RUN; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            merge(from, to, low, middle, high);
        }
        wanted *swap = from;
        from = to;
        to = swap;
    }
    if (from != list) memcpy(list, from, (size_t)n * sizeof(wanted));
}

static int64_t count_columns(int32_t columns) { return (columns & 1) + (columns >> 1 & 1); }

/* The cell of observation i, or -1 where there is none. */
static int64_t cell_at(const sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t i) {
    const int64_t n_streams = store->config.n_streams;
    if (!envs) return slots[i] >= 0 && slots[i] < store->config.n_cells ? slots[i] : -1;
    if (envs[i] < 0 || envs[i] >= n_streams || slots[i] < 0 || slots[i] >= store->config.n_cells / n_streams) return -1;
    return slots[i] * n_streams + envs[i];
}

/* The tokens of a batch, ascending unless no block has to be walked. `*list` is to be released. */
static int32_t list_wanted(const sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                           wanted **list) {
    if (columns < 1 || columns > (store->config.n_columns == 2 ? 3 : 1)) return SB3X_BAD_ARGUMENT;
    int64_t total = n * count_columns(columns);
    wanted *found = sb3x_allocate((size_t)total * 2 * sizeof(wanted));
    if (!found) return SB3X_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = cell_at(store, slots, envs, i), row = i;
        if (cell < 0) {
            sb3x_release(found);
            return SB3X_BAD_CELL;
        }
        for (int64_t column = 0; column < 2; column++) {
            if (!(columns >> column & 1)) continue;
            found[row] = (wanted){head_of(store, cell, column), row};
            row += n;
        }
    }
    if (store->has_encoded) sort_by_token(found, found + total, total);
    *list = found;
    return SB3X_OK;
}

/* ---- gathering */

typedef struct {
    const sb3x_store *store;
    const wanted *list;
    int64_t n;
    const sb3x_decoded *decoded;
    uint8_t *out;
    uint8_t *frames; /* `room` of them per worker: two, and those of a piece if pieces are read here */
    int64_t room;
    int64_t parts;
    _Atomic int32_t status;
} batch;

static void prefetch_block(const sb3x_store *store, int64_t token) {
    if (token < 0 || store->arena.file) return;
    const block *one = &store->blocks[token / store->config.block_frames];
    if (!one->data) return;
    int64_t begin = 0, end = one->length;
    if (one->base == BLOCK_RAW) { /* only its own frames are read */
        int64_t last = token % store->config.block_frames, first = last - store->config.stack + 1;
        begin = (first > 0 ? first : 0) * store->config.frame_bytes;
        end = (last + 1) * store->config.frame_bytes;
    }
    if (end > begin + PREFETCHED_BYTES) end = begin + PREFETCHED_BYTES;
    for (int64_t at = begin; at < end; at += 64) __builtin_prefetch(one->data + at, 0, 3);
}

static const uint8_t *find_decoded(const sb3x_decoded *decoded, int64_t number, int64_t n_frames) {
    int64_t low = 0, high = decoded ? decoded->n : 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (decoded->pieces[middle] < number)
            low = middle + 1;
        else
            high = middle;
    }
    int found = decoded && low < decoded->n && decoded->pieces[low] == number && decoded->n_frames[low] >= n_frames;
    return found ? decoded->frames[low] : NULL;
}

/* What a group of observations wants of a block. */
typedef struct {
    const batch *batch;
    int64_t begin, end; /* observations of the batch */
    int64_t id;
    const block *block;
    int64_t origin; /* taken from a token, it gives the index of its observation's first frame in the block */
} group;

/* The index, in the block, of the first frame of an observation; its other frames follow. */
static inline int64_t first_frame(const group *group, int64_t i) { return group->batch->list[i].token - group->origin; }

static inline uint8_t *place_of(const group *group, int64_t i, int64_t k) {
    const sb3x_store *store = group->batch->store;
    return group->batch->out + group->batch->list[i].row * store->observation_bytes + k * store->config.frame_bytes;
}

/* The last of frames first .. stop - 1 that an observation holds; -1 if none does. */
static int64_t last_wanted(const group *group, int64_t first, int64_t stop) {
    const int64_t stack = group->batch->store->config.stack;
    int64_t last = -1;
    for (int64_t i = group->begin; i < group->end; i++) {
        int64_t its_first = first_frame(group, i), its_stop = its_first + stack < stop ? its_first + stack : stop;
        if (its_first < stop && its_stop > first && its_stop - 1 > last) last = its_stop - 1;
    }
    return last;
}

/* Frames first .. stop - 1 of the block, which lie one behind the other, to the observations that hold them. */
static void copy_frames(const group *group, const uint8_t *frames, int64_t first, int64_t stop) {
    const sb3x_config *config = &group->batch->store->config;
    for (int64_t i = group->begin; i < group->end; i++) {
        int64_t its_first = first_frame(group, i), its_stop = its_first + config->stack;
        int64_t low = its_first > first ? its_first : first, high = its_stop < stop ? its_stop : stop;
        if (low >= high) continue;
        copy_bytes(place_of(group, i, low - its_first), frames + (low - first) * config->frame_bytes,
                   (high - low) * config->frame_bytes);
    }
}

/* The same for frames of a raw block that lies in a file: to where they belong or, if observations share frames, to `room` first. */
static int32_t read_frames(const group *group, uint8_t *room) {
    const sb3x_config *config = &group->batch->store->config;
    const int64_t size = config->frame_bytes;
    int64_t least = config->block_frames, most = 0, sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = group->begin; i < group->end; i++) {
            int64_t first = first_frame(group, i), low = first > 0 ? first : 0;
            int64_t high = first + config->stack < config->block_frames ? first + config->stack : config->block_frames;
            if (low >= high) continue;
            if (pass == 0) {
                if (low < least) least = low;
                if (high > most) most = high;
                sum += high - low;
            } else if (!read_block(group->batch->store, group->block, low * size, (high - low) * size,
                                   place_of(group, i, low - first))) {
                return SB3X_UNREADABLE;
            }
        }
        if (pass == 0 && most - least < sum) {
            if (!read_block(group->batch->store, group->block, least * size, (most - least) * size, room)) return SB3X_UNREADABLE;
            copy_frames(group, room, least, most);
            return SB3X_OK;
        }
    }
    return SB3X_OK;
}

/* The frames of a piece of `delta`, which are made one after the other: in the batch where one is wanted, else in one of two
   `spares`. */
static int32_t copy_delta(const group *group, const uint8_t *data, const uint8_t *end, int64_t first, int64_t last,
                          uint8_t *spares) {
    const sb3x_store *store = group->batch->store;
    const sb3x_shape *shape = &store->writer.shape;
    const uint8_t *base = group->block->base >= 0 ? store->blocks[group->block->base].data : NULL;
    const uint8_t *before = base ? base : store->writer.zeros;
    for (int64_t index = first; index <= last; index++) {
        uint8_t *frame = NULL;
        int64_t next = group->begin; /* observations from here on may want the same frame */
        for (; next < group->end && !frame; next++) {
            int64_t k = index - first_frame(group, next);
            if (k >= 0 && k < store->config.stack) frame = place_of(group, next, k);
        }
        if (!frame) {
            int is_spare = before == spares || before == spares + shape->bytes;
            if (is_spare && !is_packed(data, end))
                frame = (uint8_t *)before; /* nobody needs it any more */
            else
                frame = before == spares ? spares + shape->bytes : spares;
        }
        data = read_frame(shape, data, end, before, base, frame);
        if (!data) return SB3X_CORRUPT;
        for (; next < group->end; next++) {
            int64_t k = index - first_frame(group, next);
            if (k >= 0 && k < store->config.stack) copy_bytes(place_of(group, next, k), frame, shape->bytes);
        }
        before = frame;
    }
    return SB3X_OK;
}

static int format_of(const sb3x_store *store, const block *one) { return store->formats[BLOCK_CODED - one->base]; }

/* The first frames of a piece that a library has encoded, somewhere in `room`, which has store->pieces_read blocks. */
static int32_t read_piece(const sb3x_store *store, const block *one, const uint8_t *data, const uint8_t *end, uint8_t *room, int64_t n,
                          const uint8_t **frames) {
    const int64_t size = store->config.frame_bytes, channels = store->channels[BLOCK_CODED - one->base];
    int32_t status = read_format(format_of(store, one), data, end, room, n * size);
    if (status != SB3X_OK) return status;
    *frames = channels > 1 ? room + store->block_bytes : room;
    if (channels > 1) sb3x_split(room, n, size / channels, channels, 1, room + store->block_bytes);
    return SB3X_OK;
}

static int32_t copy_pieces(const group *group, uint8_t *spares) {
    const sb3x_store *store = group->batch->store;
    const int64_t block_frames = store->config.block_frames, length = piece_frames(store, group->block);
    int64_t lowest = block_frames;
    for (int64_t i = group->begin; i < group->end; i++)
        if (first_frame(group, i) < lowest) lowest = first_frame(group, i);
    for (int64_t piece = lowest > 0 ? lowest / length : 0; piece * length < block_frames; piece++) {
        int64_t first = piece * length, stop = first + length < block_frames ? first + length : block_frames;
        int64_t last = last_wanted(group, first, stop);
        if (last < 0) continue;
        const uint8_t *data, *end;
        if (!find_piece(store, group->block, piece, &data, &end)) return SB3X_CORRUPT;
        if (is_delta(group->block->base)) {
            int32_t status = copy_delta(group, data, end, first, last, spares);
            if (status != SB3X_OK) return status;
            continue;
        }
        /* A piece that its codec did not shrink is kept as it is. */
        const int is_raw = end - data == (stop - first) * store->config.frame_bytes;
        const int64_t needed = last - first + 1;
        const uint8_t *frames = data;
        if (!is_raw && format_of(store, group->block) != SB3X_READ_BY_CALLER) {
            int32_t status = read_piece(store, group->block, data, end, spares + 2 * store->config.frame_bytes, needed, &frames);
            if (status != SB3X_OK) return status;
        } else if (!is_raw) {
            frames = find_decoded(group->batch->decoded, group->id * MOST_PIECES + piece, needed);
        }
        if (!frames) return SB3X_BAD_ARGUMENT;
        copy_frames(group, frames, first, last + 1);
    }
    return SB3X_OK;
}

/* Observations begin .. end - 1, which end in the same block; `least` is the smallest index of a last frame. */
static int32_t copy_group(const batch *batch, int64_t begin, int64_t end, int64_t least, uint8_t *spares) {
    const sb3x_store *store = batch->store;
    const sb3x_config *config = &store->config;
    int64_t id = batch->list[begin].token / config->block_frames;
    const block *one = &store->blocks[id];
    if (!one->data) { /* open: all frames of its observations lie in the rows of the stream, the context before them */
        const uint8_t *rows = store->streams[-1 - one->place].rows;
        for (int64_t i = begin; i < end; i++) {
            const uint8_t *source = rows + (batch->list[i].token % config->block_frames + 1) * config->frame_bytes;
            copy_bytes(batch->out + batch->list[i].row * store->observation_bytes, source, store->observation_bytes);
        }
        return SB3X_OK;
    }
    int64_t origin = id * config->block_frames + config->stack - 1;
    for (int both = 0; both < 2; both++, origin -= config->block_frames) {
        if (both > 0) { /* what reaches back into the block before */
            if (least >= config->stack - 1) break;
            id = one->previous;
            one = &store->blocks[id];
        }
        group group = {batch, begin, end, id, one, origin};
        block read = *one;
        int32_t status = SB3X_OK;
        if (store->arena.file && one->base == BLOCK_RAW) {
            status = read_frames(&group, spares + (batch->room - config->block_frames) * config->frame_bytes);
        } else if (one->base == BLOCK_RAW) {
            copy_frames(&group, one->data, 0, config->block_frames);
        } else {
            if (store->arena.file) { /* behind the spare frames there is room for a block */
                read.data = spares + (batch->room - config->block_frames) * config->frame_bytes;
                group.block = &read;
                if (!read_block(store, one, 0, one->length, read.data)) return SB3X_UNREADABLE;
            }
            status = copy_pieces(&group, spares);
        }
        if (status != SB3X_OK) return status;
    }
    return SB3X_OK;
}

static int64_t block_at(const batch *batch, int64_t i) {
    int64_t token = batch->list[i].token;
    return token < 0 ? -1 : token / batch->store->config.block_frames;
}

/* Where a part begins: at the first observation of a block. */
static int64_t part_begin(const batch *batch, int64_t part) {
    int64_t i = part * batch->n / batch->parts;
    while (i > 0 && i < batch->n && block_at(batch, i) == block_at(batch, i - 1)) i++;
    return i;
}

static void gather_part(void *argument, int64_t part, int32_t worker) {
    batch *batch = argument;
    const sb3x_store *store = batch->store;
    const int64_t block_frames = store->config.block_frames;
    uint8_t *spares = batch->frames + worker * batch->room * store->config.frame_bytes;
    int64_t i = part_begin(batch, part), stop = part_begin(batch, part + 1);
    while (i < stop) {
        int64_t id = block_at(batch, i), begin = i, least = block_frames;
        if (id < 0) {
            memset(batch->out + batch->list[i++].row * store->observation_bytes, 0, (size_t)store->observation_bytes);
            continue;
        }
        for (; i < stop && block_at(batch, i) == id; i++) {
            int64_t index = batch->list[i].token % block_frames;
            if (index < least) least = index;
        }
        if (i + AHEAD < stop) prefetch_block(store, batch->list[i + AHEAD].token);
        int32_t status = copy_group(batch, begin, i, least, spares);
        if (status != SB3X_OK) {
            batch->status = status;
            return;
        }
    }
}

/* The pace of batches of this size, give or take a factor of two. */
static pace *pace_of(sb3x_store *store, int64_t nbytes) {
    int size = 0;
    while (size < PACES - 1 && nbytes >= 2 * LARGE_BATCH_BYTES << size) size++;
    return &store->paces[size];
}

int32_t sb3x_gather(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                    const sb3x_decoded *decoded, uint8_t *out) {
    if (store->config.frames == SB3X_FRAMES_OUTSIDE) return SB3X_BAD_ARGUMENT;
    wanted *list;
    int32_t status = list_wanted(store, slots, envs, n, columns, &list);
    if (status != SB3X_OK) return status;
    batch batch = {store, list, n * count_columns(columns), decoded, out, NULL, 2, 1, SB3X_OK};
    batch.room += store->pieces_read * store->config.block_frames;
    if (store->arena.file) batch.room += store->config.block_frames;
    int64_t nbytes = batch.n * store->observation_bytes;
    int32_t workers = 1;
    pace *pace = nbytes >= LARGE_BATCH_BYTES && !decoded && sb3x_threads() > 1 ? pace_of(store, nbytes) : NULL;
    if (pace && wants_threads(pace)) {
        workers = sb3x_threads();
        batch.parts = nbytes / PART_BYTES < batch.n ? nbytes / PART_BYTES : batch.n;
    }
    batch.frames = sb3x_allocate((size_t)(workers * batch.room * store->config.frame_bytes));
    int64_t begin = pace ? clock_microseconds() - store->expecting : 0;
    if (batch.frames)
        sb3x_run(gather_part, &batch, batch.parts, workers);
    else
        batch.status = SB3X_NO_MEMORY;
    if (pace) note_pace(pace, workers > 1, clock_microseconds() - begin, nbytes);
    store->expecting = 0;
    store->is_read_by_threads = pace && wants_threads(pace);
    sb3x_release(batch.frames);
    sb3x_release(list);
    note_reading(store, batch.n * store->config.frame_bytes); /* bases */
    return batch.status;
}

void sb3x_expect_gather(sb3x_store *store) {
    if (!store->is_read_by_threads) return;
    int64_t begin = clock_microseconds();
    sb3x_expect_call();
    store->expecting = clock_microseconds() - begin;
}

/* ---- what the caller has to do for a gather */

int64_t sb3x_most_pieces(const sb3x_store *store, int64_t n, int32_t columns) {
    /* Each frame of an observation may lie in a piece of its own. */
    return n * count_columns(columns) * store->config.stack;
}

/* The pieces of a block that hold frames first .. last, which must be decoded: their numbers, and how many frames of each. */
static int32_t list_pieces(const sb3x_store *store, int64_t id, int64_t first, int64_t last, wanted *pieces, int64_t *count) {
    const block *one = &store->blocks[id];
    if (!one->data || !is_coded(one->base) || format_of(store, one) != SB3X_READ_BY_CALLER) return SB3X_OK;
    const int64_t length = piece_frames(store, one);
    for (int64_t piece = first / length; piece <= last / length; piece++) {
        int64_t begin = piece * length, stop = begin + length < store->config.block_frames ? begin + length : store->config.block_frames;
        const uint8_t *data, *end;
        if (!find_piece(store, one, piece, &data, &end)) return SB3X_CORRUPT;
        if (end - data == (stop - begin) * store->config.frame_bytes) continue;
        pieces[(*count)++] = (wanted){id * MOST_PIECES + piece, (last < stop ? last + 1 : stop) - begin};
    }
    return SB3X_OK;
}

int32_t sb3x_coded_pieces(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                          sb3x_decoded *decoded, int64_t *n_bytes) {
    decoded->n = *n_bytes = 0;
    if (store->config.frames == SB3X_FRAMES_OUTSIDE) return SB3X_BAD_ARGUMENT;
    wanted *list;
    int32_t status = list_wanted(store, slots, envs, n, columns, &list);
    if (status != SB3X_OK) return status;
    const int64_t total = n * count_columns(columns), most = sb3x_most_pieces(store, n, columns);
    const int64_t block_frames = store->config.block_frames, stack = store->config.stack;
    wanted *pieces = sb3x_allocate((size_t)most * 2 * sizeof(wanted)); /* here: number, and how many frames */
    if (!pieces) status = SB3X_NO_MEMORY;
    int64_t count = 0;
    for (int64_t i = 0; i < total && status == SB3X_OK; i++) {
        if (list[i].token < 0) continue;
        int64_t id = list[i].token / block_frames, last = list[i].token % block_frames, first = last - stack + 1;
        if (!store->blocks[id].data) continue;
        status = list_pieces(store, id, first > 0 ? first : 0, last, pieces, &count);
        if (status == SB3X_OK && first < 0)
            status = list_pieces(store, store->blocks[id].previous, first + block_frames, block_frames - 1, pieces, &count);
    }
    if (status == SB3X_OK) sort_by_token(pieces, pieces + most, count);
    for (int64_t i = 0; i < count && status == SB3X_OK; i++) {
        if (i > 0 && pieces[i - 1].token == pieces[i].token) {
            int64_t *most_frames = &decoded->n_frames[decoded->n - 1];
            if (*most_frames < pieces[i].row) *most_frames = pieces[i].row;
        } else {
            const block *one = &store->blocks[pieces[i].token / MOST_PIECES];
            const uint8_t *data, *end;
            find_piece(store, one, pieces[i].token % MOST_PIECES, &data, &end);
            int64_t at = decoded->n++;
            decoded->pieces[at] = pieces[i].token;
            decoded->codecs[at] = BLOCK_CODED - one->base;
            decoded->begins[at] = *n_bytes;
            decoded->lengths[at] = end - data;
            decoded->n_frames[at] = pieces[i].row;
            *n_bytes += end - data;
        }
    }
    sb3x_release(pieces);
    sb3x_release(list);
    return status;
}

int32_t sb3x_coded_bytes(sb3x_store *store, const sb3x_decoded *decoded, uint8_t *out) {
    for (int64_t i = 0; i < decoded->n; i++) {
        const uint8_t *data, *end;
        int64_t id = decoded->pieces[i] / MOST_PIECES;
        if (id < 0 || id >= store->n_blocks || !store->blocks[id].data) return SB3X_BAD_ARGUMENT;
        if (!find_piece(store, &store->blocks[id], decoded->pieces[i] % MOST_PIECES, &data, &end)) return SB3X_CORRUPT;
        if (end - data != decoded->lengths[i]) return SB3X_BAD_ARGUMENT;
        memcpy(out + decoded->begins[i], data, (size_t)(end - data));
        note_reading(store, end - data + AROUND);
    }
    return SB3X_OK;
}

/* Each token once, by a table of twice as many places: a token is at the place of its hash or behind it. */
static int64_t unique_tokens(int64_t *tokens, int64_t n, int64_t *distinct, int64_t *table, int64_t places) {
    int64_t count = 0;
    for (int64_t i = 0; i < places; i++) table[i] = -1;
    for (int64_t i = 0; i < n; i++) {
        int64_t token = tokens[i];
        int64_t place = (int64_t)(((uint64_t)token * 0x9E3779B97F4A7C15ULL) >> 20) & (places - 1);
        while (table[place] >= 0 && distinct[table[place]] != token) place = (place + 1) & (places - 1);
        if (table[place] < 0) {
            table[place] = count;
            distinct[count++] = token;
        }
        tokens[i] = table[place];
    }
    return count;
}

int32_t sb3x_tokens(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns, int64_t *distinct,
                    int64_t *order, int64_t *n_distinct) {
    const int64_t stack = store->config.stack, block_frames = store->config.block_frames;
    if (columns < 1 || columns > (store->config.n_columns == 2 ? 3 : 1)) return SB3X_BAD_ARGUMENT;
    int64_t total = n * count_columns(columns) * stack, places = 16;
    while (places < 2 * total) places *= 2;
    int64_t *table = sb3x_allocate((size_t)places * sizeof(int64_t));
    if (!table) return SB3X_NO_MEMORY;
    for (int64_t i = 0; i < n; i++) {
        int64_t cell = cell_at(store, slots, envs, i), row = i;
        if (cell < 0) {
            sb3x_release(table);
            return SB3X_BAD_CELL;
        }
        for (int64_t column = 0; column < 2; column++) {
            if (!(columns >> column & 1)) continue;
            int64_t token = head_of(store, cell, column);
            for (int64_t k = stack - 1; k >= 0; k--) {
                order[row * stack + k] = token;
                if (token < 0 || k == 0) continue;
                int64_t previous = store->blocks[token / block_frames].previous;
                token = token % block_frames > 0 ? token - 1 : previous * block_frames + block_frames - 1;
            }
            row += n;
        }
    }
    *n_distinct = unique_tokens(order, total, distinct, table, places);
    sb3x_release(table);
    return SB3X_OK;
}
