/* What zlib and zstd have written, read in memory of exactly its size: whole, in part, cut and damaged. More of it is read in
   tests/test_codecs_properties.py, beside the libraries. */

#include "check.h"
#include "sb3x.h"
#include "tests.h"

enum { MOST_STREAM = 300 };

/* What each stream decodes to: n bytes of plain_byte(kind, i). */
static const struct {
    const char *name;
    int64_t format, kind, n, length;
    uint8_t bytes[MOST_STREAM];
} streams[] = {
    {"stored", SB3X_READ_ZLIB, 0, 60, 71,
     {120, 1, 1, 60, 0, 195, 255, 0, 6, 4, 2, 0, 7, 5, 3, 1, 7, 6, 4, 2, 0, 7, 5, 3, 1, 7, 6, 4, 2, 0, 6, 5, 3, 1, 7, 6, 4, 2, 0,
      6, 5, 3, 1, 7, 6, 4, 2, 0, 6, 5, 3, 1, 7, 5, 4, 2, 0, 6, 5, 3, 1, 7, 5, 4, 2, 0, 6, 26, 162, 0, 223}},
    {"fixed", SB3X_READ_ZLIB, 1, 80, 18,
     {120, 218, 99, 96, 100, 98, 102, 97, 101, 99, 160, 22, 5, 0, 37, 6, 0, 235}},
    {"dynamic", SB3X_READ_ZLIB, 1, 900, 110,
     {120, 218, 99, 96, 100, 98, 102, 97, 101, 99, 160, 62, 181, 36, 82, 224, 100, 139, 35, 3, 45, 140, 134, 80, 51, 5, 58, 89,
      26, 25, 26, 89, 105, 102, 131, 128, 103, 203, 65, 6, 199, 22, 22, 154, 217, 192, 201, 194, 200, 192, 200, 194, 201,
      76, 51, 27, 128, 225, 127, 176, 197, 83, 128, 137, 102, 54, 0, 195, 159, 165, 83, 96, 38, 35, 237, 108, 112, 108, 57,
      41, 16, 185, 132, 102, 137, 136, 21, 24, 254, 2, 146, 42, 134, 180, 75, 166, 192, 240, 191, 185, 164, 208, 1, 143, 18,
      0, 63, 181, 27, 233}},
    {"several blocks", SB3X_READ_ZLIB, 2, 2500, 270,
     {120, 156, 236, 206, 77, 14, 131, 32, 16, 134, 97, 138, 138, 148, 34, 69, 164, 22, 17, 177, 254, 123, 255, 19, 54, 24, 230,
      0, 174, 220, 184, 252, 38, 79, 222, 12, 122, 224, 36, 205, 72, 78, 159, 236, 197, 11, 241, 150, 165, 170, 244, 167,
      254, 154, 198, 182, 174, 243, 253, 111, 24, 167, 121, 89, 183, 29, 221, 240, 134, 39, 160, 64, 154, 58, 153, 26, 142,
      20, 177, 2, 215, 204, 171, 48, 142, 99, 24, 199, 49, 10, 13, 130, 128, 48, 32, 88, 20, 212, 69, 113, 46, 76, 33, 108,
      33, 204, 33, 236, 33, 44, 33, 140, 245, 53, 255, 252, 1, 0, 0, 255, 255, 99, 147, 226, 99, 18, 227, 146, 19, 96, 145,
      224, 97, 16, 225, 144, 17, 0, 113, 132, 216, 128, 130, 32, 14, 88, 144, 13, 162, 66, 136, 13, 170, 130, 69, 2, 170,
      66, 140, 11, 170, 130, 3, 166, 66, 10, 166, 130, 7, 166, 130, 66, 131, 101, 96, 6, 243, 193, 12, 102, 128, 25, 44, 4,
      51, 152, 5, 102, 176, 24, 7, 141, 221, 195, 195, 203, 199, 47, 32, 40, 36, 44, 34, 42, 38, 46, 33, 41, 37, 45, 35, 43,
      39, 175, 160, 168, 164, 172, 162, 170, 166, 174, 161, 201, 200, 196, 204, 194, 202, 198, 206, 193, 201, 197, 61, 170,
      112, 84, 33, 9, 10, 7, 79, 138, 167, 91, 86, 26, 104, 143, 210, 206, 61, 131, 200, 163, 152, 201, 81, 139, 216, 116,
      75, 180, 66, 0, 9, 166, 175, 62}},
    {"one stream", SB3X_READ_ZSTD, 0, 200, 51,
     {40, 181, 47, 253, 32, 200, 85, 1, 0, 152, 0, 6, 4, 2, 0, 7, 5, 3, 1, 7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 10, 0, 96, 19, 160, 28,
      80, 24, 56, 4, 40, 7, 20, 6, 14, 1, 202, 1, 133, 241, 40, 93}},
    {"four streams", SB3X_READ_ZSTD, 0, 700, 113,
     {40, 181, 47, 253, 96, 188, 1, 61, 3, 0, 52, 3, 0, 6, 4, 2, 0, 7, 5, 3, 1, 7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0, 7,
      6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 3, 2, 1, 0, 7, 6, 5, 4, 2, 0, 6, 5, 3, 1, 34, 32, 224, 215, 138, 40, 119, 48, 69,
      148, 59, 152, 34, 202, 29, 76, 17, 229, 20, 118, 136, 114, 10, 59, 68, 57, 133, 29, 66, 57, 133, 29, 162, 156, 194,
      14, 81, 78, 97, 135, 40, 167, 176, 67, 148, 131, 10, 227, 145, 186}},
    {"matches", SB3X_READ_ZSTD, 1, 2000, 225,
     {40, 181, 47, 253, 96, 208, 6, 189, 6, 0, 18, 10, 36, 35, 160, 21, 234, 231, 30, 224, 124, 159, 39, 206, 121, 158, 56, 231,
      140, 35, 220, 249, 222, 220, 251, 222, 117, 1, 243, 158, 131, 209, 220, 228, 173, 101, 72, 147, 41, 16, 154, 71, 119,
      248, 10, 176, 211, 214, 244, 172, 96, 181, 131, 19, 251, 121, 31, 19, 178, 89, 30, 58, 124, 89, 233, 97, 136, 233,
      217, 128, 76, 197, 78, 236, 247, 112, 17, 131, 54, 203, 0, 49, 186, 129, 244, 48, 81, 65, 12, 33, 83, 113, 224, 54,
      239, 92, 196, 144, 234, 167, 33, 70, 87, 224, 151, 74, 40, 136, 241, 133, 195, 190, 205, 111, 85, 194, 234, 39, 167,
      77, 127, 169, 90, 203, 90, 56, 108, 232, 69, 149, 173, 213, 229, 105, 83, 159, 190, 106, 89, 183, 111, 46, 49, 184,
      16, 192, 14, 26, 0, 0, 18, 55, 48, 113, 3, 19, 55, 48, 113, 3, 19, 55, 48, 113, 3, 19, 55, 48, 113, 3, 19, 55, 48,
      113, 3, 19, 55, 48, 113, 3, 19, 55, 152, 204, 149, 97, 50, 20, 193, 191, 23, 50, 192, 64, 120, 97, 178, 7, 4, 230,
      240, 12, 4, 32, 64, 51, 13, 6, 16, 94, 152, 12, 104, 42, 70}},
    {"fast", SB3X_READ_ZSTD, 1, 1500, 225,
     {40, 181, 47, 253, 96, 220, 4, 189, 6, 0, 36, 10, 0, 1, 2, 3, 4, 5, 6, 164, 89, 16, 201, 132, 65, 0, 6, 0, 1, 2, 3, 4, 5, 6,
      0, 1, 153, 16, 137, 4, 129, 0, 129, 16, 73, 132, 193, 0, 65, 132, 9, 4, 1, 0, 1, 4, 9, 132, 65, 0, 193, 132, 73, 16,
      6, 0, 129, 0, 129, 4, 137, 16, 153, 1, 2, 5, 6, 0, 65, 132, 201, 16, 89, 164, 0, 1, 4, 5, 1, 4, 9, 16, 25, 36, 49, 6,
      0, 3, 4, 132, 73, 16, 217, 164, 113, 64, 5, 6, 2, 3, 137, 16, 153, 36, 177, 64, 209, 4, 5, 1, 2, 16, 89, 164, 241, 64,
      145, 228, 3, 4, 1, 25, 36, 49, 64, 81, 100, 121, 2, 3, 4, 6, 0, 164, 113, 64, 17, 228, 185, 144, 1, 2, 5, 6, 177, 64,
      209, 100, 249, 144, 41, 0, 1, 4, 5, 64, 145, 228, 57, 144, 233, 68, 6, 0, 19, 0, 0, 211, 15, 152, 252, 128, 201, 11,
      152, 60, 129, 201, 15, 152, 252, 128, 201, 15, 152, 252, 128, 201, 15, 76, 190, 204, 215, 100, 0, 38, 136, 153, 6, 45,
      16, 160, 153, 6, 3, 8, 47, 76, 102, 3, 116, 129, 166, 98, 4}},
    {"several blocks", SB3X_READ_ZSTD, 2, 4000, 197,
     {40, 181, 47, 253, 0, 104, 140, 3, 0, 84, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
      22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 14, 0, 20, 8, 28, 16, 4, 24, 12, 0, 18, 6,
      26, 14, 2, 22, 10, 30, 18, 4, 24, 12, 26, 12, 30, 16, 2, 20, 25, 160, 144, 205, 254, 199, 28, 176, 35, 117, 64, 9, 96,
      19, 58, 210, 4, 114, 130, 24, 3, 174, 128, 129, 33, 48, 128, 103, 123, 33, 0, 15, 193, 192, 129, 100, 144, 105, 193,
      170, 157, 2, 172, 0, 0, 8, 41, 6, 192, 195, 5, 244, 215, 19, 41, 11, 166, 106, 128, 113, 74, 222, 138, 108, 234, 157,
      180, 0, 0, 24, 2, 20, 42, 6, 192, 44, 152, 170, 0, 138, 83, 178, 55, 136, 12, 76, 30, 224, 42, 53, 239, 164, 0, 0, 0,
      5, 64, 0, 141, 242, 133, 106, 65, 226, 196, 156, 9, 199, 100, 85, 234, 157, 18, 1, 1, 0, 0}},
    {"same byte", SB3X_READ_ZSTD, 3, 9000, 19,
     {40, 181, 47, 253, 96, 40, 34, 77, 0, 0, 16, 9, 9, 1, 0, 35, 131, 7, 88}},
};

