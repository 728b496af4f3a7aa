/* SPDX-License-Identifier: Apache-2.0 */
/* Words by edit distance: letters left out, put in, changed, and neighbours exchanged, one each. */
#include "cli/base/nearest.h"

#include <string.h>

enum { LONGEST = 40 };

static int least(int a, int b) { return a < b ? a : b; }

static int distance(const char *a, size_t m, const char *b, size_t n) {
    int rows[3][LONGEST + 1]; /* distances of a's first i - 2, i - 1 and i letters from each beginning of b */
    for (size_t j = 0; j <= n; j++) rows[0][j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        int *before = rows[(i + 1) % 3], *last = rows[(i + 2) % 3], *row = rows[i % 3];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[m % 3][n];
}

void nearest_try(Nearest *nearest, const char *typed, size_t size, const char *candidate) {
    size_t length = strlen(candidate);
    if (size > LONGEST || length > LONGEST) return;
    int found = distance(typed, size, candidate, length), most = size < 5 ? 1 : 2; /* of short words little is left */
    if (found > most || (nearest->word && found >= nearest->distance)) return;
    *nearest = (Nearest){candidate, found};
}
