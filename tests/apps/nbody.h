/* The bodies of an N-body simulation whose checksum is the same, bit for bit, for every number of ranks.
 *
 * Each rank moves a slice of the bodies; the force on one body is always summed over all bodies in the global order,
 * so no sum depends on how the bodies are divided. What the ranks exchange are copies of positions, never partial
 * sums.
 */
#ifndef NBODY_H
#define NBODY_H

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

/* Moves the bodies first..last by one step; reads the positions of all bodies, writes those of its own. The velocities
 * are those of first..last alone. */
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
            velocity[(i - first) * DIM + d] += force[d] * STEP;
            moved[(i - first) * DIM + d] = position[i * DIM + d] + velocity[(i - first) * DIM + d] * STEP;
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
static int count_hosts(MPI_Comm team, int rank, int ranks)
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
    MPI_Gather(own, NAME, MPI_CHAR, all, NAME, MPI_CHAR, 0, team);
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

/* Sleeps as if there were more to compute. */
static void dawdle(int millis)
{
    struct timespec pause = {millis / 1000, (millis % 1000) * 1000000L};
    if (millis > 0)
        nanosleep(&pause, NULL);
}

#endif
