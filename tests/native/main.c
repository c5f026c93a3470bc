/* Runs the tests of the core:  tests [-r ROUNDS] [name ...];  `tests checksum` prints the checksum of a fixed run. */

#define _POSIX_C_SOURCE 199309L

#include <inttypes.h>
#include <time.h>

#include "check.h"
#include "tests.h"

static const struct {
    const char *name;
    void (*run)(int64_t rounds);
    int is_large; /* takes gigabytes: only where it is asked for */
} tests[] = {
    {"store", test_store, 0},       {"calls", test_order_of_calls, 0}, {"memory", test_refused_memory, 0},
    {"damaged", test_damaged, 0},   {"crafted", test_crafted, 0},      {"limits", test_limits, 0},
    {"delta", test_delta, 0},       {"runs", test_runs, 0},            {"channels", test_channels, 0},
    {"threads", test_threads, 0},   {"chunks", test_chunks, 0},        {"rows", test_rows, 0},
    {"lz4", test_lz4, 0},           {"formats", test_formats, 0},      {"segments", test_segments, 0},    {"receiving", test_receiving, 0},
    {"tree", test_tree, 0},         {"direct", test_direct, 0},        {"large", test_large, 1},
};

enum { N_TESTS = sizeof tests / sizeof *tests };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void run(int number, int64_t rounds) {
    double start = now();
    snprintf(check_context, sizeof check_context, "%s", tests[number].name);
    tests[number].run(rounds);
    printf("%-10s ok, %.2f s\n", tests[number].name, now() - start);
    fflush(stdout);
}

int main(int n_arguments, char **arguments) {
    int64_t rounds = 10;
    int first = 1;
    if (n_arguments > 2 && strcmp(arguments[1], "-r") == 0) {
        rounds = atoll(arguments[2]);
        first = 3;
    }
    for (int k = 0; first == n_arguments && k < N_TESTS; k++)
        if (!tests[k].is_large) run(k, rounds);
    for (int i = first; i < n_arguments; i++) {
        int found = 0;
        if (strcmp(arguments[i], "checksum") == 0) {
            printf("%016" PRIx64 "\n", checksum());
            found = 1;
        }
        for (int k = 0; k < N_TESTS; k++) {
            if (strcmp(arguments[i], tests[k].name) != 0) continue;
            run(k, rounds);
            found = 1;
        }
        if (!found) {
            fprintf(stderr, "There is no test %s\n", arguments[i]);
            return 2;
        }
    }
    return 0;
}
