/* Reading LZ4. lz4.h has the contract. */

#include "lz4.h"

#include <string.h>

#include "bytes.h"

enum { SHORTEST_MATCH = 4, MAGIC_BYTES = 4 };

/* A length that goes on in further bytes while they are 255; -1 if they end before. */
static int64_t read_length(const uint8_t **data, const uint8_t *end, int64_t length) {
    if (length < 15) return length;
    for (;;) {
        if (*data >= end) return -1;
        uint8_t byte = *(*data)++;
        length += byte;
        if (byte < 255) return length;
    }
}

/* Sequences of a block, behind `done` bytes that are there already, until n bytes are. How many there are, or -1. */
static int64_t read_sequences(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t done, int64_t n) {
    while (data < end && done < n) {
        uint8_t token = *data++;
        int64_t literals = read_length(&data, end, token >> 4);
        if (literals < 0 || literals > end - data) return -1;
        if (literals > n - done) literals = n - done; /* no more are needed */
        if (literals <= 16 && end - data >= 16 && n - done >= 16)
            store_vector(out + done, load_vector(data));
        else
            memcpy(out + done, data, (size_t)literals);
        data += literals;
        done += literals;
        if (done == n || data == end) break; /* the last sequence has literals only */
        if (end - data < 2) return -1;
        int64_t offset = data[0] | (int64_t)data[1] << 8;
        data += 2;
        int64_t length = read_length(&data, end, token & 15);
        if (length < 0 || offset == 0 || offset > done) return -1;
        length += SHORTEST_MATCH;
        if (length > n - done) length = n - done;
        copy_match(out + done, offset, length, n - done);
        done += length;
    }
    return done;
}

static int64_t read_number(const uint8_t *data) {
    uint32_t number;
    memcpy(&number, data, 4);
    return number;
}

int read_lz4_block(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n) {
    return end - data >= 4 && read_sequences(data + 4, end, out, 0, n) == n;
}

int read_lz4_frame(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n) {
    enum { HAS_BLOCK_CHECKSUMS = 16, HAS_SIZE = 8, HAS_DICTIONARY = 1, ARE_APART = 32 };
    if (end - data < MAGIC_BYTES + 3 || read_number(data) != 0x184D2204) return 0;
    const int flags = data[MAGIC_BYTES];
    if (flags >> 6 != 1 || flags & HAS_DICTIONARY) return 0;
    const int64_t header = MAGIC_BYTES + 3 + (flags & HAS_SIZE ? 8 : 0);
    if (end - data < header) return 0;
    data += header;
    int64_t done = 0;
    while (done < n) {
        if (end - data < 4) return 0;
        int64_t length = read_number(data), is_raw = length >> 31;
        length &= 0x7fffffff;
        data += 4;
        if (length == 0 || length > end - data) return 0;
        if (is_raw) {
            int64_t some = length < n - done ? length : n - done;
            memcpy(out + done, data, (size_t)some);
            done += some;
        } else {
            /* Blocks that are apart do not look back, others may. */
            int64_t before = flags & ARE_APART ? done : 0;
            int64_t found = read_sequences(data, data + length, out + before, done - before, n - before);
            if (found < 0) return 0;
            done = before + found;
        }
        data += length;
        if (flags & HAS_BLOCK_CHECKSUMS) {
            if (end - data < 4) return done == n;
            data += 4;
        }
    }
    return 1;
}
