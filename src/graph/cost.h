/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes cost at given sizes: the bytes that they must move, however they are done, and the arithmetic. Here is what
 * primitives and regions of them cost; lowering/anchor/anchor_cost.h has the anchors, runtime/plan/cost.h the steps of a plan.
 *
 * Bytes: of what is read, each element that some result needs once; of results, each element once. What stays inside a
 * region costs none, nor do constants of one element, which stand in the code. */
#ifndef ONNXFUSE_GRAPH_COST_H
#define ONNXFUSE_GRAPH_COST_H

#include "graph/graph.h"

/* What it is computed in: f16 and bf16 are computed in f32, but for products of bf16, and those of bytes, which have instructions of
 * their own. */
typedef enum WorkType { WORK_F32, WORK_F64, WORK_INTEGER, WORK_BF16, WORK_BYTES, WORK_TYPES } WorkType;

typedef struct Cost {
    double read, written; /* bytes */
    double weights;       /* of those read, constants: once a run, so that all else of the run came between */
    /* Multiplications and additions of products, which come in pairs: an instruction does both. */
    double products[WORK_TYPES];
    /* Arithmetic instructions of all else, one an element each. */
    double others[WORK_TYPES];
} Cost;

const char *work_type_name(WorkType type); /* "f32" */
WorkType work_type(DType dtype);
WorkType product_type(DType dtype); /* of products of such factors */
void cost_add(Cost *to, const Cost *more);
void cost_add_read(Cost *to, const Value *value, double bytes);
double cost_bytes(const Cost *cost);
double cost_work(const Cost *cost, WorkType type); /* products and others */
double cost_all_work(const Cost *cost);            /* of all types */

/* Instructions that the primitive takes an element of its result, of a reduction an element of its input: 1 for what
 * processors have (roots and divisions too), more for what kernels compute by polynomials; 0 for movement and casts. */
int prim_work(Prim prim, DType dtype);

/* Elements of a value; false: some size is not known. symbols: as dim_eval takes them. */
bool value_count(const Value *value, const int64_t *symbols, double *out_count);

/* Adds the arithmetic of a body of primitives. */
bool body_work(const Graph *body, const int64_t *symbols, Cost *cost);
/* Of a NODE_PRIM that is a step by itself, and of a NODE_REGION. False: some size is not known. */
bool prim_cost(const Node *node, const int64_t *symbols, Cost *out_cost);
bool region_cost(const Node *region, const int64_t *symbols, Cost *out_cost);

#endif
