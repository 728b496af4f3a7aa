/* SPDX-License-Identifier: Apache-2.0 */
/* Casts from and to floats of 8 and 4 bits and integers of 4 and 2, as kernels compute them, against the evaluator's bits: every code,
 * every class of floats that a rounding tells apart, every type to and from, at each CPU level that this machine runs. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include "codegen/codegen.h"
#include "codegen/native/native.h"
#include "graph/eval/eval.h"
#include "graph/space.h"

static const char *const levels[] = {"x86-64", "x86-64-v3", "x86-64-v4", "aarch64"};
enum { LEVELS = sizeof levels / sizeof *levels };

static const DType small[] = {DT_F8E4M3FN, DT_F8E4M3FNUZ, DT_F8E5M2, DT_F8E5M2FNUZ, DT_F8E8M0,
                              DT_F4E2M1,   DT_U4,         DT_I4,     DT_U2,         DT_I2};
static const DType wide[] = {DT_F32, DT_F64, DT_F16, DT_BF16, DT_BOOL, DT_I8, DT_U8,
                             DT_I16, DT_U16, DT_I32, DT_U32,  DT_I64,  DT_U64};
enum { SMALL = sizeof small / sizeof *small, WIDE = sizeof wide / sizeof *wide };

/* ---- numbers ---- */

