/* The OpenMP runtimes of this process: there may be several, and each one is called separately. */
#ifndef RMS_RUNTIME_H
#define RMS_RUNTIME_H

/* Functions of one runtime. */
struct rms_runtime {
    int (*max_threads)(void);
    int (*level)(void);
    int (*team_size)(int level);
    void (*set_threads)(int threads);
};

/* Returns the runtime that a function belongs to; NULL if it lacks one of these functions. */
const struct rms_runtime *rms_runtime_of(void *function);

/* Returns how many threads a region that starts now may have, if all of the process may have `limit`. */
unsigned rms_room(const struct rms_runtime *runtime, unsigned limit);

/* Returns the function that `caller` would call by this name without this library. */
void *rms_next(const char *name, void *own, const void *caller);

#endif
