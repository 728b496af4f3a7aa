/* SPDX-License-Identifier: Apache-2.0 */
/* The plan: a partitioned graph as a list of steps over slots of memory. Made once when a session opens, immutable
 * afterwards, run from many threads.
 *
 * A plan runs on one device, with the CPU (`host`) for what the device cannot do. Where the device has memory of its
 * own, every slot is in one of two places, and a value that is needed in both has a slot in each, with a step that
 * copies (placement.c decides which steps run where). Device steps are asynchronous, in the order of the run's stream;
 * a host step that reads what a copy brings waits for the stream.
 *
 * A slot is where a value lives. Sizes are expressions over the symbols; all that a plan needs are evaluated once a run
 * and remembered for the last few shapes, together with the offsets that memory planning found for them (bound_sizes.c). */
#ifndef ONNXFUSE_RUNTIME_PLAN_PLAN_H
#define ONNXFUSE_RUNTIME_PLAN_PLAN_H

#include "lowering/ops.h"
#include "runtime/device/device.h"

typedef enum Place { PLACE_HOST, PLACE_DEVICE } Place; /* of slots: memory; of steps: where they run */
enum { PLACES = 2 };

typedef enum Storage {
    STORE_UNUSED,   /* an absent output */
    STORE_INPUT,    /* the caller's memory */
    STORE_CONSTANT, /* the graph's; on the device a copy that the plan owns */
    STORE_PLANNED,  /* in the run's arena: its lifetime is known, its size once the inputs' shapes are */
    STORE_DYNAMIC,  /* allocated when its size is known, freed after its last use; strings too */
    STORE_ALIAS,    /* the same memory as slot `root` with other dims */
    STORE_ITEM,     /* a sequence or optional: an Item that owns its parts */
} Storage;

typedef struct Slot {
    const Value *value;
    Storage storage;
    Place place;
    int twin;        /* the slot of the same value in the other place, or -1 */
    int root;        /* the slot whose memory it is: itself unless an alias (of an alias: the last in the chain) */
    int inplace;     /* a planned slot that takes over this slot's memory, which dies in the same step; else -1 */
    int over;        /* of a state's new value: the slot of the old one, whose memory a run may give for it; else -1 */
    int first, last; /* the first step that writes and the last that reads the memory, aliases included; outputs: last =
                        step count */
    int output;      /* the graph output whose memory the caller (or the run) gives for this root, or -1 */
    int dims_expr;   /* number in plan->exprs of its first dim; the others follow */
    int bytes_expr;  /* of its size in bytes */
    bool shared;     /* may be the same memory as another slot at run time: never written over in place */
    bool late;       /* some dim is known only after a step of the run */
    bool on_host; /* roots: a host step, not only copies, reads or writes it, or an output of the run is copied from it
                   */
    int device_output; /* device roots: the graph output that this becomes where the caller gives device memory, or -1
                        */
    void *uploaded;    /* device constants: where; NULL where an anchor has packed it */
} Slot;

typedef enum StepKind {
    STEP_KERNEL, /* a region */
    STEP_ANCHOR,
    STEP_HOST,    /* a host kernel */
    STEP_PRIM,    /* a primitive outside regions: device-independent movement, or the evaluator */
    STEP_DIMS,    /* writes known sizes into a vector */
    STEP_BIND,    /* reads symbols from a vector */
    STEP_RESOLVE, /* an expand of a dim that may be 1 or not, a pad by what may be nothing: alias or copy */
    STEP_CONTROL, /* nested plans */
    STEP_COPY,    /* between the places: inputs[0] to outputs[0] */
    STEP_DEVICE,  /* what a host kernel computes, by a kernel of the device */
} StepKind;

typedef struct Plan Plan;

typedef struct Step {
    StepKind kind;
    Place place;
    bool waits;       /* a host step: reads what a copy from the device brings, and no step before has waited for it */
    Device *on;       /* the plan's device or host */
    const Node *node; /* of STEP_COPY: what made the value; of inputs what reads it */
    int input_count, output_count;
    const int *inputs;  /* [input_count] slots; -1 where left out */
    const int *outputs; /* [output_count] slots; -1 where not asked for */
    /* STEP_KERNEL; STEP_ANCHOR: its epilogue, in tile form, where the device wants a kernel for it */
    RegionKernel region; /* region.kernel NULL: none */
    DeviceKernel *kernel;
    int params_expr; /* STEP_KERNEL: number in plan->exprs of the first parameter */
    int work_expr;   /* STEP_KERNEL: instructions of a run, for the grain */
    /* STEP_ANCHOR */
    DeviceAnchor *anchor;
    int prologue; /* the step that makes inputs[0], an anchor or a concat, which this one may run as its prologue; -1: none */
    int within; /* the step that may run this one so, the last if there are several; -1: none */
    /* STEP_HOST */
    HostFn host;
    /* STEP_DIMS, STEP_BIND */
    int sizes_expr, sizes_count;
    const int *symbols; /* STEP_BIND: the symbols' numbers */
    /* STEP_CONTROL */
    Plan **nested;
    int nested_count;
    bool binds;      /* after the step, output dims that are fresh symbols are bound */
    const int *dies; /* slots (STORE_DYNAMIC roots and STORE_ITEM) freed after the step */
    int die_count;
} Step;

typedef struct Sizes Sizes; /* what one set of input shapes comes to */

