/* SPDX-License-Identifier: Apache-2.0 */
/* Ranking what was compared in the model's order, and telling the first difference and the largest ones. */
#include "cli/command/compare_outcome.h"
#include "cli/value/show.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LISTED = 10, AROUND = 2 };

bool finding_differs(const Finding *f) { return f->compared && (!f->comparable || f->different); }

static int in_model_order(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    int p = x->node ? x->node->outermost : -1, q = y->node ? y->node->outermost : -1;
    if (x->output != y->output && (p < 0 || q < 0)) return x->output - y->output;
    if (p != q) return p < q ? -1 : 1;
    return (x->entry->finding.arrival > y->entry->finding.arrival) -
           (x->entry->finding.arrival < y->entry->finding.arrival);
}

static int by_excess(const void *a, const void *b) {
    const Ranked *x = a, *y = b;
    double p = x->entry->finding.excess, q = y->entry->finding.excess;
    return p == q ? in_model_order(a, b) : p < q ? 1 : -1;
}

Problem *outcome_make(const Recording *r, const Topology *t, Outcome *out) {
    out->ranked = calloc((size_t)r->count + 1, sizeof *out->ranked);
    if (!out->ranked) return problem_out_of_memory();
    for (int i = 0; i < r->count; i++) {
        const Entry *entry = &r->entries[i];
        if (!entry->finding.compared) {
            out->skipped += i < r->values;
            continue;
        }
        out->ranked[out->count++] = (Ranked){entry, topology_maker(t, entry->name), i >= r->values};
        out->different += finding_differs(&entry->finding);
    }
    out->skipped += r->unmatched;
    if (out->count) qsort(out->ranked, (size_t)out->count, sizeof *out->ranked, in_model_order);
    return NULL;
}

const Ranked *outcome_first(const Outcome *o) {
    for (int i = 0; i < o->count; i++)
        if (finding_differs(&o->ranked[i].entry->finding)) return &o->ranked[i];
    return NULL;
}

static const Entry *entry_of(const Recording *r, const char *value, int occurrence) {
    for (int i = 0; i < r->values; i++)
        if (r->entries[i].occurrence == occurrence && strcmp(r->entries[i].name, value) == 0) return &r->entries[i];
    return NULL;
}

static const char *input_state(const Recording *r, const Topology *t, const char *value, int occurrence) {
    const Entry *entry = entry_of(r, value, occurrence);
    if (entry && entry->finding.compared) return finding_differs(&entry->finding) ? "differs" : "agrees";
    return topology_maker(t, value) ? "not compared: not stored by both" : "an input or a constant";
}

/* --- telling: text --- */
const char *ranked_node(const Ranked *r) { return r->node ? r->node->name : *r->entry->node ? r->entry->node : "?"; }

static void print_type_of(const Finding *f) {
    if (f->comparable || strcmp(f->got_type, f->expected_type) == 0)
        print_safe(stdout, f->got_type);
    else
        printf("got %s, expected %s", f->got_type, f->expected_type);
}

static void print_ulps(const Finding *f) {
    if (isfinite(f->ulps)) printf(", %.0f ULP", f->ulps);
}

static void print_worst(const Finding *f) {
    if (!f->comparable || !f->index) return;
    if (f->item >= 0) printf("item %d of the sequence, ", f->item);
    printf("worst element %s: got %s, expected ", f->index, f->got);
    print_safe(stdout, f->expected);
    if (isfinite(f->distance)) printf(" (difference %.4g", f->distance), print_ulps(f), putchar(')');
    printf("\n  %lld of %lld elements differ", (long long)f->different, (long long)f->count);
}

static void print_inputs(const Recording *r, const Topology *t, const Ranked *first) {
    const cJSON *input;
    if (!first->node) return;
    fputs("  what the node reads:\n", stdout);
    cJSON_ArrayForEach(input, first->node->inputs) {
        if (!cJSON_IsString(input)) continue;
        fputs("    \"", stdout);
        print_safe(stdout, input->valuestring);
        printf("\" %s\n", input_state(r, t, input->valuestring, first->entry->occurrence));
    }
}

