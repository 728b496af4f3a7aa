/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs as bytes, and what else is told in their words (sizes, names, tensors) behind them: the binary twin of the
 * text form, for graphs that are to be there at once. A graph that was written reads back with the same print; values
 * that nothing reads are left out.
 *
 * Numbers take 7 bits a byte, low ones first; signed ones alternate (0, -1, 1, -2, ...). Strings and sizes stand where
 * they are first used and are numbers from then on, so writer and reader go through the same calls in the same order.
 * The reader's bytes may be anyone's: whatever they say costs no more than a bounded multiple of their number. */
#ifndef ONNXFUSE_GRAPH_STORE_H
#define ONNXFUSE_GRAPH_STORE_H

#include "graph/graph.h"

/* --- writing ----------------------------------------------------------------------------------------------------- */
typedef struct StoreWriter StoreWriter;
struct StoreWriter {
    Arena *arena;
    Text *out; /* what is written now goes there; may be exchanged between calls */
    /* The data of a tensor that is too large to stand inside. *out_place is what the reader's `data` gets; false: the
     * data is not kept, and the tensor reads back with data NULL. NULL: all data stands inside. */
    bool (*put_data)(void *user, const Tensor *tensor, uint64_t *out_place);
    /* A name for the kernel of a NODE_HOST; NULL: none, which fails. Not asked for nodes without one. */
    const char *(*host_name)(void *user, const Node *node);
    void *user;
    const DimTable *table; /* the graph's */
    Map dims, strings;     /* what was written so far -> 2 + its number */
    int dim_count, string_count;
};

StoreWriter store_writer(Arena *arena, const DimTable *table, Text *out);
void store_number(StoreWriter *w, uint64_t number);
void store_signed(StoreWriter *w, int64_t number);
void store_bytes(StoreWriter *w, const void *bytes, size_t size); /* with their number; zero bytes too */
void store_string(StoreWriter *w, const char *text);              /* may be NULL */
void store_dim(StoreWriter *w, const Dim *dim);                   /* may be NULL */
void store_dims(StoreWriter *w, const Dim *const *dims, int count);
/* The whole graph with its subgraphs. STATUS_UNSUPPORTED for a host kernel without a name. */
Status store_graph(StoreWriter *w, const Graph *graph);

/* --- reading ----------------------------------------------------------------------------------------------------- */
/* After the first mistake all calls give 0, NULL or nothing, so that only what is at stake need be asked for. */
typedef struct StoreReader StoreReader;
struct StoreReader {
    const uint8_t *at, *end; /* what is read now; may be exchanged between calls. Must stay as long as the graph */
    Graph *graph;            /* made by the caller, empty; its arena takes all that is read */
    /* As put_data's place, and as many bytes as the tensor needs, aligned to 64; NULL: not there. */
    const void *(*data)(void *user, uint64_t place, size_t bytes);
    uint64_t most_left_out; /* bytes of a tensor without data: what follows from its shape must not be absurd */
    HostFn (*host)(void *user, const char *name, Node *node); /* NULL: there is none of that name */
    void *user;
    VEC(const Dim *) dims;
    VEC(const char *) strings;
    VEC(signed char) prims; /* parallel to strings: -1 not looked up yet */
    int nesting, sizes;     /* graphs and sizes that what is read now stands in */
    Status error;           /* STATUS_INVALID; whoever reads last takes it */
};

StoreReader store_reader(Graph *graph, const void *bytes, size_t size);
bool store_failed(const StoreReader *r);
/* Always false. */
bool store_wrong(StoreReader *r, const char *format, ...) STATUS_FORMAT(2, 3);
uint64_t restore_number(StoreReader *r);
int64_t restore_signed(StoreReader *r);
int restore_int(StoreReader *r, int most);   /* in [0, most] */
int restore_count(StoreReader *r, int each); /* of things that take at least `each` bytes */
const void *restore_bytes(StoreReader *r, size_t *out_size);
const char *restore_string(StoreReader *r);
const Dim *restore_dim(StoreReader *r);                    /* NULL where NULL was written */
const Dim *const *restore_dims(StoreReader *r, int count); /* none of them NULL */
/* Fills r->graph. It is not verified: graph_verify is the caller's. */
Status restore_graph(StoreReader *r);

#endif
