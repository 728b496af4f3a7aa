/* SPDX-License-Identifier: Apache-2.0 */
/* Session options: the provider's own, "ep.onnxfuseexecutionprovider.KEY" as the runtime files them, where KEY is a
 * dotted key of the policy (docs/policy.md), "policy", "policy_file" or "log"; and the runtime's own about EPContext
 * models. */
#include "ep/options.h"

#include <stdlib.h>
#include <string.h>

#include "ep/wire.h"

static const char prefix[] = "ep.onnxfuseexecutionprovider.";

typedef struct Setting {
    const char *key, *value;
} Setting;

typedef struct Settings {
    Setting *items; /* of the policy, sorted by key */
    int count;
    const char *policy, *policy_file, *log;
} Settings;

/* --- reading ----------------------------------------------------------------------------------------------------- */
static void take(const char *key, const char *value, Settings *settings) {
    if (strcmp(key, "policy") == 0)
        settings->policy = value;
    else if (strcmp(key, "policy_file") == 0)
        settings->policy_file = value;
    else if (strcmp(key, "log") == 0)
        settings->log = value;
    else
        settings->items[settings->count++] = (Setting){key, value};
}

static bool is_on(const char *value) { return strcmp(value, "1") == 0; }

static void take_context(const char *key, const char *value, EpOptions *options) {
    if (strcmp(key, "ep.context_enable") == 0) options->context.enable = is_on(value);
    if (strcmp(key, "ep.context_embed_mode") == 0) options->context.embed = is_on(value);
    if (strcmp(key, "ep.context_file_path") == 0) options->context.path = value;
    if (strcmp(key, "ep.context_node_name_prefix") == 0) options->context.prefix = value;
}

static int by_key(const void *a, const void *b) { return strcmp(((const Setting *)a)->key, ((const Setting *)b)->key); }

static OrtStatus *read_entries(const Ort *ort, const OrtKeyValuePairs *entries, EpOptions *options,
                               Settings *settings) {
    const char *const *keys, *const *values;
    size_t count;
    ORT(ort, GetKeyValuePairs)(entries, &keys, &values, &count);
    settings->items = SCRATCH_ARRAY(&options->scratch, Setting, count);
    NEED(ort, settings->items);
    for (size_t i = 0; i < count; i++) {
        char *key = scratch_format(&options->scratch, "%s", keys[i]),
             *value = scratch_format(&options->scratch, "%s", values[i]);
        NEED(ort, key && value);
        if (strncmp(key, prefix, sizeof prefix - 1) == 0)
            take(key + sizeof prefix - 1, value, settings);
        else
            take_context(key, value, options);
    }
    qsort(settings->items, (size_t)settings->count, sizeof *settings->items, by_key);
    return NULL;
}

/* --- the policy as JSON ------------------------------------------------------------------------------------------ */
/* Goes past digits; false when there is none. */
static bool take_digits(const char **c) {
    size_t count = strspn(*c, "0123456789");
    *c += count;
    return count > 0;
}

/* RFC 8259: -1.5e+3. The C library's strtod takes more, and what it takes depends on the locale. */
static bool is_number(const char *c) {
    c += *c == '-';
    if (!take_digits(&c)) return false;
    if (*c == '.' && (c++, !take_digits(&c))) return false;
    if (*c == 'e' || *c == 'E') {
        c += 1 + (c[1] == '-' || c[1] == '+');
        if (!take_digits(&c)) return false;
    }
    return !*c;
}

/* Numbers, true, false, strings in quotes and whole objects stand as they are; anything else is a string. */
static bool is_json(const char *value) {
    if (*value == '{' || *value == '[' || *value == '"') return true;
    if (strcmp(value, "true") == 0 || strcmp(value, "false") == 0) return true;
    return is_number(value);
}

static char *json_value(Scratch *scratch, const char *value) {
    if (strcmp(value, "True") == 0) return scratch_format(scratch, "true"); /* as Python's str() writes them */
    if (strcmp(value, "False") == 0) return scratch_format(scratch, "false");
    if (is_json(value)) return scratch_format(scratch, "%s", value);
    char *quoted = scratch_alloc(scratch, 6 * strlen(value) + 3), *to = quoted;
    if (!quoted) return NULL;
    *to++ = '"';
    for (const char *c = value; *c; c++) {
        static const char digits[] = "0123456789abcdef";
        if (*c == '"' || *c == '\\') {
            *to++ = '\\';
            *to++ = *c;
        } else if ((unsigned char)*c < 0x20) {
            memcpy(to, "\\u00", 4);
            to[4] = digits[*c >> 4 & 15];
            to[5] = digits[*c & 15];
            to += 6;
        } else {
            *to++ = *c;
        }
    }
    *to++ = '"';
    return quoted;
}

