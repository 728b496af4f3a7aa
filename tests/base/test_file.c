/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all, with each system call behind them failing in turn: `write` and `fsync` are ours
 * here. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"

/* --- doubles ----------------------------------------------------------------------------------------------------- */
static struct {
    bool on;         /* else the system's */
    int interrupted; /* so many calls are interrupted first */
    int error;       /* 0: the call does nothing and says so */
    int after;       /* so many calls work before */
    size_t piece;    /* and write so much at once; 0: all */
    int fsync_error;
} faults;

ssize_t write(int file, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (!faults.on) return real(file, data, size);
    if (faults.interrupted-- > 0) {
        errno = EINTR;
        return -1;
    }
    if (faults.after-- > 0) return real(file, data, faults.piece && faults.piece < size ? faults.piece : size);
    errno = faults.error;
    return faults.error ? -1 : 0;
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    if (!faults.fsync_error) return real(file);
    errno = faults.fsync_error;
    return -1;
}

/* --- a folder of its own ----------------------------------------------------------------------------------------- */
static char folder[64], path[96], other[96];

static void setup(void) {
    strcpy(folder, "/tmp/onnxfuse-file-XXXXXX");
    cr_assert(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(other, sizeof other, "%s/other", folder);
}

static void teardown(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(file, .init = setup, .fini = teardown);

static int entries(void) {
    DIR *d = opendir(folder);
    int count = 0;
    for (struct dirent *e; (e = readdir(d));) count += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    closedir(d);
    return count;
}

static void put_plainly(const char *place, const char *text) {
    FILE *f = fopen(place, "w");
    cr_assert(f && fputs(text, f) >= 0 && !fclose(f));
}

static void expect_content(const char *place, const char *text) {
    char got[64] = "";
    FILE *f = fopen(place, "r");
    cr_assert(f, "%s is not there", place);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    fclose(f);
    cr_expect_str_eq(got, text);
}

static Status write_text(const char *place, const char *text) {
    NewFile file = new_file(place);
    faults.on = true;
    Status status = new_file_begin(&file);
    if (!status) status = new_file_append(&file, text, strlen(text));
    if (!status) status = new_file_close(&file);
    if (!status) status = new_file_publish(&file);
    faults.on = false;
    new_file_abandon(&file);
    return status;
}

static void expect_failure(Status status, const char *says) {
    cr_expect_eq(status_code(status), STATUS_INVALID);
    cr_expect(strstr(status_message(status), path), "%s: does not name the file", status_message(status));
    cr_expect(strstr(status_message(status), says), "%s: does not say \"%s\"", status_message(status), says);
    status_free(status);
}

enum { ALWAYS = 1 << 20 };

/* --- what works -------------------------------------------------------------------------------------------------- */
Test(file, appears_when_it_is_published) {
    NewFile file = new_file(path);
    put_plainly(path, "before");
    cr_assert(!new_file_begin(&file));
    cr_assert(!new_file_append(&file, "after", 5));
    cr_assert(!new_file_append(&file, "", 0));
    cr_expect_eq(file.size, 5);
    expect_content(path, "before");
    cr_assert(!new_file_close(&file));
    expect_content(path, "before");
    cr_assert(!new_file_publish(&file));
    expect_content(path, "after");
    new_file_abandon(&file);
    expect_content(path, "after");
    cr_expect_eq(entries(), 1);
}

Test(file, short_writes_are_continued) {
    faults.after = ALWAYS, faults.piece = 3;
    cr_assert(!write_text(path, "a text in pieces"));
    expect_content(path, "a text in pieces");
}

Test(file, a_name_without_a_folder_is_of_this_one) {
    cr_assert_eq(chdir(folder), 0);
    faults.after = ALWAYS;
    cr_assert(!write_text("file", "here"));
    expect_content(path, "here");
}

Test(file, a_link_is_followed_and_stays) {
    struct stat info;
    put_plainly(other, "before");
    cr_assert_eq(symlink("other", path), 0);
    faults.after = ALWAYS;
    cr_assert(!write_text(path, "after"));
    expect_content(other, "after");
    cr_expect(!lstat(path, &info) && S_ISLNK(info.st_mode), "the link was replaced");
    cr_expect_eq(entries(), 2);
}

Test(file, a_link_that_leads_nowhere_is_replaced) {
    cr_assert_eq(symlink("nowhere", path), 0);
    faults.after = ALWAYS;
    cr_assert(!write_text(path, "after"));
    expect_content(path, "after");
    cr_expect_eq(entries(), 1);
}

Test(file, hard_links_of_the_old_file_keep_its_content) {
    put_plainly(path, "before");
    cr_assert_eq(link(path, other), 0);
    faults.after = ALWAYS;
    cr_assert(!write_text(path, "after"));
    expect_content(path, "after");
    expect_content(other, "before");
}

/* --- what fails: the old file stays, nothing is left behind -------------------------------------------------------- */
typedef struct Failure {
    const char *name;
    int error, after, fsync_error;
    const char *says;
} Failure;
static const Failure failures[] = {
    {"a full disk at once", ENOSPC, 0, 0, "No space left"},
    {"a full disk on the way", ENOSPC, 2, 0, "No space left"},
    {"a quota", EDQUOT, 1, 0, "quota"},
    {"a write of nothing", 0, 0, 0, "Input/output error"},
    {"a write of nothing on the way", 0, 1, 0, "Input/output error"},
    {"a disk that fails when it is flushed", 0, ALWAYS, EIO, "Input/output error"},
};

Test(file, failures_leave_the_old_file_and_nothing_else, .timeout = 20) {
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        const Failure *f = &failures[i];
        for (int existed = 0; existed < 2; existed++) {
            if (existed) put_plainly(path, "before");
            faults.error = f->error, faults.after = f->after, faults.fsync_error = f->fsync_error, faults.piece = 4;
            expect_failure(write_text(path, "a text in pieces"), f->says);
            if (existed) expect_content(path, "before");
            cr_expect_eq(entries(), existed, "%s: something was left behind", f->name);
        }
        unlink(path);
    }
}

Test(file, interrupted_calls_are_repeated) {
    faults.interrupted = 3, faults.after = ALWAYS;
    cr_assert(!write_text(path, "text"));
    expect_content(path, "text");
}

Test(file, a_file_larger_than_is_allowed) {
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){8, 8});
    faults.after = ALWAYS;
    Status status = write_text(path, "a text of more than eight bytes");
    expect_failure(status, "File too large");
    cr_expect_eq(entries(), 0);
}

