/* SPDX-License-Identifier: Apache-2.0 */
/* .npy files <-> tensors.
 *
 * A file is "\x93NUMPY", the format's version (two bytes), the length of the header (two bytes little-endian in version
 * 1, else four), the header (a Python dictionary with descr, fortran_order and shape) and the elements. */
#include "cli/value/npy.h"
#include "cli/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64, HUGE_LEAST = 4 << 20 };

void loaded_free(Loaded *loaded) {
    onnxfuse_value_free(loaded->value);
    free(loaded->data);
    free(loaded->text);
    *loaded = (Loaded){0};
}

/* Large tensors in huge pages, as NumPy's are: what is measured is then the same that a user of it sees. */
static void advise_huge(char *memory, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = (page - (uintptr_t)memory % page) % page;
    if (bytes >= HUGE_LEAST) madvise(memory + before, bytes - before, MADV_HUGEPAGE);
}

Problem *loaded_tensor(OnnxfuseDType dtype, int rank, const int64_t *dims, Loaded *out_loaded) {
    size_t bytes = onnxfuse_dtype_size(dtype);
    bool empty = false, overflow = false;
    for (int d = 0; d < rank; d++) {
        empty |= dims[d] == 0;
        overflow |= dims[d] < 0 || __builtin_mul_overflow(bytes, (size_t)dims[d], &bytes);
    }
    if (empty) bytes = 0;
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (!empty && (overflow || bytes > memory))
        return problem(ONNXFUSE_FAULT, "a tensor of that shape is larger than this machine's memory");
    Loaded made = {0};
    size_t room = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT; /* at least one byte, so that there is a pointer */
    made.data = aligned_alloc(ALIGNMENT, room);
    if (!made.data) return problem_out_of_memory();
    advise_huge(made.data, room);
    memset(made.data, 0, room);
    Problem *found = problem_from(onnxfuse_value_tensor(dtype, rank, dims, made.data, &made.value));
    if (found)
        loaded_free(&made);
    else
        *out_loaded = made;
    return found;
}

/* --- the header ---------------------------------------------------------------------------------------------- */
typedef struct Header {
    char order, kind; /* '<', '>', '=' or '|'; 'f', 'i', ... */
    size_t size;      /* the number behind the kind: bytes, or characters of 'U' */
    bool fortran;
    int rank;
    int64_t dims[ONNXFUSE_MAX_RANK];
    size_t data; /* where the elements begin */
} Header;

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t\r\n"); }

static Problem *bad_header(void) { return problem(ONNXFUSE_INVALID, "the header is malformed"); }

/* A string in quotes, of at most `room` - 1 bytes. */
static Problem *read_quoted(const char **at, char *out, size_t room) {
    const char *begin = skip_blanks(*at);
    if (*begin != '\'' && *begin != '"') return bad_header();
    const char *end = strchr(begin + 1, *begin);
    if (!end || (size_t)(end - begin) > room) return bad_header();
    memcpy(out, begin + 1, (size_t)(end - begin - 1));
    out[end - begin - 1] = 0;
    *at = end + 1;
    return NULL;
}

static Problem *read_descr(const char **at, Header *header) {
    char text[32], *end;
    if (*skip_blanks(*at) == '[') return problem(ONNXFUSE_INVALID, "arrays of records are not supported");
    TRY(read_quoted(at, text, sizeof text));
    if (!text[0] || !strchr("<>=|", text[0]) || !text[1]) return bad_header();
    header->order = text[0];
    header->kind = text[1];
    unsigned long size = strtoul(text + 2, &end, 10);
    if (text[1] == 'O') return problem(ONNXFUSE_INVALID, "arrays of Python objects are not supported");
    if (end == text + 2 || *end || size > 1 << 28)
        return problem(ONNXFUSE_INVALID, "element type \"%s\" is not supported", text);
    header->size = size;
    return NULL;
}

