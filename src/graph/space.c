/* SPDX-License-Identifier: Apache-2.0 */
/* Fits a set of primitives into one iteration space. In: nodes in topological order. Out: the space's axes, how every
 * value lies over them, and the external inputs as strided loads.
 *
 * An axis of a value is a list of atoms, outermost first. Two lists that must be the same axis are unified from left to
 * right: atoms of equal size become one, a larger one is split by the smaller where the sizes divide. What is left over
 * in the end are the space's axes. */
#include "graph/space.h"

#include "base/map.h"

enum { MAX_STACK = 4 * SPACE_MAX_AXES };

typedef struct Atom {
    const Dim *size;
    int alias;        /* the atom it was unified with, or -1 */
    int outer, inner; /* the two that it was split into, or -1 */
} Atom;

typedef struct AtomList {
    int count;
    int atoms[SPACE_MAX_AXES]; /* outermost first; resolve() follows aliases and splits */
} AtomList;

/* An external tensor seen through slices, permutes, expands and reshapes. */
typedef struct View {
    const Value *source;
    const Dim *offset;
    const Dim *stride[MAX_RANK];
} View;

typedef struct Entry {
    const Value *value;
    View *view;     /* not NULL: loaded, not computed */
    bool inside;    /* the result of a node of the set */
    bool laid_out;  /* axes are made */
    AtomList *axes; /* [rank] */
} Entry;

typedef struct Reduction {
    const Node *node;
    const Entry *input;
    AtomList reduced;
} Reduction;

typedef struct Analysis {
    Arena *arena;
    DimTable *dims;
    Map entries; /* Value -> Entry */
    VEC(Entry *) order;
    VEC(Atom) atoms;
    VEC(Reduction) reductions, columns;
    const char *why;
} Analysis;

static bool fail(Analysis *s, const char *why) {
    s->why = why;
    return false;
}

static bool is_one(const Dim *dim) { return dim_equals(dim, 1); }

/* ---- which primitives ---- */

static bool holds(DType t) {
    switch (t) {
    case DT_F32:
    case DT_F64:
    case DT_F16:
    case DT_BF16:
    case DT_BOOL:
    case DT_U8:
    case DT_U16:
    case DT_U32:
    case DT_U64:
    case DT_I8:
    case DT_I16:
    case DT_I32:
    case DT_I64: return true;
    default: return dtype_is_small(t);
    }
}

static bool known_tensor(const Value *v) {
    if (!v || v->kind != VALUE_TENSOR || v->rank < 0 || v->rank > MAX_RANK || !holds(v->dtype)) return false;
    for (int i = 0; i < v->rank; i++) /* nothing to compute: no kernel is compiled for it */
        if (!v->dims[i] || dim_equals(v->dims[i], 0)) return false;
    return true;
}

/* Every axis stays or is repeated from a constant size 1. */
static bool expands_ones(const Node *node) {
    const Value *from = node->inputs[0], *to = node->outputs[0];
    if (from->rank != to->rank) return false;
    for (int i = 0; i < from->rank; i++)
        if (from->dims[i] != to->dims[i] && !is_one(from->dims[i])) return false;
    return true;
}

static bool is_narrow_float(DType t) { return t == DT_F16 || t == DT_BF16; }

static bool move_accepted(const Node *node) {
    switch (node->prim) {
    case PRIM_RESHAPE:
    case PRIM_PERMUTE:
    case PRIM_SLICE: return true;
    case PRIM_EXPAND: return expands_ones(node);
    default: return false;
    }
}

bool is_tiny(const Node *node) {
    for (int i = 0; i < node->input_count + node->output_count; i++) {
        const Value *v = i < node->input_count ? node->inputs[i] : node->outputs[i - node->input_count];
        int64_t elements = 1, size;
        for (int d = 0; v && d < v->rank; d++) {
            if (!dim_is_const(v->dims[d], &size) || size > TINY_ELEMENTS) return false;
            elements *= size;
            if (elements > TINY_ELEMENTS) return false;
        }
    }
    return true;
}

