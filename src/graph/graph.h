/* SPDX-License-Identifier: Apache-2.0 */
/* The graph: values, nodes, and the edits that passes make. Every stage between file and plan reads and writes this one
 * form.
 *
 * Nodes stand in a list in topological order. A graph is closed: a subgraph (of If, Loop, Scan, a region) never names a
 * value of an outer graph; what it needs from outside is passed in as inputs (the importer makes captures explicit, see
 * NODE `captures`). Everything lives in the graph's arena, which subgraphs share; freed at once with graph_destroy. Not
 * thread-safe. */
#ifndef ONNXFUSE_GRAPH_GRAPH_H
#define ONNXFUSE_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/map.h"
#include "base/text.h"
#include "graph/dim.h"
#include "graph/dtype.h"
#include "graph/prim.h"
#include "graph/tensor.h"

typedef struct Graph Graph;
typedef struct Node Node;
typedef struct Value Value;

typedef enum ValueKind {
    VALUE_TENSOR,
    VALUE_SEQUENCE, /* of tensors */
    VALUE_OPTIONAL,
    VALUE_OPTIONAL_SEQUENCE,
    VALUE_MAP,
    VALUE_MAP_SEQUENCE, /* of maps */
} ValueKind;
static inline bool value_kind_has_maps(ValueKind kind) { return kind == VALUE_MAP || kind == VALUE_MAP_SEQUENCE; }
static inline bool value_kind_is_optional(ValueKind kind) {
    return kind == VALUE_OPTIONAL || kind == VALUE_OPTIONAL_SEQUENCE;
}

typedef struct Use {
    Node *node;
    int index; /* node->inputs[index] is the value */
} Use;

/* A value of the model as it was imported, and the node that makes it there. */
typedef struct ModelValue {
    const char *name, *node, *op;
    const int8_t *perm; /* it is permute(value, perm) of the value that it is listed at; NULL: that itself */
    const struct ModelValue *next;
} ModelValue;

struct Value {
    char *name; /* unique in its graph; mostly a model's own name where there is one, but see `stands_for` */
    const ModelValue *stands_for; /* the values of the model that this one has all elements of; NULL: none. Follows
                                     value_replace; an edit that changes what a value is clears it */
    ValueKind kind;
    DType dtype; /* of the tensor, of a sequence's or optional's tensors, of maps' values; DT_NONE: not inferred yet */
    DType key;   /* of maps' keys: DT_I64 or DT_STRING; DT_NONE: no maps */
    int rank; /* -1: not known (before lowering); of a sequence or optional its elements': -1 also when they differ, -2
                 when there is none yet; of maps -1; a size in which elements may differ is the symbol "$any", which is
                 never bound
               */
    const Dim **dims;    /* [rank] */
    Node *producer;      /* NULL for graph inputs and constants */
    int output_index;    /* producer->outputs[output_index] is this */
    int first_output;    /* 1 + the number of a graph output that it is, the others follow in next_output; 0: of none */
    Tensor *constant;    /* not NULL: a constant (initializer or folded); dims and dtype agree with it */
    const Tensor *wider; /* of a constant that was rounded as the policy wants: what it was before; NULL: not known */
    const Dim **content; /* not NULL: an integer tensor of rank <= 1 whose elements are these sizes, known without
                            running anything; [max(1, elements)] */
    VEC(Use) uses;       /* kept by node_set_input and the other edits below; outputs of the graph are not uses */
    uint64_t tag;        /* scratch for the running pass */
    bool
        gone; /* it was a constant that nothing read, and its data went back (graph/constants/unread.h): nothing may read it */
};

typedef enum NodeKind {
    NODE_ONNX,   /* an operator of the model, not lowered yet: op, domain, opset */
    NODE_PRIM,   /* a primitive: prim */
    NODE_ANCHOR, /* a library call: op is "matmul", "conv", ... (src/lowering/anchors.h); subgraphs[0], where there is
                    one, is its epilogue's body */
    NODE_HOST,   /* a host kernel or control flow: op, domain, opset of the ONNX operator; host is its row's function */
    NODE_REGION, /* primitives fused to one kernel: subgraphs[0] is the body; inputs and outputs match the body's */
} NodeKind;

