/* `delta` against naive code, and in memory of exactly its size: patches, and frames that are packed. */

#include "check.h"
#include "delta.h"
#include "model.h"
#include "tests.h"
#include "wide.h"

enum { N_WAYS = 5, WIDEST = 8, GROUP = 16, GROUPS = 8 };

/* What the naive decoder has come across in what was encoded: the test is worth nothing where something never happens. */
typedef struct {
    int64_t frames[4]; /* patches on the frame before, on zeros, on a base; packed */
    int64_t ways[N_WAYS], exactly[N_WAYS], widths[WIDEST + 1];
    int64_t short_bands, short_rests; /* that end a frame */
    int64_t fills, long_fills, far;   /* of patches */
} sights;
static sights seen;

/* ---- decoding, byte by byte */

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

static int64_t item_of(const sb3x_shape *shape) { return shape->item ? shape->item : 1; }

/* The value that begins at a byte. */
static uint32_t value_at(const sb3x_shape *shape, const uint8_t *frame, int64_t at) {
    uint32_t value = 0;
    for (int64_t k = 0; k < item_of(shape); k++) value |= (uint32_t)frame[at + k] << 8 * k;
    return value;
}

/* What packing.h says a value is predicted as. */
static uint32_t predicted(const sb3x_shape *shape, int way, const uint8_t *before, const uint8_t *frame, int64_t i) {
    const int64_t row = i - shape->row, channel = i - shape->channel;
    switch (way) {
        case 1: return value_at(shape, frame, row);
        case 2: return value_at(shape, frame, row) + value_at(shape, frame, channel) - value_at(shape, frame, row - shape->channel);
        case 3: return value_at(shape, before, i);
        case 4: return value_at(shape, before, i) + value_at(shape, frame, channel) - value_at(shape, before, channel);
        default: return 0;
    }
}

/* Whether a band can be predicted so: from bytes that are there, and not from within the group that is predicted. */
static int can_predict(const sb3x_shape *shape, int way, int64_t at) {
    const int64_t least = GROUP * item_of(shape);
    int is_far = (way != 1 && way != 2) || shape->row >= least;
    if ((way == 2 || way == 4) && shape->channel < least) is_far = 0;
    int64_t reaches = (way == 1 || way == 2 ? shape->row : 0) + (way == 2 || way == 4 ? shape->channel : 0);
    return way < N_WAYS && is_far && at >= reaches;
}

/* A packed frame as packing.h describes it. Where it ends, or NULL. */
static const uint8_t *unpack_naively(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, const uint8_t *before,
                                     uint8_t *frame) {
    const int64_t item = item_of(shape), whole = shape->bytes / (GROUP * item) * GROUP * item;
    for (int64_t at = 0; at < whole; at += GROUP * GROUPS) {
        uint32_t folded[GROUP * GROUPS] = {0}; /* values of this band */
        if (data >= end) return NULL;
        int first = *data++, is_exact = first >= PACKED_EXACTLY, way = first - (is_exact ? PACKED_EXACTLY : 0);
        if (!can_predict(shape, way, at)) return NULL;
        const int64_t left = (whole - at) / GROUP, groups = left < GROUPS ? left : GROUPS;
        seen.short_bands += groups < GROUPS;
        is_exact ? seen.exactly[way]++ : seen.ways[way]++;
        const uint8_t *widths = data;
        if (!is_exact && end - data < 4) return NULL;
        data += is_exact ? 0 : 4;
        for (int64_t g = 0; g < GROUPS && !(is_exact && g >= groups); g++) {
            const int64_t width = is_exact ? 0 : widths[g / 2] >> 4 * (g % 2) & 15;
            if (end - data < 2 * width) return NULL;
            if (!is_exact && g < groups) seen.widths[width < WIDEST ? width : WIDEST]++;
            for (int64_t k = 0; k < GROUP && g < groups; k++) { /* a damaged group may be there beyond the frame */
                const uint8_t *bits = data + (k < 8 ? 0 : width);
                for (int64_t bit = 0; bit < width && bit < 8; bit++)
                    folded[g / item * GROUP + k] |= (uint32_t)(bits[bit] >> k % 8 & 1) << (8 * (g % item) + bit);
            }
            data += 2 * width;
        }
        for (int64_t k = 0; k < groups * GROUP / item; k++) {
            int64_t i = at + k * item;
            uint32_t difference = folded[k] & 1 ? 0 - (folded[k] >> 1) - 1 : folded[k] >> 1;
            uint32_t value = predicted(shape, way, before, frame, i) + difference;
            for (int64_t part = 0; part < item; part++) frame[i + part] = (uint8_t)(value >> 8 * part);
        }
    }
    if (end - data < shape->bytes - whole) return NULL;
    seen.short_rests += shape->bytes > whole;
    for (int64_t i = whole; i < shape->bytes; i++) frame[i] = *data++;
    return data;
}

