/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG 2000, by openjp2: JP2 files and bare codestreams, without alpha and without colour profiles. */
#include "base/integer.h"
#include "ops/image/plugin/decoders.h"

#include <openjpeg.h>
#include <stddef.h>

enum {
    MOST_COMPONENTS = 16,
    TILE_BYTES = 14,           /* that a tile takes of a file at least: the markers SOT and SOD */
    MOST_TILE_PARTS = 1 << 18, /* openjp2 takes about a kilobyte for a tile, and for each of its components */
    FREE_BLOCKS = 1 << 16,     /* code-blocks; openjp2 takes about 500 bytes for one, ... */
    LEAST_BLOCK = 64, /* ... so beyond these there is none for fewer samples on average; encoders use 1024 and more */
    SAMPLE_BYTES = 8, /* that openjp2 takes for a sample: a 32-bit number in the tile, and in the picture */
};
#define MOST_MEMORY ((int64_t)1 << 32) /* bytes that it may take so */

typedef struct Stream {
    ImageBytes file;
    size_t at;
} Stream;

static OPJ_SIZE_T read_bytes(void *to, OPJ_SIZE_T size, void *user) {
    Stream *s = user;
    if (s->at == s->file.size) return (OPJ_SIZE_T)-1;
    if (size > s->file.size - s->at) size = s->file.size - s->at;
    memcpy(to, s->file.data + s->at, size);
    s->at += size;
    return size;
}

static OPJ_OFF_T skip_bytes(OPJ_OFF_T size, void *user) {
    Stream *s = user;
    if (size < 0 || (uint64_t)size > s->file.size - s->at) return -1;
    s->at += (size_t)size;
    return size;
}

static OPJ_BOOL seek_to(OPJ_OFF_T place, void *user) {
    Stream *s = user;
    if (place < 0 || (uint64_t)place > s->file.size) return OPJ_FALSE;
    s->at = (size_t)place;
    return OPJ_TRUE;
}

static void on_error(const char *message, void *user) { image_fail(user, "%s", message); }
static void on_message(const char *message, void *user) {
    (void)message;
    (void)user;
}

static uint32_t big(ImageBytes f, size_t at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | f.data[at + (size_t)i];
    return value;
}

/* Where the codestream begins: the box jp2c of a JP2 file (ISO/IEC 15444-1, annex I). */
static bool find_codestream(ImageBytes f, size_t *out_at) {
    *out_at = 0;
    if (f.data[0]) return true;
    for (size_t at = 0; f.size - at >= 16;) {
        uint64_t size = big(f, at, 4), head = size == 1 ? 16 : 8;
        if (size == 1) size = (uint64_t)big(f, at + 8, 4) << 32 | big(f, at + 12, 4);
        *out_at = at + (size_t)head;
        if (memcmp(f.data + at + 4, "jp2c", 4) == 0) return true;
        if (size < head || size > f.size - at) return false;
        at += (size_t)size;
    }
    return false;
}

/* openjp2 takes memory for all tiles while it reads the header, so the size marker, the first of a codestream, is read
 * here before. */
static bool check_tiles(ImageBytes f, ImageSink *sink) {
    size_t at;
    if (!find_codestream(f, &at) || f.size - at < 42 || big(f, at, 4) != 0xFF4FFF51)
        return image_fail(sink, "it has no codestream");
    int64_t width = big(f, at + 8, 4), height = big(f, at + 12, 4), across = big(f, at + 24, 4),
            along = big(f, at + 28, 4);
    int64_t left = big(f, at + 32, 4), top = big(f, at + 36, 4), components = big(f, at + 40, 2);
    if (components < 1 || components > MOST_COMPONENTS)
        return image_fail(sink, "it has %lld components", (long long)components);
    if (!across || !along || left > width || top > height) return image_fail(sink, "its tiles have no size");
    int64_t columns = ceil_div(width - left, across), rows = ceil_div(height - top, along);
    if (rows && columns > (int64_t)(f.size / TILE_BYTES) / rows)
        return image_fail(sink, "it claims to have %lld x %lld tiles, more than its %zu bytes can hold",
                          (long long)columns, (long long)rows, f.size);
    if (columns * rows * (components + 4) > MOST_TILE_PARTS)
        return image_fail(sink, "it has %lld x %lld tiles, too many to be decoded", (long long)columns,
                          (long long)rows);
    return true;
}

