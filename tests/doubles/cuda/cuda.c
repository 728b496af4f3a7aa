/* SPDX-License-Identifier: Apache-2.0 */
/* The double of libcuda, with the books of all three. */
#include "books.h"
#include "kernel.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- state --- */

typedef struct Memory {
    Object object;
    char *host;
    CuDevicePointer address;
    size_t bytes;
    struct Stream *allocated_on; /* NULL: at once */
    uint64_t allocated_at;       /* its place in that stream */
    bool leaving;                /* its release is queued */
    struct MemoryPool *pool;     /* NULL: of none */
} Memory;

/* What is kept is counted only with DOUBLE_POOL_KEEPS. */
typedef struct MemoryPool {
    Object object;
    uint64_t threshold;
    size_t used, kept;
} MemoryPool;

typedef struct Pinned {
    Object object;
    char *data;
    size_t bytes;
} Pinned;

typedef enum OpKind {
    OP_RUN,
    OP_COPY_IN,
    OP_COPY_OUT,
    OP_COPY_WITHIN,
    OP_FILL,
    OP_FREE,
    OP_MARK,
    OP_WAIT,
    OP_GRAPH
} OpKind;

typedef struct Op {
    OpKind kind;
    struct Op *next;
    uint64_t place; /* in its stream, from 1 */
    const char *what;
    void *to;         /* host address */
    const void *from; /* host address */
    size_t bytes;
    int value;
    void (*run)(void *);
    void *data; /* its own copy of data_size bytes */
    size_t data_size;
    Memory *touched[MOST_TOUCHED];
    int touched_count;
    Memory *exclusive;        /* of those, what no other work may use at the same time; NULL: nothing */
    struct Stream *waits_for; /* OP_WAIT: until waits_until is done there */
    uint64_t waits_until;
    struct Exec *exec;
} Op;

typedef struct OpList {
    Op *first, *last;
} OpList;

typedef struct Graph {
    Object object;
    OpList ops;
} Graph;

typedef struct Exec {
    Object object;
    OpList ops;
    int queued;
} Exec;

typedef struct Stream {
    Object object;
    OpList queue;
    uint64_t places, done;
    Graph *capture; /* being recorded */
    bool broken;    /* the recording */
    bool strict;
    pthread_t capturer;
} Stream;

typedef struct Event {
    Object object;
    Stream *stream; /* NULL: never recorded */
    uint64_t place;
} Event;

typedef struct Module {
    Object object;
    const SourceKernels *kernels;
} Module;

typedef struct Function {
    Object object;
    Module *module;
    const SourceKernel *kernel;
    size_t most_given; /* of shared memory by a launch: cuFuncSetAttribute */
} Function;

/* Shared memory of a block: without asking for more, and at most (of sm_90) */
enum { MOST_SHARED = 48 << 10, MOST_SHARED_GIVEN = 227 << 10 };

enum { MOST_LAUNCHES = 4096 };
static const uint64_t device_tag = 1ull << 62; /* no address of a process */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock; /* recursive */
static Object *objects;
static int64_t properties[DOUBLE_PROPERTIES];
static int calls, fail_at, violations, lost_code, calls_left, heuristics, reduction_mask, compute, waits;
static bool started;
static char first_violation[256], first_outstanding[64];
enum { MOST_DEVICES = 4 };
static Object *primary[MOST_DEVICES]; /* contexts; NULL: nobody retains it */
static int retained[MOST_DEVICES];
static Object *foreign; /* an embedder's context */
static DoubleLaunch launches[MOST_LAUNCHES];
static int launch_count, replay_count;
static size_t memory_used;
static int made[OBJECT_POOL + 1];
static _Thread_local CuContext current;
static _Thread_local unsigned capture_mode; /* 0: the strictest */

#define DECLARE(result, name, parameters) result name parameters;
DOUBLE_FUNCTIONS(DECLARE)
#define DECLARE_API(result, field, symbol, parameters) result symbol parameters;
CUDA_DRIVER_FUNCTIONS(DECLARE_API)

static void defaults(void) {
    static const int64_t values[DOUBLE_PROPERTIES] = {
        [DOUBLE_DRIVER_VERSION] = 13000,
        [DOUBLE_DEVICES] = 1,
        [DOUBLE_ARCH] = 90,
        [DOUBLE_POOLS] = 1,
        [DOUBLE_MEMORY] = 1 << 30,
        [DOUBLE_NVRTC_OLDEST] = 75,
        [DOUBLE_NVRTC_NEWEST] = 120,
        [DOUBLE_BLAS_WORKSPACE] = 4096,
    };
    memcpy(properties, values, sizeof properties);
}

static void set_up(void) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&lock, &recursive);
    pthread_mutexattr_destroy(&recursive);
    defaults();
}

/* --- books --- */

static const char *const kind_names[] = {"context",   "module",    "function", "stream",     "event",
                                         "graph",     "recording", "memory",   "pinned",     "program",
                                         "Lt handle", "desc",      "layout",   "preference", "pool"};

int books_enter(int failure) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    calls++;
    if (calls_left > 0 && --calls_left == 0) lost_code = CU_ILLEGAL_ADDRESS;
    return calls == fail_at ? failure : 0;
}

void books_leave(void) { pthread_mutex_unlock(&lock); }

bool books_lost(void) { return lost_code != 0; }

int64_t books_property(DoubleProperty property) { return properties[property]; }

void books_violation(const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (violations++ == 0) vsnprintf(first_violation, sizeof first_violation, format, args);
    va_end(args);
}

void books_count_heuristic(int mask) {
    heuristics++;
    reduction_mask = mask;
}

void books_note_compute(int type) { compute = type; }

void *books_new(ObjectKind kind, size_t size, bool of_context) {
    Object *o = calloc(1, size);
    if (!o) abort();
    *o = (Object){.kind = kind, .alive = true, .context = of_context ? (Object *)current : NULL, .next = objects};
    objects = o;
    made[kind]++;
    return o;
}

static Object *find(const void *handle) {
    Object *o = objects;
    while (o && o != handle) o = o->next;
    return o;
}

void *books_check(const void *handle, ObjectKind kind, const char *what) {
    Object *o = find(handle);
    if (o && o->kind == kind && o->alive) {
        if (!o->context || o->context == (Object *)current) return o;
        books_violation("%s: a %s of another context", what, kind_names[kind]);
        return NULL;
    }
    books_violation("%s: %s %s", what, o && o->kind == kind ? "a released" : "no such", kind_names[kind]);
    return NULL;
}

