/* Reading Zstandard: blocks of literals and sequences. zstd.h has the contract, entropy.h the codes that both are written in. */

#include "zstd.h"

#include <string.h>

#include "bytes.h"
#include "entropy.h"
#include "internal.h"

enum { MAGIC_BYTES = 4, MOST_BLOCK_BYTES = 1 << 17, SLACK = 16 };

/* What sequences are made of: how many literals, how long a match, how far back. */
enum { LITERALS, OFFSETS, MATCHES, KINDS };
enum { FROM_FORMAT = 0, ONE_SYMBOL = 1, WRITTEN = 2, REPEATED = 3 };

static const uint32_t literal_values[] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,   10,  11,  12,   13,   14,   15,    16,    18,
                                          20, 22, 24, 28, 32, 40, 48, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
static const uint8_t literal_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  1,  1,
                                       1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const uint32_t match_values[] = {3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18,  19,  20,
                                        21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 37,  39,  41,
                                        43, 47, 51, 59, 67, 83, 99, 131, 259, 515, 1027, 2051, 4099, 8195, 16387, 32771, 65539};
static const uint8_t match_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  0,  0,  0, 0,
                                     0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
static const int16_t usual_literals[] = {4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1,  2,  2,
                                         2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, -1, -1, -1, -1};
static const int16_t usual_offsets[] = {1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1};
static const int16_t usual_matches[] = {1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1,  1,  1,  1,  1, 1, 1, 1, 1,
                                        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  1,  1,  1,  1, -1, -1, -1, -1, -1, -1, -1};

/* A state of the code of one kind: a symbol, with what it stands for, and how the next state is found. */
typedef struct {
    uint32_t value;
    uint8_t further; /* bits that are added to the value */
    uint8_t bits;    /* of the next state */
    uint16_t next;   /* what they are added to */
} sequence_state;

enum { SEQUENCE_STATES = 1 << 9, STATE_BITS = 9 + 8 + 9 };
static const int most_logs[KINDS] = {9, 8, 9};
static const int usual_logs[KINDS] = {6, 5, 6};
static const int n_symbols[KINDS] = {36, 32, 53};
static const int n_usual[KINDS] = {36, 29, 53};
static const int16_t *const usual_counts[KINDS] = {usual_literals, usual_offsets, usual_matches};

typedef struct {
    uint8_t *bytes;
    int64_t done, n; /* how many there are, and how many are wanted */
} output;

typedef struct {
    output output;
    int64_t offsets[3]; /* the last ones, the newest first */
    int logs[KINDS];    /* of the tables; -1: there is none yet */
    huffman_table huffman;
    sequence_state tables[KINDS][SEQUENCE_STATES];
} reader;

static uint32_t read_number(const uint8_t *at, int n_bytes) {
    uint32_t number = 0;
    for (int i = 0; i < n_bytes; i++) number |= (uint32_t)at[i] << (8 * i);
    return number;
}

/* ---- literals */

typedef struct {
    uint8_t *memory; /* with SLACK bytes behind the last one, so that 16 can be copied at a time */
    const uint8_t *at, *end;
} literals;

/* Four streams that lie one behind the other, or a single one, to `out`; 0 if that cannot be right. */
static int read_streams(const huffman_table *table, const uint8_t *data, const uint8_t *end, int n_streams, uint8_t *out, int64_t n) {
    if (n_streams == 1) return read_huffman(table, data, end, out, n);
    const int64_t each = (n + 3) / 4;
    if (end - data < 6) return 0;
    const uint8_t *begins[5] = {data + 6};
    for (int i = 0; i < 3; i++) {
        int64_t length = read_number(data + 2 * i, 2);
        if (length > end - begins[i]) return 0;
        begins[i + 1] = begins[i] + length;
    }
    begins[4] = end;
    return read_four_huffman(table, begins, out, each, n);
}

/* The literals of a block. Where the rest of it begins; NULL, with a status, if that cannot be right. */
static const uint8_t *read_literals(reader *reader, const uint8_t *data, const uint8_t *end, literals *found, int32_t *status) {
    enum { RAW, SAME, CODED, CODED_AS_BEFORE };
    *status = SB3X_CORRUPT;
    if (data >= end) return NULL;
    const int kind = data[0] & 3, form = data[0] >> 2 & 3;
    int64_t n, length;
    if (kind == RAW || kind == SAME) {
        const int header = form == 1 ? 2 : form == 3 ? 3 : 1;
        if (end - data < header) return NULL;
        n = read_number(data, header) >> (header == 1 ? 3 : 4);
        data += header;
        length = kind == RAW ? n : 1;
    } else {
        const int header = form < 2 ? 3 : form + 2, bits = form < 2 ? 10 : form == 2 ? 14 : 18;
        if (end - data < header) return NULL;
        uint64_t sizes = (read_number(data, header < 4 ? header : 4) | (header == 5 ? (uint64_t)data[4] << 32 : 0)) >> 4;
        n = (int64_t)(sizes & (((uint64_t)1 << bits) - 1));
        length = (int64_t)(sizes >> bits);
        data += header;
    }
    if (n > MOST_BLOCK_BYTES || length > end - data) return NULL;
    uint8_t *memory = sb3x_allocate((size_t)n + SLACK);
    if (!memory) {
        *status = SB3X_NO_MEMORY;
        return NULL;
    }
    *found = (literals){memory, memory, memory + n};
    const uint8_t *stop = data + length;
    if (kind == RAW) memcpy(memory, data, (size_t)n);
    if (kind == SAME) memset(memory, *data, (size_t)n);
    if (kind == RAW || kind == SAME) return stop;
    if (kind == CODED) data = read_huffman_table(&reader->huffman, data, stop);
    if (!data || reader->huffman.log == 0) return NULL;
    return read_streams(&reader->huffman, data, stop, form == 0 ? 1 : 4, memory, n) ? stop : NULL;
}

