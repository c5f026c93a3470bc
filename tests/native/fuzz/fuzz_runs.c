/* Run lengths: lengths that lie, and any items.
   Input: sizes of items and lengths, items (2 bytes); then lengths, then values. */

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const int32_t item_bytes = 1 << data[0] % 4, length_bytes = 1 << data[0] / 4 % 4;
    const int64_t n = (data[1] | (int64_t)data[2] << 8) % 4096;
    const int64_t n_runs = ((int64_t)size - 3) / (item_bytes + length_bytes);
    uint8_t *lengths = copy_of(data + 3, n_runs * length_bytes);
    uint8_t *values = copy_of(data + 3 + n_runs * length_bytes, n_runs * item_bytes);
    uint8_t *items = exactly(n * item_bytes);
    int64_t written = sb3x_write_runs(values, lengths, n_runs, item_bytes, length_bytes, items, n);
    int64_t expected = 0;
    for (int64_t i = 0; i < n_runs && expected < n; i++) {
        uint64_t length = 0;
        memcpy(&length, lengths + i * length_bytes, (size_t)length_bytes);
        for (uint64_t k = 0; k < length && expected < n; k++, expected++)
            CHECK(memcmp(items + expected * item_bytes, values + i * item_bytes, (size_t)item_bytes) == 0);
    }
    CHECK(written == expected);
    /* Runs of what came out. */
    uint64_t longest = 1 + (uint64_t)data[0] / 16;
    uint8_t *found_values = exactly(written * item_bytes), *found = exactly(written * length_bytes);
    uint8_t *again = exactly(written * item_bytes);
    int64_t count = sb3x_find_runs(items, written, item_bytes, longest, written, length_bytes, found_values, found);
    CHECK(count >= 0 && count <= written);
    CHECK(sb3x_write_runs(found_values, found, count, item_bytes, length_bytes, again, written) == written);
    CHECK(written == 0 || memcmp(items, again, (size_t)(written * item_bytes)) == 0);
    free(lengths), free(values), free(items), free(found_values), free(found), free(again);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    int64_t n = 3 + below(from, 60);
    for (int64_t i = 0; i < n && i < room; i++) out[i] = (uint8_t)below(from, i < 3 || once_in(from, 8) ? 256 : 6);
    return n;
}
