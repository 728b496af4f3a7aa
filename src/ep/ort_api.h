/* SPDX-License-Identifier: Apache-2.0 */
/* The part of ONNX Runtime's C interface that an execution provider needs, told from the facts of its binary interface:
 * which slot of a function table holds which function, and the order of members in the structures that a provider
 * fills. Tables only ever grow at their end, so what is true of one version is true of all later ones. */
#ifndef ONNXFUSE_EP_ORT_API_H
#define ONNXFUSE_EP_ORT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The oldest version that has everything listed here, 1.24: its tables are asked for, and structures say so. */
enum { ORT_API_VERSION_NEEDED = 24 };
/* Before 1.27, a fused node is not given what only the subgraphs of its nodes read from outside, and nodes that are
 * fused inside two subgraphs of a model get one name. */
enum { ORT_MINOR_WITH_SUBGRAPHS = 27 };

typedef enum OrtErrorCode {
    ORT_FAIL = 1,
    ORT_INVALID_ARGUMENT = 2,
    ORT_NO_SUCHFILE = 3,
    ORT_NOT_IMPLEMENTED = 9,
    ORT_INVALID_GRAPH = 10,
    ORT_EP_FAIL = 11,
} OrtErrorCode;
typedef enum OrtLoggingLevel { ORT_VERBOSE, ORT_INFO, ORT_WARNING, ORT_ERROR, ORT_FATAL } OrtLoggingLevel;
typedef enum OrtOnnxType {
    ORT_TYPE_UNKNOWN,
    ORT_TYPE_TENSOR,
    ORT_TYPE_SEQUENCE,
    ORT_TYPE_MAP,
    ORT_TYPE_OPAQUE,
    ORT_TYPE_SPARSE_TENSOR,
    ORT_TYPE_OPTIONAL,
} OrtOnnxType;
typedef enum OrtAttrType {
    ORT_ATTR_UNDEFINED, /* also what this interface cannot hand out: types, sparse tensors, lists of tensors */
    ORT_ATTR_INT,
    ORT_ATTR_INTS,
    ORT_ATTR_FLOAT,
    ORT_ATTR_FLOATS,
    ORT_ATTR_STRING,
    ORT_ATTR_STRINGS,
    ORT_ATTR_GRAPH,
    ORT_ATTR_TENSOR,
} OrtAttrType;
typedef enum OrtHardwareDeviceType { ORT_HARDWARE_CPU, ORT_HARDWARE_GPU, ORT_HARDWARE_NPU } OrtHardwareDeviceType;
typedef enum OrtCompatibility {
    ORT_COMPATIBILITY_NOT_APPLICABLE,
    ORT_COMPATIBILITY_OPTIMAL,
    ORT_COMPATIBILITY_PREFER_RECOMPILATION,
    ORT_COMPATIBILITY_UNSUPPORTED,
} OrtCompatibility;

typedef struct OrtStatus OrtStatus;
typedef struct OrtLogger OrtLogger;
typedef struct OrtValue OrtValue;
typedef struct OrtTypeInfo OrtTypeInfo;
typedef struct OrtTensorInfo OrtTensorInfo; /* OrtTensorTypeAndShapeInfo */
typedef struct OrtValueInfo OrtValueInfo;
typedef struct OrtNode OrtNode;
typedef struct OrtGraph OrtGraph;
typedef struct OrtOpAttr OrtOpAttr;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtKeyValuePairs OrtKeyValuePairs;
typedef struct OrtHardwareDevice OrtHardwareDevice;
typedef struct OrtEpDevice OrtEpDevice;
typedef struct OrtExternalInfo OrtExternalInfo; /* OrtExternalInitializerInfo */
typedef struct OrtSupport OrtSupport;           /* OrtEpGraphSupportInfo */
typedef struct OrtComputeContext OrtComputeContext;
typedef struct OrtEpFactory OrtEpFactory;
typedef struct OrtEp OrtEp;
typedef struct OrtNodeComputeInfo OrtNodeComputeInfo;