static uint64_t random_bits(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Roundings to at most 3 bits of mantissa look at the upper 13 bits of a float (sign, exponent, those 3 and the next), and of the rest
 * at whether there is any; other values of it stand for what a wrong place of the cut would look at. */
static const uint32_t rests[] = {0, 1, 0x3ffff, 0x40000, 0x40001, 0x7ffff};
enum { RESTS = sizeof rests / sizeof *rests, HEADS = 1 << 13, FLOATS = HEADS * RESTS };

static float nth_float(int64_t i) { return float_of((uint32_t)(i / RESTS) << 19 | rests[i % RESTS]); }

/* Each such float, and the doubles beside it; what no float holds. */
static double nth_double(int64_t i) {
    static const double others[] = {1e300, -1e300, 1e-300, -1e-300, 0x1.ffffffp127, 0x1.ffffffp126};
    if (i >= 3 * (int64_t)FLOATS) return others[i % 6];
    double x = (double)nth_float(i / 3);
    return i % 3 == 0 ? x : nextafter(x, i % 3 == 1 ? HUGE_VAL : -HUGE_VAL);
}

/* Powers of two and their sums, halves between them and neighbours of all these; then any. */
static uint64_t nth_integer(int64_t i, uint64_t *state) {
    uint64_t high = UINT64_C(1) << (i % 64), low = UINT64_C(1) << (i / 64 % 64), near = (uint64_t)(i / 4096 % 3) - 1;
    if (i >= 3 * 4096) return random_bits(state) >> (i % 64);
    return i % 2 ? high + low + near : 0 - (high + low + near);
}

static int64_t numbers_of(DType t) {
    switch (t) {
    case DT_F32: return FLOATS;
    case DT_F64: return 3 * (int64_t)FLOATS + 6;
    case DT_BOOL: return 2;
    case DT_I32:
    case DT_U32:
    case DT_I64:
    case DT_U64: return 4 * 4096;
    default: return INT64_C(1) << (dtype_is_integer(t) ? dtype_file_bits(t) : 8 * (int)dtype_size(t));
    }
}

static Tensor *numbers(Arena *arena, DType t) {
    int64_t count = numbers_of(t);
    uint64_t state = 88172645463325252u;
    Tensor *tensor = tensor_new(arena, t, 1, &count);
    for (int64_t i = 0; i < count; i++) {
        if (t == DT_F32)
            ((float *)tensor->data)[i] = nth_float(i);
        else if (t == DT_F64)
            ((double *)tensor->data)[i] = nth_double(i);
        else if (dtype_size(t) >= 4)
            dtype_store_int(t, tensor->data, i, (int64_t)nth_integer(i, &state));
        else if (dtype_size(t) == 2)
            ((uint16_t *)tensor->data)[i] = (uint16_t)i;
        else if (dtype_is_float(t)) /* any code, those too that no number has */
            ((uint8_t *)tensor->data)[i] = (uint8_t)i;
        else
            dtype_store_int(t, tensor->data, i, i);
    }
    return tensor;
}

/* ---- kernels ---- */

static RegionKernel lower(Graph *body) {
    Node region = {.kind = NODE_REGION, .op = "region", .subgraphs = &body, .subgraph_count = 1};
    Target target = {0};
    RegionKernel k;
    FOR_EACH_NODE(node, body) cr_assert(space_accepts(node), "%s", prim_info(node->prim)->name);
    Status status = codegen_region(body->arena, body->dims, &region, &target, &k);
    cr_assert(!status, "%s", status_message(status));
    return k;
}

static void run(Arena *arena, const RegionKernel *k, KernelFunction function, Tensor *const *inputs,
                Tensor *const *outputs, const int64_t *symbols) {
    void **buffers = ARENA_ARRAY(arena, void *, k->buffer_count + 1);
    int64_t *params = ARENA_ARRAY(arena, int64_t, k->kernel->param_count + 1);
    for (int i = 0; i < k->kernel->param_count; i++) params[i] = dim_eval(k->params[i], symbols);
    for (int i = 0; i < k->buffer_count; i++)
        buffers[i] = k->buffer_input[i] >= 0 ? inputs[k->buffer_input[i]]->data : outputs[k->buffer_output[i]]->data;
    void *scratch = arena_alloc(arena, kernel_scratch_bytes(k->kernel, params) + 64);
    function(buffers, params, 0, kernel_tasks(k->kernel, params), scratch);
}

static void compare(const Graph *body, const char *level, const Tensor *input, const Tensor *want, const Tensor *got,
                    int output) {
    size_t size = dtype_size(want->dtype);
    for (int64_t i = 0, count = tensor_count(want); i < count; i++) {
        const char *a = (char *)want->data + (size_t)i * size, *b = (char *)got->data + (size_t)i * size;
        if (memcmp(a, b, size) == 0) continue;
        uint64_t as = 0, is = 0;
        memcpy(&as, a, size);
        memcpy(&is, b, size);
        Text text = text_make(body->arena);
        graph_print(&text, body);
        cr_assert(false, "%s: output %d of element %lld, %a, is %#llx, not %#llx\n%s", level, output, (long long)i,
                  dtype_load_double(input->dtype, input->data, i), (unsigned long long)is, (unsigned long long)as,
                  text.data);
    }
}

/* What the evaluator says, at every level; and whether the generator of our own has rules for it, whose code this machine may not
 * run. */
static void check(Graph *body, Tensor *const *inputs) {
    Arena *arena = body->arena;
    int count = body->outputs.count;
    int64_t *symbols = ARENA_ARRAY(arena, int64_t, dim_symbol_count(body->dims) + 1);
    for (int i = 0; i < dim_symbol_count(body->dims); i++) symbols[i] = UNBOUND_DIM;
    Tensor **want = ARENA_ARRAY(arena, Tensor *, count), **got = ARENA_ARRAY(arena, Tensor *, count);
    Status status = eval_graph(body, inputs, symbols, arena, want);
    cr_assert(!status, "%s", status_message(status));
    RegionKernel k = lower(body);
    for (int l = 0; l < LEVELS; l++) {
        Policy policy = policy_default();
        KernelCacheStats stats = {0};
        KernelCode *code;
        policy.cache.enable = false;
        policy.target.level = levels[l];
        Status no = target_resolve(arena, &policy.target);
        status_free(no);
        if (no) continue;
        status = kernel_cache_get(&k.kernel, 1, &policy, &stats, &code);
        cr_assert(!status, "%s: %s", levels[l], status_message(status));
        for (int o = 0; o < count; o++) got[o] = tensor_new(arena, want[o]->dtype, want[o]->rank, want[o]->dims);
        run(arena, &k, kernel_code_function(code), inputs, got, symbols);
        for (int o = 0; o < count; o++) compare(body, levels[l], inputs[0], want[o], got[o], o);
        kernel_code_release(code);
    }
#ifdef __x86_64__
    Target avx512 = {.level = "x86-64-v4", .cpu = "x86-64-v4", .features = "", .vector_bytes = 64};
    const char *reason;
    void *object;
    size_t size;
    status = native_compile(k.kernel, &avx512, NULL, &object, &size, &reason);
    cr_assert(!status, "%s", status_message(status));
    cr_expect(object, "no rule for %s\n%s", reason, kernel_text(arena, k.kernel));
    free(object);
#endif
}

/* ---- casts ---- */

static void add_cast(Graph *body, DType to, int saturate) {
    Value *x = body->inputs.items[0];
    Node *node = graph_add_prim(body, NULL, PRIM_CAST, &x, 1);
    node_set_dtype(node, "to", to);
    if (saturate >= 0) node_set_int(node, "saturate", saturate);
    graph_add_output(body, node_add_output(node, NULL, to, 1, x->dims));
}

static void check_casts(DType from, const DType *to, int count) {
    Graph *body = graph_create(0);
    const Dim *n = dim_symbol(body->dims, "n");
    graph_add_input(body, "x", from, 1, &n);
    for (int i = 0; i < count; i++) {
        bool rounds = dtype_is_small(to[i]) && dtype_is_float(to[i]);
        if (to[i] == from) continue;
        add_cast(body, to[i], rounds ? 1 : -1);
        if (rounds) add_cast(body, to[i], 0);
    }
    check(body, (Tensor *[]){numbers(body->arena, from)});
    graph_destroy(body);
}

Test(small_types, casts_to_them_are_the_evaluators) {
    for (int i = 0; i < WIDE; i++) check_casts(wide[i], small, SMALL);
}

Test(small_types, casts_from_them_are_the_evaluators) {
    for (int i = 0; i < SMALL; i++) check_casts(small[i], wide, WIDE);
}

Test(small_types, casts_between_them_are_the_evaluators) {
    for (int i = 0; i < SMALL; i++) check_casts(small[i], small, SMALL);
}

/* ---- whole bodies ---- */

static const struct {
    const char *name, *text; /* the first input has all codes of its type, the second, bool, is true in places */
} bodies[] = {
    {"codes are moved and selected bit for bit, those of NaN too",
     "graph (x: f8e5m2[256], c: bool[256]) -> (y, z) {\n k = constant f8e5m2[] nan\n r: f8e5m2[16, 16] = reshape x "
     "{shape = (16, 16)}\n p: f8e5m2[16, 16] = permute r {perm = [1, 0]}\n y: f8e5m2[256] = reshape p {shape = "
     "(256)}\n z: f8e5m2[256] = where c, x, k\n}"},
    {"bits are read as those of another type",
     "graph (x: f8e4m3fn[256], c: bool[256]) -> (y, z) {\n y: u8[256] = bitcast x {to = u8}\n b: i8[256] = bitcast x "
     "{to = i8}\n z: f8e5m2fnuz[256] = bitcast b {to = f8e5m2fnuz}\n}"},
    {"scalars are constants of the kernel",
     "graph (x: f8e4m3fnuz[256], c: bool[256]) -> (y, z) {\n k = constant f8e5m2[] 0.375\n i = constant i4[] -7\n f: "
     "f32[] = cast k {to = f32}\n g: f32[] = cast i {to = f32}\n a: f32[256] = cast x {to = f32}\n b: f32[256] = mul "
     "a, f\n y: f8e4m3fnuz[256] = cast b {to = f8e4m3fnuz}\n d: f32[256] = add a, g\n z: i4[256] = cast d {to = "
     "i4}\n}"},
    {"rounding in between is not left out",
     "graph (x: f8e4m3fn[256], c: bool[256]) -> (y, z) {\n t = constant f32[] 1.0625\n a: f32[256] = cast x {to = "
     "f32}\n b: f32[256] = mul a, t\n d: f8e5m2[256] = cast b {to = f8e5m2}\n y: f32[256] = cast d {to = f32}\n e: "
     "f4e2m1[256] = cast y {to = f4e2m1}\n z: f32[256] = cast e {to = f32}\n}"},
    {"rows are reduced behind a cast",
     "graph (x: f8e4m3fnuz[256], c: bool[256]) -> (y) {\n r: f8e4m3fnuz[8, 32] = reshape x {shape = (8, 32)}\n a: "
     "f32[8, 32] = cast r {to = f32}\n m: f32[8, 1] = reduce_max a {axes = [1]}\n d: f32[8, 32] = sub a, m\n y: "
     "f8e8m0[8, 32] = cast d {to = f8e8m0}\n}"},
};

Test(small_types, bodies_are_the_evaluators) {
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        Graph *body = NULL;
        Status status = graph_parse(bodies[i].text, &body);
        cr_assert(!status, "%s: %s", bodies[i].name, status_message(status));
        Tensor *x = numbers(body->arena, body->inputs.items[0]->dtype);
        Tensor *c = tensor_new(body->arena, DT_BOOL, 1, x->dims);
        for (int64_t e = 0; e < x->dims[0]; e++) ((uint8_t *)c->data)[e] = e % 3 > 0;
        check(body, (Tensor *[]){x, c});
        graph_destroy(body);
    }
}
