/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel cache: one compilation a key, in this process, across processes, and whatever stands on disk; and the
 * loader of objects. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "codegen/codegen.h"
#include "codegen/cache/disk.h"
#include "codegen/object.h"
#include "handmade.h"

static Kernel *scale_kernel(Arena *arena, double by) {
    Maker m = maker(arena, 1024);
    axis(&m, AXIS_LANE, -1, 1);
    int x = load(&m, buffer(&m, DT_F32, false), STRIDES(&m, 1));
    store(&m, buffer(&m, DT_F32, true), STRIDES(&m, 1), op(&m, K_MUL, DT_F32, x, constant(&m, DT_F32, by), 0));
    return m.kernel;
}

static void check_scales(const KernelCode *code, float by) {
    float x[37], y[37] = {0};
    for (int i = 0; i < 37; i++) x[i] = (float)i;
    int64_t size = 37;
    kernel_code_function(code)((void *[]){x, y}, &size, 0, 1, NULL);
    for (int i = 0; i < 37; i++) cr_assert_eq(y[i], by * (float)i);
}

static char directory[64];
static Arena *arena;
static Policy policy;

static void setup(void) {
    strcpy(directory, "/tmp/onnxfuse-cache-XXXXXX");
    cr_assert(mkdtemp(directory));
    arena = arena_create(0);
    policy = policy_default();
    policy.cache.directory = directory;
    policy.threads = 2;
    Status status = target_resolve(arena, &policy.target);
    cr_assert(!status, "%s", status_message(status));
}

static int entries(char *out_path, size_t size) {
    DIR *d = opendir(directory);
    int count = 0;
    cr_assert(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            count++;
            if (out_path) snprintf(out_path, size, "%s/%.200s", directory, e->d_name);
        } else if (strlen(e->d_name) > 2) {
            count += 1000; /* something temporary was left behind */
        }
    closedir(d);
    return count;
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
    arena_destroy(arena);
}

TestSuite(cache, .init = setup, .fini = teardown);

static KernelCode *get_one(double by, KernelCacheStats *stats) {
    const Kernel *kernel = scale_kernel(arena, by);
    KernelCode *code;
    Status status = kernel_cache_get(&kernel, 1, &policy, stats, &code);
    cr_assert(!status, "%s", status_message(status));
    check_scales(code, (float)by);
    return code;
}

Test(cache, equal_kernels_compile_once) {
    KernelCacheStats stats = {0};
    const Kernel *kernels[] = {scale_kernel(arena, 2), scale_kernel(arena, 3), scale_kernel(arena, 2)};
    KernelCode *codes[3];
    Status status = kernel_cache_get(kernels, 3, &policy, &stats, codes);
    cr_assert(!status, "%s", status_message(status));
    cr_assert_eq(codes[0], codes[2]);
    check_scales(codes[0], 2);
    check_scales(codes[1], 3);
    cr_assert_eq(stats.compiled, 2);
    cr_assert_eq(stats.from_memory, 1);
    cr_assert(stats.compile_ms > 0);
    cr_assert(kernel_code_bytes(codes[0]) > 0);
    for (int i = 0; i < 3; i++) kernel_code_release(codes[i]);
}

Test(cache, a_trimmed_kernel_comes_back_from_disk) {
    KernelCacheStats stats = {0};
    kernel_code_release(get_one(2, &stats));
    kernel_code_release(get_one(2, &stats));
    cr_assert_eq(stats.from_memory, 1);
    kernel_cache_trim();
    kernel_code_release(get_one(2, &stats));
    cr_assert_eq(stats.compiled, 1);
    cr_assert_eq(stats.from_disk, 1);
    cr_assert_eq(entries(NULL, 0), 1);
}

Test(cache, code_in_use_is_not_trimmed) {
    KernelCacheStats stats = {0};
    KernelCode *code = get_one(5, &stats);
    kernel_cache_trim();
    check_scales(code, 5);
    kernel_code_release(code);
    kernel_code_release(NULL);
}

