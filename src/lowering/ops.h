/* SPDX-License-Identifier: Apache-2.0 */
/* The operators: one table row each. A row says for which opset versions it holds and how the operator is told in
 * primitives, anchors or a host kernel. Adding an operator is adding a row and the functions beside it, in the file of
 * its family.
 *
 * Lowering sweeps once through a model in topological order. At each ONNX node every input's dtype, dims and, where
 * known, constant data or symbolic content are known; the row's `lower` builds the replacement with the builder
 * (build.h), whose every primitive infers its own type, folds constants at once and carries symbolic content on. So a
 * row needs a shape rule of its own only for the outputs of host kernels and anchors. */
#ifndef ONNXFUSE_LOWERING_OPS_H
#define ONNXFUSE_LOWERING_OPS_H

#include "base/pool.h"
#include "graph/graph.h"
#include "policy/policy.h"

/* --- host kernels: plain C at run time ------------------------------------------------------------------ */
struct HostCall {
    const Node *node;          /* attributes, origin */
    const Item *const *inputs; /* [node->input_count]; NULL where left out */
    Item *const *outputs;   /* [node->output_count]; NULL where not asked for; filled through host_output or directly */
    const int64_t *symbols; /* current bindings, for dims attributes */
    Pool *pool;             /* for parallel loops; may be NULL */
    Arena *arena; /* scratch, freed after the call; strings and sequence items put there are copied by the caller */
    /* Memory for output `index`, row-major; set by the caller of the kernel. */
    Status (*allocate)(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, void **out_data);
    /* Makes output 0 of input 0, a sequence that nobody reads afterwards: `removed` elements from `at` on go, a copy of
     * `added` (NULL: nothing) takes their place, the others change hands. What a kernel does last. NULL where the input
     * must stay as it is. */
    Status (*splice)(HostCall *call, int at, int removed, const Tensor *added);
    void *user;
};
/* Allocates output `index` and returns its tensor through out_tensor (NULL with success when the output is not asked
 * for). */
Status host_output(HostCall *call, int index, DType dtype, int rank, const int64_t *dims, Tensor **out_tensor);
static inline const Tensor *host_input(const HostCall *call, int index) {
    return index < call->node->input_count && call->inputs[index] && call->inputs[index]->kind == ITEM_TENSOR
               ? &call->inputs[index]->tensor
               : NULL;
}
/* STATUS_INVALID, prefixed with the node's origin and operator. */
Status host_error(const HostCall *call, const char *format, ...) STATUS_FORMAT(2, 3);

/* Host steps that the builder makes itself; host is NULL, the runtime knows them by name:
 *   "bind_sizes"  input 0: an i64 vector; attr dims symbols: as many lone symbols. Binds symbol i to element i when the
 *                 step runs; no outputs. A negative element is an error of the model (STATUS_INVALID). Steps that read
 *                 these symbols stand after it.
 * For every other host step the runtime binds the unbound lone symbols in its outputs' dims from their actual shapes. The
 * reserved symbol "$run" is bound before each run to the number of runs of the session so far. */

#define TRAINING_DOMAIN "ai.onnx.preview.training"
#define INTERNAL_DOMAIN "onnxfuse.internal" /* of operators that passes put into a graph; in no list of operators */

/* Of the operators of that domain that pass take_quantized makes: the axes of w and x along which their scales lie. */
#define QUANTIZED_AXIS "w_axis"
#define QUANTIZED_X_AXIS "x_axis"

/* --- rows ------------------------------------------------------------------------------------------------ */
typedef struct Lowering Lowering;
typedef Status (*LowerFn)(Lowering *l, const Node *n);

enum {
    OP_RANDOM = 1,       /* outputs are drawn: `onnxfuse test` compares type and shape alone */
    OP_CONTROL_FLOW = 2, /* runs graphs: If, Loop, Scan and SequenceMap, whose host is NULL, and what becomes Loops */
    OP_WEIGHTED = 4,     /* input 1 may be a constant matrix, which a policy may have kept in another form */
    OP_ONE_PRODUCT = 8,  /* is one product of its input by its weight */
};

typedef struct OpRow {
    const char *domain, *name;
    int since, until; /* opset versions, inclusive; until 0: to the newest */
    LowerFn lower;
    HostFn host; /* the host kernel that `lower` may emit with host_node; NULL when it emits none */
    int flags;
    HostFn second_host; /* a second kernel that `lower` may emit, or NULL */
} OpRow;

/* The families, each an array of rows ended by a row without a name; ended by NULL. Defined above, in src/ops/families.c. */
extern const OpRow *const op_families[];

/* What a host kernel is beside a step: how its gradient is told (lowering/gradient.h), and its name in graphs that are written down
 * where no operator's row has the kernel: one that rules of gradients emit. */
typedef struct Backward Backward;
typedef void (*BackwardFn)(Backward *w, const Node *n);
typedef struct HostRow {
    const char *name; /* what its nodes are called; of control flow, whose `host` is NULL: the operator */
    HostFn host;
    BackwardFn gradient; /* NULL: it has none */
} HostRow;
extern const HostRow *const host_families[]; /* as op_families */
/* NULL: the host node has no gradient. */
BackwardFn host_gradient(const Node *node);
const OpRow *ops_find(const char *domain, const char *name, int opset); /* NULL when there is none */
/* The row whose range is nearest, for the message "Foo-22 is not supported (versions 7 to 21 are)"; NULL when the
 * operator is unknown. */
const OpRow *ops_find_any(const char *domain, const char *name);
/* All rows but internal ones, for documentation and tests: calls visit for each. */
void ops_each(void (*visit)(const OpRow *row, void *context), void *context);

/* Names of host kernels, for graphs that are written down: "DOMAIN:OPERATOR:SINCE:0", an operator's row that has it, else the name of
 * its HostRow. NULL when no row has it, or there is no such row. */
const char *ops_host_name(Arena *arena, HostFn host);
HostFn ops_host_named(const char *name);

/* Lowers every ONNX node of the graph and, for control flow, of its subgraphs: LEVEL_ONNX -> LEVEL_PRIM.
 * STATUS_UNSUPPORTED names operator, opset and node. */
Status lower_graph(Graph *graph, const Policy *policy);
/* The same, watched: `before` is called for each graph, bodies included, before its first node is lowered, `after` when
 * its last one is, or one has failed. A value that `before` makes an output stands there lowered in `after`, which must
 * take it out again. */
typedef struct LowerTrace {
    void (*before)(void *user, Graph *graph);
    void (*after)(void *user, Graph *graph);
    void *user;
} LowerTrace;
Status lower_graph_traced(Graph *graph, const Policy *policy, const LowerTrace *trace);
/* Lowers a subgraph whose inputs' types have just been set by the control flow row (ops/control/control.c). */
Status lower_subgraph(Lowering *l, Graph *body);

#endif
