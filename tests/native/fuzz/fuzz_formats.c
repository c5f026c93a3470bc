/* Formats of libraries: whatever is decoded, nothing is touched outside.
   Input: the format, less one; how many bytes are wanted (2 bytes); then the payload. What begins with "library" in the corpus was
   written by zlib, isal and zstandard. */

#include "fuzz.h"

enum { HEADER = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEADER) return 0;
    const int64_t format = 1 + data[0] % SB3X_READ_ZSTD, n = data[1] | (int64_t)data[2] << 8, length = (int64_t)size - HEADER;
    uint8_t *payload = copy_of(data + HEADER, length), *out = exactly(n), *again = exactly(n / 2);
    /* What gives n bytes gives fewer, and they are the first of them. */
    if (sb3x_decode(format, payload, length, out, n) == SB3X_OK) {
        CHECK(sb3x_decode(format, payload, length, again, n / 2) == SB3X_OK);
        CHECK(n < 2 || memcmp(out, again, (size_t)(n / 2)) == 0);
    }
    free(payload), free(out), free(again);
    return 0;
}

/* ---- seeds: what can be written without a library */

static int64_t seed_lz4(source *from, int is_frame, uint8_t *out, int64_t room, int64_t *total) {
    const uint8_t header[7] = {0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0};
    int64_t at = 0, begin;
    memset(out, 0, 4);
    if (is_frame) memcpy(out, header, 7);
    at += is_frame ? 11 : 4;
    begin = at;
    for (int64_t left = 1 + below(from, 8); left > 0 && at + 40 < room; left--) {
        int64_t literals = 1 + below(from, 14), match = below(from, 15);
        out[at++] = (uint8_t)(literals << 4 | match);
        for (int64_t k = 0; k < literals; k++) out[at++] = (uint8_t)below(from, 256);
        *total += literals;
        out[at++] = (uint8_t)(1 + below(from, *total < 255 ? *total : 255));
        out[at++] = 0;
        *total += match + 4;
    }
    if (is_frame) {
        uint32_t length = (uint32_t)(at - begin);
        memcpy(out + begin - 4, &length, 4);
    }
    return at;
}

/* Stored blocks. */
static int64_t seed_zlib(source *from, uint8_t *out, int64_t *total) {
    int64_t at = 2;
    out[0] = 0x78, out[1] = 0x01;
    for (int64_t left = 1 + below(from, 4); left > 0; left--) {
        int64_t n = below(from, 20);
        const uint8_t header[5] = {left == 1, (uint8_t)n, 0, (uint8_t)~n, 0xff};
        memcpy(out + at, header, 5);
        at += 5;
        for (int64_t k = 0; k < n; k++) out[at++] = (uint8_t)below(from, 256);
        *total += n;
    }
    return at;
}

/* Raw blocks, blocks of one byte, and blocks of raw literals without sequences. */
static int64_t seed_zstd(source *from, uint8_t *out, int64_t *total) {
    const uint8_t header[6] = {0x28, 0xB5, 0x2F, 0xFD, 0, 0x50};
    int64_t at = 6;
    memcpy(out, header, 6);
    for (int64_t left = 1 + below(from, 4); left > 0; left--) {
        int64_t n = below(from, 20), kind = below(from, 3), size = kind == 2 ? n + 2 : n;
        out[at++] = (uint8_t)(size << 3 | kind << 1 | (left == 1));
        out[at++] = (uint8_t)(size >> 5);
        out[at++] = 0;
        if (kind == 2) out[at++] = (uint8_t)(n << 3);
        for (int64_t k = 0; k < (kind == 1 ? 1 : n); k++) out[at++] = (uint8_t)below(from, 256);
        if (kind == 2) out[at++] = 0;
        *total += n;
    }
    return at;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    const int which = (int)below(from, 4);
    int64_t total = 0, n;
    uint8_t *payload = out + HEADER;
    if (which < 2)
        n = seed_lz4(from, which, payload, room - HEADER, &total);
    else
        n = which == 2 ? seed_zlib(from, payload, &total) : seed_zstd(from, payload, &total);
    out[0] = (uint8_t)which;
    out[1] = (uint8_t)total;
    out[2] = (uint8_t)(total >> 8);
    return HEADER + n;
}
