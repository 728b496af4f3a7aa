/* PNG (ISO/IEC 15948) and the inflation of zlib streams (RFC 1950, RFC 1951). Checksums are not verified. */
#include "ops/image/image_decode.h"

#include <stdlib.h>

/* ---- inflate ---- */

typedef struct Bits {
    Bytes from;
    size_t at;
    uint32_t held; /* bits read ahead, the lowest first */
    int count;
    bool ended; /* more was asked for than there is */
} Bits;

static uint32_t take(Bits *b, int count) {
    while (b->count < count) {
        if (b->at >= b->from.size) b->ended = true;
        b->held |= (uint32_t)(b->at < b->from.size ? b->from.data[b->at++] : 0) << b->count;
        b->count += 8;
    }
    uint32_t value = b->held & ((1u << count) - 1);
    b->held >>= count;
    b->count -= count;
    return value;
}

enum { MOST_BITS = 15, MOST_SYMBOLS = 288 };

/* A canonical Huffman code: how many codes each length has, and the symbols in the codes' order. */
typedef struct Code {
    uint16_t count[MOST_BITS + 1], symbol[MOST_SYMBOLS];
} Code;

static void code_make(Code *code, const uint8_t *lengths, int symbols) {
    uint16_t next[MOST_BITS + 2] = {0};
    memset(code->count, 0, sizeof code->count);
    for (int i = 0; i < symbols; i++) code->count[lengths[i]]++;
    code->count[0] = 0;
    for (int i = 1; i <= MOST_BITS; i++) next[i + 1] = (uint16_t)(next[i] + code->count[i]);
    for (int i = 0; i < symbols; i++)
        if (lengths[i]) code->symbol[next[lengths[i]]++] = (uint16_t)i;
}

/* The next symbol; -1 when the bits are no code. */
static int decode(Bits *b, const Code *code) {
    int value = 0, first = 0, index = 0;
    for (int length = 1; length <= MOST_BITS && !b->ended; length++) {
        value |= (int)take(b, 1);
        int count = code->count[length];
        if (value - first < count) return code->symbol[index + value - first];
        index += count;
        first = (first + count) << 1;
        value <<= 1;
    }
    return -1;
}

static bool read_codes(Bits *b, Code *literals, Code *distances) {
    static const uint8_t order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[320] = {0};
    int literal_count = (int)take(b, 5) + 257, distance_count = (int)take(b, 5) + 1, length_count = (int)take(b, 4) + 4;
    if (literal_count > 286 || distance_count > 30) return false;
    for (int i = 0; i < length_count; i++) lengths[order[i]] = (uint8_t)take(b, 3);
    code_make(literals, lengths, 19);
    memset(lengths, 0, sizeof lengths);
    for (int i = 0; i < literal_count + distance_count;) {
        int symbol = decode(b, literals), repeat = 1;
        if (symbol < 0 || (symbol == 16 && i == 0)) return false;
        uint8_t length = symbol < 16 ? (uint8_t)symbol : symbol == 16 ? lengths[i - 1] : 0;
        if (symbol >= 16)
            repeat = symbol == 16 ? 3 + (int)take(b, 2) : symbol == 17 ? 3 + (int)take(b, 3) : 11 + (int)take(b, 7);
        if (i + repeat > literal_count + distance_count) return false;
        while (repeat--) lengths[i++] = length;
    }
    code_make(literals, lengths, literal_count);
    code_make(distances, lengths + literal_count, distance_count);
    return true;
}

