/* Codes of Zstandard. entropy.h has the contract. */

#include "entropy.h"

#include <string.h>

static int highest_bit(uint32_t number) { return 31 - __builtin_clz(number); }

int open_back(back_reader *reader, const uint8_t *begin, const uint8_t *end) {
    const int64_t n = end - begin;
    if (n < 1 || end[-1] == 0) return 0;
    reader->begin = begin;
    if (n >= 8) {
        reader->at = end - 8;
        reader->bits = load_word(reader->at);
        reader->used = 0;
    } else { /* as if there were zeros behind them that are used already */
        reader->at = begin;
        reader->bits = 0;
        for (int i = 0; i < n; i++) reader->bits |= (uint64_t)begin[i] << (8 * i);
        reader->used = 8 * (int)(8 - n);
    }
    reader->used += 8 - highest_bit(end[-1]);
    refill_back(reader);
    return 1;
}

/* ---- FSE */

/* 32 bits from bit `at` on; zeros behind the end. */
static uint32_t look_at_bits(const uint8_t *data, const uint8_t *end, int64_t at) {
    const uint8_t *from = data + at / 8;
    uint64_t word = 0;
    if (end - from >= 8)
        word = load_word(from);
    else
        for (int i = 0; i < end - from; i++) word |= (uint64_t)from[i] << (8 * i);
    return (uint32_t)(word >> at % 8);
}

const uint8_t *read_counts(const uint8_t *data, const uint8_t *end, int most_symbols, int most_log, int16_t *counts, int *n, int *log) {
    const int64_t n_bits = 8 * (int64_t)(end - data);
    if (n_bits < 8) return NULL;
    *log = (data[0] & 15) + 5;
    if (*log > most_log) return NULL;
    int left = 1 << *log, symbol = 0; /* states that are not given away */
    int64_t at = 4;
    while (left > 0) {
        if (symbol >= most_symbols || at > n_bits) return NULL;
        /* A number from 0 to left + 1. Small ones take a bit less, as far as there are codes to spare. */
        const int bits = highest_bit((uint32_t)left + 1) + 1, spare = (1 << bits) - 1 - (left + 1);
        const uint32_t seen = look_at_bits(data, end, at);
        int number = (int)(seen & ((1u << (bits - 1)) - 1));
        if (number < spare) {
            at += bits - 1;
        } else {
            number = (int)(seen & ((1u << bits) - 1));
            if (number >= 1 << (bits - 1)) number -= spare;
            at += bits;
        }
        const int count = number - 1; /* -1 stands for a state that is given away, too */
        left -= count < 0 ? 1 : count;
        counts[symbol++] = (int16_t)count;
        for (int more = count == 0 ? 3 : 0; more == 3;) { /* how many others have none */
            more = (int)(look_at_bits(data, end, at) & 3);
            at += 2;
            if (more > most_symbols - symbol || at > n_bits) return NULL;
            for (int i = 0; i < more; i++) counts[symbol++] = 0;
        }
    }
    if (left < 0 || at > n_bits) return NULL;
    *n = symbol;
    return data + (at + 7) / 8;
}

void build_fse(fse_state *states, const int16_t *counts, int n, int log) {
    const int size = 1 << log, step = (size >> 1) + (size >> 3) + 3, mask = size - 1;
    uint16_t next[64];
    int last = size - 1, at = 0;
    for (int i = 0; i < n; i++) {
        next[i] = (uint16_t)(counts[i] < 0 ? 1 : counts[i]);
        if (counts[i] < 0) states[last--].symbol = (uint8_t)i;
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < counts[i]; k++) {
            states[at].symbol = (uint8_t)i;
            do at = (at + step) & mask;
            while (at > last);
        }
    for (int i = 0; i < size; i++) {
        const int number = next[states[i].symbol]++;
        states[i].bits = (uint8_t)(log - highest_bit((uint32_t)number));
        states[i].next = (uint16_t)((number << states[i].bits) - size);
    }
}

/* ---- Huffman */

enum { MOST_WEIGHTS = 255, MOST_WEIGHT_LOG = 6, WEIGHT_SYMBOLS = 13 };

/* Weights that are FSE encoded, by two states in turns. How many, or -1. */
static int read_weights(const uint8_t *data, const uint8_t *end, uint8_t *weights) {
    int16_t counts[WEIGHT_SYMBOLS];
    fse_state states[1 << MOST_WEIGHT_LOG];
    int n, log, found = 0;
    data = read_counts(data, end, WEIGHT_SYMBOLS, MOST_WEIGHT_LOG, counts, &n, &log);
    back_reader bits;
    if (!data || !open_back(&bits, data, end)) return -1;
    build_fse(states, counts, n, log);
    const fse_state *even = &states[take_back(&bits, log)], *odd = &states[take_back(&bits, log)];
    if (is_beyond_begin(&bits)) return -1;
    for (;;) { /* the symbols of both states are left when there are no bits for another */
        if (found + 2 > MOST_WEIGHTS) return -1;
        refill_back(&bits);
        weights[found++] = even->symbol;
        const fse_state state = *even;
        even = &states[state.next + take_back(&bits, state.bits)];
        if (is_beyond_begin(&bits)) {
            weights[found++] = odd->symbol;
            return found;
        }
        const fse_state *swap = even;
        even = odd;
        odd = swap;
    }
}

