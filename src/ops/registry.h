/* An application's own operators and fusions (OnnxfuseRegistry), as lowering and passes see them. Made by
 * runtime/registry.c, immutable while sessions use it. */
#ifndef ONNXFUSE_OPS_REGISTRY_H
#define ONNXFUSE_OPS_REGISTRY_H

#include "ops/ops.h"

/* What the functions of an own operator are handed: the public OnnxfuseCall. One of the two members is set. */
typedef struct OnnxfuseCall CustomCall;
typedef struct CustomInfer CustomInfer; /* ops/custom.c: a node that is being lowered */

typedef struct CustomOperator {
    const char *domain, *name;
    int since, until; /* opset versions, inclusive; until 0: to the newest */
    bool random;
    Status (*infer)(void *user, CustomCall *call); /* NULL: the types are the first input's */
    Status (*compute)(void *user, CustomCall *call);
    void *user;
} CustomOperator;

enum { FUSION_FORWARD = 1, FUSION_BACKWARD = 2 };

typedef struct CustomFusion {
    const char *name;
    int phase;                    /* FUSION_FORWARD or FUSION_BACKWARD */
    const char *const *patterns;  /* texts (passes/pattern.h), NULL-terminated; have been parsed once without error */
    const CustomOperator *kernel; /* NULL: a region of the nodes themselves */
} CustomFusion;

typedef struct Registry {
    Arena *arena;
    VEC(const CustomOperator *) operators;
    VEC(const CustomFusion *) fusions;
} Registry;

/* The registry of a policy (policy->registry); NULL: none. */
static inline const Registry *policy_registry(const Policy *policy) { return policy ? policy->registry : NULL; }
/* NULL when there is none. Own operators go before the standard's of the same name. */
const CustomOperator *registry_find(const Registry *registry, const char *domain, const char *name, int opset);

#endif
