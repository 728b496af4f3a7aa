/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions and transposed ones on the GPU device, channels last, of 1 to 3 spatial axes. Those of one tap and
 * stride 1 without padding and groups are matrix products. */
#include <stdlib.h>

#include "base/integer.h"
#include "runtime/device/gpu/anchor_parts.h"

enum {
    MOST_STEP = 1 << 24,   /* strides and dilations: products with any tensor's extent fit 64 bits */
    MOST_EXTENT = 1 << 30, /* of an input's axis and of a kernel's reach: positions fit 32 bits */
    MOST_PAD = 1 << 29,
    MOST_PHASES = 1 << 20, /* of a transposed convolution: the product of its strides */
};

static bool is_transposed(const Node *node) { return strcmp(node->op, "conv_transpose") == 0; }

/* ---- attributes ---- */

typedef struct Window {
    int spatial;
    int64_t group, strides[GPU_CONV_AXES], dilations[GPU_CONV_AXES];
} Window;

static bool window_of(const Node *node, Window *w) {
    int strides, dilations, pads, spatial = node->inputs[0]->rank - 2;
    const int64_t *s = attr_ints(node, "strides", &strides), *d = attr_ints(node, "dilations", &dilations);
    int64_t phases = 1;
    attr_dims(node, "pads", &pads);
    *w = (Window){.spatial = spatial, .group = attr_int(node, "group", 1)};
    if (spatial < 1 || spatial > GPU_CONV_AXES || node->inputs[1]->rank != spatial + 2 || strides != spatial ||
        dilations != spatial || pads != 2 * spatial || w->group < 1)
        return false;
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        int from = i - (GPU_CONV_AXES - spatial);
        w->strides[i] = from < 0 ? 1 : s[from];
        w->dilations[i] = from < 0 ? 1 : d[from];
        if (w->strides[i] < 1 || w->dilations[i] < 1 || w->strides[i] > MOST_STEP || w->dilations[i] > MOST_STEP)
            return false;
        phases *= phases > MOST_PHASES ? 1 : w->strides[i];
    }
    return !is_transposed(node) || phases <= MOST_PHASES;
}

static bool conv_runs(const GpuDevice *device, const Node *node) {
    Window window;
    (void)device;
    return window_of(node, &window);
}

/* ---- the weight ---- */

/* dims: of the weight, [outputs, inputs a group, kernel...]; transposed [inputs, outputs a group, kernel...]; -1 where
 * not known. */
static Status weight_sizes(const DeviceAnchor *anchor, const Window *window, const int64_t *dims, ConvWeight *w) {
    int64_t total = 1, reach;
    bool transposed = is_transposed(anchor->node);
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        int from = i - (GPU_CONV_AXES - window->spatial);
        w->kernel[i] = from < 0 ? 1 : dims[2 + from];
        if (w->kernel[i] < 0) continue;
        if (__builtin_mul_overflow(w->kernel[i], window->dilations[i], &reach) || reach > MOST_EXTENT ||
            __builtin_mul_overflow(total, w->kernel[i], &total) || total > MOST_EXTENT)
            return gpu_anchor_wrong(anchor, "the kernel's size is out of range");
    }
    if (dims[0] >= 0 && dims[0] % window->group)
        return gpu_anchor_wrong(anchor, "the weight's channels do not divide into the groups");
    int64_t first = dims[0] < 0 ? -1 : dims[0] / window->group, second = dims[1];
    w->inputs = transposed ? first : second;
    w->outputs = transposed ? second : first;
    if (__builtin_mul_overflow(total, w->inputs, &reach) || reach > MOST_EXTENT)
        return gpu_anchor_wrong(anchor, "the kernel's size is out of range");
    return NULL;
}

static int64_t taps_of(const ConvWeight *w) { return w->kernel[0] * w->kernel[1] * w->kernel[2]; }

/* Lines of all outputs, a line an input of a group and tap: neighbouring threads read neighbouring outputs. Lines begin
 * at multiples of 16 bytes where they are not very short. */
static Status plan_weight(const DeviceAnchor *anchor, const Window *window, ConvWeight *w, size_t *out_bytes) {
    enum { LEAST_PADDED = 16, BYTES = 16 };
    int64_t outputs = w->outputs * window->group, unit = BYTES / (int64_t)dtype_size(anchor->dtype), bytes;
    w->line = outputs < LEAST_PADDED ? outputs : round_up(outputs, unit);
    if (__builtin_mul_overflow(taps_of(w) * w->inputs, w->line, &bytes) ||
        __builtin_mul_overflow(bytes, (int64_t)dtype_size(anchor->dtype), &bytes))
        return status_out_of_memory();
    *out_bytes = (size_t)bytes;
    return NULL;
}

