/* SPDX-License-Identifier: Apache-2.0 */
/* The public registry of custom operators and fusions, and the call that their functions are handed. What is added is
 * copied into the registry's arena and checked there; a call reads its node, says types while the model is lowered,
 * and asks for memory while the plan runs. Where memory runs out in a call from the application, control comes back to
 * it: only our own frames may be unwound. */
#include "runtime/api/registry.h"

#include <stdlib.h>

#include "fusions/fusions.h"
#include "passes/pattern/pattern.h"

struct OnnxfuseRegistry {
    Registry registry;
};

/* A custom operator as lowering sees it, with the application's functions behind. */
typedef struct Own {
    CustomOperator op; /* op.user is this structure */
    OnnxfuseStatus (*infer)(void *user, OnnxfuseCall *call);
    OnnxfuseStatus (*compute)(void *user, OnnxfuseCall *call);
    void *user;
} Own;

OnnxfuseStatus onnxfuse_error(OnnxfuseCode code, const char *message) {
    if (code <= ONNXFUSE_OK || code > ONNXFUSE_DEADLINE) code = ONNXFUSE_FAULT;
    return status_error((StatusCode)code, "%s", message ? message : "");
}

/* --- the inputs as public values ---------------------------------------------------------------------------------- */
static void release_views(void *value) { value_release_views(value); }

static OnnxfuseValue *input_values(Arena *arena, int count) { return ARENA_ARRAY(arena, OnnxfuseValue, count + 1); }

static Status infer_own(void *user, CustomCall *call) {
    const Own *own = user;
    const Node *n = call->node;
    OnnxfuseValue *values = input_values(call->lowering->arena, n->input_count);
    for (int i = 0; i < n->input_count; i++)
        if (n->inputs[i] && n->inputs[i]->constant)
            values[i].item = (Item){.kind = ITEM_TENSOR, .tensor = *aligned_constant(call->lowering, n->inputs[i])};
    call->values = values;
    return own->infer(own->user, call);
}

static Status compute_own(void *user, CustomCall *call) {
    const Own *own = user;
    HostCall *host = call->host;
    OnnxfuseValue *values = input_values(host->arena, host->node->input_count);
    for (int i = 0; i < host->node->input_count; i++) {
        if (!host->inputs[i]) continue;
        values[i].item = *host->inputs[i];
        if (item_has_items(&values[i].item)) arena_defer(host->arena, release_views, &values[i]);
    }
    call->values = values;
    return own->compute(own->user, call);
}

/* --- copies ------------------------------------------------------------------------------------------------------- */
static const char *copied_domain(Arena *arena, const char *domain) {
    return domain && strcmp(domain, "ai.onnx") != 0 ? arena_string(arena, domain) : "";
}

static const CustomOperator *copy_operator(Arena *arena, const OnnxfuseOperator *op) {
    Own *own = ARENA_NEW(arena, Own);
    *own = (Own){.infer = op->infer, .compute = op->compute, .user = op->user};
    own->op = (CustomOperator){.domain = copied_domain(arena, op->domain),
                               .name = arena_string(arena, op->name),
                               .since = op->since,
                               .until = op->until,
                               .random = op->random,
                               .in_place = op->in_place,
                               .gradient = op->gradient ? arena_string(arena, op->gradient) : NULL,
                               .infer = op->infer ? infer_own : NULL,
                               .compute = compute_own,
                               .user = own};
    return &own->op;
}

static const CustomFusion *copy_fusion(Arena *arena, const OnnxfuseFusion *fusion) {
    CustomFusion *copy = ARENA_NEW(arena, CustomFusion);
    int count = 0;
    while (fusion->patterns[count]) count++;
    const char **patterns = ARENA_ARRAY(arena, const char *, count + 1);
    for (int i = 0; i < count; i++) patterns[i] = arena_string(arena, fusion->patterns[i]);
    *copy = (CustomFusion){.name = arena_string(arena, fusion->name),
                           .phase = fusion->phase == ONNXFUSE_BACKWARD ? FUSION_BACKWARD : FUSION_FORWARD,
                           .patterns = patterns,
                           .kernel = fusion->kernel ? copy_operator(arena, fusion->kernel) : NULL};
    return copy;
}

/* --- checks ------------------------------------------------------------------------------------------------------- */
static Status check_size(const char *name, size_t given, size_t known) {
    if (given) return check_struct(name, given, known);
    return status_error(STATUS_USAGE, "%s: the member size is not set", name);
}

