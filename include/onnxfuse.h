/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse: runs ONNX models as fast as the machine allows.
 *
 *     OnnxfuseSession *session;
 *     OnnxfuseStatus status = onnxfuse_session_open("model.onnx", NULL, &session);
 *     if (status) { fprintf(stderr, "%s\n", onnxfuse_status_message(status)); ... }
 *     OnnxfuseValue *input, *output = NULL;
 *     int64_t dims[] = {1, 2048};
 *     onnxfuse_value_tensor(ONNXFUSE_FLOAT32, 2, dims, data, &input);      // borrows data
 *     status = onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output);
 *     const float *scores = onnxfuse_value_data(output);
 *
 * Nothing needs to be initialised. Every call that can fail returns a status: NULL on success, else a code and a
 * message that the caller frees. A session is immutable once open and may be run from several threads at once; all
 * other objects belong to one thread at a time. The library reads no environment variable but ONNXFUSE_DEBUG,
 * ONNXFUSE_VERIFY and ONNXFUSE_GENERATOR, those of the XDG cache directory, and PATH, in which it looks for a Python
 * that has CUDA's libraries.
 * docs/c-api.md goes through all of it, and says what may change from version to version.
 */
#ifndef ONNXFUSE_H
#define ONNXFUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ONNXFUSE_API __attribute__((visibility("default")))
#else
#define ONNXFUSE_API
#endif

#define ONNXFUSE_VERSION "0.1.0"
ONNXFUSE_API const char *onnxfuse_version(void);

/* --- status -------------------------------------------------------------------------------------------------- */
/* The command line's exit codes. */
typedef enum OnnxfuseCode {
    ONNXFUSE_OK = 0,
    ONNXFUSE_DIFFERENT = 1, /* outputs differ: from recorded ones (`onnxfuse test`), or by more than a policy allows */
    ONNXFUSE_USAGE = 2,     /* a wrong option, a name that the model lacks, a device that is not there */
    ONNXFUSE_UNSUPPORTED = 3, /* the model needs something that is not supported; names operator, opset and node */
    ONNXFUSE_INVALID =
        4, /* a file or input is missing, unreadable, malformed or does not fit its declared type or shape */
    ONNXFUSE_FAULT = 5,     /* anything else: out of memory, device fault */
    ONNXFUSE_CANCELLED = 6, /* the run was ended by onnxfuse_cancel */
    ONNXFUSE_DEADLINE = 7,  /* the run's time was over */
} OnnxfuseCode;

typedef struct StatusDetail *OnnxfuseStatus; /* NULL: success */
ONNXFUSE_API OnnxfuseCode onnxfuse_status_code(OnnxfuseStatus status);
ONNXFUSE_API const char *onnxfuse_status_message(OnnxfuseStatus status); /* lives as long as status */
ONNXFUSE_API void onnxfuse_status_free(OnnxfuseStatus status);           /* accepts NULL */

/* --- values -------------------------------------------------------------------------------------------------- */
/* Element types; the numbers of ONNX's TensorProto.DataType. 4-bit and 2-bit types take one byte an element. */
typedef enum OnnxfuseDType {
    ONNXFUSE_NONE = 0,
    ONNXFUSE_FLOAT32 = 1,
    ONNXFUSE_UINT8 = 2,
    ONNXFUSE_INT8 = 3,
    ONNXFUSE_UINT16 = 4,
    ONNXFUSE_INT16 = 5,
    ONNXFUSE_INT32 = 6,
    ONNXFUSE_INT64 = 7,
    ONNXFUSE_STRING = 8, /* elements are OnnxfuseString */
    ONNXFUSE_BOOL = 9,
    ONNXFUSE_FLOAT16 = 10,
    ONNXFUSE_FLOAT64 = 11,
    ONNXFUSE_UINT32 = 12,
    ONNXFUSE_UINT64 = 13,
    ONNXFUSE_COMPLEX64 = 14,
    ONNXFUSE_COMPLEX128 = 15,
    ONNXFUSE_BFLOAT16 = 16,
    ONNXFUSE_FLOAT8E4M3FN = 17,
    ONNXFUSE_FLOAT8E4M3FNUZ = 18,
    ONNXFUSE_FLOAT8E5M2 = 19,
    ONNXFUSE_FLOAT8E5M2FNUZ = 20,
    ONNXFUSE_UINT4 = 21,
    ONNXFUSE_INT4 = 22,
    ONNXFUSE_FLOAT4E2M1 = 23,
    ONNXFUSE_FLOAT8E8M0 = 24,
    ONNXFUSE_UINT2 = 25,
    ONNXFUSE_INT2 = 26,
} OnnxfuseDType;

typedef struct OnnxfuseString {
    const char *data; /* not terminated */
    size_t size;      /* bytes */
} OnnxfuseString;

typedef enum OnnxfuseKind {
    ONNXFUSE_ABSENT, /* an optional without a value */
    ONNXFUSE_TENSOR,
    ONNXFUSE_SEQUENCE,
    ONNXFUSE_MAP, /* keys, each once, and a value beside each (ai.onnx.ml: ZipMap, DictVectorizer, CastMap) */
} OnnxfuseKind;

enum { ONNXFUSE_MAX_RANK = 16 };

typedef struct OnnxfuseValue OnnxfuseValue;

/* A dense row-major tensor over the caller's memory, which must stay valid as long as the value; data NULL: over memory
 * of its own, zeroed. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_tensor(OnnxfuseDType dtype, int rank, const int64_t *dims, void *data,
                                                  OnnxfuseValue **out_value);
/* A tensor over memory of the device that the session runs on (a CUDA device pointer; see
 * onnxfuse_session_device_name), for inputs and outputs that are not to pass through the host: no copy is made for
 * them. The memory must stay valid as long as the value, and what else works on it must be done when a run begins; it
 * holds the result when the run returns. Only a session on that device takes such a value, as an input or a given
 * output; elements cannot be read through it. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_tensor_on_device(OnnxfuseDType dtype, int rank, const int64_t *dims,
                                                            void *device_data, OnnxfuseValue **out_value);
/* A sequence of the given values, which it takes over on success. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_sequence(OnnxfuseValue *const *items, int count, OnnxfuseValue **out_value);
/* A map of two tensors of rank 1 and the same length, which it takes over on success: keys (int64 or strings) in any
 * order, and at the same position each key's value (float32, float64, int64 or strings). ONNXFUSE_INVALID: lengths
 * differ, a key is there twice; ONNXFUSE_UNSUPPORTED: another element type. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_map(OnnxfuseValue *keys, OnnxfuseValue *values, OnnxfuseValue **out_value);
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_absent(OnnxfuseValue **out_value);
ONNXFUSE_API void onnxfuse_value_free(OnnxfuseValue *value); /* accepts NULL */

