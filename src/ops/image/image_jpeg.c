/* JPEG (ITU-T T.81): Huffman-coded, sequential and progressive, 8 bits, grey or three components. All coefficients are
 * decoded first, then each component is transformed, brought to the image's size, and the colours are converted. The
 * transform, the interpolation of chroma and the conversion compute in the fixed-point arithmetic that decoders agree
 * on, so that images come out bit for bit. */
#include "ops/image/image_decode.h"

enum { COMPONENTS = 3, LOOK = 16 };
enum { BLOCK_PIXELS = 64 * 8 }; /* a block takes a bit at least, so a byte gives at most so many pixels */

/* A canonical Huffman code, searched by length. */
typedef struct Code {
    bool present;
    int count[LOOK + 1];
    uint8_t symbol[256];
} Code;

typedef struct Component {
    int id, h, v, quantizer; /* h, v: sampling factors */
    int64_t columns, rows;   /* blocks, whole MCUs */
    int64_t width, height;   /* samples that belong to the image */
    int16_t *coefficients;   /* [rows][columns][64], in zigzag order */
    int dc, ac;              /* codes of the scan */
    int predicted;           /* DC */
    uint8_t *samples;        /* [rows * 8][columns * 8] */
} Component;

typedef struct Jpeg {
    Bytes file;
    size_t at;
    uint16_t quantizers[4][64]; /* zigzag order */
    Code codes[2][4];           /* DC, AC */
    Component components[COMPONENTS];
    int count, most_h, most_v;
    int64_t width, height, mcu_columns, mcu_rows;
    bool progressive;
    int restart; /* MCUs between restart markers, 0: none */
    int adobe;   /* colour transform of the Adobe marker, -1: none */
    /* of the scan */
    Component *scanned[COMPONENTS];
    int scanned_count, from, to, high, low;
    uint32_t held;
    int held_bits, end_of_band;
    bool marker; /* the entropy-coded bytes have ended */
} Jpeg;

static const uint8_t zigzag[64] = {0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
                                   12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
                                   35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
                                   58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63};

/* ---- bits ---- */

/* Stuffed zeros are skipped; behind a marker there are zeros without end. */
static int take_bit(Jpeg *j) {
    if (!j->held_bits) {
        uint8_t byte = 0;
        if (!j->marker && j->at < j->file.size) {
            byte = j->file.data[j->at];
            if (byte != 0xFF)
                j->at++;
            else if (j->at + 1 < j->file.size && j->file.data[j->at + 1] == 0)
                j->at += 2;
            else
                j->marker = true, byte = 0;
        }
        j->held = byte;
        j->held_bits = 8;
    }
    return (int)(j->held >> --j->held_bits & 1);
}

static int take(Jpeg *j, int count) {
    int value = 0;
    while (count-- > 0) value = value << 1 | take_bit(j);
    return value;
}

/* `count` bits as a signed number: a leading 0 means negative. */
static int take_signed(Jpeg *j, int count) {
    int value = take(j, count);
    return count && value < 1 << (count - 1) ? value - (1 << count) + 1 : value;
}

/* The next symbol; -1 when the bits are no code. */
static int decode(Jpeg *j, const Code *code) {
    int value = 0, first = 0, index = 0;
    for (int length = 1; length <= LOOK; length++) {
        value |= take_bit(j);
        if (value - first < code->count[length]) return code->symbol[index + value - first];
        index += code->count[length];
        first = (first + code->count[length]) << 1;
        value <<= 1;
    }
    return -1;
}

/* ---- blocks ---- */

static bool sequential_block(Jpeg *j, Component *c, int16_t *block) {
    int bits = decode(j, &j->codes[0][c->dc]);
    if (bits < 0 || bits > 15) return false;
    c->predicted = (int16_t)(c->predicted + take_signed(j, bits));
    block[0] = (int16_t)c->predicted;
    for (int k = 1; k < 64; k++) {
        int symbol = decode(j, &j->codes[1][c->ac]);
        if (symbol < 0) return false;
        int run = symbol >> 4, size = symbol & 15;
        if (!size && run != 15) return true;
        k += run;
        if (k > 63) return false;
        if (size) block[k] = (int16_t)take_signed(j, size);
    }
    return true;
}

