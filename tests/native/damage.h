/* Saved stores to be damaged. */

#ifndef SB3X_TESTS_DAMAGE_H
#define SB3X_TESTS_DAMAGE_H

#include "model.h"

/* Bytes before the rows of the blocks, and of the numbers of a stream. */
enum { SAVED_HEADER = 80, SAVED_STREAM = 48 };

/* A store of a config that much has happened to, saved. */
static inline uint8_t *save_used(const sb3x_config *config, uint64_t seed, int64_t operations, int64_t *n) {
    source from = source_of_seed(seed);
    int32_t error;
    model *model = new_model(config, &from, &error);
    CHECK(model->store);
    while (operations-- > 0) play(model);
    uint8_t *saved = sb3x_save(model->store, n), *copy;
    CHECK(saved);
    copy = copy_of(saved, *n);
    sb3x_free_saved(saved);
    free_model(model);
    return copy;
}

static inline void put_value(uint8_t *at, int64_t value, int64_t size) { memcpy(at, &value, (size_t)size); }

#endif
