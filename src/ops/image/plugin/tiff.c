/* SPDX-License-Identifier: Apache-2.0 */
/* TIFF, by libtiff: the first picture of the file. libtiff undoes the compression; the samples are unpacked here, in
 * whatever strips or tiles they stand, because its own conversion takes 4 bytes a pixel and multiplies alpha in. That
 * conversion is left what is rare: YCbCr that is no JPEG, and CIE L*a*b*. Its
 * orientation is followed, as the standard's reference does. */
#include "ops/image/plugin/decoders.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <tiffio.h>

enum {
    MOST_COLOURS = 4,          /* cyan, magenta, yellow, black */
    MOST_OVERHEAD = 1 << 26,   /* bytes of a strip or tile beyond those of the picture */
    MOST_ALLOCATION = 1 << 30, /* bytes that libtiff may take at once */
};

typedef struct Tiff {
    TIFF *tiff;
    ImageBytes file;
    size_t at; /* in the file; strips and tiles are read where they are */
    ImageSink *sink;
    uint32_t width, height;
    uint16_t bits, samples, photometric, planar, compression, orientation, format;
    int colours;        /* samples of a pixel that are read: 1, 3 or 4 */
    int channels;       /* of the result */
    bool premultiplied; /* with the sample after the colours */
    uint16_t *palette[3];
    /* Pixel (x, y) as stored goes to rows + x * right + y * down. */
    uint8_t *rows;
    ptrdiff_t right, down;
} Tiff;

/* ---- the file in memory ---- */

static tmsize_t read_bytes(thandle_t handle, void *to, tmsize_t size) {
    Tiff *t = (Tiff *)handle;
    if (size < 0 || t->at > t->file.size) return 0;
    if ((size_t)size > t->file.size - t->at) size = (tmsize_t)(t->file.size - t->at);
    memcpy(to, t->file.data + t->at, (size_t)size);
    t->at += (size_t)size;
    return size;
}
static tmsize_t no_write(thandle_t handle, void *from, tmsize_t size) {
    (void)handle;
    (void)from;
    (void)size;
    return 0;
}
/* Anywhere: what is beyond the end cannot be read. */
static toff_t seek_to(thandle_t handle, toff_t offset, int whence) {
    Tiff *t = (Tiff *)handle;
    t->at = (whence == SEEK_CUR ? t->at : whence == SEEK_END ? t->file.size : 0) + (size_t)offset;
    return t->at;
}
static int no_close(thandle_t t) {
    (void)t;
    return 0;
}
static toff_t size_of(thandle_t t) { return ((const Tiff *)t)->file.size; }
static int map(thandle_t t, void **out_base, toff_t *out_size) {
    const Tiff *tiff = (const Tiff *)t;
    *out_base = (void *)(uintptr_t)tiff->file.data;
    *out_size = tiff->file.size;
    return 1;
}
static void no_unmap(thandle_t t, void *base, toff_t size) {
    (void)t;
    (void)base;
    (void)size;
}

static int on_error(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    char message[256];
    (void)tiff;
    (void)module;
    vsnprintf(message, sizeof message, format, arguments);
    image_fail(user, "%s", message);
    return 1;
}

/* libjpeg warns of damage, and only of that; other warnings are about tags. */
static int on_warning(TIFF *tiff, void *user, const char *module, const char *format, va_list arguments) {
    return module && strcmp(module, "JPEGLib") == 0 ? on_error(tiff, user, module, format, arguments) : 1;
}

static TIFF *open_file(Tiff *t) {
    TIFFOpenOptions *options = TIFFOpenOptionsAlloc();
    if (!options) return NULL;
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, MOST_ALLOCATION);
    TIFFOpenOptionsSetErrorHandlerExtR(options, on_error, t->sink);
    TIFFOpenOptionsSetWarningHandlerExtR(options, on_warning, t->sink);
    TIFF *tiff =
        TIFFClientOpenExt("picture", "r", t, read_bytes, no_write, seek_to, no_close, size_of, map, no_unmap, options);
    TIFFOpenOptionsFree(options);
    return tiff;
}

/* ---- samples ---- */

