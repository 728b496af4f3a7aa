/* SPDX-License-Identifier: Apache-2.0 */
/* Programs by their source and target: in the process's table, else on disk, else compiled by the driver. Contexts stay
 * open as long as there are programs of them, so that the next session finds both. */
#include <stdlib.h>
#include <time.h>

#include "base/log.h"
#include "base/map.h"
#include "codegen/cache/code_table.h"
#include "codegen/cache/disk.h"
#include "runtime/device/gpu/gpu.h"

typedef struct ProgramFunction {
    struct ProgramFunction *next;
    const GpuFunction *function;
    char name[]; /* terminated */
} ProgramFunction;

/* A context that is held open for the table's programs. */
typedef struct OpenContext {
    struct OpenContext *next;
    const GpuDriver *driver;
    GpuContext *context;
    int programs;
} OpenContext;

struct GpuProgram {
    CodeEntry entry;
    OpenContext *open;
    size_t key_size;
    GpuModule *module;
    _Atomic(ProgramFunction *) functions; /* only grows, under the lock: readers take none */
    char key[];                           /* target, newline, source; terminated */
};

static bool has_key(const CodeEntry *entry, const void *key);
static void destroy_program(CodeEntry *entry);
static CodeTable table = CODE_TABLE(has_key, destroy_program);
static OpenContext *contexts; /* under the table's lock */

static double clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* --- the table, with its lock held --- */

/* The context's record, with one program more. */
static Status hold_context(GpuDevice *device, OpenContext **out_open) {
    OpenContext *open = contexts;
    while (open && open->context != device->context) open = open->next;
    if (!open) {
        open = calloc(1, sizeof *open);
        if (!open) return status_out_of_memory();
        Status status = device->driver->open(device->base.policy, &open->context);
        if (status) {
            free(open);
            return status;
        }
        open->driver = device->driver;
        open->next = contexts;
        contexts = open;
    }
    open->programs++;
    *out_open = open;
    return NULL;
}

static void let_context_go(OpenContext *open) {
    if (--open->programs) return;
    OpenContext **at = &contexts;
    while (*at != open) at = &(*at)->next;
    *at = open->next;
    open->driver->close(open->context);
    free(open);
}

typedef struct Key {
    const GpuContext *context;
    Text text;
} Key;

static bool has_key(const CodeEntry *entry, const void *key) {
    const GpuProgram *program = (const GpuProgram *)(const void *)entry;
    const Key *k = key;
    return program->open->context == k->context && program->key_size == k->text.size &&
           memcmp(program->key, k->text.data, k->text.size) == 0;
}

static Status program_new(GpuDevice *device, uint64_t hash, const Text *key, CodeEntry **out_entry) {
    GpuProgram *program = calloc(1, sizeof *program + key->size + 1);
    if (!program) return status_out_of_memory();
    Status status = hold_context(device, &program->open);
    if (status) {
        free(program);
        return status;
    }
    memcpy(program->key, key->data, key->size);
    program->entry.hash = hash;
    program->key_size = key->size;
    *out_entry = &program->entry;
    return NULL;
}

static void destroy_program(CodeEntry *entry) {
    GpuProgram *program = (GpuProgram *)(void *)entry;
    for (ProgramFunction *f = atomic_load(&program->functions), *next; f; f = next) {
        next = f->next;
        free(f);
    }
    if (program->module) program->open->driver->unload(program->open->context, program->module);
    let_context_go(program->open);
    free(program);
}

/* --- making programs --- */

typedef enum Origination { FROM_MEMORY, FROM_DISK, COMPILED } Origination;

typedef struct Making {
    Origination how;
    double began, ended; /* of the compilation */
} Making;

typedef struct Request {
    GpuDevice *device;
    int count;
    const char *directory; /* on disk; NULL: none */
    GpuProgram **programs; /* the caller's */
    int *mine, mine_count; /* the programs that this request makes */
    Making *makings;       /* [mine_count] */
} Request;

