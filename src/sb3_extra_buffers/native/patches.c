/* Differences <-> patches. patches.h has the format. */

#include "patches.h"

#include "bytes.h"
#include "wide.h"

/* Equal bytes in a row that are worth a fill of their own within a patch. */
#define SHORTEST_FILL 8
/* The most bytes that the number of patches takes. */
#define COUNT_BYTES 5

/* ---- looking at 64 bytes; with `wide` in one step */

/* A bit for each of the 64 bytes from i on that differs, of those that there are. */
#if defined(SB3X_HAS_WIDE)
static inline SB3X_WIDE uint64_t differences_wide(const uint8_t *a, const uint8_t *b, int64_t i, int64_t n) {
    if (i >= n) return 0;
    __mmask64 there = n - i < 64 ? first_bytes(n - i) : ~(__mmask64)0;
    return _mm512_mask_cmpneq_epi8_mask(there, _mm512_maskz_loadu_epi8(there, a + i), _mm512_maskz_loadu_epi8(there, b + i));
}
#else
static inline uint64_t differences_wide(const uint8_t *a, const uint8_t *b, int64_t i, int64_t n) {
    (void)a, (void)b, (void)i, (void)n;
    return 0;
}
#endif

static inline uint64_t differences(const uint8_t *a, const uint8_t *b, int64_t i, int64_t n) {
    uint64_t mask = 0;
    if (i + 64 <= n) return differing_bytes(a + i, b + i) | (uint64_t)differing_bytes(a + i + 32, b + i + 32) << 32;
    int64_t k = i;
    if (i + 32 <= n) {
        mask = differing_bytes(a + i, b + i);
        k += 32;
    }
    for (; k < n; k++) mask |= (uint64_t)(a[k] != b[k]) << (k - i);
    return mask;
}

SB3X_TWICE uint64_t find_differences(const uint8_t *a, const uint8_t *b, int64_t i, int64_t n, int wide) {
    return wide ? differences_wide(a, b, i, n) : differences(a, b, i, n);
}

/* The first index from i on at which two memories differ; n if there is none. */
SB3X_TWICE int64_t next_difference(const uint8_t *a, const uint8_t *b, int64_t i, int64_t n, int wide) {
    for (; i < n; i += 64) {
        uint64_t mask = find_differences(a, b, i, n, wide);
        if (mask) return i + lowest_of_64(mask);
    }
    return n;
}

/* Where the first SHORTEST_FILL equal bytes between `start` and `end` begin; `end` if there are none. There are n bytes in all. */
SB3X_TWICE int64_t next_fill(const uint8_t *bytes, int64_t start, int64_t end, int64_t n, int wide) {
    for (int64_t i = start; i + SHORTEST_FILL <= end; i += 58) { /* the last six may be the beginning of a fill */
        uint64_t equal = ~find_differences(bytes, bytes + 1, i, n - 1, wide);
        if (end - 1 - i < 64) equal &= ~(~UINT64_C(0) << (end - 1 - i));
        uint64_t pairs = equal & (equal >> 1), fours = pairs & (pairs >> 2), sevens = fours & (fours >> 3);
        if (sevens) return i + lowest_of_64(sevens);
    }
    return end;
}

/* ---- writing */

typedef struct {
    const uint8_t *before, *after;
    int64_t n, reached; /* bytes of the frame, and how many of them are done */
    uint8_t *numbers;   /* where the next one goes */
    uint8_t *bytes;     /* where the next ones go, in the scratch */
    int64_t room;       /* for both together */
} writing;

static inline void put_number(writing *w, int64_t number) {
    uint16_t low = (uint16_t)number;
    memcpy(w->numbers, &low, 2);
    w->numbers += 2;
}

static inline void put_literal(writing *w, int64_t skip, int64_t length) { put_number(w, skip << (1 + LENGTH_BITS) | length << 1); }

