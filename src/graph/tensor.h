/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as data: constants of a graph and values at run time. Row-major, dense. */
#ifndef ONNXFUSE_GRAPH_TENSOR_H
#define ONNXFUSE_GRAPH_TENSOR_H

#include "base/arena.h"
#include "base/text.h"
#include "graph/dtype.h"

enum { MAX_RANK = 16 };

typedef struct Tensor {
    DType dtype;
    int rank;
    int64_t dims[MAX_RANK];
    void *data; /* elements in row-major order; strings are StringView; borrowed: the holder of the Tensor says whose.
                   Aligned as tensor_is_aligned says, but for weights as they lie in a model's file (ImportOptions) */
} Tensor;

int64_t tensor_count(const Tensor *tensor); /* elements; 1 for rank 0 */
size_t tensor_bytes(const Tensor *tensor);  /* in memory, without the characters of strings */
/* Number of elements or bytes with overflow and negative sizes refused (STATUS_INVALID). Either result may be NULL. */
Status tensor_size_of(DType dtype, int rank, const int64_t *dims, int64_t *out_count, size_t *out_bytes);
bool tensor_same_shape(const Tensor *a, const Tensor *b);
Tensor *tensor_new(Arena *arena, DType dtype, int rank, const int64_t *dims);       /* zeroed data in the arena */
Tensor *tensor_new_unset(Arena *arena, DType dtype, int rank, const int64_t *dims); /* the caller writes all elements */
/* Its pages go back to the system, as bytes_forget says, where it is large enough for that to be worth a call. */
void tensor_forget(const Tensor *tensor);
/* Whether elements are where their C type may stand. */
bool tensor_is_aligned(const Tensor *tensor);
void tensor_align(Arena *arena, Tensor *tensor); /* by a copy, where it is not */
Tensor *tensor_scalar_int(Arena *arena, DType dtype, int64_t value);
Tensor *tensor_scalar_double(Arena *arena, DType dtype, double value);
void tensor_print(Text *text, const Tensor *tensor,
                  int64_t most); /* nested brackets; at most `most` elements, then ... */

/* What a host kernel or a graph's edge carries at run time: a tensor, a sequence, a map, or an optional that may be
 * empty. */
typedef enum ItemKind { ITEM_NONE, ITEM_TENSOR, ITEM_SEQUENCE, ITEM_MAP } ItemKind;

typedef struct Item {
    ItemKind kind; /* ITEM_NONE: an absent optional */
    Tensor tensor;
    struct Item *items; /* of a sequence; of a map its keys and its values (graph/maps/map_value.h) */
    int count;
} Item;

static inline bool item_has_items(const Item *item) { return item->kind == ITEM_SEQUENCE || item->kind == ITEM_MAP; }

#endif