Test(file, what_is_no_regular_file_is_not_replaced) {
    struct stat info;
    cr_assert_eq(mkdir(path, 0700), 0);
    expect_failure(write_text(path, "text"), "it is no regular file");
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_failure(write_text(path, "text"), "it is no regular file");
    cr_expect(!stat(path, &info) && S_ISFIFO(info.st_mode));
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("/dev/null", path), 0);
    expect_failure(write_text(path, "text"), "it is no regular file");
    cr_expect(!stat("/dev/null", &info) && S_ISCHR(info.st_mode));
}

Test(file, nothing_is_left_of_one_whose_process_is_killed) {
    int able = open(folder, O_WRONLY | O_TMPFILE);
    if (able < 0) cr_skip_test("no files without a name in /tmp");
    close(able);
    put_plainly(path, "before");
    pid_t child = fork();
    if (child == 0) {
        NewFile file = new_file(path);
        bool written = !new_file_begin(&file) && !new_file_append(&file, "half", 4);
        raise(written ? SIGKILL : SIGTERM);
    }
    int result;
    cr_assert(child > 0 && waitpid(child, &result, 0) == child);
    cr_expect(WIFSIGNALED(result) && WTERMSIG(result) == SIGKILL);
    expect_content(path, "before");
    cr_expect_eq(entries(), 1);
}

Test(file, a_folder_that_is_not_there) {
    snprintf(path, sizeof path, "%s/none/file", folder);
    expect_failure(write_text(path, "text"), "No such file");
    cr_expect_eq(entries(), 0);
}

Test(file, one_that_was_not_begun_is_abandoned) {
    NewFile file = new_file(path);
    new_file_abandon(&file);
    new_file_abandon(&file);
    cr_expect_eq(file.file, -1);
}

Test(file, writers_of_one_file_do_not_meet) {
    NewFile a = new_file(path), b = new_file(path);
    cr_assert(!new_file_begin(&a) && !new_file_begin(&b));
    cr_assert(!new_file_append(&a, "first", 5) && !new_file_append(&b, "second", 6));
    cr_assert(!new_file_close(&a) && !new_file_close(&b));
    cr_assert(!new_file_publish(&b) && !new_file_publish(&a));
    expect_content(path, "first");
    new_file_abandon(&a);
    new_file_abandon(&b);
    cr_expect_eq(entries(), 1);
}

/* --- several at once --- */
static void begin_pair(NewFile *a, NewFile *b) {
    *a = new_file(other), *b = new_file(path);
    cr_assert(!new_file_begin(a) && !new_file_begin(b));
    cr_assert(!new_file_append(a, "new a", 5) && !new_file_append(b, "new b", 5));
    cr_assert(!new_file_close(a) && !new_file_close(b));
}

Test(file, a_pair_is_in_its_places) {
    NewFile a, b;
    put_plainly(other, "old a");
    begin_pair(&a, &b);
    cr_assert(!new_files_publish((NewFile *[]){&a, &b}, 2));
    expect_content(other, "new a");
    expect_content(path, "new b");
    new_file_abandon(&a);
    new_file_abandon(&b);
    cr_expect_eq(entries(), 2);
}

Test(file, a_pair_of_which_one_fails_leaves_both_places_as_they_were) {
    for (int old = 0; old < 2; old++) {
        NewFile a, b;
        if (old) put_plainly(other, "old a");
        begin_pair(&a, &b);
        cr_assert_eq(mkdir(path, 0777), 0); /* where the second is to go */
        expect_failure(new_files_publish((NewFile *[]){&a, &b}, 2), "cannot be written");
        new_file_abandon(&a);
        new_file_abandon(&b);
        if (old) expect_content(other, "old a");
        cr_expect_eq(entries(), 1 + old, "%d", old);
        rmdir(path);
    }
}
