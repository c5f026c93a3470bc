/* sb3x: the native core of sb3-extra-buffers. Every loop over bytes is in here; Python calls it through ctypes, and twice in
   each `add` as built-in functions.

   A store keeps the observations of one leaf. An observation is `stack` frames; each env writes a stream of frames, and only
   frames that are new to the stream are kept, in blocks of `block_frames`. A frame is named by a token,
   block * block_frames + index, an observation by the token of its last frame.

   Who owns what:

       sb3x_store ── index:    heads[cell, column] ─ tokens; streams; the table of blocks, with reference counts
                  └─ memory:   SB3X_FRAMES_RAW, _DELTA, _CODEC:  encoded blocks in chunks that belong to the store
                               SB3X_FRAMES_OUTSIDE:              the caller keeps the frames (on a device), by token

   A block is needed by the cells whose observation has frames in it, by its stream while it is open, reserved, or the block
   before the open one, and, if it is a base, by the blocks that are patched onto it. A block that is not needed is freed at once.

   Rules for callers: one thread at a time per store; several may call sb3x_gather, sb3x_coded_pieces and sb3x_coded_bytes side by
   side. Functions return SB3X_OK or one of the codes below. After any other code than SB3X_OK, no cell has changed, unless a comment
   says so. Only sb3x_plan keeps pointers to its arguments. */

#ifndef SB3X_H
#define SB3X_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define SB3X_API __declspec(dllexport)
#else
#define SB3X_API __attribute__((visibility("default")))
#endif

/* The binding refuses a library of another version, because it would pass other arguments. */
#define SB3X_VERSION 10

enum {
    SB3X_OK = 0,
    SB3X_NO_MEMORY = 1,    /* the system refused memory */
    SB3X_ENCODE = 2,       /* a piece has to be encoded by the caller first, see sb3x_full_piece */
    SB3X_BAD_CELL = 3,     /* a cell, slot or env that does not exist */
    SB3X_CORRUPT = 4,      /* encoded bytes are damaged */
    SB3X_TOO_LARGE = 5,    /* sizes beyond what the tables can count */
    SB3X_BAD_ARGUMENT = 6, /* a call that this kind of store does not support, or a call out of order */
    SB3X_NO_SPACE = 7,     /* no space on the disk, or the file cannot be created; see sb3x_use_file */
    SB3X_FORKED = 8,       /* the file of the blocks belongs to the process that this one was forked from */
    SB3X_UNREADABLE = 9,   /* the file of the blocks could not be read */
};

/* ---- the library */

SB3X_API int32_t sb3x_version(void);

/* Number of threads that share the work of large calls, including the calling thread. */
SB3X_API void sb3x_set_threads(int32_t n);

/* Must be the first call in a forked child, which has none of the threads and will start its own. At the fork, no other thread
   of the parent may be inside the library. */
SB3X_API void sb3x_after_fork(void);

/* For tests: let the allocation after the next `n` fail, and with `forever` all later ones too. n < 0 turns this off.
   Every allocation of the library is counted. */
SB3X_API void sb3x_fail_allocation(int64_t n, int32_t forever);

/* ---- a store */

typedef struct sb3x_store sb3x_store;

enum {
    SB3X_FRAMES_RAW = 0,     /* blocks hold uncompressed frames */
    SB3X_FRAMES_DELTA = 1,   /* frames are stored as changes since the previous frame */
    SB3X_FRAMES_CODEC = 2,   /* the caller encodes pieces of blocks and decodes them */
    SB3X_FRAMES_OUTSIDE = 3, /* the caller keeps the frames; the store is an index only */
};

typedef struct {
    int64_t n_cells;      /* cells of one column; a multiple of n_streams. Cell i belongs to stream i % n_streams */
    int64_t n_streams;    /* one per env */
    int64_t n_columns;    /* 1, or 2: obs and next_obs, which share the streams */
    int64_t stack;        /* frames in an observation */
    int64_t frame_bytes;  /* at least 1 */
    int64_t block_frames; /* at least `stack` */
    int64_t frames;       /* SB3X_FRAMES_..., see sb3x_keep_as */
    int64_t piece_frames;
    int64_t row_bytes;     /* from a byte of a frame to the one below it, 0 if it has no rows */
    int64_t channel_bytes; /* from a byte to the same place in the next channel, 0 if channels are not separate */
    int64_t item_bytes;    /* of a value: 1, 2 or 4; 0 stands for 1 */
} sb3x_config;

