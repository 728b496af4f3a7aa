/* SPDX-License-Identifier: Apache-2.0 */
/* What is needed of a lowered graph, and the order in which it is written. */
#include "optimize/standard/sweep.h"

/* --- where sizes are found ------------------------------------------------------------------------------------------------ */

static void add_source(Writer *w, const Dim *dim, Source found) {
    int symbol = dim_symbol_index(dim);
    if (symbol < 0) return;
    Source *source = ARENA_NEW(w->arena, Source);
    *source = found;
    source->next = map_get_id(&w->symbols, (uint64_t)symbol + 1);
    map_set_id(&w->symbols, (uint64_t)symbol + 1, source);
}

static void add_sources_of(Writer *w, const Value *value, bool binds) {
    for (int i = 0; value && value->kind == VALUE_TENSOR && i < value->rank; i++)
        add_source(w, value->dims[i], (Source){value, i, false, binds, NULL});
}

static void add_bound(Writer *w, const Node *node) {
    int count;
    const Dim *const *bound = attr_dims(node, "symbols", &count);
    for (int i = 0; bound && i < count; i++) add_source(w, bound[i], (Source){node->inputs[0], i, true, true, NULL});
    for (int i = 0; i < node->output_count; i++) add_sources_of(w, node->outputs[i], true);
}

/* What comes last is looked at first: inputs, then values that the target may have, the earliest first. */
static void find_sources(Sweep *s) {
    uint64_t place = 0;
    FOR_EACH_NODE(node, s->lowered) node->tag = ++place;
    for (const Node *node = s->lowered->last; node; node = node->prev)
        if (node->kind == NODE_HOST) add_bound(&s->w, node);
    for (const Node *node = s->lowered->last; node; node = node->prev)
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] && node->outputs[i]->stands_for) add_sources_of(&s->w, node->outputs[i], false);
    for (int i = 0; i < s->lowered->inputs.count; i++) add_sources_of(&s->w, s->lowered->inputs.items[i], true);
}

static Source *sources_of(const Sweep *s, int symbol) { return map_get_id(&s->w.symbols, (uint64_t)symbol + 1); }

static bool has_symbol_before(const Sweep *s, int symbol, const Node *node) {
    for (const Source *source = sources_of(s, symbol); source; source = source->next)
        if (!source->value->producer || source->value->producer->tag < node->tag) return true;
    return s->outer && has_symbol_before(s->outer, symbol, s->flow);
}

typedef struct SizeBefore {
    const Sweep *sweep;
    const Node *node;
    bool all;
} SizeBefore;

static void look_before(int symbol, void *context) {
    SizeBefore *size = context;
    size->all &= has_symbol_before(size->sweep, symbol, size->node);
}

bool has_size_before(const Sweep *s, const Dim *dim, const Node *node) {
    SizeBefore size = {s, node, true};
    dim_each_symbol(dim, look_before, &size);
    return size.all;
}

/* --- backwards ------------------------------------------------------------------------------------------------------------ */

/* A value that the target has made before the place. */
static Value *existing(Sweep *s, const Value *lowered) {
    for (const ModelValue *m = lowered->stands_for; m; m = m->next) {
        Value *value = map_get(&s->available, m->name);
        if (!value) continue;
        value->dtype = lowered->dtype; /* which no file says of values inside */
        value->kind = lowered->kind;
        if (!m->perm) return value;
        int64_t inverse[MAX_RANK];
        for (int i = 0; i < lowered->rank; i++) inverse[m->perm[i]] = i;
        return transpose(&s->w, value, inverse, lowered->rank);
    }
    return NULL;
}

void need(Sweep *s, const Value *lowered) {
    if (!lowered || lowered->constant || map_get_id(&s->w.forms, MAP_POINTER_KEY(lowered))) return;
    const Value *outside = map_get_id(&s->w.captured, MAP_POINTER_KEY(lowered));
    Value *value = outside ? NULL : existing(s, lowered);
    if (outside)
        need(s->outer, outside);
    else if (value)
        map_set_id(&s->w.forms, MAP_POINTER_KEY(lowered), value);
    else if (lowered->producer) {
        map_set_id(&s->needed, MAP_POINTER_KEY(lowered->producer), lowered->producer);
        map_set_id(&s->asked, MAP_POINTER_KEY(lowered), lowered->producer);
    }
}

bool is_asked(const Sweep *s, const Value *lowered) {
    return lowered && map_get_id(&s->asked, MAP_POINTER_KEY(lowered));
}

static bool is_there(Sweep *s, const Value *lowered) {
    return map_get_id(&s->w.forms, MAP_POINTER_KEY(lowered)) || existing(s, lowered);
}

