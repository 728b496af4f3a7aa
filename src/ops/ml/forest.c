/* SPDX-License-Identifier: Apache-2.0 */
/* Tree ensembles. While lowering, the operators' parallel lists become one table of branches, each tree in depth-first
 * order, so that a walk reads forward in memory and every child is known to exist and to belong to one parent. The
 * table is an attribute of the host node; the kernels walk it, rows in parallel. */
#include "ops/ml/forest.h"

#include <math.h>

#include "ops/ml/class_scores.h"

/* In the order of TreeEnsemble's nodes_modes. */
typedef enum Mode { MODE_LEQ, MODE_LT, MODE_GTE, MODE_GT, MODE_EQ, MODE_NEQ, MODE_MEMBER, MODE_LEAF } Mode;
typedef enum Aggregate { AGGREGATE_AVERAGE, AGGREGATE_SUM, AGGREGATE_MIN, AGGREGATE_MAX } Aggregate;

/* A classifier of two classes whose votes are all for one of them: for the first, they score the second class and are
 * written as two columns (write_binary_scores); for the second, the first one's column stays zero. */
typedef enum Binary { BINARY_NO, BINARY_FIRST, BINARY_SECOND } Binary;

typedef struct Branch {
    double split;
    int32_t feature; /* of a leaf: number of votes */
    int32_t yes, no; /* branches; MODE_MEMBER: `split` is the first of its members; of a leaf: yes is its first vote */
    uint8_t mode;
    bool missing_yes; /* where NaN goes */
} Branch;

typedef struct Vote {
    double weight;
    int32_t target;
} Vote;

/* Attributes of the host node: tensors of bytes. */
typedef struct Forest {
    const Branch *branches;
    const Vote *votes;
    const double *members; /* sets, each ended by NaN */
    const int32_t *roots;
    int64_t root_count, branch_count;
    int64_t features; /* the largest feature used, plus 1 */
} Forest;

/* ---- making the table ---- */

/* The operator's lists in one form: source nodes [count]; a child is a source node or, for TreeEnsemble, a leaf of its
 * own. */
typedef struct Source {
    int count;
    const int64_t *features, *yes, *no,
        *missing;                            /* yes, no: source node numbers (or leaf numbers); missing may be NULL */
    const int64_t *yes_is_leaf, *no_is_leaf; /* NULL: leaves are source nodes of MODE_LEAF */
    const double *splits;
    const uint8_t *modes;
    const int64_t *first_member;            /* [count] of MODE_MEMBER */
    const int64_t *first_vote, *vote_count; /* [count], or [leaves] */
    int64_t leaf_count;
} Source;

typedef struct Pending {
    int64_t source;
    bool leaf;
    int parent; /* branch whose child it is, -1 for roots */
    bool is_yes;
} Pending;

typedef struct Maker {
    Lowering *l;
    const Source *source;
    VEC(Branch) branches;
    VEC(Pending) stack;
    int64_t features, most; /* most: branches that trees of these nodes can have */
} Maker;

static bool add_branch(Maker *m, const Pending *p) {
    const Source *s = m->source;
    Branch branch = {.mode = MODE_LEAF};
    if (m->branches.count >= m->most) return invalid(m->l, "its nodes are no trees"), false;
    bool leaf = p->leaf || s->modes[p->source] == MODE_LEAF;
    if (leaf) {
        branch.yes = (int32_t)s->first_vote[p->source];
        branch.feature = (int32_t)s->vote_count[p->source];
    } else {
        int64_t feature = s->features[p->source];
        if (feature < 0 || feature >= INT32_MAX)
            return invalid(m->l, "a node tests feature %lld", (long long)feature), false;
        branch.mode = s->modes[p->source];
        branch.feature = (int32_t)feature;
        branch.split = branch.mode == MODE_MEMBER ? (double)s->first_member[p->source] : s->splits[p->source];
        branch.missing_yes = s->missing && s->missing[p->source] != 0;
        if (feature >= m->features) m->features = feature + 1;
    }
    int at = m->branches.count;
    VEC_PUSH(m->l->arena, m->branches, branch);
    if (p->parent >= 0) *(p->is_yes ? &m->branches.items[p->parent].yes : &m->branches.items[p->parent].no) = at;
    if (leaf) return true;
    Pending no = {s->no[p->source], s->no_is_leaf && s->no_is_leaf[p->source], at, false};
    Pending yes = {s->yes[p->source], s->yes_is_leaf && s->yes_is_leaf[p->source], at, true};
    VEC_PUSH(m->l->arena, m->stack, no);
    VEC_PUSH(m->l->arena, m->stack, yes);
    return true;
}

