/* Checks, and where the tests of the core take their choices from: a seed, or the bytes of a fuzzer. */

#ifndef SB3X_TESTS_CHECK_H
#define SB3X_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is being tested, for the message of a failed check. */
extern char check_context[256];

#define CHECK(condition)                                                                                       \
    do {                                                                                                       \
        if (!(condition)) {                                                                                    \
            fprintf(stderr, "%s:%d: CHECK(%s) failed: %s\n", __FILE__, __LINE__, #condition, check_context);   \
            fflush(NULL);                                                                                      \
            abort();                                                                                           \
        }                                                                                                      \
    } while (0)

/* Numbers from a seed, or, where there are bytes, from those; zeros when they are used up. */
typedef struct {
    uint64_t state;
    const uint8_t *bytes, *end;
} source;

static inline source source_of_seed(uint64_t seed) { return (source){seed * 0x9E3779B97F4A7C15ULL + 1, NULL, NULL}; }

static inline source source_of_bytes(const uint8_t *bytes, size_t n) { return (source){1, bytes, bytes + n}; }

static inline int is_used_up(const source *from) { return from->bytes && from->bytes >= from->end; }

static inline uint64_t next_number(source *from) {
    uint64_t x = from->state += 0x9E3779B97F4A7C15ULL; /* splitmix64 */
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ x >> 27) * 0x94D049BB133111EBULL;
    return x ^ x >> 31;
}

/* A number in 0 .. n - 1. */
static inline int64_t below(source *from, int64_t n) {
    if (n <= 1) return 0;
    if (!from->bytes) return (int64_t)(next_number(from) % (uint64_t)n);
    uint64_t number = 0;
    for (int64_t most = 1; most < n && !is_used_up(from); most *= 256) {
        number = number << 8 | *from->bytes++;
        if (most > n / 256) break;
    }
    return (int64_t)(number % (uint64_t)n);
}

/* Choices are drawn in statements of their own: the order within an expression would be up to the compiler. */
static inline void set_byte(source *from, uint8_t *bytes, int64_t n, int64_t values) {
    int64_t at = below(from, n);
    bytes[at] = (uint8_t)below(from, values);
}

/* True once in n times. */
static inline int once_in(source *from, int64_t n) { return below(from, n) == n - 1; }

/* Memory of exactly n bytes, so that a sanitizer sees every access outside. */
static inline void *exactly(int64_t n) {
    void *memory = calloc(n > 0 ? (size_t)n : 1, 1);
    if (!memory) abort();
    return memory;
}

/* A copy of exactly n bytes. */
static inline uint8_t *copy_of(const uint8_t *data, int64_t n) {
    uint8_t *copy = exactly(n);
    if (n > 0) memcpy(copy, data, (size_t)n);
    return copy;
}

static inline uint64_t fnv(uint64_t hash, const void *data, int64_t n) {
    const uint8_t *bytes = data;
    for (int64_t i = 0; i < n; i++) hash = (hash ^ bytes[i]) * 0x100000001B3ULL;
    return hash;
}

#endif
