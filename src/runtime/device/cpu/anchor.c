/* SPDX-License-Identifier: Apache-2.0 */
/* The life of an anchor, and what all kinds do around their products: element types, epilogue inputs, checks of shapes,
 * the fallback to the oracle. */
#include "runtime/device/cpu/anchor.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/heap.h"
#include "lowering/anchor/anchor_eval.h"
#include "policy/policy.h"
#include "runtime/device/cpu/parts.h"
#include "runtime/device/cpu/quads.h"

typedef struct AnchorMemory {
    struct AnchorMemory *next;
    size_t bytes; /* with this line */
} AnchorMemory;

enum { LINE = HEAP_ALIGNMENT };

Status anchor_allocate(CpuAnchor *anchor, size_t bytes, void **out_data) {
    *out_data = NULL;
    if (bytes > SIZE_MAX / 2) return status_out_of_memory();
    AnchorMemory *memory = heap_alloc(bytes + LINE);
    if (!memory) return status_out_of_memory();
    memory->next = anchor->memory;
    memory->bytes = bytes + LINE;
    anchor->memory = memory;
    *out_data = (char *)memory + LINE;
    return NULL;
}

Status anchor_pack(CpuAnchor *anchor, const Recipe *recipe, size_t bytes, void **out_data, bool *out_ready) {
    size_t number = (size_t)anchor->packed_count;
    *out_data = NULL;
    *out_ready = anchor->given != NULL;
    if (number == sizeof anchor->packed / sizeof *anchor->packed)
        return status_error(STATUS_FAULT, "an anchor packs too much");
    if (!anchor->given) {
        TRY(pack_take(anchor->store, recipe, bytes, &anchor->packs[number], out_ready));
        *out_data = pack_data(anchor->packs[number]);
    } else {
        if (number >= (size_t)anchor->given_count || anchor->given[number].bytes != bytes)
            return anchor_wrong(anchor, "what is packed of its constants does not fit it");
        *out_data = (void *)(uintptr_t)anchor->given[number].data;
    }
    anchor->packed[anchor->packed_count++] = (Packed){*out_data, bytes};
    return NULL;
}

Recipe anchor_recipe(const CpuAnchor *anchor, const Tensor *constant) {
    Recipe recipe = {0};
    recipe_add_place(&recipe, anchor->kind);
    recipe_add_place(&recipe, constant->data);
    recipe_add(&recipe, anchor->dtype);
    recipe_add(&recipe, anchor->form.kind);
    recipe_add_all(&recipe, constant->dims, constant->rank);
    return recipe;
}

Status anchor_wrong(const CpuAnchor *anchor, const char *what) {
    return status_error(STATUS_INVALID, "%s (%s): %s", node_origin_name(anchor->node), anchor->node->op, what);
}

int anchor_quads(const CpuAnchor *anchor) {
    bool whole = anchor->form.kind == WEIGHT_WORK || anchor->form.kind == WEIGHT_BF16;
    return anchor->dtype == DT_U8 ? QUAD : anchor->dtype == DT_BF16 && whole ? QUAD / 2 : 0;
}

const TileSet *anchor_tiles(const CpuAnchor *anchor, int quads) {
    return quads == QUAD ? tile_set_quads() : quads ? tile_set_pairs() : tile_set(anchor->type);
}

int64_t dims_product(const int64_t *dims, int from, int to) {
    int64_t count = 1;
    for (int i = from; i < to; i++) count *= dims[i];
    return count;
}

static const AnchorKind *kind_of(const Node *node) {
    static const AnchorKind *const kinds[] = {
        &matmul_kind, &matmul_bits_kind,    &matmul_blocks_kind, &matmul_grouped_kind,
        &conv_kind,   &conv_transpose_kind, &attention_kind,     &attention_backward_kind};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(node->op, kinds[i]->op) == 0) return kinds[i];
    return NULL;
}

/* ---- weights held narrower than what is computed in ---- */