ONNXFUSE_API OnnxfuseKind onnxfuse_value_kind(const OnnxfuseValue *value);
ONNXFUSE_API OnnxfuseDType onnxfuse_value_dtype(const OnnxfuseValue *value); /* ONNXFUSE_NONE unless a tensor */
ONNXFUSE_API int onnxfuse_value_rank(const OnnxfuseValue *value);
ONNXFUSE_API const int64_t *onnxfuse_value_dims(const OnnxfuseValue *value);
ONNXFUSE_API int64_t
onnxfuse_value_count(const OnnxfuseValue *value); /* elements of a tensor, items of a sequence, keys of a map */
ONNXFUSE_API size_t onnxfuse_value_bytes(const OnnxfuseValue *value);
ONNXFUSE_API void *onnxfuse_value_data(const OnnxfuseValue *value);        /* NULL unless a tensor */
ONNXFUSE_API bool onnxfuse_value_is_on_device(const OnnxfuseValue *value); /* its data is not the host's to follow */
ONNXFUSE_API const OnnxfuseValue *onnxfuse_value_item(const OnnxfuseValue *sequence, int index); /* borrowed */
/* A map's keys, ascending (strings by their bytes), and its values in that order: tensors [onnxfuse_value_count],
 * borrowed; NULL of what is no map. */
ONNXFUSE_API const OnnxfuseValue *onnxfuse_value_keys(const OnnxfuseValue *map);
ONNXFUSE_API const OnnxfuseValue *onnxfuse_value_values(const OnnxfuseValue *map);
ONNXFUSE_API const char *onnxfuse_dtype_name(OnnxfuseDType dtype); /* "float32", as numpy's */
ONNXFUSE_API size_t onnxfuse_dtype_size(OnnxfuseDType dtype);      /* bytes an element in memory */
/* One element of a number or bool tensor as double (64-bit integers may be rounded); NaN of one in device memory. */
ONNXFUSE_API double onnxfuse_value_element(const OnnxfuseValue *tensor, int64_t index);

/* Reads a serialized TensorProto, SequenceProto, OptionalProto or MapProto; which one it is follows from the declared
 * kind of the input or output it is for. out_name (may be NULL) receives the message's name, owned by the value. */
typedef enum OnnxfuseProto {
    ONNXFUSE_PROTO_TENSOR,
    ONNXFUSE_PROTO_SEQUENCE, /* of tensors or maps */
    ONNXFUSE_PROTO_OPTIONAL,
    ONNXFUSE_PROTO_MAP,
} OnnxfuseProto;
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_from_proto(OnnxfuseProto proto, const void *bytes, size_t size,
                                                      OnnxfuseValue **out_value, const char **out_name);

/* Decodes a picture as ONNX's ImageDecoder does, to uint8 [height, width, channels]. JPEG, PNG, TIFF, WebP, JPEG 2000
 * (through the plug-in libonnxfuse-image.so), BMP and PNM; which one it is follows from the bytes. pixel_format: "RGB",
 * "BGR" or "Grayscale", NULL for RGB. ONNXFUSE_INVALID says why there is no picture in the bytes, ONNXFUSE_FAULT that
 * the plug-in or memory is missing, ONNXFUSE_USAGE that the pixel format does not exist. A picture of more than 2^28
 * pixels is refused before memory is taken for it. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_from_image(const void *bytes, size_t size, const char *pixel_format,
                                                      OnnxfuseValue **out_value);

/* DLPack 1.0, by which array libraries hand tensors to each other without a copy (numpy, PyTorch, CuPy; a Python
 * capsule "dltensor_versioned" holds such a structure). The layout is the protocol's. */
typedef struct OnnxfuseDlpack OnnxfuseDlpack;
struct OnnxfuseDlpack {
    struct {
        uint32_t major, minor; /* 1, 0 */
    } version;
    void *manager;                         /* the maker's own */
    void (*deleter)(OnnxfuseDlpack *self); /* frees the structure and lets its data go; may be NULL */
    uint64_t flags;                        /* bit 0: read-only; bit 1: a copy was made */
    struct {
        void *data;
        struct {
            int32_t type; /* 1: CPU, 2: CUDA, 3: pinned CUDA host memory */
            int32_t id;
        } device;
        int32_t rank;
        struct {
            uint8_t code; /* 0: int, 1: uint, 2: float, 4: bfloat, 5: complex, 6: bool, 10..14: 8-bit floats */
            uint8_t bits;
            uint16_t lanes; /* 1 */
        } dtype;
        int64_t *shape;
        int64_t *strides; /* in elements; NULL: dense, row-major */
        uint64_t byte_offset;
    } tensor;
};
/* A value over the structure's data, which it takes over on success: the deleter is called when the value is freed.
 * Host tensors that are not dense are copied; in device memory they are an error. CPU, pinned and CUDA memory. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_from_dlpack(OnnxfuseDlpack *dlpack, OnnxfuseValue **out_value);
/* A structure over the tensor's data, which takes the value over on success: its deleter frees the value. Of values in
 * device memory only those that came through DLPack tell their device. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_value_to_dlpack(OnnxfuseValue *value, OnnxfuseDlpack **out_dlpack);

/* --- options and policy -------------------------------------------------------------------------------------- */
/* An embedder's threads, for a session that is to start none. A parallel loop is one call of parallel_for, from the
 * thread that runs the session (or opens it, while kernels are compiled): it calls task(context, index) once for each
 * index in [0, count), on any threads, its own among them, in any order, and returns when all have returned; count is
 * at most `threads`. Tasks do not wait for each other, so running one after the other is allowed. A task needs 2 MiB of
 * stack and must not be unwound (exceptions, thread cancellation). Calls come from all threads that run sessions, also
 * at the same time. */
