/* SPDX-License-Identifier: Apache-2.0 */
/* Tells which epilogues a library has built in. What stands behind bias and addend is compared as a kernel with those of
 * the activations: however a model writes one, it is the same kernel. */
#include "runtime/device/gpu/library_epilogue.h"

#include <math.h>
#include "codegen/codegen.h"

/* Beside bounds. Bodies over the raw result r: T[M, N], where T stands for the element type. */
static const struct {
    GpuActivation activation;
    const char *body;
} activations[] = {
    {GPU_ACTIVATION_GELU_TANH, "cubic = constant T[] 0.044715\n"
                               "root = constant T[] 0.7978845608\n"
                               "one = constant T[] 1\n"
                               "half = constant T[] 0.5\n"
                               "a: T[M, N] = mul r, r\n"
                               "b: T[M, N] = mul a, r\n"
                               "c: T[M, N] = mul cubic, b\n"
                               "d: T[M, N] = add r, c\n"
                               "e: T[M, N] = mul root, d\n"
                               "f: T[M, N] = tanh e\n"
                               "g: T[M, N] = add one, f\n"
                               "h: T[M, N] = mul r, half\n"
                               "y: T[M, N] = mul h, g\n"},
    {GPU_ACTIVATION_GELU_TANH, "cubic = constant T[] 0.044715\n" /* halved at the end */
                               "root = constant T[] 0.7978845608\n"
                               "one = constant T[] 1\n"
                               "half = constant T[] 0.5\n"
                               "a: T[M, N] = mul r, r\n"
                               "b: T[M, N] = mul r, a\n"
                               "c: T[M, N] = mul b, cubic\n"
                               "d: T[M, N] = add r, c\n"
                               "e: T[M, N] = mul d, root\n"
                               "f: T[M, N] = tanh e\n"
                               "g: T[M, N] = add f, one\n"
                               "h: T[M, N] = mul r, g\n"
                               "y: T[M, N] = mul h, half\n"},
};

static const char *typed(Arena *arena, const char *body, DType type) {
    Text text = text_make(arena);
    for (const char *at = body; *at; at++)
        if (*at == 'T' && at[1] == '[')
            text_add(&text, "%s", dtype_name(type));
        else
            text_add_bytes(&text, at, 1);
    return text.data;
}

static Status kernel_of(Arena *arena, const Node *anchor, const Value *begin, DType raw, const Kernel **out_kernel) {
    Target target = {.device = DEVICE_CUDA};
    RegionKernel region;
    TRY(codegen_tile(arena, anchor, begin, raw, &target, &region));
    *out_kernel = region.kernel;
    return NULL;
}

static Status kernel_of_body(Arena *arena, const char *body, DType type, DType raw, const Kernel **out_kernel) {
    const char *form = "graph (p: T[M, K], q: T[K, N]) -> (out) {\n"
                       "out: T[M, N] = anchor matmul p, q graph \"epilogue\" (r: T[M, N]) -> (y) {\n%s}\n}\n";
    Graph *graph;
    TRY(graph_parse(typed(arena, arena_format(arena, form, body), type), &graph));
    Status status = kernel_of(arena, graph->first, NULL, raw, out_kernel);
    graph_destroy(graph);
    return status;
}

Status library_epilogue_of(Arena *arena, const Node *anchor, DType raw, LibraryEpilogue *out) {
    const Graph *body = anchor->subgraphs[0];
    const Value *begin = plain_beginning_of(anchor, true, &out->plain);
    out->activation = GPU_ACTIVATION_NONE;
    out->whole = body->outputs.count == 1 && body->outputs.items[0] == begin;
    if (out->plain.bounds.clamp) { /* bounds are an activation, and nothing may follow */
        if (out->plain.bounds.low == 0 && out->plain.bounds.high == (double)INFINITY)
            out->activation = GPU_ACTIVATION_RELU;
        out->whole &= out->activation == GPU_ACTIVATION_RELU;
        return NULL;
    }
    /* cuBLASLt's GELU is off by up to 1e-6 of the largest element, which 16-bit results do not show. */
    if (out->whole || body->outputs.count != 1 || dtype_size(body->outputs.items[0]->dtype) != 2) return NULL;
    const Kernel *own, *known;
    TRY(kernel_of(arena, anchor, begin, raw, &own));
    for (size_t i = 0; !out->whole && i < sizeof activations / sizeof *activations; i++) {
        TRY(kernel_of_body(arena, activations[i].body, body->inputs.items[0]->dtype, raw, &known));
        out->whole = kernel_same(own, known);
        out->activation = activations[i].activation;
    }
    return NULL;
}
