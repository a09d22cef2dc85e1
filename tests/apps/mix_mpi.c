/* The same mix of work (mix.h) on ranks, which wait for each other after each piece.
 *
 *   mpirun -n RANKS mix_mpi compute|memory|mixed PIECES
 *
 * At its end rank 0 prints `ran SECONDS held CPU_SECONDS`, of as many CPUs as ranks. */
#include <mpi.h>

#include "mix.h"

int main(int argc, char **argv)
{
    int rank, n_ranks;
    double begun = mix_now();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n_ranks);
    struct mix mix = mix_read(argc, argv);
    for (long piece = 0; piece < mix.n_pieces; piece++) {
        mix_piece(&mix, piece, rank, n_ranks);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    double ran = mix_now() - begun;
    if (rank == 0)
        printf("ran %.3f held %.3f\n", ran, ran * n_ranks);
    MPI_Finalize();
    return 0;
}