typedef struct OnnxfuseThreadPool {
    size_t size; /* sizeof(OnnxfuseThreadPool) */
    int threads; /* how many take part in a loop at most, the caller included: 1..1024 */
    void (*parallel_for)(void *user, int count, void (*task)(void *context, int index), void *context);
    void *user; /* handed to parallel_for; must be valid as long as the session */
} OnnxfuseThreadPool;

/* Zero-initialise; members override the policy's. docs/policy.md describes the policy's JSON. */
typedef struct OnnxfuseOptions {
    size_t size;             /* sizeof(OnnxfuseOptions); 0: with the members of version 0.1 */
    const char *policy_file; /* NULL: MODEL.policy.json beside the model file where there is one, else the defaults */
    const char *policy_json; /* given: used instead of any file */
    const char *device;      /* "auto", "cpu", "cuda", "opencl"; NULL: the policy's */
    int threads;             /* 0: the policy's */
    /* Called now and then while a session opens: what is being done, and how much of it is done, 0..1. May be NULL. */
    void (*progress)(void *user, const char *what, double done);
    void *progress_user;
    /* For models from memory: the bytes of the data file that an initializer's external_data names, or NULL for a file
     * in the model's folder. They must stay as they are until the call that takes these options returns. May be NULL.
     */
    const void *(*external_data)(void *user, const char *location, size_t *out_size);
    void *external_data_user;
    const OnnxfuseThreadPool
        *thread_pool; /* used instead of own threads, and of `threads`; copied. NULL: own threads */
    const struct OnnxfuseRegistry
        *registry; /* custom operators and fusions; must stay as it is until the session is closed. NULL: none */
    /* "f32", "f16", "bf16": of all floating point; in training of products. NULL: as the policy says. */
    const char *precision;
    /* JSON of some of a policy's keys, which go before those of the file or the text; what is wrong with them is told as
     * wrong with the options. NULL: none. */
    const char *overrides;
} OnnxfuseOptions;

/* --- sessions ------------------------------------------------------------------------------------------------ */
typedef struct OnnxfuseSession OnnxfuseSession;

/* options may be NULL. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_open(const char *path, const OnnxfuseOptions *options,
                                                  OnnxfuseSession **out_session);
/* The bytes are not needed after the call. folder: where external data lies; NULL: none is allowed. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_open_memory(const void *bytes, size_t size, const char *folder,
                                                         const OnnxfuseOptions *options, OnnxfuseSession **out_session);
/* Whether a model can be run, found out by importing and lowering it: nothing is compiled, no weight is copied. On
 * failure *out_node (may be NULL) is the name of the outermost node that is to blame, to be freed with onnxfuse_free;
 * NULL where it is no single node. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_check_memory(const void *bytes, size_t size, const char *folder,
                                                  const OnnxfuseOptions *options, char **out_node);
/* Whether there is an operator of that name (domain "": the standard's) in this version of its domain's operator set.
 * Some of its types or attributes may still be missing, which onnxfuse_check_memory tells. */
ONNXFUSE_API bool onnxfuse_has_operator(const char *domain, const char *name, int opset);
ONNXFUSE_API void onnxfuse_session_close(OnnxfuseSession *session); /* no run may be going on; accepts NULL */

typedef struct OnnxfuseValueInfo {
    const char *name;
    OnnxfuseProto kind;  /* tensor, sequence, optional or map */
    OnnxfuseDType dtype; /* of the tensor, of the sequence's or optional's tensors, or of a map's values */
    int rank;            /* -1: not known before a run */
    const int64_t *dims; /* [rank]; -1 where not a constant */
    const char *const
        *symbols;          /* [rank]; the expression of a dim that is no constant ("batch", "floor(s/2)"), else NULL */
    bool random;           /* an output that depends on a random operator */
    const int64_t *hinted; /* of an input: dims with the sizes of the policy's first shape hint; NULL for outputs */
    OnnxfuseDType key;     /* of a map, or of a sequence's maps: of their keys; else ONNXFUSE_NONE */
} OnnxfuseValueInfo;

ONNXFUSE_API int onnxfuse_session_input_count(const OnnxfuseSession *session);
ONNXFUSE_API int onnxfuse_session_output_count(const OnnxfuseSession *session);
ONNXFUSE_API const OnnxfuseValueInfo *onnxfuse_session_input(const OnnxfuseSession *session,
                                                             int index); /* lives as long as the session */
ONNXFUSE_API const OnnxfuseValueInfo *onnxfuse_session_output(const OnnxfuseSession *session, int index);

/* "cpu", "cuda", "opencl": where it runs; lives as long as the session. */
ONNXFUSE_API const char *onnxfuse_session_device_name(const OnnxfuseSession *session);

/* Runs the model. inputs [input_count], in the model's order; an optional input may be NULL. outputs [output_count]:
 * NULL entries receive new values, owned by the caller; an entry that is a tensor value is written in place where its
 * dtype and dims fit the result (else it is an error, ONNXFUSE_INVALID). On failure, outputs that were NULL stay NULL.
 * An output may be given memory of an input. Where the input is read for the last time by what makes the output in its place (a
 * cache of fixed room that GroupQueryAttention, TensorScatter or ScatterND add rows to, elementwise work), the same memory for
 * both, all of it, is written over and nothing is copied; else the input is copied before the run. After a failure such an
 * input's contents are undefined.
 * Thread-safe. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_run(OnnxfuseSession *session, const OnnxfuseValue *const *inputs,
                                                 OnnxfuseValue **outputs);

/* A run that can be ended. The object may be used by any number of runs, at once or one after the other, and must live
 * until the last of them has returned. */
