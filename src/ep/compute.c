/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a compiled part on the runtime's tensors. Inputs are used where they lie. Outputs are written where the runtime
 * wants them when their shapes follow from the inputs', and are copied there otherwise. */
#include "ep/provider.h"

#include <stdlib.h>
#include <string.h>

#include "ep/sizes.h"

typedef struct Port {
    size_t index; /* among the fused node's inputs or outputs */
    OnnxfuseDType dtype;
    int rank;           /* of an output; -1: its shape is known only after a run */
    SizeProgram *sizes; /* [rank] */
} Port;

typedef struct Kernel {
    OrtNodeComputeInfo base; /* first: the runtime's pointer is ours */
    Ort ort;
    Scratch scratch;
    OnnxfuseSession *session;
    const char *name;
    Port *inputs, *outputs;
    int input_count, output_count;
} Kernel;

/* --- a run ------------------------------------------------------------------------------------------------------- */
enum { MOST_VALUES = 32 }; /* on the stack; more go to the heap */

typedef struct Call {
    const Kernel *kernel;
    OrtKernelContext *context;
    OnnxfuseValue **inputs, **outputs; /* [input_count], [output_count] */
    const int64_t **dims;              /* [input_count] */
    Scratch strings;
} Call;

static OrtStatus *take_strings(Call *c, const OrtValue *value, int64_t count, void **out_data) {
    const Ort *ort = &c->kernel->ort;
    size_t size;
    TRY(ORT(ort, GetStringTensorDataLength)(value, &size));
    char *text = SCRATCH_ARRAY(&c->strings, char, size);
    size_t *offsets = SCRATCH_ARRAY(&c->strings, size_t, count);
    OnnxfuseString *strings = SCRATCH_ARRAY(&c->strings, OnnxfuseString, count);
    NEED(ort, text && offsets && strings);
    if (count) TRY(ORT(ort, GetStringTensorContent)(value, text, size, offsets, (size_t)count));
    offsets[count] = size;
    for (int64_t i = 0; i < count; i++) strings[i] = (OnnxfuseString){text + offsets[i], offsets[i + 1] - offsets[i]};
    *out_data = strings;
    return NULL;
}

static OrtStatus *take_input(Call *c, int i) {
    const Kernel *k = c->kernel;
    const Ort *ort = &k->ort;
    const OrtValue *value;
    TRY(ORT(ort, KernelContext_GetInput)(c->context, k->inputs[i].index, &value));
    if (!value) return ep_error(ort, ORT_INVALID_ARGUMENT, "%s: input %d is missing", k->name, i);
    int dtype;
    size_t rank;
    TRY(ORT(ort, GetTensorElementTypeAndShapeDataReference)(value, &dtype, &c->dims[i], &rank));
    if (rank != (size_t)k->inputs[i].rank && k->inputs[i].rank >= 0)
        return ep_error(ort, ORT_INVALID_ARGUMENT, "%s: input \"%s\" has %zu dimensions, %d are expected", k->name,
                        onnxfuse_session_input(k->session, i)->name, rank, k->inputs[i].rank);
    void *data;
    if (dtype == ONNXFUSE_STRING) {
        int64_t count = 1;
        for (size_t d = 0; d < rank; d++) count *= c->dims[i][d];
        TRY(take_strings(c, value, count, &data));
    } else {
        const void *constant;
        TRY(ORT(ort, GetTensorData)(value, &constant));
        data = (void *)(uintptr_t)constant; /* a run only reads its inputs */
    }
    static int64_t nothing; /* an empty tensor may have no memory, and none asked for would be made */
    return ep_status(
        ort, k->name,
        onnxfuse_value_tensor((OnnxfuseDType)dtype, (int)rank, c->dims[i], data ? data : &nothing, &c->inputs[i]));
}

static OrtStatus *output_memory(Call *c, int o, int rank, const int64_t *dims, OrtValue **out_value, void **out_data) {
    const Ort *ort = &c->kernel->ort;
    *out_data = NULL;
    TRY(ORT(ort, KernelContext_GetOutput)(c->context, c->kernel->outputs[o].index, dims, (size_t)rank, out_value));
    if (*out_value && c->kernel->outputs[o].dtype != ONNXFUSE_STRING)
        TRY(ORT(ort, GetTensorMutableData)(*out_value, out_data));
    return NULL;
}

