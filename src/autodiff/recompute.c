/* SPDX-License-Identifier: Apache-2.0 */
/* What of the forward pass is kept for the backward one, and what is computed again from that: a least cut (recomputation: Chen et al.,
 * "Training Deep Nets with Sublinear Memory Cost", 2016; the cut over operations that fuse: He and Yu, "Transcending Runtime-Memory
 * Tradeoffs in Checkpointing by being Fusion Aware", MLSys 2023).
 *
 * Elementwise forward nodes may be repeated beside the backward nodes that read their results: once they are fused there they cost
 * arithmetic, but no memory. Anchors, reductions, host steps and what moves elements about are never repeated. What is kept parts these
 * from what the backward nodes read; the cut pays for each value that is kept (it is written, if nothing else has it written, read again, and
 * held until then) and for the arithmetic of each node that is repeated. Of all least cuts the one nearest to the readers is taken, which
 * the graph's structure alone decides. A residual stream is written in any case and ends the search, so that no chain leaves its layer, the work
 * does not grow with the square of the layers, and equal layers are cut equally.
 *
 * Where the two passes will be two graphs (Graph.seeds), whatever the backward nodes read of forward values crosses, and outputs of the model are
 * no longer there by then. Backward nodes that are made of forward values alone become forward ones, so that they may be what is kept.
 *
 * What a backward anchor reads is kept as it is, unless memory is dear (fusion.memory_efficient, training.saved_megabytes): then a region
 * may make it again. Random masks are always drawn again.
 *
 * In and out: LEVEL_PRIM, behind whatever makes equal nodes one. Node.repeats keeps the copies apart from what they repeat. */
#include "autodiff/autodiff.h"
#include "autodiff/flow.h"

#include "base/log.h"
#include "graph/cost.h"
#include "graph/space.h"
#include "lowering/prune.h"
#include "lowering/sizes.h"
#include "policy/policy.h"

/* Prices, in eighths of what it costs to move a byte. That 8 instructions on 16 lanes take as long as a byte is a judgement, of a machine
 * with 2 cores; measured are whole steps, of a feed-forward network and of BERT, which take as long with as without (0.98 to 1.002). */
enum {
    MOVED = 8,       /* a byte written or read */
    INSTRUCTION = 1, /* on an element */
    KEPT = 4,        /* a byte held until the backward pass */
    KEPT_DEAR = 32,  /* likewise with fusion.memory_efficient */
    KEPT_DEAREST = 4096,
    LONGEST_CHAIN = 64,
    BROAD = 32, /* what is broadcast to so many times its size, means of rows say, is kept */
};

enum { NOT_PART = -1, NO_COMPONENT = -1 };

typedef struct Place {
    Node *node;
    int level; /* how many ends of kernels stand before it */
    bool pure; /* made of forward values and inputs alone, by what may be repeated: as good as forward */
    int component; /* a node of the set of backward nodes that it is likely to share a kernel with, itself at first (union-find) */
    int begin; /* of a component: the first of its nodes and of the backward anchors whose results these read */
} Place;

/* A forward value, reshapes of it included. */
typedef struct Part {
    Value *value;
    double bytes, elements;
    bool fixed;  /* never made again */
    bool stream; /* a later forward kernel reads it, too */
    bool whole;  /* a backward anchor or host step reads it as it is */
    bool read;   /* a backward kernel reads it */
    bool stored; /* in memory whatever is kept */
    bool free;   /* and for the whole run */
    bool drawn;  /* of random numbers and what is there anyway */
    int chain;   /* most nodes that may be repeated one behind the other up to it */
    int vertex;  /* where it is made; read at the next one */
} Part;

typedef struct Cut {
    Graph *graph;
    Arena *arena;
    const int64_t *symbols;
    Place *places; /* [node's tag] */
    int count;
    VEC(Part) parts; /* a value's tag is 1 + its number here; 0: it is none */
    const bool *again;
    bool apart;
    Flow flow;
    Map copies; /* (value, component) -> its copy */
} Cut;

/* --- what nodes are ---------------------------------------------------------------------------------------------------------- */

static bool is_in_kernel(const Node *node) {
    return node->kind == NODE_PRIM && space_accepts(node) && !node->fence && !node->on_host && !node->group;
}

static bool may_repeat(const Node *node) {
    if (!is_in_kernel(node) || node->output_count != 1) return false;
    switch (node->prim) {
    case PRIM_PHILOX:
    case PRIM_IOTA:
    case PRIM_EXPAND:
    case PRIM_RESHAPE:
    case PRIM_SLICE: return true;
    default: return prim_is_elementwise(node->prim);
    }
}

