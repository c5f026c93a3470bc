/* Saved cells that are made by hand: one part of them is wrong, everything else is right. */

#include "damage.h"
#include "loaded.h"
#include "tests.h"

enum { MOST_ROWS = 64, CELLS = 4 };

/* A segment of one column. */
typedef struct {
    int64_t n_rows;
    int64_t rows[MOST_ROWS][SAVED_ROW];
    int64_t cells[CELLS], heads[CELLS];
} crafted;

/* With as many bytes as its blocks say, as far as that is possible, and some more. Whether it was received. */
static int receive_crafted(const sb3x_config *config, const crafted *crafted, int64_t n_cells, int64_t more) {
    const int64_t numbers = 2 + 2 * n_cells + SAVED_ROW * crafted->n_rows, header[2] = {n_cells, crafted->n_rows};
    int64_t n = 8 * numbers + more;
    for (int64_t i = 0; i < crafted->n_rows; i++) {
        int64_t length = crafted->rows[i][SAVED_LENGTH];
        if (length > 0 && length < 10000) n += length;
    }
    uint8_t *bytes = exactly(n), *at = bytes;
    memcpy(at, header, 16);
    memcpy(at += 16, crafted->cells, (size_t)(8 * n_cells));
    memcpy(at += 8 * n_cells, crafted->heads, (size_t)(8 * n_cells));
    memcpy(at += 8 * n_cells, crafted->rows, (size_t)(8 * SAVED_ROW * crafted->n_rows));
    int is_received = load_and_use(config, bytes, n);
    free(bytes);
    return is_received;
}

/* ---- one number of a segment is another */

enum { PREVIOUS = SAVED_PREVIOUS, BASE = SAVED_BASE, LENGTH = SAVED_LENGTH, PIECE = SAVED_PIECE, HEAD, CELL };

typedef struct {
    int64_t at;     /* a row, or a cell */
    int what;       /* the number of it that changes */
    int64_t value;
    int is_right;
} change;

static void test_changes(const sb3x_config *config, const crafted *right, const change *changes, size_t n) {
    CHECK(receive_crafted(config, right, CELLS, 0) == 1);
    for (int64_t more = -1; more < 2; more += 2) CHECK(receive_crafted(config, right, CELLS, more) == 0);
    for (size_t k = 0; k < n; k++) {
        const change *change = &changes[k];
        crafted other = *right;
        int64_t *numbers = change->what == HEAD ? other.heads : change->what == CELL ? other.cells : other.rows[change->at];
        numbers[change->what == HEAD || change->what == CELL ? change->at : change->what] = change->value;
        snprintf(check_context, sizeof check_context, "change %d: %lld, number %d, is %lld", (int)k, (long long)change->at,
                 change->what, (long long)change->value);
        CHECK(receive_crafted(config, &other, CELLS, 0) == change->is_right);
    }
}

#define TWO_32 ((int64_t)1 << 32)

