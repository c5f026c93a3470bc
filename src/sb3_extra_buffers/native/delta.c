/* Frames one after the other: how each is written, and reading it again. delta.h has the format. */

#include "delta.h"

#include "bytes.h"
#include "internal.h"

/* Of so many frames in a row that patches would have been longer, they are tried for the last one only. And of so many that packing
   would have been longer, it is tried for the last one only, as long as patches are not many. */
#define IN_A_ROW 16
#define MANY_PATCHES 4 /* this part of a frame */

int make_delta_writer(delta_writer *writer, const sb3x_shape *shape) {
    *writer = (delta_writer){.shape = *shape};
    writer->zeros = sb3x_allocate_zeros((size_t)shape->bytes);
    writer->spare = sb3x_allocate((size_t)shape->bytes + PACKING_SLACK);
    writer->bytes = sb3x_allocate((size_t)shape->bytes + PATCH_SLACK);
    if (writer->zeros && writer->spare && writer->bytes) return 1;
    free_delta_writer(writer);
    return 0;
}

void free_delta_writer(delta_writer *writer) {
    sb3x_release(writer->zeros);
    sb3x_release(writer->spare);
    sb3x_release(writer->bytes);
    writer->zeros = writer->spare = writer->bytes = NULL;
}

/* In how many pieces of 32 bytes two memories differ; a shorter rest does not count. */
static int64_t count_differences(const uint8_t *a, const uint8_t *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i + 32 <= n; i += 32) count += differing_bytes(a + i, b + i) != 0;
    return count;
}

/* Put what ends at `stop` in the spare room behind two bytes that say what it is. */
static uint8_t *take_spare(const delta_writer *writer, int how, const uint8_t *stop, uint8_t *out) {
    int64_t length = stop - writer->spare;
    out[0] = (uint8_t)how;
    out[1] = 0;
    copy_bytes(out + 2, writer->spare, length);
    return out + 2 + length;
}

uint8_t *write_frame(delta_writer *writer, const uint8_t *before, const uint8_t *frame, const uint8_t *base, uint8_t *out,
                     uint8_t *end, const uint8_t *limit) {
    const int64_t n = writer->shape.bytes, half = n / 2;
    int64_t best = limit - out < n ? limit - out + 1 : n; /* what it has to be shorter than */
    int is_tried = end || writer->packs == 0;
    if (is_tried) {
        if (!end) end = write_patches(before, frame, n, writer->bytes, out, limit - out < half ? limit : out + half);
        if (end && end - out <= n / FEW_PATCHES) return end;
        if (end && end - out < best) best = end - out; /* they may be longer than the frame, for which the spare room is made */
        /* For a frame that has changed a lot (a new episode, a new scene), and only from where less is different. */
        int64_t least = count_differences(before, frame, n);
        for (int how = PATCHED_ON_ZEROS; how <= PATCHED_ON_BASE; how++) {
            const uint8_t *from = how == PATCHED_ON_ZEROS ? writer->zeros : base;
            if (!from || from == before || count_differences(from, frame, n) >= least) continue;
            int64_t room = best - 3 < half ? best - 3 : half;
            uint8_t *stop = room > 0 ? write_patches(from, frame, n, writer->bytes, writer->spare, writer->spare + room) : NULL;
            if (!stop) continue;
            end = take_spare(writer, how, stop, out);
            best = end - out;
        }
        if (end && best <= n / FEW_PATCHES) return end;
        if (end && best <= n / MANY_PATCHES && writer->patches > 0) {
            writer->patches--;
            return end;
        }
    } else {
        writer->packs--;
    }
    /* Written in its place if that holds nothing yet and there is room for whatever it may become. */
    int is_direct = !end && limit - out >= n + PACKING_SLACK;
    uint8_t *target = is_direct ? out + 2 : writer->spare;
    uint8_t *stop = best > 3 ? pack_frame(&writer->shape, frame, before, target, target + best - 3) : NULL;
    if (is_tried) writer->packs = stop ? IN_A_ROW - 1 : 0;
    writer->patches = stop ? 0 : IN_A_ROW - 1;
    if (!stop) return end ? end : write_patches(before, frame, n, writer->bytes, out, limit);
    if (!is_direct) return take_spare(writer, PACKED, stop, out);
    out[0] = PACKED;
    out[1] = 0;
    return stop;
}

const uint8_t *read_frame(const sb3x_shape *shape, const uint8_t *data, const uint8_t *end, const uint8_t *before,
                          const uint8_t *base, uint8_t *frame) {
    if (is_tagged(data, end)) {
        int how = *data;
        data += 2;
        if (how == PACKED) return before != frame ? unpack_frame(shape, data, end, before, frame) : NULL;
        if (how == PATCHED_ON_ZEROS)
            memset(frame, 0, (size_t)shape->bytes);
        else if (how == PATCHED_ON_BASE && base)
            copy_bytes(frame, base, shape->bytes);
        else
            return NULL;
    } else if (before != frame) {
        copy_bytes(frame, before, shape->bytes);
    }
    return apply_patches(data, end, frame, shape->bytes);
}

int64_t reading_work(const uint8_t *data, const uint8_t *end) {
    const int64_t length = end - data, tag = is_tagged(data, end) ? 2 : 0;
    const int64_t n_patches = is_packed(data, end) ? 0 : count_patches(data + tag, end);
    return length > PATCH_WORK * n_patches ? length : PATCH_WORK * n_patches;
}

static int is_shape(const sb3x_shape *shape) {
    return shape->bytes >= 1 && shape->bytes < PATCH_FRAME_LIMIT && shape->row >= 0 && shape->row <= shape->bytes &&
           shape->channel >= 0 && shape->channel <= shape->bytes && is_item(shape->item);
}

int64_t sb3x_delta_encode(const sb3x_shape *shape, const uint8_t *frames, int64_t n_frames, const uint8_t *base, uint8_t *out,
                          int64_t room) {
    delta_writer writer;
    if (!is_shape(shape) || !make_delta_writer(&writer, shape)) return -1;
    uint8_t *position = out;
    const uint8_t *before = base ? base : writer.zeros;
    for (int64_t i = 0; i < n_frames && position; i++, before = frames, frames += shape->bytes)
        position = write_frame(&writer, before, frames, base, position, NULL, out + room);
    free_delta_writer(&writer);
    return position ? position - out : -1;
}

int32_t sb3x_delta_decode(const sb3x_shape *shape, const uint8_t *data, int64_t n, const uint8_t *base, int64_t n_frames,
                          uint8_t *out) {
    const uint8_t *end = n > 0 ? data + n : data;
    if (!is_shape(shape)) return SB3X_CORRUPT;
    uint8_t *zeros = base || n_frames < 1 ? NULL : sb3x_map((size_t)shape->bytes);
    int32_t status = base || zeros || n_frames < 1 ? SB3X_OK : SB3X_NO_MEMORY;
    const uint8_t *before = base ? base : zeros;
    for (int64_t i = 0; i < n_frames && status == SB3X_OK; i++, before = out, out += shape->bytes) {
        data = read_frame(shape, data, end, before, base, out);
        if (!data) status = SB3X_CORRUPT;
    }
    sb3x_unmap(zeros, (size_t)shape->bytes);
    return status;
}