static bool add_tree(Maker *m, Pending root) {
    VEC_PUSH(m->l->arena, m->stack, root);
    while (m->stack.count) {
        Pending p = m->stack.items[--m->stack.count];
        if (p.source < 0 || p.source >= (p.leaf ? m->source->leaf_count : m->source->count))
            return invalid(m->l, "a node's child %lld does not exist", (long long)p.source), false;
        if (!add_branch(m, &p)) return false;
    }
    return true;
}

static void set_bytes(Lowering *l, Node *host, const char *name, const void *data, size_t size) {
    Tensor *tensor = tensor_new(l->arena, DT_U8, 1, (const int64_t[]){(int64_t)size});
    if (size) memcpy(tensor->data, data, size);
    node_set_attr(host, (Attr){.name = name, .kind = ATTR_TENSOR, .tensor = tensor});
}

typedef struct Roots {
    const Pending *items;
    int count;
} Roots;

/* The host node with the table; the operator's own lists are not needed any more. */
static Node *forest_node(Lowering *l, const Node *n, HostFn kernel, const Source *source, Roots roots,
                         const Vote *votes, int64_t vote_count, const double *members, int64_t member_count) {
    Maker m = {.l = l, .source = source, .most = 2 * (int64_t)source->count + roots.count};
    int32_t *starts = ARENA_ARRAY(l->arena, int32_t, roots.count);
    for (int i = 0; i < roots.count; i++) {
        starts[i] = m.branches.count;
        if (!add_tree(&m, roots.items[i])) return NULL;
    }
    Value *x = in(l, n, 0);
    Node *host = host_node(l, n, kernel, &x, 1);
    if (!host) return NULL;
    int kept = 0;
    for (int i = 0; i < host->attrs.count; i++) {
        const Attr *attr = &host->attrs.items[i];
        bool list = strncmp(attr->name, "nodes_", 6) == 0 || strncmp(attr->name, "leaf_", 5) == 0 ||
                    strncmp(attr->name, "class_", 6) == 0 || (strncmp(attr->name, "target_", 7) == 0) ||
                    strcmp(attr->name, "membership_values") == 0;
        if (!list) host->attrs.items[kept++] = *attr;
    }
    host->attrs.count = kept;
    set_bytes(l, host, "forest_branches", m.branches.items, (size_t)m.branches.count * sizeof(Branch));
    set_bytes(l, host, "forest_roots", starts, (size_t)roots.count * sizeof *starts);
    set_bytes(l, host, "forest_votes", votes, (size_t)vote_count * sizeof *votes);
    set_bytes(l, host, "forest_members", members, (size_t)member_count * sizeof *members);
    node_set_int(host, "forest_features", m.features);
    return host;
}

static const double *doubles_from(Lowering *l, const Node *n, const char *name, const char *tensor_name,
                                  int *out_count) {
    const Attr *attr = tensor_name ? node_attr(n, tensor_name) : NULL;
    *out_count = 0;
    if (attr && attr->kind == ATTR_TENSOR && dtype_class(attr->tensor->dtype) != DTYPE_OTHER) {
        int64_t count = tensor_count(attr->tensor);
        if (count > INT32_MAX) return invalid(l, "%s is too long", tensor_name), NULL;
        double *values = ARENA_ARRAY(l->arena, double, count);
        for (int64_t i = 0; i < count; i++) values[i] = dtype_load_double(attr->tensor->dtype, attr->tensor->data, i);
        *out_count = (int)count;
        return values;
    }
    const float *floats = name ? attr_floats(n, name, out_count) : NULL;
    double *values = ARENA_ARRAY(l->arena, double, *out_count);
    for (int i = 0; i < *out_count; i++) values[i] = floats[i];
    return values;
}