/* A new store, or NULL; `error` then says SB3X_NO_MEMORY, SB3X_TOO_LARGE or SB3X_BAD_ARGUMENT. */
SB3X_API sb3x_store *sb3x_create(const sb3x_config *config, int32_t *error);
SB3X_API void sb3x_destroy(sb3x_store *store);

/* Set how new blocks are encoded. Sealed blocks do not change; an open block that would need another codec is kept raw. Discards
   a planned write. Not from or to SB3X_FRAMES_OUTSIDE. A store begins with codec 0.

   `codec` is a number below 256 that the caller chooses, and that sb3x_coded_pieces reports. An encoded block is cut into pieces of
   `piece_frames` frames, each of which is decoded on its own. With 0, a block is one piece; for SB3X_FRAMES_DELTA, pieces are then as
   long as they can be read with little work. */
SB3X_API int32_t sb3x_keep_as(sb3x_store *store, int64_t frames, int64_t codec, int64_t piece_frames);

enum {
    SB3X_READ_BY_CALLER = 0,
    SB3X_READ_LZ4_BLOCK = 1, /* as lz4.block.compress of Python writes it */
    SB3X_READ_LZ4_FRAME = 2,
    SB3X_READ_ZLIB = 3, /* as zlib.compress of Python writes it */
    SB3X_READ_ZSTD = 4, /* a frame without a dictionary */
};

/* Let the core read pieces of one of the caller's codecs. sb3x_coded_pieces then leaves them out. With `channels` above 1, frames were
   interleaved before they were encoded: so many bytes of a pixel lie next to each other, see sb3x_join. */
SB3X_API int32_t sb3x_read_as(sb3x_store *store, int64_t codec, int64_t format, int64_t channels);

/* Keep sealed blocks in a new file at this path (UTF-8 on Windows) instead of memory. The file is removed with the store. Only for an
   empty store. Only the parts of the file in use are in memory. A forked child may read, but not write. */
SB3X_API int32_t sb3x_use_file(sb3x_store *store, const char *path);

/* Remove all observations. Memory goes back to the system, except for one chunk. */
SB3X_API int32_t sb3x_clear(sb3x_store *store);

/* ---- writing a step, in two calls: everything that can fail is in the first, which changes nothing */

typedef struct {
    int64_t n_new;         /* frames that are not in the streams yet */
    const int64_t *tokens; /* (n_new,): their tokens. All-zero padding at a reset is left out */
    const uint8_t *frames; /* (n_new, frame_bytes): a copy */
    int64_t n_freed;       /* blocks that were freed since the last sb3x_let_go; they are not reused before the next one */
    const int64_t *freed;  /* (n_freed,) */
} sb3x_changes;

/* Plan to write the observations of one step: all streams, all columns. `first` and `second` are
   (n_streams, stack * frame_bytes); `second` is not read if there is one column. Compares, and reserves all memory that the
   write may need; changes no cell. The observations must stay in place until the commit or the next plan.

   SB3X_FRAMES_CODEC may return SB3X_ENCODE: for each piece that sb3x_full_piece returns, call sb3x_give_encoded. Then call this
   function again with the same arguments and `resume` = 1.
   SB3X_FRAMES_OUTSIDE: `changes` lists the frames to keep. sb3x_let_go must have been called for freed blocks. */
SB3X_API int32_t sb3x_plan(sb3x_store *store, int64_t slot, const uint8_t *first, const uint8_t *second, int32_t resume,
                           sb3x_changes *changes);

/* Write what was planned last. Cannot fail. Does nothing if nothing is planned, or if the plan has returned SB3X_ENCODE.
   `changes`, which may be NULL, lists the freed blocks of SB3X_FRAMES_OUTSIDE. */
