/* SPDX-License-Identifier: Apache-2.0 */
/* .npy and .npz: each case is a file's bytes, and the tensor that it holds or what the message says. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "cli/value/npy.h"

typedef struct Case {
    const char *must; /* what must hold */
    int version;
    const char *header, *data;
    size_t size; /* of data */
    OnnxfuseDType dtype;
    const char *dims;
    const char *elements; /* as text; or what the message says when dtype is NONE */
} Case;

#define DATA(text) text, sizeof(text) - 1

static const Case cases[] = {
    {"little-endian floats are read", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
     DATA("\0\0\x80\x3f\0\0\0\xc0"), ONNXFUSE_FLOAT32, "2", "1 -2"},
    {"big-endian numbers are turned", 1, "{'descr': '>i2', 'fortran_order': False, 'shape': (2,)}",
     DATA("\1\2\xff\xfe"), ONNXFUSE_INT16, "2", "258 -2"},
    {"column-major order is turned", 1, "{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3)}",
     DATA("\1\4\2\5\3\6"), ONNXFUSE_UINT8, "2 3", "1 2 3 4 5 6"},
    {"a scalar has no dims", 2, "{'descr': '<f8', 'fortran_order': False, 'shape': ()}", DATA("\0\0\0\0\0\0\xf0\x3f"),
     ONNXFUSE_FLOAT64, "", "1"},
    {"version 3 and keys in another order", 3, "{'shape': (3,), 'fortran_order': False, 'descr': '|b1'}",
     DATA("\1\0\1"), ONNXFUSE_BOOL, "3", "1 0 1"},
    {"an empty axis", 1, "{'descr': '<f2', 'fortran_order': False, 'shape': (0, 4)}", DATA(""), ONNXFUSE_FLOAT16, "0 4",
     ""},
    {"two plain bytes are bfloat16", 1, "{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", DATA("\x80\x3f"),
     ONNXFUSE_BFLOAT16, "1", "1"},
    {"strings become UTF-8", 1, "{'descr': '<U2', 'fortran_order': False, 'shape': (2,)}",
     DATA("\xe9\0\0\0a\0\0\0b\0\0\0\0\0\0\0"), ONNXFUSE_STRING, "2",
     "\xc3\xa9"
     "a b"},
    {"byte strings lose their filling", 1, "{'descr': '|S3', 'fortran_order': False, 'shape': (2,)}", DATA("a\0\0bcd"),
     ONNXFUSE_STRING, "2", "a bcd"},
    {"too few bytes", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", DATA("\0\0\0\0"), ONNXFUSE_NONE, "",
     "shorter than its header says"},
    {"a size that overflows", 1,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4611686018427387904)}", DATA(""),
     ONNXFUSE_NONE, "", "shorter than its header says"},
    {"Python objects are refused", 1, "{'descr': '|O', 'fortran_order': False, 'shape': ()}", DATA(""), ONNXFUSE_NONE,
     "", "Python objects"},
    {"records are refused", 1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", DATA("\0\0\0\0"),
     ONNXFUSE_NONE, "", "records"},
    {"a negative dim is refused", 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", DATA("\0\0\0\0"),
     ONNXFUSE_NONE, "", "malformed"},
    {"a missing key is refused", 1, "{'descr': '<f4', 'shape': (1,)}", DATA("\0\0\0\0"), ONNXFUSE_NONE, "",
     "malformed"},
    {"too many dims are refused", 1,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", DATA("\0\0\0\0"),
     ONNXFUSE_NONE, "", "more than 16"},
    {"an unknown version is refused", 9, "{}", DATA(""), ONNXFUSE_NONE, "", "version 9"},
};

static Bytes make_file(int version, const char *header, const char *data, size_t size) {
    size_t length = strlen(header), start = version == 1 ? 10 : 12;
    Bytes bytes = {malloc(start + length + size + 1), start + length + size};
    memcpy(bytes.data, "\x93NUMPY", 6);
    unsigned char rest[] = {(unsigned char)version, 0, (unsigned char)length, (unsigned char)(length >> 8), 0, 0};
    memcpy(bytes.data + 6, rest, start - 6);
    memcpy(bytes.data + start, header, length);
    memcpy(bytes.data + start + length, data, size);
    return bytes;
}

