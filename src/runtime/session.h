/* What lies behind the public handles, shared by the files that implement include/onnxfuse.h. */
#ifndef ONNXFUSE_RUNTIME_SESSION_H
#define ONNXFUSE_RUNTIME_SESSION_H

#include "onnxfuse.h"
#include "runtime/plan.h"

struct OnnxfuseValue {
    Item item;
    Memory *memory;        /* that the item's own memory is counted in; NULL: not counted */
    bool owns;             /* false: the tensor's data is the caller's */
    OnnxfuseValue **items; /* of a sequence: views of item.items, made on demand */
    char *name;            /* of a message it was read from, or NULL */
};

/* The policy that the options ask for, resolved; strings in the arena. model_path may be NULL. */
Status session_policy(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *out_policy);

#endif
