/* What must hold for a store that has loaded bytes of unknown origin. */

#ifndef SB3X_TESTS_LOADED_H
#define SB3X_TESTS_LOADED_H

#include "check.h"
#include "sb3x.h"

/* Small configs of all kinds: the first byte of a fuzzer's input, or a test, chooses one. */
enum { N_LOADED_CONFIGS = 16 };
extern const sb3x_config loaded_configs[N_LOADED_CONFIGS];

/* Load into a new store: refused, or consistent. Then read everything, write over everything, save, load again. Returns whether
   it was loaded. */
int load_and_use(const sb3x_config *config, const uint8_t *data, int64_t n);

#endif
