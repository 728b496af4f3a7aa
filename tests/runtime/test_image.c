/* Pictures through the public interface: every format against what Pillow reads, and files that hold no picture. The
 * pictures are written by tests/images/write.py. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnxfuse.h"

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

static int expectations(Expected rows[100]) {
    FILE *stream = fopen("tests/images/expected.txt", "r");
    int count = 0;
    cr_assert(stream);
    while (count < 100 && fscanf(stream, "%63s %lld %lld %llx %llx", rows[count].name, &rows[count].width,
                                 &rows[count].height, &rows[count].rgb, &rows[count].grey) == 5)
        count++;
    fclose(stream);
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
    Expected rows[100];
    int count = expectations(rows);
    cr_assert(count > 60 && count < 100);
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
    Expected rows[100];
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
