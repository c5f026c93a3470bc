/* Run lengths: items <-> values and how often each stands in a row. */

#include <string.h>

#include "internal.h"

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
            memcpy(lengths + count * length_bytes, &length, (size_t)length_bytes); /* little endian */     \
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

FIND_RUNS(uint8_t)
FIND_RUNS(uint16_t)
FIND_RUNS(uint32_t)
FIND_RUNS(uint64_t)
WRITE_RUNS(uint8_t)
WRITE_RUNS(uint16_t)
WRITE_RUNS(uint32_t)
WRITE_RUNS(uint64_t)

static int is_size(int32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

int64_t sb3x_find_runs(const uint8_t *items, int64_t n, int32_t item_bytes, uint64_t longest, int64_t most,
                       int32_t length_bytes, uint8_t *values, uint8_t *lengths) {
    if (!is_size(item_bytes) || !is_size(length_bytes) || longest < 1) return -1;
    if (longest > UINT64_MAX >> (64 - 8 * length_bytes)) longest = UINT64_MAX >> (64 - 8 * length_bytes);
    switch (item_bytes) {
        case 1: return find_runs_uint8_t(items, n, longest, most, length_bytes, values, lengths);
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
