/* A program of a mix of jobs whose threads follow the CPUs of its job: each piece of its work is one short parallel region.
 *
 *   mix compute|memory|mixed PIECES
 *
 * At its end it prints `ran SECONDS held CPU_SECONDS`: how long it took, and the CPUs on which it might run meanwhile, summed
 * up over that time. What the work is stands in mix.h. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>

#include "mix.h"

static int n_cpus(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

int main(int argc, char **argv)
{
    double begun = mix_now(), last = begun, held = 0;
    struct mix mix = mix_read(argc, argv);
    for (long piece = 0; piece < mix.n_pieces; piece++) {
#pragma omp parallel
        mix_piece(&mix, piece, omp_get_thread_num(), omp_get_num_threads());
        double now = mix_now();
        held += (now - last) * n_cpus();
        last = now;
    }
    printf("ran %.3f held %.3f\n", last - begun, held);
    return 0;
}
