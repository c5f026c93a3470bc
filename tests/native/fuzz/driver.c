/* Stands in for libFuzzer:  fuzz_x [-s SECONDS] [-r SEED] [-w FOLDER] [file or folder ...]

   Replays all inputs, then changes them at random for some seconds. It sees no coverage, so it finds less, but any compiler can
   build it. -w writes seeds for libFuzzer into a folder. An input that fails is written to fuzz-failure in this folder. */

#define _DEFAULT_SOURCE
#define _DARWIN_C_SOURCE

#include <dirent.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

enum { MOST_BYTES = 1 << 14, MOST_INPUTS = 4096 };

typedef struct {
    uint8_t *bytes;
    int64_t n;
} input;

static input inputs[MOST_INPUTS];
static int64_t n_inputs;
static uint8_t current[MOST_BYTES];
static int64_t n_current;

/* ---- what has failed */

static void write_failure(void) {
    FILE *file = fopen("fuzz-failure", "wb");
    if (!file) return;
    fwrite(current, 1, (size_t)n_current, file);
    fclose(file);
    fputs("The input is in ./fuzz-failure\n", stderr);
}

static void on_abort(int number) {
    write_failure();
    signal(number, SIG_DFL);
    raise(number);
}

/* Of the sanitizers, where they are linked. */
#if defined(__GNUC__) && !defined(__APPLE__)
__attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)(void));
#endif

static void watch_failures(void) {
    signal(SIGABRT, on_abort);
#if defined(__GNUC__) && !defined(__APPLE__)
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(write_failure);
#endif
}

static void run(const uint8_t *bytes, int64_t n) {
    n_current = n < MOST_BYTES ? n : MOST_BYTES;
    if (bytes != current && n_current > 0) memcpy(current, bytes, (size_t)n_current);
    LLVMFuzzerTestOneInput(current, (size_t)n_current);
}

/* ---- inputs */

static void add_input(const uint8_t *bytes, int64_t n) {
    if (n_inputs < MOST_INPUTS) inputs[n_inputs++] = (input){copy_of(bytes, n), n};
}

static void read_inputs(const char *path) {
    struct stat status;
    if (stat(path, &status) != 0) {
        fprintf(stderr, "There is no file or folder %s\n", path);
        exit(2);
    }
    if (S_ISDIR(status.st_mode)) {
        DIR *folder = opendir(path);
        if (!folder) exit(2);
        for (struct dirent *entry; (entry = readdir(folder));) {
            char name[4096];
            if (entry->d_name[0] == '.') continue;
            snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
            read_inputs(name);
        }
        closedir(folder);
        return;
    }
    static uint8_t bytes[MOST_BYTES];
    FILE *file = fopen(path, "rb");
    if (!file) exit(2);
    add_input(bytes, (int64_t)fread(bytes, 1, sizeof bytes, file));
    fclose(file);
}

static void write_seeds(const char *folder) {
    for (uint64_t seed = 0; seed < 100; seed++) {
        source from = source_of_seed(seed);
        int64_t n = make_seed(&from, current, MOST_BYTES);
        char name[4096];
        snprintf(name, sizeof name, "%s/seed%02d", folder, (int)seed);
        FILE *file = fopen(name, "wb");
        if (!file) exit(2);
        fwrite(current, 1, (size_t)n, file);
        fclose(file);
    }
}

/* ---- changes */

static void change(source *from) {
    static const int64_t numbers[] = {0, 1, -1, 2, -2, 127, 128, 255, 256, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    const int64_t n = n_current, at = below(from, n + 1);
    const int64_t kind = below(from, 7);
    if (kind == 0 && n > 0) {
        current[at % n] ^= (uint8_t)(1 << below(from, 8));
    } else if (kind == 1 && n > 0) {
        current[at % n] = (uint8_t)below(from, 256);
    } else if (kind == 2) { /* a number, in its place or not */
        int64_t size = (int64_t)1 << below(from, 4), place = once_in(from, 2) ? at / size * size : at;
        int64_t number = numbers[below(from, sizeof numbers / sizeof *numbers)];
        if (place + size <= n) memcpy(current + place, &number, (size_t)size);
    } else if (kind == 3 && n < MOST_BYTES - 8) { /* insert */
        int64_t length = 1 + below(from, 8);
        memmove(current + at + length, current + at, (size_t)(n - at));
        n_current += length;
    } else if (kind == 4 && at < n) { /* remove */
        int64_t length = 1 + below(from, n - at < 16 ? n - at : 16);
        memmove(current + at, current + at + length, (size_t)(n - at - length));
        n_current -= length;
    } else if (kind == 5 && n > 0) { /* copy within */
        int64_t length = 1 + below(from, n - at % n), source_at = below(from, n - length + 1);
        memmove(current + at % n, current + source_at, (size_t)(length < 16 ? length : 16));
    } else if (kind == 6 && n_inputs > 0) { /* the rest of another one */
        const input *other = &inputs[below(from, n_inputs)];
        if (at < other->n) {
            memcpy(current + at, other->bytes + at, (size_t)(other->n - at));
            n_current = other->n;
        }
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int64_t run_changed(double seconds, uint64_t seed) {
    source from = source_of_seed(seed);
    int64_t n_runs = 0;
    for (double end = now() + seconds; now() < end; n_runs++) {
        if (n_inputs == 0 || once_in(&from, 16)) {
            n_current = make_seed(&from, current, MOST_BYTES);
        } else {
            const input *one = &inputs[below(&from, n_inputs)];
            n_current = one->n;
            if (one->n > 0) memcpy(current, one->bytes, (size_t)one->n);
        }
        for (int64_t changes = below(&from, 6); changes > 0; changes--) change(&from);
        run(current, n_current);
    }
    return n_runs;
}

int main(int n_arguments, char **arguments) {
    double seconds = 0;
    uint64_t seed = 1;
    for (int option; (option = getopt(n_arguments, arguments, "s:r:w:")) != -1;) {
        if (option == 's') {
            seconds = atof(optarg);
        } else if (option == 'r') {
            seed = (uint64_t)atoll(optarg);
        } else if (option == 'w') {
            write_seeds(optarg);
        } else {
            return 2;
        }
    }
    watch_failures();
    for (int i = optind; i < n_arguments; i++) read_inputs(arguments[i]);
    for (int64_t i = 0; i < n_inputs; i++) run(inputs[i].bytes, inputs[i].n);
    int64_t n_runs = seconds > 0 ? run_changed(seconds, seed) : 0;
    printf("%s: %lld inputs replayed, %lld changed ones run\n", arguments[0], (long long)n_inputs, (long long)n_runs);
    for (int64_t i = 0; i < n_inputs; i++) free(inputs[i].bytes);
    return 0;
}
