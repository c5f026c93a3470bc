/* Reading deflate. inflate.h has the contract. */

#include "inflate.h"

#include <string.h>

#include "bytes.h"

enum {
    LONGEST_CODE = 15,
    LENGTH_SYMBOLS = 288, /* literals, the end of a block, lengths of matches */
    DISTANCE_SYMBOLS = 32,
    ORDER_SYMBOLS = 19, /* lengths of codes */
    LENGTH_INDEX = 10,  /* bits that a table is looked up by; longer codes are rare */
    DISTANCE_INDEX = 8,
    ORDER_INDEX = 7,
};

/* ---- bits, the lowest of a byte first */

typedef struct {
    const uint8_t *at, *end;
    uint64_t bits;
    int count;  /* bits that are there */
    int beyond; /* bytes of them that were made up, behind the end */
} bit_reader;

/* At least 56 bits. Zeros follow the end: whoever uses them has read too far, which is_beyond tells. */
static inline void refill(bit_reader *reader) {
    if (reader->end - reader->at >= 8) {
        reader->bits |= load_word(reader->at) << reader->count;
        reader->at += (63 - reader->count) >> 3;
        reader->count |= 56;
        return;
    }
    for (; reader->count < 56; reader->count += 8) {
        if (reader->at < reader->end)
            reader->bits |= (uint64_t)*reader->at++ << reader->count;
        else
            reader->beyond++;
    }
}

static inline int is_beyond(const bit_reader *reader) { return 8 * reader->beyond > reader->count; }

static inline uint32_t take_bits(bit_reader *reader, int n) {
    uint32_t value = (uint32_t)(reader->bits & (((uint64_t)1 << n) - 1));
    reader->bits >>= n;
    reader->count -= n;
    return value;
}

/* ---- codes */

/* What a code stands for: bits 0 .. 3 its length, 0: none; 4, 5 its kind; 8 .. 11 how many further bits it has; from 16 on its value. */
typedef uint32_t meaning;
enum { LITERAL = 0, MATCH = 1 << 4, END = 2 << 4, NOTHING = 3 << 4, KIND = 3 << 4 };

static inline int length_of(meaning one) { return one & 15; }
static inline int further_bits(meaning one) { return one >> 8 & 15; }
static inline int64_t value_of(meaning one) { return one >> 16; }

static meaning meaning_of_length(int symbol) {
    if (symbol < 256) return (meaning)symbol << 16 | LITERAL;
    if (symbol == 256) return END;
    if (symbol == 285) return (meaning)258 << 16 | MATCH;
    if (symbol > 285) return NOTHING;
    int further = symbol < 265 ? 0 : (symbol - 261) / 4;
    int value = symbol < 265 ? symbol - 254 : 3 + ((4 + (symbol - 265) % 4) << further);
    return (meaning)value << 16 | (meaning)further << 8 | MATCH;
}

static meaning meaning_of_distance(int symbol) {
    if (symbol >= 30) return NOTHING;
    int further = symbol < 4 ? 0 : symbol / 2 - 1;
    int value = symbol < 4 ? symbol + 1 : 1 + ((2 + symbol % 2) << further);
    return (meaning)value << 16 | (meaning)further << 8 | MATCH;
}

static meaning meaning_of_order(int symbol) { return (meaning)symbol << 16; }

/* A Huffman code. Its symbols are in the order of their codes. */
typedef struct {
    meaning *table; /* by the next bits: what they stand for; 0 if the code is longer, or there is none */
    int index_bits;
    uint16_t counts[LONGEST_CODE + 1]; /* of codes, by length */
    uint16_t symbols[LENGTH_SYMBOLS];
    meaning (*meaning_of)(int symbol);
} huffman;

/* The code in which symbol i has a code of lengths[i] bits; 0 if there is no such code, or if some bits would stand for nothing. Only
   a code of a single bit may leave its other half out. */
