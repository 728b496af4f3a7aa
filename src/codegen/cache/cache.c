/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels by their key: in the process's table, else on disk, else compiled by the generator of our own (native/), or by
 * the LLVM plug-in, which is opened when that one has no rule for a kernel, and not before. */
#include "codegen/codegen.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "base/log.h"
#include "base/map.h"
#include "base/pool.h"
#include "codegen/cache/code_table.h"
#include "codegen/cache/disk.h"
#include "codegen/object.h"
#include "codegen/llvm_plugin.h"
#include "codegen/native/native.h"

typedef struct Key {
    char *text; /* malloc'ed: a key may be as large as the code */
    size_t size;
    uint64_t hash;
} Key;

struct KernelCode {
    CodeEntry entry;
    Key key;
    ObjectCode code;
};

static bool has_key(const CodeEntry *entry, const void *key);
static void destroy_code(CodeEntry *entry);
static CodeTable table = CODE_TABLE(has_key, destroy_code);

static double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- keys
 * ------------------------------------------------------------------------------------------------------------- */

static bool may_generate(void) { return log_generator() != GENERATOR_LLVM; }

static Text print_key(Arena *arena, const Kernel *kernel, const Target *target) {
    Text key = text_make(arena);
    kernel_print(&key, kernel);
    text_add(&key, "target %s %s %d %zu\ncompiler %d %s %d\n", target->cpu, target->features ? target->features : "",
             target->vector_bytes, target->cache_bytes, LLVM_PLUGIN_ABI, llvm_plugin_identity(),
             may_generate() ? NATIVE_VERSION : 0);
    return key;
}

static Status make_key(Arena *arena, const Kernel *kernel, const Target *target, Key *out_key) {
    Arena *scratch = arena_create_inside(arena);
    Text text = print_key(scratch, kernel, target);
    char *copy = malloc(text.size + 1);
    if (copy) {
        memcpy(copy, text.data, text.size + 1);
        *out_key = (Key){copy, text.size, hash_bytes(text.data, text.size, 0)};
    }
    arena_destroy(scratch);
    return copy ? NULL : status_out_of_memory();
}

typedef struct Keys {
    Key *items;
    int count;
} Keys;

static void free_keys(void *what) {
    const Keys *keys = what;
    for (int i = 0; i < keys->count; i++) free(keys->items[i].text);
}

static Status resolved_target(Arena *arena, const Policy *policy, Target *out_target) {
    *out_target = policy->target;
    return out_target->cpu ? NULL : target_resolve(arena, out_target);
}

/* --- the table
 * -------------------------------------------------------------------------------------------------------- */

static bool has_key(const CodeEntry *entry, const void *key) {
    const Key *a = &((const KernelCode *)(const void *)entry)->key, *b = key;
    return a->size == b->size && memcmp(a->text, b->text, a->size) == 0;
}

static void destroy_code(CodeEntry *entry) {
    KernelCode *code = (KernelCode *)(void *)entry;
    object_unload(&code->code);
    free(code->key.text);
    free(code);
}

/* With the lock held: the code of that key, one reference more; a new entry takes the key's text over. NULL: no memory. */
static KernelCode *enter(Key *key, bool *out_is_new) {
    CodeEntry **place = code_table_place(&table, key->hash, key);
    KernelCode *code = (KernelCode *)(void *)*place;
    *out_is_new = !code;
    if (!code) {
        code = calloc(1, sizeof *code);
        if (!code) return NULL;
        code->entry.hash = key->hash;
        code->key = *key;
        key->text = NULL;
        *place = &code->entry;
    }
    code->entry.references++;
    return code;
}

void kernel_code_release(KernelCode *code) {
    if (code) code_table_release(&table, &code->entry);
}

KernelCode *kernel_code_hold(KernelCode *code) {
    code_table_hold(&table, &code->entry);
    return code;
}

void kernel_cache_trim(void) { code_table_trim(&table); }

KernelFunction kernel_code_function(const KernelCode *code) {
    KernelFunction function;
    memcpy(&function, &code->code.function, sizeof function);
    return function;
}

