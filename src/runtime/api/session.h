/* SPDX-License-Identifier: Apache-2.0 */
/* What lies behind the public handles, shared by the files that implement include/onnxfuse.h. */
#ifndef ONNXFUSE_RUNTIME_API_SESSION_H
#define ONNXFUSE_RUNTIME_API_SESSION_H

#include "onnxfuse.h"
#include "graph/outline.h"
#include "runtime/run/run.h"
#include "runtime/api/buckets.h"
#include "runtime/api/devices.h"

struct OnnxfuseSession {
    Arena *arena;  /* policy, value infos */
    unsigned born; /* fork_count() when it was opened */
    Policy policy;
    Graph *graph;
    Devices devices;
    Pool *pool; /* over the embedder's threads, or NULL */
    Plan *plan;
    Memory memory;
    struct RunMemory *buffers;
    KernelCacheStats kernels;
    OnnxfuseValueInfo *inputs, *outputs;
    int nodes, primitives;
    const Outline *outline;          /* of the model as imported; NULL: not known */
    bool plain;                      /* opened beside another session, without its rules' precision and weights */
    struct OnnxfuseState *own_state; /* of runs that are given none; NULL: the model has no states */
    OnnxfuseStateInfo *states;       /* [graph->kept.count] */
    const Buckets *buckets;          /* sizes that are rounded up; NULL: none */
    _Atomic(Profile *) profile;
    Profile *kept_profile; /* lives until the session closes, also while off */
    bool lacks_profile;    /* it was asked for, and there was no memory */
    atomic_ullong runs;
    atomic_size_t peak_arena;
};

struct OnnxfuseValue {
    Item item;
    Memory *memory;          /* that the item's own memory is counted in; NULL: not counted */
    bool owns;               /* false: the tensor's data is the caller's */
    OnnxfuseValue **items;   /* of a sequence: views of item.items, made on demand */
    char *name;              /* of a message it was read from, or NULL */
    bool on_device;          /* the tensor's data is in device memory */
    DeviceKind device;       /* which: DEVICE_AUTO where the caller has not told */
    int ordinal;             /* its number, where `device` is told */
    OnnxfuseDlpack *managed; /* whose data this is, or NULL */
};

/* What callers pass and get: the states that the session keeps come behind them. */
static inline int session_inputs(const OnnxfuseSession *s) { return s->graph->inputs.count - s->graph->kept.count; }
static inline int session_outputs(const OnnxfuseSession *s) { return s->graph->outputs.count - s->graph->kept.count; }

enum { DLPACK_READ_ONLY = 1 }; /* OnnxfuseDlpack.flags */

/* Lets go of the views that onnxfuse_value_item has made. */
void value_release_views(OnnxfuseValue *value);

static inline bool value_is_read_only(const OnnxfuseValue *value) {
    return value->managed && value->managed->flags & DLPACK_READ_ONLY;
}

/* session.c: a call of the library that leaves nothing but its result: work(arena, context), with an arena of its own, which lacking
 * memory comes back to. What `work` has besides is the arena's to let go of (arena_defer), or its own. */
Status call_with_arena(Status (*work)(Arena *arena, void *context), void *context);
/* The same inside a call. */
Status with_arena(Status (*work)(Arena *arena, void *context), void *context);

/* --- embed.c: the embedder's structures --- */
/* Whether this library knows a structure of that size; 0: as in version 0.1. */
Status check_struct(const char *name, size_t given, size_t known);
Status embedded_pool(const OnnxfuseThreadPool *threads, Pool **out_pool);
Status embedded_stop(const OnnxfuseRunOptions *options, Stop *out_stop);
/* options->observe as the run has it: out_observer->user is the options. */
Observer embedded_observer(const OnnxfuseRunOptions *options);

/* The policy that the options ask for; strings in the arena. Its target is completed by devices_open. model_path may be
 * NULL. */
Status session_policy(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *out_policy);

/* check_precision.c: whether the policy has a tolerance; then both sessions, of one model, the second without the
 * rules' precision and weights, are run on the policy's inputs. STATUS_DIFFERENT names the output that differs most. */
bool has_tolerance(const Policy *policy);
Status check_precision(OnnxfuseSession *session, OnnxfuseSession *plain, const Policy *policy);
/* Takes the precision and weights out of the rules, and the check. */
void policy_without_precision(Arena *arena, Policy *policy);

/* The same over what stands in the policy already. */
Status session_policy_over(const OnnxfuseOptions *options, const char *model_path, Arena *arena, Policy *policy);
/* The JSON that these read; NULL: there is none. */
Status session_policy_json(const OnnxfuseOptions *options, const char *model_path, Arena *arena, const char **out_json);

/* The same options for a session without a path: the file beside the model is named. */
Status session_options_of(const OnnxfuseOptions *options, const char *model_path, Arena *arena,
                          OnnxfuseOptions *out_options);
/* The same for training, whose precision is the caller's: in the model's own ("precision") no loss would be scaled. */
Status training_options_of(const OnnxfuseOptions *options, const char *model_path, Arena *arena,
                           OnnxfuseOptions *out_options);

/* discard.c: constants of the model that no node reads any more give their memory back. */
void discard_unread(const Graph *graph);

/* inspect_policy.c: what the policy comes to for the model that the plan is of. */
Status inspect_policy(Text *text, const Policy *policy, const Plan *plan);

/* open.c: as onnxfuse_session_open (path) or onnxfuse_session_open_memory, but constants keep their data. */
Status session_open_to_compile(const char *path, const void *bytes, size_t size, const char *folder,
                               const OnnxfuseOptions *options, OnnxfuseSession **out_session);

typedef struct GraphChange {
    void (*fn)(void *user, Graph *graph);
    void *user;
} GraphChange;
/* open.c: as onnxfuse_session_open, of a graph as imported, in a call that has begun (fork_enter); the graph is the session's from
 * now on, also when this fails. change: done before anything is fused; its fn may be NULL. Tolerances are not checked. */
Status session_open_graph(Graph *graph, GraphChange change, const OnnxfuseOptions *options,
                          OnnxfuseSession **out_session);
/* session.c: as onnxfuse_session_run_with; random numbers are those of this run. */
Status session_run_as(OnnxfuseSession *s, const OnnxfuseValue *const *inputs, OnnxfuseValue **outputs,
                      const OnnxfuseRunOptions *options, uint64_t run_number);

/* Of a graph and its subgraphs; regions count as one. */
int count_nodes(const Graph *graph);

/* STATUS_USAGE in a forked child, for a session of the parent's on a device that the child cannot use. */
Status session_check_fork(const OnnxfuseSession *s);

#endif