/* One frame as delta.h and patches.h describe it; it holds the one before. Where it ends, or NULL. */
static const uint8_t *decode_naively(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, uint8_t *frame,
                                     const uint8_t *base) {
    const int64_t n = shape->bytes;
    int how = 127;
    if (end - data >= 2 && data[1] == 0 && data[0] >= 128) {
        how = *data;
        data += 2;
        if (how > PACKED || (how == PATCHED_ON_BASE && !base)) return NULL;
    }
    seen.frames[how - 127]++;
    if (how == PACKED) {
        uint8_t *before = copy_of(frame, n);
        data = unpack_naively(shape, data, end, before, frame);
        free(before);
        return data;
    }
    for (int64_t i = 0; i < n && how != 127; i++) frame[i] = how == PATCHED_ON_BASE ? base[i] : 0;
    uint64_t count;
    if (!read_number(&data, end, &count) || count > (uint64_t)(end - data) / 2) return NULL;
    const uint8_t *numbers = data;
    data += 2 * count;
    for (int64_t at = 0, k = 0; k < (int64_t)count; k++) {
        const int64_t number = numbers[2 * k] | numbers[2 * k + 1] << 8, is_fill = number % 2;
        int64_t length = is_fill ? number >> 8 : number >> 1 & 31, skip = is_fill ? number >> 1 & 127 : number >> 6;
        if (length == 0 && !is_fill) { /* a digit, and those that follow it */
            int64_t far = skip * 128, unit = 128 * 1024;
            for (; k + 1 < (int64_t)count && numbers[2 * k + 2] % 64 == 0; k++, unit *= 1024) {
                if (unit > PATCH_FRAME_LIMIT) return NULL;
                far += unit * (numbers[2 * k + 2] >> 6 | numbers[2 * k + 3] << 2);
            }
            if (far > n - at) return NULL;
            at += far;
            seen.far++;
            continue;
        }
        if (end - data < (is_fill ? length == 0 ? 5 : 1 : length)) return NULL;
        const uint8_t *bytes = data;
        data += is_fill ? 1 : length;
        if (length == 0) {
            for (int byte = 0; byte < 4; byte++) length |= (int64_t)*data++ << 8 * byte;
            if (length == 0) return NULL;
            seen.long_fills++;
        }
        if (skip + length > n - at) return NULL;
        at += skip;
        for (int64_t i = 0; i < length; i++) frame[at++] = is_fill ? *bytes : bytes[i];
        seen.fills += is_fill;
    }
    return data;
}

/* ---- frames */

