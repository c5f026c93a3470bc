/* The codes that Zstandard writes with: finite state entropy (FSE) and Huffman, both read from the end of their bytes to the beginning.
   RFC 8878, section 4. Above: zstd.c. */

#ifndef SB3X_ENTROPY_H
#define SB3X_ENTROPY_H

#include <stdint.h>

#include "bytes.h"

/* ---- bits, from the last byte to the first */

typedef struct {
    const uint8_t *begin, *at; /* of all bytes; of those that `bits` were loaded from */
    uint64_t bits;             /* the next ones are the highest */
    int used;                  /* of them; more than 64: beyond the beginning */
} back_reader;

/* 0 if there is no end: the highest bit that is set in the last byte. */
int open_back(back_reader *reader, const uint8_t *begin, const uint8_t *end);

/* At least 56 bits, where there are as many. */
static inline void refill_back(back_reader *reader) {
    if (reader->used > 64) return;
    int64_t whole = reader->used >> 3, before = reader->at - reader->begin;
    if (whole > before) whole = before;
    if (before == 0) return; /* there may be less than a word */
    reader->at -= whole;
    reader->used -= 8 * (int)whole;
    reader->bits = load_word(reader->at);
}

/* The next n bits, 0 to 32. Beyond the beginning any: is_beyond_begin tells. */
static inline uint32_t take_back(back_reader *reader, int n) {
    uint64_t value = reader->bits << (reader->used & 63) >> 1 >> (63 - n);
    reader->used += n;
    return (uint32_t)value;
}

static inline int is_beyond_begin(const back_reader *reader) { return reader->used > 64; }
static inline int is_at_begin(const back_reader *reader) { return 8 * (reader->at - reader->begin) + 64 == reader->used; }

/* ---- FSE */

typedef struct {
    uint8_t symbol;
    uint8_t bits;  /* of the next state */
    uint16_t next; /* what they are added to */
} fse_state;

/* How often each symbol stands among 2 ** log states; -1: once, but less than that. Where the rest of the bytes begins; NULL if that
   cannot be right. */
const uint8_t *read_counts(const uint8_t *data, const uint8_t *end, int most_symbols, int most_log, int16_t *counts, int *n, int *log);

/* The states of n symbols, at most 64, with counts that read_counts has found. */
void build_fse(fse_state *states, const int16_t *counts, int n, int log);

/* ---- Huffman */

enum { MOST_HUFFMAN_LOG = 11 };

typedef struct {
    int log; /* bits of the longest code; 0: there is no table */
    uint16_t codes[1 << MOST_HUFFMAN_LOG]; /* by the next `log` bits: a symbol, and from bit 8 on how many of the bits are its code */
} huffman_table;

/* Where the rest of the bytes begins; NULL if that cannot be right. */
const uint8_t *read_huffman_table(huffman_table *table, const uint8_t *data, const uint8_t *end);

/* n symbols that take all bytes from data to end; 0 if that cannot be right. */
int read_huffman(const huffman_table *table, const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n);

/* The same of four streams, from begins[i] to begins[i + 1], of `each` symbols; the last one has the rest of n. */
int read_four_huffman(const huffman_table *table, const uint8_t *const *begins, uint8_t *out, int64_t each, int64_t n);

#endif