static char *elements_text(const OnnxfuseValue *tensor) {
    char *text;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    for (int64_t i = 0; i < onnxfuse_value_count(tensor); i++) {
        if (i) fputc(' ', out);
        if (onnxfuse_value_dtype(tensor) == ONNXFUSE_STRING) {
            const OnnxfuseString *string = (const OnnxfuseString *)onnxfuse_value_data(tensor) + i;
            fwrite(string->data, 1, string->size, out);
        } else {
            fprintf(out, "%g", onnxfuse_value_element(tensor, i));
        }
    }
    fclose(out);
    return text;
}

static void expect_tensor(const Case *c, const Loaded *loaded) {
    char dims[64] = "", *elements = elements_text(loaded->value);
    for (int d = 0; d < onnxfuse_value_rank(loaded->value); d++)
        sprintf(dims + strlen(dims), "%s%lld", d ? " " : "", (long long)onnxfuse_value_dims(loaded->value)[d]);
    cr_expect_eq(onnxfuse_value_dtype(loaded->value), c->dtype, "%s", c->must);
    cr_expect_str_eq(dims, c->dims, "%s", c->must);
    cr_expect_str_eq(elements, c->elements, "%s: %s", c->must, elements);
    free(elements);
}

Test(npy, files_are_read) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        Bytes bytes = make_file(c->version, c->header, c->data, c->size);
        Loaded loaded = {0};
        Problem *found = npy_parse(&bytes, ONNXFUSE_NONE, &loaded);
        if (c->dtype) {
            cr_expect_null(found, "%s: %s", c->must, problem_text(found));
            if (!found) expect_tensor(c, &loaded);
        } else {
            cr_expect(found && strstr(problem_text(found), c->elements), "%s: %s", c->must, problem_text(found));
            cr_expect_eq(problem_code(found), ONNXFUSE_INVALID, "%s", c->must);
        }
        problem_free(found);
        loaded_free(&loaded);
        free(bytes.data);
    }
}

/* Lists in lists and tuples in tuples, as Python would read them. */
Test(npy, nothing_in_a_header_nests) {
    static const struct {
        const char *before, *says;
        char bracket;
    } rows[] = {{"{'descr': '<f4', 'fortran_order': False, 'shape': ", "malformed", '('},
                {"{'descr': ", "records", '['},
                {"", "malformed", '{'}};
    enum { DEEP = 60000 }; /* what version 1 has room for */
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *header = calloc(DEEP + 100, 1);
        memset(stpcpy(header, rows[i].before), rows[i].bracket, DEEP);
        Bytes bytes = make_file(1, header, "", 0);
        Loaded loaded = {0};
        Problem *found = npy_parse(&bytes, ONNXFUSE_NONE, &loaded);
        cr_expect(found && strstr(problem_text(found), rows[i].says), "%s: %s", rows[i].before,
                  found ? problem_text(found) : "it is read");
        problem_free(found);
        free(bytes.data);
        free(header);
    }
}

Test(npy, what_is_written_reads_back) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const Case *c = &cases[i];
        if (!c->dtype) continue;
        Bytes bytes = make_file(c->version, c->header, c->data, c->size), written = {0};
        Loaded first = {0}, second = {0};
        cr_assert_null(npy_parse(&bytes, ONNXFUSE_NONE, &first), "%s", c->must);
        FILE *out = open_memstream((char **)&written.data, &written.size);
        cr_assert_null(npy_write(first.value, out), "%s", c->must);
        fclose(out);
        cr_assert_null(npy_parse(&written, ONNXFUSE_NONE, &second), "%s", c->must);
        expect_tensor(c, &second);
        loaded_free(&first);
        loaded_free(&second);
        free(written.data);
        free(bytes.data);
    }
}

/* --- archives --- */
static void put(unsigned char **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *(*at)++ = (unsigned char)(value >> (8 * i));
}

/* An archive of the one member "x.npy", with what a case of damage changes. */
typedef struct ArchiveCase {
    const char *must;
    bool deflated;
    uint32_t crc_change, offset_change;
    int size_change;
    const char *says; /* NULL: it reads */
} ArchiveCase;

