/* An N-body simulation whose checksum is the same, bit for bit, for every number of ranks.
 *
 * usage: nbody BODIES STEPS [MILLISECONDS_PER_STEP]
 *
 * Each rank moves a slice of the bodies; the force on one body is always summed over all bodies in the global order,
 * so no sum depends on how the bodies are divided. What the ranks exchange are copies of positions, never partial
 * sums. Rank 0 prints one line:
 *   nbody bodies=64 steps=10 ranks=4 hosts=2 checksum=0123456789abcdef
 */
#include <mpi.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DIM = 3, NAME = 256 };

static const double GRAVITY = 1e-3, STEP = 1e-2, SOFTENING = 1e-4;

/* A fixed sequence, so that every run begins with the same bodies. */
static double next_unit(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

static void fill(double *position, double *velocity, double *mass, int n)
{
    uint64_t seed = 20061110;
    for (int i = 0; i < n; i++) {
        for (int d = 0; d < DIM; d++) {
            position[i * DIM + d] = next_unit(&seed) - 0.5;
            velocity[i * DIM + d] = (next_unit(&seed) - 0.5) * 0.1;
        }
        mass[i] = 0.5 + next_unit(&seed);
    }
}

/* Moves the bodies first..last by one step; reads the positions of all bodies, writes those of its own. */
static void move(const double *position, double *moved, double *velocity, const double *mass, int n, int first, int last)
{
    for (int i = first; i < last; i++) {
        double force[DIM] = {0, 0, 0};
        for (int j = 0; j < n; j++) {
            double delta[DIM], distance2 = SOFTENING;
            for (int d = 0; d < DIM; d++) {
                delta[d] = position[j * DIM + d] - position[i * DIM + d];
                distance2 += delta[d] * delta[d];
            }
            double pull = GRAVITY * mass[j] / (distance2 * sqrt(distance2));
            for (int d = 0; d < DIM; d++)
                force[d] += pull * delta[d];
        }
        for (int d = 0; d < DIM; d++) {
            velocity[i * DIM + d] += force[d] * STEP;
            moved[(i - first) * DIM + d] = position[i * DIM + d] + velocity[i * DIM + d] * STEP;
        }
    }
}

/* FNV-1a over the bits of all positions, in the global order. */
static uint64_t checksum(const double *position, int n)
{
    uint64_t hash = 14695981039346656037u;
    const unsigned char *bytes = (const unsigned char *)position;
    for (size_t i = 0; i < (size_t)n * DIM * sizeof(double); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

/* How many different nodes the ranks are on. On one machine that plays several nodes, RMS_NODE_NAME tells them apart. */
static int count_hosts(int rank, int ranks)
{
    char own[NAME] = {0};
    const char *told = getenv("RMS_NODE_NAME");
    int length;
    if (told)
        strncpy(own, told, NAME - 1);
    else {
        char name[MPI_MAX_PROCESSOR_NAME];
        MPI_Get_processor_name(name, &length);
        strncpy(own, name, NAME - 1);
    }
    char *all = rank == 0 ? malloc((size_t)ranks * NAME) : NULL;
    MPI_Gather(own, NAME, MPI_CHAR, all, NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    int hosts = 0;
    for (int i = 0; rank == 0 && i < ranks; i++) {
        int known = 0;
        for (int j = 0; j < i && !known; j++)
            known = strcmp(all + i * NAME, all + j * NAME) == 0;
        hosts += !known;
    }
    free(all);
    return hosts;
}

static int number(const char *text, long least)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || value < least || value > 1000000) {
        fprintf(stderr, "nbody: '%s' is not a number from %ld to 1000000\n", text, least);
        exit(2);
    }
    return (int)value;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: nbody BODIES STEPS [MILLISECONDS_PER_STEP]\n");
        return 2;
    }
    int n = number(argv[1], 1), steps = number(argv[2], 0), millis = argc == 4 ? number(argv[3], 0) : 0;

    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);

    size_t coordinates = (size_t)n * DIM;
    double *position = malloc(coordinates * sizeof(double)), *velocity = malloc(coordinates * sizeof(double));
    double *moved = malloc(coordinates * sizeof(double)), *mass = malloc((size_t)n * sizeof(double));
    int *counts = malloc((size_t)ranks * sizeof(int)), *starts = malloc((size_t)ranks * sizeof(int));
    if (!position || !velocity || !moved || !mass || !counts || !starts) {
        fprintf(stderr, "nbody: out of memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
        return 1;
    }
    for (int r = 0; r < ranks; r++) {
        starts[r] = (int)((long)n * r / ranks) * DIM;
        counts[r] = (int)((long)n * (r + 1) / ranks) * DIM - starts[r];
    }
    int first = starts[rank] / DIM, last = first + counts[rank] / DIM;
    fill(position, velocity, mass, n);

    struct timespec pause = {millis / 1000, (millis % 1000) * 1000000L};
    for (int step = 0; step < steps; step++) {
        move(position, moved, velocity, mass, n, first, last);
        MPI_Allgatherv(moved, counts[rank], MPI_DOUBLE, position, counts, starts, MPI_DOUBLE, MPI_COMM_WORLD);
        if (millis > 0)
            nanosleep(&pause, NULL);
    }

    int hosts = count_hosts(rank, ranks);
    if (rank == 0)
        printf("nbody bodies=%d steps=%d ranks=%d hosts=%d checksum=%016llx\n", n, steps, ranks, hosts,
               (unsigned long long)checksum(position, n));
    free(position), free(velocity), free(moved), free(mass), free(counts), free(starts);
    MPI_Finalize();
    return 0;
}