/* As a run has it: a body begins with the sizes that are known outside. */
static void need_symbol(int symbol, void *context) {
    Sweep *s = context;
    uint64_t key = (uint64_t)symbol + 1;
    Source *source = map_get_id(&s->w.found, key);
    if (source) return;
    if (s->outer && has_symbol_before(s->outer, symbol, s->flow)) {
        need_symbol(symbol, s->outer);
        return;
    }
    for (source = sources_of(s, symbol); source && !is_there(s, source->value);) source = source->next;
    if (!source)
        for (source = sources_of(s, symbol); source && !source->binds;) source = source->next;
    if (!source) return;
    map_set_id(&s->w.found, key, source);
    need(s, source->value);
}

void need_sizes(Sweep *s, const Dim *const *dims, int count) {
    for (int i = 0; i < count; i++) dim_each_symbol(dims[i], need_symbol, s);
}

static void need_shape(Sweep *s, const Value *value) {
    if (value && value->kind == VALUE_TENSOR && value->rank > 0) need_sizes(s, value->dims, value->rank);
}

static void need_inputs(Sweep *s, const Node *node) {
    for (int i = 0; i < node->input_count; i++) need(s, node->inputs[i]);
    for (int i = 0; i < node->attrs.count; i++) {
        const Attr *attr = &node->attrs.items[i];
        if (attr->kind == ATTR_DIMS) need_sizes(s, attr->dims, attr->count);
    }
    if (node->kind != NODE_PRIM) { /* what a transposed convolution cuts off follows from its sizes */
        for (int i = 0; i < node->input_count; i++) need_shape(s, node->inputs[i]);
        for (int i = 0; i < node->output_count; i++) need_shape(s, node->outputs[i]);
    }
}

static bool is_needed(const Sweep *s, const Node *node) { return map_get_id(&s->needed, MAP_POINTER_KEY(node)); }

void mark_needed(Sweep *s) {
    for (const Node *node = s->lowered->last; node; node = node->prev) {
        if (!is_needed(s, node)) continue;
        if (node->subgraph_count && node->kind == NODE_HOST)
            need_flow(s, node);
        else
            need_inputs(s, node);
    }
}

/* --- forwards ------------------------------------------------------------------------------------------------------------- */

static Status write_node(Sweep *s, const Node *node) {
    Writer *w = &s->w;
    const Node *around = w->node;
    w->node = node;
    if (node->kind == NODE_PRIM)
        write_prim(w, node);
    else if (node->kind == NODE_ANCHOR)
        write_anchor(w, node);
    else if (node->subgraph_count)
        write_flow(s, node);
    else
        write_host(w, node);
    w->node = around;
    return *w->error;
}

Status write_needed(Sweep *s) {
    for (const Node *node = s->lowered->first; node; node = node->next) {
        if (!is_needed(s, node)) continue;
        TRY(write_node(s, node));
        map_set_id(&s->needed, MAP_POINTER_KEY(node), NULL);
    }
    return *s->w.error;
}

static Sweep sweep_with(Writer w, const Graph *lowered) {
    Arena *a = w.arena;
    return (Sweep){.w = w,
                   .lowered = lowered,
                   .needed = map_make(a),
                   .asked = map_make(a),
                   .available = map_make(a),
                   .bodies = map_make(a)};
}

Sweep sweep_of(const Graph *lowered, Graph *target, int opset) {
    Sweep s = sweep_with(writer_make(target, opset), lowered);
    find_sources(&s);
    return s;
}

Sweep *sweep_of_body(Sweep *outer, const Node *n, int index) {
    const Graph *lowered = n->subgraphs[index];
    Sweep *s = map_get_id(&outer->bodies, MAP_POINTER_KEY(lowered));
    if (s) return s;
    s = ARENA_NEW(outer->w.arena, Sweep);
    *s = sweep_with(writer_of_body(&outer->w, lowered->name), lowered);
    s->outer = outer;
    s->flow = n;
    int own = lowered->inputs.count - n->captures;
    for (int i = 0; i < n->captures; i++)
        map_set_id(&s->w.captured, MAP_POINTER_KEY(lowered->inputs.items[own + i]),
                   n->inputs[n->input_count - n->captures + i]);
    find_sources(s);
    map_set_id(&outer->bodies, MAP_POINTER_KEY(lowered), s);
    return s;
}

void add_available(Sweep *s, const Node *node) {
    for (int i = 0; i < node->output_count; i++)
        if (node->outputs[i]) map_set(&s->available, node->outputs[i]->name, node->outputs[i]);
}
