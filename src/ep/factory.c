/* SPDX-License-Identifier: Apache-2.0 */
/* The library's two entry points, and OrtEpFactory: what the provider is called, which devices it offers, making one.
 */
#include <stdio.h>
#include <stdlib.h>

#include "ep/provider.h"

#define EXPORT __attribute__((visibility("default")))
EXPORT OrtStatus *CreateEpFactories(const char *registered_name, const OrtApiBase *base, const OrtLogger *logger,
                                    OrtEpFactory **out_factories, size_t most, size_t *out_count);
EXPORT OrtStatus *ReleaseEpFactory(OrtEpFactory *factory);

typedef struct Factory {
    OrtEpFactory base; /* first: the runtime's pointer is ours */
    Ort ort;
    const OrtLogger *logger; /* outlives the factory */
    bool logs;               /* the library's lines come here */
} Factory;

/* --- names ------------------------------------------------------------------------------------------------------- */
static const char *get_name(const OrtEpFactory *factory) {
    (void)factory;
    return EP_NAME;
}

static const char *get_vendor(const OrtEpFactory *factory) {
    (void)factory;
    return EP_VENDOR;
}

static uint32_t get_vendor_id(const OrtEpFactory *factory) {
    (void)factory;
    return 0; /* a PCI vendor's number, which software has none of */
}

static const char *get_version(const OrtEpFactory *factory) {
    (void)factory;
    return onnxfuse_version();
}

/* --- devices ----------------------------------------------------------------------------------------------------- */
static OrtStatus *get_devices(OrtEpFactory *factory, const OrtHardwareDevice *const *devices, size_t count,
                              OrtEpDevice **out_devices, size_t most, size_t *out_count) {
    Factory *f = (Factory *)factory;
    *out_count = 0;
    for (size_t i = 0; i < count && *out_count < most; i++) {
        if (ORT(&f->ort, HardwareDevice_Type)(devices[i]) != ORT_HARDWARE_CPU) continue;
        TRY(ORT_EP(&f->ort, CreateEpDevice)(factory, devices[i], NULL, NULL, &out_devices[*out_count]));
        ++*out_count;
    }
    return NULL;
}

static OrtStatus *validate(OrtEpFactory *factory, const OrtHardwareDevice *const *devices, size_t count,
                           const char *info, OrtCompatibility *out) {
    (void)factory, (void)devices, (void)count;
    *out = context_compatibility(info);
    return NULL;
}

/* --- providers --------------------------------------------------------------------------------------------------- */
/* The library's own log (ONNXFUSE_DEBUG's) is one a process. */
static void write_line(void *user, int level, const char *message) {
    Factory *f = user;
    ep_log(&f->ort, f->logger, level <= 1 ? ORT_INFO : ORT_VERBOSE, "%s", message);
}

static OrtStatus *create_ep(OrtEpFactory *factory, const OrtHardwareDevice *const *devices,
                            const OrtKeyValuePairs *const *metadata, size_t count, const OrtSessionOptions *options,
                            const OrtLogger *logger, OrtEp **out_ep) {
    Factory *f = (Factory *)factory;
    (void)devices, (void)metadata;
    *out_ep = NULL;
    if (count != 1) return ep_error(&f->ort, ORT_INVALID_ARGUMENT, "a session takes one device, not %zu", count);
    TRY(provider_create(&f->ort, options, logger, out_ep));
    int level = ((Provider *)*out_ep)->options.log_level;
    if (level >= 0) {
        onnxfuse_log(level, write_line, f);
        f->logs = true;
    }
    return NULL;
}

static void release_ep(OrtEpFactory *factory, OrtEp *ep) {
    (void)factory;
    provider_release(ep);
}

/* Memory is the processor's: the runtime's own allocators and copies do. */
static OrtStatus *create_allocator(OrtEpFactory *factory, const void *info, const OrtKeyValuePairs *options,
                                   void **out) {
    Factory *f = (Factory *)factory;
    (void)info, (void)options;
    *out = NULL;
    return ep_error(&f->ort, ORT_NOT_IMPLEMENTED, "it has no allocators of its own");
}

static void release_allocator(OrtEpFactory *factory, void *allocator) { (void)factory, (void)allocator; }

static OrtStatus *create_data_transfer(OrtEpFactory *factory, void **out) {
    (void)factory;
    *out = NULL;
    return NULL;
}

static bool is_stream_aware(const OrtEpFactory *factory) {
    (void)factory;
    return false;
}

/* --- the library's entry points ---------------------------------------------------------------------------------- */
/* A runtime that is too old still has the oldest table, in which an error can be told. */
static OrtStatus *refuse(const OrtApiBase *base) {
    const OrtApi *oldest = base->GetApi(1);
    char text[256];
    snprintf(text, sizeof text, "onnxfuse: ONNX Runtime %s is too old for this provider: it needs 1.%d or newer",
             base->GetVersionString(), ORT_API_VERSION_NEEDED);
    if (oldest) return ORT_CALL(oldest, CreateStatus)(ORT_NOT_IMPLEMENTED, text);
    fprintf(stderr, "%s\n", text);
    return NULL; /* with no factories */
}

/* N of "1.N.P". Asking for a table that is not there instead would print a complaint. */
static int minor_version(const OrtApiBase *base) {
    int minor = 0;
    return sscanf(base->GetVersionString(), "1.%d", &minor) == 1 ? minor : ORT_MINOR_WITH_SUBGRAPHS;
}

OrtStatus *CreateEpFactories(const char *registered_name, const OrtApiBase *base, const OrtLogger *logger,
                             OrtEpFactory **out_factories, size_t most, size_t *out_count) {
    (void)registered_name;
    *out_count = 0;
    const OrtApi *api = base->GetApi(ORT_API_VERSION_NEEDED);
    if (!api) return refuse(base);
    Ort ort = {api, ORT_CALL(api, GetEpApi)(), ORT_CALL(api, GetModelEditorApi)(),
               minor_version(base) < ORT_MINOR_WITH_SUBGRAPHS};
    if (!ort.ep || !ort.editor)
        return ep_error(&ort, ORT_NOT_IMPLEMENTED, "this build of ONNX Runtime lacks the interfaces of providers");
    if (most < 1) return ep_error(&ort, ORT_INVALID_ARGUMENT, "there is no room for a factory");
    Factory *f = calloc(1, sizeof *f);
    NEED(&ort, f);
    f->base = (OrtEpFactory){.version = ORT_API_VERSION_NEEDED,
                             .GetName = get_name,
                             .GetVendor = get_vendor,
                             .GetSupportedDevices = get_devices,
                             .CreateEp = create_ep,
                             .ReleaseEp = release_ep,
                             .GetVendorId = get_vendor_id,
                             .GetVersion = get_version,
                             .ValidateCompiledModelCompatibilityInfo = validate,
                             .CreateAllocator = create_allocator,
                             .ReleaseAllocator = release_allocator,
                             .CreateDataTransfer = create_data_transfer,
                             .IsStreamAware = is_stream_aware};
    f->ort = ort;
    f->logger = logger;
    out_factories[0] = &f->base;
    *out_count = 1;
    return NULL;
}

OrtStatus *ReleaseEpFactory(OrtEpFactory *factory) {
    Factory *f = (Factory *)factory;
    if (f && f->logs) onnxfuse_log(0, NULL, NULL);
    free(f);
    return NULL;
}