SB3X_API int32_t sb3x_commit(sb3x_store *store, sb3x_changes *changes);

/* The next piece that the plan needs encoded, (n_frames, frame_bytes); NULL if there is none. */
SB3X_API const uint8_t *sb3x_full_piece(sb3x_store *store, int64_t *stream, int64_t *part, int64_t *n_frames);

/* The codec for this piece: that of its block, or of new blocks if the block is not open yet. -1 if there is no such piece. */
SB3X_API int64_t sb3x_codec_of(const sb3x_store *store, int64_t stream, int64_t part);

/* The encoded bytes of that piece, which are copied. Length 0 keeps the frames uncompressed. */
SB3X_API int32_t sb3x_give_encoded(sb3x_store *store, int64_t stream, int64_t part, const uint8_t *data, int64_t length);

/* ---- the same two calls as built-in functions of Python

   ctypes takes 1.6 us to find two arrays and to call sb3x_plan, a fifth of an `add`; a built-in function takes 0.2. These two have the
   signatures of built-in functions. They call functions of Python's stable ABI through a table, so that the library needs no headers
   of Python and fits all versions. The caller holds Python's global lock, which is released meanwhile where a call takes long. */

/* What PyObject_GetBuffer fills, as Python declares it. */
typedef struct {
    void *memory, *object;
    ptrdiff_t length, item_bytes;
    int read_only, n_axes;
    char *format;
    ptrdiff_t *axes, *strides, *offsets;
    void *internal;
} sb3x_buffer;

/* Functions of Python. */
typedef struct {
    int (*get_buffer)(void *object, sb3x_buffer *buffer, int flags); /* PyObject_GetBuffer */
    void (*release_buffer)(sb3x_buffer *buffer);                     /* PyBuffer_Release */
    void *(*number)(long long value);                                /* PyLong_FromLongLong */
    long long (*value_of)(void *number);                             /* PyLong_AsLongLong */
    void *(*address)(void *number);                                  /* PyLong_AsVoidPtr */
    void (*clear_error)(void);                                       /* PyErr_Clear */
    void *(*save_thread)(void);                                      /* PyEval_SaveThread */
    void (*restore_thread)(void *state);                             /* PyEval_RestoreThread */
} sb3x_python;

/* Must be called before the functions below, with a table that is copied. */
SB3X_API void sb3x_use_python(const sb3x_python *python);

/* What they are bound to: a store, and the arrays of a step that it takes as they are. `self` is a number, the address of this. */
typedef struct {
    sb3x_store *store;
    const char *format;  /* of a value, as the buffer protocol says it */
    int64_t n_axes;      /* the first is n_streams */
    const int64_t *axes;
} sb3x_arrays;

/* plan(slot, first, second), or plan(slot, first, second, None) to resume: sb3x_plan with these arrays of NumPy, not for SB3X_FRAMES_OUTSIDE.
   Returns a status; or -1, and nothing has changed, if one of them is not a C-contiguous array of this format and shape. */
SB3X_API void *sb3x_call_plan(void *self, void *const *arguments, ptrdiff_t n);

/* commit(): sb3x_commit. */
SB3X_API void *sb3x_call_commit(void *self, void *const *arguments, ptrdiff_t n);

/* ---- writing anywhere. Discards a plan that was not committed. */

/* Write n observations into cells of one column, in this order. Each of them is written whole or not at all. Not for
   SB3X_FRAMES_OUTSIDE.
   `*done` is -1 for a new call. Afterwards it is the number of written observations, also after an error. After SB3X_ENCODE, see
   sb3x_plan, repeat the call with the `*done` that it left. */
SB3X_API int32_t sb3x_write(sb3x_store *store, int64_t column, const int64_t *cells, int64_t n, const uint8_t *observations,
                            int64_t *done);

/* Write the observations of n consecutive steps, the first into slot `slot`, as n calls of sb3x_plan and sb3x_commit would.
   Step i is `i * stride` bytes after `first` and `second`. The steps may overlap: with one stream and contiguous frames, a stride
   of frame_bytes makes stacks without a copy. Each step is written whole or not at all. Not for SB3X_FRAMES_OUTSIDE. `*done` and
   SB3X_ENCODE are as for sb3x_write. */