bool books_release(const void *handle, ObjectKind kind, const char *what) {
    Object *o = books_check(handle, kind, what);
    if (o) o->alive = false;
    return o != NULL;
}

bool books_has_context(const char *what) {
    const Object *context = current ? find(current) : NULL;
    if (context && context->alive) return true;
    books_violation("%s: without the context current", what);
    return false;
}

static Stream *thread_capture(void) {
    for (Object *o = objects; o; o = o->next) {
        Stream *s = (Stream *)o;
        if (o->kind == OBJECT_STREAM && o->alive && s->capture && s->strict &&
            pthread_equal(s->capturer, pthread_self()))
            return s;
    }
    return NULL;
}

bool books_unsafe_call(void) {
    Stream *s = capture_mode == CU_CAPTURE_RELAXED ? NULL : thread_capture();
    if (!s) return true;
    s->broken = true;
    return false;
}

static Memory *memory_at(CuDevicePointer data) {
    for (Object *o = objects; o; o = o->next) {
        Memory *m = (Memory *)o;
        if (o->kind == OBJECT_MEMORY && data >= m->address && data - m->address < m->bytes) return m;
    }
    return NULL;
}

static Memory *living_memory(CuDevicePointer data, size_t bytes, const char *what) {
    Memory *m = memory_at(data);
    if (!m)
        books_violation("%s: no allocation at the address", what);
    else if (!m->object.alive || m->leaving)
        books_violation("%s: released memory", what);
    else if (bytes > m->bytes - (size_t)(data - m->address))
        books_violation("%s: %zu bytes reach outside the allocation", what, bytes);
    else if (m->object.context != (Object *)current)
        books_violation("%s: memory of another context", what);
    else
        return m;
    return NULL;
}

void *books_memory(CuDevicePointer data, size_t bytes, const char *what) {
    Memory *m = living_memory(data, bytes, what);
    return m ? m->host + (data - m->address) : NULL;
}

/* --- streams --- */

static void append(OpList *list, Op *op) {
    op->next = NULL;
    if (list->last)
        list->last->next = op;
    else
        list->first = op;
    list->last = op;
}

static void op_free(Op *op) {
    free(op->data);
    free(op);
}

static void list_free(OpList *list) {
    for (Op *op = list->first, *next; op; op = next) {
        next = op->next;
        op_free(op);
    }
    *list = (OpList){0};
}

static Op *op_copy(const Op *op) {
    Op *copy = malloc(sizeof *copy);
    if (!copy) abort();
    *copy = *op;
    if (op->data) {
        copy->data = malloc(op->data_size);
        if (!copy->data) abort();
        memcpy(copy->data, op->data, op->data_size);
    }
    return copy;
}

static void run_until(Stream *s, uint64_t place);

/* Nobody should find zeros, or what was there before; of large blocks the start and the end are enough. */
static void spoil(char *data, size_t bytes, int value) {
    size_t part = bytes < 65536 ? bytes : 65536;
    memset(data, value, part);
    memset(data + bytes - part, value, part);
}

static void drop_memory(Memory *m) {
    m->object.alive = false;
    spoil(m->host, m->bytes, 0xdd);
    memory_used -= m->bytes;
    if (!m->pool) return;
    m->pool->used -= m->bytes;
    if (properties[DOUBLE_POOL_KEEPS]) m->pool->kept += m->bytes;
}

static size_t kept_by_pools(void) {
    size_t kept = 0;
    for (Object *o = objects; o; o = o->next)
        if (o->kind == OBJECT_POOL && o->alive) kept += ((MemoryPool *)o)->kept;
    return kept;
}

static void run_op(Op *op) {
    switch (op->kind) {
    case OP_RUN: op->run(op->data); break;
    case OP_COPY_IN:
    case OP_COPY_OUT:
    case OP_COPY_WITHIN: memmove(op->to, op->from, op->bytes); break;
    case OP_FILL: memset(op->to, op->value, op->bytes); break;
    case OP_FREE: drop_memory(op->touched[0]); break;
    case OP_MARK: break;
    case OP_WAIT: run_until(op->waits_for, op->waits_until); break;
    case OP_GRAPH:
        for (Op *inner = op->exec->ops.first; inner; inner = inner->next) run_op(inner);
        op->exec->queued--;
        break;
    }
}

static void run_until(Stream *s, uint64_t place) {
    while (s->queue.first && s->queue.first->place <= place) {
        Op *op = s->queue.first;
        s->queue.first = op->next;
        if (!op->next) s->queue.last = NULL;
        if (!lost_code || op->kind == OP_FREE) run_op(op);
        s->done = op->place;
        op_free(op);
    }
}

/* Whether what is queued on s up to `until` waits for `place` of the other stream, itself or through others. */
static bool ordered_up_to(const Stream *s, uint64_t until, const Stream *other, uint64_t place) {
    if (s == other) return place <= until;
    for (const Op *op = s->queue.first; op && op->place <= until; op = op->next)
        if (op->kind == OP_WAIT && ordered_up_to(op->waits_for, op->waits_until, other, place)) return true;
    return false;
}

static bool ordered_after(const Stream *s, const Stream *other, uint64_t place) {
    return s == other || other->done >= place || ordered_up_to(s, UINT64_MAX, other, place);
}

static bool touches(const Op *op, const Memory *m) {
    for (int i = 0; i < op->touched_count; i++)
        if (op->touched[i] == m) return true;
    if (op->kind == OP_GRAPH)
        for (const Op *inner = op->exec->ops.first; inner; inner = inner->next)
            if (touches(inner, m)) return true;
    return false;
}

static void check_touched(const Stream *s, const Op *op) {
    for (int i = 0; i < op->touched_count; i++) {
        const Memory *m = op->touched[i];
        if (m->leaving || !m->object.alive)
            books_violation("%s: released memory", op->what);
        else if (m->allocated_on && !ordered_after(s, m->allocated_on, m->allocated_at))
            books_violation("%s: memory that another stream has yet to allocate", op->what);
    }
}

static bool uses_exclusively(const Op *op, const Memory *m) {
    if (op->kind == OP_GRAPH) {
        for (const Op *inner = op->exec->ops.first; inner; inner = inner->next)
            if (uses_exclusively(inner, m)) return true;
        return false;
    }
    return m && op->exclusive == m;
}

