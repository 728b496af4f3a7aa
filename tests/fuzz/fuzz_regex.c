/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a pattern and a text, parted by the first NUL. */
#include "ops/text/regex_plugin.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const void *onnxfuse_regex_plugin(void);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const RegexPlugin *plugin = onnxfuse_regex_plugin();
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t pattern = nul ? (size_t)(nul - data) : size, text = nul ? pattern + 1 : size;
    char reason[64] = "";
    void *regex = plugin->compile((const char *)data, pattern, reason, sizeof reason);
    if (!regex == !reason[0]) abort(); /* a reason or a pattern */
    if (regex) {
        if (plugin->matches_all(regex, (const char *)data + text, size - text) == REGEX_NO_MEMORY) abort();
        plugin->release(regex);
    }
    return 0;
}