Test(cache, a_damaged_file_is_replaced) {
    KernelCacheStats stats = {0};
    char path[512];
    for (int way = 0; way < 3; way++) {
        kernel_code_release(get_one(2, &stats));
        cr_assert_eq(entries(path, sizeof path), 1);
        struct stat info;
        cr_assert_eq(stat(path, &info), 0);
        if (way == 0) cr_assert_eq(truncate(path, info.st_size / 2), 0);
        if (way == 1) cr_assert_eq(truncate(path, 0), 0);
        if (way == 2) {
            int file = open(path, O_WRONLY);
            cr_assert_eq(pwrite(file, "x", 1, info.st_size - 100), 1);
            close(file);
        }
        kernel_cache_trim();
        int before = stats.compiled;
        kernel_code_release(get_one(2, &stats));
        cr_assert_eq(stats.compiled, before + 1, "way %d", way);
        kernel_cache_trim();
        kernel_code_release(get_one(2, &stats));
        cr_assert_eq(stats.compiled, before + 1, "way %d: not replaced", way);
        kernel_cache_trim();
    }
}

Test(cache, an_entry_of_another_key_is_not_taken) {
    void *object;
    size_t size;
    char path[512], other[512];
    disk_write(directory, "key a", 5, "content", 7);
    cr_assert_eq(entries(path, sizeof path), 1);
    disk_write(directory, "key b", 5, "another", 7);
    DIR *d = opendir(directory);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(other, sizeof other, "%s/%.200s", directory, e->d_name);
        if (e->d_name[0] != '.' && strcmp(other, path)) cr_assert_eq(rename(other, path), 0);
    }
    closedir(d);
    cr_assert(!disk_read(directory, "key a", 5, &object, &size));
    disk_write(directory, "key a", 5, "content", 7);
    cr_assert(disk_read(directory, "key a", 5, &object, &size));
    cr_assert(size == 7 && memcmp(object, "content", 7) == 0);
    free(object);
}

Test(cache, a_directory_open_to_others_is_ignored) {
    KernelCacheStats stats = {0};
    cr_assert_eq(chmod(directory, 0777), 0);
    cr_assert(!disk_directory(arena, &policy));
    kernel_code_release(get_one(7, &stats));
    cr_assert_eq(entries(NULL, 0), 0);
    cr_assert_eq(chmod(directory, 0755), 0);
    cr_assert_str_eq(disk_directory(arena, &policy), directory);
}

Test(cache, an_impossible_directory_is_no_error) {
    KernelCacheStats stats = {0};
    policy.cache.directory = "/proc/nowhere";
    kernel_code_release(get_one(11, &stats));
    policy.cache.enable = false;
    kernel_code_release(get_one(13, &stats));
    cr_assert_eq(stats.compiled, 2);
}

Test(cache, the_directory_is_made_for_its_user_alone) {
    policy.cache.directory = arena_format(arena, "%s/a/b", directory);
    struct stat info;
    cr_assert_str_eq(disk_directory(arena, &policy), policy.cache.directory);
    cr_assert_eq(stat(policy.cache.directory, &info), 0);
    cr_assert_eq(info.st_mode & 0777, 0700u);
}

Test(cache, the_oldest_entries_go_first) {
    char *block = calloc(1, 300 << 10), key[2] = "a";
    void *object;
    size_t size;
    for (int n = 0; n < 6; n++) {
        key[0] = (char)('a' + n);
        disk_write(directory, key, 1, block, 300 << 10);
        usleep(20000);
    }
    cr_assert(disk_read(directory, "a", 1, &object, &size)); /* used now: the youngest */
    free(object);
    disk_trim(directory, 1);
    cr_assert(entries(NULL, 0) <= 3);
    cr_assert(disk_read(directory, "a", 1, &object, &size));
    free(object);
    cr_assert(!disk_read(directory, "b", 1, &object, &size));
    free(block);
}

