/* Programs with LLVM's OpenMP runtime: a tool for its tools interface (OMPT), and an interposer for the num_threads clause,
 * which a tool cannot change. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "process.h"
#include "runtime.h"

/* The part of OpenMP's omp-tools.h that is used here, so that this library can be built without that header. */
union ompt_data {
    uint64_t value;
    void *pointer;
};
typedef void ompt_function(void);
typedef ompt_function *ompt_lookup(const char *name);
struct ompt_start_tool_result {
    int (*initialize)(ompt_lookup *lookup, int device, union ompt_data *tool);
    void (*finalize)(union ompt_data *tool);
    union ompt_data tool;
};
typedef int ompt_set_callback(int event, ompt_function *callback);
enum { OMPT_THREAD_BEGIN = 1, OMPT_PARALLEL_BEGIN = 3, OMPT_PARALLEL_END = 4, OMPT_SET_ALWAYS = 5 };
enum { OMPT_THREAD_INITIAL = 1 };

static const struct rms_runtime *runtime;

/* The number that the program has set is restored at the end of each region, so that only the region sees another one. A
 * region with a single thread is not a team: the runtime reports its end only after it has discarded its numbers. These are
 * the numbers of such regions, by the nesting level at which they began. */
enum { MOST_LEVELS = 8 };
static _Thread_local struct {
    unsigned own, room;
} unfinished[MOST_LEVELS];

static void put_back(unsigned own, int level)
{
    if (runtime->level() != level)
        return;
    runtime->set_threads((int)own);
    unfinished[level].own = 0;
}

/* The runtime reads the number of threads of a region after this callback. */
static void parallel_begin(union ompt_data *task, const void *frame, union ompt_data *region, unsigned requested, int flags,
                           const void *code)
{
    (void)task, (void)frame, (void)flags, (void)code;
    region->value = 0;
    unsigned limit = rms_limit();
    int level = runtime->level();
    if (level < 0 || level >= MOST_LEVELS)
        return;
    unsigned own = (unsigned)runtime->max_threads();
    /* Used if this library is not preloaded. */
    if (unfinished[level].own != 0 && unfinished[level].room == own)
        put_back(own = unfinished[level].own, level);
    if (limit == 0 || requested == 1)
        return;
    unsigned room = rms_room(runtime, limit);
    if (own > room) {
        region->value = (uint64_t)own << 3 | (unsigned)level;
        unfinished[level].own = own;
        unfinished[level].room = room;
        runtime->set_threads((int)room);
    }
    if (level == 0)
        rms_note_threads(requested < room ? requested : room);
}

static void parallel_end(union ompt_data *region, union ompt_data *task, int flags, const void *code)
{
    (void)task, (void)flags, (void)code;
    if (region->value != 0)
        put_back((unsigned)(region->value >> 3), (int)(region->value & 7));
}

/* The end of a region with one thread; the runtime calls this function itself, too. */
RMS_EXPORT void __kmpc_end_serialized_parallel(void *place, int thread)
{
    static _Atomic(void *) known;
    void *function = atomic_load_explicit(&known, memory_order_acquire);
    if (function == NULL) {
        function = rms_next("__kmpc_end_serialized_parallel", (void *)__kmpc_end_serialized_parallel,
                            __builtin_return_address(0));
        if (function == NULL)
            return;
        atomic_store_explicit(&known, function, memory_order_release);
    }
    void (*next)(void *, int) = (void (*)(void *, int))function;
    next(place, thread);
    int level = runtime == NULL ? -1 : runtime->level();
    if (level >= 0 && level < MOST_LEVELS && unfinished[level].own != 0)
        put_back(unfinished[level].own, level);
}

/* OpenMP's pause of resources. After a hard one the runtime has forgotten its tool and would ignore a guest's CPUs; a soft
 * one may keep more, and is asked for instead. */
RMS_EXPORT int __kmpc_pause_resource(int kind)
{
    enum { SOFT = 1, HARD = 2 };
    void *function = rms_next("__kmpc_pause_resource", (void *)__kmpc_pause_resource, __builtin_return_address(0));
    if (function == NULL)
        return 1;
    int (*next)(int) = (int (*)(int))function;
    return next(kind == HARD && runtime != NULL ? SOFT : kind);
}

/* Returns the runtime's own variable of places, with which it ignores OMP_PROC_BIND; NULL without one. */
static const char *own_places(void)
{
    const char *affinity = getenv("KMP_AFFINITY");
    return affinity != NULL ? affinity : getenv("GOMP_CPU_AFFINITY");
}

/* Returns whether a list that is separated by commas has this part. */
static bool has_part(const char *list, const char *part)
{
    size_t length = strlen(part);
    while (true) {
        list += strspn(list, " \t");
        if (strncasecmp(list, part, length) == 0 && strchr(", \t", list[length]) != NULL)
            return true;
        list = strchr(list, ',');
        if (list == NULL)
            return false;
        list++;
    }
}

