/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 <-> code points (RFC 3629). */
#include "cli/base/utf8.h"

/* UTF-8 of a code point; what is none becomes U+FFFD. */
size_t utf8_encode(uint32_t c, char *out) {
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) c = 0xfffd;
    if (c < 0x80) return out[0] = (char)c, 1;
    int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    out[0] = (char)((more == 1 ? 0xc0 : more == 2 ? 0xe0 : 0xf0) | c >> (6 * more));
    for (int i = 1; i <= more; i++) out[i] = (char)(0x80 | (c >> (6 * (more - i)) & 0x3f));
    return (size_t)more + 1;
}

/* The next code point of UTF-8; bytes that are none give U+FFFD, one each. */
uint32_t utf8_decode(const unsigned char **at, const unsigned char *end) {
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    unsigned char first = *(*at)++;
    if (first < 0x80) return first;
    int more = first >= 0xf0 && first < 0xf8 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc0 || first >= 0xf8 || end - *at < more) return 0xfffd;
    uint32_t c = first & (0x3fu >> more);
    for (int i = 0; i < more; i++) {
        if (((*at)[i] & 0xc0) != 0x80) return 0xfffd;
        c = c << 6 | ((*at)[i] & 0x3f);
    }
    if (c < least[more] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0xfffd;
    *at += more;
    return c;
}
