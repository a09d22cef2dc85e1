/* OpenMP regions again and again, each of which tells how many threads it had and on how many CPUs they may run.
 *
 *   teams WAY MILLISECONDS
 *
 * prints a line whenever what it would say has changed: `threads CPUs`. WAYs: default (no clause), clause (num_threads 4),
 * loops (every kind of parallel loop, and sections), nested (2 threads, each with an inner team: threads of both), one (regions
 * of one thread), fork (a child without exec works, too), serial (no region at all), stubborn (one region for ever). It ends
 * after the file `done` is there. */
#define _GNU_SOURCE
#include <omp.h>
#include <sched.h>
#include <stdatomic.h>
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

static void tell(int threads)
{
    static int told_threads, told_cpus;
    int cpus = n_cpus();
    if (threads == told_threads && cpus == told_cpus)
        return;
    printf("%d %d\n", threads, cpus);
    fflush(stdout);
    told_threads = threads;
    told_cpus = cpus;
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
        tell(region());
        usleep((useconds_t)rest_us);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*region)(void);
    } ways[] = {{"default", with_default}, {"clause", with_clause}, {"loops", with_loops},       {"nested", nested},
                {"one", of_one},           {"serial", serial},      {"stubborn", stubborn}, {"fork", with_default}};
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
