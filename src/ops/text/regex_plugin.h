/* SPDX-License-Identifier: Apache-2.0 */
/* What the plug-in libonnxfuse-regex.so offers to the library: RE2, which is C++, behind a C interface. Bump
 * REGEX_PLUGIN_ABI with any change. */
#ifndef ONNXFUSE_OPS_TEXT_REGEX_PLUGIN_H
#define ONNXFUSE_OPS_TEXT_REGEX_PLUGIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define REGEX_PLUGIN_ABI 1
#define REGEX_PLUGIN_FILE "libonnxfuse-regex.so"
#define REGEX_PLUGIN_ENTRY "onnxfuse_regex_plugin"

typedef enum RegexResult { REGEX_NO, REGEX_YES, REGEX_NO_MEMORY } RegexResult;

typedef struct RegexPlugin {
    int abi; /* REGEX_PLUGIN_ABI of its build; the first member (base/plugin.h) */
    /* All are safe to call from several threads at once, with the same pattern, too. NULL with the reason, a terminated
     * text, when the pattern is none or too large. */
    void *(*compile)(const char *pattern, size_t size, char *reason, size_t room);
    RegexResult (*matches_all)(const void *regex, const char *text, size_t size);
    void (*release)(void *regex);
} RegexPlugin;

#ifdef __cplusplus
}
#endif
#endif