typedef enum AttrKind {
    ATTR_INT,     /* i */
    ATTR_FLOAT,   /* f */
    ATTR_STRING,  /* s (may hold any bytes; s.data is also terminated) */
    ATTR_INTS,    /* ints, count */
    ATTR_FLOATS,  /* floats, count */
    ATTR_STRINGS, /* strings, count */
    ATTR_TENSOR,  /* tensor */
    ATTR_DIMS,    /* dims, count: symbolic sizes (primitives only) */
    ATTR_TYPE,    /* dtype (ONNX type protos, and `to` of cast) */
    ATTR_TENSORS, /* tensors, count */
} AttrKind;

typedef struct Attr {
    const char *name;
    AttrKind kind;
    int count; /* elements of the plural kinds */
    union {
        int64_t i;
        float f;
        StringView s;
        const int64_t *ints;
        const float *floats;
        const StringView *strings;
        const Tensor *tensor;
        const Tensor *const *tensors;
        const Dim *const *dims;
        DType dtype;
    };
} Attr;

/* The ONNX nodes that a node came from, most significant first: "name" or "op#index" where the model gave no name. */
typedef struct Origin {
    const char *const *names;
    int count;
} Origin;

/* A host kernel: plain C at run time (lowering/ops.h says what it is called with). */
typedef struct HostCall HostCall;
typedef Status (*HostFn)(HostCall *call);

struct Node {
    NodeKind kind;
    Prim prim;          /* of NODE_PRIM */
    const char *op;     /* operator, primitive or anchor name; "region" for regions */
    const char *domain; /* "" is the standard's; NULL for primitives, anchors and regions */
    int opset;          /* the model's opset version for the domain (NODE_ONNX, NODE_HOST) */
    HostFn host;        /* of NODE_HOST: its kernel; NULL: the runtime knows it by name */
    const struct CustomOperator
        *custom;    /* the application's operator of NODE_HOST, or for a NODE_ONNX to become one; else NULL */
    Value **inputs; /* [input_count]; NULL where an optional input is left out */
    int input_count, input_capacity;
    int *use_slots;  /* [input_count]: where this use stands in inputs[i]->uses; a hint, so that removal needs no search
                      */
    Value **outputs; /* [output_count]; NULL where an optional output is not asked for */
    int output_count, output_capacity;
    VEC(Attr) attrs;
    Graph **subgraphs; /* in the order of the operator's graph attributes: If {then_branch, else_branch}, Loop/Scan
                          {body} */
    int subgraph_count;
    int captures; /* the last `captures` inputs are outer values that the subgraphs use; each subgraph has them, in this
                     order, as its last inputs */
    Origin origin;
    int group; /* of a NODE_ONNX and, until groups are made regions, of what it lowers to: 1 + the number in
                  ModelInfo.groups; 0: none */
    const struct Wanted *wanted; /* of a NODE_ONNX: how it is to compute, by the policy's rules; NULL: as it says */
    int fence; /* nodes of different fences do not become one step; what a NODE_ONNX becomes has its fence. 0: none */
    bool on_host;  /* runs on the CPU, whatever the device; handed on likewise */
    bool backward; /* computes gradients (src/autodiff); handed on likewise */
    bool
        repeats; /* a backward node that computes again what a forward one has computed, for the kernel of its readers */
    Graph *graph; /* where it stands */
    Node *prev, *next;
    uint64_t tag; /* scratch for the running pass */
};

typedef struct Wanted {
    DType computes_in; /* floating point becomes this type: DT_F32, DT_F16, DT_BF16 */
    const char *what;  /* of ModelInfo.applied; NULL: by no rule, and no rule changes it */
} Wanted;

typedef struct Metadata {
    const char *key, *value;
} Metadata;

/* A state: an output that is the new value of an input, of the same type and known shape. A run may be given the same
 * memory for both (runtime/plan/states.c). No other state's new value is the input itself. */
typedef struct GraphState {
    int input, output;
} GraphState;

