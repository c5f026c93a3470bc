/* The stateless codecs against naive code, and in memory of exactly their size. */

#include "check.h"
#include "sb3x.h"
#include "tests.h"

/* ---- delta */

/* A number of the format; 0 if there is none. */
static int read_number(const uint8_t **data, const uint8_t *end, uint64_t *number) {
    *number = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
        if (*data >= end) return 0;
        uint8_t byte = *(*data)++;
        *number |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return 1;
    }
    return 0;
}

/* One frame as patches.h describes it, byte by byte. Where it ends, or NULL. */
static const uint8_t *decode_naively(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n, const uint8_t *base) {
    if (end - data >= 2 && data[1] == 0 && (data[0] == 128 || data[0] == 129)) {
        if (data[0] == 129 && !base) return NULL;
        for (int64_t i = 0; i < n; i++) frame[i] = data[0] == 129 ? base[i] : 0;
        data += 2;
    }
    for (int64_t at = 0;;) {
        uint64_t number, skip;
        if (data < end && *data == 0) return data + 1;
        if (!read_number(&data, end, &number) || !read_number(&data, end, &skip)) return NULL;
        if (number >> 1 == 0 || skip > (uint64_t)(n - at) || number >> 1 > (uint64_t)(n - at) - skip) return NULL;
        at += (int64_t)skip;
        if (number & 1 ? data >= end : (uint64_t)(end - data) < number >> 1) return NULL;
        for (uint64_t k = 0; k < number >> 1; k++) frame[at++] = number & 1 ? *data : *data++;
        if (number & 1) data++;
    }
}

/* Frames that resemble each other more or less. */
static void draw_frames(source *from, uint8_t *frames, int64_t n_frames, int64_t size, const uint8_t *base) {
    for (int64_t i = 0; i < n_frames; i++) {
        uint8_t *frame = frames + i * size;
        const uint8_t *before = i > 0 ? frame - size : base;
        if (before && !once_in(from, 4)) memcpy(frame, once_in(from, 5) && base ? base : before, (size_t)size);
        int64_t density = 1 + below(from, 3) * 20;
        for (int64_t changes = below(from, 2 + size / density); changes > 0; changes--) {
            int64_t at = below(from, size), most = size - at < 80 ? size - at : 80, length = 1 + below(from, most);
            if (once_in(from, 2))
                memset(frame + at, (int)below(from, 256), (size_t)length);
            else
                frame[at] = (uint8_t)next_number(from);
        }
    }
}

