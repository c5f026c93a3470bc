/* Saved stores that are made by hand: one part of them is wrong, everything else is right. */

#include "damage.h"
#include "loaded.h"
#include "tests.h"

typedef struct {
    uint8_t bytes[1 << 16];
    int64_t n;
} file;

static void put(file *file, int64_t value, int64_t size) {
    put_value(file->bytes + file->n, value, size);
    file->n += size;
}

static void put_block_row(file *file, int64_t previous, int64_t base, int64_t length) {
    put(file, previous, 4), put(file, base, 4), put(file, length, 8);
}

/* One stream, one cell, one-byte frames in blocks of 2^25: tokens are 32 bits, as long as there are less than 64 blocks. Here
   the open block is number 128. Nobody needs so many blocks for one cell. */
static void test_many_blocks(int64_t heads) {
    static file file;
    const sb3x_config *config = &loaded_configs[8];
    const int64_t numbers[3] = {128, 129, 130};
    file.n = 0;
    const int64_t header[10] = {0x3258334253LL, 131, heads, -1, 0, 0, SB3X_FRAMES_RAW, 0, 0, 0};
    for (int k = 0; k < 10; k++) put(&file, header[k], 8);
    for (int64_t i = 0; i < 128; i++) put_block_row(&file, -1, -1, -1);
    put_block_row(&file, -1, -1, 0), put_block_row(&file, 128, -1, 0), put_block_row(&file, 129, -1, 0);
    if (heads > 0) put(&file, 128 * config->block_frames + 3 + 1, 8); /* its fourth frame */
    put(&file, 5, 8), put(&file, 128 * config->block_frames + 4, 8);
    for (int k = 0; k < 3; k++) put(&file, numbers[k], 8);
    put(&file, -1, 8);
    for (int k = 0; k < 6; k++) put(&file, k, 1);
    CHECK(load_and_use(config, file.bytes, file.n) == 0);
}

/* Reserved blocks are as they were made, and an open one begins as a block can. Whatever it says, it is sealed as what it is. */
static void test_bases_of_open_blocks(int64_t frames) {
    static const int64_t bases[] = {INT32_MIN, -1000, -260, -259, -258, -4, -3, -2, -1, 0, 1, 2, 3, 5, INT32_MAX};
    const sb3x_config config = {4, 1, 1, 2, 64, 3, frames, 0, 0, 0, 0};
    for (int64_t block = 0; block < 3; block++) { /* open, reserved, reserved */
        for (size_t k = 0; k < sizeof bases / sizeof *bases; k++) {
            int64_t n, header[2];
            uint8_t *saved = save_used(&config, 7, 0, &n);
            memcpy(header, saved, sizeof header);
            CHECK(header[1] == 3);
            put_value(saved + SAVED_HEADER + 16 * block + 4, bases[k], 4);
            int can_be = bases[k] == -1 || (block == 0 && frames != SB3X_FRAMES_OUTSIDE && bases[k] < -1 && bases[k] >= -258);
            snprintf(check_context, sizeof check_context, "frames %lld: block %lld, base %lld", (long long)frames,
                     (long long)block, (long long)bases[k]);
            CHECK(load_and_use(&config, saved, n) == can_be);
            free(saved);
        }
    }
}

/* Where the parts of a saved store lie. */
typedef struct {
    int64_t n_blocks, heads, streams, payload;
} places;

static int64_t number_at(const uint8_t *saved, int64_t at) {
    int64_t number;
    memcpy(&number, saved + at, 8);
    return number;
}

static places places_of(const sb3x_config *config, const uint8_t *saved) {
    places found = {number_at(saved, 8), 0, 0, 0};
    found.heads = SAVED_HEADER + 16 * found.n_blocks;
    found.streams = found.payload = found.heads + 8 * number_at(saved, 16);
    for (int64_t i = 0; i < config->n_streams; i++) {
        int64_t rows = config->stack + (config->frames == SB3X_FRAMES_OUTSIDE ? 0 : number_at(saved, found.payload));
        int64_t length = number_at(saved, found.payload + 40);
        found.payload += SAVED_STREAM + (length >= 0 ? length : rows * config->frame_bytes);
    }
    return found;
}

static int64_t stream_at(const sb3x_config *config, const uint8_t *saved, int64_t number) {
    sb3x_config less = *config;
    less.n_streams = number;
    return places_of(&less, saved).payload;
}

