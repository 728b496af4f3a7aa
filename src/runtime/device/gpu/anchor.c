/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an anchor on the GPU device, and what all kinds do around their products: programs, constants, epilogue
 * inputs, checks of shapes, launches. Products themselves and what suits which sizes: codegen/gpu/product/product.h. */
#include <stdio.h>
#include <stdlib.h>

#include "base/integer.h"
#include "runtime/device/gpu/anchor_parts.h"

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

/* One result, and all of the products' type. */
static bool epilogue_runs(const Node *node) {
    if (!node->subgraph_count) return node->input_count == 2;
    const Value *raw = node->subgraphs[0]->inputs.items[0];
    return node->input_count <= ANCHOR_INPUTS && node->outputs[0]->dtype == raw->dtype;
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

static Status read_epilogue(DeviceAnchor *anchor) {
    if (!anchor->node->subgraph_count) return NULL;
    anchor->arena = arena_create(0);
    if (!anchor->arena) return status_out_of_memory();
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(anchor->arena, &guard);
    DType raw = dtype_is_float(anchor->dtype) ? anchor_work_type(anchor->dtype) : anchor->dtype;
    Status status =
        gpu_epilogue_of(anchor->arena, anchor->node, raw, anchor->device->driver->dialect, &anchor->epilogue);
    if (!status) status = library_epilogue_of(anchor->arena, anchor->node, raw, &anchor->library);
    arena_guard(anchor->arena, NULL);
    return status;
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
    TRY(gpu_setup_begin(anchor->device, &stream));
    Status status = read_epilogue(anchor); /* one at a time: it may enter sizes into the graph's table */
    if (!status) status = prepare_inputs(anchor, stream, constants);
    if (!status) status = anchor->kind->prepare(anchor, stream, constants);
    Status waited = gpu_setup_end(anchor->device);
    if (status)
        status_free(waited);
    else
        status = waited;
    TRY(status);
    return anchor->kind->get_programs(anchor);
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
    arena_destroy(anchor->arena);
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

static Status bind_operands(AnchorRun *run) {
    const DeviceAnchor *anchor = run->anchor;
    for (int i = 0; anchor->epilogue && i < anchor->epilogue->operand_count; i++) {
        const Tensor *t = run->inputs[anchor->epilogue->inputs[i]];
        if (!broadcast_of(t->rank, t->dims, run->output->rank, run->output->dims, &run->over[i]))
            return gpu_anchor_wrong(anchor, "an input of the epilogue does not fit the result");
    }
    return NULL;
}

int64_t gpu_alignment(const void *data) {
    int64_t address = (int64_t)(uintptr_t)data | 256;
    return address & -address;
}

int64_t gpu_anchor_alignment(const AnchorRun *run) {
    const GpuEpilogue *e = run->anchor->epilogue;
    int64_t least = gpu_alignment(run->output->data);
    for (int i = 0; e && i < e->operand_count; i++) {
        if (e->forms[i] != GPU_OPERAND_WHOLE) continue;
        int64_t own = gpu_alignment(gpu_anchor_data(run, e->inputs[i]));
        if (own < least) least = own;
    }
    return least;
}

typedef struct Arguments {
    GpuArgument items[4 + EPILOGUE_INPUTS + GPU_PRODUCT_ARGUMENTS + 1 + 2 * EPILOGUE_INPUTS];
    int count;
} Arguments;

static void add_buffer(Arguments *a, void *data) {
    a->items[a->count++] = (GpuArgument){.kind = GPU_ARG_BUFFER, .buffer = data};
}

static void add_number(Arguments *a, int64_t value) {
    a->items[a->count++] = (GpuArgument){.kind = GPU_ARG_I64, .i64 = value};
}

static Status launch_with(AnchorRun *run, const GpuProductLaunch *launch, int64_t out_offset, Arguments *arguments) {
    const DeviceAnchor *anchor = run->anchor;
    const GpuEpilogue *e = launch->variant.epilogue;
    const GpuFunction *function = NULL;
    if (launch->grid > GPU_MAX_GRID)
        return status_error(STATUS_FAULT, "%lld blocks are more than a GPU takes at once", (long long)launch->grid);
    TRY(program_of(run->anchor, &launch->variant, &function));
    int64_t offset = out_offset * (int64_t)dtype_size(anchor->dtype);
    for (int i = 0; e && i < e->operand_count; i++) {
        char *data = gpu_anchor_data(run, e->inputs[i]);
        add_buffer(arguments, e->forms[i] == GPU_OPERAND_WHOLE ? data + offset : data);
    }
    for (int i = 0; i < launch->count; i++) add_number(arguments, launch->arguments[i]);
    if (e) add_number(arguments, out_offset);
    for (int i = 0; e && i < e->operand_count; i++) {
        add_number(arguments, run->over[i].period);
        add_number(arguments, run->over[i].inner);
    }
    GpuDevice *d = run->device;
    return gpu_watch(d, d->driver->launch(d->context, gpu_stream(run->stream)->stream, function, launch->grid,
                                          launch->block, arguments->items, arguments->count));
}

Status gpu_anchor_launch(AnchorRun *run, const GpuProductLaunch *launch, void *a, void *b, int64_t out_offset,
                         void *partial) {
    Arguments arguments = {.count = 0};
    size_t sum = gpu_product_sum_bytes(run->anchor->dtype);
    if (launch->grid < 1) return NULL;
    add_buffer(&arguments, a);
    add_buffer(&arguments, b);
    add_buffer(&arguments, (char *)run->output->data + out_offset * (int64_t)dtype_size(run->anchor->dtype));
    add_buffer(&arguments, partial ? (char *)partial + out_offset * (int64_t)sum : NULL);
    return launch_with(run, launch, out_offset, &arguments);
}

Status gpu_anchor_finish(AnchorRun *run, int64_t splits, void *partial, int64_t columns, int64_t column_stride,
                         double alpha) {
    GpuProductLaunch launch;
    Arguments arguments = {.count = 0};
    gpu_finish_launch(run->anchor->dtype, tensor_count(run->output), splits, columns, column_stride, alpha,
                      gpu_anchor_alignment(run), run->device->limits, run->anchor->epilogue, &launch);
    add_buffer(&arguments, run->output->data);
    add_buffer(&arguments, partial);
    return launch_with(run, &launch, 0, &arguments);
}

Status gpu_anchor_take_lines(AnchorRun *run, void *lines, int64_t elements, int64_t columns, int64_t line,
                             int64_t out_offset) {
    GpuProductLaunch launch;
    Arguments arguments = {.count = 0};
    DType dtype = run->anchor->dtype;
    char *out = (char *)run->output->data + out_offset * (int64_t)dtype_size(dtype);
    int64_t alignment = least(gpu_anchor_alignment(run), gpu_alignment(out));
    gpu_lines_launch(dtype, elements, columns, line, alignment, run->device->limits, run->anchor->epilogue, &launch);
    add_buffer(&arguments, out);
    add_buffer(&arguments, lines);
    return launch_with(run, &launch, out_offset, &arguments);
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

Status gpu_anchor_run(Device *device, Stream *stream, DeviceAnchor *anchor, const AnchorFinish *finish,
                      const Tensor *const *inputs, const int64_t *symbols, Tensor *outputs) {
    (void)finish;
    if (anchor->attention)
        return gpu_attention_run(gpu_device(device), stream, anchor->attention, inputs, symbols, outputs);
    AnchorRun run = {.anchor = anchor, .device = gpu_device(device), .stream = stream, .inputs = inputs};
    run.symbols = symbols;
    run.output = outputs;
    TRY(check_inputs(&run));
    TRY(bind_operands(&run));
    return anchor->kind->run(&run);
}
