/* The calls that Python makes directly: what they take, and that they do what sb3x_plan and sb3x_commit do. Python's functions are
   stand-ins: an object is an array, a number is a pointer with that value. */

#include "check.h"
#include "sb3x.h"
#include "tests.h"

enum { STREAMS = 2, STACK = 2, FRAME = 96, SLOTS = 40, ARRAY = STREAMS * STACK * FRAME };

typedef struct {
    uint8_t *memory;
    ptrdiff_t axes[3];
    int n_axes;
    char *format;
    int refuses;
} array;

static int n_held, has_error, n_threads_saved;

static int get_buffer(void *object, sb3x_buffer *buffer, int flags) {
    array *given = object;
    CHECK(flags == (0x0004 | 0x0008) && !has_error);
    if (!given || given->refuses) {
        has_error = 1;
        return -1;
    }
    *buffer = (sb3x_buffer){.memory = given->memory, .n_axes = given->n_axes, .format = given->format, .axes = given->axes};
    n_held++;
    return 0;
}

static void release_buffer(sb3x_buffer *buffer) {
    CHECK(buffer->memory);
    n_held--;
}

static void *number(long long value) { return (void *)(intptr_t)value; }

static long long value_of(void *number) {
    if (number) return (intptr_t)number - 1; /* a slot: NULL is no number */
    has_error = 1;
    return -1;
}

static void *address(void *number) { return number; }

static void clear_error(void) { has_error = 0; }

static void *save_thread(void) {
    n_threads_saved++;
    return &n_threads_saved;
}

static void restore_thread(void *state) {
    CHECK(state == &n_threads_saved);
    n_threads_saved--;
}

static array array_of(source *from, char *format) {
    array made = {exactly(ARRAY), {STREAMS, STACK, FRAME}, 3, format, 0};
    for (int64_t i = 0; i < ARRAY; i++) made.memory[i] = (uint8_t)below(from, 3);
    return made;
}

static intptr_t plan(sb3x_arrays *arrays, int64_t slot, array *first, array *second, int n) {
    void *arguments[4] = {(void *)(intptr_t)(slot + 1), first, second, NULL};
    intptr_t status = (intptr_t)sb3x_call_plan(arrays, arguments, n);
    CHECK(n_held == 0 && !has_error && n_threads_saved == 0);
    return status;
}

void test_direct(int64_t rounds) {
    const sb3x_python python = {get_buffer, release_buffer, number, value_of, address, clear_error, save_thread, restore_thread};
    const sb3x_config config = {SLOTS * STREAMS, STREAMS, 2, STACK, FRAME, 4, SB3X_FRAMES_DELTA, 0, 0, 0, 1};
    const int64_t axes[] = {STREAMS, STACK, FRAME};
    sb3x_use_python(&python);
    for (int64_t round = 0; round < rounds; round++) {
        source from = source_of_seed((uint64_t)round);
        int32_t error;
        sb3x_arrays arrays = {sb3x_create(&config, &error), "B", 3, axes};
        uint8_t *expected = exactly(SLOTS * 2 * ARRAY), *found = exactly(2 * ARRAY);
        CHECK(arrays.store);
        char bytes[] = "B", shorts[] = "H";
        for (int64_t slot = 0; slot < SLOTS; slot++) {
            array first = array_of(&from, bytes), second = array_of(&from, bytes);
            const int64_t turn = below(&from, 9);
            array other = second;
            if (turn == 0) other.axes[2]++;
            if (turn == 1) other.n_axes = 2;
            if (turn == 2) other.format = shorts;
            if (turn == 3) other.refuses = 1;
            if (turn == 4) other.axes[0] = 1;
            if (turn < 5) {
                CHECK(plan(&arrays, slot, &first, &other, 3) == -1);
                CHECK(plan(&arrays, slot, &other, &first, 3) == -1);
                CHECK(plan(&arrays, slot, NULL, &first, 3) == -1);
            }
            if (turn == 5) first.format = second.format = NULL; /* stands for bytes */
            CHECK(plan(&arrays, SLOTS, &first, &second, 3) == SB3X_BAD_CELL);
            CHECK(plan(&arrays, -1, &first, &second, 3) == SB3X_BAD_CELL);
            CHECK(plan(&arrays, slot, &first, &second, 2) == SB3X_BAD_ARGUMENT);
            sb3x_fail_allocation(0, 1); /* a full block needs memory now and then */
            intptr_t refused = plan(&arrays, slot, &first, &second, 3);
            CHECK(refused == SB3X_OK || refused == SB3X_NO_MEMORY);
            sb3x_fail_allocation(-1, 0);
            CHECK(plan(&arrays, slot, &first, turn == 6 ? &first : &second, turn == 7 ? 4 : 3) == SB3X_OK);
            CHECK((intptr_t)sb3x_call_commit(&arrays, NULL, 0) == SB3X_OK);
            uint8_t *step = expected + slot * 2 * ARRAY;
            memcpy(step, first.memory, ARRAY);
            memcpy(step + ARRAY, turn == 6 ? first.memory : second.memory, ARRAY);
            free(first.memory);
            free(second.memory);
        }
        CHECK(sb3x_check(arrays.store) == SB3X_OK);
        for (int64_t slot = 0; slot < SLOTS; slot++) {
            const int64_t slots[] = {slot, slot}, envs[] = {0, 1};
            CHECK(sb3x_gather(arrays.store, slots, envs, STREAMS, SB3X_BOTH_COLUMNS, NULL, found) == SB3X_OK);
            CHECK(memcmp(found, expected + slot * 2 * ARRAY, 2 * ARRAY) == 0);
        }
        free(expected);
        free(found);
        sb3x_destroy(arrays.store);
    }
    /* Frames that the caller keeps are not for these calls. */
    sb3x_config outside = config;
    outside.frames = SB3X_FRAMES_OUTSIDE;
    int32_t error;
    source from = source_of_seed(1);
    char bytes[] = "B";
    array given = array_of(&from, bytes);
    sb3x_arrays arrays = {sb3x_create(&outside, &error), "B", 3, axes};
    CHECK(arrays.store && plan(&arrays, 0, &given, &given, 3) == SB3X_BAD_ARGUMENT);
    sb3x_destroy(arrays.store);
    free(given.memory);
    /* Other threads of Python may run during a call that takes long. */
    sb3x_config large = config;
    large.frame_bytes = 1 << 20;
    const int64_t large_axes[] = {STREAMS, STACK, 1 << 20};
    array frames = {exactly(STREAMS * STACK << 20), {STREAMS, STACK, 1 << 20}, 3, bytes, 0};
    arrays = (sb3x_arrays){sb3x_create(&large, &error), "B", 3, large_axes};
    CHECK(arrays.store && plan(&arrays, 0, &frames, &frames, 3) == SB3X_OK);
    sb3x_destroy(arrays.store);
    free(frames.memory);
}
