/* SPDX-License-Identifier: Apache-2.0 */
/* image:FILE: pictures as inputs.
 *
 * What comes in are the file's bytes, which the library decodes to pixels of 8 bits; they are resized as Pillow's
 * BILINEAR does it, to the last bit, since that is what most models were trained with; then each becomes
 * (pixel * scale - mean[channel]) / std[channel]. */
#include "cli/value/picture.h"
#include "cli/value/numbers.h"
#include "cli/base/nearest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char picture_help[] =
    "image:FILE is a picture, resized to the input's height and width; where these are free, it keeps its size,\n"
    "or its proportions. Channels come first or last, whichever axis of the shape has 1 or 3. After commas:\n"
    "  scale=1/255             pixels become (pixel * scale - mean) / std; this is the default for inputs of floats\n"
    "  mean=0.485:0.456:0.406  default 0; one number for all channels, or one for each\n"
    "  std=0.229:0.224:0.225   default 1; likewise\n"
    "  order=bgr               blue first; default rgb\n"
    "  layout=nchw or nhwc     for shapes that leave both possible\n"
    "Inputs of uint8 get the pixels as they are.\n";

enum { MOST_CHANNELS = 3 };

/* --- what is asked for --- */
typedef struct PictureOptions {
    char *path;
    double scale, mean[MOST_CHANNELS], deviation[MOST_CHANNELS];
    int mean_count, deviation_count;
    bool numbers; /* scale, mean or std is given */
    bool bgr;
    int layout; /* 0: as the shape says; 1: channels first; 2: channels last */
} PictureOptions;

/* "0.5" or "1/255", up to the end or a ':'. */
static bool read_factor(const char **at, double *out_value) {
    char *end;
    double value = strtod(*at, &end);
    if (end == *at) return false;
    if (*end == '/') {
        const char *divisor = end + 1;
        value /= strtod(divisor, &end);
        if (end == divisor) return false;
    }
    *at = end;
    *out_value = value;
    return isfinite(value) && (!*end || *end == ':');
}

static bool read_factors(const char *text, double *values, int most, int *out_count) {
    *out_count = 0;
    for (const char *at = text;; at++) {
        if (*out_count == most || !read_factor(&at, &values[*out_count])) return false;
        ++*out_count;
        if (!*at) return true;
    }
}

static bool read_choice(const char *text, const char *const *choices, int *out_choice) {
    for (*out_choice = 0; choices[*out_choice]; ++*out_choice)
        if (strcmp(text, choices[*out_choice]) == 0) return true;
    return false;
}

static bool read_deviation(PictureOptions *o, const char *text) {
    if (!read_factors(text, o->deviation, MOST_CHANNELS, &o->deviation_count)) return false;
    for (int i = 0; i < o->deviation_count; i++)
        if (o->deviation[i] == 0) return false;
    return true;
}

/* A setting with its value. */
static Problem *read_setting(PictureOptions *o, const char *key, const char *value) {
    static const char *const keys[] = {"scale", "mean", "std", "order", "layout", NULL};
    static const char *const orders[] = {"rgb", "bgr", NULL}, *const layouts[] = {"", "nchw", "nhwc", NULL};
    int setting, count, choice = 0;
    bool good = true;
    if (!read_choice(key, keys, &setting)) {
        Nearest nearest = {0};
        for (int i = 0; keys[i]; i++) nearest_try(&nearest, key, strlen(key), keys[i]);
        return problem(ONNXFUSE_USAGE, "image: has no setting \"%s\"%s%s%s; it has scale, mean, std, order and layout",
                       key, nearest.word ? " (do you mean " : "", nearest.word ? nearest.word : "",
                       nearest.word ? "?)" : "");
    }
    switch (setting) {
    case 0: good = read_factors(value, &o->scale, 1, &count); break;
    case 1: good = read_factors(value, o->mean, MOST_CHANNELS, &o->mean_count); break;
    case 2: good = read_deviation(o, value); break;
    case 3: good = read_choice(value, orders, &choice), o->bgr = choice == 1; break;
    default: good = *value && read_choice(value, layouts, &o->layout); break;
    }
    o->numbers |= setting < 3;
    static const char *const forms[] = {"a number or a fraction, as 1/255", "1 or 3 numbers with : between",
                                        "1 or 3 numbers other than 0 with : between", "rgb or bgr", "nchw or nhwc"};
    return good ? NULL : problem(ONNXFUSE_USAGE, "image: %s=%s: it takes %s", key, value, forms[setting]);
}

