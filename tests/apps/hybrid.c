/* Ranks whose work is done by OpenMP threads, as most hybrid programs are: each prints a line whenever the size of its team,
 * or the number of CPUs on which it may run, has changed: `rank threads CPUs`.
 *
 *   mpirun -n RANKS hybrid
 *
 * It ends after the file `done` is there. */
#define _GNU_SOURCE
#include <mpi.h>
#include <omp.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static int n_cpus(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

int main(int argc, char **argv)
{
    int provided, rank, is_over = 0, told_threads = 0, told_cpus = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    while (!is_over) {
        int threads = 0;
#pragma omp parallel reduction(+ : threads)
        threads += 1;
        int cpus = n_cpus();
        if (threads != told_threads || cpus != told_cpus) {
            printf("%d %d %d\n", rank, threads, cpus);
            fflush(stdout);
            told_threads = threads;
            told_cpus = cpus;
        }
        usleep(5000);
        int is_here = access("done", F_OK) == 0;
        MPI_Allreduce(&is_here, &is_over, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