typedef struct OnnxfuseCancel OnnxfuseCancel;
ONNXFUSE_API OnnxfuseStatus onnxfuse_cancel_create(OnnxfuseCancel **out_cancel);
/* Ends all runs that use it, those that begin later included. From any thread, or a signal handler; does not wait. */
ONNXFUSE_API void onnxfuse_cancel(OnnxfuseCancel *cancel);
/* Runs that begin from now on are not ended any more. */
ONNXFUSE_API void onnxfuse_cancel_reset(OnnxfuseCancel *cancel);
ONNXFUSE_API void onnxfuse_cancel_free(OnnxfuseCancel *cancel); /* accepts NULL */

typedef struct OnnxfuseRunOptions {
    size_t size;            /* sizeof(OnnxfuseRunOptions); 0: with the members of version 0.1 */
    OnnxfuseCancel *cancel; /* NULL: none */
    double timeout_ms;      /* milliseconds from the call's begin; 0: no deadline */
    /* Called with every value of the model that a step of the plan stores, in the order in which they are made, from
     * the thread that runs the session: fusion stays as it is, so what is fused away is not seen (with fusion off, all
     * values are). name: the value's in the model; node: the node that makes it, the most significant one where several
     * do. Values of subgraphs come once an iteration. Nothing handed over outlives the call. A status other than NULL
     * ends the run with it. May be NULL. */
    OnnxfuseStatus (*observe)(void *user, const char *name, const char *node, const OnnxfuseValue *value);
    void *observe_user;
    struct OnnxfuseState *state; /* what a session with states goes on from; NULL: its own */
} OnnxfuseRunOptions;
/* As onnxfuse_session_run; options may be NULL. A run that is cancelled or whose time is over ends with
 * ONNXFUSE_CANCELLED or ONNXFUSE_DEADLINE: on the CPU when the pieces of the step that its threads are in are done,
 * about a thirtieth of it, on a GPU when the steps that were handed to it are done. Outputs that were NULL stay NULL,
 * the contents of given ones are undefined, and the session is as before. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_run_with(OnnxfuseSession *session, const OnnxfuseValue *const *inputs,
                                                      OnnxfuseValue **outputs, const OnnxfuseRunOptions *options);

/* --- states --------------------------------------------------------------------------------------------------
 * What the policy's "state" pairs, a session keeps from run to run: such inputs are not passed, such outputs not handed out, and
 * neither is counted among the session's. A session has a state of its own, which runs use that are given none
 * (OnnxfuseRunOptions.state), and any number of independent ones beside: one a request, say. A state is used by one call at a time; one
 * that comes meanwhile is refused with ONNXFUSE_USAGE. Different states of a session may be used at the same time. */
typedef struct OnnxfuseState OnnxfuseState;

typedef struct OnnxfuseStateInfo {
    const char *input, *output; /* names in the model: the output is the input's value in the next run */
    OnnxfuseDType dtype;
    int rank;
    int axis;         /* along which it grows; -1: it does not, or is made anew by each run */
    int64_t capacity; /* most rows along the axis, as the policy says; 0: it grows as it needs to, its room doubling */
    bool in_place;    /* a run writes what is new and copies nothing */
} OnnxfuseStateInfo;

ONNXFUSE_API int onnxfuse_session_state_count(const OnnxfuseSession *session);
/* Lives as long as the session; NULL for an index that is out of range. */
ONNXFUSE_API const OnnxfuseStateInfo *onnxfuse_session_state(const OnnxfuseSession *session, int index);
/* Lives as long as the session, and is not to be freed; NULL where it has no states. */
ONNXFUSE_API OnnxfuseState *onnxfuse_session_own_state(OnnxfuseSession *session);

/* A new state: no rows in what grows, zeros in all else. It must be freed before the session is closed. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_state_create(OnnxfuseSession *session, OnnxfuseState **out_state);
/* A copy, from which both go their own ways. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_state_copy(OnnxfuseState *state, OnnxfuseState **out_copy);
/* As new; its memory stays. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_state_reset(OnnxfuseState *state);
ONNXFUSE_API void onnxfuse_state_free(OnnxfuseState *state); /* no call may use it; accepts NULL */
/* A copy of what is kept of one pair, in the model's order of axes: all room of a cache whose room is the model's to fill.
 * *out_value is NULL in a new state. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_state_get(OnnxfuseState *state, int index, OnnxfuseValue **out_value);
/* Puts a copy of the tensor in its place, which fits the input's type and declared sizes. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_state_set(OnnxfuseState *state, int index, const OnnxfuseValue *value);
ONNXFUSE_API int64_t onnxfuse_state_bytes(OnnxfuseState *state); /* of memory held; -1: in use by another call */

/* All sizes in bytes. */
typedef struct OnnxfuseStats {
    int kernels_compiled;             /* by the compiler, for this session */
    int kernels_cached;               /* found in memory or on disk */
    double compile_ms;                /* wall time in the compiler */
    int nodes;                        /* operators of the model as loaded, functions inlined, subgraphs included */
    int primitives;                   /* after lowering and simplification */
    int regions, anchors, host_steps; /* steps of the plan */
    int kernels;                      /* distinct kernels of the regions */
    int64_t weight_bytes;             /* held for constants and packed weights */
    int64_t arena_bytes;              /* planned memory of the largest run so far */
    const char *device;               /* "cpu", "cuda", "opencl" */
    int copies;                       /* steps that copy between host and device */
    int threads;                      /* that take part in a loop on the CPU */
    int64_t runs;                     /* begun so far */
    int64_t memory_bytes;             /* host memory of runs: of those going on, and kept for the next ones */
    int64_t memory_peak_bytes;        /* the most that was so far */
} OnnxfuseStats;
/* size: sizeof *out_stats, so that a program that was built with fewer members gets those. Thread-safe, also during
 * runs. */
ONNXFUSE_API void onnxfuse_session_stats(const OnnxfuseSession *session, OnnxfuseStats *out_stats, size_t size);

/* Gives back memory that is kept for coming runs: of the session (NULL: of none) and its device, to which the free memory
 * of its pool returns; and what the process keeps for all: scratch memory, and kernels that no session uses any more. The next run is slower by what it has to allocate again.
 * Thread-safe; runs that are going on keep what they use. */
ONNXFUSE_API void onnxfuse_trim(OnnxfuseSession *session);

