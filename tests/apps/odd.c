/* Spawns as users write them, and names that ranks publish; each part says on one line what came of it.
 *
 * usage: odd spawns HOST HOST     two ranks, one on each host
 *        odd names                 two ranks, which meet under a name that one of them publishes
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *words[] = {"one two", "k=v", "", "'q' \"d\"", "$HOME;*", "tab\there", NULL};

static void check(int is_well, const char *what)
{
    if (!is_well) {
        fprintf(stderr, "odd: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

/* The sum of a number of each rank, parents and children. */
static int meet(MPI_Comm between, int is_child, int number)
{
    MPI_Comm all;
    int sum;
    MPI_Intercomm_merge(between, is_child, &all);
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, all);
    MPI_Comm_free(&all);
    MPI_Comm_disconnect(&between);
    return sum;
}

static int child(MPI_Comm parent, int argc, char **argv)
{
    int *appnum, found;
    char directory[4096] = "";
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &appnum, &found);
    if (argc > 2) {
        check(getcwd(directory, sizeof directory) && strcmp(directory, "/") == 0, "another working directory");
        for (int i = 0; words[i]; i++)
            check(i + 1 < argc && strcmp(words[i], argv[i + 1]) == 0, "other arguments");
    }
    meet(parent, 1, found ? 10 * (*appnum + 1) : 1000);
    MPI_Finalize();
    return 0;
}

static MPI_Info hint(const char *host, const char *key, const char *value)
{
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "host", host);
    if (key)
        MPI_Info_set(info, key, value);
    return info;
}

static void tell(int rank, const char *what, int number)
{
    if (rank == 0)
        printf("odd %s=%d\n", what, number), fflush(stdout);
}

static void spawns(int rank, char *program, char **hosts)
{
    MPI_Comm between, half;
    int *universe, found, refused = 0, codes[4];
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
    tell(rank, "universe", found ? *universe : -1);

    /* What is asked for counts at the root, which is the last rank. */
    MPI_Comm_spawn(program, words, 2, hint(hosts[1], "wd", "/"), 1, MPI_COMM_WORLD, &between, codes);
    tell(rank, "words", meet(between, 0, 1));

    char *folder = strdup(program), *slash = strrchr(folder, '/');
    check(slash != NULL, "a program without a path");
    *slash = 0;
    char *programs[] = {slash + 1, program}, *none[] = {NULL}, *one[] = {"x", NULL}, **arguments[] = {none, one};
    MPI_Info infos[] = {hint(hosts[0], "path", folder), hint(hosts[1], "made-up", "a = b")};
    MPI_Comm_spawn_multiple(2, programs, arguments, (int[]){2, 1}, infos, 0, MPI_COMM_WORLD, &between, codes);
    tell(rank, "several", meet(between, 0, 1));

    /* Both ranks at once, each for itself. */
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &half);
    MPI_Comm_spawn(program, MPI_ARGV_NULL, 1, hint(hosts[1 - rank], NULL, NULL), 0, half, &between, codes);
    tell(rank, "half", meet(between, 0, 1));

    MPI_Comm_spawn(program, MPI_ARGV_NULL, 12, hint(hosts[1], NULL, NULL), 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
    tell(rank, "many", meet(between, 0, 1));

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    struct {
        char *program;
        int ranks;
        MPI_Info info;
    } wrong[] = {
        {"/no/such/program", 2, hint(hosts[1], NULL, NULL)},
        {"/etc/passwd", 1, hint(hosts[1], NULL, NULL)},
        {program, 1, hint(hosts[1], "wd", "/no/such/directory")},
        {program, 1, hint("no-such-host", NULL, NULL)},
        {program, 1, hint(hosts[0], "hostfile", "/no/such/file")},
        {program, 0, hint(hosts[0], NULL, NULL)},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refused += MPI_Comm_spawn(wrong[i].program, MPI_ARGV_NULL, wrong[i].ranks, wrong[i].info, 0, MPI_COMM_WORLD, &between,
                                  MPI_ERRCODES_IGNORE) != MPI_SUCCESS;
    tell(rank, "refused", refused);
}

static void names(int rank)
{
    const char *name = "the ocean model";
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm between;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    tell(rank, "unknown", MPI_Lookup_name("nobody", MPI_INFO_NULL, port) != MPI_SUCCESS);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        check(MPI_Publish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS, "a name that cannot be published");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between);
    else {
        check(MPI_Lookup_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS, "a name that is not found");
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between);
    }
    tell(rank, "met", meet(between, rank, rank + 1));
    if (rank == 0) {
        tell(rank, "unpublished", MPI_Unpublish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS);
        MPI_Close_port(port);
    }
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    int rank;
    int is_names = argc == 2 && strcmp(argv[1], "names") == 0;
    /* In MPICH 5.0.2, UCX opens no ports. */
    if (is_names)
        setenv("MPIR_CVAR_CH4_NETMOD", "ofi", 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (parent != MPI_COMM_NULL)
        return child(parent, argc, argv);
    if (is_names)
        names(rank);
    else if (argc == 4)
        spawns(rank, argv[0], argv + 2);
    else
        check(0, "usage: odd spawns HOST HOST | odd names");
    MPI_Finalize();
    return 0;
}
