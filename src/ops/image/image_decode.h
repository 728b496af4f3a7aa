/* Decoders of image files: bytes -> rows of 8-bit grey or RGB. Every input may be hostile: a decoder returns false for
 * what it cannot read, and never reads outside the bytes. */
#ifndef ONNXFUSE_OPS_IMAGE_IMAGE_DECODE_H
#define ONNXFUSE_OPS_IMAGE_IMAGE_DECODE_H

#include <stdbool.h>
#include <stdint.h>
#include "base/arena.h"

typedef struct Bytes {
    const uint8_t *data;
    size_t size;
} Bytes;

typedef struct Pixels {
    int64_t width, height;
    int channels;  /* 1: grey, 3: red, green, blue */
    uint8_t *data; /* [height][width][channels] */
} Pixels;

enum { MOST_PIXELS = 1 << 28 };

typedef bool (*DecodeFn)(Arena *arena, Bytes file, Pixels *out);
bool decode_bmp(Arena *arena, Bytes file, Pixels *out);
bool decode_pnm(Arena *arena, Bytes file, Pixels *out);
bool decode_tiff(Arena *arena, Bytes file, Pixels *out);
bool decode_png(Arena *arena, Bytes file, Pixels *out);
bool decode_jpeg(Arena *arena, Bytes file, Pixels *out);

/* Sets the sizes and takes memory for the rows; false when a size is out of range, or when the image has more than
 * `most` pixels for each byte of the file, which no such file holds: a few bytes must not claim gigabytes. */
bool pixels_new(Arena *arena, int64_t width, int64_t height, int channels, Bytes file, int64_t most, Pixels *out);
enum { INFLATED = 1032 }; /* most bytes that a byte of DEFLATE data gives */
/* The DEFLATE data of a zlib stream (RFC 1950, 1951); false unless it gives at least `size` bytes. */
bool inflate_zlib(Bytes from, uint8_t *to, size_t size);

#endif
