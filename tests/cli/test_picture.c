/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as inputs: resized as Pillow 13.0.0 does (Image.resize, BILINEAR), and laid out as a shape asks. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "cli/value/picture.h"

/* --- resizing --- */
typedef struct Resizing {
    int height, width, channels, to_height, to_width;
    const char *pixels; /* of the result; NULL: too many, their CRC-32 stands for them */
    uint32_t crc;
} Resizing;

static const Resizing resizings[] = {
    {2, 3, 1, 5, 7,
     "2 6 17 28 44 61 66 13 18 30 43 61 79 85 59 66 85 104 128 152 160 105 113 139 164 194 225 235 116 125 152 179 211 "
     "243 254",
     0},
    {7, 5, 1, 3, 2, "106 116 107 99 87 134", 0},
    {5, 4, 3, 5, 2,
     "63 115 143 125 126 139 118 63 130 77 80 96 166 40 110 131 138 83 135 195 194 180 115 63 170 160 51 113 160 110",
     0},
    {4, 3, 3, 2, 3, "80 40 121 105 101 219 130 127 63 126 41 114 54 116 117 204 84 85", 0},
    {1, 16, 1, 1, 3, "99 134 121", 0},
    {6, 6, 1, 6, 6,
     "2 28 66 116 179 254 86 186 42 167 48 198 104 22 209 152 108 76 56 49 54 72 102 144 199 10 90 182 30 147 20 162 "
     "60 "
     "226 149 84",
     0},
    {9, 1, 3, 4, 2, "68 124 142 68 124 142 127 90 160 127 90 160 110 71 107 110 71 107 116 57 106 116 57 106", 0},
    {200, 300, 3, 48, 61, NULL, 0x24e87817},
    {61, 48, 1, 240, 333, NULL, 0xe76e8627},
    {500, 700, 3, 224, 224, NULL, 0xe5d65e0f},
    {3, 1000, 1, 1, 7, NULL, 0xd3fec616},
    {37, 41, 3, 36, 40, NULL, 0x6cad824b},
};

static uint8_t *pattern(size_t count) {
    uint8_t *pixels = malloc(count);
    for (uint64_t i = 0; i < count; i++) pixels[i] = (uint8_t)((i * i * 31 + i * 97 + 13) / 5);
    return pixels;
}

Test(picture, resizing_gives_pillows_pixels) {
    for (size_t i = 0; i < sizeof resizings / sizeof *resizings; i++) {
        const Resizing *c = &resizings[i];
        uint8_t *pixels = pattern((size_t)(c->height * c->width * c->channels));
        Picture picture = {c->height, c->width, c->channels, pixels}, got;
        cr_assert_null(picture_resize(&picture, c->to_height, c->to_width, &got));
        cr_assert_eq(got.height, c->to_height);
        cr_assert_eq(got.width, c->to_width);
        size_t count = (size_t)(c->to_height * c->to_width * c->channels);
        char text[1024] = "";
        for (size_t k = 0; c->pixels && k < count; k++)
            snprintf(text + strlen(text), sizeof text - strlen(text), k ? " %d" : "%d", got.pixels[k]);
        if (c->pixels)
            cr_expect_str_eq(text, c->pixels, "%dx%d", c->height, c->width);
        else
            cr_expect_eq(crc32_z(0, got.pixels, count), c->crc, "%dx%d", c->height, c->width);
        free((void *)(uintptr_t)got.pixels);
        free(pixels);
    }
}

/* Between two pixels a and b, a result in the middle of a half of the way is 3/4 a + 1/4 b. */
Test(picture, enlarging_follows_the_formula) {
    uint8_t pixels[] = {40, 80};
    Picture picture = {1, 2, 1, pixels}, got;
    cr_assert_null(picture_resize(&picture, 1, 4, &got));
    cr_expect_arr_eq(got.pixels, ((uint8_t[]){40, 50, 70, 80}), 4);
    free((void *)(uintptr_t)got.pixels);
}

