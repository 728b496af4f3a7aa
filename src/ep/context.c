/* SPDX-License-Identifier: Apache-2.0 */
/* EPContext models: graphs whose parts stand as nodes com.microsoft.EPContext with what the provider needs to load them
 * without the original model. Ours hold the part as a compiled model (docs/compile.md) in the node itself (embed_mode
 * 1) or in a file beside the model (0), which is mapped. Older ones hold ONNX, which is read as ever. `notes` tells a
 * payload that was exchanged or cut short from ours: a checksum, of ONNX the whole, of a compiled model its first page,
 * which has the checksums of the rest. */
#include "ep/provider.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EMBED_LIMIT = 1 << 30 }; /* bytes: a model file ends at 2 GiB */

static const char compiled_magic[] = "\x93OFX";
enum { MAGIC = sizeof compiled_magic - 1, FIRST_PAGE = 4096 };

/* "onnxfuse 0.1.0 PROCESSOR": what a compiled model fits. The processor's kind is what `onnxfuse devices` begins with.
 */
static struct {
    pthread_once_t made;
    char text[128];
} version = {.made = PTHREAD_ONCE_INIT};

static void make_version(void) {
    char *devices = NULL, kind[64] = "unknown";
    onnxfuse_status_free(onnxfuse_devices(&devices));
    if (devices && strncmp(devices, "cpu", 3) == 0) sscanf(devices + 3, " %63[^, \n]", kind);
    onnxfuse_free(devices);
    snprintf(version.text, sizeof version.text, EP_VENDOR " " ONNXFUSE_VERSION " %s", kind);
}

const char *context_version(void) {
    pthread_once(&version.made, make_version);
    return version.text;
}

/* A payload of before (two words) is ONNX, which any version reads; a compiled model fits its own version and processor
 * alone. */
OrtCompatibility context_compatibility(const char *other) {
    if (!other || strncmp(other, EP_VENDOR " ", sizeof EP_VENDOR) != 0) return ORT_COMPATIBILITY_UNSUPPORTED;
    if (strcmp(other, context_version()) == 0) return ORT_COMPATIBILITY_OPTIMAL;
    bool compiled = strchr(other + sizeof EP_VENDOR, ' ') != NULL;
    return compiled ? ORT_COMPATIBILITY_UNSUPPORTED : ORT_COMPATIBILITY_PREFER_RECOMPILATION;
}

static bool is_compiled(const void *bytes, size_t size) {
    return size >= MAGIC && memcmp(bytes, compiled_magic, MAGIC) == 0;
}

