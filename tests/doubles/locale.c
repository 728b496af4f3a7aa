/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded before a program (LD_PRELOAD), it sets the locale of the environment, as programs that embed the library do. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void set_locale(void) {
    const char *name = getenv("LC_ALL");
    if (setlocale(LC_ALL, "")) return;
    fprintf(stderr, "locale %s is not installed\n", name ? name : "");
    _Exit(99);
}