/* Profiling: while on, every step of every run is recorded. The result is JSON in Chrome's trace event format; free
 * with onnxfuse_free. */
ONNXFUSE_API void onnxfuse_session_profile(OnnxfuseSession *session, bool on);
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_profile_json(OnnxfuseSession *session, char **out_json);
/* What the session runs, with the sizes of its latest run, as JSON: steps with their nodes, bytes moved and work, when
 * each buffer lives and where in the arena it is, kernels and their texts. Free with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_report_json(OnnxfuseSession *session, char **out_json);
/* What each step must move and compute, and how long that takes this machine at least, as JSON. inputs NULL: of the runs
 * that were profiled, with their times. Else for a run on inputs of these shapes, which is not made; their contents are
 * not looked at. The machine's limits are measured by the first call on it, for less than a second on all threads, and
 * kept in the policy's cache folder; measure_again: they are measured now. docs/c-api.md lists the members. Free with
 * onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_session_roofline_json(OnnxfuseSession *session, const OnnxfuseValue *const *inputs,
                                                           bool measure_again, char **out_json);

/* --- custom operators and fusions -------------------------------------------------------------------------------
 * An application's operator is called for its types when a session opens, and for its results when the session runs. A
 * fusion puts one operator, or one kernel that onnxfuse makes, in the place of a pattern of nodes. The built-in fusions
 * that a policy names under fusion.custom_kernels are made with the same calls (src/fusions). docs/extending.md goes
 * through it. */
typedef struct OnnxfuseRegistry OnnxfuseRegistry;
typedef struct OnnxfuseCall OnnxfuseCall; /* one node, as the functions below see it; valid during the call */
typedef const struct Dim *OnnxfuseDim;    /* a symbolic size, valid as long as the call; NULL: not known before a run */

/* An error for a callback to return; the message is copied. The caller's message names the node before it. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_error(OnnxfuseCode code, const char *message);

/* In both kinds of call. Attributes: false or NULL where the node has none of that name and type. */
ONNXFUSE_API int onnxfuse_call_input_count(const OnnxfuseCall *call);  /* with those left out in between */
ONNXFUSE_API int onnxfuse_call_output_count(const OnnxfuseCall *call); /* likewise */
ONNXFUSE_API bool onnxfuse_call_int(const OnnxfuseCall *call, const char *attribute, int64_t *out_value);
ONNXFUSE_API bool onnxfuse_call_float(const OnnxfuseCall *call, const char *attribute, double *out_value);
ONNXFUSE_API const char *onnxfuse_call_string(const OnnxfuseCall *call, const char *attribute);
ONNXFUSE_API const int64_t *onnxfuse_call_ints(const OnnxfuseCall *call, const char *attribute, int *out_count);
ONNXFUSE_API const float *onnxfuse_call_floats(const OnnxfuseCall *call, const char *attribute, int *out_count);
/* Memory until the call's results have been taken: zeroed, aligned to 64 bytes. NULL when there is none. */
ONNXFUSE_API void *onnxfuse_call_scratch(OnnxfuseCall *call, size_t bytes);
/* In infer: an input that is a constant, else NULL. In compute: the input; NULL: left out. */
ONNXFUSE_API const OnnxfuseValue *onnxfuse_call_input(const OnnxfuseCall *call, int input);

/* In infer: types in, types out. Equal sizes are equal pointers. */
ONNXFUSE_API OnnxfuseDType onnxfuse_call_input_dtype(const OnnxfuseCall *call, int input); /* NONE: left out */
ONNXFUSE_API int onnxfuse_call_input_rank(const OnnxfuseCall *call, int input); /* -1: not known, or no tensor */
ONNXFUSE_API OnnxfuseDim onnxfuse_call_input_dim(const OnnxfuseCall *call, int input, int axis); /* axis -1: the last */
ONNXFUSE_API bool onnxfuse_dim_value(OnnxfuseDim dim, int64_t *out_size); /* false: symbolic, or not known */
ONNXFUSE_API OnnxfuseDim onnxfuse_call_dim(OnnxfuseCall *call, int64_t size);
typedef enum OnnxfuseDimOperation {
    ONNXFUSE_DIM_ADD,
    ONNXFUSE_DIM_SUB,
    ONNXFUSE_DIM_MUL,
    ONNXFUSE_DIM_DIV, /* rounded down */
    ONNXFUSE_DIM_MIN,
    ONNXFUSE_DIM_MAX,
} OnnxfuseDimOperation;
/* a OPERATION b; NULL where either is. */
ONNXFUSE_API OnnxfuseDim onnxfuse_call_dim_of(OnnxfuseCall *call, OnnxfuseDimOperation operation, OnnxfuseDim a,
                                              OnnxfuseDim b);
/* rank -1: not known before a run; only custom operators can read such a value, and outputs of the model can be one. dims
 * NULL: none is known. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_call_set_type(OnnxfuseCall *call, int output, OnnxfuseDType dtype, int rank,
                                                   const OnnxfuseDim *dims);

/* In compute: memory for an output, dense and row-major, not zeroed, owned by the run; strings may point to scratch
 * memory and to inputs. *out_data is NULL where the node leaves the output out; in a fused operator that is what
 * nothing reads. dims must agree with what infer has said. Every other output must be asked for. From the thread that compute was called on. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_call_output(OnnxfuseCall *call, int output, int rank, const int64_t *dims,
                                                 void **out_data);
/* Calls task(context, index) for each index in [0, count) on the session's threads, and returns when all are done. */
ONNXFUSE_API void onnxfuse_call_parallel(OnnxfuseCall *call, int count, void (*task)(void *context, int index),
                                         void *context);