static void check_exclusive(const Stream *s, const Op *op) {
    if (op->kind == OP_GRAPH)
        for (const Op *inner = op->exec->ops.first; inner; inner = inner->next) check_exclusive(s, inner);
    for (Object *o = objects; o && op->exclusive; o = o->next) {
        const Stream *other = (const Stream *)o;
        if (o->kind != OBJECT_STREAM || !o->alive || other == s) continue;
        for (const Op *pending = other->queue.first; pending; pending = pending->next)
            if (uses_exclusively(pending, op->exclusive) && !ordered_after(s, other, pending->place))
                books_violation("two streams use one workspace");
    }
}

static int enqueue(Stream *s, Op *op) {
    if (!s->capture) check_exclusive(s, op);
    if (s->capture) {
        if (op->kind == OP_FREE) {
            s->broken = true;
            op_free(op);
            return CU_INVALID_VALUE;
        }
        append(&s->capture->ops, op);
        return CU_OK;
    }
    op->place = ++s->places;
    append(&s->queue, op);
    return CU_OK;
}

static Op *op_new(OpKind kind, const char *what) {
    Op *op = calloc(1, sizeof *op);
    if (!op) abort();
    op->kind = kind;
    op->what = what;
    return op;
}

static void touch(Op *op, Memory *m) { op->touched[op->touched_count++] = m; }

int books_enqueue(CuStream stream, const char *what, void (*run)(void *), const void *data, size_t size,
                  const CuDevicePointer *touched, int count, CuDevicePointer exclusive) {
    Stream *s = books_check(stream, OBJECT_STREAM, what);
    if (!s) return CU_INVALID_HANDLE;
    Op *op = op_new(OP_RUN, what);
    op->run = run;
    op->data = malloc(size ? size : 1);
    op->data_size = size ? size : 1;
    if (!op->data) abort();
    memcpy(op->data, data, size);
    for (int i = 0; i < count; i++) {
        Memory *m = living_memory(touched[i], 0, what);
        if (m) touch(op, m);
    }
    if (exclusive) op->exclusive = memory_at(exclusive);
    check_touched(s, op);
    return enqueue(s, op);
}

/* --- control --- */

static void object_free(Object *o) {
    switch (o->kind) {
    case OBJECT_MEMORY: free(((Memory *)o)->host); break;
    case OBJECT_PINNED: free(((Pinned *)o)->data); break;
    case OBJECT_STREAM: list_free(&((Stream *)o)->queue); break;
    case OBJECT_GRAPH: list_free(&((Graph *)o)->ops); break;
    case OBJECT_EXEC: list_free(&((Exec *)o)->ops); break;
    default: break;
    }
    free(o);
}

void double_reset(void) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    for (Object *o = objects, *next; o; o = next) {
        next = o->next;
        object_free(o);
    }
    objects = foreign = NULL;
    memset(primary, 0, sizeof primary);
    memset(retained, 0, sizeof retained);
    memset(made, 0, sizeof made);
    calls = fail_at = violations = lost_code = calls_left = launch_count = replay_count = heuristics = waits = 0;
    reduction_mask = compute = 0;
    started = false;
    memory_used = 0;
    first_violation[0] = 0;
    current = NULL;
    defaults();
    pthread_mutex_unlock(&lock);
}

void double_set_property(DoubleProperty property, int64_t value) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    properties[property] = value;
    if (property == DOUBLE_LOST_AFTER) calls_left = (int)value;
    pthread_mutex_unlock(&lock);
}

void double_fail_at(int n) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    calls = 0;
    fail_at = n;
    pthread_mutex_unlock(&lock);
}

static int locked(const int *value) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    int copy = *value;
    pthread_mutex_unlock(&lock);
    return copy;
}

int double_calls(void) { return locked(&calls); }
int double_violations(void) { return locked(&violations); }
int double_launch_count(void) { return locked(&launch_count); }

int double_replay_count(void) { return locked(&replay_count); }
int double_heuristic_calls(void) { return locked(&heuristics); }
int double_reduction_mask(void) { return locked(&reduction_mask); }
int double_compute_type(void) { return locked(&compute); }
int double_stream_waits(void) { return locked(&waits); }
const char *double_first_violation(void) { return first_violation; }
size_t double_memory_used(void) { return memory_used; }
size_t double_memory_held(void) {
    pthread_mutex_lock(&lock);
    size_t held = memory_used + kept_by_pools();
    pthread_mutex_unlock(&lock);
    return held;
}

int double_made(const char *kind) {
    int i = 0;
    while (strcmp(kind_names[i], kind) != 0) i++; /* a kind that there is not ends the test */
    return locked(&made[i]);
}

void *double_foreign_context(void) {
    pthread_mutex_lock(&lock);
    CuContext before = current;
    current = NULL;
    foreign = books_new(OBJECT_CONTEXT, sizeof(Object), false);
    current = before;
    pthread_mutex_unlock(&lock);
    return foreign;
}

void double_set_context(void *context) { current = context; }
void *double_current_context(void) { return current; }

const DoubleLaunch *double_launch(int index) { return &launches[index]; }

int double_outstanding(void) {
    pthread_once(&once, set_up);
    pthread_mutex_lock(&lock);
    int count = 0;
    for (Object *o = objects; o; o = o->next) {
        if (!o->alive || o->kind == OBJECT_FUNCTION || o == foreign) continue;
        snprintf(first_outstanding, sizeof first_outstanding, "%s", kind_names[o->kind]);
        count++;
    }
    pthread_mutex_unlock(&lock);
    return count;
}

const char *double_first_outstanding(void) { return double_outstanding() ? first_outstanding : ""; }

/* --- the driver's functions ------------------------------------------------------------------------------------------
 * ENTER: what every call does first. Calls that release something go on after an injected failure and report it at the
 * end. */

#define GIVE(value)                                                                                                    \
    do {                                                                                                               \
        int give_ = (value);                                                                                           \
        books_leave();                                                                                                 \
        return give_;                                                                                                  \
    } while (0)
#define ENTER()                                                                                                        \
    int injected = books_enter(CU_UNKNOWN);                                                                            \
    if (injected) GIVE(injected);
