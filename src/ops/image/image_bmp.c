/* SPDX-License-Identifier: Apache-2.0 */
/* Windows and OS/2 bitmaps: palettes of 1, 2, 4 and 8 bits, plain or run-length encoded; 16, 24 and 32 bits, with masks
 * or without (Microsoft, "Bitmap Header Types"; BITMAPCOREHEADER to BITMAPV5HEADER). */
#include "ops/image/image_file.h"

typedef enum Compression { BMP_RGB, BMP_RLE8, BMP_RLE4, BMP_MASKS, BMP_ALPHA_MASKS = 6 } Compression;

typedef struct Bmp {
    ImageBytes file;
    int64_t width, height;
    bool top_down;
    int bits; /* of a pixel */
    uint32_t compression;
    size_t palette, entry; /* where it is; bytes of a colour */
    uint32_t colours;      /* in it */
    uint32_t masks[3];     /* of red, green, blue in pixels of 16 and 32 bits */
    size_t pixels;         /* where they are */
} Bmp;

static uint32_t little(ImageBytes f, size_t at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)f.data[at + (size_t)i] << 8 * i;
    return value;
}

static bool read_masks(Bmp *b, size_t header, ImageSink *sink) {
    static const uint32_t plain[][3] = {{0x7C00, 0x3E0, 0x1F}, {0xFF0000, 0xFF00, 0xFF}};
    memcpy(b->masks, plain[b->bits == 32], sizeof b->masks);
    if (b->compression != BMP_MASKS && b->compression != BMP_ALPHA_MASKS) return true;
    /* After a header of 40 bytes, inside of a longer one: the same place. */
    if (b->file.size < 66) return image_fail(sink, "it ends in its bit masks");
    if (header == 40) b->palette += 12;
    for (int c = 0; c < 3; c++) {
        b->masks[c] = little(b->file, 54 + 4 * (size_t)c, 4);
        uint32_t low = b->masks[c] & -b->masks[c], carried = b->masks[c] + low;
        if ((carried & b->masks[c]) != 0 || (b->bits == 16 && b->masks[c] > 0xFFFF))
            return image_fail(sink, "the bit mask 0x%08x is none of neighbouring bits", b->masks[c]);
    }
    return true;
}

static bool read_header(Bmp *b, ImageSink *sink) {
    ImageBytes f = b->file;
    if (f.size < 26) return image_fail(sink, "it ends in its header");
    size_t header = little(f, 14, 4);
    bool core = header == 12, os2 = header == 64;
    if (!core && header < 40) return image_fail(sink, "its header of %zu bytes is of no known kind", header);
    if (header > f.size - 14) return image_fail(sink, "it ends in its header");
    b->pixels = little(f, 10, 4);
    b->width = core ? (int64_t)little(f, 18, 2) : (int32_t)little(f, 18, 4);
    b->height = core ? (int64_t)little(f, 20, 2) : (int32_t)little(f, 22, 4);
    b->top_down = b->height < 0;
    if (b->top_down) b->height = -b->height;
    b->bits = (int)little(f, core ? 24 : 28, 2);
    b->compression = core ? BMP_RGB : little(f, 30, 4);
    b->colours = core ? 0 : little(f, 46, 4);
    b->palette = 14 + header;
    b->entry = core ? 3 : 4;
    bool indexed = b->bits == 1 || b->bits == 2 || b->bits == 4 || b->bits == 8;
    if (!indexed && b->bits != 16 && b->bits != 24 && b->bits != 32)
        return image_fail(sink, "pixels of %d bits are of no known kind", b->bits);
    bool fits = b->compression == BMP_RGB || (b->compression == BMP_RLE8 && b->bits == 8) ||
                (b->compression == BMP_RLE4 && b->bits == 4) ||
                ((b->compression == BMP_MASKS || b->compression == BMP_ALPHA_MASKS) &&
                 (b->bits == 16 || b->bits == 32) && !os2);
    if (!fits) return image_fail(sink, "compression %u of %d-bit pixels is not supported", b->compression, b->bits);
    if (!read_masks(b, header, sink)) return false;
    if (b->pixels > f.size) return image_fail(sink, "its pixels would begin after its end");
    if (!indexed) return true;
    if (b->colours == 0 || b->colours > 1u << b->bits) b->colours = 1u << b->bits;
    if (b->palette > f.size) return image_fail(sink, "it ends before its palette");
    if (b->colours > (f.size - b->palette) / b->entry) b->colours = (uint32_t)((f.size - b->palette) / b->entry);
    return true;
}

static bool put_colour(const Bmp *b, uint32_t number, uint8_t *to, ImageSink *sink) {
    if (number >= b->colours) return image_fail(sink, "a pixel has colour %u of a palette of %u", number, b->colours);
    const uint8_t *entry = b->file.data + b->palette + number * b->entry;
    for (int c = 0; c < 3; c++) to[c] = entry[2 - c];
    return true;
}

/* ---- rows as they are ---- */

/* The bits under the mask, spread to 0..255. */
static uint8_t masked(uint32_t pixel, uint32_t mask) {
    if (!mask) return 0;
    uint32_t low = mask & -mask;
    return (uint8_t)((uint64_t)((pixel & mask) / low) * 255 / (mask / low));
}