typedef struct OnnxfuseOperator {
    size_t size;        /* sizeof(OnnxfuseOperator) */
    const char *domain; /* "": the standard's */
    const char *name;
    int since, until; /* versions of the domain's operator set, inclusive; until 0: to the newest */
    bool random;      /* results are drawn: equal nodes are not merged */
    /* 1 + an input, whose memory the first output may get where nothing else reads it and the sizes are known to be the
     * same: compute then finds that out_data is the input's data. 0: never. */
    int in_place;
    /* Says the types of all outputs. NULL: they are the first input's. */
    OnnxfuseStatus (*infer)(void *user, OnnxfuseCall *call);
    /* Computes the outputs, in host memory; from any thread that runs a session, also at the same time. */
    OnnxfuseStatus (*compute)(void *user, OnnxfuseCall *call);
    void *user;
    /* The operator of the same domain in the registry that computes the gradients of the inputs, its outputs, from: the gradients of this
     * one's outputs (left out where that is no tensor of floats), its inputs, its outputs; and its attributes. NULL: a model in which gradients
     * go through it is refused. */
    const char *gradient;
} OnnxfuseOperator;

typedef enum OnnxfusePhase {
    ONNXFUSE_FORWARD = 1,
    ONNXFUSE_BACKWARD = 2,
} OnnxfusePhase; /* a policy may name one alone: "NAME.forward", "NAME.backward" */

typedef struct OnnxfuseFusion {
    size_t size;      /* sizeof(OnnxfuseFusion) */
    const char *name; /* what a policy and `onnxfuse inspect` call it */
    OnnxfusePhase phase;
    /* Patterns, NULL-terminated; the first that fits a place is taken. The inputs and outputs of all are the fused
     * operator's, in order:
     *
     *     (x, scale) -> (y, inverse) {
     *         square = Mul(x, x)
     *         mean = ReduceMean<axes=[-1]>(square)
     *         shifted = Add(mean, $epsilon)
     *         root = Sqrt(shifted)
     *         inverse = Reciprocal(root)
     *         normal = Mul(x, inverse)
     *         y = Mul(normal, scale)
     *     }
     *
     * Numbers stand for constants of that value, $NAME for any scalar constant, which the fused operator gets as a
     * float attribute. Values that something outside the pattern reads must be among its outputs: so that a forward
     * fusion offers the same saved values as the nodes it stands for, and backward can be fused by itself.
     * docs/extending.md has the whole grammar. */
    const char *const *patterns;
    /* What takes the nodes' place: this operator (domain and versions are not looked at); NULL: a kernel that onnxfuse
     * makes of the nodes themselves, alone, on every device. */
    const OnnxfuseOperator *kernel;
} OnnxfuseFusion;

/* All that is added is copied, strings included; not what user points to. A fusion is used by every session that is
 * opened with the registry, unless its policy names fusion.custom_kernels and this one is not among them. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_registry_create(OnnxfuseRegistry **out_registry);
ONNXFUSE_API OnnxfuseStatus onnxfuse_registry_add_operator(OnnxfuseRegistry *registry, const OnnxfuseOperator *op);
ONNXFUSE_API OnnxfuseStatus onnxfuse_registry_add_fusion(OnnxfuseRegistry *registry, const OnnxfuseFusion *fusion);
ONNXFUSE_API void onnxfuse_registry_free(OnnxfuseRegistry *registry); /* accepts NULL */

/* --- compiling ahead of time -------------------------------------------------------------------------------------
 * A compiled model (.ofx) holds all that opening a session comes to: the partitioned graph, weights as the kernels read
 * them, and object code. onnxfuse_session_open and onnxfuse_session_open_memory take it as they take a model; a file is
 * mapped, so that processes share its pages. It holds machine code: open only files that you would run as a program.
 * It fits the version, the kind of device and the processor that it was made for (ONNXFUSE_USAGE else, with the
 * reason); of a policy given at opening it follows threads, cache, memory limit and seed, and refuses what would need
 * another plan. */
/* Written whole or not at all. options may be NULL. *out_report (may be NULL) is JSON: bytes by part, kernels; free
 * with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_compile(const char *path, const OnnxfuseOptions *options, const char *out_path,
                                             char **out_report);
/* From memory to memory; folder as in onnxfuse_session_open_memory. Free *out_bytes with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_compile_memory(const void *bytes, size_t size, const char *folder,
                                                    const OnnxfuseOptions *options, void **out_bytes, size_t *out_size);

/* --- looking inside ------------------------------------------------------------------------------------------ */
/* What a model becomes, as text. stage: "import", the name of a pass ("lower", "simplify", ..., see
 * onnxfuse_inspect_stages) for the graph after it, "partition" for the graph of regions, "plan" for the steps,
 * "policy" for the effective policy and which nodes each of its rules and fusions touched,
 * "kernels" for the kernel IR, "llvm" and "assembly" for the CPU's compiled kernels, "source" for the text of a GPU's,
 * "summary" for counts. format: "text", or "dot" (graphs only). Free the text with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_inspect(const char *path, const OnnxfuseOptions *options, const char *stage,
                                             const char *format, char **out_text);
ONNXFUSE_API const char *const *onnxfuse_inspect_stages(void); /* NULL-terminated */
/* A line a device: name, what it is, or why it cannot be used. Free with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_devices(char **out_text);
/* What the library has handed out as text. */
ONNXFUSE_API void onnxfuse_free(void *memory);

/* --- optimizing models --- */
typedef struct OnnxfuseOptimizeOptions {
    size_t size; /* sizeof(OnnxfuseOptimizeOptions); 0: with the members of version 0.1 */
    /* Initializers of 1 KiB and more go to a file of their own, OUT_PATH.data; so they do without being asked where the
     * model would take more than 1.8 GB. */
    bool external_data;
    const char *fix_shapes; /* "NAME=1x3x224x224,NAME=...": the inputs' shapes from now on; NULL: as declared */
    const char *extract;    /* "INPUTS:OUTPUTS", names of values with commas between: the part of the model that makes
                               these    outputs from these inputs, as a model of its own; NULL: all of it */
    bool regions;      /* each region that would be one kernel becomes a function of the model, so that a viewer shows
                          what is fused and any runtime still runs it */
    int convert_opset; /* the version of the standard's operator set to write the model in; 0: as it is */
    const char *policy_file; /* of the regions; NULL: MODEL.policy.json beside the model file where there is one, else
                                the defaults */
} OnnxfuseOptimizeOptions;