/* One line after the other of 16 outputs, so that both sides are read and written in stretches. */
static void pack_weight(const DeviceAnchor *anchor, const Window *window, const ConvWeight *w, const char *from,
                        char *to) {
    enum { STRETCH = 16 };
    bool transposed = is_transposed(anchor->node);
    int64_t taps = taps_of(w), outputs = w->outputs * window->group, inputs = w->inputs;
    size_t size = dtype_size(anchor->dtype);
    for (int64_t o0 = 0; o0 < outputs; o0 += STRETCH)
        for (int64_t i = 0; i < inputs; i++)
            for (int64_t t = 0; t < taps; t++) {
                char *line = to + (size_t)((t * inputs + i) * w->line) * size;
                for (int64_t o = o0; o < o0 + STRETCH && o < outputs; o++) {
                    int64_t g = o / w->outputs, k = o % w->outputs;
                    int64_t at =
                        transposed ? ((g * inputs + i) * w->outputs + k) * taps + t : (o * inputs + i) * taps + t;
                    memcpy(line + (size_t)o * size, from + (size_t)at * size, size);
                }
            }
}

static Status upload_weight(DeviceAnchor *anchor, Stream *stream, const Window *window, const Tensor *tensor) {
    ConvWeight *w = &anchor->conv;
    size_t bytes;
    TRY(weight_sizes(anchor, window, tensor->dims, w));
    TRY(plan_weight(anchor, window, w, &bytes));
    char *packed = calloc(bytes ? bytes : 1, 1);
    if (!packed) return status_out_of_memory();
    pack_weight(anchor, window, w, tensor->data, packed);
    Status status = gpu_anchor_upload(anchor, stream, 1, packed, bytes);
    free(packed);
    w->known = true;
    return status;
}

/* ---- preparation ---- */

static int64_t size_of(const Dim *dim) {
    int64_t size;
    return dim_is_const(dim, &size) ? size : -1;
}

static bool is_pointwise(const Node *node, const Window *window, const ConvWeight *w) {
    int count;
    const Dim *const *pads = attr_dims(node, "pads", &count);
    bool pointwise = window->group == 1;
    for (int i = 0; i < GPU_CONV_AXES; i++) pointwise &= w->kernel[i] == 1 && window->strides[i] == 1;
    for (int i = 0; i < count; i++) pointwise &= dim_equals(pads[i], 0);
    return pointwise;
}

static Status prepare_pointwise(DeviceAnchor *anchor) {
    const Value *x = anchor->node->inputs[0];
    const ConvWeight *w = &anchor->conv;
    GpuMatmul known = {
        .dtype = anchor->dtype, .rows = 1, .columns = w->outputs, .depth = w->inputs, .batch = {1, 1, 1}};
    known.b_outer = w->known || is_transposed(anchor->node);
    for (int i = 0; i < x->rank - 1; i++) {
        int64_t size = size_of(x->dims[i]);
        if (size < 0 || known.rows < 0 || __builtin_mul_overflow(known.rows, size, &known.rows)) known.rows = -1;
    }
    return gpu_anchor_prepare_product(anchor, &known, false);
}

static void weight_strides(const DeviceAnchor *anchor, const ConvWeight *w, GpuConv *c) {
    int64_t taps = taps_of(w);
    if (w->known) {
        c->w_tap = w->inputs * w->line;
        c->w_input = w->line;
        c->w_output = 1;
        c->w_group = w->outputs;
    } else if (is_transposed(anchor->node)) {
        c->w_tap = 1;
        c->w_input = w->outputs * taps;
        c->w_output = taps;
        c->w_group = w->inputs * w->outputs * taps;
    } else {
        c->w_tap = 1;
        c->w_input = taps;
        c->w_output = w->inputs * taps;
        c->w_group = w->outputs * w->inputs * taps;
    }
}

static Status prepare_windows(DeviceAnchor *anchor, const Window *window) {
    const Value *x = anchor->node->inputs[0], *y = anchor->node->outputs[0];
    const ConvWeight *w = &anchor->conv;
    GpuConv known = {.dtype = anchor->dtype,
                     .transposed = is_transposed(anchor->node),
                     .images = size_of(x->dims[0]),
                     .group = window->group,
                     .inputs = w->inputs,
                     .outputs = w->outputs};
    for (int i = 0; i < GPU_CONV_AXES; i++) {
        int from = i - (GPU_CONV_AXES - window->spatial);
        known.in[i] = from < 0 ? 1 : size_of(x->dims[1 + from]);
        known.out[i] = from < 0 ? 1 : size_of(y->dims[1 + from]);
        known.kernel[i] = w->kernel[i];
        known.strides[i] = window->strides[i];
        known.dilations[i] = window->dilations[i];
    }
    known.x_alignment = known.w_alignment = known.out_alignment = gpu_alignment(NULL); /* of memory of ours */
    weight_strides(anchor, w, &known);
    GpuVariant variants[GPU_MAX_VARIANTS];
    int count = gpu_conv_variants(&known, anchor->device->limits, anchor->epilogue, variants);
    if (count && variants[0].kind == GPU_PRODUCT_CHANNELS)
        anchor->how = variants[0].depthwise ? "depthwise" : "grouped";
    return gpu_anchor_programs(anchor, variants, count);
}

