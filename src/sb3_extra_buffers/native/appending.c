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

void open_block(sb3x_store *store, stream *stream, int32_t id) {
    int64_t tries = store->unhelpful - GIVE_UP_AFTER;
    int gives_up = store->config.frames == SB3X_FRAMES_RAW || (tries >= 0 && tries % TRY_AGAIN_EVERY > 0);
    stream->open = id;
    stream->encoded = gives_up ? -1 : 0;
    store->blocks[id].base = BLOCK_CODED;
    if (store->config.frames == SB3X_FRAMES_DELTA && !gives_up && store->base >= 0) {
        store->blocks[id].base = store->base;
        store->blocks[store->base].references++;
        store->base_age++;
    }
}

void encode_open_block(sb3x_store *store, stream *stream, int64_t first, uint8_t *end) {
    const int64_t size = store->config.frame_bytes, block_frames = store->config.block_frames;
    int64_t last = stream->fill < block_frames ? stream->fill : block_frames;
    uint8_t *limit = stream->patches + store->block_bytes;
    const uint8_t *base = frame_of_base(store, store->blocks[stream->open].base);
    for (int64_t i = first; i < last && stream->encoded >= 0; i++, end = NULL) {
        const uint8_t *frame = stream->rows + (store->config.stack + i) * size;
        const uint8_t *before = i > 0 ? frame - size : base ? base : store->scratch.zeros;
        uint8_t *out = stream->patches + stream->encoded;
        end = write_frame(&store->scratch, before, frame, base, out, end, limit);
        if (i == 0) stream->first = end ? end - out : size;
        /* The first frame may be large, without a base above all. If the next is, too, they have nothing in common. */
        int hopeless = end && i >= 1 && end - stream->patches > (i + 1) * size / 4 * 3;
        stream->encoded = end && !hopeless ? end - stream->patches : -1;
    }
}

uint8_t *stage_frame(sb3x_store *store, const stream *stream, const uint8_t *frame) {
    const int64_t size = store->config.frame_bytes;
    if (store->config.frames != SB3X_FRAMES_DELTA || stream->encoded < 0 || stream->fill == 0) return NULL;
    uint8_t *at = stream->rows + (store->config.stack + stream->fill) * size, *out = stream->patches + stream->encoded;
    /* Encoded before it is copied: to read what was just written takes longer. */
    uint8_t *end = write_patches(at - size, frame, size, out, stream->patches + store->block_bytes);
    if (end) copy_bytes(at, frame, size);
    return end;
}

void add_frames(sb3x_store *store, stream *stream, const uint8_t *frames, int64_t n, uint8_t *staged) {
    const int64_t size = store->config.frame_bytes, first = stream->fill;
    if (!staged) copy_bytes(stream->rows + (store->config.stack + first) * size, frames, n * size);
    stream->fill += n;
    /* Nearly always one frame, little changed. */
    if (staged && staged - (stream->patches + stream->encoded) <= size / 16)
        stream->encoded = staged - stream->patches;
    else if (store->config.frames == SB3X_FRAMES_DELTA && stream->encoded >= 0)
        encode_open_block(store, stream, first, staged);
}

/* The bytes that a full block is kept as. */
static void put_block(sb3x_store *store, stream *stream) {
    block *sealed = &store->blocks[stream->open];
    const uint8_t *data = stream->patches;
    int64_t length = stream->encoded;
    if (store->config.frames == SB3X_FRAMES_CODEC) {
        data = stream->given[stream->sealed];
        length = data ? stream->given_length[stream->sealed] : -1;
    }
    if (length > 0 && length < store->block_bytes) {
        put_bytes(store, stream->open, data, length);
        store->unhelpful = 0;
        return;
    }
    put_bytes(store, stream->open, stream->rows + store->config.stack * store->config.frame_bytes, store->block_bytes);
    store->unhelpful++;
    if (sealed->base >= 0) release_block(store, sealed->base);
    sealed->base = BLOCK_RAW;
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
    int is_outside = config->frames == SB3X_FRAMES_OUTSIDE;
    if (is_outside) {
        store->blocks[sealed].place = NO_PLACE;
    } else {
        put_block(store, stream);
        if (config->frames == SB3X_FRAMES_DELTA && store->blocks[sealed].base != BLOCK_RAW) renew_base(store, stream);
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
    if (config->frames == SB3X_FRAMES_DELTA) encode_open_block(store, stream, 0, NULL);
}