static Problem *read_shape(const char **at, Header *header) {
    const char *p = skip_blanks(*at);
    if (*p++ != '(') return bad_header();
    for (p = skip_blanks(p); *p != ')'; p = skip_blanks(p)) {
        char *end;
        long long dim = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : -1;
        if (dim < 0) return bad_header();
        if (header->rank == ONNXFUSE_MAX_RANK)
            return problem(ONNXFUSE_INVALID, "more than %d dimensions", ONNXFUSE_MAX_RANK);
        header->dims[header->rank++] = dim;
        p = skip_blanks(end);
        if (*p == ',') p++;
    }
    *at = p + 1;
    return NULL;
}

static Problem *read_dictionary(const char *at, Header *header) {
    char key[32];
    int found = 0;
    at = skip_blanks(at);
    if (*at++ != '{') return bad_header();
    for (at = skip_blanks(at); *at != '}'; at = skip_blanks(at)) {
        TRY(read_quoted(&at, key, sizeof key));
        at = skip_blanks(at);
        if (*at++ != ':') return bad_header();
        at = skip_blanks(at);
        if (strcmp(key, "descr") == 0) {
            TRY(read_descr(&at, header));
            found |= 1;
        } else if (strcmp(key, "shape") == 0 && !(found & 2)) {
            TRY(read_shape(&at, header));
            found |= 2;
        } else if (strcmp(key, "fortran_order") == 0) {
            header->fortran = strncmp(at, "True", 4) == 0;
            if (!header->fortran && strncmp(at, "False", 5) != 0) return bad_header();
            at += header->fortran ? 4 : 5;
            found |= 4;
        } else {
            return bad_header();
        }
        at = skip_blanks(at);
        if (*at == ',') at++;
    }
    return found == 7 ? NULL : bad_header();
}

static Problem *read_header(const Bytes *bytes, Header *header) {
    if (bytes->size < 12 || memcmp(bytes->data, "\x93NUMPY", 6) != 0)
        return problem(ONNXFUSE_INVALID, "it is no .npy file");
    const unsigned char *b = bytes->data;
    int version = b[6];
    if (version < 1 || version > 3) return problem(ONNXFUSE_INVALID, "version %d of .npy is not supported", version);
    size_t begin = version == 1 ? 10 : 12, length = b[8] | (size_t)b[9] << 8;
    if (version > 1) length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > bytes->size - begin) return problem(ONNXFUSE_INVALID, "the file ends inside its header");
    char *text = strndup((const char *)b + begin, length);
    if (!text) return problem_out_of_memory();
    Problem *found = read_dictionary(text, header);
    free(text);
    header->data = begin + length;
    return found;
}

/* --- element types ----------------------------------------------------------------------------------------------- */
typedef struct TypeRow {
    char kind;
    int size;  /* bytes */
    int parts; /* numbers in an element, each in the file's byte order */
    OnnxfuseDType dtype;
} TypeRow;

static const TypeRow types[] = {
    {'f', 4, 1, ONNXFUSE_FLOAT32},   {'f', 8, 1, ONNXFUSE_FLOAT64},     {'f', 2, 1, ONNXFUSE_FLOAT16},
    {'i', 1, 1, ONNXFUSE_INT8},      {'i', 2, 1, ONNXFUSE_INT16},       {'i', 4, 1, ONNXFUSE_INT32},
    {'i', 8, 1, ONNXFUSE_INT64},     {'u', 1, 1, ONNXFUSE_UINT8},       {'u', 2, 1, ONNXFUSE_UINT16},
    {'u', 4, 1, ONNXFUSE_UINT32},    {'u', 8, 1, ONNXFUSE_UINT64},      {'b', 1, 1, ONNXFUSE_BOOL},
    {'c', 8, 2, ONNXFUSE_COMPLEX64}, {'c', 16, 2, ONNXFUSE_COMPLEX128}, {'V', 2, 1, ONNXFUSE_BFLOAT16},
};
enum { TYPE_COUNT = sizeof types / sizeof *types };

/* The row of the header's element type; one-byte types that numpy lacks are "V1" and take the model's word for what
 * they are. */