struct Plan {
    Graph *graph;
    Device *device, *host;         /* the same where the device is the CPU */
    const struct PlanGiven *given; /* while the plan is made */
    Arena *arena;
    Slot *slots;
    int slot_count;
    Step *steps;
    int step_count;
    const int *inputs, *outputs; /* slots, in the graph's order; all in host memory */
    const int *device_outputs;   /* [outputs] slots where the values are in device memory, -1 where they are not */
    VEC(const Dim *) exprs;
    VEC(int) late_exprs; /* those that need a symbol bound during the run */
    int symbol_count;
    VEC(int) input_symbols; /* the symbols that the inputs' shapes bind: the key of Sizes */
    int run_symbol;         /* "$run", or -1 */
    struct SizesCache *sizes;
    size_t constant_bytes;
    VEC(void *) uploads; /* device memory of constants */
    /* So that a run looks at no slot that it need not. */
    void **constants;         /* [slot_count] where constants are; NULL for other slots */
    VEC(int) planned[PLACES]; /* slots in arenas or the caller's memory */
    VEC(int) owned;           /* slots that a run allocates and frees: STORE_DYNAMIC, STORE_ITEM */
    bool has_items;           /* some slot is no tensor */
    int output_count_known;   /* outputs whose shape is known before the run */
    /* Steps recorded_first .. recorded_end - 1 are all of the device's, with none of the host between: runs of known
     * shapes replay them (run/replay.h). Both 0: they cannot be; not_recorded says why, NULL on devices that never record.
     */
    int recorded_first, recorded_end;
    const char *not_recorded;
    struct Recordings *recordings; /* of device steps, by sizes; NULL: none */
    int last_writes; /* the first of the steps that write states over their old values: the run goes to its end from
                        there on; step_count: none does */
};

/* What is known beforehand of a node of the graph, from a compiled model. */
typedef struct NodeGiven {
    Place place;          /* for which it was made */
    RegionKernel region;  /* of a NODE_REGION; of a NODE_ANCHOR, where its epilogue is a kernel */
    const Packed *packed; /* of a NODE_ANCHOR, [packed_count] */
    int packed_count;
} NodeGiven;

typedef struct PlanGiven {
    bool is_compiled; /* nodes has all regions and anchors of the graph and its subgraphs, and constants may lack data
                         where an anchor has packed it */
    Map nodes;        /* Node -> NodeGiven */
    bool keep_constants; /* the data of constants stays, also of those that are read no more */
} PlanGiven;

/* The graph and both devices stay owned by the caller and must outlive the plan; host: the CPU, the same as `device`
 * where that is the CPU. Kernels are compiled for all nested plans in one go. */
Status plan_create(Graph *graph, Device *device, Device *host, KernelCacheStats *stats, Plan **out_plan);
/* given: read while the plan is made, and what it points to as long as the plan; NULL: nothing is. */
Status plan_create_given(Graph *graph, Device *device, Device *host, const PlanGiven *given, KernelCacheStats *stats,
                         Plan **out_plan);
void plan_destroy(Plan *plan); /* accepts NULL */
/* fallback.c: STATUS_UNSUPPORTED where the policy forbids steps on the CPU and there are some; names their nodes. */
Status check_fallback(const Plan *plan, const Policy *policy, Arena *scratch);

typedef struct Block {
    void *data;
    size_t bytes;
} Block;

/* --- sizes (bound_sizes.c) --- */
struct Sizes {
    atomic_int users;
    int64_t *key;    /* [input_symbols.count] */
    int64_t *values; /* [exprs.count]; UNBOUND_DIM where late */
    size_t *offsets; /* [slot_count] in the place's arena, of planned roots */
    size_t *rooms;   /* [slot_count] bytes that are there; 0: shares another's place, or has none */
    size_t arena_bytes[PLACES];
    uint64_t age; /* of the latest use, under the cache's lock */
    bool alone;   /* not remembered: lives for one run */
    /* For run/replay.c. */
    uint64_t id; /* no other entry of the plan ever has the same */
    atomic_int uses, crowded;
    atomic_ullong addresses;
    atomic_bool impossible;
};
struct SizesCache *sizes_cache_create(void);
void sizes_cache_destroy(struct SizesCache *cache);
/* symbols: bound from the inputs. STATUS_INVALID when a size is negative or absurd. Release after the run. */
Status sizes_get(const Plan *plan, const int64_t *symbols, const Sizes **out_sizes);
void sizes_release(const Plan *plan, const Sizes *sizes);
/* How often slots have been placed since the plan was made. */
uint64_t sizes_placed(const Plan *plan);
/* Whether a run may be given the input's memory for the output, without a copy of the input. */
bool plan_writes_over(const Plan *plan, int input, int output);
/* Whether the output is made of the input by adding rows behind it, so that both may be given one memory that has room for them. */
bool plan_appends(const Plan *plan, int input, int output);
/* Copies those of the latest run: values [exprs.count], offsets [slot_count], and the symbols [symbol_count] that its
 * inputs have bound, UNBOUND_DIM for others. False: none is remembered. */
bool sizes_latest(const Plan *plan, int64_t *symbols, int64_t *values, size_t *offsets, size_t arena_bytes[PLACES]);

/* prologues.c: the step that runs within this one where its first input has this shape; NULL: none does. */
const Step *plan_prologue(const Plan *plan, const Step *step, const Tensor *between);

/* --- what a step is (steps.c), for who reads a plan; cost.h has what it costs --- */
const char *step_kind_name(StepKind kind);
const char *step_name(const Plan *plan,
                      const Step *step); /* the operator, the fusion that a region is, or the value that is copied */

#endif
