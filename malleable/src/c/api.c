/* The API for programs that manage their own threads: they poll, or register a callback. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "drom.h"
#include "process.h"

static bool look(struct rms_view *view)
{
    return rms_joined() && rms_look(view);
}

/* The same for a caller who is told what is there. */
static bool tell(struct rms_view *view)
{
    if (!look(view))
        return false;
    atomic_store_explicit(&rms_told_seq, view->seq, memory_order_relaxed);
    return true;
}

RMS_EXPORT int rms_malleable_cpus(void)
{
    struct rms_view view;
    return tell(&view) ? (int)view.n_cpus : RMS_MALLEABLE_NO_JOB;
}

RMS_EXPORT int rms_malleable_mask(unsigned char *mask, size_t n_bytes)
{
    struct rms_view view;
    if (!tell(&view))
        return RMS_MALLEABLE_NO_JOB;
    if (!rms_is_mask(mask, n_bytes))
        return RMS_MALLEABLE_INVALID;
    rms_bytes_of_mask(view.mask, mask, n_bytes);
    return (int)view.n_cpus;
}

RMS_EXPORT int rms_malleable_changed(void)
{
    struct rms_view view;
    rms_acknowledge_by_program();
    if (!tell(&view))
        return RMS_MALLEABLE_NO_JOB;
    return view.seq != atomic_load_explicit(&rms_taken_up_seq, memory_order_relaxed);
}

RMS_EXPORT int rms_malleable_acknowledge(int threads)
{
    rms_acknowledge_by_program();
    return rms_acknowledge_told(threads);
}

int rms_acknowledge_told(int threads)
{
    struct rms_view view;
    if (!look(&view))
        return RMS_MALLEABLE_NO_JOB;
    if (threads < 0)
        return RMS_MALLEABLE_INVALID;
    /* A program that still has more threads than CPUs has not adapted to this change. */
    if (threads > (int)view.n_cpus)
        return RMS_MALLEABLE_PENDING;
    /* What came after the program was told it has not taken up, though its threads may fit already. */
    uint64_t told = atomic_load_explicit(&rms_told_seq, memory_order_relaxed);
    uint64_t taken_up = told != 0 ? told : view.seq;
    atomic_store_explicit(&rms_taken_up_seq, taken_up, memory_order_relaxed);
    rms_acknowledge(threads > 0 ? view.seq : taken_up, (unsigned)threads);
    return RMS_MALLEABLE_OK;
}

/* Guards the variables below. */
static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER;
static pthread_t watcher;
static rms_malleable_callback changed;
static void *argument_of_changed;
/* Whether the watcher has stopped by itself. */
static _Atomic bool has_stopped;
/* A pipe: what is written to its second end stops the watcher; -1 if there is no watcher. */
static int stop[2] = {-1, -1};
static struct stat stop_identity;

/* A supervisor that no longer knows this process lets it join again after a while. */
static bool look_again(struct rms_view *view)
{
    struct pollfd stopped = {.fd = stop[0], .events = POLLIN};
    for (int attempt = 0; attempt < 3; attempt++) {
        if (rms_look(view))
            return true;
        if (poll(&stopped, 1, 1000) != 0)
            return false;
    }
    return false;
}

static void *watch(void *unused)
{
    (void)unused;
    struct rms_view view;
    while (look_again(&view)) {
        changed((int)view.n_cpus, argument_of_changed);
        atomic_store_explicit(&rms_taken_up_seq, view.seq, memory_order_relaxed);
        rms_acknowledge(view.seq, view.n_cpus);
        if (!rms_wait(view.seq, stop[0]))
            break;
    }
    atomic_store(&has_stopped, true);
    return NULL;
}

/* `watching` must be held. */
static void close_stop(void)
{
    for (int i = 0; i < 2; i++) {
        if (rms_is_file(stop[i], &stop_identity))
            close(stop[i]);
        stop[i] = -1;
    }
}

static bool open_stop(void)
{
    if (pipe2(stop, O_CLOEXEC) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        stop[i] = rms_keep_file(stop[i], &stop_identity);
    return true;
}

/* Returns whether there was a watcher. `watching` must be held. */
static bool join_watcher(void)
{
    if (stop[1] < 0)
        return false;
    /* A child process may have the pipe, too: closing it would not do. */
    if (rms_is_file(stop[1], &stop_identity))
        (void)!write(stop[1], "", 1);
    pthread_join(watcher, NULL);
    close_stop();
    return true;
}

/* The child of a fork has no watcher. */
static void after_fork(void)
{
    close_stop();
    pthread_mutex_init(&watching, NULL);
}

static void register_after_fork(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

RMS_EXPORT int rms_malleable_watch(rms_malleable_callback callback, void *argument)
{
    struct rms_view view;
    rms_acknowledge_by_program();
    if (!look(&view))
        return RMS_MALLEABLE_NO_JOB;
    if (callback == NULL)
        return RMS_MALLEABLE_INVALID;
    static pthread_once_t is_registered = PTHREAD_ONCE_INIT;
    pthread_once(&is_registered, register_after_fork);
    int status = RMS_MALLEABLE_FAILED;
    pthread_mutex_lock(&watching);
    if (stop[1] >= 0 && !atomic_load(&has_stopped)) {
        status = RMS_MALLEABLE_ALREADY;
    } else {
        join_watcher();
        changed = callback;
        argument_of_changed = argument;
        atomic_store(&has_stopped, false);
        /* Signals of the program must be delivered to its own threads. */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        if (open_stop() && pthread_create(&watcher, NULL, watch, NULL) == 0)
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
    pthread_mutex_lock(&watching);
    int status = join_watcher() ? RMS_MALLEABLE_OK : RMS_MALLEABLE_NOT_ATTACHED;
    pthread_mutex_unlock(&watching);
    return status;
}
