/* Differences <-> patches. patches.h has the format. */

#include "patches.h"

#include "bytes.h"

/* Equal bytes in a row that are worth a fill of their own within a patch. A patch runs across up to two bytes that did not
   change, because a new one costs two bytes or more. */
#define SHORTEST_FILL 8
/* The most that a patch takes beside its bytes: two numbers of 5 bytes, and the closing 0. */
#define PATCH_OVERHEAD 11

static int64_t next_difference(const uint8_t *a, const uint8_t *b, int64_t i, int64_t n) {
    while (i + 64 <= n && !differ_64(a + i, b + i)) i += 64;
    for (; i + 32 <= n; i += 32) {
        uint32_t mask = differing_bytes(a + i, b + i);
        if (mask) return i + lowest_bit(mask);
    }
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Where the patch that begins at `start` ends: behind the last difference before three equal bytes. */
static int64_t patch_end(const uint8_t *a, const uint8_t *b, int64_t start, int64_t n) {
    int64_t i = start;
    for (; i + 32 <= n; i += 30) { /* the last two may be the beginning of a gap */
        uint32_t equal = ~differing_bytes(a + i, b + i);
        uint32_t gaps = equal & (equal >> 1) & (equal >> 2);
        if (gaps) return i + lowest_bit(gaps);
    }
    int64_t end = i;
    while (end > start && a[end - 1] == b[end - 1]) end--;
    for (; i < n && i - end <= 2; i++)
        if (a[i] != b[i]) end = i + 1;
    return end;
}

/* Where the first SHORTEST_FILL equal bytes between `start` and `end` begin; `end` if there are none. */
static int64_t next_fill(const uint8_t *bytes, int64_t start, int64_t end) {
    int64_t i = start;
    for (; i + 33 <= end; i += 26) { /* the last six may be the beginning of a fill */
        uint32_t equal = ~differing_bytes(bytes + i, bytes + i + 1);
        uint32_t pairs = equal & (equal >> 1);
        uint32_t fours = pairs & (pairs >> 2);
        uint32_t sevens = fours & (fours >> 3);
        if (sevens) return i + lowest_bit(sevens);
    }
    int64_t begin = i;
    while (i < end) {
        if (bytes[i] != bytes[begin]) begin = i;
        i++;
        if (i - begin == SHORTEST_FILL) return begin;
    }
    return end;
}

static inline uint8_t *put_number(uint8_t *out, uint64_t number) {
    for (; number >= 128; number >>= 7) *out++ = (uint8_t)(number | 128);
    *out++ = (uint8_t)number;
    return out;
}

uint8_t *write_patches(const uint8_t *before, const uint8_t *after, int64_t n, uint8_t *out, const uint8_t *limit) {
    int64_t reached = 0;
    int64_t start = next_difference(before, after, 0, n);
    while (start < n) {
        int64_t end = patch_end(before, after, start, n);
        while (start < end) {
            int64_t literal_end = end - start >= SHORTEST_FILL ? next_fill(after, start, end) : end;
            if (literal_end > start) {
                int64_t length = literal_end - start;
                if (limit - out < length + PATCH_OVERHEAD) return NULL;
                out = put_number(out, (uint64_t)length << 1);
                out = put_number(out, (uint64_t)(start - reached));
                if (length <= 8 && limit - out >= 8 && start + 8 <= n)
                    store_word(out, load_word(after + start));
                else
                    memcpy(out, after + start, (size_t)length);
                out += length;
                start = reached = literal_end;
            }
            if (literal_end < end) {
                /* Bytes that did not change may well be filled too. */
                int64_t stop = next_difference(after, after + 1, start, n - 1) + 1;
                if (limit - out < 1 + PATCH_OVERHEAD) return NULL;
                out = put_number(out, (uint64_t)(stop - start) << 1 | 1);
                out = put_number(out, (uint64_t)(start - reached));
                *out++ = after[start];
                start = reached = stop;
            }
        }
        start = next_difference(before, after, start, n);
    }
    if (out >= limit) return NULL;
    *out++ = 0;
    return out;
}

/* The loop that sampling spends its time in. */
const uint8_t *apply_patches(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n) {
    int64_t reached = 0;
    for (;;) {
        if (data >= end) return NULL;
        uint64_t number = *data++;
        if (number == 0) return data;
        if (number >= 128) {
            number &= 127;
            for (int shift = 7;; shift += 7) {
                if (data >= end || shift > 28) return NULL;
                uint64_t byte = *data++;
                number |= (byte & 127) << shift;
                if (byte < 128) break;
            }
        }
        if (data >= end) return NULL;
        uint64_t skip = *data++;
        if (skip >= 128) {
            skip &= 127;
            for (int shift = 7;; shift += 7) {
                if (data >= end || shift > 28) return NULL;
                uint64_t byte = *data++;
                skip |= (byte & 127) << shift;
                if (byte < 128) break;
            }
        }
        int64_t length = (int64_t)(number >> 1);
        reached += (int64_t)skip; /* below 2^35 each, and reached stays below 2^36: no overflow */
        if (length == 0 || reached + length > n) return NULL;
        uint8_t *target = frame + reached;
        if (number & 1) {
            if (data >= end) return NULL;
            memset(target, *data++, (size_t)length);
        } else {
            if (end - data < length) return NULL;
            if (length <= 8 && reached + 8 <= n && end - data >= 8) {
                uint64_t mask = ~(uint64_t)0 >> (8 * (8 - length));
                store_word(target, (load_word(target) & ~mask) | (load_word(data) & mask));
            } else {
                memcpy(target, data, (size_t)length);
            }
            data += length;
        }
        reached += length;
    }
}
