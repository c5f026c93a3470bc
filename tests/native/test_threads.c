/* Gathers that are shared out to threads: the same bytes, whatever else happens meanwhile. */

#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "model.h"
#include "tests.h"

#if defined(__SANITIZE_THREAD__)
#define HAS_THREAD_SANITIZER 1 /* which lets no child of threads start threads */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_THREAD_SANITIZER 1
#endif
#endif

typedef struct {
    uint64_t seed;
    int64_t rounds;
    _Atomic int *is_over;
} job;

static model *filled_model(source *from, int64_t frames, int64_t frame_bytes) {
    const sb3x_config config = {60, 3, 2, 4, frame_bytes, 8, frames, frames == SB3X_FRAMES_CODEC ? 3 : 0, frame_bytes / 20, 0, 0};
    int32_t error;
    model *model = new_model(&config, from, &error);
    CHECK(model->store);
    for (int i = 0; i < 60; i++) play(model);
    return model;
}

/* Each thread has a store of its own, and gathers batches of very different sizes. */
static void *gather_again_and_again(void *argument) {
    const job *job = argument;
    source from = source_of_seed(job->seed);
    model *one = filled_model(&from, (int64_t)job->seed % 3, 7056), *other = filled_model(&from, SB3X_FRAMES_DELTA, 100);
    for (int64_t i = 0; i < 20 * job->rounds; i++) {
        verify_some(one);
        verify(other);
        if (i % 3 == 0) verify(one);
        if (i % 5 == 0) play(one);
    }
    free_model(one);
    free_model(other);
    return NULL;
}

/* Several threads read one store, as Python does where codecs of its own have threads. */
typedef struct {
    model *model;
    const int64_t *cells;
    const uint8_t *expected; /* the first column of these cells */
} reading;

static void *read_again_and_again(void *argument) {
    const reading *reading = argument;
    const int64_t n = reading->model->config.n_cells, nbytes = n * reading->model->observation_bytes;
    uint8_t *found = exactly(nbytes);
    for (int i = 0; i < 20; i++) {
        CHECK(sb3x_gather(reading->model->store, reading->cells, NULL, n, SB3X_FIRST_COLUMN, NULL, found) == SB3X_OK);
        CHECK(memcmp(found, reading->expected, (size_t)nbytes) == 0);
    }
    free(found);
    return NULL;
}

static void read_side_by_side(model *model, const int64_t *cells, const uint8_t *expected) {
    enum { READERS = 3 };
    pthread_t readers[READERS];
    reading reading = {model, cells, expected};
    sb3x_set_threads(2);
    for (int i = 0; i < READERS; i++) CHECK(pthread_create(&readers[i], NULL, read_again_and_again, &reading) == 0);
    for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
}

static void *change_threads(void *argument) {
    const job *job = argument;
    source from = source_of_seed(3);
    while (!atomic_load(job->is_over)) {
        sb3x_set_threads((int32_t)below(&from, 9));
        usleep((useconds_t)below(&from, 300));
    }
    return NULL;
}

/* ---- the pool itself: no task may be called after its call has returned, or for a part that there is not */

enum { MOST_PARTS = 64 };

typedef struct {
    _Atomic int is_running;
    int64_t parts;
    int32_t workers;
    _Atomic int taken[MOST_PARTS];
} call;

static void take_part(void *argument, int64_t part, int32_t worker) {
    call *call = argument;
    CHECK(atomic_load(&call->is_running) && part < call->parts && worker < call->workers);
    CHECK(atomic_fetch_add(&call->taken[part], 1) == 0);
}

static void *call_again_and_again(void *argument) {
    const job *job = argument;
    source from = source_of_seed(job->seed);
    for (int64_t i = 0; i < 3000 * job->rounds; i++) {
        static _Thread_local call calls[8]; /* so that a late task finds another call than its own */
        call *call = &calls[i % 8];
        memset(call->taken, 0, sizeof call->taken);
        call->parts = 2 + below(&from, MOST_PARTS - 2);
        call->workers = 1 + (int32_t)below(&from, 8);
        if (below(&from, 3) == 0) sb3x_expect_call(); /* by one caller or another */
        atomic_store(&call->is_running, 1);
        sb3x_run(take_part, call, call->parts, call->workers);
        atomic_store(&call->is_running, 0);
        for (int64_t part = 0; part < call->parts; part++) CHECK(atomic_load(&call->taken[part]) == 1);
    }
    return NULL;
}