/* What is needed of the header: the first component's grid is the picture's. */
typedef struct Layout {
    int64_t samples; /* of all components */
    int64_t width, height;
    int colours;       /* components that are read */
    bool inks, chroma; /* CMYK; luma and two chromas */
} Layout;

static bool read_layout(const opj_image_t *image, Layout *out, ImageSink *sink) {
    const opj_image_comp_t *c = image->comps;
    out->samples = 0;
    for (OPJ_UINT32 i = 0; i < image->numcomps; i++) {
        if (c[i].dx < 1 || c[i].dy < 1) return image_fail(sink, "component %u has no size", i);
        out->samples += (ceil_div(image->x1, c[i].dx) - ceil_div(image->x0, c[i].dx)) *
                        (ceil_div(image->y1, c[i].dy) - ceil_div(image->y0, c[i].dy));
        if (out->samples > MOST_MEMORY / SAMPLE_BYTES)
            return image_fail(sink, "it claims to have %u x %u pixels, which would take more than %lld bytes to decode",
                              image->x1 - image->x0, image->y1 - image->y0, (long long)MOST_MEMORY);
    }
    out->width = ceil_div(image->x1, c[0].dx) - ceil_div(image->x0, c[0].dx);
    out->height = ceil_div(image->y1, c[0].dy) - ceil_div(image->y0, c[0].dy);
    return true;
}

/* ---- how finely it is cut ---- */

/* Of a component: sizes as their logarithms. */
typedef struct Coding {
    OPJ_UINT32 resolutions, width, height;                        /* of a code-block */
    OPJ_UINT32 across[OPJ_J2K_MAXRLVLS], along[OPJ_J2K_MAXRLVLS]; /* of the precincts at each resolution */
} Coding;

static int64_t scaled_down(int64_t size, OPJ_UINT32 by) { return by < 32 ? ceil_div(size, (int64_t)1 << by) : 1; }

/* A code-block ends where its precinct does, of which a subband of all but the lowest resolution has the half. */
static OPJ_UINT32 block_size(OPJ_UINT32 block, OPJ_UINT32 precinct, bool half) {
    if (half && precinct) precinct--;
    return block < precinct ? block : precinct;
}

static bool check_blocks(const opj_image_t *image, const Layout *layout, const Coding *coding, ImageSink *sink) {
    int64_t blocks = 0, most = FREE_BLOCKS + layout->samples / LEAST_BLOCK;
    for (OPJ_UINT32 r = 0; r < coding->resolutions; r++) {
        int64_t width = scaled_down((int64_t)image->x1 - image->x0, coding->resolutions - 1 - r);
        int64_t height = scaled_down((int64_t)image->y1 - image->y0, coding->resolutions - 1 - r);
        blocks += scaled_down(width, block_size(coding->width, coding->across[r], r > 0)) *
                  scaled_down(height, block_size(coding->height, coding->along[r], r > 0)) * image->numcomps;
        if (blocks > most) return image_fail(sink, "its code-blocks are too many to be decoded");
    }
    return true;
}

/* The coding of a marker COD or COC from its number of decompositions on (ISO/IEC 15444-1, A.6.1). */
static bool read_coding(ImageBytes f, size_t at, size_t end, bool precincts, Coding *out) {
    if (end - at < 5 || f.data[at] >= OPJ_J2K_MAXRLVLS) return false;
    *out = (Coding){f.data[at] + 1u, (f.data[at + 1] & 15u) + 2, (f.data[at + 2] & 15u) + 2, {0}, {0}};
    if (precincts && end - at - 5 < out->resolutions) return false;
    for (OPJ_UINT32 r = 0; r < out->resolutions; r++) {
        uint8_t sizes = precincts ? f.data[at + 5 + r] : 0xFF;
        out->across[r] = sizes & 15u;
        out->along[r] = sizes >> 4;
    }
    return true;
}

