/* SPDX-License-Identifier: Apache-2.0 */
/* OrtEp: which nodes the provider takes, and their compilation. */
#include "ep/provider.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ep/partition.h"

static double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The provider's options for one model. */
static OnnxfuseOptions options_for(const Provider *p, Weights *weights) {
    OnnxfuseOptions options = p->options.session;
    options.external_data = weights_find;
    options.external_data_user = weights;
    return options;
}

/* --- GetCapability ----------------------------------------------------------------------------------------------- */
/* Leaves out the node that keeps a part from being lowered, or the whole part where no one node does. */
static void give_up(Provider *p, Partition *partition, const Part *part, const char *number, const char *reason) {
    const GraphView *view = partition->view;
    char *end = NULL;
    long n = number ? strtol(number, &end, 10) : -1;
    bool known = number && end != number && n >= 0 && n < view->node_count && partition->taken[n];
    if (known) {
        partition->taken[n] = false;
        ep_log(&p->ort, p->logger, ORT_INFO, "%s \"%s\" stays with another provider: %s", view->nodes[n].op,
               view->nodes[n].name, reason);
        return;
    }
    for (int i = 0; i < part->node_count; i++) partition->taken[part->nodes[i]] = false;
    ep_log(&p->ort, p->logger, ORT_WARNING, "%d nodes stay with another provider: %s", part->node_count, reason);
}

static OrtStatus *check_part(Provider *p, Partition *partition, const Part *part, bool *out_good) {
    const GraphView *view = partition->view;
    Weights weights = {0};
    Wire model = {0};
    ModelRequest request = {view, part->nodes, part->node_count, part->outputs, part->output_count, &weights, true};
    OrtStatus *status = model_write(&request, &model);
    if (!status) {
        OnnxfuseOptions options = options_for(p, &weights);
        char *node;
        OnnxfuseStatus checked = onnxfuse_check_memory(model.bytes, model.size, view->folder, &options, &node);
        *out_good = checked == NULL;
        if (checked) give_up(p, partition, part, node, onnxfuse_status_message(checked));
        onnxfuse_status_free(checked);
        onnxfuse_free(node);
    }
    wire_free(&model);
    return status;
}

/* Every round makes the parts anew without the nodes that were given up in the one before. */
static OrtStatus *settle(Provider *p, Partition *partition) {
    for (bool good = false; !good;) {
        TRY(partition_make(partition));
        good = true;
        for (int i = 0; i < partition->part_count; i++) {
            bool part_good;
            TRY(check_part(p, partition, &partition->parts[i], &part_good));
            good &= part_good;
        }
    }
    return NULL;
}

static OrtStatus *claim(Provider *p, const GraphView *view, const int *numbers, int count, OrtSupport *support) {
    const OrtNode **nodes = SCRATCH_ARRAY(view->scratch, const OrtNode *, count);
    NEED(&p->ort, nodes);
    for (int i = 0; i < count; i++) nodes[i] = view->nodes[numbers[i]].node;
    OrtNodeFusionOptions fusion = {ORT_API_VERSION_NEEDED, true};
    return ORT_EP(&p->ort, EpGraphSupportInfo_AddNodesToFuse)(support, nodes, (size_t)count, &fusion);
}

/* EPContext nodes are taken one by one. */
static OrtStatus *claim_contexts(Provider *p, const GraphView *view, OrtSupport *support) {
    for (int n = 0; n < view->node_count; n++) {
        bool ours;
        TRY(context_is_ours(&p->ort, view->scratch, &view->nodes[n], &ours));
        if (ours) TRY(claim(p, view, &n, 1, support));
    }
    return NULL;
}

/* The runtime asks for the graphs inside a control flow node first. Where the node as a whole can be taken, they are
 * left alone; and always where the runtime gives parts of two of them one name. */
static OrtStatus *is_left_to_outer(Provider *p, const GraphView *view, bool *out_left) {
    const OrtNode *parent = NULL;
    *out_left = false;
    TRY(ORT(&p->ort, Graph_GetParentNode)(view->graph, &parent));
    if (!parent) return NULL;
    if (p->ort.weak_subgraphs) {
        *out_left = true;
        return NULL;
    }
    const OrtGraph *outer = NULL;
    TRY(ORT(&p->ort, Node_GetGraph)(parent, &outer));
    GraphView outside;
    TRY(view_graph(&p->ort, view->scratch, outer ? outer : view->graph, &outside));
    ViewNode node;
    TRY(view_node(&outside, parent, &node));
    return partition_has_operator(&outside, &node, out_left);
}

