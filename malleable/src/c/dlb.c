/* The symbols of DLB for programs that were linked with it: DROM and the polling calls. Lending of idle CPUs between
 * processes (LeWI) is not supported: its calls return what DLB returns while no policy lends, which programs must handle.
 *
 * Numbers and signatures are the public interface of DLB 2 and 3 (dlb.h, dlb_drom.h, dlb_errors.h, dlb_types.h). */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

enum {
    DLB_NOUPDT = 2,
    DLB_SUCCESS = 0,
    DLB_ERR_UNKNOWN = -1,
    DLB_ERR_NOINIT = -2,
    DLB_ERR_INIT = -3,
    DLB_ERR_DISBLD = -4,
    DLB_ERR_NOSHMEM = -5,
    DLB_ERR_NOCBK = -10,
    DLB_ERR_NOCOMP = -12,
    DLB_ERR_NOPOL = -15,
};

/* A `cpu_set_t`, which programs pass as an untyped pointer. */
typedef void *cpus;
typedef const void *const_cpus;

enum { SET_NUM_THREADS = 1, SET_PROCESS_MASK = 3, MOST_CALLBACKS = 8 };
typedef void callback(void);

static _Atomic bool is_initialized;
static pthread_mutex_t setting = PTHREAD_MUTEX_INITIALIZER;
static struct {
    callback *function;
    void *argument;
} callbacks[MOST_CALLBACKS];

RMS_EXPORT int DLB_Init(int n_cpus, const_cpus mask, const char *arguments)
{
    (void)n_cpus, (void)mask, (void)arguments;
    if (atomic_exchange(&is_initialized, true))
        return DLB_ERR_INIT;
    /* The program continues with its present CPUs. If it never polls, its OpenMP runtime acknowledges what follows. */
    rms_acknowledge_told(0);
    return DLB_SUCCESS;
}

RMS_EXPORT int DLB_Finalize(void)
{
    return atomic_exchange(&is_initialized, false) ? DLB_SUCCESS : DLB_NOUPDT;
}

RMS_EXPORT int DLB_Enable(void)
{
    return atomic_load(&is_initialized) ? DLB_SUCCESS : DLB_ERR_NOINIT;
}

RMS_EXPORT int DLB_Disable(void)
{
    return atomic_load(&is_initialized) ? DLB_SUCCESS : DLB_ERR_NOINIT;
}

RMS_EXPORT int DLB_PollDROM(int *n_cpus, cpus mask)
{
    if (!atomic_load(&is_initialized))
        return DLB_ERR_NOINIT;
    int changed = rms_malleable_changed();
    if (changed < 0)
        return DLB_ERR_DISBLD;
    if (changed == 0)
        return DLB_NOUPDT;
    cpu_set_t now;
    int n = rms_malleable_mask((unsigned char *)&now, sizeof now);
    if (n < 0)
        return DLB_ERR_DISBLD;
    if (n_cpus != NULL)
        *n_cpus = n;
    if (mask != NULL)
        memcpy(mask, &now, sizeof now);
    /* As in DLB, a poll acknowledges the mask that it returns. */
    rms_malleable_acknowledge(0);
    return DLB_SUCCESS;
}

RMS_EXPORT int DLB_PollDROM_Update(void)
{
    int n_cpus;
    cpu_set_t mask;
    int status = DLB_PollDROM(&n_cpus, &mask);
    if (status != DLB_SUCCESS)
        return status;
    pthread_mutex_lock(&setting);
    void (*set_threads)(int, void *) = (void (*)(int, void *))callbacks[SET_NUM_THREADS].function;
    void *threads_argument = callbacks[SET_NUM_THREADS].argument;
    void (*set_mask)(const_cpus, void *) = (void (*)(const_cpus, void *))callbacks[SET_PROCESS_MASK].function;
    void *mask_argument = callbacks[SET_PROCESS_MASK].argument;
    pthread_mutex_unlock(&setting);
    if (set_mask != NULL)
        set_mask(&mask, mask_argument);
    if (set_threads != NULL)
        set_threads(n_cpus, threads_argument);
    return DLB_SUCCESS;
}

RMS_EXPORT int DLB_CallbackSet(int which, callback *function, void *argument)
{
    if (which <= 0 || which >= MOST_CALLBACKS)
        return DLB_ERR_NOCBK;
    pthread_mutex_lock(&setting);
    callbacks[which].function = function;
    callbacks[which].argument = argument;
    pthread_mutex_unlock(&setting);
    return DLB_SUCCESS;
}

RMS_EXPORT int DLB_CallbackGet(int which, callback **function, void **argument)
{
    if (which <= 0 || which >= MOST_CALLBACKS)
        return DLB_ERR_NOCBK;
    if (function == NULL || argument == NULL)
        return DLB_ERR_NOCOMP;
    pthread_mutex_lock(&setting);
    *function = callbacks[which].function;
    *argument = callbacks[which].argument;
    pthread_mutex_unlock(&setting);
    return DLB_SUCCESS;
}

/* Both lists of errors use the same numbers except for this one. */
static int status_of(int status)
{
    return status == RMS_MALLEABLE_NOT_ATTACHED ? DLB_ERR_NOSHMEM : status;
}

RMS_EXPORT int DLB_DROM_Attach(void)
{
    return status_of(rms_drom_attach());
}