/* From `at` to the marker `until`, which it sets `at` to, or to the end. Of a marker without a known length openjp2 looks
 * for the next by rules of its own, so there may be none. */
static bool check_markers(ImageBytes f, size_t *at, size_t end, uint32_t until, const opj_image_t *image,
                          const Layout *layout, ImageSink *sink) {
    static const uint8_t known[] = {
        0x50, 0x51, 0x52, 0x53, 0x55, 0x57, 0x58, 0x59, 0x5C, 0x5D,
        0x5E, 0x5F, 0x60, 0x61, 0x63, 0x64, 0x74, 0x75, 0x77, 0x78}; /* 0xFF50: CAP ... 0xFF78: CBD */
    while (end - *at >= 4 && big(f, *at, 2) != until) {
        uint32_t marker = big(f, *at, 2);
        size_t size = big(f, *at + 2, 2);
        if (f.data[*at] != 0xFF || !memchr(known, f.data[*at + 1], sizeof known) || size < 2 || size > end - *at - 2)
            return image_fail(sink, "its marker 0x%04x is not known", marker);
        if (marker == 0xFF52 || marker == 0xFF53) { /* COD; COC, of which the number of a component is one byte */
            Coding coding;
            size_t style = marker == 0xFF52 ? 4 : 5, coded = marker == 0xFF52 ? 9 : 6;
            if (size + 2 < coded || !read_coding(f, *at + coded, *at + 2 + size, f.data[*at + style] & 1, &coding))
                return image_fail(sink, "its coding is damaged");
            if (!check_blocks(image, layout, &coding, sink)) return false;
        }
        *at += 2 + size;
    }
    return true;
}

/* The codings of the main header, and those of tile-parts, which may differ. openjp2 does not tell of the latter. */
static bool check_codings(ImageBytes f, const opj_image_t *image, const Layout *layout, ImageSink *sink) {
    enum { SOT = 0xFF90, SOD = 0xFF93 };
    size_t at;
    if (!find_codestream(f, &at)) return image_fail(sink, "it has no codestream");
    at += 2;
    if (!check_markers(f, &at, f.size, SOT, image, layout, sink)) return false;
    while (f.size - at >= TILE_BYTES && big(f, at, 2) == SOT) {
        size_t size = big(f, at + 6, 4), end = size && size < f.size - at ? at + size : f.size, header = at + 12;
        if (header > end || !check_markers(f, &header, end, SOD, image, layout, sink))
            return image_fail(sink, "a tile is damaged");
        at = end;
    }
    return true;
}

/* ---- colours ---- */

/* Palettes and the meaning of components are known after decoding. */
static bool read_colours(const opj_image_t *image, Layout *out, ImageSink *sink) {
    const opj_image_comp_t *c = image->comps;
    OPJ_COLOR_SPACE space = image->color_space;
    if (space == OPJ_CLRSPC_EYCC) return image_fail(sink, "its colours are e-YCC");
    out->inks = space == OPJ_CLRSPC_CMYK && image->numcomps >= 4;
    out->colours = out->inks ? 4 : image->numcomps >= 3 ? 3 : 1;
    /* A codestream by itself does not tell; coarser second and third components are chroma. */
    out->chroma = out->colours == 3 && (space == OPJ_CLRSPC_SYCC || (c[1].dx > c[0].dx && c[2].dx > c[0].dx));
    for (int i = 0; i < out->colours; i++)
        if (c[i].prec < 1 || c[i].prec > 31 || !c[i].data || !c[i].w || !c[i].h)
            return image_fail(sink, "component %d cannot be read", i);
    if (c[0].w < out->width || c[0].h < out->height) return image_fail(sink, "a part of it is missing");
    return true;
}

