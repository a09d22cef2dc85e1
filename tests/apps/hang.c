/* Never ends by itself. Each rank says `hang rank=R pid=P`, then sleeps; `hang stubborn` ignores TERM and INT as well, and
 * leaves a child in a session of its own behind (its pid follows as `child=`): only who finds the whole tree ends it. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int stubborn = argc > 1 && strcmp(argv[1], "stubborn") == 0, rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!stubborn) {
        printf("hang rank=%d pid=%d\n", rank, (int)getpid());
    } else {
        signal(SIGTERM, SIG_IGN);
        signal(SIGINT, SIG_IGN);
        pid_t child = fork();
        if (child == 0) {
            setsid();
            for (;;)
                pause();
        }
        printf("hang rank=%d pid=%d child=%d\n", rank, (int)getpid(), (int)child);
    }
    fflush(stdout);
    for (;;)
        pause();
}