/* What is too long for one patch. */
static int put_long_patch(writing *w, int64_t start, int64_t length, int is_fill) {
    enum { MOST_DIGITS = 4, MOST = (1 << LENGTH_BITS) - 1, MOST_FILL = (1 << FILL_LENGTH_BITS) - 1 };
    int64_t skip = start - w->reached, pieces = is_fill ? 1 : (length + MOST - 1) / MOST;
    w->room -= 2 * (MOST_DIGITS + pieces) + (is_fill ? 5 : length);
    if (w->room < 0) return 0;
    for (int64_t far = skip / SKIP_UNIT; far > 0; far /= DIGIT_LIMIT) put_literal(w, far % DIGIT_LIMIT, 0);
    skip %= SKIP_UNIT;
    w->reached = start + length;
    if (is_fill) {
        put_number(w, (length <= MOST_FILL ? length << (1 + FILL_SKIP_BITS) : 0) | skip << 1 | IS_FILL);
        *w->bytes++ = w->after[start];
        uint32_t low = (uint32_t)length;
        if (length > MOST_FILL) memcpy(w->bytes, &low, 4);
        w->bytes += length > MOST_FILL ? 4 : 0;
        return 1;
    }
    put_literal(w, skip, length - (pieces - 1) * MOST);
    for (int64_t k = 1; k < pieces; k++) put_literal(w, 0, MOST);
    memcpy(w->bytes, w->after + start, (size_t)length);
    w->bytes += length;
    return 1;
}

/* Bytes start .. start + length - 1 as they are. 0 if they might not fit. */
static inline int put_bytes_of(writing *w, int64_t start, int64_t length) {
    int64_t skip = start - w->reached;
    if (skip >> SKIP_BITS || length >> LENGTH_BITS) return put_long_patch(w, start, length, 0);
    w->room -= 2 + length;
    if (w->room < 0) return 0;
    put_literal(w, skip, length);
    w->reached = start + length;
    if (start + 32 <= w->n) { /* what is written beyond is overwritten, or it is in the slack */
        store_vector(w->bytes, load_vector(w->after + start));
        if (length > 16) store_vector(w->bytes + 16, load_vector(w->after + start + 16));
    } else {
        memcpy(w->bytes, w->after + start, (size_t)length);
    }
    w->bytes += length;
    return 1;
}

/* The same byte from start to start + length - 1. 0 if it might not fit. */
static inline int put_fill(writing *w, int64_t start, int64_t length) {
    int64_t skip = start - w->reached;
    if (skip >> FILL_SKIP_BITS || length >> FILL_LENGTH_BITS) return put_long_patch(w, start, length, 1);
    w->room -= 3;
    if (w->room < 0) return 0;
    put_number(w, length << (1 + FILL_SKIP_BITS) | skip << 1 | IS_FILL);
    w->reached = start + length;
    *w->bytes++ = w->after[start];
    return 1;
}

/* Bytes start .. end - 1, which begin and end with a difference, as a patch, or as several if some are worth a fill. 0 if they might
   not fit. */
SB3X_TWICE int write_patch(writing *w, int64_t start, int64_t end, int wide) {
    const uint8_t *after = w->after;
    if (start < w->reached) start = next_difference(w->before, after, w->reached, end, wide); /* the last fill went beyond its patch */
    if (end - start < SHORTEST_FILL) return start >= end || put_bytes_of(w, start, end - start);
    while (start < end) {
        int64_t literal_end = next_fill(after, start, end, w->n, wide);
        if (literal_end > start && !put_bytes_of(w, start, literal_end - start)) return 0;
        if (literal_end == end) return 1;
        /* Bytes that did not change may well be filled too. */
        start = next_difference(after, after + 1, literal_end, w->n - 1, wide) + 1;
        if (start - literal_end > UINT32_MAX) start = literal_end + UINT32_MAX;
        if (!put_fill(w, literal_end, start - literal_end)) return 0;
    }
    return 1;
}

/* The patches between these edges, which are beginnings and ends by turns. */
SB3X_TWICE int write_between(writing *w, const int64_t *edges, int64_t n_edges, int wide) {
    for (int64_t k = 0; k + 1 < n_edges; k += 2)
        if (!write_patch(w, edges[k], edges[k + 1], wide)) return 0;
    return 1;
}