static bool first_dc(Jpeg *j, Component *c, int16_t *block) {
    int bits = decode(j, &j->codes[0][c->dc]);
    if (bits < 0 || bits > 15) return false;
    c->predicted = (int16_t)(c->predicted + take_signed(j, bits));
    block[0] = (int16_t)(c->predicted * (1 << j->low));
    return true;
}

static bool first_ac(Jpeg *j, Component *c, int16_t *block) {
    if (j->end_of_band > 0) {
        j->end_of_band--;
        return true;
    }
    for (int k = j->from; k <= j->to; k++) {
        int symbol = decode(j, &j->codes[1][c->ac]);
        if (symbol < 0) return false;
        int run = symbol >> 4, size = symbol & 15;
        if (!size && run != 15) {
            j->end_of_band = (1 << run) - 1 + take(j, run);
            return true;
        }
        k += run;
        if (k > 63) return false;
        if (size) block[k] = (int16_t)(take_signed(j, size) * (1 << j->low));
    }
    return true;
}

/* One bit more of a coefficient that is not 0. */
static void refine(Jpeg *j, int16_t *value) {
    int size = *value < 0 ? -*value : *value;
    if (take_bit(j) && !(size >> j->low & 1)) *value = (int16_t)(*value + (*value < 0 ? -1 : 1) * (1 << j->low));
}

static bool refine_ac(Jpeg *j, Component *c, int16_t *block) {
    int k = j->from;
    if (j->end_of_band == 0) {
        for (; k <= j->to; k++) {
            int symbol = decode(j, &j->codes[1][c->ac]), value = 0;
            if (symbol < 0) return false;
            int run = symbol >> 4, size = symbol & 15;
            if (size > 1) return false;
            if (size) {
                value = take_bit(j) ? 1 << j->low : -(1 << j->low);
            } else if (run != 15) {
                j->end_of_band = (1 << run) + take(j, run);
                break;
            }
            for (; k <= j->to; k++) { /* `run` zeros are passed, and all that are not 0 refined */
                if (block[k])
                    refine(j, &block[k]);
                else if (run-- == 0)
                    break;
            }
            if (value && k <= 63) block[k] = (int16_t)value;
        }
    }
    if (j->end_of_band > 0) {
        for (; k <= j->to; k++)
            if (block[k]) refine(j, &block[k]);
        j->end_of_band--;
    }
    return true;
}

static bool decode_block(Jpeg *j, Component *c, int64_t row, int64_t column) {
    int16_t *block = c->coefficients + (row * c->columns + column) * 64;
    if (!j->progressive) return sequential_block(j, c, block);
    if (j->from == 0) {
        if (j->high == 0) return first_dc(j, c, block);
        if (take_bit(j)) block[0] = (int16_t)(block[0] | 1 << j->low);
        return true;
    }
    return j->high == 0 ? first_ac(j, c, block) : refine_ac(j, c, block);
}

/* ---- scans ---- */

static bool next_restart(Jpeg *j) {
    j->held_bits = 0, j->end_of_band = 0, j->marker = false;
    for (int i = 0; i < j->count; i++) j->components[i].predicted = 0;
    if (j->at + 1 >= j->file.size || j->file.data[j->at] != 0xFF || (j->file.data[j->at + 1] & 0xF8) != 0xD0)
        return false;
    j->at += 2;
    return true;
}

static bool decode_mcu(Jpeg *j, int64_t mcu, bool single) {
    if (single) { /* not interleaved: an MCU is a block, those beyond the image are left out */
        Component *c = j->scanned[0];
        int64_t columns = (c->width + 7) / 8;
        return decode_block(j, c, mcu / columns, mcu % columns);
    }
    for (int i = 0; i < j->scanned_count; i++) {
        Component *c = j->scanned[i];
        for (int b = 0; b < c->h * c->v; b++)
            if (!decode_block(j, c, mcu / j->mcu_columns * c->v + b / c->h, mcu % j->mcu_columns * c->h + b % c->h))
                return false;
    }
    return true;
}

static bool decode_scan(Jpeg *j) {
    bool single = j->scanned_count == 1;
    const Component *c = j->scanned[0];
    int64_t mcus = single ? (c->width + 7) / 8 * ((c->height + 7) / 8) : j->mcu_columns * j->mcu_rows;
    j->held_bits = 0, j->end_of_band = 0, j->marker = false;
    for (int i = 0; i < j->count; i++) j->components[i].predicted = 0;
    for (int64_t mcu = 0; mcu < mcus; mcu++) {
        if (j->restart && mcu && mcu % j->restart == 0 && !next_restart(j)) return false;
        if (!decode_mcu(j, mcu, single)) return false;
        if (j->marker && j->at >= j->file.size && mcu + 1 < mcus) return false; /* cut short */
    }
    return true;
}

