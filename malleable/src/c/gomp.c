/* Programs compiled by GCC: this library intercepts the start of each parallel region, limits the number of threads and
 * calls libgomp.
 *
 * It defines every entry point by which GCC's code starts a team, including those of old releases (`_start`). The
 * signatures are the binary interface of libgomp. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "process.h"
#include "runtime.h"

typedef void body(void *);

/* The function of libgomp behind an entry point. */
struct next {
    const char *name;
    _Atomic(void *) function;
    _Atomic(const struct rms_runtime *) runtime;
};

static void *resolve(struct next *next, void *own, const void *caller, const struct rms_runtime **runtime)
{
    void *function = atomic_load_explicit(&next->function, memory_order_acquire);
    if (function == NULL) {
        function = rms_next(next->name, own, caller);
        if (function == NULL) {
            fprintf(stderr, "librms-malleable: this program calls %s, and no OpenMP runtime is loaded\n", next->name);
            abort();
        }
        atomic_store_explicit(&next->runtime, rms_runtime_of(function), memory_order_relaxed);
        atomic_store_explicit(&next->function, function, memory_order_release);
    }
    *runtime = atomic_load_explicit(&next->runtime, memory_order_relaxed);
    return function;
}

/* `wanted` is the num_threads clause, or 0 if there is none. */
static unsigned cap(const struct rms_runtime *runtime, unsigned wanted)
{
    unsigned limit = rms_limit();
    if (limit == 0 || runtime == NULL || wanted == 1)
        return wanted;
    unsigned room = rms_room(runtime, limit);
    unsigned threads = wanted != 0 ? wanted : (unsigned)runtime->max_threads();
    if (threads > room)
        wanted = threads = room;
    if (runtime->level() == 0)
        rms_note_threads(threads);
    return wanted;
}

/* Defines an entry point: `PARAMETERS` as libgomp declares them, including `threads`; `ARGUMENTS` as they are passed to
 * libgomp. */
#define ENTRY(RESULT, NAME, PARAMETERS, ARGUMENTS)                                                                       \
    RMS_EXPORT RESULT NAME PARAMETERS                                                                                    \
    {                                                                                                                    \
        static struct next next = {.name = #NAME};                                                                       \
        const struct rms_runtime *runtime;                                                                               \
        RESULT(*function) PARAMETERS;                                                                                    \
        *(void **)&function = resolve(&next, (void *)NAME, __builtin_return_address(0), &runtime);                       \
        threads = cap(runtime, threads);                                                                                 \
        return function ARGUMENTS;                                                                                       \
    }

#define LOOP(NAME)                                                                                                       \
    ENTRY(void, NAME,                                                                                                    \
          (body *run, void *data, unsigned threads, long start, long end, long step, long chunk, unsigned flags),        \
          (run, data, threads, start, end, step, chunk, flags))

#define LOOP_WITHOUT_CHUNK(NAME)                                                                                         \
    ENTRY(void, NAME, (body *run, void *data, unsigned threads, long start, long end, long step, unsigned flags),        \
          (run, data, threads, start, end, step, flags))

#define OLD_LOOP(NAME)                                                                                                   \
    ENTRY(void, NAME, (body *run, void *data, unsigned threads, long start, long end, long step, long chunk),            \
          (run, data, threads, start, end, step, chunk))

ENTRY(void, GOMP_parallel, (body *run, void *data, unsigned threads, unsigned flags), (run, data, threads, flags))
ENTRY(unsigned, GOMP_parallel_reductions, (body *run, void *data, unsigned threads, unsigned flags),
      (run, data, threads, flags))
ENTRY(void, GOMP_parallel_sections, (body *run, void *data, unsigned threads, unsigned n_sections, unsigned flags),
      (run, data, threads, n_sections, flags))

LOOP(GOMP_parallel_loop_static)
LOOP(GOMP_parallel_loop_dynamic)
LOOP(GOMP_parallel_loop_guided)
LOOP(GOMP_parallel_loop_nonmonotonic_dynamic)
LOOP(GOMP_parallel_loop_nonmonotonic_guided)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_runtime)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_nonmonotonic_runtime)
LOOP_WITHOUT_CHUNK(GOMP_parallel_loop_maybe_nonmonotonic_runtime)

ENTRY(void, GOMP_parallel_start, (body *run, void *data, unsigned threads), (run, data, threads))
ENTRY(void, GOMP_parallel_sections_start, (body *run, void *data, unsigned threads, unsigned n_sections),
      (run, data, threads, n_sections))
OLD_LOOP(GOMP_parallel_loop_static_start)
OLD_LOOP(GOMP_parallel_loop_dynamic_start)
OLD_LOOP(GOMP_parallel_loop_guided_start)
ENTRY(void, GOMP_parallel_loop_runtime_start,
      (body *run, void *data, unsigned threads, long start, long end, long step), (run, data, threads, start, end, step))