/* Tables are arrays of functions; a slot is named by its line below and called through ORT, ORT_EP or ORT_EDITOR. */
enum { ORT_MOST_SLOTS = 512 }; /* beyond every number below */
typedef struct OrtApi {
    void (*slot[ORT_MOST_SLOTS])(void);
} OrtApi;
typedef struct OrtEpApi {
    void (*slot[ORT_MOST_SLOTS])(void);
} OrtEpApi;
typedef struct OrtEditorApi { /* OrtModelEditorApi */
    void (*slot[ORT_MOST_SLOTS])(void);
} OrtEditorApi;
typedef struct OrtApiBase {
    const OrtApi *(*GetApi)(uint32_t version); /* NULL: the runtime is older than that */
    const char *(*GetVersionString)(void);
} OrtApiBase;

/* S(table, slot, name, result, arguments). Calls that give a status give NULL on success. */
#define ORT_SLOTS(S)                                                                                                   \
    S(Api, 0, CreateStatus, OrtStatus *, (OrtErrorCode, const char *))                                                 \
    S(Api, 2, GetErrorMessage, const char *, (const OrtStatus *))                                                      \
    S(Api, 51, GetTensorMutableData, OrtStatus *, (OrtValue *, void **))                                               \
    S(Api, 53, GetStringTensorDataLength, OrtStatus *, (const OrtValue *, size_t *))                                   \
    S(Api, 54, GetStringTensorContent, OrtStatus *, (const OrtValue *, void *, size_t, size_t *, size_t))              \
    S(Api, 55, CastTypeInfoToTensorInfo, OrtStatus *, (const OrtTypeInfo *, const OrtTensorInfo **))                   \
    S(Api, 56, GetOnnxTypeFromTypeInfo, OrtStatus *, (const OrtTypeInfo *, OrtOnnxType *))                             \
    S(Api, 60, GetTensorElementType, OrtStatus *, (const OrtTensorInfo *, int *))                                      \
    S(Api, 61, GetDimensionsCount, OrtStatus *, (const OrtTensorInfo *, size_t *))                                     \
    S(Api, 62, GetDimensions, OrtStatus *, (const OrtTensorInfo *, int64_t *, size_t))                                 \
    S(Api, 63, GetSymbolicDimensions, OrtStatus *, (const OrtTensorInfo *, const char **, size_t))                     \
    S(Api, 88, KernelContext_GetInputCount, OrtStatus *, (const OrtKernelContext *, size_t *))                         \
    S(Api, 89, KernelContext_GetOutputCount, OrtStatus *, (const OrtKernelContext *, size_t *))                        \
    S(Api, 90, KernelContext_GetInput, OrtStatus *, (const OrtKernelContext *, size_t, const OrtValue **))             \
    S(Api, 91, KernelContext_GetOutput, OrtStatus *,                                                                   \
      (OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **))                                              \
    S(Api, 93, ReleaseStatus, void, (OrtStatus *))                                                                     \
    S(Api, 96, ReleaseValue, void, (OrtValue *))                                                                       \
    S(Api, 211, CreateOpAttr, OrtStatus *, (const char *, const void *, int, OrtAttrType, OrtOpAttr **))               \
    S(Api, 212, ReleaseOpAttr, void, (OrtOpAttr *))                                                                    \
    S(Api, 247, Logger_LogMessage, OrtStatus *,                                                                        \
      (const OrtLogger *, OrtLoggingLevel, const char *, const char *, int, const char *))                             \
    S(Api, 252, GetResizedStringTensorElementBuffer, OrtStatus *, (OrtValue *, size_t, size_t, char **))               \
    S(Api, 272, ReadOpAttr, OrtStatus *, (const OrtOpAttr *, OrtAttrType, void *, size_t, size_t *))                   \
    S(Api, 289, GetValueInfoName, OrtStatus *, (const OrtValueInfo *, const char **))                                  \
    S(Api, 290, GetValueInfoTypeInfo, OrtStatus *, (const OrtValueInfo *, const OrtTypeInfo **))                       \
    S(Api, 291, GetModelEditorApi, const OrtEditorApi *, (void))                                                       \
    S(Api, 298, GetKeyValuePairs, void,                                                                                \
      (const OrtKeyValuePairs *, const char *const **, const char *const **, size_t *))                                \
    S(Api, 300, ReleaseKeyValuePairs, void, (OrtKeyValuePairs *))                                                      \
    S(Api, 307, HardwareDevice_Type, OrtHardwareDeviceType, (const OrtHardwareDevice *))                               \
    S(Api, 317, GetEpApi, const OrtEpApi *, (void))                                                                    \
    S(Api, 318, GetTensorSizeInBytes, OrtStatus *, (const OrtValue *, size_t *))                                       \
    S(Api, 326, ValueInfo_GetInitializerValue, OrtStatus *, (const OrtValueInfo *, const OrtValue **))                 \
    S(Api, 327, ValueInfo_GetExternalInitializerInfo, OrtStatus *, (const OrtValueInfo *, OrtExternalInfo **))         \
    S(Api, 330, ValueInfo_IsGraphOutput, OrtStatus *, (const OrtValueInfo *, bool *))                                  \
    S(Api, 331, ValueInfo_IsConstantInitializer, OrtStatus *, (const OrtValueInfo *, bool *))                          \
    S(Api, 333, Graph_GetName, OrtStatus *, (const OrtGraph *, const char **))                                         \
    S(Api, 334, Graph_GetModelPath, OrtStatus *, (const OrtGraph *, const char **))                                    \
    S(Api, 335, Graph_GetOnnxIRVersion, OrtStatus *, (const OrtGraph *, int64_t *))                                    \
    S(Api, 336, Graph_GetNumOperatorSets, OrtStatus *, (const OrtGraph *, size_t *))                                   \
    S(Api, 337, Graph_GetOperatorSets, OrtStatus *, (const OrtGraph *, const char **, int64_t *, size_t))              \
    S(Api, 338, Graph_GetNumInputs, OrtStatus *, (const OrtGraph *, size_t *))                                         \
    S(Api, 339, Graph_GetInputs, OrtStatus *, (const OrtGraph *, const OrtValueInfo **, size_t))                       \
    S(Api, 340, Graph_GetNumOutputs, OrtStatus *, (const OrtGraph *, size_t *))                                        \
    S(Api, 341, Graph_GetOutputs, OrtStatus *, (const OrtGraph *, const OrtValueInfo **, size_t))                      \
    S(Api, 342, Graph_GetNumInitializers, OrtStatus *, (const OrtGraph *, size_t *))                                   \
    S(Api, 343, Graph_GetInitializers, OrtStatus *, (const OrtGraph *, const OrtValueInfo **, size_t))                 \
    S(Api, 344, Graph_GetNumNodes, OrtStatus *, (const OrtGraph *, size_t *))                                          \
    S(Api, 345, Graph_GetNodes, OrtStatus *, (const OrtGraph *, const OrtNode **, size_t))                             \
    S(Api, 346, Graph_GetParentNode, OrtStatus *, (const OrtGraph *, const OrtNode **))                                \
    S(Api, 349, Node_GetName, OrtStatus *, (const OrtNode *, const char **))                                           \
    S(Api, 350, Node_GetOperatorType, OrtStatus *, (const OrtNode *, const char **))                                   \
    S(Api, 351, Node_GetDomain, OrtStatus *, (const OrtNode *, const char **))                                         \
    S(Api, 353, Node_GetNumInputs, OrtStatus *, (const OrtNode *, size_t *))                                           \
    S(Api, 354, Node_GetInputs, OrtStatus *, (const OrtNode *, const OrtValueInfo **, size_t))                         \
    S(Api, 355, Node_GetNumOutputs, OrtStatus *, (const OrtNode *, size_t *))                                          \
    S(Api, 356, Node_GetOutputs, OrtStatus *, (const OrtNode *, const OrtValueInfo **, size_t))                        \
    S(Api, 357, Node_GetNumImplicitInputs, OrtStatus *, (const OrtNode *, size_t *))                                   \
    S(Api, 358, Node_GetImplicitInputs, OrtStatus *, (const OrtNode *, const OrtValueInfo **, size_t))                 \
    S(Api, 359, Node_GetNumAttributes, OrtStatus *, (const OrtNode *, size_t *))                                       \
    S(Api, 360, Node_GetAttributes, OrtStatus *, (const OrtNode *, const OrtOpAttr **, size_t))                        \
    S(Api, 361, Node_GetAttributeByName, OrtStatus *, (const OrtNode *, const char *, const OrtOpAttr **))             \
    S(Api, 362, OpAttr_GetTensorAttributeAsOrtValue, OrtStatus *, (const OrtOpAttr *, OrtValue **))                    \
    S(Api, 363, OpAttr_GetType, OrtStatus *, (const OrtOpAttr *, OrtAttrType *))                                       \
    S(Api, 364, OpAttr_GetName, OrtStatus *, (const OrtOpAttr *, const char **))                                       \
    S(Api, 365, Node_GetNumSubgraphs, OrtStatus *, (const OrtNode *, size_t *))                                        \
    S(Api, 366, Node_GetSubgraphs, OrtStatus *, (const OrtNode *, const OrtGraph **, size_t, const char **))           \
    S(Api, 367, Node_GetGraph, OrtStatus *, (const OrtNode *, const OrtGraph **))                                      \
    S(Api, 368, Node_GetEpName, OrtStatus *, (const OrtNode *, const char **))                                         \
    S(Api, 369, ReleaseExternalInitializerInfo, void, (OrtExternalInfo *))                                             \
    S(Api, 370, ExternalInitializerInfo_GetFilePath, const char *, (const OrtExternalInfo *))                          \
    S(Api, 371, ExternalInitializerInfo_GetFileOffset, int64_t, (const OrtExternalInfo *))                             \
    S(Api, 372, ExternalInitializerInfo_GetByteSize, size_t, (const OrtExternalInfo *))                                \
    S(Api, 378, GetTensorData, OrtStatus *, (const OrtValue *, const void **))                                         \
    S(Api, 379, GetSessionOptionsConfigEntries, OrtStatus *, (const OrtSessionOptions *, OrtKeyValuePairs **))         \
    S(Api, 390, TensorTypeAndShape_HasShape, bool, (const OrtTensorInfo *))                                            \
    S(Api, 414, GetTensorElementTypeAndShapeDataReference, OrtStatus *,                                                \
      (const OrtValue *, int *, const int64_t **, size_t *))                                                           \
    S(EpApi, 0, CreateEpDevice, OrtStatus *,                                                                           \
      (OrtEpFactory *, const OrtHardwareDevice *, const OrtKeyValuePairs *, const OrtKeyValuePairs *, OrtEpDevice **)) \
    S(EpApi, 2, EpGraphSupportInfo_AddNodesToFuse, OrtStatus *,                                                        \
      (OrtSupport *, const OrtNode *const *, size_t, const struct OrtNodeFusionOptions *))                             \
    S(EditorApi, 6, CreateNode, OrtStatus *,                                                                           \
      (const char *, const char *, const char *, const char *const *, size_t, const char *const *, size_t,             \
       OrtOpAttr **, size_t, OrtNode **))

