/* SPDX-License-Identifier: Apache-2.0 */
/* The provider's objects. */
#ifndef ONNXFUSE_EP_PROVIDER_H
#define ONNXFUSE_EP_PROVIDER_H

#include "ep/graph_view.h"
#include "ep/model.h"
#include "ep/options.h"

/* Behind OrtEp: one a session of the runtime. */
typedef struct Provider {
    OrtEp base; /* first: the runtime's pointer is ours */
    Ort ort;
    const OrtLogger *logger; /* lives as long as the provider */
    EpOptions options;
    int contexts; /* EPContext nodes made, for the names of their files */
} Provider;

OrtStatus *provider_create(const Ort *ort, const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **out_ep);
void provider_release(OrtEp *ep);

/* --- compute.c: a compiled part ---------------------------------------------------------------------------------- */
/* Takes the session over, also on failure. fused: the node that stands for the part; its inputs and outputs are found
 * by the names that the session's have. */
OrtStatus *kernel_create(Provider *provider, const OrtNode *fused, OnnxfuseSession *session,
                         OrtNodeComputeInfo **out_info);
void kernel_release(OrtNodeComputeInfo *info); /* accepts NULL */

/* --- context.c: compiled parts in files -------------------------------------------------------------------------- */
/* Whether the node is an EPContext node of this provider. */
OrtStatus *context_is_ours(const Ort *ort, Scratch *scratch, const ViewNode *node, bool *out_ours);
/* Opens what an EPContext node holds. */
OrtStatus *context_open(Provider *provider, const GraphView *view, const ViewNode *node, OnnxfuseSession **out_session);
/* The model, compiled; freed with onnxfuse_free. */
OrtStatus *context_compile(Provider *provider, const char *name, const Wire *model, Wire *out_compiled);
/* The EPContext node for a part, which holds the compiled model, or names the file beside the runtime's that it is
 * written to. */
OrtStatus *context_make(Provider *provider, const GraphView *view, const OrtNode *fused, const Wire *compiled,
                        OrtNode **out_node);
const char *context_version(void);
OrtCompatibility context_compatibility(const char *version);

#endif
