/* The application's own operators, by name. */
#include "ops/registry.h"

static const char *plain_domain(const char *domain) { return strcmp(domain, "ai.onnx") == 0 ? "" : domain; }

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
