/* Reading Zstandard: RFC 8878. What its library has written is read here without it, by the core's threads, and only as far as it is
   needed. The library takes 14 us for two small frames, most of it before the first byte. */

#ifndef SB3X_ZSTD_H
#define SB3X_ZSTD_H

#include <stdint.h>

/* The first n bytes of a frame: SB3X_OK, SB3X_CORRUPT if that cannot be right, or SB3X_NO_MEMORY. Never reads or writes outside of
   [data, end) and [out, out + n). Checksums are not looked at: the bytes have not left the process, or were checked as a whole.
   Dictionaries are not known here. */
int32_t read_zstd(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n);

#endif
