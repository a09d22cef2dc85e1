/* Every rank says where it is, in one line:
 *   hello rank=1 ranks=4 host=name node=a1 pid=123 cpus=0,3
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks, length;
    char host[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_processor_name(host, &length);

    char cpus[4096] = "";
    size_t end = 0;
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int cpu = 0; cpu < CPU_SETSIZE && end + 8 < sizeof cpus; cpu++)
        if (CPU_ISSET(cpu, &set))
            end += (size_t)snprintf(cpus + end, sizeof cpus - end, "%s%d", end ? "," : "", cpu);

    const char *node = getenv("RMS_NODE_NAME");
    printf("hello rank=%d ranks=%d host=%s node=%s pid=%d cpus=%s\n", rank, ranks, host, node ? node : "-", (int)getpid(),
           cpus);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