static OrtStatus *find_capability(Provider *p, const OrtGraph *graph, Scratch *scratch, OrtSupport *support) {
    double begin = clock_ms();
    GraphView view;
    TRY(view_graph(&p->ort, scratch, graph, &view));
    if (!view.node_count) return NULL;
    bool left;
    TRY(is_left_to_outer(p, &view, &left));
    if (left) return NULL;
    TRY(claim_contexts(p, &view, support));
    Partition partition;
    TRY(partition_begin(&view, &partition));
    TRY(settle(p, &partition));
    int taken = 0;
    for (int i = 0; i < partition.part_count; i++) {
        const Part *part = &partition.parts[i];
        TRY(claim(p, &view, part->nodes, part->node_count, support));
        taken += part->node_count;
    }
    ep_log(&p->ort, p->logger, ORT_INFO, "takes %d of %d nodes in %d parts (%.0f us)", taken, view.node_count,
           partition.part_count, (clock_ms() - begin) * 1000);
    return NULL;
}

static OrtStatus *get_capability(OrtEp *ep, const OrtGraph *graph, OrtSupport *support) {
    Scratch scratch = {NULL};
    OrtStatus *status = find_capability((Provider *)ep, graph, &scratch, support);
    scratch_free(&scratch);
    return status;
}

/* --- Compile ----------------------------------------------------------------------------------------------------- */
/* All of the graph's nodes as one part, whose outputs are the fused node's. */
static OrtStatus *whole_graph(const GraphView *view, const OrtNode *fused, ModelRequest *out_request) {
    const Ort *ort = view->ort;
    int *nodes = SCRATCH_ARRAY(view->scratch, int, view->node_count);
    size_t count;
    TRY(ORT(ort, Node_GetNumOutputs)(fused, &count));
    const OrtValueInfo **infos = SCRATCH_ARRAY(view->scratch, const OrtValueInfo *, count);
    int *outputs = SCRATCH_ARRAY(view->scratch, int, count);
    NEED(ort, nodes && infos && outputs);
    if (count) TRY(ORT(ort, Node_GetOutputs)(fused, infos, count));
    for (int n = 0; n < view->node_count; n++) nodes[n] = n;
    for (size_t o = 0; o < count; o++) {
        const char *name;
        TRY(ORT(ort, GetValueInfoName)(infos[o], &name));
        outputs[o] = names_find(&view->names, name);
        if (outputs[o] < 0) return ep_error(ort, ORT_EP_FAIL, "output \"%s\" is made by no node", name);
    }
    *out_request = (ModelRequest){view, nodes, view->node_count, outputs, (int)count, NULL, false};
    return NULL;
}

static OrtStatus *open_model(Provider *p, const GraphView *view, const char *name, const Wire *model, Weights *weights,
                             OnnxfuseSession **out_session) {
    OnnxfuseOptions options = options_for(p, weights);
    double begin = clock_ms();
    TRY(ep_status(&p->ort, name,
                  onnxfuse_session_open_memory(model->bytes, model->size, view->folder, &options, out_session)));
    OnnxfuseStats stats;
    onnxfuse_session_stats(*out_session, &stats, sizeof stats);
    ep_log(&p->ort, p->logger, ORT_INFO,
           "%s: %d nodes became %d regions, %d anchors, %d host steps on %s; %d kernels compiled, %d cached (%.0f us)",
           name, stats.nodes, stats.regions, stats.anchors, stats.host_steps, stats.device, stats.kernels_compiled,
           stats.kernels_cached, (clock_ms() - begin) * 1000);
    return NULL;
}