/* n codes, a power of two, with the same meaning. */
static void fill_codes(uint16_t *codes, uint16_t meaning, int n) {
    const uint64_t four = meaning * 0x0001000100010001ULL;
    if (n < 4) {
        codes[0] = codes[n - 1] = meaning;
        return;
    }
    for (int i = 0; i < n; i += 4) memcpy(codes + i, &four, 8);
}

const uint8_t *read_huffman_table(huffman_table *table, const uint8_t *data, const uint8_t *end) {
    uint8_t weights[MOST_WEIGHTS + 1];
    table->log = 0;
    if (data >= end) return NULL;
    int n = *data++;
    if (n < 128) {
        if (n > end - data) return NULL;
        end = data + n;
        n = read_weights(data, end, weights);
        if (n < 0) return NULL;
    } else {
        n -= 127;
        if ((n + 1) / 2 > end - data) return NULL;
        for (int i = 0; i < n; i++) weights[i] = i % 2 ? data[i / 2] & 15 : data[i / 2] >> 4;
        end = data + (n + 1) / 2;
    }
    /* A weight is the share of the table. The last one is not written: it fills up a power of two. */
    int32_t ranks[MOST_HUFFMAN_LOG + 2] = {0}, sum = 0;
    for (int i = 0; i < n; i++) {
        if (weights[i] > MOST_HUFFMAN_LOG) return NULL;
        if (weights[i]) sum += 1 << (weights[i] - 1);
        ranks[weights[i]]++;
    }
    if (sum == 0) return NULL;
    const int log = highest_bit((uint32_t)sum) + 1, rest = (1 << log) - sum;
    if (log > MOST_HUFFMAN_LOG || rest & (rest - 1)) return NULL;
    weights[n] = (uint8_t)(highest_bit((uint32_t)rest) + 1);
    ranks[weights[n++]]++;
    int32_t places[MOST_HUFFMAN_LOG + 2] = {0};
    for (int weight = 1; weight <= log; weight++) places[weight + 1] = places[weight] + ranks[weight] * (1 << (weight - 1));
    for (int i = 0; i < n; i++) {
        if (!weights[i]) continue;
        const int length = 1 << (weights[i] - 1), bits = log + 1 - weights[i];
        fill_codes(table->codes + places[weights[i]], (uint16_t)(bits << 8 | i), length);
        places[weights[i]] += length;
    }
    table->log = log;
    return end;
}

static inline uint8_t take_symbol(const huffman_table *table, back_reader *bits, int log) {
    const uint64_t index = bits->bits << (bits->used & 63) >> (64 - log);
    bits->used += table->codes[index] >> 8;
    return (uint8_t)table->codes[index];
}

static int read_rest(const huffman_table *table, back_reader *bits, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        refill_back(bits);
        out[i] = take_symbol(table, bits, table->log);
        if (is_beyond_begin(bits)) return 0;
    }
    return is_at_begin(bits);
}

int read_huffman(const huffman_table *table, const uint8_t *data, const uint8_t *end, uint8_t *out, int64_t n) {
    back_reader bits;
    return open_back(&bits, data, end) && read_rest(table, &bits, out, n);
}

int read_four_huffman(const huffman_table *table, const uint8_t *const *begins, uint8_t *out, int64_t each, int64_t n) {
    enum { AT_ONCE = 5 }; /* codes that 56 bits are enough for */
    back_reader bits[4];
    const int64_t last = n - 3 * each;
    const int log = table->log;
    int64_t done = 0;
    if (last < 0) return 0;
    for (int i = 0; i < 4; i++)
        if (!open_back(&bits[i], begins[i], begins[i + 1])) return 0;
    for (; done + AT_ONCE <= last; done += AT_ONCE) {
        for (int i = 0; i < 4; i++) refill_back(&bits[i]);
        for (int k = 0; k < AT_ONCE; k++)
            for (int i = 0; i < 4; i++) out[i * each + done + k] = take_symbol(table, &bits[i], log);
        if (is_beyond_begin(&bits[0]) | is_beyond_begin(&bits[1]) | is_beyond_begin(&bits[2]) | is_beyond_begin(&bits[3])) return 0;
    }
    for (int i = 0; i < 4; i++)
        if (!read_rest(table, &bits[i], out + i * each + done, (i < 3 ? each : last) - done)) return 0;
    return 1;
}
