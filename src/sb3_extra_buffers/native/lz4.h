/* Reading LZ4: blocks, and frames of them. What the lz4 library has written is read here without it, by the core's threads, and only
   as far as it is needed. Formats: lz4_Block_format.md and lz4_Frame_format.md of the LZ4 project. */

#ifndef SB3X_LZ4_H
#define SB3X_LZ4_H

#include <stdint.h>

/* The first n bytes of a block that has 4 bytes with its size in front, as lz4.block.compress writes it. 0 if that cannot be right.
   Never reads or writes outside of [data, end) and [out, out + n). */
int read_lz4_block(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n);

/* The same of a frame, as lz4.frame.compress writes it. Checksums are not looked at: the bytes have not left the process, or were
   checked as a whole. */
int read_lz4_frame(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n);

#endif