/* The session is opened from what the context holds: the part is compiled once. */
static OrtStatus *open_with_context(Provider *p, const GraphView *view, const OrtNode *fused, const char *name,
                                    ModelRequest *request, OnnxfuseSession **out_session, OrtNode **out_context) {
    Wire model = {0}, compiled = {0};
    Weights none = {0};
    OrtStatus *status = model_write(request, &model);
    if (!status) status = context_compile(p, name, &model, &compiled);
    if (!status) status = open_model(p, view, name, &compiled, &none, out_session);
    if (!status) {
        status = context_make(p, view, fused, &compiled, out_context);
        if (status) onnxfuse_session_close(*out_session);
    }
    wire_free(&model);
    onnxfuse_free(compiled.bytes);
    return status;
}

static OrtStatus *compile_part(Provider *p, const GraphView *view, const OrtNode *fused, const char *name,
                               OnnxfuseSession **out_session, OrtNode **out_context) {
    ModelRequest request;
    TRY(whole_graph(view, fused, &request));
    if (p->options.context.enable && out_context)
        return open_with_context(p, view, fused, name, &request, out_session, out_context);
    Weights weights = {0};
    Wire model = {0};
    request.weights = &weights;
    OrtStatus *status = model_write(&request, &model);
    if (!status) status = open_model(p, view, name, &model, &weights, out_session);
    wire_free(&model);
    return status;
}

static OrtStatus *compile_graph(Provider *p, const OrtGraph *graph, const OrtNode *fused, Scratch *scratch,
                                OrtNodeComputeInfo **out_info, OrtNode **out_context) {
    GraphView view;
    TRY(view_graph(&p->ort, scratch, graph, &view));
    const char *name;
    TRY(ORT(&p->ort, Node_GetName)(fused, &name));
    bool from_context = false;
    if (view.node_count == 1) TRY(context_is_ours(&p->ort, scratch, &view.nodes[0], &from_context));
    OnnxfuseSession *session = NULL;
    if (from_context)
        TRY(context_open(p, &view, &view.nodes[0], &session));
    else
        TRY(compile_part(p, &view, fused, name, &session, out_context));
    return kernel_create(p, fused, session, out_info);
}

static OrtStatus *compile(OrtEp *ep, const OrtGraph **graphs, const OrtNode **fused, size_t count,
                          OrtNodeComputeInfo **out_infos, OrtNode **out_context_nodes) {
    for (size_t i = 0; i < count; i++) {
        Scratch scratch = {NULL};
        OrtStatus *status = compile_graph((Provider *)ep, graphs[i], fused[i], &scratch, &out_infos[i],
                                          out_context_nodes ? &out_context_nodes[i] : NULL);
        scratch_free(&scratch);
        if (!status) continue;
        for (; i > 0; i--) {
            kernel_release(out_infos[i - 1]);
            out_infos[i - 1] = NULL;
        }
        return status;
    }
    return NULL;
}

static void release_infos(OrtEp *ep, OrtNodeComputeInfo **infos, size_t count) {
    (void)ep;
    for (size_t i = 0; i < count; i++) kernel_release(infos[i]);
}

/* --- the provider ------------------------------------------------------------------------------------------------ */
static const char *get_name(const OrtEp *ep) {
    (void)ep;
    return EP_NAME;
}

static const char *get_compatibility(OrtEp *ep, const OrtGraph *graph) {
    (void)ep, (void)graph;
    return context_version();
}

static OrtStatus *is_concurrent(OrtEp *ep, bool *out) {
    (void)ep;
    *out = true;
    return NULL;
}

OrtStatus *provider_create(const Ort *ort, const OrtSessionOptions *options, const OrtLogger *logger, OrtEp **out_ep) {
    Provider *p = calloc(1, sizeof *p);
    NEED(ort, p);
    p->base = (OrtEp){.version = ORT_API_VERSION_NEEDED,
                      .GetName = get_name,
                      .GetCapability = get_capability,
                      .Compile = compile,
                      .ReleaseNodeComputeInfos = release_infos,
                      .GetCompiledModelCompatibilityInfo = get_compatibility,
                      .IsConcurrentRunSupported = is_concurrent};
    p->ort = *ort;
    p->logger = logger;
    OrtStatus *status = options_read(ort, options, &p->options);
    if (status) {
        free(p);
        return status;
    }
    *out_ep = &p->base;
    return NULL;
}

void provider_release(OrtEp *ep) {
    Provider *p = (Provider *)ep;
    if (!p) return;
    options_free(&p->options);
    free(p);
}
