/* SPDX-License-Identifier: Apache-2.0 */
/* Picture files of any format that ONNX ImageDecoder names: bytes in, rows of 8-bit pixels out. */
#ifndef ONNXFUSE_OPS_IMAGE_IMAGE_FILE_H
#define ONNXFUSE_OPS_IMAGE_IMAGE_FILE_H

#include "base/status.h"
#include "ops/image/image_plugin.h"

/* Neither more pixels than this has a picture, ... */
#define IMAGE_MOST_PIXELS ((int64_t)1 << 28)
/* ... nor, beyond IMAGE_FREE_PIXELS, more than IMAGE_MOST_A_BYTE for each byte of its file: some formats write a plain
 * surface of any size in a few bytes, and such a file is to claim no gigabytes. */
#define IMAGE_FREE_PIXELS ((int64_t)1 << 24)
#define IMAGE_MOST_A_BYTE ((int64_t)1 << 14)

typedef enum PixelFormat { PIXELS_RGB, PIXELS_BGR, PIXELS_GREY } PixelFormat;
/* By ONNX's names: RGB, BGR, Grayscale. */
bool pixel_format_named(const char *name, PixelFormat *out_format);
static inline int pixel_format_channels(PixelFormat format) { return format == PIXELS_GREY ? 1 : 3; }

typedef struct Pixels {
    int64_t width, height;
    int channels;  /* 1: grey; 3: red, green, blue */
    uint8_t *data; /* [height][width][channels], from base/heap.h */
} Pixels;

/* STATUS_INVALID says why the bytes hold no picture; STATUS_FAULT, that a plug-in or memory is missing. */
Status image_read(ImageBytes file, Pixels *out_pixels);
void pixels_free(Pixels *pixels);
/* Into to[height][width][channels of the format]. */
void pixels_convert(const Pixels *from, PixelFormat format, uint8_t *to);

/* The same with a sink of the caller's. */
Status image_decode(ImageBytes file, ImageSink *sink);

/* The formats that need no library: image_bmp.c, image_pnm.c. */
bool image_decode_bmp(ImageBytes file, ImageSink *sink);
bool image_decode_pnm(ImageBytes file, ImageSink *sink);

#endif
