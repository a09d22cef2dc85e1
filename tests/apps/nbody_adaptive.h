/* N-body with a team that changes: what its evolving and its malleable version have in common. */
#ifndef NBODY_ADAPTIVE_H
#define NBODY_ADAPTIVE_H

#include "adapt.h"
#include "nbody.h"

typedef struct {
    int bodies, steps, millis, step;
    /* Of all bodies. */
    double *position, *mass, *moved;
    /* Of the own ones. */
    double *velocity;
} nbody;

static void nbody_allocate(nbody *self)
{
    size_t n = (size_t)self->bodies;
    self->position = malloc(n * DIM * sizeof(double));
    self->moved = malloc(n * DIM * sizeof(double));
    self->velocity = malloc(n * DIM * sizeof(double));
    self->mass = malloc(n * sizeof(double));
    resize_check(!self->position || !self->moved || !self->velocity || !self->mass, "an allocation");
    fill(self->position, self->velocity, self->mass, self->bodies);
}

/* Velocities move with their bodies; positions are everybody's, and masses never change. */
static void nbody_move(void *program, const resize_team *team, int old, int now)
{
    nbody *self = program;
    resize_check(MPI_Bcast(&self->step, 1, MPI_INT, 0, team->team), "a broadcast");
    MPI_Bcast(self->position, self->bodies * DIM, MPI_DOUBLE, 0, team->team);
    self->velocity = resize_move(team, self->velocity, self->bodies, DIM * sizeof(double), old, now);
}

static void nbody_step(nbody *self, const resize_team *team)
{
    int *counts = malloc((size_t)team->size * 2 * sizeof(int)), *starts = counts + team->size;
    resize_check(!counts, "an allocation");
    for (int r = 0; r < team->size; r++) {
        starts[r] = (int)resize_first(self->bodies, r, team->size) * DIM;
        counts[r] = (int)resize_first(self->bodies, r + 1, team->size) * DIM - starts[r];
    }
    int first = starts[team->rank] / DIM, last = first + counts[team->rank] / DIM;
    move(self->position, self->moved, self->velocity, self->mass, self->bodies, first, last);
    MPI_Allgatherv(self->moved, counts[team->rank], MPI_DOUBLE, self->position, counts, starts, MPI_DOUBLE, team->team);
    free(counts);
    dawdle(self->millis);
}

/* Runs all steps, with what `before` does before each. The line that rank 0 prints begins with `name`. */
static int nbody_run(const char *name, int argc, char **argv, int (*before)(adapt *, long, long))
{
    adapt team = {0};
    nbody self = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: %s BODIES STEPS [MILLISECONDS_PER_STEP] [--plan N,N,... [--hosts H,H,...]] [--negotiate ...]\n",
                name);
        return 2;
    }
    self.bodies = number(argv[1], 1), self.steps = number(argv[2], 0);
    for (int i = 3; i < argc;) {
        int taken = steer_option(&team.steer, argc, argv, i);
        if (taken == 0)
            self.millis = number(argv[i], 0), taken = 1;
        i += taken;
    }
    MPI_Init(NULL, NULL);
    nbody_allocate(&self);
    int is_new = adapt_begin(&team, argv, nbody_move, &self);
    if (!is_new) {
        /* Of the velocities, only those of the own bodies are kept. */
        long first = resize_first(self.bodies, team.team.rank, team.team.size);
        memmove(self.velocity, self.velocity + first * DIM, (size_t)(self.bodies - first) * DIM * sizeof(double));
    }
    int leaves = RESIZE_STAYS;
    /* Who has just come is past the breakpoint at which it came, but for more changes there. */
    while (self.step < self.steps && (leaves = before(&team, self.step, self.steps)) == RESIZE_STAYS) {
        nbody_step(&self, &team.team);
        self.step++;
    }
    if (leaves == RESIZE_STAYS) {
        int hosts = count_hosts(team.team.team, team.team.rank, team.team.size);
        if (team.team.rank == 0) {
            printf("%s bodies=%d steps=%d ranks=%d hosts=%d changes=%d refused=%d largest=%d checksum=%016llx\n", name,
                   self.bodies, self.steps, team.team.size, hosts, team.n_changes, team.n_refused, team.largest,
                   (unsigned long long)checksum(self.position, self.bodies));
            fflush(stdout);
        }
        adapt_end(&team);
    }
    free(self.position), free(self.velocity), free(self.moved), free(self.mass);
    MPI_Finalize();
    return 0;
}

#endif