/* Needs a context that works. */
#define ENTER_CONTEXT()                                                                                                \
    ENTER();                                                                                                           \
    if (!books_has_context(__func__)) GIVE(CU_INVALID_CONTEXT);                                                        \
    if (lost_code) GIVE(lost_code);
#define ENTER_RELEASE()                                                                                                \
    int injected = books_enter(CU_UNKNOWN);                                                                            \
    if (!books_has_context(__func__)) GIVE(CU_INVALID_CONTEXT);                                                        \
    if (lost_code) GIVE(lost_code);
#define ENTER_UNSAFE()                                                                                                 \
    if (!books_unsafe_call()) GIVE(CU_CAPTURE_UNSUPPORTED);

CuResult cuInit(unsigned flags) {
    ENTER();
    (void)flags;
    started = true;
    GIVE((int)properties[DOUBLE_INIT_RESULT]);
}

CuResult cuDriverGetVersion(int *version) {
    ENTER();
    *version = (int)properties[DOUBLE_DRIVER_VERSION];
    GIVE(CU_OK);
}

CuResult cuGetErrorName(CuResult error, const char **name) {
    *name = error == CU_ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_DOUBLE";
    return CU_OK;
}

CuResult cuGetErrorString(CuResult error, const char **text) {
    *text =
        error == CU_ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "a failure that the test asked for";
    return CU_OK;
}

CuResult cuDeviceGetCount(int *count) {
    ENTER();
    if (!started) GIVE(3);
    *count = (int)properties[DOUBLE_DEVICES];
    GIVE(CU_OK);
}

CuResult cuDeviceGet(CuDevice *device, int ordinal) {
    ENTER();
    if (ordinal < 0 || ordinal >= properties[DOUBLE_DEVICES]) GIVE(CU_INVALID_DEVICE);
    *device = ordinal;
    GIVE(CU_OK);
}

CuResult cuDeviceGetName(char *name, int size, CuDevice device) {
    ENTER();
    snprintf(name, (size_t)size, "Double %d", device);
    GIVE(CU_OK);
}

CuResult cuDeviceTotalMem_v2(size_t *bytes, CuDevice device) {
    ENTER();
    (void)device;
    *bytes = (size_t)properties[DOUBLE_MEMORY];
    GIVE(CU_OK);
}

CuResult cuDeviceGetAttribute(int *value, CuDeviceAttribute attribute, CuDevice device) {
    ENTER();
    (void)device;
    switch (attribute) {
    case CU_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_MAX_SHARED_MEMORY_PER_BLOCK: *value = MOST_SHARED; break;
    case CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = MOST_SHARED_GIVEN; break;
    case CU_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_CAPABILITY_MAJOR: *value = (int)properties[DOUBLE_ARCH] / 10; break;
    case CU_CAPABILITY_MINOR: *value = (int)properties[DOUBLE_ARCH] % 10; break;
    case CU_MEMORY_POOLS_SUPPORTED: *value = properties[DOUBLE_POOLS] != 0; break;
    default: GIVE(CU_INVALID_VALUE);
    }
    GIVE(CU_OK);
}

CuResult cuDevicePrimaryCtxRetain(CuContext *out_context, CuDevice device) {
    ENTER();
    if (device < 0 || device >= MOST_DEVICES || device >= properties[DOUBLE_DEVICES]) GIVE(CU_INVALID_DEVICE);
    if (!retained[device]) primary[device] = books_new(OBJECT_CONTEXT, sizeof(Object), false);
    retained[device]++;
    *out_context = (CuContext)primary[device];
    GIVE(CU_OK);
}

/* The last release ends everything of the context. */
static void end_context(Object *context) {
    for (Object *o = objects; o; o = o->next) {
        if (!o->alive || o->context != context) continue;
        if (!lost_code && o->kind != OBJECT_FUNCTION)
            books_violation("the context ends with a %s alive", kind_names[o->kind]);
        if (o->kind == OBJECT_MEMORY) {
            Memory *m = (Memory *)o;
            memory_used -= m->bytes;
            if (m->pool) m->pool->used -= m->bytes;
        }
        o->alive = false;
    }
    context->alive = false;
    if (current == (CuContext)context) current = NULL;
    lost_code = 0;
}

CuResult cuDevicePrimaryCtxRelease_v2(CuDevice device) {
    int injected = books_enter(CU_UNKNOWN);
    if (device < 0 || device >= MOST_DEVICES || !retained[device]) {
        books_violation("a context is released that nobody retains");
        GIVE(CU_INVALID_CONTEXT);
    }
    if (--retained[device] == 0) {
        end_context(primary[device]);
        primary[device] = NULL;
    }
    GIVE(injected);
}

CuResult cuCtxSetCurrent(CuContext new_context) {
    int injected = books_enter(CU_UNKNOWN);
    const Object *context = new_context ? find(new_context) : NULL;
    if (new_context && (!context || context->kind != OBJECT_CONTEXT || !context->alive)) {
        if (!context) books_violation("an unknown context is made current");
        GIVE(CU_INVALID_CONTEXT);
    }
    current = new_context;
    GIVE(injected);
}

CuResult cuCtxGetCurrent(CuContext *out_context) {
    ENTER();
    *out_context = current;
    GIVE(CU_OK);
}

/* --- modules --- */

enum { MOST_PARAM_BYTES = 4096 }; /* of a kernel */

/* What the compiler would refuse, or would not promise: without launch bounds a block may need more registers than
 * there are. */
static void check_kernel(const SourceKernel *k) {
    int bytes = 0;
    for (int i = 0; i < k->param_count; i++)
        bytes = (bytes + k->params[i].size - 1) / k->params[i].size * k->params[i].size + k->params[i].size;
    if (bytes > MOST_PARAM_BYTES) books_violation("kernel %s: %d bytes of parameters", k->name, bytes);
    if (k->shared > MOST_SHARED) books_violation("kernel %s: %zu bytes of shared memory", k->name, k->shared);
    if (!k->most_threads && strcmp(k->name, "add") != 0 && strcmp(k->name, "fault") != 0)
        books_violation("kernel %s has no launch bounds", k->name);
}