static const int64_t *list_of(Lowering *l, const Node *n, const char *name, int count) {
    int given;
    const int64_t *list = attr_ints(n, name, &given);
    if (given != count && !l->error) invalid(l, "%s has %d elements where %d are needed", name, given, count);
    return list;
}

/* ---- TreeEnsemble ---- */

/* Where each MODE_MEMBER node's set begins: the sets stand in the order of the nodes, each ended by NaN. */
static const int64_t *member_starts(Lowering *l, const Source *s, const double *members, int count) {
    int64_t *starts = ARENA_ARRAY(l->arena, int64_t, s->count), at = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->modes[i] != MODE_MEMBER) continue;
        starts[i] = at;
        while (at < count && members[at] == members[at]) at++;
        if (at++ >= count)
            return invalid(l, "membership_values has fewer sets than there are nodes that test one"), NULL;
    }
    return starts;
}

Status lower_tree_ensemble(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const Dim *rows = x ? feature_row_dim(l, x) : NULL;
    if (l->error) return l->error;
    Source s = {0};
    int root_count, leaf_count, member_count, split_count, weight_count;
    s.features = attr_ints(n, "nodes_featureids", &s.count);
    s.splits = doubles_from(l, n, NULL, "nodes_splits", &split_count);
    const int64_t *root_list = attr_ints(n, "tree_roots", &root_count),
                  *targets = attr_ints(n, "leaf_targetids", &leaf_count);
    const double *members = doubles_from(l, n, NULL, "membership_values", &member_count);
    const double *weights = doubles_from(l, n, NULL, "leaf_weights", &weight_count);
    const Attr *modes = node_attr(n, "nodes_modes");
    s.yes = list_of(l, n, "nodes_truenodeids", s.count);
    s.no = list_of(l, n, "nodes_falsenodeids", s.count);
    s.yes_is_leaf = list_of(l, n, "nodes_trueleafs", s.count);
    s.no_is_leaf = list_of(l, n, "nodes_falseleafs", s.count);
    if (node_attr(n, "nodes_missing_value_tracks_true"))
        s.missing = list_of(l, n, "nodes_missing_value_tracks_true", s.count);
    if (l->error) return l->error;
    if (split_count != s.count || weight_count != leaf_count || !modes || modes->kind != ATTR_TENSOR ||
        modes->tensor->dtype != DT_U8 || tensor_count(modes->tensor) != s.count)
        return invalid(l, "its lists differ in length");
    s.modes = modes->tensor->data;
    for (int i = 0; i < s.count; i++)
        if (s.modes[i] > MODE_MEMBER) return invalid(l, "nodes_modes holds %d", s.modes[i]);
    s.leaf_count = leaf_count;
    int64_t *first = ARENA_ARRAY(l->arena, int64_t, 2 * (int64_t)leaf_count), *counts = first + leaf_count;
    Vote *votes = ARENA_ARRAY(l->arena, Vote, leaf_count);
    int64_t target_count = attr_int(n, "n_targets", 1);
    for (int i = 0; i < leaf_count; i++) {
        if (targets[i] < 0 || targets[i] >= target_count)
            return invalid(l, "leaf_targetids holds %lld", (long long)targets[i]);
        votes[i] = (Vote){weights[i], (int32_t)targets[i]};
        first[i] = i;
        counts[i] = 1;
    }
    s.first_vote = first;
    s.vote_count = counts;
    s.first_member = member_starts(l, &s, members, member_count);
    Pending *roots = ARENA_ARRAY(l->arena, Pending, root_count);
    for (int i = 0; i < root_count && !l->error; i++) {
        int64_t root = root_list[i];
        if (root < 0 || root >= s.count) return invalid(l, "tree_roots holds %lld", (long long)root);
        bool lone = s.yes_is_leaf[root] && s.no_is_leaf[root] && s.yes[root] == s.no[root];
        roots[i] = (Pending){lone ? s.yes[root] : root, lone, -1, false};
    }
    Node *host = l->error ? NULL
                          : forest_node(l, n, host_forest, &s, (Roots){roots, root_count}, votes, leaf_count, members,
                                        member_count);
    if (!host) return l->error;
    int64_t aggregate = attr_int(n, "aggregate_function", AGGREGATE_SUM), post = attr_int(n, "post_transform", 0);
    if (aggregate < 0 || aggregate > AGGREGATE_MAX || post < 0 || post > POST_PROBIT || target_count < 1 ||
        target_count > INT32_MAX)
        return invalid(l, "aggregate_function, post_transform or n_targets is out of range");
    node_set_int(host, "forest_aggregate", aggregate);
    node_set_int(host, "forest_post", post);
    node_set_int(host, "n_targets", target_count);
    const Dim *dims[] = {rows, dim_const(l->dims, target_count)};
    return out(l, n, 0, host_result(l, host, dtype_is_float(x->dtype) ? x->dtype : DT_F32, 2, dims));
}