/* What policies ask for; of weights that came in few bits: those whose bits they have. */
static const struct {
    WeightKind kind;
    const char *name, *packed, *depthwise;
} weight_forms[] = {
    [PRECISION_AS_IS] = {WEIGHT_WORK, "as is", "packed", "depthwise"},
    [PRECISION_F32] = {WEIGHT_WORK, "f32", "packed", "depthwise"},
    [PRECISION_F16] = {WEIGHT_F16, "f16", "packed, weights f16", "depthwise, weights f16"},
    [PRECISION_BF16] = {WEIGHT_BF16, "bf16", "packed, weights bf16", "depthwise, weights bf16"},
    [PRECISION_INT8] = {WEIGHT_INT8, "int8", "packed, weights int8", "depthwise, weights int8"},
    [PRECISION_INT4] = {WEIGHT_INT4, "int4", "packed, weights int4", "depthwise, weights int4"},
    {WEIGHT_INT2, "int2", "packed, weights int2", NULL},
};

static int64_t weight_precision(const CpuAnchor *anchor) { return attr_int(anchor->node, WEIGHT_PRECISION, 0); }

static Status read_form(CpuAnchor *anchor, const Tensor *weight) {
    const Node *node = anchor->node;
    int64_t wanted = weight_precision(anchor);
    if (wanted == PRECISION_AS_IS) return NULL;
    if (wanted < 0 || wanted > PRECISION_INT4) return anchor_wrong(anchor, "there is no such weight_precision");
    if (anchor->type != DT_F32)
        return status_error(STATUS_UNSUPPORTED, "%s (%s): weights %s are asked for, but the product is of %s",
                            node_origin_name(node), node->op, weight_forms[wanted].name, dtype_name(anchor->dtype));
    if (!weight)
        return status_error(STATUS_INVALID, "%s (%s): weights %s are asked for, but the second factor is not constant",
                            node_origin_name(node), node->op, weight_forms[wanted].name);
    anchor->form = (WeightForm){weight_forms[wanted].kind, NARROW_BLOCK, false};
    return NULL;
}

void anchor_keep_halves(CpuAnchor *anchor, int64_t elements) {
    if (anchor->dtype == DT_F16 && !anchor->form.kind && elements * (int64_t)sizeof(float) > RESIDENT_WEIGHT_BYTES)
        anchor->form = (WeightForm){WEIGHT_F16, NARROW_BLOCK, false};
}

static float weight_at(const Tensor *weight, int64_t index) {
    if (weight->dtype == DT_F32) return float_at(weight->data, index);
    return (float)dtype_load_double(weight->dtype, weight->data, index);
}

Status anchor_check_weight(const CpuAnchor *anchor, const Tensor *weight, double scale) {
    int64_t count = tensor_count(weight), at = 0;
    char place[MAX_RANK * 22 + 1];
    size_t length = 0;
    if (weight_precision(anchor) == PRECISION_AS_IS || !anchor->form.kind) return NULL;
    while (at < count && isfinite(weight_at(weight, at) * (float)scale)) at++;
    if (at == count) return NULL;
    const double found = (double)weight_at(weight, at);
    for (int i = 0; i < weight->rank; i++)
        length += (size_t)snprintf(place + length, sizeof place - length, "%s%lld", i ? ", " : "",
                                   (long long)(at / dims_product(weight->dims, i + 1, weight->rank) % weight->dims[i]));
    const Node *node = anchor->node;
    const char *name = node->inputs[1]->name;
    return status_error(STATUS_INVALID,
                        "%s (%s): element [%s] of the weight%s%s%s is %g%s, which weights %s cannot hold",
                        node_origin_name(node), node->op, place, name ? " \"" : "", name ? name : "", name ? "\"" : "",
                        found, isfinite(found) ? ", infinite with the factors folded into it" : "",
                        weight_forms[weight_precision(anchor)].name);
}

void anchor_is_packed(CpuAnchor *anchor, size_t bytes, bool depthwise, bool pairs) {
    int row = 0;
    while (weight_forms[row].kind != anchor->form.kind) row++;
    anchor->packed_bytes = bytes;
    anchor->released |= 2;
    anchor->how = depthwise ? weight_forms[row].depthwise : weight_forms[row].packed;
    if (pairs) anchor->how = "packed, bf16";
}

/* ---- preparation ---- */