enum { N_STREAMS = sizeof streams / sizeof *streams };

static uint8_t plain_byte(int64_t kind, int64_t i) {
    const int64_t noise = (i * 2654435761 & 0xffffffff) >> 24;
    if (kind == 0) return (uint8_t)(noise & 7);
    if (kind == 1) return (uint8_t)(i % 97 < 90 ? i % 7 : i * i & 255);
    if (kind == 2) return (uint8_t)(i / 600 % 2 ? noise >> 4 << 1 : i % 41 + i / 1200 % 3);
    return 9;
}

/* The first n bytes of a stream. */
static void check_beginning(int which, const uint8_t *data, int64_t n) {
    uint8_t *out = exactly(n);
    CHECK(sb3x_decode(streams[which].format, data, streams[which].length, out, n) == SB3X_OK);
    for (int64_t i = 0; i < n; i++) CHECK(out[i] == plain_byte(streams[which].kind, i));
    free(out);
}

/* A stream that lacks bytes is refused, unless only its checksum and the end of the last block are cut. */
static void check_cut(int which, int64_t n) {
    const int64_t kept = streams[which].length - (streams[which].format == SB3X_READ_ZLIB ? 6 : 1);
    for (int64_t length = 0; length <= kept; length += 1 + length / 40) {
        uint8_t *data = copy_of(streams[which].bytes, length), *out = exactly(n);
        CHECK(sb3x_decode(streams[which].format, data, length, out, n) == SB3X_CORRUPT);
        free(data), free(out);
    }
}

