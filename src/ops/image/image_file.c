/* SPDX-License-Identifier: Apache-2.0 */
/* Which format a file has, whether what it claims can be, and its pixels in the order that is asked for. */
#include "ops/image/image_file.h"

#include "base/heap.h"
#include "base/plugin.h"

static Plugin plugin = {
    .file = IMAGE_PLUGIN_FILE,
    .entry = IMAGE_PLUGIN_ENTRY,
    .package = "libonnxfuse-image",
    .without = "it cannot be decoded",
    .abi = IMAGE_PLUGIN_ABI,
};

static const struct {
    const char *name, *magic;
    size_t at, size;      /* of magic in the file */
    ImageDecodeFn decode; /* NULL: a member of the plug-in's table, ... */
    size_t member;        /* ... at this offset */
} formats[] = {
    {"JPEG", "\xFF\xD8\xFF", 0, 3, NULL, offsetof(ImagePlugin, jpeg)},
    {"PNG", "\x89PNG\r\n\x1A\n", 0, 8, NULL, offsetof(ImagePlugin, png)},
    {"TIFF", "II*\0", 0, 4, NULL, offsetof(ImagePlugin, tiff)},
    {"TIFF", "MM\0*", 0, 4, NULL, offsetof(ImagePlugin, tiff)},
    {"TIFF", "II+\0", 0, 4, NULL, offsetof(ImagePlugin, tiff)}, /* of 64-bit offsets */
    {"TIFF", "MM\0+", 0, 4, NULL, offsetof(ImagePlugin, tiff)},
    {"WebP", "WEBP", 8, 4, NULL, offsetof(ImagePlugin, webp)},
    {"JPEG 2000", "\0\0\0\x0CjP  \r\n\x87\n", 0, 12, NULL, offsetof(ImagePlugin, jpeg2000)},
    {"JPEG 2000", "\xFF\x4F\xFF\x51", 0, 4, NULL, offsetof(ImagePlugin, jpeg2000)},
    {"BMP", "BM", 0, 2, image_decode_bmp, 0},
    {"PNM", "P1", 0, 2, image_decode_pnm, 0},
    {"PNM", "P2", 0, 2, image_decode_pnm, 0},
    {"PNM", "P3", 0, 2, image_decode_pnm, 0},
    {"PNM", "P4", 0, 2, image_decode_pnm, 0},
    {"PNM", "P5", 0, 2, image_decode_pnm, 0},
    {"PNM", "P6", 0, 2, image_decode_pnm, 0},
};

Status image_decode(ImageBytes file, ImageSink *sink) {
    sink->reason[0] = 0;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (file.size < formats[i].at + formats[i].size ||
            memcmp(file.data + formats[i].at, formats[i].magic, formats[i].size) != 0)
            continue;
        ImageDecodeFn decode = formats[i].decode;
        if (!decode) {
            const void *table;
            TRY(status_at(plugin_open(&plugin, &table), "a %s picture", formats[i].name));
            memcpy(&decode, (const char *)table + formats[i].member, sizeof decode);
        }
        if (decode(file, sink)) return NULL;
        return status_error(STATUS_INVALID, "a %s picture that cannot be decoded: %s", formats[i].name,
                            sink->reason[0] ? sink->reason : "it is damaged");
    }
    return status_error(STATUS_INVALID,
                        "%zu bytes that are no picture: neither JPEG, PNG, TIFF, WebP, JPEG 2000, BMP nor PNM",
                        file.size);
}

/* ---- pixels in memory ---- */

typedef struct Reading {
    ImageSink sink; /* first: the decoder hands it back */
    ImageBytes file;
    Pixels pixels;
    bool no_room;
} Reading;

static size_t pixels_bytes(const Pixels *pixels) {
    return (size_t)(pixels->width * pixels->height) * (size_t)pixels->channels;
}

static uint8_t *take_rows(ImageSink *sink, int64_t width, int64_t height, int channels, int64_t most_a_byte) {
    Reading *r = (Reading *)sink;
    if (width < 1 || height < 1) {
        image_fail(sink, "it claims to have %lld x %lld pixels", (long long)width, (long long)height);
        return NULL;
    }
    if (width > IMAGE_MOST_PIXELS / height) {
        image_fail(sink, "it claims to have %lld x %lld pixels, more than the limit of %lld", (long long)width,
                   (long long)height, (long long)IMAGE_MOST_PIXELS);
        return NULL;
    }
    int64_t pixels = width * height, free_pixels = most_a_byte ? 0 : IMAGE_FREE_PIXELS;
    if (!most_a_byte) most_a_byte = IMAGE_MOST_A_BYTE;
    if (pixels > free_pixels && pixels / most_a_byte > (int64_t)r->file.size) {
        image_fail(sink, "it claims to have %lld x %lld pixels, more than its %zu bytes can hold", (long long)width,
                   (long long)height, r->file.size);
        return NULL;
    }
    r->pixels = (Pixels){width, height, channels, NULL};
    r->pixels.data = heap_alloc(pixels_bytes(&r->pixels));
    r->no_room = !r->pixels.data;
    if (r->no_room) image_fail(sink, "there is not enough memory");
    return r->pixels.data;
}

Status image_read(ImageBytes file, Pixels *out_pixels) {
    Reading reading = {.sink.rows = take_rows, .file = file};
    Status status = image_decode(file, &reading.sink);
    if (!status) {
        *out_pixels = reading.pixels;
        return NULL;
    }
    pixels_free(&reading.pixels);
    if (!reading.no_room) return status;
    status_free(status);
    return status_out_of_memory();
}

void pixels_free(Pixels *pixels) {
    heap_free(pixels->data, pixels_bytes(pixels));
    pixels->data = NULL;
}

bool pixel_format_named(const char *name, PixelFormat *out_format) {
    static const char *const names[] = {"RGB", "BGR", "Grayscale"}; /* in the order of PixelFormat */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) != 0) continue;
        *out_format = (PixelFormat)i;
        return true;
    }
    return false;
}

/* Luma of ITU-R BT.601 in 16-bit fractions, rounded: what Pillow, the reference's decoder, computes. */
static uint8_t luma(const uint8_t *rgb) {
    return (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16);
}

void pixels_convert(const Pixels *from, PixelFormat format, uint8_t *to) {
    int64_t count = from->width * from->height;
    int channels = pixel_format_channels(format);
    if (channels == from->channels && format != PIXELS_BGR) {
        memcpy(to, from->data, pixels_bytes(from));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *p = from->data + i * from->channels;
        if (channels == 1)
            to[i] = luma(p);
        else
            for (int c = 0; c < 3; c++) to[3 * i + c] = from->channels == 1 ? p[0] : p[2 - c];
    }
}
