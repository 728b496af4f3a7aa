/* SPDX-License-Identifier: Apache-2.0 */
/* What the plug-in libonnxfuse-image.so offers to the library: decoders of picture formats, on the libraries of these.
 * Nothing of either side's memory passes between them but what is told here. Bump IMAGE_PLUGIN_ABI with any change. */
#ifndef ONNXFUSE_OPS_IMAGE_IMAGE_PLUGIN_H
#define ONNXFUSE_OPS_IMAGE_IMAGE_PLUGIN_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define IMAGE_PLUGIN_ABI 1
#define IMAGE_PLUGIN_FILE "libonnxfuse-image.so"
#define IMAGE_PLUGIN_ENTRY "onnxfuse_image_plugin"

typedef struct ImageBytes {
    const uint8_t *data;
    size_t size;
} ImageBytes;

/* Where a decoder puts what it finds. */
typedef struct ImageSink ImageSink;
struct ImageSink {
    /* Called once, when the header has told the size and before the decoder takes memory that grows with it. Returns
     * memory for [height][width][channels] bytes, not zeroed, or NULL with a reason: the decoder gives up. channels: 1
     * (grey) or 3 (red, green, blue). most_a_byte: the most pixels that a byte of such a file can hold, 0 when the
     * format has no such limit. */
    uint8_t *(*rows)(ImageSink *sink, int64_t width, int64_t height, int channels, int64_t most_a_byte);
    char reason[256]; /* why there is no picture, for people; "" at first */
};

/* False with the reason when there is no whole picture in the bytes. Every input may be hostile. Safe to call from
 * several threads at once. */
typedef bool (*ImageDecodeFn)(ImageBytes file, ImageSink *sink);

typedef struct ImagePlugin {
    int abi; /* IMAGE_PLUGIN_ABI of its build; the first member (base/plugin.h) */
    ImageDecodeFn jpeg, png, tiff, webp, jpeg2000;
} ImagePlugin;

/* Notes why and returns false; the first reason stays. A message of a library is one line, without its full stop. */
static inline bool image_fail(ImageSink *sink, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool image_fail(ImageSink *sink, const char *format, ...) {
    if (sink->reason[0]) return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sink->reason, sizeof sink->reason, format, arguments);
    va_end(arguments);
    size_t size = strlen(sink->reason);
    while (size && (sink->reason[size - 1] == '\n' || sink->reason[size - 1] == '.')) sink->reason[--size] = 0;
    for (char *c = sink->reason; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7F) *c = ' ';
    return false;
}

#endif