static bool load_from_disk(const Request *q, GpuProgram *program) {
    void *binary;
    size_t size;
    if (!q->directory || !disk_read(q->directory, program->key, program->key_size, &binary, &size)) return false;
    Status refused = q->device->driver->load(q->device->context, binary, size, &program->module);
    free(binary);
    if (!refused) return true;
    LOG(1, "kernel cache: a program is compiled again: %s", status_message(refused));
    status_free(refused);
    program->module = NULL;
    return false;
}

static Status compile_program(const Request *q, GpuProgram *program) {
    const GpuDriver *driver = q->device->driver;
    const char *source = strchr(program->key, '\n') + 1;
    void *binary = NULL;
    size_t size = 0;
    LOG(3, "program:\n%s", source);
    TRY(driver->compile(q->device->context, source, &binary, &size));
    Status status = driver->load(q->device->context, binary, size, &program->module);
    if (status)
        program->module = NULL;
    else if (q->directory)
        disk_write(q->directory, program->key, program->key_size, binary, size);
    free(binary);
    return status;
}

static void make_piece(void *context, int64_t begin, int64_t end, int worker) {
    Request *q = context;
    (void)worker;
    for (int64_t n = begin; n < end; n++) {
        GpuProgram *program = q->programs[q->mine[n]];
        Making *making = &q->makings[n];
        Status status = NULL;
        making->how = FROM_DISK;
        if (!load_from_disk(q, program)) {
            making->how = COMPILED;
            making->began = clock_ms();
            status = compile_program(q, program);
            making->ended = clock_ms();
        }
        code_table_publish(&table, &program->entry, status);
    }
}

/* --- getting --- */

static Status enter_keys(Request *q, const Key *keys) {
    Status status = NULL;
    pthread_mutex_lock(&table.lock);
    for (int i = 0; i < q->count && !status; i++) {
        uint64_t hash = hash_bytes(keys[i].text.data, keys[i].text.size, 0);
        CodeEntry **place = code_table_place(&table, hash, &keys[i]);
        if (!*place) {
            status = program_new(q->device, hash, &keys[i].text, place);
            if (status) break;
            q->mine[q->mine_count++] = i;
        }
        q->programs[i] = (GpuProgram *)(void *)*place;
        (*place)->references++;
    }
    pthread_mutex_unlock(&table.lock);
    return status;
}

static void count(const Request *q, int entered, KernelCacheStats *stats) {
    double began = 0, ended = 0;
    int compiled = 0;
    for (int n = 0; n < q->mine_count; n++) {
        const Making *m = &q->makings[n];
        if (m->how == FROM_DISK) stats->from_disk++;
        if (m->how != COMPILED) continue;
        if (!compiled++ || m->began < began) began = m->began;
        if (m->ended > ended) ended = m->ended;
    }
    stats->from_memory += entered - q->mine_count;
    stats->compiled += compiled;
    stats->compile_ms += ended - began;
    if (compiled && q->directory) disk_trim(q->directory, q->device->base.policy->cache.max_megabytes);
}

/* Waits for what others are making; on any failure gives everything back. */
static Status collect(Request *q, Status status) {
    for (int i = 0; i < q->count && !status; i++) status = code_table_wait(&table, &q->programs[i]->entry);
    for (int i = 0; status && i < q->count; i++) {
        gpu_program_release(q->programs[i]);
        q->programs[i] = NULL;
    }
    return status;
}

