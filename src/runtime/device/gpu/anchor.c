/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an anchor on the GPU device, and what all kinds do around their products: programs, constants, epilogue
 * inputs, checks of shapes, launches. Products themselves and what suits which sizes: codegen/gpu/product/product.h. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/device/gpu/anchor_parts.h"

_Static_assert((int)GPU_STEP_COUNT == (int)EPILOGUE_COUNT && (int)GPU_STEP_ADD == (int)EPILOGUE_ADD &&
                   (int)GPU_STEP_CLIP == (int)EPILOGUE_CLIP && (int)GPU_STEP_TANH == (int)EPILOGUE_TANH &&
                   (int)GPU_STEP_LINEAR == (int)EPILOGUE_LINEAR,
               "GpuStep and EpilogueKind differ");

Status gpu_anchor_wrong(const DeviceAnchor *anchor, const char *what) {
    return status_error(STATUS_INVALID, "%s (%s): %s", node_origin_name(anchor->node), anchor->node->op, what);
}

static const AnchorKind *kind_of(const Node *node) {
    static const AnchorKind *const kinds[] = {&gpu_matmul_kind, &gpu_conv_kind, &gpu_conv_transpose_kind};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(node->op, kinds[i]->op) == 0) return kinds[i];
    return NULL;
}

static bool is_attention(const Node *node) { return strcmp(node->op, "attention") == 0; }

/* ---- what runs ---- */

/* The epilogue has steps that there are, with an input each where they read one. */
static bool epilogue_runs(const Node *node) {
    int count, reads = 0;
    const int64_t *kinds = attr_ints(node, "epilogue", &count);
    if (count > GPU_MAX_STEPS) return false;
    for (int i = 0; i < count; i++) {
        if (kinds[i] < 0 || kinds[i] >= EPILOGUE_COUNT) return false;
        reads += epilogue_reads_input((EpilogueKind)kinds[i]);
    }
    return node->input_count >= 2 + reads && node->input_count <= ANCHOR_INPUTS;
}

bool gpu_anchor_runs(const Device *device, const Node *node) {
    const GpuDevice *d = gpu_device(device);
    if (is_attention(node)) return gpu_attention_runs(d, node);
    const AnchorKind *kind = kind_of(node);
    if (!kind || node->output_count != 1 || !node->outputs[0] || !epilogue_runs(node)) return false;
    for (int i = 0; i < node->input_count; i++)
        if (!node->inputs[i] || node->inputs[i]->dtype != node->outputs[0]->dtype) return false;
    return gpu_product_type(d->limits, node->outputs[0]->dtype) && kind->runs(d, node);
}

/* ---- preparation ---- */

static float nth_float(const Node *node, const char *name, int index) {
    const Attr *attr = node_attr(node, name);
    return attr && attr->kind == ATTR_FLOATS && index < attr->count ? attr->floats[index] : 0;
}

static void read_epilogue(DeviceAnchor *anchor) {
    const Node *node = anchor->node;
    int count, input = 2;
    const int64_t *kinds = attr_ints(node, "epilogue", &count);
    anchor->steps.step_count = count;
    for (int i = 0; i < count; i++) {
        anchor->steps.steps[i] = (GpuStep)kinds[i];
        anchor->alpha[i] = nth_float(node, "epilogue_alpha", i);
        anchor->beta[i] = nth_float(node, "epilogue_beta", i);
        anchor->step_input[i] = gpu_step_reads(anchor->steps.steps[i]) ? input++ : -1;
    }
}

Status gpu_anchor_upload(DeviceAnchor *anchor, Stream *stream, int index, const void *data, size_t bytes) {
    Device *device = &anchor->device->base;
    TRY(gpu_allocate(device, stream, NULL, bytes ? bytes : 1, &anchor->constants[index]));
    anchor->constant_bytes += bytes;
    anchor->released |= 1u << index;
    return gpu_copy(device, stream, COPY_IN, anchor->constants[index], data, bytes);
}

static Status prepare_inputs(DeviceAnchor *anchor, Stream *stream, const Tensor *const *constants) {
    for (int i = 0; i < anchor->node->input_count; i++) {
        anchor->shapes[i].rank = -1;
        if (!constants[i]) continue;
        anchor->shapes[i] = *constants[i];
        anchor->shapes[i].data = NULL;
        if (constants[i]->dtype != anchor->dtype) return gpu_anchor_wrong(anchor, "the inputs' element types differ");
        if (i >= 2) TRY(gpu_anchor_upload(anchor, stream, i, constants[i]->data, tensor_bytes(constants[i])));
    }
    return NULL;
}

