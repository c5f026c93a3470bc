/* LZ4: whatever is decoded, nothing is touched outside.
   Input: 1 for a frame, how many bytes are wanted (2 bytes); then the payload. */

#include "fuzz.h"
#include "lz4.h"

enum { HEADER = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEADER) return 0;
    const int64_t n = data[1] | (int64_t)data[2] << 8, length = (int64_t)size - HEADER;
    uint8_t *payload = copy_of(data + HEADER, length), *out = exactly(n), *again = exactly(n / 2);
    int (*read)(const uint8_t *, const uint8_t *, uint8_t *, int64_t) = data[0] % 2 ? read_lz4_frame : read_lz4_block;
    /* What gives n bytes gives fewer, and they are the first of them. */
    if (read(payload, payload + length, out, n)) {
        CHECK(read(payload, payload + length, again, n / 2));
        CHECK(n < 2 || memcmp(out, again, (size_t)(n / 2)) == 0);
    }
    free(payload), free(out), free(again);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    const int is_frame = (int)below(from, 2);
    const uint8_t header[7] = {0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0};
    int64_t at = HEADER, total = 0, begin;
    out[0] = (uint8_t)is_frame;
    memset(out + at, 0, 4);
    if (is_frame) memcpy(out + at, header, 7);
    at += is_frame ? 11 : 4;
    begin = at;
    for (int64_t left = 1 + below(from, 8); left > 0 && at + 40 < room; left--) {
        int64_t literals = 1 + below(from, 14), match = below(from, 15);
        out[at++] = (uint8_t)(literals << 4 | match);
        for (int64_t k = 0; k < literals; k++) out[at++] = (uint8_t)below(from, 256);
        total += literals;
        out[at++] = (uint8_t)(1 + below(from, total < 255 ? total : 255));
        out[at++] = 0;
        total += match + 4;
    }
    if (is_frame) {
        uint32_t length = (uint32_t)(at - begin);
        memcpy(out + begin - 4, &length, 4);
    }
    out[1] = (uint8_t)total;
    out[2] = (uint8_t)(total >> 8);
    return at;
}
