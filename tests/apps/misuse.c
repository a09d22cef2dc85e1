/* Calls librms-malleable as it must not be called, and says what came of each: `what status`. Outside of a job all calls
 * say the same; inside one, given a CPU of it, the program moves itself, too, and waits for that.
 *
 *   misuse [CPU] */
#include <limits.h>
#include <rms_malleable.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void tell(const char *what, int status)
{
    printf("%s %d\n", what, status);
    fflush(stdout);
}

static void never(int n_cpus, void *argument)
{
    (void)n_cpus, (void)argument;
}

static void every_call(void)
{
    unsigned char mask[8] = {1};
    int pids[4], n = 0, self = getpid();
    tell("mask", rms_malleable_mask(NULL, 8));
    tell("endless", rms_malleable_mask(mask, SIZE_MAX));
    tell("acknowledge", rms_malleable_acknowledge(-1));
    tell("watch", rms_malleable_watch(NULL, NULL));
    tell("unwatch", rms_malleable_unwatch());
    tell("detach", rms_drom_detach());
    tell("unattached", rms_drom_cpus(&n));
    rms_drom_attach();
    tell("cpus", rms_drom_cpus(NULL));
    tell("pids", rms_drom_pids(NULL, NULL, 0));
    tell("pids", rms_drom_pids(NULL, &n, 4));
    tell("pids", rms_drom_pids(pids, NULL, 4));
    tell("get", rms_drom_get_mask(self, NULL, 8, 0));
    tell("get", rms_drom_get_mask(self, mask, SIZE_MAX, 0));
    tell("set", rms_drom_set_mask(self, NULL, 8, 0));
    tell("set", rms_drom_set_mask(self, mask, SIZE_MAX, 0));
    tell("init", rms_drom_pre_init(self, NULL, 8, 0));
}

static void move_itself(int cpu)
{
    unsigned char mask[128] = {0};
    mask[cpu / 8] = (unsigned char)(1 << cpu % 8);
    tell("few", rms_drom_pids(NULL, &cpu, INT_MIN));
    tell("none", rms_malleable_acknowledge(0));
    tell("moved", rms_drom_set_mask(getpid(), mask, sizeof mask, RMS_DROM_WAIT));
    tell("changed", rms_malleable_changed());
    tell("have", rms_malleable_cpus());
    tell("acknowledge", rms_malleable_acknowledge(1));
    tell("self", rms_drom_get_mask(0, mask, sizeof mask, 0));
    /* A change after the program has looked is news, although the program has acknowledged what it saw. */
    tell("released", rms_drom_post_finalize(0, RMS_DROM_WAIT));
    tell("acknowledge", rms_malleable_acknowledge(1));
    tell("changed", rms_malleable_changed());
    tell("have", rms_malleable_cpus());
    tell("acknowledge", rms_malleable_acknowledge(2));
    tell("changed", rms_malleable_changed());
}

/* The child is a process of its own, and has a copy of each file of its parent. */
static void watch_beside_a_child(void)
{
    int is_told[2];
    tell("watched", rms_malleable_watch(never, NULL));
    tell("twice", rms_malleable_watch(never, NULL));
    if (pipe(is_told) != 0)
        return;
    pid_t child = fork();
    if (child == 0) {
        tell("news", rms_malleable_changed());
        tell("unwatched", rms_malleable_unwatch());
        (void)!write(is_told[1], "", 1);
        for (;;)
            pause();
    }
    (void)!read(is_told[0], &(char){0}, 1);
    tell("unwatched", rms_malleable_unwatch());
    tell("twice", rms_malleable_unwatch());
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

int main(int argc, char **argv)
{
    every_call();
    if (argc > 1) {
        move_itself(atoi(argv[1]));
        watch_beside_a_child();
    }
    return 0;
}