/* Blocks of 4 frames of 10 bytes, stack 3: tokens 0-3 are block 0, 4-7 block 1 and so on; a head is a token + 1. */
static void test_wrong_numbers(int64_t frames) {
    const sb3x_config config = {CELLS, 1, 1, 3, 10, 4, frames, 0, 0, 0, 0};
    const crafted right = {.n_rows = 6,
                           .rows = {{-1, -1, 40, 0}, /* 0: full, as it is */
                                    {0, -1, 20, 0},  /* 1: two frames of an open block, behind block 0 */
                                    {-1, -1, 10, 0}, /* 2: a base */
                                    {-1, 2, 7, 0},   /* 3: `delta` from that base */
                                    {-1, -2, 9, 2},  /* 4: `delta` from zeros, in two pieces */
                                    {-1, -3, 9, 0}}, /* 5: by codec 0 */
                           .cells = {3, 0, 1, 2},
                           .heads = {4, 5, 16, 23}}; /* the second reaches back from block 1 to block 0 */
    static const change changes[] = {
        /* Links. Block 1 goes on from a block whose last frames are there: an encoded one can be, a short one cannot. */
        {1, PREVIOUS, -1, 0}, {1, PREVIOUS, 1, 0}, {1, PREVIOUS, 2, 0}, {1, PREVIOUS, 3, 1}, {1, PREVIOUS, 4, 1},
        {1, PREVIOUS, 5, 1}, {1, PREVIOUS, 6, 0}, {1, PREVIOUS, -2, 0}, {1, PREVIOUS, INT64_MAX, 0},
        {1, PREVIOUS, INT64_MIN, 0}, {1, PREVIOUS, TWO_32, 0}, {1, PREVIOUS, INT32_MAX, 0},
        /* Where nothing reaches back it need not be full, but it has to be another block. */
        {0, PREVIOUS, 1, 1}, {0, PREVIOUS, 2, 1}, {0, PREVIOUS, 5, 1}, {0, PREVIOUS, 0, 0}, {0, PREVIOUS, 6, 0},
        {5, PREVIOUS, 5, 0}, {2, PREVIOUS, 3, 1}, {3, PREVIOUS, 2, 1},
        /* A base is one frame as it is. */
        {3, BASE, 0, 0}, {3, BASE, 1, 0}, {3, BASE, 3, 0}, {3, BASE, 4, 0}, {3, BASE, 5, 0}, {3, BASE, 6, 0}, {3, BASE, -2, 1},
        {3, BASE, TWO_32 + 2, 0}, {3, BASE, INT32_MAX, 0}, {3, BASE, INT64_MAX, 0}, {3, BASE, INT64_MIN, 0},
        {2, BASE, -2, 0}, {2, BASE, -3, 0}, {4, BASE, 2, 1}, {5, BASE, 2, 1}, {5, BASE, 0, 0}, {0, BASE, 2, 0}, {1, BASE, 2, 1},
        /* Codecs are numbered from 0 to 255. */
        {5, BASE, -4, 1}, {5, BASE, -258, 1}, {5, BASE, -259, 0}, {5, BASE, -1000, 0}, {5, BASE, INT32_MIN, 0},
        {5, BASE, -TWO_32 - 3, 0}, {5, BASE, -1, 0}, {4, BASE, -258, 1}, {4, BASE, -1, 0},
        /* Lengths: whole frames if they are as they are; encoded blocks are smaller than that. */
        {0, LENGTH, 0, 0}, {0, LENGTH, -1, 0}, {0, LENGTH, 30, 0}, {0, LENGTH, 39, 0}, {0, LENGTH, 41, 0}, {0, LENGTH, 50, 0},
        {0, LENGTH, 80, 0}, {0, LENGTH, INT64_MAX, 0}, {0, LENGTH, INT64_MIN, 0}, {0, LENGTH, TWO_32 + 40, 0},
        {1, LENGTH, 10, 1}, {1, LENGTH, 30, 1}, {1, LENGTH, 40, 1}, {1, LENGTH, 50, 0}, {1, LENGTH, 5, 0}, {1, LENGTH, 15, 0},
        {1, LENGTH, 0, 0}, {2, LENGTH, 20, 0}, {2, LENGTH, 40, 0}, {2, LENGTH, 9, 0}, {2, LENGTH, 0, 0},
        {3, LENGTH, 1, 1}, {3, LENGTH, 39, 1}, {3, LENGTH, 40, 0}, {3, LENGTH, 41, 0}, {3, LENGTH, 0, 0}, {3, LENGTH, -7, 0},
        {4, LENGTH, 1, 1}, {5, LENGTH, 39, 1}, {5, LENGTH, 40, 0}, {5, LENGTH, 0, 0},
        /* Pieces, of encoded blocks only. */
        {0, PIECE, 1, 0}, {0, PIECE, 2, 0}, {1, PIECE, 1, 0}, {2, PIECE, 1, 0}, {3, PIECE, 1, 1}, {3, PIECE, 3, 1},
        {4, PIECE, 0, 1}, {4, PIECE, 1, 1}, {4, PIECE, 3, 1}, {4, PIECE, 4, 0}, {4, PIECE, 5, 0}, {4, PIECE, -1, 0},
        {4, PIECE, -2, 0}, {4, PIECE, INT16_MAX, 0}, {4, PIECE, 32768, 0}, {4, PIECE, 65536 + 2, 0}, {4, PIECE, TWO_32 + 2, 0},
        {4, PIECE, INT64_MIN, 0}, {5, PIECE, 2, 1}, {5, PIECE, 4, 0},
        /* Heads: nothing, the frames that are there, those that are not. */
        {0, HEAD, 0, 1}, {0, HEAD, -1, 0}, {0, HEAD, INT64_MIN, 0}, {0, HEAD, INT64_MAX, 0}, {0, HEAD, TWO_32, 0},
        {0, HEAD, 3, 1}, {0, HEAD, 2, 0}, {0, HEAD, 1, 0}, /* reach back before the first block */
        {1, HEAD, 6, 1}, {1, HEAD, 7, 0}, {1, HEAD, 8, 0}, /* of block 1 two frames are there */
        {1, HEAD, 9, 0}, {1, HEAD, 11, 0}, {1, HEAD, 12, 0}, /* a base is no block of a stream */
        {2, HEAD, 13, 0}, {2, HEAD, 14, 0}, {2, HEAD, 15, 1}, {2, HEAD, 19, 1}, {2, HEAD, 20, 1},
        {3, HEAD, 24, 1}, {3, HEAD, 25, 0}, {3, HEAD, 28, 0}, {3, HEAD, 4, 1},
        /* Cells: any that there are, in any order, also twice. */
        {0, CELL, 0, 1}, {2, CELL, 3, 1}, {0, CELL, CELLS, 0}, {3, CELL, -1, 0}, {1, CELL, TWO_32, 0}, {1, CELL, INT64_MIN, 0},
    };
    test_changes(&config, &right, changes, sizeof changes / sizeof *changes);
}