static bool is_empty(const char *text) { return !text || !*text; }

static Status check_operator(const OnnxfuseOperator *op) {
    TRY(check_size("OnnxfuseOperator", op->size, sizeof *op));
    if (is_empty(op->name)) return status_error(STATUS_USAGE, "an operator without a name");
    if (!op->compute) return status_error(STATUS_USAGE, "operator %s: the member compute is missing", op->name);
    if (op->in_place < 0)
        return status_error(STATUS_USAGE, "operator %s: in_place is %d, neither 0 nor 1 + an input", op->name,
                            op->in_place);
    return NULL;
}

static const char *point(const char *domain) { return *domain ? "." : ""; }

static Status check_versions(const Registry *registry, const OnnxfuseOperator *op) {
    const char *domain = op->domain && strcmp(op->domain, "ai.onnx") != 0 ? op->domain : "";
    if (op->since < 1 || op->until < 0 || (op->until && op->until < op->since))
        return status_error(STATUS_USAGE,
                            "operator %s%s%s: since %d, until %d are no versions of an operator set (from 1 on, "
                            "until is 0 or not below since)",
                            domain, point(domain), op->name, op->since, op->until);
    for (int i = 0; i < registry->operators.count; i++) {
        const CustomOperator *other = registry->operators.items[i];
        bool apart = (other->until && other->until < op->since) || (op->until && op->until < other->since);
        if (apart || strcmp(other->name, op->name) != 0 || strcmp(other->domain, domain) != 0) continue;
        return status_error(STATUS_USAGE, "operator %s%s%s is in the registry already, since version %d, until %d",
                            domain, point(domain), op->name, other->since, other->until);
    }
    return NULL;
}

static Status check_fusion(const Registry *registry, const OnnxfuseFusion *fusion) {
    TRY(check_size("OnnxfuseFusion", fusion->size, sizeof *fusion));
    if (is_empty(fusion->name)) return status_error(STATUS_USAGE, "a fusion without a name");
    if (fusion->phase != ONNXFUSE_FORWARD && fusion->phase != ONNXFUSE_BACKWARD)
        return status_error(STATUS_USAGE, "fusion %s: phase %d is neither ONNXFUSE_FORWARD nor ONNXFUSE_BACKWARD",
                            fusion->name, (int)fusion->phase);
    if (!fusion->patterns || !fusion->patterns[0])
        return status_error(STATUS_USAGE, "fusion %s has no pattern", fusion->name);
    for (int i = 0; i < registry->fusions.count; i++) {
        const CustomFusion *other = registry->fusions.items[i];
        if (strcmp(other->name, fusion->name) == 0 && other->phase == (int)fusion->phase)
            return status_error(STATUS_USAGE, "fusion %s is in the registry already for this phase", fusion->name);
    }
    Status status = fusion->kernel ? check_operator(fusion->kernel) : NULL;
    return status ? status_at(status, "fusion %s", fusion->name) : NULL;
}

static Status add_operator(Registry *registry, const OnnxfuseOperator *op) {
    TRY(check_operator(op));
    TRY(check_versions(registry, op));
    VEC_PUSH(registry->arena, registry->operators, copy_operator(registry->arena, op));
    return NULL;
}

static Status add_fusion(Registry *registry, const OnnxfuseFusion *fusion) {
    TRY(check_fusion(registry, fusion));
    VEC_PUSH(registry->arena, registry->fusions, copy_fusion(registry->arena, fusion));
    return NULL;
}

static Status check_patterns(Arena *arena, const OnnxfuseFusion *fusion) {
    const Pattern *const *patterns;
    int count;
    Arena *scratch = arena_create_inside(arena);
    const char *where = arena_format(scratch, "fusion %s", fusion->name);
    Status status = pattern_parse_all(scratch, fusion->patterns, where, &patterns, &count);
    arena_destroy(scratch);
    return status;
}

/* --- registries --------------------------------------------------------------------------------------------------- */
const Registry *registry_of(const OnnxfuseRegistry *registry) { return registry ? &registry->registry : NULL; }

Status registry_of_builtins(Arena *arena, const Registry **out_registry) {
    Registry *registry = ARENA_NEW(arena, Registry);
    registry->arena = arena;
    for (int i = 0; builtin_fusions[i]; i++) TRY(add_fusion(registry, builtin_fusions[i]));
    *out_registry = registry;
    return NULL;
}