/* An output that is an input's value in the next run, and that sessions keep between runs (passes/take_states.c). The last inputs and
 * outputs of a graph, in the same order: callers know of neither. */
typedef enum KeptForm {
    KEPT_WHOLE, /* the output is the next value, whatever its size */
    KEPT_ROOM, /* has more room along `axis` than what is in it: the input is as long as its room, the output likewise or longer */
    KEPT_APPENDED, /* the output is the input and new rows behind it; both are held with `axis` first (model: with it in its place) */
} KeptForm;

typedef struct GraphKept {
    int input, output;
    KeptForm form;
    int axis;         /* in the model's order of axes; -1: of KEPT_WHOLE */
    int64_t capacity; /* most rows along the axis; 0: as many as come */
} GraphKept;

struct Graph {
    Arena *arena;
    DimTable *dims;
    const char *name;
    Graph *parent; /* NULL for the model's own */
    VEC(Value *) inputs;
    VEC(Value *) outputs;
    VEC(const char *) output_names; /* parallel to outputs: the name stays when another value becomes the output */
    VEC(int) next_output;           /* parallel to outputs: 1 + the next output that is the same value; 0: no more */
    VEC(GraphState) states;
    VEC(GraphKept) kept;
    VEC(Value *) values; /* all values ever made, for naming and printing; dead ones included */
    Node *first, *last;
    int node_count;
    int seeds; /* not 0: forward and backward nodes will be two graphs (optimize/apart.h); the first input that is a gradient of an output */
    int not_greedy;         /* nodes that were too many for the greedy order (passes/memory_order.h); 0: it was tried */
    Map names;              /* value name -> Value * */
    Map suffixes;           /* taken name -> last K given out as NAME_K */
    struct ModelInfo *info; /* shared by subgraphs */
};

typedef struct OpsetImport {
    const char *domain;
    int64_t version;
} OpsetImport;

/* Nodes that are to be one kernel (passes/fuse_custom.c). */
typedef struct NodeGroup {
    const char *name;   /* what the kernel is called: the fusion's name */
    bool required;      /* an error when it cannot be one kernel; else its nodes go their usual ways */
    const char *reason; /* why it is no kernel; NULL: it is one, or was not tried yet */
    int original;       /* the group that this is a copy of, in a copy of its graph, as in Node.group; 0: it is none */
} NodeGroup;

/* What the policy has done to a node of the model. */
typedef struct Applied {
    const char *what; /* "fusion FusedRMSNorm" */
    const char *node; /* as in an origin */
    int group;        /* of a fusion without a kernel of its own: 1 + the number in ModelInfo.groups; 0: none */
} Applied;

/* A file's bytes, mapped read-only. */
typedef struct MappedFile {
    const uint8_t *bytes; /* not NULL, also when the file is empty */
    size_t size;
} MappedFile;

static inline bool mapped_file_holds(const MappedFile *file, const void *bytes, size_t size) {
    const uint8_t *from = (const uint8_t *)bytes;
    return (uintptr_t)from >= (uintptr_t)file->bytes && (uintptr_t)from + size <= (uintptr_t)file->bytes + file->size;
}

/* Data of a constant that was made while the model was compiled (graph/constants/unread.h). */
typedef struct MadeData {
    char *data;
    size_t bytes;
    bool in_pages; /* its pages can go back, but not its addresses; else it is a block of the arena */
    bool read;     /* scratch of the search */
} MadeData;

typedef struct ModelInfo {
    int64_t ir_version;
    const char *producer; /* "name version", may be "" */
    const char *doc;
    const char *path;       /* of the file, NULL when from memory */
    VEC(MappedFile) mapped; /* its files, as long as the graph is there */
    VEC(OpsetImport) opsets;
    VEC(Metadata) metadata;
    uint64_t next_name; /* for values without one */
    uint64_t next_seed; /* for random nodes without a seed attribute: node K draws from stream K */
    VEC(NodeGroup) groups;
    VEC(Applied) applied;         /* in the order in which it was done; a fusion has a row for each of its nodes */
    VEC(MadeData) made;           /* large ones */
    size_t made_since, made_kept; /* bytes of those that came after the last search, and of those that it left */
    bool gives_unread_back;       /* graph_give_unread_back */
} ModelInfo;

