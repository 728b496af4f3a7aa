/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a graph's values, from lowering its twin. */
#include "lowering/ops.h"
#include "base/log.h"
#include "optimize/rewrite.h"

/* A graph of the twin while it is lowered: all its values are outputs, so that each is there, lowered, in the end. */
typedef struct Watched {
    int outputs;      /* that it has itself */
    VEC(Value *) own; /* the graph's values, in the order in which the twin's became outputs */
} Watched;

typedef struct Facts {
    Rewrite *rewrite;
    Arena *arena;
    Map pairs;   /* the twin's Value * -> the graph's, as imported */
    Map watched; /* the twin's Graph * -> Watched * */
} Facts;

static Status pair(Facts *f, Graph *graph, Graph *twin) {
    if (graph->values.count != twin->values.count || graph->node_count != twin->node_count)
        return status_error(STATUS_FAULT, "the model changed while it was read");
    map_set_id(&f->watched, MAP_POINTER_KEY(twin), ARENA_NEW(f->arena, Watched));
    for (int i = 0; i < graph->values.count; i++) {
        Value *own = graph->values.items[i], *other = twin->values.items[i];
        map_set_id(&f->pairs, MAP_POINTER_KEY(other), own);
        if (!own->producer) map_set_id(&f->rewrite->facts, MAP_POINTER_KEY(own), other);
    }
    const Node *other = twin->first;
    FOR_EACH_NODE(node, graph) {
        if (node->subgraph_count != other->subgraph_count)
            return status_error(STATUS_FAULT, "the model changed while it was read");
        for (int i = 0; i < node->subgraph_count; i++) TRY(pair(f, node->subgraphs[i], other->subgraphs[i]));
        other = other->next;
    }
    return NULL;
}

/* Each value that is replaced while lowering is looked for among all outputs: beyond this many nodes that takes too
 * long, and of the graph itself (not its subgraphs) nothing is known. */
enum { MOST_WATCHED = 100000 };

/* Bodies of loops are lowered as copies, which are in no pair: nothing is known of their values. */
static void before_lowering(void *user, Graph *twin) {
    Facts *f = user;
    Watched *watched = map_get_id(&f->watched, MAP_POINTER_KEY(twin));
    if (!watched || twin->node_count > MOST_WATCHED) return;
    watched->outputs = twin->outputs.count;
    watched->own.count = 0;
    FOR_EACH_NODE(node, twin)
    for (int i = 0; i < node->output_count; i++) {
        Value *value = node->outputs[i];
        Value *own = value && value->uses.count ? map_get_id(&f->pairs, MAP_POINTER_KEY(value)) : NULL;
        if (!own) continue;
        VEC_PUSH(f->arena, watched->own, own);
        graph_add_named_output(twin, value, value->name);
    }
    for (int i = 0; i < watched->outputs; i++) {
        Value *own = map_get_id(&f->pairs, MAP_POINTER_KEY(twin->outputs.items[i]));
        if (!own || !own->producer) continue;
        VEC_PUSH(f->arena, watched->own, own);
        graph_add_named_output(twin, twin->outputs.items[i], own->name);
    }
}

static void after_lowering(void *user, Graph *twin) {
    Facts *f = user;
    Watched *watched = map_get_id(&f->watched, MAP_POINTER_KEY(twin));
    if (!watched || !watched->own.count) return;
    for (int i = 0; i < watched->own.count; i++)
        map_set_id(&f->rewrite->facts, MAP_POINTER_KEY(watched->own.items[i]),
                   twin->outputs.items[watched->outputs + i]);
    graph_truncate_outputs(twin, watched->outputs);
}

Status rewrite_facts(Rewrite *r, Graph *graph, Graph *twin, const Policy *policy) {
    Facts facts = {r, r->arena, map_make(r->arena), map_make(r->arena)};
    TRY(pair(&facts, graph, twin));
    LowerTrace trace = {before_lowering, after_lowering, &facts};
    Status status = lower_graph_traced(twin, policy, &trace);
    if (status) LOG(1, "optimize: values from here on are not known: %s", status_message(status));
    status_free(status);
    return NULL;
}

const Value *typed_fact_of(const Rewrite *r, const Value *value) {
    const Value *fact = value ? map_get_id(&r->facts, MAP_POINTER_KEY(value)) : NULL;
    return fact && fact->dtype != DT_NONE && (fact->kind != VALUE_TENSOR || fact->rank >= 0) ? fact : NULL;
}

const Value *fact_of(const Rewrite *r, const Value *value) {
    const Value *fact = typed_fact_of(r, value);
    return fact && fact->kind == VALUE_TENSOR ? fact : NULL;
}
