/* Patches: how one frame differs from another. Used by `delta`, frame by frame.

   A list of `number, skip, bytes`, closed by a number of 0: `skip` bytes are left as they are, then `number >> 1` bytes are
   replaced. An even number is followed by these bytes, an odd one by a single byte that fills them all. Numbers are LEB128:
   7 bits a byte, low bits first, at most 5 bytes.

   A frame is patched onto the one before it. Two bytes in front of its patches, which no number begins with, say otherwise:
   PATCH_FROM_ZEROS or PATCH_FROM_BASE, each followed by a 0. */

#ifndef SB3X_PATCHES_H
#define SB3X_PATCHES_H

#include <stdint.h>

enum { PATCH_FROM_ZEROS = 128, PATCH_FROM_BASE = 129 };

/* Frames of this many bytes or more could need numbers of more than 5 bytes. */
#define PATCH_FRAME_LIMIT ((int64_t)1 << 33)

/* Write the patches that turn n bytes `before` into `after`. Where they end, or NULL if they might not fit before `limit`. */
uint8_t *write_patches(const uint8_t *before, const uint8_t *after, int64_t n, uint8_t *out, uint8_t *limit);

/* What encoding frames needs beside them: a frame of zeros, and room for another try. */
typedef struct {
    int64_t frame_bytes;
    uint8_t *zeros, *spare;
} patch_scratch;

/* Whether there was memory for it. */
int make_patch_scratch(patch_scratch *scratch, int64_t frame_bytes);
void free_patch_scratch(patch_scratch *scratch);

/* Write a frame as patches on the one before it, on `base` or on zeros, whichever is shortest; `base` may be NULL. `end` is what
   write_patches gave for `out`, if it was called already. Where the patches end, or NULL if they do not fit. */
uint8_t *write_frame(const patch_scratch *scratch, const uint8_t *before, const uint8_t *after, const uint8_t *base,
                     uint8_t *out, uint8_t *end, uint8_t *limit);

/* Turn a frame of n bytes into the next one by the patches at `data`, which ends at `end`. Where the patches end, or NULL if
   they cannot be right. Never reads or writes outside of [data, end) and the frame. */
const uint8_t *apply_patches(const uint8_t *data, const uint8_t *end, uint8_t *frame, int64_t n, const uint8_t *base);

#endif