/* Rows and channels of all kinds: none, too near to predict from, and any other. */
static sb3x_shape draw_shape(source *from) {
    static const int64_t sizes[] = {1,  2,  3,  7,  8,   9,   15,  16,  17,  31,  32,  33,  34,  63,   64,   65,   66,
                                    95, 96, 97, 128, 129, 143, 144, 145, 200, 255, 256, 400, 784, 1000, 1323, 2352, 7056};
    static const int64_t distances[] = {0, 0, 1, 7, 15, 16, 17, 21, 28, 31, 63, 84, 129};
    sb3x_shape shape = {.bytes = sizes[below(from, sizeof sizes / sizeof *sizes)]};
    if (once_in(from, 8)) shape.bytes = 1 + below(from, 600);
    for (int k = 0; k < 2; k++) {
        int64_t kind = below(from, 16), distance;
        distance = kind < 13 ? distances[kind] : kind == 13 ? shape.bytes / 3 : kind == 14 ? shape.bytes : below(from, shape.bytes + 1);
        if (k == 1 && once_in(from, 2)) distance = shape.bytes / 3; /* three planes */
        *(k == 0 ? &shape.row : &shape.channel) = distance < shape.bytes ? distance : shape.bytes;
    }
    static const int64_t items[] = {0, 1, 1, 2, 2, 4, 4};
    shape.item = items[below(from, 7)];
    return shape;
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

/* Pictures of a camera, which looks at something else now and then; parts of them are dark, or as they were. */
static void draw_pictures(source *from, const sb3x_shape *shape, uint8_t *frames, int64_t n_frames) {
    int64_t scene = below(from, 1000);
    for (int64_t i = 0; i < n_frames; i++) {
        uint8_t *frame = frames + i * shape->bytes;
        if (once_in(from, 8)) scene = below(from, 1000);
        draw_picture(from, shape, scene, frame);
        int64_t begin = below(from, shape->bytes), length = below(from, shape->bytes - begin + 1), kind = below(from, 6);
        if (kind == 0) memset(frame + begin, 0, (size_t)length);
        if (kind == 1 && i > 0) memcpy(frame + begin, frame + begin - shape->bytes, (size_t)length);
        if (kind == 2) /* dim, so that nothing helps to predict it */
            for (int64_t k = begin; k < begin + length; k++) frame[k] = (uint8_t)(next_number(from) % 4);
    }
}

static void draw_any_frames(source *from, const sb3x_shape *shape, uint8_t *frames, int64_t n_frames, const uint8_t *base) {
    if (once_in(from, 2))
        draw_frames(from, frames, n_frames, shape->bytes, base);
    else
        draw_pictures(from, shape, frames, n_frames);
}

/* ---- encoding and decoding */

/* Damaged, it is refused, or it decodes to what naive code makes of it. */
static void check_damaged(source *from, const sb3x_shape *shape, const uint8_t *data, int64_t length, const uint8_t *base,
                          int64_t n_frames) {
    const sights before = seen; /* damage does not count */
    const int64_t size = shape->bytes;
    uint8_t *damaged = copy_of(data, length), *out = exactly(n_frames * size), *one = exactly(size);
    for (int64_t changes = below(from, 3); changes >= 0; changes--)
        set_byte(from, damaged, once_in(from, 4) && length > 6 ? 7 : length, once_in(from, 2) ? 256 : once_in(from, 2) ? 132 : 16);
    if (base) memcpy(one, base, (size_t)size);
    const uint8_t *at = damaged;
    for (int64_t i = 0; i < n_frames && at; i++) {
        at = decode_naively(shape, at, damaged + length, one, base);
        CHECK(sb3x_delta_decode(shape, damaged, length, base, i + 1, out) == (at ? SB3X_OK : SB3X_CORRUPT));
        CHECK(!at || memcmp(out + i * size, one, (size_t)size) == 0);
    }
    free(damaged), free(out), free(one);
    seen = before;
}

static void check_delta(source *from) {
    const sb3x_shape shape = draw_shape(from);
    const int64_t size = shape.bytes, n_frames = below(from, 6), most = n_frames * (size + size / 15 + 40);
    uint8_t *base = once_in(from, 2) ? exactly(size) : NULL, *frames = exactly(n_frames * size), *encoded = exactly(most);
    if (base) draw_any_frames(from, &shape, base, 1, NULL);
    draw_any_frames(from, &shape, frames, n_frames, base);
    int64_t length = sb3x_delta_encode(&shape, frames, n_frames, base, encoded, most);
    CHECK(length >= n_frames && length <= most);
    uint8_t *data = copy_of(encoded, length), *out = exactly(n_frames * size), *one = exactly(size);
    CHECK(sb3x_delta_decode(&shape, data, length, base, n_frames, out) == SB3X_OK);
    CHECK(n_frames == 0 || memcmp(out, frames, (size_t)(n_frames * size)) == 0);
    const uint8_t *at = data;
    if (base) memcpy(one, base, (size_t)size);
    for (int64_t i = 0; i < n_frames; i++) {
        at = decode_naively(&shape, at, data + length, one, base);
        CHECK(at && memcmp(one, frames + i * size, (size_t)size) == 0);
    }
    CHECK(at == data + length);
    /* The first frames alone; less bytes than that are refused. */
    int64_t some = below(from, n_frames + 1);
    CHECK(sb3x_delta_decode(&shape, data, length, base, some, out) == SB3X_OK);
    if (length > 0) {
        int64_t less = below(from, length);
        uint8_t *cut = copy_of(data, less);
        CHECK(sb3x_delta_decode(&shape, cut, less, base, n_frames, out) == SB3X_CORRUPT);
        free(cut);
    }
    /* In less room it fits, or it does not: the encoder keeps a few bytes of distance. Never a byte outside. */
    for (int64_t tries = 0; tries < 6; tries++) {
        int64_t room = tries == 0 ? length : tries == 1 ? length - 1 : below(from, length + 20);
        if (room < 0) continue;
        uint8_t *tight = exactly(room);
        int64_t found = sb3x_delta_encode(&shape, frames, n_frames, base, tight, room);
        CHECK(found == -1 || (found <= room && sb3x_delta_decode(&shape, tight, found, base, n_frames, out) == SB3X_OK));
        CHECK(found == -1 || n_frames == 0 || memcmp(out, frames, (size_t)(n_frames * size)) == 0);
        free(tight);
    }
    for (int64_t tries = 0; tries < 4 && length > 0; tries++) check_damaged(from, &shape, data, length, base, n_frames);
    free(base), free(frames), free(encoded), free(data), free(out), free(one);
}

/* Packing by itself: of any two frames, also where patches would be shorter, and in any room. */
static void check_packing(source *from) {
    const sb3x_shape shape = draw_shape(from);
    const int64_t size = shape.bytes, most = size + size / (GROUP * GROUPS) * 5 + 5;
    uint8_t *frames = exactly(2 * size), *out = exactly(most + PACKING_SLACK), *found = exactly(size), *naive = exactly(size);
    draw_any_frames(from, &shape, frames, 2, NULL);
    uint8_t *before = copy_of(frames, size), *frame = copy_of(frames + size, size);
    uint8_t *end = pack_frame(&shape, frame, before, out, out + most);
    CHECK(end);
    const int64_t length = end - out;
    uint8_t *packed = copy_of(out, length); /* so that nothing beyond can be read */
    CHECK(unpack_frame(&shape, packed, packed + length, before, found) == packed + length);
    CHECK(memcmp(found, frame, (size_t)size) == 0);
    const sights counted = seen;
    CHECK(unpack_naively(&shape, packed, packed + length, before, naive) == packed + length);
    seen = counted;
    CHECK(memcmp(naive, frame, (size_t)size) == 0);
    for (int tries = 0; tries < 4; tries++) { /* what it writes beyond the limit stays within the slack */
        int64_t room = tries < 2 ? length - tries : below(from, length + 2);
        uint8_t *tight = exactly(room + PACKING_SLACK);
        end = pack_frame(&shape, frame, before, tight, tight + room);
        CHECK(room >= length ? end == tight + length && memcmp(tight, packed, (size_t)length) == 0 : !end);
        free(tight);
        uint8_t *cut = copy_of(packed, room < length ? room : length);
        CHECK((unpack_frame(&shape, cut, cut + (room < length ? room : length), before, found) != NULL) == (room >= length));
        free(cut);
    }
    free(frames), free(out), free(found), free(naive), free(before), free(frame), free(packed);
}

/* A frame, rows or channels that cannot be: refused before anything is looked at. */
static void check_wrong_shapes(void) {
    static const sb3x_shape wrong[] = {
        {0, 0, 0, 1},         {-1, 0, 0, 1},        {INT64_MAX, 0, 0, 1}, {(int64_t)1 << 33, 0, 0, 1}, {9, -1, 0, 1},
        {9, 10, 0, 1},        {9, INT64_MAX, 0, 1}, {9, INT64_MIN, 0, 1}, {9, 0, -1, 1},               {9, 0, 10, 1},
        {9, 3, INT64_MAX, 1}, {9, 3, INT64_MIN, 1}, {9, 0, 0, -1},        {9, 0, 0, 3},                {9, 0, 0, 8},
        {9, 0, 0, INT64_MAX}, {9, 0, 0, INT64_MIN},
    };
    uint8_t bytes[16] = {0}, out[16];
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        CHECK(sb3x_delta_encode(&wrong[k], bytes, 1, NULL, out, 16) == -1);
        CHECK(sb3x_delta_decode(&wrong[k], bytes, 16, NULL, 1, out) == SB3X_CORRUPT);
    }
}