/* ---- TreeEnsembleRegressor and TreeEnsembleClassifier ---- */

static uint64_t node_key(int64_t tree, int64_t node) { return (uint64_t)tree << 32 | (uint64_t)(uint32_t)node; }

static bool read_modes(Lowering *l, const Node *n, Source *s) {
    static const char *const names[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE",    "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF"};
    const Attr *modes = node_attr(n, "nodes_modes");
    if (!modes || modes->kind != ATTR_STRINGS || modes->count != s->count)
        return invalid(l, "nodes_modes has the wrong length"), false;
    uint8_t *list = ARENA_ARRAY(l->arena, uint8_t, s->count);
    for (int i = 0; i < s->count; i++) {
        StringView mode = modes->strings[i];
        int k = 0;
        while (k <= MODE_LEAF && (strlen(names[k]) != mode.size || memcmp(names[k], mode.data, mode.size) != 0)) k++;
        if (k > MODE_LEAF || k == MODE_MEMBER) return invalid(l, "mode \"%.*s\"", (int)mode.size, mode.data), false;
        list[i] = (uint8_t)k;
    }
    s->modes = list;
    return true;
}

/* The nodes, their children by number, and the roots: the first node of each tree. */
static bool read_nodes(Lowering *l, const Node *n, Source *s, Map *numbers, Roots *roots) {
    int split_count;
    const int64_t *trees = attr_ints(n, "nodes_treeids", &s->count), *ids = list_of(l, n, "nodes_nodeids", s->count);
    const int64_t *yes_ids = list_of(l, n, "nodes_truenodeids", s->count),
                  *no_ids = list_of(l, n, "nodes_falsenodeids", s->count);
    s->features = list_of(l, n, "nodes_featureids", s->count);
    s->splits = doubles_from(l, n, "nodes_values", "nodes_values_as_tensor", &split_count);
    int missing_count;
    s->missing = attr_ints(n, "nodes_missing_value_tracks_true", &missing_count);
    if (missing_count != s->count) s->missing = NULL;
    if (split_count != s->count && !l->error)
        invalid(l, "nodes_values has %d elements where %d are needed", split_count, s->count);
    if (l->error || !read_modes(l, n, s)) return false;
    *numbers = map_make(l->arena);
    Map seen = map_make(l->arena);
    Pending *list = ARENA_ARRAY(l->arena, Pending, s->count);
    for (int i = 0; i < s->count; i++) {
        if (trees[i] < 0 || trees[i] > INT32_MAX || ids[i] < 0 || ids[i] > INT32_MAX)
            return invalid(l, "a node's number is out of range"), false;
        map_set_id(numbers, node_key(trees[i], ids[i]), (void *)(uintptr_t)(i + 1));
        if (map_get_id(&seen, (uint64_t)trees[i] + 1)) continue;
        map_set_id(&seen, (uint64_t)trees[i] + 1, l);
        list[roots->count++] = (Pending){i, false, -1, false};
    }
    roots->items = list;
    int64_t *yes = ARENA_ARRAY(l->arena, int64_t, 2 * (int64_t)s->count), *no = yes + s->count;
    for (int i = 0; i < s->count; i++) {
        yes[i] = (int64_t)(uintptr_t)map_get_id(numbers, node_key(trees[i], yes_ids[i])) - 1;
        no[i] = (int64_t)(uintptr_t)map_get_id(numbers, node_key(trees[i], no_ids[i])) - 1;
    }
    s->yes = yes;
    s->no = no;
    return true;
}

typedef struct VoteLists {
    const char *trees, *nodes, *targets, *weights, *weights_tensor;
} VoteLists;

/* The leaves' votes, those of one leaf side by side. */
static Vote *read_votes(Lowering *l, const Node *n, Source *s, const Map *numbers, const VoteLists *names,
                        int64_t target_count, int *out_count) {
    int count, weight_count;
    const int64_t *targets = attr_ints(n, names->targets, &count), *trees = list_of(l, n, names->trees, count),
                  *nodes = list_of(l, n, names->nodes, count);
    const double *weights = doubles_from(l, n, names->weights, names->weights_tensor, &weight_count);
    if (weight_count != count && !l->error)
        invalid(l, "%s has %d elements where %d are needed", names->weights, weight_count, count);
    if (l->error) return NULL;
    int64_t *first = ARENA_ARRAY(l->arena, int64_t, 2 * (int64_t)s->count), *counts = first + s->count;
    int64_t *leaves = ARENA_ARRAY(l->arena, int64_t, count);
    for (int i = 0; i < count; i++) {
        leaves[i] = trees[i] < 0 || nodes[i] < 0 || nodes[i] > INT32_MAX
                        ? -1
                        : (int64_t)(uintptr_t)map_get_id(numbers, node_key(trees[i], nodes[i])) - 1;
        if (leaves[i] < 0 || targets[i] < 0 || targets[i] >= target_count)
            return invalid(l, "%s or %s holds a number that does not exist", names->nodes, names->targets), NULL;
        counts[leaves[i]]++;
    }
    for (int64_t i = 0, at = 0; i < s->count; at += counts[i++]) first[i] = at;
    Vote *votes = ARENA_ARRAY(l->arena, Vote, count);
    int64_t *next = arena_copy(l->arena, first, (size_t)s->count * sizeof *first);
    for (int i = 0; i < count; i++) votes[next[leaves[i]]++] = (Vote){weights[i], (int32_t)targets[i]};
    s->first_vote = first;
    s->vote_count = counts;
    *out_count = count;
    return votes;
}

static bool set_base_values(Lowering *l, const Node *n, Node *host) {
    int count;
    const double *values = doubles_from(l, n, "base_values", "base_values_as_tensor", &count);
    if (l->error) return false;
    set_bytes(l, host, "forest_base", values, (size_t)count * sizeof *values);
    return true;
}

Status lower_tree_regressor(Lowering *l, const Node *n) {
    static const VoteLists names = {"target_treeids", "target_nodeids", "target_ids", "target_weights",
                                    "target_weights_as_tensor"};
    Value *x = in(l, n, 0);
    const Dim *rows = x ? feature_row_dim(l, x) : NULL;
    int64_t target_count = attr_int(n, "n_targets", 1), aggregate = AGGREGATE_SUM;
    Source s = {0};
    Roots roots = {0};
    Map numbers;
    int vote_count;
    if (l->error) return l->error;
    if (target_count < 1 || target_count > INT32_MAX) return invalid(l, "n_targets is %lld", (long long)target_count);
    if (!read_nodes(l, n, &s, &numbers, &roots)) return l->error;
    Vote *votes = read_votes(l, n, &s, &numbers, &names, target_count, &vote_count);
    Node *host = votes ? forest_node(l, n, host_forest, &s, roots, votes, vote_count, NULL, 0) : NULL;
    if (!host || !set_base_values(l, n, host)) return l->error;
    static const char *const aggregates[] = {"AVERAGE", "SUM", "MIN", "MAX"};
    const char *given = attr_string(n, "aggregate_function", "SUM");
    for (aggregate = 0; aggregate <= AGGREGATE_MAX && strcmp(aggregates[aggregate], given) != 0;) aggregate++;
    if (aggregate > AGGREGATE_MAX) return invalid(l, "aggregate_function \"%s\"", given);
    node_set_int(host, "forest_aggregate", aggregate);
    node_set_int(host, "forest_post", read_post_transform(l, n));
    node_set_int(host, "n_targets", target_count);
    const Dim *dims[] = {rows, dim_const(l->dims, target_count)};
    return out(l, n, 0, host_result(l, host, DT_F32, 2, dims));
}

/* Whether all votes are for one class. */
static bool votes_for_one(const Vote *votes, int count) {
    for (int i = 1; i < count; i++)
        if (votes[i].target != votes[0].target) return false;
    return true;
}

static bool none_negative(const Vote *votes, int count) {
    for (int i = 0; i < count; i++)
        if (votes[i].weight < 0) return false;
    return true;
}

Status lower_tree_classifier(Lowering *l, const Node *n) {
    static const VoteLists names = {"class_treeids", "class_nodeids", "class_ids", "class_weights",
                                    "class_weights_as_tensor"};
    Value *x = in(l, n, 0);
    const Dim *rows = x ? feature_row_dim(l, x) : NULL;
    Labels labels = read_labels(n);
    Source s = {0};
    Roots roots = {0};
    Map numbers;
    int vote_count = 0;
    if (l->error) return l->error;
    if (labels.count < 1) return invalid(l, "it has no class labels");
    if (!read_nodes(l, n, &s, &numbers, &roots)) return l->error;
    Vote *votes = read_votes(l, n, &s, &numbers, &names, labels.count, &vote_count);
    if (!votes) return l->error;
    bool binary = labels.count <= 2 && vote_count > 0 && votes_for_one(votes, vote_count);
    PostTransform post = read_post_transform(l, n);
    Node *host = forest_node(l, n, host_forest_classifier, &s, roots, votes, vote_count, NULL, 0);
    if (!host || !set_base_values(l, n, host)) return l->error;
    node_set_int(host, "forest_post", post);
    node_set_int(host, "forest_binary", !binary ? BINARY_NO : votes[0].target == 0 ? BINARY_FIRST : BINARY_SECOND);
    node_set_int(host, "forest_complement", none_negative(votes, vote_count));
    const Dim *dims[] = {rows, dim_const(l->dims, binary ? 2 : labels.count)};
    Value *results[] = {host_result(l, host, labels_dtype(&labels), 1, dims), host_result(l, host, DT_F32, 2, dims)};
    for (int i = 0; i < 2; i++)
        if (wants_output(n, i)) TRY(out(l, n, i, results[i]));
    return l->error;
}

/* ---- kernels ---- */

static const void *bytes_of(const Node *n, const char *name, size_t size, int64_t *out_count) {
    const Attr *attr = node_attr(n, name);
    if (!attr) return *out_count = 0, NULL;
    *out_count = tensor_count(attr->tensor) / (int64_t)size;
    return attr->tensor->data;
}

static Forest forest_of(const Node *n) {
    Forest f = {0};
    int64_t unused;
    f.branches = bytes_of(n, "forest_branches", sizeof(Branch), &f.branch_count);
    f.votes = bytes_of(n, "forest_votes", sizeof(Vote), &unused);
    f.members = bytes_of(n, "forest_members", sizeof(double), &unused);
    f.roots = bytes_of(n, "forest_roots", sizeof(int32_t), &f.root_count);
    f.features = attr_int(n, "forest_features", 0);
    return f;
}

static bool is_member(const double *members, double x) {
    for (; *members == *members; members++)
        if (*members == x) return true;
    return false;
}

static bool goes_yes(const Forest *f, const Branch *b, double x) {
    switch ((Mode)b->mode) {
    case MODE_LEQ: return x <= b->split;
    case MODE_LT: return x < b->split;
    case MODE_GTE: return x >= b->split;
    case MODE_GT: return x > b->split;
    case MODE_EQ: return x == b->split;
    case MODE_NEQ: return x != b->split;
    case MODE_MEMBER: return is_member(f->members + (int64_t)b->split, x);
    case MODE_LEAF: break;
    }
    return false;
}

static const Branch *leaf_of(const Forest *f, int32_t root, const double *row) {
    const Branch *b = &f->branches[root];
    while (b->mode != MODE_LEAF) {
        double x = row[b->feature];
        b = &f->branches[goes_yes(f, b, x) || (x != x && b->missing_yes) ? b->yes : b->no];
    }
    return b;
}

typedef struct Walk {
    Forest forest;
    const Node *node;
    const Tensor *x;
    int64_t features, targets;
    Aggregate aggregate;
    PostTransform post;
    const double *base;
    int64_t base_count;
    Binary binary;
    bool complement; /* no vote is negative */
    Labels labels;
    Tensor *scores, *label;
    double *rows, *sums; /* [threads][features], [threads][targets + 1] */
    bool *voted;         /* [threads][targets] */
} Walk;

/* The aggregated votes for one row. */
static void sum_votes(const Walk *w, int64_t row, double *values, double *sums, bool *voted) {
    for (int64_t i = 0; i < w->features; i++)
        values[i] = dtype_load_double(w->x->dtype, w->x->data, row * w->features + i);
    for (int64_t i = 0; i < w->targets; i++) sums[i] = 0, voted[i] = false;
    for (int64_t t = 0; t < w->forest.root_count; t++) {
        const Branch *leaf = leaf_of(&w->forest, w->forest.roots[t], values);
        for (int32_t i = 0; i < leaf->feature; i++) {
            const Vote *vote = &w->forest.votes[leaf->yes + i];
            double *sum = &sums[vote->target];
            if (w->aggregate == AGGREGATE_MIN || w->aggregate == AGGREGATE_MAX) {
                bool better = w->aggregate == AGGREGATE_MIN ? vote->weight < *sum : vote->weight > *sum;
                if (!voted[vote->target] || better) *sum = vote->weight;
            } else {
                *sum += vote->weight;
            }
            voted[vote->target] = true;
        }
    }
    for (int64_t i = 0; w->aggregate == AGGREGATE_AVERAGE && i < w->targets; i++)
        sums[i] /= (double)w->forest.root_count;
}

static void regress_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Walk *w = context;
    double *sums = w->sums + worker * (w->targets + 1);
    for (int64_t row = begin; row < end; row++) {
        sum_votes(w, row, w->rows + worker * w->features, sums, w->voted + worker * w->targets);
        for (int64_t i = 0; i < w->targets && w->base_count; i++) sums[i] += w->base[w->base_count == 1 ? 0 : i];
        apply_post_transform(w->post, sums, w->targets);
        for (int64_t i = 0; i < w->targets; i++)
            dtype_store_double(w->scores->dtype, w->scores->data, row * w->targets + i, sums[i]);
    }
}

