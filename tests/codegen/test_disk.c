/* SPDX-License-Identifier: Apache-2.0 */
/* Entries on disk, whatever happens to the disk, to the process, and to the files: what is read is what was written for
 * exactly this key, or nothing. `write` and `geteuid` are ours here. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/cache/disk.h"

/* --- doubles ----------------------------------------------------------------------------------------------------- */
static struct {
    bool on;
    int after; /* so many calls work; then: */
    int error; /* errno, or 0: nothing is written */
    bool kill; /* or half is written, and the process is killed */
    bool other_user;
} faults;

ssize_t write(int file, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!faults.on || faults.after-- > 0) return real(file, data, size);
    if (faults.kill) {
        real(file, data, size / 2);
        raise(SIGKILL);
    }
    errno = faults.error;
    return faults.error ? -1 : 0;
}

uid_t geteuid(void) {
    static uid_t (*real)(void);
    if (!real) real = (uid_t(*)(void))dlsym(RTLD_NEXT, "geteuid");
    return real() + faults.other_user;
}

/* --- a directory of its own -------------------------------------------------------------------------------------- */
static char directory[64];

static void setup(void) {
    strcpy(directory, "/tmp/onnxfuse-disk-XXXXXX");
    cr_assert(mkdtemp(directory));
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}

TestSuite(disk, .init = setup, .fini = teardown);

static const char key[] = "a kernel's text";
enum { KEY = sizeof key - 1, OBJECT = 3000 };

static void *object_of(char fill, size_t size) {
    char *object = malloc(size);
    memset(object, fill, size);
    return object;
}

static void put(char fill) {
    void *object = object_of(fill, OBJECT);
    disk_write(directory, key, KEY, object, OBJECT);
    free(object);
}

static void put_with_faults(char fill) {
    faults.on = true;
    put(fill);
    faults.on = false;
}

/* What is read, a byte for all of it; 0: nothing. */
static char get(void) {
    void *object;
    size_t size;
    if (!disk_read(directory, key, KEY, &object, &size)) return 0;
    char fill = *(char *)object;
    bool whole = size == OBJECT;
    for (size_t i = 0; whole && i < size; i++) whole = ((char *)object)[i] == fill;
    free(object);
    cr_assert(whole, "what is read is not what was written");
    return fill;
}

/* Names with this beginning; the last in out_path. */
static int names(const char *beginning, char *out_path) {
    DIR *d = opendir(directory);
    int count = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (strncmp(e->d_name, beginning, strlen(beginning))) continue;
        if (out_path) sprintf(out_path, "%s/%.200s", directory, e->d_name);
        count++;
    }
    closedir(d);
    return count;
}

/* --- the disk ---------------------------------------------------------------------------------------------------- */
Test(disk, a_full_disk_leaves_what_was_there, .timeout = 20) {
    static const int errors[] = {ENOSPC, EDQUOT, EIO, 0};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        for (int after = 0; after < 3; after++) { /* header, key, object */
            char entry = (char)('a' + after);
            faults.error = errors[i], faults.after = after;
            put_with_faults('!');
            cr_expect_eq(get(), 0, "error %d after %d writes", errors[i], after);
            cr_expect_eq(names("", NULL), 0, "error %d after %d writes: something is left", errors[i], after);
            put(entry);
            faults.after = after;
            put_with_faults('!');
            cr_expect_eq(get(), entry);
            cr_expect_eq(names("", NULL), 1);
            char path[300];
            names("", path);
            unlink(path);
        }
}

Test(disk, a_limit_of_the_files_size) {
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before;
    getrlimit(RLIMIT_FSIZE, &before);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){OBJECT / 2, before.rlim_max});
    put('a');
    setrlimit(RLIMIT_FSIZE, &before);
    cr_expect_eq(get(), 0);
    cr_expect_eq(names("", NULL), 0);
}

/* --- the process ------------------------------------------------------------------------------------------------- */
static void be_killed(int after) {
    pid_t child = fork();
    if (!child) {
        faults.kill = true, faults.after = after;
        put_with_faults('!');
        _exit(1);
    }
    int state;
    waitpid(child, &state, 0);
    cr_assert(WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL);
}

static void make_old(const char *path) {
    struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_NOW}};
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    times[1] = (struct timespec){info.st_mtim.tv_sec - 2 * 3600, 0};
    cr_assert_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

Test(disk, a_writer_that_is_killed_leaves_what_was_there) {
    for (int after = 0; after < 3; after++) {
        be_killed(after);
        cr_expect_eq(get(), 0);
    }
    cr_expect_eq(names(".new-", NULL), 3);
    put('b');
    be_killed(1);
    cr_expect_eq(get(), 'b');
    cr_expect_eq(names(".new-", NULL), 4);
}

Test(disk, what_killed_writers_left_is_cleaned_when_it_is_old) {
    char path[300];
    be_killed(2);
    names(".new-", path);
    make_old(path);
    be_killed(2); /* a young one: it may be under way */
    put('c');
    disk_trim(directory, 1);
    cr_expect_eq(names(".new-", NULL), 1);
    cr_expect_neq(access(path, F_OK), 0);
    cr_expect_eq(get(), 'c');
}