/* The number of patches has up to five bytes; more are refused, however they end. */
static void check_counts(void) {
    for (int64_t length = 1; length < 12; length++) {
        for (int last = 0; last < 128; last += last < 4 ? 1 : 41) {
            uint8_t *data = exactly(length + 3), frame[4] = {0};
            int64_t n = 0;
            for (int64_t i = 1; i < length; i++) data[n++] = 128;
            data[n++] = (uint8_t)last;
            data[n++] = 2, data[n++] = 0, data[n++] = 9; /* one patch, of one byte */
            int64_t value = length <= 5 ? (int64_t)last << (7 * (length - 1)) : -1;
            int is_tag = length == 2 && last == 0; /* which says how the frame begins */
            int32_t status = sb3x_delta_decode(&(sb3x_shape){4, 0, 0, 1}, data, n, NULL, 1, frame);
            CHECK((status == SB3X_OK) == (value == 1 || (value == 0 && !is_tag)));
            CHECK(status != SB3X_OK || frame[0] == 9 * value);
            free(data);
        }
    }
}

/* Skips and lengths that no single patch can say. */
static void check_far_patches(void) {
    static const int64_t sizes[] = {127, 128, 129, 255, 256, 1023, 1024, 1025, 40000, 131071, 131072, 262144, 300000, 700001};
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int64_t length = 1; length < 260; length += length < 4 ? 1 : length > 60 && length < 66 ? 1 : 61) {
            for (int is_fill = 0; is_fill < 2; is_fill++) {
                const int64_t n = sizes[k] + length, room = n + 60;
                sb3x_shape shape = {n, 0, 0, 1};
                uint8_t *frame = exactly(n), *out = exactly(room), *found = exactly(n);
                memset(frame, 0, (size_t)n);
                for (int64_t i = 0; i < length; i++) frame[sizes[k] + i] = (uint8_t)(is_fill ? 7 : 1 + i % 251);
                if (is_fill && k % 2) memset(frame, 5, (size_t)n); /* all of it */
                int64_t written = sb3x_delta_encode(&shape, frame, 1, NULL, out, room);
                CHECK(written > 0 && written < 20 + length + length / 15);
                CHECK(sb3x_delta_decode(&shape, out, written, NULL, 1, found) == SB3X_OK && memcmp(found, frame, (size_t)n) == 0);
                free(frame), free(out), free(found);
            }
        }
    }
}

void test_delta(int64_t rounds) {
    for (int64_t seed = 0; seed < 2000 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 4000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        allow_wide_vectors(seed % 2);
        check_delta(&from);
        check_packing(&from);
    }
    check_far_patches();
    allow_wide_vectors(1);
    check_far_patches();
    for (int k = 0; k < 4; k++) CHECK(seen.frames[k] > 0);
    for (int way = 0; way < N_WAYS; way++) CHECK(seen.ways[way] > 0 && seen.exactly[way] > 0);
    for (int width = 0; width <= WIDEST; width++) CHECK(seen.widths[width] > 0);
    CHECK(seen.short_bands > 0 && seen.short_rests > 0);
    CHECK(seen.fills > 0 && seen.long_fills > 0 && seen.far > 0);
    check_wrong_shapes();
    check_counts();
    const sb3x_shape one = {1, 0, 0, 1};
    uint8_t byte = 0, out[16];
    CHECK(sb3x_delta_encode(&one, &byte, 1, NULL, out, 0) == -1);
    CHECK(sb3x_delta_decode(&one, out, 0, NULL, 0, out) == SB3X_OK);
    CHECK(sb3x_delta_decode(&one, out, 0, NULL, 1, out) == SB3X_CORRUPT);
}