/* The bits of a block's row that hold its length; its piece stands above them. */
#define ALL_LENGTHS (((int64_t)1 << 48) - 1)

/* Sealed blocks of other lengths, with as many bytes in the file. */
static void test_lengths(const sb3x_config *config) {
    int64_t n;
    uint8_t *saved = save_used(config, 11, 30, &n);
    const places places = places_of(config, saved);
    const int64_t block_bytes = config->block_frames * config->frame_bytes;
    const int64_t lengths[] = {1, config->frame_bytes, block_bytes - 1, block_bytes, block_bytes + 1, 2 * block_bytes};
    int64_t at = places.payload;
    for (int64_t i = 0; i < places.n_blocks; i++) {
        const int64_t row = SAVED_HEADER + 16 * i, piece = number_at(saved, row + 8) >> 48;
        int64_t length = number_at(saved, row + 8) & ALL_LENGTHS;
        if (piece < 0 || length < 1) continue;
        for (int base = -4; base < 1; base++) {
            for (int k = 0; k < 6; k++) {
                int64_t kept = length < lengths[k] ? length : lengths[k];
                uint8_t *other = exactly(n - length + lengths[k]);
                memcpy(other, saved, (size_t)(at + kept));
                memcpy(other + at + lengths[k], saved + at + length, (size_t)(n - at - length));
                put_value(other + row + 8, lengths[k] | (base == -1 ? 0 : piece << 48), 8);
                if (base < 0) put_value(other + row + 4, base, 4); /* read as it is, as `delta`, or by a codec */
                snprintf(check_context, sizeof check_context, "frames %lld: block %lld, base %d, length %lld",
                         (long long)config->frames, (long long)i, base, (long long)lengths[k]);
                int is_loaded = load_and_use(config, other, n - length + lengths[k]);
                if (base == -1 && lengths[k] != block_bytes && lengths[k] != config->frame_bytes) CHECK(!is_loaded);
                if (base < -1 && lengths[k] >= block_bytes) CHECK(!is_loaded);
                free(other);
            }
        }
        at += length;
    }
    CHECK(at == n);
    /* Bytes too many, or too few. */
    uint8_t *longer = exactly(n + 1);
    memcpy(longer, saved, (size_t)n);
    CHECK(load_and_use(config, longer, n) == 1 && load_and_use(config, longer, n + 1) == 0);
    CHECK(load_and_use(config, longer, n - 1) == 0);
    free(longer);
    /* Any block as the base of the next ones. */
    for (int64_t base = -2; base < places.n_blocks + 2; base++) {
        int64_t before = number_at(saved, 24);
        put_value(saved + 24, base, 8);
        load_and_use(config, saved, n);
        put_value(saved + 24, before, 8);
    }
    free(saved);
}

/* A store that was filled with frames that hardly change, so that all blocks are encoded; saved. */
static uint8_t *save_calm(const sb3x_config *config, int64_t *n) {
    source from = source_of_seed(1);
    int32_t error;
    model *model = new_model(config, &from, &error);
    CHECK(model->store);
    const int64_t n_slots = config->n_cells / config->n_streams, nbytes = config->n_streams * model->observation_bytes;
    uint8_t *observations = exactly(2 * nbytes);
    for (int64_t step = 0; step < 3 * config->block_frames; step++) {
        memcpy(observations, observations + nbytes, (size_t)nbytes);
        for (int64_t i = 0; i < config->n_streams; i++) {
            uint8_t *one = observations + nbytes + i * model->observation_bytes;
            memmove(one, one + config->frame_bytes, (size_t)(model->observation_bytes - config->frame_bytes));
            set_byte(&from, one + model->observation_bytes - config->frame_bytes, config->frame_bytes < 9 ? config->frame_bytes : 9, 256);
        }
        operation drawn = {.kind = STEP, .slot = step % n_slots, .observations = observations};
        CHECK(try_operation(model, &drawn) == SB3X_OK);
    }
    uint8_t *saved = sb3x_save(model->store, n), *copy;
    CHECK(saved);
    copy = copy_of(saved, *n);
    sb3x_free_saved(saved);
    free(observations);
    free_model(model);
    return copy;
}

