/* SPDX-License-Identifier: Apache-2.0 */
/* A picture from a file as a tensor: decoded, resized, and laid out as an input's shape asks. */
#ifndef ONNXFUSE_CLI_VALUE_PICTURE_H
#define ONNXFUSE_CLI_VALUE_PICTURE_H

#include "cli/value/npy.h"
#include "cli/value/sizes.h"

/* text: "FILE" or "FILE,KEY=VALUE,..." (picture_help). shape: the input's, -1 where a size is free: a free height and
 * width become the picture's own, or one of them follows the other in proportion; a free number of channels is 3. */
Problem *picture_load(const char *text, OnnxfuseDType dtype, const Shape *shape, Loaded *out_loaded);

/* How a picture's pixels become numbers. */
typedef struct Picture {
    int height, width, channels;
    const uint8_t *pixels; /* [height, width, channels] */
} Picture;

/* The picture in another size; pixels of out_picture are to be freed. */
Problem *picture_resize(const Picture *picture, int height, int width, Picture *out_picture);

extern const char picture_help[];

#endif
