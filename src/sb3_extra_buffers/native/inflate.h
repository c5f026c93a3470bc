/* Reading deflate, by which gzip and igzip are kept: RFC 1951, in the frame of RFC 1950. What their libraries have written is read here
   without them, by the core's threads, and only as far as it is needed. */

#ifndef SB3X_INFLATE_H
#define SB3X_INFLATE_H

#include <stdint.h>

/* The first n bytes of what zlib.compress has written. 0 if that cannot be right. Never reads or writes outside of [data, end) and
   [out, out + n). The checksum is not looked at: the bytes have not left the process, or were checked as a whole. */
int read_zlib(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n);

#endif
