/* A few threads for large batches. They are started when they are first needed, sleep in between, and never outlive a call:
   sb3x_run returns when every part is done.

   To wake a thread takes as long as to read a small batch. So they can be woken when a batch is expected, and look out for it
   for a moment; and whoever waits for the last parts looks out for them before it sleeps. */

#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE

#include <stdatomic.h>
#include <stdint.h>

#include "internal.h"

#if defined(_WIN32)
#include <windows.h>
typedef SRWLOCK mutex;
typedef CONDITION_VARIABLE condition;
#define MUTEX_INITIALIZER SRWLOCK_INIT
#define CONDITION_INITIALIZER CONDITION_VARIABLE_INIT
static void lock(mutex *m) { AcquireSRWLockExclusive(m); }
static void unlock(mutex *m) { ReleaseSRWLockExclusive(m); }
static void wait_for(condition *c, mutex *m) { SleepConditionVariableSRW(c, m, INFINITE, 0); }
static void wake_all(condition *c) { WakeAllConditionVariable(c); }
int64_t clock_microseconds(void) {
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return ticks.QuadPart / per_second.QuadPart * 1000000 + ticks.QuadPart % per_second.QuadPart * 1000000 / per_second.QuadPart;
}
#else
#include <pthread.h>
#include <signal.h>
#include <time.h>
typedef pthread_mutex_t mutex;
typedef pthread_cond_t condition;
#define MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define CONDITION_INITIALIZER PTHREAD_COND_INITIALIZER
static void lock(mutex *m) { pthread_mutex_lock(m); }
static void unlock(mutex *m) { pthread_mutex_unlock(m); }
static void wait_for(condition *c, mutex *m) { pthread_cond_wait(c, m); }
static void wake_all(condition *c) { pthread_cond_broadcast(c); }
int64_t clock_microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}
#endif

#define MOST_THREADS 16
/* How long to look out for an expected call, and for the last parts of one. */
#define EXPECTED_WITHIN 200
#define DONE_WITHIN 50

typedef struct {
    mutex mutex;
    condition work, done;
    int32_t n_started;  /* threads, beside the callers */
    int32_t is_busy;    /* a call is under way */
    uint64_t expected;  /* how often a call was expected */
    _Atomic uint64_t call;    /* number of the last call */
    _Atomic int32_t n_inside; /* threads that look at its parts */
    sb3x_task task;
    void *argument;
    int64_t parts;
    int32_t workers;
    _Atomic int64_t next; /* part that nobody has taken yet */
} pool;

static pool shared = {.mutex = MUTEX_INITIALIZER, .work = CONDITION_INITIALIZER, .done = CONDITION_INITIALIZER};
static _Atomic int32_t wanted_threads = 1;

void sb3x_set_threads(int32_t n) { atomic_store(&wanted_threads, n < 1 ? 1 : n > MOST_THREADS ? MOST_THREADS : n); }

int32_t sb3x_threads(void) { return atomic_load(&wanted_threads); }

static void take_parts(sb3x_task task, void *argument, int64_t parts, int32_t worker) {
    for (int64_t part; (part = atomic_fetch_add(&shared.next, 1)) < parts;) task(argument, part, worker);
}

static inline void relax(void) {
#if defined(__x86_64__) || defined(_M_X64)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Wait for a call behind the one that was seen last, but not for long. */
static void look_out_for_call(uint64_t seen) {
    int64_t end = clock_microseconds() + EXPECTED_WITHIN;
    while (atomic_load(&shared.call) == seen && clock_microseconds() < end) relax();
}

static void work(int32_t worker) {
    uint64_t seen = 0, expected = 0;
    lock(&shared.mutex);
    for (;;) {
        while (shared.call == seen || !shared.is_busy) {
            if (shared.expected != expected) {
                expected = shared.expected;
                unlock(&shared.mutex);
                look_out_for_call(seen);
                lock(&shared.mutex);
            } else {
                wait_for(&shared.work, &shared.mutex);
            }
        }
        seen = shared.call;
        if (worker >= shared.workers) continue;
        sb3x_task task = shared.task;
        void *argument = shared.argument;
        int64_t parts = shared.parts;
        shared.n_inside++;
        unlock(&shared.mutex);
        take_parts(task, argument, parts, worker);
        lock(&shared.mutex);
        if (--shared.n_inside == 0) wake_all(&shared.done);
    }
}

#if defined(_WIN32)
static DWORD WINAPI start(LPVOID worker) {
    work((int32_t)(intptr_t)worker);
    return 0;
}
static int start_thread(int32_t worker) {
    HANDLE thread = CreateThread(NULL, 1 << 18, start, (LPVOID)(intptr_t)worker, 0, NULL);
    if (thread) CloseHandle(thread);
    return thread != NULL;
}
#else
static void *start(void *worker) {
    work((int32_t)(intptr_t)worker);
    return NULL;
}
static int start_thread(int32_t worker) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0) return 0;
    pthread_attr_setstacksize(&attributes, 1 << 18);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are for the threads of Python. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &attributes, start, (void *)(intptr_t)worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return !failed;
}
#endif

