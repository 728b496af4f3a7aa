/* SPDX-License-Identifier: Apache-2.0 */
/* The part of NVIDIA's binary interfaces that onnxfuse calls: the driver (libcuda), NVRTC, cuBLASLt. Declared here
 * because the toolkit's headers are not needed to build; tests/runtime/cuda_abi.c compares every line with them where
 * they are installed.
 *
 * A line of a function list: result, field, exported symbol, parameters. Symbols carry the suffix of the interface's
 * version (_v2), which the toolkit's headers hide behind macros. All lists name functions that CUDA 11.4 has. */
#ifndef ONNXFUSE_RUNTIME_DEVICE_CUDA_API_H
#define ONNXFUSE_RUNTIME_DEVICE_CUDA_API_H

#include <stddef.h>
#include <stdint.h>

/* A program that compares with the toolkit's headers defines the types by them. */
#ifndef ONNXFUSE_CUDA_TYPES
#define ONNXFUSE_CUDA_TYPES
typedef int CuResult, CuDevice;
typedef unsigned CuDeviceAttribute, CuFunctionAttribute, CuPoolAttribute, CuCaptureMode;
typedef unsigned long long CuDevicePointer;
typedef struct CuContextOpaque *CuContext;
typedef struct CuModuleOpaque *CuModule;
typedef struct CuFunctionOpaque *CuFunction;
typedef struct CuStreamOpaque *CuStream;
typedef struct CuEventOpaque *CuEvent;
typedef struct CuGraphOpaque *CuGraph;
typedef struct CuGraphExecOpaque *CuGraphExec;
typedef struct CuMemoryPoolOpaque *CuMemoryPool;
typedef struct CuPoolProps { /* CUmemPoolProps; all else zero */
    unsigned allocation_type, handle_types, location_type;
    int location_id;
    void *security;
    size_t most_bytes; /* 0: the device's */
    unsigned char reserved[56];
} CuPoolProps;
_Static_assert(sizeof(CuPoolProps) == 88 && offsetof(CuPoolProps, location_id) == 12, "a pool's properties");

typedef unsigned NvrtcResult;
typedef struct NvrtcProgramOpaque *NvrtcProgram;

typedef unsigned LtStatus, LtComputeType, LtDataType, LtLayoutAttribute, LtDescAttribute, LtPreferenceAttribute;
typedef struct LtHandleOpaque *LtHandle;
typedef struct LtDescOpaque *LtDesc;
typedef struct LtLayoutOpaque *LtLayout;
typedef struct LtPreferenceOpaque *LtPreference;
/* Opaque to us; may be stored and used again with the same GPU and library version. */
typedef struct LtAlgo {
    uint64_t data[8];
} LtAlgo;
typedef struct LtHeuristic {
    LtAlgo algo;
    size_t workspaceSize;
    LtStatus state; /* of this result */
    float wavesCount;
    int reserved[4];
} LtHeuristic;
#endif

/* --- the driver --- */

