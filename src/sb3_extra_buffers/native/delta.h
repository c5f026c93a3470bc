/* `delta`: a frame as patches or packed differences, whichever is shorter.

   A frame begins from the one before it, as patches on it. Two bytes in front of it, which no number of patches begins with, say
   otherwise: one of the numbers below, and a 0. */

#ifndef SB3X_DELTA_H
#define SB3X_DELTA_H

#include <stdint.h>

#include "packing.h"
#include "patches.h"

/* Patches of this part of a frame are short enough: nothing else is tried. */
#define FEW_PATCHES 8

enum {
    PATCHED_ON_ZEROS = 128,
    PATCHED_ON_BASE = 129,
    PACKED = 130, /* with the frame before as one of the things it is predicted from */
};

/* What writing frames needs beside them. */
typedef struct {
    sb3x_shape shape;
    uint8_t *zeros; /* a frame of them */
    uint8_t *spare; /* room for another try */
    uint8_t *bytes; /* room for the bytes of patches, see write_patches */
    int32_t packs;   /* frames that are to be packed at once: patches would not be shorter, as was seen before */
    int32_t patches; /* frames that are not to be packed, for the same reason */
} delta_writer;

/* Whether there was memory for it. */
int make_delta_writer(delta_writer *writer, const sb3x_shape *shape);
void free_delta_writer(delta_writer *writer);

/* Write a frame in the way that is shortest; `base` may be NULL. `end` is what write_patches gave for `out`, if it was called
   already. Where the frame ends, or NULL if it does not fit before `limit`. */
uint8_t *write_frame(delta_writer *writer, const uint8_t *before, const uint8_t *frame, const uint8_t *base, uint8_t *out,
                     uint8_t *end, const uint8_t *limit);

/* Whether two bytes say how the frame begins. */
static inline int is_tagged(const uint8_t *data, const uint8_t *end) { return end - data >= 2 && data[0] >= 128 && data[1] == 0; }

static inline int is_packed(const uint8_t *data, const uint8_t *end) { return is_tagged(data, end) && data[0] == PACKED; }

/* What it costs to read a frame from data to end: its bytes, but at least PATCH_WORK for each patch. Patches of BeamRider are short,
   and twice as many as in other games: so it is read in pieces of 8 frames, not 16. */
#define PATCH_WORK 7
int64_t reading_work(const uint8_t *data, const uint8_t *end);

/* Read a frame at `data`, which ends at `end`; `frame` may be `before` if it is not packed. Where it ends, or NULL if it cannot
   be right. Never reads or writes outside of [data, end) and the frames. */
const uint8_t *read_frame(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, const uint8_t *before,
                          const uint8_t *base, uint8_t *frame);

#endif