OnnxfuseStatus onnxfuse_registry_create(OnnxfuseRegistry **out_registry) {
    OnnxfuseRegistry *made = calloc(1, sizeof *made);
    if (made) made->registry.arena = arena_create(0);
    if (!made || !made->registry.arena) {
        free(made);
        return status_out_of_memory();
    }
    *out_registry = made;
    return NULL;
}

void onnxfuse_registry_free(OnnxfuseRegistry *registry) {
    if (!registry) return;
    arena_destroy(registry->registry.arena);
    free(registry);
}

OnnxfuseStatus onnxfuse_registry_add_operator(OnnxfuseRegistry *registry, const OnnxfuseOperator *op) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(registry->registry.arena, &guard);
    Status status = add_operator(&registry->registry, op);
    arena_guard(registry->registry.arena, NULL);
    return status;
}

OnnxfuseStatus onnxfuse_registry_add_fusion(OnnxfuseRegistry *registry, const OnnxfuseFusion *fusion) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(registry->registry.arena, &guard);
    Status status = add_fusion(&registry->registry, fusion);
    if (!status && (status = check_patterns(registry->registry.arena, fusion))) registry->registry.fusions.count--;
    arena_guard(registry->registry.arena, NULL);
    return status;
}

/* --- calls: the node ---------------------------------------------------------------------------------------------- */
int onnxfuse_call_input_count(const OnnxfuseCall *call) { return call->node->input_count; }
int onnxfuse_call_output_count(const OnnxfuseCall *call) { return call->node->output_count; }

static const Attr *attr_of(const OnnxfuseCall *call, const char *name, AttrKind kind) {
    const Attr *attr = node_attr(call->node, name);
    return attr && attr->kind == kind ? attr : NULL;
}

bool onnxfuse_call_int(const OnnxfuseCall *call, const char *attribute, int64_t *out_value) {
    const Attr *attr = attr_of(call, attribute, ATTR_INT);
    if (attr) *out_value = attr->i;
    return attr != NULL;
}

bool onnxfuse_call_float(const OnnxfuseCall *call, const char *attribute, double *out_value) {
    const Attr *attr = attr_of(call, attribute, ATTR_FLOAT);
    if (attr) *out_value = attr->f;
    return attr != NULL;
}

const char *onnxfuse_call_string(const OnnxfuseCall *call, const char *attribute) {
    const Attr *attr = attr_of(call, attribute, ATTR_STRING);
    return attr ? attr->s.data : NULL;
}

const int64_t *onnxfuse_call_ints(const OnnxfuseCall *call, const char *attribute, int *out_count) {
    const Attr *attr = attr_of(call, attribute, ATTR_INTS);
    *out_count = attr ? attr->count : 0;
    return attr ? attr->ints : NULL;
}

const float *onnxfuse_call_floats(const OnnxfuseCall *call, const char *attribute, int *out_count) {
    const Attr *attr = attr_of(call, attribute, ATTR_FLOATS);
    *out_count = attr ? attr->count : 0;
    return attr ? attr->floats : NULL;
}

const OnnxfuseValue *onnxfuse_call_input(const OnnxfuseCall *call, int input) {
    if (input < 0 || input >= call->node->input_count || !call->node->inputs[input]) return NULL;
    const OnnxfuseValue *value = &((const OnnxfuseValue *)call->values)[input];
    return call->host ? (call->host->inputs[input] ? value : NULL) : value->item.kind == ITEM_NONE ? NULL : value;
}

/* --- calls: types ------------------------------------------------------------------------------------------------- */
static const Value *input_of(const OnnxfuseCall *call, int input) {
    return input >= 0 && input < call->node->input_count ? call->node->inputs[input] : NULL;
}

OnnxfuseDType onnxfuse_call_input_dtype(const OnnxfuseCall *call, int input) {
    const Value *value = input_of(call, input);
    return value ? (OnnxfuseDType)value->dtype : ONNXFUSE_NONE;
}

int onnxfuse_call_input_rank(const OnnxfuseCall *call, int input) {
    const Value *value = input_of(call, input);
    return value && value->kind == VALUE_TENSOR && value->rank >= 0 ? value->rank : -1;
}

OnnxfuseDim onnxfuse_call_input_dim(const OnnxfuseCall *call, int input, int axis) {
    int rank = onnxfuse_call_input_rank(call, input);
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? call->node->inputs[input]->dims[axis] : NULL;
}

