/* Cells of a store as one array of bytes, as a file could hold them. All numbers are int64, one part behind the other:

     2           how many cells, how many blocks
     cells       where the observations go to
     heads       (cells, n_columns), see sb3x_taken
     table       (blocks, 4), see sb3x_taken
     the bytes of the blocks */

#ifndef SB3X_TESTS_SAVED_H
#define SB3X_TESTS_SAVED_H

#include "check.h"
#include "sb3x.h"

/* The numbers of a block in the table. */
enum { SAVED_PREVIOUS, SAVED_BASE, SAVED_LENGTH, SAVED_PIECE, SAVED_ROW };

typedef struct {
    uint8_t *bytes; /* to be freed; NULL where `error` says why */
    int64_t n;
    int32_t error;
} saved;

/* Where each part begins. */
typedef struct {
    int64_t n_cells, n_blocks;
    int64_t cells, heads, table, bytes;
} saved_parts;

/* 0 if there are less bytes than the parts need. */
int find_parts(const sb3x_config *config, const uint8_t *bytes, int64_t n, saved_parts *parts);

/* n cells, to be put into `targets`. */
saved save_cells(const sb3x_store *store, const sb3x_config *config, const int64_t *cells, const int64_t *targets, int64_t n);

/* All cells, to be put into the same ones. */
saved save_all(const sb3x_store *store, const sb3x_config *config);

/* Put saved cells into a store. The bytes may be anything. Checks that nothing has changed if they are refused. */
int32_t load_saved(sb3x_store *store, const sb3x_config *config, const uint8_t *bytes, int64_t n);

#endif
