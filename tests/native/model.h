/* A store beside plain arrays that hold what it must hold. Operations are drawn first and tried afterwards, so that one that
   was refused memory can be tried again. */

#ifndef SB3X_TESTS_MODEL_H
#define SB3X_TESTS_MODEL_H

#include "check.h"
#include "sb3x.h"

/* SB3X_FRAMES_OUTSIDE: a frame that the store told to keep. */
typedef struct {
    int64_t token;
    uint8_t *frame;
} kept_frame;

typedef struct {
    sb3x_config config;
    sb3x_store *store;
    source *from;
    int64_t observation_bytes;
    uint8_t *cells;   /* (n_cells, n_columns, observation_bytes); zeros where nothing was written */
    uint8_t *written; /* (n_cells, n_columns) */
    uint8_t *shown;   /* (n_streams, observation_bytes): what the envs show now */
    int64_t ring;     /* the slot of the next step */
    int64_t codec;    /* the number of the codec that new pieces are encoded by */
    int has_codec;    /* pieces may have been encoded by one */
    int is_camera;    /* most frames are pictures with noise */
    int is_calm;      /* the others resemble the ones before */
    kept_frame *kept;
    int64_t n_kept, kept_room;
} model;

enum operation_kind { STEP, STEPS, WRITE, PLAN_ONLY, ERASE, CLEAR, RELOAD, COPY, KEEP_AS, N_OPERATIONS };

typedef struct {
    enum operation_kind kind;
    int64_t slot, column, n; /* RELOAD: n segments */
    int64_t stride;          /* STEPS: from a step to the next; the second column begins a stride behind the first */
    int64_t *cells;        /* (n,) */
    int64_t *targets;      /* (n,): the cells that COPY puts them into */
    uint8_t *observations; /* (n, observation_bytes), or two columns of a step, or frames and steps one behind the other */
    int64_t frames, codec, piece_frames; /* of sb3x_keep_as */
} operation;

static inline uint8_t *cell_of(model *model, int64_t cell, int64_t column) {
    return model->cells + (cell * model->config.n_columns + column) * model->observation_bytes;
}

/* A config of moderate size with everything drawn. */
sb3x_config draw_config(source *from);

/* A model with a new store, which may be refused memory: then `store` is NULL and `*error` says why. */
model *new_model(const sb3x_config *config, source *from, int32_t *error);
void free_model(model *model);

/* A picture with noise: the number of the scene gives what stays the same from frame to frame. Takes few choices. */
void draw_picture(source *from, const sb3x_shape *shape, int64_t scene, uint8_t *frame);

/* What a stream shows next: the same, shifted by a frame, a reset with zeros before it, noise, one byte changed. */
void show_next(model *model, int64_t stream);

operation draw_operation(model *model);
void free_operation(operation *operation);
/* Carry out an operation on the store and, as far as it was successful, on the arrays. SB3X_OK or SB3X_NO_MEMORY. */
int32_t try_operation(model *model, const operation *operation);
/* Draw and carry out. */
void play(model *model);
/* A step into each slot, so that nothing is left of what was there; verified meanwhile. */
void write_over(model *model);

/* sb3x_gather, with what each kind of store needs beside it. `out`: (columns, n, observation_bytes). */
int32_t gather(model *model, const int64_t *slots, const int64_t *envs, int64_t n, int32_t columns, uint8_t *out);

/* All counts and links, and all or some observations. */
void verify(model *model);
void verify_some(model *model);
/* Observations of these cells alone. */
void verify_cells(model *model, const int64_t *cells, int64_t n);

/* ---- moving.c */

/* Take cells out of a store and put them into `targets`, of the same store or another one. SB3X_OK, SB3X_NO_MEMORY, or, if `to`
   has no room for so many blocks at a time, SB3X_TOO_LARGE. */
int32_t copy_cells(model *to, const int64_t *targets, model *from, const int64_t *cells, int64_t n);
/* Take everything out in so many segments and put it into a new store, which replaces the old one. */
int32_t reload(model *model, int64_t n_segments);

/* Blocks that a store can have at a time: what the width of its heads is chosen by. */
static inline int64_t most_blocks(const sb3x_config *config) {
    return 4 * config->n_cells * config->n_columns + 16 * config->n_streams + 16;
}

#endif