/* Find the patches. A patch runs across up to two bytes that did not change, because a new one costs two bytes or more. */
SB3X_TWICE int find_patches(writing *w, int wide) {
    enum { MASKS = 128, EDGES = 128 };
    const uint8_t *const before = w->before, *const after = w->after;
    const int64_t n = w->n;
    uint64_t masks[MASKS + 1], last = 0, was_patch = 0;
    int64_t edges[EDGES + 64], n_edges = 0;
    for (int64_t begin = 0; begin < n; begin += 64 * MASKS) {
        const int64_t n_masks = n - begin < 64 * MASKS ? (n - begin + 63) / 64 : MASKS;
        for (int64_t k = 0; k <= n_masks; k++) {
            const int64_t i = begin + 64 * k;
            int is_equal = !wide && i + 64 <= n && !differ_64(before + i, after + i); /* mostly, and quickly seen */
            masks[k] = is_equal ? 0 : find_differences(before, after, i, n, wide);
        }
        for (int64_t k = 0; k < n_masks; last = masks[k++]) {
            const uint64_t mask = masks[k], next = masks[k + 1];
            if ((mask | was_patch) == 0) continue;
            /* Each difference reaches two bytes on. Of what is reached without a gap, the last two bytes do not count. */
            uint64_t reached = mask | mask << 1 | mask << 2 | last >> 63 | last >> 62;
            uint64_t beyond = mask >> 63 | mask >> 62 | (next & 3) | (next & 1) << 1;
            uint64_t patches = reached & (reached >> 1 | beyond << 63) & (reached >> 2 | beyond << 62);
            uint64_t turns = patches ^ (patches << 1 | was_patch);
            was_patch = patches >> 63;
            for (; turns; turns &= turns - 1) edges[n_edges++] = begin + 64 * k + lowest_of_64(turns);
            if (n_edges < EDGES) continue;
            if (!write_between(w, edges, n_edges, wide)) return 0;
            edges[0] = edges[n_edges - 1];
            n_edges &= 1;
        }
    }
    if (was_patch) edges[n_edges++] = n;
    return write_between(w, edges, n_edges, wide);
}

static int find_patches_anywhere(writing *w) { return find_patches(w, 0); }
static SB3X_WIDE int find_patches_wide(writing *w) { return find_patches(w, 1); }

uint8_t *write_patches(const uint8_t *before, const uint8_t *after, int64_t n, uint8_t *scratch, uint8_t *out, const uint8_t *limit) {
    writing w = {before, after, n, 0, out + 1, scratch, limit - out - COUNT_BYTES};
    if (w.room < 0 || !(has_wide_vectors() ? find_patches_wide(&w) : find_patches_anywhere(&w))) return NULL;
    const int64_t n_bytes = w.bytes - scratch;
    uint64_t count = (uint64_t)(w.numbers - out - 1) / 2;
    uint8_t *numbers = out + 1;
    for (uint64_t rest = count >> 7; rest > 0; rest >>= 7) numbers++;
    if (numbers > out + 1) memmove(numbers, out + 1, 2 * (size_t)count); /* their number takes more than a byte */
    for (uint8_t *at = out; at < numbers; at++, count >>= 7) *at = (uint8_t)((count & 127) | (at + 1 < numbers ? 128 : 0));
    uint8_t *end = w.numbers + (numbers - out - 1);
    memcpy(end, scratch, (size_t)n_bytes);
    return end + n_bytes;
}

/* ---- reading: what sampling spends its time in */

/* `length` bytes, 1 to 31; of the frame and of the data, so many bytes may be touched. */
static inline void copy_short(uint8_t *target, const uint8_t *bytes, int64_t length, int64_t room, int64_t given) {
    if (length <= 8 && room >= 8 && given >= 8) {
        uint64_t mask = ~(uint64_t)0 >> (8 * (8 - length));
        store_word(target, (load_word(target) & ~mask) | (load_word(bytes) & mask));
    } else if (length >= 8 && length <= 16) {
        uint64_t first = load_word(bytes), last = load_word(bytes + length - 8);
        store_word(target, first);
        store_word(target + length - 8, last);
    } else {
        copy_bytes(target, bytes, length);
    }
}

/* The same byte `length` times, at least once. */
static inline void fill_bytes(uint8_t *target, uint8_t byte, int64_t length) {
    const uint64_t word = byte * UINT64_C(0x0101010101010101);
    if (length >= 16) {
        vector value = {0};
        value += byte;
        for (int64_t i = 0; i + 16 < length; i += 16) store_vector(target + i, value);
        store_vector(target + length - 16, value);
    } else if (length >= 8) {
        store_word(target, word);
        store_word(target + length - 8, word);
    } else {
        for (int64_t i = 0; i < length; i++) target[i] = byte;
    }
}

#if defined(SB3X_HAS_WIDE)
static inline SB3X_WIDE void copy_short_wide(uint8_t *target, const uint8_t *bytes, int64_t length) {
    __mmask32 mask = _bzhi_u32(~0u, (unsigned)length);
    _mm256_mask_storeu_epi8(target, mask, _mm256_maskz_loadu_epi8(mask, bytes));
}

