/* SPDX-License-Identifier: Apache-2.0 */
/* "state": outputs that are inputs of the next run. */
#include <string.h>

#include "policy/reader.h"

static const double MOST_ROWS = 1e9; /* LARGEST_SIZE of graph/dim.h */
static const double MOST_AXES = 16;

enum { MOST_STARS = 4 }; /* each more makes matching dearer by the length of a name */

static int stars(const char *glob) {
    int count = 0;
    for (const char *c = glob; *c; c++) count += *c == '*';
    return count;
}

static Status read_state(const Reader *r, const char *path, const cJSON *object, PolicyState *state) {
    const cJSON *item;
    int64_t axis;
    TRY(reader_object(r, path, object));
    *state = (PolicyState){.axis = NO_AXIS, .where = path};
    cJSON_ArrayForEach(item, object) {
        const char *at = arena_format(r->arena, "%s.%s", path, item->string);
        if (strcmp(item->string, "input") == 0) {
            TRY(reader_filled_string(r, at, item, &state->input));
        } else if (strcmp(item->string, "output") == 0) {
            TRY(reader_filled_string(r, at, item, &state->output));
        } else if (strcmp(item->string, "capacity") == 0) {
            TRY(reader_whole(r, at, item, 1, MOST_ROWS, &state->capacity));
        } else if (strcmp(item->string, "axis") == 0) {
            TRY(reader_whole(r, at, item, -MOST_AXES, MOST_AXES - 1, &axis));
            state->axis = (int)axis;
        } else {
            return reader_error(r, at, "unknown key (input, output, capacity and axis are possible)");
        }
    }
    if (!state->input || !state->output)
        return reader_error(r, path, "%s is missing", state->input ? "output" : "input");
    if (stars(state->input) > MOST_STARS) return reader_error(r, path, "more than %d * in a name", MOST_STARS);
    if (stars(state->input) == stars(state->output)) return NULL;
    return reader_error(r, path,
                        "input and output need as many * as each other: those of the output stand for what the "
                        "input's have matched");
}

Status read_states(Reader *r, const char *path, const cJSON *array) {
    const cJSON *item;
    TRY(reader_array(r, path, array));
    int count = cJSON_GetArraySize(array), number = 0;
    PolicyState *states = ARENA_ARRAY(r->arena, PolicyState, count + 1);
    cJSON_ArrayForEach(item, array) {
        TRY(read_state(r, arena_format(r->arena, "%s[%d]", path, number), item, &states[number]));
        number++;
    }
    r->policy->states = states;
    r->policy->state_count = count;
    return NULL;
}

void states_print(Text *text, const Policy *policy) {
    for (int i = 0; i < policy->state_count; i++) {
        const PolicyState *state = &policy->states[i];
        text_add(text, "%s%s to %s", i ? "; " : "", state->output, state->input);
        if (state->axis != NO_AXIS) text_add(text, ", axis %d", state->axis);
        if (state->capacity) text_add(text, ", at most %lld", (long long)state->capacity);
    }
    if (!policy->state_count) text_add(text, "none");
}