/* All that regions do with small types. */
static bool moves_or_casts(const Node *node) {
    PrimClass class = prim_info(node->prim)->klass;
    return class == PRIM_CLASS_MOVE || class == PRIM_CLASS_CAST || class == PRIM_CLASS_SELECT;
}

bool space_accepts(const Node *node) {
    if (node->kind != NODE_PRIM || node->output_count != 1 || !known_tensor(node->outputs[0])) return false;
    bool small = dtype_is_small(node->outputs[0]->dtype);
    for (int i = 0; i < node->input_count; i++) {
        if (!known_tensor(node->inputs[i])) return false;
        small |= dtype_is_small(node->inputs[i]->dtype);
    }
    if (small && !moves_or_casts(node)) return false;
    switch (prim_info(node->prim)->klass) {
    case PRIM_CLASS_UNARY:
    case PRIM_CLASS_TEST:
    case PRIM_CLASS_BINARY:
    case PRIM_CLASS_COMPARE:
    case PRIM_CLASS_SELECT:
    case PRIM_CLASS_REDUCE: return true;
    case PRIM_CLASS_CAST: /* f16 and bf16 have no bit pattern inside a kernel */
        return node->prim == PRIM_CAST ||
               (!is_narrow_float(node->inputs[0]->dtype) && !is_narrow_float(node->outputs[0]->dtype));
    case PRIM_CLASS_MOVE: return move_accepted(node);
    case PRIM_CLASS_GENERATE: return node->prim != PRIM_DIMS;
    default: return false;
    }
}

/* ---- atoms ---- */

static int new_atom(Analysis *s, const Dim *size) {
    VEC_PUSH(s->arena, s->atoms, (Atom){size, -1, -1, -1});
    return s->atoms.count - 1;
}

static int find(Analysis *s, int atom) {
    while (s->atoms.items[atom].alias >= 0) {
        int next = s->atoms.items[atom].alias, after = s->atoms.items[next].alias;
        if (after >= 0) s->atoms.items[atom].alias = after;
        atom = next;
    }
    return atom;
}

static bool push_resolved(Analysis *s, int atom, AtomList *out) {
    atom = find(s, atom);
    Atom a = s->atoms.items[atom];
    if (a.outer >= 0) return push_resolved(s, a.outer, out) && push_resolved(s, a.inner, out);
    if (out->count == SPACE_MAX_AXES) return fail(s, "too many axes");
    out->atoms[out->count++] = atom;
    return true;
}

/* Appends the leaves of `list`. */
static bool resolve(Analysis *s, const AtomList *list, AtomList *out) {
    for (int i = 0; i < list->count; i++)
        if (!push_resolved(s, list->atoms[i], out)) return false;
    return true;
}

static bool list_has(const AtomList *list, int atom) {
    for (int i = 0; i < list->count; i++)
        if (list->atoms[i] == atom) return true;
    return false;
}

typedef struct Stack {
    int count;
    int atoms[MAX_STACK]; /* the outermost on top */
} Stack;

static Stack stack_of(const AtomList *list) {
    Stack stack = {.count = list->count};
    for (int i = 0; i < list->count; i++) stack.atoms[list->count - 1 - i] = list->atoms[i];
    return stack;
}

/* The next leaf. */
static int pop(Analysis *s, Stack *stack) {
    for (;;) {
        int atom = find(s, stack->atoms[--stack->count]);
        Atom a = s->atoms.items[atom];
        if (a.outer < 0) return atom;
        if (stack->count + 2 > MAX_STACK) return -1;
        stack->atoms[stack->count++] = a.inner;
        stack->atoms[stack->count++] = a.outer;
    }
}

/* Splits `whole` into `outer` and the rest, which goes back on its stack. */
static void split(Analysis *s, int whole, int outer, const Dim *rest, Stack *stack) {
    int inner = new_atom(s, rest);
    s->atoms.items[whole].outer = outer;
    s->atoms.items[whole].inner = inner;
    stack->atoms[stack->count++] = inner;
}