struct OrtNodeFusionOptions;
enum {
#define ORT_SLOT_NUMBER(table, number, name, result, arguments) ORT_SLOT_##name = number,
    ORT_SLOTS(ORT_SLOT_NUMBER)
};
#define ORT_SLOT_TYPE(table, number, name, result, arguments) typedef result(*ort_##name##_fn) arguments;
ORT_SLOTS(ORT_SLOT_TYPE)

/* The tables of one runtime. */
typedef struct Ort {
    const OrtApi *api;
    const OrtEpApi *ep;
    const OrtEditorApi *editor;
    bool weak_subgraphs; /* older than ORT_MINOR_WITH_SUBGRAPHS */
} Ort;

#define ORT_CALL(table, name) ((ort_##name##_fn)(table)->slot[ORT_SLOT_##name])
#define ORT(ort, name) ORT_CALL((ort)->api, name)
#define ORT_EP(ort, name) ORT_CALL((ort)->ep, name)
#define ORT_EDITOR(ort, name) ORT_CALL((ort)->editor, name)

/* --- what a provider fills; members as of ORT_API_VERSION_NEEDED, NULL where it has nothing to say --------------- */
typedef void (*OrtUnused)(void);

struct OrtEpFactory {
    uint32_t version; /* ORT_API_VERSION_NEEDED, as in all structures: the runtime looks at no later members */
    const char *(*GetName)(const OrtEpFactory *);
    const char *(*GetVendor)(const OrtEpFactory *);
    OrtStatus *(*GetSupportedDevices)(OrtEpFactory *, const OrtHardwareDevice *const *devices, size_t count,
                                      OrtEpDevice **out_devices, size_t most, size_t *out_count);
    OrtStatus *(*CreateEp)(OrtEpFactory *, const OrtHardwareDevice *const *devices,
                           const OrtKeyValuePairs *const *metadata, size_t count, const OrtSessionOptions *options,
                           const OrtLogger *logger, OrtEp **out_ep);
    void (*ReleaseEp)(OrtEpFactory *, OrtEp *);
    uint32_t (*GetVendorId)(const OrtEpFactory *);
    const char *(*GetVersion)(const OrtEpFactory *);
    OrtStatus *(*ValidateCompiledModelCompatibilityInfo)(OrtEpFactory *, const OrtHardwareDevice *const *devices,
                                                         size_t count, const char *info, OrtCompatibility *out);
    OrtStatus *(*CreateAllocator)(OrtEpFactory *, const void *memory_info, const OrtKeyValuePairs *, void **out);
    void (*ReleaseAllocator)(OrtEpFactory *, void *allocator);
    OrtStatus *(*CreateDataTransfer)(OrtEpFactory *, void **out);
    bool (*IsStreamAware)(const OrtEpFactory *);
    OrtUnused CreateSyncStreamForDevice, GetHardwareDeviceIncompatibilityDetails,
        CreateExternalResourceImporterForDevice, GetNumCustomOpDomains, GetCustomOpDomains;
};