/* --- layout and numbers --- */
typedef struct Loading {
    const char *must;     /* what must hold */
    const char *settings; /* behind the file */
    OnnxfuseDType dtype;
    Shape shape;
    const char *result; /* "dims: elements", or what the message says */
    OnnxfuseCode code;
} Loading;

#define SHAPE(...)                                                                                                     \
    {                                                                                                                  \
        NULL, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), { __VA_ARGS__ }                                      \
    }

/* The picture: one row of two pixels, (255, 51, 0) and (0, 102, 204). */
static const Loading loadings[] = {
    {"channels first", "", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "1 3 1 2: 1 0 0.2 0.4 0 0.8", ONNXFUSE_OK},
    {"channels last", "", ONNXFUSE_FLOAT32, SHAPE(1, 2, 2, 3), "1 2 2 3: 1 0.2 0 0 0.4 0.8 1 0.2 0 0 0.4 0.8",
     ONNXFUSE_OK},
    {"channels last, said", ",layout=nhwc", ONNXFUSE_FLOAT32, SHAPE(1, 1, 2, 3), "1 1 2 3: 1 0.2 0 0 0.4 0.8",
     ONNXFUSE_OK},
    {"channels last behind free sizes", "", ONNXFUSE_UINT8, SHAPE(-1, -1, -1, 3), "1 1 2 3: 255 51 0 0 102 204",
     ONNXFUSE_OK},
    {"all sizes are free", "", ONNXFUSE_UINT8, SHAPE(-1, -1, -1, -1), "1 3 1 2: 255 0 51 102 0 204", ONNXFUSE_OK},
    {"without a batch", "", ONNXFUSE_UINT8, SHAPE(3, -1, -1), "3 1 2: 255 0 51 102 0 204", ONNXFUSE_OK},
    {"without a batch, channels last", "", ONNXFUSE_UINT8, SHAPE(-1, -1, 3), "1 2 3: 255 51 0 0 102 204", ONNXFUSE_OK},
    {"a free width follows a given height", "", ONNXFUSE_UINT8, SHAPE(3, 2, -1),
     "3 2 4: 255 191 64 0 255 191 64 0 51 64 89 102 51 64 89 102 0 51 153 204 0 51 153 204", ONNXFUSE_OK},
    {"a free height follows a given width", "", ONNXFUSE_UINT8, SHAPE(3, -1, 4),
     "3 2 4: 255 191 64 0 255 191 64 0 51 64 89 102 51 64 89 102 0 51 153 204 0 51 153 204", ONNXFUSE_OK},
    {"blue first", ",order=bgr", ONNXFUSE_UINT8, SHAPE(3, 1, 2), "3 1 2: 0 204 51 102 255 0", ONNXFUSE_OK},
    {"one scale, mean and std", ",scale=1,mean=50,std=2", ONNXFUSE_FLOAT32, SHAPE(3, 1, 2),
     "3 1 2: 102.5 -25 0.5 26 -25 77", ONNXFUSE_OK},
    {"one a channel", ",mean=0:0.2:0.4,std=1:2:0.5", ONNXFUSE_FLOAT64, SHAPE(3, 1, 2), "3 1 2: 1 0 0 0.1 -0.8 0.8",
     ONNXFUSE_OK},
    {"float16", ",scale=1/51", ONNXFUSE_FLOAT16, SHAPE(3, 1, 2), "3 1 2: 5 0 1 2 0 4", ONNXFUSE_OK},
    {"bfloat16 is rounded to the nearest", ",scale=1/204,mean=-1", ONNXFUSE_BFLOAT16, SHAPE(3, 1, 2),
     "3 1 2: 2.25 1 1.25 1.5 1 2", ONNXFUSE_OK},
    {"a batch of several", "", ONNXFUSE_FLOAT32, SHAPE(2, 3, 1, 2), "batch of 1", ONNXFUSE_INVALID},
    {"a wrong number of channels", "", ONNXFUSE_FLOAT32, SHAPE(1, 4, 1, 2), "1 or 3 channels", ONNXFUSE_INVALID},
    {"a wrong rank", "", ONNXFUSE_FLOAT32, SHAPE(1, 1, 3, 1, 2), "rank 5", ONNXFUSE_INVALID},
    {"no height", "", ONNXFUSE_FLOAT32, SHAPE(1, 3, 0, 2), "0 rows", ONNXFUSE_INVALID},
    {"a type that is neither", "", ONNXFUSE_INT64, SHAPE(1, 3, 1, 2), "int64", ONNXFUSE_INVALID},
    {"an unknown setting", ",sclae=1", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "mean scale?", ONNXFUSE_USAGE},
    {"a scale that is no number", ",scale=1/x", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "scale=1/x", ONNXFUSE_USAGE},
    {"a scale by zero", ",scale=1/0", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "scale=1/0", ONNXFUSE_USAGE},
    {"a std of zero", ",std=1:0:1", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "other than 0", ONNXFUSE_USAGE},
    {"two means for three channels", ",mean=1:2", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "2 numbers", ONNXFUSE_USAGE},
    {"four means", ",mean=1:2:3:4", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "mean=1:2:3:4", ONNXFUSE_USAGE},
    {"an unknown order", ",order=gbr", ONNXFUSE_FLOAT32, SHAPE(1, 3, 1, 2), "rgb or bgr", ONNXFUSE_USAGE},
    {"scaled bytes", ",scale=2", ONNXFUSE_UINT8, SHAPE(1, 3, 1, 2), "uint8", ONNXFUSE_USAGE},
    {"an order of one channel", ",order=bgr", ONNXFUSE_UINT8, SHAPE(1, 2), "3 channels", ONNXFUSE_USAGE},
};

