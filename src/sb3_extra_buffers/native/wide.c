/* Which vectors this processor has. */

#include "wide.h"

#if defined(SB3X_HAS_WIDE)
#include <cpuid.h>
#include <stdatomic.h>

static uint64_t vectors_that_are_saved(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Processors with VBMI2 (2019 and later) keep their clock when they use long vectors; those before did not. */
static int find_wide_vectors(void) {
    uint32_t a, b, c, d;
    const uint32_t has_saving = 1u << 27, avx512f = 1u << 16, bmi2 = 1u << 8, avx512bw = 1u << 30, avx512vl = 1u << 31, vbmi2 = 1u << 6;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & has_saving) || (vectors_that_are_saved() & 0xe6) != 0xe6) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    return (b & avx512f) && (b & bmi2) && (b & avx512bw) && (b & avx512vl) && (c & vbmi2);
}

static _Atomic int state; /* 0: not looked yet, 1: none, 2: there are some */

int has_wide_vectors(void) {
    if (atomic_load_explicit(&state, memory_order_relaxed) == 0) allow_wide_vectors(1);
    return atomic_load_explicit(&state, memory_order_relaxed) == 2;
}

void allow_wide_vectors(int allowed) {
    atomic_store_explicit(&state, allowed && find_wide_vectors() ? 2 : 1, memory_order_relaxed);
}
#endif