CuResult cuModuleLoadData(CuModule *out_module, const void *image) {
    ENTER_CONTEXT();
    ENTER_UNSAFE();
    if (properties[DOUBLE_LOAD_RESULT]) GIVE((int)properties[DOUBLE_LOAD_RESULT]);
    const char *text = image;
    int arch = 0, skip = 0;
    bool cubin = sscanf(text, "\177ELF double sm_%d %n", &arch, &skip) == 1 && skip > 0;
    bool ptx = !cubin && sscanf(text, "double ptx compute_%d %n", &arch, &skip) == 1 && skip > 0;
    if (!cubin && !ptx) GIVE(CU_INVALID_IMAGE);
    if (cubin ? arch != properties[DOUBLE_ARCH] : arch > properties[DOUBLE_ARCH]) GIVE(CU_NO_BINARY_FOR_GPU);
    Module *m = books_new(OBJECT_MODULE, sizeof *m, true);
    m->kernels = kernels_of_source(text + skip);
    for (int i = 0; i < m->kernels->count; i++) check_kernel(&m->kernels->items[i]);
    *out_module = (CuModule)m;
    GIVE(CU_OK);
}

CuResult cuModuleUnload(CuModule module) {
    ENTER_RELEASE();
    ENTER_UNSAFE();
    GIVE(books_release(module, OBJECT_MODULE, __func__) ? injected : CU_INVALID_HANDLE);
}

CuResult cuModuleGetFunction(CuFunction *out_function, CuModule module, const char *name) {
    ENTER_CONTEXT();
    Module *m = books_check(module, OBJECT_MODULE, __func__);
    if (!m) GIVE(CU_INVALID_HANDLE);
    int i = 0;
    while (i < m->kernels->count && strcmp(m->kernels->items[i].name, name) != 0) i++;
    if (i == m->kernels->count) GIVE(CU_NOT_FOUND);
    Function *f = books_new(OBJECT_FUNCTION, sizeof *f, true);
    f->module = m;
    f->kernel = &m->kernels->items[i];
    *out_function = (CuFunction)f;
    GIVE(CU_OK);
}

CuResult cuFuncSetAttribute(CuFunction function, CuFunctionAttribute attribute, int value) {
    ENTER_CONTEXT();
    Function *f = books_check(function, OBJECT_FUNCTION, __func__);
    if (!f) GIVE(CU_INVALID_HANDLE);
    if (attribute != CU_FUNCTION_MAX_DYNAMIC_SHARED || value < 0 ||
        (size_t)value + f->kernel->shared > MOST_SHARED_GIVEN)
        GIVE(CU_INVALID_VALUE);
    f->most_given = (size_t)value;
    GIVE(CU_OK);
}

/* What the hardware would let pass: a kernel that reads what it was not given, or is given what it does not use. */
static bool check_shared(const Function *f, size_t given) {
    const SourceKernel *k = f->kernel;
    if (k->shared_given != (given > 0))
        books_violation("kernel %s: %zu bytes of shared memory are given", k->name, given);
    return given <= f->most_given || given + k->shared <= MOST_SHARED;
}

typedef struct RunningLaunch {
    char name[64];
    float *data;
    int64_t n;
    float x;
} RunningLaunch;

static void run_launch(void *data) {
    const RunningLaunch *r = data;
    if (strcmp(r->name, "fault") == 0) lost_code = CU_ILLEGAL_ADDRESS;
    if (strcmp(r->name, "add") == 0)
        for (int64_t i = 0; i < r->n; i++) r->data[i] += r->x;
}

static bool check_aligned(const SourceKernel *k, int param, uint64_t address, int alignment) {
    if (address % (uint64_t)alignment == 0) return true;
    books_violation("kernel %s: %s is at %#llx, not at a multiple of %d", k->name, k->params[param].name,
                    (unsigned long long)address, alignment);
    return false;
}

static int64_t number_of(const SourceKernel *k, const uint64_t *values, const char *name) {
    for (int i = 0; i < k->param_count; i++)
        if (strcmp(k->params[i].name, name) == 0) return (int64_t)values[i];
    return 0;
}

static bool begins(const char *name, const char *start) { return strncmp(name, start, strlen(start)) == 0; }

/* Accesses that the host allows by an argument: packs in products (`flags`, codegen/gpu/product/product_parts.h), wide
 * loads in attention (k_mode, v_mode: READ_WIDE is 2). */
static bool check_allowed(const SourceKernel *k, const uint64_t *values) {
    int64_t flags = k->pack ? number_of(k, values, "flags") : 0;
    bool good = true;
    for (int i = 0; i < k->param_count; i++) {
        const char *name = k->params[i].name;
        if (k->params[i].kind != 'p' || !values[i]) continue;
        bool first = begins(name, "a_") || begins(name, "x_"), second = begins(name, "b_") || begins(name, "w_");
        bool result = begins(name, "out_");
        if ((first && flags & 1) || (second && flags & 2) || (result && flags & 4))
            good &= check_aligned(k, i, values[i], k->pack);
        if ((begins(name, "k_arg") && number_of(k, values, "k_mode") == 2) ||
            (begins(name, "v_arg") && number_of(k, values, "v_mode") == 2))
            good &= check_aligned(k, i, values[i], 16);
    }
    return good;
}

/* The driver reads as many values as the kernel has parameters, of the kernel's own sizes: `arguments` ends with NULL,
 * by which one too few or too many is seen. */
static bool read_arguments(const SourceKernel *k, void **arguments, uint64_t *values, CuDevicePointer *touched,
                           int *count) {
    for (int i = 0; i <= k->param_count; i++)
        if (!arguments[i] != (i == k->param_count)) {
            books_violation("kernel %s has %d parameters, the launch %s", k->name, k->param_count,
                            arguments[i] ? "more" : "less");
            return false;
        }
    for (int i = 0; i < k->param_count; i++) {
        const KernelParam *p = &k->params[i];
        values[i] = 0;
        memcpy(&values[i], arguments[i], (size_t)p->size);
        if (p->kind != 'p' && p->size == 8 && memory_at(values[i]))
            books_violation("kernel %s: the number %s is an address", k->name, p->name);
        if (p->kind != 'p' || !values[i]) continue;
        if (!living_memory(values[i], 0, k->name) || !check_aligned(k, i, values[i], p->alignment)) return false;
        if (*count < MOST_TOUCHED) touched[(*count)++] = values[i];
    }
    return check_allowed(k, values);
}

