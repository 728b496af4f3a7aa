/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernels of sequences and optionals (sequence.c) and of their gradients (sequence_gradient.c, optional_gradient.c) share. */
#ifndef ONNXFUSE_OPS_SEQUENCE_SEQUENCE_H
#define ONNXFUSE_OPS_SEQUENCE_SEQUENCE_H

#include "lowering/gradient.h"

Status host_construct(HostCall *call);
Status host_insert(HostCall *call);
Status host_erase(HostCall *call);
Status host_at(HostCall *call);
Status host_length(HostCall *call);
Status host_split(HostCall *call);
Status host_concat(HostCall *call);
Status host_optional(HostCall *call);
Status host_get_element(HostCall *call);
Status host_has_element(HostCall *call);

/* NULL: it is left out, or an empty optional. */
const Item *item_in(const HostCall *call, int index);
/* Output 0 is the item, of any kind. */
Status give_item(HostCall *call, const Item *item);
/* The gradient of the node's only input is that of its result, which may be an optional where the input is none, or the other way round. */
void back_same(Backward *w, const Node *n);

/* Bit r: an element of the sequence may have rank r. */
uint32_t sequence_ranks(const Value *sequence);

Status sequence_at(const HostCall *call, int index, const Item **out_item);
/* The position in input `index`, 0 .. most, `otherwise` when left out; negative ones count from the end. */
Status sequence_position(const HostCall *call, int index, int64_t count, int64_t most, int64_t otherwise,
                         int64_t *out_at);
void give_sequence(HostCall *call, Item *items, int count);
/* Output 0 is `from`, which is input 0, without `removed` elements from `at` on, with `added` (NULL: nothing) in their place. Comes last: `from`
 * may have changed hands. */
Status give_changed(HostCall *call, const Item *from, int at, int removed, const Tensor *added);
/* The sizes of SplitToSequence's pieces, by input 1: a list, or (a scalar, or left out: 1) equal ones, the last one smaller. */
Status piece_sizes(HostCall *call, int64_t whole, int64_t **out_sizes, int64_t *out_count);
/* Copies `count` indices along `axis` of `from`, from `start`, to `to` at `to_start`; the other sizes agree. */
void copy_slab(Tensor *to, int64_t to_start, const Tensor *from, int64_t start, int64_t count, int axis);
/* The element as ConcatFromSequence joins it: with new_axis, an axis of size 1 put in at `axis`. */
Tensor joined_view(const Tensor *tensor, int axis, bool new_axis);

#endif