/* ---- sequences */

static void describe(int kind, int symbol, sequence_state *state) {
    state->value = kind == LITERALS ? literal_values[symbol] : kind == MATCHES ? match_values[symbol] : (uint32_t)1 << symbol;
    state->further = kind == LITERALS ? literal_bits[symbol] : kind == MATCHES ? match_bits[symbol] : (uint8_t)symbol;
}

static void build_sequence_table(reader *reader, int kind, const int16_t *counts, int n, int log) {
    fse_state states[SEQUENCE_STATES];
    build_fse(states, counts, n, log);
    sequence_state *table = reader->tables[kind];
    for (int i = 0; i < 1 << log; i++) {
        describe(kind, states[i].symbol, &table[i]);
        table[i].bits = states[i].bits;
        table[i].next = states[i].next;
    }
    reader->logs[kind] = log;
}

/* The table of one kind, as `mode` says. Where the rest of the block begins, or NULL. */
static const uint8_t *read_sequence_table(reader *reader, int kind, int mode, const uint8_t *data, const uint8_t *end) {
    int16_t counts[64];
    int n, log;
    switch (mode) {
        case FROM_FORMAT:
            build_sequence_table(reader, kind, usual_counts[kind], n_usual[kind], usual_logs[kind]);
            return data;
        case ONE_SYMBOL:
            if (data >= end || *data >= n_symbols[kind]) return NULL;
            reader->tables[kind][0] = (sequence_state){0};
            describe(kind, *data, &reader->tables[kind][0]);
            reader->logs[kind] = 0;
            return data + 1;
        case WRITTEN:
            data = read_counts(data, end, n_symbols[kind], most_logs[kind], counts, &n, &log);
            if (data) build_sequence_table(reader, kind, counts, n, log);
            return data;
        default:
            return reader->logs[kind] < 0 ? NULL : data;
    }
}

/* How far back a match is; values 1 to 3 stand for one of the last ones. 0 if that cannot be right. */
static inline int64_t find_offset(int64_t *last, int64_t value, int has_literals) {
    if (value > 3) {
        last[2] = last[1];
        last[1] = last[0];
        return last[0] = value - 3;
    }
    const int64_t which = value - has_literals; /* 0 to 3: the newest, the one before, the third, the newest but one byte */
    if (which == 0) return last[0];
    const int64_t offset = which == 3 ? last[0] - 1 : last[which];
    if (which > 1) last[2] = last[1];
    last[1] = last[0];
    return last[0] = offset;
}

typedef struct {
    int64_t literals, length, offset; /* the offset as it is written, see find_offset */
} sequence;

/* The sequence that three states stand for, and the states that follow, unless it is the last. */
static inline sequence take_sequence(back_reader *bits, const reader *reader, const sequence_state **states, int is_last) {
    const sequence_state *literal = states[LITERALS], *offset = states[OFFSETS], *match = states[MATCHES];
    const int literal_further = literal->further, match_further = match->further, offset_further = offset->further;
    sequence found;
    refill_back(bits);
    found.offset = (int64_t)offset->value + take_back(bits, offset_further);
    found.length = (int64_t)match->value + take_back(bits, match_further);
    if (offset_further + match_further + literal_further > 56 - STATE_BITS) refill_back(bits);
    found.literals = (int64_t)literal->value + take_back(bits, literal_further);
    if (!is_last) {
        states[LITERALS] = &reader->tables[LITERALS][literal->next + take_back(bits, literal->bits)];
        states[MATCHES] = &reader->tables[MATCHES][match->next + take_back(bits, match->bits)];
        states[OFFSETS] = &reader->tables[OFFSETS][offset->next + take_back(bits, offset->bits)];
    }
    return found;
}

/* n bytes, 16 at a time, so that up to 15 bytes behind them are overwritten. */
static inline void copy_vectors(uint8_t *out, const uint8_t *from, int64_t n) {
    store_vector(out, load_vector(from));
    for (int64_t i = 16; i < n; i += 16) store_vector(out + i, load_vector(from + i));
}

/* Literals to the output, as many as are still wanted. */
static inline void put_literals(output *to, literals *from, int64_t n) {
    const int64_t room = to->n - to->done;
    if (n + SLACK <= room) {
        copy_vectors(to->bytes + to->done, from->at, n);
    } else {
        if (n > room) n = room;
        memcpy(to->bytes + to->done, from->at, (size_t)n);
    }
    from->at += n;
    to->done += n;
}

