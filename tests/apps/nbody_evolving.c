/* The evolving N-body simulation of 002: after a third of its steps it asks for more hosts, and goes on with what it gets.
 *
 * usage: nbody_evolving BODIES STEPS [MILLISECONDS_PER_STEP] [--plan N,N,... [--hosts H,H,...]] [--negotiate --grow N ...]
 *
 * The options are told in steer.h. Rank 0 prints one line, as nbody_malleable does.
 */
#include "nbody_adaptive.h"

static int before(adapt *team, long step, long steps)
{
    /* A plan has its own times. */
    int is_time = !team->steer.negotiates || step == (steps + 2) / 3;
    if (!is_time)
        return RESIZE_STAYS;
    if (team->team.rank == 0)
        steer_ask(&team->steer, &team->team);
    return adapt_here(team, step, steps);
}

int main(int argc, char **argv)
{
    return nbody_run("nbody_evolving", argc, argv, before);
}