/* Whether a reader of its results is in a later kernel for certain. */
static bool ends_kernel(const Node *node) {
    if (!is_in_kernel(node)) return true;
    if (prim_info(node->prim)->klass != PRIM_CLASS_REDUCE) return false;
    int count;
    const int64_t *axes = attr_ints(node, "axes", &count);
    return count != 1 || axes[0] != node->inputs[0]->rank - 1; /* not along rows */
}

static Place *place_of(const Cut *c, const Node *node) { return &c->places[node->tag]; }

static bool is_backward(const Cut *c, const Node *node) { return node->backward && !place_of(c, node)->pure; }

/* The gradient of an output, which the backward graph is given. */
static bool is_seed(const Cut *c, const Value *v) {
    for (int i = c->graph->seeds; c->apart && !v->producer && i < c->graph->inputs.count; i++)
        if (c->graph->inputs.items[i] == v) return true;
    return false;
}

static bool is_forward_value(const Cut *c, const Value *v) {
    return v->producer ? !is_backward(c, v->producer) : !is_seed(c, v);
}

static int component_of(const Cut *c, int number) {
    while (c->places[number].component != number) number = c->places[number].component;
    return number;
}

static int level_behind(const Cut *c, const Node *before, const Node *node) {
    return place_of(c, before)->level + (ends_kernel(before) || !is_in_kernel(node));
}

static void find_places(Cut *c) {
    c->places = ARENA_ARRAY(c->arena, Place, c->graph->node_count);
    FOR_EACH_NODE(node, c->graph) {
        Place *place = &c->places[c->count];
        *place = (Place){node, .pure = node->backward && may_repeat(node), .component = c->count, .begin = c->count};
        node->tag = (uint64_t)c->count++;
        for (int i = 0; i < node->input_count; i++) {
            const Node *before = node->inputs[i] ? node->inputs[i]->producer : NULL;
            if (node->inputs[i] && is_seed(c, node->inputs[i])) place->pure = false;
            if (!before) continue;
            int level = level_behind(c, before, node);
            if (level > place->level) place->level = level;
            if (is_backward(c, before)) place->pure = false;
        }
    }
}

/* Backward nodes that are likely to become one kernel: of one level, connected. */
static void find_components(Cut *c) {
    for (int n = 0; n < c->count; n++) {
        Place *place = &c->places[n];
        if (!place->node->backward || !is_in_kernel(place->node)) continue;
        for (int i = 0; i < place->node->input_count; i++) {
            const Node *before = place->node->inputs[i]->producer;
            if (!before || !before->backward) continue;
            bool together = is_in_kernel(before) && place_of(c, before)->level == place->level;
            int own = component_of(c, n), other = together ? component_of(c, (int)before->tag) : (int)before->tag;
            if (together) c->places[own < other ? other : own].component = own < other ? own : other;
            int first = together ? c->places[other].begin : is_in_kernel(before) ? own : other;
            Place *whole = &c->places[component_of(c, n)];
            if (c->places[own].begin < whole->begin) whole->begin = c->places[own].begin;
            if (first < whole->begin) whole->begin = first;
        }
    }
}

/* --- which values take part ---------------------------------------------------------------------------------------------------- */

static Value *root_of(Value *v) {
    while (v->producer && v->producer->kind == NODE_PRIM && v->producer->prim == PRIM_RESHAPE)
        v = v->producer->inputs[0];
    return v;
}

static Part *part_of(const Cut *c, Value *v) {
    Value *root = root_of(v);
    return root->tag ? &c->parts.items[root->tag - 1] : NULL;
}

static bool takes_part(const Cut *c, const Value *v, double *out_elements) {
    return v->kind == VALUE_TENSOR && !v->constant && dtype_size(v->dtype) && is_forward_value(c, v) &&
           value_count(v, c->symbols, out_elements) && *out_elements > TINY_ELEMENTS;
}

static Part *enter(Cut *c, Value *v) {
    double elements;
    Value *root = root_of(v);
    if (!root->tag && takes_part(c, root, &elements)) {
        bool fixed = !root->producer || !may_repeat(root->producer), output = value_is_output(root);
        bool free = !root->producer || (output && !c->apart);
        VEC_PUSH(c->arena, c->parts,
                 (Part){.value = root,
                        .elements = elements,
                        .bytes = elements * (double)dtype_size(root->dtype),
                        .fixed = fixed,
                        .free = free,
                        .stored = free || output});
        root->tag = (uint64_t)c->parts.count;
    }
    return part_of(c, v);
}

static bool is_broadcast_by(const Cut *c, const Part *part, const Node *reader) {
    double elements;
    return may_repeat(reader) && value_count(reader->outputs[0], c->symbols, &elements) &&
           elements >= BROAD * part->elements;
}