static void print_steps(const Topology *t, const Ranked *first) {
    int at;
    const cJSON *plan = topology_step(t, first->entry->name, &at);
    if (!plan) return;
    fputs("  steps around it:\n", stdout);
    for (int s = at - AROUND < 0 ? 0 : at - AROUND; s <= at + AROUND; s++) {
        char *text = topology_step_text(plan, s);
        if (!text) continue;
        fputs(s == at ? "  > " : "    ", stdout);
        print_safe(stdout, text);
        putchar('\n');
        free(text);
    }
}

static void print_operator(const ModelNode *node) {
    if (!node) return;
    fputs(" (", stdout);
    print_safe(stdout, node->op);
    fputc(')', stdout);
}

static void print_first(const Recording *r, const Topology *t, const Ranked *first) {
    const Finding *f = &first->entry->finding;
    fputs("\nfirst: node \"", stdout);
    print_safe(stdout, ranked_node(first));
    fputc('"', stdout);
    print_operator(first->node);
    fputs(", value \"", stdout);
    print_safe(stdout, first->entry->name);
    fputs("\" ", stdout);
    print_type_of(f);
    if (first->entry->occurrence) printf(", time %d", first->entry->occurrence + 1);
    fputs("\n  ", stdout);
    print_worst(f);
    putchar('\n');
    print_inputs(r, t, first);
    print_steps(t, first);
}

static void print_row(const Ranked *row) {
    const Finding *f = &row->entry->finding;
    char distance[32] = "-", ulps[32] = "-", bound[32] = "-";
    if (f->comparable && isfinite(f->distance)) snprintf(distance, sizeof distance, "%.3g", f->distance);
    if (f->comparable && isfinite(f->ulps)) snprintf(ulps, sizeof ulps, "%.0f", f->ulps);
    if (isfinite(f->excess)) snprintf(bound, sizeof bound, "%.3g", f->excess);
    printf("  %10s %12s %10s %10lld  %-4s  ", distance, ulps, bound, (long long)f->different,
           finding_differs(f) ? "DIFF" : "ok");
    print_safe(stdout, row->entry->name);
    if (row->entry->occurrence) printf(" (time %d)", row->entry->occurrence + 1);
    if (row->output) fputs(" (output)", stdout);
    print_operator(row->node);
    putchar('\n');
}

static void print_table(const Outcome *o) {
    if (!o->count) return;
    printf("\nlargest differences\n  %10s %12s %10s %10s\n", "|got-exp.|", "ULP", "of bound", "differ");
    for (int i = 0; i < o->count && i < LISTED; i++) print_row(&o->ranked[i]);
}

/* --- telling: JSON --- */
static void add_number(cJSON *object, const char *key, double number) {
    if (isfinite(number))
        cJSON_AddNumberToObject(object, key, number);
    else
        cJSON_AddNullToObject(object, key);
}

static cJSON *json_row(const Ranked *row) {
    const Finding *f = &row->entry->finding;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "value", row->entry->name);
    cJSON_AddStringToObject(object, "node", ranked_node(row));
    if (row->node) cJSON_AddStringToObject(object, "operator", row->node->op);
    cJSON_AddNumberToObject(object, "occurrence", row->entry->occurrence);
    cJSON_AddBoolToObject(object, "output", row->output);
    cJSON_AddBoolToObject(object, "differs", finding_differs(f));
    cJSON_AddStringToObject(object, "got_type", f->got_type);
    cJSON_AddStringToObject(object, "expected_type", f->expected_type);
    if (!f->comparable) return object;
    cJSON_AddNumberToObject(object, "elements", (double)f->count);
    cJSON_AddNumberToObject(object, "elements_different", (double)f->different);
    if (!f->index) return object;
    cJSON_AddStringToObject(object, "index", f->index);
    cJSON_AddStringToObject(object, "got", f->got);
    cJSON_AddStringToObject(object, "expected", f->expected);
    add_number(object, "difference", f->distance);
    add_number(object, "ulp", f->ulps);
    add_number(object, "of_bound", f->excess);
    return object;
}