static bool unify(Analysis *s, const AtomList *left, const AtomList *right) {
    Stack a = stack_of(left), b = stack_of(right);
    while (a.count && b.count) {
        int x = pop(s, &a), y = pop(s, &b);
        if (x < 0 || y < 0) return fail(s, "too many axes");
        if (x == y) continue;
        const Dim *size_x = s->atoms.items[x].size, *size_y = s->atoms.items[y].size, *rest;
        if (size_x == size_y)
            s->atoms.items[y].alias = x;
        else if (dim_divides(s->dims, size_x, size_y, &rest))
            split(s, x, y, rest, &a);
        else if (dim_divides(s->dims, size_y, size_x, &rest))
            split(s, y, x, rest, &b);
        else
            return fail(s, "axes of sizes that do not divide meet");
    }
    return a.count == b.count || fail(s, "axes of different sizes meet");
}

/* ---- entries and views ---- */

static Entry *add_entry(Analysis *s, const Value *value, bool inside) {
    Entry *e = ARENA_NEW(s->arena, Entry);
    e->value = value;
    e->inside = inside;
    map_set_id(&s->entries, MAP_POINTER_KEY(value), e);
    VEC_PUSH(s->arena, s->order, e);
    return e;
}

static View *whole_view(Analysis *s, const Value *value) {
    View *view = ARENA_NEW(s->arena, View);
    view->source = value;
    view->offset = dim_const(s->dims, 0);
    const Dim *stride = dim_const(s->dims, 1);
    for (int i = value->rank - 1; i >= 0; i--) {
        view->stride[i] = stride;
        if (i > 0) stride = dim_mul(s->dims, stride, value->dims[i]);
    }
    return view;
}

/* Of an operand; an external one is made on its first use. */
static Entry *entry_of(Analysis *s, const Value *value) {
    Entry *e = map_get_id(&s->entries, MAP_POINTER_KEY(value));
    if (e) return e;
    e = add_entry(s, value, false);
    e->view = whole_view(s, value);
    return e;
}

static AtomList *new_axes(Analysis *s, int rank) { return ARENA_ARRAY(s->arena, AtomList, rank ? rank : 1); }

static void fresh_axis(Analysis *s, AtomList *axis, const Dim *size) {
    axis->count = 0;
    if (!is_one(size)) axis->atoms[axis->count++] = new_atom(s, size);
}

static void lay_out(Analysis *s, Entry *e) {
    if (e->laid_out) return;
    e->laid_out = true;
    e->axes = new_axes(s, e->value->rank);
    for (int i = 0; i < e->value->rank; i++) fresh_axis(s, &e->axes[i], e->value->dims[i]);
}

/* Of an operand that is computed with: a view becomes a load. */
static Entry *operand(Analysis *s, const Value *value) {
    Entry *e = entry_of(s, value);
    lay_out(s, e);
    return e;
}

static Entry *result(Analysis *s, const Node *node) {
    Entry *e = add_entry(s, node->outputs[0], true);
    e->laid_out = true;
    e->axes = new_axes(s, e->value->rank);
    return e;
}

/* ---- movement of external inputs ---- */

/* Strides of a reshaped view: blocks of axes match from left to right; axes merge where the outer one continues the
 * inner one. */
static bool reshape_view(Analysis *s, const View *from, const Value *old, const Value *new, View *to) {
    DimTable *d = s->dims;
    const Dim *size = NULL, *stride = NULL, *rest; /* of the input axis, or what is left of it */
    int i = 0;
    for (int j = 0; j < new->rank; j++) {
        to->stride[j] = dim_const(d, 0);
        if (is_one(new->dims[j])) continue;
        for (;;) {
            while (!size && i < old->rank && is_one(old->dims[i])) i++;
            if (!size && i == old->rank) return false;
            if (!size) size = old->dims[i], stride = from->stride[i++];
            if (size == new->dims[j]) {
                to->stride[j] = stride;
                size = NULL;
                break;
            }
            if (dim_divides(d, size, new->dims[j], &rest)) {
                to->stride[j] = dim_mul(d, stride, rest);
                size = rest;
                break;
            }
            while (i < old->rank && is_one(old->dims[i])) i++;
            if (i == old->rank || stride != dim_mul(d, from->stride[i], old->dims[i])) return false;
            size = dim_mul(d, size, old->dims[i]);
            stride = from->stride[i++];
        }
    }
    while (i < old->rank && is_one(old->dims[i])) i++;
    return !size && i == old->rank;
}

