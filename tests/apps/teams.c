/* OpenMP regions again and again, each of which tells how many threads it had and on how many CPUs they may run.
 *
 *   teams WAY MILLISECONDS
 *
 * prints a line whenever what it would say has changed: `threads CPUs`. WAYs: default (no clause), clause (num_threads 4),
 * loops (every kind of parallel loop, and sections), nested (2 threads, each with an inner team: threads of both), one (regions
 * of one thread), fork (a child without exec works, too), children (a new child without exec for each region, after one of the
 * parent's own; the children tell), masters (two threads begin regions at once; the larger team), pause (the runtime frees all
 * that it has after each region), dlb (a program that was linked with DLB and never polls), serial (no region at all), stubborn
 * (one region for ever). It ends after the file `done` is there. */
#define _GNU_SOURCE
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long rest_us;

static int n_cpus(void)
{
    cpu_set_t set;
    sched_getaffinity(0, sizeof set, &set);
    return CPU_COUNT(&set);
}

static void tell_of(int threads, int cpus)
{
    static int told_threads, told_cpus;
    if (threads == told_threads && cpus == told_cpus)
        return;
    printf("%d %d\n", threads, cpus);
    fflush(stdout);
    told_threads = threads;
    told_cpus = cpus;
}

static void tell(int threads)
{
    tell_of(threads, n_cpus());
}

static int with_default(void)
{
    int threads = 0;
#pragma omp parallel reduction(+ : threads)
    threads += 1;
    return threads;
}

static int with_clause(void)
{
    int threads = 0;
#pragma omp parallel num_threads(4) reduction(+ : threads)
    threads += 1;
    return threads;
}

/* The largest team of all these. */
static int with_loops(void)
{
    atomic_int most = 0;
#define SEE                                                                                                              \
    {                                                                                                                    \
        int own = omp_get_num_threads();                                                                                 \
        int before = most;                                                                                               \
        while (before < own && !atomic_compare_exchange_weak(&most, &before, own)) {                                     \
        }                                                                                                                \
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel for schedule(dynamic, 2)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel for schedule(guided)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel for schedule(runtime)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel for schedule(monotonic : dynamic)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel for schedule(nonmonotonic : runtime)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel for schedule(nonmonotonic : guided) num_threads(3)
    for (int i = 0; i < 64; i++)
        SEE
#pragma omp parallel sections
    {
#pragma omp section
        SEE
#pragma omp section
        SEE
    }
    int sum = 0;
#pragma omp parallel reduction(task, + : sum)
    {
        SEE
        sum += 1;
    }
    return most;
}

static int nested(void)
{
    int threads = 0;
#pragma omp parallel num_threads(2) reduction(+ : threads)
    {
        int inner = 0;
#pragma omp parallel num_threads(2) reduction(+ : inner)
        inner += 1;
        threads += inner;
    }
    return threads;
}

static int of_one(void)
{
    int threads = 0;
#pragma omp parallel num_threads(1) reduction(+ : threads)
    threads += 1;
#pragma omp parallel if (0) reduction(+ : threads)
    threads += 1;
    return threads - 1;
}

static int serial(void)
{
    return 1;
}

/* Tells of a child's region. */
static int in_child(void)
{
    with_default();
    int ends[2] = {-1, -1};
    int seen[2] = {0, 0};
    if (pipe(ends) != 0)
        exit(1);
    pid_t child = fork();
    if (child == 0) {
        seen[0] = with_default();
        seen[1] = n_cpus();
        _exit(write(ends[1], seen, sizeof seen) != sizeof seen);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child || read(ends[0], seen, sizeof seen) != sizeof seen)
        exit(1);
    close(ends[0]);
    close(ends[1]);
    tell_of(seen[0], seen[1]);
    return 0;
}

static pthread_barrier_t both;

static void *as_master(void *team)
{
    pthread_barrier_wait(&both);
    *(int *)team = with_default();
    return NULL;
}

static int two_masters(void)
{
    int teams[2] = {0, 0};
    pthread_t other;
    pthread_barrier_init(&both, NULL, 2);
    if (pthread_create(&other, NULL, as_master, &teams[1]) != 0)
        exit(1);
    as_master(&teams[0]);
    pthread_join(other, NULL);
    return teams[0] > teams[1] ? teams[0] : teams[1];
}

static int paused(void)
{
    int threads = with_default();
    omp_pause_resource_all(omp_pause_hard);
    return threads;
}

int DLB_Init(int n_cpus, const void *mask, const char *arguments) __attribute__((weak));

static int with_dlb(void)
{
    static bool is_initialized;
    if (!is_initialized && (DLB_Init == NULL || DLB_Init(0, NULL, NULL) != 0))
        exit(1);
    is_initialized = true;
    return with_default();
}

/* Works until the end in one region, whatever it is told. */
static int stubborn(void)
{
#pragma omp parallel
    {
#pragma omp master
        tell(omp_get_num_threads());
        while (access("done", F_OK) != 0)
            for (volatile int i = 0; i < 100000; i++) {
            }
    }
    return omp_get_max_threads();
}

static void run(int (*region)(void))
{
    while (access("done", F_OK) != 0) {
        int threads = region();
        if (threads > 0)
            tell(threads);
        usleep((useconds_t)rest_us);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*region)(void);
    } ways[] = {{"default", with_default}, {"clause", with_clause}, {"loops", with_loops},       {"nested", nested},
                {"one", of_one},           {"serial", serial},      {"stubborn", stubborn}, {"fork", with_default},
                {"children", in_child},    {"masters", two_masters}, {"pause", paused},
                {"dlb", with_dlb}};
    const char *way = argc > 1 ? argv[1] : "default";
    rest_us = 1000 * (argc > 2 ? atol(argv[2]) : 10);
    omp_set_max_active_levels(2);
    int status = 0;
    if (strcmp(way, "fork") == 0) {
        pid_t child = fork();
        if (child == 0)
            run(with_default);
        else if (child > 0)
            waitpid(child, &status, 0);
        return status != 0;
    }
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(ways[i].name, way) == 0)
            run(ways[i].region);
    }
    return 0;
}
