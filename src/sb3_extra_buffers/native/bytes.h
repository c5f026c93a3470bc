/* Vector code behind a few functions: which of 32 bytes differ, and copies of bytes that may lie anywhere.

   To compare, x86-64 has SSE2, aarch64 has NEON; everything else, and SB3X_PLAIN_C, takes the plain path, which the tests run
   too. To copy, vectors of the compiler do. */

#ifndef SB3X_BYTES_H
#define SB3X_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "sb3x needs a little-endian machine"
#endif

#if !defined(SB3X_PLAIN_C) && (defined(__SSE2__) || defined(_M_X64))
#include <emmintrin.h>
#define SB3X_SSE2
#elif !defined(SB3X_PLAIN_C) && defined(__aarch64__)
#include <arm_neon.h>
#define SB3X_NEON
#endif

static inline uint64_t load_word(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline void store_word(uint8_t *at, uint64_t word) { memcpy(at, &word, 8); }

typedef uint8_t vector __attribute__((vector_size(16)));

static inline vector load_vector(const uint8_t *at) {
    vector value;
    memcpy(&value, at, 16);
    return value;
}

static inline void store_vector(uint8_t *at, vector value) { memcpy(at, &value, 16); }

/* memcpy for frames: the C library's takes up to three times as long where it trusts the processor's own string copy (256 frames
   of 7 kB in 38 us, and in 68 to 130). */
static inline void copy_bytes(uint8_t *restrict target, const uint8_t *restrict source, int64_t n) {
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        vector a = load_vector(source + i), b = load_vector(source + i + 16);
        vector c = load_vector(source + i + 32), d = load_vector(source + i + 48);
        store_vector(target + i, a);
        store_vector(target + i + 16, b);
        store_vector(target + i + 32, c);
        store_vector(target + i + 48, d);
    }
    for (; i + 16 <= n; i += 16) store_vector(target + i, load_vector(source + i));
    if (i == n) return;
    if (n >= 16)
        store_vector(target + n - 16, load_vector(source + n - 16));
    else
        for (; i < n; i++) target[i] = source[i];
}

/* n bytes from `offset` bytes before `out`, as decoders need them: they may be among those that are written. Up to `room` bytes from
   `out` on may be overwritten. */
static inline void copy_match(uint8_t *out, int64_t offset, int64_t n, int64_t room) {
    const uint8_t *from = out - offset;
    if (room < n + 16) {
        for (int64_t i = 0; i < n; i++) out[i] = from[i];
    } else if (offset >= 16) {
        for (int64_t i = 0; i < n; i += 16) store_vector(out + i, load_vector(from + i));
    } else if (offset == 1) {
        vector value = {0};
        value += *from;
        for (int64_t i = 0; i < n; i += 16) store_vector(out + i, value);
    } else {
        /* What repeats after `offset` bytes repeats after any multiple of it. */
        int64_t multiple = (15 / offset + 1) * offset;
        for (int64_t i = 0; i < 16; i++) out[i] = from[i];
        for (int64_t i = 16; i < n; i += 16) store_vector(out + i, load_vector(out + i - multiple));
    }
}

static inline int lowest_bit(uint32_t mask) { return __builtin_ctz(mask); }

static inline int lowest_of_64(uint64_t mask) { return __builtin_ctzll(mask); }

/* A bit for each of the 32 bytes that differ, the lowest for the first. */
static inline uint32_t differing_bytes(const uint8_t *a, const uint8_t *b) {
#if defined(SB3X_SSE2)
    __m128i low = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)a), _mm_loadu_si128((const __m128i *)b));
    __m128i high = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(a + 16)), _mm_loadu_si128((const __m128i *)(b + 16)));
    uint32_t equal = (uint32_t)_mm_movemask_epi8(low) | (uint32_t)_mm_movemask_epi8(high) << 16;
    return ~equal;
#elif defined(SB3X_NEON)
    static const uint8_t bits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t weights = vld1q_u8(bits);
    uint8x16_t low = vbicq_u8(weights, vceqq_u8(vld1q_u8(a), vld1q_u8(b)));
    uint8x16_t high = vbicq_u8(weights, vceqq_u8(vld1q_u8(a + 16), vld1q_u8(b + 16)));
    uint8x16_t sums = vpaddq_u8(low, high);
    sums = vpaddq_u8(sums, sums);
    sums = vpaddq_u8(sums, sums);
    return vgetq_lane_u32(vreinterpretq_u32_u8(sums), 0);
#else
    uint32_t mask = 0;
    for (int word = 0; word < 4; word++) {
        uint64_t x = load_word(a + 8 * word) ^ load_word(b + 8 * word);
        /* The high bit of each byte that is not zero, then those eight bits next to each other. */
        uint64_t high = (((x & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) | x) & 0x8080808080808080ULL;
        mask |= (uint32_t)((high >> 7) * 0x0102040810204080ULL >> 56) << (8 * word);
    }
    return mask;
#endif
}

/* Whether any of 64 bytes differ. */
static inline int differ_64(const uint8_t *a, const uint8_t *b) {
#if defined(SB3X_SSE2)
    __m128i equal = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)a), _mm_loadu_si128((const __m128i *)b));
    for (int i = 16; i < 64; i += 16)
        equal = _mm_and_si128(
            equal, _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(a + i)), _mm_loadu_si128((const __m128i *)(b + i))));
    return _mm_movemask_epi8(equal) != 0xffff;
#else
    uint64_t x = 0;
    for (int i = 0; i < 64; i += 8) x |= load_word(a + i) ^ load_word(b + i);
    return x != 0;
#endif
}

#endif