/* {"GROUP": {"NAME": VALUE, ...}, ...}: settings of one group stand next to each other, as they are sorted. */
static OrtStatus *policy_text(const Ort *ort, Scratch *scratch, const Settings *settings, const char **out_json) {
    char *text = scratch_format(scratch, "{"), *group = NULL;
    size_t group_length = 0;
    NEED(ort, text);
    for (int i = 0; i < settings->count; i++) {
        const Setting *s = &settings->items[i];
        const char *dot = strchr(s->key, '.'), *comma = i ? ", " : "";
        char *value = json_value(scratch, s->value);
        NEED(ort, value);
        bool same = group && dot && (size_t)(dot - s->key) == group_length && strncmp(s->key, group, group_length) == 0;
        if (i && strcmp(s->key, s[-1].key) == 0)
            return ep_error(ort, ORT_INVALID_ARGUMENT, "option \"%s\" is given twice", s->key);
        if (group && !same) NEED(ort, text = scratch_format(scratch, "%s}", text));
        if (same)
            text = scratch_format(scratch, "%s, \"%s\": %s", text, dot + 1, value);
        else if (dot)
            text = scratch_format(scratch, "%s%s\"%.*s\": {\"%s\": %s", text, comma, (int)(dot - s->key), s->key,
                                  dot + 1, value);
        else
            text = scratch_format(scratch, "%s%s\"%s\": %s", text, comma, s->key, value);
        NEED(ort, text);
        group = dot ? (char *)(uintptr_t)s->key : NULL;
        group_length = dot ? (size_t)(dot - s->key) : 0;
    }
    *out_json = scratch_format(scratch, "%s%s}", text, group ? "}" : "");
    NEED(ort, *out_json);
    return NULL;
}

/* "device" and "threads" override a policy that is given whole; no other key goes together with one. */
static OrtStatus *take_overrides(const Ort *ort, const Settings *settings, OnnxfuseOptions *options) {
    for (int i = 0; i < settings->count; i++) {
        const Setting *s = &settings->items[i];
        if (strcmp(s->key, "device") == 0) {
            options->device = s->value;
        } else if (strcmp(s->key, "threads") == 0) {
            char *end;
            long threads = strtol(s->value, &end, 10);
            if (end == s->value || *end || threads < 0 || threads > 1024)
                return ep_error(ort, ORT_INVALID_ARGUMENT,
                                "option \"threads\": expected a number from 0 to 1024, found \"%s\"", s->value);
            options->threads = (int)threads;
        } else {
            return ep_error(ort, ORT_INVALID_ARGUMENT, "option \"%s\" cannot be given together with \"%s\"", s->key,
                            settings->policy ? "policy" : "policy_file");
        }
    }
    return NULL;
}

static OrtStatus *make_policy(const Ort *ort, const Settings *settings, EpOptions *options) {
    OnnxfuseOptions *session = &options->session;
    if (settings->policy && settings->policy_file)
        return ep_error(ort, ORT_INVALID_ARGUMENT, "options \"policy\" and \"policy_file\" exclude each other");
    session->policy_file = settings->policy_file;
    session->policy_json = settings->policy;
    if (settings->policy || settings->policy_file) return take_overrides(ort, settings, session);
    session->device = "cpu"; /* the kind of device that the runtime was told of */
    for (int i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, "device") == 0) session->device = NULL;
    return policy_text(ort, &options->scratch, settings, &session->policy_json);
}

/* --- checking ---------------------------------------------------------------------------------------------------- */
/* The smallest model: y = Identity(x), of f32 [1]. */
static const unsigned char smallest[] = {
    0x08, 8,  /* IR version */
    0x3a, 49, /* graph */
    0x0a, 16, 0x0a, 1,    'x',  0x12, 1,   'y',  0x22, 8,    'I',  'd',  'e',  'n',  't',  'i',  't',  'y',
    0x12, 1,  'g',  0x5a, 15,   0x0a, 1,   'x',  0x12, 10,   0x0a, 8,    0x08, 1,    0x12, 4,    0x0a, 2,
    0x08, 1,  0x62, 9,    0x0a, 1,    'y', 0x12, 4,    0x0a, 2,    0x08, 1,    0x42, 2,    0x10, 13, /* opset */
};

static OrtStatus *check(const Ort *ort, const EpOptions *options) {
    OnnxfuseSession *session = NULL;
    TRY(ep_status(ort, "options",
                  onnxfuse_session_open_memory(smallest, sizeof smallest, NULL, &options->session, &session)));
    onnxfuse_session_close(session);
    return NULL;
}

static OrtStatus *read_log_level(const Ort *ort, const char *text, int *out_level) {
    *out_level = -1;
    if (!text) return NULL;
    if (text[0] < '0' || text[0] > '3' || text[1])
        return ep_error(ort, ORT_INVALID_ARGUMENT, "option \"log\": expected a number from 0 to 3, found \"%s\"", text);
    *out_level = text[0] - '0';
    return NULL;
}

static OrtStatus *read_all(const Ort *ort, const OrtSessionOptions *given, EpOptions *options) {
    OrtKeyValuePairs *entries = NULL;
    Settings settings = {0};
    TRY(ORT(ort, GetSessionOptionsConfigEntries)(given, &entries));
    OrtStatus *status = read_entries(ort, entries, options, &settings);
    ORT(ort, ReleaseKeyValuePairs)(entries);
    if (status) return status;
    TRY(read_log_level(ort, settings.log, &options->log_level));
    TRY(make_policy(ort, &settings, options));
    return check(ort, options);
}

OrtStatus *options_read(const Ort *ort, const OrtSessionOptions *given, EpOptions *out_options) {
    *out_options = (EpOptions){.log_level = -1, .context = {.path = "", .prefix = ""}};
    OrtStatus *status = read_all(ort, given, out_options);
    if (status) options_free(out_options);
    return status;
}

void options_free(EpOptions *options) { scratch_free(&options->scratch); }
