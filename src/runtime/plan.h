/* The plan: a partitioned graph as a list of steps over slots of memory. Made once when a session opens, immutable
 * afterwards, run from many threads.
 *
 * A slot is where a value lives. Sizes are expressions over the symbols; all that a plan needs are evaluated once a run
 * and remembered for the last few shapes, together with the offsets that memory planning found for them (sizes.c). */
#ifndef ONNXFUSE_RUNTIME_PLAN_H
#define ONNXFUSE_RUNTIME_PLAN_H

#include "ops/ops.h"
#include "runtime/device.h"

typedef enum Storage {
    STORE_UNUSED,   /* an absent output */
    STORE_INPUT,    /* the caller's memory */
    STORE_CONSTANT, /* the graph's, or a copy of the part that is still needed */
    STORE_PLANNED,  /* in the run's arena: its lifetime is known, its size once the inputs' shapes are */
    STORE_DYNAMIC,  /* allocated when its size is known, freed after its last use; strings too */
    STORE_ALIAS,    /* the same memory as slot `root` with other dims */
    STORE_ITEM,     /* a sequence or optional: an Item that owns its parts */
} Storage;

typedef struct Slot {
    const Value *value;
    Storage storage;
    int root;        /* the slot whose memory it is: itself unless an alias (of an alias: the last in the chain) */
    int inplace;     /* a planned slot that takes over this slot's memory, which dies in the same step; else -1 */
    int first, last; /* the first step that writes and the last that reads the memory, aliases included; outputs: last =
                        step count */
    int output;      /* the graph output whose memory the caller (or the run) gives for this root, or -1 */
    int dims_expr;   /* number in plan->exprs of its first dim; the others follow */
    int bytes_expr;  /* of its size in bytes */
    bool shared;     /* may be the same memory as another slot at run time: never written over in place */
    bool late;       /* some dim is known only after a step of the run */
} Slot;

typedef enum StepKind {
    STEP_KERNEL, /* a region */
    STEP_ANCHOR,
    STEP_HOST,    /* a host kernel */
    STEP_PRIM,    /* a primitive outside regions: device-independent movement, or the evaluator */
    STEP_DIMS,    /* writes known sizes into a vector */
    STEP_BIND,    /* reads symbols from a vector */
    STEP_RESOLVE, /* an expand of a dim that may be 1 or not: alias or copy */
    STEP_CONTROL, /* nested plans */
} StepKind;

typedef struct Plan Plan;

typedef struct Step {
    StepKind kind;
    const Node *node;
    const int *inputs;  /* slots; -1 where left out */
    const int *outputs; /* slots; -1 where not asked for */
    /* STEP_KERNEL */
    RegionKernel region;
    DeviceKernel *kernel;
    int params_expr;           /* number in plan->exprs of the first parameter */
    int work_expr, moved_expr; /* instructions and bytes of a run */
    /* STEP_ANCHOR */
    DeviceAnchor *anchor;
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
    Device *device;
    Arena *arena;
    Slot *slots;
    int slot_count;
    Step *steps;
    int step_count;
    const int *inputs, *outputs; /* slots, in the graph's order */
    VEC(const Dim *) exprs;
    VEC(int) late_exprs; /* those that need a symbol bound during the run */
    int symbol_count;
    VEC(int) input_symbols; /* the symbols that the inputs' shapes bind: the key of Sizes */
    int run_symbol;         /* "$run", or -1 */
    struct SizesCache *sizes;
    size_t constant_bytes;
    int output_count_known; /* outputs whose shape is known before the run */
};

/* Counts for statistics, nested plans included. */
typedef struct PlanCounts {
    int regions, anchors, host_steps, steps, kernels;
    int64_t weight_bytes;
} PlanCounts;

/* The graph stays owned by the caller and must outlive the plan. Kernels are compiled for all nested plans in one go.
 */
Status plan_create(Graph *graph, Device *device, KernelCacheStats *stats, Plan **out_plan);
void plan_destroy(Plan *plan); /* accepts NULL */
void plan_count(const Plan *plan, PlanCounts *counts);
void plan_print(Text *text, const Plan *plan, int indent);

/* --- running (run.c) ---------------------------------------------------------------------------------------------- */
typedef struct Profile Profile;

/* What all plans of one run share. */
typedef struct Run {
    Memory *memory;
    Profile *profile;          /* NULL: off */
    uint64_t run_number;       /* of the session, from 0; "$run" is made of it */
    uint64_t plans_run;        /* plans begun in this run */
    struct RunMemory *buffers; /* arenas and scratch, kept between runs */
    int depth;                 /* of nested plans */
    atomic_size_t *peak_arena;
} Run;

/* An output: given by the caller (item.tensor.data not NULL; dims must fit), or filled with an item that owns its
 * memory. */
typedef struct RunOutput {
    bool given;
    Item item;
} RunOutput;

/* outer: bindings of the symbols of the plan around this one, NULL for none. inputs [graph inputs]: borrowed; NULL for
 * an absent optional. */
Status plan_run(const Plan *plan, Run *run, const int64_t *outer, const Item *const *inputs, RunOutput *outputs);

/* control.c: a STEP_CONTROL. */
Status run_control(const Step *step, Run *run, const int64_t *symbols, const Item *const *inputs, RunOutput *outputs);

/* --- sizes (sizes.c) ------------------------------------------------------------------------------------------------
 */
struct Sizes {
    atomic_int users;
    int64_t *key;    /* [input_symbols.count] */
    int64_t *values; /* [exprs.count]; UNBOUND_DIM where late */
    size_t *offsets; /* [slot_count] in the arena, of planned roots */
    size_t arena_bytes, scratch_bytes;
    uint64_t age; /* of the latest use, under the cache's lock */
    bool alone;   /* not remembered: lives for one run */
};
struct SizesCache *sizes_cache_create(void);
void sizes_cache_destroy(struct SizesCache *cache);
/* symbols: bound from the inputs. STATUS_INVALID when a size is negative or absurd. Release after the run. */
Status sizes_get(const Plan *plan, const int64_t *symbols, const Sizes **out_sizes);
void sizes_release(const Plan *plan, const Sizes *sizes);

/* --- run memory (buffers.c): arenas and scratch of past runs, ready for the next -------------------------------- */
struct RunMemory *run_memory_create(Device *device, Memory *memory);
void run_memory_destroy(struct RunMemory *buffers);
Status run_memory_take(struct RunMemory *buffers, size_t bytes, void **out_data);
void run_memory_give(struct RunMemory *buffers, void *data);

/* --- profile (profile.c) ---------------------------------------------------------------------------------------------
 */
Profile *profile_create(void);
void profile_destroy(Profile *profile);
double profile_now(void); /* microseconds */
void profile_add(Profile *profile, const Step *step, const char *how, double start, double end, int64_t bytes,
                 int64_t work);
Status profile_json(Profile *profile, Text *text);
const char *step_kind_name(StepKind kind);

#endif
