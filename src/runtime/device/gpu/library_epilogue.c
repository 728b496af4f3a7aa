/* SPDX-License-Identifier: Apache-2.0 */
/* Tells which epilogues a library has built in. What stands behind bias and addend is compared as a kernel with those of
 * the activations: however a model writes one, it is the same kernel. */
#include "runtime/device/gpu/library_epilogue.h"

#include <math.h>
#include "codegen/codegen.h"

/* The tanh form of GELU over the raw result r: T[M, N], where T stands for the element type. */
#define GELU_TANH(cube, end)                                                                                           \
    "cubic = constant T[] 0.044715\nroot = constant T[] 0.7978845608\none = constant T[] 1\nhalf = constant T[] 0.5\n" \
    "a: T[M, N] = mul r, r\nb: T[M, N] = mul " cube "\nc: T[M, N] = mul b, cubic\nd: T[M, N] = add r, c\n"             \
    "e: T[M, N] = mul d, root\nf: T[M, N] = tanh e\ng: T[M, N] = add f, one\n" end

/* Beside bounds. */
static const struct {
    GpuActivation activation;
    const char *body;
} activations[] = {
    {GPU_ACTIVATION_GELU_TANH, GELU_TANH("a, r", "h: T[M, N] = mul r, half\ny: T[M, N] = mul h, g\n")},
    {GPU_ACTIVATION_GELU_TANH, GELU_TANH("r, a", "h: T[M, N] = mul r, g\ny: T[M, N] = mul h, half\n")},
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
    const Bounds *bounds = &out->plain.bounds;
    plain_epilogue_of(anchor, PLAIN_SUMS | PLAIN_ADDEND, &out->plain);
    out->activation = GPU_ACTIVATION_NONE;
    out->whole = out->plain.whole;
    if (bounds->clamp) { /* bounds are an activation, and nothing may follow */
        bool relu = bounds->low == 0 && bounds->high == (double)INFINITY;
        if (relu) out->activation = GPU_ACTIVATION_RELU;
        out->whole &= relu;
        return NULL;
    }
    /* cuBLASLt's GELU is off by up to 1e-6 of the largest element, which 16-bit results do not show. */
    if (out->whole || body->outputs.count != 1 || dtype_size(body->outputs.items[0]->dtype) != 2) return NULL;
    const Kernel *own, *known;
    TRY(kernel_of(arena, anchor, out->plain.end, raw, &own));
    for (size_t i = 0; !out->whole && i < sizeof activations / sizeof *activations; i++) {
        TRY(kernel_of_body(arena, activations[i].body, body->inputs.items[0]->dtype, raw, &known));
        out->whole = kernel_same(own, known);
        out->activation = activations[i].activation;
    }
    return NULL;
}
