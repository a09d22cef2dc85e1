/* CPUs of a running job of Limber that change: for programs whose threads are not OpenMP's, and for those that move the
 * CPUs of others (DROM). OpenMP programs need none of this: `rms run --malleable-threads` is enough.
 *
 * Nothing here ends the program: outside of such a job every function returns RMS_MALLEABLE_NO_JOB at once, and the program
 * uses the CPUs that it finds. All functions may be called from any thread, and in the child of a fork, which joins as a
 * process of its own. */
#ifndef RMS_MALLEABLE_H
#define RMS_MALLEABLE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Why a call was refused. */
enum rms_malleable_error {
    RMS_MALLEABLE_OK = 0,
    /* The answer cannot be parsed, or the machine has no memory or files left. */
    RMS_MALLEABLE_FAILED = -1,
    /* Detached, or never attached; not watched. */
    RMS_MALLEABLE_NOT_ATTACHED = -2,
    /* Watched already, or a process of that number has joined already. */
    RMS_MALLEABLE_ALREADY = -3,
    /* This process is in no job that was started with --malleable-threads, or the job has ended. */
    RMS_MALLEABLE_NO_JOB = -5,
    /* No process of that number has joined. */
    RMS_MALLEABLE_NO_PROCESS = -6,
    /* It has not taken up the last change yet. */
    RMS_MALLEABLE_PENDING = -7,
    /* CPUs that the job does not have on this node, or that were set aside for another process. */
    RMS_MALLEABLE_NOT_ALLOWED = -8,
    /* It did not take up the change in time; its threads were moved nevertheless. */
    RMS_MALLEABLE_TIMEOUT = -9,
    /* NULL where something is to be read, written or called, a mask of more than 1 MiB, a negative number of threads or
     * process id. */
    RMS_MALLEABLE_INVALID = -12,
    /* As many processes of the job have joined as may. */
    RMS_MALLEABLE_TOO_MANY = -14,
};

/* A program with threads of its own. */

/* The number of CPUs that this process is to use now, or an error. The first call joins the job, which takes a second at
 * most; later ones only read memory. */
int rms_malleable_cpus(void);

/* The same, and which ones: bit `i % 8` of byte `i / 8` is CPU `i`. Bytes beyond the highest CPU are zero. */
int rms_malleable_mask(unsigned char *mask, size_t n_bytes);

/* 1 if the CPUs have changed since this program acknowledged last, else 0. Who calls this, `rms_malleable_acknowledge` or
 * `rms_malleable_watch` acknowledges all changes itself; until then, the OpenMP runtime does at parallel regions. */
int rms_malleable_changed(void);

/* Acknowledges the change of which the program was told last, by one of the functions above: no more than `threads` threads
 * use CPUs from now on, and the RMS takes away what was given back. 0: none, or the program does not count them. A change
 * that is not acknowledged is enforced after a while. */
int rms_malleable_acknowledge(int threads);

/* Called from a thread of the library's own after each change; what `rms_malleable_cpus` said before the call is
 * acknowledged when it returns. It is called once at the beginning, too. */
typedef void (*rms_malleable_callback)(int n_cpus, void *argument);
int rms_malleable_watch(rms_malleable_callback changed, void *argument);

/* Ends that. Waits for a call that is under way, so it must not be called from there. */
int rms_malleable_unwatch(void);

/* A program that moves CPUs between the processes of its job on this node, as DROM does. Masks are as above; process 0 is
 * the calling one. Each call asks the supervisor of the job and waits for its answer. */

enum rms_drom_flag {
    RMS_DROM_NONE = 0,
    /* Take CPUs that were set aside for other processes away from them. */
    RMS_DROM_STEAL = 1 << 0,
    /* Give them back when the process is finalized. */
    RMS_DROM_RETURN = 1 << 1,
    /* Wait until the other processes have taken up the change, or the RMS has enforced it. Who waits is not waited for: its
     * own part of the change is in force when the call returns, and it takes it up then. */
    RMS_DROM_WAIT = 1 << 2,
};

int rms_drom_attach(void);
int rms_drom_detach(void);

/* How many CPUs the job has on this node. */
int rms_drom_cpus(int *n_cpus);

/* Which processes have joined; `n_pids` says how many were written. */
int rms_drom_pids(int *pids, int *n_pids, int capacity);

int rms_drom_get_mask(int pid, unsigned char *mask, size_t n_bytes, int flags);
int rms_drom_set_mask(int pid, const unsigned char *mask, size_t n_bytes, int flags);

/* Sets CPUs aside for a process that has not joined yet: this one, before it executes another program, or a child. */
int rms_drom_pre_init(int pid, const unsigned char *mask, size_t n_bytes, int flags);

/* What was set aside for the process is the others' again. A process that had joined and has ended has given it back itself:
 * RMS_MALLEABLE_NO_PROCESS. */
int rms_drom_post_finalize(int pid, int flags);

#ifdef __cplusplus
}
#endif

#endif