/* Constants have arrived when this returns. */
static Status prepare(DeviceAnchor *anchor, const Tensor *const *constants) {
    Stream *stream;
    read_epilogue(anchor);
    TRY(gpu_setup_begin(anchor->device, &stream));
    Status status = prepare_inputs(anchor, stream, constants);
    if (!status) status = anchor->kind->prepare(anchor, stream, constants);
    Status waited = gpu_setup_end(anchor->device);
    if (status)
        status_free(waited);
    else
        status = waited;
    return status;
}

/* Weights are as the model has them. */
static bool holds_weights(const Node *node) {
    DType dtype = node->outputs[0]->dtype;
    switch (attr_int(node, WEIGHT_PRECISION, PRECISION_AS_IS)) {
    case PRECISION_AS_IS: return true;
    case PRECISION_F32: return dtype == DT_F32;
    case PRECISION_F16: return dtype == DT_F16;
    case PRECISION_BF16: return dtype == DT_BF16;
    default: return false;
    }
}

Status gpu_anchor_prepare(Device *device, const Node *node, const Tensor *const *constants, DeviceAnchor **out_anchor,
                          uint32_t *out_released) {
    *out_anchor = NULL;
    *out_released = 0;
    if (!gpu_anchor_runs(device, node))
        return status_error(STATUS_FAULT, "anchor \"%s\" does not run on the GPU", node->op);
    if (!holds_weights(node))
        return status_error(STATUS_UNSUPPORTED,
                            "%s (%s): weights of another precision than the model's are not held on device %s",
                            node_origin_name(node), node->op, device->table->name);
    DeviceAnchor *anchor = calloc(1, sizeof *anchor);
    if (!anchor) return status_out_of_memory();
    *anchor = (DeviceAnchor){.device = gpu_device(device),
                             .node = node,
                             .kind = kind_of(node),
                             .dtype = node->outputs[0]->dtype,
                             .how = "own"};
    if (anchor->device->driver->gemm_name)
        snprintf(anchor->both, sizeof anchor->both, "%s and own", anchor->device->driver->gemm_name);
    pthread_mutex_init(&anchor->lock, NULL);
    Status status = is_attention(node) ? gpu_attention_prepare(anchor->device, node, &anchor->attention)
                                       : prepare(anchor, constants);
    if (status) {
        gpu_anchor_release(device, anchor);
        return status;
    }
    *out_anchor = anchor;
    *out_released = anchor->released;
    return NULL;
}

void gpu_anchor_release(Device *device, DeviceAnchor *anchor) {
    if (!anchor) return;
    gpu_attention_release(anchor->attention);
    for (int i = 0; i < ANCHOR_INPUTS; i++) gpu_release(device, NULL, NULL, anchor->constants[i]);
    for (int i = 0; i < anchor->program_count; i++) gpu_program_release(anchor->programs[i].program);
    pthread_mutex_destroy(&anchor->lock);
    free(anchor);
}

size_t gpu_anchor_bytes(const DeviceAnchor *anchor) { return anchor->constant_bytes; }

const char *gpu_anchor_how(const DeviceAnchor *anchor) {
    if (anchor->attention) return gpu_attention_how(anchor->attention);
    int ran = atomic_load(&((DeviceAnchor *)(uintptr_t)anchor)->ran); /* atomic_load takes no const */
    if (!ran) ran = anchor->library_expected ? RAN_LIBRARY : RAN_OWN;
    return ran == RAN_OWN ? anchor->how : ran == RAN_LIBRARY ? anchor->device->driver->gemm_name : anchor->both;
}

/* ---- programs ---- */

#define PROGRAM_NAME "product"

static const AnchorProgram *find_program(const DeviceAnchor *anchor, const GpuVariant *variant) {
    for (int i = 0; i < anchor->program_count; i++)
        if (memcmp(&anchor->programs[i].variant, variant, sizeof *variant) == 0) return &anchor->programs[i];
    return NULL;
}