static cJSON *json_first(const Recording *r, const Topology *t, const Ranked *first) {
    cJSON *object = json_row(first), *inputs = cJSON_AddArrayToObject(object, "inputs");
    const cJSON *input;
    const cJSON *read = first->node ? first->node->inputs : NULL;
    cJSON_ArrayForEach(input, read) {
        if (!cJSON_IsString(input)) continue;
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "value", input->valuestring);
        cJSON_AddStringToObject(one, "state", input_state(r, t, input->valuestring, first->entry->occurrence));
        cJSON_AddItemToArray(inputs, one);
    }
    int at;
    const cJSON *plan = topology_step(t, first->entry->name, &at);
    cJSON *steps = cJSON_AddArrayToObject(object, "steps");
    for (int s = plan ? at - AROUND : 0; plan && s <= at + AROUND; s++) {
        char *text = s < 0 ? NULL : topology_step_text(plan, s);
        if (text) cJSON_AddItemToArray(steps, cJSON_CreateString(text));
        free(text);
    }
    if (plan) cJSON_AddNumberToObject(object, "step", at);
    return object;
}

static void print_inside(const Inside *inside) {
    if (!inside->looked) return;
    fputs("  when not fused, ", stdout);
    if (inside->node) {
        printf("of the step's %d nodes the first that differs is \"", inside->nodes);
        print_safe(stdout, inside->node);
        fputs("\" (", stdout);
        print_safe(stdout, inside->op);
        fputs("), value \"", stdout);
        print_safe(stdout, inside->value);
        puts("\"");
    } else {
        printf("none of the step's %d nodes differs (%d of their values were compared)\n", inside->nodes,
               inside->compared);
    }
}

static cJSON *json_inside(const Inside *inside) {
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "nodes", inside->nodes);
    cJSON_AddNumberToObject(object, "values_compared", inside->compared);
    if (inside->node) {
        cJSON_AddStringToObject(object, "node", inside->node);
        cJSON_AddStringToObject(object, "operator", inside->op);
        cJSON_AddStringToObject(object, "value", inside->value);
    }
    return object;
}

static void print_outcome(const Verdict *v, const Ranked *first) {
    const Outcome *o = &v->outcome;
    fputs("compared: ", stdout);
    print_safe(stdout, v->got);
    fputs("\nwith:     ", stdout);
    print_safe(stdout, v->expected);
    printf("\n%s: %d of %d values differ; %d that one side alone has were skipped (rtol %g, ",
           first ? "DIFFERENT" : "equal", o->different, o->count, o->skipped, v->closeness.rtol);
    if (v->closeness.atol < 0)
        printf("atol %g of a value's root mean square)\n", v->closeness.rtol);
    else
        printf("atol %g)\n", v->closeness.atol);
    if (first) print_first(v->recording, v->topology, first);
    print_inside(&v->inside);
}

static void print_outcome_json(const Verdict *v, const Ranked *first, cJSON *first_json) {
    const Outcome *o = &v->outcome;
    cJSON *object = cJSON_CreateObject();
    cJSON_AddBoolToObject(object, "equal", !first);
    cJSON_AddStringToObject(object, "got", v->got);
    cJSON_AddStringToObject(object, "expected", v->expected);
    cJSON_AddNumberToObject(object, "compared", o->count);
    cJSON_AddNumberToObject(object, "different", o->different);
    cJSON_AddNumberToObject(object, "skipped", o->skipped);
    if (first_json) cJSON_AddItemToObject(object, "first", first_json);
    if (v->inside.looked) cJSON_AddItemToObject(object, "when_not_fused", json_inside(&v->inside));
    cJSON *rows = cJSON_AddArrayToObject(object, "largest");
    for (int i = 0; i < o->count && i < LISTED; i++) cJSON_AddItemToArray(rows, json_row(&o->ranked[i]));
    inputs_json(v->inputs, object);
    print_json(object);
}

void verdict_tell(Verdict *v, bool json) {
    const Ranked *first = outcome_first(&v->outcome);
    Ranked kept = first ? *first : (Ranked){0};
    cJSON *first_json = json && first ? json_first(v->recording, v->topology, first) : NULL;
    print_outcome(v, first);
    qsort(v->outcome.ranked, (size_t)v->outcome.count, sizeof *v->outcome.ranked, by_excess);
    print_table(&v->outcome);
    if (json) print_outcome_json(v, first ? &kept : NULL, first_json);
}

void verdict_free(Verdict *v) {
    free(v->inside.node);
    free(v->inside.op);
    free(v->inside.value);
    free(v->outcome.ranked);
}
