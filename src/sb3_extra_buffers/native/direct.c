/* The calls of an `add` as built-in functions of Python, without ctypes. Above: the binding. Below: the index. */

#include <string.h>

#include "internal.h"

/* PyBUF_FORMAT | PyBUF_ND: format and shape, of a C-contiguous array. */
#define FORMAT_AND_SHAPE (0x0004 | 0x0008)
/* From so many bytes on, to let other threads run takes little time beside the call. */
#define LARGE_STEP_BYTES (1 << 20)
#define DOES_NOT_FIT (-1)

static sb3x_python python;

void sb3x_use_python(const sb3x_python *functions) { python = *functions; }

/* Other threads of Python may run while a step is compared that is large, or while a block is put into a file. */
static void *let_others_run(const sb3x_store *store) {
    int takes_long = 2 * store->config.n_streams * store->observation_bytes >= LARGE_STEP_BYTES || store->arena.file;
    return takes_long ? python.save_thread() : NULL;
}

static int32_t go_on(void *state, int32_t status) {
    if (state) python.restore_thread(state);
    return status;
}

static int fits(const sb3x_arrays *expected, const sb3x_buffer *given) {
    if (given->n_axes != expected->n_axes || strcmp(given->format ? given->format : "B", expected->format) != 0) return 0;
    for (int64_t i = 0; i < expected->n_axes; i++)
        if (given->axes[i] != expected->axes[i]) return 0;
    return 1;
}

/* The bytes of an array; NULL, and no error of Python, if it does not fit. Those of an ndarray stay where they are as long as it
   lives; those of other objects need not, so the caller hands over no others. */
static const uint8_t *bytes_of(const sb3x_arrays *expected, void *object) {
    sb3x_buffer buffer;
    if (python.get_buffer(object, &buffer, FORMAT_AND_SHAPE) != 0) {
        python.clear_error();
        return NULL;
    }
    const uint8_t *bytes = fits(expected, &buffer) ? buffer.memory : NULL;
    python.release_buffer(&buffer);
    return bytes;
}

void *sb3x_call_plan(void *self, void *const *arguments, ptrdiff_t n) {
    const sb3x_arrays *expected = python.address(self);
    sb3x_store *store = expected->store;
    if (n < 3 || n > 4 || store->config.frames == SB3X_FRAMES_OUTSIDE) return python.number(SB3X_BAD_ARGUMENT);
    const uint8_t *first = bytes_of(expected, arguments[1]), *second = first;
    if (first && arguments[2] != arguments[1]) second = bytes_of(expected, arguments[2]);
    if (!first || !second) return python.number(DOES_NOT_FIT);
    int64_t slot = python.value_of(arguments[0]);
    if (slot < 0) python.clear_error(); /* it may be no number: -1 stands for that, too, and there is no such slot */
    void *state = let_others_run(store);
    return python.number(go_on(state, sb3x_plan(store, slot, first, second, n == 4, NULL)));
}

void *sb3x_call_commit(void *self, void *const *arguments, ptrdiff_t n) {
    (void)arguments, (void)n;
    sb3x_store *store = ((const sb3x_arrays *)python.address(self))->store;
    void *state = let_others_run(store);
    return python.number(go_on(state, sb3x_commit(store, NULL)));
}