/* Lets the run write into the runtime's memory, where the shape is known beforehand. */
static OrtStatus *offer_output(Call *c, int o) {
    const Kernel *k = c->kernel;
    const Port *port = &k->outputs[o];
    int64_t dims[ONNXFUSE_MAX_RANK];
    if (port->rank < 0) return NULL;
    for (int d = 0; d < port->rank; d++)
        if (!size_evaluate(&port->sizes[d], c->dims, &dims[d]) || dims[d] < 0) return NULL;
    OrtValue *value;
    void *data;
    TRY(output_memory(c, o, port->rank, dims, &value, &data));
    if (!data) return NULL; /* nobody wants it, or it is empty */
    return ep_status(&k->ort, k->name, onnxfuse_value_tensor(port->dtype, port->rank, dims, data, &c->outputs[o]));
}

static OrtStatus *copy_strings(const Ort *ort, const OnnxfuseValue *from, OrtValue *to) {
    const OnnxfuseString *strings = onnxfuse_value_data(from);
    for (int64_t i = 0; i < onnxfuse_value_count(from); i++) {
        char *text;
        TRY(ORT(ort, GetResizedStringTensorElementBuffer)(to, (size_t)i, strings[i].size, &text));
        if (strings[i].size) memcpy(text, strings[i].data, strings[i].size);
    }
    return NULL;
}

static OrtStatus *copy_output(Call *c, int o) {
    const Ort *ort = &c->kernel->ort;
    const OnnxfuseValue *from = c->outputs[o];
    if (onnxfuse_value_kind(from) != ONNXFUSE_TENSOR)
        return ep_error(ort, ORT_EP_FAIL, "%s: output %d is no tensor", c->kernel->name, o);
    OrtValue *to;
    void *data;
    TRY(output_memory(c, o, onnxfuse_value_rank(from), onnxfuse_value_dims(from), &to, &data));
    if (to && onnxfuse_value_dtype(from) == ONNXFUSE_STRING) return copy_strings(ort, from, to);
    size_t size = onnxfuse_value_bytes(from);
    if (data && size) memcpy(data, onnxfuse_value_data(from), size);
    return NULL;
}

static OrtStatus *run(Call *c) {
    const Kernel *k = c->kernel;
    bool offered[MOST_VALUES], *was_offered = offered;
    Scratch *scratch = &c->strings;
    if (k->output_count > MOST_VALUES) NEED(&k->ort, was_offered = SCRATCH_ARRAY(scratch, bool, k->output_count));
    for (int i = 0; i < k->input_count; i++) TRY(take_input(c, i));
    for (int o = 0; o < k->output_count; o++) {
        TRY(offer_output(c, o));
        was_offered[o] = c->outputs[o] != NULL;
    }
    TRY(ep_status(&k->ort, k->name,
                  onnxfuse_session_run(k->session, (const OnnxfuseValue *const *)c->inputs, c->outputs)));
    for (int o = 0; o < k->output_count; o++)
        if (!was_offered[o]) TRY(copy_output(c, o));
    return NULL;
}

static OrtStatus *compute(OrtNodeComputeInfo *info, void *state, OrtKernelContext *context) {
    const Kernel *k = state;
    OnnxfuseValue *values[2 * MOST_VALUES] = {NULL};
    const int64_t *dims[MOST_VALUES];
    Call c = {k, context, values, values + MOST_VALUES, dims, {NULL}};
    (void)info;
    if (k->input_count > MOST_VALUES) {
        c.inputs = SCRATCH_ARRAY(&c.strings, OnnxfuseValue *, k->input_count);
        c.dims = SCRATCH_ARRAY(&c.strings, const int64_t *, k->input_count);
    }
    if (k->output_count > MOST_VALUES) c.outputs = SCRATCH_ARRAY(&c.strings, OnnxfuseValue *, k->output_count);
    bool room = c.inputs && c.outputs && c.dims;
    OrtStatus *status = room ? run(&c) : ep_out_of_memory(&k->ort);
    for (int i = 0; room && i < k->input_count; i++) onnxfuse_value_free(c.inputs[i]);
    for (int o = 0; room && o < k->output_count; o++) onnxfuse_value_free(c.outputs[o]);
    scratch_free(&c.strings);
    return status;
}

/* A session holds no state between runs, so any number of threads share it. */
static OrtStatus *create_state(OrtNodeComputeInfo *info, OrtComputeContext *context, void **out_state) {
    (void)context;
    *out_state = info;
    return NULL;
}

static void release_state(OrtNodeComputeInfo *info, void *state) { (void)info, (void)state; }

/* --- making it --------------------------------------------------------------------------------------------------- */
static OrtStatus *find_names(const Ort *ort, const OrtValueInfo *const *infos, size_t count, Names *names) {
    for (size_t i = 0; i < count; i++) {
        const char *name = "";
        if (infos[i]) TRY(ORT(ort, GetValueInfoName)(infos[i], &name));
        if (*name && !names_set(names, name, (int)i)) return ep_out_of_memory(ort);
    }
    return NULL;
}