static bool put_pixel(const Bmp *b, size_t row, int64_t x, uint8_t *to, ImageSink *sink) {
    const uint8_t *bytes = b->file.data + row;
    if (b->bits <= 8) {
        int64_t bit = x * b->bits;
        uint32_t number = bytes[bit / 8] >> (8 - b->bits - (int)(bit % 8)) & ((1u << b->bits) - 1);
        return put_colour(b, number, to, sink);
    }
    uint32_t pixel = little(b->file, row + (size_t)x * (size_t)(b->bits / 8), b->bits / 8);
    for (int c = 0; c < 3; c++) to[c] = b->bits == 24 ? (uint8_t)(pixel >> (16 - 8 * c)) : masked(pixel, b->masks[c]);
    return true;
}

static bool decode_plain(const Bmp *b, ImageSink *sink) {
    if (b->width < 1 || b->height < 1 || b->width > IMAGE_MOST_PIXELS || b->height > IMAGE_MOST_PIXELS)
        return sink->rows(sink, b->width, b->height, 3, 0) != NULL; /* which refuses it */
    int64_t stride = (b->width * b->bits + 31) / 32 * 4, left = (int64_t)(b->file.size - b->pixels);
    if (b->height > left / stride)
        return image_fail(sink, "its %lld x %lld pixels need more than the %lld bytes that are left",
                          (long long)b->width, (long long)b->height, (long long)left);
    uint8_t *to = sink->rows(sink, b->width, b->height, 3, 8);
    if (!to) return false;
    for (int64_t y = 0; y < b->height; y++) {
        size_t row = b->pixels + (size_t)(stride * (b->top_down ? y : b->height - 1 - y));
        for (int64_t x = 0; x < b->width; x++, to += 3)
            if (!put_pixel(b, row, x, to, sink)) return false;
    }
    return true;
}

/* ---- runs ---- */

/* Where the next pixel goes; what no run reaches has colour 0. */
typedef struct Pen {
    uint8_t *rows;
    int64_t x, y; /* y: as stored, the lowest row first unless top_down */
} Pen;

/* Pixels beyond the end of a row are left out, as Pillow leaves them out: encoders write runs of even length. */
static bool put_next(const Bmp *b, Pen *pen, uint32_t number, ImageSink *sink) {
    if (pen->y >= b->height) return image_fail(sink, "a run goes beyond its last row");
    if (pen->x >= b->width) return true;
    int64_t y = b->top_down ? pen->y : b->height - 1 - pen->y;
    return put_colour(b, number, pen->rows + 3 * (y * b->width + pen->x++), sink);
}

static bool put_run(const Bmp *b, Pen *pen, size_t at, bool literal, int count, ImageSink *sink) {
    for (int i = 0; i < count; i++) {
        uint8_t byte = b->file.data[at + (literal ? (size_t)(b->bits == 4 ? i / 2 : i) : 0)];
        uint32_t number = b->bits == 8 ? byte : i % 2 ? byte & 15u : byte >> 4;
        if (!put_next(b, pen, number, sink)) return false;
    }
    return true;
}

static bool decode_runs(const Bmp *b, ImageSink *sink) {
    uint8_t *rows = sink->rows(sink, b->width, b->height, 3, 0), background[3];
    if (!rows || !put_colour(b, 0, background, sink)) return false;
    for (int64_t i = 0; i < b->width * b->height; i++) memcpy(rows + 3 * i, background, 3);
    Pen pen = {rows, 0, 0};
    ImageBytes f = b->file;
    for (size_t at = b->pixels; f.size - at >= 2;) {
        int count = f.data[at], code = f.data[at + 1];
        at += 2;
        if (count) { /* one byte, repeated */
            if (!put_run(b, &pen, at - 1, false, count, sink)) return false;
        } else if (code == 0) { /* end of row */
            pen.x = 0;
            pen.y++;
        } else if (code == 1) {
            return true;
        } else if (code == 2) { /* a step */
            if (f.size - at < 2) break;
            pen.x += f.data[at];
            pen.y += f.data[at + 1];
            at += 2;
            if (pen.x > b->width || pen.y >= b->height) return image_fail(sink, "a step leads out of the picture");
        } else { /* bytes as they are, an even number of them */
            size_t bytes = b->bits == 8 ? (size_t)code : (size_t)(code + 1) / 2;
            if (f.size - at < bytes) break;
            if (!put_run(b, &pen, at, true, code, sink)) return false;
            at += bytes;
            if (bytes % 2 && at < f.size) at++;
        }
    }
    if (pen.y >= b->height || (pen.y == b->height - 1 && pen.x >= b->width)) return true;
    return image_fail(sink, "it ends in row %lld of %lld", (long long)pen.y, (long long)b->height);
}

bool image_decode_bmp(ImageBytes file, ImageSink *sink) {
    Bmp b = {.file = file};
    if (!read_header(&b, sink)) return false;
    return b.compression == BMP_RLE8 || b.compression == BMP_RLE4 ? decode_runs(&b, sink) : decode_plain(&b, sink);
}