size_t kernel_code_bytes(const KernelCode *code) { return code->code.bytes; }

/* --- getting
 * ---------------------------------------------------------------------------------------------------------- */

typedef struct Request {
    const Kernel *const *kernels;
    int count;
    const Policy *policy;
    Target target;
    const char *directory; /* on disk; NULL: none */
    KernelCode **codes;    /* the caller's */
    int *mine, mine_count; /* kernels whose code this request makes */
    int *compile, compile_count;
    Status *failures; /* of each in `mine` or `compile`, by kernel */
    const LlvmPlugin *plugin;
} Request;

/* Finds or enters every key. */
static Status enter_keys(Request *q, Key *keys, KernelCacheStats *stats) {
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < q->count; i++) {
        bool is_new;
        q->codes[i] = enter(&keys[i], &is_new);
        if (!q->codes[i]) break;
        if (is_new)
            q->mine[q->mine_count++] = i;
        else
            stats->from_memory++;
    }
    pthread_mutex_unlock(&table.lock);
    return q->count == 0 || q->codes[q->count - 1] ? NULL : status_out_of_memory();
}

static void read_from_disk(Request *q, KernelCacheStats *stats) {
    for (int n = 0; n < q->mine_count; n++) {
        KernelCode *code = q->codes[q->mine[n]];
        void *object;
        size_t size;
        if (q->directory && disk_read(q->directory, code->key.text, code->key.size, &object, &size)) {
            Status status = object_load(object, size, KERNEL_SYMBOL, &code->code);
            free(object);
            if (!status) {
                stats->from_disk++;
                continue;
            }
            LOG(1, "kernel cache: %s", status_message(status));
            status_free(status);
        }
        q->compile[q->compile_count++] = q->mine[n];
    }
}

/* By the generator of our own; *out_object NULL when that leaves the kernel to LLVM. */
static Status generate(const Kernel *kernel, const Target *target, void **out_object, size_t *out_size) {
    const char *reason;
    *out_object = NULL;
    if (!may_generate()) return NULL;
    TRY(native_compile(kernel, target, NULL, out_object, out_size, &reason));
    if (*out_object) return NULL;
    LOG(1, "kernel cache: a kernel is left to LLVM: %s", reason);
    if (log_generator() == GENERATOR_NATIVE)
        return status_error(STATUS_FAULT, "no LLVM, and for its own generator: %s", reason);
    return NULL;
}

static Status compile_one(const Request *q, int i) {
    KernelCode *code = q->codes[i];
    void *object;
    size_t size;
    if (!q->plugin) {
        TRY(generate(q->kernels[i], &q->target, &object, &size));
        if (!object) return NULL;
    } else {
        TRY(q->plugin->compile(q->kernels[i], &q->target, &object, &size));
    }
    Status status = object_load(object, size, KERNEL_SYMBOL, &code->code);
    if (!status && q->directory) disk_write(q->directory, code->key.text, code->key.size, object, size);
    free(object);
    return status && status_code(status) == STATUS_INVALID
               ? status_error(STATUS_FAULT, "a compiled kernel does not load")
               : status;
}

static void compile_piece(void *context, int64_t begin, int64_t end, int worker) {
    const Request *q = context;
    (void)worker;
    for (int64_t n = begin; n < end; n++) q->failures[q->compile[n]] = compile_one(q, q->compile[n]);
}

static void compile_all(Request *q) {
    Pool *pool = NULL;
    if (q->compile_count > 1) status_free(policy_pool(q->policy, &pool)); /* without one: in this thread */
    pool_for(pool, q->compile_count, 1, compile_piece, q);
}

/* What has no code yet: without LLVM where that can be, the rest by LLVM, which is opened only then. */
static void compile_by_llvm(Request *q) {
    int left = 0;
    for (int n = 0; n < q->compile_count; n++) {
        int i = q->compile[n];
        if (!q->failures[i] && !q->codes[i]->code.function) q->compile[left++] = i;
    }
    q->compile_count = left;
    if (!left) return;
    Status missing = llvm_plugin_get(&q->plugin);
    if (missing) {
        for (int n = 0; n < q->compile_count; n++)
            q->failures[q->compile[n]] = status_error(STATUS_FAULT, "%s", status_message(missing));
        status_free(missing);
        return;
    }
    compile_all(q);
    q->plugin->trim();
}

