/* A malleable program without MPI: each step runs one piece of work on every node that the job holds just now.
 *
 *     cc -std=c11 $(pkg-config --cflags rms) steps.c $(pkg-config --libs rms) -o steps
 *     rms submit --malleable 1-8 --negotiable --wrap "./steps 100 ./piece"
 *
 * runs `./piece STEP NUMBER COUNT` COUNT times in each of 100 steps. Between two steps nothing runs on any node, so nodes can
 * come and go there: that is the program's breakpoint. */
#define _POSIX_C_SOURCE 200809L
#include <rms.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { MOST = 8 };
extern char **environ;
static char nodes[MOST][RMS_NAME_SIZE];
static int n_nodes;

static int fail(const char *what) {
    char text[512];
    rms_last_error(text, sizeof text);
    fprintf(stderr, "steps: %s: %s\n", what, text);
    return 1;
}

/* Nodes that came are the last ones from now on; a node that goes leaves its place to the last one. */
static void follow(const rms_change *change) {
    for (size_t i = 0; i < change->n_nodes; i++) {
        if (change->kind == RMS_GROW && n_nodes < MOST)
            snprintf(nodes[n_nodes++], RMS_NAME_SIZE, "%s", change->nodes[i]);
        for (int k = 0; change->kind == RMS_SHRINK && k < n_nodes; k++)
            if (strcmp(nodes[k], change->nodes[i]) == 0)
                memmove(nodes[k], nodes[--n_nodes], RMS_NAME_SIZE);
    }
    printf("generation %u: %d nodes\n", (unsigned)change->generation, n_nodes);
    fflush(stdout);
}

/* One piece on each node, through the job's own remote shell; waits for all. */
static int run_step(int step, char *piece) {
    const char *remote_shell = getenv("OMPI_MCA_plm_rsh_agent");
    int status, n_failed = 0;
    for (int k = 0; k < n_nodes; k++) {
        char words[3][16];
        snprintf(words[0], 16, "%d", step), snprintf(words[1], 16, "%d", k), snprintf(words[2], 16, "%d", n_nodes);
        char *argv[] = {"rsh", nodes[k], piece, words[0], words[1], words[2], NULL};
        pid_t pid;
        n_failed += remote_shell == NULL || posix_spawn(&pid, remote_shell, NULL, NULL, argv, environ) != 0;
    }
    while (wait(&status) > 0)
        n_failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return n_failed;
}

int main(int argc, char **argv) {
    rms_session *rms;
    rms_limits limits = RMS_INIT(rms_limits);
    rms_change change = RMS_INIT(rms_change);
    rms_node held[MOST] = {RMS_INIT(rms_node)};
    size_t n_held;
    int status = RMS_NOTHING;
    if (argc != 3)
        return fprintf(stderr, "usage: steps COUNT PIECE\n"), 2;
    limits.least = 1, limits.most = MOST, limits.automatic = 1;
    if (rms_connect(NULL, &rms) != RMS_OK || rms_declare(rms, &limits) != RMS_OK)
        return fail("cannot negotiate");
    if (rms_nodes(rms, held, MOST, &n_held) != RMS_OK)
        return fail("cannot see the nodes");
    for (size_t i = 0; i < n_held; i++)
        memcpy(nodes[n_nodes++], held[i].name, RMS_NAME_SIZE);
    for (int step = 0; step < atoi(argv[1]); step++) {
        while ((status = rms_breakpoint(rms, &change)) == RMS_OK) {
            follow(&change);
            if (change.kind == RMS_SHRINK && rms_release_done(rms) != RMS_OK)
                return fail("cannot give nodes back");
        }
        if (status != RMS_NOTHING)
            return fail("the job cannot go on");
        if (run_step(step, argv[2]) != 0)
            return fprintf(stderr, "steps: a piece of step %d has failed\n", step), 1;
    }
    return rms_close(rms) != RMS_OK;
}
