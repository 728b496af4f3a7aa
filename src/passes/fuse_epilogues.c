/* SPDX-License-Identifier: Apache-2.0 */
/* Gives an anchor the elementwise work behind it as its epilogue, a body of primitives that the device applies to each
 * block of results while it lies in registers or a cache, so that the raw result does not go through memory.
 *
 * From the anchor's result on, nodes are gathered in topological order whose operands are results gathered before,
 * scalars, and tensors that are there before the anchor runs and lie over the result as graph/broadcast.h says; what
 * such an operand is made of is gathered too where nothing else reads it and it would be a pass over memory of its own.
 * Of what is gathered, the first nodes that move the fewest bytes in all become the epilogue (epilogue_bytes).
 *
 * In and out: LEVEL_PRIM. */
#include "graph/broadcast.h"
#include "graph/space.h"
#include "lowering/anchors.h"
#include "lowering/prune.h"
#include "passes/passes.h"
#include "passes/region.h"

/* How a result is read where some of the gathered nodes become the epilogue. */
typedef struct Readers {
    int last;    /* the place of the last gathered node that reads it, from 1 on; 0: none does */
    bool region; /* the region that what is not gathered would be in anyway reads it */
    bool memory; /* so does anything else */
} Readers;

typedef struct Growth {
    const Policy *policy;
    Arena *scratch;
    Node *anchor;
    Value *raw;           /* the anchor's result */
    VEC(Node *) nodes;    /* gathered, in topological order */
    VEC(Node *) frontier; /* readers of gathered results that are still to be looked at */
    Map inside;           /* Node -> 1 + its place in nodes */
    Map seen;             /* Node that was in the frontier */
    Readers *readers;     /* [1 + nodes.count]: of the raw result and of theirs, once all are gathered */
} Growth;

static bool is_inside(const Growth *g, const Value *v) {
    return v == g->raw || (v->producer && map_get_id(&g->inside, MAP_POINTER_KEY(v->producer)));
}

/* ---- what may be gathered ---- */

/* Whether a value in between may be of that type. */
static bool may_be_between(const Growth *g, DType dtype) {
    DType raw = g->raw->dtype;
    bool widened = dtype == DT_F32 && (raw == DT_F16 || raw == DT_BF16);
    return g->policy->target.epilogue.any_types || dtype == raw || dtype == DT_BOOL || widened;
}

static bool computes_element(const Growth *g, const Node *node) {
    return node->kind == NODE_PRIM && (prim_is_elementwise(node->prim) || node->prim == PRIM_PHILOX) &&
           node->fence == g->anchor->fence && node->on_host == g->anchor->on_host && space_accepts(node) &&
           node->output_count == 1 && value_same_shape(node->outputs[0], g->raw) &&
           may_be_between(g, node->outputs[0]->dtype);
}

/* The nodes' tags number them in their order. */
static bool is_there_before(const Growth *g, const Value *v) {
    return !v->producer || v->producer->tag < g->anchor->tag;
}

static bool is_operand(const Growth *g, const Value *v) {
    if (region_holds(v)) return true;
    return is_there_before(g, v) && v->kind == VALUE_TENSOR && dtype_size(v->dtype) && broadcast_fits(v, g->raw) &&
           (g->policy->target.epilogue.any_types || v->dtype == g->raw->dtype);
}

/* Whether the value is made, for nothing else, of operands that no region makes: the nodes between are gathered, to
 * `chain`, too. */
enum { LONGEST_CHAIN = 8, LONGEST_REPEATED = 64 };
typedef VEC(Node *) Chain;

static bool is_made_by_region(const Value *v) {
    const Node *p = v->constant ? NULL : v->producer;
    return p && p->kind == NODE_PRIM && space_accepts(p) && !is_tiny(p);
}

static bool repeats(const Value *v) { return v->producer && v->producer->repeats; }

static bool is_in_chain(const Chain *chain, const Node *node) {
    for (int i = 0; i < chain->count; i++)
        if (chain->items[i] == node) return true;
    return false;
}