static int build_code(huffman *code, const uint8_t *lengths, int n) {
    uint16_t places[LONGEST_CODE + 2] = {0};
    memset(code->counts, 0, sizeof code->counts);
    for (int i = 0; i < n; i++) code->counts[lengths[i]]++;
    code->counts[0] = 0;
    int left = 1; /* codes of a length that do not begin with a shorter one */
    for (int length = 1; length <= LONGEST_CODE; length++) {
        left = 2 * left - code->counts[length];
        if (left < 0) return 0;
        places[length + 1] = (uint16_t)(places[length] + code->counts[length]);
    }
    if (left > 0 && places[LONGEST_CODE + 1] > code->counts[1]) return 0;
    for (int i = 0; i < n; i++)
        if (lengths[i]) code->symbols[places[lengths[i]]++] = (uint16_t)i;
    /* Codes are read from their highest bit on, so the table is by reversed codes. Doubled for each further bit, which does not matter
       to shorter codes. */
    const uint16_t *symbol = code->symbols;
    uint32_t reversed = 0;
    code->table[0] = 0;
    for (int length = 1; length <= code->index_bits; length++) {
        const uint32_t size = 1u << (length - 1);
        memcpy(code->table + size, code->table, size * sizeof(meaning));
        for (int i = 0; i < code->counts[length]; i++) {
            code->table[reversed] = code->meaning_of(*symbol++) | (meaning)length;
            uint32_t bit = size;
            while (reversed & bit) bit >>= 1;
            reversed = bit ? (reversed & (bit - 1)) | bit : 0;
        }
    }
    return 1;
}

