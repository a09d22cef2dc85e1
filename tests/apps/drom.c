/* Moves CPUs between two OpenMP processes of its job by DROM's calls, and says what came of each: `what status`, and masks.
 *
 *   drom PID1 PID2 CPU1 CPU2 FOREIGN
 *
 * It uses DLB's names, as programs do that were linked with it. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

int DLB_Init(int n_cpus, const void *mask, const char *arguments);
int DLB_Finalize(void);
int DLB_PollDROM(int *n_cpus, void *mask);
int DLB_Lend(void);
int DLB_Borrow(void);
int DLB_Reclaim(void);
int DLB_DROM_Attach(void);
int DLB_DROM_Detach(void);
int DLB_DROM_GetNumCpus(int *n_cpus);
int DLB_DROM_GetPidList(int *pids, int *n_pids, int capacity);
int DLB_DROM_GetProcessMask(int pid, void *mask, int flags);
int DLB_DROM_SetProcessMask(int pid, const void *mask, int flags);
int DLB_DROM_PreInit(int pid, const void *mask, int flags, char ***environment);
int DLB_DROM_PostFinalize(int pid, int flags);

enum { STEAL = 1, WAIT = 4 };

static cpu_set_t of(int first, int second)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    if (second >= 0)
        CPU_SET(second, &set);
    return set;
}

static void tell(const char *what, int status)
{
    printf("%s %d\n", what, status);
    fflush(stdout);
}

static void tell_masks(const int *pids)
{
    for (int i = 0; i < 2; i++) {
        cpu_set_t set;
        int status = DLB_DROM_GetProcessMask(pids[i], &set, 0);
        printf("mask%d %d\n", i + 1, status == 0 ? CPU_COUNT(&set) : status);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    int pids[] = {atoi(argv[1]), atoi(argv[2])}, cpus[] = {atoi(argv[3]), atoi(argv[4])};
    cpu_set_t first = of(cpus[0], -1), second = of(cpus[1], -1), both = of(cpus[0], cpus[1]), foreign = of(atoi(argv[5]), -1);
    int n = 0, list[16];
    tell("unattached", DLB_DROM_GetPidList(list, &n, 16));
    tell("attach", DLB_DROM_Attach());
    DLB_DROM_GetNumCpus(&n);
    tell("cpus", n);
    DLB_DROM_GetPidList(list, &n, 16);
    tell("processes", n);
    tell_masks(pids);
    tell("set", DLB_DROM_SetProcessMask(pids[0], &first, WAIT));
    tell_masks(pids);
    tell("overlap", DLB_DROM_SetProcessMask(pids[1], &both, 0));
    tell("foreign", DLB_DROM_SetProcessMask(pids[1], &foreign, 0));
    tell("dead", DLB_DROM_SetProcessMask(999999, &second, 0));
    tell("last", DLB_DROM_SetProcessMask(pids[1], &first, STEAL));
    tell("other", DLB_DROM_SetProcessMask(pids[1], &second, STEAL | WAIT));
    tell("finalize", DLB_DROM_PostFinalize(pids[0], WAIT));
    tell("again", DLB_DROM_PostFinalize(pids[0], 0));
    tell("finalize", DLB_DROM_PostFinalize(pids[1], WAIT));
    tell_masks(pids);
    tell("registered", DLB_DROM_PreInit(pids[0], &first, 0, NULL));
    tell("detach", DLB_DROM_Detach());
    tell("detached", DLB_DROM_Detach());
    tell("poll", DLB_PollDROM(&n, NULL));
    tell("init", DLB_Init(0, NULL, NULL));
    tell("poll", DLB_PollDROM(&n, NULL));
    tell("poll", DLB_PollDROM(&n, NULL));
    tell("lend", DLB_Lend());
    tell("borrow", DLB_Borrow());
    tell("reclaim", DLB_Reclaim());
    tell("finish", DLB_Finalize());
    return 0;
}
