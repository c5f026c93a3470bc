/* Every allocation of the library: tables from malloc, large memory from the system, which gets it back when it is freed.
   Tests make single allocations fail here. */

#define _DEFAULT_SOURCE /* for MAP_ANONYMOUS */
#define _DARWIN_C_SOURCE

#include <stdatomic.h>
#include <stdlib.h>

#include "internal.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <sys/mman.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER 1
#endif
#endif

/* The address sanitizer only watches memory from malloc. Where that would cost too much, the memory is mapped after all. */
#if defined(HAS_ADDRESS_SANITIZER)
static int is_watched(size_t n) { return n <= (size_t)1 << 20; }
#else
static int is_watched(size_t n) {
    (void)n;
    return 0;
}
#endif

/* Allocations that are still to succeed before one fails; negative: none fails. */
static _Atomic int64_t allowed = -1;
static _Atomic int32_t fails_forever = 0;

void sb3x_fail_allocation(int64_t n, int32_t forever) {
    atomic_store(&fails_forever, forever);
    atomic_store(&allowed, n);
}

static int is_refused(void) {
    if (atomic_load_explicit(&allowed, memory_order_relaxed) < 0) return 0;
    int64_t left = atomic_fetch_sub(&allowed, 1);
    if (left != 0) return 0;
    if (atomic_load(&fails_forever)) atomic_store(&allowed, 0);
    return 1;
}

void *sb3x_allocate(size_t n) { return is_refused() ? NULL : malloc(n ? n : 1); }

void *sb3x_allocate_zeros(size_t n) { return is_refused() ? NULL : calloc(n ? n : 1, 1); }

void *sb3x_reallocate(void *memory, size_t n) { return is_refused() ? NULL : realloc(memory, n ? n : 1); }

void sb3x_release(void *memory) { free(memory); }

void *sb3x_map(size_t n) {
    if (is_refused()) return NULL;
    if (is_watched(n)) return calloc(n ? n : 1, 1);
#if defined(_WIN32)
    return VirtualAlloc(NULL, n ? n : 1, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
#else
    /* Private: a forked child (SubprocVecEnv) must not write into our blocks. */
    void *memory = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
#endif
}

void sb3x_unmap(void *memory, size_t n) {
    if (!memory) return;
    if (is_watched(n)) {
        free(memory);
        return;
    }
#if defined(_WIN32)
    VirtualFree(memory, 0, MEM_RELEASE);
#else
    munmap(memory, n ? n : 1);
#endif
}
