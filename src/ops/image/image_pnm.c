/* SPDX-License-Identifier: Apache-2.0 */
/* PBM, PGM and PPM, in text and binary (netpbm's pbm(5), pgm(5), ppm(5)): the kinds P1 to P6. */
#include "ops/image/image_file.h"

typedef struct Pnm {
    ImageBytes file;
    size_t at;
    int kind;
    int64_t maximum; /* of a sample */
} Pnm;

static bool is_space(uint8_t c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
static bool is_digit(uint8_t c) { return c >= '0' && c <= '9'; }

/* Past spaces and comments, to a digit. */
static bool find_digit(Pnm *p) {
    for (; p->at < p->file.size; p->at++) {
        uint8_t c = p->file.data[p->at];
        if (c == '#')
            while (p->at + 1 < p->file.size && p->file.data[p->at] != '\n') p->at++;
        else if (!is_space(c))
            return is_digit(c);
    }
    return false;
}

/* No number of a picture that can be is as large as the one at which this stops. */
static bool read_number(Pnm *p, int64_t *out) {
    if (!find_digit(p)) return false;
    for (*out = 0; p->at < p->file.size && is_digit(p->file.data[p->at]) && *out < (int64_t)1 << 40; p->at++)
        *out = *out * 10 + (p->file.data[p->at] - '0');
    return true;
}

static bool read_header(Pnm *p, int64_t *width, int64_t *height, ImageSink *sink) {
    bool bits = p->kind == 1 || p->kind == 4;
    p->maximum = 1;
    if (!read_number(p, width) || !read_number(p, height) || (!bits && !read_number(p, &p->maximum)))
        return image_fail(sink, "a number is missing in its header");
    if (p->maximum < 1 || p->maximum > 65535)
        return image_fail(sink, "its largest sample is %lld", (long long)p->maximum);
    if (p->kind < 4) return true;
    if (p->at == p->file.size || !is_space(p->file.data[p->at])) return image_fail(sink, "its header does not end");
    p->at++;
    return true;
}

/* Sample `column` of the row that begins at p->at (binary), or the next one (text). The size of binary rows has been
 * checked. */
static bool read_sample(Pnm *p, int64_t column, int64_t *out) {
    const uint8_t *row = p->file.data + p->at;
    switch (p->kind) {
    case 1: /* digits need no space between them */
        if (!find_digit(p) || p->file.data[p->at] > '1') return false;
        *out = p->file.data[p->at++] == '0';
        return true;
    case 4: *out = !(row[column / 8] >> (7 - column % 8) & 1); return true;
    case 5:
    case 6: *out = p->maximum > 255 ? row[2 * column] << 8 | row[2 * column + 1] : row[column]; return true;
    default: return read_number(p, out);
    }
}

/* sample * 255 / maximum, rounded; halves to even numbers, as Pillow rounds. */
static uint8_t scaled(int64_t sample, int64_t maximum) {
    if (sample > maximum) sample = maximum;
    int64_t quotient = sample * 255 / maximum, twice = 2 * (sample * 255 % maximum);
    return (uint8_t)(quotient + (twice > maximum || (twice == maximum && quotient % 2)));
}

bool image_decode_pnm(ImageBytes file, ImageSink *sink) {
    Pnm p = {.file = file, .at = 2, .kind = file.data[1] - '0'};
    int64_t width, height;
    int channels = p.kind % 3 == 0 ? 3 : 1;
    if (!read_header(&p, &width, &height, sink)) return false;
    if (width < 1 || height < 1 || width > IMAGE_MOST_PIXELS || height > IMAGE_MOST_PIXELS)
        return sink->rows(sink, width, height, channels, 0) != NULL; /* which refuses it */
    int64_t samples = width * channels, left = (int64_t)(file.size - p.at);
    int64_t row = p.kind == 4 ? (width + 7) / 8 : p.kind > 4 && p.maximum > 255 ? 2 * samples : samples;
    if (row > left || height > left / row)
        return image_fail(sink, "its %lld x %lld pixels need more than the %lld bytes that are left", (long long)width,
                          (long long)height, (long long)left);
    uint8_t *to = sink->rows(sink, width, height, channels, 8);
    if (!to) return false;
    for (int64_t y = 0; y < height; y++) {
        for (int64_t i = 0; i < samples; i++) {
            int64_t sample;
            if (!read_sample(&p, i, &sample)) return image_fail(sink, "it ends in row %lld", (long long)y);
            *to++ = scaled(sample, p.maximum);
        }
        if (p.kind >= 4) p.at += (size_t)row;
    }
    return true;
}