/* Of what is computed again for its readers (Node.repeats), whoever they are, all is gathered. */
static bool gather_chain(const Growth *g, const Value *v, Chain *chain) {
    Node *node = v->producer;
    if (!node || !computes_element(g, node)) return false;
    if (node->repeats ? chain->count >= LONGEST_REPEATED : chain->count == LONGEST_CHAIN || !value_only_user(v))
        return false;
    if (is_in_chain(chain, node)) return true;
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        if (is_inside(g, in) || (is_operand(g, in) && !repeats(in) && (node->repeats || !is_made_by_region(in))))
            continue;
        if (!gather_chain(g, in, chain)) return false;
    }
    VEC_PUSH(g->scratch, *chain, node);
    return true;
}

static void look_at_readers(Growth *g, const Value *v) {
    for (int i = 0; i < v->uses.count; i++) {
        Node *reader = v->uses.items[i].node;
        if (map_get_id(&g->seen, MAP_POINTER_KEY(reader))) continue;
        map_set_id(&g->seen, MAP_POINTER_KEY(reader), reader);
        VEC_PUSH(g->scratch, g->frontier, reader);
    }
}

static void add_node(Growth *g, Node *node) {
    VEC_PUSH(g->scratch, g->nodes, node);
    map_set_id(&g->inside, MAP_POINTER_KEY(node), (void *)(intptr_t)g->nodes.count);
    look_at_readers(g, node->outputs[0]);
}

static bool gather(Growth *g, Node *node) {
    Chain chain = {0};
    if (map_get_id(&g->inside, MAP_POINTER_KEY(node))) return false;
    if (node->repeats || !computes_element(g, node)) return false; /* it belongs with its readers */
    for (int i = 0; i < node->input_count; i++) {
        const Value *in = node->inputs[i];
        if (is_inside(g, in)) continue;
        int before = chain.count;
        if (gather_chain(g, in, &chain)) continue;
        chain.count = before;
        if (!is_operand(g, in)) return false;
    }
    for (int i = 0; i < chain.count; i++)
        if (!map_get_id(&g->inside, MAP_POINTER_KEY(chain.items[i]))) add_node(g, chain.items[i]);
    add_node(g, node);
    return true;
}

static Node *take_first(Growth *g) {
    int first = 0;
    for (int i = 1; i < g->frontier.count; i++)
        if (g->frontier.items[i]->tag < g->frontier.items[first]->tag) first = i;
    Node *node = g->frontier.items[first];
    g->frontier.items[first] = g->frontier.items[--g->frontier.count];
    return node;
}

static void gather_all(Growth *g) {
    enum { MOST_READERS = 64 };
    look_at_readers(g, g->raw);
    while (g->frontier.count && g->frontier.count < MOST_READERS && g->nodes.count < g->policy->fusion.max_region_nodes)
        gather(g, take_first(g));
}

/* ---- how much of it ---- */

/* Whether a later anchor will take the reader as a part of its own epilogue: then the value is read from memory. */
static bool goes_to_later_anchor(const Growth *g, const Node *reader, const Value *v) {
    for (int i = 0; i < reader->input_count; i++) {
        const Value *other = reader->inputs[i];
        for (int depth = 0; depth < LONGEST_CHAIN && other != v; depth++) {
            const Node *p = other->producer;
            if (!p || p->tag <= g->anchor->tag || !value_same_shape(other, g->raw)) break;
            if (p->kind == NODE_ANCHOR) return true;
            if (p->kind != NODE_PRIM || !prim_is_elementwise(p->prim)) break;
            other = p->inputs[0];
        }
    }
    return false;
}

/* Whether what the value is made of, as far back as the anchor, is no region's work alone and reads `v` itself: then who
 * reads it and v waits for more than the region that makes v, squeeze-and-excite networks' gates for one. */
