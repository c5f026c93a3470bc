/* Patches: how one frame differs from another. `delta` writes a frame so where little of it has changed.

   A list of `number, skip, bytes`, closed by a number of 0: `skip` bytes are left as they are, then `number >> 1` bytes are
   replaced. An even number is followed by these bytes, an odd one by a single byte that fills them all. Numbers are LEB128:
   7 bits a byte, low bits first, at most 5 bytes. */

#ifndef SB3X_PATCHES_H
#define SB3X_PATCHES_H

#include <stdint.h>

/* Frames of this many bytes or more could need numbers of more than 5 bytes. */
#define PATCH_FRAME_LIMIT ((int64_t)1 << 33)

/* Write the patches that turn n bytes `before` into `after`. Where they end, or NULL if they might not fit before `limit`. */
uint8_t *write_patches(const uint8_t *before, const uint8_t *after, int64_t n, uint8_t *out, const uint8_t *limit);

/* Turn a frame of n bytes into the next one by the patches at `data`, which ends at `end`. Where the patches end, or NULL if
   they cannot be right. Never reads or writes outside of [data, end) and the frame. */
const uint8_t *apply_patches(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n);

#endif