/* Where the settings begin: at a comma with a word and '=' behind it. */
static char *next_setting(char *text) {
    for (char *comma = strchr(text, ','); comma; comma = strchr(comma + 1, ',')) {
        size_t word = strspn(comma + 1, "abcdefghijklmnopqrstuvwxyz");
        if (word && comma[1 + word] == '=') return comma;
    }
    return NULL;
}

static Problem *read_options(char *text, PictureOptions *out) {
    *out = (PictureOptions){.path = text, .scale = 1.0 / 255, .deviation = {1, 1, 1}};
    for (char *at = next_setting(text); at;) {
        char *key = at + 1, *equals = strchr(key, '='), *next = next_setting(key);
        *at = *equals = 0;
        if (next) *next = 0;
        TRY(read_setting(out, key, equals + 1));
        if (next) *next = ',';
        at = next;
    }
    return NULL;
}

/* One number holds for all channels. */
static Problem *spread(const char *key, double *values, int count, int channels) {
    if (count > 1 && count != channels)
        return problem(ONNXFUSE_USAGE, "image: %s has %d numbers, the input has %d channel%s", key, count, channels,
                       channels == 1 ? "" : "s");
    for (int c = 1; count == 1 && c < channels; c++) values[c] = values[0];
    return NULL;
}

/* --- where channels, rows and columns are --- */
typedef struct Layout {
    int rank, channel_axis, row_axis, column_axis; /* channel_axis -1: one channel without an axis */
    int channels;
    int64_t dims[ONNXFUSE_MAX_RANK];
} Layout;

static bool holds_channels(int64_t dim) { return dim == 1 || dim == 3; }

static Problem *find_layout(const Shape *shape, int wanted, Layout *out) {
    int rank = shape->rank, first = rank == 4, last = rank - 1;
    const int64_t *dims = shape->dims;
    if (rank < 2 || rank > 4)
        return problem(ONNXFUSE_INVALID,
                       "a picture is an input of rank 2 to 4 ([N, C, H, W], [N, H, W, C], [C, H, W], [H, W, C] or "
                       "[H, W]); this one has rank %d",
                       rank);
    *out = (Layout){rank, -1, 0, 1, 1, {0}};
    memcpy(out->dims, dims, sizeof *dims * (size_t)rank);
    if (rank == 2) return NULL;
    bool can_be_first = dims[first] < 0 || holds_channels(dims[first]);
    bool can_be_last = dims[last] < 0 || holds_channels(dims[last]);
    if (wanted == 1 || (!wanted && holds_channels(dims[first]))) can_be_last = false;
    if (wanted == 2 || (!wanted && holds_channels(dims[last]) && can_be_last)) can_be_first = false;
    if (!can_be_first && !can_be_last)
        return problem(ONNXFUSE_INVALID, "a picture has 1 or 3 channels; axis %d of this input has %lld, axis %d %lld",
                       first, (long long)dims[first], last, (long long)dims[last]);
    bool is_last = !can_be_first;
    int axis = is_last ? last : first;
    out->channel_axis = axis;
    out->channels = dims[axis] == 1 ? 1 : 3;
    out->dims[axis] = out->channels;
    out->row_axis = is_last ? first : first + 1;
    out->column_axis = out->row_axis + 1;
    if (rank == 4 && dims[0] >= 0 && dims[0] != 1)
        return problem(ONNXFUSE_INVALID, "one picture is a batch of 1, this input takes %lld", (long long)dims[0]);
    if (rank == 4) out->dims[0] = 1;
    return NULL;
}

enum { LARGEST = 1 << 24 }; /* rows or columns */

/* Height and width, from the picture where they are free. */
static Problem *settle_layout(Layout *l, const Picture *picture) {
    int64_t *height = &l->dims[l->row_axis], *width = &l->dims[l->column_axis];
    double ratio = (double)picture->width / picture->height;
    if (*height < 0 && *width < 0) *height = picture->height, *width = picture->width;
    if (*height < 0) *height = (int64_t)fmax(1, round((double)*width / ratio));
    if (*width < 0) *width = (int64_t)fmax(1, round((double)*height * ratio));
    if (*height < 1 || *width < 1 || *height > LARGEST || *width > LARGEST)
        return problem(ONNXFUSE_INVALID, "a picture cannot be made %lld rows of %lld pixels", (long long)*height,
                       (long long)*width);
    return NULL;
}

