/* SPDX-License-Identifier: Apache-2.0 */
/* The graphs of a search are told by the names of their inputs and outputs, and by the shapes that their caches declare. */
#include "ops/generation/form.h"

typedef struct Reader {
    Lowering *l;
    const Node *n;
    Form *form;
} Reader;

static const Graph *graph_of(const Node *n, const char *attribute) {
    int64_t number = attr_int(n, attribute, -1);
    return number >= 0 && number < n->subgraph_count ? n->subgraphs[number] : NULL;
}

static int own_inputs(const Reader *r, const Graph *graph) { return graph->inputs.count - r->n->captures; }

static Status check_name(const Reader *r, const char *graph, const char *what, int index, const char *name,
                         const char *wanted) {
    if (name && strcmp(name, wanted) == 0) return NULL;
    return invalid(r->l, "%s %d of %s is called \"%s\" instead of \"%s\"", what, index, graph, name ? name : "",
                   wanted);
}

static Status check_output(const Reader *r, const char *name, const Graph *graph, int index, const char *wanted) {
    if (index >= graph->outputs.count) return invalid(r->l, "%s has no output \"%s\"", name, wanted);
    return check_name(r, name, "output", index, graph->output_names.items[index], wanted);
}

static Status check_input(const Reader *r, const char *name, const Graph *graph, int index, const char *wanted) {
    if (index >= own_inputs(r, graph)) return invalid(r->l, "%s has no input \"%s\"", name, wanted);
    return check_name(r, name, "input", index, graph->inputs.items[index]->name, wanted);
}

static Status check_whole(const Reader *r, const char *name, const Graph *graph, int index, const char *wanted) {
    TRY(check_input(r, name, graph, index, wanted));
    if (graph->inputs.items[index]->dtype != DT_I32) return invalid(r->l, "\"%s\" of %s is not int32", wanted, name);
    return NULL;
}

/* heads, size: axes whose sizes are numbers. */
static Status check_cache(const Reader *r, const char *name, const Graph *graph, int index, const char *wanted) {
    TRY(check_input(r, name, graph, index, wanted));
    const Value *cache = graph->inputs.items[index], *first = graph->inputs.items[r->form->first_past];
    int length = r->form->length_axis;
    bool typed = cache->dtype == DT_F32 || cache->dtype == DT_F16;
    if (!typed || cache->rank != length + 2 || (length == 3 && !dim_equals(cache->dims[0], 2)) ||
        !dim_is_const(cache->dims[length - 1], NULL) || !dim_is_const(cache->dims[length + 1], NULL))
        return invalid(r->l,
                       "\"%s\" of %s is not declared as float32 or float16 [%sbatch, HEADS, length, SIZE] with numbers "
                       "for HEADS and SIZE",
                       wanted, name, length == 3 ? "2, " : "");
    if (cache->dtype != first->dtype)
        return invalid(r->l, "\"%s\" of %s has another type than the first cache", wanted, name);
    return NULL;
}

/* The counts of inputs and outputs must fit each other: `fixed` inputs, then `per_cache` for each output but logits. */
static Status check_counts(const Reader *r, const char *name, const Graph *graph, int per_cache) {
    int given = own_inputs(r, graph), made = graph->outputs.count, fixed = r->form->first_past;
    if (made <= FORM_PRESENT || given <= fixed)
        return invalid(r->l, "%s has %d inputs and %d outputs, so no caches", name, given, made);
    int wanted = fixed + per_cache * (made - FORM_PRESENT);
    if (given > wanted)
        return unsupported(r->l,
                           "%s with %d inputs for %d outputs where %d are needed, the last one \"%s\" (past and "
                           "present in one memory?)",
                           name, given, made, wanted, graph->inputs.items[given - 1]->name);
    if (given < wanted)
        return invalid(r->l, "%s has %d inputs for %d outputs where %d are needed", name, given, made, wanted);
    return NULL;
}

/* ---- GPT-2 ---- */

static Status check_gpt(const Reader *r, const char *name, const Graph *graph) {
    static const char *const fixed[] = {"input_ids", "position_ids", "attention_mask"};
    TRY(check_counts(r, name, graph, 1));
    for (int i = 0; i < 3; i++) TRY(check_whole(r, name, graph, i, fixed[i]));
    TRY(check_output(r, name, graph, 0, "logits"));
    for (int i = 0; i < graph->outputs.count - FORM_PRESENT; i++) {
        TRY(check_cache(r, name, graph, r->form->first_past + i, arena_format(r->l->arena, "past_%d", i)));
        TRY(check_output(r, name, graph, FORM_PRESENT + i, arena_format(r->l->arena, "present_%d", i)));
    }
    return NULL;
}

static Status read_gpt(Reader *r) {
    Form *f = r->form;
    const Graph *first = graph_of(r->n, "init_decoder_graph");
    if (node_attr(r->n, "encoder_graph")) return unsupported(r->l, "attribute encoder beside model_type 0");
    f->first_past = 3;
    f->row_axis = 1;
    f->length_axis = 3;
    TRY(check_gpt(r, "decoder", f->decoder));
    if (first) TRY(check_gpt(r, "init_decoder", first));
    f->first = first ? first : f->decoder;
    f->caches = f->decoder->outputs.count - FORM_PRESENT;
    if (f->first->outputs.count != f->decoder->outputs.count)
        return invalid(r->l, "init_decoder has %d caches and decoder %d", f->first->outputs.count - FORM_PRESENT,
                       f->caches);
    return NULL;
}

