/* SPDX-License-Identifier: Apache-2.0 */
/* Entries by their hash; those that have failed are in no bucket any more. */
#include "codegen/cache/code_table.h"

CodeEntry **code_table_place(CodeTable *table, uint64_t hash, const void *key) {
    CodeEntry **at = &table->buckets[hash % CODE_BUCKETS];
    while (*at && ((*at)->hash != hash || !table->has_key(*at, key))) at = &(*at)->next;
    return at;
}

static void unlink_entry(CodeTable *table, const CodeEntry *entry) {
    CodeEntry **at = &table->buckets[entry->hash % CODE_BUCKETS];
    while (*at && *at != entry) at = &(*at)->next;
    if (*at) *at = entry->next;
}

void code_table_publish(CodeTable *table, CodeEntry *entry, Status failure) {
    pthread_mutex_lock(&table->lock);
    entry->state = failure ? CODE_FAILED : CODE_READY;
    entry->failure = failure;
    if (failure) unlink_entry(table, entry);
    pthread_cond_broadcast(&table->changed);
    pthread_mutex_unlock(&table->lock);
}

Status code_table_wait(CodeTable *table, CodeEntry *entry) {
    pthread_mutex_lock(&table->lock);
    while (entry->state == CODE_PENDING) pthread_cond_wait(&table->changed, &table->lock);
    Status failure = entry->failure;
    if (failure && failure != status_out_of_memory())
        failure = status_error(status_code(failure), "%s", status_message(failure));
    pthread_mutex_unlock(&table->lock);
    return failure;
}

void code_table_hold(CodeTable *table, CodeEntry *entry) {
    pthread_mutex_lock(&table->lock);
    entry->references++;
    pthread_mutex_unlock(&table->lock);
}

static void destroy(CodeTable *table, CodeEntry *entry) {
    status_free(entry->failure);
    table->destroy(entry);
}

void code_table_release(CodeTable *table, CodeEntry *entry) {
    pthread_mutex_lock(&table->lock);
    if (--entry->references == 0 && entry->state == CODE_FAILED) destroy(table, entry);
    pthread_mutex_unlock(&table->lock);
}

void code_table_trim(CodeTable *table) {
    pthread_mutex_lock(&table->lock);
    for (int b = 0; b < CODE_BUCKETS; b++)
        for (CodeEntry **at = &table->buckets[b]; *at;) {
            CodeEntry *entry = *at;
            if (entry->references || entry->state != CODE_READY) {
                at = &entry->next;
                continue;
            }
            *at = entry->next;
            destroy(table, entry);
        }
    pthread_mutex_unlock(&table->lock);
}
