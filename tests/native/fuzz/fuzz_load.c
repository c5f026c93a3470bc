/* sb3x_load, and everything that can be done with what it has loaded.
   Input: the number of a config, then the saved store. */

#include "fuzz.h"
#include "loaded.h"
#include "model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    uint8_t *saved = copy_of(data + 1, (int64_t)size - 1);
    load_and_use(&loaded_configs[data[0] % N_LOADED_CONFIGS], saved, (int64_t)size - 1);
    free(saved);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    int32_t error;
    int64_t number = below(from, N_LOADED_CONFIGS), n;
    model *model = new_model(&loaded_configs[number], from, &error);
    CHECK(model->store);
    for (int64_t i = below(from, 30); i > 0; i--) play(model);
    uint8_t *saved = sb3x_save(model->store, &n);
    CHECK(saved);
    if (n > room - 1) n = room - 1;
    out[0] = (uint8_t)number;
    memcpy(out + 1, saved, (size_t)n);
    sb3x_free_saved(saved);
    free_model(model);
    return n + 1;
}