SB3X_API int32_t sb3x_write_steps(sb3x_store *store, int64_t slot, int64_t n, const uint8_t *first, const uint8_t *second,
                                  int64_t stride, int64_t *done);

/* Empty cells of all columns: they read as zeros, and blocks that nobody needs any more are free. At most n_streams cells per call.
   A planned write is forgotten. `changes` tells what was freed, see below. */
SB3X_API int32_t sb3x_erase(sb3x_store *store, const int64_t *cells, int64_t n, sb3x_changes *changes);

/* ---- SB3X_FRAMES_OUTSIDE: plan, keep the new frames, commit, drop the frames of freed blocks */

/* Plan to write n observations of one column, whose cells belong to different streams. */
SB3X_API int32_t sb3x_plan_cells(sb3x_store *store, int64_t column, const int64_t *cells, int64_t n,
                                 const uint8_t *observations, sb3x_changes *changes);

/* The blocks that were freed since the last sb3x_let_go. */
SB3X_API void sb3x_freed(const sb3x_store *store, sb3x_changes *changes);

/* The caller has dropped the frames of all freed blocks, which may be reused now. */
SB3X_API void sb3x_let_go(sb3x_store *store);

/* The tokens of all frames of observations, each once: `distinct`, in the order of their first use; `order` is
   (n_columns, n, stack), what distinct[order] reads. Token -1 stands for a frame of zeros. Both arrays have room for
   n_columns * n * stack. */
SB3X_API int32_t sb3x_tokens(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                             int64_t *distinct, int64_t *order, int64_t *n_distinct);

/* The end of the range of tokens, including freed ones. */
SB3X_API int64_t sb3x_token_end(const sb3x_store *store);

/* ---- reading */

enum { SB3X_FIRST_COLUMN = 1, SB3X_SECOND_COLUMN = 2, SB3X_BOTH_COLUMNS = 3 };

/* Pieces that the caller decodes, in arrays of the caller. */
typedef struct {
    int64_t n;
    int64_t *pieces;        /* (n,): numbers, ascending */
    int64_t *codecs;        /* (n,): their codecs */
    int64_t *begins;        /* (n,): where their bytes begin in the output of sb3x_coded_bytes */
    int64_t *lengths;       /* (n,) */
    int64_t *n_frames;      /* (n,): how many of their first frames are needed */
    const uint8_t **frames; /* (n,): where the caller has decoded them to */
} sb3x_decoded;

/* Copy observations to `out`: (columns asked for, n, stack * frame_bytes), zeros where nothing was written. Observation i is in
   slot slots[i] and env envs[i]; with envs NULL, slots are cells. `decoded` is NULL, or the result of sb3x_coded_pieces, with
   `frames` filled in by the caller. Then the threads of the core are not used, because the caller has its own. */
SB3X_API int32_t sb3x_gather(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                             const sb3x_decoded *decoded, uint8_t *out);

/* A batch will be read soon. If the last one was large and threads are faster for it, they wake up. */
SB3X_API void sb3x_expect_gather(sb3x_store *store);

/* The pieces that a gather needs decoded, into arrays with room for sb3x_most_pieces(...) entries. `*n_bytes` is how many bytes
   they have together. */
SB3X_API int64_t sb3x_most_pieces(const sb3x_store *store, int64_t n, int32_t columns);
SB3X_API int32_t sb3x_coded_pieces(sb3x_store *store, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns,
                                   sb3x_decoded *decoded, int64_t *n_bytes);

/* The bytes of these pieces, one after the other. */
SB3X_API int32_t sb3x_coded_bytes(sb3x_store *store, const sb3x_decoded *decoded, uint8_t *out);

/* ---- sizes and checks */

typedef struct {
    int64_t n_written;    /* written cells of all columns */
    int64_t n_blocks;     /* blocks in use */
    int64_t stored_bytes; /* encoded blocks, open blocks and tables */
    int64_t held_bytes;   /* chunks, including the dead bytes in them */
    int64_t live_bytes;   /* sealed blocks */
} sb3x_usage;