static OrtStatus *connect(Kernel *k, const OnnxfuseValueInfo *info, const Names *names, const char *what, Port *port) {
    int index = names_find(names, info->name);
    if (index < 0)
        return ep_error(&k->ort, ORT_EP_FAIL, "%s: the model's %s \"%s\" is none of the node's", k->name, what,
                        info->name);
    if (info->kind != ONNXFUSE_PROTO_TENSOR)
        return ep_error(&k->ort, ORT_EP_FAIL, "%s: the model's %s \"%s\" is no tensor", k->name, what, info->name);
    *port = (Port){.index = (size_t)index, .dtype = info->dtype, .rank = info->rank};
    return NULL;
}

static OrtStatus *plan_output(Kernel *k, const OnnxfuseValueInfo *info, Port *port) {
    if (port->dtype == ONNXFUSE_STRING || port->rank > ONNXFUSE_MAX_RANK) port->rank = -1;
    if (port->rank < 0) return NULL;
    port->sizes = SCRATCH_ARRAY(&k->scratch, SizeProgram, port->rank);
    NEED(&k->ort, port->sizes);
    for (int d = 0; d < port->rank; d++) {
        const char *size =
            info->symbols[d] ? info->symbols[d] : scratch_format(&k->scratch, "%lld", (long long)info->dims[d]);
        NEED(&k->ort, size && size_compile(&k->scratch, k->session, size, &port->sizes[d]));
        if (port->sizes[d].steps) continue;
        port->rank = -1;
        return NULL;
    }
    return NULL;
}

static OrtStatus *connect_all(Kernel *k, const OrtNode *fused) {
    const Ort *ort = &k->ort;
    size_t inputs, outputs;
    TRY(ORT(ort, Node_GetNumInputs)(fused, &inputs));
    TRY(ORT(ort, Node_GetNumOutputs)(fused, &outputs));
    const OrtValueInfo **infos = SCRATCH_ARRAY(&k->scratch, const OrtValueInfo *, inputs + outputs);
    NEED(ort, infos);
    if (inputs) TRY(ORT(ort, Node_GetInputs)(fused, infos, inputs));
    if (outputs) TRY(ORT(ort, Node_GetOutputs)(fused, infos + inputs, outputs));
    Names in = {.scratch = &k->scratch}, out = {.scratch = &k->scratch};
    TRY(find_names(ort, infos, inputs, &in));
    TRY(find_names(ort, infos + inputs, outputs, &out));
    k->input_count = onnxfuse_session_input_count(k->session);
    k->output_count = onnxfuse_session_output_count(k->session);
    k->inputs = SCRATCH_ARRAY(&k->scratch, Port, k->input_count);
    k->outputs = SCRATCH_ARRAY(&k->scratch, Port, k->output_count);
    NEED(ort, k->inputs && k->outputs);
    for (int i = 0; i < k->input_count; i++)
        TRY(connect(k, onnxfuse_session_input(k->session, i), &in, "input", &k->inputs[i]));
    for (int o = 0; o < k->output_count; o++) {
        TRY(connect(k, onnxfuse_session_output(k->session, o), &out, "output", &k->outputs[o]));
        TRY(plan_output(k, onnxfuse_session_output(k->session, o), &k->outputs[o]));
    }
    return NULL;
}

OrtStatus *kernel_create(Provider *provider, const OrtNode *fused, OnnxfuseSession *session,
                         OrtNodeComputeInfo **out_info) {
    const Ort *ort = &provider->ort;
    Kernel *k = calloc(1, sizeof *k);
    if (!k) {
        onnxfuse_session_close(session);
        return ep_out_of_memory(ort);
    }
    *k = (Kernel){
        .base = {ORT_API_VERSION_NEEDED, create_state, compute, release_state}, .ort = *ort, .session = session};
    const char *name = "";
    OrtStatus *status = ORT(ort, Node_GetName)(fused, &name);
    if (!status && !(k->name = scratch_format(&k->scratch, "%s", name))) status = ep_out_of_memory(ort);
    if (!status) status = connect_all(k, fused);
    if (status)
        kernel_release(&k->base);
    else
        *out_info = &k->base;
    return status;
}

void kernel_release(OrtNodeComputeInfo *info) {
    Kernel *k = (Kernel *)info;
    if (!k) return;
    onnxfuse_session_close(k->session);
    scratch_free(&k->scratch);
    free(k);
}
