/* Ranks that start other ranks, compute with them, and let them go; and what comes of it when that is refused.
 *
 * usage: spawn CYCLES CHILDREN [HOST[,HOST...]] [OPTION...]
 *
 * In each cycle the ranks of the world start CHILDREN more of this program, on the named hosts or wherever there is room ("-"),
 * merge with them, add up numbers that depend on every rank, part from them and go on; the children leave. Rank 0 prints
 *   spawn cycles=20 children=2 refused=0 ranks=2 largest=4 checksum=0123456789abcdef
 * and each child one line that says where it is. Options:
 *   several       the children are two programs of one MPI_Comm_spawn_multiple
 *   program=NAME  start NAME instead of this program, which is expected to be refused
 *   leave         rank 0 leaves after the first spawn; the others go on with the children, rank 1 prints
 *   linger=MS     how long the children stay after they have parted
 *   info=K:V      one more hint for the spawn
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void fail(const char *what)
{
    fprintf(stderr, "spawn: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

static void pause_ms(int millis)
{
    struct timespec pause = {millis / 1000, (millis % 1000) * 1000000L};
    nanosleep(&pause, NULL);
}

/* Every rank contributes a number that depends on its place and the cycle: a rank that is missing, or there twice, shows. */
static uint64_t add_up(MPI_Comm all, uint64_t cycle)
{
    int rank, size;
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &size);
    uint64_t own = (cycle + 1) * 1000003u + (uint64_t)(rank + 1) * (uint64_t)(rank + 1) * 7919u, sum = 0;
    MPI_Allreduce(&own, &sum, 1, MPI_UINT64_T, MPI_SUM, all);
    return sum * 31 + (uint64_t)size;
}

/* The portable way to part: free what was merged, disconnect the intercommunicator. */
static void part(MPI_Comm *merged, MPI_Comm *between)
{
    MPI_Comm_free(merged);
    MPI_Comm_disconnect(between);
}

static int child(MPI_Comm parent, int argc, char **argv)
{
    MPI_Comm all;
    int rank, size, *appnum = NULL, found = 0;
    uint64_t cycle = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    int linger = argc > 2 ? atoi(argv[2]) : 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
    const char *node = getenv("RMS_NODE_NAME"), *task = getenv("RMS_TASK_ID");
    printf("child cycle=%d rank=%d size=%d app=%d node=%s task=%s\n", (int)cycle, rank, size, found ? *appnum : -1,
           node ? node : "?", task ? task : "?");
    fflush(stdout);
    MPI_Intercomm_merge(parent, 1, &all);
    add_up(all, cycle);
    part(&all, &parent);
    pause_ms(linger);
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL)
        return child(parent, argc, argv);
    if (argc < 3) {
        fprintf(stderr, "usage: spawn CYCLES CHILDREN [HOST[,HOST...]] [OPTION...]\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int cycles = atoi(argv[1]), children = atoi(argv[2]), several = 0, leave = 0;
    const char *hosts = argc > 3 ? argv[3] : "-", *program = argv[0], *linger = "0";
    MPI_Info info;
    MPI_Info_create(&info);
    if (strcmp(hosts, "-") != 0)
        MPI_Info_set(info, "hosts", hosts);
    for (int i = 4; i < argc; i++) {
        char *colon = strncmp(argv[i], "info=", 5) == 0 ? strchr(argv[i], ':') : NULL;
        if (strcmp(argv[i], "several") == 0)
            several = 1;
        else if (strcmp(argv[i], "leave") == 0)
            leave = 1;
        else if (strncmp(argv[i], "program=", 8) == 0)
            program = argv[i] + 8;
        else if (strncmp(argv[i], "linger=", 7) == 0)
            linger = argv[i] + 7;
        else if (colon) {
            *colon = 0;
            MPI_Info_set(info, argv[i] + 5, colon + 1);
        } else
            fail("an unknown option");
    }

    int rank, ranks, largest = 0, refused = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    uint64_t checksum = 0;
    MPI_Comm rest = MPI_COMM_WORLD;
    int teller = 0;
    for (int cycle = 0; cycle < cycles; cycle++) {
        char text[16];
        snprintf(text, sizeof text, "%d", cycle);
        char *arguments[] = {text, (char *)linger, NULL}, **both[] = {arguments, arguments};
        MPI_Comm between, all;
        int failed;
        if (several) {
            char *programs[] = {(char *)program, (char *)program};
            int counts[] = {1, children - 1};
            MPI_Info infos[] = {info, info};
            failed = MPI_Comm_spawn_multiple(2, programs, both, counts, infos, 0, rest, &between, MPI_ERRCODES_IGNORE);
        } else
            failed = MPI_Comm_spawn(program, arguments, children, info, 0, rest, &between, MPI_ERRCODES_IGNORE);
        if (failed) {
            refused++;
            continue;
        }
        MPI_Intercomm_merge(between, 0, &all);
        int size;
        MPI_Comm_size(all, &size);
        largest = size > largest ? size : largest;
        checksum = checksum * 1099511628211u + add_up(all, (uint64_t)cycle);
        part(&all, &between);
        if (leave && rest == MPI_COMM_WORLD) {
            /* Rank 0 goes; from now on the others are the world. */
            MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, rank, &rest);
            if (rank == 0)
                break;
            MPI_Comm_set_errhandler(rest, MPI_ERRORS_RETURN);
            teller = 1;
        }
    }
    if (rank == teller && rest != MPI_COMM_NULL)
        printf("spawn cycles=%d children=%d refused=%d ranks=%d largest=%d checksum=%016llx\n", cycles, children, refused,
               ranks, largest, (unsigned long long)checksum);
    MPI_Info_free(&info);
    MPI_Finalize();
    return 0;
}