Status anchor_keep_bias(CpuAnchor *anchor, int input, const Tensor *bias, Pool *pool) {
    size_t size = dtype_size(anchor->type);
    int64_t count = tensor_count(bias);
    void *copy;
    bool ready;
    Recipe recipe = anchor_recipe(anchor, bias);
    TRY(anchor_pack(anchor, &recipe, ((size_t)count + PANEL_SLACK) * size, &copy, &ready));
    if (!ready) {
        work_widen(bias->dtype, bias->data, copy, count, pool);
        memset((char *)copy + (size_t)count * size, 0, PANEL_SLACK * size);
    }
    anchor->bias = copy;
    anchor->released |= 1u << input;
    return NULL;
}

/* What of the epilogue tiles have built in: where that is not all, a kernel does the rest. What is not computed in its
 * own type is rounded at each step, which tiles do not do; an addend is found beside where results go; gates are of f32 alone. */
static void split_epilogue(const Node *node, PlainEpilogue *out) {
    DType sums = dtype_of_sums(node->inputs[0]->dtype);
    int last = sums == DT_BF16 ? PLAIN_OF_BF16 : sums == DT_F32 ? PLAIN_GATE : 0;
    plain_epilogue_of(node, is_work(sums) || sums == DT_BF16 ? PLAIN_SUMS | PLAIN_ADDEND | last : 0, out);
    if (!out->whole) plain_epilogue_of(node, is_work(sums) ? PLAIN_SUMS : 0, out);
}

DType cpu_anchor_finishes_with(const Node *node, const Value **out_begin) {
    PlainEpilogue plain;
    split_epilogue(node, &plain);
    *out_begin = plain.whole ? NULL : plain.end;
    if (plain.whole) return DT_NONE;
    DType dtype = dtype_of_sums(node->inputs[0]->dtype);
    return dtype_is_float(dtype) ? anchor_work_type(dtype) : dtype;
}

/* What tiles add to sums: the element is written right after. */
uint64_t cpu_anchor_inplace(const Node *node) {
    PlainEpilogue plain;
    const AnchorKind *kind = kind_of(node);
    if (!kind || kind->alone) return 0;
    split_epilogue(node, &plain);
    if (plain.addend < 0) return 0;
    const Value *addend = node->inputs[plain.addend], *result = node->outputs[0];
    bool fits = value_same_shape(addend, result) && dtype_size(addend->dtype) == dtype_size(result->dtype);
    return fits ? UINT64_C(1) << plain.addend : 0;
}

/* Which axis of the output holds the columns of the product. */
static int column_axis(const Node *node) {
    int count, rank = node->outputs[0]->rank;
    const int64_t *perm = attr_ints(node, "perm_out", &count);
    for (int i = 0; perm && i < count; i++)
        if (perm[i] == rank - 1) return i;
    return rank - 1;
}

static Status prepare(CpuAnchor *anchor, const Tensor *const *constants, Pool *pool) {
    const Node *node = anchor->node;
    if (anchor->kind && anchor->kind->alone) return anchor->kind->prepare(anchor, constants, pool);
    if (!anchor->kind) return status_error(STATUS_FAULT, "there is no anchor \"%s\"", node->op);
    if (node->input_count < 2 || !node->inputs[0] || !node->inputs[1] || node->input_count > EPILOGUE_INPUTS + 2)
        return status_error(STATUS_FAULT, "anchor %s: %d inputs", node->op, node->input_count);
    DTypeClass class = dtype_class(anchor->dtype);
    if (class != DTYPE_FLOAT && class != DTYPE_SIGNED && class != DTYPE_UNSIGNED)
        return anchor_wrong(anchor, "this element type has no arithmetic");
    for (int i = 0; i < node->input_count; i++) {
        anchor->shapes[i].rank = -1;
        if (!constants[i]) continue;
        anchor->shapes[i] = *constants[i];
        anchor->shapes[i].data = NULL;
        if (i < 2 && constants[i]->dtype != node->inputs[i]->dtype)
            return anchor_wrong(anchor, "the inputs' element types differ");
    }
    if (!anchor_holds_bits(node) && !anchor_takes(anchor->dtype, node->inputs[1]->dtype))
        return anchor_wrong(anchor, "the factors' element types do not go together");
    split_epilogue(node, &anchor->epilogue);
    anchor->column_axis = column_axis(node);
    TRY(read_form(anchor, constants[1]));
    TRY(anchor->kind->prepare(anchor, constants, pool));
    int bias = anchor->epilogue.bias;
    if (bias >= 0 && constants[bias] && !anchor->plain) TRY(anchor_keep_bias(anchor, bias, constants[bias], pool));
    return NULL;
}

