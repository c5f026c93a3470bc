/* Packing: a frame as what is left when its bytes are predicted from others, in as few bits as that takes. For frames of which
   most changes, as those of a camera; `delta` writes a frame so where patches would be longer.

   A frame is cut into bands of 128 bytes, the last may be shorter. Each begins with a byte that says what its values are predicted
   from: nothing, the row above, the frame before, or one of the last two and how the channel before differs from it there. With
   PACKED_EXACTLY added, the prediction is right and nothing follows. Else there follow 4 bytes with the widths of its 8 groups of
   16 bytes, 4 bits each, low bits first, then the groups: differences with their sign in the lowest bit, as `width` bytes for the
   first eight of them and as many for the others, byte k holding bit k of all eight.

   Values have 1, 2 or 4 bytes, and are predicted as whole numbers. 16 values take as many groups as they have bytes: the first group
   holds the lowest byte of each difference, the last one the highest, which is mostly zero. Bytes that are fewer than 16 values
   close the frame as they are. */

#ifndef SB3X_PACKING_H
#define SB3X_PACKING_H

#include <stdint.h>

#include "sb3x.h"

enum { PACKED_EXACTLY = 8 };

/* Bytes that a value may have; 0 stands for 1. */
static inline int is_item(int64_t bytes) { return bytes == 0 || bytes == 1 || bytes == 2 || bytes == 4; }

/* What pack_frame may write beyond where it ends, and beyond its limit. */
#define PACKING_SLACK 160

/* Pack a frame. Where it ends, or NULL as soon as that is beyond `limit`. */
uint8_t *pack_frame(const sb3x_shape *shape, const uint8_t *frame, const uint8_t *before, uint8_t *out, const uint8_t *limit);

/* Read a packed frame at `data`, which ends at `end`; `frame` is not `before`. Where it ends, or NULL if it cannot be right.
   Never reads or writes outside of [data, end) and the frames. */
const uint8_t *unpack_frame(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, const uint8_t *before,
                            uint8_t *frame);

#endif