static void describe(const OnnxfuseValue *value, char *text, size_t size) {
    FILE *out = fmemopen(text, size, "w");
    for (int d = 0; d < onnxfuse_value_rank(value); d++)
        fprintf(out, d ? " %lld" : "%lld", (long long)onnxfuse_value_dims(value)[d]);
    fputc(':', out);
    for (int64_t i = 0; i < onnxfuse_value_count(value); i++)
        fprintf(out, " %.5g", onnxfuse_value_element(value, i) + 0.0);
    fclose(out);
}

static void write_picture(char *path) {
    static const char picture[] = "P6 2 1 255\n\xff\x33\x00\x00\x66\xcc";
    int file = mkstemp(path);
    cr_assert_eq(write(file, picture, sizeof picture - 1), (ssize_t)(sizeof picture - 1));
    close(file);
}

Test(picture, is_laid_out_as_the_shape_asks) {
    char path[] = "/tmp/picture-XXXXXX";
    write_picture(path);
    for (size_t i = 0; i < sizeof loadings / sizeof *loadings; i++) {
        const Loading *c = &loadings[i];
        char text[256], got[512] = "";
        Loaded loaded = {0};
        snprintf(text, sizeof text, "%s%s", path, c->settings);
        Problem *found = picture_load(text, c->dtype, &c->shape, &loaded);
        cr_expect_eq(problem_code(found), c->code, "%s: %s", c->must, problem_text(found));
        if (found)
            cr_expect_not_null(strstr(problem_text(found), c->result), "%s: %s", c->must, problem_text(found));
        else
            describe(loaded.value, got, sizeof got);
        cr_expect(found || strcmp(got, c->result) == 0, "%s: %s", c->must, got);
        problem_free(found);
        loaded_free(&loaded);
    }
    unlink(path);
}

Test(picture, files_that_are_none_are_named) {
    char path[] = "/tmp/picture-XXXXXX";
    int file = mkstemp(path);
    close(file);
    Loaded loaded = {0};
    Shape shape = SHAPE(1, 3, -1, -1);
    Problem *found = picture_load(path, ONNXFUSE_FLOAT32, &shape, &loaded);
    cr_expect_eq(problem_code(found), ONNXFUSE_INVALID);
    cr_expect_not_null(strstr(problem_text(found), path), "%s", problem_text(found));
    problem_free(found);
    unlink(path);
    found = picture_load(path, ONNXFUSE_FLOAT32, &shape, &loaded);
    cr_expect_eq(problem_code(found), ONNXFUSE_INVALID);
    problem_free(found);
}