void sb3x_after_fork(void) {
    mutex fresh_mutex = MUTEX_INITIALIZER;
    condition fresh_condition = CONDITION_INITIALIZER;
    shared.mutex = fresh_mutex;
    shared.work = shared.done = fresh_condition;
    shared.n_started = shared.is_busy = 0;
    shared.n_inside = 0;
    note_fork();
}

void sb3x_expect_call(void) {
    if (sb3x_threads() < 2) return;
    lock(&shared.mutex);
    if (!shared.is_busy && shared.n_started > 0) {
        shared.expected++;
        wake_all(&shared.work);
    }
    unlock(&shared.mutex);
}

/* Begin a call that the pool takes part in; 0 if it cannot help. All in one piece: a thread that wakes up late, for a call that is
   over, finds the next one as a whole or not at all. */
static int begin_call(sb3x_task task, void *argument, int64_t parts, int32_t workers) {
    if (parts < 2 || workers < 2) return 0;
    lock(&shared.mutex);
    int is_free = !shared.is_busy;
    if (is_free) {
        while (shared.n_started < workers - 1 && start_thread(shared.n_started + 1)) shared.n_started++;
        is_free = shared.n_started > 0;
    }
    if (is_free) {
        shared.task = task;
        shared.argument = argument;
        shared.parts = parts;
        shared.workers = workers;
        atomic_store(&shared.next, 0);
        shared.is_busy = 1;
        shared.call++;
        wake_all(&shared.work);
    }
    unlock(&shared.mutex);
    return is_free;
}

void sb3x_run(sb3x_task task, void *argument, int64_t parts, int32_t workers) {
    if (!begin_call(task, argument, parts, workers)) {
        for (int64_t part = 0; part < parts; part++) task(argument, part, 0);
        return;
    }
    take_parts(task, argument, parts, 0);
    int64_t end = clock_microseconds() + DONE_WITHIN;
    while (atomic_load(&shared.n_inside) > 0 && clock_microseconds() < end) relax();
    lock(&shared.mutex);
    while (shared.n_inside > 0) wait_for(&shared.done, &shared.mutex);
    shared.is_busy = 0; /* from here on no thread looks at this call */
    unlock(&shared.mutex);
}

/* ---- whether threads pay */

/* Of so many calls, the last few go the other way. The first of these does not count: no thread was woken up for it. */
#define ROUND 256
#define TRIED 4
/* How much a new time counts, and how many times the mean it counts at most: the machine may do anything in between. */
#define NEW_SHARE 0.125f
#define MOST_TIMES 4

static uint32_t calls_left(const pace *pace) { return ROUND - pace->calls % ROUND; }

int wants_threads(const pace *pace) {
    int faster = pace->cost[0] == 0 || pace->cost[1] <= pace->cost[0]; /* several, until it is known */
    return calls_left(pace) <= TRIED ? !faster : faster;
}

void note_pace(pace *pace, int by_threads, int64_t microseconds, int64_t nbytes) {
    float cost = (float)(microseconds > 0 ? microseconds : 1) / (float)nbytes;
    _Atomic float *mean = &pace->cost[by_threads != 0];
    const float before = *mean;
    int counts = calls_left(pace) != TRIED;
    pace->calls++;
    if (!counts) return;
    if (before > 0 && cost > MOST_TIMES * before) cost = MOST_TIMES * before;
    *mean = before == 0 ? cost : before + NEW_SHARE * (cost - before);
}
