/* Where an adaptive application's sizes come from: a plan on its command line, or the RMS.
 *
 * Rank 0 alone asks, at a breakpoint; what it hears is a list of changes that all ranks carry out one after the other.
 * Options that every adaptive program here understands:
 *   --plan 2,4,2     so many ranks, in equal parts of the steps; the first is what it is started with
 *   --hosts a,b      a plan grows on these, in turn, one group on each; without: wherever there is room
 * and if it is compiled with -DSTEER_RMS and rms.h:
 *   --negotiate      the RMS offers and takes hosts (a malleable application), or is asked for them (an evolving one)
 *   --least N, --most N   hosts: between these, 1 and 64 if nothing is said
 *   --power-of-two   only such numbers of hosts are of use
 *   --grow N, --grow-least N   an evolving application asks for so many more hosts; fewer than the second are of no use
 */
#ifndef STEER_H
#define STEER_H

#include "resize.h"

enum { STEER_MOST = 64 };

/* One change of the team. */
typedef struct {
    enum { STEER_NOTHING, STEER_UP, STEER_DOWN } kind;
    /* Of a new group. */
    int ranks;
    char host[RESIZE_NAME];
} steer_change;

typedef struct {
    int sizes[STEER_MOST], n_sizes;
    char hosts[STEER_MOST][RESIZE_NAME];
    int n_hosts;
    int negotiates, least, most, power_of_two, grow, grow_least;
    /* Changes that were agreed and are not carried out yet. */
    steer_change queue[2 * STEER_MOST];
    int n_queued;
    /* Ranks on each host. */
    int per_host;
    /* What was refused: nothing more is tried in this part of a plan. */
    int refused_part;
    int has_asked;
    int releases;
    void *session;
} steer;

static void steer_queue(steer *from, int kind, int ranks, const char *host)
{
    if (from->n_queued == 2 * STEER_MOST)
        return;
    steer_change *change = &from->queue[from->n_queued++];
    memset(change, 0, sizeof *change);
    change->kind = kind;
    change->ranks = ranks;
    snprintf(change->host, sizeof change->host, "%s", host);
}

/* Leaves these hosts: down to below the lowest group on them, and up again on the hosts that stay. */
static inline void steer_leave(steer *from, const resize_team *team, const char *const *hosts, size_t n_hosts)
{
    int lowest = team->height + 1;
    for (size_t i = 0; i < n_hosts; i++) {
        int height = resize_find(team, hosts[i]);
        if (height == 0)
            fprintf(stderr, "steer: %s cannot be left: the ranks of the start are there\n", hosts[i]);
        else if (height < lowest)
            lowest = height;
    }
    for (int height = team->height; height >= lowest; height--)
        steer_queue(from, STEER_DOWN, 0, "");
    for (int height = lowest; height <= team->height; height++) {
        int goes = 0;
        for (size_t i = 0; i < n_hosts; i++)
            goes |= strcmp(team->group[height].host, hosts[i]) == 0;
        if (!goes)
            steer_queue(from, STEER_UP, team->group[height].ranks, team->group[height].host);
    }
}

#ifdef STEER_RMS
#include "steer_rms.h"
#else
static int steer_open(steer *from)
{
    if (from->negotiates)
        fprintf(stderr, "steer: this program was compiled without the RMS's library\n");
    return from->negotiates;
}
static void steer_hear(steer *from, const resize_team *team)
{
    (void)from, (void)team;
}
static inline void steer_ask(steer *from, const resize_team *team)
{
    (void)from, (void)team;
}
static void steer_release(steer *from)
{
    (void)from;
}
static void steer_close(steer *from)
{
    (void)from;
}
#endif

/* Takes an option, and perhaps its value, from the command line at `i`. How many words it was; zero if it is none. */
static int steer_option(steer *from, int argc, char **argv, int i)
{
    const char *value = i + 1 < argc ? argv[i + 1] : "";
    char text[4096];
    snprintf(text, sizeof text, "%s", value);
    if (strcmp(argv[i], "--plan") == 0) {
        for (char *word = strtok(text, ","); word && from->n_sizes < STEER_MOST; word = strtok(NULL, ","))
            from->sizes[from->n_sizes++] = atoi(word);
    } else if (strcmp(argv[i], "--hosts") == 0) {
        for (char *word = strtok(text, ","); word && from->n_hosts < STEER_MOST; word = strtok(NULL, ","))
            snprintf(from->hosts[from->n_hosts++], RESIZE_NAME, "%s", word);
    } else if (strcmp(argv[i], "--least") == 0)
        from->least = atoi(value);
    else if (strcmp(argv[i], "--most") == 0)
        from->most = atoi(value);
    else if (strcmp(argv[i], "--grow") == 0)
        from->grow = atoi(value);
    else if (strcmp(argv[i], "--grow-least") == 0)
        from->grow_least = atoi(value);
    else if (strcmp(argv[i], "--negotiate") == 0)
        return from->negotiates = 1;
    else if (strcmp(argv[i], "--power-of-two") == 0)
        return from->power_of_two = 1;
    else
        return 0;
    return 2;
}

static void steer_plan(steer *from, const resize_team *team, long step, long steps)
{
    int part = from->n_sizes > 0 && steps > 0 ? (int)(step * from->n_sizes / steps) : 0;
    if (part >= from->n_sizes || from->refused_part == part + 1)
        return;
    int wanted = from->sizes[part];
    if (team->size > wanted && team->height > 0)
        steer_queue(from, STEER_DOWN, 0, "");
    if (team->size >= wanted)
        return;
    /* What is missing, in equal groups on the hosts that are left to be used. */
    int n_left = from->n_hosts > team->height ? from->n_hosts - team->height : 1;
    const char *host = from->n_hosts > 0 ? from->hosts[team->height % from->n_hosts] : "";
    steer_queue(from, STEER_UP, (wanted - team->size + n_left - 1) / n_left, host);
}

/* At the breakpoint before `step` of `steps`, on rank 0: what is to be done next. */
static steer_change steer_next(steer *from, const resize_team *team, long step, long steps)
{
    steer_change change = {STEER_NOTHING, 0, ""};
    if (from->n_queued == 0 && from->negotiates)
        steer_hear(from, team);
    else if (from->n_queued == 0)
        steer_plan(from, team, step, steps);
    if (from->n_queued > 0) {
        change = from->queue[0];
        memmove(from->queue, from->queue + 1, sizeof change * (size_t)--from->n_queued);
    }
    return change;
}

/* On rank 0: the change was carried out, or refused. */
static void steer_carried(steer *from, int refused, long step, long steps)
{
    if (refused && from->n_sizes > 0 && steps > 0)
        from->refused_part = (int)(step * from->n_sizes / steps) + 1;
    if (from->n_queued == 0 && from->releases)
        steer_release(from);
}

#endif
