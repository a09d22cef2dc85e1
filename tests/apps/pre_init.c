/* Starts an OpenMP program on a CPU that is set aside for it beforehand by DROM's calls, and says what came of each: `what
 * status`, and masks.
 *
 *   pre_init PID CPU1 CPU2 TEAMS
 *
 * PID is an OpenMP process of the same job. The program runs in the directory `sub`. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int DLB_DROM_Attach(void);
int DLB_DROM_GetPidList(int *pids, int *n_pids, int capacity);
int DLB_DROM_GetProcessMask(int pid, void *mask, int flags);
int DLB_DROM_PreInit(int pid, const void *mask, int flags, char ***environment);
int DLB_DROM_PostFinalize(int pid, int flags);

enum { WAIT = 4, POLLS = 3000, POLL_US = 20000 };

extern char **environ;

static void tell(const char *what, int status)
{
    printf("%s %d\n", what, status);
    fflush(stdout);
}

static cpu_set_t of(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return set;
}

static int n_cpus_of(int pid)
{
    cpu_set_t set;
    int status = DLB_DROM_GetProcessMask(pid, &set, 0);
    return status == 0 ? CPU_COUNT(&set) : status;
}

/* Waits until the process has so many CPUs. */
static int wait_for_cpus(int pid, int n_cpus)
{
    for (int poll = 0; poll < POLLS && n_cpus_of(pid) != n_cpus; poll++)
        usleep(POLL_US);
    return n_cpus_of(pid);
}

/* Waits for a process other than this one to join. */
static int wait_for_another(int pid)
{
    for (int poll = 0; poll < POLLS; poll++) {
        int n = 0, list[16];
        DLB_DROM_GetPidList(list, &n, 16);
        for (int i = 0; i < n; i++)
            if (list[i] != pid)
                return list[i];
        usleep(POLL_US);
    }
    return 0;
}

/* Waits until the program has seen that it has one thread on one CPU. */
static int wait_until_confined(const char *path)
{
    for (int poll = 0; poll < POLLS; poll++) {
        int threads = 0, cpus = 0;
        FILE *told = fopen(path, "r");
        while (told != NULL && fscanf(told, "%d %d", &threads, &cpus) == 2) {
        }
        if (told != NULL)
            fclose(told);
        if (threads == 1 && cpus == 1)
            return 0;
        usleep(POLL_US);
    }
    return -1;
}

/* Sets the CPU aside for the program, which is another process than the shell that starts it. */
static void run(int cpu, const char *teams)
{
    char command[4096], **environment = calloc(1, sizeof *environment);
    cpu_set_t own = of(cpu);
    size_t n = 0;
    for (; environ[n] != NULL; n++) {
        environment = realloc(environment, (n + 2) * sizeof *environment);
        environment[n] = strdup(environ[n]);
        environment[n + 1] = NULL;
    }
    tell("attach", DLB_DROM_Attach());
    tell("init", DLB_DROM_PreInit(getpid(), &own, WAIT, &environment));
    snprintf(command, sizeof command, "cd sub && %s default 5 > told; :", teams);
    execve("/bin/sh", (char *[]){"sh", "-c", command, NULL}, environment);
    _exit(1);
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    int pid = atoi(argv[1]), first = atoi(argv[2]), second = atoi(argv[3]), status = 0;
    cpu_set_t of_child = of(first), other = of(second);
    pid_t child = fork();
    if (child == 0)
        run(first, argv[4]);
    tell("attach", DLB_DROM_Attach());
    int joined = wait_for_another(pid);
    tell("is shell", joined == child);
    tell("child", n_cpus_of(joined));
    cpu_set_t has;
    DLB_DROM_GetProcessMask(joined, &has, 0);
    tell("on first", CPU_ISSET(first, &has) != 0);
    tell("mask", wait_for_cpus(pid, 1));
    tell("overlap", DLB_DROM_PreInit(getpid(), &of_child, 0, NULL));
    tell("confined", wait_until_confined("sub/told"));
    /* It ends by itself, and its CPU is the other's again. */
    fclose(fopen("sub/done", "w"));
    waitpid(child, &status, 0);
    tell("ended", status);
    tell("mask", wait_for_cpus(pid, 2));
    tell("finalize", DLB_DROM_PostFinalize(child, WAIT));
    /* One that never joins keeps its CPU until then. */
    child = fork();
    if (child == 0)
        _exit(0);
    tell("init", DLB_DROM_PreInit(child, &other, WAIT, NULL));
    tell("again", DLB_DROM_PreInit(child, &other, 0, NULL));
    waitpid(child, &status, 0);
    tell("mask", n_cpus_of(pid));
    tell("finalize", DLB_DROM_PostFinalize(child, WAIT));
    tell("mask", n_cpus_of(pid));
    return 0;
}
