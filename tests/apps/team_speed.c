/* How long an iteration of an OpenMP program takes, in milliseconds, a line each.
 *
 *   team_speed coarse|fine
 *
 * coarse: one parallel loop an iteration; fine: a hundred short ones. It runs until it is ended. */
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { N = 1 << 13, ROUNDS = 1500 };
static double cells[N];

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int main(int argc, char **argv)
{
    int n_regions = argc > 1 && strcmp(argv[1], "fine") == 0 ? 100 : 1;
    for (;;) {
        double begun = now_ms();
        for (int region = 0; region < n_regions; region++) {
#pragma omp parallel for
            for (int i = 0; i < N; i++)
                for (int round = 0; round < ROUNDS / n_regions; round++)
                    cells[i] = cells[i] * 0.999999 + 1.0;
        }
        printf("%.3f\n", now_ms() - begun);
        fflush(stdout);
    }
}
