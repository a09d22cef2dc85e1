/* The work of the programs of a mix of jobs (004, Table 2), in pieces that threads or ranks divide among themselves.
 *
 * compute: a few cells that stay in the nearest cache, as PILS does; memory: triads over arrays that no cache holds, as STREAM
 * does; mixed: 16 pieces of the one, then 16 of the other, as a simulation does. */
#ifndef MIX_H
#define MIX_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* CELLS in 8 KiB, each changed ROUNDS times by a piece; arrays of LENGTH numbers of 8 bytes, of which a piece goes over WINDOW:
 * some milliseconds for one worker either way. */
enum { CELLS = 1 << 10, ROUNDS = 2000, LENGTH = 1 << 23, WINDOW = 1 << 21, PIECES_A_PHASE = 16 };

enum kind { COMPUTE, MEMORY, MIXED };

struct mix {
    enum kind kind;
    long n_pieces;
    double *a, *b, *c;
};

static double mix_cells[CELLS];

/* Seconds of a clock that only goes forward. */
static double mix_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* From `kind` and a number of pieces. The pages of the arrays are those of whoever touches them first. */
static struct mix mix_read(int argc, char **argv)
{
    static const char *const names[] = {"compute", "memory", "mixed"};
    struct mix mix = {MIXED, argc == 3 ? atol(argv[2]) : 0, NULL, NULL, NULL};
    int kind = 0;
    while (argc == 3 && kind <= MIXED && strcmp(argv[1], names[kind]) != 0)
        kind++;
    if (argc != 3 || kind > MIXED || mix.n_pieces <= 0) {
        fprintf(stderr, "usage: %s compute|memory|mixed PIECES\n", argv[0]);
        exit(2);
    }
    mix.kind = (enum kind)kind;
    if (mix.kind != COMPUTE) {
        mix.a = calloc(LENGTH, sizeof *mix.a);
        mix.b = calloc(LENGTH, sizeof *mix.b);
        mix.c = calloc(LENGTH, sizeof *mix.c);
        if (!mix.a || !mix.b || !mix.c) {
            fprintf(stderr, "%s: no memory\n", argv[0]);
            exit(1);
        }
    }
    return mix;
}

/* What one of `n` workers does of a piece; all others do the rest. */
static void mix_piece(const struct mix *mix, long piece, int worker, int n)
{
    int is_memory = mix->kind == MEMORY || (mix->kind == MIXED && piece / PIECES_A_PHASE % 2 == 1);
    long width = is_memory ? WINDOW : CELLS;
    long first = width * worker / n, last = width * (worker + 1) / n;
    if (is_memory) {
        long from = piece % (LENGTH / WINDOW) * WINDOW;
        for (long i = from + first; i < from + last; i++)
            mix->a[i] = mix->b[i] + 3.0 * mix->c[i];
    } else {
        for (long i = first; i < last; i++) {
            double cell = mix_cells[i];
            for (int round = 0; round < ROUNDS; round++)
                cell = cell * 0.999999 + 1.0;
            mix_cells[i] = cell;
        }
    }
}

#endif