static Status programs_of(GpuDevice *device, const GpuVariant *variants, int count, Arena *arena,
                          GpuProgram **out_programs) {
    const char *sources[GPU_MAX_VARIANTS];
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    for (int i = 0; i < count; i++) {
        Text text = text_make(arena);
        gpu_product_render(&text, &variants[i], device->driver->dialect, PROGRAM_NAME);
        sources[i] = text.data;
    }
    return gpu_programs_get(device, sources, count, NULL, out_programs);
}

/* All or none. With the lock held, or before the anchor runs. */
static Status add_programs(DeviceAnchor *anchor, const GpuVariant *variants, int count) {
    GpuProgram *programs[GPU_MAX_VARIANTS];
    if (anchor->program_count + count > ANCHOR_PROGRAMS)
        return status_error(STATUS_FAULT, "an anchor of more than %d programs", ANCHOR_PROGRAMS);
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = programs_of(anchor->device, variants, count, arena, programs);
    arena_destroy(arena);
    TRY(status);
    AnchorProgram *added = anchor->programs + anchor->program_count;
    for (int i = 0; i < count; i++) {
        added[i] = (AnchorProgram){variants[i], programs[i], NULL};
        if (!status) status = gpu_program_function(programs[i], PROGRAM_NAME, &added[i].function);
    }
    for (int i = 0; status && i < count; i++) gpu_program_release(programs[i]);
    if (!status) anchor->program_count += count;
    return status;
}

Status gpu_anchor_programs(DeviceAnchor *anchor, const GpuVariant *variants, int count) {
    GpuVariant missing[GPU_MAX_VARIANTS];
    int wanted = 0;
    for (int i = 0; i < count; i++)
        if (!find_program(anchor, &variants[i])) missing[wanted++] = variants[i];
    return wanted ? add_programs(anchor, missing, wanted) : NULL;
}

/* Only where a library refuses what it was expected to do, a run does not find its program. */
static Status program_of(DeviceAnchor *anchor, const GpuVariant *variant, const GpuFunction **out_function) {
    Status status = NULL;
    pthread_mutex_lock(&anchor->lock);
    const AnchorProgram *p = find_program(anchor, variant);
    if (!p) {
        status = add_programs(anchor, variant, 1);
        p = status ? NULL : find_program(anchor, variant);
    }
    pthread_mutex_unlock(&anchor->lock);
    if (p) *out_function = p->function;
    return status;
}

/* ---- runs ---- */

void *gpu_anchor_data(const AnchorRun *run, int index) {
    void *constant = run->anchor->constants[index];
    return constant ? constant : run->inputs[index]->data;
}

Status gpu_anchor_check_steps(const AnchorRun *run, int64_t columns) {
    const DeviceAnchor *anchor = run->anchor;
    int64_t count = tensor_count(run->output);
    for (int i = 0; i < anchor->steps.step_count; i++) {
        if (anchor->step_input[i] < 0) continue;
        int64_t wanted = anchor->steps.steps[i] == GPU_STEP_BIAS ? columns : count;
        if (tensor_count(run->inputs[anchor->step_input[i]]) != wanted)
            return gpu_anchor_wrong(anchor, "an input of the epilogue does not fit the result");
    }
    return NULL;
}

int64_t gpu_alignment(const void *data) {
    int64_t address = (int64_t)(uintptr_t)data | 256;
    return address & -address;
}

int64_t gpu_anchor_alignment(const AnchorRun *run, int first) {
    const DeviceAnchor *anchor = run->anchor;
    int64_t least = gpu_alignment(run->output->data);
    for (int i = first; i < anchor->steps.step_count; i++) {
        if (anchor->steps.steps[i] != GPU_STEP_ADD) continue;
        int64_t own = gpu_alignment(gpu_anchor_data(run, anchor->step_input[i]));
        if (own < least) least = own;
    }
    return least;
}

GpuVariant gpu_anchor_steps(const DeviceAnchor *anchor, int first) {
    GpuVariant steps;
    memset(&steps, 0, sizeof steps);
    for (int i = first; i < anchor->steps.step_count; i++) steps.steps[steps.step_count++] = anchor->steps.steps[i];
    return steps;
}

typedef struct Arguments {
    GpuArgument items[4 + GPU_MAX_STEPS + GPU_PRODUCT_ARGUMENTS + 2 * GPU_MAX_STEPS];
    int count;
} Arguments;

static void add_buffer(Arguments *a, void *data) {
    a->items[a->count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = data};
}

static void add_number(Arguments *a, int64_t value) {
    a->items[a->count++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = value};
}

