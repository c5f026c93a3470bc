/* Sums over weights, in a tree: draws cells in proportion to them, for prioritized replay.

   The weights are the caller's array. Above them lie levels of sums, each a sixteenth as long as the one below; the last has one
   number, the total. A sum is always added up anew from its children, so nothing drifts with the number of changes. */

#include <float.h>
#include <stdlib.h>

#include "internal.h"

/* 16 weights are a cache line. AT_ONCE cells are drawn together. */
enum { CHILDREN = 16, MOST_LEVELS = 16, AT_ONCE = 64 };

struct sb3x_tree {
    float *weights;
    int64_t n, n_levels;
    int64_t lengths[MOST_LEVELS];
    double *sums[MOST_LEVELS]; /* all in one allocation, which sums[0] points to */
};

static int is_weight(float weight) { return weight >= 0 && weight <= FLT_MAX; } /* not NaN, not infinite */

static int64_t parents_of(int64_t n) { return (n + CHILDREN - 1) / CHILDREN; }

static double sum_of(const sb3x_tree *tree, int64_t level, int64_t i) {
    double sum = 0;
    int64_t first = i * CHILDREN, below = level ? tree->lengths[level - 1] : tree->n;
    int64_t last = first + CHILDREN < below ? first + CHILDREN : below;
    if (level) {
        for (int64_t k = first; k < last; k++) sum += tree->sums[level - 1][k];
    } else {
        for (int64_t k = first; k < last; k++) sum += (double)tree->weights[k];
    }
    return sum;
}

sb3x_tree *sb3x_tree_create(float *weights, int64_t n, int32_t *error) {
    *error = SB3X_BAD_ARGUMENT;
    if (n < 1 || n > INT64_MAX / 64) return NULL;
    for (int64_t i = 0; i < n; i++) {
        if (!is_weight(weights[i])) return NULL;
    }
    *error = SB3X_NO_MEMORY;
    sb3x_tree *tree = sb3x_allocate_zeros(sizeof *tree);
    if (!tree) return NULL;
    tree->weights = weights;
    tree->n = n;
    int64_t total = 0;
    for (int64_t length = n; tree->n_levels == 0 || length > 1;) {
        length = parents_of(length);
        tree->lengths[tree->n_levels++] = length;
        total += length;
    }
    double *sums = sb3x_allocate((size_t)total * sizeof *sums);
    if (!sums) {
        free(tree);
        return NULL;
    }
    for (int64_t level = 0; level < tree->n_levels; level++) {
        tree->sums[level] = sums;
        sums += tree->lengths[level];
        for (int64_t i = 0; i < tree->lengths[level]; i++) tree->sums[level][i] = sum_of(tree, level, i);
    }
    *error = SB3X_OK;
    return tree;
}

void sb3x_tree_destroy(sb3x_tree *tree) {
    if (!tree) return;
    free(tree->sums[0]);
    free(tree);
}

double sb3x_tree_total(const sb3x_tree *tree) { return tree->sums[tree->n_levels - 1][0]; }

static void set_weights(sb3x_tree *tree, const int64_t *cells, const float *weights, int64_t n) {
    for (int64_t i = 0; i < n; i++) tree->weights[cells[i]] = weights[i];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = cells[i];
        for (int64_t level = 0; level < tree->n_levels; level++) {
            at /= CHILDREN;
            tree->sums[level][at] = sum_of(tree, level, at);
        }
    }
}

int32_t sb3x_tree_set(sb3x_tree *tree, const int64_t *cells, const float *weights, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (cells[i] < 0 || cells[i] >= tree->n) return SB3X_BAD_CELL;
        if (!is_weight(weights[i])) return SB3X_BAD_ARGUMENT;
    }
    set_weights(tree, cells, weights, n);
    return SB3X_OK;
}

int32_t sb3x_tree_update(sb3x_tree *tree, const int64_t *cells, const float *errors, const float *weights, int64_t n,
                         float *largest) {
    float most = *largest;
    for (int64_t i = 0; i < n; i++) {
        if (cells[i] < 0 || cells[i] >= tree->n || !(tree->weights[cells[i]] > 0)) return SB3X_BAD_CELL;
        if (!is_weight(errors[i]) || !is_weight(weights[i])) return SB3X_BAD_ARGUMENT;
        if (weights[i] > most) most = weights[i];
    }
    set_weights(tree, cells, weights, n);
    *largest = most;
    return SB3X_OK;
}

/* The child that the sums up to `*left` end in; what is left of it is taken off. Rounding may leave a little more than there is:
   then it is the last child that has anything. */
static int64_t child_of(const sb3x_tree *tree, int64_t level, int64_t i, double *left) {
    int64_t first = i * CHILDREN, below = level ? tree->lengths[level - 1] : tree->n;
    int64_t last = first + CHILDREN < below ? first + CHILDREN : below, found = first;
    double before = *left;
    for (int64_t k = first; k < last; k++) {
        double sum = level ? tree->sums[level - 1][k] : (double)tree->weights[k];
        if (sum <= 0) continue;
        found = k;
        before = *left;
        if (*left < sum) break;
        *left -= sum;
    }
    *left = before;
    return found;
}

/* Ask for what child_of reads, before it is needed. */
static void prefetch_children(const sb3x_tree *tree, int64_t level, int64_t i) {
    if (level) {
        const double *sums = tree->sums[level - 1] + i * CHILDREN;
        __builtin_prefetch(sums, 0, 3);
        __builtin_prefetch(sums + CHILDREN / 2, 0, 3);
    } else {
        __builtin_prefetch(tree->weights + i * CHILDREN, 0, 3);
    }
}

/* Cells for the shares first, first + 1, ... of the total. Level by level for all of them, so that they wait for memory together. */
static void descend(const sb3x_tree *tree, const double *uniform, int64_t first, int64_t count, int64_t n, int64_t *cells) {
    const double total = sb3x_tree_total(tree);
    double left[AT_ONCE];
    for (int64_t i = 0; i < count; i++) {
        left[i] = ((double)(first + i) + uniform[first + i]) / (double)n * total; /* rounded up, it may be the total */
        cells[first + i] = 0;
    }
    for (int64_t level = tree->n_levels - 1; level >= 0; level--) {
        for (int64_t i = 0; i < count; i++) {
            int64_t at = cells[first + i] = child_of(tree, level, cells[first + i], &left[i]);
            if (level) prefetch_children(tree, level - 1, at);
        }
    }
}

int32_t sb3x_tree_draw(const sb3x_tree *tree, const double *uniform, int64_t n, int64_t n_envs, int64_t *drawn, float *ratios) {
    int64_t *slots = drawn, *envs = drawn + n, *cells = drawn + 2 * n;
    float smallest = 0;
    if (!(sb3x_tree_total(tree) > 0) || n_envs < 1) return SB3X_BAD_ARGUMENT;
    for (int64_t i = 0; i < n; i++) {
        if (!(uniform[i] >= 0 && uniform[i] < 1)) return SB3X_BAD_ARGUMENT;
    }
    for (int64_t first = 0; first < n; first += AT_ONCE) {
        descend(tree, uniform, first, n - first < AT_ONCE ? n - first : AT_ONCE, n, cells);
    }
    for (int64_t i = 0; i < n; i++) {
        slots[i] = cells[i] / n_envs;
        envs[i] = cells[i] % n_envs;
        ratios[i] = tree->weights[cells[i]];
        if (i == 0 || ratios[i] < smallest) smallest = ratios[i];
    }
    for (int64_t i = 0; i < n; i++) ratios[i] /= smallest;
    return SB3X_OK;
}