bool onnxfuse_dim_value(OnnxfuseDim dim, int64_t *out_size) { return dim && dim_is_const(dim, out_size); }

/* A new expression; NULL, remembered in the call, when there is no memory for it. */
static OnnxfuseDim make_dim(OnnxfuseCall *call, OnnxfuseDimOperation operation, OnnxfuseDim a, OnnxfuseDim b) {
    DimTable *dims = call->lowering->dims;
    switch (operation) {
    case ONNXFUSE_DIM_ADD: return dim_add(dims, a, b);
    case ONNXFUSE_DIM_SUB: return dim_sub(dims, a, b);
    case ONNXFUSE_DIM_MUL: return dim_mul(dims, a, b);
    case ONNXFUSE_DIM_DIV: return dim_equals(b, 0) ? NULL : dim_div(dims, a, b);
    case ONNXFUSE_DIM_MIN: return dim_min(dims, a, b);
    case ONNXFUSE_DIM_MAX: return dim_max(dims, a, b);
    default: return NULL;
    }
}

OnnxfuseDim onnxfuse_call_dim_of(OnnxfuseCall *call, OnnxfuseDimOperation operation, OnnxfuseDim a, OnnxfuseDim b) {
    if (!call->lowering || !a || !b) return NULL;
    jmp_buf guard, *outer = arena_guard(call->lowering->arena, &guard);
    OnnxfuseDim volatile made = NULL;
    if (setjmp(guard))
        call->exhausted = true;
    else
        made = make_dim(call, operation, a, b);
    arena_guard(call->lowering->arena, outer);
    return made;
}

OnnxfuseDim onnxfuse_call_dim(OnnxfuseCall *call, int64_t size) {
    if (!call->lowering) return NULL;
    jmp_buf guard, *outer = arena_guard(call->lowering->arena, &guard);
    OnnxfuseDim volatile made = NULL;
    if (setjmp(guard))
        call->exhausted = true;
    else
        made = dim_const(call->lowering->dims, size);
    arena_guard(call->lowering->arena, outer);
    return made;
}

static Status check_type(const OnnxfuseCall *call, int output, OnnxfuseDType dtype, int rank, const OnnxfuseDim *dims) {
    if (!call->types) return status_error(STATUS_USAGE, "onnxfuse_call_set_type was called outside of infer");
    if (output < 0) return status_error(STATUS_USAGE, "the type of output %d was set", output);
    if ((int)dtype < 0 || (int)dtype >= DTYPE_COUNT || !dtype_size((DType)dtype))
        return status_error(STATUS_INVALID, "output %d: element type %d does not exist", output, (int)dtype);
    if (rank < -1 || rank > MAX_RANK)
        return status_error(STATUS_INVALID, "output %d: a tensor of rank %d (0 to %d are possible, -1: not known)",
                            output, rank, MAX_RANK);
    int64_t size;
    for (int d = 0; dims && d < rank; d++)
        if (dims[d] && dim_is_const(dims[d], &size) && (size < 0 || size > LARGEST_SIZE))
            return status_error(STATUS_INVALID, "output %d: axis %d has size %lld", output, d, (long long)size);
    return NULL;
}

OnnxfuseStatus onnxfuse_call_set_type(OnnxfuseCall *call, int output, OnnxfuseDType dtype, int rank,
                                      const OnnxfuseDim *dims) {
    TRY(check_type(call, output, dtype, rank, dims));
    if (output >= call->node->output_count) return NULL; /* the node leaves it out */
    Arena *arena = call->lowering->arena;
    jmp_buf guard, *outer = arena_guard(arena, &guard);
    Status volatile status = NULL;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        CustomType *type = &call->types[output];
        *type = (CustomType){true, (DType)dtype, rank, ARENA_ARRAY(arena, const Dim *, rank > 0 ? rank : 1)};
        for (int d = 0; dims && d < rank; d++) type->dims[d] = dims[d];
    }
    arena_guard(arena, outer);
    return status;
}

/* --- calls: results ----------------------------------------------------------------------------------------------- */
static const char *dims_text(Arena *arena, int rank, const int64_t *dims) {
    Text text = text_make(arena);
    for (int d = 0; d < rank; d++) text_add(&text, "%s%lld", d ? ", " : "", (long long)dims[d]);
    return text.data;
}

