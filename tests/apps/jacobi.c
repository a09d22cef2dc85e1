/* Heat on a square plate by Jacobi's method, on a team that grows and shrinks; its checksum is the same, bit for bit, for
 * every number of ranks and every change of it.
 *
 * usage: jacobi SIDE STEPS [MILLISECONDS_PER_STEP] [--plan N,N,... [--hosts H,H,...]] [--negotiate ...]
 *
 * Each rank has a block of rows; before a step it gets the rows beside them from its neighbours. When the team changes, rows
 * move to where they belong. A cell is always the mean of the same four cells in the same order, and what is reduced is a
 * greatest difference, which depends on no order. The options are told in steer.h. Rank 0 prints one line:
 *   jacobi side=64 steps=100 ranks=2 changes=2 refused=0 largest=4 change=1.2e-04 checksum=0123456789abcdef
 */
#include <math.h>
#include <stdint.h>

#include "adapt.h"

typedef struct {
    int side, steps, millis, step;
    /* The own rows, from top to bottom. */
    double *rows;
} plate;

static int number(const char *text, long least)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || value < least || value > 100000) {
        fprintf(stderr, "jacobi: '%s' is not a number from %ld to 100000\n", text, least);
        exit(2);
    }
    return (int)value;
}

static double *allocate(long cells)
{
    double *block = calloc(cells > 0 ? (size_t)cells : 1, sizeof *block);
    resize_check(!block, "an allocation");
    return block;
}

/* The upper edge is hot and the left one warm, the others are cold. */
static double edge(int side, int row, int column)
{
    return row < 0 ? 100.0 : column < 0 ? 25.0 + 50.0 * (side - row) / side : 0.0;
}

static void plate_move(void *program, const resize_team *team, int old, int now)
{
    plate *self = program;
    resize_check(MPI_Bcast(&self->step, 1, MPI_INT, 0, team->team), "a broadcast");
    self->rows = resize_move(team, self->rows, self->side, (size_t)self->side * sizeof(double), old, now);
}

/* One step; the greatest change of the own cells. */
static double plate_step(plate *self, const resize_team *team)
{
    int side = self->side;
    long first = resize_first(side, team->rank, team->size), last = resize_first(side, team->rank + 1, team->size);
    long n_rows = last - first;
    double *above = allocate(side), *below = allocate(side), *next = allocate(n_rows * side), greatest = 0;
    /* A rank without rows is left out: its neighbours are each other's. */
    int up = team->rank - 1, down = team->rank + 1;
    while (up >= 0 && resize_first(side, up, team->size) == resize_first(side, up + 1, team->size))
        up--;
    while (down < team->size && resize_first(side, down, team->size) == resize_first(side, down + 1, team->size))
        down++;
    int upper = n_rows > 0 && up >= 0 ? up : MPI_PROC_NULL;
    int lower = n_rows > 0 && down < team->size ? down : MPI_PROC_NULL;
    double *top = self->rows, *bottom = n_rows > 0 ? self->rows + (n_rows - 1) * side : self->rows;
    MPI_Sendrecv(top, side, MPI_DOUBLE, upper, 1, below, side, MPI_DOUBLE, lower, 1, team->team, MPI_STATUS_IGNORE);
    MPI_Sendrecv(bottom, side, MPI_DOUBLE, lower, 2, above, side, MPI_DOUBLE, upper, 2, team->team, MPI_STATUS_IGNORE);
    for (long i = 0; i < n_rows; i++) {
        int row = (int)(first + i);
        for (int column = 0; column < side; column++) {
            const double *own = self->rows + i * side;
            double north = row == 0 ? edge(side, -1, column) : i == 0 ? above[column] : own[column - side];
            double south = row == side - 1 ? edge(side, side, column) : i == n_rows - 1 ? below[column] : own[column + side];
            double west = column == 0 ? edge(side, row, -1) : own[column - 1];
            double east = column == side - 1 ? edge(side, row, side) : own[column + 1];
            double mean = 0.25 * (((north + south) + west) + east);
            greatest = fmax(greatest, fabs(mean - own[column]));
            next[i * side + column] = mean;
        }
    }
    free(above), free(below), free(self->rows);
    self->rows = next;
    return greatest;
}

/* FNV-1a over the bits of all cells, which rank 0 gets row block by row block. */
static uint64_t plate_checksum(const plate *self, const resize_team *team)
{
    uint64_t hash = 14695981039346656037u;
    long own = resize_first(self->side, team->rank + 1, team->size) - resize_first(self->side, team->rank, team->size);
    if (team->rank != 0) {
        MPI_Send(self->rows, (int)(own * self->side), MPI_DOUBLE, 0, 3, team->team);
        return 0;
    }
    for (int rank = 0; rank < team->size; rank++) {
        long n = resize_first(self->side, rank + 1, team->size) - resize_first(self->side, rank, team->size);
        double *block = allocate(n * self->side);
        if (rank == 0)
            memcpy(block, self->rows, (size_t)(n * self->side) * sizeof *block);
        else
            MPI_Recv(block, (int)(n * self->side), MPI_DOUBLE, rank, 3, team->team, MPI_STATUS_IGNORE);
        const unsigned char *bytes = (const unsigned char *)block;
        for (size_t i = 0; i < (size_t)(n * self->side) * sizeof *block; i++)
            hash = (hash ^ bytes[i]) * 1099511628211u;
        free(block);
    }
    return hash;
}

int main(int argc, char **argv)
{
    adapt team = {0};
    plate self = {0};
    if (argc < 3) {
        fprintf(stderr, "usage: jacobi SIDE STEPS [MILLISECONDS_PER_STEP] [--plan N,N,... [--hosts H,H,...]] [--negotiate ...]\n");
        return 2;
    }
    self.side = number(argv[1], 1), self.steps = number(argv[2], 0);
    for (int i = 3; i < argc;) {
        int taken = steer_option(&team.steer, argc, argv, i);
        if (taken == 0)
            self.millis = number(argv[i], 0), taken = 1;
        i += taken;
    }
    MPI_Init(NULL, NULL);
    self.rows = allocate(1);
    int is_new = adapt_begin(&team, argv, plate_move, &self);
    if (!is_new) {
        long first = resize_first(self.side, team.team.rank, team.team.size);
        free(self.rows);
        self.rows = allocate((resize_first(self.side, team.team.rank + 1, team.team.size) - first) * self.side);
    }
    int leaves = RESIZE_STAYS;
    double change = 0, greatest = 0;
    struct timespec pause = {self.millis / 1000, (self.millis % 1000) * 1000000L};
    while (self.step < self.steps && (leaves = adapt_here(&team, self.step, self.steps)) == RESIZE_STAYS) {
        change = plate_step(&self, &team.team);
        self.step++;
        if (self.millis > 0)
            nanosleep(&pause, NULL);
    }
    if (leaves == RESIZE_STAYS) {
        MPI_Reduce(&change, &greatest, 1, MPI_DOUBLE, MPI_MAX, 0, team.team.team);
        uint64_t hash = plate_checksum(&self, &team.team);
        if (team.team.rank == 0) {
            printf("jacobi side=%d steps=%d ranks=%d changes=%d refused=%d largest=%d change=%.17g checksum=%016llx\n",
                   self.side, self.steps, team.team.size, team.n_changes, team.n_refused, team.largest, greatest,
                   (unsigned long long)hash);
            fflush(stdout);
        }
        adapt_end(&team);
    }
    free(self.rows);
    MPI_Finalize();
    return 0;
}