/* Blocks of one frame: a base looks like one of them. */
static void test_blocks_of_one_frame(void) {
    const sb3x_config config = {CELLS, 2, 1, 1, 10, 1, SB3X_FRAMES_DELTA, 0, 0, 0, 0};
    const crafted right = {.n_rows = 3,
                           .rows = {{-1, -1, 10, 0}, {-1, 0, 3, 0}, {1, -1, 10, 0}},
                           .cells = {0, 1, 2, 3},
                           .heads = {1, 2, 3, 0}};
    static const change changes[] = {
        {1, BASE, 2, 1},    {2, BASE, 0, 0}, {1, PIECE, 1, 0}, {0, LENGTH, 20, 0},
        {1, LENGTH, 10, 0}, {3, HEAD, 3, 1}, {3, HEAD, 4, 0},
    };
    test_changes(&config, &right, changes, sizeof changes / sizeof *changes);
}

/* One cell, one-byte frames in blocks of 2^25: tokens are 32 bits, as long as there are less than 64 blocks. The store can have 36,
   and has 3. */
static void test_many_blocks(void) {
    const sb3x_config *config = &loaded_configs[8];
    crafted many = {.n_rows = 33};
    for (int64_t i = 0; i < MOST_ROWS; i++) memcpy(many.rows[i], (int64_t[]){-1, -1, 1, 0}, sizeof many.rows[i]);
    for (many.n_rows = 30; many.n_rows < MOST_ROWS; many.n_rows++) {
        snprintf(check_context, sizeof check_context, "%lld blocks", (long long)many.n_rows);
        many.heads[0] = (many.n_rows - 1) * config->block_frames + 1;
        CHECK(receive_crafted(config, &many, 1, 0) == (many.n_rows <= 33));
        CHECK(receive_crafted(config, &many, 0, 0) == (many.n_rows <= 33)); /* nobody needs them */
    }
}

/* ---- damage to what stores have written */

static int64_t row_at(const saved_parts *parts, int64_t block, int64_t number) {
    return parts->table + 8 * (SAVED_ROW * block + number);
}

/* Blocks of other lengths, with as many bytes in the file. */
static void test_lengths(const sb3x_config *config) {
    saved saved = save_used(config, 11, 30);
    saved_parts parts;
    CHECK(find_parts(config, saved.bytes, saved.n, &parts));
    const int64_t block_bytes = config->block_frames * config->frame_bytes;
    const int64_t lengths[] = {1, config->frame_bytes, block_bytes - 1, block_bytes, block_bytes + 1, 2 * block_bytes};
    int64_t at = parts.bytes;
    for (int64_t i = 0; i < parts.n_blocks; i++) {
        const int64_t length = number_at(saved.bytes, row_at(&parts, i, LENGTH));
        const int is_tried = i % (1 + parts.n_blocks / 4) == 0; /* of many blocks, some */
        for (int base = -4; is_tried && base < 1; base++) {
            for (int k = 0; k < 6; k++) {
                int64_t kept = length < lengths[k] ? length : lengths[k];
                uint8_t *other = exactly(saved.n - length + lengths[k]);
                memcpy(other, saved.bytes, (size_t)(at + kept));
                memcpy(other + at + lengths[k], saved.bytes + at + length, (size_t)(saved.n - at - length));
                put_value(other + row_at(&parts, i, LENGTH), lengths[k], 8);
                if (base == -1) put_value(other + row_at(&parts, i, PIECE), 0, 8);
                if (base < 0) put_value(other + row_at(&parts, i, BASE), base, 8); /* read as it is, as `delta`, or by a codec */
                snprintf(check_context, sizeof check_context, "frames %lld: block %lld, base %d, length %lld",
                         (long long)config->frames, (long long)i, base, (long long)lengths[k]);
                int is_loaded = load_and_use(config, other, saved.n - length + lengths[k]);
                if (base == -1 && lengths[k] % config->frame_bytes) CHECK(!is_loaded);
                if (lengths[k] > block_bytes || (base < -1 && lengths[k] == block_bytes)) CHECK(!is_loaded);
                free(other);
            }
        }
        at += length;
    }
    CHECK(at == saved.n);
    /* Bytes too many, or too few. */
    uint8_t *longer = exactly(saved.n + 1);
    memcpy(longer, saved.bytes, (size_t)saved.n);
    CHECK(load_and_use(config, longer, saved.n) == 1 && load_and_use(config, longer, saved.n + 1) == 0);
    CHECK(load_and_use(config, longer, saved.n - 1) == 0);
    free(longer), free(saved.bytes);
}

