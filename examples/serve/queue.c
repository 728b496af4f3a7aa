/* SPDX-License-Identifier: Apache-2.0 */
#include "queue.h"

#include <search.h>
#include <stdlib.h>

/* --- lines --- */
static int compare_lines(const void *a, const void *b) {
    return job_compare(((const Line *)a)->first, ((const Line *)b)->first);
}

static void link_line(Queue *queue, Line *line) {
    Line *older = queue->newest;
    while (older && older->first->number > line->first->number) older = older->older;
    line->older = older;
    line->newer = older ? older->newer : queue->oldest;
    *(older ? &older->newer : &queue->oldest) = line;
    *(line->newer ? &line->newer->older : &queue->newest) = line;
}

static void unlink_line(Queue *queue, const Line *line) {
    *(line->older ? &line->older->newer : &queue->oldest) = line->newer;
    *(line->newer ? &line->newer->older : &queue->newest) = line->older;
}

static Line *new_line(Queue *queue, Job *job) {
    Line *line = calloc(1, sizeof *line);
    if (!line) return NULL;
    line->first = line->last = job;
    if (job->rows >= 1 && !tsearch(line, &queue->lines, compare_lines)) {
        free(line);
        return NULL;
    }
    link_line(queue, line);
    return line;
}

bool queue_add(Queue *queue, Job *job) {
    Line **found = job->rows >= 1 ? tfind(&(Line){.first = job}, &queue->lines, compare_lines) : NULL;
    job->next = job->before = NULL;
    if (!found) {
        job->line = new_line(queue, job);
        return job->line;
    }
    job->line = *found;
    job->before = job->line->last;
    job->before->next = job;
    job->line->last = job;
    return true;
}

void queue_remove(Queue *queue, Job *job) {
    Line *line = job->line;
    if (line->first == line->last) {
        if (job->rows >= 1) tdelete(line, &queue->lines, compare_lines);
        unlink_line(queue, line);
        free(line);
    } else {
        *(job->next ? &job->next->before : &line->last) = job->before;
        *(job->before ? &job->before->next : &line->first) = job->next;
        if (!job->before) { /* its place among the lines was this job's */
            unlink_line(queue, line);
            link_line(queue, line);
        }
    }
    job->next = job->before = NULL;
    job->line = NULL;
}

/* --- deadlines --- */
static void put(Deadlines *d, int place, Job *job) {
    d->heap[place] = job;
    job->place = place;
}

/* Puts the job at a place that is free, or as far above or below as the order asks for. */
static void settle(Deadlines *d, int place, Job *job) {
    for (; place > 0 && d->heap[(place - 1) / 2]->deadline > job->deadline; place = (place - 1) / 2)
        put(d, place, d->heap[(place - 1) / 2]);
    for (int child; (child = 2 * place + 1) < d->count; place = child) {
        if (child + 1 < d->count && d->heap[child + 1]->deadline < d->heap[child]->deadline) child++;
        if (d->heap[child]->deadline >= job->deadline) break;
        put(d, place, d->heap[child]);
    }
    put(d, place, job);
}

bool deadlines_add(Deadlines *d, Job *job) {
    enum { FIRST_CAPACITY = 64 };
    if (!job->deadline) return true;
    if (d->count == d->capacity) {
        int capacity = d->capacity ? 2 * d->capacity : FIRST_CAPACITY;
        Job **heap = realloc(d->heap, (size_t)capacity * sizeof(Job *));
        if (!heap) return false;
        d->heap = heap;
        d->capacity = capacity;
    }
    settle(d, d->count++, job);
    return true;
}

void deadlines_remove(Deadlines *d, const Job *job) {
    if (!job->deadline) return;
    Job *last = d->heap[--d->count];
    if (last != job) settle(d, job->place, last);
}

Job *deadlines_first(const Deadlines *d) { return d->count ? d->heap[0] : NULL; }
void deadlines_free(Deadlines *d) { free(d->heap); }
