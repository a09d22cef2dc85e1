/* The same mix of work (mix.h) on ranks with threads, which wait for each other after each piece. The threads follow the CPUs
 * of their job.
 *
 *   mpirun -n RANKS mix_mpi compute|memory|mixed PIECES
 *
 * At its end rank 0 prints `ran SECONDS held CPU_SECONDS`, as mix does, of the CPUs of all ranks. */
#define _GNU_SOURCE
#include <mpi.h>
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
    int provided, rank, n_ranks;
    double begun = mix_now(), last = begun, held = 0, held_by_all = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    struct mix mix = mix_read(argc, argv);
    for (long piece = 0; piece < mix.n_pieces; piece++) {
        /* Each rank does the same part of a piece, with as many threads as it has now. */
#pragma omp parallel
        mix_piece(&mix, piece, rank * omp_get_num_threads() + omp_get_thread_num(), n_ranks * omp_get_num_threads());
        MPI_Barrier(MPI_COMM_WORLD);
        double now = mix_now();
        held += (now - last) * n_cpus();
        last = now;
    }
    MPI_Reduce(&held, &held_by_all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("ran %.3f held %.3f\n", last - begun, held_by_all);
    MPI_Finalize();
    return 0;
}