/* Whether the sizes are those that infer has said; what it left open may be any. */
static Status check_dims(const OnnxfuseCall *call, int output, int rank, const int64_t *dims) {
    const HostCall *host = call->host;
    const Value *v = host->node->outputs[output];
    if (rank < 0 || rank > MAX_RANK)
        return status_error(STATUS_INVALID, "output %d: a tensor of rank %d", output, rank);
    bool fits = v->rank < 0 || v->rank == rank;
    for (int d = 0; fits && d < rank; d++) {
        int64_t expected = v->rank < 0 ? UNBOUND_DIM : dim_eval(v->dims[d], host->symbols);
        fits = dims[d] >= 0 && (expected == UNBOUND_DIM || expected == dims[d]);
    }
    if (fits) return NULL;
    Text said = text_make(host->arena);
    for (int d = 0; d < v->rank; d++) {
        int64_t size = dim_eval(v->dims[d], host->symbols);
        text_add(&said, "%s", d ? ", " : "");
        dim_print(&said, v->dims[d]);
        if (size != UNBOUND_DIM && !dim_is_const(v->dims[d], NULL)) text_add(&said, " = %lld", (long long)size);
    }
    return status_error(STATUS_INVALID, "output %d gets dims [%s], where infer has said [%s]", output,
                        dims_text(host->arena, rank, dims), v->rank < 0 ? "..." : said.data);
}

static Status make_output(OnnxfuseCall *call, int output, int rank, const int64_t *dims, void **out_data) {
    HostCall *host = call->host;
    Tensor *tensor = &host->outputs[output]->tensor;
    TRY(check_dims(call, output, rank, dims));
    if (host->outputs[output]->kind != ITEM_TENSOR) {
        TRY(host_output(host, output, call->node->outputs[output]->dtype, rank, dims, &tensor));
    } else if (tensor->rank != rank || (rank && memcmp(tensor->dims, dims, sizeof *dims * (size_t)rank) != 0)) {
        return status_error(STATUS_INVALID, "output %d is asked for again, with dims [%s] after [%s]", output,
                            dims_text(host->arena, rank, dims), dims_text(host->arena, tensor->rank, tensor->dims));
    }
    *out_data = tensor->data;
    return NULL;
}

OnnxfuseStatus onnxfuse_call_output(OnnxfuseCall *call, int output, int rank, const int64_t *dims, void **out_data) {
    *out_data = NULL;
    if (!call->host) return status_error(STATUS_USAGE, "onnxfuse_call_output was called outside of compute");
    if (output < 0) return status_error(STATUS_USAGE, "output %d was asked for", output);
    if (output >= call->node->output_count || !call->host->outputs[output]) return NULL;
    jmp_buf guard, *outer = arena_guard(call->host->arena, &guard);
    Status volatile status;
    if (setjmp(guard))
        status = status_out_of_memory();
    else
        status = make_output(call, output, rank, dims, out_data);
    arena_guard(call->host->arena, outer);
    return status;
}

/* An arena aligns to 64 bytes what is as large. */
void *onnxfuse_call_scratch(OnnxfuseCall *call, size_t bytes) {
    enum { ALIGNMENT = 64 };
    Arena *arena = call->host ? call->host->arena : call->lowering->arena;
    jmp_buf guard, *outer = arena_guard(arena, &guard);
    void *volatile memory = NULL;
    if (!setjmp(guard)) memory = arena_alloc(arena, bytes < ALIGNMENT ? ALIGNMENT : bytes);
    arena_guard(arena, outer);
    return memory;
}

/* --- calls: threads ----------------------------------------------------------------------------------------------- */
typedef struct Tasks {
    void (*task)(void *context, int index);
    void *context;
} Tasks;

static void run_tasks(void *context, int64_t begin, int64_t end, int worker) {
    const Tasks *tasks = context;
    (void)worker;
    for (int64_t i = begin; i < end; i++) tasks->task(tasks->context, (int)i);
}

/* A run that is to end still does all tasks: what follows them is the application's, and may rely on them. */
void onnxfuse_call_parallel(OnnxfuseCall *call, int count, void (*task)(void *context, int index), void *context) {
    Tasks tasks = {task, context};
    if (!call->host) {
        run_tasks(&tasks, 0, count, 0);
        return;
    }
    Stop *stop = pool_stop_with(NULL);
    pool_for(call->host->pool, count, 1, run_tasks, &tasks);
    pool_stop_with(stop);
}
