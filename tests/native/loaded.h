/* What must hold for a store that has received a segment of unknown origin. */

#ifndef SB3X_TESTS_LOADED_H
#define SB3X_TESTS_LOADED_H

#include "check.h"
#include "sb3x.h"

/* Small configs of all kinds: the first byte of a fuzzer's input, or a test, chooses one. */
enum { N_LOADED_CONFIGS = 16 };
extern const sb3x_config loaded_configs[N_LOADED_CONFIGS];

/* Load saved cells, see saved.h, into a new store: refused if and only if they cannot be right. Then read everything, write over
   everything, take it out and load it again. The same with a store that holds other observations, which must not change. Returns
   whether the new store has taken them. */
int load_and_use(const sb3x_config *config, const uint8_t *bytes, int64_t n);

#endif