static Status get(Arena *arena, Request *q, const char *const *sources, KernelCacheStats *stats) {
    Key *keys = ARENA_ARRAY(arena, Key, q->count + 1);
    const char *target = q->device->driver->target(q->device->context);
    for (int i = 0; i < q->count; i++) {
        Text text = text_make(arena);
        for (const char *c = target; *c; c++) text_add_bytes(&text, *c == '\n' ? " " : c, 1);
        text_add_bytes(&text, "\n", 1);
        text_add_bytes(&text, sources[i], strlen(sources[i]));
        keys[i] = (Key){q->device->context, text};
    }
    q->mine = ARENA_ARRAY(arena, int, q->count + 1);
    q->makings = ARENA_ARRAY(arena, Making, q->count + 1);
    q->directory = disk_directory(arena, q->device->base.policy);
    arena_guard(arena, NULL); /* nothing is allocated from here on: entries that others wait for must be published */
    Status status = enter_keys(q, keys);
    int entered = 0;
    while (entered < q->count && q->programs[entered]) entered++;
    pool_for(q->mine_count > 1 ? q->device->base.pool : NULL, q->mine_count, 1, make_piece, q);
    count(q, entered, stats);
    return collect(q, status);
}

static void add_stats(KernelCacheStats *to, const KernelCacheStats *from) {
    to->compiled += from->compiled;
    to->from_disk += from->from_disk;
    to->from_memory += from->from_memory;
    to->compile_ms += from->compile_ms;
}

void gpu_count_anchors(Device *device, KernelCacheStats *stats) {
    GpuDevice *d = gpu_device(device);
    pthread_mutex_lock(&table.lock);
    add_stats(stats, &d->uncounted);
    d->uncounted = (KernelCacheStats){0};
    pthread_mutex_unlock(&table.lock);
}

Status gpu_programs_get(GpuDevice *device, const char *const *sources, int source_count, KernelCacheStats *stats,
                        GpuProgram **out_programs) {
    for (int i = 0; i < source_count; i++) out_programs[i] = NULL;
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    KernelCacheStats own = {0};
    Request q = {.device = device, .count = source_count, .programs = out_programs};
    jmp_buf guard;
    Status volatile status = NULL;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        status = get(arena, &q, sources, stats ? stats : &own);
    }
    arena_destroy(arena);
    if (!stats) {
        pthread_mutex_lock(&table.lock);
        add_stats(&device->uncounted, &own);
        pthread_mutex_unlock(&table.lock);
    }
    return status;
}

Status gpu_program_get(GpuDevice *device, const char *source, KernelCacheStats *stats, GpuProgram **out_program) {
    return gpu_programs_get(device, &source, 1, stats, out_program);
}

GpuProgram *gpu_program_hold(GpuProgram *program) {
    code_table_hold(&table, &program->entry);
    return program;
}

void gpu_program_release(GpuProgram *program) {
    if (program) code_table_release(&table, &program->entry);
}

void gpu_program_trim(void) { code_table_trim(&table); }

/* --- functions --- */

static Status add_function(GpuProgram *program, const char *name, const GpuFunction **out_function) {
    ProgramFunction *f = malloc(sizeof *f + strlen(name) + 1);
    if (!f) return status_out_of_memory();
    Status status = program->open->driver->function(program->open->context, program->module, name, &f->function);
    if (status) {
        free(f);
        return status;
    }
    strcpy(f->name, name);
    f->next = atomic_load(&program->functions);
    atomic_store(&program->functions, f);
    *out_function = f->function;
    return NULL;
}

static bool find_function(const GpuProgram *program, const char *name, const GpuFunction **out_function) {
    const ProgramFunction *f = atomic_load(&((GpuProgram *)(uintptr_t)program)->functions); /* takes no const */
    while (f && strcmp(f->name, name)) f = f->next;
    if (f) *out_function = f->function;
    return f != NULL;
}

Status gpu_program_function(GpuProgram *program, const char *name, const GpuFunction **out_function) {
    Status status = NULL;
    if (find_function(program, name, out_function)) return NULL;
    pthread_mutex_lock(&table.lock);
    if (!find_function(program, name, out_function)) status = add_function(program, name, out_function);
    pthread_mutex_unlock(&table.lock);
    return status;
}
