/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, log lines, memory, names. */
#include "ep/common.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_SIZE = 2048, BLOCK_SIZE = 16 << 10, ALIGNMENT = 16 };

/* --- errors ------------------------------------------------------------------------------------------------------ */
OrtStatus *ep_error(const Ort *ort, OrtErrorCode code, const char *format, ...) {
    char text[MESSAGE_SIZE];
    int length = snprintf(text, sizeof text, "onnxfuse: ");
    va_list args;
    va_start(args, format);
    vsnprintf(text + length, sizeof text - (size_t)length, format, args);
    va_end(args);
    return ORT(ort, CreateStatus)(code, text);
}

OrtStatus *ep_out_of_memory(const Ort *ort) { return ep_error(ort, ORT_FAIL, "out of memory"); }

static OrtErrorCode code_of(OnnxfuseCode code) {
    switch (code) {
    case ONNXFUSE_USAGE:
    case ONNXFUSE_INVALID: return ORT_INVALID_ARGUMENT;
    case ONNXFUSE_UNSUPPORTED: return ORT_NOT_IMPLEMENTED;
    default: return ORT_EP_FAIL;
    }
}

OrtStatus *ep_status(const Ort *ort, const char *where, OnnxfuseStatus status) {
    if (!status) return NULL;
    OrtStatus *result =
        ep_error(ort, code_of(onnxfuse_status_code(status)), "%s: %s", where, onnxfuse_status_message(status));
    onnxfuse_status_free(status);
    return result;
}

void ep_log(const Ort *ort, const OrtLogger *logger, OrtLoggingLevel level, const char *format, ...) {
    if (!logger) return;
    char text[MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    OrtStatus *status = ORT(ort, Logger_LogMessage)(logger, level, text, "onnxfuse", 0, EP_NAME);
    if (status) ORT(ort, ReleaseStatus)(status); /* a line that is lost is no reason to fail */
}

/* --- memory of one call ------------------------------------------------------------------------------------------ */
struct ScratchBlock {
    struct ScratchBlock *next;
    size_t used, size;
    _Alignas(ALIGNMENT) char bytes[];
};

void *scratch_alloc(Scratch *scratch, size_t size) {
    if (size > SIZE_MAX / 2) return NULL;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct ScratchBlock *block = scratch->blocks;
    if (!block || block->size - block->used < size) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        block = calloc(1, sizeof *block + room);
        if (!block) return NULL;
        *block = (struct ScratchBlock){scratch->blocks, 0, room};
        scratch->blocks = block;
    }
    void *memory = block->bytes + block->used;
    block->used += size;
    return memory;
}

void *scratch_array(Scratch *scratch, size_t count, size_t size) {
    size_t bytes;
    return __builtin_mul_overflow(count + 1, size, &bytes) ? NULL : scratch_alloc(scratch, bytes);
}

char *scratch_format(Scratch *scratch, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : scratch_alloc(scratch, (size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

void scratch_free(Scratch *scratch) {
    while (scratch->blocks) {
        struct ScratchBlock *next = scratch->blocks->next;
        free(scratch->blocks);
        scratch->blocks = next;
    }
}

/* --- names to numbers: open addressing, FNV-1a ------------------------------------------------------------------- */
static int place_of(const Names *names, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    int place = (int)(hash & (uint64_t)(names->capacity - 1));
    while (names->keys[place] && strcmp(names->keys[place], name) != 0) place = (place + 1) & (names->capacity - 1);
    return place;
}

int names_find(const Names *names, const char *name) {
    if (!names->capacity) return -1;
    int place = place_of(names, name);
    return names->keys[place] ? names->numbers[place] : -1;
}

static bool grow(Names *names) {
    Names larger = {.scratch = names->scratch, .capacity = names->capacity ? 2 * names->capacity : 64};
    larger.keys = SCRATCH_ARRAY(names->scratch, const char *, larger.capacity);
    larger.numbers = SCRATCH_ARRAY(names->scratch, int, larger.capacity);
    if (!larger.keys || !larger.numbers) return false;
    for (int i = 0; i < names->capacity; i++)
        if (names->keys[i]) names_set(&larger, names->keys[i], names->numbers[i]);
    *names = larger;
    return true;
}

bool names_set(Names *names, const char *name, int number) {
    if (2 * names->count >= names->capacity && !grow(names)) return false;
    int place = place_of(names, name);
    if (!names->keys[place]) names->count++;
    names->keys[place] = name;
    names->numbers[place] = number;
    return true;
}
