/* Open blocks: frames are encoded as they arrive, and a full block is sealed in the same call. */

#include <string.h>

#include "bytes.h"
#include "internal.h"

/* Every so many blocks the base is compared with the frames; if they have nothing in common any more, it is replaced. */
#define BASE_BLOCKS 32
/* Blocks in a row that the codec did not shrink before it is only tried now and then, and how often then. */
#define GIVE_UP_AFTER 8
#define TRY_AGAIN_EVERY 16

static const uint8_t *frame_of_base(const sb3x_store *store, int32_t base) {
    return base >= 0 ? store->blocks[base].data : NULL;
}

/* ---- pieces */

uint64_t piece_of_new_block(const sb3x_store *store) {
    const int64_t block_frames = store->config.block_frames, least = (block_frames + MOST_PIECES - 1) / MOST_PIECES;
    int64_t frames = store->piece;
    if (frames == 0 && store->frames == SB3X_FRAMES_DELTA) frames = store->best_piece;
    if (frames == 0) return 0;
    if (frames < least) frames = least; /* not more pieces than there is room to remember */
    return frames < block_frames && frames <= INT16_MAX ? (uint64_t)frames : 0;
}

/* To read a frame of `delta`, those before it in its piece are read too. A piece is as long as this work, which goes by the bytes
   that were written for them, is small beside copying the observation: PIECE_WORK times as many bytes are at most as many as the
   observation has. Of MiniGrid, stack 3, sample(32) takes 350 us with pieces of 2 frames, 420 with 8, 500 with 16. With 16 instead of
   12, MsPacman takes 0.02 % more of SB3's memory; with 4, CarRacing takes 7.9 % instead of 9.1 %. */
#define PIECE_WORK 12

int64_t sb3x_best_piece(int64_t change_bytes, int64_t observation_bytes, int64_t block_frames) {
    int64_t piece = 2;
    while (piece < block_frames && PIECE_WORK * piece * change_bytes <= observation_bytes) piece *= 2;
    return piece;
}

static int64_t best_piece(const sb3x_store *store, const stream *stream) {
    const int64_t block_frames = store->config.block_frames, changed = block_frames - stream->pieces;
    return changed < 1 ? 0 : sb3x_best_piece(stream->changes / changed + 1, store->observation_bytes, block_frames);
}

int find_piece(const sb3x_store *store, const block *one, int64_t piece, const uint8_t **begin, const uint8_t **end) {
    const int64_t size = begin_bytes(store), n = count_pieces(store, one), length = one->length - (n - 1) * size;
    int64_t from = 0, to = length;
    if (length < 0 || piece < 0 || piece >= n) return 0;
    if (piece > 0) memcpy(&from, one->data + length + (piece - 1) * size, (size_t)size);
    if (piece < n - 1) memcpy(&to, one->data + length + piece * size, (size_t)size);
    if (from < 0 || to < from || to > length) return 0;
    *begin = one->data + from;
    *end = one->data + to;
    return 1;
}

/* ---- frames into the open block */

void open_block(sb3x_store *store, stream *stream, int32_t id) {
    int64_t tries = store->unhelpful - GIVE_UP_AFTER;
    int gives_up = tries >= 0 && tries % TRY_AGAIN_EVERY > 0;
    block *opened = &store->blocks[id];
    stream->open = id;
    stream->encoded = -1;
    stream->is_old = 0;
    stream->pieces = stream->changes = 0;
    opened->base = BLOCK_RAW;
    opened->piece = 0;
    if (store->frames == SB3X_FRAMES_OUTSIDE || store->frames == SB3X_FRAMES_RAW || gives_up) return;
    stream->encoded = 0;
    store->has_encoded = 1;
    opened->piece = piece_of_new_block(store);
    opened->base = store->frames == SB3X_FRAMES_CODEC ? (int32_t)(BLOCK_CODED - store->codec) : BLOCK_DELTA;
    if (opened->base == BLOCK_DELTA && store->base >= 0) {
        opened->base = store->base;
        store->blocks[store->base].references++;
        store->base_age++;
    }
}

static void encode_frames(sb3x_store *store, stream *stream, int64_t first, int64_t last, uint8_t *end) {
    const int64_t size = store->config.frame_bytes;
    const block *open = &store->blocks[stream->open];
    const int64_t piece = piece_frames(store, open);
    const uint8_t *limit = stream->encoding + store->block_bytes, *base = frame_of_base(store, open->base);
    for (int64_t i = first; i < last && stream->encoded >= 0; i++, end = NULL) {
        const uint8_t *frame = stream->rows + (store->config.stack + i) * size, *before = frame - size;
        uint8_t *out = stream->encoding + stream->encoded;
        int begins = i % piece == 0;
        if (begins) {
            stream->begins[stream->pieces++] = stream->encoded;
            before = base ? base : store->writer.zeros;
        }
        end = write_frame(&store->writer, before, frame, base, out, end, limit);
        if (i == 0) stream->first = end ? end - out : size;
        if (end && !begins) stream->changes += reading_work(out, end);
        /* The first frame may be large, without a base above all. If the next is, too, they have nothing in common. */
        int is_hopeless = end && i >= 1 && end - stream->encoding > (i + 1) * size / 4 * 3;
        stream->encoded = end && !is_hopeless ? end - stream->encoding : -1;
    }
}