static void check_delta(source *from) {
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 31, 32, 33, 34, 63, 64, 65, 66, 95, 96, 97, 128, 129, 200, 1000, 7056};
    const int64_t size = sizes[below(from, sizeof sizes / sizeof *sizes)], n_frames = below(from, 6);
    const int64_t most = n_frames * (size + 20);
    uint8_t *base = once_in(from, 2) ? exactly(size) : NULL, *frames = exactly(n_frames * size), *encoded = exactly(most);
    if (base) draw_frames(from, base, 1, size, NULL);
    draw_frames(from, frames, n_frames, size, base);
    int64_t length = sb3x_delta_encode(frames, n_frames, size, base, encoded, most);
    CHECK(length >= n_frames && length <= most);
    uint8_t *data = copy_of(encoded, length), *out = exactly(n_frames * size), *one = exactly(size);
    CHECK(sb3x_delta_decode(data, length, base, n_frames, size, out) == SB3X_OK);
    CHECK(n_frames == 0 || memcmp(out, frames, (size_t)(n_frames * size)) == 0);
    const uint8_t *at = data;
    if (base) memcpy(one, base, (size_t)size);
    for (int64_t i = 0; i < n_frames; i++) {
        at = decode_naively(at, data + length, one, size, base);
        CHECK(at && memcmp(one, frames + i * size, (size_t)size) == 0);
    }
    CHECK(at == data + length);
    /* The first frames alone; less bytes than that are refused. */
    int64_t some = below(from, n_frames + 1);
    CHECK(sb3x_delta_decode(data, length, base, some, size, out) == SB3X_OK);
    if (length > 0) {
        int64_t less = below(from, length);
        uint8_t *cut = copy_of(data, less);
        CHECK(sb3x_delta_decode(cut, less, base, n_frames, size, out) == SB3X_CORRUPT);
        free(cut);
    }
    /* In less room it fits, or it does not: the encoder keeps a few bytes of distance. Never a byte outside. */
    for (int64_t tries = 0; tries < 6; tries++) {
        int64_t room = tries == 0 ? length : tries == 1 ? length - 1 : below(from, length + 20);
        if (room < 0) continue;
        uint8_t *tight = exactly(room);
        int64_t found = sb3x_delta_encode(frames, n_frames, size, base, tight, room);
        CHECK(found == -1 || (found <= room && sb3x_delta_decode(tight, found, base, n_frames, size, out) == SB3X_OK));
        CHECK(found == -1 || n_frames == 0 || memcmp(out, frames, (size_t)(n_frames * size)) == 0);
        free(tight);
    }
    /* Damaged, it is refused, or it decodes to what naive code makes of it. */
    for (int64_t tries = 0; tries < 4 && length > 0; tries++) {
        uint8_t *damaged = copy_of(data, length);
        for (int64_t changes = below(from, 3); changes >= 0; changes--)
            set_byte(from, damaged, length, once_in(from, 2) ? 256 : 130);
        memset(one, 0, (size_t)size);
        if (base) memcpy(one, base, (size_t)size);
        at = damaged;
        for (int64_t i = 0; i < n_frames && at; i++) {
            at = decode_naively(at, damaged + length, one, size, base);
            CHECK(sb3x_delta_decode(damaged, length, base, i + 1, size, out) == (at ? SB3X_OK : SB3X_CORRUPT));
            CHECK(!at || memcmp(out + i * size, one, (size_t)size) == 0);
        }
        free(damaged);
    }
    free(base), free(frames), free(encoded), free(data), free(out), free(one);
}

void test_delta(int64_t rounds) {
    for (int64_t seed = 0; seed < 1000 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 4000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        check_delta(&from);
    }
    /* Numbers of up to five bytes; more are refused, however they end. */
    for (int place = 0; place < 2; place++) {
        for (int64_t length = 1; length < 12; length++) {
            for (int last = 0; last < 128; last += last < 4 ? 1 : 41) {
                uint8_t *data = exactly(length + 3), frame[4] = {0};
                int64_t n = 0;
                if (place == 1) data[n++] = 2;
                for (int64_t i = 1; i < length; i++) data[n++] = 128;
                data[n++] = (uint8_t)last;
                if (place == 0) data[n++] = 0;
                data[n++] = 9; /* of one byte that is set to 9 */
                int64_t value = length <= 5 ? (int64_t)last << (7 * (length - 1)) : -1;
                int is_right = place == 0 ? value == 2 || value == 3 : value >= 0 && value <= 3;
                data[n++] = 0;
                int32_t status = sb3x_delta_decode(data, n, NULL, 1, 4, frame);
                if (place == 1 || value != 0) /* which ends the list */
                    CHECK((status == SB3X_OK) == is_right);
                CHECK(!is_right || frame[place == 0 ? 0 : value] == 9);
                free(data);
            }
        }
    }
    uint8_t byte = 0, out[16];
    CHECK(sb3x_delta_encode(&byte, 1, 0, NULL, out, 16) == -1);
    CHECK(sb3x_delta_encode(&byte, 1, -1, NULL, out, 16) == -1);
    CHECK(sb3x_delta_encode(&byte, 1, INT64_MAX, NULL, out, 16) == -1);
    CHECK(sb3x_delta_encode(&byte, 1, 1, NULL, out, 0) == -1);
    CHECK(sb3x_delta_decode(out, 0, NULL, 0, 1, out) == SB3X_OK);
    CHECK(sb3x_delta_decode(out, 0, NULL, 1, 1, out) == SB3X_CORRUPT);
    CHECK(sb3x_delta_decode(out, 16, NULL, 1, 0, out) == SB3X_CORRUPT);
    CHECK(sb3x_delta_decode(out, 16, NULL, 1, -5, out) == SB3X_CORRUPT);
}

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
