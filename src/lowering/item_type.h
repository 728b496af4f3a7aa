/* SPDX-License-Identifier: Apache-2.0 */
/* Types of what an edge carries while lowering: tensors, sequences and optionals, with the element's rank and sizes
 * where known, and maps.
 *
 * A sequence's elements differ in size, so its dims hold constants and the reserved symbol "$any" (never bound) where
 * they may differ; an optional's likewise. Reading an element puts a fresh symbol in the place of each "$any". */
#ifndef ONNXFUSE_LOWERING_ITEM_TYPE_H
#define ONNXFUSE_LOWERING_ITEM_TYPE_H

#include "lowering/build.h"

enum {
    RANK_ANY = -1,   /* elements of several or unknown ranks */
    RANK_EMPTY = -2, /* a sequence that has no element yet: joins with any rank */
};

typedef struct ItemType {
    ValueKind kind;
    DType dtype;
    int rank;               /* of the tensor, or of a sequence's or optional's tensors */
    const Dim *const *dims; /* [rank] */
    DType key;              /* of maps, as Value.key */
} ItemType;

ItemType item_type_of(const Value *value);
void item_type_set(Lowering *l, Value *value, const ItemType *type);
/* The type as held in a container: sizes that are no constants become "$any". */
ItemType item_type_held(Lowering *l, ItemType type, ValueKind kind);
/* The smallest type that holds both; false when kinds or dtypes do not fit. Sizes of tensors that differ become fresh
 * symbols (and a rank RANK_ANY), those of containers "$any". */
bool item_type_join(Lowering *l, const ItemType *a, const ItemType *b, const char *hint, ItemType *out_type);
bool item_type_same(const ItemType *a, const ItemType *b);
/* A tensor's dims from a container's: fresh symbols for "$any". */
const Dim *const *item_type_sizes(Lowering *l, const ItemType *type, const char *hint);
/* The host node's next output, of this type. */
Value *item_result(Lowering *l, Node *host, const ItemType *type);

#endif