static unsigned raw_sample(const Tiff *t, const uint8_t *row, size_t index) {
    switch (t->bits) {
    case 8: return row[index];
    case 16: return ((const uint16_t *)(const void *)row)[index];
    case 32: return ((const uint32_t *)(const void *)row)[index];
    default: return row[index * t->bits / 8] >> (8 - t->bits - index * t->bits % 8) & ((1u << t->bits) - 1);
    }
}

/* In 0..255: of 16 and 32 bits the highest 8. */
static uint8_t sample(const Tiff *t, const uint8_t *row, size_t index) {
    unsigned value = raw_sample(t, row, index);
    return (uint8_t)(t->bits > 8 ? value >> (t->bits - 8) : value * 255 / ((1u << t->bits) - 1));
}

/* Pixel `x` of rows[plane], or of rows[0] alone when the samples of a pixel stand together. */
static void put_pixel(const Tiff *t, const uint8_t *const *rows, uint32_t x, uint8_t *to) {
    bool apart = t->planar == PLANARCONFIG_SEPARATE;
    uint8_t v[MOST_COLOURS + 1];
    if (t->photometric == PHOTOMETRIC_PALETTE) {
        unsigned number = raw_sample(t, rows[0], apart ? x : (size_t)x * t->samples);
        for (int c = 0; c < 3; c++) to[c] = (uint8_t)(t->palette[c][number] >> 8);
        return;
    }
    for (int c = 0; c < t->colours + t->premultiplied; c++)
        v[c] = apart ? sample(t, rows[c], x) : sample(t, rows[0], (size_t)x * t->samples + (size_t)c);
    if (t->photometric == PHOTOMETRIC_SEPARATED) {
        rgb_of_cmyk(to, v, v[3]);
        return;
    }
    for (int c = 0; c < t->channels; c++) {
        unsigned value = t->photometric == PHOTOMETRIC_MINISWHITE ? 255u - v[c] : v[c];
        if (t->premultiplied) {
            unsigned alpha = v[t->colours];
            value = alpha ? value * 255 / alpha : 0;
        }
        to[c] = value > 255 ? 255 : (uint8_t)value;
    }
}

/* ---- strips and tiles ---- */

/* A strip is a tile as wide as the picture. */
typedef struct Pieces {
    bool tiled;
    uint32_t width, height;
    tmsize_t row, bytes; /* of one plane */
    int planes;
} Pieces;

static bool plan_pieces(const Tiff *t, Pieces *p) {
    *p = (Pieces){.tiled = TIFFIsTiled(t->tiff),
                  .width = t->width,
                  .planes = t->planar == PLANARCONFIG_SEPARATE ? t->colours + t->premultiplied : 1};
    if (p->tiled) {
        TIFFGetField(t->tiff, TIFFTAG_TILEWIDTH, &p->width);
        TIFFGetField(t->tiff, TIFFTAG_TILELENGTH, &p->height);
    } else {
        TIFFGetFieldDefaulted(t->tiff, TIFFTAG_ROWSPERSTRIP, &p->height);
        if (p->height > t->height) p->height = t->height;
    }
    p->row = p->tiled ? TIFFTileRowSize(t->tiff) : TIFFScanlineSize(t->tiff);
    p->bytes = p->tiled ? TIFFTileSize(t->tiff) : TIFFVStripSize(t->tiff, p->height);
    int64_t samples = p->planes == 1 ? t->samples : 1;
    if (p->row <= 0 || p->bytes <= 0 || !p->width || !p->height)
        return image_fail(t->sink, "its strips or tiles have no size");
    /* What is unpacked is inside of what is read. */
    if ((int64_t)p->row < ((int64_t)p->width * samples * t->bits + 7) / 8 || p->bytes / p->row < (tmsize_t)p->height)
        return image_fail(t->sink, "its strips or tiles are too small");
    int64_t whole = (int64_t)t->width * t->height * (t->samples * t->bits / 8 + 1);
    if (p->bytes > (whole + MOST_OVERHEAD) / p->planes)
        return image_fail(t->sink, "tiles of %u x %u pixels are too large for %u x %u pixels", p->width, p->height,
                          t->width, t->height);
    return true;
}