/* --- resizing --- */
enum { WEIGHT_BITS = 22 }; /* of fixed point weights: 8 of a pixel and 2 for sums beyond 1 stay in an int of 32 */

/* The pixels that one pixel of the result is made of, and their weights, at [0, count). */
typedef struct Window {
    int begin, count;
    const int *weights;
} Window;

typedef struct Windows {
    Window *items; /* [to] */
    int *weights;
} Windows;

static void windows_free(Windows *windows) {
    free(windows->items);
    free(windows->weights);
}

/* Of `from` pixels that become `to`: a triangle around the place of each result, which reaches to the neighbouring
 * pixels, or results where these are farther apart. As in Pillow's precompute_coeffs (src/libImaging/Resample.c). */
static Problem *make_windows(int from, int to, Windows *out) {
    double scale = (double)from / to, reach = fmax(scale, 1);
    size_t room = (size_t)ceil(reach) * 2 + 1;
    *out = (Windows){calloc((size_t)to, sizeof *out->items), calloc(room * (size_t)to, sizeof *out->weights)};
    double *shares = calloc(room, sizeof *shares);
    bool complete = out->items && out->weights && shares;
    for (int i = 0; i < to && complete; i++) {
        double center = (i + 0.5) * scale, sum = 0;
        int begin = (int)fmax(0, center - reach + 0.5), end = (int)fmin(from, center + reach + 0.5);
        int *weights = out->weights + room * (size_t)i;
        for (int k = 0; k < end - begin; k++)
            sum += shares[k] = fmax(0, 1 - fabs((begin + k - center + 0.5) * (1 / reach)));
        for (int k = 0; k < end - begin; k++) weights[k] = (int)(0.5 + shares[k] / sum * (1 << WEIGHT_BITS));
        out->items[i] = (Window){begin, end - begin, weights};
    }
    free(shares);
    if (!complete) windows_free(out);
    return complete ? NULL : problem_out_of_memory();
}

/* Along one axis: `lines` lines of `from` pixels become as many of `to`; all in bytes from one to the next. */
typedef struct Lines {
    size_t line, pixel;
} Lines;

static void resize_lines(const uint8_t *from, Lines at_from, uint8_t *to, Lines at_to, int lines, int channels,
                         const Windows *windows, int size) {
    for (int i = 0; i < lines; i++)
        for (int k = 0; k < size; k++)
            for (int c = 0; c < channels; c++) {
                const Window *window = &windows->items[k];
                const uint8_t *pixel =
                    from + (size_t)i * at_from.line + (size_t)window->begin * at_from.pixel + (size_t)c;
                int sum = 1 << (WEIGHT_BITS - 1);
                for (int w = 0; w < window->count; w++) sum += window->weights[w] * pixel[(size_t)w * at_from.pixel];
                int value = sum >> WEIGHT_BITS; /* rounding many weights up may lead beyond 255 */
                to[(size_t)i * at_to.line + (size_t)k * at_to.pixel + (size_t)c] = (uint8_t)(value > 255 ? 255 : value);
            }
}

static Problem *resize_axis(const Picture *from, bool rows, int size, Picture *out) {
    int height = rows ? size : from->height, width = rows ? from->width : size, channels = from->channels;
    Windows windows;
    size_t bytes = (size_t)height * (size_t)width * (size_t)channels; /* < 2^50 */
    TRY(make_windows(rows ? from->height : from->width, size, &windows));
    uint8_t *pixels = malloc(bytes);
    if (pixels) {
        size_t pixel = (size_t)channels, row_from = (size_t)from->width * pixel, row_to = (size_t)width * pixel;
        if (rows)
            resize_lines(from->pixels, (Lines){pixel, row_from}, pixels, (Lines){pixel, row_to}, width, channels,
                         &windows, size);
        else
            resize_lines(from->pixels, (Lines){row_from, pixel}, pixels, (Lines){row_to, pixel}, height, channels,
                         &windows, size);
        *out = (Picture){height, width, channels, pixels};
    }
    windows_free(&windows);
    return pixels ? NULL : problem_out_of_memory();
}

