/* `delta`: whatever is decoded, nothing is touched outside; whatever is encoded decodes to itself.
   Input: frame_bytes - 1, frames, 1 for a base; then the base, then encoded bytes. */

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    const int64_t frame_bytes = 1 + data[0], n_frames = data[1] % 12;
    int64_t n = (int64_t)size - 3, base_bytes = data[2] % 2 ? frame_bytes : 0;
    if (n < base_bytes) return 0;
    n -= base_bytes;
    uint8_t *base = base_bytes ? copy_of(data + 3, frame_bytes) : NULL, *encoded = copy_of(data + 3 + base_bytes, n);
    uint8_t *out = exactly(n_frames * frame_bytes);
    int32_t status = sb3x_delta_decode(encoded, n, base, n_frames, frame_bytes, out);
    CHECK(status == SB3X_OK || status == SB3X_CORRUPT);
    if (status == SB3X_OK) { /* and again from what we make of it */
        int64_t room = n_frames * (frame_bytes + 16);
        uint8_t *ours = exactly(room), *again = exactly(n_frames * frame_bytes);
        int64_t length = sb3x_delta_encode(out, n_frames, frame_bytes, base, ours, room);
        CHECK(length >= 0 && sb3x_delta_decode(ours, length, base, n_frames, frame_bytes, again) == SB3X_OK);
        CHECK(n_frames == 0 || memcmp(out, again, (size_t)(n_frames * frame_bytes)) == 0);
        free(ours), free(again);
    }
    /* The same bytes as frames, into any room. */
    int64_t whole = n / frame_bytes, room = n + data[1];
    uint8_t *ours = exactly(room), *again = exactly(whole * frame_bytes);
    int64_t length = sb3x_delta_encode(encoded, whole, frame_bytes, base, ours, room);
    CHECK(length <= room);
    if (length >= 0) {
        CHECK(sb3x_delta_decode(ours, length, base, whole, frame_bytes, again) == SB3X_OK);
        CHECK(whole == 0 || memcmp(encoded, again, (size_t)(whole * frame_bytes)) == 0);
    }
    free(base), free(encoded), free(out), free(ours), free(again);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    uint8_t frames[12 * 256] = {0};
    const int64_t frame_bytes = 1 + below(from, 256), n_frames = 1 + below(from, 8), has_base = below(from, 2);
    for (int64_t i = 0; i < n_frames; i++) {
        uint8_t *frame = frames + i * frame_bytes;
        if (i > 0) memcpy(frame, frame - frame_bytes, (size_t)frame_bytes);
        for (int64_t k = below(from, 6); k > 0; k--) {
            int64_t at = below(from, frame_bytes), length = 1 + below(from, frame_bytes - at);
            memset(frame + at, (int)below(from, 256), (size_t)length);
            set_byte(from, frame, frame_bytes, 256);
        }
    }
    out[0] = (uint8_t)(frame_bytes - 1);
    out[1] = (uint8_t)n_frames;
    out[2] = (uint8_t)has_base;
    const uint8_t *base = has_base ? frames + n_frames / 2 * frame_bytes : NULL;
    int64_t at = 3;
    if (base) memcpy(out + at, base, (size_t)frame_bytes);
    at += base ? frame_bytes : 0;
    int64_t length = sb3x_delta_encode(frames, n_frames, frame_bytes, base, out + at, room - at);
    return at + (length > 0 ? length : 0);
}
