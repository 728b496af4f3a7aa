/* SPDX-License-Identifier: Apache-2.0 */
/* What stands behind plug-ins: plugins MODEL PICTURE... decodes the pictures and matches two strings with MODEL, which has
 * one regular expression, unless it is "none". */
#include <onnxfuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(OnnxfuseStatus status) {
    if (!status) return;
    fprintf(stderr, "%s\n", onnxfuse_status_message(status));
    exit(onnxfuse_status_code(status));
}

static int decode(const char *path) {
    static char bytes[1 << 16];
    OnnxfuseValue *picture = NULL;
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    check(onnxfuse_value_from_image(bytes, size, "RGB", &picture));
    int count = onnxfuse_value_rank(picture) == 3 && onnxfuse_value_count(picture) > 0;
    onnxfuse_value_free(picture);
    return count;
}

static int match(const char *model) {
    OnnxfuseString strings[] = {{"Word", 4}, {"word", 4}};
    OnnxfuseSession *session;
    OnnxfuseValue *input, *output = NULL;
    check(onnxfuse_session_open(model, NULL, &session));
    check(onnxfuse_value_tensor(ONNXFUSE_STRING, 1, (int64_t[]){2}, strings, &input));
    check(onnxfuse_session_run(session, (const OnnxfuseValue *const[]){input}, &output));
    const unsigned char *matches = onnxfuse_value_data(output);
    int count = matches[0] && !matches[1];
    onnxfuse_value_free(output);
    onnxfuse_value_free(input);
    onnxfuse_session_close(session);
    return count;
}

int main(int argc, char **argv) {
    int pictures = 0;
    if (argc < 2) return 2;
    for (int i = 2; i < argc; i++) pictures += decode(argv[i]);
    printf("%d pictures, %d expression\n", pictures, strcmp(argv[1], "none") ? match(argv[1]) : 0);
    return 0;
}