static inline SB3X_WIDE void fill_bytes_wide(uint8_t *target, uint8_t byte, int64_t length) {
    const __m512i value = _mm512_set1_epi8((char)byte);
    for (; length > 64; length -= 64, target += 64) _mm512_storeu_si512((__m512i *)target, value);
    _mm512_mask_storeu_epi8(target, first_bytes(length), value);
}
#else
static inline void copy_short_wide(uint8_t *target, const uint8_t *bytes, int64_t length) { (void)target, (void)bytes, (void)length; }
static inline void fill_bytes_wide(uint8_t *target, uint8_t byte, int64_t length) { (void)target, (void)byte, (void)length; }
#endif

/* Where the numbers begin, and how many there are; NULL if there cannot be so many. */
static inline const uint8_t *read_count(const uint8_t *data, const uint8_t *end, uint64_t *count) {
    *count = 0;
    for (int shift = 0; shift <= 28; shift += 7) {
        if (data >= end) return NULL;
        uint64_t byte = *data++;
        *count |= (byte & 127) << shift;
        if (byte < 128) return *count <= (uint64_t)(end - data) / 2 ? data : NULL;
    }
    return NULL;
}

int64_t count_patches(const uint8_t *data, const uint8_t *end) {
    uint64_t count;
    return read_count(data, end, &count) ? (int64_t)count : 0;
}

/* How far the skip goes whose digits begin at `numbers`. Where the last of them is, or NULL if they are too many. */
static const uint8_t *read_far_skip(const uint8_t *numbers, const uint8_t *stop, int64_t *far) {
    enum { NO_LENGTH = (1 << (1 + LENGTH_BITS)) - 1 };
    for (int64_t unit = SKIP_UNIT;; numbers += 2, unit *= DIGIT_LIMIT) {
        if (unit > PATCH_FRAME_LIMIT) return NULL;
        *far += unit * (numbers[0] >> (1 + LENGTH_BITS) | numbers[1] << (7 - LENGTH_BITS));
        if (numbers + 2 == stop || (numbers[2] & NO_LENGTH) != 0) return numbers;
    }
}

SB3X_TWICE const uint8_t *apply(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n, int wide) {
    uint64_t count;
    const uint8_t *numbers = read_count(data, end, &count);
    if (!numbers) return NULL;
    const uint8_t *const stop = numbers + 2 * count, *bytes = stop;
    uint8_t *target = frame, *const limit = frame + n;
    for (; numbers < stop; numbers += 2) {
        uint16_t number;
        memcpy(&number, numbers, 2);
        if (number & IS_FILL) {
            int64_t length = number >> (1 + FILL_SKIP_BITS), skip = number >> 1 & ((1 << FILL_SKIP_BITS) - 1);
            if (bytes >= end) return NULL;
            const uint8_t byte = *bytes++;
            if (length == 0) {
                uint32_t low;
                if (end - bytes < 4) return NULL;
                memcpy(&low, bytes, 4);
                bytes += 4;
                length = low;
            }
            if (limit - target < skip + length || length == 0) return NULL;
            target += skip;
            wide ? fill_bytes_wide(target, byte, length) : fill_bytes(target, byte, length);
            target += length;
        } else {
            int64_t length = number >> 1 & ((1 << LENGTH_BITS) - 1), skip = number >> (1 + LENGTH_BITS);
            if (length == 0) {
                int64_t far = 0;
                if (!(numbers = read_far_skip(numbers, stop, &far)) || limit - target < far) return NULL;
                target += far;
                continue;
            }
            if (limit - target < skip + length || end - bytes < length) return NULL;
            target += skip;
            wide ? copy_short_wide(target, bytes, length) : copy_short(target, bytes, length, limit - target, end - bytes);
            bytes += length;
            target += length;
        }
    }
    return bytes;
}

static const uint8_t *apply_anywhere(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n) {
    return apply(data, end, frame, n, 0);
}

static SB3X_WIDE const uint8_t *apply_wide(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n) {
    return apply(data, end, frame, n, 1);
}

const uint8_t *apply_patches(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n) {
    return has_wide_vectors() ? apply_wide(data, end, frame, n) : apply_anywhere(data, end, frame, n);
}
