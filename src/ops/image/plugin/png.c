/* SPDX-License-Identifier: Apache-2.0 */
/* PNG, by libpng: 8 bits a sample (of 16 the high byte), palettes resolved, without alpha and without gamma. */
#include "ops/image/plugin/decoders.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>

typedef struct Png {
    ImageBytes file;
    size_t at;
    ImageSink *sink;
} Png;

static void give_up(png_structp png, png_const_charp message) {
    Png *p = png_get_error_ptr(png);
    image_fail(p->sink, "%s", message);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp message) {
    (void)png;
    (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t size) {
    Png *p = png_get_io_ptr(png);
    if (size > p->file.size - p->at) png_error(png, "it ends too early");
    memcpy(to, p->file.data + p->at, size);
    p->at += size;
}

static bool decode(Png *p, png_structp png, png_infop info) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_set_read_fn(png, p, read_bytes);
    png_set_user_limits(png, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* the sink's limit is one of pixels */
    png_read_info(png, info);
    int64_t width = png_get_image_width(png, info), height = png_get_image_height(png, info);
    int64_t bits = png_get_bit_depth(png, info) * png_get_channels(png, info);
    bool grey = !(png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR);
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    int passes = png_set_interlace_handling(png);
    size_t row = (size_t)width * (grey ? 1 : 3);
    uint8_t *rows = p->sink->rows(p->sink, width, height, grey ? 1 : 3, (8 * MOST_INFLATED + bits - 1) / bits);
    if (!rows) return false;
    png_read_update_info(png, info); /* takes memory for rows */
    if (png_get_rowbytes(png, info) != row) png_error(png, "its rows are of an unknown form");
    for (int pass = 0; pass < passes; pass++)
        for (int64_t y = 0; y < height; y++) png_read_row(png, rows + (size_t)y * row, NULL);
    png_read_end(png, NULL);
    return true;
}

bool image_decode_png(ImageBytes file, ImageSink *sink) {
    Png p = {.file = file, .sink = sink};
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p, give_up, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    bool decoded = info ? decode(&p, png, info) : image_fail(sink, "there is not enough memory");
    png_destroy_read_struct(&png, &info, NULL);
    return decoded;
}