bool cpu_anchor_packs_weight(const Node *node) {
    const AnchorKind *kind = kind_of(node);
    return kind && kind->packs && kind->packs(node);
}

static Status make_anchor(const Node *node, const Tensor *const *constants, const Packed *given, int given_count,
                          Pool *pool, PackStore *store, CpuAnchor **out_anchor, uint32_t *out_released) {
    *out_anchor = NULL;
    *out_released = 0;
    CpuAnchor *anchor = calloc(1, sizeof *anchor);
    if (!anchor) return status_out_of_memory();
    DType dtype = node->input_count && node->inputs[0] ? node->inputs[0]->dtype : DT_NONE;
    *anchor = (CpuAnchor){
        .node = node, .kind = kind_of(node), .dtype = dtype, .type = anchor_work_type(dtype), .how = "packed at run"};
    anchor->given = given;
    anchor->given_count = given_count;
    anchor->store = store;
    Status status = prepare(anchor, constants, pool);
    if (status) {
        cpu_anchor_destroy(anchor);
        return status;
    }
    *out_anchor = anchor;
    *out_released = anchor->released;
    return NULL;
}

Status cpu_anchor_prepare(const Node *node, const Tensor *const *constants, Pool *pool, PackStore *store,
                          CpuAnchor **out_anchor, uint32_t *out_released) {
    return make_anchor(node, constants, NULL, 0, pool, store, out_anchor, out_released);
}

Status cpu_anchor_restore(const Node *node, const Tensor *const *constants, const Packed *packed, int count, Pool *pool,
                          CpuAnchor **out_anchor, uint32_t *out_released) {
    static const Packed none;
    return make_anchor(node, constants, packed ? packed : &none, count, pool, NULL, out_anchor, out_released);
}

int cpu_anchor_packed(const CpuAnchor *anchor, const Packed **out_packed, uint32_t *out_released) {
    *out_packed = anchor->packed;
    *out_released = anchor->released;
    return anchor->packed_count;
}

void cpu_anchor_destroy(CpuAnchor *anchor) {
    if (!anchor) return;
    for (AnchorMemory *memory = anchor->memory, *next; memory; memory = next) {
        next = memory->next;
        heap_free(memory, memory->bytes);
    }
    for (int i = 0; i < anchor->packed_count; i++) pack_release(anchor->packs[i]);
    free(anchor);
}

size_t cpu_anchor_bytes(const CpuAnchor *anchor) { return anchor->packed_bytes; }
const char *cpu_anchor_how(const CpuAnchor *anchor) { return anchor->how; }

/* ---- runs ---- */

/* Shapes that a constant had when it was packed hold; all others are taken as they come, but with the type that was
 * prepared for. */
static Status check_inputs(const CpuAnchor *anchor, const Tensor *const *inputs, const Tensor *outputs) {
    const Node *node = anchor->node;
    for (int i = 0; i < node->input_count; i++) {
        if (!inputs[i]) return anchor_wrong(anchor, "an input is missing");
        if (inputs[i]->dtype != node->inputs[i]->dtype)
            return anchor_wrong(anchor, "an input has another element type than the model says");
        if (!anchor->kind->alone && anchor->shapes[i].rank >= 0 && !tensor_same_shape(&anchor->shapes[i], inputs[i]))
            return anchor_wrong(anchor, "a constant has changed its shape");
        TRY(tensor_size_of(inputs[i]->dtype, inputs[i]->rank, inputs[i]->dims, NULL, NULL));
    }
    for (int o = 0; o < node->output_count; o++) {
        if (outputs[o].dtype != node->outputs[o]->dtype)
            return anchor_wrong(anchor, "a result has another element type than the model says");
        if (o && !anchor->kind->alone && !tensor_same_shape(&outputs[o], &outputs[0]))
            return anchor_wrong(anchor, "the results' shapes differ");
        TRY(tensor_size_of(outputs[o].dtype, outputs[o].rank, outputs[o].dims, NULL, NULL));
    }
    return NULL;
}