SB3X_API void sb3x_measure(const sb3x_store *store, sb3x_usage *usage);

/* SB3X_OK if all counts and links of the store are consistent, else SB3X_CORRUPT or SB3X_NO_MEMORY. Slow. */
SB3X_API int32_t sb3x_check(const sb3x_store *store);

/* ---- segments: cells with all the blocks that they need, for another store. Not for SB3X_FRAMES_OUTSIDE */

typedef struct sb3x_segment sb3x_segment;

typedef struct {
    const int64_t *heads; /* (n, n_columns): token + 1 by the numbers of the segment; 0 where nothing was written */
    int64_t n_blocks;
    const int64_t *table; /* (n_blocks, 4): block before it or -1; base; bytes; frames in a piece. A base from 0 on is a block;
                             -1 raw frames, -2 `delta` from zeros, -3 - i encoded by codec i */
    int64_t n_bytes;      /* of all blocks */
} sb3x_taken;

/* Copy out cells with their blocks; the store does not change. NULL, with an error, if memory is refused or a cell does not exist.
   Must be used and freed before the store changes. */
SB3X_API sb3x_segment *sb3x_take(const sb3x_store *store, const int64_t *cells, int64_t n, int32_t *error);
SB3X_API void sb3x_look_at_segment(const sb3x_segment *segment, sb3x_taken *taken);
/* Copy the next bytes of its blocks, in order. Returns how many; 0 at the end. */
SB3X_API int64_t sb3x_read_segment(sb3x_segment *segment, uint8_t *out, int64_t room);
SB3X_API void sb3x_free_segment(sb3x_segment *segment);

typedef struct sb3x_incoming sb3x_incoming;

/* Receive a segment of a store with the same stack, frame_bytes, block_frames and shape. `table` is that of sb3x_taken, with the
   codec numbers of this store. NULL, with an error, if it is not valid, or memory is refused. Discards a plan. Until
   sb3x_end_receiving, nothing else may be written, and the store must not be cleared. */
SB3X_API sb3x_incoming *sb3x_receive(sb3x_store *store, const int64_t *table, int64_t n_blocks, int32_t *error);
/* The bytes of the next blocks. Blocks must be complete. */
SB3X_API int32_t sb3x_receive_bytes(sb3x_incoming *incoming, const uint8_t *data, int64_t n);
/* Put its observations into cells, replacing their contents. All bytes must have been received. Encoded frames are not checked here:
   sb3x_gather reports frames that cannot be decoded. */
SB3X_API int32_t sb3x_receive_cells(sb3x_incoming *incoming, const int64_t *cells, int64_t n, const int64_t *heads);
/* Must be called in any case. Frees blocks that no cell needs. */
SB3X_API void sb3x_end_receiving(sb3x_incoming *incoming);

/* ---- codecs: stateless */

/* The layout of the bytes of a frame; see sb3x_config. */
typedef struct {
    int64_t bytes;
    int64_t row;
    int64_t channel;
    int64_t item;
} sb3x_shape;

/* `delta`: frames as changes since the previous frame, the first since `base` (NULL for zeros). Returns the number of bytes written,
   or -1 if they do not fit into `room`. */
SB3X_API int64_t sb3x_delta_encode(const sb3x_shape *shape, const uint8_t *frames, int64_t n_frames, const uint8_t *base,
                                   uint8_t *out, int64_t room);
/* Decode the first n_frames frames of n encoded bytes. */
SB3X_API int32_t sb3x_delta_decode(const sb3x_shape *shape, const uint8_t *data, int64_t n, const uint8_t *base,
                                   int64_t n_frames, uint8_t *out);

/* The frames of a piece of `delta` that is read with little work, if a frame takes change_bytes after the one before it. Stores go by
   this rule. */
SB3X_API int64_t sb3x_best_piece(int64_t change_bytes, int64_t observation_bytes, int64_t block_frames);

/* Decode the first n bytes of a piece in one of the formats SB3X_READ_..., but for SB3X_READ_BY_CALLER. Checksums of the format are not
   looked at. SB3X_CORRUPT if the bytes cannot be right. */