CuResult cuLaunchKernel(CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CuStream stream, void **arguments,
                        void **extra) {
    ENTER_CONTEXT();
    Function *f = books_check(function, OBJECT_FUNCTION, __func__);
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    if (!f || !s) GIVE(CU_INVALID_HANDLE);
    if (!f->module->object.alive) {
        books_violation("a launch of an unloaded module");
        GIVE(CU_INVALID_HANDLE);
    }
    if (!grid_x || grid_x > INT32_MAX || grid_y != 1 || grid_z != 1 || !block_x || block_x > 1024 || block_y != 1 ||
        block_z != 1 || extra || !check_shared(f, shared_bytes))
        GIVE(CU_INVALID_VALUE);
    const SourceKernel *k = f->kernel;
    if (k->most_threads && block_x > (unsigned)k->most_threads) {
        books_violation("kernel %s is bound to %d threads, not %u", k->name, k->most_threads, block_x);
        GIVE(CU_LAUNCH_OUT_OF_RESOURCES);
    }
    DoubleLaunch l = {.grid = grid_x, .block = block_x, .count = k->param_count};
    memcpy(l.name, k->name, sizeof l.name);
    CuDevicePointer touched[MOST_TOUCHED];
    uint64_t values[KERNEL_MOST_PARAMS];
    int count = 0;
    if (!read_arguments(k, arguments, values, touched, &count)) GIVE(CU_INVALID_VALUE);
    for (int i = 0; i < k->param_count && i < (int)(sizeof l.values / sizeof *l.values); i++) l.values[i] = values[i];
    if (launch_count < MOST_LAUNCHES) launches[launch_count++] = l;
    RunningLaunch r = {.n = (int64_t)l.values[1]};
    memcpy(r.name, l.name, sizeof r.name);
    memcpy(&r.x, &l.values[2], sizeof r.x);
    if (strcmp(r.name, "add") == 0) r.data = books_memory(l.values[0], (size_t)r.n * sizeof(float), "add");
    if (strcmp(r.name, "add") == 0 && !r.data) GIVE(CU_INVALID_VALUE);
    GIVE(books_enqueue(stream, "a launch", run_launch, &r, sizeof r, touched, count, 0));
}

/* --- streams and events --- */

CuResult cuStreamCreate(CuStream *out_stream, unsigned flags) {
    ENTER_CONTEXT();
    if (flags != CU_STREAM_NONBLOCKING) books_violation("a stream that waits for the default stream");
    *out_stream = (CuStream)books_new(OBJECT_STREAM, sizeof(Stream), true);
    GIVE(CU_OK);
}

CuResult cuStreamDestroy_v2(CuStream stream) {
    ENTER_RELEASE();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    if (!s) GIVE(CU_INVALID_HANDLE);
    if (s->capture) books_violation("a stream is destroyed while it is recorded");
    run_until(s, UINT64_MAX);
    s->object.alive = false;
    GIVE(injected);
}

CuResult cuStreamSynchronize(CuStream stream) {
    ENTER_RELEASE();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    if (!s) GIVE(CU_INVALID_HANDLE);
    waits++;
    if (s->capture) {
        s->broken = true;
        GIVE(CU_CAPTURE_UNSUPPORTED);
    }
    run_until(s, UINT64_MAX);
    for (Object *o = objects; o; o = o->next)
        if (o->kind == OBJECT_POOL && ((MemoryPool *)o)->kept > ((MemoryPool *)o)->threshold)
            ((MemoryPool *)o)->kept = 0;
    GIVE(lost_code ? lost_code : injected);
}

CuResult cuStreamWaitEvent(CuStream stream, CuEvent event, unsigned flags) {
    ENTER_CONTEXT();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    Event *e = books_check(event, OBJECT_EVENT, __func__);
    if (!s || !e || flags) GIVE(CU_INVALID_HANDLE);
    if (s->capture) books_violation("a recording waits for work outside of it");
    if (!e->stream) GIVE(CU_OK);
    Op *op = op_new(OP_WAIT, "a wait");
    op->waits_for = e->stream;
    op->waits_until = e->place;
    GIVE(enqueue(s, op));
}

CuResult cuEventCreate(CuEvent *out_event, unsigned flags) {
    ENTER_CONTEXT();
    (void)flags;
    *out_event = (CuEvent)books_new(OBJECT_EVENT, sizeof(Event), true);
    GIVE(CU_OK);
}

CuResult cuEventDestroy_v2(CuEvent event) {
    ENTER_RELEASE();
    GIVE(books_release(event, OBJECT_EVENT, __func__) ? injected : CU_INVALID_HANDLE);
}

CuResult cuEventRecord(CuEvent event, CuStream stream) {
    ENTER_CONTEXT();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    Event *e = books_check(event, OBJECT_EVENT, __func__);
    if (!s || !e) GIVE(CU_INVALID_HANDLE);
    if (s->capture) books_violation("an event is recorded in a recording");
    enqueue(s, op_new(OP_MARK, "an event"));
    e->stream = s;
    e->place = s->places;
    GIVE(CU_OK);
}

CuResult cuEventSynchronize(CuEvent event) {
    ENTER_RELEASE();
    Event *e = books_check(event, OBJECT_EVENT, __func__);
    if (!e) GIVE(CU_INVALID_HANDLE);
    if (e->stream) run_until(e->stream, e->place);
    GIVE(lost_code ? lost_code : injected);
}

/* --- memory --- */

CuResult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER_CONTEXT();
    *total = (size_t)properties[DOUBLE_MEMORY];
    size_t held = memory_used + kept_by_pools();
    *free_bytes = held < *total ? *total - held : 0;
    GIVE(CU_OK);
}

static int allocate(CuDevicePointer *out_data, size_t bytes, MemoryPool *pool, Stream *s) {
    size_t total = (size_t)properties[DOUBLE_MEMORY];
    if (!bytes) return CU_INVALID_VALUE;
    if (bytes > total || memory_used + kept_by_pools() > total - bytes) return CU_OUT_OF_MEMORY;
    Memory *m = books_new(OBJECT_MEMORY, sizeof *m, true);
    m->host = aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (!m->host) abort();
    spoil(m->host, bytes, 0xcd);
    m->address = (CuDevicePointer)(uintptr_t)m->host | device_tag;
    m->bytes = bytes;
    m->pool = pool;
    if (pool) pool->used += bytes;
    memory_used += bytes;
    if (s) {
        enqueue(s, op_new(OP_MARK, "an allocation"));
        m->allocated_on = s;
        m->allocated_at = s->places;
    }
    *out_data = m->address;
    return CU_OK;
}

