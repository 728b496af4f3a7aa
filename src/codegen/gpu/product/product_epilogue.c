/* SPDX-License-Identifier: Apache-2.0 */
/* The epilogue of a product as a function of its program, finish_pack: the scalar program of a kernel in tile form,
 * written where sums are finished. */
#include "codegen/gpu/product/product_parts.h"
#include "codegen/gpu/region/render.h"
#include "graph/broadcast.h"

/* ---- from an anchor ---- */

static GpuOperandForm form_of(const Value *part, const Value *whole) {
    if (value_same_shape(part, whole)) return GPU_OPERAND_WHOLE;
    if (!broadcast_is_row(part)) return GPU_OPERAND_SPREAD;
    return broadcast_keeps_last(part) ? GPU_OPERAND_COLUMN : GPU_OPERAND_SCALAR;
}

Status gpu_epilogue_of(Arena *arena, const Node *anchor, DType raw, GpuDialect dialect, GpuEpilogue **out_epilogue) {
    const Graph *body = anchor->subgraphs[0];
    Target target = {.device = dialect == GPU_CUDA ? DEVICE_CUDA : DEVICE_OPENCL};
    RegionKernel region;
    TRY(codegen_tile(arena, anchor, NULL, raw, &target, &region));
    GpuEpilogue *e = *out_epilogue = ARENA_NEW(arena, GpuEpilogue);
    int *operand = ARENA_ARRAY(arena, int, region.buffer_count + 1);
    e->kernel = region.kernel;
    e->operand = operand;
    for (int i = 0; i < region.buffer_count; i++) {
        int input = region.buffer_input[i];
        operand[i] = -1;
        if (input < 1) continue;
        if (e->operand_count == EPILOGUE_INPUTS) return status_error(STATUS_FAULT, "an epilogue of too many inputs");
        operand[i] = e->operand_count;
        e->inputs[e->operand_count] = input + 1;
        e->forms[e->operand_count++] = form_of(body->inputs.items[input], body->inputs.items[0]);
    }
    return NULL;
}

/* ---- the text ---- */

static const char *operand_index(Arena *arena, const GpuEpilogue *e, int operand) {
    switch (e->forms[operand]) {
    case GPU_OPERAND_COLUMN: return "columns[j]";
    case GPU_OPERAND_SCALAR: return "0";
    default: return arena_format(arena, "(i1 / every%d * within%d + i1 %% within%d)", operand, operand, operand);
    }
}

static void add_instruction(Text *t, GpuRender *r, const GpuEpilogue *e, int i) {
    const KernelInst *inst = inst_at(r, i);
    const char *type = compute_type(inst->dtype);
    if (inst->op == K_CONST || inst->op == K_PARAM || inst->op == K_INDEX) return;
    if (inst->op == K_STORE) {
        text_add(t, "            result = (VALUE)%s;\n", value_of(r, inst->args[0]));
    } else if (inst->op != K_LOAD) {
        const char *expression = expression_of(r, i);
        text_add(t, "            const %s x%d = %s;\n", type, i, expression);
    } else if (e->operand[inst->buffer] < 0) {
        text_add(t, "            const %s x%d = (%s)v[j];\n", type, i, type);
    } else if (e->forms[e->operand[inst->buffer]] == GPU_OPERAND_WHOLE) {
        text_add(t, "            const %s x%d = (%s)other%d[j];\n", type, i, type, e->operand[inst->buffer]);
    } else {
        int operand = e->operand[inst->buffer];
        text_add(t, "            const %s x%d = (%s)FROM_BITS(READ(BITS, operand%d + %s));\n", type, i, type, operand,
                 operand_index(r->arena, e, operand));
    }
}

static void add_body(Text *t, GpuRender *r, const GpuEpilogue *e) {
    for (int i = 0; i < e->operand_count; i++)
        if (e->forms[i] == GPU_OPERAND_WHOLE)
            text_add(t, "    VALUE other%d[PACK];\n    read_pack(operand%d + at, step, count, whole, other%d);\n", i, i,
                     i);
    /* The index of philox is step * row + column + start, which is i1 alone. */
    for (int i = 0; i < r->k->param_count; i++) text_add(t, "    const i64 p%d = 0;\n    (void)p%d;\n", i, i);
    /* Without operands there is nothing beyond `count` that must not be read. */
    text_add(t,
             "    UNROLL\n    for (i32 j = 0; j < PACK; j++) {\n        %s{\n"
             "            const i64 i0 = 0, i1 = origin + at + j * step;\n            (void)i0, (void)i1;\n"
             "            VALUE result = v[j];\n",
             e->operand_count ? "if (j < count) " : "");
    for (int i = 0; i < r->k->insts.count; i++) add_instruction(t, r, e, i);
    text_add(t, "            v[j] = result;\n        }\n    }\n");
}

static GpuRender scalar_render(Arena *arena, const Kernel *kernel) {
    GpuRender r = {.arena = arena, .k = kernel, .vector_axis = 1, .loop_axes = 3};
    r.schedule.vector = r.schedule.step = 1;
    r.helpers = text_make(arena);
    return r;
}

void product_add_epilogue(Text *t, const GpuVariant *v) {
    static const GpuEpilogue none;
    const GpuEpilogue *e = v->epilogue ? v->epilogue : &none;
    int count = e->operand_count;
    text_add(t, "#define STEP_BUFFERS ");
    for (int i = 0; i < count; i++) text_add(t, ", BUFFER_ARG(step%d)", i);
    text_add(t, "\n#define STEP_DECLARE ");
    for (int i = 0; i < count; i++) text_add(t, " BUFFER(const BITS, operand%d, step%d);", i, i);
    text_add(t, "\n#define STEP_NUMBERS %s", e->kernel ? ", i64 origin" : "");
    for (int i = 0; i < count; i++) text_add(t, ", i64 every%d, i64 within%d", i, i);
    text_add(t, "\n#define STEP_PASSED %s", e->kernel ? ", origin" : "");
    for (int i = 0; i < count; i++) text_add(t, ", operand%d, every%d, within%d", i, i, i);
    text_add(t, "\n");
    Text body = text_make(t->arena);
    if (e->kernel) {
        GpuRender r = scalar_render(t->arena, e->kernel);
        add_body(&body, &r, e);
        text_add(t, "%s", r.helpers.data);
    }
    text_add(t,
             "/* The epilogue of PACK sums, the first count of them in the result, `step` apart from `at` on. */\n"
             "FUNCTION void finish_pack(VALUE *v, const i64 *columns, i64 at, i64 step, i32 count, i32 whole%s",
             e->kernel ? ", i64 origin" : "");
    for (int i = 0; i < count; i++) text_add(t, ", GLOBAL const BITS *operand%d, i64 every%d, i64 within%d", i, i, i);
    text_add(t, ") {\n%s}\n", body.data);
}
