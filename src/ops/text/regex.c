/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns, compiled and matched by the plug-in on RE2. */
#include "ops/text/regex.h"

#include "base/plugin.h"
#include "ops/text/regex_plugin.h"

static Plugin plugin = {
    .file = REGEX_PLUGIN_FILE,
    .entry = REGEX_PLUGIN_ENTRY,
    .package = "libonnxfuse-regex",
    .without = "regular expressions cannot be matched",
    .abi = REGEX_PLUGIN_ABI,
};

struct Regex {
    const RegexPlugin *plugin;
    void *compiled;
};

static void release(void *what) {
    Regex *regex = what;
    if (regex->compiled) regex->plugin->release(regex->compiled);
}

Status regex_compile(const char *pattern, size_t size, Arena *arena, Regex **out_regex) {
    const void *table;
    char reason[256];
    TRY(plugin_open(&plugin, &table));
    Regex *regex = ARENA_NEW(arena, Regex);
    regex->plugin = table;
    arena_defer(arena, release, regex);
    regex->compiled = regex->plugin->compile(pattern, size, reason, sizeof reason);
    if (!regex->compiled) return status_error(STATUS_INVALID, "the pattern cannot be used: %s", reason);
    *out_regex = regex;
    return NULL;
}

Status regex_matches_all(const Regex *regex, const char *text, size_t size, bool *out_matches) {
    RegexResult result = regex->plugin->matches_all(regex->compiled, text, size);
    *out_matches = result == REGEX_YES;
    return result == REGEX_NO_MEMORY ? status_out_of_memory() : NULL;
}