/* Columns first, as Pillow does: each pass rounds to 8 bits. */
Problem *picture_resize(const Picture *picture, int height, int width, Picture *out_picture) {
    Picture narrow;
    TRY(resize_axis(picture, false, width, &narrow));
    Problem *found = resize_axis(&narrow, true, height, out_picture);
    free((void *)(uintptr_t)narrow.pixels);
    return found;
}

/* --- numbers --- */
static void store_pixels(const PictureOptions *o, const Picture *p, const Layout *l, OnnxfuseDType dtype, void *data) {
    int64_t step = l->channel_axis == l->rank - 1 ? l->channels : 1;
    int64_t plane = step == 1 ? (int64_t)p->height * p->width : 1;
    const uint8_t *pixel = p->pixels;
    for (int64_t i = 0; i < (int64_t)p->height * p->width; i++)
        for (int c = 0; c < p->channels; c++) {
            double value = *pixel++;
            if (dtype != ONNXFUSE_UINT8) value = (value * o->scale - o->mean[c]) / o->deviation[c];
            number_store(dtype, data, i * step + c * plane, value);
        }
}

static bool is_float(OnnxfuseDType dtype) {
    return dtype == ONNXFUSE_FLOAT32 || dtype == ONNXFUSE_FLOAT16 || dtype == ONNXFUSE_BFLOAT16 ||
           dtype == ONNXFUSE_FLOAT64;
}

static Problem *convert(const PictureOptions *o, const Picture *picture, Layout *layout, OnnxfuseDType dtype,
                        Loaded *out_loaded) {
    Picture resized;
    Loaded made = {0};
    TRY(settle_layout(layout, picture));
    TRY(loaded_tensor(dtype, layout->rank, layout->dims, &made));
    Problem *found =
        picture_resize(picture, (int)layout->dims[layout->row_axis], (int)layout->dims[layout->column_axis], &resized);
    if (found) {
        loaded_free(&made);
        return found;
    }
    store_pixels(o, &resized, layout, dtype, made.data);
    free((void *)(uintptr_t)resized.pixels);
    *out_loaded = made;
    return NULL;
}

static Problem *decode(const char *path, const char *format, OnnxfuseValue **out_value) {
    Bytes bytes;
    TRY(file_read(path, &bytes));
    Problem *found = problem_from(onnxfuse_value_from_image(bytes.data, bytes.size, format, out_value));
    free(bytes.data);
    return problem_at(found, "\"%s\"", path);
}

static Problem *load(PictureOptions *o, OnnxfuseDType dtype, const Shape *shape, Loaded *out_loaded) {
    Layout layout;
    OnnxfuseValue *decoded;
    if (!is_float(dtype) && dtype != ONNXFUSE_UINT8)
        return problem(ONNXFUSE_INVALID, "\"%s\": a picture is uint8 or floats, this input is %s", o->path,
                       onnxfuse_dtype_name(dtype));
    if (o->numbers && dtype == ONNXFUSE_UINT8)
        return problem(ONNXFUSE_USAGE, "image: scale, mean and std are for inputs of floats, this one is uint8");
    TRY(problem_at(find_layout(shape, o->layout, &layout), "\"%s\"", o->path));
    TRY(spread("mean", o->mean, o->mean_count, layout.channels));
    TRY(spread("std", o->deviation, o->deviation_count, layout.channels));
    if (o->bgr && layout.channels != 3)
        return problem(ONNXFUSE_USAGE, "image: order=bgr is for 3 channels, the input has 1");
    TRY(decode(o->path, layout.channels == 1 ? "Grayscale" : o->bgr ? "BGR" : "RGB", &decoded));
    const int64_t *dims = onnxfuse_value_dims(decoded);
    Picture picture = {(int)dims[0], (int)dims[1], layout.channels, onnxfuse_value_data(decoded)};
    Problem *found = problem_at(convert(o, &picture, &layout, dtype, out_loaded), "\"%s\"", o->path);
    onnxfuse_value_free(decoded);
    return found;
}

Problem *picture_load(const char *text, OnnxfuseDType dtype, const Shape *shape, Loaded *out_loaded) {
    PictureOptions options;
    char *copy = strdup(text);
    if (!copy) return problem_out_of_memory();
    Problem *found = read_options(copy, &options);
    if (!found) found = load(&options, dtype, shape, out_loaded);
    free(copy);
    return found;
}
