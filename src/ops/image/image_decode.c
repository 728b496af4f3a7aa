/* ImageDecoder: the operator, and the formats that hold their pixels as they are (BMP, PNM, TIFF). */
#include "ops/image/image_decode.h"

#include "ops/image/image.h"
#include "lowering/sizes.h"
#include "base/plain.h"

bool pixels_new(Arena *arena, int64_t width, int64_t height, int channels, Bytes file, int64_t most, Pixels *out) {
    if (width < 1 || height < 1 || width > MOST_PIXELS || height > MOST_PIXELS / width) return false;
    if (width * height / most > (int64_t)file.size) return false;
    *out = (Pixels){width, height, channels, arena_array(arena, (size_t)(width * height), (size_t)channels)};
    return true;
}

static uint32_t little(Bytes f, size_t at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)f.data[at + (size_t)i] << 8 * i;
    return value;
}

/* ---- BMP ---- */

/* A pixel of `bits` bits in a row; up to 8 bits it is a number in the palette of 4-byte entries. */
static bool bmp_pixel(Bytes f, size_t row, int64_t x, int bits, size_t palette, size_t entry, uint32_t colours,
                      uint8_t *to) {
    size_t at;
    if (bits > 8) {
        at = row + (size_t)x * (size_t)(bits / 8);
    } else {
        size_t bit = (size_t)x * (size_t)bits;
        uint32_t number = f.data[row + bit / 8] >> (8 - bits - (int)(bit % 8)) & ((1u << bits) - 1);
        if (number >= colours) return false;
        at = palette + number * entry;
    }
    for (int i = 0; i < 3; i++) to[i] = f.data[at + 2 - (size_t)i];
    return true;
}

bool decode_bmp(Arena *arena, Bytes f, Pixels *out) {
    if (f.size < 54) return false;
    size_t pixels = little(f, 10, 4), header = little(f, 14, 4), entry = header == 12 ? 3 : 4;
    bool core = header == 12;
    int64_t width = (int32_t)little(f, 18, core ? 2 : 4), height = (int32_t)little(f, core ? 20 : 22, core ? 2 : 4);
    int bits = (int)little(f, core ? 24 : 28, 2);
    uint32_t compression = core ? 0 : little(f, 30, 4), colours = core ? 0 : little(f, 46, 4);
    bool top_down = height < 0;
    if (top_down) height = -height;
    if (bits != 1 && bits != 4 && bits != 8 && bits != 24 && bits != 32) return false;
    if (compression != 0 && !(compression == 3 && bits == 32)) return false;
    if (bits <= 8 && (colours == 0 || colours > 1u << bits)) colours = 1u << bits;
    size_t palette = 14 + header;
    if (header > f.size || (bits <= 8 && palette + colours * entry > f.size) ||
        !pixels_new(arena, width, height, 3, f, 8, out))
        return false;
    size_t stride = ((size_t)width * (size_t)bits + 31) / 32 * 4;
    if (pixels > f.size || stride * (size_t)height > f.size - pixels) return false;
    for (int64_t y = 0; y < height; y++) {
        size_t row = pixels + stride * (size_t)(top_down ? y : height - 1 - y);
        for (int64_t x = 0; x < width; x++)
            if (!bmp_pixel(f, row, x, bits, palette, entry, colours, out->data + 3 * (y * width + x))) return false;
    }
    return true;
}

/* ---- PNM ---- */

/* The next number; spaces and comments before it are skipped. */
static bool pnm_number(Bytes f, size_t *at, int64_t *out) {
    while (*at < f.size && (plain_is_space((char)f.data[*at]) || f.data[*at] == '#')) {
        if (f.data[*at] == '#')
            while (*at < f.size && f.data[*at] != '\n') ++*at;
        else
            ++*at;
    }
    if (*at >= f.size || !plain_is_digit((char)f.data[*at])) return false;
    for (*out = 0; *at < f.size && plain_is_digit((char)f.data[*at]) && *out < 1 << 30; ++*at)
        *out = *out * 10 + (f.data[*at] - '0');
    return true;
}

static bool pnm_sample(Bytes f, size_t *at, int kind, int64_t most, int64_t column, int64_t *out) {
    if (kind == 4) { /* bits, each row begins a byte */
        if (*at + (size_t)(column / 8) >= f.size) return false;
        *out = !(f.data[*at + (size_t)(column / 8)] >> (7 - column % 8) & 1);
        return true;
    }
    if (kind == 1) {
        while (*at < f.size && plain_is_space((char)f.data[*at])) ++*at;
        if (*at >= f.size) return false;
        *out = f.data[(*at)++] == '0';
        return true;
    }
    if (kind < 4) return pnm_number(f, at, out);
    size_t bytes = most > 255 ? 2 : 1;
    if (f.size - *at < bytes) return false;
    *out = bytes == 2 ? f.data[*at] << 8 | f.data[*at + 1] : f.data[*at];
    *at += bytes;
    return true;
}

