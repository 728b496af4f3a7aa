/* The table of operators: all families, and the search in it. */
#include "ops/table.h"

#include <stdlib.h>

#include "ops/build.h"

static const OpRow *const families[] = {
    ops_math,     ops_activation, ops_reduction, ops_normalization, ops_linear,   ops_quantize,  ops_random,
    ops_shape,    ops_index,      ops_window,    ops_image,         ops_select,   ops_recurrent, ops_control,
    ops_sequence, ops_text,       ops_attention, ops_contrib,       ops_training, ops_ml,
};
enum { FAMILY_COUNT = sizeof families / sizeof *families };

static const char *plain_domain(const char *domain) { return strcmp(domain, "ai.onnx") == 0 ? "" : domain; }

static bool names(const OpRow *row, const char *domain, const char *name) {
    return strcmp(row->name, name) == 0 && strcmp(row->domain, domain) == 0;
}

const OpRow *ops_find(const char *domain, const char *name, int opset) {
    domain = plain_domain(domain);
    for (int f = 0; f < FAMILY_COUNT; f++)
        for (const OpRow *row = families[f]; row->name; row++)
            if (row->since <= opset && (!row->until || opset <= row->until) && names(row, domain, name)) return row;
    return NULL;
}

const OpRow *ops_find_any(const char *domain, const char *name) {
    domain = plain_domain(domain);
    for (int f = 0; f < FAMILY_COUNT; f++)
        for (const OpRow *row = families[f]; row->name; row++)
            if (names(row, domain, name)) return row;
    return NULL;
}

void ops_each(void (*visit)(const OpRow *row, void *context), void *context) {
    for (int f = 0; f < FAMILY_COUNT; f++)
        for (const OpRow *row = families[f]; row->name; row++) visit(row, context);
}

/* --- names of host kernels --- */

const char *ops_host_name(Arena *arena, HostFn host) {
    for (int f = 0; f < FAMILY_COUNT; f++)
        for (const OpRow *row = families[f]; row->name; row++)
            if (host == row->host || host == row->second_host)
                return arena_format(arena, "%s:%s:%d:%d", row->domain, row->name, row->since, host != row->host);
    return NULL;
}

HostFn ops_host_named(const char *name) {
    const char *op = strchr(name, ':'), *since = op ? strchr(op + 1, ':') : NULL;
    if (!since) return NULL;
    char *end;
    long version = strtol(since + 1, &end, 10);
    bool second = strcmp(end, ":1") == 0;
    for (int f = 0; f < FAMILY_COUNT && (second || strcmp(end, ":0") == 0); f++)
        for (const OpRow *row = families[f]; row->name; row++)
            if (row->since == version && strlen(row->domain) == (size_t)(op - name) &&
                strlen(row->name) == (size_t)(since - op - 1) && strncmp(row->domain, name, (size_t)(op - name)) == 0 &&
                strncmp(row->name, op + 1, (size_t)(since - op - 1)) == 0)
                return second ? row->second_host : row->host;
    return NULL;
}