static Status conv_prepare(DeviceAnchor *anchor, Stream *stream, const Tensor *const *constants) {
    const Node *node = anchor->node;
    const Value *w = node->inputs[1];
    Window window;
    int64_t dims[MAX_RANK];
    if (!window_of(node, &window)) return gpu_anchor_wrong(anchor, "attributes and ranks do not fit together");
    for (int i = 0; i < w->rank; i++) dims[i] = size_of(w->dims[i]);
    if (constants[1]) {
        if (constants[1]->rank != w->rank) return gpu_anchor_wrong(anchor, "attributes and ranks do not fit together");
        TRY(upload_weight(anchor, stream, &window, constants[1]));
    } else {
        TRY(weight_sizes(anchor, &window, dims, &anchor->conv));
    }
    anchor->conv.pointwise = is_pointwise(node, &window, &anchor->conv);
    return NULL;
}

static Status conv_programs(DeviceAnchor *anchor) {
    Window window;
    if (anchor->conv.pointwise) return prepare_pointwise(anchor);
    if (!window_of(anchor->node, &window)) return gpu_anchor_wrong(anchor, "attributes and ranks do not fit together");
    return prepare_windows(anchor, &window);
}

/* ---- sizes of a run ---- */

static int64_t pad_at(const AnchorRun *run, int index) {
    int count;
    const Dim *const *pads = attr_dims(run->anchor->node, "pads", &count);
    int64_t value;
    if (dim_is_const(pads[index], &value)) return value;
    return run->symbols ? dim_eval(pads[index], run->symbols) : UNBOUND_DIM;
}

/* The padding before axis `axis`. Where the symbols do not tell, the sizes do: such paddings come from SAME_UPPER and
 * SAME_LOWER, which pad just enough, one more at the end or at the beginning; the former is what exporters write. */
static int64_t pad_before(const AnchorRun *run, const Window *window, const GpuConv *c, int axis) {
    int from = axis - (GPU_CONV_AXES - window->spatial);
    if (from < 0) return 0;
    int64_t before = pad_at(run, from);
    if (before != UNBOUND_DIM) return before;
    int64_t extent = (c->kernel[axis] - 1) * c->dilations[axis] + 1;
    int64_t total = c->transposed ? (c->in[axis] - 1) * c->strides[axis] + extent - c->out[axis]
                                  : (c->out[axis] - 1) * c->strides[axis] + extent - c->in[axis];
    return total > 0 ? total / 2 : 0;
}

/* What the formula gives for the convolution's result; UNBOUND_DIM when a padding is not known. */
static int64_t conv_extent(const AnchorRun *run, const Window *window, const GpuConv *c, int axis) {
    int from = axis - (GPU_CONV_AXES - window->spatial);
    if (from < 0) return 1;
    int64_t before = pad_at(run, from), after = pad_at(run, window->spatial + from), room;
    if (before == UNBOUND_DIM || after == UNBOUND_DIM) return UNBOUND_DIM;
    int64_t extent = (c->kernel[axis] - 1) * c->dilations[axis] + 1;
    if (__builtin_add_overflow(c->in[axis], before, &room) || __builtin_add_overflow(room, after, &room)) return -1;
    room -= extent;
    return room < 0 ? 0 : room / c->strides[axis] + 1;
}

static Status axis_sizes(const AnchorRun *run, const Window *window, GpuConv *c, int i) {
    const DeviceAnchor *anchor = run->anchor;
    const int64_t *x = run->inputs[0]->dims, *y = run->output->dims;
    int from = i - (GPU_CONV_AXES - window->spatial);
    c->in[i] = from < 0 ? 1 : x[1 + from];
    c->out[i] = from < 0 ? 1 : y[1 + from];
    if (c->in[i] > MOST_EXTENT || c->out[i] > MOST_EXTENT)
        return gpu_anchor_wrong(anchor, "an axis of the input or the result is too long");
    c->pads[i] = pad_before(run, window, c, i);
    if (c->pads[i] < -MOST_PAD || c->pads[i] > MOST_PAD) return gpu_anchor_wrong(anchor, "a padding is out of range");
    int64_t expected = c->transposed ? UNBOUND_DIM : conv_extent(run, window, c, i);
    if (expected != UNBOUND_DIM && expected != c->out[i])
        return gpu_anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
    return NULL;
}

