/* What a fuzz target defines. libFuzzer calls the first; driver.c, which stands in where there is no libFuzzer, both. */

#ifndef SB3X_TESTS_FUZZ_H
#define SB3X_TESTS_FUZZ_H

#include "check.h"
#include "sb3x.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An input that gets somewhere, to begin from: at most `room` bytes. How many. */
int64_t make_seed(source *from, uint8_t *out, int64_t room);

#endif
