/* One rank gives up while the others wait for it: `abort [CODE [RANK]]` ends the whole program with CODE. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int code = argc > 1 ? atoi(argv[1]) : 9, who = argc > 2 ? atoi(argv[2]) : 0, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == who) {
        fprintf(stderr, "abort rank=%d code=%d\n", rank, code);
        MPI_Abort(MPI_COMM_WORLD, code);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
