/* Formats of libraries that the core reads: one entry to lz4.c, inflate.c and zstd.c. */

#ifndef SB3X_FORMATS_H
#define SB3X_FORMATS_H

#include <stdint.h>

/* The first n bytes of what is in [data, end), in a format SB3X_READ_...: SB3X_OK, SB3X_CORRUPT or SB3X_NO_MEMORY. Never reads or writes
   outside of [data, end) and [out, out + n). */
int32_t read_format(int64_t format, const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n);

#endif
