/* SPDX-License-Identifier: Apache-2.0 */
/* Code by its key, for the whole process. An entry stands in the table before it is made, so that whoever asks for it
 * meanwhile waits; what cannot be made leaves the table, so that a later request tries again; what was made stays for the
 * next session until it is trimmed. cache.c keeps kernels in one, runtime/device/gpu/program.c programs. */
#ifndef ONNXFUSE_CODEGEN_CODE_TABLE_H
#define ONNXFUSE_CODEGEN_CODE_TABLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum CodeState { CODE_PENDING, CODE_READY, CODE_FAILED } CodeState;

/* The first member of what a table holds. */
typedef struct CodeEntry {
    struct CodeEntry *next; /* of the same bucket */
    uint64_t hash;
    CodeState state;
    int references;
    Status failure; /* why there is no code */
} CodeEntry;

enum { CODE_BUCKETS = 1024 };
typedef struct CodeTable {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* some entry is pending no longer */
    bool (*has_key)(const CodeEntry *entry, const void *key);
    void (*destroy)(CodeEntry *entry); /* with the lock held */
    CodeEntry *buckets[CODE_BUCKETS];
} CodeTable;

#define CODE_TABLE(has_key, destroy)                                                                                   \
    {                                                                                                                  \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, has_key, destroy, { 0 }                                   \
    }

/* With the lock held: where the entry of that key is, or is to be put. */
CodeEntry **code_table_place(CodeTable *table, uint64_t hash, const void *key);
/* The entry is made, or has failed; takes the status over. */
void code_table_publish(CodeTable *table, CodeEntry *entry, Status failure);
/* Until the entry is pending no longer; a copy of its failure. */
Status code_table_wait(CodeTable *table, CodeEntry *entry);
void code_table_hold(CodeTable *table, CodeEntry *entry);
void code_table_release(CodeTable *table, CodeEntry *entry);
/* Lets go of what nobody holds. */
void code_table_trim(CodeTable *table);

#endif
