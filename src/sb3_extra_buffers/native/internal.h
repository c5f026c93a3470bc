/* What the files of the core share: allocation, threads, and the parts of a store. sb3x.h is for everyone else. */

#ifndef SB3X_INTERNAL_H
#define SB3X_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "delta.h"
#include "sb3x.h"

/* ---- memory.c: NULL where the system, or a test, refuses memory */

void *sb3x_allocate(size_t n);
void *sb3x_allocate_zeros(size_t n);
void *sb3x_reallocate(void *memory, size_t n);
void sb3x_release(void *memory);
/* Zeroed pages that cost nothing until they are touched, and that the system really takes back. */
void *sb3x_map(size_t n);
void sb3x_unmap(void *memory, size_t n);

/* ---- files.c */

typedef struct block_file block_file;

/* A new file, which is removed with it; NULL if that is not possible. */
block_file *new_file(const char *path);
void remove_file(block_file *file);
/* A part of the file as memory, with room for it on the disk; NULL, and whether the disk is to blame. */
void *map_file(block_file *file, int64_t begin, int64_t n, int *is_full);
void unmap_file(block_file *file, void *memory, int64_t begin, int64_t n);
/* 0 if it could not be read. */
int read_file(const block_file *file, int64_t begin, uint8_t *out, int64_t n);
/* They need not be resident until they are used again. */
void forget_pages(void *memory, int64_t n);
/* Whether the process that made the file is another, which this one was forked from. */
int is_forked(const block_file *file);
void note_fork(void);

/* ---- threads.c */

/* Call `task(argument, part, worker)` for each part, by up to `workers` threads where that is possible. Returns when all are
   done. Workers are numbered from 0 and below `workers`; sb3x_threads() may be changed by another thread meanwhile. */
typedef void (*sb3x_task)(void *argument, int64_t part, int32_t worker);
void sb3x_run(sb3x_task task, void *argument, int64_t parts, int32_t workers);
int32_t sb3x_threads(void);
/* A call will probably follow soon: wake the threads. */
void sb3x_expect_call(void);
int64_t clock_microseconds(void);

/* Whether several threads are faster for some kind of work. That depends on what else the machine does, so both ways are tried from
   time to time. Atomic, because a store may have several readers: the time of one of them may get lost. */
typedef struct {
    _Atomic float cost[2]; /* time per byte, a moving mean: by one thread, by several; 0 if not known yet */
    _Atomic uint32_t calls;
} pace;
#define PACES 8
/* Whether the next call should use several threads. */
int wants_threads(const pace *pace);
/* A call has taken so long. */
void note_pace(pace *pace, int by_threads, int64_t microseconds, int64_t nbytes);

/* Bytes of a chunk, where a block is not larger. Tests make it small. */
#ifndef CHUNK_BYTES
#define CHUNK_BYTES ((int64_t)1 << 19)
#endif
/* Of a chunk in a file: a process can have only some ten thousands of them mapped. */
#ifndef FILE_CHUNK_BYTES
#define FILE_CHUNK_BYTES ((int64_t)1 << 24)
#endif
/* Bytes that are read of chunks in a file before their pages may leave memory again. */
#ifndef RESIDENT_BYTES
#define RESIDENT_BYTES ((int64_t)1 << 26)
#endif

/* ---- a block: a run of consecutive frames of one stream */

/* How the bytes of a block are to be read, in `base`: a number from 0 on is the block that its `delta` begins from, BLOCK_DELTA
   begins from zeros, BLOCK_CODED - i was encoded by codec i of the caller. */
enum { BLOCK_RAW = -1, BLOCK_DELTA = -2, BLOCK_CODED = -3 };

static inline int is_delta(int32_t base) { return base >= 0 || base == BLOCK_DELTA; }
static inline int is_coded(int32_t base) { return base <= BLOCK_CODED; }

/* Numbers of the caller's codecs are smaller. */
enum { MOST_CODECS = 256 };

/* Encoded blocks are cut into pieces, each of which is decoded on its own. Behind the last of them stands where the others begin. */
enum { MOST_PIECES = 64 };

#define NO_PLACE INT32_MIN

typedef struct {
    uint8_t *data;         /* sealed: its bytes, in a chunk; else NULL */
    int64_t length : 48;   /* sealed: how many */
    uint64_t piece : 16;   /* frames in a piece; 0: all of them */
    uint32_t references; /* 0: free */
    int32_t previous;    /* the block before it in its stream, or -1; of a free block the next free one */
    int32_t base;
    int32_t place; /* sealed: its chunk; open or reserved: -1 - stream; else NO_PLACE */
} block; /* half a cache line, so that one never lies in two */

typedef struct {
    uint8_t *memory; /* NULL: this entry is unused */
    int64_t live;    /* bytes in use */
    int32_t next;    /* the next ready or unused entry */
} chunk;