static inline void put_match(output *to, int64_t offset, int64_t n) {
    const int64_t room = to->n - to->done;
    if (n > room) n = room;
    copy_match(to->bytes + to->done, offset, n, room);
    to->done += n;
}

static int run_sequences(reader *reader, literals *given, const uint8_t *data, const uint8_t *end, int64_t n_sequences) {
    back_reader opened;
    if (!open_back(&opened, data, end)) return 0;
    back_reader bits = opened; /* copies can be kept in registers */
    output to = reader->output;
    literals from = *given;
    const sequence_state *states[KINDS];
    for (int kind = 0; kind < KINDS; kind++) states[kind] = &reader->tables[kind][take_back(&bits, reader->logs[kind])];
    for (int64_t left = n_sequences; left > 0 && to.done < to.n; left--) {
        const sequence one = take_sequence(&bits, reader, states, left == 1);
        if (is_beyond_begin(&bits) || one.literals > from.end - from.at) return 0;
        put_literals(&to, &from, one.literals);
        const int64_t offset = find_offset(reader->offsets, one.offset, one.literals > 0);
        if (to.done == to.n) break;
        if (offset <= 0 || offset > to.done) return 0;
        put_match(&to, offset, one.length);
    }
    reader->output = to;
    *given = from;
    return to.done == to.n || is_at_begin(&bits);
}

static int read_sequences(reader *reader, literals *from, const uint8_t *data, const uint8_t *end) {
    if (data >= end) return 0;
    int64_t n = *data++;
    if (n >= 128) {
        const int more = n == 255 ? 2 : 1;
        if (end - data < more) return 0;
        n = n == 255 ? data[0] + 256 * data[1] + 0x7F00 : (n - 128) * 256 + data[0];
        data += more;
    }
    if (n > 0) {
        if (data >= end || *data & 3) return 0;
        const int modes = *data++;
        for (int kind = 0; kind < KINDS && data; kind++) data = read_sequence_table(reader, kind, modes >> (6 - 2 * kind) & 3, data, end);
        if (!data || !run_sequences(reader, from, data, end, n)) return 0;
    } else if (data != end) {
        return 0;
    }
    put_literals(&reader->output, from, from->end - from->at);
    return 1;
}

static int32_t read_compressed(reader *reader, const uint8_t *data, const uint8_t *end) {
    literals found = {NULL, NULL, NULL};
    int32_t status;
    data = read_literals(reader, data, end, &found, &status);
    if (data) status = read_sequences(reader, &found, data, end) ? SB3X_OK : SB3X_CORRUPT;
    sb3x_release(found.memory);
    return status;
}

/* ---- frames */

/* Where the blocks of a frame begin; NULL if it has no header that is known here. */
static const uint8_t *skip_header(const uint8_t *data, const uint8_t *end) {
    static const uint8_t dictionary_bytes[4] = {0, 1, 2, 4}, size_bytes[4] = {0, 2, 4, 8};
    if (end - data < MAGIC_BYTES + 1 || read_number(data, MAGIC_BYTES) != 0xFD2FB528) return NULL;
    const int flags = data[MAGIC_BYTES], is_single = flags >> 5 & 1, dictionary = dictionary_bytes[flags & 3];
    if (flags & 8) return NULL;
    const int sizes = flags >> 6 == 0 && is_single ? 1 : size_bytes[flags >> 6];
    data += MAGIC_BYTES + 1 + !is_single;
    if (end - data < dictionary + sizes || read_number(data, dictionary) != 0) return NULL;
    return data + dictionary + sizes;
}

int32_t read_zstd(const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n) {
    enum { RAW, SAME, COMPRESSED };
    data = skip_header(data, end);
    if (!data) return SB3X_CORRUPT;
    reader reader;
    output *to = &reader.output;
    *to = (output){out, 0, n};
    reader.huffman.log = 0;
    for (int i = 0; i < KINDS; i++) reader.logs[i] = -1;
    reader.offsets[0] = 1, reader.offsets[1] = 4, reader.offsets[2] = 8;
    for (int is_last = 0; !is_last && to->done < n;) {
        if (end - data < 3) return SB3X_CORRUPT;
        const uint32_t header = read_number(data, 3);
        const int64_t size = header >> 3, room = n - to->done, some = size < room ? size : room;
        const int kind = header >> 1 & 3;
        is_last = header & 1;
        data += 3;
        const int64_t length = kind == SAME ? 1 : size;
        if (size > MOST_BLOCK_BYTES || length > end - data) return SB3X_CORRUPT;
        if (kind == COMPRESSED) {
            int32_t status = read_compressed(&reader, data, data + length);
            if (status != SB3X_OK) return status;
        } else if (kind == RAW) {
            memcpy(out + to->done, data, (size_t)some);
            to->done += some;
        } else if (kind == SAME) {
            memset(out + to->done, *data, (size_t)some);
            to->done += some;
        } else {
            return SB3X_CORRUPT;
        }
        data += length;
    }
    return to->done == n ? SB3X_OK : SB3X_CORRUPT;
}