static Status conv_of(const AnchorRun *run, const Window *window, ConvWeight *w, GpuConv *c) {
    const DeviceAnchor *anchor = run->anchor;
    const Tensor *x = run->inputs[0], *tw = run->inputs[1], *y = run->output;
    int rank = window->spatial + 2;
    if (x->rank != rank || tw->rank != rank || y->rank != rank)
        return gpu_anchor_wrong(anchor, "attributes and ranks do not fit together");
    *w = anchor->conv;
    if (!w->known) TRY(weight_sizes(anchor, window, tw->dims, w));
    *c = (GpuConv){.dtype = anchor->dtype,
                   .transposed = is_transposed(anchor->node),
                   .images = x->dims[0],
                   .group = window->group,
                   .inputs = w->inputs,
                   .outputs = w->outputs};
    if (x->dims[rank - 1] != w->inputs * window->group)
        return gpu_anchor_wrong(anchor, "the input's channels do not fit the weight and its groups");
    if (y->dims[0] != c->images || y->dims[rank - 1] != w->outputs * window->group)
        return gpu_anchor_wrong(anchor, "the inputs do not give a result of the planned shape");
    memcpy(c->kernel, w->kernel, sizeof c->kernel);
    memcpy(c->strides, window->strides, sizeof c->strides);
    memcpy(c->dilations, window->dilations, sizeof c->dilations);
    if (c->images > MOST_EXTENT) return gpu_anchor_wrong(anchor, "there are too many images");
    for (int i = 0; i < GPU_CONV_AXES; i++) TRY(axis_sizes(run, window, c, i));
    weight_strides(anchor, w, c);
    return NULL;
}

/* ---- runs ---- */

static Status run_pointwise(AnchorRun *run, const GpuConv *c) {
    int64_t rows = tensor_count(run->output) / c->outputs;
    MatmulCall call = {.a = gpu_anchor_data(run, 0), .b = gpu_anchor_data(run, 1)};
    for (int i = 0; i < GPU_CONV_AXES; i++)
        if (c->in[i] != c->out[i])
            return gpu_anchor_wrong(run->anchor, "the inputs do not give a result of the planned shape");
    call.matmul = (GpuMatmul){.dtype = c->dtype,
                              .rows = rows,
                              .columns = c->outputs,
                              .depth = c->inputs,
                              .a_row = c->inputs,
                              .a_depth = 1,
                              .b_depth = c->w_input,
                              .b_column = c->w_output,
                              .out_row = c->outputs,
                              .out_column = 1,
                              .batch = {1, 1, 1},
                              .alpha = 1,
                              .elements = tensor_count(run->output),
                              .b_outer = run->anchor->conv.known || c->transposed};
    call.columns = c->outputs;
    call.column_stride = 1;
    return gpu_anchor_run_product(run, &call);
}

static Status run_windows(AnchorRun *run, GpuConv *c) {
    void *x = gpu_anchor_data(run, 0), *w = gpu_anchor_data(run, 1), *partial = NULL;
    GpuProductLaunch launch;
    c->x_alignment = gpu_alignment(x);
    c->w_alignment = gpu_alignment(w);
    c->out_alignment = gpu_anchor_alignment(run);
    gpu_conv_launch(c, run->device->limits, run->anchor->epilogue, &launch);
    size_t sum = gpu_product_sum_bytes(c->dtype);
    if (launch.splits > 1)
        TRY(gpu_stream_scratch(&run->device->base, run->stream,
                               (size_t)(launch.splits * tensor_count(run->output)) * sum, &partial));
    TRY(gpu_anchor_launch(run, &launch, x, w, 0, partial));
    if (!partial) return NULL;
    return gpu_anchor_finish(run, launch.splits, partial, c->outputs * c->group, 1, 1);
}

static Status conv_run(AnchorRun *run) {
    const DeviceAnchor *anchor = run->anchor;
    Window window;
    ConvWeight weight;
    GpuConv conv;
    if (!window_of(anchor->node, &window)) return gpu_anchor_wrong(anchor, "attributes and ranks do not fit together");
    TRY(conv_of(run, &window, &weight, &conv));
    if (!tensor_count(run->output)) return NULL;
    return anchor->conv.pointwise ? run_pointwise(run, &conv) : run_windows(run, &conv);
}

const AnchorKind gpu_conv_kind = {"conv", conv_runs, conv_prepare, conv_programs, conv_run};
const AnchorKind gpu_conv_transpose_kind = {"conv_transpose", conv_runs, conv_prepare, conv_programs, conv_run};