#define CUDA_DRIVER_FUNCTIONS(X)                                                                                       \
    X(CuResult, init, cuInit, (unsigned flags))                                                                        \
    X(CuResult, driver_version, cuDriverGetVersion, (int *version))                                                    \
    X(CuResult, error_name, cuGetErrorName, (CuResult error, const char **name))                                       \
    X(CuResult, error_text, cuGetErrorString, (CuResult error, const char **text))                                     \
    X(CuResult, device_count, cuDeviceGetCount, (int *count))                                                          \
    X(CuResult, device_get, cuDeviceGet, (CuDevice * device, int ordinal))                                             \
    X(CuResult, device_name, cuDeviceGetName, (char *name, int size, CuDevice device))                                 \
    X(CuResult, device_memory, cuDeviceTotalMem_v2, (size_t * bytes, CuDevice device))                                 \
    X(CuResult, device_attribute, cuDeviceGetAttribute, (int *value, CuDeviceAttribute attribute, CuDevice device))    \
    X(CuResult, context_retain, cuDevicePrimaryCtxRetain, (CuContext * context, CuDevice device))                      \
    X(CuResult, context_release, cuDevicePrimaryCtxRelease_v2, (CuDevice device))                                      \
    X(CuResult, context_set, cuCtxSetCurrent, (CuContext context))                                                     \
    X(CuResult, context_get, cuCtxGetCurrent, (CuContext * context))                                                   \
    X(CuResult, module_load, cuModuleLoadData, (CuModule * module, const void *image))                                 \
    X(CuResult, module_unload, cuModuleUnload, (CuModule module))                                                      \
    X(CuResult, module_function, cuModuleGetFunction, (CuFunction * function, CuModule module, const char *name))      \
    X(CuResult, function_set, cuFuncSetAttribute, (CuFunction function, CuFunctionAttribute attribute, int value))     \
    X(CuResult, launch, cuLaunchKernel,                                                                                \
      (CuFunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,     \
       unsigned block_z, unsigned shared_bytes, CuStream stream, void **arguments, void **extra))                      \
    X(CuResult, stream_create, cuStreamCreate, (CuStream * stream, unsigned flags))                                    \
    X(CuResult, stream_destroy, cuStreamDestroy_v2, (CuStream stream))                                                 \
    X(CuResult, stream_synchronize, cuStreamSynchronize, (CuStream stream))                                            \
    X(CuResult, stream_wait, cuStreamWaitEvent, (CuStream stream, CuEvent event, unsigned flags))                      \
    X(CuResult, event_create, cuEventCreate, (CuEvent * event, unsigned flags))                                        \
    X(CuResult, event_destroy, cuEventDestroy_v2, (CuEvent event))                                                     \
    X(CuResult, event_record, cuEventRecord, (CuEvent event, CuStream stream))                                         \
    X(CuResult, event_synchronize, cuEventSynchronize, (CuEvent event))                                                \
    X(CuResult, memory_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                                         \
    X(CuResult, allocate, cuMemAlloc_v2, (CuDevicePointer * data, size_t bytes))                                       \
    X(CuResult, release, cuMemFree_v2, (CuDevicePointer data))                                                         \
    X(CuResult, allocate_from, cuMemAllocFromPoolAsync,                                                                \
      (CuDevicePointer * data, size_t bytes, CuMemoryPool pool, CuStream stream))                                      \
    X(CuResult, release_async, cuMemFreeAsync, (CuDevicePointer data, CuStream stream))                                \
    X(CuResult, pool_create, cuMemPoolCreate, (CuMemoryPool * pool, const CuPoolProps *props))                         \
    X(CuResult, pool_destroy, cuMemPoolDestroy, (CuMemoryPool pool))                                                   \
    X(CuResult, pool_set, cuMemPoolSetAttribute, (CuMemoryPool pool, CuPoolAttribute attribute, void *value))          \
    X(CuResult, pool_get, cuMemPoolGetAttribute, (CuMemoryPool pool, CuPoolAttribute attribute, void *value))          \
    X(CuResult, pool_trim, cuMemPoolTrimTo, (CuMemoryPool pool, size_t bytes_kept))                                    \
    X(CuResult, host_allocate, cuMemHostAlloc, (void **data, size_t bytes, unsigned flags))                            \
    X(CuResult, host_release, cuMemFreeHost, (void *data))                                                             \
    X(CuResult, copy_in, cuMemcpyHtoDAsync_v2, (CuDevicePointer to, const void *from, size_t bytes, CuStream stream))  \
    X(CuResult, copy_out, cuMemcpyDtoHAsync_v2, (void *to, CuDevicePointer from, size_t bytes, CuStream stream))       \
    X(CuResult, copy_within, cuMemcpyDtoDAsync_v2,                                                                     \
      (CuDevicePointer to, CuDevicePointer from, size_t bytes, CuStream stream))                                       \
    X(CuResult, fill, cuMemsetD8Async, (CuDevicePointer to, unsigned char value, size_t bytes, CuStream stream))       \
    X(CuResult, capture_begin, cuStreamBeginCapture_v2, (CuStream stream, CuCaptureMode mode))                         \
    X(CuResult, capture_end, cuStreamEndCapture, (CuStream stream, CuGraph * graph))                                   \
    X(CuResult, capture_mode, cuThreadExchangeStreamCaptureMode, (CuCaptureMode * mode))                               \
    X(CuResult, graph_instantiate, cuGraphInstantiateWithFlags,                                                        \
      (CuGraphExec * exec, CuGraph graph, unsigned long long flags))                                                   \
    X(CuResult, graph_destroy, cuGraphDestroy, (CuGraph graph))                                                        \
    X(CuResult, exec_launch, cuGraphLaunch, (CuGraphExec exec, CuStream stream))                                       \
    X(CuResult, exec_destroy, cuGraphExecDestroy, (CuGraphExec exec))

enum { /* CUresult; those that we tell apart */
       CU_OK = 0,
       CU_INVALID_VALUE = 1,
       CU_OUT_OF_MEMORY = 2,
       CU_DEINITIALIZED = 4,
       CU_STUB_LIBRARY = 34,
       CU_DEVICE_UNAVAILABLE = 46,
       CU_NO_DEVICE = 100,
       CU_INVALID_DEVICE = 101,
       CU_INVALID_IMAGE = 200,
       CU_INVALID_CONTEXT = 201,
       CU_NO_BINARY_FOR_GPU = 209,
       CU_ECC_UNCORRECTABLE = 214,
       CU_INVALID_PTX = 218,
       CU_JIT_COMPILER_NOT_FOUND = 221,
       CU_UNSUPPORTED_PTX_VERSION = 222,
       CU_INVALID_HANDLE = 400,
       CU_NOT_FOUND = 500,
       CU_ILLEGAL_ADDRESS = 700,
       CU_LAUNCH_OUT_OF_RESOURCES = 701,
       CU_LAUNCH_TIMEOUT = 702,
       CU_CONTEXT_IS_DESTROYED = 709,
       CU_ASSERT = 710,
       CU_HARDWARE_STACK_ERROR = 714,
       CU_ILLEGAL_INSTRUCTION = 715,
       CU_MISALIGNED_ADDRESS = 716,
       CU_INVALID_ADDRESS_SPACE = 717,
       CU_INVALID_PC = 718,
       CU_LAUNCH_FAILED = 719,
       CU_NOT_SUPPORTED = 801,
       CU_SYSTEM_NOT_READY = 802,
       CU_SYSTEM_DRIVER_MISMATCH = 803,
       CU_CAPTURE_UNSUPPORTED = 900,
       CU_CAPTURE_INVALIDATED = 901,
       CU_CAPTURE_UNMATCHED = 903,
       CU_CAPTURE_WRONG_THREAD = 908,
       CU_UNKNOWN = 999,
};

enum { /* CUdevice_attribute */
       CU_MAX_THREADS_PER_BLOCK = 1,
       CU_MAX_SHARED_MEMORY_PER_BLOCK = 8,
       CU_MULTIPROCESSOR_COUNT = 16,
       CU_CAPABILITY_MAJOR = 75,
       CU_CAPABILITY_MINOR = 76,
       CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
       CU_MEMORY_POOLS_SUPPORTED = 115,
};

enum { CU_FUNCTION_MAX_DYNAMIC_SHARED = 8 }; /* CUfunction_attribute */

enum { /* CUmemPool_attribute; values are uint64_t */
       CU_POOL_RELEASE_THRESHOLD = 4,
       CU_POOL_RESERVED_CURRENT = 5,
       CU_POOL_USED_CURRENT = 7,
};

enum { CU_ALLOCATION_PINNED = 1, CU_LOCATION_DEVICE = 1 }; /* CUmemAllocationType, CUmemLocationType */
enum { CU_STREAM_NONBLOCKING = 1, CU_EVENT_WITHOUT_TIMING = 2 };
enum { CU_CAPTURE_THREAD_LOCAL = 1, CU_CAPTURE_RELAXED = 2 }; /* CUstreamCaptureMode */

/* --- NVRTC --- */

#define CUDA_NVRTC_FUNCTIONS(X)                                                                                        \
    X(const char *, error_text, nvrtcGetErrorString, (NvrtcResult result))                                             \
    X(NvrtcResult, version, nvrtcVersion, (int *major, int *minor))                                                    \
    X(NvrtcResult, arch_count, nvrtcGetNumSupportedArchs, (int *count))                                                \
    X(NvrtcResult, archs, nvrtcGetSupportedArchs, (int *archs))                                                        \
    X(NvrtcResult, create, nvrtcCreateProgram,                                                                         \
      (NvrtcProgram * program, const char *source, const char *name, int header_count, const char *const *headers,     \
       const char *const *header_names))                                                                               \
    X(NvrtcResult, destroy, nvrtcDestroyProgram, (NvrtcProgram * program))                                             \
    X(NvrtcResult, compile, nvrtcCompileProgram, (NvrtcProgram program, int count, const char *const *options))        \
    X(NvrtcResult, cubin_size, nvrtcGetCUBINSize, (NvrtcProgram program, size_t * size))                               \
    X(NvrtcResult, cubin, nvrtcGetCUBIN, (NvrtcProgram program, char *cubin))                                          \
    X(NvrtcResult, ptx_size, nvrtcGetPTXSize, (NvrtcProgram program, size_t * size))                                   \
    X(NvrtcResult, ptx, nvrtcGetPTX, (NvrtcProgram program, char *ptx))                                                \
    X(NvrtcResult, log_size, nvrtcGetProgramLogSize, (NvrtcProgram program, size_t * size))                            \
    X(NvrtcResult, log, nvrtcGetProgramLog, (NvrtcProgram program, char *log))

enum { NVRTC_OK = 0, NVRTC_OUT_OF_MEMORY = 1, NVRTC_COMPILATION = 6, NVRTC_INTERNAL = 11 }; /* nvrtcResult */

/* --- cuBLASLt --- */

#define CUDA_BLAS_FUNCTIONS(X)                                                                                         \
    X(size_t, version, cublasLtGetVersion, (void))                                                                     \
    X(const char *, status_name, cublasLtGetStatusName, (LtStatus status))                                             \
    X(LtStatus, create, cublasLtCreate, (LtHandle * handle))                                                           \
    X(LtStatus, destroy, cublasLtDestroy, (LtHandle handle))                                                           \
    X(LtStatus, desc_create, cublasLtMatmulDescCreate, (LtDesc * desc, LtComputeType compute, LtDataType scale))       \
    X(LtStatus, desc_destroy, cublasLtMatmulDescDestroy, (LtDesc desc))                                                \
    X(LtStatus, desc_set, cublasLtMatmulDescSetAttribute,                                                              \
      (LtDesc desc, LtDescAttribute attribute, const void *value, size_t size))                                        \
    X(LtStatus, layout_create, cublasLtMatrixLayoutCreate,                                                             \
      (LtLayout * layout, LtDataType type, uint64_t rows, uint64_t columns, int64_t leading))                          \
    X(LtStatus, layout_destroy, cublasLtMatrixLayoutDestroy, (LtLayout layout))                                        \
    X(LtStatus, layout_set, cublasLtMatrixLayoutSetAttribute,                                                          \
      (LtLayout layout, LtLayoutAttribute attribute, const void *value, size_t size))                                  \
    X(LtStatus, preference_create, cublasLtMatmulPreferenceCreate, (LtPreference * preference))                        \
    X(LtStatus, preference_destroy, cublasLtMatmulPreferenceDestroy, (LtPreference preference))                        \
    X(LtStatus, preference_set, cublasLtMatmulPreferenceSetAttribute,                                                  \
      (LtPreference preference, LtPreferenceAttribute attribute, const void *value, size_t size))                      \
    X(LtStatus, heuristic, cublasLtMatmulAlgoGetHeuristic,                                                             \
      (LtHandle handle, LtDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, LtPreference preference,          \
       int requested, LtHeuristic *results, int *count))                                                               \
    X(LtStatus, check, cublasLtMatmulAlgoCheck,                                                                        \
      (LtHandle handle, LtDesc desc, LtLayout a, LtLayout b, LtLayout c, LtLayout d, const LtAlgo *algo,               \
       LtHeuristic *result))                                                                                           \
    X(LtStatus, matmul, cublasLtMatmul,                                                                                \
      (LtHandle handle, LtDesc desc, const void *alpha, const void *a, LtLayout a_layout, const void *b,               \
       LtLayout b_layout, const void *beta, const void *c, LtLayout c_layout, void *d, LtLayout d_layout,              \
       const LtAlgo *algo, void *workspace, size_t workspace_bytes, CuStream stream))

enum { /* cublasStatus_t */
       LT_OK = 0,
       LT_NOT_INITIALIZED = 1,
       LT_ALLOC_FAILED = 3,
       LT_INVALID_VALUE = 7,
       LT_ARCH_MISMATCH = 8,
       LT_EXECUTION_FAILED = 13,
       LT_INTERNAL_ERROR = 14,
       LT_NOT_SUPPORTED = 15,
};
enum { LT_F32 = 0, LT_F64 = 1, LT_F16 = 2, LT_BF16 = 14 };                   /* cudaDataType */
enum { LT_COMPUTE_F32 = 68, LT_COMPUTE_F64 = 70, LT_COMPUTE_F32_TF32 = 77 }; /* cublasComputeType_t */
enum { LT_LAYOUT_BATCH_COUNT = 5, LT_LAYOUT_BATCH_STRIDE = 6 };              /* int32_t; int64_t */
enum { LT_DESC_TRANSPOSE_A = 3, LT_DESC_TRANSPOSE_B = 4, LT_DESC_EPILOGUE = 7, LT_DESC_BIAS = 8 };
/* Of the descriptor: int32_t, int32_t (LT_KEEP, LT_TRANSPOSE), uint32_t, const void *. */
enum { LT_KEEP = 0, LT_TRANSPOSE = 1 }; /* cublasOperation_t */
enum { LT_EPILOGUE_NONE = 1, LT_EPILOGUE_RELU = 2, LT_EPILOGUE_BIAS = 4, LT_EPILOGUE_GELU = 32 }; /* bits, but for 1 */
enum { /* of the preference: uint64_t, then uint32_t each */
       LT_PREFER_WORKSPACE = 1,
       LT_PREFER_REDUCTION = 3,
       LT_PREFER_ALIGNMENT_A = 5,
       LT_PREFER_ALIGNMENT_B = 6,
       LT_PREFER_ALIGNMENT_C = 7,
       LT_PREFER_ALIGNMENT_D = 8,
};
enum { LT_REDUCTION_COMPUTE_TYPE = 2, LT_REDUCTION_ALL = 7 }; /* cublasLtReductionScheme_t, bits */

/* --- tables --- */

#define CUDA_API_FIELD(result, field, symbol, parameters) result(*field) parameters;
typedef struct CudaDriver {
    CUDA_DRIVER_FUNCTIONS(CUDA_API_FIELD)
} CudaDriver;
typedef struct CudaNvrtc {
    CUDA_NVRTC_FUNCTIONS(CUDA_API_FIELD)
} CudaNvrtc;
typedef struct CudaBlasApi {
    CUDA_BLAS_FUNCTIONS(CUDA_API_FIELD)
} CudaBlasApi;
#undef CUDA_API_FIELD

#endif
