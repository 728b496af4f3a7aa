/* SPDX-License-Identifier: Apache-2.0 */
/* .npz: a zip archive whose members are .npy files, stored or deflated. Reads the central directory alone (PKWARE's
 * APPNOTE 6.3, sections 4.3.7, 4.3.12 to 4.3.16 and 4.5.3), the 64-bit forms included, which numpy writes for any size.
 */
#include "cli/value/npy.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    DIRECTORY_END = 0x06054b50,
    DIRECTORY_END_64 = 0x06064b50,
    DIRECTORY_END_64_LOCATOR = 0x07064b50,
    DIRECTORY_ENTRY = 0x02014b50,
    LOCAL_HEADER = 0x04034b50,
    DIRECTORY_END_SIZE = 22,
    LONGEST_COMMENT = 65535,
    STORED = 0,
    DEFLATED = 8,
    LARGEST_RATIO = 1032, /* of deflate */
};

typedef struct Member {
    const char *name;
    size_t name_size;
    int method, flags;
    uint32_t crc;
    uint64_t packed, size, offset;
} Member;

typedef struct Archive {
    const Bytes *bytes;
    uint64_t at, left; /* the central directory: where the next entry begins, entries still to come */
} Archive;

static uint64_t number(const unsigned char *at, int bytes) {
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static bool holds(const Bytes *bytes, uint64_t at, uint64_t size) {
    return at <= bytes->size && size <= bytes->size - at;
}

static Problem *malformed(void) { return problem(ONNXFUSE_INVALID, "the zip archive is malformed"); }

static Problem *open_archive(const Bytes *bytes, Archive *out_archive) {
    const unsigned char *b = bytes->data;
    if (bytes->size < DIRECTORY_END_SIZE) return malformed();
    size_t at = bytes->size - DIRECTORY_END_SIZE, lowest = at > LONGEST_COMMENT ? at - LONGEST_COMMENT : 0;
    while (at > lowest && number(b + at, 4) != DIRECTORY_END) at--;
    if (number(b + at, 4) != DIRECTORY_END) return malformed();
    *out_archive = (Archive){bytes, number(b + at + 16, 4), number(b + at + 10, 2)};
    if (at < 20 || number(b + at - 20, 4) != DIRECTORY_END_64_LOCATOR) return NULL;
    uint64_t end = number(b + at - 12, 8);
    if (!holds(bytes, end, 56) || number(b + end, 4) != DIRECTORY_END_64) return malformed();
    *out_archive = (Archive){bytes, number(b + end + 48, 8), number(b + end + 32, 8)};
    return NULL;
}

/* The 64-bit sizes and offset of an entry stand in its extra field 1, each only where the short field is all ones. */
static void read_extra(const unsigned char *extra, size_t size, Member *member) {
    while (size >= 4) {
        size_t kind = number(extra, 2), length = number(extra + 2, 2);
        if (length > size - 4) return;
        const unsigned char *at = extra + 4, *end = at + length;
        uint64_t *fields[] = {&member->size, &member->packed, &member->offset};
        for (int i = 0; kind == 1 && i < 3; i++)
            if (*fields[i] == UINT32_MAX && end - at >= 8) *fields[i] = number(at, 8), at += 8;
        extra += 4 + length;
        size -= 4 + length;
    }
}

static Problem *next_member(Archive *archive, Member *out_member) {
    const unsigned char *b = archive->bytes->data + archive->at;
    if (!holds(archive->bytes, archive->at, 46) || number(b, 4) != DIRECTORY_ENTRY) return malformed();
    size_t name = number(b + 28, 2), extra = number(b + 30, 2), comment = number(b + 32, 2);
    if (!holds(archive->bytes, archive->at, 46 + name + extra + comment)) return malformed();
    *out_member = (Member){(const char *)b + 46,        name,
                           (int)number(b + 10, 2),      (int)number(b + 8, 2),
                           (uint32_t)number(b + 16, 4), number(b + 20, 4),
                           number(b + 24, 4),           number(b + 42, 4)};
    read_extra(b + 46 + name, extra, out_member);
    archive->at += 46 + name + extra + comment;
    archive->left--;
    return NULL;
}

static Problem *inflate_member(const unsigned char *packed, const Member *member, Bytes *out) {
    z_stream stream = {0};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return problem_out_of_memory();
    uint64_t read = 0, made = 0;
    int state = Z_OK;
    /* zlib counts in 32 bits */
    while (state == Z_OK) {
        if (!stream.avail_in && read < member->packed) {
            stream.next_in = (unsigned char *)(uintptr_t)(packed + read);
            stream.avail_in = (uInt)(member->packed - read > 1u << 30 ? 1u << 30 : member->packed - read);
            read += stream.avail_in;
        }
        uInt room = (uInt)(member->size - made > 1u << 30 ? 1u << 30 : member->size - made);
        stream.next_out = out->data + made;
        stream.avail_out = room ? room : 1; /* the byte behind the data: what would follow is too much */
        uInt offered = stream.avail_out;
        state = inflate(&stream, Z_NO_FLUSH);
        uInt wrote = offered - stream.avail_out;
        if (!room && wrote) state = Z_DATA_ERROR;
        made += wrote;
        if (state == Z_OK && !wrote && !stream.avail_in && read == member->packed) state = Z_DATA_ERROR;
    }
    inflateEnd(&stream);
    return state == Z_STREAM_END && made == member->size ? NULL : malformed();
}

static Problem *extract(const Bytes *bytes, const Member *member, Bytes *out_npy) {
    const unsigned char *b = bytes->data;
    if (member->flags & 1) return problem(ONNXFUSE_INVALID, "the zip archive is encrypted");
    if (member->method != STORED && member->method != DEFLATED)
        return problem(ONNXFUSE_INVALID, "compression method %d of zip is not supported", member->method);
    if (!holds(bytes, member->offset, 30) || number(b + member->offset, 4) != LOCAL_HEADER) return malformed();
    uint64_t data = member->offset + 30 + number(b + member->offset + 26, 2) + number(b + member->offset + 28, 2);
    if (!holds(bytes, data, member->packed) || member->size / LARGEST_RATIO > member->packed + 1) return malformed();
    if (member->method == STORED && member->packed != member->size) return malformed();
    *out_npy = (Bytes){malloc(member->size + 1), member->size};
    if (!out_npy->data) return problem_out_of_memory();
    Problem *found = NULL;
    if (member->method == STORED)
        memcpy(out_npy->data, b + data, member->size);
    else
        found = inflate_member(b + data, member, out_npy);
    if (!found && crc32_z(0, out_npy->data, member->size) != member->crc)
        found = problem(ONNXFUSE_INVALID, "the checksum of an array in the zip archive is wrong");
    if (found) {
        free(out_npy->data);
        *out_npy = (Bytes){0};
    } else {
        out_npy->data[member->size] = 0;
    }
    return found;
}

static bool is_named(const Member *member, const char *name) {
    size_t length = strlen(name);
    if (member->name_size < length || memcmp(member->name, name, length) != 0) return false;
    return member->name_size == length ||
           (member->name_size == length + 4 && memcmp(member->name + length, ".npy", 4) == 0);
}

Problem *npz_member(const Bytes *bytes, const char *name, bool only, Bytes *out_npy) {
    Archive archive;
    Member member;
    TRY(open_archive(bytes, &archive));
    bool single = only && archive.left == 1;
    while (archive.left) {
        TRY(next_member(&archive, &member));
        if (single || is_named(&member, name)) return extract(bytes, &member, out_npy);
    }
    return problem(ONNXFUSE_INVALID, "the archive holds no array \"%s\"", name);
}

bool npz_has(const Bytes *bytes, const char *name) {
    Archive archive;
    Member member;
    Problem *found = open_archive(bytes, &archive);
    while (!found && archive.left) {
        found = next_member(&archive, &member);
        if (!found && is_named(&member, name)) return true;
    }
    problem_free(found);
    return false;
}
