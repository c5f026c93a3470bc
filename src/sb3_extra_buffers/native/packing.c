/* Frames <-> packed differences. packing.h has the format. Every group takes the same few vector instructions, whatever its
   width: a branch on it would be guessed wrong too often. */

#include "packing.h"

#include <string.h>

#include "bytes.h"
#include "wide.h"

enum { GROUP = 16, GROUPS = 8, BAND = GROUP * GROUPS, WIDTHS = 4 };
/* A group says 4 bits of width, so a damaged one may be as long as this. */
enum { LONGEST_BAND = 1 + WIDTHS + GROUPS * 2 * 15 };

/* Behind a band with many bits, so many are predicted in the same way, unseen: next to each other they are alike, and to try all
   ways takes most of the time. */
enum { BUSY_SUM = 4 * GROUPS, REPEATS = 3 };

enum { ON_NOTHING, ON_ROW, ON_ROW_AND_CHANNEL, ON_FRAME, ON_FRAME_AND_CHANNEL, N_WAYS };

typedef uint64_t words __attribute__((vector_size(16)));
typedef int8_t signed_bytes __attribute__((vector_size(16)));
typedef uint16_t pairs __attribute__((vector_size(16)));
typedef int16_t signed_pairs __attribute__((vector_size(16)));
typedef uint32_t fours __attribute__((vector_size(16)));
typedef int32_t signed_fours __attribute__((vector_size(16)));

/* ---- values of 1, 2 or 4 bytes; `item` is always a constant */

static inline vector plus(int item, vector a, vector b) {
    return item == 4 ? (vector)((fours)a + (fours)b) : item == 2 ? (vector)((pairs)a + (pairs)b) : a + b;
}

static inline vector minus(int item, vector a, vector b) {
    return item == 4 ? (vector)((fours)a - (fours)b) : item == 2 ? (vector)((pairs)a - (pairs)b) : a - b;
}

/* Small differences of either sign <-> small numbers. */
static inline vector fold(int item, vector difference) {
    vector sign = item == 4   ? (vector)((signed_fours)difference < 0)
                  : item == 2 ? (vector)((signed_pairs)difference < 0)
                              : (vector)((signed_bytes)difference < 0);
    return plus(item, difference, difference) ^ sign;
}