/* Sealed blocks lie one behind the other in chunks. A replay buffer overwrites its oldest blocks first, so whole chunks empty
   in turn; they go back to the system, but for one that is kept ready. */
typedef struct {
    chunk *chunks;
    int32_t n_chunks, room; /* entries in use at some time, entries that there is memory for */
    int32_t unused, ready;  /* lists of entries: without memory; empty, to be written next */
    int32_t n_ready;
    int32_t current; /* being written, or -1 */
    int64_t end;     /* bytes written in it */
    int64_t chunk_bytes;
    int64_t live_bytes, held_bytes;
    block_file *file;     /* where chunks lie, one behind the other; NULL: in memory */
    int32_t is_full;      /* the last refusal was the disk's */
    _Atomic int64_t read; /* bytes that were read since pages were forgotten */
} arena;

/* A piece that a planned write will fill, and that the caller has to encode. */
typedef struct {
    int64_t begin, end; /* frames, counted from the beginning of the open block */
    uint8_t *given;     /* what the caller has encoded; NULL: the piece stays as it is */
    int64_t length;     /* of that; -1: not given yet */
} part;

/* The end of a stream:  context | open block ........ | room      (rows of frame_bytes)
                         stack     block_frames          stack, or more
   The observation written last is always the rows fill .. fill + stack. Of SB3X_FRAMES_OUTSIDE it is all there is. */
typedef struct {
    uint8_t *rows;
    uint8_t *encoding; /* the open block as it is encoded so far */
    int64_t encoded;   /* bytes in it; -1: the block will be kept as it is */
    int64_t fill;      /* frames in the open block, < block_frames */
    int64_t pieces;    /* pieces begun in `encoding`; of a codec, all are whole */
    int64_t begins[MOST_PIECES]; /* where they begin */
    int64_t first;     /* delta: bytes of the first frame */
    int64_t changes;   /* delta: bytes of all frames but the first of each piece */
    int64_t head;      /* token of the last frame, -1 before the first */
    int32_t open, reserved[2];
    int32_t seals;     /* blocks that the planned write will fill, 0 to 2 */
    int32_t sealed;    /* of those, how many were sealed */
    int32_t n_parts;   /* codec: pieces that it will fill */
    int32_t taken;     /* of those, how many were taken */
    int32_t is_old;    /* the open block is kept in another way than new ones, see sb3x_keep_as: it says nothing about theirs */
    part *parts;
} stream;

/* One observation of a planned write. */
typedef struct {
    int64_t cell;
    const uint8_t *observation;
    int64_t n_new; /* how many of its last frames are new to the stream: 0, 1 or all */
    int32_t stream;
    int32_t column;
    uint8_t *staged; /* where it ends in the encoding if it is written there already, see stage_frame; else NULL */
} item;

struct sb3x_store {
    sb3x_config config;
    int64_t observation_bytes, block_bytes;
    /* index */
    void *heads; /* (n_cells, n_columns): token + 1, 0 where nothing was written; int32 or int64 */
    int32_t wide_heads;
    int64_t n_written;
    int64_t cells_end; /* cells from here on were never written to, so that their pages need not be touched */
    stream *streams;
    block *blocks;
    int64_t n_blocks, blocks_room; /* ever used, and that there is memory for */
    int64_t most_blocks;           /* that can be needed at a time; tokens of more may not fit into a head */
    int32_t free_blocks;           /* list, -1: none */
    item *items;                   /* the planned write */
    int64_t n_items;
    /* memory: blocks.c */
    arena arena;
    uint8_t *rows, *encodings; /* of all streams */
    int64_t rows_bytes, encodings_bytes;
    part *parts;
    int64_t parts_room; /* of a stream */
    delta_writer writer;
    /* How new blocks are kept: SB3X_FRAMES_..., the codec's number, frames in a piece (0: all, or as `delta` finds best). */
    int64_t frames, codec, piece;
    int64_t best_piece; /* delta: what the last block has shown */
    int32_t base;     /* that new blocks of `delta` begin from, or -1 */
    int64_t base_age; /* blocks since it was made or looked at */
    int64_t unhelpful; /* blocks in a row that the codec did not shrink */
    int64_t next_full; /* the item where sb3x_full_piece goes on looking */
    int32_t any_given;
    int32_t waits_for_encoded; /* the plan is not finished */
    int32_t has_encoded;       /* blocks were encoded: reading them in order saves work */
    uint8_t formats[MOST_CODECS]; /* SB3X_READ_... of each of the caller's codecs */
    int32_t channels[MOST_CODECS]; /* of each: bytes of a pixel that were interleaved, if more than one */
    int32_t pieces_read;        /* pieces that a reader needs room for: 0 if none is read here, 2 if any was interleaved */
    _Atomic int32_t is_read_by_threads; /* the next batch will be, if it is as large as the last one */
    pace paces[PACES];                  /* of batches, by size */
    _Atomic int64_t expecting;          /* microseconds that it took to announce the next batch */
    /* memory: frames outside */
    uint8_t *new_frames;
    int64_t *new_tokens;
    int64_t new_frames_bytes;
    int64_t *freed;
    int64_t n_freed, freed_room;
};