static bool read_piece(const Tiff *t, const Pieces *p, uint32_t x, uint32_t y, uint8_t *planes) {
    uint32_t rows = t->height - y < p->height ? t->height - y : p->height;
    for (int s = 0; s < p->planes; s++) {
        uint8_t *to = planes + (size_t)s * (size_t)p->bytes;
        tmsize_t want = p->tiled ? p->bytes : p->row * (tmsize_t)rows;
        uint32_t number =
            p->tiled ? TIFFComputeTile(t->tiff, x, y, 0, (uint16_t)s) : TIFFComputeStrip(t->tiff, y, (uint16_t)s);
        tmsize_t got =
            p->tiled ? TIFFReadEncodedTile(t->tiff, number, to, want) : TIFFReadEncodedStrip(t->tiff, number, to, want);
        if (got != want) return image_fail(t->sink, "its strip or tile %u is damaged", number);
    }
    return true;
}

static bool read_pieces(Tiff *t) {
    Pieces p;
    if (!plan_pieces(t, &p)) return false;
    uint8_t *planes = malloc((size_t)p.bytes * (size_t)p.planes);
    bool decoded = planes ? true : image_fail(t->sink, "there is not enough memory");
    for (uint32_t y = 0; decoded && y < t->height; y += p.height) {
        for (uint32_t x = 0; decoded && x < t->width; x += p.width) {
            decoded = read_piece(t, &p, x, y, planes);
            for (uint32_t row = 0; decoded && row < p.height && row < t->height - y; row++) {
                const uint8_t *rows[MOST_COLOURS + 1];
                for (int s = 0; s < p.planes; s++)
                    rows[s] = planes + (size_t)s * (size_t)p.bytes + (size_t)row * (size_t)p.row;
                uint8_t *to = t->rows + (ptrdiff_t)(y + row) * t->down + (ptrdiff_t)x * t->right;
                for (uint32_t i = 0; i < p.width && i < t->width - x; i++, to += t->right) put_pixel(t, rows, i, to);
            }
        }
    }
    free(planes);
    return decoded;
}

/* libtiff's own conversion. */
static bool read_converted(Tiff *t) {
    uint32_t *pixels = malloc((size_t)t->width * t->height * sizeof *pixels);
    if (!pixels) return image_fail(t->sink, "there is not enough memory");
    bool decoded = TIFFReadRGBAImageOriented(t->tiff, t->width, t->height, pixels, t->orientation, 1) ||
                   image_fail(t->sink, "its pixels are damaged");
    for (uint32_t y = 0; decoded && y < t->height; y++) {
        for (uint32_t x = 0; x < t->width; x++) {
            uint32_t pixel = pixels[(size_t)y * t->width + x];
            uint8_t *to = t->rows + (ptrdiff_t)y * t->down + (ptrdiff_t)x * t->right;
            to[0] = (uint8_t)TIFFGetR(pixel);
            to[1] = (uint8_t)TIFFGetG(pixel);
            to[2] = (uint8_t)TIFFGetB(pixel);
        }
    }
    free(pixels);
    return decoded;
}

/* ---- the picture ---- */

/* Whether the pixels are unpacked here. */
static bool choose_colours(Tiff *t, bool *out_unpack) {
    uint16_t *extra, extras = 0, inks = INKSET_CMYK;
    *out_unpack = true;
    t->channels = 3;
    switch (t->photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK: t->channels = t->colours = 1; break;
    case PHOTOMETRIC_RGB: t->colours = 3; break;
    case PHOTOMETRIC_PALETTE:
        t->colours = 1;
        if (t->bits > 8 || !TIFFGetField(t->tiff, TIFFTAG_COLORMAP, &t->palette[0], &t->palette[1], &t->palette[2]))
            return image_fail(t->sink, "it has no palette for %u bits", t->bits);
        break;
    case PHOTOMETRIC_SEPARATED:
        t->colours = 4;
        TIFFGetFieldDefaulted(t->tiff, TIFFTAG_INKSET, &inks);
        if (inks != INKSET_CMYK) return image_fail(t->sink, "its inks are others than CMYK");
        break;
    case PHOTOMETRIC_YCBCR:
        if (t->compression == COMPRESSION_JPEG) {
            TIFFSetField(t->tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
            t->colours = 3;
            break;
        }
        *out_unpack = false;
        return true;
    default: *out_unpack = false; return true;
    }
    if (t->samples < t->colours) return image_fail(t->sink, "%u samples are too few for its colours", t->samples);
    bool known = t->bits == 1 || t->bits == 2 || t->bits == 4 || t->bits == 8 || t->bits == 16 || t->bits == 32;
    if (!known || (t->format != SAMPLEFORMAT_UINT && t->format != SAMPLEFORMAT_VOID))
        return image_fail(t->sink, "samples of %u bits and format %u are not supported", t->bits, t->format);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_EXTRASAMPLES, &extras, &extra);
    t->premultiplied =
        t->photometric == PHOTOMETRIC_RGB && extras && extra[0] == EXTRASAMPLE_ASSOCALPHA && t->samples > t->colours;
    return true;
}