SB3X_API int32_t sb3x_decode(int64_t format, const uint8_t *data, int64_t length, uint8_t *out, int64_t n);

/* Runs of equal items of 1, 2, 4 or 8 bytes, none longer than `longest`, or than fits into a length; lengths are numbers of
   length_bytes (1, 2, 4 or 8).
   Returns the number of runs, or -1 if there are more than `most`. */
SB3X_API int64_t sb3x_find_runs(const uint8_t *items, int64_t n, int32_t item_bytes, uint64_t longest, int64_t most,
                                int32_t length_bytes, uint8_t *values, uint8_t *lengths);
/* Write runs until there are n items. Returns the number of items written. */
SB3X_API int64_t sb3x_write_runs(const uint8_t *values, const uint8_t *lengths, int64_t n_runs, int32_t item_bytes,
                                 int32_t length_bytes, uint8_t *items, int64_t n);

/* Interleaved parts to planes, (n, pixels, parts, part_bytes) -> (n, parts, pixels, part_bytes), and back. */
SB3X_API void sb3x_split(const uint8_t *pixels, int64_t n, int64_t n_pixels, int64_t parts, int64_t part_bytes, uint8_t *out);
SB3X_API void sb3x_join(const uint8_t *planes, int64_t n, int64_t n_pixels, int64_t parts, int64_t part_bytes, uint8_t *out);

/* The cells of slots and envs: slot * n_streams + env. SB3X_BAD_CELL if one of them does not exist. */
SB3X_API int32_t sb3x_cells(const int64_t *slots, const int64_t *envs, int64_t n, int64_t n_slots, int64_t n_streams,
                            int64_t *cells);

/* Copy rows of row_bytes each by number: row i of `out` is row numbers[i] of `rows`. SB3X_BAD_CELL, with nothing written, if a row
   does not exist. */
SB3X_API int32_t sb3x_select_rows(const uint8_t *rows, int64_t n_rows, int64_t row_bytes, const int32_t *numbers, int64_t n,
                                  uint8_t *out);

/* ---- weights of cells, and cells drawn in proportion to them */

typedef struct sb3x_tree sb3x_tree;

/* A tree over n weights, which stay the caller's: it keeps the pointer, and changes them by sb3x_tree_set alone. NULL with
   SB3X_BAD_ARGUMENT unless all are finite and none is negative, or with SB3X_NO_MEMORY. */
SB3X_API sb3x_tree *sb3x_tree_create(float *weights, int64_t n, int32_t *error);
SB3X_API void sb3x_tree_destroy(sb3x_tree *tree);
SB3X_API double sb3x_tree_total(const sb3x_tree *tree);

/* Other weights for n cells; of a cell that is named twice, the last one counts. SB3X_BAD_CELL or SB3X_BAD_ARGUMENT, and nothing
   has changed, if a cell does not exist or a weight is negative or not finite. */
SB3X_API int32_t sb3x_tree_set(sb3x_tree *tree, const int64_t *cells, const float *weights, int64_t n);

/* The same for n cells that all have a weight, by their errors: SB3X_BAD_CELL, and nothing has changed, if one has none, and
   SB3X_BAD_ARGUMENT if an error, too, is negative or not finite. `*largest` is raised to the largest of the weights. */
SB3X_API int32_t sb3x_tree_update(sb3x_tree *tree, const int64_t *cells, const float *errors, const float *weights, int64_t n,
                                  float *largest);

/* Draw n cells in proportion to their weights. The total is cut into n equal parts, and cell i is where the sum of the weights, in
   their order, reaches the share `uniform[i]`, in 0 <= share < 1, of part i. A cell without weight is never drawn. `drawn` has room
   for 3 n numbers: slots (cell / n_envs), envs (cell % n_envs), then the cells. `ratios` are the weights of the cells, divided by
   the smallest of these. SB3X_BAD_ARGUMENT if no cell has a weight. */
SB3X_API int32_t sb3x_tree_draw(const sb3x_tree *tree, const double *uniform, int64_t n, int64_t n_envs, int64_t *drawn,
                                float *ratios);

#endif
