/* Run lengths, channels and rows against naive code, and in memory of exactly their size. test_delta.c has `delta`. */

#include "check.h"
#include "sb3x.h"
#include "tests.h"

/* ---- runs */

static uint64_t number_at(const uint8_t *data, int64_t i, int64_t size) {
    uint64_t number = 0;
    memcpy(&number, data + i * size, (size_t)size);
    return number;
}

void test_runs(int64_t rounds) {
    for (int64_t seed = 0; seed < 400 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 5000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        const int64_t size = (int64_t)1 << below(&from, 4), length_size = (int64_t)1 << below(&from, 4);
        const int64_t n = below(&from, 700);
        uint64_t longest = once_in(&from, 3) ? 1 + (uint64_t)below(&from, 300) : UINT64_MAX;
        uint8_t *items = exactly(n * size), *values = exactly(n * size), *lengths = exactly(n * length_size);
        for (int64_t i = 0; i < n; i++) { /* often the same again; differences in any byte */
            if (i > 0) memcpy(items + i * size, items + (i - 1) * size, (size_t)size);
            if (once_in(&from, 1 + seed % 400)) set_byte(&from, items + i * size, size, 3);
        }
        int64_t count = sb3x_find_runs(items, n, (int32_t)size, longest, n, (int32_t)length_size, values, lengths);
        if (length_size == 1 && longest > 255) longest = 255; /* no length is longer than its number can be */
        int64_t at = 0, expected = 0;
        for (; at < n; expected++) {
            uint64_t value = number_at(items, at, size), run = 0;
            while (at < n && run < longest && number_at(items, at, size) == value) at++, run++;
            CHECK(number_at(values, expected, size) == value && number_at(lengths, expected, length_size) == run);
        }
        CHECK(count == expected);
        if (count > 0)
            CHECK(sb3x_find_runs(items, n, (int32_t)size, longest, count - 1, (int32_t)length_size, values, lengths) == -1);
        uint8_t *out = exactly(n * size);
        CHECK(sb3x_write_runs(values, lengths, count, (int32_t)size, (int32_t)length_size, out, n) == n);
        CHECK(n == 0 || memcmp(out, items, (size_t)(n * size)) == 0);
        /* Less room than the runs would fill, less runs than the room. */
        int64_t less = below(&from, n + 1);
        uint8_t *tight = exactly(less * size);
        CHECK(sb3x_write_runs(values, lengths, count, (int32_t)size, (int32_t)length_size, tight, less) == less);
        CHECK(less == 0 || memcmp(tight, items, (size_t)(less * size)) == 0);
        if (count > 0) CHECK(sb3x_write_runs(values, lengths, count - 1, (int32_t)size, (int32_t)length_size, out, n) < n);
        free(items), free(values), free(lengths), free(out), free(tight);
    }
    uint8_t items[8] = {0}, lengths[64], values[64];
    for (int32_t size = -1; size < 10; size++) {
        if (size == 1 || size == 2 || size == 4 || size == 8) continue;
        CHECK(sb3x_find_runs(items, 1, size, 9, 1, 1, values, lengths) == -1);
        CHECK(sb3x_find_runs(items, 1, 1, 9, 1, size, values, lengths) == -1);
        CHECK(sb3x_write_runs(values, lengths, 1, size, 1, items, 1) == 0);
        CHECK(sb3x_write_runs(values, lengths, 1, 1, size, items, 1) == 0);
    }
    CHECK(sb3x_find_runs(items, 1, 1, 0, 1, 1, values, lengths) == -1);
    memset(lengths, 255, 64); /* lengths of 2^64 - 1 */
    CHECK(sb3x_write_runs(values, lengths, 8, 1, 8, items, 8) == 8);
    memset(lengths, 0, 64);
    CHECK(sb3x_write_runs(values, lengths, 8, 1, 8, items, 8) == 0);
}

/* ---- channels */