CuResult cuMemAlloc_v2(CuDevicePointer *data, size_t bytes) {
    ENTER_CONTEXT();
    ENTER_UNSAFE();
    GIVE(allocate(data, bytes, NULL, NULL));
}

CuResult cuMemFree_v2(CuDevicePointer data) {
    ENTER_RELEASE();
    ENTER_UNSAFE();
    Memory *m = living_memory(data, 0, __func__);
    if (!m || m->address != data) GIVE(CU_INVALID_VALUE);
    for (Object *o = objects; o; o = o->next)
        if (o->kind == OBJECT_STREAM && o->alive)
            for (const Op *op = ((Stream *)o)->queue.first; op; op = op->next)
                if (touches(op, m)) books_violation("memory is released under a stream's work");
    drop_memory(m);
    GIVE(injected);
}

CuResult cuMemAllocFromPoolAsync(CuDevicePointer *data, size_t bytes, CuMemoryPool pool, CuStream stream) {
    ENTER_CONTEXT();
    MemoryPool *p = books_check(pool, OBJECT_POOL, __func__);
    if (!p) GIVE(CU_INVALID_VALUE);
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    if (!s) GIVE(CU_INVALID_HANDLE);
    if (!properties[DOUBLE_POOLS]) GIVE(CU_NOT_SUPPORTED);
    if (s->capture) {
        books_violation("an allocation in a recording");
        GIVE(CU_NOT_SUPPORTED);
    }
    GIVE(allocate(data, bytes, p, s));
}

CuResult cuMemFreeAsync(CuDevicePointer data, CuStream stream) {
    ENTER_RELEASE();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    Memory *m = living_memory(data, 0, __func__);
    if (!s || !m || m->address != data) GIVE(CU_INVALID_VALUE);
    for (Object *o = objects; o; o = o->next) {
        Stream *other = (Stream *)o;
        if (o->kind != OBJECT_STREAM || !o->alive || other == s) continue;
        for (const Op *op = other->queue.first; op; op = op->next)
            if (touches(op, m) && !ordered_after(s, other, op->place))
                books_violation("memory is released while another stream works on it");
    }
    Op *op = op_new(OP_FREE, "a release");
    touch(op, m);
    int result = enqueue(s, op);
    if (!result) m->leaving = true;
    GIVE(result ? result : injected);
}

CuResult cuMemPoolCreate(CuMemoryPool *pool, const CuPoolProps *props) {
    ENTER();
    ENTER_UNSAFE();
    static const CuPoolProps zero;
    CuPoolProps rest = *props;
    rest.allocation_type = rest.location_type = 0;
    rest.location_id = 0;
    if (!properties[DOUBLE_POOLS]) GIVE(CU_NOT_SUPPORTED);
    if (props->allocation_type != CU_ALLOCATION_PINNED || props->location_type != CU_LOCATION_DEVICE ||
        props->location_id < 0 || props->location_id >= properties[DOUBLE_DEVICES] ||
        memcmp(&rest, &zero, sizeof zero) != 0) {
        books_violation("a pool with properties that the driver refuses");
        GIVE(CU_INVALID_VALUE);
    }
    *pool = (CuMemoryPool)books_new(OBJECT_POOL, sizeof(MemoryPool), false);
    GIVE(CU_OK);
}

/* What was allocated stays, and the driver waits with the end; nothing of ours relies on that. */
CuResult cuMemPoolDestroy(CuMemoryPool pool) {
    int injected = books_enter(CU_UNKNOWN);
    if (!lost_code) ENTER_UNSAFE();
    MemoryPool *p = books_check(pool, OBJECT_POOL, __func__);
    if (!p) GIVE(CU_INVALID_VALUE);
    if (p->used && !lost_code) books_violation("a pool is destroyed with memory in use");
    p->object.alive = false;
    GIVE(injected);
}

CuResult cuMemPoolSetAttribute(CuMemoryPool pool, CuPoolAttribute attribute, void *value) {
    ENTER();
    MemoryPool *p = books_check(pool, OBJECT_POOL, __func__);
    if (!p || attribute != CU_POOL_RELEASE_THRESHOLD) GIVE(CU_INVALID_VALUE);
    memcpy(&p->threshold, value, sizeof p->threshold);
    GIVE(CU_OK);
}

CuResult cuMemPoolGetAttribute(CuMemoryPool pool, CuPoolAttribute attribute, void *value) {
    ENTER();
    const MemoryPool *p = books_check(pool, OBJECT_POOL, __func__);
    if (!p) GIVE(CU_INVALID_VALUE);
    uint64_t result = attribute == CU_POOL_RELEASE_THRESHOLD  ? p->threshold
                      : attribute == CU_POOL_RESERVED_CURRENT ? p->used + p->kept
                                                              : p->used;
    memcpy(value, &result, sizeof result);
    GIVE(CU_OK);
}

/* It unmaps memory, which is no part of a recording. */
CuResult cuMemPoolTrimTo(CuMemoryPool pool, size_t bytes_kept) {
    ENTER();
    ENTER_UNSAFE();
    MemoryPool *p = books_check(pool, OBJECT_POOL, __func__);
    if (!p) GIVE(CU_INVALID_VALUE);
    if (p->kept > bytes_kept) p->kept = bytes_kept;
    GIVE(CU_OK);
}

CuResult cuMemHostAlloc(void **data, size_t bytes, unsigned flags) {
    ENTER_CONTEXT();
    ENTER_UNSAFE();
    (void)flags;
    Pinned *p = books_new(OBJECT_PINNED, sizeof *p, true);
    p->data = malloc(bytes);
    p->bytes = bytes;
    if (!p->data) abort();
    *data = p->data;
    GIVE(CU_OK);
}

CuResult cuMemFreeHost(void *data) {
    ENTER_RELEASE();
    ENTER_UNSAFE();
    Pinned *p = NULL;
    for (Object *o = objects; o && !p; o = o->next)
        if (o->kind == OBJECT_PINNED && o->alive && ((Pinned *)o)->data == data) p = (Pinned *)o;
    if (!p) books_violation("no such pinned memory");
    if (!p) GIVE(CU_INVALID_VALUE);
    for (Object *o = objects; o; o = o->next)
        if (o->kind == OBJECT_STREAM && o->alive)
            for (const Op *op = ((Stream *)o)->queue.first; op; op = op->next) {
                const char *to = op->to, *from = op->from;
                if ((to >= p->data && to < p->data + p->bytes) || (from >= p->data && from < p->data + p->bytes))
                    books_violation("pinned memory is released under a copy");
            }
    p->object.alive = false;
    spoil(p->data, p->bytes, 0xee);
    GIVE(injected);
}

