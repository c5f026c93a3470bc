/* Patches: how one frame differs from another. `delta` writes a frame so where little of it has changed.

   First stands the number of patches, then a uint16 for each, and then the bytes of all. The lowest bit of a uint16 says whether it is a
   fill. Then come 5 bits of length and 10 of skip, or for a fill 7 bits of skip and 8 of length: `skip` bytes are left as they are, and
   `length` bytes are replaced, by as many bytes, or by one byte for all of them if it is a fill. What is too long for this has a length
   of 0: as a fill, its byte is followed by a uint32 of the length; otherwise, `skip` times SKIP_UNIT bytes are left as they are, and
   several of these in a row are one number, of digits below DIGIT_LIMIT, the lowest first. The number of patches is in LEB128: 7 bits a
   byte, low bits first, at most 5 bytes.

   Lengths stand apart from bytes so that a reader knows the next patch before it is done with one. A frame of MsPacman is read in 58 ns
   instead of 70, and in 45 with the vectors of wide.h. */

#ifndef SB3X_PATCHES_H
#define SB3X_PATCHES_H

#include <stdint.h>

enum { IS_FILL = 1, LENGTH_BITS = 5, SKIP_BITS = 10, FILL_LENGTH_BITS = 8, FILL_SKIP_BITS = 7, SKIP_UNIT = 128, DIGIT_LIMIT = 1024 };

/* A frame of this many bytes or more could have more patches than can be counted. */
#define PATCH_FRAME_LIMIT ((int64_t)1 << 33)
/* Bytes of a `scratch` beyond those of a frame. */
#define PATCH_SLACK 64

/* Write the patches that turn n bytes `before` into `after`. Where they end, or NULL if they might not fit before `limit`. `scratch`
   has room for n + PATCH_SLACK bytes. */
uint8_t *write_patches(const uint8_t *before, const uint8_t *after, int64_t n, uint8_t *scratch, uint8_t *out, const uint8_t *limit);

/* Turn a frame of n bytes into the next one by the patches at `data`, which ends at `end`. Where the patches end, or NULL if
   they cannot be right. Never reads or writes outside of [data, end) and the frame. */
const uint8_t *apply_patches(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n);

/* How many patches are at `data`; 0 if that cannot be right. */
int64_t count_patches(const uint8_t *data, const uint8_t *end);

#endif
