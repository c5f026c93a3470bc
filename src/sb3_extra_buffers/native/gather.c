/* Reading: cells -> tokens -> blocks -> observations. Each block is walked once for all observations that want it. */

#include <string.h>

#include "bytes.h"
#include "internal.h"

/* How many observations ahead memory is asked for while one is decoded, and how many bytes of it. */
#define AHEAD 2
#define PREFETCHED_BYTES 1024
/* A batch of this many bytes or more is shared out to threads, in parts of so many bytes. */
#ifndef LARGE_BATCH_BYTES /* tests make it small */
#define LARGE_BATCH_BYTES ((int64_t)1 << 18)
#define PART_BYTES ((int64_t)1 << 17)
#endif

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
    if (store->config.frames != SB3X_FRAMES_RAW) sort_by_token(found, found + total, total);
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
    uint8_t *frames; /* one per worker */
    int64_t parts;
    _Atomic int32_t status;
} batch;

static void prefetch_block(const sb3x_store *store, int64_t token) {
    if (token < 0) return;
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

static const uint8_t *find_decoded(const sb3x_decoded *decoded, int64_t id, int64_t n_frames) {
    int64_t low = 0, high = decoded ? decoded->n : 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (decoded->blocks[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    int found = decoded && low < decoded->n && decoded->blocks[low] == id && decoded->n_frames[low] >= n_frames;
    return found ? decoded->frames[low] : NULL;
}

/* Frames of a block that lie one behind the other, to the observations that hold them. `shift` is added to the index of an
   observation's last frame: 0, or block_frames where the observation ends in the block behind this one. */
static void copy_frames(const batch *batch, int64_t begin, int64_t end, const uint8_t *frames, int64_t shift) {
    const sb3x_config *config = &batch->store->config;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = batch->list[i].token % config->block_frames - config->stack + 1 + shift;
        int64_t low = first > 0 ? first : 0;
        int64_t high = first + config->stack < config->block_frames ? first + config->stack : config->block_frames;
        if (low >= high) continue;
        uint8_t *target = batch->out + batch->list[i].row * batch->store->observation_bytes + (low - first) * config->frame_bytes;
        copy_bytes(target, frames + low * config->frame_bytes, (high - low) * config->frame_bytes);
    }
}

/* The same for a block of patches, whose frames up to `last` have to be made one after the other. */
static int32_t copy_patched(const batch *batch, int64_t begin, int64_t end, const block *one, int64_t last, int64_t shift,
                            uint8_t *frame) {
    const sb3x_config *config = &batch->store->config;
    const uint8_t *base = one->base >= 0 ? batch->store->blocks[one->base].data : NULL;
    const uint8_t *position = one->data, *stop = one->data + one->length;
    if (base)
        copy_bytes(frame, base, config->frame_bytes);
    else
        memset(frame, 0, (size_t)config->frame_bytes);
    for (int64_t index = 0; index <= last; index++) {
        position = apply_patches(position, stop, frame, config->frame_bytes, base);
        if (!position) return SB3X_CORRUPT;
        for (int64_t i = begin; i < end; i++) {
            /* Where this frame stands in the observation, if at all. */
            int64_t k = index - (batch->list[i].token % config->block_frames - config->stack + 1) - shift;
            if (k < 0 || k >= config->stack) continue;
            uint8_t *target = batch->out + batch->list[i].row * batch->store->observation_bytes + k * config->frame_bytes;
            copy_bytes(target, frame, config->frame_bytes);
        }
    }
    return SB3X_OK;
}

/* Observations begin .. end - 1, which end in the same block; `least` and `last` are the indices of their last frames. */
static int32_t copy_group(const batch *batch, int64_t begin, int64_t end, int64_t least, int64_t last, uint8_t *frame) {
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
    for (int64_t shift = 0; shift <= config->block_frames; shift += config->block_frames) {
        if (shift > 0) { /* what reaches back into the block before */
            if (least >= config->stack - 1) break;
            id = one->previous;
            one = &store->blocks[id];
            last = config->block_frames - 1;
        }
        if (one->base == BLOCK_RAW) {
            copy_frames(batch, begin, end, one->data, shift);
        } else if (config->frames == SB3X_FRAMES_DELTA) {
            int32_t status = copy_patched(batch, begin, end, one, last, shift, frame);
            if (status != SB3X_OK) return status;
        } else {
            const uint8_t *frames = find_decoded(batch->decoded, id, last + 1);
            if (!frames) return SB3X_BAD_ARGUMENT;
            copy_frames(batch, begin, end, frames, shift);
        }
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
    uint8_t *frame = batch->frames + worker * store->config.frame_bytes;
    int64_t i = part_begin(batch, part), stop = part_begin(batch, part + 1);
    while (i < stop) {
        int64_t id = block_at(batch, i), begin = i, least = block_frames, last = 0;
        if (id < 0) {
            memset(batch->out + batch->list[i++].row * store->observation_bytes, 0, (size_t)store->observation_bytes);
            continue;
        }
        for (; i < stop && block_at(batch, i) == id; i++) {
            int64_t index = batch->list[i].token % block_frames;
            if (index < least) least = index;
            if (index > last) last = index;
        }
        if (i + AHEAD < stop) prefetch_block(store, batch->list[i + AHEAD].token);
        int32_t status = copy_group(batch, begin, i, least, last, frame);
        if (status != SB3X_OK) {
            batch->status = status;
            return;
        }
    }
}

int32_t sb3x_gather(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                    const sb3x_decoded *decoded, uint8_t *out) {
    if (store->config.frames == SB3X_FRAMES_OUTSIDE) return SB3X_BAD_ARGUMENT;
    wanted *list;
    int32_t status = list_wanted(store, slots, envs, n, columns, &list);
    if (status != SB3X_OK) return status;
    batch batch = {store, list, n * count_columns(columns), decoded, out, NULL, 1, SB3X_OK};
    int64_t nbytes = batch.n * store->observation_bytes;
    int32_t workers = 1;
    store->is_read_by_threads = nbytes >= LARGE_BATCH_BYTES;
    if (store->is_read_by_threads && sb3x_threads() > 1) {
        workers = sb3x_threads();
        batch.parts = nbytes / PART_BYTES < batch.n ? nbytes / PART_BYTES : batch.n;
    }
    batch.frames = sb3x_allocate((size_t)(workers * store->config.frame_bytes));
    if (batch.frames)
        sb3x_run(gather_part, &batch, batch.parts, workers);
    else
        batch.status = SB3X_NO_MEMORY;
    sb3x_release(batch.frames);
    sb3x_release(list);
    return batch.status;
}

void sb3x_expect_gather(const sb3x_store *store) {
    if (store->is_read_by_threads) sb3x_expect_call();
}

/* ---- what the caller has to do for a gather */

int32_t sb3x_coded_blocks(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                          sb3x_decoded *decoded) {
    decoded->n = 0;
    if (store->config.frames != SB3X_FRAMES_CODEC) return SB3X_BAD_ARGUMENT;
    wanted *list;
    int32_t status = list_wanted(store, slots, envs, n, columns, &list);
    if (status != SB3X_OK) return status;
    int64_t total = n * count_columns(columns);
    const int64_t block_frames = store->config.block_frames;
    wanted *blocks = sb3x_allocate((size_t)total * 4 * sizeof(wanted)); /* here: block, and frames of it */
    if (!blocks) {
        sb3x_release(list);
        return SB3X_NO_MEMORY;
    }
    int64_t count = 0;
    for (int64_t i = 0; i < total; i++) {
        if (list[i].token < 0) continue;
        int64_t id = list[i].token / block_frames, index = list[i].token % block_frames;
        const block *one = &store->blocks[id];
        if (!one->data) continue;
        if (one->base != BLOCK_RAW) blocks[count++] = (wanted){id, index + 1};
        if (index < store->config.stack - 1 && store->blocks[one->previous].base != BLOCK_RAW)
            blocks[count++] = (wanted){one->previous, block_frames};
    }
    sort_by_token(blocks, blocks + 2 * total, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = decoded->n - 1;
        if (at < 0 || decoded->blocks[at] != blocks[i].token) {
            at = decoded->n++;
            decoded->blocks[at] = blocks[i].token;
            decoded->n_frames[at] = 0;
        }
        if (blocks[i].row > decoded->n_frames[at]) decoded->n_frames[at] = blocks[i].row;
    }
    sb3x_release(blocks);
    sb3x_release(list);
    return SB3X_OK;
}

const uint8_t *sb3x_encoded(const sb3x_store *store, int64_t id, int64_t *length) {
    if (id < 0 || id >= store->n_blocks) return NULL;
    *length = store->blocks[id].length;
    return store->blocks[id].data;
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
