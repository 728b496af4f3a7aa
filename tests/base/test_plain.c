/* SPDX-License-Identifier: Apache-2.0 */
/* Text is the same in every locale. The rows hold in the C locale, too; ./check runs them in others. */
#include <criterion/criterion.h>
#include <errno.h>

#include "base/plain.h"
#include "base/text.h"

Test(plain, numbers_have_a_point) {
    char text[32], *end;
    cr_expect_eq(plain_double("1.5", &end), 1.5);
    cr_expect_str_eq(end, "");
    cr_expect_eq(plain_double("1,5", &end), 1);
    cr_expect_str_eq(end, ",5");
    cr_expect_eq(plain_float("0.1", NULL), 0.1f);
    cr_expect_eq(plain_print(text, sizeof text, "%g %.2f", 0.5, 1.25), 8);
    cr_expect_str_eq(text, "0.5 1.25");
}

Test(plain, text_of_every_kind_has_a_point) {
    Arena *arena = arena_create(0);
    Text text = text_make(arena);
    text_add(&text, "%g ", 0.5);
    text_add_double(&text, 0.1);
    text_add(&text, " ");
    text_add_float(&text, 0.3f);
    cr_expect_str_eq(text.data, "0.5 0.1 0.3");
    cr_expect_str_eq(arena_format(arena, "%.1f", 2.5), "2.5");
    arena_destroy(arena);
    Status status = status_error(STATUS_INVALID, "%g", 0.5);
    cr_expect_str_eq(status_message(status), "0.5");
    status_free(status);
}

Test(plain, errors_are_told_in_one_language) { cr_expect_str_eq(plain_error(ENOENT), "No such file or directory"); }

Test(plain, ascii_alone_has_letters_digits_and_white_space) {
    for (int c = 0; c < 256; c++) {
        bool digit = c >= '0' && c <= '9', upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z';
        cr_expect_eq(plain_is_digit((char)c), digit, "%d", c);
        cr_expect_eq(plain_is_letter((char)c), upper || lower, "%d", c);
        cr_expect_eq(plain_is_word((char)c), upper || lower || digit || c == '_', "%d", c);
        cr_expect_eq(plain_is_space((char)c), c == ' ' || (c >= 9 && c <= 13), "%d", c);
        cr_expect_eq(plain_lower((char)c), (char)(upper ? c + 32 : c), "%d", c);
    }
}

Test(plain, words_in_any_case) {
    cr_expect(plain_equal("BIDIRECTIONAL", 13, "bidirectional"));
    cr_expect(!plain_equal("inf", 3, "info"));
    cr_expect(!plain_equal("\xe9", 1, "\xc9"));
    cr_expect(plain_contains("Portable Computing Language", "COMPUTING"));
    cr_expect(plain_contains("x", ""));
    cr_expect(!plain_contains("pocl", "pocls"));
}