enum { MOST_BETWEEN = 64 };
static bool waits_for(const Growth *g, const Value *from, const Value *v) {
    VEC(const Node *) nodes = {0};
    Map seen = map_make(g->scratch);
    bool leaves_region = false, reaches = false;
    for (int at = -1; at < nodes.count && nodes.count < MOST_BETWEEN; at++) {
        const Node *node = at < 0 ? NULL : nodes.items[at];
        for (int i = 0; i < (node ? node->input_count : 1); i++) {
            const Value *in = node ? node->inputs[i] : from;
            const Node *p = in ? in->producer : NULL;
            reaches |= node && in == v;
            if (!p || in == v || p->tag <= g->anchor->tag || map_get_id(&seen, MAP_POINTER_KEY(p))) continue;
            map_set_id(&seen, MAP_POINTER_KEY(p), (void *)(uintptr_t)p);
            leaves_region |= p->kind != NODE_PRIM;
            VEC_PUSH(g->scratch, nodes, p);
        }
    }
    return leaves_region && reaches;
}

static bool waits_for_more(const Growth *g, const Node *reader, const Value *v) {
    if (v->uses.count < 2) return false; /* nothing else is made of it */
    for (int i = 0; i < reader->input_count; i++)
        if (reader->inputs[i] != v && waits_for(g, reader->inputs[i], v)) return true;
    return false;
}

static Readers readers_of(const Growth *g, const Value *v) {
    Readers r = {.memory = value_is_output(v)};
    for (int i = 0; i < v->uses.count; i++) {
        const Node *reader = v->uses.items[i].node;
        intptr_t place = (intptr_t)map_get_id(&g->inside, MAP_POINTER_KEY(reader));
        if (place) {
            if (place > r.last) r.last = (int)place;
            continue;
        }
        if (reader->repeats) { /* in a later kernel */
            r.memory = true;
            continue;
        }
        bool fusible = reader->kind == NODE_PRIM && space_accepts(reader) &&
                       prim_info(reader->prim)->klass != PRIM_CLASS_MOVE && reader->fence == g->anchor->fence;
        if (fusible && !goes_to_later_anchor(g, reader, v) && !waits_for_more(g, reader, v))
            r.region = true;
        else
            r.memory = true;
    }
    return r;
}

/* The raw result, then those of the gathered nodes. */
static const Value *value_at(const Growth *g, int i) { return i ? g->nodes.items[i - 1]->outputs[0] : g->raw; }

static void find_readers(Growth *g) {
    g->readers = ARENA_ARRAY(g->scratch, Readers, g->nodes.count + 1);
    for (int i = 0; i <= g->nodes.count; i++) g->readers[i] = readers_of(g, value_at(g, i));
}

/* Whether a region reads it where the nodes behind place `end` become one. */
static bool region_reads(const Readers *r, int end) { return r->region || r->last > end; }

/* Bytes moved an element of the result, but for operands, which are read once in any case, if the first `end` nodes
 * become the epilogue and the rest becomes a region with those of its readers that can be in one: what the anchor
 * writes, what the region reads of that, what the region writes. No work is done twice. */
static int epilogue_bytes(const Growth *g, int end) {
    int bytes = 0;
    for (int i = 0; i <= g->nodes.count; i++) {
        const Readers *r = &g->readers[i];
        int size = (int)dtype_size(value_at(g, i)->dtype);
        bool region = region_reads(r, end);
        if (i <= end)
            bytes += size * ((region || r->memory) + region);
        else
            bytes += size * r->memory;
    }
    return bytes;
}

/* Costs a device nothing: it is part of how sums begin and end. */
static bool is_free(const Growth *g, const Node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const Value *v = node->inputs[i];
        if (is_inside(g, v)) continue;
        bool bias = node->prim == PRIM_ADD && broadcast_is_row(v) && broadcast_keeps_last(v);
        bool bound = (node->prim == PRIM_MAX || node->prim == PRIM_MIN) && region_holds(v);
        return bias || bound;
    }
    return false;
}