/* A code that is longer than the table's index, bit by bit; 0 if there is none. */
static meaning find_long_code(const huffman *code, uint64_t bits) {
    int value = 0, first = 0, index = 0;
    for (int length = 1; length <= LONGEST_CODE; length++, bits >>= 1) {
        value |= (int)(bits & 1);
        int count = code->counts[length];
        if (value - first < count) return code->meaning_of(code->symbols[index + value - first]) | (meaning)length;
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return 0;
}

static inline meaning take_code(bit_reader *reader, const huffman *code, int index_bits) {
    meaning found = code->table[reader->bits & ((1u << index_bits) - 1)];
    if (!length_of(found)) found = find_long_code(code, reader->bits);
    reader->bits >>= length_of(found);
    reader->count -= length_of(found);
    return found;
}

/* ---- blocks */

typedef struct {
    huffman lengths, distances;
    meaning length_table[1 << LENGTH_INDEX], distance_table[1 << DISTANCE_INDEX];
} codes;

static int read_fixed_codes(codes *codes) {
    uint8_t lengths[LENGTH_SYMBOLS + DISTANCE_SYMBOLS];
    for (int i = 0; i < LENGTH_SYMBOLS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    memset(lengths + LENGTH_SYMBOLS, 5, DISTANCE_SYMBOLS);
    return build_code(&codes->lengths, lengths, LENGTH_SYMBOLS) &&
           build_code(&codes->distances, lengths + LENGTH_SYMBOLS, DISTANCE_SYMBOLS);
}

/* Lengths of codes, which are themselves encoded; 0 if that cannot be right. */
static int read_code_lengths(bit_reader *reader, const huffman *order, uint8_t *lengths, int n) {
    for (int i = 0; i < n;) {
        refill(reader);
        meaning found = take_code(reader, order, ORDER_INDEX);
        if (!length_of(found) || is_beyond(reader)) return 0;
        int symbol = (int)value_of(found), repeats = 1;
        uint8_t length = (uint8_t)symbol;
        if (symbol >= 16) {
            if (symbol == 16 && i == 0) return 0;
            length = symbol == 16 ? lengths[i - 1] : 0;
            repeats = (int)(symbol == 16 ? 3 + take_bits(reader, 2) : symbol == 17 ? 3 + take_bits(reader, 3) : 11 + take_bits(reader, 7));
        }
        if (repeats > n - i) return 0;
        memset(lengths + i, length, (size_t)repeats);
        i += repeats;
    }
    return 1;
}

static int read_codes(bit_reader *reader, codes *codes) {
    static const uint8_t places[ORDER_SYMBOLS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    meaning table[1 << ORDER_INDEX];
    huffman order = {.table = table, .index_bits = ORDER_INDEX, .meaning_of = meaning_of_order};
    uint8_t lengths[LENGTH_SYMBOLS + DISTANCE_SYMBOLS] = {0};
    refill(reader);
    int n_lengths = (int)take_bits(reader, 5) + 257, n_distances = (int)take_bits(reader, 5) + 1, n_order = (int)take_bits(reader, 4) + 4;
    if (n_lengths > 286 || n_distances > 30) return 0;
    for (int i = 0; i < n_order; i++) {
        refill(reader);
        lengths[places[i]] = (uint8_t)take_bits(reader, 3);
    }
    if (!build_code(&order, lengths, ORDER_SYMBOLS) || !read_code_lengths(reader, &order, lengths, n_lengths + n_distances)) return 0;
    return lengths[256] && build_code(&codes->lengths, lengths, n_lengths) &&
           build_code(&codes->distances, lengths + n_lengths, n_distances);
}

/* Bytes as they are, behind `done` that are there already. How many there are, or -1. */
static int64_t read_stored(bit_reader *reader, uint8_t *out, int64_t done, int64_t n) {
    refill(reader);
    take_bits(reader, reader->count & 7);
    int64_t length = take_bits(reader, 16), inverse = take_bits(reader, 16);
    if (length != (inverse ^ 0xffff) || is_beyond(reader)) return -1;
    reader->at -= reader->count / 8 - reader->beyond; /* whole bytes that were taken too early */
    reader->bits = 0;
    reader->count = reader->beyond = 0;
    if (length > reader->end - reader->at) return -1;
    int64_t some = length < n - done ? length : n - done;
    memcpy(out + done, reader->at, (size_t)some);
    reader->at += length;
    return done + some;
}

/* The same of a block of literals and matches. */
static int64_t read_coded(bit_reader *given, const codes *codes, uint8_t *out, int64_t done, int64_t n) {
    bit_reader reader = *given; /* a copy can be kept in registers */
    while (done < n) {
        refill(&reader);
        meaning found = take_code(&reader, &codes->lengths, LENGTH_INDEX);
        if (length_of(found) && (found & KIND) == LITERAL) {
            out[done++] = (uint8_t)value_of(found);
            if (is_beyond(&reader)) return -1;
            /* Often another follows: three codes have at most 45 bits. */
            for (int more = 0; more < 2 && done < n; more++) {
                found = codes->lengths.table[reader.bits & ((1u << LENGTH_INDEX) - 1)];
                if (!length_of(found) || (found & KIND) != LITERAL || reader.count < 8 * reader.beyond + length_of(found)) break;
                take_bits(&reader, length_of(found));
                out[done++] = (uint8_t)value_of(found);
            }
            continue;
        }
        if (!length_of(found) || (found & KIND) == NOTHING) return -1;
        if ((found & KIND) == END) {
            *given = reader;
            return is_beyond(&reader) ? -1 : done;
        }
        int64_t length = value_of(found) + take_bits(&reader, further_bits(found));
        meaning far = take_code(&reader, &codes->distances, DISTANCE_INDEX);
        if (!length_of(far) || (far & KIND) == NOTHING) return -1;
        int64_t distance = value_of(far) + take_bits(&reader, further_bits(far));
        if (distance > done || is_beyond(&reader)) return -1;
        if (length > n - done) length = n - done;
        copy_match(out + done, distance, length, n - done);
        done += length;
    }
    return done;
}

int read_zlib(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n) {
    enum { HEADER = 2, DEFLATE = 8, HAS_DICTIONARY = 32 };
    if (end - data < HEADER || (data[0] & 15) != DEFLATE || (data[0] * 256 + data[1]) % 31 || data[1] & HAS_DICTIONARY) return 0;
    bit_reader reader = {.at = data + HEADER, .end = end};
    codes codes;
    codes.lengths = (huffman){.table = codes.length_table, .index_bits = LENGTH_INDEX, .meaning_of = meaning_of_length};
    codes.distances = (huffman){.table = codes.distance_table, .index_bits = DISTANCE_INDEX, .meaning_of = meaning_of_distance};
    int64_t done = 0;
    for (int is_last = 0; done < n && !is_last;) {
        refill(&reader);
        is_last = (int)take_bits(&reader, 1);
        int kind = (int)take_bits(&reader, 2);
        if (kind == 0)
            done = read_stored(&reader, out, done, n);
        else if (kind == 1 && read_fixed_codes(&codes))
            done = read_coded(&reader, &codes, out, done, n);
        else if (kind == 2 && read_codes(&reader, &codes))
            done = read_coded(&reader, &codes, out, done, n);
        else
            return 0;
        if (done < 0) return 0;
    }
    return done == n;
}