/* How a node reads a part, the input of a lower level. */
static void note_reader(const Cut *c, Part *part, const Node *reader) {
    if (c->apart ? is_backward(c, reader) : reader->backward) {
        part->read |= is_in_kernel(reader);
        part->whole |= !is_in_kernel(reader);
    } else {
        part->stored = true;
        part->stream |= is_in_kernel(reader);
    }
}

/* Whether it reaches the reader through memory. An anchor's result does not reach what may be its epilogue so. */
static bool is_of_lower_level(const Cut *c, const Value *v, const Node *reader) {
    const Node *node = v->producer;
    if (node && c->apart && is_backward(c, reader)) return is_forward_value(c, v);
    return node && (!is_in_kernel(reader) || place_of(c, node)->level + ends_kernel(node) < place_of(c, reader)->level);
}

static void find_parts(Cut *c) {
    for (int i = 0; i < c->graph->values.count; i++) c->graph->values.items[i]->tag = 0;
    FOR_EACH_NODE(node, c->graph)
    for (int i = 0; i < node->input_count; i++) {
        Part *part = node->inputs[i] ? enter(c, node->inputs[i]) : NULL;
        if (!part) continue;
        if (is_broadcast_by(c, part, node)) part->fixed = true;
        bool alias = node->prim == PRIM_RESHAPE; /* its readers count */
        if (!alias && is_of_lower_level(c, node->inputs[i], node)) note_reader(c, part, node);
    }
    for (int p = 0; p < c->parts.count; p++) { /* in the order of the nodes */
        Part *part = &c->parts.items[p];
        const Node *node = part->value->producer;
        if (part->fixed) continue;
        bool drawn = node->prim == PRIM_PHILOX, other = false;
        for (int i = 0; i < node->input_count; i++) {
            const Part *in = part_of(c, node->inputs[i]);
            if (!in) continue;
            drawn |= in->drawn;
            other |= !in->drawn;
            if (!in->fixed && in->chain > part->chain) part->chain = in->chain;
        }
        part->drawn = drawn && !other && !part->whole;
        part->fixed = !part->drawn && (part->stream || ++part->chain > LONGEST_CHAIN);
    }
}

/* --- the network ------------------------------------------------------------------------------------------------------------------ */

static double price_of_keeping(const Part *part, int kept) {
    if (part->drawn) return FLOW_UNBOUNDED;
    int price = part->free ? 0 : kept;
    if (part->read || !part->whole) price += MOVED;
    if (!part->stored && !part->whole) price += MOVED;
    return part->bytes * price;
}

static double price_of_repeating(const Part *part) {
    if (part->drawn) return 0;
    const Node *node = part->value->producer;
    DType dtype = node->input_count ? node->inputs[node->input_count - 1]->dtype : part->value->dtype;
    double price = part->elements * INSTRUCTION * prim_work(node->prim, dtype);
    return part->whole ? price + 2 * MOVED * part->bytes : price; /* then by a region of its own */
}

/* What a part is made of: whatever lies behind reshapes, slices and expands reads no more than that. */
static void connect_inputs(Cut *c, int number) {
    const Part *part = &c->parts.items[number];
    const Node *node = part->value->producer;
    for (int i = 0; i < node->input_count; i++) {
        const Part *in = part_of(c, node->inputs[i]);
        if (in) flow_add_edge(&c->flow, in->vertex + 1, part->vertex, FLOW_UNBOUNDED);
    }
}

static void cut(Cut *c, int kept) {
    c->flow = flow_make(c->arena);
    for (int p = 0; p < c->parts.count; p++) {
        c->parts.items[p].vertex = flow_add_vertex(&c->flow);
        flow_add_vertex(&c->flow);
    }
    for (int p = 0; p < c->parts.count; p++) {
        const Part *part = &c->parts.items[p];
        flow_add_edge(&c->flow, part->vertex, part->vertex + 1, price_of_keeping(part, kept));
        flow_add_edge(&c->flow, FLOW_SOURCE, part->vertex, part->fixed ? FLOW_UNBOUNDED : price_of_repeating(part));
        if (part->read || part->whole) flow_add_edge(&c->flow, part->vertex + 1, FLOW_SINK, FLOW_UNBOUNDED);
        if (!part->fixed) connect_inputs(c, p);
    }
    c->again = flow_cut(&c->flow);
}

static bool is_repeated(const Cut *c, const Part *part) { return part && c->again[part->vertex]; }

static double saved_bytes(const Cut *c) {
    double bytes = 0;
    for (int p = 0; p < c->parts.count; p++) {
        const Part *part = &c->parts.items[p];
        if (!part->free && !c->again[part->vertex] && c->again[part->vertex + 1]) bytes += part->bytes;
    }
    return bytes;
}

