/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/region_fits.h"

#include "graph/key.h"
#include "graph/space.h"

struct Fits {
    Arena *trial; /* scratch of one analysis */
    Graph *graph;
    bool columns;          /* may be summed beside rows */
    GraphKeyTable answers; /* why not, or NULL */
    GraphKey key;          /* of the present question */
    int *place;            /* [node number]: where it stands in the nodes that are asked about */
    uint64_t question;
    int outsiders; /* values from outside that the present key has named */
};

Fits *fits_create(Arena *scratch, Graph *graph, int node_count, bool columns) {
    Fits *f = ARENA_NEW(scratch, Fits);
    *f = (Fits){.trial = arena_create_inside(scratch),
                .graph = graph,
                .columns = columns,
                .answers = graph_key_table(scratch),
                .key.arena = scratch,
                .place = ARENA_ARRAY(scratch, int, node_count + 1)};
    for (int i = 0; i < graph->values.count; i++) graph->values.items[i]->tag = 0;
    return f;
}

/* --- the key ---------------------------------------------------------------------------------------------- */
static bool is_among(const Fits *f, Node *const *nodes, int count, const Node *node) {
    int at = node ? f->place[node->tag] : 0;
    return node && at < count && nodes[at] == node;
}

static void add_operand(Fits *f, Node *const *nodes, int count, Value *v) {
    enum { INSIDE, NAMED, NEW };
    if (is_among(f, nodes, count, v->producer)) {
        graph_key_add(&f->key, (int64_t)f->place[v->producer->tag] << 2 | INSIDE);
    } else if (v->tag >> 16 == f->question) {
        graph_key_add(&f->key, (int64_t)(v->tag & 0xFFFF) << 2 | NAMED);
    } else {
        bool iota = v->producer && v->producer->kind == NODE_PRIM && v->producer->prim == PRIM_IOTA;
        v->tag = f->question << 16 | (uint64_t)f->outsiders++;
        graph_key_add(&f->key, iota << 2 | NEW);
        graph_key_type(&f->key, v);
    }
}

static bool leaves(const Fits *f, Node *const *nodes, int count, const Value *v) {
    bool out = !v->uses.count || value_is_output(v);
    for (int i = 0; i < v->uses.count && !out; i++) out = !is_among(f, nodes, count, v->uses.items[i].node);
    return out;
}

static void make_key(Fits *f, Node *const *nodes, const int *part_of, int count, int parts) {
    f->key.words.count = 0;
    f->question++;
    f->outsiders = 0;
    for (int i = 0; i < count; i++) f->place[nodes[i]->tag] = i;
    graph_key_add(&f->key, count | (int64_t)parts << 32);
    for (int i = 0; i < count; i++) {
        const Node *node = nodes[i];
        /* of movements alone it matters whether others read them, too */
        bool moves = prim_info(node->prim)->klass == PRIM_CLASS_MOVE && leaves(f, nodes, count, node->outputs[0]);
        int attrs = node->prim == PRIM_PHILOX ? 0 : node->attrs.count; /* which numbers are drawn asks for no axis */
        graph_key_add(&f->key, node->prim | (int64_t)moves << 16 | (int64_t)node->input_count << 17 |
                                   (int64_t)attrs << 24 | (int64_t)part_of[i] << 32);
        graph_key_type(&f->key, node->outputs[0]);
        for (int k = 0; k < node->input_count; k++) add_operand(f, nodes, count, node->inputs[k]);
        for (int a = 0; a < attrs; a++) graph_key_attr(&f->key, &node->attrs.items[a]);
    }
}

/* --- the answer ------------------------------------------------------------------------------------------- */
/* A part's axes may be split by the union, but the union's sizes must be the part's own. */
static bool keeps_axes(const Space *space, Node *const *nodes, const int *part_of, int count, int part) {
    bool lacks[SPACE_MAX_AXES], computed = false; /* false: nothing but strides of a load */
    for (int a = 0; a < space->axis_count; a++) lacks[a] = true;
    for (int k = 0; k < count; k++) {
        if (part_of[k] != part) continue;
        for (int v = -1; v < nodes[k]->input_count; v++) {
            const SpaceValue *sv = space_value(space, v < 0 ? nodes[k]->outputs[0] : nodes[k]->inputs[v]);
            if (!sv) continue;
            computed |= v < 0;
            for (int d = 0; d < sv->value->rank; d++)
                for (int a = 0; a < sv->axis_count[d]; a++) lacks[sv->axes[d][a]] = false;
        }
    }
    for (int a = 0; a < space->axis_count; a++)
        if (lacks[a] && computed) return false;
    return true;
}

/* The axis along which neighbours in memory lie, of a value that has all axes; else -1. */
static int contiguous_axis(const Space *space, const Value *value) {
    const SpaceValue *v = space_value(space, value);
    int last = -1, axes = 0;
    for (int d = 0; v && d < value->rank; d++)
        for (int k = 0; k < v->axis_count[d]; k++, axes++) last = v->axes[d][k];
    return axes == space->axis_count ? last : -1;
}

/* Whether columns are summed and a tensor lies otherwise than all that is read: stored, each of its elements goes to another line of memory, one
 * by one (the gradient of a BatchNormalization of 32 x 32 x 32 x 32 was written so at 5.5 GB/s where memory takes 40), while a kernel that does
 * nothing else turns whole blocks. */
static bool turns_beside_columns(const Space *space, Node *const *nodes, int count) {
    bool reduced = false, columns = false, read[SPACE_MAX_AXES] = {false};
    for (int a = 0; a < space->axis_count; a++) reduced |= space->axes[a].reduced;
    for (int i = 0; i < space->loads.count && reduced; i++) {
        const SpaceLoad *load = &space->loads.items[i];
        bool whole = true;
        for (int a = 0; a < space->axis_count; a++) whole &= !dim_equals(load->stride[a], 0);
        for (int a = 0; whole && a < space->axis_count; a++)
            if (dim_equals(load->stride[a], 1)) read[a] = true, columns |= !space->axes[a].reduced;
    }
    for (int i = 0; i < count && columns; i++) {
        int axis = contiguous_axis(space, nodes[i]->outputs[0]);
        if (axis >= 0 && !read[axis]) return true;
    }
    return false;
}

static const char *analyse(Fits *f, Node *const *nodes, const int *part_of, int count, int parts) {
    const char *why = NULL;
    arena_reset(f->trial);
    const Space *space = space_analyse(f->trial, f->graph->dims, nodes, count, f->columns, &why);
    if (!space) return why ? why : "no common space";
    if (parts == 1) return NULL;
    if (!space_covers(space, nodes[count - 1]->outputs[0]))
        return "it would be stored again along an axis that it lacks";
    if (turns_beside_columns(space, nodes, count)) return "it would be stored turned beside sums of columns";
    for (int i = 0; i + 1 < parts; i++)
        if (!keeps_axes(space, nodes, part_of, count, i)) return "something would be computed again along an axis";
    return NULL;
}

const char *fits_region(Fits *f, Node *const *nodes, const int *part_of, int count, int parts) {
    const void *why;
    make_key(f, nodes, part_of, count, parts);
    if (graph_key_find(&f->answers, &f->key, &why)) return why;
    why = analyse(f, nodes, part_of, count, parts);
    graph_key_keep(&f->answers, &f->key, why);
    return why;
}