/* Writes a model of the standard's operators that computes the same with fewer nodes: docs/optimize.md says what is
 * done. The files appear whole or not at all; out_path may be path. options may be NULL. *out_report (may be NULL) is
 * JSON: nodes and bytes before and after, nodes by operator; free with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_optimize(const char *path, const char *out_path,
                                              const OnnxfuseOptimizeOptions *options, char **out_report);

/* --- quantizing models --- */
typedef enum OnnxfuseQuantizeForm {
    ONNXFUSE_QUANTIZE_INT8 = 0, /* weights as int8 with a scale a channel, activations as uint8 */
    ONNXFUSE_QUANTIZE_INT4 = 1, /* weights of products as int4 with a scale a block */
    ONNXFUSE_QUANTIZE_BF16 = 2, /* weights as bfloat16 */
} OnnxfuseQuantizeForm;

typedef struct OnnxfuseQuantizeOptions {
    size_t size; /* sizeof(OnnxfuseQuantizeOptions); 0: with the members of version 0.1 */
    OnnxfuseQuantizeForm form;
    /* Recorded inputs: sets out_inputs [the session's inputs] to those of this number, 0, 1, ..., which must stay as they are until
     * the next call, or *out_there to false where there are no more. Called several times over, from 0 on again. The session
     * tells the model's inputs. int8 needs them; NULL otherwise: errors are those of the weights, not of outputs. */
    OnnxfuseStatus (*sample)(void *user, const OnnxfuseSession *session, int number, const OnnxfuseValue **out_inputs,
                             bool *out_there);
    void *sample_user;
    bool entropy;       /* ranges of activations by entropy; false: all that was seen */
    int64_t block;      /* weights that share a scale in int4, a power of two from 16 on; 0: 32 */
    double tolerance;   /* layers with a larger relative error stay as they are; 0: none does */
    bool external_data; /* as in OnnxfuseOptimizeOptions */
} OnnxfuseQuantizeOptions;

/* Writes the model with narrow weights and activations, in the standard's operators: docs/quantize.md. The files appear whole or not
 * at all; out_path may be path. options may be NULL where they need not be given. *out_report (may be NULL) is JSON: each layer with
 * its error and its bytes before and after; free with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_quantize(const char *path, const char *out_path,
                                              const OnnxfuseQuantizeOptions *options, char **out_report);

/* --- training -------------------------------------------------------------------------------------------------
 * The policy's section "training" says what is trained and how (docs/training.md). A training is used by one thread at a
 * time. */
typedef struct OnnxfuseTraining OnnxfuseTraining;

/* options may be NULL. The model's file must stay as it is until the training is closed. Weights begin as the model has
 * them. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_training_open(const char *path, const OnnxfuseOptions *options,
                                                   OnnxfuseTraining **out_training);
ONNXFUSE_API void onnxfuse_training_close(OnnxfuseTraining *training); /* accepts NULL */

/* What a step reads: the model's inputs, then what the loss compares with, where that is no value of the model. */
ONNXFUSE_API int onnxfuse_training_input_count(const OnnxfuseTraining *training);
ONNXFUSE_API const OnnxfuseValueInfo *onnxfuse_training_input(const OnnxfuseTraining *training,
                                                              int index); /* lives as long as the training */
/* Of a loss of cross entropy ("cross_entropy:LOGITS,LABELS") how many classes there are; -1: another loss, or only a step knows. */
ONNXFUSE_API int64_t onnxfuse_training_classes(const OnnxfuseTraining *training);

/* One batch: loss, gradients, and new weights once there are as many batches as an update takes (the policy's training.accumulation).
 * inputs [input_count], as onnxfuse_session_run takes them; options and out_loss may be NULL. *out_loss: of these inputs, with the weights as
 * they were. After a failure what is kept is as it was; where an update of several batches finds no memory, the next call begins with
 * it. With precision f16 an update whose gradients are not finite changes the loss's scale alone, and is no step. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_training_step(OnnxfuseTraining *training, const OnnxfuseValue *const *inputs,
                                                   const OnnxfuseRunOptions *options, double *out_loss);
ONNXFUSE_API int64_t
onnxfuse_training_steps(const OnnxfuseTraining *training); /* done so far, by those before a checkpoint too */
/* Likewise the batches: the policy's training.accumulation a step. */
ONNXFUSE_API int64_t onnxfuse_training_batches(const OnnxfuseTraining *training);
ONNXFUSE_API double onnxfuse_training_rate(const OnnxfuseTraining *training); /* learning rate of the next step */

/* What is kept from step to step: weights by their names in the model, statistics of normalisations likewise, and the
 * optimizer's states ("WEIGHT.momentum", "WEIGHT.variance", "WEIGHT.sum"), sums of gradients ("WEIGHT.gradient"). NULL or false for an index that is out of
 * range. */
ONNXFUSE_API int onnxfuse_training_tensor_count(const OnnxfuseTraining *training);
ONNXFUSE_API const char *onnxfuse_training_tensor_name(const OnnxfuseTraining *training, int index);
ONNXFUSE_API bool onnxfuse_training_tensor_is_state(const OnnxfuseTraining *training, int index);
/* Borrowed; valid until the next step or change. In the host's memory: what a device has is copied out (NULL where that fails). */
ONNXFUSE_API const OnnxfuseValue *onnxfuse_training_tensor(const OnnxfuseTraining *training, int index);
/* Copies a tensor of the same type and shape into it. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_training_set_tensor(OnnxfuseTraining *training, int index,
                                                         const OnnxfuseValue *value);

/* The model with its new weights, as a file that appears whole or not at all; path may be the model's. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_training_save_model(OnnxfuseTraining *training, const char *path);
/* All that is kept and the number of steps, likewise; and back: a training that goes on from a checkpoint of the same
 * model and policy makes the same bits as one that was never interrupted. A checkpoint that does not fit changes nothing. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_training_save_checkpoint(OnnxfuseTraining *training, const char *path);
ONNXFUSE_API OnnxfuseStatus onnxfuse_training_load_checkpoint(OnnxfuseTraining *training, const char *path);

/* The session that runs the steps, for its statistics and profile; closed with the training. */
ONNXFUSE_API OnnxfuseSession *onnxfuse_training_session(OnnxfuseTraining *training);

