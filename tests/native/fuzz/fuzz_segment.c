/* Receiving a segment, and everything that can be done with the store afterwards.
   Input: the number of a config, then saved cells. */

#include "fuzz.h"
#include "loaded.h"
#include "model.h"
#include "saved.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1) return 0;
    uint8_t *bytes = copy_of(data + 1, (int64_t)size - 1);
    load_and_use(&loaded_configs[data[0] % N_LOADED_CONFIGS], bytes, (int64_t)size - 1);
    free(bytes);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    int32_t error;
    const int64_t number = below(from, N_LOADED_CONFIGS), n_cells = loaded_configs[number].n_cells;
    model *model = new_model(&loaded_configs[number], from, &error);
    CHECK(model->store);
    for (int64_t i = below(from, 30); i > 0; i--) play(model);
    int64_t n = below(from, n_cells + 1), *cells = exactly(8 * n), *targets = exactly(8 * n);
    for (int64_t i = 0; i < n; i++) {
        cells[i] = below(from, n_cells);
        targets[i] = below(from, n_cells);
    }
    saved some = save_cells(model->store, &model->config, cells, targets, n);
    CHECK(some.bytes);
    if (some.n > room - 1) some.n = room - 1;
    out[0] = (uint8_t)number;
    memcpy(out + 1, some.bytes, (size_t)some.n);
    free(some.bytes), free(cells), free(targets);
    free_model(model);
    return some.n + 1;
}