SB3X_TWICE vector unfold(int item, vector folded) {
    if (item == 4) return (vector)((fours)folded >> 1 ^ (0 - ((fours)folded & 1)));
    if (item == 2) return (vector)((pairs)folded >> 1 ^ (0 - ((pairs)folded & 1)));
    return (folded >> 1 & 127) ^ (0 - (folded & 1));
}

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(type, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(type, a, b, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

/* Two vectors' halves, the first and the second ones together. */
#define FIRST_HALVES(a, b) SHUFFLE(words, a, b, 0, 2)
#define SECOND_HALVES(a, b) SHUFFLE(words, a, b, 1, 3)
/* Every other byte of two vectors, and back. */
#define EVEN_BYTES(a, b) SHUFFLE(vector, a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD_BYTES(a, b) SHUFFLE(vector, a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#define MERGE_FIRST(a, b) SHUFFLE(vector, a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define MERGE_SECOND(a, b) SHUFFLE(vector, a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)

/* 16 values in `item` vectors <-> a vector for each of their bytes. */
static inline void split_values(int item, vector *v) {
    if (item == 1) return;
    vector even = EVEN_BYTES(v[0], v[1]), odd = ODD_BYTES(v[0], v[1]);
    if (item == 2) {
        v[0] = even;
        v[1] = odd;
    } else {
        vector more_even = EVEN_BYTES(v[2], v[3]), more_odd = ODD_BYTES(v[2], v[3]);
        v[0] = EVEN_BYTES(even, more_even);
        v[1] = EVEN_BYTES(odd, more_odd);
        v[2] = ODD_BYTES(even, more_even);
        v[3] = ODD_BYTES(odd, more_odd);
    }
}

static inline void merge_values(int item, vector *v) {
    if (item == 2) {
        vector low = v[0], high = v[1];
        v[0] = MERGE_FIRST(low, high);
        v[1] = MERGE_SECOND(low, high);
    } else if (item == 4) {
        vector even = MERGE_FIRST(v[0], v[2]), more_even = MERGE_SECOND(v[0], v[2]);
        vector odd = MERGE_FIRST(v[1], v[3]), more_odd = MERGE_SECOND(v[1], v[3]);
        v[0] = MERGE_FIRST(even, odd);
        v[1] = MERGE_SECOND(even, odd);
        v[2] = MERGE_FIRST(more_even, more_odd);
        v[3] = MERGE_SECOND(more_even, more_odd);
    }
}

/* ---- predictions */

/* Whether a band at `at` can be predicted so: from bytes that are there, and known before the group itself is. */
static int is_possible(const sb3x_shape *shape, int item, int way, int64_t at) {
    int has_row = shape->row >= GROUP * item && at >= shape->row;
    int has_channel = shape->channel >= GROUP * item && at >= shape->channel;
    switch (way) {
        case ON_NOTHING:
        case ON_FRAME: return 1;
        case ON_ROW: return has_row;
        case ON_ROW_AND_CHANNEL: return has_row && has_channel && at - shape->channel >= shape->row;
        case ON_FRAME_AND_CHANNEL: return has_channel;
        default: return 0;
    }
}

SB3X_TWICE vector predict(const sb3x_shape *shape, int item, int way, const uint8_t *frame, const uint8_t *before, int64_t i) {
    const uint8_t *other = frame + i - shape->channel;
    switch (way) {
        case ON_ROW: return load_vector(frame + i - shape->row);
        case ON_ROW_AND_CHANNEL:
            return plus(item, load_vector(frame + i - shape->row),
                        minus(item, load_vector(other), load_vector(other - shape->row)));
        case ON_FRAME: return load_vector(before + i);
        case ON_FRAME_AND_CHANNEL:
            return plus(item, load_vector(before + i),
                        minus(item, load_vector(other), load_vector(before + i - shape->channel)));
        default: return (vector){0};
    }
}

/* The folded differences of 16 values, as a vector for each of their bytes. */
static inline void find_differences(const sb3x_shape *shape, int item, int way, const uint8_t *frame, const uint8_t *before,
                                    int64_t at, words *out) {
    vector values[4];
    for (int k = 0; k < item; k++) {
        int64_t i = at + k * GROUP;
        values[k] = fold(item, minus(item, load_vector(frame + i), predict(shape, item, way, frame, before, i)));
    }
    split_values(item, values);
    for (int k = 0; k < item; k++) out[k] = (words)values[k];
}

/* Call an inlined function with a constant `way`, so that its loop does not ask for it again. */
#define FOR_WAY(way, CALL)                                                                  \
    switch (way) {                                                                          \
        case ON_ROW: CALL(ON_ROW); break;                                                   \
        case ON_ROW_AND_CHANNEL: CALL(ON_ROW_AND_CHANNEL); break;                           \
        case ON_FRAME: CALL(ON_FRAME); break;                                               \
        case ON_FRAME_AND_CHANNEL: CALL(ON_FRAME_AND_CHANNEL); break;                       \
        default: CALL(ON_NOTHING); break;                                                   \
    }

/* Bit k of byte i <-> bit i of byte k, in each half. */
SB3X_TWICE words transpose(words x) {
    words changed = (x ^ x >> 7) & 0x00AA00AA00AA00AAULL;
    x ^= changed ^ changed << 7;
    changed = (x ^ x >> 14) & 0x0000CCCC0000CCCCULL;
    x ^= changed ^ changed << 14;
    changed = (x ^ x >> 28) & 0x00000000F0F0F0F0ULL;
    return x ^ changed ^ changed << 28;
}

/* ---- packing */

/* Of bytes with the bits that occur in each group: the sum of the widths, which are given as they are written. */
static inline int sum_widths(uint64_t x, uint32_t *widths) {
    /* How many bits each byte has: all below the highest are set, and counted. */
    x |= x >> 1 & 0x7f7f7f7f7f7f7f7fULL;
    x |= x >> 2 & 0x3f3f3f3f3f3f3f3fULL;
    x |= x >> 4 & 0x0f0f0f0f0f0f0f0fULL;
    x -= x >> 1 & 0x5555555555555555ULL;
    x = (x & 0x3333333333333333ULL) + (x >> 2 & 0x3333333333333333ULL);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
    int sum = (int)(x * 0x0101010101010101ULL >> 56);
    x = (x | x >> 4) & 0x00ff00ff00ff00ffULL; /* 8 bytes to 8 times 4 bits */
    x = (x | x >> 8) & 0x0000ffff0000ffffULL;
    *widths = (uint32_t)(x | x >> 16);
    return sum;
}

/* The sum of the widths of a band predicted in this way. */
static inline int measure(const sb3x_shape *shape, int item, int way, const uint8_t *frame, const uint8_t *before, int64_t at,
                          int groups, uint32_t *widths) {
    words all[GROUPS] = {0};
    for (int g = 0; g < groups; g += item) find_differences(shape, item, way, frame, before, at + g * GROUP, all + g);
    /* The bits that occur in each group: a byte of `joined` for each, even groups in one half, odd ones in the other. */
    words joined = {0};
    for (int g = 0; g < GROUPS; g += 2) {
        words pair = FIRST_HALVES(all[g], all[g + 1]) | SECOND_HALVES(all[g], all[g + 1]);
        pair |= pair >> 32;
        pair |= pair >> 16;
        pair |= pair >> 8;
        joined |= (pair & 255) << 8 * g;
    }
    return sum_widths(joined[0] | joined[1] << 8, widths);
}

static inline uint8_t *write_groups(const sb3x_shape *shape, int item, int way, const uint8_t *frame, const uint8_t *before,
                                    int64_t at, int groups, uint32_t widths, uint8_t *out) {
    words differences[4];
    for (int g = 0; g < groups; g += item) {
        find_differences(shape, item, way, frame, before, at + g * GROUP, differences);
        for (int k = 0; k < item; k++, widths >>= 4) {
            int64_t width = widths & 15;
            words bits = transpose(differences[k]);
            store_word(out, bits[0]); /* what is beyond the width is zero, and overwritten by what follows */
            store_word(out + width, bits[1]);
            out += 2 * width;
        }
    }
    return out;
}

#if defined(SB3X_HAS_WIDE)
/* The same for a whole band of bytes, by wide vectors: `folded` has the differences. */
static inline SB3X_WIDE int measure_wide(const sb3x_shape *shape, int way, const uint8_t *frame, const uint8_t *before, int64_t at,
                                         uint8_t *folded, uint32_t *widths) {
    const __m512i zero = _mm512_setzero_si512();
    uint64_t joined = 0;
    for (int half = 0; half < 2; half++) {
        const uint8_t *here = frame + at + 64 * half, *then = before + at + 64 * half, *other = here - shape->channel;
        __m512i predicted = zero;
        if (way == ON_ROW || way == ON_ROW_AND_CHANNEL) predicted = _mm512_loadu_si512(here - shape->row);
        if (way == ON_FRAME || way == ON_FRAME_AND_CHANNEL) predicted = _mm512_loadu_si512(then);
        if (way == ON_ROW_AND_CHANNEL || way == ON_FRAME_AND_CHANNEL) {
            const uint8_t *known = way == ON_ROW_AND_CHANNEL ? other - shape->row : then - shape->channel;
            predicted = _mm512_add_epi8(predicted, _mm512_sub_epi8(_mm512_loadu_si512(other), _mm512_loadu_si512(known)));
        }
        __m512i difference = _mm512_sub_epi8(_mm512_loadu_si512(here), predicted);
        __m512i sign = _mm512_movm_epi8(_mm512_movepi8_mask(difference));
        __m512i bits = _mm512_xor_si512(_mm512_add_epi8(difference, difference), sign);
        _mm512_storeu_si512(folded + 64 * half, bits);
        /* Each group becomes the bits that occur in it, in the lowest byte of each lane. */
        bits = _mm512_or_si512(bits, _mm512_bsrli_epi128(bits, 8));
        bits = _mm512_or_si512(bits, _mm512_srli_epi64(bits, 32));
        bits = _mm512_or_si512(bits, _mm512_srli_epi64(bits, 16));
        bits = _mm512_or_si512(bits, _mm512_srli_epi64(bits, 8));
        __m512i lanes = _mm512_permutexvar_epi64(_mm512_set_epi64(7, 7, 7, 7, 6, 4, 2, 0), bits);
        joined |= (uint64_t)(uint32_t)_mm_cvtsi128_si32(_mm256_cvtepi64_epi8(_mm512_castsi512_si256(lanes))) << 32 * half;
    }
    return sum_widths(joined, widths);
}

/* The bits of a band whose differences are given. */
static inline SB3X_WIDE uint8_t *write_groups_wide(const uint8_t *folded, uint32_t widths, uint8_t *out) {
    uint64_t bits[2 * GROUPS];
    for (int half = 0; half < 2; half++) {
        __m512i x = _mm512_loadu_si512(folded + 64 * half); /* as in `transpose` */
        __m512i changed = _mm512_and_si512(_mm512_xor_si512(x, _mm512_srli_epi64(x, 7)), _mm512_set1_epi64(0x00AA00AA00AA00AALL));
        x = _mm512_xor_si512(x, _mm512_xor_si512(changed, _mm512_slli_epi64(changed, 7)));
        changed = _mm512_and_si512(_mm512_xor_si512(x, _mm512_srli_epi64(x, 14)), _mm512_set1_epi64(0x0000CCCC0000CCCCLL));
        x = _mm512_xor_si512(x, _mm512_xor_si512(changed, _mm512_slli_epi64(changed, 14)));
        changed = _mm512_and_si512(_mm512_xor_si512(x, _mm512_srli_epi64(x, 28)), _mm512_set1_epi64(0x00000000F0F0F0F0LL));
        x = _mm512_xor_si512(x, _mm512_xor_si512(changed, _mm512_slli_epi64(changed, 28)));
        _mm512_storeu_si512(bits + GROUPS * half, x);
    }
    for (int g = 0; g < GROUPS; g++, widths >>= 4) {
        const int64_t width = widths & 15;
        store_word(out, bits[2 * g]);
        store_word(out + width, bits[2 * g + 1]);
        out += 2 * width;
    }
    return out;
}
#else
static inline int measure_wide(const sb3x_shape *shape, int way, const uint8_t *frame, const uint8_t *before, int64_t at,
                               uint8_t *folded, uint32_t *widths) {
    (void)shape, (void)way, (void)frame, (void)before, (void)at, (void)folded, (void)widths;
    return 0;
}

static inline uint8_t *write_groups_wide(const uint8_t *folded, uint32_t widths, uint8_t *out) {
    (void)folded, (void)widths;
    return out;
}
#endif

SB3X_TWICE uint8_t *pack_values(const sb3x_shape *shape, int item, const uint8_t *frame, const uint8_t *before, uint8_t *out,
                                const uint8_t *limit, int wide) {
    uint8_t folded[2][BAND]; /* with `wide`: of what was measured last, and of the best */
    int best = 0;
    const int64_t whole = shape->bytes - shape->bytes % (GROUP * item);
    int way = ON_NOTHING, repeats = 0;
    for (int64_t at = 0; at < whole; at += BAND) {
        int groups = whole - at < BAND ? (int)((whole - at) / GROUP) : GROUPS;
        int is_repeated = repeats > 0 && is_possible(shape, item, way, at), least = INT32_MAX;
        uint32_t widths = 0;
        for (int tried = is_repeated ? way : ON_NOTHING; tried < N_WAYS && least > 0; tried++) {
            if (!is_possible(shape, item, tried, at)) continue;
            uint32_t its_widths;
            int sum;
#define MEASURE_ALL(constant) sum = measure(shape, item, constant, frame, before, at, GROUPS, &its_widths)
#define MEASURE_SOME(constant) sum = measure(shape, item, constant, frame, before, at, groups, &its_widths)
#define MEASURE_WIDE(constant) sum = measure_wide(shape, constant, frame, before, at, folded[!best], &its_widths)
            if (wide && groups == GROUPS)
                FOR_WAY(tried, MEASURE_WIDE)
            else if (groups == GROUPS)
                FOR_WAY(tried, MEASURE_ALL)
            else
                FOR_WAY(tried, MEASURE_SOME)
            if (sum < least) {
                best = !best;
                least = sum;
                widths = its_widths;
                way = tried;
            }
            if (is_repeated) break;
        }
        repeats = is_repeated ? repeats - 1 : least >= BUSY_SUM ? REPEATS : 0;
        if (out > limit) return NULL;
        *out++ = (uint8_t)(least > 0 ? way : way + PACKED_EXACTLY);
        if (least == 0) continue;
        memcpy(out, &widths, WIDTHS);
        out += WIDTHS;
#define WRITE_ALL(constant) out = write_groups(shape, item, constant, frame, before, at, GROUPS, widths, out)
#define WRITE_SOME(constant) out = write_groups(shape, item, constant, frame, before, at, groups, widths, out)
        if (wide && groups == GROUPS)
            out = write_groups_wide(folded[best], widths, out);
        else if (groups == GROUPS)
            FOR_WAY(way, WRITE_ALL)
        else
            FOR_WAY(way, WRITE_SOME)
    }
    if (limit - out < shape->bytes - whole) return NULL;
    memcpy(out, frame + whole, (size_t)(shape->bytes - whole));
    return out + (shape->bytes - whole);
}

static SB3X_WIDE uint8_t *pack_bytes_wide(const sb3x_shape *shape, const uint8_t *frame, const uint8_t *before, uint8_t *out,
                                          const uint8_t *limit) {
    return pack_values(shape, 1, frame, before, out, limit, 1);
}

uint8_t *pack_frame(const sb3x_shape *shape, const uint8_t *frame, const uint8_t *before, uint8_t *out, const uint8_t *limit) {
    if (shape->item == 4) return pack_values(shape, 4, frame, before, out, limit, 0);
    if (shape->item == 2) return pack_values(shape, 2, frame, before, out, limit, 0);
    if (has_wide_vectors()) return pack_bytes_wide(shape, frame, before, out, limit);
    return pack_values(shape, 1, frame, before, out, limit, 0);
}

/* ---- unpacking */

static const uint64_t low_bytes[16] = {
    0, 0xff, 0xffff, 0xffffff, 0xffffffff, 0xffffffffff, 0xffffffffffff, 0xffffffffffffff, UINT64_MAX,
    UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}; /* wider than 8 is damaged */

/* Reads up to 8 bytes beyond the groups. */
SB3X_TWICE void read_groups(const sb3x_shape *shape, int item, int way, const uint8_t *data, uint32_t widths,
                               const uint8_t *before, int64_t at, int groups, uint8_t *frame) {
    vector differences[4];
    for (int g = 0; g < groups; g += item) {
        for (int k = 0; k < item; k++, widths >>= 4) {
            uint32_t width = widths & 15;
            words bits = {load_word(data) & low_bytes[width], load_word(data + width) & low_bytes[width]};
            differences[k] = (vector)transpose(bits);
            data += 2 * width;
        }
        merge_values(item, differences);
        for (int k = 0; k < item; k++) {
            int64_t i = at + (g + k) * GROUP;
            store_vector(frame + i, plus(item, predict(shape, item, way, frame, before, i), unfold(item, differences[k])));
        }
    }
}

SB3X_TWICE void copy_prediction(const sb3x_shape *shape, int item, int way, const uint8_t *before, int64_t at, int groups,
                                   uint8_t *frame) {
    for (int64_t i = at; i < at + groups * GROUP; i += GROUP)
        store_vector(frame + i, predict(shape, item, way, frame, before, i));
}

SB3X_TWICE const uint8_t *unpack_values(const sb3x_shape *shape, int item, const uint8_t *data, const uint8_t *end,
                                        const uint8_t *before, uint8_t *frame) {
    const int64_t whole = shape->bytes - shape->bytes % (GROUP * item);
    for (int64_t at = 0; at < whole; at += BAND) {
        int groups = whole - at < BAND ? (int)((whole - at) / GROUP) : GROUPS;
        if (data >= end) return NULL;
        int way = *data++, is_exact = way >= PACKED_EXACTLY;
        if (is_exact) way -= PACKED_EXACTLY;
        if (!is_possible(shape, item, way, at)) return NULL;
        if (is_exact) {
#define COPY(constant) copy_prediction(shape, item, constant, before, at, groups, frame)
            FOR_WAY(way, COPY)
            continue;
        }
        if (end - data < WIDTHS) return NULL;
        uint32_t widths;
        memcpy(&widths, data, WIDTHS);
        data += WIDTHS;
        uint32_t pairs = (widths & 0x0f0f0f0f) + (widths >> 4 & 0x0f0f0f0f);
        int64_t length = 2 * (int64_t)(pairs * 0x01010101U >> 24);
        if (end - data < length) return NULL;
        const uint8_t *from = data;
        uint8_t last[LONGEST_BAND + 16];
        if (end - data < length + 8) { /* nothing may be read beyond the end */
            memcpy(last, data, (size_t)length);
            memset(last + length, 0, 16);
            from = last;
        }
#define READ_ALL(constant) read_groups(shape, item, constant, from, widths, before, at, GROUPS, frame)
#define READ_SOME(constant) read_groups(shape, item, constant, from, widths, before, at, groups, frame)
        if (groups == GROUPS)
            FOR_WAY(way, READ_ALL)
        else
            FOR_WAY(way, READ_SOME)
        data += length;
    }
    if (end - data < shape->bytes - whole) return NULL;
    memcpy(frame + whole, data, (size_t)(shape->bytes - whole));
    return data + (shape->bytes - whole);
}

static SB3X_WIDE const uint8_t *unpack_bytes_wide(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end,
                                                  const uint8_t *before, uint8_t *frame) {
    return unpack_values(shape, 1, data, end, before, frame);
}

const uint8_t *unpack_frame(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, const uint8_t *before,
                            uint8_t *frame) {
    if (shape->item == 4) return unpack_values(shape, 4, data, end, before, frame);
    if (shape->item == 2) return unpack_values(shape, 2, data, end, before, frame);
    if (has_wide_vectors()) return unpack_bytes_wide(shape, data, end, before, frame);
    return unpack_values(shape, 1, data, end, before, frame);
}
