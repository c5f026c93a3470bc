/* Weights in a tree against sums that are added up one by one. */

#include "check.h"
#include "sb3x.h"
#include "tests.h"

/* The cell where the sum of the weights reaches `sum`, by adding up from the first one. Exact for whole numbers. */
static int64_t naive_draw(const float *weights, int64_t n, double sum) {
    double before = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < n; i++) {
        if (weights[i] <= 0) continue;
        last = i;
        if (sum < before + (double)weights[i]) return i;
        before += (double)weights[i];
    }
    return last;
}

static void check_draws(const sb3x_tree *tree, source *from, const float *weights, int64_t n) {
    const int64_t count = 1 + below(from, 20), n_envs = 1 + below(from, 4);
    double total = 0, *uniform = exactly(8 * count);
    int64_t *drawn = exactly(24 * count), *cells = drawn + 2 * count;
    float *ratios = exactly(4 * count), smallest = 1e30f;
    for (int64_t i = 0; i < n; i++) total += (double)weights[i];
    CHECK(sb3x_tree_total(tree) == total);
    for (int64_t i = 0; i < count; i++) uniform[i] = (double)(next_number(from) >> 11) * 0x1p-53;
    uniform[0] = 0, uniform[count - 1] = 1 - 0x1p-53;
    int32_t status = sb3x_tree_draw(tree, uniform, count, n_envs, drawn, ratios);
    CHECK(status == (total > 0 ? SB3X_OK : SB3X_BAD_ARGUMENT));
    for (int64_t i = 0; status == SB3X_OK && i < count; i++) {
        double sum = ((double)i + uniform[i]) / (double)count * total;
        CHECK(cells[i] == naive_draw(weights, n, sum) && drawn[i] * n_envs + drawn[count + i] == cells[i]);
        CHECK(drawn[count + i] < n_envs && weights[cells[i]] > 0);
        if (weights[cells[i]] < smallest) smallest = weights[cells[i]];
    }
    for (int64_t i = 0; status == SB3X_OK && i < count; i++) CHECK(ratios[i] == weights[cells[i]] / smallest);
    const double wrong[] = {1, -0x1p-60, 2, 0.0 / 0.0};
    uniform[below(from, count)] = wrong[below(from, 4)];
    CHECK(sb3x_tree_draw(tree, uniform, count, n_envs, drawn, ratios) == SB3X_BAD_ARGUMENT);
    free(uniform), free(drawn), free(ratios);
}

/* One update by errors, of which one may be wrong: then nothing changes. */
static void check_update(sb3x_tree *tree, source *from, float *expected, int64_t n) {
    const float wrong[] = {-1, 0.0f / 0.0f, 1.0f / 0.0f};
    int64_t count = below(from, 20), *cells = exactly(8 * count);
    float *errors = exactly(4 * count), *values = exactly(4 * count), largest = 30, most = 30;
    int32_t status = SB3X_OK;
    for (int64_t i = 0; i < count; i++) {
        cells[i] = below(from, n);
        errors[i] = values[i] = (float)below(from, 50);
    }
    if (count > 0 && once_in(from, 4)) errors[below(from, count)] = wrong[below(from, 3)];
    if (count > 0 && once_in(from, 8)) cells[below(from, count)] = once_in(from, 2) ? n : -1;
    for (int64_t i = 0; i < count && status == SB3X_OK; i++) {
        if (cells[i] < 0 || cells[i] >= n || expected[cells[i]] == 0) status = SB3X_BAD_CELL;
        else if (!(errors[i] >= 0 && errors[i] < 1e30f)) status = SB3X_BAD_ARGUMENT;
        if (values[i] > most) most = values[i];
    }
    CHECK(sb3x_tree_update(tree, cells, errors, values, count, &largest) == status);
    CHECK(largest == (status == SB3X_OK ? most : 30));
    for (int64_t i = 0; i < count && status == SB3X_OK; i++) expected[cells[i]] = values[i];
    free(cells), free(errors), free(values);
}

void test_tree(int64_t rounds) {
    const float wrong[] = {-1, 0.0f / 0.0f, 1.0f / 0.0f};
    for (int64_t seed = 0; seed < 200 * rounds; seed++) {
        source from = source_of_seed((uint64_t)seed + 9000);
        snprintf(check_context, sizeof check_context, "seed %lld", (long long)seed);
        int64_t n = 1 + below(&from, once_in(&from, 10) ? 5000 : 40);
        int32_t error = -1;
        float *weights = exactly(4 * n), *expected = exactly(4 * n); /* whole numbers: all sums are exact */
        for (int64_t i = 0; i < n; i++) expected[i] = weights[i] = once_in(&from, 2) ? (float)below(&from, 100) : 0;
        int64_t at = below(&from, n);
        weights[at] = wrong[below(&from, 3)];
        CHECK(sb3x_tree_create(weights, n, &error) == NULL && error == SB3X_BAD_ARGUMENT);
        weights[at] = expected[at];
        for (int64_t k = 0; k < 2; k++) {
            sb3x_fail_allocation(k, 0);
            CHECK(sb3x_tree_create(weights, n, &error) == NULL && error == SB3X_NO_MEMORY);
            sb3x_fail_allocation(-1, 0);
        }
        sb3x_tree *tree = sb3x_tree_create(weights, n, &error);
        CHECK(tree && error == SB3X_OK);
        check_draws(tree, &from, expected, n);
        for (int64_t k = 0; k < 10; k++) {
            int64_t count = below(&from, 20), *cells = exactly(8 * count);
            float *values = exactly(4 * count);
            for (int64_t i = 0; i < count; i++) {
                cells[i] = below(&from, n);
                values[i] = (float)below(&from, 50);
            }
            if (count > 0 && once_in(&from, 4)) { /* one is wrong: nothing changes */
                at = below(&from, count);
                int is_cell = once_in(&from, 2);
                if (is_cell) cells[at] = once_in(&from, 2) ? n : -1;
                else values[at] = wrong[below(&from, 3)];
                CHECK(sb3x_tree_set(tree, cells, values, count) == (is_cell ? SB3X_BAD_CELL : SB3X_BAD_ARGUMENT));
            } else {
                for (int64_t i = 0; i < count; i++) expected[cells[i]] = values[i];
                CHECK(sb3x_tree_set(tree, cells, values, count) == SB3X_OK);
            }
            check_update(tree, &from, expected, n);
            CHECK(memcmp(weights, expected, (size_t)(4 * n)) == 0);
            check_draws(tree, &from, expected, n);
            free(cells), free(values);
        }
        sb3x_tree_destroy(tree);
        free(weights), free(expected);
    }
    sb3x_tree_destroy(NULL);
    int32_t error = -1;
    float weight = 1;
    CHECK(sb3x_tree_create(&weight, 0, &error) == NULL && error == SB3X_BAD_ARGUMENT);
}