static int copy(Stream *s, Op *op, CuDevicePointer to, CuDevicePointer from, size_t bytes, const char *what) {
    op->bytes = bytes;
    Memory *into = to ? living_memory(to, bytes, what) : NULL, *out_of = from ? living_memory(from, bytes, what) : NULL;
    if (!s || (to && !into) || (from && !out_of)) {
        op_free(op);
        return CU_INVALID_VALUE;
    }
    if (into) op->to = into->host + (to - into->address);
    if (out_of) op->from = out_of->host + (from - out_of->address);
    if (into) touch(op, into);
    if (out_of) touch(op, out_of);
    check_touched(s, op);
    return enqueue(s, op);
}

CuResult cuMemcpyHtoDAsync_v2(CuDevicePointer to, const void *from, size_t bytes, CuStream stream) {
    ENTER_CONTEXT();
    Op *op = op_new(OP_COPY_IN, "a copy to the device");
    op->from = from;
    if ((uintptr_t)from & device_tag) books_violation("a copy takes device memory for the host's");
    GIVE(copy(books_check(stream, OBJECT_STREAM, __func__), op, to, 0, bytes, op->what));
}

CuResult cuMemcpyDtoHAsync_v2(void *to, CuDevicePointer from, size_t bytes, CuStream stream) {
    ENTER_CONTEXT();
    Op *op = op_new(OP_COPY_OUT, "a copy from the device");
    op->to = to;
    if ((uintptr_t)to & device_tag) books_violation("a copy takes device memory for the host's");
    GIVE(copy(books_check(stream, OBJECT_STREAM, __func__), op, 0, from, bytes, op->what));
}

CuResult cuMemcpyDtoDAsync_v2(CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream stream) {
    ENTER_CONTEXT();
    Op *op = op_new(OP_COPY_WITHIN, "a copy inside the device");
    GIVE(copy(books_check(stream, OBJECT_STREAM, __func__), op, to, from, bytes, op->what));
}

CuResult cuMemsetD8Async(CuDevicePointer to, unsigned char value, size_t bytes, CuStream stream) {
    ENTER_CONTEXT();
    Op *op = op_new(OP_FILL, "a fill");
    op->value = value;
    GIVE(copy(books_check(stream, OBJECT_STREAM, __func__), op, to, 0, bytes, op->what));
}

/* --- recordings --- */

CuResult cuStreamBeginCapture_v2(CuStream stream, CuCaptureMode mode) {
    ENTER_CONTEXT();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    if (!s || s->capture) GIVE(CU_INVALID_VALUE);
    s->capture = books_new(OBJECT_GRAPH, sizeof *s->capture, true);
    s->broken = false;
    s->strict = mode != CU_CAPTURE_RELAXED;
    s->capturer = pthread_self();
    GIVE(CU_OK);
}

CuResult cuStreamEndCapture(CuStream stream, CuGraph *graph) {
    ENTER_RELEASE();
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    *graph = NULL;
    if (!s) GIVE(CU_INVALID_HANDLE);
    if (!s->capture) GIVE(CU_CAPTURE_UNMATCHED);
    if (s->strict && !pthread_equal(s->capturer, pthread_self())) {
        books_violation("a recording ends on another thread");
        GIVE(CU_CAPTURE_WRONG_THREAD);
    }
    Graph *g = s->capture;
    s->capture = NULL;
    if (injected || s->broken) {
        g->object.alive = false;
        GIVE(injected ? injected : CU_CAPTURE_INVALIDATED);
    }
    *graph = (CuGraph)g;
    GIVE(CU_OK);
}

CuResult cuThreadExchangeStreamCaptureMode(CuCaptureMode *mode) {
    int injected = books_enter(CU_UNKNOWN);
    CuCaptureMode before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    GIVE(injected);
}

CuResult cuGraphInstantiateWithFlags(CuGraphExec *out_exec, CuGraph graph, unsigned long long flags) {
    ENTER_CONTEXT();
    Graph *g = books_check(graph, OBJECT_GRAPH, __func__);
    if (!g || flags) GIVE(CU_INVALID_VALUE);
    Exec *e = books_new(OBJECT_EXEC, sizeof *e, true);
    for (const Op *op = g->ops.first; op; op = op->next) append(&e->ops, op_copy(op));
    *out_exec = (CuGraphExec)e;
    GIVE(CU_OK);
}

CuResult cuGraphDestroy(CuGraph graph) {
    ENTER_RELEASE();
    GIVE(books_release(graph, OBJECT_GRAPH, __func__) ? injected : CU_INVALID_HANDLE);
}

CuResult cuGraphLaunch(CuGraphExec exec, CuStream stream) {
    ENTER_CONTEXT();
    Exec *e = books_check(exec, OBJECT_EXEC, __func__);
    Stream *s = books_check(stream, OBJECT_STREAM, __func__);
    if (!e || !s) GIVE(CU_INVALID_HANDLE);
    for (const Op *op = e->ops.first; op; op = op->next) check_touched(s, op);
    /* Launches of one recording follow each other, on whatever stream. */
    for (Object *o = objects; o && e->queued; o = o->next)
        if (o->kind == OBJECT_STREAM && o->alive && (Stream *)o != s)
            for (const Op *op = ((Stream *)o)->queue.first; op; op = op->next)
                if (op->exec == e) {
                    Op *wait = op_new(OP_WAIT, "a wait");
                    wait->waits_for = (Stream *)o;
                    wait->waits_until = op->place;
                    enqueue(s, wait);
                }
    replay_count++;
    Op *op = op_new(OP_GRAPH, "a replay");
    op->exec = e;
    e->queued++;
    GIVE(enqueue(s, op));
}

/* One that is in flight ends first. */
CuResult cuGraphExecDestroy(CuGraphExec exec) {
    ENTER_RELEASE();
    GIVE(books_release(exec, OBJECT_EXEC, __func__) ? injected : CU_INVALID_HANDLE);
}
