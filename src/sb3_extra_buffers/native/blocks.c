/* Sealed blocks: bytes in chunks, right-sized, given back to the system when their last block is gone. */

#include <string.h>

#include "internal.h"

/* ---- where chunks lie */

static void *map_chunk(arena *arena, int32_t id) {
    arena->is_full = 0;
    if (!arena->file) return sb3x_map((size_t)arena->chunk_bytes);
    return map_file(arena->file, id * arena->chunk_bytes, arena->chunk_bytes, &arena->is_full);
}

static void unmap_chunk(arena *arena, int32_t id) {
    uint8_t *memory = arena->chunks[id].memory;
    if (arena->file)
        unmap_file(arena->file, memory, id * arena->chunk_bytes, arena->chunk_bytes);
    else
        sb3x_unmap(memory, (size_t)arena->chunk_bytes);
}

int32_t sb3x_use_file(sb3x_store *store, const char *path) {
    arena *arena = &store->arena;
    if (arena->n_chunks > 0 || arena->file || store->config.frames == SB3X_FRAMES_OUTSIDE) return SB3X_BAD_ARGUMENT;
    arena->file = new_file(path);
    if (!arena->file) return SB3X_NO_SPACE;
    /* Pages of 64 kB are the largest that a mapping may have to begin with. */
    const int64_t page = (int64_t)1 << 16, least = store->block_bytes > FILE_CHUNK_BYTES ? store->block_bytes : FILE_CHUNK_BYTES;
    arena->chunk_bytes = (least + page - 1) / page * page;
    return SB3X_OK;
}

int32_t refusal_of(const sb3x_store *store) {
    if (store->arena.file && is_forked(store->arena.file)) return SB3X_FORKED;
    return store->arena.is_full ? SB3X_NO_SPACE : SB3X_NO_MEMORY;
}

void note_reading(sb3x_store *store, int64_t n) {
    arena *arena = &store->arena;
    if (!arena->file) return;
    arena->read += n;
    if (arena->read < RESIDENT_BYTES) return;
    arena->read = 0;
    for (int32_t id = 0; id < arena->n_chunks; id++)
        if (arena->chunks[id].memory && id != arena->current) forget_pages(arena->chunks[id].memory, arena->chunk_bytes);
}

int read_block(const sb3x_store *store, const block *one, int64_t first, int64_t n, uint8_t *out) {
    const arena *arena = &store->arena;
    const int64_t begin = one->data - arena->chunks[one->place].memory;
    return read_file(arena->file, one->place * arena->chunk_bytes + begin + first, out, n);
}

/* ---- chunks */

static int add_ready_chunk(arena *arena) {
    if (arena->unused < 0) {
        if (arena->n_chunks == arena->room) {
            int32_t room = arena->room + arena->room / 2 + 16;
            chunk *chunks = sb3x_reallocate(arena->chunks, (size_t)room * sizeof(chunk));
            if (!chunks) return 0;
            arena->chunks = chunks;
            arena->room = room;
        }
        arena->chunks[arena->n_chunks] = (chunk){NULL, 0, -1};
        arena->unused = arena->n_chunks++;
    }
    int32_t id = arena->unused;
    uint8_t *memory = map_chunk(arena, id);
    if (!memory) return 0;
    arena->unused = arena->chunks[id].next;
    arena->chunks[id] = (chunk){memory, 0, -1};
    int32_t *end = &arena->ready; /* its pages were never touched, so it is the last to be taken */
    while (*end >= 0) end = &arena->chunks[*end].next;
    *end = id;
    arena->n_ready++;
    arena->held_bytes += arena->chunk_bytes;
    return 1;
}

static int32_t take_ready_chunk(arena *arena) {
    int32_t id = arena->ready;
    arena->ready = arena->chunks[id].next;
    arena->n_ready--;
    return id;
}

/* Give the memory of the last ready chunk back. */
static void close_ready_chunk(arena *arena) {
    int32_t *end = &arena->ready;
    while (arena->chunks[*end].next >= 0) end = &arena->chunks[*end].next;
    int32_t id = *end;
    *end = -1;
    arena->n_ready--;
    unmap_chunk(arena, id);
    arena->held_bytes -= arena->chunk_bytes;
    arena->chunks[id] = (chunk){NULL, 0, arena->unused};
    arena->unused = id;
}