/* An operand of the plain epilogue in the work type. */
static Status bind_operand(AnchorRun *run, int input, int64_t count, int64_t slack, const void **out_data) {
    if (input < 0) return NULL;
    const Tensor *t = run->inputs[input];
    if (tensor_count(t) != count) return anchor_wrong(run->anchor, "an input of the epilogue does not fit the result");
    return work_take(t->dtype, t->data, count, (size_t)slack, run->pool, &run->scratch, out_data);
}

static Status bind_bias(AnchorRun *run, int64_t columns, const void **out_bias) {
    const CpuAnchor *anchor = run->anchor;
    *out_bias = anchor->bias;
    return anchor->bias ? NULL : bind_operand(run, anchor->epilogue.bias, columns, PANEL_SLACK, out_bias);
}

static Status bind_epilogue(AnchorRun *run, int64_t columns) {
    const PlainEpilogue *plain = &run->anchor->epilogue;
    run->epilogue = (BoundEpilogue){.bounds = plain->bounds, .result = run->result};
    TRY(bind_operand(run, plain->addend, tensor_count(run->output), 0, &run->epilogue.addend));
    return bind_bias(run, columns, &run->epilogue.bias);
}

/* Results that are rounded block by block, or in registers. */
static Status bind_rounding(AnchorRun *run) {
    const PlainEpilogue *plain = &run->anchor->epilogue;
    const Tensor *addend = plain->addend < 0 ? NULL : run->inputs[plain->addend];
    const void *bias = NULL;
    if (addend && tensor_count(addend) != tensor_count(run->output))
        return anchor_wrong(run->anchor, "an input of the epilogue does not fit the result");
    finish_bind_rounding(&run->finish, run->output, plain, addend);
    TRY(bind_bias(run, run->finish.columns, &bias));
    run->finish.ends.bias = bias;
    run->result = (void *)(uintptr_t)run->finish.base;
    run->epilogue = (BoundEpilogue){.result = run->result, .finish = &run->finish};
    return NULL;
}

static Status run_product(AnchorRun *run) {
    const CpuAnchor *anchor = run->anchor;
    Tensor *output = run->output;
    int64_t count = tensor_count(output);
    if (!count) return NULL;
    run->result = output->data;
    DType raw = dtype_of_sums(anchor->dtype);
    int columns = anchor->column_axis;
    bool aside = !is_work(raw);
    if ((raw == DT_F16 || raw == DT_BF16) && columns == output->rank - 1) {
        TRY(bind_rounding(run));
        return anchor->kind->run(run);
    }
    if (aside) TRY(scratch_take(&run->scratch, (size_t)count * dtype_size(anchor->type), &run->result));
    TRY(bind_epilogue(run, output->dims[columns]));
    TRY(anchor->kind->run(run));
    if (aside) work_narrow(raw, run->result, output->data, count, run->pool);
    return NULL;
}

static Status run_finished(AnchorRun *run, KernelFunction function, const RegionKernel *region, const Tensor *outputs) {
    const CpuAnchor *anchor = run->anchor;
    if (!tensor_count(run->output)) return NULL;
    if (!function || !region) return status_error(STATUS_FAULT, "the epilogue has no kernel");
    if (anchor->column_axis != run->output->rank - 1 ||
        !finish_bind(&run->finish, function, region, (int64_t)dtype_size(anchor->type), run->inputs, outputs))
        return anchor_wrong(anchor, "an input of the epilogue does not fit the result");
    run->result = (void *)(uintptr_t)run->finish.base;
    TRY(bind_epilogue(run, run->finish.columns));
    run->epilogue.finish = &run->finish;
    return anchor->kind->run(run);
}

static Status eval_in(Arena *arena, AnchorRun *run) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Tensor **inputs = ARENA_ARRAY(arena, Tensor *, run->anchor->node->input_count),
           **results = ARENA_ARRAY(arena, Tensor *, run->anchor->node->output_count);
    for (int i = 0; i < run->anchor->node->input_count; i++)
        inputs[i] = arena_copy(arena, run->inputs[i], sizeof(Tensor));
    TRY(eval_anchor(run->anchor->node, inputs, run->symbols, arena, results));
    for (int o = 0; o < run->anchor->node->output_count; o++) {
        if (!tensor_same_shape(results[o], &run->output[o]))
            return anchor_wrong(run->anchor, "the result does not have the shape that was planned");
        if (tensor_count(results[o])) memcpy(run->output[o].data, results[o]->data, tensor_bytes(results[o]));
    }
    return NULL;
}