static bool slice_view(Analysis *s, const Node *node, View *view) {
    int starts, steps;
    const Dim *const *start = attr_dims(node, "start", &starts);
    const int64_t *step = attr_ints(node, "step", &steps);
    int rank = node->inputs[0]->rank;
    if (!start || starts != rank || (step && steps != rank)) return false;
    for (int i = 0; i < rank; i++) {
        view->offset = dim_add(s->dims, view->offset, dim_mul(s->dims, start[i], view->stride[i]));
        if (step && step[i] != 1) view->stride[i] = dim_mul(s->dims, view->stride[i], dim_const(s->dims, step[i]));
    }
    return true;
}

static bool permutation(const Node *node, int rank, const int64_t **out_perm) {
    int count;
    const int64_t *perm = attr_ints(node, "perm", &count);
    *out_perm = perm;
    if (count != rank) return false;
    for (int i = 0; i < rank; i++)
        if (perm[i] < 0 || perm[i] >= rank) return false;
    return true;
}

static View *move_view(Analysis *s, const Node *node, const View *from) {
    const Value *old = node->inputs[0], *new = node->outputs[0];
    View *to = ARENA_NEW(s->arena, View);
    const int64_t *perm;
    *to = *from;
    switch (node->prim) {
    case PRIM_PERMUTE:
        if (!permutation(node, old->rank, &perm)) return NULL;
        for (int i = 0; i < old->rank; i++) to->stride[i] = from->stride[perm[i]];
        return to;
    case PRIM_EXPAND:
        for (int i = 0; i < old->rank; i++)
            if (old->dims[i] != new->dims[i]) to->stride[i] = dim_const(s->dims, 0);
        return to;
    case PRIM_SLICE: return slice_view(s, node, to) ? to : NULL;
    default: return reshape_view(s, from, old, new, to) ? to : NULL;
    }
}

/* ---- one primitive ---- */

static bool visit_elementwise(Analysis *s, const Node *node) {
    Entry *inputs[3];
    for (int k = 0; k < node->input_count; k++) inputs[k] = operand(s, node->inputs[k]);
    Entry *out = result(s, node);
    const Value *to = out->value;
    for (int i = 0; i < to->rank; i++) {
        bool set = is_one(to->dims[i]);
        for (int k = 0; k < node->input_count; k++) {
            const Value *from = inputs[k]->value;
            int axis = i - (to->rank - from->rank);
            if (axis < 0 || (is_one(from->dims[axis]) && !is_one(to->dims[i]))) continue;
            if (from->dims[axis] != to->dims[i]) return fail(s, "sizes that may differ at run time meet");
            if (!set)
                out->axes[i] = inputs[k]->axes[axis];
            else if (!unify(s, &out->axes[i], &inputs[k]->axes[axis]))
                return false;
            set = true;
        }
        if (!set) return fail(s, "a result's size is none of its operands'");
    }
    return true;
}

static bool visit_reduce(Analysis *s, const Node *node) {
    int count;
    const int64_t *axes = attr_ints(node, "axes", &count);
    Entry *in = operand(s, node->inputs[0]), *out = result(s, node);
    int rank = in->value->rank;
    bool reduced[MAX_RANK] = {false};
    if (out->value->rank != rank) return fail(s, "a reduction changes the rank");
    for (int i = 0; i < count; i++) {
        if (axes[i] < 0 || axes[i] >= rank) return fail(s, "a reduction's axis is out of range");
        reduced[axes[i]] = true;
    }
    Reduction r = {.node = node, .input = in};
    for (int i = 0; i < rank; i++) {
        if (!reduced[i])
            out->axes[i] = in->axes[i];
        else if (!resolve(s, &in->axes[i], &r.reduced))
            return false;
    }
    if (r.reduced.count) VEC_PUSH(s->arena, s->reductions, r);
    return true;
}