static void *get_many(void *result) {
    Arena *own = arena_create(0);
    KernelCacheStats stats = {0};
    for (int n = 0; n < 12; n++) {
        const Kernel *kernel = scale_kernel(own, 100 + n % 6);
        KernelCode *code;
        Status status = kernel_cache_get(&kernel, 1, &policy, &stats, &code);
        if (status) return NULL;
        check_scales(code, (float)(100 + n % 6));
        kernel_code_release(code);
    }
    arena_destroy(own);
    *(int *)result = stats.compiled;
    return result;
}

Test(cache, threads_that_ask_for_the_same_kernel_compile_it_once) {
    pthread_t threads[6];
    int compiled[6] = {0}, total = 0;
    for (int i = 0; i < 6; i++) pthread_create(&threads[i], NULL, get_many, &compiled[i]);
    for (int i = 0; i < 6; i++) {
        void *result;
        pthread_join(threads[i], &result);
        cr_assert(result);
        total += compiled[i];
    }
    cr_assert_eq(total, 6);
}

Test(cache, processes_share_a_directory) {
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i]) continue;
        int compiled;
        _exit(get_many(&compiled) ? 0 : 1);
    }
    for (int i = 0; i < 4; i++) {
        int state;
        waitpid(children[i], &state, 0);
        cr_assert(WIFEXITED(state) && WEXITSTATUS(state) == 0);
    }
    cr_assert_eq(entries(NULL, 0), 6);
    KernelCacheStats stats = {0};
    kernel_code_release(get_one(103, &stats));
    cr_assert_eq(stats.from_disk, 1);
}

Test(cache, listings_show_the_function) {
    Text text = text_make(arena);
    Status status = kernel_listing(scale_kernel(arena, 2), &policy, LISTING_LLVM, &text);
    cr_assert(!status, "%s", status_message(status));
    cr_assert(strstr(text.data, "define void @onnxfuse_kernel"));
    text = text_make(arena);
    status = kernel_listing(scale_kernel(arena, 2), &policy, LISTING_ASSEMBLY, &text);
    cr_assert(!status && strstr(text.data, "onnxfuse_kernel:"));
}

#ifdef __x86_64__
/* A function of LLVM's text as blocks. */
typedef struct Block {
    char name[64], next[2][64];
    bool stores, fenced, returns, seen; /* stores past the caches; has a fence (behind those); ends the function */
} Block;
enum { MOST_BLOCKS = 200 };

static int read_blocks(const char *text, Block *blocks) {
    int count = 0;
    for (const char *line = text, *end; (end = strchr(line, '\n')) && *line != '}'; line = end + 1) {
        char copy[1000], *label;
        snprintf(copy, sizeof copy, "%.*s", (int)(end - line < 999 ? end - line : 999), line);
        if (copy[0] != ' ' && strchr(copy, ':') && count < MOST_BLOCKS) {
            blocks[count] = (Block){0};
            snprintf(blocks[count++].name, sizeof blocks->name, "%.*s", (int)strcspn(copy, ":"), copy);
            continue;
        }
        if (!count) continue;
        Block *now = &blocks[count - 1];
        if (strstr(copy, "!nontemporal")) now->stores = true, now->fenced = false;
        if (strstr(copy, "call void @llvm.x86.sse.sfence()")) now->fenced = true;
        if (strstr(copy, "  ret ")) now->returns = true;
        label = strstr(copy, "  br ") ? strstr(copy, "label %") : NULL;
        for (int i = 0; label && i < 2; i++, label = strstr(label + 1, "label %"))
            snprintf(now->next[i], sizeof now->next[i], "%.*s", (int)strcspn(label + 7, ", "), label + 7);
    }
    return count;
}

/* Whether a way leads from the end of the block to a return and past no fence. */
static bool leaves_without_fence(Block *blocks, int count, Block *from) {
    if (from->returns) return true;
    for (int n = 0; n < 2; n++)
        for (int i = 0; i < count; i++) {
            if (strcmp(blocks[i].name, from->next[n]) || blocks[i].seen) continue;
            blocks[i].seen = true;
            if (!(blocks[i].fenced && !blocks[i].stores) && leaves_without_fence(blocks, count, &blocks[i]))
                return true;
        }
    return false;
}