RMS_EXPORT int DLB_DROM_Detach(void)
{
    return status_of(rms_drom_detach());
}

RMS_EXPORT int DLB_DROM_GetNumCpus(int *n_cpus)
{
    return status_of(rms_drom_cpus(n_cpus));
}

RMS_EXPORT int DLB_DROM_GetPidList(int *pids, int *n_pids, int capacity)
{
    return status_of(rms_drom_pids(pids, n_pids, capacity));
}

RMS_EXPORT int DLB_DROM_GetProcessMask(int pid, cpus mask, int flags)
{
    return status_of(rms_drom_get_mask(pid, mask, sizeof(cpu_set_t), flags));
}

RMS_EXPORT int DLB_DROM_SetProcessMask(int pid, const_cpus mask, int flags)
{
    return status_of(rms_drom_set_mask(pid, mask, sizeof(cpu_set_t), flags));
}

/* Sets a variable in this process, or in an allocated environment that the program will pass to exec. */
static int set_variable(const char *name, const char *value, char ***environment)
{
    if (environment == NULL || *environment == NULL)
        return setenv(name, value, 1) == 0 ? DLB_SUCCESS : DLB_ERR_UNKNOWN;
    size_t n = 0, length = strlen(name);
    char *text = malloc(length + strlen(value) + 2);
    if (text == NULL)
        return DLB_ERR_UNKNOWN;
    sprintf(text, "%s=%s", name, value);
    for (; (*environment)[n] != NULL; n++) {
        if (strncmp((*environment)[n], text, length + 1) == 0) {
            (*environment)[n] = text;
            return DLB_SUCCESS;
        }
    }
    char **longer = realloc(*environment, (n + 2) * sizeof *longer);
    if (longer == NULL) {
        free(text);
        return DLB_ERR_UNKNOWN;
    }
    longer[n] = text;
    longer[n + 1] = NULL;
    *environment = longer;
    return DLB_SUCCESS;
}

RMS_EXPORT int DLB_DROM_PreInit(int pid, const_cpus mask, int flags, char ***next_environment)
{
    char number[16];
    if (mask == NULL)
        return DLB_ERR_NOCOMP;
    snprintf(number, sizeof number, "%d", pid);
    int status = set_variable("RMS_DROM_PRE_INIT", number, next_environment);
    return status != DLB_SUCCESS ? status : status_of(rms_drom_pre_init(pid, mask, sizeof(cpu_set_t), flags));
}

RMS_EXPORT int DLB_DROM_PostFinalize(int pid, int flags)
{
    return status_of(rms_drom_post_finalize(pid, flags));
}

RMS_EXPORT int DLB_DROM_RecoverStolenCpus(int pid)
{
    (void)pid;
    return DLB_NOUPDT;
}

RMS_EXPORT const char *DLB_Strerror(int number)
{
    static const struct {
        int number;
        const char *text;
    } texts[] = {
        {2, "Nothing to update"},
        {1, "Noted"},
        {0, "Success"},
        {-2, "DLB is not initialized"},
        {-3, "It is initialized already"},
        {-4, "DLB is disabled: this process is in no malleable job"},
        {-5, "Not attached, or this process is in no malleable job"},
        {-6, "No such process has joined"},
        {-7, "The process has not taken up the last change"},
        {-8, "These CPUs are not the job's, or another process's"},
        {-9, "The process did not take up the change in time"},
        {-10, "No such callback"},
        {-12, "An argument is NULL, or cannot be"},
        {-14, "As many processes have joined as may"},
        {-15, "Lending of CPUs by the program (LeWI) is not served"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (texts[i].number == number)
            return texts[i].text;
    }
    return "Unknown error";
}

#define NOT_SERVED(NAME, PARAMETERS)                                                                                       \
    RMS_EXPORT int NAME PARAMETERS                                                                                       \
    {                                                                                                                    \
        return DLB_ERR_NOPOL;                                                                                            \
    }

#pragma GCC diagnostic ignored "-Wunused-parameter"
NOT_SERVED(DLB_Lend, (void))
NOT_SERVED(DLB_LendCpu, (int cpu))
NOT_SERVED(DLB_LendCpus, (int n_cpus))
NOT_SERVED(DLB_LendCpuMask, (const_cpus mask))
NOT_SERVED(DLB_Reclaim, (void))
NOT_SERVED(DLB_ReclaimCpu, (int cpu))
NOT_SERVED(DLB_ReclaimCpus, (int n_cpus))
NOT_SERVED(DLB_ReclaimCpuMask, (const_cpus mask))
NOT_SERVED(DLB_AcquireCpu, (int cpu))
NOT_SERVED(DLB_AcquireCpus, (int n_cpus))
NOT_SERVED(DLB_AcquireCpuMask, (const_cpus mask))
NOT_SERVED(DLB_Borrow, (void))
NOT_SERVED(DLB_BorrowCpu, (int cpu))
NOT_SERVED(DLB_BorrowCpus, (int n_cpus))
NOT_SERVED(DLB_BorrowCpuMask, (const_cpus mask))
NOT_SERVED(DLB_Return, (void))
NOT_SERVED(DLB_ReturnCpu, (int cpu))
NOT_SERVED(DLB_ReturnCpuMask, (const_cpus mask))