static bool reshape_axes(Analysis *s, const Entry *in, Entry *out) {
    AtomList from = {0}, to = {0};
    for (int i = 0; i < in->value->rank; i++)
        if (!resolve(s, &in->axes[i], &from)) return false;
    for (int j = 0; j < out->value->rank; j++) {
        fresh_axis(s, &out->axes[j], out->value->dims[j]);
        if (!resolve(s, &out->axes[j], &to)) return false;
    }
    return unify(s, &from, &to);
}

static bool visit_move(Analysis *s, const Node *node) {
    Entry *in = entry_of(s, node->inputs[0]);
    View *view = in->view ? move_view(s, node, in->view) : NULL;
    if (view) {
        add_entry(s, node->outputs[0], true)->view = view;
        return true;
    }
    if (node->prim == PRIM_SLICE) return fail(s, "a slice of a computed value");
    lay_out(s, in);
    Entry *out = result(s, node);
    if (node->prim == PRIM_RESHAPE) return reshape_axes(s, in, out);
    const int64_t *perm = NULL;
    int rank = in->value->rank;
    if (node->prim == PRIM_PERMUTE && !permutation(node, rank, &perm)) return fail(s, "a permutation out of range");
    for (int i = 0; i < rank; i++) {
        int axis = perm ? (int)perm[i] : i;
        if (in->value->dims[axis] != out->value->dims[i])
            fresh_axis(s, &out->axes[i], out->value->dims[i]);
        else
            out->axes[i] = in->axes[axis];
    }
    return true;
}

static bool visit(Analysis *s, const Node *node) {
    if (!space_accepts(node)) return fail(s, "a primitive or type that no region holds");
    switch (prim_info(node->prim)->klass) {
    case PRIM_CLASS_REDUCE: return visit_reduce(s, node);
    case PRIM_CLASS_MOVE: return visit_move(s, node);
    case PRIM_CLASS_GENERATE:
        if (node->prim == PRIM_IOTA && (uint64_t)attr_int(node, "axis", 0) >= (uint64_t)node->outputs[0]->rank)
            return fail(s, "an iota's axis is out of range");
        if (node->input_count) operand(s, node->inputs[0]);
        lay_out(s, add_entry(s, node->outputs[0], true));
        return true;
    default: return visit_elementwise(s, node);
    }
}

/* ---- the whole set ---- */

/* A movement result that nothing in the set moves further or computes with is loaded for its own sake; so is one that
 * leaves the set. */
static void lay_out_leaving(Analysis *s) {
    for (int i = 0; i < s->order.count; i++) {
        Entry *e = s->order.items[i];
        if (!e->inside || e->laid_out) continue;
        bool leaves = !e->value->uses.count || value_is_output(e->value);
        for (int k = 0; !leaves && k < e->value->uses.count; k++) {
            const Node *user = e->value->uses.items[k].node;
            const Entry *next =
                user->output_count == 1 ? map_get_id(&s->entries, MAP_POINTER_KEY(user->outputs[0])) : NULL;
            leaves = !next || !next->inside;
        }
        if (leaves) lay_out(s, e);
    }
}

static bool all_atoms(Analysis *s, const Entry *e, AtomList *out) {
    out->count = 0;
    for (int i = 0; i < e->value->rank; i++)
        if (!resolve(s, &e->axes[i], out)) return false;
    return true;
}

/* What of `list` is not in `without`. */
static AtomList difference(const AtomList *list, const AtomList *without) {
    AtomList left = {0};
    for (int i = 0; i < list->count; i++)
        if (!list_has(without, list->atoms[i])) left.atoms[left.count++] = list->atoms[i];
    return left;
}

static bool resolved(Analysis *s, const AtomList *list, AtomList *out) {
    out->count = 0;
    return resolve(s, list, out);
}

static bool is_read_inside(const Analysis *s, const Value *v) {
    for (int i = 0; i < v->uses.count; i++) {
        const Node *user = v->uses.items[i].node;
        const Entry *out = user->output_count == 1 ? map_get_id(&s->entries, MAP_POINTER_KEY(user->outputs[0])) : NULL;
        if (out && out->inside) return true;
    }
    return false;
}