static int64_t first_largest(const double *values, int64_t count) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (values[i] > values[best]) best = i;
    return best;
}

static void classify_rows(void *context, int64_t begin, int64_t end, int worker) {
    const Walk *w = context;
    double *sums = w->sums + worker * (w->targets + 1);
    for (int64_t row = begin; row < end; row++) {
        sum_votes(w, row, w->rows + worker * w->features, sums, w->voted + worker * w->targets);
        int64_t columns = w->targets, best;
        double least = w->complement ? 0.5 : 0; /* of the second class's score, to be chosen */
        if (w->binary == BINARY_FIRST) {
            double score = sums[0] + (w->base_count ? w->base[w->base_count - 1] : 0);
            best = score > least;
            columns = 2;
            write_binary_scores(w->post, w->complement, score, sums);
        } else {
            for (int64_t i = 0; i < columns && w->base_count; i++) sums[i] += w->base[w->base_count == 1 ? 0 : i];
            best = w->binary == BINARY_SECOND ? sums[1] > least : first_largest(sums, columns);
            apply_post_transform(w->post, sums, columns);
        }
        store_label(&w->labels, w->label, row, best);
        for (int64_t i = 0; w->scores && i < columns; i++)
            ((float *)w->scores->data)[row * columns + i] = (float)sums[i];
    }
}

