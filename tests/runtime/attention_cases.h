/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of the anchor "attention", the same for all devices: sizes, types, layouts and masks make a node in a graph of its
 * own with its inputs; what a device makes of them is compared with the plain evaluator's result. */
#ifndef ONNXFUSE_TESTS_RUNTIME_ATTENTION_CASES_H
#define ONNXFUSE_TESTS_RUNTIME_ATTENTION_CASES_H

#include "graph/graph.h"
#include "lowering/anchors.h"

typedef enum AttentionMask {
    MASK_NONE,
    MASK_BIAS,       /* two additions: a row for all queries, one for each of them */
    MASK_HIDING,     /* an addition that hides where it is -inf */
    MASK_KEEP,       /* a bool, and an addition that is the same for all keys */
    MASK_HIDE,       /* a bool for all queries, to -inf */
    MASK_CAUSAL,     /* to -inf */
    MASK_CAUSAL_ADD, /* by the addition of -1e9 */
    MASK_CAPPED,     /* a soft cap and bounds */
    MASK_WINDOW,     /* a bool: keys [first, first + 9) of a query, where first is its number more than `offset` */
    MASK_RISING,     /* an addition that grows from key to key, so that the greatest score is always a new one */
    MASK_COUNT,
    MASK_DROP = MASK_COUNT, /* an addition; a quarter of the probabilities is dropped, which not every device does */
    MASK_SINK,              /* a bool for all queries, to -inf, and a score a head beside those of the keys, likewise */
} AttentionMask;

typedef struct AttentionCase {
    const char *name;
    DType dtype;
    int64_t batch, heads, kv_heads, queries, keys, size, width;
    AttentionMask mask;
    int64_t offset; /* of the causal mask */
    AttentionEmpty empty;
    bool permuted;    /* q, k, v and the result as [batch, sequence, heads, size], k with the keys last */
    bool poisoned;    /* some queries and keys hold NaN and infinity */
    float spread;     /* of queries and keys; 0: 2 */
    bool interleaved; /* k and v as [keys, batch, heads, size], as a state that grows is held */
    bool apart;       /* all four as [batch, heads, size, sequence], as pictures are held channels first */
    int64_t v_heads;  /* 0: as many as kv_heads, which are those of keys */
    bool parts;       /* q, k and v are some of the heads of larger tensors */
} AttentionCase;

typedef struct AttentionSetup {
    Arena *arena;
    Graph *graph; /* the caller destroys it */
    Node *node;
    Tensor *inputs[6 + ATTENTION_STEPS]; /* room for those of the gradient */
    int count;
} AttentionSetup;

AttentionSetup attention_case_setup(const AttentionCase *c, Arena *arena);
/* Fails the test where `got` is further from `want` than roundings explain. */
void attention_case_compare(const AttentionCase *c, const Tensor *want, const Tensor *got);

#endif