static bool read_scan(Jpeg *j, Bytes s) {
    if (!j->count || s.size < 1) return false;
    j->scanned_count = s.data[0];
    if (j->scanned_count < 1 || j->scanned_count > j->count || s.size < 4 + 2 * (size_t)j->scanned_count) return false;
    for (int i = 0; i < j->scanned_count; i++) {
        j->scanned[i] = NULL;
        for (int k = 0; k < j->count; k++)
            if (j->components[k].id == s.data[1 + 2 * i]) j->scanned[i] = &j->components[k];
        if (!j->scanned[i]) return false;
        j->scanned[i]->dc = s.data[2 + 2 * i] >> 4 & 3;
        j->scanned[i]->ac = s.data[2 + 2 * i] & 3;
    }
    const uint8_t *rest = s.data + 1 + 2 * j->scanned_count;
    j->from = rest[0], j->to = rest[1], j->high = rest[2] >> 4, j->low = rest[2] & 15;
    if (j->progressive &&
        (j->from > j->to || j->to > 63 || j->low > 13 || (j->from == 0 && j->to) || (j->from && j->scanned_count > 1)))
        return false;
    return decode_scan(j);
}

/* ---- headers ---- */

static bool read_quantizers(Jpeg *j, Bytes s) {
    for (size_t at = 0; at < s.size;) {
        int wide = s.data[at] >> 4, number = s.data[at] & 15;
        at++;
        if (number > 3 || wide > 1 || s.size - at < (wide ? 128u : 64u)) return false;
        for (int i = 0; i < 64; i++, at += wide ? 2 : 1)
            j->quantizers[number][i] = wide ? (uint16_t)(s.data[at] << 8 | s.data[at + 1]) : s.data[at];
    }
    return true;
}

static bool read_codes(Jpeg *j, Bytes s) {
    for (size_t at = 0; at < s.size;) {
        int kind = s.data[at] >> 4, number = s.data[at] & 15, total = 0;
        if (kind > 1 || number > 3 || s.size - at < 17) return false;
        Code *code = &j->codes[kind][number];
        memset(code, 0, sizeof *code);
        for (int i = 1; i <= LOOK; i++) total += code->count[i] = s.data[at + (size_t)i];
        at += 17;
        if (total > 256 || s.size - at < (size_t)total) return false;
        memcpy(code->symbol, s.data + at, (size_t)total);
        code->present = true;
        at += (size_t)total;
    }
    return true;
}

static bool read_frame(Arena *arena, Jpeg *j, Bytes s) {
    if (j->count || s.size < 6 || s.data[0] != 8) return false;
    j->height = s.data[1] << 8 | s.data[2], j->width = s.data[3] << 8 | s.data[4];
    int count = s.data[5];
    if ((count != 1 && count != 3) || s.size < 6 + 3 * (size_t)count || !j->width || !j->height) return false;
    for (int i = 0; i < count; i++) {
        const uint8_t *p = s.data + 6 + 3 * i;
        j->components[i] = (Component){.id = p[0], .h = p[1] >> 4, .v = p[1] & 15, .quantizer = p[2] & 3};
        Component *c = &j->components[i];
        if (c->h < 1 || c->h > 4 || c->v < 1 || c->v > 4) return false;
        if (count == 1) c->h = c->v = 1;
        j->most_h = c->h > j->most_h ? c->h : j->most_h;
        j->most_v = c->v > j->most_v ? c->v : j->most_v;
    }
    if (j->width * j->height / BLOCK_PIXELS > (int64_t)j->file.size) return false;
    j->count = count;
    j->mcu_columns = (j->width + 8 * j->most_h - 1) / (8 * j->most_h);
    j->mcu_rows = (j->height + 8 * j->most_v - 1) / (8 * j->most_v);
    for (int i = 0; i < count; i++) {
        Component *c = &j->components[i];
        if (j->most_h % c->h || j->most_v % c->v) return false;
        c->columns = j->mcu_columns * c->h, c->rows = j->mcu_rows * c->v;
        c->width = (j->width * c->h + j->most_h - 1) / j->most_h,
        c->height = (j->height * c->v + j->most_v - 1) / j->most_v;
        c->coefficients = arena_array(arena, (size_t)(c->columns * c->rows), 64 * sizeof(int16_t));
    }
    return true;
}