/* Whether it sums up what `rows` keeps, and keeps what that reduces. */
static bool sums_columns(Analysis *s, const Reduction *r, const Reduction *rows) {
    AtomList own, other, input;
    if (!resolved(s, &r->reduced, &own) || !resolved(s, &rows->reduced, &other) || !all_atoms(s, r->input, &input))
        return false;
    AtomList kept = difference(&input, &own);
    return difference(&other, &kept).count == 0 && difference(&own, &other).count == own.count;
}

/* The first that reduces what lies next to each other. */
static const Reduction *first_of_rows(Analysis *s) {
    for (int i = 0; i < s->reductions.count; i++) {
        AtomList reduced, input;
        const Reduction *r = &s->reductions.items[i];
        if (!resolved(s, &r->reduced, &reduced) || !all_atoms(s, r->input, &input)) return NULL;
        if (list_has(&reduced, input.atoms[input.count - 1])) return r;
    }
    return NULL;
}

/* Sums of what the rows keep, which nothing here reads, stand apart from what reduces rows. */
static void part_columns(Analysis *s) {
    const Reduction *first = first_of_rows(s);
    if (!first) return;
    const Reduction rows = *first;
    int left = 0;
    for (int i = 0; i < s->reductions.count; i++) {
        const Reduction r = s->reductions.items[i];
        const Node *node = r.node;
        bool sum = node->prim == PRIM_REDUCE_SUM && dtype_is_float(node->outputs[0]->dtype);
        if (sum && !is_read_inside(s, node->outputs[0]) && sums_columns(s, &r, &rows))
            VEC_PUSH(s->arena, s->columns, r);
        else
            s->reductions.items[left++] = r;
    }
    s->reductions.count = left;
}

/* Makes the axes that the reductions reduce the same, also where nothing else ties them together. */
static bool join_reductions(Analysis *s) {
    for (int i = 1; i < s->reductions.count; i++) {
        AtomList first, other;
        if (!resolved(s, &s->reductions.items[0].reduced, &first) ||
            !resolved(s, &s->reductions.items[i].reduced, &other))
            return false;
        AtomList a = difference(&first, &other), b = difference(&other, &first);
        if (!unify(s, &a, &b)) return fail(s, "reductions over different axes");
    }
    return true;
}

/* An axis that only values behind the reductions have (an expand, another tensor of the row's size) is run over with
 * the reduced axes; were it an axis of its own, the reduction would be done again for each of its elements. */
static bool join_later_axes(Analysis *s) {
    if (!s->reductions.count) return true;
    for (int i = 0; i < s->order.count; i++) {
        const Entry *e = s->order.items[i];
        AtomList base, reduced, atoms;
        if (!e->laid_out) continue;
        if (!all_atoms(s, s->reductions.items[0].input, &base) || !all_atoms(s, e, &atoms) ||
            !resolved(s, &s->reductions.items[0].reduced, &reduced))
            return false;
        AtomList later = difference(&atoms, &base), missing = difference(&reduced, &atoms);
        if (later.count && !unify(s, &missing, &later))
            return fail(s, "a reduction would be repeated along an axis that its input lacks");
    }
    return true;
}

/* Puts the atoms of one value into the order: new ones right before the next that is there already. */
static bool add_ordered(AtomList *order, const AtomList *atoms) {
    for (int i = atoms->count - 1, at = order->count; i >= 0; i--) {
        int found = -1;
        for (int k = 0; k < order->count; k++)
            if (order->atoms[k] == atoms->atoms[i]) found = k;
        if (found >= 0) {
            at = found;
            continue;
        }
        if (order->count == SPACE_MAX_AXES) return false;
        memmove(order->atoms + at + 1, order->atoms + at, (size_t)(order->count - at) * sizeof *order->atoms);
        order->atoms[at] = atoms->atoms[i];
        order->count++;
    }
    return true;
}

