/* Saved stores that were damaged: they are refused, or whatever is loaded is consistent and can be used. */

#include "loaded.h"
#include "model.h"
#include "tests.h"

/* A store of a config that much has happened to, saved. */
static uint8_t *save_used(const sb3x_config *config, uint64_t seed, int64_t operations, int64_t *n) {
    source from = source_of_seed(seed);
    int32_t error;
    model *model = new_model(config, &from, &error);
    CHECK(model->store);
    while (operations-- > 0) play(model);
    uint8_t *saved = sb3x_save(model->store, n), *copy;
    CHECK(saved);
    copy = copy_of(saved, *n);
    sb3x_free_saved(saved);
    free_model(model);
    return copy;
}

static void put_value(uint8_t *at, int64_t value, int64_t size) { memcpy(at, &value, (size_t)size); }

/* Every number of the tables replaced by values that are likely to hurt. */
static void replace_numbers(const sb3x_config *config, const uint8_t *saved, int64_t n, int64_t stride) {
    int64_t numbers[3];
    memcpy(numbers, saved, sizeof numbers);
    const int64_t n_blocks = numbers[1], heads = numbers[2];
    const int64_t streams = 48 + 16 * n_blocks + 8 * heads;
    const int64_t values[] = {0, 1, 2, 3, -1, -2, -3, n_blocks - 1, n_blocks, n_blocks + 1, INT32_MAX, INT32_MIN, INT64_MAX,
                              INT64_MIN, (int64_t)1 << 31, (int64_t)1 << 32, config->block_frames - 1, config->block_frames,
                              config->frame_bytes, config->frame_bytes * config->block_frames};
    int64_t turn = 0;
    for (int64_t at = 0; at + 8 <= streams + 48 && at + 8 <= n;) {
        int in_blocks = at >= 48 && at < 48 + 16 * n_blocks;
        int64_t size = in_blocks && at % 16 < 8 ? 4 : 8;
        for (size_t k = 0; k < sizeof values / sizeof *values + 3; k++) {
            if (turn++ % stride) continue;
            uint8_t *damaged = copy_of(saved, n);
            int64_t value = 0;
            memcpy(&value, damaged + at, (size_t)size);
            if (k < sizeof values / sizeof *values)
                value = values[k];
            else if (k == sizeof values / sizeof *values)
                value = (int64_t)((uint64_t)value + 1);
            else
                value = (int64_t)((uint64_t)value + (k % 2 ? (uint64_t)-1 : (uint64_t)1 << 32));
            put_value(damaged + at, value, size);
            snprintf(check_context, sizeof check_context, "frames %lld: number at %lld replaced by %lld",
                     (long long)config->frames, (long long)at, (long long)value);
            load_and_use(config, damaged, n);
            free(damaged);
        }
        at += size;
    }
}

void test_damaged(int64_t rounds) {
    for (int64_t k = 0; k < N_LOADED_CONFIGS; k++) {
        const sb3x_config *config = &loaded_configs[k];
        int is_slow = config->block_frames * config->frame_bytes > 1 << 16;
        int64_t n, n_loaded = 0;
        uint8_t *saved = save_used(config, (uint64_t)k, 40, &n);
        snprintf(check_context, sizeof check_context, "config %lld", (long long)k);
        CHECK(load_and_use(config, saved, n) == 1);
        CHECK(load_and_use(config, NULL, 0) == 0);
        replace_numbers(config, saved, n, (is_slow ? 200 : 80) / rounds + 1);
        source from = source_of_seed((uint64_t)k + 3000);
        for (int64_t i = 0; i < (is_slow ? 5 : 40) * rounds; i++) {
            int64_t length = once_in(&from, 4) ? below(&from, n + 20) : n;
            uint8_t *damaged = exactly(length);
            memcpy(damaged, saved, (size_t)(length < n ? length : n));
            for (int64_t changes = below(&from, 5); length > 0 && changes >= 0; changes--) {
                int64_t at = below(&from, once_in(&from, 2) ? length : length < 400 ? length : 400);
                int is_bit = once_in(&from, 2);
                damaged[at] = is_bit ? (uint8_t)(damaged[at] ^ 1 << below(&from, 8)) : (uint8_t)below(&from, 256);
            }
            snprintf(check_context, sizeof check_context, "config %lld, round %lld", (long long)k, (long long)i);
            n_loaded += load_and_use(config, damaged, length);
            free(damaged);
        }
        /* Random bytes, and those of a store of another config. */
        for (int64_t i = 0; i < rounds; i++) {
            uint8_t *noise = copy_of(saved, n);
            for (int64_t at = i % 2 ? 8 : 0; at < n; at++) noise[at] = (uint8_t)next_number(&from);
            CHECK(load_and_use(config, noise, n) == 0);
            free(noise);
        }
        for (int64_t other = 0; other < N_LOADED_CONFIGS; other++)
            if (rounds >= 10) load_and_use(&loaded_configs[other], saved, n);
        CHECK(is_slow || n_loaded > 0); /* damage within the blocks of frames cannot be seen */
        free(saved);
    }
}

/* ---- files that are made by hand */

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
    put(&file, 0x3158334253LL, 8), put(&file, 131, 8), put(&file, heads, 8), put(&file, -1, 8), put(&file, 0, 8), put(&file, 0, 8);
    for (int64_t i = 0; i < 128; i++) put_block_row(&file, -1, -1, -1);
    put_block_row(&file, -1, -2, 0), put_block_row(&file, 128, -1, 0), put_block_row(&file, 129, -1, 0);
    if (heads > 0) put(&file, 128 * config->block_frames + 3 + 1, 8); /* its fourth frame */
    put(&file, 5, 8), put(&file, 128 * config->block_frames + 4, 8);
    for (int k = 0; k < 3; k++) put(&file, numbers[k], 8);
    put(&file, -1, 8);
    for (int k = 0; k < 6; k++) put(&file, k, 1);
    CHECK(load_and_use(config, file.bytes, file.n) == 0);
}

/* An open or reserved block whose base is none that the store would give it: what it is sealed as would be read as another. */
static void test_bases_of_open_blocks(int64_t frames) {
    const sb3x_config config = {4, 1, 1, 2, 64, 3, frames};
    for (int64_t block = 0; block < 3; block++) { /* open, reserved, reserved */
        for (int64_t base = -3; base < 6; base++) {
            int64_t n, header[2];
            uint8_t *saved = save_used(&config, 7, 0, &n);
            memcpy(header, saved, sizeof header);
            CHECK(header[1] == 3);
            put_value(saved + 48 + 16 * block + 4, base, 4);
            load_and_use(&config, saved, n);
            free(saved);
        }
    }
}

/* Counts that are added to later must not overflow. */
static void test_counts(int64_t frames) {
    const sb3x_config config = {8, 1, 2, 2, 40, 2, frames};
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
    for (int64_t frames = 0; frames < 4; frames++) {
        snprintf(check_context, sizeof check_context, "frames %lld", (long long)frames);
        test_bases_of_open_blocks(frames);
        test_counts(frames);
    }
}
