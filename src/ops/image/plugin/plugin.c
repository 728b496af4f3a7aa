/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-in's face: the one symbol that the library looks up. */
#include "ops/image/plugin/decoders.h"

const void *onnxfuse_image_plugin(void);

__attribute__((visibility("default"))) const void *onnxfuse_image_plugin(void) {
    static const ImagePlugin plugin = {
        .abi = IMAGE_PLUGIN_ABI,
        .jpeg = image_decode_jpeg,
        .png = image_decode_png,
        .tiff = image_decode_tiff,
        .webp = image_decode_webp,
        .jpeg2000 = image_decode_jpeg2000,
    };
    return &plugin;
}
