/* SPDX-License-Identifier: Apache-2.0 */
// RE2 behind the C interface of ops/text/regex_plugin.h. No exception leaves this file.
#include "ops/text/regex_plugin.h"

#include <re2/re2.h>

#include <cstdio>
#include <memory>
#include <new>

namespace {

void *compile(const char *pattern, size_t size, char *reason, size_t room) {
    try {
        RE2::Options options; // UTF-8, and at most 8 MiB a pattern and its automata
        options.set_log_errors(false);
        auto regex = std::make_unique<RE2>(re2::StringPiece(pattern, size), options);
        if (regex->ok()) return regex.release();
        std::snprintf(reason, room, "%s", regex->error().c_str());
    } catch (const std::exception &error) { std::snprintf(reason, room, "%s", error.what()); }
    return nullptr;
}

RegexResult matches_all(const void *regex, const char *text, size_t size) {
    try {
        return RE2::FullMatch(re2::StringPiece(text, size), *static_cast<const RE2 *>(regex)) ? REGEX_YES : REGEX_NO;
    } catch (const std::bad_alloc &) { return REGEX_NO_MEMORY; }
}

void release(void *regex) { delete static_cast<RE2 *>(regex); }

const RegexPlugin plugin = {REGEX_PLUGIN_ABI, compile, matches_all, release};

} // namespace

extern "C" __attribute__((visibility("default"))) const void *onnxfuse_regex_plugin(void) { return &plugin; }