static Status prepare(HostCall *call, Walk *w, int64_t *out_rows) {
    const Node *n = call->node;
    w->forest = forest_of(n);
    w->node = n;
    w->x = host_input(call, 0);
    TRY(feature_rows(call, w->x, out_rows, &w->features));
    if (w->forest.features > w->features)
        return host_error(call, "the trees test feature %lld, and X has %lld", (long long)w->forest.features - 1,
                          (long long)w->features);
    w->post = (PostTransform)attr_int(n, "forest_post", 0);
    w->base = bytes_of(n, "forest_base", sizeof(double), &w->base_count);
    if (w->base_count > 1 && w->base_count < w->targets)
        return host_error(call, "base_values has %lld elements", (long long)w->base_count);
    int threads = pool_threads(call->pool);
    w->rows = ARENA_ARRAY(call->arena, double, threads * w->features);
    w->sums = ARENA_ARRAY(call->arena, double, threads *(w->targets + 1));
    w->voted = ARENA_ARRAY(call->arena, bool, threads * w->targets);
    return NULL;
}

/* Rows to a piece of the parallel loop: some thousand branches. */
static int64_t row_grain(const Forest *f) {
    enum { WALKS = 256, DEPTH = 8 };
    int64_t grain = WALKS * DEPTH / (f->root_count * DEPTH + 1);
    return grain < 1 ? 1 : grain;
}

