/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures through the public interface: every format against what Pillow reads, and files that hold no picture. The
 * pictures are written by tests/images/write.py. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "onnxfuse.h"
#include "skip.h"

typedef struct File {
    char *data;
    size_t size;
} File;

static File read_file(const char *name) {
    char path[256];
    File file = {calloc(1, 1 << 16), 0};
    snprintf(path, sizeof path, "tests/images/%s", name);
    FILE *stream = fopen(path, "rb");
    cr_assert(stream, "%s is missing", path);
    file.size = fread(file.data, 1, 1 << 16, stream);
    fclose(stream);
    file.data = realloc(file.data, file.size); /* so that a sanitizer sees what is read beyond it */
    return file;
}

/* Formats, by the name of a file or of the format, that libonnxfuse-image.so decodes. */
static bool is_left_out(const char *name) {
    static const char *const formats[] = {"jp", "j2k", "png", "tiff", "webp"};
    for (size_t i = 0; !HAS_PLUGIN && i < sizeof formats / sizeof *formats; i++)
        if (strcasestr(name, formats[i])) return true;
    return false;
}

static void tell_what_is_left_out(void) {
    if (!HAS_PLUGIN) skip_part("the formats of libonnxfuse-image.so, which this build has not");
}

/* FNV-1a, 64 bits. */
static unsigned long long hash_of(const OnnxfuseValue *value) {
    unsigned long long hash = 0xcbf29ce484222325u;
    const unsigned char *data = onnxfuse_value_data(value);
    for (size_t i = 0; i < onnxfuse_value_bytes(value); i++) hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

typedef struct Expected {
    char name[64];
    long long width, height;
    unsigned long long rgb, grey;
} Expected;

static int expectations(Expected rows[101]) {
    FILE *stream = fopen("tests/images/expected.txt", "r");
    int count = 0;
    cr_assert(stream);
    while (count < 100 && fscanf(stream, "%63s %lld %lld %llx %llx", rows[count].name, &rows[count].width,
                                 &rows[count].height, &rows[count].rgb, &rows[count].grey) == 5)
        count += !is_left_out(rows[count].name);
    rows[count].name[0] = 0;
    fclose(stream);
    tell_what_is_left_out();
    return count;
}

static void expect_picture(const Expected *row, File file, const char *format) {
    OnnxfuseValue *value = NULL;
    OnnxfuseStatus status = onnxfuse_value_from_image(file.data, file.size, format, &value);
    cr_assert(!status, "%s: %s", row->name, onnxfuse_status_message(status));
    bool grey = strcmp(format, "Grayscale") == 0;
    const int64_t *dims = onnxfuse_value_dims(value);
    cr_expect(onnxfuse_value_dtype(value) == ONNXFUSE_UINT8 && onnxfuse_value_rank(value) == 3 &&
                  dims[0] == row->height && dims[1] == row->width && dims[2] == (grey ? 1 : 3),
              "%s: [%lld, %lld, %lld]", row->name, (long long)dims[0], (long long)dims[1], (long long)dims[2]);
    unsigned char *data = onnxfuse_value_data(value);
    if (strcmp(format, "BGR") == 0)
        for (size_t i = 0; i < onnxfuse_value_bytes(value); i += 3) {
            unsigned char blue = data[i];
            data[i] = data[i + 2];
            data[i + 2] = blue;
        }
    cr_expect(hash_of(value) == (grey ? row->grey : row->rgb), "%s as %s has other pixels than Pillow's", row->name,
              format);
    onnxfuse_value_free(value);
}

Test(image, pixels_are_those_of_the_standards_reference) {
    static const char *const formats[] = {"RGB", "BGR", "Grayscale"};
    Expected rows[101];
    int count = expectations(rows);
    cr_assert(count > (HAS_PLUGIN ? 60 : 10) && count < 100);
    for (int i = 0; i < count; i++) {
        File file = read_file(rows[i].name);
        for (int f = 0; f < 3; f++) expect_picture(&rows[i], file, formats[f]);
        free(file.data);
    }
}

static void expect_error(const char *name, const void *bytes, size_t size, const char *format, OnnxfuseCode code,
                         const char *part) {
    OnnxfuseValue *value = NULL;
    OnnxfuseStatus status = onnxfuse_value_from_image(bytes, size, format, &value);
    cr_expect(status && onnxfuse_status_code(status) == code && strstr(onnxfuse_status_message(status), part),
              "%s: code %d, expected %d; \"%s\" should hold \"%s\"", name, onnxfuse_status_code(status), code,
              onnxfuse_status_message(status), part);
    onnxfuse_status_free(status);
    onnxfuse_value_free(value);
}

Test(image, a_truncated_picture_is_an_error) {
    Expected rows[101];
    int count = expectations(rows);
    for (int i = 0; i < count; i++) {
        File file = read_file(rows[i].name);
        for (int part = 1; part < 8; part++) {
            if (part > 3 && strcmp(rows[i].name, "animation.webp") == 0) continue; /* its first picture is whole */
            size_t size = file.size * (size_t)part / 8;
            char *cut = malloc(size);
            memcpy(cut, file.data, size);
            expect_error(rows[i].name, cut, size, "RGB", ONNXFUSE_INVALID, " picture");
            free(cut);
        }
        free(file.data);
    }
}

/* The most memory that the process has had, in MiB. */
static long peak(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

Test(image, what_no_file_can_hold_is_refused_before_memory_is_taken) {
    static const struct {
        const char *file, *part;
    } rows[] = {
        {"claims.jpg", "16000 x 16000 pixels, more than its "},
        {"claims.png", "16000 x 16000 pixels, more than its "},
        {"claims.wide.png", "134217728 x 1 pixels, more than its "},
        {"claims.tiff", "16000 x 16000 pixels, more than its "},
        {"claims.webp", "16000 x 16000 pixels, more than its "},
        {"claims.j2k", "16000 x 16000 pixels, which would take more than 4294967296 bytes"},
        {"claims.jp2", "762 x 1231 tiles, more than its "},
        {"claims.24.bmp", "16000 x 16000 pixels need more than the "},
        {"claims.rle8.bmp", "16000 x 16000 pixels, more than its "},
        {"claims.ppm", "16000 x 16000 pixels need more than the 100 bytes"},
        {"finely_cut.j2k", "code-blocks are too many"},
        {"150_scans.jpg", "more than 100 scans"},
    };
    expect_error("no picture yet", "P1 0 0", 6, "RGB", ONNXFUSE_INVALID, "0 x 0");
    long before = peak();
    tell_what_is_left_out();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (is_left_out(rows[i].file)) continue;
        File file = read_file(rows[i].file);
        expect_error(rows[i].file, file.data, file.size, "RGB", ONNXFUSE_INVALID, rows[i].part);
        free(file.data);
    }
    cr_expect(peak() - before < 50, "%ld MiB were taken", peak() - before);
}

#define BYTES(text) text, sizeof text - 1
Test(image, errors_name_the_reason) {
    static const struct {
        const char *name, *bytes;
        size_t size;
        const char *part;
    } rows[] = {
        {"nothing", BYTES(""), "0 bytes that are no picture"},
        {"one byte", BYTES("P"), "no picture"},
        {"another format", BYTES("GIF89a........."), "no picture"},
        {"an arbitrary map", BYTES("P7\nWIDTH 1\n"), "no picture"},
        {"a magic alone", BYTES("\xFF\xD8\xFF"), "JPEG picture that cannot be decoded: "},
        {"a signature alone", BYTES("\x89PNG\r\n\x1A\n"), "PNG picture that cannot be decoded: it ends too early"},
        {"no directory", BYTES("II*\0\x08\0\0\0"), "TIFF picture that cannot be decoded: "},
        {"no chunk", BYTES("RIFF\4\0\0\0WEBP"), "WebP picture that cannot be decoded: "},
        {"no boxes", BYTES("\0\0\0\x0CjP  \r\n\x87\n"),
         "JPEG 2000 picture that cannot be decoded: it has no codestream"},
        {"no header", BYTES("BM"), "BMP picture that cannot be decoded: it ends in its header"},
        {"a number too few", BYTES("P6 1 1\n"), "a number is missing in its header"},
        {"a sample too large", BYTES("P5 1 1 65536\n"), "its largest sample is 65536"},
        {"more pixels than any", BYTES("P5 99999999999 99999999999 255\n"), "more than the limit of 268435456"},
        {"no pixels", BYTES("P5 0 1 255\n"), "0 x 1 pixels"},
        {"a digit that is no bit", BYTES("P1 2 1 02"), "it ends in row 0"},
        {"a palette of one colour",
         BYTES("BM\0\0\0\0\0\0\0\0\x3A\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x08\0\0\0\0\0\0\0\0\0\0\0\0\0"
               "\0\0\0\0\1\0\0\0\0\0\0\0\1\2\3\0\7\0\0\0"),
         "colour 7 of a palette of 1"},
        {"a run upwards out of the picture",
         BYTES("BM\0\0\0\0\0\0\0\0\x3A\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x08\0\1\0\0\0\0\0\0\0\0\0\0\0"
               "\0\0\0\0\1\0\0\0\0\0\0\0\1\2\3\0\0\2\0\1"),
         "out of the picture"},
        {"a mask with a hole",
         BYTES("BM\0\0\0\0\0\0\0\0\x42\0\0\0\x28\0\0\0\1\0\0\0\1\0\0\0\1\0\x20\0\3\0\0\0\0\0\0\0\0\0\0\0"
               "\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\1\2\3\4"),
         "bit mask 0x00000005"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (is_left_out(rows[i].part)) continue;
        char *exact = malloc(rows[i].size ? rows[i].size : 1); /* so that a sanitizer sees what is read beyond it */
        memcpy(exact, rows[i].bytes, rows[i].size);
        expect_error(rows[i].name, exact, rows[i].size, NULL, ONNXFUSE_INVALID, rows[i].part);
        free(exact);
    }
    tell_what_is_left_out();
    expect_error("an unknown pixel format", BYTES("P5 1 1 255\n."), "RGBA", ONNXFUSE_USAGE, "\"RGBA\"");
}

Test(image, a_format_whose_plug_in_is_not_there_is_told) {
    if (HAS_PLUGIN) return;
    expect_error("a PNG picture", BYTES("\x89PNG\r\n\x1A\n"), NULL, ONNXFUSE_FAULT, "libonnxfuse-image");
}

static void *decode_all(void *rows) {
    Expected *row = rows;
    for (; row->name[0]; row++) {
        File file = read_file(row->name);
        expect_picture(row, file, "RGB");
        free(file.data);
    }
    return NULL;
}

Test(image, many_threads_at_once) {
    static Expected rows[101];
    pthread_t threads[4];
    expectations(rows);
    for (int i = 0; i < 4; i++) cr_assert(!pthread_create(&threads[i], NULL, decode_all, rows));
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
