/* The tests of the core. main.c calls them; `rounds` scales how much is tried. */

#ifndef SB3X_TESTS_TESTS_H
#define SB3X_TESTS_TESTS_H

#include <stdint.h>

void test_store(int64_t rounds);
void test_order_of_calls(int64_t rounds);
void test_chunks(int64_t rounds);
void test_refused_memory(int64_t rounds);
void test_segments(int64_t rounds);
void test_receiving(int64_t rounds);
void test_damaged(int64_t rounds);
void test_crafted(int64_t rounds);
void test_limits(int64_t rounds);
void test_large(int64_t rounds);
void test_delta(int64_t rounds);
void test_lz4(int64_t rounds);
void test_formats(int64_t rounds);
void test_runs(int64_t rounds);
void test_channels(int64_t rounds);
void test_rows(int64_t rounds);
void test_threads(int64_t rounds);
void test_tree(int64_t rounds);
void test_direct(int64_t rounds);

/* A number that depends on every encoded byte of a fixed run: equal for all machines and builds. */
uint64_t checksum(void);

#endif
