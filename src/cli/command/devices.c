/* SPDX-License-Identifier: Apache-2.0 */
/* onnxfuse devices: what models can run on here. */
#include "cli/command/commands.h"
#include "cli/value/show.h"

#include <string.h>

typedef struct DevicesOptions {
    Options common;
} DevicesOptions;

/* A line is the device's name, blanks, what it is. */
static cJSON *json_devices(char *text) {
    cJSON *object = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(object, "devices");
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        size_t length = strcspn(line, " ");
        char *about = line + length + strspn(line + length, " ");
        line[length] = 0;
        cJSON *device = cJSON_CreateObject();
        cJSON_AddStringToObject(device, "name", line);
        cJSON_AddStringToObject(device, "description", about);
        cJSON_AddItemToArray(list, device);
    }
    return object;
}

static Problem *devices(void *given) {
    const DevicesOptions *options = given;
    char *text;
    TRY(problem_from(onnxfuse_devices(&text)));
    fputs(text, stdout);
    if (options->common.json) print_json(json_devices(text));
    onnxfuse_free(text);
    return NULL;
}

const Command devices_command = {
    .name = "devices",
    .arguments = "",
    .summary = "list the devices that models can run on",
    .flag_tables = (const Flag *const[]){common_flags, NULL},
    .options_size = sizeof(DevicesOptions),
    .least = 0,
    .most = 0,
    .run = devices,
};