/* FNV-1a. */
static uint64_t checksum(const void *bytes, size_t size) {
    uint64_t hash = 14695981039346656037u;
    if (is_compiled(bytes, size) && size > FIRST_PAGE) size = FIRST_PAGE;
    for (size_t i = 0; i < size; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return hash;
}

/* --- reading ----------------------------------------------------------------------------------------------------- */
typedef struct Text {
    char *bytes; /* NULL: there is no such attribute; ended by a zero that is not counted */
    size_t size;
} Text;

static OrtStatus *text_attribute(const Ort *ort, Scratch *scratch, const OrtNode *node, const char *name,
                                 Text *out_text) {
    const OrtOpAttr *attr = NULL;
    *out_text = (Text){NULL, 0};
    OrtStatus *status = ORT(ort, Node_GetAttributeByName)(node, name, &attr);
    if (status) ORT(ort, ReleaseStatus)(status); /* not there */
    if (!attr) return NULL;
    char probe[16];
    size_t size = 0;
    status = ORT(ort, ReadOpAttr)(attr, ORT_ATTR_STRING, probe, 0, &size);
    if (status) ORT(ort, ReleaseStatus)(status); /* says the size needed */
    char *bytes = scratch_alloc(scratch, size + 1);
    NEED(ort, bytes);
    TRY(ORT(ort, ReadOpAttr)(attr, ORT_ATTR_STRING, bytes, size, &size));
    bytes[size] = 0;
    *out_text = (Text){bytes, size};
    return NULL;
}

static OrtStatus *int_attribute(const Ort *ort, const OrtNode *node, const char *name, int64_t otherwise,
                                int64_t *out) {
    const OrtOpAttr *attr = NULL;
    size_t size;
    *out = otherwise;
    OrtStatus *status = ORT(ort, Node_GetAttributeByName)(node, name, &attr);
    if (status) ORT(ort, ReleaseStatus)(status);
    return attr ? ORT(ort, ReadOpAttr)(attr, ORT_ATTR_INT, out, sizeof *out, &size) : NULL;
}

OrtStatus *context_is_ours(const Ort *ort, Scratch *scratch, const ViewNode *node, bool *out_ours) {
    *out_ours = strcmp(node->op, "EPContext") == 0 && strcmp(node->domain, "com.microsoft") == 0;
    if (!*out_ours) return NULL;
    Text source;
    TRY(text_attribute(ort, scratch, node->node, "source", &source));
    *out_ours = source.bytes && strcmp(source.bytes, EP_NAME) == 0;
    return NULL;
}

/* Of a compiled model its first page: the rest is mapped. */
static OrtStatus *read_file(const Ort *ort, const char *path, Text *out_text) {
    char begin[MAGIC];
    FILE *file = fopen(path, "rb");
    if (!file) return ep_error(ort, ORT_NO_SUCHFILE, "%s: %s", path, strerror(errno));
    bool compiled = fread(begin, 1, MAGIC, file) == MAGIC && is_compiled(begin, MAGIC);
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (compiled && size > FIRST_PAGE) size = FIRST_PAGE;
    char *bytes = size >= 0 ? malloc((size_t)size + 1) : NULL;
    bool good = bytes && fseek(file, 0, SEEK_SET) == 0 && fread(bytes, 1, (size_t)size, file) == (size_t)size;
    fclose(file);
    if (!good) {
        free(bytes);
        return ep_error(ort, ORT_FAIL, "%s: cannot be read", path);
    }
    *out_text = (Text){bytes, (size_t)size};
    return NULL;
}

/* The folder of the model that the runtime loads; for one from memory, the folder that the options name. */
static const char *context_folder(Provider *p, const GraphView *view, Scratch *scratch) {
    if (view->folder) return view->folder;
    const char *slash = strrchr(p->options.context.path, '/');
    return slash ? scratch_format(scratch, "%.*s", (int)(slash - p->options.context.path), p->options.context.path)
                 : ".";
}

/* path: of the file whose beginning the payload is, if it is compiled; NULL: the payload is all there is. */
static OrtStatus *open_payload(Provider *p, const ViewNode *node, Scratch *scratch, const Text *payload,
                               const char *path, OnnxfuseSession **out_session) {
    Text notes;
    char expected[32];
    TRY(text_attribute(&p->ort, scratch, node->node, "notes", &notes));
    snprintf(expected, sizeof expected, "%016llx", (unsigned long long)checksum(payload->bytes, payload->size));
    if (notes.bytes && strcmp(notes.bytes, expected) != 0)
        return ep_error(&p->ort, ORT_INVALID_GRAPH, "EPContext node \"%s\": its data is not what was written for it",
                        node->name);
    bool mapped = path && is_compiled(payload->bytes, payload->size);
    return ep_status(
        &p->ort, node->name,
        mapped ? onnxfuse_session_open(path, &p->options.session, out_session)
               : onnxfuse_session_open_memory(payload->bytes, payload->size, NULL, &p->options.session, out_session));
}

OrtStatus *context_open(Provider *p, const GraphView *view, const ViewNode *node, OnnxfuseSession **out_session) {
    const Ort *ort = &p->ort;
    Text payload;
    int64_t embedded;
    TRY(text_attribute(ort, view->scratch, node->node, "ep_cache_context", &payload));
    TRY(int_attribute(ort, node->node, "embed_mode", 1, &embedded));
    if (!payload.bytes) return ep_error(ort, ORT_INVALID_GRAPH, "EPContext node \"%s\" holds nothing", node->name);
    if (embedded) return open_payload(p, node, view->scratch, &payload, NULL, out_session);
    if (*payload.bytes == '/' || strstr(payload.bytes, ".."))
        return ep_error(ort, ORT_INVALID_GRAPH, "EPContext node \"%s\": its file \"%s\" is not beside the model",
                        node->name, payload.bytes);
    const char *folder = context_folder(p, view, view->scratch);
    char *path = folder ? scratch_format(view->scratch, "%s/%s", folder, payload.bytes) : NULL;
    NEED(ort, path);
    TRY(read_file(ort, path, &payload));
    OrtStatus *status = open_payload(p, node, view->scratch, &payload, path, out_session);
    free(payload.bytes);
    return status;
}

/* --- writing ----------------------------------------------------------------------------------------------------- */
/* The path of the EPContext model without ".onnx": what the options say, else NAME_ctx beside the original. */
static OrtStatus *model_stem(Provider *p, const GraphView *view, char **out_stem) {
    const char *given = p->options.context.path, *path = given, *suffix = "";
    if (!*given) {
        TRY(ORT(&p->ort, Graph_GetModelPath)(view->graph, &path));
        if (!path || !*path)
            return ep_error(&p->ort, ORT_INVALID_ARGUMENT,
                            "the model has no file: ep.context_file_path must say where compiled models go");
        suffix = "_ctx";
    }
    size_t length = strlen(path);
    if (length > 5 && strcmp(path + length - 5, ".onnx") == 0) length -= 5;
    *out_stem = scratch_format(view->scratch, "%.*s%s", (int)length, path, suffix);
    NEED(&p->ort, *out_stem);
    return NULL;
}

static OrtStatus *write_file(const Ort *ort, const char *path, const Text *payload) {
    FILE *file = fopen(path, "wb");
    if (!file) return ep_error(ort, ORT_FAIL, "%s: %s", path, strerror(errno));
    bool good = fwrite(payload->bytes, 1, payload->size, file) == payload->size;
    good &= fclose(file) == 0;
    return good ? NULL : ep_error(ort, ORT_FAIL, "%s: cannot be written: %s", path, strerror(errno));
}

/* Names the file by what is in it, apart from its folder. */
static OrtStatus *write_beside(Provider *p, const GraphView *view, const Text *payload, const char **out_name) {
    char *stem;
    TRY(model_stem(p, view, &stem));
    char *path = scratch_format(view->scratch, "%s_onnxfuse_%d.ofx", stem, p->contexts);
    NEED(&p->ort, path);
    const char *slash = strrchr(path, '/');
    *out_name = slash ? slash + 1 : path;
    return write_file(&p->ort, path, payload);
}

enum { MOST_ATTRIBUTES = 8 };

typedef struct Attributes {
    const Ort *ort;
    OrtOpAttr *items[MOST_ATTRIBUTES];
    size_t count;
} Attributes;

static OrtStatus *add_text(Attributes *a, const char *name, const void *bytes, size_t size) {
    OrtStatus *status = ORT(a->ort, CreateOpAttr)(name, bytes, (int)size, ORT_ATTR_STRING, &a->items[a->count]);
    if (!status) a->count++;
    return status;
}

static OrtStatus *add_int(Attributes *a, const char *name, int64_t number) {
    OrtStatus *status = ORT(a->ort, CreateOpAttr)(name, &number, 1, ORT_ATTR_INT, &a->items[a->count]);
    if (!status) a->count++;
    return status;
}

static OrtStatus *fill_attributes(Provider *p, const GraphView *view, const char *name, const Text *payload,
                                  Attributes *a) {
    char notes[32];
    snprintf(notes, sizeof notes, "%016llx", (unsigned long long)checksum(payload->bytes, payload->size));
    const void *context = payload->bytes;
    size_t size = payload->size;
    if (!p->options.context.embed) {
        const char *file;
        TRY(write_beside(p, view, payload, &file));
        context = file;
        size = strlen(file);
    } else if (size > EMBED_LIMIT) {
        return ep_error(&p->ort, ORT_INVALID_ARGUMENT,
                        "%s: %zu bytes are too many for a node; set ep.context_embed_mode to 0", name, size);
    }
    TRY(add_int(a, "main_context", 1));
    TRY(add_int(a, "embed_mode", p->options.context.embed));
    TRY(add_text(a, "ep_cache_context", context, size));
    TRY(add_text(a, "ep_sdk_version", context_version(), strlen(context_version())));
    TRY(add_text(a, "partition_name", name, strlen(name)));
    TRY(add_text(a, "source", EP_NAME, strlen(EP_NAME)));
    return add_text(a, "notes", notes, strlen(notes));
}

typedef OrtStatus *(*CountFn)(const OrtNode *, size_t *);
typedef OrtStatus *(*ListFn)(const OrtNode *, const OrtValueInfo **, size_t);

static OrtStatus *list_names(const Ort *ort, Scratch *scratch, const OrtNode *node, CountFn get_count, ListFn get_list,
                             const char ***out_names, size_t *out_count) {
    TRY(get_count(node, out_count));
    const OrtValueInfo **infos = SCRATCH_ARRAY(scratch, const OrtValueInfo *, *out_count);
    *out_names = SCRATCH_ARRAY(scratch, const char *, *out_count);
    NEED(ort, infos && *out_names);
    if (*out_count) TRY(get_list(node, infos, *out_count));
    for (size_t i = 0; i < *out_count; i++) {
        (*out_names)[i] = "";
        if (infos[i]) TRY(ORT(ort, GetValueInfoName)(infos[i], &(*out_names)[i]));
    }
    return NULL;
}

OrtStatus *context_compile(Provider *p, const char *name, const Wire *model, Wire *out_compiled) {
    void *bytes = NULL;
    size_t size = 0;
    TRY(ep_status(&p->ort, name,
                  onnxfuse_compile_memory(model->bytes, model->size, NULL, &p->options.session, &bytes, &size)));
    *out_compiled = (Wire){.bytes = bytes, .size = size};
    return NULL;
}

OrtStatus *context_make(Provider *p, const GraphView *view, const OrtNode *fused, const Wire *compiled,
                        OrtNode **out_node) {
    const Ort *ort = &p->ort;
    const char *fused_name, **inputs, **outputs;
    size_t input_count, output_count;
    TRY(ORT(ort, Node_GetName)(fused, &fused_name));
    char *name = scratch_format(view->scratch, "%s%s", p->options.context.prefix, fused_name);
    NEED(ort, name);
    TRY(list_names(ort, view->scratch, fused, ORT(ort, Node_GetNumInputs), ORT(ort, Node_GetInputs), &inputs,
                   &input_count));
    TRY(list_names(ort, view->scratch, fused, ORT(ort, Node_GetNumOutputs), ORT(ort, Node_GetOutputs), &outputs,
                   &output_count));
    Attributes attributes = {.ort = ort};
    Text payload = {(char *)compiled->bytes, compiled->size};
    OrtStatus *status = fill_attributes(p, view, name, &payload, &attributes);
    if (!status) /* copies the attributes */
        status = ORT_EDITOR(ort, CreateNode)("EPContext", "com.microsoft", name, inputs, input_count, outputs,
                                             output_count, attributes.items, attributes.count, out_node);
    for (size_t i = 0; i < attributes.count; i++) ORT(ort, ReleaseOpAttr)(attributes.items[i]);
    p->contexts++;
    return status;
}