/* In 0..255, at the picture's pixel; coarser components are repeated. */
static uint8_t sample(const opj_image_t *image, int component, int64_t x, int64_t y) {
    const opj_image_comp_t *first = image->comps, *c = first + component;
    x = x * first->dx / c->dx;
    y = y * first->dy / c->dy;
    if (x >= c->w) x = c->w - 1;
    if (y >= c->h) y = c->h - 1;
    int64_t most = ((int64_t)1 << c->prec) - 1;
    int64_t value = (int64_t)c->data[y * c->w + x] + (c->sgnd ? (int64_t)1 << (c->prec - 1) : 0);
    value = value < 0 ? 0 : value > most ? most : value;
    return (uint8_t)(c->prec > 8 ? value >> (c->prec - 8) : value * 255 / most);
}

static uint8_t clamped(int value) { return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value; }

/* sYCC's matrix is JFIF's (IEC 61966-2-1, annex F); 16-bit fractions. */
static void rgb_of_chroma(uint8_t *rgb, const uint8_t *v) {
    int blue = v[1] - 128, red = v[2] - 128;
    rgb[0] = clamped(v[0] + ((91881 * red + 32768) >> 16));
    rgb[1] = clamped(v[0] - ((22554 * blue + 46802 * red + 32767) >> 16));
    rgb[2] = clamped(v[0] + ((116130 * blue + 32768) >> 16));
}

static void put_pixels(const opj_image_t *image, const Layout *layout, uint8_t *to) {
    for (int64_t y = 0; y < layout->height; y++) {
        for (int64_t x = 0; x < layout->width; x++, to += 3) {
            uint8_t v[4];
            for (int i = 0; i < layout->colours; i++) v[i] = sample(image, i, x, y);
            if (layout->inks)
                rgb_of_cmyk(to, v, v[3]);
            else if (layout->chroma)
                rgb_of_chroma(to, v);
            else
                for (int i = 0; i < 3; i++) to[i] = v[layout->colours == 1 ? 0 : i];
        }
    }
}

static bool decode(ImageBytes file, opj_codec_t *codec, opj_stream_t *stream, opj_image_t **image, ImageSink *sink) {
    opj_dparameters_t parameters;
    Layout layout;
    opj_set_default_decoder_parameters(&parameters);
    opj_set_error_handler(codec, on_error, sink);
    opj_set_warning_handler(codec, on_message, NULL);
    opj_set_info_handler(codec, on_message, NULL);
    if (!opj_setup_decoder(codec, &parameters) || !opj_read_header(stream, codec, image) || !*image)
        return image_fail(sink, "its header is damaged");
    if (!read_layout(*image, &layout, sink) || !check_codings(file, *image, &layout, sink)) return false;
    /* One component may turn out to be of a palette: so grey, too, is three channels. */
    uint8_t *rows = sink->rows(sink, layout.width, layout.height, 3, 0);
    if (!rows) return false;
    if (!opj_decode(codec, stream, *image) || !opj_end_decompress(codec, stream))
        return image_fail(sink, "its data is damaged");
    if (!read_colours(*image, &layout, sink)) return false;
    put_pixels(*image, &layout, rows);
    return true;
}

bool image_decode_jpeg2000(ImageBytes file, ImageSink *sink) {
    if (!check_tiles(file, sink)) return false;
    Stream source = {file, 0};
    opj_codec_t *codec = opj_create_decompress(file.data[0] ? OPJ_CODEC_J2K : OPJ_CODEC_JP2);
    opj_stream_t *stream = opj_stream_create(1 << 16, OPJ_TRUE);
    opj_image_t *image = NULL;
    bool decoded = false;
    if (codec && stream) {
        opj_stream_set_read_function(stream, read_bytes);
        opj_stream_set_skip_function(stream, skip_bytes);
        opj_stream_set_seek_function(stream, seek_to);
        opj_stream_set_user_data(stream, &source, NULL);
        opj_stream_set_user_data_length(stream, file.size);
        decoded = decode(file, codec, stream, &image, sink);
    } else {
        image_fail(sink, "there is not enough memory");
    }
    if (stream) opj_stream_destroy(stream);
    if (codec) opj_destroy_codec(codec);
    if (image) opj_image_destroy(image);
    return decoded;
}