static bool fits_device(const Growth *g, int end) {
    int outputs = 0, operands = 0;
    Map known = map_make(g->scratch);
    for (int i = 0; i <= end; i++) {
        bool read = region_reads(&g->readers[i], end) || g->readers[i].memory;
        outputs += read;
        if (!g->policy->target.epilogue.any_types && read && value_at(g, i)->dtype != g->raw->dtype) return false;
        for (int k = 0; i && k < g->nodes.items[i - 1]->input_count; k++) {
            const Value *in = g->nodes.items[i - 1]->inputs[k];
            if (is_inside(g, in) || region_holds(in) || map_get_id(&known, MAP_POINTER_KEY(in))) continue;
            map_set_id(&known, MAP_POINTER_KEY(in), (void *)(uintptr_t)in);
            operands++;
        }
    }
    return outputs <= g->policy->target.epilogue.outputs && operands <= EPILOGUE_INPUTS;
}

/* Where several move as many bytes, what is free is taken, and the rest left to a region, whose arithmetic hides behind
 * its memory. */
static int choose_end(const Growth *g) {
    int best = 0, least = epilogue_bytes(g, 0), free_end = 0;
    while (free_end < g->nodes.count && is_free(g, g->nodes.items[free_end])) free_end++;
    for (int end = 1; end <= g->nodes.count; end++) {
        if (!fits_device(g, end)) continue;
        int bytes = epilogue_bytes(g, end);
        if (bytes < least || (bytes == least && end <= free_end)) {
            best = end;
            least = bytes;
        }
    }
    return best;
}

/* ---- the pass ---- */

/* Whether the result's last axis is that of the products' columns, which the device's blocks keep. */
static bool keeps_columns(const Node *anchor) {
    int count;
    const int64_t *perm = attr_ints(anchor, "perm_out", &count);
    return !perm || (count && perm[count - 1] == count - 1);
}

/* f32, f64 and wide integers are what is computed in; f16 and bf16 are rounded to where the result is read. */
static bool takes_epilogue(const Node *node) {
    if (node->kind != NODE_ANCHOR || node->subgraph_count || node->output_count != 1 || !node->outputs[0]) return false;
    DType t = node->outputs[0]->dtype;
    bool product = strcmp(node->op, ATTENTION) != 0 && strcmp(node->op, MATMUL_GROUPED) != 0 &&
                   strcmp(node->op, MATMUL_BLOCKS) != 0;
    return product && node->outputs[0]->rank > 0 && keeps_columns(node) &&
           (dtype_is_float(t) ? dtype_size(t) > 1 : dtype_size(t) >= 4);
}

/* The anchor with what was chosen, which says what that saves: bytes an element of the result. */
static Node *fuse(Graph *graph, const Policy *policy, Arena *scratch, Node *anchor) {
    Growth g = {.policy = policy,
                .scratch = scratch,
                .anchor = anchor,
                .raw = anchor->outputs[0],
                .inside = map_make(scratch),
                .seen = map_make(scratch)};
    gather_all(&g);
    find_readers(&g);
    int end = choose_end(&g);
    if (!end) return anchor;
    int saved = epilogue_bytes(&g, 0) - epilogue_bytes(&g, end);
    Node *fused = epilogue_make(graph, scratch, anchor, g.nodes.items, end);
    node_set_int(fused, EPILOGUE_SAVES, saved);
    return fused;
}

Status fuse_epilogues(Graph *graph, const Policy *policy) {
    if (!policy->fusion.enable || !policy->target.epilogue.outputs) return NULL;
    graph_prune(graph); /* what nothing reads is no reader */
    uint64_t number = 0;
    FOR_EACH_NODE(node, graph) node->tag = number++;
    for (Node *node = graph->first; node; node = node->next) { /* `next` is read after the anchor's readers are gone */
        if (!takes_epilogue(node)) continue;
        Arena *scratch = arena_create_inside(graph->arena);
        node = fuse(graph, policy, scratch, node);
        arena_destroy(scratch);
    }
    graph_prune(graph);
    return NULL;
}
