/* `delta`: frames <-> patches. patches.h has the format. */

#include "patches.h"

#include "bytes.h"
#include "internal.h"

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

/* In how many pieces of 32 bytes two memories differ; a shorter rest does not count. */
static int64_t count_differences(const uint8_t *a, const uint8_t *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i + 32 <= n; i += 32) count += differing_bytes(a + i, b + i) != 0;
    return count;
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

uint8_t *write_patches(const uint8_t *before, const uint8_t *after, int64_t n, uint8_t *out, uint8_t *limit) {
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

int make_patch_scratch(patch_scratch *scratch, int64_t frame_bytes) {
    scratch->frame_bytes = frame_bytes;
    scratch->zeros = sb3x_map((size_t)frame_bytes);
    scratch->spare = sb3x_map((size_t)frame_bytes);
    if (scratch->zeros && scratch->spare) return 1;
    free_patch_scratch(scratch);
    return 0;
}

void free_patch_scratch(patch_scratch *scratch) {
    sb3x_unmap(scratch->zeros, (size_t)scratch->frame_bytes);
    sb3x_unmap(scratch->spare, (size_t)scratch->frame_bytes);
    scratch->zeros = scratch->spare = NULL;
}

uint8_t *write_frame(const patch_scratch *scratch, const uint8_t *before, const uint8_t *after, const uint8_t *base,
                     uint8_t *out, uint8_t *end, uint8_t *limit) {
    int64_t n = scratch->frame_bytes;
    if (!end) end = write_patches(before, after, n, out, limit);
    /* Only for a frame that has changed a lot (a new episode, a new scene), and only from where less is different. */
    if (end && end - out <= n / 16) return end;
    int64_t best = end ? end - out : limit - out + 1;
    int64_t least = count_differences(before, after, n);
    for (int how = PATCH_FROM_ZEROS; how <= PATCH_FROM_BASE; how++) {
        const uint8_t *from = how == PATCH_FROM_ZEROS ? scratch->zeros : base;
        if (!from || (end && count_differences(from, after, n) >= least)) continue;
        int64_t room = best - 3 < n ? best - 3 : n;
        uint8_t *stop = room > 0 ? write_patches(from, after, n, scratch->spare, scratch->spare + room) : NULL;
        if (!stop) continue;
        out[0] = (uint8_t)how;
        out[1] = 0;
        memcpy(out + 2, scratch->spare, (size_t)(stop - scratch->spare));
        best = stop - scratch->spare + 2;
        end = out + best;
    }
    return end;
}

/* The loop that sampling spends its time in. */
const uint8_t *apply_patches(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n, const uint8_t *base) {
    if (end - data >= 2 && data[1] == 0) {
        if (data[0] == PATCH_FROM_ZEROS) {
            memset(frame, 0, (size_t)n);
            data += 2;
        } else if (data[0] == PATCH_FROM_BASE) {
            if (!base) return NULL;
            memcpy(frame, base, (size_t)n);
            data += 2;
        }
    }
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

int64_t sb3x_delta_encode(const uint8_t *frames, int64_t n_frames, int64_t frame_bytes, const uint8_t *base, uint8_t *out,
                          int64_t room) {
    patch_scratch scratch;
    if (frame_bytes < 1 || frame_bytes >= PATCH_FRAME_LIMIT || !make_patch_scratch(&scratch, frame_bytes)) return -1;
    uint8_t *position = out, *limit = out + room;
    const uint8_t *before = base ? base : scratch.zeros;
    for (int64_t i = 0; i < n_frames && position; i++, before = frames, frames += frame_bytes)
        position = write_frame(&scratch, before, frames, base, position, NULL, limit);
    free_patch_scratch(&scratch);
    return position ? position - out : -1;
}

int32_t sb3x_delta_decode(const uint8_t *data, int64_t n, const uint8_t *base, int64_t n_frames, int64_t frame_bytes,
                          uint8_t *out) {
    const uint8_t *end = n > 0 ? data + n : data;
    if (frame_bytes < 1) return SB3X_CORRUPT;
    for (int64_t i = 0; i < n_frames; i++, out += frame_bytes) {
        const uint8_t *before = i > 0 ? out - frame_bytes : base;
        if (before)
            memcpy(out, before, (size_t)frame_bytes);
        else
            memset(out, 0, (size_t)frame_bytes);
        data = apply_patches(data, end, out, frame_bytes, base);
        if (!data) return SB3X_CORRUPT;
    }
    return SB3X_OK;
}