static void write_for_ever(char fill) {
    for (;;) put(fill);
}

/* Two that write the same entry, one that trims it away, and a reader. */
Test(disk, a_reader_beside_writers_and_trimming_sees_whole_entries, .timeout = 60) {
    enum { WRITERS = 2, CHILDREN, MOST_READS = 4000 };
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        if (children[i]) continue;
        if (i < WRITERS) write_for_ever((char)('x' + i));
        for (;;) disk_trim(directory, 0);
    }
    int found[256] = {0};
    for (int i = 0; i < MOST_READS && (i < 200 || !found[0] || !(found['x'] && found['y'])); i++) {
        found[(unsigned char)get()]++;
        usleep(50);
    }
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    cr_expect(found['x'] && found['y'], "%d of one, %d of the other, %d of none", found['x'], found['y'], found[0]);
    disk_trim(directory, 0);
    put('z');
    cr_expect_eq(get(), 'z');
}

/* --- the files --------------------------------------------------------------------------------------------------- */
/* Each byte of an entry changed: header, key and object are all under the hash. */
Test(disk, an_altered_entry_is_not_read) {
    char path[300];
    put('a');
    cr_assert_eq(names("", path), 1);
    int file = open(path, O_RDWR | O_CLOEXEC);
    struct stat info;
    cr_assert_eq(fstat(file, &info), 0);
    for (off_t at = 0; at < info.st_size; at++) {
        unsigned char byte, other;
        cr_assert_eq(pread(file, &byte, 1, at), 1);
        other = byte ^ (unsigned char)(1 << at % 8);
        cr_assert_eq(pwrite(file, &other, 1, at), 1);
        void *object;
        size_t size;
        cr_expect(!disk_read(directory, key, KEY, &object, &size), "byte %ld may be any", (long)at);
        cr_assert_eq(pwrite(file, &byte, 1, at), 1);
    }
    close(file);
    cr_expect_eq(get(), 'a');
}

/* Whose name is another key's, as two keys of one hash would have it. */
Test(disk, an_entry_of_another_key_is_not_read) {
    static const char other[] = "b kernel's text";
    char path[256], place[256];
    void *object = object_of('x', OBJECT);
    put('a');
    cr_assert_eq(names("", path), 1);
    strcpy(place, path);
    cr_assert_eq(unlink(path), 0);
    disk_write(directory, other, sizeof other - 1, object, OBJECT);
    free(object);
    cr_assert_eq(names("", path), 1);
    cr_assert(strcmp(path, place), "two names are needed");
    cr_assert_eq(rename(path, place), 0);
    cr_expect_eq(get(), 0);
}

Test(disk, an_entry_that_is_cut_or_grows_is_not_read) {
    char path[300];
    put('a');
    cr_assert_eq(names("", path), 1);
    struct stat info;
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq(truncate(path, info.st_size + 1), 0);
    cr_expect_eq(get(), 0);
    for (off_t size = info.st_size - 1; size >= 0; size = size > 64 ? size / 2 : size - 1) {
        cr_assert_eq(truncate(path, size), 0);
        cr_expect_eq(get(), 0, "%ld bytes", (long)size);
    }
}

Test(disk, a_link_is_not_read_and_is_replaced) {
    char path[300], target[96];
    struct stat info;
    put('a');
    names("", path);
    snprintf(target, sizeof target, "%s/target", directory);
    cr_assert_eq(rename(path, target), 0);
    cr_assert_eq(symlink(target, path), 0);
    cr_expect_eq(get(), 0, "a link is followed");
    disk_trim(directory, 0);
    cr_expect_eq(access(target, F_OK), 0, "trimming follows a link");
    put('b');
    cr_expect(!lstat(path, &info) && S_ISREG(info.st_mode));
    cr_expect_eq(get(), 'b');
    cr_assert_eq(rename(target, path), 0);
    cr_expect_eq(get(), 'a', "what the link led to was written");
}

Test(disk, a_folder_in_an_entrys_place_is_a_miss) {
    char path[300];
    put('a');
    names("", path);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_expect_eq(get(), 0);
    put('b');
    cr_expect_eq(get(), 0);
    cr_expect_eq(names(".new-", NULL), 0);
    disk_trim(directory, 0);
}

Test(disk, what_others_could_have_written_is_not_read) {
    char path[300];
    put('a');
    names("", path);
    faults.other_user = true;
    cr_expect_eq(get(), 0, "an entry of another user's");
    faults.other_user = false;
    cr_assert_eq(chmod(path, 0620), 0);
    cr_expect_eq(get(), 0, "an entry that a group may write");
    cr_assert_eq(chmod(path, 0602), 0);
    cr_expect_eq(get(), 0, "an entry that all may write");
    cr_assert_eq(chmod(path, 0644), 0);
    cr_expect_eq(get(), 'a');
}

Test(disk, a_directory_of_another_users_is_ignored) {
    Arena *arena = arena_create(0);
    Policy policy = policy_default();
    policy.cache.directory = directory;
    cr_expect(disk_directory(arena, &policy));
    faults.other_user = true;
    cr_expect(!disk_directory(arena, &policy));
    arena_destroy(arena);
}
