/* Which decoder reads a format. formats.h has the contract. */

#include "formats.h"

#include "inflate.h"
#include "lz4.h"
#include "sb3x.h"
#include "zstd.h"

int32_t read_format(int64_t format, const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n) {
    switch (format) {
        case SB3X_READ_LZ4_BLOCK: return read_lz4_block(data, end, out, n) ? SB3X_OK : SB3X_CORRUPT;
        case SB3X_READ_LZ4_FRAME: return read_lz4_frame(data, end, out, n) ? SB3X_OK : SB3X_CORRUPT;
        case SB3X_READ_ZLIB: return read_zlib(data, end, out, n) ? SB3X_OK : SB3X_CORRUPT;
        case SB3X_READ_ZSTD: return read_zstd(data, end, out, n);
        default: return SB3X_BAD_ARGUMENT;
    }
}

int32_t sb3x_decode(int64_t format, const uint8_t *data, int64_t length, uint8_t *out, int64_t n) {
    return length < 0 || n < 0 ? SB3X_BAD_ARGUMENT : read_format(format, data, data + length, out, n);
}