static int64_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static Status launch_with(AnchorRun *run, const GpuProductLaunch *launch, int first, int64_t out_offset,
                          Arguments *arguments) {
    const DeviceAnchor *anchor = run->anchor;
    const GpuFunction *function = NULL;
    if (launch->grid > GPU_MAX_GRID)
        return status_error(STATUS_FAULT, "%lld blocks are more than a GPU takes at once", (long long)launch->grid);
    TRY(program_of(run->anchor, &launch->variant, &function));
    int64_t offset = out_offset * (int64_t)dtype_size(anchor->dtype);
    for (int i = first; i < anchor->steps.step_count; i++) {
        if (anchor->step_input[i] < 0) continue;
        char *data = gpu_anchor_data(run, anchor->step_input[i]);
        add_buffer(arguments, anchor->steps.steps[i] == GPU_STEP_ADD ? data + offset : data);
    }
    for (int i = 0; i < launch->count; i++) add_number(arguments, launch->arguments[i]);
    for (int i = first; i < anchor->steps.step_count; i++) {
        add_number(arguments, bits_of(anchor->alpha[i]));
        add_number(arguments, bits_of(anchor->beta[i]));
    }
    GpuDevice *d = run->device;
    return gpu_watch(d, d->driver->launch(d->context, gpu_stream(run->stream)->stream, function, launch->grid,
                                          launch->block, arguments->items, arguments->count));
}

Status gpu_anchor_launch(AnchorRun *run, const GpuProductLaunch *launch, int first, void *a, void *b,
                         int64_t out_offset, void *partial) {
    Arguments arguments = {.count = 0};
    size_t sum = gpu_product_sum_bytes(run->anchor->dtype);
    if (launch->grid < 1) return NULL;
    add_buffer(&arguments, a);
    add_buffer(&arguments, b);
    add_buffer(&arguments, (char *)run->output->data + out_offset * (int64_t)dtype_size(run->anchor->dtype));
    add_buffer(&arguments, partial ? (char *)partial + out_offset * (int64_t)sum : NULL);
    return launch_with(run, launch, first, out_offset, &arguments);
}

Status gpu_anchor_finish(AnchorRun *run, int64_t splits, void *partial, int first, int64_t columns,
                         int64_t column_stride, double alpha) {
    GpuProductLaunch launch;
    Arguments arguments = {.count = 0};
    GpuVariant steps = gpu_anchor_steps(run->anchor, first);
    gpu_finish_launch(run->anchor->dtype, tensor_count(run->output), splits, columns, column_stride, alpha,
                      gpu_anchor_alignment(run, first), run->device->limits, &steps, &launch);
    add_buffer(&arguments, run->output->data);
    add_buffer(&arguments, partial);
    return launch_with(run, &launch, first, 0, &arguments);
}

/* Shapes that a constant had when it was copied hold; all others are taken as they come, but with the type that was
 * prepared for. */
static Status check_inputs(const AnchorRun *run) {
    const DeviceAnchor *anchor = run->anchor;
    for (int i = 0; i < anchor->node->input_count; i++) {
        const Tensor *t = run->inputs[i];
        if (!t) return gpu_anchor_wrong(anchor, "an input is missing");
        if (t->dtype != anchor->dtype)
            return gpu_anchor_wrong(anchor, "an input has another element type than the model says");
        if (anchor->shapes[i].rank >= 0 && !tensor_same_shape(&anchor->shapes[i], t))
            return gpu_anchor_wrong(anchor, "a constant has changed its shape");
        TRY(tensor_size_of(t->dtype, t->rank, t->dims, NULL, NULL));
    }
    if (run->output->dtype != anchor->dtype)
        return gpu_anchor_wrong(anchor, "the result has another element type than the inputs");
    return tensor_size_of(run->output->dtype, run->output->rank, run->output->dims, NULL, NULL);
}

Status gpu_anchor_run(Device *device, Stream *stream, DeviceAnchor *anchor, const Tensor *const *inputs,
                      const int64_t *symbols, Tensor *output) {
    if (anchor->attention)
        return gpu_attention_run(gpu_device(device), stream, anchor->attention, inputs, symbols, output);
    AnchorRun run = {anchor, gpu_device(device), stream, inputs, symbols, output};
    TRY(check_inputs(&run));
    return anchor->kind->run(&run);
}
