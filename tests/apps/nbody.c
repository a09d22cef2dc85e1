/* The rigid N-body simulation of 002: it ends on as many ranks as it began on.
 *
 * usage: nbody BODIES STEPS [MILLISECONDS_PER_STEP]
 *
 * Rank 0 prints one line:
 *   nbody bodies=64 steps=10 ranks=4 hosts=2 checksum=0123456789abcdef
 */
#include "nbody.h"

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: nbody BODIES STEPS [MILLISECONDS_PER_STEP]\n");
        return 2;
    }
    int n = number(argv[1], 1), steps = number(argv[2], 0), millis = argc == 4 ? number(argv[3], 0) : 0;

    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    size_t coordinates = (size_t)n * DIM;
    double *position = malloc(coordinates * sizeof(double)), *velocity = malloc(coordinates * sizeof(double));
    double *moved = malloc(coordinates * sizeof(double)), *mass = malloc((size_t)n * sizeof(double));
    int *counts = malloc((size_t)ranks * sizeof(int)), *starts = malloc((size_t)ranks * sizeof(int));
    if (!position || !velocity || !moved || !mass || !counts || !starts) {
        fprintf(stderr, "nbody: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    for (int r = 0; r < ranks; r++) {
        starts[r] = (int)((long)n * r / ranks) * DIM;
        counts[r] = (int)((long)n * (r + 1) / ranks) * DIM - starts[r];
    }
    int first = starts[rank] / DIM, last = first + counts[rank] / DIM;
    fill(position, velocity, mass, n);

    for (int step = 0; step < steps; step++) {
        move(position, moved, velocity + starts[rank], mass, n, first, last);
        MPI_Allgatherv(moved, counts[rank], MPI_DOUBLE, position, counts, starts, MPI_DOUBLE, MPI_COMM_WORLD);
        dawdle(millis);
    }

    int hosts = count_hosts(MPI_COMM_WORLD, rank, ranks);
    if (rank == 0)
        printf("nbody bodies=%d steps=%d ranks=%d hosts=%d checksum=%016llx\n", n, steps, ranks, hosts,
               (unsigned long long)checksum(position, n));
    free(position), free(velocity), free(moved), free(mass), free(counts), free(starts);
    MPI_Finalize();
    return 0;
}