bool decode_pnm(Arena *arena, Bytes f, Pixels *out) {
    int kind = f.size > 2 ? f.data[1] - '0' : 0;
    int64_t width, height, most = 1, sample;
    size_t at = 2;
    if (kind < 1 || kind > 6 || !pnm_number(f, &at, &width) || !pnm_number(f, &at, &height)) return false;
    if (kind != 1 && kind != 4 && (!pnm_number(f, &at, &most) || most < 1 || most > 65535)) return false;
    if (kind >= 4) at++; /* one space */
    if (at > f.size || !pixels_new(arena, width, height, kind % 3 == 0 ? 3 : 1, f, 8, out)) return false;
    for (int64_t y = 0; y < height; y++) {
        for (int64_t i = 0; i < width * out->channels; i++) {
            if (!pnm_sample(f, &at, kind, most, i, &sample)) return false;
            sample = sample > most ? most : sample;
            out->data[y * width * out->channels + i] = (uint8_t)((sample * 255 + most / 2) / most);
        }
        if (kind == 4) at += (size_t)(width + 7) / 8;
    }
    return true;
}

/* ---- TIFF ---- */

typedef struct Tiff {
    Bytes file;
    bool big;
    size_t directory;
    uint32_t entries;
} Tiff;

static bool tiff_read(const Tiff *t, size_t at, int bytes, uint32_t *out) {
    if (at > t->file.size || t->file.size - at < (size_t)bytes) return false;
    *out = 0;
    for (int i = 0; i < bytes; i++) *out |= (uint32_t)t->file.data[at + (size_t)i] << 8 * (t->big ? bytes - 1 - i : i);
    return true;
}

/* Element `index` of a tag (shorts and longs); false when it is not there. */
static bool tiff_tag(const Tiff *t, uint32_t tag, uint32_t index, uint32_t *out) {
    for (uint32_t i = 0; i < t->entries; i++) {
        size_t at = t->directory + 2 + 12 * (size_t)i;
        uint32_t name, type, count, place;
        if (!tiff_read(t, at, 2, &name) || !tiff_read(t, at + 2, 2, &type) || !tiff_read(t, at + 4, 4, &count))
            return false;
        if (name != tag) continue;
        int bytes = type == 3 ? 2 : 4;
        if ((type != 3 && type != 4) || index >= count || !tiff_read(t, at + 8, 4, &place)) return false;
        size_t values = (size_t)count * (size_t)bytes <= 4 ? at + 8 : place;
        return tiff_read(t, values + (size_t)index * (size_t)bytes, bytes, out);
    }
    return false;
}

static uint32_t tiff_value(const Tiff *t, uint32_t tag, uint32_t otherwise) {
    uint32_t value;
    return tiff_tag(t, tag, 0, &value) ? value : otherwise;
}

enum {
    TIFF_WIDTH = 256,
    TIFF_HEIGHT,
    TIFF_BITS,
    TIFF_COMPRESSION,
    TIFF_PHOTOMETRIC = 262,
    TIFF_OFFSETS = 273,
    TIFF_SAMPLES = 277,
    TIFF_ROWS = 278,
    TIFF_BYTES = 279,
    TIFF_PLANAR = 284,
    TIFF_PREDICTOR = 317
};

/* Strip `number` into to[size]. */
static bool tiff_strip(const Tiff *t, uint32_t number, uint32_t compression, uint8_t *to, size_t size) {
    uint32_t offset, bytes;
    if (!tiff_tag(t, TIFF_OFFSETS, number, &offset) || !tiff_tag(t, TIFF_BYTES, number, &bytes)) return false;
    if (offset > t->file.size || bytes > t->file.size - offset) return false;
    Bytes strip = {t->file.data + offset, bytes};
    if (compression != 1) return inflate_zlib(strip, to, size);
    if (bytes < size) return false;
    memcpy(to, strip.data, size);
    return true;
}

