/* The OpenMP runtimes of this process: there may be several, and each is asked for itself. */
#ifndef RMS_RUNTIME_H
#define RMS_RUNTIME_H

/* Questions to one runtime. */
struct rms_runtime {
    int (*max_threads)(void);
    int (*level)(void);
    int (*team_size)(int level);
    void (*set_threads)(int threads);
};

/* The runtime that a function belongs to; NULL where it lacks one of these. */
const struct rms_runtime *rms_runtime_of(void *function);

/* So many threads a region may have that is begun now, of `limit` that all of the process may have. */
unsigned rms_room(const struct rms_runtime *runtime, unsigned limit);

/* What `caller` would call by this name without this library. */
void *rms_next(const char *name, void *own, const void *caller);

#endif
