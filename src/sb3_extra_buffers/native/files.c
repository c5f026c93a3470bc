/* Chunks in a file: what is not in use need not be resident, and there may be more of it than the machine has memory.

   They are written through a mapping, like chunks in memory. Batches are read by system calls: a page that is not mapped costs
   as much as reading a whole observation, and pages that are mapped count as memory of the process. */

#define _GNU_SOURCE /* for posix_fallocate and madvise */
#define _DARWIN_C_SOURCE

#include <errno.h>
#include <string.h>

#include "internal.h"

#if defined(_WIN32)
#include <windows.h>
#else
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

/* A child has the files of its parent mapped too, and must not write to them. */
static _Atomic int32_t forks = 0;

void note_fork(void) { forks++; }

struct block_file {
#if defined(_WIN32)
    HANDLE handle;
#else
    int descriptor;
#endif
    char *path;
    int32_t forks; /* of the process that made it */
};

int is_forked(const block_file *file) { return file->forks != forks; }

#if defined(_WIN32)

static int open_new(block_file *file) {
    int n = MultiByteToWideChar(CP_UTF8, 0, file->path, -1, NULL, 0);
    wchar_t *wide = n > 0 ? sb3x_allocate((size_t)n * sizeof(wchar_t)) : NULL;
    if (!wide) return 0;
    MultiByteToWideChar(CP_UTF8, 0, file->path, -1, wide, n);
    file->handle = CreateFileW(wide, GENERIC_READ | GENERIC_WRITE | DELETE, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, CREATE_NEW,
                               FILE_FLAG_RANDOM_ACCESS | FILE_FLAG_DELETE_ON_CLOSE, NULL);
    sb3x_release(wide);
    return file->handle != INVALID_HANDLE_VALUE;
}

static void close_file(block_file *file) { CloseHandle(file->handle); }

void *map_file(block_file *file, int64_t begin, int64_t n, int *is_full) {
    const uint64_t end = (uint64_t)(begin + n);
    HANDLE mapping = CreateFileMappingW(file->handle, NULL, PAGE_READWRITE, (DWORD)(end >> 32), (DWORD)end, NULL);
    void *memory = NULL;
    if (mapping) memory = MapViewOfFile(mapping, FILE_MAP_ALL_ACCESS, (DWORD)((uint64_t)begin >> 32), (DWORD)begin, (size_t)n);
    if (mapping) CloseHandle(mapping);
    *is_full = !memory;
    return memory;
}

void unmap_file(block_file *file, void *memory, int64_t begin, int64_t n) {
    (void)file, (void)begin, (void)n;
    if (memory) UnmapViewOfFile(memory);
}

int read_file(const block_file *file, int64_t begin, uint8_t *out, int64_t n) {
    while (n > 0) {
        OVERLAPPED place = {0};
        place.Offset = (DWORD)begin;
        place.OffsetHigh = (DWORD)((uint64_t)begin >> 32);
        DWORD done = 0, wanted = n < (1 << 30) ? (DWORD)n : (DWORD)1 << 30;
        if (!ReadFile(file->handle, out, wanted, &done, &place) || done == 0) return 0;
        begin += done, out += done, n -= done;
    }
    return 1;
}

void forget_pages(void *memory, int64_t n) { VirtualUnlock(memory, (size_t)n); /* out of the working set */ }

#else

static int open_new(block_file *file) {
    file->descriptor = open(file->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return file->descriptor >= 0;
}

static void close_file(block_file *file) {
    close(file->descriptor);
    if (!is_forked(file)) unlink(file->path);
}

/* Have the disk's blocks, so that no write to the mapping can find it full. */
static int allocate_room(const block_file *file, int64_t begin, int64_t n) {
#if defined(__linux__)
    int status;
    do status = posix_fallocate(file->descriptor, (off_t)begin, (off_t)n);
    while (status == EINTR);
    return status == 0;
#else
    static const char zeros[1 << 16];
    while (n > 0) {
        ssize_t done = pwrite(file->descriptor, zeros, n < (int64_t)sizeof zeros ? (size_t)n : sizeof zeros, (off_t)begin);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        begin += done, n -= done;
    }
    return 1;
#endif
}

/* Give the disk's blocks back, where the system can do that. */
static void free_room(const block_file *file, int64_t begin, int64_t n) {
#if defined(FALLOC_FL_PUNCH_HOLE)
    if (fallocate(file->descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin, (off_t)n) != 0) return;
#else
    (void)file, (void)begin, (void)n;
#endif
}

void *map_file(block_file *file, int64_t begin, int64_t n, int *is_full) {
    *is_full = !allocate_room(file, begin, n);
    if (*is_full) {
        free_room(file, begin, n); /* what there was of it */
        return NULL;
    }
    void *memory = mmap(NULL, (size_t)n, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, (off_t)begin);
    return memory == MAP_FAILED ? NULL : memory;
}

void unmap_file(block_file *file, void *memory, int64_t begin, int64_t n) {
    if (!memory) return;
    munmap(memory, (size_t)n);
    if (!is_forked(file)) free_room(file, begin, n);
}

int read_file(const block_file *file, int64_t begin, uint8_t *out, int64_t n) {
    while (n > 0) {
        ssize_t done = pread(file->descriptor, out, (size_t)n, (off_t)begin);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return 0;
        begin += done, out += done, n -= done;
    }
    return 1;
}

/* The pages stay in the file, and in the system's cache of it as long as that has room. */
void forget_pages(void *memory, int64_t n) { madvise(memory, (size_t)n, MADV_DONTNEED); }

#endif

block_file *new_file(const char *path) {
    block_file *file = sb3x_allocate_zeros(sizeof(block_file));
    size_t n = strlen(path) + 1;
    if (!file) return NULL;
    file->forks = forks;
    file->path = sb3x_allocate(n);
    if (file->path) memcpy(file->path, path, n);
    if (file->path && open_new(file)) return file;
    sb3x_release(file->path);
    sb3x_release(file);
    return NULL;
}

void remove_file(block_file *file) {
    if (!file) return;
    close_file(file);
    sb3x_release(file->path);
    sb3x_release(file);
}
