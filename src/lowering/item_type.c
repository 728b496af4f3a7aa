/* SPDX-License-Identifier: Apache-2.0 */
/* Joins and instances of the types of tensors, sequences and optionals. */
#include "lowering/item_type.h"

ItemType item_type_of(const Value *value) {
    return (ItemType){value->kind, value->dtype, value->rank, (const Dim *const *)value->dims, value->key};
}

static const Dim **dims_of_rank(Lowering *l, int rank) {
    return rank > 0 ? ARENA_ARRAY(l->arena, const Dim *, rank) : NULL;
}

void item_type_set(Lowering *l, Value *value, const ItemType *type) {
    value->kind = type->kind;
    value->dtype = type->dtype;
    value->key = type->key;
    value->rank = type->rank;
    value->dims = dims_of_rank(l, type->rank);
    for (int i = 0; i < type->rank; i++) value->dims[i] = type->dims[i];
}

static const Dim *any_size(Lowering *l) { return dim_symbol(l->dims, "$any"); }

ItemType item_type_held(Lowering *l, ItemType type, ValueKind kind) {
    const Dim **dims = dims_of_rank(l, type.rank);
    for (int i = 0; i < type.rank; i++) dims[i] = dim_is_const(type.dims[i], NULL) ? type.dims[i] : any_size(l);
    return (ItemType){kind, type.dtype, type.rank, dims, type.key};
}

static bool join_kinds(ValueKind a, ValueKind b, ValueKind *out_kind) {
    if (value_kind_has_maps(a) || value_kind_has_maps(b)) {
        *out_kind = a;
        return a == b;
    }
    bool optional = value_kind_is_optional(a) || value_kind_is_optional(b);
    bool sequence_a = a == VALUE_SEQUENCE || a == VALUE_OPTIONAL_SEQUENCE;
    bool sequence_b = b == VALUE_SEQUENCE || b == VALUE_OPTIONAL_SEQUENCE;
    if (sequence_a != sequence_b) return false;
    if (sequence_a)
        *out_kind = optional ? VALUE_OPTIONAL_SEQUENCE : VALUE_SEQUENCE;
    else
        *out_kind = optional ? VALUE_OPTIONAL : VALUE_TENSOR;
    return true;
}

bool item_type_join(Lowering *l, const ItemType *a, const ItemType *b, const char *hint, ItemType *out_type) {
    ItemType joined = {.rank = a->rank, .key = a->key};
    if (a->key != b->key || !join_kinds(a->kind, b->kind, &joined.kind)) return false;
    if (a->dtype != DT_NONE && b->dtype != DT_NONE && a->dtype != b->dtype) return false;
    joined.dtype = a->dtype != DT_NONE ? a->dtype : b->dtype;
    const ItemType *known = a->rank == RANK_EMPTY ? b : a;
    if (a->rank != RANK_EMPTY && b->rank != RANK_EMPTY && a->rank != b->rank) {
        joined.rank = RANK_ANY;
    } else {
        const ItemType *other = known == a && b->rank != RANK_EMPTY ? b : known;
        joined.rank = known->rank;
        const Dim **dims = dims_of_rank(l, known->rank);
        bool container = joined.kind != VALUE_TENSOR;
        for (int i = 0; i < known->rank; i++)
            dims[i] = known->dims[i] == other->dims[i] ? known->dims[i]
                      : container                      ? any_size(l)
                                                       : dim_fresh(l->dims, hint);
        joined.dims = dims;
    }
    *out_type = joined;
    return true;
}

bool item_type_same(const ItemType *a, const ItemType *b) {
    if (a->kind != b->kind || a->dtype != b->dtype || a->key != b->key || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

const Dim *const *item_type_sizes(Lowering *l, const ItemType *type, const char *hint) {
    const Dim **dims = dims_of_rank(l, type->rank);
    for (int i = 0; i < type->rank; i++)
        dims[i] = type->dims[i] == any_size(l) ? dim_fresh(l->dims, hint) : type->dims[i];
    return dims;
}

Value *item_result(Lowering *l, Node *host, const ItemType *type) {
    Value *value = host_result(l, host, type->dtype, type->rank < 0 ? RANK_ANY : type->rank, type->dims);
    if (value) {
        value->kind = type->kind;
        value->key = type->key;
        value->rank = type->rank;
    }
    return value;
}