/* Take the parts on that are whole by now. */
static void take_parts(sb3x_store *store, stream *stream) {
    const int64_t size = store->config.frame_bytes, block_frames = store->config.block_frames;
    for (; stream->taken < stream->n_parts; stream->taken++) {
        const part *taken = &stream->parts[stream->taken];
        int64_t begin = taken->begin - stream->sealed * block_frames, end = taken->end - stream->sealed * block_frames;
        if (end > stream->fill || end > block_frames) return;
        if (begin < 0 || stream->encoded < 0 || !is_coded(store->blocks[stream->open].base)) continue; /* opened to stay raw */
        int64_t length = taken->given ? taken->length : (end - begin) * size;
        const uint8_t *source = taken->given ? taken->given : stream->rows + (store->config.stack + begin) * size;
        stream->begins[stream->pieces++] = stream->encoded;
        memcpy(stream->encoding + stream->encoded, source, (size_t)length);
        stream->encoded += length;
    }
}

void encode_open_block(sb3x_store *store, stream *stream, int64_t first, uint8_t *end) {
    if (stream->encoded < 0) return;
    int64_t last = stream->fill < store->config.block_frames ? stream->fill : store->config.block_frames;
    if (is_delta(store->blocks[stream->open].base))
        encode_frames(store, stream, first, last, end);
    else
        take_parts(store, stream);
}

uint8_t *stage_frame(sb3x_store *store, const stream *stream, const uint8_t *frame) {
    const int64_t size = store->config.frame_bytes;
    const block *open = &store->blocks[stream->open];
    if (stream->encoded < 0 || !is_delta(open->base) || store->writer.packs > 0) return NULL;
    if (stream->fill % piece_frames(store, open) == 0) return NULL;
    uint8_t *at = stream->rows + (store->config.stack + stream->fill) * size, *out = stream->encoding + stream->encoded;
    /* Encoded before it is copied: to read what was just written takes longer. */
    uint8_t *end = write_patches(at - size, frame, size, store->writer.bytes, out, stream->encoding + store->block_bytes);
    if (end) copy_bytes(at, frame, size);
    return end;
}

void add_frames(sb3x_store *store, stream *stream, const uint8_t *frames, int64_t n, uint8_t *staged) {
    const int64_t size = store->config.frame_bytes, first = stream->fill;
    if (!staged) copy_bytes(stream->rows + (store->config.stack + first) * size, frames, n * size);
    stream->fill += n;
    /* Nearly always one frame, little changed, of which write_frame would say the same. */
    int64_t length = staged ? staged - (stream->encoding + stream->encoded) : size;
    if (length <= size / FEW_PATCHES) {
        stream->encoded += length;
        stream->changes += reading_work(staged - length, staged);
    } else {
        encode_open_block(store, stream, first, staged);
    }
}

/* ---- full blocks */

/* The bytes that a full block is kept as. */
static void put_block(sb3x_store *store, stream *stream) {
    block *sealed = &store->blocks[stream->open];
    const int64_t size = begin_bytes(store), n = count_pieces(store, sealed);
    int64_t length = stream->encoded;
    if (length >= 0 && stream->pieces == n && length + (n - 1) * size < store->block_bytes) {
        for (int64_t i = 1; i < n; i++, length += size) memcpy(stream->encoding + length, &stream->begins[i], (size_t)size);
        put_bytes(store, stream->open, stream->encoding, length);
        store->unhelpful = 0;
        return;
    }
    put_bytes(store, stream->open, stream->rows + store->config.stack * store->config.frame_bytes, store->block_bytes);
    if (store->frames != SB3X_FRAMES_RAW && !stream->is_old) store->unhelpful++;
    if (sealed->base >= 0) release_block(store, sealed->base);
    sealed->base = BLOCK_RAW;
    sealed->piece = 0;
}

/* The last frame of a block becomes the base of the following blocks, which will resemble it. */
static void renew_base(sb3x_store *store, const stream *stream) {
    int32_t old = store->base;
    int is_worn = store->base_age >= BASE_BLOCKS;
    if (old < 0 || (is_worn && stream->first > store->config.frame_bytes / 8)) {
        const int64_t size = store->config.frame_bytes;
        store->base = new_block(store, -1);
        put_bytes(store, store->base, stream->rows + (store->config.stack + store->config.block_frames - 1) * size, size);
        store->base_age = 0;
        if (old >= 0) release_block(store, old);
    } else if (is_worn) {
        store->base_age = 0;
    }
}

void seal_block(sb3x_store *store, stream *stream) {
    const sb3x_config *config = &store->config;
    int32_t sealed = stream->open;
    if (config->frames == SB3X_FRAMES_OUTSIDE) {
        store->blocks[sealed].place = NO_PLACE;
    } else {
        put_block(store, stream);
        if (is_delta(store->blocks[sealed].base)) {
            store->best_piece = best_piece(store, stream);
            renew_base(store, stream);
        }
        /* The last frames of this block are the context of the next, whatever stands behind them is its beginning. */
        int64_t kept = config->stack + stream->fill - config->block_frames;
        memmove(stream->rows, stream->rows + store->block_bytes, (size_t)(kept * config->frame_bytes));
    }
    stream->fill -= config->block_frames;
    stream->sealed++;
    open_block(store, stream, stream->reserved[0]);
    stream->reserved[0] = stream->reserved[1];
    stream->reserved[1] = new_block(store, stream->reserved[0]);
    store->blocks[stream->reserved[1]].place = -1 - (int32_t)(stream - store->streams);
    if (store->blocks[sealed].previous >= 0) release_block(store, store->blocks[sealed].previous);
    encode_open_block(store, stream, 0, NULL);
}
