/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled models (.ofx): a container of sections, each of which is what opening a session would come to.
 *
 *   header     Header, then a table of Section
 *   "about"    JSON: what it was made of and for
 *   "model"    the partitioned graph, kernels and how regions call them, as graph/store.h has it
 *   "code"     object files of kernels
 *   "constants", "weights"   data of constants that something reads; what anchors have packed of the others
 *
 * Header, table and the first three sections are checked whenever a file is opened. The last two are most of the bytes,
 * are mapped and read when a run first needs them, and are checked on request alone (compiled_check). */
#ifndef ONNXFUSE_RUNTIME_COMPILED_COMPILED_H
#define ONNXFUSE_RUNTIME_COMPILED_COMPILED_H

#include "onnxfuse.h"
#include "runtime/plan/plan.h"

/* Goes up with any change of what a section holds, of graph/store.c, codegen/kernel_store.c, KernelFunction or the layout of
 * packed weights. */
enum { COMPILED_FORMAT = 9 };
enum { COMPILED_PAGE = 4096, COMPILED_LINE = 64 }; /* alignment of sections and large data, and of all data */

typedef enum CompiledPart { PART_ABOUT, PART_MODEL, PART_CODE, PART_CONSTANTS, PART_WEIGHTS, PARTS } CompiledPart;

typedef struct CompiledHeader {
    char magic[8];
    uint32_t format, sections;
    uint64_t bytes;    /* of all */
    uint64_t checksum; /* of header and table, with 0 here */
    char version[32];  /* of the library, with its end */
} CompiledHeader;

typedef struct CompiledSection {
    char name[16];
    uint64_t at, bytes, checksum;
} CompiledSection;

extern const char compiled_magic[8];
const char *compiled_part_name(CompiledPart part);
uint64_t compiled_checksum(const void *bytes, size_t size); /* XXH3, 64 bits */
/* The same, piece by piece. NULL when there is no memory; _end frees it. */
struct CompiledChecksum *compiled_checksum_begin(void);
void compiled_checksum_add(struct CompiledChecksum *sum, const void *bytes, size_t size);
uint64_t compiled_checksum_end(struct CompiledChecksum *sum);

/* --- reading ------------------------------------------------------------------------------------------------------ */
typedef struct CompiledBytes {
    const uint8_t *data;
    size_t size;
} CompiledBytes;

typedef struct Compiled {
    CompiledBytes parts[PARTS];
    const CompiledSection *sections; /* [PARTS], for compiled_check */
    DeviceKind device;
    const char *target; /* level of the CPU that the code is for */
    const char *tiles;  /* instruction set that the packed weights are for */
    const char *policy; /* JSON: what of the policy is the plan's */
    int nodes, primitives;
} Compiled;

bool compiled_is(const void *bytes, size_t size);
bool compiled_is_file(const char *path);
/* The bytes must begin at a multiple of COMPILED_LINE, and stay as long as what is made of them. STATUS_INVALID that
 * names the section, STATUS_USAGE for another version. */
Status compiled_read(Arena *arena, const void *bytes, size_t size, Compiled *out);
/* STATUS_USAGE with the reason where this machine, or the policy, which has the file's own plan, needs another file. */
Status compiled_fits(Arena *arena, const Compiled *compiled, const Policy *policy, const char *given_policy);
/* The graph, for LEVEL_PARTITIONED, and what is known of its nodes, in its arena. random [outputs] in it too. Code is
 * entered into the process's kernel cache and held as long as the graph. */
typedef struct CompiledGraph {
    Graph *graph;
    PlanGiven given;
    const bool *random;
} CompiledGraph;
Status compiled_graph(const Compiled *compiled, const Policy *policy, size_t limit, KernelCacheStats *stats,
                      CompiledGraph *out);
/* All sections, data too. */
Status compiled_check(const Compiled *compiled);

/* --- writing (writer.c) ------------------------------------------------------------------------------------------- */
/* What is written down: what an open session has. */
typedef struct CompileSource {
    const Policy *policy;
    Graph *graph;
    const Plan *plan;
    const OnnxfuseValueInfo *outputs; /* [outputs of the graph] */
    const KernelCacheStats *kernels;
    int nodes, primitives;
    const char *policy_json; /* that the session was given; NULL: none */
} CompileSource;

typedef struct CompileTarget {
    const char *path; /* a file that appears whole or not at all; NULL: memory, by malloc, through the others */
    void **out_bytes;
    size_t *out_size;
} CompileTarget;

/* out_report: JSON, by malloc; NULL: none is wanted. Scratch in the arena. */
Status compiled_write(Arena *arena, const CompileSource *source, const CompileTarget *to, char **out_report);

#endif