/* arena_limit: most bytes, 0 for no limit. The graph owns the arena. NULL when there is no memory. */
Graph *graph_create(size_t arena_limit);
void graph_destroy(Graph *graph); /* of the outermost graph; accepts NULL */
/* A subgraph or region body: shares arena, dims and info. */
Graph *graph_sub(Graph *parent, const char *name);

/* name may be NULL or taken: a new one is made ("v12", "NAME_1"). rank -1: shape not known. dims are copied. */
Value *graph_add_value(Graph *graph, const char *name, DType dtype, int rank, const Dim *const *dims);
Value *graph_add_input(Graph *graph, const char *name, DType dtype, int rank, const Dim *const *dims);
/* The output is called as the value is now. */
void graph_add_output(Graph *graph, Value *value);
void graph_add_named_output(Graph *graph, Value *value, const char *name);
/* "whole", "room", "appended": as the text has them. */
const char *kept_form_name(KeptForm form);
/* Only the first `count` outputs stay. */
void graph_truncate_outputs(Graph *graph, int count);
/* A constant value; the tensor is borrowed and must live as long as the graph. Content is set for small integer
 * vectors. */
Value *graph_add_constant(Graph *graph, const char *name, Tensor *tensor);
/* Says that a constant's data is not read for now: where it lies in a file of the model it leaves memory, and comes back from there when it
 * is read again. */
void graph_forget(const Graph *graph, const Tensor *constant);
/* Appends (before == NULL) or inserts a node; op is copied, and names the primitive of a NODE_PRIM; inputs may hold
 * NULL; the outputs are made with node_add_output or given by the caller. */
Node *graph_add_node(Graph *graph, Node *before, NodeKind kind, const char *op, Value *const *inputs, int input_count);
/* A NODE_PRIM. */
Node *graph_add_prim(Graph *graph, Node *before, Prim prim, Value *const *inputs, int input_count);
/* Makes an output value (dtype and dims as given) and appends it to node->outputs. */
Value *node_add_output(Node *node, const char *name, DType dtype, int rank, const Dim *const *dims);
/* The output of that number, made (dtype and dims as given) if nothing has asked for it so far. */
Value *node_output_at(Node *node, int index, DType dtype, int rank, const Dim *const *dims);
void node_attach_output(Node *node, Value *value_or_null); /* appends an existing value without producer */
void node_set_input(Node *node, int index, Value *value);
void node_append_input(Node *node, Value *value);
/* All uses of `from`, the graph's outputs included, now read `to`, which stands for what `from` stood for. The name of
 * a graph output stays with the output. */
void value_replace(Graph *graph, Value *from, Value *to);
/* Before any edit: every result of a node stands for itself, in subgraphs too. */
void graph_name_results(Graph *graph);
/* `from` is permute(to, perm) [rank] and about to go: what it stands for is found at `to` from now on. */
void value_hand_on(Graph *graph, Value *from, Value *to, const int64_t *perm);
/* Takes the node out; its outputs must have no uses left. */
void graph_remove_node(Graph *graph, Node *node);
void graph_move_before(Graph *graph, Node *node, Node *before); /* before NULL: to the end */
static inline bool value_is_output(const Value *value) { return value->first_output != 0; } /* of its graph */
static inline bool value_is_read(const Value *value) { return value->uses.count || value_is_output(value); }
/* The only reader of a value that is no output; NULL: there are more, or none. */
static inline Node *value_only_user(const Value *value) {
    return value->uses.count == 1 && !value_is_output(value) ? value->uses.items[0].node : NULL;
}
static inline int value_use_count(const Value *value) { return value->uses.count; }

enum { EPILOGUE_INPUTS = 12, EPILOGUE_OUTPUTS = 4 }; /* most tensors that an anchor's epilogue reads and writes */

