/* Ranks that the RMS has started together and that leave one by one: those on hosts that are to be left finalize, and the
 * others go on. Nothing is spawned for that; hosts that come are given to one group for all of them, if --grow is said.
 *
 * usage: leave STEPS MILLISECONDS_PER_STEP LEAST MOST [--grow]
 *
 * Rank 0 negotiates and prints "changed ranks=N" for each change, and at the end
 *   leave steps=40 ranks=2 began=4 sum=1
 * where sum is that of 1/ranks over the ranks that are left: 1.
 */
#include <mpi.h>
#include <rms.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_HOSTS = 16, NAME = 64 };

/* What rank 0 has heard: on which hosts nobody stays, or where a group is to be started. */
typedef struct {
    int step, kind, n_hosts;
    char hosts[MOST_HOSTS][NAME];
} change;

static void hear(rms_session *rms, change *heard)
{
    rms_change told = RMS_INIT(rms_change);
    heard->kind = 0;
    if (rms_breakpoint(rms, &told) != RMS_OK)
        return;
    heard->kind = told.kind;
    heard->n_hosts = (int)told.n_nodes;
    for (int i = 0; i < heard->n_hosts && i < MOST_HOSTS; i++)
        snprintf(heard->hosts[i], NAME, "%s", told.nodes[i]);
}

static int is_named(const change *heard, const char *host)
{
    for (int i = 0; i < heard->n_hosts; i++)
        if (strcmp(heard->hosts[i], host) == 0)
            return 1;
    return 0;
}

/* The ranks on these hosts finalize. Nonzero in them. */
static int part(MPI_Comm *team, const change *heard, int rank)
{
    const char *host = getenv("RMS_NODE_NAME");
    int leaves = is_named(heard, host ? host : "");
    MPI_Comm rest;
    MPI_Comm_split(*team, leaves ? MPI_UNDEFINED : 0, rank, &rest);
    MPI_Comm_free(team);
    *team = rest;
    return leaves;
}

static void spawn(MPI_Comm *team, const change *heard, char **argv)
{
    char hosts[MOST_HOSTS * NAME] = "";
    for (int i = 0; i < heard->n_hosts; i++)
        snprintf(hosts + strlen(hosts), sizeof hosts - strlen(hosts), "%s%s", i ? "," : "", heard->hosts[i]);
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "hosts", hosts);
    MPI_Comm between, all;
    MPI_Comm_spawn(argv[0], argv + 1, heard->n_hosts, info, 0, *team, &between, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    MPI_Intercomm_merge(between, 0, &all);
    MPI_Comm_disconnect(&between);
    MPI_Comm_free(team);
    *team = all;
}

int main(int argc, char **argv)
{
    if (argc < 5) {
        fprintf(stderr, "usage: leave STEPS MILLISECONDS_PER_STEP LEAST MOST [--grow]\n");
        return 2;
    }
    int steps = atoi(argv[1]), millis = atoi(argv[2]), rank, size, began;
    struct timespec pause = {millis / 1000, (millis % 1000) * 1000000L};
    change heard = {0};
    rms_session *rms = NULL;
    MPI_Comm team, parent, all;
    MPI_Init(NULL, NULL);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        MPI_Comm_dup(MPI_COMM_WORLD, &team);
    } else {
        MPI_Intercomm_merge(parent, 1, &all);
        MPI_Comm_disconnect(&parent);
        team = all;
        MPI_Bcast(&heard.step, 1, MPI_INT, 0, team);
        heard.step++;
    }
    MPI_Comm_rank(team, &rank);
    MPI_Comm_size(team, &began);
    if (rank == 0) {
        rms_limits limits = RMS_INIT(rms_limits);
        limits.least = (uint32_t)atoi(argv[3]);
        limits.most = (uint32_t)atoi(argv[4]);
        limits.automatic = 1;
        char text[512] = "";
        if (rms_connect(NULL, &rms) != RMS_OK || rms_declare(rms, &limits) != RMS_OK) {
            rms_last_error(text, sizeof text);
            fprintf(stderr, "leave: %s\n", text);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    for (int step = heard.step; step < steps; step++) {
        if (rank == 0)
            hear(rms, &heard);
        heard.step = step;
        MPI_Bcast(&heard, sizeof heard, MPI_BYTE, 0, team);
        if (heard.kind == RMS_SHRINK) {
            if (part(&team, &heard, rank)) {
                MPI_Finalize();
                return 0;
            }
            if (rank == 0)
                rms_release_done(rms);
        } else if (heard.kind == RMS_GROW && argc > 5) {
            spawn(&team, &heard, argv);
            MPI_Bcast(&heard.step, 1, MPI_INT, 0, team);
        }
        MPI_Comm_rank(team, &rank);
        MPI_Comm_size(team, &size);
        if (heard.kind != 0 && rank == 0) {
            printf("changed ranks=%d\n", size);
            fflush(stdout);
        }
        nanosleep(&pause, NULL);
    }
    double own, sum = 0;
    MPI_Comm_size(team, &size);
    own = 1.0 / size;
    MPI_Reduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, team);
    if (rank == 0) {
        printf("leave steps=%d ranks=%d began=%d sum=%.3g\n", steps, size, began, sum);
        fflush(stdout);
        rms_close(rms);
    }
    MPI_Comm_free(&team);
    MPI_Finalize();
    return 0;
}
