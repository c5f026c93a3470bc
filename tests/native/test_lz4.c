/* LZ4 against naive code, in memory of exactly its size. The library's own output is read in tests/test_codecs_properties.py. */

#include "check.h"
#include "lz4.h"
#include "sb3x.h"
#include "tests.h"

/* The block format, byte by byte: the first n bytes, behind `done` that are there. How many there are, or -1. */
static int64_t decode_naively(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t done, int64_t n) {
    while (data < end && done < n) {
        int token = *data++;
        int64_t lengths[2] = {token >> 4, token & 15};
        for (int part = 0; part < 2; part++) {
            int64_t offset = 0;
            if (part == 1) {
                if (done >= n || data >= end) return done;
                if (end - data < 2) return -1;
                offset = data[0] + 256 * data[1];
                data += 2;
            }
            for (int more = lengths[part] == 15; more;) {
                if (data >= end) return -1;
                more = *data == 255;
                lengths[part] += *data++;
            }
            if (part == 0 && lengths[0] > end - data) return -1;
            if (part == 1 && (offset == 0 || offset > done)) return -1;
            if (part == 1) lengths[1] += 4;
            for (int64_t k = 0; k < lengths[part] && done < n; k++, done++) out[done] = part == 0 ? *data++ : out[done - offset];
        }
    }
    return done;
}

static int64_t put_length(uint8_t *out, int64_t at, int64_t length) {
    if (length < 15) return at;
    for (length -= 15; length >= 255; length -= 255) out[at++] = 255;
    out[at++] = (uint8_t)length;
    return at;
}

/* Any block that can be: literals and matches of all lengths. Its length; `total` is what it decodes to. */
static int64_t draw_block(source *from, uint8_t *out, int64_t *total) {
    int64_t at = 0, n_sequences = below(from, 12);
    for (int64_t i = 0; i <= n_sequences; i++) {
        static const int64_t lengths[] = {0, 0, 1, 3, 7, 14, 15, 16, 17, 40, 269, 270, 271, 300};
        int64_t literals = lengths[below(from, 14)], match = i < n_sequences ? lengths[below(from, 14)] : 0;
        if (*total + literals == 0) literals = 1; /* a match needs something to look back to */
        out[at] = (uint8_t)((literals < 15 ? literals : 15) << 4 | (match < 15 ? match : 15));
        at = put_length(out, at + 1, literals);
        for (int64_t k = 0; k < literals; k++) out[at++] = (uint8_t)(once_in(from, 2) ? below(from, 256) : 7);
        *total += literals;
        if (i == n_sequences) break;
        int64_t offset = 1 + below(from, once_in(from, 2) && *total > 20 ? 20 : *total);
        out[at++] = (uint8_t)offset;
        out[at++] = (uint8_t)(offset >> 8);
        at = put_length(out, at, match);
        *total += match + 4;
    }
    return at;
}

static void check_block(source *from) {
    static uint8_t drawn[1 << 15];
    int64_t total = 0, length = draw_block(from, drawn + 4, &total) + 4, n = once_in(from, 2) ? total : below(from, total + 10);
    for (int damages = once_in(from, 2) ? 0 : 1 + (int)below(from, 3); damages > 0; damages--) set_byte(from, drawn + 4, length - 4, 256);
    if (once_in(from, 6)) length = below(from, length + 1);
    uint8_t *data = copy_of(drawn, length), *out = exactly(n), *naive = exactly(n);
    int is_right = length >= 4 && decode_naively(data + 4, data + length, naive, 0, n) == n;
    CHECK(read_lz4_block(data, data + length, out, n) == is_right);
    CHECK(!is_right || n == 0 || memcmp(out, naive, (size_t)n) == 0);
    free(data), free(out), free(naive);
}

/* Frames of several blocks: that look back or not, compressed or not, with checksums or not. */
static void check_frame(source *from) {
    static uint8_t drawn[1 << 17], plain[1 << 16];
    int are_apart = (int)below(from, 2), has_checksums = (int)below(from, 2), has_size = (int)below(from, 2);
    int64_t at = 0, total = 0;
    const uint8_t magic[4] = {0x04, 0x22, 0x4D, 0x18};
    memcpy(drawn, magic, 4);
    drawn[4] = (uint8_t)(1 << 6 | are_apart << 5 | has_checksums << 4 | has_size << 3);
    drawn[5] = 0x40;
    at = 7 + 8 * has_size;
    for (int64_t blocks = below(from, 4); blocks > 0; blocks--) {
        int64_t before = are_apart ? total : 0, end = are_apart ? 0 : total, length;
        uint8_t *block = drawn + at + 4;
        int is_raw = once_in(from, 3);
        if (is_raw) {
            length = 1 + below(from, 300);
            for (int64_t k = 0; k < length; k++) plain[total + k] = block[k] = (uint8_t)below(from, 256);
            total += length;
        } else {
            length = draw_block(from, block, &end);
            CHECK(decode_naively(block, block + length, plain + before, total - before, end) == end);
            total = before + end;
        }
        uint32_t number = (uint32_t)length | (uint32_t)is_raw << 31;
        memcpy(drawn + at, &number, 4);
        at += 4 + length + 4 * has_checksums;
    }
    memset(drawn + at, 0, 4);
    at += 4;
    int64_t n = once_in(from, 2) ? total : below(from, total + 1);
    uint8_t *data = copy_of(drawn, at), *out = exactly(n);
    CHECK(read_lz4_frame(data, data + at, out, n));
    CHECK(n == 0 || memcmp(out, plain, (size_t)n) == 0);
    uint8_t *more = exactly(total + 1);
    CHECK(!read_lz4_frame(data, data + at, more, total + 1));
    free(more);
    /* Damaged or cut, it is refused, or gives something: never a byte outside. */
    for (int tries = 0; tries < 4; tries++) {
        int64_t length = once_in(from, 2) ? at : below(from, at);
        uint8_t *damaged = copy_of(drawn, length);
        for (int k = 0; k < 3 && length > 0; k++) set_byte(from, damaged, once_in(from, 2) && length > 20 ? 20 : length, 256);
        (void)read_lz4_frame(damaged, damaged + length, out, n);
        free(damaged);
    }
    free(data), free(out);
}

void test_lz4(int64_t rounds) {
    for (int64_t seed = 0; seed < 3000 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 9000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        check_block(&from);
        check_frame(&from);
    }
}
