/* What every adaptive program does at its breakpoints: hears what is to change, and carries it out with its items. */
#ifndef ADAPT_H
#define ADAPT_H

#include <time.h>

#include "steer.h"

/* Divides the items of a program anew: they were on the first `old` ranks of the team, and are to be on the first `now`.
 * A process that has just come has none of them, and knows nothing. */
typedef void adapt_move(void *program, const resize_team *team, int old, int now);

typedef struct {
    resize_team team;
    steer steer;
    adapt_move *move;
    void *program;
    char **argv;
    int n_changes, n_refused, largest;
} adapt;

/* Hosts that the RMS says are ready may reach the ranks' process manager a moment later. */
enum { ADAPT_TRIES = 20, ADAPT_PAUSE_MS = 100 };

/* To be called after MPI_Init and the options. Nonzero for a process that has come later, which has its items then. */
static int adapt_begin(adapt *self, char **argv, adapt_move *move, void *program)
{
    self->argv = argv;
    self->move = move;
    self->program = program;
    int is_new = resize_begin(&self->team);
    int failed = 0;
    if (is_new)
        move(program, &self->team, self->team.size - self->team.group[self->team.born].ranks, self->team.size);
    else if (self->team.rank == 0)
        failed = steer_open(&self->steer);
    const char *hosts = getenv("RMS_NNODES");
    int n_hosts = hosts ? atoi(hosts) : 1;
    self->steer.per_host = n_hosts > 0 && self->team.size >= n_hosts ? self->team.size / n_hosts : 1;
    self->largest = self->team.size;
    if (failed)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return is_new;
}

static int adapt_up(adapt *self, const steer_change *change)
{
    int old = self->team.size, refused = 1;
    int tries = self->steer.negotiates ? ADAPT_TRIES : 1;
    struct timespec pause = {0, ADAPT_PAUSE_MS * 1000000L};
    while (tries-- > 0 && refused) {
        refused = resize_up(&self->team, self->argv[0], self->argv + 1, change->ranks, change->host);
        if (refused && tries > 0)
            nanosleep(&pause, NULL);
    }
    if (!refused)
        self->move(self->program, &self->team, old, self->team.size);
    return refused;
}

/* At a breakpoint before `step` of `steps`: makes every change that is due. RESIZE_LEAVES: this process finalizes now. */
static int adapt_here(adapt *self, long step, long steps)
{
    for (;;) {
        steer_change change;
        if (self->team.rank == 0)
            change = steer_next(&self->steer, &self->team, step, steps);
        resize_check(MPI_Bcast(&change, sizeof change, MPI_BYTE, 0, self->team.team), "a broadcast");
        if (change.kind == STEER_NOTHING)
            return RESIZE_STAYS;
        int refused = 0;
        if (change.kind == STEER_UP)
            refused = adapt_up(self, &change);
        else {
            self->move(self->program, &self->team, self->team.size, resize_below(&self->team));
            if (resize_down(&self->team) == RESIZE_LEAVES)
                return RESIZE_LEAVES;
        }
        self->n_changes += !refused;
        self->n_refused += refused;
        if (self->team.size > self->largest)
            self->largest = self->team.size;
        if (self->team.rank == 0)
            steer_carried(&self->steer, refused, step, steps);
    }
}

/* To be called by those that stay, before MPI_Finalize: all groups part. */
static void adapt_end(adapt *self)
{
    while (self->team.height > 0)
        if (resize_down(&self->team) == RESIZE_LEAVES)
            return;
    if (self->team.rank == 0)
        steer_close(&self->steer);
    MPI_Comm_free(&self->team.team);
}

#endif
