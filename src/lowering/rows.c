/* SPDX-License-Identifier: Apache-2.0 */
/* The search for an operator by name and opset: in the rows of all families, and among an application's custom operators. */
#include <stdlib.h>

#include "lowering/build.h"
#include "lowering/custom.h"

static const char *plain_domain(const char *domain) { return strcmp(domain, "ai.onnx") == 0 ? "" : domain; }

static bool names(const OpRow *row, const char *domain, const char *name) {
    return strcmp(row->name, name) == 0 && strcmp(row->domain, domain) == 0;
}

const OpRow *ops_find(const char *domain, const char *name, int opset) {
    domain = plain_domain(domain);
    for (int f = 0; op_families[f]; f++)
        for (const OpRow *row = op_families[f]; row->name; row++)
            if (row->since <= opset && (!row->until || opset <= row->until) && names(row, domain, name)) return row;
    return NULL;
}

const OpRow *ops_find_any(const char *domain, const char *name) {
    domain = plain_domain(domain);
    for (int f = 0; op_families[f]; f++)
        for (const OpRow *row = op_families[f]; row->name; row++)
            if (names(row, domain, name)) return row;
    return NULL;
}

void ops_each(void (*visit)(const OpRow *row, void *context), void *context) {
    for (int f = 0; op_families[f]; f++)
        for (const OpRow *row = op_families[f]; row->name; row++)
            if (strcmp(row->domain, INTERNAL_DOMAIN) != 0) visit(row, context);
}

/* --- names of host kernels --- */

const char *ops_host_name(Arena *arena, HostFn host) {
    for (int f = 0; op_families[f]; f++)
        for (const OpRow *row = op_families[f]; row->name; row++)
            if (host == row->host || host == row->second_host)
                return arena_format(arena, "%s:%s:%d:%d", row->domain, row->name, row->since, host != row->host);
    for (int f = 0; host_families[f]; f++)
        for (const HostRow *row = host_families[f]; row->name; row++)
            if (host == row->host) return row->name;
    return NULL;
}

static HostFn row_named(const char *name) {
    for (int f = 0; host_families[f]; f++)
        for (const HostRow *row = host_families[f]; row->name; row++)
            if (strcmp(name, row->name) == 0) return row->host;
    return NULL;
}

HostFn ops_host_named(const char *name) {
    const char *op = strchr(name, ':'), *since = op ? strchr(op + 1, ':') : NULL;
    if (!op) return row_named(name);
    if (!since) return NULL;
    char *end;
    long version = strtol(since + 1, &end, 10);
    bool second = strcmp(end, ":1") == 0;
    for (int f = 0; op_families[f] && (second || strcmp(end, ":0") == 0); f++)
        for (const OpRow *row = op_families[f]; row->name; row++)
            if (row->since == version && strlen(row->domain) == (size_t)(op - name) &&
                strlen(row->name) == (size_t)(since - op - 1) && strncmp(row->domain, name, (size_t)(op - name)) == 0 &&
                strncmp(row->name, op + 1, (size_t)(since - op - 1)) == 0)
                return second ? row->second_host : row->host;
    return NULL;
}

/* --- gradients of host kernels --- */

BackwardFn host_gradient(const Node *node) {
    for (int f = 0; host_families[f]; f++)
        for (const HostRow *row = host_families[f]; row->name; row++)
            if (node->host == row->host && (row->host || strcmp(node->op, row->name) == 0)) return row->gradient;
    return NULL;
}

/* --- custom operators --- */

const CustomOperator *registry_find(const Registry *registry, const char *domain, const char *name, int opset) {
    domain = plain_domain(domain);
    for (int i = 0; registry && i < registry->operators.count; i++) {
        const CustomOperator *op = registry->operators.items[i];
        if (op->since <= opset && (!op->until || opset <= op->until) && strcmp(op->name, name) == 0 &&
            strcmp(plain_domain(op->domain), domain) == 0)
            return op;
    }
    return NULL;
}