/* ---- T5 and Whisper ---- */

/* "past_key_self_0", "past_value_self_0", "past_key_self_1", ... */
static const char *cache_name(const Reader *r, const char *when, const char *where, int index) {
    return arena_format(r->l->arena, "%s_%s_%s_%d", when, index % 2 ? "value" : "key", where, index / 2);
}

static Status check_encoder(const Reader *r) {
    const Form *f = r->form;
    static const char *const fixed[] = {"encoder_input_ids", "encoder_attention_mask", "decoder_input_ids"};
    if (f->hears) {
        TRY(check_input(r, "encoder", f->first, 0, fixed[0]));
        TRY(check_whole(r, "encoder", f->first, 1, fixed[2]));
        const Value *features = f->first->inputs.items[0];
        if (features->dtype != r->n->inputs[0]->dtype || features->rank != 3)
            return invalid(r->l, "\"%s\" of encoder is not declared as input_ids are, floats [batch, features, frames]",
                           fixed[0]);
    } else {
        for (int i = 0; i < (f->starts ? 3 : 2); i++) TRY(check_whole(r, "encoder", f->first, i, fixed[i]));
    }
    int read = own_inputs(r, f->first), wanted = f->hears || !f->starts ? 2 : 3;
    if (read != wanted) return invalid(r->l, "encoder has %d inputs where %d are needed", read, wanted);
    int made = f->starts ? FORM_FIRST_PRESENT + 2 * f->caches : f->caches;
    if (f->first->outputs.count != made)
        return invalid(r->l, "encoder has %d outputs where %d are needed", f->first->outputs.count, made);
    if (f->starts) {
        TRY(check_output(r, "encoder", f->first, 0, "logits"));
        TRY(check_output(r, "encoder", f->first, FORM_HIDDEN, "encoder_hidden_states"));
    }
    for (int i = 0; f->starts && i < f->caches; i++)
        TRY(check_output(r, "encoder", f->first, FORM_FIRST_PRESENT + i, cache_name(r, "present", "self", i)));
    for (int i = 0; i < f->caches; i++)
        TRY(check_output(r, "encoder", f->first, made - f->caches + i, cache_name(r, "present", "cross", i)));
    return NULL;
}

static Status check_encoded_decoder(const Reader *r) {
    const Form *f = r->form;
    TRY(check_counts(r, "decoder", f->decoder, 2));
    TRY(check_whole(r, "decoder", f->decoder, 0, "input_ids"));
    if (!f->hears) TRY(check_whole(r, "decoder", f->decoder, 1, "encoder_attention_mask"));
    TRY(check_output(r, "decoder", f->decoder, 0, "logits"));
    if (f->caches % 2) return invalid(r->l, "decoder has %d caches, so keys without values", f->caches);
    for (int i = 0; i < f->caches; i++) {
        TRY(check_cache(r, "decoder", f->decoder, f->first_past + i, cache_name(r, "past", "self", i)));
        TRY(check_cache(r, "decoder", f->decoder, f->first_past + f->caches + i, cache_name(r, "past", "cross", i)));
        TRY(check_output(r, "decoder", f->decoder, FORM_PRESENT + i, cache_name(r, "present", "self", i)));
    }
    const Value *ids = f->decoder->inputs.items[0];
    if (ids->rank != 2 || !dim_equals(ids->dims[1], 1))
        return unsupported(r->l, "a decoder whose \"input_ids\" is not declared as [batch, 1]");
    return NULL;
}

static Status read_encoded(Reader *r) {
    Form *f = r->form;
    const int type = f->hears ? MODEL_WHISPER : MODEL_T5, hidden = f->hears ? 1 : 2;
    f->encodes = true;
    f->first = graph_of(r->n, "encoder_graph");
    if (!f->first) return invalid(r->l, "attribute encoder is missing, which model_type %d needs", type);
    if (node_attr(r->n, "init_decoder_graph"))
        return unsupported(r->l, "attribute init_decoder beside model_type %d", type);
    const Graph *decoder = f->decoder;
    f->reads_hidden = own_inputs(r, decoder) > hidden && decoder->inputs.items[hidden]->name &&
                      strcmp(decoder->inputs.items[hidden]->name, "encoder_hidden_states") == 0;
    f->first_past = hidden + f->reads_hidden;
    f->row_axis = 0;
    f->length_axis = 2;
    f->caches = decoder->outputs.count - FORM_PRESENT;
    f->starts = f->hears || own_inputs(r, f->first) > 2;
    TRY(check_encoded_decoder(r));
    TRY(check_encoder(r));
    if (f->reads_hidden && !f->starts)
        return invalid(r->l, "decoder reads encoder_hidden_states, which encoder does not give");
    return NULL;
}

Status read_form(Lowering *l, const Node *n, Form *form) {
    *form = (Form){.decoder = graph_of(n, "decoder_graph")};
    Reader r = {l, n, form};
    int64_t type = attr_int(n, "model_type", 0);
    if (!form->decoder) return invalid(l, "attribute decoder is missing");
    form->hears = type == MODEL_WHISPER;
    if (type == MODEL_GPT) return read_gpt(&r);
    if ((type == MODEL_T5 || form->hears) && strcmp(n->op, "BeamSearch") == 0) return read_encoded(&r);
    return unsupported(l, "model_type %lld", (long long)type);
}