/* Memory gets dearer until what is kept fits. */
static void choose(Cut *c, const Policy *policy) {
    int kept = policy->fusion.memory_efficient ? KEPT_DEAR : KEPT;
    double most = (double)policy->training.saved_megabytes * 1e6;
    cut(c, kept);
    while (most > 0 && saved_bytes(c) > most && kept < KEPT_DEAREST) cut(c, kept *= 2);
    LOG(1, "choose_saved: %.1f MB of %d forward values are kept, a byte at %d/%d of moving it", saved_bytes(c) / 1e6,
        c->parts.count, kept, MOVED);
}

/* --- repeating --------------------------------------------------------------------------------------------------------------------- */

static uint64_t copy_key(const Value *value, int component) {
    return MAP_POINTER_KEY(value) * 0x9e3779b97f4a7c15u + (uint64_t)component + 1;
}

/* Whether a copy may stand before the node `begin`: what it reads does. */
static bool stands_before(Value *const *inputs, int count, const Node *begin) {
    for (int i = 0; i < count; i++) {
        const Node *before = inputs[i]->producer;
        if (before && (before->repeats ? before->tag > begin->tag : before->tag >= begin->tag)) return false;
    }
    return true;
}

/* The value as `reader` and the rest of its component read it. Before the anchors of these, so that the copies can be in their epilogues.
 * Chains of repeatable nodes are as deep as regions and what lies between two anchors. */
static Value *made_again(Cut *c, Value *value, int component, Node *reader) {
    Part *part = part_of(c, value);
    if (!is_repeated(c, part)) return value;
    Value *copy = map_get_id(&c->copies, copy_key(value, component));
    if (copy) return copy;
    const Node *node = value->producer;
    Value **inputs = ARENA_ARRAY(c->graph->arena, Value *, node->input_count);
    for (int i = 0; i < node->input_count; i++) inputs[i] = made_again(c, node->inputs[i], component, reader);
    Node *begin = component == NO_COMPONENT ? reader : c->places[c->places[component].begin].node;
    if (!stands_before(inputs, node->input_count, begin)) begin = reader;
    Node *again = graph_add_prim(c->graph, begin, node->prim, inputs, node->input_count);
    for (int i = 0; i < node->attrs.count; i++) node_set_attr(again, node->attrs.items[i]);
    again->origin = node->origin;
    again->backward = again->repeats = true;
    again->tag = begin->tag;
    copy = node_add_output(again, NULL, value->dtype, value->rank, value->dims);
    copy->tag = 0;
    map_set_id(&c->copies, copy_key(value, component), copy);
    return copy;
}

static void repeat_all(Cut *c) {
    typedef struct Change {
        Node *reader;
        int input;
        Value *value;
    } Change;
    VEC(Change) changes = {0};
    for (int n = 0; n < c->count; n++) {
        Node *node = c->places[n].node;
        if (!node->backward || node->prim == PRIM_RESHAPE || (c->apart && !is_backward(c, node))) continue;
        int component = is_in_kernel(node) ? component_of(c, n) : NO_COMPONENT;
        for (int i = 0; i < node->input_count; i++) {
            Value *value = node->inputs[i];
            if (!value || !is_forward_value(c, value) || !is_of_lower_level(c, value, node)) continue;
            Value *again = made_again(c, value, component, node);
            if (again != value) VEC_PUSH(c->arena, changes, (Change){node, i, again});
        }
    }
    for (int i = 0; i < changes.count; i++) /* at last: what is repeated is what it was */
        node_set_input(changes.items[i].reader, changes.items[i].input, changes.items[i].value);
}

/* --- the pass ------------------------------------------------------------------------------------------------------------------------ */

static bool has_backward(const Graph *graph) {
    FOR_EACH_NODE(node, graph)
    if (node->backward) return true;
    return false;
}

/* Those of the rest that are as good as forward nodes are forward nodes. */
static void move_forward(Cut *c) {
    for (int n = 0; n < c->count; n++)
        if (c->places[n].pure) c->places[n].node->backward = false;
}

Status choose_saved(Graph *graph, const Policy *policy) {
    if (!policy->fusion.enable || !has_backward(graph)) return NULL;
    Arena *arena = arena_create_inside(graph->arena);
    Cut c = {.graph = graph,
             .arena = arena,
             .symbols = hinted_sizes(graph, policy, arena),
             .copies = map_make(arena),
             .apart = graph->seeds > 0};
    find_places(&c);
    find_components(&c);
    find_parts(&c);
    choose(&c, policy);
    repeat_all(&c);
    if (c.apart) move_forward(&c);
    arena_destroy(arena);
    graph_prune(graph);
    return NULL;
}