/* Blocks that say that they are cut in another way, and pieces that begin anywhere. In how many numbers that was tried. */
static int64_t test_pieces(const sb3x_config *config) {
    int64_t n, n_tables = 0;
    uint8_t *saved = save_calm(config, &n);
    const places places = places_of(config, saved);
    const int64_t pieces[] = {0, 1, 2, 3, config->block_frames - 1, config->block_frames, config->block_frames + 1, 0x7fff};
    int64_t at = places.payload;
    for (int64_t i = 0; i < places.n_blocks; i++) {
        const int64_t row = SAVED_HEADER + 16 * i, before = number_at(saved, row + 8);
        int32_t base;
        memcpy(&base, saved + row + 4, 4);
        if (before < 0) continue;
        const int64_t length = before & ALL_LENGTHS, piece = before >> 48;
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            put_value(saved + row + 8, length | pieces[k] << 48, 8);
            snprintf(check_context, sizeof check_context, "frames %lld: block %lld in pieces of %lld", (long long)config->frames,
                     (long long)i, (long long)pieces[k]);
            int is_loaded = load_and_use(config, saved, n);
            int can_be = pieces[k] == 0 || (base != -1 && pieces[k] < config->block_frames && 64 * pieces[k] >= config->block_frames);
            CHECK(is_loaded == can_be);
        }
        put_value(saved + row + 8, before | (int64_t)1 << 47, 8); /* no length has this bit */
        CHECK(load_and_use(config, saved, n) == 0);
        put_value(saved + row + 8, before, 8);
        at += length;
        if (length == 0 || piece == 0) continue;
        const int64_t n_pieces = (config->block_frames + piece - 1) / piece;
        const int64_t begins[] = {0, 1, length, length - 4 * (n_pieces - 1), length - 4 * (n_pieces - 1) + 1, -1, INT32_MIN, INT32_MAX};
        for (int64_t k = 1; k < n_pieces; k += 1 + n_pieces / 8) { /* what stands behind the pieces, 4 bytes for each but one */
            uint8_t *number = saved + at - 4 * k, kept[4];
            memcpy(kept, number, 4);
            for (size_t b = 0; b < sizeof begins / sizeof *begins; b++) {
                put_value(number, begins[b], 4);
                CHECK(load_and_use(config, saved, n) == 1); /* reading finds out */
            }
            memcpy(number, kept, 4);
            n_tables++;
        }
    }
    CHECK(at == n);
    free(saved);
    return n_tables;
}

/* How new blocks are kept: one of the ways that there are. */
static void test_ways(int64_t frames) {
    enum { FRAMES = 48, CODEC = 56, PIECE = 64, BEST = 72 };
    const sb3x_config config = {8, 2, 1, 2, 40, 6, frames, 2, 0, 0, 0};
    const int64_t values[] = {INT64_MIN, -1, 0, 1, 2, 3, 4, 5, 255, 256, INT32_MAX, INT64_MAX};
    int64_t n;
    uint8_t *saved = save_used(&config, 13, 30, &n);
    for (int64_t at = FRAMES; at <= BEST; at += 8) {
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
            uint8_t *other = copy_of(saved, n);
            const int64_t value = values[k];
            put_value(other + at, value, 8);
            snprintf(check_context, sizeof check_context, "frames %lld: %lld at %lld", (long long)frames, (long long)value, (long long)at);
            int is_outside = frames == SB3X_FRAMES_OUTSIDE, is_loaded = load_and_use(&config, other, n);
            if (at == FRAMES) CHECK(is_loaded == (is_outside ? value == SB3X_FRAMES_OUTSIDE : value >= 0 && value < 3));
            if (at == CODEC && !is_outside) CHECK(is_loaded == (value >= 0 && value < 256));
            if (at == PIECE && !is_outside) CHECK(is_loaded == (value >= 0));
            if (at == BEST && !is_outside) CHECK(is_loaded == (value >= 0 && value < INT64_MAX));
            free(other);
        }
    }
    free(saved);
}

static void expect_refusal(const sb3x_config *config, const uint8_t *saved, int64_t n, int64_t at, int64_t value) {
    uint8_t *other = copy_of(saved, n);
    put_value(other + at, value, 8);
    snprintf(check_context, sizeof check_context, "frames %lld: %lld at %lld", (long long)config->frames, (long long)value,
             (long long)at);
    CHECK(load_and_use(config, other, n) == 0);
    free(other);
}