/* Nothing in this chunk is in use any more. It is kept ready in the place of another: that one may have no pages yet, which makes
   it quick to give back, while this one's need not be asked for again. */
static void retire_chunk(arena *arena, int32_t id) {
    if (id == arena->current) {
        arena->end = 0;
        return;
    }
    if (arena->n_ready > 0) close_ready_chunk(arena);
    arena->chunks[id].next = arena->ready;
    arena->ready = id;
    arena->n_ready++;
}

int reserve_chunks(sb3x_store *store, int64_t n) {
    arena *arena = &store->arena;
    int64_t largest = store->block_bytes;
    arena->is_full = 0;
    if (arena->file && is_forked(arena->file)) return 0; /* it is another process's */
    int64_t left = arena->current < 0 ? 0 : arena->chunk_bytes - arena->end;
    if (n <= left / largest) return 1;
    int64_t per_chunk = arena->chunk_bytes / largest;
    int64_t needed = (n + per_chunk - 1) / per_chunk;
    while (arena->n_ready < needed)
        if (!add_ready_chunk(arena)) return 0;
    return 1;
}

void put_bytes(sb3x_store *store, int32_t id, const uint8_t *data, int64_t length) {
    arena *arena = &store->arena;
    if (arena->current < 0 || arena->end + length > arena->chunk_bytes) {
        if (arena->file && arena->current >= 0) forget_pages(arena->chunks[arena->current].memory, arena->chunk_bytes);
        arena->current = take_ready_chunk(arena);
        arena->end = 0;
    }
    block *put = &store->blocks[id];
    chunk *current = &arena->chunks[arena->current];
    put->place = arena->current;
    put->data = current->memory + arena->end;
    put->length = length;
    memcpy(put->data, data, (size_t)length);
    arena->end += length;
    arena->live_bytes += length;
    current->live += length;
}

void free_bytes(sb3x_store *store, const block *freed) {
    arena *arena = &store->arena;
    if (freed->place < 0) return; /* it never got any */
    chunk *holder = &arena->chunks[freed->place];
    holder->live -= freed->length;
    arena->live_bytes -= freed->length;
    if (holder->live == 0) retire_chunk(arena, freed->place);
}

void clear_chunks(arena *arena) {
    for (int32_t id = 0; id < arena->n_chunks; id++) {
        chunk *one = &arena->chunks[id];
        if (!one->memory || one->live == 0) continue;
        one->live = 0;
        retire_chunk(arena, id);
    }
    arena->live_bytes = 0;
    int32_t kept = arena->current >= 0 ? 0 : 1;
    while (arena->n_ready > kept) close_ready_chunk(arena);
}

void destroy_chunks(arena *arena) {
    for (int32_t id = 0; id < arena->n_chunks; id++) unmap_chunk(arena, id);
    sb3x_release(arena->chunks);
    remove_file(arena->file);
}

/* Move what is alive in a chunk to the end of the arena. One ready chunk is room enough for it. */
static void empty_chunk(sb3x_store *store, int32_t id) {
    if (store->arena.n_ready == 0 && !add_ready_chunk(&store->arena)) return;
    for (int64_t i = 0; i < store->n_blocks; i++) {
        block moved = store->blocks[i];
        if (moved.references == 0 || moved.length == 0 || moved.place != id) continue;
        put_bytes(store, (int32_t)i, moved.data, moved.length);
        free_bytes(store, &moved);
    }
}

void tidy_chunks(sb3x_store *store) {
    arena *arena = &store->arena;
    while (arena->n_ready > 1) close_ready_chunk(arena);
    int64_t in_use = arena->held_bytes - arena->n_ready * arena->chunk_bytes;
    if (in_use <= 2 * arena->live_bytes + 4 * arena->chunk_bytes) return;
    int32_t sparsest = -1;
    for (int32_t id = 0; id < arena->n_chunks; id++) {
        const chunk *one = &arena->chunks[id];
        if (!one->memory || one->live == 0 || id == arena->current) continue;
        if (sparsest < 0 || one->live < arena->chunks[sparsest].live) sparsest = id;
    }
    if (sparsest >= 0) empty_chunk(store, sparsest);
}