/* A store that was filled with frames that hardly change, so that all blocks are encoded; saved. */
static saved save_calm(const sb3x_config *config) {
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
    saved result = save_all(model->store, config);
    CHECK(result.bytes);
    free(observations);
    free_model(model);
    return result;
}

/* Blocks that say that they are cut in another way, and pieces that begin anywhere. In how many numbers that was tried. */
static int64_t test_pieces(const sb3x_config *config) {
    int64_t n_tables = 0;
    saved saved = save_calm(config);
    saved_parts parts;
    CHECK(find_parts(config, saved.bytes, saved.n, &parts));
    const int64_t pieces[] = {0, 1, 2, 3, config->block_frames - 1, config->block_frames, config->block_frames + 1, 0x7fff};
    int64_t at = parts.bytes;
    for (int64_t i = 0; i < parts.n_blocks; i++) {
        const int64_t base = number_at(saved.bytes, row_at(&parts, i, BASE));
        const int64_t length = number_at(saved.bytes, row_at(&parts, i, LENGTH));
        const int64_t piece = number_at(saved.bytes, row_at(&parts, i, PIECE));
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            put_value(saved.bytes + row_at(&parts, i, PIECE), pieces[k], 8);
            snprintf(check_context, sizeof check_context, "frames %lld: block %lld in pieces of %lld", (long long)config->frames,
                     (long long)i, (long long)pieces[k]);
            int can_be = pieces[k] == 0 || (base != -1 && pieces[k] < config->block_frames && 64 * pieces[k] >= config->block_frames);
            CHECK(load_and_use(config, saved.bytes, saved.n) == can_be);
        }
        put_value(saved.bytes + row_at(&parts, i, PIECE), piece, 8);
        at += length;
        if (piece == 0) continue;
        const int64_t n_pieces = (config->block_frames + piece - 1) / piece;
        const int64_t begins[] = {0, 1, length, length - 4 * (n_pieces - 1), length - 4 * (n_pieces - 1) + 1, -1, INT32_MIN, INT32_MAX};
        for (int64_t k = 1; k < n_pieces; k += 1 + n_pieces / 8) { /* what stands behind the pieces, 4 bytes for each but one */
            uint8_t *number = saved.bytes + at - 4 * k, kept[4];
            memcpy(kept, number, 4);
            for (size_t b = 0; b < sizeof begins / sizeof *begins; b++) {
                put_value(number, begins[b], 4);
                CHECK(load_and_use(config, saved.bytes, saved.n) == 1); /* reading finds out */
            }
            memcpy(number, kept, 4);
            n_tables++;
        }
    }
    CHECK(at == saved.n);
    free(saved.bytes);
    return n_tables;
}

void test_crafted(int64_t rounds) {
    (void)rounds;
    for (int64_t frames = 0; frames < SB3X_FRAMES_OUTSIDE; frames++) test_wrong_numbers(frames);
    test_blocks_of_one_frame();
    test_many_blocks();
    for (int k = 0; k < N_LOADED_CONFIGS; k++) {
        if (loaded_configs[k].block_frames > 1000) continue;
        test_lengths(&loaded_configs[k]);
        if (loaded_configs[k].piece_frames > 0)
            CHECK(test_pieces(&loaded_configs[k]) > 0 || loaded_configs[k].frames == SB3X_FRAMES_RAW);
    }
}