/* Streams and heads that lead to where nothing is. */
static void test_wrong_links(int64_t frames) {
    const sb3x_config config = {8, 2, 1, 4, 10, 6, frames, 0, 0, 0, 0};
    int64_t n;
    uint8_t *saved = save_used(&config, 0, 0, &n);
    const int64_t first = stream_at(&config, saved, 0), second = stream_at(&config, saved, 1);
    /* A new stream has no last observation, even if it begins within its block. */
    int64_t fill = number_at(saved, second), open = number_at(saved, second + 16);
    if (frames != SB3X_FRAMES_OUTSIDE) CHECK(fill == 3);
    if (fill > 0) expect_refusal(&config, saved, n, second + 8, open * config.block_frames + fill - 1);
    expect_refusal(&config, saved, n, second, config.block_frames);
    expect_refusal(&config, saved, n, second, -1);
    for (int k = 2; k < 5; k++) /* blocks of the other stream */
        expect_refusal(&config, saved, n, second + 8 * k, number_at(saved, first + 8 * k));
    for (int k = 2; k < 5; k++) { /* all three, and its own are free */
        put_value(saved + SAVED_HEADER + 16 * number_at(saved, second + 8 * k) + 8, -1, 8);
        memcpy(saved + second + 8 * k, saved + first + 8 * k, 8);
    }
    CHECK(load_and_use(&config, saved, n) == 0);
    free(saved);

    source from = source_of_seed(4);
    int32_t error;
    model *model = new_model(&config, &from, &error);
    CHECK(model->store);
    uint8_t observations[80];
    for (int64_t slot = 0; slot < 3; slot++) {
        for (int i = 0; i < 80; i++) observations[i] = (uint8_t)next_number(&from);
        int64_t stream, part, n_frames;
        sb3x_changes changes;
        int32_t status = sb3x_plan(model->store, slot, observations, NULL, 0, &changes);
        while (status == SB3X_ENCODE) {
            while (sb3x_full_piece(model->store, &stream, &part, &n_frames))
                CHECK(sb3x_give_encoded(model->store, stream, part, NULL, 0) == SB3X_OK);
            status = sb3x_plan(model->store, slot, observations, NULL, 1, &changes);
        }
        CHECK(status == SB3X_OK && sb3x_commit(model->store, NULL) == SB3X_OK);
        sb3x_let_go(model->store);
    }
    saved = sb3x_save(model->store, &n);
    const places places = places_of(&config, saved);
    CHECK(load_and_use(&config, saved, n) == 1);
    for (int number = 0; number < 2; number++) {
        int64_t at = stream_at(&config, saved, number);
        int64_t end = number_at(saved, at + 16) * config.block_frames + number_at(saved, at) + 1; /* + 1 as heads are */
        int64_t reserved = number_at(saved, at + 24) * config.block_frames + 1;
        expect_refusal(&config, saved, n, places.heads + 8 * number, end); /* not there yet */
        expect_refusal(&config, saved, n, places.heads + 8 * number, reserved); /* nor this block */
        if (number_at(saved, at) > 0) /* of the other stream */
            expect_refusal(&config, saved, n, places.heads + 8 * (1 - number), end - 1);
        expect_refusal(&config, saved, n, places.heads, places.n_blocks * config.block_frames + 1);
    }
    sb3x_free_saved(saved);
    free_model(model);
}

/* Counts that are added to later must not overflow. */
static void test_counts(int64_t frames) {
    const sb3x_config config = {8, 1, 2, 2, 40, 2, frames, 0, 0, 0, 0};
    for (int64_t at = 32; at <= 40; at += 8) {
        const int64_t values[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX - 20, -1};
        for (int k = 0; k < 4; k++) {
            int64_t n;
            uint8_t *saved = save_used(&config, 9, 12, &n);
            put_value(saved + at, values[k], 8);
            load_and_use(&config, saved, n);
            free(saved);
        }
    }
}

void test_crafted(int64_t rounds) {
    (void)rounds;
    test_many_blocks(1);
    test_many_blocks(0);
    for (int k = 0; k < N_LOADED_CONFIGS; k++) {
        if (loaded_configs[k].block_frames > 1000) continue;
        test_lengths(&loaded_configs[k]);
        if (loaded_configs[k].piece_frames > 0)
            CHECK(test_pieces(&loaded_configs[k]) > 0 || loaded_configs[k].frames == SB3X_FRAMES_RAW);
    }
    for (int64_t frames = 0; frames < 4; frames++) {
        snprintf(check_context, sizeof check_context, "frames %lld", (long long)frames);
        test_bases_of_open_blocks(frames);
        test_wrong_links(frames);
        test_counts(frames);
        test_ways(frames);
    }
}
