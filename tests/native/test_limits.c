/* Sizes: what is refused, 64-bit tokens, and blocks and frames of more than 2 GiB. */

#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE

#include <sys/mman.h>

#include "model.h"
#include "tests.h"

static void expect_refusal(sb3x_config config, int32_t expected) {
    int32_t error = -1;
    sb3x_store *store = sb3x_create(&config, &error);
    CHECK(!store && error == expected);
}

/* A config with one field changed. */
static sb3x_config with(int field, int64_t value) {
    sb3x_config config = {6, 2, 2, 3, 10, 4, SB3X_FRAMES_DELTA, 0, 0, 0, 0};
    int64_t *const fields[] = {&config.n_cells,      &config.n_streams, &config.n_columns,    &config.stack,     &config.frame_bytes,
                               &config.block_frames, &config.frames,    &config.piece_frames, &config.row_bytes, &config.channel_bytes,
                               &config.item_bytes};
    *fields[field] = value;
    return config;
}

enum { CELLS, STREAMS, COLUMNS, STACK, FRAME_BYTES, BLOCK_FRAMES, FRAMES, PIECE_FRAMES, ROW_BYTES, CHANNEL_BYTES, ITEM_BYTES };

static void check_refusals(void) {
    const int64_t two_31 = (int64_t)1 << 31;
    expect_refusal(with(CELLS, 7), SB3X_BAD_ARGUMENT);
    expect_refusal(with(CELLS, -2), SB3X_BAD_ARGUMENT);
    expect_refusal(with(STREAMS, 0), SB3X_BAD_ARGUMENT);
    expect_refusal(with(COLUMNS, 0), SB3X_BAD_ARGUMENT);
    expect_refusal(with(COLUMNS, 3), SB3X_BAD_ARGUMENT);
    expect_refusal(with(STACK, 0), SB3X_BAD_ARGUMENT);
    expect_refusal(with(STACK, 5), SB3X_BAD_ARGUMENT); /* more than block_frames */
    expect_refusal(with(FRAME_BYTES, 0), SB3X_BAD_ARGUMENT);
    expect_refusal(with(FRAMES, -1), SB3X_BAD_ARGUMENT);
    expect_refusal(with(FRAMES, 4), SB3X_BAD_ARGUMENT);
    for (int field = CELLS; field <= ITEM_BYTES; field++)
        for (int64_t value = INT64_MIN; value < 0; value /= 3) expect_refusal(with(field, value), SB3X_BAD_ARGUMENT);
    for (int field = ROW_BYTES; field <= CHANNEL_BYTES; field++) { /* longer than a frame */
        expect_refusal(with(field, 11), SB3X_BAD_ARGUMENT);
        expect_refusal(with(field, INT64_MAX), SB3X_BAD_ARGUMENT);
    }
    expect_refusal(with(ITEM_BYTES, 3), SB3X_BAD_ARGUMENT);
    expect_refusal(with(ITEM_BYTES, 8), SB3X_BAD_ARGUMENT);
    expect_refusal(with(CELLS, two_31), SB3X_TOO_LARGE);
    expect_refusal(with(CELLS, two_31 / 2), SB3X_TOO_LARGE); /* two columns */
    expect_refusal(with(CELLS, INT64_MAX - 1), SB3X_TOO_LARGE);
    expect_refusal(with(BLOCK_FRAMES, two_31), SB3X_TOO_LARGE);
    expect_refusal(with(BLOCK_FRAMES, INT64_MAX), SB3X_TOO_LARGE);
    expect_refusal(with(FRAME_BYTES, (int64_t)1 << 33), SB3X_TOO_LARGE);
    expect_refusal(with(FRAME_BYTES, INT64_MAX), SB3X_TOO_LARGE);
    for (int shift = 20; shift < 63; shift++) { /* products that overflow, and sums */
        const int64_t large = (int64_t)1 << shift;
        for (int64_t frames = 0; frames < 4; frames++) {
            const sb3x_config configs[] = {
                {INT64_MAX / large * large, large, 2, 1, 1, 1, frames, 0, 0, 0, 0},
                {2, 1, 2, large, large, large, frames, 0, 0, 0, 0},
                {2, 1, 2, large, 1, INT64_MAX, frames, 0, 0, 0, 0},
                {2, 1, 2, 1, large, INT64_MAX, frames, 0, 0, 0, 0},
                {2, 2, 2, 1, INT64_MAX / large, large, frames, 0, 0, 0, 0},
                {large, large, 1, large, 1, large, frames, 0, 0, 0, 0},
            };
            for (int k = 0; k < 6; k++) {
                int32_t error = -1;
                sb3x_fail_allocation(0, 1); /* whatever is not refused for its size must not be tried here */
                CHECK(!sb3x_create(&configs[k], &error));
                CHECK(error == SB3X_TOO_LARGE || (k != 4 && shift < 31 && error == SB3X_NO_MEMORY));
                sb3x_fail_allocation(-1, 0);
            }
        }
    }
}