static void fixed_codes(Code *literals, Code *distances) {
    uint8_t lengths[MOST_SYMBOLS];
    for (int i = 0; i < MOST_SYMBOLS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    code_make(literals, lengths, MOST_SYMBOLS);
    for (int i = 0; i < 30; i++) lengths[i] = 5;
    code_make(distances, lengths, 30);
}

typedef struct Target {
    uint8_t *data;
    size_t size, at; /* what goes beyond size is dropped */
} Target;

static bool inflate_block(Bits *b, const Code *literals, const Code *distances, Target *to) {
    static const uint16_t length_base[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                           31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_bits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                          2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[] = {1,    2,    3,    4,    5,    7,    9,    13,    17,    25,
                                             33,   49,   65,   97,   129,  193,  257,  385,   513,   769,
                                             1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    while (to->at < to->size) {
        int symbol = decode(b, literals);
        if (symbol < 0 || symbol > 285) return false;
        if (symbol == 256) return true;
        if (symbol < 256) {
            to->data[to->at++] = (uint8_t)symbol;
            continue;
        }
        size_t length = length_base[symbol - 257] + take(b, length_bits[symbol - 257]);
        int far = decode(b, distances);
        if (far < 0 || far > 29) return false;
        size_t distance = distance_base[far] + take(b, far < 2 ? 0 : far / 2 - 1);
        if (distance > to->at) return false;
        for (; length && to->at < to->size; length--, to->at++) to->data[to->at] = to->data[to->at - distance];
    }
    return true;
}

static bool stored_block(Bits *b, Target *to) {
    b->held = 0, b->count = 0;
    size_t length = take(b, 8);
    length |= (size_t)take(b, 8) << 8;
    take(b, 16);
    if (b->ended || length > b->from.size - b->at) return false;
    size_t room = to->size - to->at, copied = length < room ? length : room;
    memcpy(to->data + to->at, b->from.data + b->at, copied);
    to->at += copied;
    b->at += length;
    return true;
}

bool inflate_zlib(Bytes from, uint8_t *to, size_t size) {
    if (from.size < 2 || (from.data[0] & 15) != 8 || from.data[1] & 32) return false;
    Bits b = {.from = {from.data + 2, from.size - 2}};
    Target target = {to, size, 0};
    Code literals, distances;
    for (bool last = false; !last && target.at < size;) {
        last = take(&b, 1);
        uint32_t kind = take(&b, 2);
        if (kind == 3 || b.ended) return false;
        if (kind == 0) {
            if (!stored_block(&b, &target)) return false;
            continue;
        }
        if (kind == 1)
            fixed_codes(&literals, &distances);
        else if (!read_codes(&b, &literals, &distances))
            return false;
        if (!inflate_block(&b, &literals, &distances, &target)) return false;
    }
    return target.at == size;
}

/* ---- PNG ---- */

typedef struct Png {
    int64_t width, height;
    int depth, type, samples; /* bits a sample; colour type; samples a pixel */
    bool interlaced;
    Bytes palette;
    uint8_t *packed; /* the image data of all chunks */
    size_t packed_size;
} Png;

static uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static bool read_header(const uint8_t *p, size_t size, Png *png) {
    static const int samples[] = {1, 0, 3, 1, 2, 0, 4};
    if (size < 13) return false;
    png->width = big32(p), png->height = big32(p + 4);
    png->depth = p[8], png->type = p[9], png->interlaced = p[12] == 1;
    if (png->type > 6 || !samples[png->type] || p[10] || p[11] || p[12] > 1) return false;
    png->samples = samples[png->type];
    bool small = png->depth == 1 || png->depth == 2 || png->depth == 4;
    return png->depth == 8 || (png->depth == 16 && png->type != 3) || (small && (png->type == 0 || png->type == 3));
}

static bool read_chunks(Arena *arena, Bytes f, Png *png) {
    bool header = false;
    png->packed = arena_alloc(arena, f.size);
    for (size_t at = 8; at + 12 <= f.size;) {
        size_t length = big32(f.data + at);
        const uint8_t *type = f.data + at + 4, *data = f.data + at + 8;
        if (length > f.size - at - 12) return false;
        if (memcmp(type, "IHDR", 4) == 0) {
            if (header || !read_header(data, length, png)) return false;
            header = true;
        } else if (memcmp(type, "PLTE", 4) == 0) {
            png->palette = (Bytes){data, length};
        } else if (memcmp(type, "IDAT", 4) == 0) {
            memcpy(png->packed + png->packed_size, data, length);
            png->packed_size += length;
        } else if (memcmp(type, "IEND", 4) == 0) {
            break;
        }
        at += length + 12;
    }
    return header;
}

static uint8_t paeth(int a, int b, int c) {
    int p = a + b - c, pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
    return (uint8_t)(pa <= pb && pa <= pc ? a : pb <= pc ? b : c);
}

/* Undoes the filters of rows [height][1 + stride] in place; step: bytes a pixel, at least 1. */
static bool unfilter(uint8_t *rows, int64_t height, size_t stride, size_t step) {
    for (int64_t y = 0; y < height; y++) {
        uint8_t *row = rows + (size_t)y * (stride + 1), kind = *row++;
        const uint8_t *above = y ? row - stride - 1 : NULL;
        if (kind > 4) return false;
        for (size_t i = 0; i < stride; i++) {
            int a = i >= step ? row[i - step] : 0, b = above ? above[i] : 0,
                c = above && i >= step ? above[i - step] : 0;
            int guess = kind == 0 ? 0 : kind == 1 ? a : kind == 2 ? b : kind == 3 ? (a + b) / 2 : paeth(a, b, c);
            row[i] = (uint8_t)(row[i] + guess);
        }
    }
    return true;
}

/* Sample `index` of a row, in 8 bits, or as it is for palettes. */
static int sample_of(const Png *png, const uint8_t *row, int64_t index) {
    if (png->depth >= 8) return row[index * (png->depth / 8)];
    int64_t bit = index * png->depth;
    int value = row[bit / 8] >> (8 - png->depth - bit % 8) & ((1 << png->depth) - 1);
    return png->type == 3 ? value : value * 255 / ((1 << png->depth) - 1);
}

static bool put_pixel(const Png *png, const uint8_t *row, int64_t x, uint8_t *to) {
    if (png->type == 3) {
        size_t entry = (size_t)sample_of(png, row, x) * 3;
        if (entry + 3 > png->palette.size) return false;
        memcpy(to, png->palette.data + entry, 3);
        return true;
    }
    for (int c = 0; c < (png->type & 2 ? 3 : 1); c++) to[c] = (uint8_t)sample_of(png, row, x * png->samples + c);
    return true;
}

/* The passes of an interlaced image: first column and row, and the steps between (Adam7); the last row: all at once. */
static const uint8_t adam7[8][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                    {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}, {0, 0, 1, 1}};

static void pass_sizes(const Png *png, int pass, int64_t *width, int64_t *height, size_t *stride) {
    const uint8_t *p = adam7[pass];
    *width = (png->width - p[0] + p[2] - 1) / p[2];
    *height = (png->height - p[1] + p[3] - 1) / p[3];
    if (*width < 1 || *height < 1) *width = *height = 0;
    *stride = ((size_t)*width * (size_t)(png->samples * png->depth) + 7) / 8;
}

bool decode_png(Arena *arena, Bytes f, Pixels *out) {
    Png png = {0};
    if (!read_chunks(arena, f, &png)) return false;
    if (!pixels_new(arena, png.width, png.height, png.type == 0 || png.type == 4 ? 1 : 3, f, 8 * INFLATED, out))
        return false;
    int first = png.interlaced ? 0 : 7, last = png.interlaced ? 6 : 7;
    size_t total = 0, stride;
    int64_t width, height;
    for (int pass = first; pass <= last; pass++) {
        pass_sizes(&png, pass, &width, &height, &stride);
        total += (size_t)height * (stride + 1);
    }
    uint8_t *rows = arena_alloc(arena, total);
    if (!inflate_zlib((Bytes){png.packed, png.packed_size}, rows, total)) return false;
    for (int pass = first; pass <= last; pass++) {
        const uint8_t *p = adam7[pass];
        pass_sizes(&png, pass, &width, &height, &stride);
        size_t step = (size_t)(png.samples * png.depth + 7) / 8;
        if (!unfilter(rows, height, stride, step)) return false;
        for (int64_t y = 0; y < height; y++)
            for (int64_t x = 0; x < width; x++) {
                int64_t place = (p[1] + y * p[3]) * png.width + p[0] + x * p[2];
                if (!put_pixel(&png, rows + (size_t)y * (stride + 1) + 1, x, out->data + place * out->channels))
                    return false;
            }
        rows += (size_t)height * (stride + 1);
    }
    return true;
}
