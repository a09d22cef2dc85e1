/* Finds the OpenMP runtimes behind this library, and computes how many threads are left for a nested region. */
#define _GNU_SOURCE
#include "runtime.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

/* More than one runtime is rare, and more than a few do not occur. */
#define MOST_RUNTIMES 8

static pthread_mutex_t finding = PTHREAD_MUTEX_INITIALIZER;
static struct {
    void *base;
    struct rms_runtime runtime;
} runtimes[MOST_RUNTIMES];
static int n_runtimes;

static struct rms_runtime look_up(const char *file)
{
    struct rms_runtime runtime = {0};
    void *object = dlopen(file, RTLD_LAZY | RTLD_NOLOAD);
    if (object == NULL)
        return runtime;
    *(void **)&runtime.max_threads = dlsym(object, "omp_get_max_threads");
    *(void **)&runtime.level = dlsym(object, "omp_get_level");
    *(void **)&runtime.team_size = dlsym(object, "omp_get_team_size");
    *(void **)&runtime.set_threads = dlsym(object, "omp_set_num_threads");
    dlclose(object);
    return runtime;
}

const struct rms_runtime *rms_runtime_of(void *function)
{
    Dl_info object;
    if (function == NULL || dladdr(function, &object) == 0)
        return NULL;
    const struct rms_runtime *found = NULL;
    pthread_mutex_lock(&finding);
    for (int i = 0; i < n_runtimes && found == NULL; i++) {
        if (runtimes[i].base == object.dli_fbase)
            found = &runtimes[i].runtime;
    }
    if (found == NULL && n_runtimes < MOST_RUNTIMES) {
        struct rms_runtime runtime = look_up(object.dli_fname);
        if (runtime.max_threads != NULL && runtime.level != NULL && runtime.team_size != NULL
            && runtime.set_threads != NULL) {
            runtimes[n_runtimes].base = object.dli_fbase;
            runtimes[n_runtimes].runtime = runtime;
            found = &runtimes[n_runtimes++].runtime;
        }
    }
    pthread_mutex_unlock(&finding);
    return found;
}

unsigned rms_room(const struct rms_runtime *runtime, unsigned limit)
{
    unsigned room = limit;
    /* Each thread of the enclosing teams starts such a region. */
    for (int level = runtime->level(); level > 0; level--) {
        int size = runtime->team_size(level);
        if (size > 1)
            room /= (unsigned)size;
    }
    return room > 0 ? room : 1;
}

void *rms_next(const char *name, void *own, const void *caller)
{
    void *next = dlsym(RTLD_NEXT, name);
    if (next != NULL && next != own)
        return next;
    /* A plugin has loaded a runtime with local symbols. */
    Dl_info object;
    if (dladdr(caller, &object) == 0)
        return NULL;
    void *handle = dlopen(object.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL)
        return NULL;
    next = dlsym(handle, name);
    dlclose(handle);
    return next == own ? NULL : next;
}
