/* SB3X_FRAMES_OUTSIDE: the frames that the caller keeps, by token. */

#ifndef SB3X_TESTS_OUTSIDE_H
#define SB3X_TESTS_OUTSIDE_H

#include "model.h"

void forget_frames(model *model);
/* Keep the new frames of a plan. */
void keep_frames(model *model, const sb3x_changes *changes);
/* Let go of the frames of freed blocks, and tell the store. */
void let_go(model *model, const sb3x_changes *changes);
/* The frame of a token; zeros for padding, which the store does not tell. */
const uint8_t *find_frame(const model *model, int64_t token);

#endif