/* Returns whether the environment binds the threads of this process to places; the agent goes by the same variables. */
static bool binds_threads(void)
{
    const char *own = own_places();
    if (own != NULL)
        return !has_part(own, "none") && !has_part(own, "disabled");
    const char *bind = getenv("OMP_PROC_BIND");
    return bind != NULL ? !has_part(bind, "false") : getenv("OMP_PLACES") != NULL;
}

/* The runtime puts each new thread on the CPUs that the process had when the runtime started. The supervisor publishes a
 * change before it moves the threads: if that happens meanwhile, it is either seen here or comes after this. */
static void thread_begin(int kind, union ompt_data *thread)
{
    (void)thread;
    struct rms_view view;
    /* Unequal to all: the number of a complete view is even. */
    uint64_t adopted = 1;
    while (kind != OMPT_THREAD_INITIAL && rms_look(&view) && view.seq != adopted) {
        /* Fails if none of them is left, in which case another change follows. */
        (void)sched_setaffinity(0, sizeof view.mask, (const cpu_set_t *)view.mask);
        adopted = view.seq;
    }
}

/* In a child that executes nothing, the runtime puts the thread on the CPUs that the process had when the runtime started,
 * and the supervisor would take these for what the program has chosen. */
static _Thread_local cpu_set_t of_parent;
static _Thread_local bool is_of_parent;

static void before_fork(void)
{
    is_of_parent = sched_getaffinity(0, sizeof of_parent, &of_parent) == 0;
}

static void in_child(void)
{
    if (is_of_parent)
        (void)sched_setaffinity(0, sizeof of_parent, &of_parent);
}

/* Whether OMP_PROC_BIND=false was taken out of the environment, and TOPOLOGY put in, while the runtime reads it. */
static bool is_unset, is_flat;
#define TOPOLOGY "KMP_TOPOLOGY_METHOD"

static int initialize(ompt_lookup *lookup, int device, union ompt_data *tool)
{
    (void)device, (void)tool;
    if (is_unset)
        setenv("OMP_PROC_BIND", "false", 0);
    if (is_flat)
        unsetenv(TOPOLOGY);
    is_unset = is_flat = false;
    ompt_set_callback *set = (ompt_set_callback *)lookup("ompt_set_callback");
    runtime = rms_runtime_of((void *)lookup);
    if (set != NULL && !binds_threads()) {
        set(OMPT_THREAD_BEGIN, (ompt_function *)thread_begin);
        /* The runtime has registered its own handler already, so this one comes after it in the child. */
        (void)pthread_atfork(before_fork, NULL, in_child);
    }
    return set != NULL && runtime != NULL && set(OMPT_PARALLEL_END, (ompt_function *)parallel_end) == OMPT_SET_ALWAYS
        && set(OMPT_PARALLEL_BEGIN, (ompt_function *)parallel_begin) == OMPT_SET_ALWAYS;
}

static void finalize(union ompt_data *tool)
{
    (void)tool;
}

RMS_EXPORT struct ompt_start_tool_result *ompt_start_tool(unsigned version, const char *name)
{
    (void)version, (void)name;
    static struct ompt_start_tool_result result = {.initialize = initialize, .finalize = finalize};
    const char *tools = getenv("OMP_TOOL_LIBRARIES");
    /* A process has at most one tool: the user's own has priority. */
    bool is_other = tools != NULL && *tools != '\0' && strstr(tools, "librms-malleable") == NULL;
    const char *path = getenv("RMS_MALLEABLE_SOCKET");
    if (is_other || path == NULL || *path == '\0')
        return NULL;
    /* The agent has set it. With places of its own the runtime, which reads its environment next, would warn that it
     * ignores it. */
    const char *bind = getenv("OMP_PROC_BIND");
    is_unset = own_places() != NULL && bind != NULL && has_part(bind, "false");
    if (is_unset)
        unsetenv("OMP_PROC_BIND");
    /* To find out the topology, the runtime moves to each of its CPUs in turn, and aborts the program if one of them is
     * taken from the job meanwhile. Threads that are not bound need no topology. */
    is_flat = !binds_threads() && getenv(TOPOLOGY) == NULL && getenv("KMP_HW_SUBSET") == NULL;
    if (is_flat)
        setenv(TOPOLOGY, "flat", 1);
    return &result;
}

/* clang's num_threads clause. */
RMS_EXPORT void __kmpc_push_num_threads(void *place, int thread, int threads)
{
    static _Atomic(void *) known;
    void *function = atomic_load_explicit(&known, memory_order_acquire);
    if (function == NULL) {
        function = rms_next("__kmpc_push_num_threads", (void *)__kmpc_push_num_threads, __builtin_return_address(0));
        if (function == NULL)
            return;
        atomic_store_explicit(&known, function, memory_order_release);
    }
    unsigned limit = rms_limit();
    const struct rms_runtime *own = limit == 0 ? NULL : rms_runtime_of(function);
    if (own != NULL && threads > 1) {
        unsigned room = rms_room(own, limit);
        threads = (unsigned)threads > room ? (int)room : threads;
    }
    void (*next)(void *, int, int) = (void (*)(void *, int, int))function;
    next(place, thread, threads);
}
