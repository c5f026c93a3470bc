/* Run lengths: items <-> values and how often each stands in a row. */

#include <string.h>

#include "bytes.h"
#include "internal.h"

/* A copy of a fixed size is one store; of a size that the compiler does not know, it would be a call. */
static inline void put_length(uint8_t *lengths, int64_t i, int32_t length_bytes, uint64_t length) {
    switch (length_bytes) { /* little endian */
        case 1: lengths[i] = (uint8_t)length; break;
        case 2: memcpy(lengths + 2 * i, &length, 2); break;
        case 4: memcpy(lengths + 4 * i, &length, 4); break;
        default: memcpy(lengths + 8 * i, &length, 8);
    }
}

#define FIND_RUNS(ITEM)                                                                                    \
    static int64_t find_runs_##ITEM(const uint8_t *bytes, int64_t n, uint64_t longest, int64_t most,       \
                                    int32_t length_bytes, uint8_t *values, uint8_t *lengths) {             \
        int64_t count = 0, i = 0;                                                                          \
        while (i < n) {                                                                                    \
            ITEM value, other;                                                                             \
            memcpy(&value, bytes + i * (int64_t)sizeof(ITEM), sizeof(ITEM));                               \
            int64_t end = (uint64_t)(n - i) > longest ? i + (int64_t)longest : n;                          \
            int64_t j = i + 1;                                                                             \
            for (; j < end; j++) {                                                                         \
                memcpy(&other, bytes + j * (int64_t)sizeof(ITEM), sizeof(ITEM));                           \
                if (other != value) break;                                                                 \
            }                                                                                              \
            if (count == most) return -1;                                                                  \
            memcpy(values + count * (int64_t)sizeof(ITEM), &value, sizeof(ITEM));                          \
            uint64_t length = (uint64_t)(j - i);                                                           \
            put_length(lengths, count, length_bytes, length);                                              \
            count++;                                                                                       \
            i = j;                                                                                         \
        }                                                                                                  \
        return count;                                                                                      \
    }

#define WRITE_RUNS(ITEM)                                                                                   \
    static int64_t write_runs_##ITEM(const uint8_t *values, const uint8_t *lengths, int64_t n_runs,        \
                                     int32_t length_bytes, uint8_t *bytes, int64_t n) {                    \
        int64_t filled = 0;                                                                                \
        for (int64_t i = 0; i < n_runs && filled < n; i++) {                                               \
            ITEM value;                                                                                    \
            uint64_t length = 0;                                                                           \
            memcpy(&value, values + i * (int64_t)sizeof(ITEM), sizeof(ITEM));                              \
            memcpy(&length, lengths + i * length_bytes, (size_t)length_bytes);                             \
            int64_t end = length < (uint64_t)(n - filled) ? filled + (int64_t)length : n;                  \
            for (; filled < end; filled++) memcpy(bytes + filled * (int64_t)sizeof(ITEM), &value, sizeof(ITEM)); \
        }                                                                                                  \
        return filled;                                                                                     \
    }

FIND_RUNS(uint16_t)
FIND_RUNS(uint32_t)
FIND_RUNS(uint64_t)
WRITE_RUNS(uint8_t)
WRITE_RUNS(uint16_t)
WRITE_RUNS(uint32_t)
WRITE_RUNS(uint64_t)

/* Runs of single bytes. Where they end is found 32 bytes at a time: a loop over the bytes of short runs mostly guesses wrong. */
static int64_t find_byte_runs(const uint8_t *bytes, int64_t n, uint64_t longest, int64_t most, int32_t length_bytes,
                              uint8_t *values, uint8_t *lengths) {
    int64_t count = 0, start = 0;
    for (int64_t i = 1; start < n; i += 32) {
        uint32_t ends = 0; /* a bit for each place from i on where another run begins, or the bytes are over */
        if (i + 32 <= n) {
            ends = differing_bytes(bytes + i, bytes + i - 1);
        } else {
            for (int64_t k = i; k < n; k++) ends |= (uint32_t)(bytes[k] != bytes[k - 1]) << (k - i);
            ends |= UINT32_C(1) << (n - i);
        }
        for (; ends; ends &= ends - 1) {
            int64_t end = i + lowest_bit(ends);
            while (start < end) {
                uint64_t length = (uint64_t)(end - start) > longest ? longest : (uint64_t)(end - start);
                if (count == most) return -1;
                values[count] = bytes[start];
                put_length(lengths, count++, length_bytes, length);
                start += (int64_t)length;
            }
        }
    }
    return count;
}

static int is_size(int32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

int64_t sb3x_find_runs(const uint8_t *items, int64_t n, int32_t item_bytes, uint64_t longest, int64_t most,
                       int32_t length_bytes, uint8_t *values, uint8_t *lengths) {
    if (!is_size(item_bytes) || !is_size(length_bytes) || longest < 1) return -1;
    if (longest > UINT64_MAX >> (64 - 8 * length_bytes)) longest = UINT64_MAX >> (64 - 8 * length_bytes);
    switch (item_bytes) {
        case 1: return find_byte_runs(items, n, longest, most, length_bytes, values, lengths);
        case 2: return find_runs_uint16_t(items, n, longest, most, length_bytes, values, lengths);
        case 4: return find_runs_uint32_t(items, n, longest, most, length_bytes, values, lengths);
        default: return find_runs_uint64_t(items, n, longest, most, length_bytes, values, lengths);
    }
}

int64_t sb3x_write_runs(const uint8_t *values, const uint8_t *lengths, int64_t n_runs, int32_t item_bytes,
                        int32_t length_bytes, uint8_t *items, int64_t n) {
    if (!is_size(item_bytes) || !is_size(length_bytes)) return 0;
    switch (item_bytes) {
        case 1: return write_runs_uint8_t(values, lengths, n_runs, length_bytes, items, n);
        case 2: return write_runs_uint16_t(values, lengths, n_runs, length_bytes, items, n);
        case 4: return write_runs_uint32_t(values, lengths, n_runs, length_bytes, items, n);
        default: return write_runs_uint64_t(values, lengths, n_runs, length_bytes, items, n);
    }
}
