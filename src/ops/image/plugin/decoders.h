/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in's decoders, one a library; what a header must tell is in ops/image/image_plugin.h. */
#ifndef ONNXFUSE_OPS_IMAGE_PLUGIN_DECODERS_H
#define ONNXFUSE_OPS_IMAGE_PLUGIN_DECODERS_H

#include "ops/image/image_plugin.h"

/* Most bytes that a byte of DEFLATE data gives: 258 for two codes of one bit each. */
enum { MOST_INFLATED = 1032 };

bool image_decode_jpeg(ImageBytes file, ImageSink *sink);
bool image_decode_png(ImageBytes file, ImageSink *sink);
bool image_decode_tiff(ImageBytes file, ImageSink *sink);
bool image_decode_webp(ImageBytes file, ImageSink *sink);
bool image_decode_jpeg2000(ImageBytes file, ImageSink *sink);

/* a * b / 255, rounded. */
static inline uint8_t times(unsigned a, unsigned b) {
    unsigned product = a * b + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

/* Ink to light, without a colour profile: what is not black is 255 - black, of which each ink takes its share. Pillow's
 * formula. */
static inline void rgb_of_cmyk(uint8_t *rgb, const uint8_t *inks, unsigned black) {
    unsigned light = 255 - black;
    for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)(light - times(inks[c], light));
}

#endif