/* Takes memory for the picture as the orientation turns it. */
static bool take_rows(Tiff *t) {
    bool turned = t->orientation >= ORIENTATION_LEFTTOP; /* rows are columns */
    int64_t width = turned ? t->height : t->width, height = turned ? t->width : t->height;
    int64_t bits = (int64_t)t->bits * t->samples;
    int64_t most = t->compression == COMPRESSION_NONE ? 8
                   : t->compression == COMPRESSION_ADOBE_DEFLATE || t->compression == COMPRESSION_DEFLATE
                       ? 8 * MOST_INFLATED
                       : 0;
    uint8_t *rows = t->sink->rows(t->sink, width, height, t->channels, bits ? (most + bits - 1) / bits : 0);
    if (!rows) return false;
    ptrdiff_t pixel = t->channels, row = pixel * (ptrdiff_t)width;
    bool left = t->orientation == ORIENTATION_TOPRIGHT || t->orientation == ORIENTATION_BOTRIGHT ||
                t->orientation == ORIENTATION_RIGHTTOP || t->orientation == ORIENTATION_RIGHTBOT;
    bool up = t->orientation == ORIENTATION_BOTRIGHT || t->orientation == ORIENTATION_BOTLEFT ||
              t->orientation == ORIENTATION_RIGHTBOT || t->orientation == ORIENTATION_LEFTBOT;
    ptrdiff_t across = left ? -pixel : pixel, along = up ? -row : row;
    t->rows = rows + (left ? row - pixel : 0) + (up ? row * (ptrdiff_t)(height - 1) : 0);
    t->right = turned ? along : across;
    t->down = turned ? across : along;
    return true;
}

static bool decode(Tiff *t) {
    bool unpack;
    if (!TIFFGetField(t->tiff, TIFFTAG_IMAGEWIDTH, &t->width) ||
        !TIFFGetField(t->tiff, TIFFTAG_IMAGELENGTH, &t->height))
        return image_fail(t->sink, "it tells no size");
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_BITSPERSAMPLE, &t->bits);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLESPERPIXEL, &t->samples);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_SAMPLEFORMAT, &t->format);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_PLANARCONFIG, &t->planar);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_COMPRESSION, &t->compression);
    TIFFGetFieldDefaulted(t->tiff, TIFFTAG_ORIENTATION, &t->orientation);
    if (t->orientation < ORIENTATION_TOPLEFT || t->orientation > ORIENTATION_LEFTBOT)
        t->orientation = ORIENTATION_TOPLEFT;
    if (!TIFFGetField(t->tiff, TIFFTAG_PHOTOMETRIC, &t->photometric)) t->photometric = PHOTOMETRIC_MINISBLACK;
    if (!choose_colours(t, &unpack) || !take_rows(t)) return false;
    return (unpack ? read_pieces(t) : read_converted(t)) && !t->sink->reason[0];
}

bool image_decode_tiff(ImageBytes file, ImageSink *sink) {
    Tiff t = {.file = file, .sink = sink};
    t.tiff = open_file(&t);
    if (!t.tiff) return image_fail(sink, "it is damaged");
    bool decoded = decode(&t);
    TIFFClose(t.tiff);
    return decoded;
}