static void use_in_child(model *model) {
#if !defined(HAS_THREAD_SANITIZER)
    if (getenv("SB3X_TESTS_NO_FORK")) return; /* qemu-user cannot start threads in a child of threads */
    usleep(100000); /* a thread that is still starting may hold a lock of the sanitizer, which the child would wait for */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sb3x_after_fork();
        sb3x_set_threads(3);
        for (int i = 0; i < 10; i++) {
            play(model);
            verify(model);
        }
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
#else
    (void)model;
#endif
}

static void run_side_by_side(void *(*work)(void *), int64_t rounds) {
    enum { CALLERS = 3 };
    pthread_t callers[CALLERS], changer;
    job jobs[CALLERS];
    _Atomic int is_over = 0;
    for (int i = 0; i < CALLERS; i++) {
        jobs[i] = (job){(uint64_t)i + 10, rounds, &is_over};
        CHECK(pthread_create(&callers[i], NULL, work, &jobs[i]) == 0);
    }
    CHECK(pthread_create(&changer, NULL, change_threads, &jobs[0]) == 0);
    for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
    atomic_store(&is_over, 1);
    pthread_join(changer, NULL);
}

/* ---- whether threads are used: by the times that calls took */

static int64_t calls_by_threads(pace *pace, int64_t alone, int64_t shared, int64_t calls) {
    int64_t by_threads = 0;
    for (int64_t i = 0; i < calls; i++) {
        int is_shared = wants_threads(pace);
        by_threads += is_shared;
        note_pace(pace, is_shared, i % 10 == 0 ? 100000 : is_shared ? shared : alone, 1 << 20); /* something else runs now and then */
    }
    return by_threads;
}

static void test_pace(void) {
    pace pace = {0};
    CHECK(wants_threads(&pace)); /* until it is known */
    CHECK(calls_by_threads(&pace, 100, 60, 4096) > 4000);
    CHECK(calls_by_threads(&pace, 100, 300, 4096) < 1000); /* the machine is busy now */
    CHECK(calls_by_threads(&pace, 100, 300, 4096) < 100);
    calls_by_threads(&pace, 100, 60, 8192);
    CHECK(calls_by_threads(&pace, 100, 60, 4096) > 4000);
}

void test_threads(int64_t rounds) {
    test_pace();
    source from = source_of_seed(1);
    model *model = filled_model(&from, SB3X_FRAMES_DELTA, 7056);
    const int64_t n = model->config.n_cells, nbytes = 2 * n * model->observation_bytes;
    int64_t *cells = exactly(8 * n);
    for (int64_t i = 0; i < n; i++) cells[i] = below(&from, n);
    uint8_t *alone = exactly(nbytes), *shared = exactly(nbytes);
    sb3x_set_threads(1);
    CHECK(gather(model, cells, NULL, n, SB3X_BOTH_COLUMNS, alone) == SB3X_OK);
    for (int32_t threads = -1; threads < 40; threads += 3) { /* more than there can be */
        sb3x_set_threads(threads);
        memset(shared, 0xEE, (size_t)nbytes);
        if (threads & 1) sb3x_expect_gather(model->store);
        if (threads & 2) usleep(400); /* longer than the threads look out for it */
        CHECK(gather(model, cells, NULL, n, SB3X_BOTH_COLUMNS, shared) == SB3X_OK);
        CHECK(memcmp(alone, shared, (size_t)nbytes) == 0);
        if (threads == 2 || threads == 8) use_in_child(model);
    }
    read_side_by_side(model, cells, alone);
    free(cells), free(alone), free(shared);
    free_model(model);

    run_side_by_side(call_again_and_again, rounds);
    run_side_by_side(gather_again_and_again, rounds);
    sb3x_set_threads(1);
}