/* Stores past the caches are not ordered by what tells other threads of the result: each way from one to the kernel's
 * end passes a fence. Runs show that it is missing now and then at most. */
Test(cache, stores_past_the_caches_are_fenced) {
    static Block blocks[MOST_BLOCKS];
    Text text = text_make(arena);
    Status status = kernel_listing(scale_kernel(arena, 2), &policy, LISTING_LLVM, &text);
    cr_assert(!status, "%s", status_message(status));
    const char *function = strstr(text.data, "define void @onnxfuse_kernel");
    int count = read_blocks(function, blocks), stores = 0, returns = 0;
    for (int i = 0; i < count; i++) {
        returns += blocks[i].returns;
        stores += blocks[i].stores;
        if (!blocks[i].stores || blocks[i].fenced) continue;
        for (int b = 0; b < count; b++) blocks[b].seen = false;
        cr_expect(!leaves_without_fence(blocks, count, &blocks[i]), "no fence behind %s\n%s", blocks[i].name, function);
    }
    cr_expect(stores > 0 && returns > 0, "the kernel does not store past the caches\n%s", function);
}
#endif

Test(cache, a_level_that_the_machine_lacks_is_named) {
    Target target = {.level = "z80"};
    Status status = target_resolve(arena, &target);
    cr_assert_eq(status_code(status), STATUS_USAGE);
    cr_assert(strstr(status_message(status), "z80"));
    status_free(status);
    target = (Target){.level = "host"};
    cr_assert(!target_resolve(arena, &target));
    cr_assert(target.vector_bytes >= 16 && target.cpu && target.features);
}

/* --- objects
 * ---------------------------------------------------------------------------------------------------------- */

/* An object as the cache keeps it: of a kernel whose constants need relocations. */
static void *read_object(size_t *out_size) {
    KernelCacheStats stats = {0};
    char path[512];
    kernel_code_release(get_one(0.3, &stats));
    cr_assert_eq(entries(path, sizeof path), 1);
    FILE *file = fopen(path, "rb");
    static char data[1 << 20];
    size_t size = fread(data, 1, sizeof data, file);
    fclose(file);
    for (size_t i = 0; i + 4 < size; i++)
        if (memcmp(data + i, ELFMAG, 4) == 0) {
            *out_size = size - i;
            return data + i;
        }
    cr_assert(false, "no object in the entry");
    return NULL;
}

/* Each size, and each byte of headers, tables and names changed: an error or a loaded function, and nothing read or
 * written outside. */
Test(cache, cut_and_altered_objects_never_crash_the_loader) {
    size_t size;
    char *whole = read_object(&size),
         *end = mmap(NULL, 1 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
    cr_assert_eq(mprotect(end + room, page, PROT_NONE), 0);
    ObjectCode code;
    for (size_t n = 0; n <= size; n++) { /* ends right before memory that cannot be read */
        memcpy(end + room - n, whole, n);
        Status status = object_load(end + room - n, n, "onnxfuse_kernel", &code);
        cr_assert(status || n == size, "%zu of %zu bytes load", n, size);
        status_free(status);
        if (n == size) object_unload(&code);
    }
    static const unsigned char bits[] = {0x01, 0x80, 0xff};
    char *copy = end + room - size;
    for (size_t n = 0; n < size; n++)
        for (int b = 0; b < 3; b++) {
            memcpy(copy, whole, size);
            copy[n] = (char)(copy[n] ^ bits[b]);
            Status status = object_load(copy, size, "onnxfuse_kernel", &code);
            if (!status) object_unload(&code);
            status_free(status);
        }
    Status status = object_load(whole, size, "another_name", &code);
    cr_assert_eq(status_code(status), STATUS_INVALID);
    status_free(status);
}