/* Whether its subgraph is a body of primitives that run as a part of one kernel, not a graph with steps of its own. */
static inline bool node_has_body(const Node *node) {
    return node->subgraph_count && (node->kind == NODE_REGION || node->kind == NODE_ANCHOR);
}

const Attr *node_attr(const Node *node, const char *name); /* NULL when missing */
/* The bytes of its content, NULL for none; dims are interned and tensors shared, so their addresses are content. */
const void *attr_data(const Attr *attr, size_t *out_size);
bool attr_equal(const Attr *a, const Attr *b);      /* kind and content, whatever the names */
bool node_same_attrs(const Node *a, const Node *b); /* in any order */
int64_t attr_int(const Node *node, const char *name, int64_t otherwise);
double attr_float(const Node *node, const char *name, double otherwise);
const char *attr_string(const Node *node, const char *name, const char *otherwise);
DType attr_dtype(const Node *node, const char *name, DType otherwise); /* also held as an int */
/* The list and its length; NULL and 0 when missing. */
const int64_t *attr_ints(const Node *node, const char *name, int *out_count);
const Dim *const *attr_dims(const Node *node, const char *name, int *out_count);
/* Attribute names are borrowed by all of these: literals, or strings in the graph's arena. */
void node_set_attr(Node *node, Attr attr); /* replaces one of the same name; lists are borrowed */
void node_set_int(Node *node, const char *name, int64_t value);
void node_set_float(Node *node, const char *name, double value);
void node_set_string(Node *node, const char *name, const char *value);                 /* copied */
void node_set_ints(Node *node, const char *name, const int64_t *values, int count);    /* copied */
void node_set_dims(Node *node, const char *name, const Dim *const *values, int count); /* copied */
void node_set_dtype(Node *node, const char *name, DType dtype);

/* Origins: the union of several nodes' origins. */
Origin origin_merge(Arena *arena, const Origin *origins, int count);
void node_add_subgraph(Node *node, Graph *subgraph);
void node_add_origin(Node *node, Origin origin);
/* What rules want of `from` also holds of `node`, which takes its place or a part of it. */
static inline void node_follow_rules(Node *node, const Node *from) {
    node->fence = from->fence;
    node->on_host = from->on_host;
    node->backward = from->backward;
    node->repeats = from->repeats;
}
const char *node_origin_name(const Node *node); /* the first origin's name, or the op's name */

/* Product of all dims, of dims [from, to), and bytes of a value as expressions. */
const Dim *value_elements(const Graph *graph, const Value *value);
const Dim *value_elements_between(const Graph *graph, const Value *value, int from, int to);
bool value_same_shape(const Value *a, const Value *b); /* equal rank and equal dim expressions */
/* The number that a constant of one element holds. False: the value is no such. */
bool value_scalar(const Value *value, double *out);

#define FOR_EACH_NODE(node, graph) for (Node *node = (graph)->first; node; node = node->next)
/* Safe against removal of `node` in the body. */
#define FOR_EACH_NODE_SAFE(node, graph)                                                                                \
    for (Node *node = (graph)->first, *next_##node = node ? node->next : NULL; node;                                   \
         node = next_##node, next_##node = node ? node->next : NULL)

/* verify.c: what a level may contain. Debug builds check after every pass. */
typedef enum GraphLevel {
    LEVEL_ONNX,        /* as imported: ONNX nodes only, shapes where declared */
    LEVEL_PRIM,        /* lowered: primitives, anchors, host nodes; every dtype, rank and dim known */
    LEVEL_PARTITIONED, /* additionally, every fusible primitive stands in a region */
} GraphLevel;
Status graph_verify(const Graph *graph, GraphLevel level);
/* Graphs inside each other in all forms of a graph: whatever the importer takes can be verified, stored and printed. */
enum { GRAPH_MOST_NESTING = 256 };

/* print.c, parse.c: a text form that reads back (constants above 64 elements print as {...} and do not). */
void graph_print(Text *text, const Graph *graph);
Status graph_parse(const char *source, Graph **out_graph);
/* Graphviz. */
void graph_print_dot(Text *text, const Graph *graph);

#endif
