/* SPDX-License-Identifier: Apache-2.0 */
/* ImageDecoder. */
#include "lowering/sizes.h"
#include "ops/image/image.h"
#include "ops/image/image_file.h"

static void free_pixels(void *pixels) { pixels_free(pixels); }

/* What cannot be decoded is an error that says why. The standard's text lets it be an empty picture, with which a model
 * goes on as if nothing had happened. */
Status host_image_decoder(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    PixelFormat format = PIXELS_RGB;
    TRY(host_tensor(call, 0, DT_U8, &x));
    if (!pixel_format_named(attr_string(call->node, "pixel_format", "RGB"), &format))
        return host_error(call, "its pixel_format is not known");
    Pixels *pixels = ARENA_NEW(call->arena, Pixels);
    arena_defer(call->arena, free_pixels, pixels);
    Status status = image_read((ImageBytes){x->data, (size_t)tensor_count(x)}, pixels);
    if (status) return status_at(status, "node \"%s\" (%s)", node_origin_name(call->node), call->node->op);
    int64_t dims[] = {pixels->height, pixels->width, pixel_format_channels(format)};
    TRY(host_output(call, 0, DT_U8, 3, dims, &y));
    if (y) pixels_convert(pixels, format, y->data);
    pixels_free(pixels);
    return NULL;
}

Status lower_image_decoder(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const char *name = attr_string(n, "pixel_format", "RGB");
    PixelFormat format = PIXELS_RGB;
    if (!x) return l->error;
    if (!pixel_format_named(name, &format)) return invalid(l, "pixel_format \"%s\" is not known", name);
    if (x->dtype != DT_U8 || x->rank != 1) return invalid(l, "the encoded image is not a vector of bytes");
    const Dim *dims[] = {dim_fresh(l->dims, "height"), dim_fresh(l->dims, "width"),
                         size_const(l, pixel_format_channels(format))};
    return out(l, n, 0, host_result(l, host_node(l, n, host_image_decoder, &x, 1), DT_U8, 3, dims));
}
