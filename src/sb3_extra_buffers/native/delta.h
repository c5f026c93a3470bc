/* `delta`: a frame as patches or packed differences, whichever is shorter.

   A frame begins from the one before it, as patches on it. Two bytes in front of it, which no number of a patch begins with, say
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
    int32_t packs;  /* frames that are to be packed at once: patches would not be shorter, as was seen before */
} delta_writer;

/* Whether there was memory for it. */
int make_delta_writer(delta_writer *writer, const sb3x_shape *shape);
void free_delta_writer(delta_writer *writer);

/* Write a frame in the way that is shortest; `base` may be NULL. `end` is what write_patches gave for `out`, if it was called
   already. Where the frame ends, or NULL if it does not fit before `limit`. */
uint8_t *write_frame(delta_writer *writer, const uint8_t *before, const uint8_t *frame, const uint8_t *base, uint8_t *out,
                     uint8_t *end, const uint8_t *limit);

static inline int is_packed(const uint8_t *data, const uint8_t *end) {
    return end - data >= 2 && data[0] == PACKED && data[1] == 0;
}

/* Read a frame at `data`, which ends at `end`; `frame` may be `before` if it is not packed. Where it ends, or NULL if it cannot
   be right. Never reads or writes outside of [data, end) and the frames. */
const uint8_t *read_frame(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, const uint8_t *before,
                          const uint8_t *base, uint8_t *frame);

#endif