/* Looking through the directory takes as long as compiling many kernels: 65 ms of 40,000 files (an AMD EPYC of family 26). So not every
 * opening does it: one kernel in so many, by its key, brings it about, and the bound is passed by about as many kernels at most. */
enum { KERNELS_A_TRIMMING = 64 };

static bool trimming_is_due(const Request *q) {
    bool due = false;
    for (int n = 0; n < q->compile_count; n++) due |= q->codes[q->compile[n]]->entry.hash % KERNELS_A_TRIMMING == 0;
    return due && q->directory;
}

static void compile_rest(Request *q, KernelCacheStats *stats) {
    if (!q->compile_count) return;
    double start = clock_ms();
    stats->compiled += q->compile_count;
    bool trims = trimming_is_due(q);
    compile_all(q);
    compile_by_llvm(q);
    stats->by_llvm += q->compile_count;
    stats->compile_ms += clock_ms() - start;
    if (trims) disk_trim(q->directory, q->policy->cache.max_megabytes);
}

static void publish(Request *q) {
    for (int n = 0; n < q->mine_count; n++)
        code_table_publish(&table, &q->codes[q->mine[n]]->entry, q->failures[q->mine[n]]);
}

/* Waits for what others are making; on any failure gives everything back. */
static Status collect(Request *q, Status status) {
    for (int i = 0; i < q->count && !status; i++) status = code_table_wait(&table, &q->codes[i]->entry);
    for (int i = 0; status && i < q->count; i++) {
        kernel_code_release(q->codes[i]);
        q->codes[i] = NULL;
    }
    return status;
}

static Status get(Arena *arena, Request *q, KernelCacheStats *stats) {
    Keys *keys = ARENA_NEW(arena, Keys);
    *keys = (Keys){ARENA_ARRAY(arena, Key, q->count + 1), q->count};
    arena_defer(arena, free_keys, keys);
    TRY(resolved_target(arena, q->policy, &q->target));
    for (int i = 0; i < q->count; i++) TRY(make_key(arena, q->kernels[i], &q->target, &keys->items[i]));
    q->mine = ARENA_ARRAY(arena, int, q->count + 1);
    q->compile = ARENA_ARRAY(arena, int, q->count + 1);
    q->failures = ARENA_ARRAY(arena, Status, q->count + 1);
    q->directory = disk_directory(arena, q->policy);
    arena_guard(arena,
                NULL); /* from here on nothing is allocated there: entries that others wait for must be published */
    Status status = enter_keys(q, keys->items, stats);
    read_from_disk(q, stats);
    compile_rest(q, stats);
    publish(q);
    return collect(q, status);
}

/* Regions share kernels: each is printed and looked for once. */
static Status get_distinct(Arena *arena, Request *all, KernelCacheStats *stats) {
    const Kernel **kernels = ARENA_ARRAY(arena, const Kernel *, all->count);
    KernelCode **codes = ARENA_ARRAY(arena, KernelCode *, all->count);
    int *number = ARENA_ARRAY(arena, int, all->count);
    Map known = map_make(arena); /* 1 + its place in kernels */
    Request q = {.kernels = kernels, .policy = all->policy, .codes = codes};
    for (int i = 0; i < all->count; i++) {
        number[i] = (int)(intptr_t)map_get_id(&known, MAP_POINTER_KEY(all->kernels[i])) - 1;
        if (number[i] >= 0) continue;
        kernels[number[i] = q.count++] = all->kernels[i];
        map_set_id(&known, MAP_POINTER_KEY(all->kernels[i]), (void *)(intptr_t)q.count);
    }
    TRY(get(arena, &q, stats));
    stats->from_memory += all->count - q.count;
    for (int i = 0; i < all->count; i++) all->codes[i] = kernel_code_hold(codes[number[i]]);
    for (int n = 0; n < q.count; n++) kernel_code_release(codes[n]);
    return NULL;
}

