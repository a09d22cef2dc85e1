/* Groups that come as an mpirun of their own on their host, and connect: how a program of Open MPI grows and shrinks.
 *
 * An mpirun of Open MPI 4 keeps a daemon on every host that it has ever used, and ends when it loses one: it can give no
 * host back. So each host has an mpirun of its own, which ends when its ranks have left, and all of them meet at one
 * ompi-server, which the job's script starts:
 *   ompi-server --no-daemonize -r "$PWD/meet" & server=$!
 *   while [ ! -s meet ]; do sleep 0.1; done
 *   export OMPI_MCA_pmix_server_uri="file:$PWD/meet"
 *   mpirun --host localhost:4 -n 4 ./program
 *   kill $server
 * The first mpirun, too, is to have one host alone. $RESIZE_MPIRUN names another mpirun than that of the PATH.
 */
#ifndef RESIZE_JOIN_H
#define RESIZE_JOIN_H

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the first rank of a group says on its standard output when it can connect. */
#define JOIN_HERE "resize: here"

/* Is there a place to meet? */
static int join_is_possible(void)
{
    return getenv("OMPI_MCA_pmix_server_uri") != NULL && getenv("OMPI_MCA_plm_rsh_agent") != NULL;
}

/* One word of a shell, in quotes. */
static void join_word(FILE *text, const char *word)
{
    fputs(" '", text);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, text);
    fputc('\'', text);
}

static void join_variable(FILE *text, const char *name, const char *value)
{
    char *setting = NULL;
    size_t length;
    FILE *word = open_memstream(&setting, &length);
    fprintf(word, "%s=%s", name, value);
    fclose(word);
    join_word(text, setting);
    free(setting);
}

/* A group's remote shell, and whence it is heard that the group is there. */
typedef struct {
    pid_t pid;
    int ear;
} join_shell;

/* Starts a group on a host by the job's remote shell. What it writes is passed on, but for the word that it is there: that
 * is one byte for the ear. */
static join_shell join_start(const char *program, char **arguments, int ranks, const char *host, const char *port)
{
    char *there = NULL, *here = NULL, directory[4096];
    size_t length;
    const char *mpirun = getenv("RESIZE_MPIRUN");
    mpirun = mpirun ? mpirun : "mpirun";
    FILE *text = open_memstream(&there, &length);
    fputs("cd", text);
    join_word(text, getcwd(directory, sizeof directory) ? directory : "/");
    fputs(" && exec env", text);
    join_variable(text, "RESIZE_PORT", port);
    join_variable(text, "RESIZE_MPIRUN", mpirun);
    join_variable(text, "OMPI_MCA_pmix_server_uri", getenv("OMPI_MCA_pmix_server_uri"));
    join_word(text, mpirun);
    fprintf(text, " --host localhost:%d -n %d", ranks, ranks);
    join_word(text, program);
    for (; *arguments; arguments++)
        join_word(text, *arguments);
    fclose(text);
    text = open_memstream(&here, &length);
    join_word(text, getenv("OMPI_MCA_plm_rsh_agent"));
    join_word(text, host);
    join_word(text, there);
    fputs(" </dev/null 8>&- | while IFS= read -r line; do case $line in '" JOIN_HERE "') echo >&8;;"
          " *) printf '%s\\n' \"$line\";; esac; done",
          text);
    fclose(text);
    join_shell shell = {-1, -1};
    int ends[2];
    if (pipe(ends) == 0) {
        shell.ear = ends[0];
        shell.pid = fork();
        if (shell.pid == 0) {
            dup2(ends[1], 8);
            for (int end = 0; end < 2; end++)
                if (ends[end] != 8)
                    close(ends[end]);
            execl("/bin/sh", "sh", "-c", here, (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        /* Those that are started later are not to have it. */
        fcntl(shell.ear, F_SETFD, FD_CLOEXEC);
    }
    free(there), free(here);
    return shell;
}

/* Returns when nothing of a group is left on its host, which has disconnected, or never came. */
static void join_end(join_shell *shell)
{
    if (shell->pid <= 0)
        return;
    close(shell->ear);
    waitpid(shell->pid, NULL, 0);
    shell->pid = 0;
}

/* A group of so many ranks on a host, connected to `team`. Collective; nonzero if it does not come about. */
static int join_up(MPI_Comm team, const char *program, char **arguments, int ranks, const char *host, MPI_Comm *between,
                   join_shell *shell)
{
    char port[MPI_MAX_PORT_NAME] = "", word;
    int rank, is_there = 0;
    MPI_Comm_rank(team, &rank);
    if (rank == 0 && MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS) {
        *shell = join_start(program, arguments, ranks, host, port);
        is_there = shell->pid > 0 && read(shell->ear, &word, 1) == 1;
    }
    /* Nobody may wait for a group that will never come. */
    MPI_Bcast(&is_there, 1, MPI_INT, 0, team);
    int failed = !is_there || MPI_Comm_accept(port, MPI_INFO_NULL, 0, team, between) != MPI_SUCCESS;
    if (failed)
        join_end(shell);
    if (rank == 0 && port[0])
        MPI_Close_port(port);
    return failed;
}

/* In a process of such a group: connects to those who started it. MPI_COMM_NULL for the others. */
static MPI_Comm join_parent(void)
{
    const char *port = getenv("RESIZE_PORT");
    MPI_Comm between = MPI_COMM_NULL;
    int rank;
    if (!port)
        return MPI_COMM_NULL;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) {
        puts(JOIN_HERE);
        fflush(stdout);
    }
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between);
    return between;
}

#endif
