/* Vectors of 64 bytes with a mask for each byte (AVX-512), where the processor that this runs on has them. The library is compiled
   for all processors, so a function that uses them is marked by SB3X_WIDE, and called only if has_wide_vectors(). */

#ifndef SB3X_WIDE_H
#define SB3X_WIDE_H

#include <stdint.h>

/* Not by gcc for Windows, which does not align the stack for them. */
#if !defined(SB3X_PLAIN_C) && !defined(SB3X_NO_WIDE) && defined(__x86_64__) && (defined(__clang__) || !defined(_WIN32))
#include <immintrin.h>
#define SB3X_HAS_WIDE
#define SB3X_WIDE __attribute__((target("avx512f,avx512bw,avx512vl,bmi2")))

int has_wide_vectors(void);
/* For tests: go without them, or not any more. */
void allow_wide_vectors(int allowed);

/* A mask of the first n bytes, at most 64. */
static inline SB3X_WIDE __mmask64 first_bytes(int64_t n) { return _bzhi_u64(~0ULL, (unsigned)n); }
#else
#define SB3X_WIDE
static inline int has_wide_vectors(void) { return 0; }
static inline void allow_wide_vectors(int allowed) { (void)allowed; }
#endif

/* A function of which one copy is compiled for wide vectors and one for all processors. */
#define SB3X_TWICE static inline __attribute__((always_inline))

#endif