static const ArchiveCase archives[] = {
    {"a stored member is read", false, 0, 0, 0, NULL},
    {"a deflated member is read", true, 0, 0, 0, NULL},
    {"a wrong checksum is found", false, 1, 0, 0, "checksum"},
    {"a deflated member longer than it says is malformed", true, 0, 0, -1, "malformed"},
    {"a deflated member shorter than it says is malformed", true, 0, 0, 1, "malformed"},
    {"a stored member of another size than packed is malformed", false, 0, 0, 1, "malformed"},
    {"an offset behind the end is malformed", false, 0, 100000, 0, "malformed"},
};

static size_t deflate_raw(const Bytes *data, unsigned char *out, size_t room) {
    z_stream stream = {.next_in = data->data, .avail_in = (uInt)data->size, .next_out = out, .avail_out = (uInt)room};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    deflate(&stream, Z_FINISH);
    deflateEnd(&stream);
    return stream.total_out;
}

static Bytes make_archive(const ArchiveCase *c, const Bytes *member) {
    unsigned char packed[1024], *start = malloc(4096), *at = start;
    size_t size = c->deflated ? deflate_raw(member, packed, sizeof packed) : member->size;
    uint32_t crc = (uint32_t)crc32(0, member->data, (uInt)member->size) + c->crc_change;
    int method = c->deflated ? 8 : 0;
    uint64_t full = member->size + (uint64_t)c->size_change;
    put(&at, 0x04034b50, 4);
    put(&at, 20, 2), put(&at, 0, 2), put(&at, (uint64_t)method, 2), put(&at, 0, 4);
    put(&at, crc, 4), put(&at, size, 4), put(&at, full, 4), put(&at, 5, 2), put(&at, 0, 2);
    memcpy(at, "x.npy", 5), at += 5;
    memcpy(at, c->deflated ? packed : member->data, size), at += size;
    uint64_t directory = (uint64_t)(at - start);
    put(&at, 0x02014b50, 4);
    put(&at, 20, 2), put(&at, 20, 2), put(&at, 0, 2), put(&at, (uint64_t)method, 2), put(&at, 0, 4);
    put(&at, crc, 4), put(&at, size, 4), put(&at, full, 4), put(&at, 5, 2), put(&at, 0, 2), put(&at, 0, 2);
    put(&at, 0, 2), put(&at, 0, 2), put(&at, 0, 4), put(&at, c->offset_change, 4);
    memcpy(at, "x.npy", 5), at += 5;
    uint64_t end = (uint64_t)(at - start);
    put(&at, 0x06054b50, 4);
    put(&at, 0, 2), put(&at, 0, 2), put(&at, 1, 2), put(&at, 1, 2), put(&at, end - directory, 4),
        put(&at, directory, 4);
    put(&at, 0, 2);
    return (Bytes){start, (size_t)(at - start)};
}

Test(npz, members_are_found_and_checked) {
    for (size_t i = 0; i < sizeof archives / sizeof *archives; i++) {
        const ArchiveCase *c = &archives[i];
        Bytes member = make_file(1, cases[0].header, cases[0].data, cases[0].size), found_member = {0};
        Bytes archive = make_archive(c, &member);
        cr_expect(npz_has(&archive, "x") && !npz_has(&archive, "y"), "%s", c->must);
        Problem *found = npz_member(&archive, "x", false, &found_member);
        if (c->says)
            cr_expect(strstr(problem_text(found), c->says), "%s: %s", c->must, problem_text(found));
        else
            cr_expect(!found && found_member.size == member.size &&
                          memcmp(found_member.data, member.data, member.size) == 0,
                      "%s: %s", c->must, problem_text(found));
        problem_free(found);
        free(found_member.data);
        free(archive.data);
        free(member.data);
    }
}

Test(npz, no_prefix_of_an_archive_is_read_beyond_its_end) {
    Bytes member = make_file(1, cases[0].header, cases[0].data, cases[0].size);
    Bytes archive = make_archive(&archives[1], &member);
    for (size_t size = 0; size < archive.size; size++) {
        Bytes copy = {malloc(size + 1), size}, found_member = {0};
        memcpy(copy.data, archive.data, size);
        Problem *found = npz_member(&copy, "x", true, &found_member);
        cr_expect_eq(problem_code(found), ONNXFUSE_INVALID, "the first %zu bytes alone are malformed", size);
        problem_free(found);
        free(copy.data);
    }
    free(archive.data);
    free(member.data);
}