/* --- forward and backward apart -------------------------------------------------------------------------------
 * For hosts that own the loop. A model is opened in training mode (Dropout drops, BatchNormalization takes the batch's statistics) as two plans: one from inputs to
 * outputs, one from the outputs' gradients to those of inputs and weights, with what the second reads of the first between them. The policy's
 * training.of names what gradients are of, weights and inputs; without it all inputs of floats and all that look like weights. Any number of threads may use one
 * OnnxfusePasses at a time, and any number of forward passes may wait for their backward one. */
typedef struct OnnxfusePasses OnnxfusePasses;
typedef struct OnnxfuseSaved OnnxfuseSaved; /* what a forward pass has left for its backward pass */

/* options may be NULL. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_passes_open(const char *path, const OnnxfuseOptions *options,
                                                 OnnxfusePasses **out_passes);
ONNXFUSE_API void onnxfuse_passes_close(OnnxfusePasses *passes); /* accepts NULL; no OnnxfuseSaved of it may be left */

/* What a forward pass reads: the model's inputs, then its weights that gradients are of; and what it gives: the model's outputs.
 * NULL for an index that is out of range; all of it lives as long as the passes. */
ONNXFUSE_API int onnxfuse_passes_input_count(const OnnxfusePasses *passes);
ONNXFUSE_API const OnnxfuseValueInfo *onnxfuse_passes_input(const OnnxfusePasses *passes, int index);
ONNXFUSE_API int onnxfuse_passes_output_count(const OnnxfusePasses *passes);
ONNXFUSE_API const OnnxfuseValueInfo *onnxfuse_passes_output(const OnnxfusePasses *passes, int index);
/* The weight as the model has it, of an input that is one; NULL: it is an input of the model. Borrowed. */
ONNXFUSE_API const OnnxfuseValue *onnxfuse_passes_weight(const OnnxfusePasses *passes, int index);
/* What a backward pass gives: gradients, each of the input of this number. */
ONNXFUSE_API int onnxfuse_passes_gradient_count(const OnnxfusePasses *passes);
ONNXFUSE_API int onnxfuse_passes_gradient_of(const OnnxfusePasses *passes, int index); /* -1: out of range */

/* inputs [input_count], outputs [output_count] as onnxfuse_session_run takes and gives them; options may be NULL. Inputs are borrowed until
 * *out_saved is freed, and must not change before. out_saved may be NULL: there will be no backward pass. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_passes_forward(OnnxfusePasses *passes, const OnnxfuseValue *const *inputs,
                                                    OnnxfuseValue **outputs, const OnnxfuseRunOptions *options,
                                                    OnnxfuseSaved **out_saved);
/* output_gradients [output_count]: of each output's type and shape; NULL: zeros, or an output that is not of floats. gradients
 * [gradient_count]: each NULL, or a tensor to be written to. What is saved stays as it is: a backward pass may be repeated, and
 * at several threads at a time. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_passes_backward(const OnnxfuseSaved *saved,
                                                     const OnnxfuseValue *const *output_gradients,
                                                     OnnxfuseValue **gradients, const OnnxfuseRunOptions *options);
ONNXFUSE_API int64_t onnxfuse_saved_bytes(const OnnxfuseSaved *saved);
ONNXFUSE_API void onnxfuse_saved_free(OnnxfuseSaved *saved); /* accepts NULL; with or without a backward pass */

/* --- gradients --- */
typedef struct OnnxfuseDifferentiateOptions {
    size_t size;      /* sizeof(OnnxfuseDifferentiateOptions); 0: with the members of version 0.1 */
    const char *loss; /* what is differentiated: the name of a value of the model, "cross_entropy:LOGITS,LABELS" or
                         "mse:PREDICTION,TARGET", where LABELS or TARGET becomes an input if the model has no value of that
                         name; NULL: the only output that is a single number */
    const char *of; /* names with commas between, * and ? standing for any letters: of the floating-point constants and
                         inputs to differentiate with respect to; NULL: all constants that operators use as weights */
    bool external_data; /* as in OnnxfuseOptimizeOptions */
} OnnxfuseDifferentiateOptions;

/* Writes the model with the loss and, for each NAME that gradients are asked for, "NAME_grad" as further outputs, in the
 * standard's operators: docs/training.md. The files appear whole or not at all; out_path may be path. options may be NULL.
 * *out_report (may be NULL) is JSON: the loss's output, gradients, nodes, bytes; free with onnxfuse_free. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_differentiate(const char *path, const char *out_path,
                                                   const OnnxfuseDifferentiateOptions *options, char **out_report);

/* --- memory -------------------------------------------------------------------------------------------------- */
/* An embedder's allocator: for graphs, constants, packed weights, the memory of runs and values. Small objects
 * (handles, messages, names) and texts come from the C library, device memory from its driver; the compiler has its
 * own. Both functions are called from any thread, also at the same time. */
typedef struct OnnxfuseAllocator {
    size_t size;                                 /* sizeof(OnnxfuseAllocator) */
    void *(*allocate)(void *user, size_t bytes); /* aligned to 64 bytes, need not be zeroed; NULL: no room, which the
                                                    call that needed it reports as ONNXFUSE_FAULT */
    void (*release)(void *user, void *memory, size_t bytes); /* bytes: as allocated */
    void *user;
} OnnxfuseAllocator;
/* Of the whole process; the structure is copied. NULL: the C library's again. Only before the first session or value is
 * made, or when all are freed, else ONNXFUSE_USAGE; no other call may be going on. */
ONNXFUSE_API OnnxfuseStatus onnxfuse_set_allocator(const OnnxfuseAllocator *allocator);

/* --- logging ------------------------------------------------------------------------------------------------- */
/* level as ONNXFUSE_DEBUG (which it overrides): 0 silent, 1 passes, 2 steps, 3 kernels and graphs. sink NULL: standard
 * error. */
ONNXFUSE_API void onnxfuse_log(int level, void (*sink)(void *user, int level, const char *message), void *user);

#ifdef __cplusplus
}
#endif
#endif
