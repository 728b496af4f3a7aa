/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a picture: the decoders of the plug-in, linked in, and those of the library. What is decoded is read to
 * its last byte. */
#include "ops/image/image_file.h"

#include <stdlib.h>
#include "ops/image/plugin/decoders.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_PIXELS = 1 << 18, MOST_SIZE = 1 << 16, LEAST_SIZE = 12 /* of the magic */ };

typedef struct Rows {
    ImageSink sink;
    uint8_t *data;
    size_t size;
} Rows;

static uint8_t *take_rows(ImageSink *sink, int64_t width, int64_t height, int channels, int64_t most_a_byte) {
    Rows *r = (Rows *)sink;
    (void)most_a_byte;
    if (r->data || (channels != 1 && channels != 3)) abort(); /* asked once, for what may be asked for */
    if (width < 1 || height < 1 || width > MOST_PIXELS / height) {
        image_fail(sink, "too large");
        return NULL;
    }
    r->size = (size_t)(width * height) * (size_t)channels;
    r->data = malloc(r->size);
    return r->data;
}

static ImageDecodeFn decoder_of(const uint8_t *data) {
    switch (data[0]) {
    case 0xFF: return data[1] == 0x4F ? image_decode_jpeg2000 : image_decode_jpeg;
    case 0x89: return image_decode_png;
    case 'I':
    case 'M': return image_decode_tiff;
    case 'R': return image_decode_webp;
    case 0: return image_decode_jpeg2000;
    case 'B': return image_decode_bmp;
    case 'P': return data[1] >= '1' && data[1] <= '6' ? image_decode_pnm : NULL;
    default: return NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    ImageDecodeFn decode = size < LEAST_SIZE || size > MOST_SIZE ? NULL : decoder_of(data);
    Rows rows = {.sink.rows = take_rows};
    if (!decode) return 0;
    bool decoded = decode((ImageBytes){data, size}, &rows.sink);
    if (decoded == (rows.sink.reason[0] != 0) || (decoded && !rows.data)) abort(); /* a reason or a picture */
    volatile uint8_t sum = 0;
    for (size_t i = 0; decoded && i < rows.size; i++) sum = (uint8_t)(sum + rows.data[i]);
    free(rows.data);
    return 0;
}
