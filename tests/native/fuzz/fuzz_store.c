/* The input is a program: a config, then operations on a store and on plain arrays, with memory refused in between. */

#include "fuzz.h"
#include "model.h"

enum { MOST_OPERATIONS = 120 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    source from = source_of_bytes(data, size);
    sb3x_config config = draw_config(&from);
    int32_t error;
    model *model = new_model(&config, &from, &error);
    CHECK(model->store);
    for (int i = 0; i < MOST_OPERATIONS && !is_used_up(&from); i++) {
        int64_t allowed = once_in(&from, 4) ? below(&from, 4) : -1;
        if (allowed < 0) {
            play(model);
        } else {
            operation drawn = draw_operation(model);
            sb3x_fail_allocation(allowed, (int32_t)below(&from, 2));
            int32_t status = try_operation(model, &drawn);
            sb3x_fail_allocation(-1, 0);
            CHECK(status == SB3X_OK || status == SB3X_NO_MEMORY);
            if (status != SB3X_OK || drawn.kind == PLAN_ONLY) verify(model); /* nothing has changed, and it can be repeated */
            if (status != SB3X_OK || drawn.kind == PLAN_ONLY) CHECK(try_operation(model, &drawn) == SB3X_OK);
            if (drawn.kind == PLAN_ONLY) { /* its observations are still there */
                drawn.kind = STEP;
                CHECK(try_operation(model, &drawn) == SB3X_OK);
            }
            free_operation(&drawn);
        }
        verify_some(model);
    }
    verify(model);
    free_model(model);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    int64_t n = 20 + below(from, 400);
    for (int64_t i = 0; i < n && i < room; i++) out[i] = (uint8_t)below(from, 256);
    return n;
}
