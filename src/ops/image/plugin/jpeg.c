/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG, by libjpeg-turbo with its defaults: the accurate integer DCT, and the chroma upsampling that ONNX ImageDecoder
 * describes. The orientation that EXIF tells is not followed, as in the standard's reference. */
#include "ops/image/plugin/decoders.h"

#include <setjmp.h>
#include <stddef.h>
#include <jpeglib.h>
#include <jerror.h>

enum {
    MOST_SCANS = 100,            /* encoders write about ten; each costs a pass over all coefficients */
    MOST_COEFFICIENTS = 1 << 30, /* bytes of a progressive picture's */
    MOST_A_BYTE = 8 * 64,        /* Huffman codes take a bit at least for each block of 8 x 8 */
};

/* What libjpeg calls by a pointer to its first member. */
typedef struct Jpeg {
    struct jpeg_decompress_struct cinfo;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf guard;
    ImageSink *sink;
} Jpeg;

static void give_up(j_common_ptr cinfo) {
    Jpeg *j = (Jpeg *)cinfo;
    char message[JMSG_LENGTH_MAX];
    j->errors.format_message(cinfo, message);
    image_fail(j->sink, "%s", message);
    longjmp(j->guard, 1);
}

/* What has damaged the picture, unlike what is only unusual. */
static bool is_damage(int warning) {
    switch (warning) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC:
    case JWRN_BOGUS_PROGRESSION: return true;
    default: return false;
    }
}

static void on_message(j_common_ptr cinfo, int level) {
    if (level < 0 && is_damage(cinfo->err->msg_code)) give_up(cinfo);
}

static void on_progress(j_common_ptr cinfo) {
    Jpeg *j = (Jpeg *)cinfo;
    if (j->cinfo.input_scan_number <= MOST_SCANS) return;
    image_fail(j->sink, "it has more than %d scans", MOST_SCANS);
    longjmp(j->guard, 1);
}

static bool decode(Jpeg *j, ImageBytes file) {
    struct jpeg_decompress_struct *cinfo = &j->cinfo;
    if (setjmp(j->guard)) return false;
    jpeg_create_decompress(cinfo);
    cinfo->progress = &j->progress;
    cinfo->mem->max_memory_to_use = MOST_COEFFICIENTS;
    jpeg_mem_src(cinfo, file.data, (unsigned long)file.size);
    jpeg_read_header(cinfo, TRUE);
    bool grey = cinfo->jpeg_color_space == JCS_GRAYSCALE;
    bool inks = cinfo->jpeg_color_space == JCS_CMYK || cinfo->jpeg_color_space == JCS_YCCK;
    cinfo->out_color_space = grey ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    int channels = grey ? 1 : 3;
    size_t row = (size_t)cinfo->image_width * (size_t)channels;
    uint8_t *to =
        j->sink->rows(j->sink, cinfo->image_width, cinfo->image_height, channels, cinfo->arith_code ? 0 : MOST_A_BYTE);
    if (!to) return false;
    jpeg_start_decompress(cinfo);
    JSAMPARRAY line =
        inks ? cinfo->mem->alloc_sarray((j_common_ptr)cinfo, JPOOL_IMAGE, 4 * cinfo->image_width, 1) : NULL;
    for (; cinfo->output_scanline < cinfo->output_height; to += row) {
        jpeg_read_scanlines(cinfo, inks ? line : (JSAMPROW[]){to}, 1);
        if (!inks) continue;
        for (JDIMENSION x = 0; x < cinfo->image_width; x++) {
            const uint8_t *inverted = line[0] + 4 * (size_t)x; /* as Adobe writes them: 255 is no ink */
            uint8_t cmy[3] = {255 - inverted[0], 255 - inverted[1], 255 - inverted[2]};
            rgb_of_cmyk(to + 3 * (size_t)x, cmy, 255u - inverted[3]);
        }
    }
    jpeg_finish_decompress(cinfo);
    return true;
}

bool image_decode_jpeg(ImageBytes file, ImageSink *sink) {
    Jpeg j = {.sink = sink};
    j.cinfo.err = jpeg_std_error(&j.errors);
    j.errors.error_exit = give_up;
    j.errors.emit_message = on_message;
    j.progress.progress_monitor = on_progress;
    bool decoded = decode(&j, file);
    jpeg_destroy_decompress(&j.cinfo);
    return decoded;
}