void test_channels(int64_t rounds) {
    for (int64_t seed = 0; seed < 100 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 6000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        const int64_t n = below(&from, 4), pixels = below(&from, 90), parts = 1 + below(&from, 5);
        const int64_t bytes = once_in(&from, 2) ? 1 : 1 + below(&from, 9), total = n * pixels * parts * bytes;
        uint8_t *items = exactly(total), *planes = exactly(total), *back = exactly(total);
        for (int64_t i = 0; i < total; i++) items[i] = (uint8_t)next_number(&from);
        sb3x_split(items, n, pixels, parts, bytes, planes);
        for (int64_t i = 0; i < total; i++) {
            int64_t byte = i % bytes, part = i / bytes % parts, pixel = i / bytes / parts % pixels;
            int64_t one = i / bytes / parts / pixels;
            CHECK(planes[((one * parts + part) * pixels + pixel) * bytes + byte] == items[i]);
        }
        sb3x_join(planes, n, pixels, parts, bytes, back);
        CHECK(total == 0 || memcmp(items, back, (size_t)total) == 0);
        free(items), free(planes), free(back);
    }
}

/* ---- rows by number */

void test_rows(int64_t rounds) {
    for (int64_t seed = 0; seed < 100 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 7000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        const int64_t n_rows = 1 + below(&from, 20), size = 1 + below(&from, 70), n = below(&from, 30);
        uint8_t *rows = exactly(n_rows * size), *out = exactly(n * size), *before = exactly(n * size);
        int32_t *numbers = exactly(4 * n);
        for (int64_t i = 0; i < n_rows * size; i++) rows[i] = (uint8_t)next_number(&from);
        for (int64_t i = 0; i < n; i++) numbers[i] = (int32_t)below(&from, n_rows);
        CHECK(sb3x_select_rows(rows, n_rows, size, numbers, n, out) == SB3X_OK);
        for (int64_t i = 0; i < n; i++) CHECK(memcmp(out + i * size, rows + numbers[i] * size, (size_t)size) == 0);
        if (n > 0) { /* one number is wrong: nothing is written */
            const int32_t wrong[] = {-1, (int32_t)n_rows, INT32_MIN, INT32_MAX};
            memcpy(before, out, (size_t)(n * size));
            for (int64_t i = 0; i < n; i++) numbers[i] = (int32_t)below(&from, n_rows);
            int64_t at = below(&from, n);
            numbers[at] = wrong[below(&from, 4)];
            CHECK(sb3x_select_rows(rows, n_rows, size, numbers, n, out) == SB3X_BAD_CELL);
            CHECK(memcmp(out, before, (size_t)(n * size)) == 0);
        }
        free(rows), free(out), free(before), free(numbers);
    }
    uint8_t byte = 0; /* more rows than numbers can tell: a negative one is wrong all the same */
    const int64_t slots[3] = {0, 4, 2}, envs[3] = {2, 0, 1};
    int64_t cells[3];
    CHECK(sb3x_cells(slots, envs, 3, 5, 3, cells) == SB3X_OK && cells[0] == 2 && cells[1] == 12 && cells[2] == 7);
    CHECK(sb3x_cells(slots, envs, 0, 0, 0, NULL) == SB3X_OK);
    CHECK(sb3x_cells(slots, envs, 3, 4, 3, cells) == SB3X_BAD_CELL && sb3x_cells(slots, envs, 3, 5, 2, cells) == SB3X_BAD_CELL);
    const int64_t wrong[4] = {-1, INT64_MIN, INT64_MAX, 5};
    for (int i = 0; i < 4; i++) {
        CHECK(sb3x_cells(&wrong[i], envs, 1, 5, 3, cells) == SB3X_BAD_CELL);
        CHECK(sb3x_cells(slots, &wrong[i], 1, 5, 3, cells) == SB3X_BAD_CELL);
    }
    CHECK(sb3x_select_rows(&byte, INT64_MAX, 1, &(int32_t){-1}, 1, &byte) == SB3X_BAD_CELL);
}