static Problem *find_type(const Header *header, OnnxfuseDType declared, TypeRow *out_row) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].kind == header->kind && (size_t)types[i].size == header->size) {
            *out_row = types[i];
            return NULL;
        }
    if (header->kind == 'U' || header->kind == 'S') {
        *out_row = (TypeRow){header->kind, (int)header->size * (header->kind == 'U' ? 4 : 1), 1, ONNXFUSE_STRING};
        return NULL;
    }
    if (header->kind == 'V' && header->size == 1 && onnxfuse_dtype_size(declared) == 1) {
        *out_row = (TypeRow){'V', 1, 1, declared};
        return NULL;
    }
    return problem(ONNXFUSE_INVALID, "element type \"%c%zu\" is not supported", header->kind, header->size);
}

/* --- elements --- */
static bool is_swapped(char order) {
    bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    return (order == '>' && !big) || (order == '<' && big);
}

static void copy_swapped(unsigned char *to, const unsigned char *from, const TypeRow *row) {
    int width = row->size / row->parts;
    for (int part = 0; part < row->parts; part++)
        for (int i = 0; i < width; i++) to[part * width + i] = from[part * width + width - 1 - i];
}

static uint32_t read_character(const unsigned char *at, bool swapped) {
    uint32_t c;
    memcpy(&c, at, sizeof c);
    return swapped ? __builtin_bswap32(c) : c;
}

/* The string of one element, without the zeros that fill it up, appended to `text`; its size. */
static size_t read_string(const unsigned char *from, const TypeRow *row, bool swapped, char *text) {
    int length = row->kind == 'U' ? row->size / 4 : row->size;
    if (row->kind == 'S') {
        while (length && !from[length - 1]) length--;
        memcpy(text, from, (size_t)length);
        return (size_t)length;
    }
    while (length && !read_character(from + 4 * (length - 1), swapped)) length--;
    size_t size = 0;
    for (int i = 0; i < length; i++) size += utf8_encode(read_character(from + 4 * i, swapped), text + size);
    return size;
}

typedef struct Elements {
    const unsigned char *data;
    TypeRow row;
    bool swapped;
    Loaded *loaded;
    size_t text_used;
} Elements;

static void copy_element(Elements *e, int64_t to, int64_t from) {
    const unsigned char *source = e->data + (size_t)from * (size_t)e->row.size;
    unsigned char *target = (unsigned char *)e->loaded->data + (size_t)to * onnxfuse_dtype_size(e->row.dtype);
    if (e->row.dtype == ONNXFUSE_STRING) {
        char *text = e->loaded->text + e->text_used;
        size_t size = read_string(source, &e->row, e->swapped, text);
        ((OnnxfuseString *)e->loaded->data)[to] = (OnnxfuseString){text, size};
        e->text_used += size;
    } else if (e->swapped) {
        copy_swapped(target, source, &e->row);
    } else {
        memcpy(target, source, (size_t)e->row.size);
    }
}

/* Walks the elements in row-major order; column-major files are read at the transposed place. */
static void copy_elements(Elements *e, const Header *header, int64_t count) {
    int64_t index[ONNXFUSE_MAX_RANK] = {0}, strides[ONNXFUSE_MAX_RANK], from = 0, stride = 1;
    for (int d = 0; d < header->rank; d++) strides[d] = stride, stride *= header->dims[d];
    for (int64_t to = 0; to < count; to++) {
        copy_element(e, to, header->fortran ? from : to);
        for (int d = header->rank - 1; header->fortran && d >= 0; d--) {
            from += strides[d];
            if (++index[d] < header->dims[d]) break;
            from -= strides[d] * header->dims[d];
            index[d] = 0;
        }
    }
}

