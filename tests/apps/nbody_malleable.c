/* The malleable N-body simulation of 002: before each step it may be given hosts, or give some back.
 *
 * usage: nbody_malleable BODIES STEPS [MILLISECONDS_PER_STEP] [--plan N,N,... [--hosts H,H,...]] [--negotiate ...]
 *
 * The options are told in steer.h. Rank 0 prints one line:
 *   nbody_malleable bodies=64 steps=10 ranks=2 hosts=2 changes=2 refused=0 largest=4 checksum=0123456789abcdef
 * The checksum is that of the rigid version for the same bodies and steps.
 */
#include "nbody_adaptive.h"

static int before(adapt *team, long step, long steps)
{
    return adapt_here(team, step, steps);
}

int main(int argc, char **argv)
{
    return nbody_run("nbody_malleable", argc, argv, before);
}