/* Damaged bytes are refused, or give something: never a byte outside. */
static void check_damaged(source *from, int which) {
    uint8_t *data = copy_of(streams[which].bytes, streams[which].length);
    for (int64_t damages = 1 + below(from, 3); damages > 0; damages--) set_byte(from, data, streams[which].length, 256);
    int64_t n = below(from, streams[which].n + 20);
    uint8_t *out = exactly(n);
    (void)sb3x_decode(streams[which].format, data, streams[which].length, out, n);
    free(data), free(out);
}

void test_formats(int64_t rounds) {
    for (int which = 0; which < N_STREAMS; which++) {
        snprintf(check_context, sizeof check_context, "stream %d, %s", which, streams[which].name);
        uint8_t *data = copy_of(streams[which].bytes, streams[which].length), *more = exactly(streams[which].n + 1);
        source from = source_of_seed((uint64_t)which);
        check_beginning(which, data, streams[which].n);
        for (int64_t n = 0; n < 60; n++) check_beginning(which, data, n);
        for (int64_t i = 0; i < 40 * rounds; i++) check_beginning(which, data, below(&from, streams[which].n));
        CHECK(sb3x_decode(streams[which].format, data, streams[which].length, more, streams[which].n + 1) == SB3X_CORRUPT);
        check_cut(which, streams[which].n);
        for (int64_t i = 0; i < 2000 * rounds; i++) check_damaged(&from, which);
        free(data), free(more);
    }
    CHECK(sb3x_decode(SB3X_READ_BY_CALLER, NULL, 0, NULL, 0) == SB3X_BAD_ARGUMENT);
    CHECK(sb3x_decode(SB3X_READ_ZSTD + 1, NULL, 0, NULL, 0) == SB3X_BAD_ARGUMENT);
}