static bool read_segments(Arena *arena, Jpeg *j) {
    for (j->at = 2; j->at + 4 <= j->file.size;) {
        if (j->file.data[j->at] != 0xFF) {
            j->at++; /* left over behind a scan */
            continue;
        }
        int marker = j->file.data[j->at + 1];
        if (marker == 0xFF || marker == 0 || (marker & 0xF8) == 0xD0) {
            j->at += marker == 0xFF ? 1 : 2;
            continue;
        }
        if (marker == 0xD9) return true;
        size_t length = (size_t)j->file.data[j->at + 2] << 8 | j->file.data[j->at + 3];
        if (length < 2 || length > j->file.size - j->at - 2) return false;
        Bytes s = {j->file.data + j->at + 4, length - 2};
        bool read = true;
        j->at += 2 + length;
        if (marker == 0xDB)
            read = read_quantizers(j, s);
        else if (marker == 0xC4)
            read = read_codes(j, s);
        else if (marker >= 0xC0 && marker <= 0xC2)
            j->progressive = marker == 0xC2, read = read_frame(arena, j, s);
        else if (marker > 0xC2 && marker <= 0xCF && marker != 0xC8)
            return false; /* lossless, hierarchical, arithmetic */
        else if (marker == 0xDD)
            j->restart = s.size >= 2 ? s.data[0] << 8 | s.data[1] : 0;
        else if (marker == 0xEE && s.size >= 12 && memcmp(s.data, "Adobe", 5) == 0)
            j->adobe = s.data[11];
        else if (marker == 0xDA)
            read = read_scan(j, s);
        if (!read) return false;
    }
    return j->count > 0;
}

/* ---- the inverse cosine transform ---- */

/* Eight values a stride apart; Loeffler, Ligtenberg, Moschytz, "Practical fast 1-D DCT algorithms with 11
 * multiplications", 1989, with constants of 13 fractional bits; the results are rounded and shifted down. */
static void transform8(const int32_t *in, int stride, int shift, int32_t *out) {
    const int64_t c0298 = 2446, c0390 = 3196, c0541 = 4433, c0765 = 6270, c0899 = 7373, c1175 = 9633, c1501 = 12299,
                  c1847 = 15137, c1961 = 16069, c2053 = 16819, c2562 = 20995, c3072 = 25172;
    int64_t x[8], round = (int64_t)1 << (shift - 1);
    for (int i = 0; i < 8; i++) x[i] = in[i * stride];
    int64_t turn = (x[2] + x[6]) * c0541, even2 = turn - x[6] * c1847, even3 = turn + x[2] * c0765;
    int64_t sum = (x[0] + x[4]) * 8192, difference = (x[0] - x[4]) * 8192;
    int64_t even[4] = {sum + even3, difference + even2, difference - even2, sum - even3};
    int64_t s71 = (x[7] + x[1]) * -c0899, s53 = (x[5] + x[3]) * -c2562, s73 = x[7] + x[3], s51 = x[5] + x[1];
    int64_t both = (s73 + s51) * c1175;
    s73 = both - s73 * c1961;
    s51 = both - s51 * c0390;
    int64_t odd[4] = {x[1] * c1501 + s71 + s51, x[3] * c3072 + s53 + s73, x[5] * c2053 + s53 + s51,
                      x[7] * c0298 + s71 + s73};
    for (int i = 0; i < 4; i++) {
        out[i * stride] = (int32_t)((even[i] + odd[i] + round) >> shift);
        out[(7 - i) * stride] = (int32_t)((even[i] - odd[i] + round) >> shift);
    }
}

static uint8_t clamp(int32_t value) { return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value); }

static void transform_block(const int16_t *coefficients, const uint16_t *quantizer, uint8_t *to, int64_t stride) {
    int32_t block[64] = {0};
    for (int i = 0; i < 64; i++) block[zigzag[i]] = coefficients[i] * quantizer[i];
    for (int i = 0; i < 8; i++) transform8(block + i, 8, 11, block + i);
    for (int i = 0; i < 8; i++) {
        transform8(block + 8 * i, 1, 18, block + 8 * i);
        for (int k = 0; k < 8; k++) to[i * stride + k] = clamp(block[8 * i + k] + 128);
    }
}

