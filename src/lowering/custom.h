/* SPDX-License-Identifier: Apache-2.0 */
/* An application's custom operators and fusions (OnnxfuseRegistry), as lowering and passes see them. Made by
 * runtime/api/registry.c, immutable while sessions use it. */
#ifndef ONNXFUSE_LOWERING_CUSTOM_H
#define ONNXFUSE_LOWERING_CUSTOM_H

#include "lowering/ops.h"

typedef struct OnnxfuseCall CustomCall;

typedef struct CustomOperator {
    const char *domain, *name;
    int since, until; /* opset versions, inclusive; until 0: to the newest */
    bool random;
    int in_place;         /* 1 + the input whose memory output 0 may take over; 0: none */
    const char *gradient; /* the operator of the domain that computes its inputs' gradients; NULL: none does */
    Status (*infer)(void *user, CustomCall *call); /* NULL: the types are the first input's */
    Status (*compute)(void *user, CustomCall *call);
    void *user;
} CustomOperator;

/* --- what the functions of a custom operator are handed: the public OnnxfuseCall ------------------------------------ */
typedef struct CustomType {
    bool set;
    DType dtype;
    int rank;
    const Dim **dims; /* [rank]; NULL entries: known after the step has run */
} CustomType;

struct OnnxfuseCall {
    const Node *node;
    const CustomOperator *op;
    /* In infer; NULL in compute. */
    Lowering *lowering;
    CustomType *types; /* [node->output_count] */
    /* In compute; NULL in infer. */
    HostCall *host;
    void *values;   /* the runtime's: the inputs as public values */
    bool exhausted; /* memory ran out in a call that cannot say so */
};

enum { FUSION_FORWARD = 1, FUSION_BACKWARD = 2 };

typedef struct CustomFusion {
    const char *name;
    int phase;                    /* FUSION_FORWARD or FUSION_BACKWARD */
    const char *const *patterns;  /* texts (passes/pattern/pattern.h), NULL-terminated; parsed once without error */
    const CustomOperator *kernel; /* NULL: a region of the nodes themselves */
} CustomFusion;

typedef struct Registry {
    Arena *arena;
    VEC(const CustomOperator *) operators;
    VEC(const CustomFusion *) fusions;
} Registry;

/* The registry of a policy (policy->registry); NULL: none. */
static inline const Registry *policy_registry(const Policy *policy) { return policy ? policy->registry : NULL; }
Status host_custom(HostCall *call); /* the host kernel of nodes with `custom` */
/* NULL when there is none. Custom operators override the standard's of the same name. */
const CustomOperator *registry_find(const Registry *registry, const char *domain, const char *name, int opset);

/* A node becomes a host step that calls op->compute; its types come from op->infer, dims that are not known become
 * fresh symbols that the runtime binds after the step. Errors name node, operator and the inputs' shapes. lower.c calls
 * it for nodes of a registry's operators, and for every NODE_ONNX whose `custom` is set: so a pass puts a custom operator
 * into a graph by adding a node with `custom`, `op`, `domain` ("" will do) and the attributes that `compute` reads. */
Status lower_custom(Lowering *l, const Node *n, const CustomOperator *op);
extern const HostRow hosts_custom[]; /* of host_custom */

/* The operator Adjoint of INTERNAL_DOMAIN (passes/adjoint.c), of a place whose gradients the kernel of a fusion of phase backward makes: results
 * are its first inputs; attributes "fusion", its name; "places", how many inputs come before those that are inside of the place; for each of the kernel's inputs
 * "reads" has the number of an input, ADJOINT_NOTHING, or ADJOINT_GRADIENT minus the number of the result whose gradient it is; for each of the
 * kernel's outputs "gives" has the input of which it is the gradient, or ADJOINT_NOTHING; what is captured is "captured.NAME". */
enum { ADJOINT_NOTHING = -1, ADJOINT_GRADIENT = -2 };
/* Whether a lowered node's results are drawn by a custom operator. */
static inline bool custom_is_random(const Node *node) {
    return node->kind == NODE_HOST && node->custom && node->custom->random;
}

#endif