/* ---- index.c */

static inline sb3x_shape shape_of(const sb3x_config *config) {
    return (sb3x_shape){config->frame_bytes, config->row_bytes, config->channel_bytes, config->item_bytes};
}

static inline int64_t head_of(const sb3x_store *store, int64_t cell, int64_t column) {
    int64_t at = cell * store->config.n_columns + column;
    return (store->wide_heads ? ((const int64_t *)store->heads)[at] : ((const int32_t *)store->heads)[at]) - 1;
}

/* An observation is needed by one more cell, or by one less. */
void retain_observation(sb3x_store *store, int64_t token);
void release_observation(sb3x_store *store, int64_t token);
/* Have room for so many more blocks; 0 if memory was refused. */
int grow_blocks(sb3x_store *store, int64_t n);
void set_head(sb3x_store *store, int64_t cell, int64_t column, int64_t token);
int32_t new_block(sb3x_store *store, int32_t previous);
/* Take a reference from a block; without any, the block and its bytes are free, and its base is released too. */
void release_block(sb3x_store *store, int32_t id);
/* Put the tables into the state of a store that nothing was written to. */
void reset_index(sb3x_store *store);
/* Forget what the caller has encoded for a plan. */
void drop_given(sb3x_store *store);
/* References of each block as cells, streams and bases imply them; `counts` has n_blocks entries. */
void count_references(const sb3x_store *store, uint32_t *counts);

/* ---- store.c */

/* What is needed to encode blocks in this way, and to read them, if it is not there yet; 0 if memory was refused. */
int allocate_encodings(sb3x_store *store, int64_t frames);

/* ---- blocks.c: sealed blocks in chunks */

/* Ensure that `n` blocks can be put, whatever their size; 0 if memory was refused. */
int reserve_chunks(sb3x_store *store, int64_t n);
void put_bytes(sb3x_store *store, int32_t id, const uint8_t *data, int64_t length);
void free_bytes(sb3x_store *store, const block *freed);
/* What a refusal of reserve_chunks is called. */
int32_t refusal_of(const sb3x_store *store);
/* So many bytes of a file were read through its mapping: if they are many, its pages may leave memory. */
void note_reading(sb3x_store *store, int64_t n);
/* Bytes of a sealed block, from `first` on, to `out`; 0 if they could not be read. */
int read_block(const sb3x_store *store, const block *one, int64_t first, int64_t n, uint8_t *out);
void clear_chunks(arena *arena);
void destroy_chunks(arena *arena);
/* Give chunks back that were only reserved, and move what lives on in a nearly empty chunk, if there is memory for it. */
void tidy_chunks(sb3x_store *store);

/* ---- appending.c: open blocks */

/* Make a reserved block the open one of its stream, as the store keeps new blocks. */
void open_block(sb3x_store *store, stream *stream, int32_t id);
/* Put a frame behind the open block and its patches behind the others, where nobody sees them yet. Where they end, or NULL: then
   the frame is to be added without. */
uint8_t *stage_frame(sb3x_store *store, const stream *stream, const uint8_t *frame);
void add_frames(sb3x_store *store, stream *stream, const uint8_t *frames, int64_t n, uint8_t *staged);
/* Encode what is in the open block from frame `first` on: as `delta`, or by taking the parts that the caller has encoded. */
void encode_open_block(sb3x_store *store, stream *stream, int64_t first, uint8_t *end);
/* Close the open block, which is full, and open the next. There must be room for it, see reserve_chunks. */
void seal_block(sb3x_store *store, stream *stream);

/* ---- pieces of blocks */

/* Frames in a piece of the next block that is opened; 0: all of them. */
uint64_t piece_of_new_block(const sb3x_store *store);

static inline int64_t piece_frames(const sb3x_store *store, const block *one) {
    return one->piece ? (int64_t)one->piece : store->config.block_frames;
}

static inline int64_t count_pieces(const sb3x_store *store, const block *one) {
    return one->piece ? (store->config.block_frames + (int64_t)one->piece - 1) / (int64_t)one->piece : 1;
}

/* Bytes of a number that says where a piece begins. */
static inline int64_t begin_bytes(const sb3x_store *store) { return store->block_bytes <= UINT32_MAX ? 4 : 8; }

/* The bytes of a piece of a sealed, encoded block; 0 if what the block says cannot be right. */
int find_piece(const sb3x_store *store, const block *one, int64_t piece, const uint8_t **begin, const uint8_t **end);

#endif