/* Tokens beyond 32 bits: with blocks of 2^28 frames the streams begin 3 * 2^28 tokens apart. */
static void check_wide_tokens(int64_t frames, int64_t block_frames) {
    snprintf(check_context, sizeof check_context, "frames %lld in blocks of %lld", (long long)frames, (long long)block_frames);
    source from = source_of_seed(5);
    const sb3x_config config = {45, 9, 2, 3, 2, block_frames, frames, 0, 0, 0, 0};
    int32_t error;
    model *model = new_model(&config, &from, &error);
    if (!model->store) { /* so much may not be there, not even in pages that are never touched */
        CHECK(error == SB3X_NO_MEMORY);
        printf("limits: no memory for %s\n", check_context);
        free_model(model);
        return;
    }
    CHECK(sb3x_token_end(model->store) == 27 * block_frames);
    for (int i = 0; i < 60; i++) {
        play(model);
        verify_some(model);
    }
    verify(model);
    free_model(model);
}

void test_limits(int64_t rounds) {
    (void)rounds;
    check_refusals();
    for (int64_t frames = 0; frames < 4; frames++) check_wide_tokens(frames, (int64_t)1 << 28);
    check_wide_tokens(SB3X_FRAMES_OUTSIDE, ((int64_t)1 << 31) - 1);
    sb3x_config none = with(CELLS, 0);
    int32_t error;
    uint8_t observations[60] = {0};
    sb3x_changes changes;
    sb3x_store *store = sb3x_create(&none, &error); /* no cells: nothing can be written, nothing breaks */
    CHECK(store && sb3x_check(store) == SB3X_OK);
    CHECK(sb3x_plan(store, 0, observations, observations, 0, &changes) == SB3X_BAD_CELL);
    CHECK(sb3x_clear(store) == SB3X_OK && sb3x_gather(store, NULL, NULL, 0, 1, NULL, observations) == SB3X_OK);
    sb3x_destroy(store);
}

/* ---- more than 2 GiB, which takes about 5 GiB of memory */

static uint8_t *map_zeros(int64_t n) {
    void *memory = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Blocks of more than 2 GiB as they are, and of more than 4 GiB as `delta`, in pieces that begin where 4 bytes cannot tell: frames
   before, at and behind those places. */
static void check_large_block(int64_t frames, int64_t block_frames) {
    enum { SIZE = 1 << 20 };
    const sb3x_config config = {block_frames + 4, 1, 1, 1, SIZE, block_frames, frames, 100, 1024, 0, 0};
    int32_t error;
    sb3x_store *store = sb3x_create(&config, &error);
    CHECK(store);
    uint8_t *frame = exactly(SIZE), *out = exactly(2 * SIZE);
    for (int64_t i = 0; i < config.n_cells; i++) {
        int64_t done = -1;
        memcpy(frame + i * 8, &i, 8);
        CHECK(sb3x_write(store, 0, &i, 1, frame, &done) == SB3X_OK && done == 1);
    }
    CHECK(sb3x_check(store) == SB3X_OK);
    sb3x_usage usage;
    sb3x_measure(store, &usage);
    CHECK(frames == SB3X_FRAMES_RAW ? usage.live_bytes > INT32_MAX : usage.live_bytes > 0 && usage.live_bytes < INT32_MAX / 8);
    for (int64_t i = 0; i < config.n_cells; i += i < block_frames - 4 ? 511 : 1) {
        CHECK(sb3x_gather(store, &i, NULL, 1, 1, NULL, out) == SB3X_OK);
        for (int64_t k = 0; k < config.n_cells; k++) {
            int64_t number;
            memcpy(&number, out + k * 8, 8);
            CHECK(number == (k <= i ? k : 0));
        }
    }
    free(frame), free(out);
    sb3x_destroy(store);
}

/* A frame of 2 GiB and more: zeros, but for a few bytes. */
static void check_large_frame(void) {
    const int64_t n = ((int64_t)1 << 31) + 4096 + 5;
    const int64_t places[] = {0, 1, 4095, n / 2, INT32_MAX, (int64_t)INT32_MAX + 1, n - 1};
    uint8_t *frame = map_zeros(n), *out = map_zeros(n);
    uint8_t encoded[200];
    for (int i = 0; i < 7; i++) frame[places[i]] = (uint8_t)(i + 1);
    const sb3x_shape shape = {n, 65536, n / 3, 1};
    int64_t length = sb3x_delta_encode(&shape, frame, 1, NULL, encoded, sizeof encoded);
    CHECK(length > 0 && length < 100);
    CHECK(sb3x_delta_decode(&shape, encoded, length, NULL, 1, out) == SB3X_OK);
    for (int i = 0; i < 7; i++) {
        CHECK(out[places[i]] == i + 1);
        out[places[i]] = 0;
    }
    CHECK(out[0] == 0 && memcmp(out, out + 1, (size_t)n - 1) == 0);
    /* One run over all of it. */
    memset(frame, 0, 4096);
    for (int i = 0; i < 7; i++) frame[places[i]] = 0;
    uint8_t value, run[8];
    CHECK(sb3x_find_runs(frame, n, 1, UINT64_MAX, 1, 8, &value, run) == 1 && memcmp(run, &n, 8) == 0);
    munmap(out, (size_t)n);
    munmap(frame, (size_t)n);
}

void test_large(int64_t rounds) {
    (void)rounds;
    check_large_frame();
    check_large_block(SB3X_FRAMES_RAW, 2050);
    check_large_block(SB3X_FRAMES_DELTA, 4100);
}
