/* The API for programs that manage their own threads: they poll, or register a callback. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "drom.h"
#include "process.h"

/* The last change that this program acknowledged. */
static _Atomic uint64_t acknowledged;

static bool look(struct rms_view *view)
{
    rms_acknowledge_by_program();
    return rms_joined() && rms_look(view);
}

RMS_EXPORT int rms_malleable_cpus(void)
{
    struct rms_view view;
    return look(&view) ? (int)view.n_cpus : RMS_MALLEABLE_NO_JOB;
}

RMS_EXPORT int rms_malleable_mask(unsigned char *mask, size_t n_bytes)
{
    struct rms_view view;
    if (!look(&view))
        return RMS_MALLEABLE_NO_JOB;
    if (!rms_is_mask(mask, n_bytes))
        return RMS_MALLEABLE_INVALID;
    rms_bytes_of_mask(view.mask, mask, n_bytes);
    return (int)view.n_cpus;
}

RMS_EXPORT int rms_malleable_changed(void)
{
    struct rms_view view;
    if (!look(&view))
        return RMS_MALLEABLE_NO_JOB;
    return view.seq != atomic_load_explicit(&acknowledged, memory_order_relaxed);
}

RMS_EXPORT int rms_malleable_acknowledge(int threads)
{
    struct rms_view view;
    if (!look(&view))
        return RMS_MALLEABLE_NO_JOB;
    if (threads < 0)
        return RMS_MALLEABLE_INVALID;
    /* A program that still has more threads than CPUs has not adapted to this change. */
    if (threads > (int)view.n_cpus)
        return RMS_MALLEABLE_PENDING;
    atomic_store_explicit(&acknowledged, view.seq, memory_order_relaxed);
    rms_acknowledge(view.seq, (unsigned)threads);
    return RMS_MALLEABLE_OK;
}

/* Guards the variables below. */
static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;
static pthread_t watcher;
static rms_malleable_callback changed;
static void *argument_of_changed;
/* A pipe: closing its second end stops the watcher thread; -1 if there is no watcher. */
static int stop[2] = {-1, -1};
/* The process that started the watcher: after a fork, the child has no watcher. */
static pid_t started_in;

static void *watch(void *unused)
{
    (void)unused;
    struct rms_view view;
    while (rms_look(&view)) {
        changed((int)view.n_cpus, argument_of_changed);
        atomic_store_explicit(&acknowledged, view.seq, memory_order_relaxed);
        rms_acknowledge(view.seq, view.n_cpus);
        if (!rms_wait(view.seq, stop[0]))
            break;
    }
    return NULL;
}

static void close_stop(void)
{
    for (int i = 0; i < 2; i++) {
        if (stop[i] >= 0)
            close(stop[i]);
        stop[i] = -1;
    }
}

RMS_EXPORT int rms_malleable_watch(rms_malleable_callback callback, void *argument)
{
    struct rms_view view;
    if (!look(&view))
        return RMS_MALLEABLE_NO_JOB;
    if (callback == NULL)
        return RMS_MALLEABLE_INVALID;
    int status = RMS_MALLEABLE_FAILED;
    pthread_mutex_lock(&watching);
    if (stop[1] >= 0 && started_in == getpid()) {
        status = RMS_MALLEABLE_ALREADY;
    } else {
        close_stop();
        changed = callback;
        argument_of_changed = argument;
        started_in = getpid();
        /* Signals of the program must be delivered to its own threads. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (pipe2(stop, O_CLOEXEC) == 0 && pthread_create(&watcher, NULL, watch, NULL) == 0)
            status = RMS_MALLEABLE_OK;
        else
            close_stop();
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_mutex_unlock(&watching);
    return status;
}

RMS_EXPORT int rms_malleable_unwatch(void)
{
    if (!rms_in_job())
        return RMS_MALLEABLE_NO_JOB;
    int status = RMS_MALLEABLE_NOT_ATTACHED;
    pthread_mutex_lock(&watching);
    if (stop[1] >= 0 && started_in == getpid()) {
        close(stop[1]);
        stop[1] = -1;
        pthread_join(watcher, NULL);
        status = RMS_MALLEABLE_OK;
    }
    close_stop();
    pthread_mutex_unlock(&watching);
    return status;
}