/* All axes of the space, the value of most axes leading; refuses a value that would run along its diagonal. */
static bool order_axes(Analysis *s, AtomList *order) {
    AtomList atoms, most = {0};
    for (int i = 0; i < s->order.count; i++) {
        if (!s->order.items[i]->laid_out) continue;
        if (!all_atoms(s, s->order.items[i], &atoms)) return false;
        for (int a = 0; a < atoms.count; a++)
            for (int b = 0; b < a; b++)
                if (atoms.atoms[a] == atoms.atoms[b]) return fail(s, "two axes of one value would be the same");
        if (atoms.count > most.count) most = atoms;
    }
    *order = most;
    for (int i = 0; i < s->order.count; i++) {
        if (!s->order.items[i]->laid_out) continue;
        if (!all_atoms(s, s->order.items[i], &atoms)) return false;
        if (!add_ordered(order, &atoms)) return fail(s, "too many axes");
    }
    return true;
}

static bool check_reductions(Analysis *s, Space *space, const AtomList *order) {
    AtomList first = {0}, other, input;
    for (int i = 0; i < s->reductions.count; i++) {
        const Reduction *r = &s->reductions.items[i];
        if (!resolved(s, &r->reduced, i ? &other : &first) || !all_atoms(s, r->input, &input)) return false;
        if (input.count != order->count)
            return fail(s, "a reduction would be repeated along an axis that its input lacks");
        if (i == 0) {
            for (int k = 0; k < order->count; k++) space->axes[k].reduced = list_has(&first, order->atoms[k]);
            continue;
        }
        if (other.count != first.count) return fail(s, "reductions over different axes");
        for (int k = 0; k < other.count; k++)
            if (!list_has(&first, other.atoms[k])) return fail(s, "reductions over different axes");
    }
    return true;
}

static bool check_columns(Analysis *s, const Space *space, const AtomList *order) {
    AtomList reduced, input;
    for (int i = 0; i < s->columns.count; i++) {
        const Reduction *r = &s->columns.items[i];
        if (!resolved(s, &r->reduced, &reduced) || !all_atoms(s, r->input, &input)) return false;
        bool fits = input.count == order->count && space->axes[order->count - 1].reduced;
        for (int k = 0; k < order->count; k++) fits &= list_has(&reduced, order->atoms[k]) != space->axes[k].reduced;
        if (!fits) return fail(s, "reductions over different axes");
    }
    return true;
}

static int position(const AtomList *order, int atom) {
    for (int i = 0; i < order->count; i++)
        if (order->atoms[i] == atom) return i;
    return -1;
}

static bool fill_value(Analysis *s, const AtomList *order, const Entry *e, SpaceValue *v) {
    v->value = e->value;
    for (int i = 0; i < e->value->rank; i++) {
        AtomList leaves = {0};
        if (!resolve(s, &e->axes[i], &leaves)) return false;
        v->axis_count[i] = leaves.count;
        for (int k = 0; k < leaves.count; k++) v->axes[i][k] = (signed char)position(order, leaves.atoms[k]);
    }
    return true;
}

static void fill_load(Analysis *s, const Space *space, const Entry *e, const SpaceValue *v, SpaceLoad *load) {
    *load = (SpaceLoad){.source = e->view->source, .value = e->value, .offset = e->view->offset};
    for (int k = 0; k < space->axis_count; k++) load->stride[k] = dim_const(s->dims, 0);
    for (int i = 0; i < e->value->rank; i++) {
        const Dim *stride = e->view->stride[i];
        for (int k = v->axis_count[i] - 1; k >= 0; k--) {
            load->stride[v->axes[i][k]] = stride;
            if (k > 0) stride = dim_mul(s->dims, stride, space->axes[v->axes[i][k]].size);
        }
    }
}

