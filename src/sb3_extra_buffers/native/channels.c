/* Interleaved parts of pixels <-> planes. VecFrameStack stacks on the last axis, so the frames of a stack lie between each
   other; VecTransposeImage only changes the strides. NumPy takes ten times as long for these copies. */

#include <string.h>

#include "bytes.h"
#include "internal.h"

/* Four parts of one byte, the usual stack of grayscale frames. Handles a multiple of 16 pixels, returns how many. */
static int64_t split_four(const uint8_t *pixels, int64_t n_pixels, uint8_t *out) {
    int64_t done = 0;
#if defined(SB3X_SSE2)
    const __m128i low_bytes = _mm_set1_epi16(0x00ff);
    for (; done + 16 <= n_pixels; done += 16, pixels += 64) {
        __m128i a = _mm_loadu_si128((const __m128i *)pixels), b = _mm_loadu_si128((const __m128i *)(pixels + 16));
        __m128i c = _mm_loadu_si128((const __m128i *)(pixels + 32)), d = _mm_loadu_si128((const __m128i *)(pixels + 48));
        __m128i even_ab = _mm_packus_epi16(_mm_and_si128(a, low_bytes), _mm_and_si128(b, low_bytes));
        __m128i even_cd = _mm_packus_epi16(_mm_and_si128(c, low_bytes), _mm_and_si128(d, low_bytes));
        __m128i odd_ab = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
        __m128i odd_cd = _mm_packus_epi16(_mm_srli_epi16(c, 8), _mm_srli_epi16(d, 8));
        __m128i planes[4] = {
            _mm_packus_epi16(_mm_and_si128(even_ab, low_bytes), _mm_and_si128(even_cd, low_bytes)),
            _mm_packus_epi16(_mm_and_si128(odd_ab, low_bytes), _mm_and_si128(odd_cd, low_bytes)),
            _mm_packus_epi16(_mm_srli_epi16(even_ab, 8), _mm_srli_epi16(even_cd, 8)),
            _mm_packus_epi16(_mm_srli_epi16(odd_ab, 8), _mm_srli_epi16(odd_cd, 8)),
        };
        for (int k = 0; k < 4; k++) _mm_storeu_si128((__m128i *)(out + k * n_pixels + done), planes[k]);
    }
#elif defined(SB3X_NEON)
    for (; done + 16 <= n_pixels; done += 16, pixels += 64) {
        uint8x16x4_t planes = vld4q_u8(pixels);
        for (int k = 0; k < 4; k++) vst1q_u8(out + k * n_pixels + done, planes.val[k]);
    }
#else
    (void)pixels, (void)n_pixels, (void)out;
#endif
    return done;
}

void sb3x_split(const uint8_t *pixels, int64_t n, int64_t n_pixels, int64_t parts, int64_t part_bytes, uint8_t *out) {
    int64_t size = n_pixels * parts * part_bytes;
    for (int64_t i = 0; i < n; i++, pixels += size, out += size) {
        int64_t done = parts == 4 && part_bytes == 1 ? split_four(pixels, n_pixels, out) : 0;
        if (part_bytes == 1) {
            for (int64_t k = 0; k < parts; k++)
                for (int64_t p = done; p < n_pixels; p++) out[k * n_pixels + p] = pixels[p * parts + k];
            continue;
        }
        for (int64_t p = done; p < n_pixels; p++)
            for (int64_t k = 0; k < parts; k++)
                memcpy(out + (k * n_pixels + p) * part_bytes, pixels + (p * parts + k) * part_bytes, (size_t)part_bytes);
    }
}

void sb3x_join(const uint8_t *planes, int64_t n, int64_t n_pixels, int64_t parts, int64_t part_bytes, uint8_t *out) {
    int64_t size = n_pixels * parts * part_bytes;
    for (int64_t i = 0; i < n; i++, planes += size, out += size) {
        if (part_bytes == 1) {
            for (int64_t k = 0; k < parts; k++)
                for (int64_t p = 0; p < n_pixels; p++) out[p * parts + k] = planes[k * n_pixels + p];
            continue;
        }
        for (int64_t p = 0; p < n_pixels; p++)
            for (int64_t k = 0; k < parts; k++)
                memcpy(out + (p * parts + k) * part_bytes, planes + (k * n_pixels + p) * part_bytes, (size_t)part_bytes);
    }
}