static void transform_component(Arena *arena, const Jpeg *j, Component *c) {
    int64_t stride = c->columns * 8;
    c->samples = arena_array(arena, (size_t)(c->rows * 8), (size_t)stride);
    for (int64_t i = 0; i < c->rows * c->columns; i++)
        transform_block(c->coefficients + 64 * i, j->quantizers[c->quantizer],
                        c->samples + i / c->columns * 8 * stride + i % c->columns * 8, stride);
}

/* ---- chroma ---- */

/* Row y of component c at the image's width. Factors of two are interpolated: the nearer sample counts 3, the further
 * 1, and halves are rounded up and down in turn; other factors repeat samples. */
static void upsampled_row(const Jpeg *j, const Component *c, int64_t y, uint8_t *to) {
    int h = j->most_h / c->h, v = j->most_v / c->v;
    int64_t stride = c->columns * 8, row = y / v, n = c->width;
    const uint8_t *near = c->samples + row * stride;
    bool wide = h == 2 && v <= 2 && n > 2, tall = v == 2 && (wide || h == 1);
    if (!wide && !tall) {
        for (int64_t x = 0; x < j->width; x++) to[x] = near[x / h];
        return;
    }
    int64_t other = y % 2 ? row + 1 : row - 1;
    other = other < 0 ? 0 : other >= c->height ? c->height - 1 : other;
    const uint8_t *far = c->samples + other * stride;
    for (int64_t x = 0; x < j->width; x++) {
        int64_t i = x / h, k = x % 2 ? i + 1 : i - 1;
        if (!wide) {
            to[x] = (uint8_t)((3 * near[i] + far[i] + (y % 2 ? 2 : 1)) >> 2);
            continue;
        }
        k = k < 0 ? 0 : k >= n ? n - 1 : k;
        if (!tall) {
            to[x] = (uint8_t)(k == i ? near[i] : (3 * near[i] + near[k] + (x % 2 ? 2 : 1)) >> 2);
            continue;
        }
        int here = 3 * near[i] + far[i], there = 3 * near[k] + far[k];
        to[x] = (uint8_t)((3 * here + there + (x % 2 ? 7 : 8)) >> 4);
    }
}

/* ITU-R 601 with 16 fractional bits. */
static void convert_row(uint8_t *const *rows, int64_t width, bool luma_chroma, uint8_t *to) {
    for (int64_t x = 0; x < width; x++, to += 3) {
        int y = rows[0][x], b = rows[1][x] - 128, r = rows[2][x] - 128;
        if (!luma_chroma) {
            for (int c = 0; c < 3; c++) to[c] = rows[c][x];
            continue;
        }
        to[0] = clamp(y + ((91881 * r + 32768) >> 16));
        to[1] = clamp(y + ((-22554 * b - 46802 * r + 32768) >> 16));
        to[2] = clamp(y + ((116130 * b + 32768) >> 16));
    }
}

bool decode_jpeg(Arena *arena, Bytes file, Pixels *out) {
    Jpeg *j = ARENA_NEW(arena, Jpeg);
    j->file = file;
    j->adobe = -1;
    if (!read_segments(arena, j) || !pixels_new(arena, j->width, j->height, j->count, file, BLOCK_PIXELS, out))
        return false;
    uint8_t *rows[COMPONENTS];
    for (int i = 0; i < j->count; i++) {
        transform_component(arena, j, &j->components[i]);
        rows[i] = arena_alloc(arena, (size_t)j->width);
    }
    bool named_rgb = j->components[0].id == 'R' && j->components[1].id == 'G' && j->components[2].id == 'B';
    bool luma_chroma = j->adobe >= 0 ? j->adobe == 1 : !named_rgb;
    for (int64_t y = 0; y < j->height; y++) {
        for (int i = 0; i < j->count; i++) upsampled_row(j, &j->components[i], y, rows[i]);
        uint8_t *to = out->data + y * j->width * j->count;
        if (j->count == 1)
            memcpy(to, rows[0], (size_t)j->width);
        else
            convert_row(rows, j->width, luma_chroma, to);
    }
    return true;
}