struct OrtEp {
    uint32_t version;
    const char *(*GetName)(const OrtEp *);
    OrtStatus *(*GetCapability)(OrtEp *, const OrtGraph *, OrtSupport *);
    OrtStatus *(*Compile)(OrtEp *, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                          OrtNodeComputeInfo **out_infos, OrtNode **out_context_nodes);
    void (*ReleaseNodeComputeInfos)(OrtEp *, OrtNodeComputeInfo **infos, size_t count);
    OrtUnused GetPreferredDataLayout, ShouldConvertDataLayoutForOp, SetDynamicOptions, OnRunStart, OnRunEnd,
        CreateAllocator, CreateSyncStreamForDevice;
    const char *(*GetCompiledModelCompatibilityInfo)(OrtEp *, const OrtGraph *);
    OrtUnused GetKernelRegistry;
    OrtStatus *(*IsConcurrentRunSupported)(OrtEp *, bool *out);
};

struct OrtNodeComputeInfo {
    uint32_t version;
    OrtStatus *(*CreateState)(OrtNodeComputeInfo *, OrtComputeContext *, void **out_state);
    OrtStatus *(*Compute)(OrtNodeComputeInfo *, void *state, OrtKernelContext *);
    void (*ReleaseState)(OrtNodeComputeInfo *, void *state);
};

typedef struct OrtNodeFusionOptions {
    uint32_t version;
    bool drop_constant_initializers; /* the provider keeps what it needs of them */
} OrtNodeFusionOptions;

#endif
