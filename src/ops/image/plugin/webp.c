/* SPDX-License-Identifier: Apache-2.0 */
/* WebP, by libwebp: lossy and lossless, without alpha; of an animation the first picture. */
#include "ops/image/plugin/decoders.h"

#include <webp/decode.h>
#include <webp/demux.h>

static const char *reason_of(VP8StatusCode status) {
    switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY: return "there is not enough memory";
    case VP8_STATUS_BITSTREAM_ERROR: return "its data is damaged";
    case VP8_STATUS_UNSUPPORTED_FEATURE: return "it uses a feature that libwebp does not know";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA: return "it ends too early";
    default: return "it is damaged";
    }
}

/* The canvas with the first frame; what that leaves free is black. */
static bool decode_animation(ImageBytes file, const WebPBitstreamFeatures *features, uint8_t *rows, ImageSink *sink) {
    WebPAnimDecoderOptions options;
    WebPAnimInfo info;
    uint8_t *canvas;
    int time;
    if (!WebPAnimDecoderOptionsInit(&options)) return image_fail(sink, "libwebpdemux is of another version");
    options.color_mode = MODE_RGBA;
    WebPAnimDecoder *decoder = WebPAnimDecoderNew(&(WebPData){file.data, file.size}, &options);
    bool decoded = decoder && WebPAnimDecoderGetInfo(decoder, &info) &&
                   info.canvas_width == (uint32_t)features->width && info.canvas_height == (uint32_t)features->height &&
                   WebPAnimDecoderGetNext(decoder, &canvas, &time);
    if (decoded)
        for (size_t i = 0; i < (size_t)info.canvas_width * info.canvas_height; i++)
            memcpy(rows + 3 * i, canvas + 4 * i, 3);
    WebPAnimDecoderDelete(decoder);
    return decoded ? true : image_fail(sink, "its first frame is damaged");
}

bool image_decode_webp(ImageBytes file, ImageSink *sink) {
    WebPDecoderConfig config;
    if (!WebPInitDecoderConfig(&config)) return image_fail(sink, "libwebp is of another version");
    VP8StatusCode status = WebPGetFeatures(file.data, file.size, &config.input);
    if (status != VP8_STATUS_OK) return image_fail(sink, "%s", reason_of(status));
    uint8_t *rows = sink->rows(sink, config.input.width, config.input.height, 3, 0);
    if (!rows) return false;
    if (config.input.has_animation) return decode_animation(file, &config.input, rows, sink);
    config.output.colorspace = MODE_RGB;
    config.output.is_external_memory = 1;
    config.output.u.RGBA.rgba = rows;
    config.output.u.RGBA.stride = 3 * config.input.width;
    config.output.u.RGBA.size = 3 * (size_t)config.input.width * (size_t)config.input.height;
    status = WebPDecode(file.data, file.size, &config);
    WebPFreeDecBuffer(&config.output);
    return status == VP8_STATUS_OK ? true : image_fail(sink, "%s", reason_of(status));
}
