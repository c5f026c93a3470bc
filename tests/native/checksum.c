/* A fixed run through everything that encodes: what it gives must not depend on the machine or the build. */

#include "model.h"
#include "saved.h"
#include "tests.h"

uint64_t checksum(void) {
    uint64_t hash = 0xCBF29CE484222325ULL;
    for (uint64_t seed = 0; seed < 60; seed++) {
        source from = source_of_seed(seed + 7000);
        sb3x_config config = draw_config(&from);
        config.frames = (int64_t)seed % SB3X_FRAMES_OUTSIDE; /* of which no bytes can be taken */
        int32_t error;
        model *model = new_model(&config, &from, &error);
        CHECK(model->store);
        for (int i = 0; i < 80; i++) play(model);
        saved all = save_all(model->store, &config);
        CHECK(all.bytes);
        hash = fnv(hash, all.bytes, all.n);
        free(all.bytes);
        free_model(model);
    }
    enum { SIZE = 7056, FRAMES = 12 };
    source from = source_of_seed(1);
    uint8_t *frames = exactly(FRAMES * SIZE), *out = exactly(2 * FRAMES * SIZE), *lengths = exactly(FRAMES * SIZE);
    for (int64_t i = 1; i < FRAMES; i++) { /* sprites that move over a ground */
        memcpy(frames + i * SIZE, frames + (i - 1) * SIZE, SIZE);
        for (int64_t k = 0; k < 40; k++) {
            int64_t at = below(&from, SIZE - 64), length = 1 + below(&from, 60);
            memset(frames + i * SIZE + at, (int)below(&from, 256), (size_t)length);
            set_byte(&from, frames + i * SIZE, SIZE, 256);
        }
    }
    int64_t n = 0;
    const sb3x_shape shapes[] = {
        {SIZE, 0, 0, 1}, {SIZE, 84, 0, 1}, {SIZE, 48, SIZE / 3, 1}, {SIZE, 168, 0, 2}, {SIZE, 96, SIZE / 3, 4}};
    for (int k = 0; k < 5; k++) {
        n = sb3x_delta_encode(&shapes[k], frames, FRAMES, NULL, out, 2 * FRAMES * SIZE);
        hash = fnv(hash, out, n);
        n = sb3x_delta_encode(&shapes[k], frames, FRAMES, frames + 5 * SIZE, out, 2 * FRAMES * SIZE);
        hash = fnv(hash, out, n);
        for (int64_t i = 0; i < FRAMES; i++) draw_picture(&from, &shapes[k], i / 5, frames + i * SIZE);
        n = sb3x_delta_encode(&shapes[k], frames, FRAMES, NULL, out, 2 * FRAMES * SIZE);
        hash = fnv(hash, out, n);
    }
    n = sb3x_find_runs(frames, FRAMES * SIZE / 2, 2, 65535, FRAMES * SIZE / 2, 2, out, lengths);
    hash = fnv(fnv(hash, out, 2 * n), lengths, 2 * n);
    for (int64_t parts = 1; parts < 6; parts++) {
        sb3x_split(frames, FRAMES, SIZE / parts, parts, 1, out);
        hash = fnv(hash, out, FRAMES * (SIZE / parts) * parts);
        sb3x_join(frames, FRAMES, SIZE / parts, parts, 1, out);
        hash = fnv(hash, out, FRAMES * (SIZE / parts) * parts);
    }
    free(frames), free(out), free(lengths);
    return hash;
}