static bool fill_space(Analysis *s, Space *space, const AtomList *order) {
    int values = 0, loads = 0;
    for (int i = 0; i < s->order.count; i++) {
        values += s->order.items[i]->laid_out;
        loads += s->order.items[i]->laid_out && s->order.items[i]->view;
    }
    space->values.items = ARENA_ARRAY(s->arena, SpaceValue, values ? values : 1);
    space->loads.items = ARENA_ARRAY(s->arena, SpaceLoad, loads ? loads : 1);
    space->values.capacity = values;
    space->loads.capacity = loads;
    for (int i = 0; i < s->order.count; i++) {
        const Entry *e = s->order.items[i];
        if (!e->laid_out) continue;
        SpaceValue *v = &space->values.items[space->values.count++];
        if (!fill_value(s, order, e, v)) return false;
        map_set_id(&space->by_value, MAP_POINTER_KEY(e->value), v);
        for (int c = 0; c < s->columns.count; c++) v->column |= s->columns.items[c].node->outputs[0] == e->value;
        if (e->view) fill_load(s, space, e, v, &space->loads.items[space->loads.count++]);
    }
    return true;
}

/* ---- axes that stand for one ---- */

/* Whether the value has axes a and b next to each other, or neither. An iota's index may be needed along one of them
 * alone. */
static bool value_merges(const SpaceValue *v, int a, int b) {
    bool alone = v->value->producer && v->value->producer->kind == NODE_PRIM && v->value->producer->prim == PRIM_IOTA;
    int before = -1;
    for (int i = 0; i < v->value->rank; i++)
        for (int k = 0; k < v->axis_count[i]; k++) {
            int axis = v->axes[i][k];
            if ((axis == b) != (before == a) || (alone && (axis == a || axis == b))) return false;
            before = axis;
        }
    return before != a;
}

static bool axes_merge(Analysis *s, const Space *space, int a, int b) {
    if (space->axes[a].reduced != space->axes[b].reduced) return false;
    for (int i = 0; i < space->values.count; i++)
        if (!value_merges(&space->values.items[i], a, b)) return false;
    for (int i = 0; i < space->loads.count; i++) {
        const SpaceLoad *l = &space->loads.items[i];
        if (l->stride[a] != dim_mul(s->dims, l->stride[b], space->axes[b].size)) return false;
    }
    return true;
}

/* A kernel has at most this many axes once those that run together are merged; lowering merges at least what is merged
 * here. */
enum { MAX_MERGED = 8 };

static bool few_axes(Analysis *s, const Space *space) {
    int merged = space->axis_count;
    if (merged <= MAX_MERGED) return true;
    for (int a = 0; a + 1 < space->axis_count; a++)
        if (axes_merge(s, space, a, a + 1)) merged--;
    return merged <= MAX_MERGED || fail(s, "too many axes");
}

/* ---- face ---- */

static Space *analyse(Analysis *s, Node *const *nodes, int count, bool columns) {
    for (int i = 0; i < count; i++)
        if (!visit(s, nodes[i])) return NULL;
    lay_out_leaving(s);
    if (columns) part_columns(s);
    AtomList order;
    if (!join_reductions(s) || !join_later_axes(s) || !order_axes(s, &order)) return NULL;
    Space *space = ARENA_NEW(s->arena, Space);
    space->by_value = map_make(s->arena);
    space->axis_count = order.count;
    for (int k = 0; k < order.count; k++) space->axes[k].size = s->atoms.items[order.atoms[k]].size;
    bool fits = check_reductions(s, space, &order) && check_columns(s, space, &order) && fill_space(s, space, &order) &&
                few_axes(s, space);
    return fits ? space : NULL;
}

Space *space_analyse(Arena *arena, DimTable *dims, Node *const *nodes, int count, bool columns, const char **out_why) {
    Analysis s = {.arena = arena, .dims = dims, .entries = map_make(arena)};
    Space *space = analyse(&s, nodes, count, columns);
    if (out_why) *out_why = space ? "" : s.why;
    return space;
}

const SpaceValue *space_value(const Space *space, const Value *value) {
    return map_get_id(&space->by_value, MAP_POINTER_KEY(value));
}

bool space_covers(const Space *space, const Value *value) {
    const SpaceValue *v = space_value(space, value);
    bool has[SPACE_MAX_AXES] = {false};
    if (!v) return false;
    if (v->column) return true;
    for (int i = 0; i < value->rank; i++)
        for (int k = 0; k < v->axis_count[i]; k++) has[v->axes[i][k]] = true;
    for (int a = 0; a < space->axis_count; a++)
        if (!space->axes[a].reduced && !has[a]) return false;
    return true;
}