Status kernel_cache_get(const Kernel *const *kernels, int count, const Policy *policy, KernelCacheStats *stats,
                        KernelCode **out_code) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    KernelCacheStats unused = {0};
    Request q = {.kernels = kernels, .count = count, .policy = policy, .codes = out_code};
    for (int i = 0; i < count; i++) out_code[i] = NULL;
    jmp_buf guard;
    Status volatile status = NULL;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        status = get_distinct(arena, &q, stats ? stats : &unused);
    }
    arena_destroy(arena);
    return status;
}

/* --- objects of compiled models
 * ----------------------------------------------------------------------------------------- */

static Status find_object(Arena *arena, const Kernel *kernel, const Policy *policy, char **out_key, void **out_object,
                          size_t *out_size) {
    jmp_buf guard;
    if (setjmp(guard)) return status_out_of_memory();
    arena_guard(arena, &guard);
    Target target = policy->target;
    if (!target.cpu) TRY(target_resolve(arena, &target));
    Text key = print_key(arena, kernel, &target);
    const char *directory = disk_directory(arena, policy);
    if (!(*out_key = strdup(key.data))) return status_out_of_memory();
    if (directory && disk_read(directory, key.data, key.size, out_object, out_size)) return NULL;
    TRY(generate(kernel, &target, out_object, out_size));
    if (*out_object) return NULL;
    const LlvmPlugin *plugin;
    TRY(llvm_plugin_get(&plugin));
    return plugin->compile(kernel, &target, out_object, out_size);
}

Status kernel_cache_object(const Kernel *kernel, const Policy *policy, char **out_key, void **out_object,
                           size_t *out_size) {
    *out_key = NULL;
    *out_object = NULL;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    Status status = find_object(arena, kernel, policy, out_key, out_object, out_size);
    arena_destroy(arena);
    if (status) free(*out_key);
    return status;
}

Status kernel_cache_put(const char *key, const void *object, size_t size, KernelCacheStats *stats,
                        KernelCode **out_code) {
    Key name = {.text = strdup(key), .size = strlen(key)};
    if (!name.text) return status_out_of_memory();
    name.hash = hash_bytes(name.text, name.size, 0);
    bool is_new;
    pthread_mutex_lock(&table.lock);
    KernelCode *code = enter(&name, &is_new);
    pthread_mutex_unlock(&table.lock);
    free(name.text);
    if (!code) return status_out_of_memory();
    if (is_new) code_table_publish(&table, &code->entry, object_load(object, size, KERNEL_SYMBOL, &code->code));
    *(is_new ? &stats->from_disk : &stats->from_memory) += 1;
    Status status = code_table_wait(&table, &code->entry);
    if (status) kernel_code_release(code);
    *out_code = status ? NULL : code;
    return status;
}

/* --- listings
 * --------------------------------------------------------------------------------------------------------- */

static void free_listing(void *place) { free(*(char **)place); }

Status kernel_listing(const Kernel *kernel, const Policy *policy, KernelListing what, Text *text) {
    const LlvmPlugin *plugin;
    Target target;
    char *listing;
    TRY(resolved_target(text->arena, policy, &target));
    if (what == LISTING_ASSEMBLY && may_generate()) {
        char **own = ARENA_NEW(text->arena, char *);
        void *object;
        size_t size;
        const char *reason;
        arena_defer(text->arena, free_listing, own);
        TRY(native_compile(kernel, &target, own, &object, &size, &reason));
        bool made = object != NULL;
        free(object);
        if (made) {
            text_add(text, "generator: native\n");
            text_add_bytes(text, *own, strlen(*own));
            return NULL;
        }
        text_add(text, "generator: LLVM, for the other has no rule for %s\n", reason);
    }
    TRY(llvm_plugin_get(&plugin));
    TRY(plugin->listing(kernel, &target, what, &listing));
    text_add_bytes(text, listing, strlen(listing));
    free(listing);
    return NULL;
}
