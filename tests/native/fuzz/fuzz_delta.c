/* `delta`: whatever is decoded, nothing is touched outside; whatever is encoded decodes to itself.
   Input: frame_bytes - 1 (2 bytes, up to 1024), frames, 1 for a base and 64 times the item, row, channel; then the base, then encoded bytes. */

#include "fuzz.h"
#include "packing.h"

enum { HEADER = 6, LARGEST = 1024, MOST_FRAMES = 12 };

/* Rows and channels: of a few bytes, or of as many parts of a frame. */
static int64_t distance_of(uint8_t byte, int64_t frame_bytes) {
    int64_t distance = byte < 64 ? byte : byte < 128 ? frame_bytes / (byte - 63) : byte * 4;
    return distance < frame_bytes ? distance : frame_bytes;
}

static sb3x_shape shape_at(const uint8_t *data) {
    const int64_t frame_bytes = 1 + (data[0] | (int64_t)data[1] << 8) % LARGEST;
    static const int64_t items[] = {1, 2, 4, 0};
    return (sb3x_shape){frame_bytes, distance_of(data[4], frame_bytes), distance_of(data[5], frame_bytes), items[data[3] >> 6]};
}

/* The same bytes as a packed frame behind another. */
static void check_packing(const sb3x_shape *shape, const uint8_t *data, int64_t n) {
    uint8_t *before = exactly(shape->bytes), *frame = exactly(shape->bytes), *packed = copy_of(data, n);
    for (int64_t i = 0; i < shape->bytes && n > 0; i++) before[i] = data[(i * 7 + 3) % n];
    if (unpack_frame(shape, packed, packed + n, before, frame)) {
        int64_t room = shape->bytes + shape->bytes / 128 * 5 + 5;
        uint8_t *ours = exactly(room + PACKING_SLACK), *again = exactly(shape->bytes);
        uint8_t *end = pack_frame(shape, frame, before, ours, ours + room);
        CHECK(end && unpack_frame(shape, ours, end, before, again) == end);
        CHECK(memcmp(frame, again, (size_t)shape->bytes) == 0);
        free(ours), free(again);
    }
    free(before), free(frame), free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEADER) return 0;
    const sb3x_shape shape = shape_at(data);
    const int64_t frame_bytes = shape.bytes, n_frames = data[2] % MOST_FRAMES;
    int64_t n = (int64_t)size - HEADER, base_bytes = data[3] % 2 ? frame_bytes : 0;
    if (n < base_bytes) return 0;
    n -= base_bytes;
    uint8_t *base = base_bytes ? copy_of(data + HEADER, frame_bytes) : NULL, *encoded = copy_of(data + HEADER + base_bytes, n);
    uint8_t *out = exactly(n_frames * frame_bytes);
    int32_t status = sb3x_delta_decode(&shape, encoded, n, base, n_frames, out);
    CHECK(status == SB3X_OK || status == SB3X_CORRUPT);
    if (status == SB3X_OK) { /* and again from what we make of it */
        int64_t room = n_frames * (frame_bytes + frame_bytes / 15 + 40);
        uint8_t *ours = exactly(room), *again = exactly(n_frames * frame_bytes);
        int64_t length = sb3x_delta_encode(&shape, out, n_frames, base, ours, room);
        CHECK(length >= 0 && sb3x_delta_decode(&shape, ours, length, base, n_frames, again) == SB3X_OK);
        CHECK(n_frames == 0 || memcmp(out, again, (size_t)(n_frames * frame_bytes)) == 0);
        free(ours), free(again);
    }
    /* The same bytes as frames, into any room. */
    int64_t whole = n / frame_bytes, room = n + data[2];
    uint8_t *ours = exactly(room), *again = exactly(whole * frame_bytes);
    int64_t length = sb3x_delta_encode(&shape, encoded, whole, base, ours, room);
    CHECK(length <= room);
    if (length >= 0) {
        CHECK(sb3x_delta_decode(&shape, ours, length, base, whole, again) == SB3X_OK);
        CHECK(whole == 0 || memcmp(encoded, again, (size_t)(whole * frame_bytes)) == 0);
    }
    check_packing(&shape, encoded, n);
    free(base), free(encoded), free(out), free(ours), free(again);
    return 0;
}

int64_t make_seed(source *from, uint8_t *out, int64_t room) {
    static uint8_t frames[MOST_FRAMES * LARGEST];
    memset(frames, 0, sizeof frames);
    for (int k = 0; k < HEADER; k++) out[k] = (uint8_t)below(from, 256);
    if (once_in(from, 2)) out[1] = 0; /* small ones */
    const sb3x_shape shape = shape_at(out);
    const int64_t frame_bytes = shape.bytes, n_frames = out[2] % MOST_FRAMES, is_picture = below(from, 2), noise = 1 << below(from, 6);
    for (int64_t i = 0; i < n_frames; i++) {
        uint8_t *frame = frames + i * frame_bytes;
        if (i > 0) memcpy(frame, frame - frame_bytes, (size_t)frame_bytes);
        for (int64_t k = 0; is_picture && k < frame_bytes; k++) frame[k] = (uint8_t)(k * (1 + i) + below(from, noise));
        for (int64_t k = below(from, 6); k > 0; k--) {
            int64_t at = below(from, frame_bytes), length = 1 + below(from, frame_bytes - at);
            if (!is_picture || once_in(from, 4)) memset(frame + at, (int)below(from, 256), (size_t)length);
            set_byte(from, frame, frame_bytes, 256);
        }
    }
    const uint8_t *base = out[3] % 2 ? frames + n_frames / 2 * frame_bytes : NULL;
    int64_t at = HEADER;
    if (base) memcpy(out + at, base, (size_t)frame_bytes);
    at += base ? frame_bytes : 0;
    int64_t length = sb3x_delta_encode(&shape, frames, n_frames, base, out + at, room - at);
    return at + (length > 0 ? length : 0);
}
