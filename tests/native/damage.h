/* Saved stores to be damaged. */

#ifndef SB3X_TESTS_DAMAGE_H
#define SB3X_TESTS_DAMAGE_H

#include "model.h"
#include "saved.h"

/* A store of a config that much has happened to, saved. */
static inline saved save_used(const sb3x_config *config, uint64_t seed, int64_t operations) {
    source from = source_of_seed(seed);
    int32_t error;
    model *model = new_model(config, &from, &error);
    CHECK(model->store);
    while (operations-- > 0) play(model);
    saved result = save_all(model->store, config);
    CHECK(result.bytes);
    free_model(model);
    return result;
}

static inline void put_value(uint8_t *at, int64_t value, int64_t size) { memcpy(at, &value, (size_t)size); }

static inline int64_t number_at(const uint8_t *bytes, int64_t at) {
    int64_t number;
    memcpy(&number, bytes + at, 8);
    return number;
}

#endif
