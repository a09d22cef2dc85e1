/* A group of ranks that grows by MPI_Comm_spawn and shrinks by letting ranks go, and blocks of items that move with it.
 *
 * What holds for every MPI that can do this at all: only intercommunicators are disconnected, merged communicators are
 * freed, and whole spawned groups leave, never single ranks of them. So groups are kept one above the other: each step up
 * is one spawn (one group a host), each step down lets the topmost group go. Who has to give back a host whose group is
 * further down steps down that far, and up again on the hosts that stay.
 *
 * With Open MPI a group is spawned only where no host is named; else it comes by itself and connects (resize_join.h).
 *
 * All functions are collective over the team. Include once: it is code.
 */
#ifndef RESIZE_H
#define RESIZE_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OPEN_MPI
#include "resize_join.h"
#endif

enum { RESIZE_MOST = 64, RESIZE_NAME = 256 };

typedef struct {
    /* Who computes now; the ranks of the job's start come first, then group after group. */
    MPI_Comm team;
    int rank, size;
    /* How many groups are above the ranks of the start. */
    int height;
    /* The height at which this process came; 0 for those of the start. */
    int born;
    struct {
        MPI_Comm before, between;
        int ranks;
        char host[RESIZE_NAME];
#ifdef OPEN_MPI
        /* On rank 0, of a group that has connected. */
        join_shell shell;
#endif
    } group[RESIZE_MOST + 1];
} resize_team;

enum { RESIZE_STAYS = 0, RESIZE_LEAVES = 1 };

