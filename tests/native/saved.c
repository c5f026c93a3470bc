/* Segments as arrays of bytes. */

#include "saved.h"

#include "internal.h"

/* ---- saving */

/* All bytes of a segment, read in spans of any length. */
static void read_bytes(sb3x_segment *segment, uint8_t *out, int64_t n) {
    static const int64_t spans[] = {1, 7, 100, 3, 5000};
    int64_t at = 0;
    for (int turn = 0; at < n; turn++) {
        int64_t room = spans[turn % 5] < n - at ? spans[turn % 5] : n - at;
        CHECK(sb3x_read_segment(segment, out + at, room) == room);
        at += room;
    }
    uint8_t more;
    CHECK(sb3x_read_segment(segment, &more, 1) == 0);
}

saved save_cells(const sb3x_store *store, const sb3x_config *config, const int64_t *cells, const int64_t *targets, int64_t n) {
    saved result = {NULL, 0, -1};
    sb3x_segment *segment = sb3x_take(store, cells, n, &result.error);
    CHECK((segment != NULL) == (result.error == SB3X_OK));
    if (!segment) return result;
    sb3x_taken taken;
    sb3x_look_at_segment(segment, &taken);
    const int64_t header[2] = {n, taken.n_blocks}, n_heads = n * config->n_columns, n_rows = taken.n_blocks * SAVED_ROW;
    const void *const parts[] = {header, targets, taken.heads, taken.table};
    const int64_t lengths[] = {2, n, n_heads, n_rows};
    result.n = 8 * (2 + n + n_heads + n_rows) + taken.n_bytes;
    result.bytes = exactly(result.n);
    uint8_t *at = result.bytes;
    for (int k = 0; k < 4; at += 8 * lengths[k++])
        if (lengths[k] > 0) memcpy(at, parts[k], (size_t)(8 * lengths[k]));
    read_bytes(segment, at, taken.n_bytes);
    sb3x_free_segment(segment);
    return result;
}

saved save_all(const sb3x_store *store, const sb3x_config *config) {
    int64_t *cells = exactly(8 * config->n_cells);
    for (int64_t i = 0; i < config->n_cells; i++) cells[i] = i;
    saved result = save_cells(store, config, cells, cells, config->n_cells);
    free(cells);
    return result;
}

/* ---- loading */

int find_parts(const sb3x_config *config, const uint8_t *bytes, int64_t n, saved_parts *parts) {
    if (n < 16) return 0;
    memcpy(&parts->n_cells, bytes, 8);
    memcpy(&parts->n_blocks, bytes + 8, 8);
    int64_t rest = (n - 16) / 8;
    if (parts->n_cells < 0 || parts->n_cells > rest / (1 + config->n_columns)) return 0;
    rest -= parts->n_cells * (1 + config->n_columns);
    if (parts->n_blocks < 0 || parts->n_blocks > rest / SAVED_ROW) return 0;
    parts->cells = 16;
    parts->heads = parts->cells + 8 * parts->n_cells;
    parts->table = parts->heads + 8 * parts->n_cells * config->n_columns;
    parts->bytes = parts->table + 8 * parts->n_blocks * SAVED_ROW;
    return 1;
}

/* In spans of whole blocks. Where bytes are missing or left over, the core has to find out. */
static int32_t receive_spans(sb3x_incoming *incoming, const int64_t *table, int64_t n_blocks, const uint8_t *bytes, int64_t n) {
    int32_t status = SB3X_OK;
    int64_t at = 0;
    for (int64_t i = 0, most = 1; i < n_blocks && status == SB3X_OK; most = most % 4 + 1) {
        int64_t end = at;
        for (int64_t k = 0; k < most && i < n_blocks; k++, i++) end += table[i * SAVED_ROW + SAVED_LENGTH];
        if (end > n) end = n;
        uint8_t *span = copy_of(bytes + at, end - at);
        status = sb3x_receive_bytes(incoming, span, end - at);
        free(span);
        at = end;
    }
    if (status == SB3X_OK && at < n) {
        status = sb3x_receive_bytes(incoming, bytes + at, n - at);
        CHECK(status == SB3X_CORRUPT);
    }
    return status;
}

static void expect_unchanged(const sb3x_store *store, const sb3x_usage *before) {
    CHECK(sb3x_check(store) != SB3X_CORRUPT); /* it may be refused memory */
    sb3x_usage after;
    sb3x_measure(store, &after);
    CHECK(after.n_written == before->n_written && after.n_blocks == before->n_blocks && after.live_bytes == before->live_bytes);
    /* One chunk may be kept ready, and one may have become the one that is written next. */
    CHECK(after.held_bytes <= before->held_bytes + 2 * store->arena.chunk_bytes);
}

int32_t load_saved(sb3x_store *store, const sb3x_config *config, const uint8_t *bytes, int64_t n) {
    saved_parts parts;
    if (!find_parts(config, bytes, n, &parts)) return SB3X_CORRUPT;
    sb3x_usage before;
    sb3x_measure(store, &before);
    int64_t *cells = (int64_t *)copy_of(bytes + parts.cells, parts.heads - parts.cells);
    int64_t *heads = (int64_t *)copy_of(bytes + parts.heads, parts.table - parts.heads);
    int64_t *table = (int64_t *)copy_of(bytes + parts.table, parts.bytes - parts.table);
    int64_t *given = (int64_t *)copy_of(bytes + parts.table, parts.bytes - parts.table);
    int32_t status = -1;
    sb3x_incoming *incoming = sb3x_receive(store, given, parts.n_blocks, &status);
    free(given); /* the core keeps no pointer to it */
    CHECK((incoming != NULL) == (status == SB3X_OK));
    if (status == SB3X_OK) status = receive_spans(incoming, table, parts.n_blocks, bytes + parts.bytes, n - parts.bytes);
    if (status == SB3X_OK) status = sb3x_receive_cells(incoming, cells, parts.n_cells, heads);
    sb3x_end_receiving(incoming);
    free(cells), free(heads), free(table);
    if (status != SB3X_OK) expect_unchanged(store, &before);
    return status;
}