static Status run_plain(AnchorRun *run) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = eval_in(arena, run);
    arena_destroy(arena);
    return status;
}

bool cpu_anchor_is_prologue(const Node *maker, const Node *reader) { return conv_is_prologue(maker, reader); }

/* Bytes between the two from which on one pass pays. What stays in the second-level cache or near it costs no more than
 * short chunks do: 0.9 MB took up to 4 % longer in one pass, a text detector's whole picture of 960 x 960 3 to 17 % less time (AMD EPYC
 * of family 25, one and two threads, least of 5 alternating runs, November 2026). */
enum { LEAST_BETWEEN = 2 << 20 };

/* Rows whose joined copy costs more than a step: products of fewer are cut along their depth, which pieces of rows are not. */
enum { LEAST_JOINED = 64 };

bool cpu_anchor_takes_prologue(const Node *maker, const Tensor *between, const Pool *pool) {
    int64_t row = between->dims[between->rank - 1], count = tensor_count(between);
    if (maker->kind != NODE_ANCHOR) return count / most(1, row) >= LEAST_JOINED;
    if ((int64_t)tensor_bytes(between) < LEAST_BETWEEN) return false;
    return product_makes_rows(count / row, between->dims[between->rank - 2], row * (int64_t)dtype_size(between->dtype),
                              pool);
}

static Status run_any(AnchorRun *run, KernelFunction finish, const RegionKernel *region) {
    const CpuAnchor *anchor = run->anchor;
    if (anchor->kind->alone) return anchor->kind->run(run);
    return anchor->epilogue.whole ? run_product(run) : run_finished(run, finish, region, run->output);
}

static Status check_run(const AnchorRun *run) {
    TRY(check_inputs(run->anchor, run->inputs, run->output));
    return run->anchor->plain ? NULL : run->anchor->kind->check(run->anchor, run->inputs, run->symbols, run->output);
}

static Status run_checked(AnchorRun *run, KernelFunction finish, const RegionKernel *region) {
    TRY(check_run(run));
    if (run->anchor->plain) return run_plain(run);
    Status status = run_any(run, finish, region);
    scratch_release(&run->scratch);
    return status;
}

Status cpu_anchor_run(CpuAnchor *anchor, KernelFunction finish, const RegionKernel *region, const Tensor *const *inputs,
                      const int64_t *symbols, Tensor *outputs, Pool *pool) {
    AnchorRun run = {.anchor = anchor, .inputs = inputs, .symbols = symbols, .output = outputs, .pool = pool};
    return run_checked(&run, finish, region);
}

Status cpu_anchor_run_behind(const CpuPrologue *prologue, CpuAnchor *anchor, KernelFunction finish,
                             const RegionKernel *region, const Tensor *const *inputs, const int64_t *symbols,
                             Tensor *outputs, Pool *pool) {
    AnchorRun run = {.anchor = anchor, .inputs = inputs, .symbols = symbols, .output = outputs, .pool = pool};
    if (anchor->plain || (prologue->anchor && prologue->anchor->plain))
        return status_error(STATUS_FAULT, "the oracle reads whole tensors");
    if (!prologue->anchor) {
        run.parts = prologue->inputs;
        run.part_count = prologue->input_count;
        return run_checked(&run, finish, region);
    }
    RowMaker maker;
    Tensor between = *prologue->output;
    between.data = (void *)(uintptr_t)HEAP_ALIGNMENT; /* never read or written */
    AnchorRun made = {.anchor = prologue->anchor,
                      .inputs = prologue->inputs,
                      .symbols = symbols,
                      .output = &between,
                      .pool = pool,
                      .out_maker = &maker};
    run.maker = &maker;
    TRY(check_run(&made));
    TRY(check_run(&run));
    Status status = run_any(&made, prologue->finish, prologue->region);
    if (!status) status = run_any(&run, finish, region);
    scratch_release(&made.scratch);
    scratch_release(&run.scratch);
    return status;
}