Problem *npy_parse(const Bytes *bytes, OnnxfuseDType declared, Loaded *out_loaded) {
    Header header = {0};
    TypeRow row = {0};
    TRY(read_header(bytes, &header));
    TRY(find_type(&header, declared, &row));
    size_t room = bytes->size - header.data, size = 1;
    bool overflow = false, empty = false;
    for (int d = 0; d < header.rank; d++) {
        overflow |= __builtin_mul_overflow(size, (size_t)header.dims[d], &size);
        empty |= header.dims[d] == 0;
    }
    size_t count = empty ? 0 : size;
    if (!empty && (overflow || __builtin_mul_overflow(size, (size_t)row.size, &size) || size > room))
        return problem(ONNXFUSE_INVALID, "the file is shorter than its header says");
    if (!row.size && count > room + 1) return problem(ONNXFUSE_INVALID, "it says to hold %zu empty strings", count);
    Loaded loaded;
    TRY(loaded_tensor(row.dtype, header.rank, header.dims, &loaded));
    /* A code point takes no more bytes in UTF-8 than in UTF-32. */
    if (row.dtype == ONNXFUSE_STRING && !(loaded.text = malloc(empty ? 1 : size + 1))) {
        loaded_free(&loaded);
        return problem_out_of_memory();
    }
    bool swapped = is_swapped(header.order) && (row.kind == 'U' || row.size > 1);
    Elements e = {bytes->data + header.data, row, swapped, &loaded, 0};
    if (row.dtype == ONNXFUSE_STRING || swapped || header.fortran)
        copy_elements(&e, &header, (int64_t)count);
    else if (count)
        memcpy(loaded.data, e.data, size);
    *out_loaded = loaded;
    return NULL;
}

/* --- writing
 * ---------------------------------------------------------------------------------------------------------- */
static size_t count_characters(const OnnxfuseString *string) {
    const unsigned char *at = (const unsigned char *)string->data, *end = at + string->size;
    size_t count = 0;
    while (at < end) utf8_decode(&at, end), count++;
    return count;
}

static void write_strings(const OnnxfuseString *strings, int64_t count, size_t width, FILE *out) {
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *at = (const unsigned char *)strings[i].data, *end = at + strings[i].size;
        for (size_t c = 0; c < width; c++) {
            uint32_t point = at < end ? utf8_decode(&at, end) : 0;
            fwrite(&point, sizeof point, 1, out);
        }
    }
}

static void describe(const OnnxfuseValue *tensor, size_t characters, char *out, size_t room) {
    OnnxfuseDType dtype = onnxfuse_value_dtype(tensor);
    bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    size_t size = onnxfuse_dtype_size(dtype);
    char kind = 'V';
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype) kind = types[i].kind;
    if (dtype == ONNXFUSE_STRING) kind = 'U', size = characters;
    snprintf(out, room, "%c%c%zu", size == 1 && kind != 'U' ? '|' : big ? '>' : '<', kind, size);
}

Problem *npy_write(const OnnxfuseValue *tensor, FILE *out) {
    const OnnxfuseString *strings = onnxfuse_value_data(tensor);
    int64_t count = onnxfuse_value_count(tensor);
    bool is_text = onnxfuse_value_dtype(tensor) == ONNXFUSE_STRING;
    size_t width = 1;
    for (int64_t i = 0; is_text && i < count; i++) {
        size_t characters = count_characters(&strings[i]);
        if (characters > width) width = characters;
    }
    char descr[32], header[1024];
    describe(tensor, width, descr, sizeof descr);
    int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (", descr);
    for (int d = 0; d < onnxfuse_value_rank(tensor); d++)
        length += snprintf(header + length, sizeof header - (size_t)length, "%lld,",
                           (long long)onnxfuse_value_dims(tensor)[d]);
    length += snprintf(header + length, sizeof header - (size_t)length, "), }");
    int padding = ALIGNMENT - (10 + length + 1) % ALIGNMENT, all = length + padding + 1;
    unsigned char start[10] = {
        0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(all & 255), (unsigned char)(all >> 8)};
    fwrite(start, 1, sizeof start, out);
    fprintf(out, "%s%*s\n", header, padding, "");
    if (is_text)
        write_strings(strings, count, width, out);
    else if (count)
        fwrite(onnxfuse_value_data(tensor), onnxfuse_dtype_size(onnxfuse_value_dtype(tensor)), (size_t)count, out);
    return NULL;
}