/* Strips of 8-bit grey or RGB (further samples are left out), plain or deflated. */
bool decode_tiff(Arena *arena, Bytes f, Pixels *out) {
    Tiff t = {f, f.size > 0 && f.data[0] == 'M', 0, 0};
    uint32_t place;
    if (!tiff_read(&t, 4, 4, &place) || !tiff_read(&t, place, 2, &t.entries)) return false;
    t.directory = place;
    int64_t width = tiff_value(&t, TIFF_WIDTH, 0), height = tiff_value(&t, TIFF_HEIGHT, 0),
            rows = tiff_value(&t, TIFF_ROWS, UINT32_MAX);
    uint32_t samples = tiff_value(&t, TIFF_SAMPLES, 1), compression = tiff_value(&t, TIFF_COMPRESSION, 1);
    uint32_t meaning = tiff_value(&t, TIFF_PHOTOMETRIC, 1);
    bool plain = compression == 1 || compression == 8 || compression == 32946;
    if (!plain || tiff_value(&t, TIFF_BITS, 1) != 8 || tiff_value(&t, TIFF_PLANAR, 1) != 1 ||
        tiff_value(&t, TIFF_PREDICTOR, 1) != 1)
        return false;
    if (meaning > 2 || samples < 1 || samples > 8 || (meaning == 2 && samples < 3) || rows < 1) return false;
    if (!pixels_new(arena, width, height, meaning == 2 ? 3 : 1, f, INFLATED, out)) return false;
    if (rows > height) rows = height;
    uint8_t *strip = arena_array(arena, (size_t)(rows * width), samples);
    for (int64_t y = 0; y < height; y += rows) {
        int64_t count = (height - y < rows ? height - y : rows) * width;
        if (!tiff_strip(&t, (uint32_t)(y / rows), compression, strip, (size_t)count * samples)) return false;
        for (int64_t i = 0; i < count; i++)
            for (int c = 0; c < out->channels; c++) {
                uint8_t value = strip[i * samples + c];
                out->data[(y * width + i) * out->channels + c] = meaning == 0 ? (uint8_t)(255 - value) : value;
            }
    }
    return true;
}

/* ---- the operator ---- */

static const struct {
    const char *name, *magic;
    int size;        /* of magic */
    DecodeFn decode; /* NULL: not supported */
} formats[] = {
    {"JPEG", "\xFF\xD8\xFF", 3, decode_jpeg}, {"PNG", "\x89PNG\r\n\x1A\n", 8, decode_png}, {"BMP", "BM", 2, decode_bmp},
    {"TIFF", "II*\0", 4, decode_tiff},        {"TIFF", "MM\0*", 4, decode_tiff},           {"WebP", "RIFF", 4, NULL},
    {"JPEG 2000", "\0\0\0\x0CjP  ", 8, NULL}, {"JPEG 2000", "\xFF\x4F\xFF\x51", 4, NULL},  {"PNM", "P", 1, decode_pnm},
};

/* ITU-R 601 luma in 16-bit fractions. */
static uint8_t luma(const uint8_t *rgb) {
    return (uint8_t)((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 32768) >> 16);
}

static void convert(const Pixels *from, bool grey, bool reversed, uint8_t *to) {
    for (int64_t i = 0; i < from->width * from->height; i++) {
        const uint8_t *p = from->data + i * from->channels;
        if (grey)
            to[i] = from->channels == 1 ? p[0] : luma(p);
        else
            for (int c = 0; c < 3; c++) to[3 * i + c] = from->channels == 1 ? p[0] : p[reversed ? 2 - c : c];
    }
}

/* What cannot be decoded gives an empty image (ONNX ImageDecoder-20). */
Status host_image_decoder(HostCall *call) {
    const Tensor *x;
    Tensor *y;
    Pixels pixels = {0};
    TRY(host_tensor(call, 0, DT_U8, &x));
    Bytes file = {x->data, (size_t)tensor_count(x)};
    const char *format = attr_string(call->node, "pixel_format", "RGB");
    bool grey = strcmp(format, "Grayscale") == 0, decoded = false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (file.size < (size_t)formats[i].size || memcmp(file.data, formats[i].magic, (size_t)formats[i].size) != 0)
            continue;
        if (!formats[i].decode)
            return status_error(STATUS_UNSUPPORTED, "node \"%s\" (%s): %s images are not supported",
                                node_origin_name(call->node), call->node->op, formats[i].name);
        decoded = formats[i].decode(call->arena, file, &pixels);
        break;
    }
    if (!decoded) pixels = (Pixels){0};
    TRY(host_output(call, 0, DT_U8, 3, (int64_t[]){pixels.height, pixels.width, grey ? 1 : 3}, &y));
    if (y) convert(&pixels, grey, strcmp(format, "BGR") == 0, y->data);
    return NULL;
}

Status lower_image_decoder(Lowering *l, const Node *n) {
    Value *x = in(l, n, 0);
    const char *format = attr_string(n, "pixel_format", "RGB");
    if (!x) return l->error;
    bool grey = strcmp(format, "Grayscale") == 0;
    if (!grey && strcmp(format, "RGB") != 0 && strcmp(format, "BGR") != 0)
        return invalid(l, "pixel_format \"%s\" is not known", format);
    if (x->dtype != DT_U8 || x->rank != 1) return invalid(l, "the encoded image is not a vector of bytes");
    const Dim *dims[] = {dim_fresh(l->dims, "height"), dim_fresh(l->dims, "width"), size_const(l, grey ? 1 : 3)};
    return out(l, n, 0, host_result(l, host_node(l, n, host_image_decoder, &x, 1), DT_U8, 3, dims));
}