static void resize_set(resize_team *team, MPI_Comm comm)
{
    team->team = comm;
    MPI_Comm_rank(comm, &team->rank);
    MPI_Comm_size(comm, &team->size);
    /* A spawn that is refused, and nothing else that goes wrong, is survived. */
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

static void resize_check(int failed, const char *what)
{
    if (failed) {
        fprintf(stderr, "resize: %s failed\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* What every rank must know of the groups, from rank 0. */
static void resize_tell(resize_team *team)
{
    int heights[1] = {team->height};
    resize_check(MPI_Bcast(heights, 1, MPI_INT, 0, team->team), "a broadcast");
    team->height = heights[0];
    for (int i = 1; i <= team->height; i++) {
        MPI_Bcast(&team->group[i].ranks, 1, MPI_INT, 0, team->team);
        MPI_Bcast(team->group[i].host, RESIZE_NAME, MPI_CHAR, 0, team->team);
    }
}

/* To be called after MPI_Init. Nonzero for a process that has come later: it has no items yet. */
static int resize_begin(resize_team *team)
{
    MPI_Comm parent;
    memset(team, 0, sizeof *team);
    MPI_Comm_get_parent(&parent);
#ifdef OPEN_MPI
    if (parent == MPI_COMM_NULL)
        parent = join_parent();
#endif
    if (parent == MPI_COMM_NULL) {
        MPI_Comm own;
        MPI_Comm_dup(MPI_COMM_WORLD, &own);
        resize_set(team, own);
        return 0;
    }
    MPI_Comm all;
    resize_check(MPI_Intercomm_merge(parent, 1, &all), "a merge");
    resize_set(team, all);
    resize_tell(team);
    team->born = team->height;
    team->group[team->born].before = MPI_COMM_NULL;
    team->group[team->born].between = parent;
    return 1;
}

static int resize_spawn(resize_team *team, const char *program, char **arguments, int ranks, const char *host,
                        MPI_Comm *between)
{
    MPI_Info info;
    MPI_Info_create(&info);
    if (host[0])
        MPI_Info_set(info, "hosts", host);
    int failed = MPI_Comm_spawn(program, arguments, ranks, info, 0, team->team, between, MPI_ERRCODES_IGNORE);
    MPI_Info_free(&info);
    return failed != MPI_SUCCESS;
}

/* One group of `ranks` more, all on `host`, or wherever there is room if that is empty. Nonzero if there is none: then
 * everything is as it was. */
static int resize_up(resize_team *team, const char *program, char **arguments, int ranks, const char *host)
{
    MPI_Comm between, all;
    int failed;
    if (team->height == RESIZE_MOST)
        return 1;
#ifdef OPEN_MPI
    join_shell *shell = &team->group[team->height + 1].shell;
    if (host[0] && join_is_possible())
        failed = join_up(team->team, program, arguments, ranks, host, &between, shell);
    else
#endif
        failed = resize_spawn(team, program, arguments, ranks, host, &between);
    if (failed)
        return 1;
    resize_check(MPI_Intercomm_merge(between, 0, &all), "a merge");
    team->height++;
    team->group[team->height].before = team->team;
    team->group[team->height].between = between;
    team->group[team->height].ranks = ranks;
    snprintf(team->group[team->height].host, RESIZE_NAME, "%s", host);
    resize_set(team, all);
    resize_tell(team);
    return 0;
}

/* How many ranks are left when the topmost group has gone. */
static int resize_below(const resize_team *team)
{
    return team->size - team->group[team->height].ranks;
}

/* Lets the topmost group go, which has no items any more. RESIZE_LEAVES for its ranks: they finalize. */
static int resize_down(resize_team *team)
{
    MPI_Comm before = team->group[team->height].before, between = team->group[team->height].between;
    int leaves = team->born == team->height;
    MPI_Comm_free(&team->team);
    resize_check(MPI_Comm_disconnect(&between), "a disconnection");
#ifdef OPEN_MPI
    join_end(&team->group[team->height].shell);
#endif
    team->height--;
    if (leaves)
        return RESIZE_LEAVES;
    resize_set(team, before);
    return RESIZE_STAYS;
}

/* The height of the highest group on a host; 0 if there is none. */
static inline int resize_find(const resize_team *team, const char *host)
{
    for (int i = team->height; i > 0; i--)
        if (strcmp(team->group[i].host, host) == 0)
            return i;
    return 0;
}

/* Of `items`, the first that belongs to a rank of so many; those of the next one begin where they end. */
static long resize_first(long items, int rank, int ranks)
{
    return items * rank / ranks;
}

static long resize_overlap(long items, int one, int ones, int other, int others)
{
    long from = resize_first(items, one, ones), to = resize_first(items, one + 1, ones);
    long first = resize_first(items, other, others), last = resize_first(items, other + 1, others);
    from = from > first ? from : first;
    to = to < last ? to : last;
    return to > from ? to - from : 0;
}

/* Moves items of so many bytes from their blocks over the first `old` ranks to blocks over the first `now` ranks of the
 * team. Returns the own block, which replaces `block`. */
static void *resize_move(const resize_team *team, void *block, long items, size_t bytes, int old, int now)
{
    int *counts = calloc((size_t)team->size * 4, sizeof *counts);
    int *starts = counts + team->size, *counts_in = starts + team->size, *starts_in = counts_in + team->size;
    int is_giver = team->rank < old, is_taker = team->rank < now;
    long own = is_taker ? resize_first(items, team->rank + 1, now) - resize_first(items, team->rank, now) : 0;
    char *moved = malloc(own > 0 ? (size_t)own * bytes : 1);
    if (!counts || !moved)
        resize_check(1, "an allocation");
    long out = 0, in = 0;
    for (int i = 0; i < team->size; i++) {
        counts[i] = is_giver && i < now ? (int)(resize_overlap(items, team->rank, old, i, now) * (long)bytes) : 0;
        counts_in[i] = is_taker && i < old ? (int)(resize_overlap(items, team->rank, now, i, old) * (long)bytes) : 0;
        starts[i] = (int)out, starts_in[i] = (int)in;
        out += counts[i], in += counts_in[i];
    }
    int failed = MPI_Alltoallv(block, counts, starts, MPI_BYTE, moved, counts_in, starts_in, MPI_BYTE, team->team);
    resize_check(failed, "an exchange");
    free(counts);
    free(block);
    return moved;
}

#endif