Status host_forest(HostCall *call) {
    Walk w = {.targets = attr_int(call->node, "n_targets", 1),
              .aggregate = (Aggregate)attr_int(call->node, "forest_aggregate", AGGREGATE_SUM)};
    int64_t rows;
    TRY(prepare(call, &w, &rows));
    int64_t dims[] = {rows, w.targets};
    DType dtype = strcmp(call->node->op, "TreeEnsemble") == 0 && dtype_is_float(w.x->dtype) ? w.x->dtype : DT_F32;
    TRY(host_output(call, 0, dtype, 2, dims, &w.scores));
    if (w.scores) pool_for(call->pool, rows, row_grain(&w.forest), regress_rows, &w);
    return NULL;
}

Status host_forest_classifier(HostCall *call) {
    Walk w = {.labels = read_labels(call->node), .aggregate = AGGREGATE_SUM};
    w.binary = (Binary)attr_int(call->node, "forest_binary", BINARY_NO);
    w.complement = attr_int(call->node, "forest_complement", 0) != 0;
    w.targets = w.binary == BINARY_FIRST ? 1 : w.binary == BINARY_SECOND ? 2 : w.labels.count;
    int64_t rows;
    TRY(prepare(call, &w, &rows));
    int64_t dims[] = {rows, w.binary ? 2 : w.targets};
    TRY(host_output(call, 0, labels_dtype(&w.labels), 1, dims, &w.label));
    TRY(host_output(call, 1, DT_F32, 2, dims, &w.scores));
    pool_for(call->pool, rows, row_grain(&w.forest), classify_rows, &w);
    return NULL;
}
