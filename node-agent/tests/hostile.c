/* Programs of a user who means harm; each mode is one way. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Stops whatever it may, again and again. */
static int stop(double seconds) {
    for (double end = now() + seconds; now() < end;) kill(-1, SIGSTOP);
    return 0;
}

/* Attaches to a process and keeps it, dead or alive. */
static int trace(int pid, double seconds) {
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) != 0) return perror("ptrace"), 1;
    puts("traced");
    fflush(stdout);
    for (double end = now() + seconds; now() < end;) usleep(10000);
    return 0;
}

static void be_stubborn(void) {
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    for (int fd = 0; fd < 256; fd++) close(fd);
    setsid();
    setpriority(PRIO_PROCESS, 0, 19);
}

/* Forks without end, as far as a limit allows that keeps the machine alive. */
static int storm(int most) {
    struct rlimit limit = {most, most};
    setrlimit(RLIMIT_NPROC, &limit);
    be_stubborn();
    for (;;) {
        pid_t child = fork();
        if (child == 0) setsid();
        while (waitpid(-1, NULL, WNOHANG) > 0) {}
    }
}

/* Leaves its session, its parent and its files behind. */
static int hide(void) {
    for (int generation = 0; generation < 3; generation++) {
        if (fork() != 0) {
            if (generation == 0) sleep(1);
            _exit(0);
        }
        be_stubborn();
    }
    for (;;) pause();
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "stop") == 0) return stop(atof(argv[2]));
    if (strcmp(mode, "trace") == 0) return trace(atoi(argv[2]), atof(argv[3]));
    if (strcmp(mode, "storm") == 0) return storm(atoi(argv[2]));
    if (strcmp(mode, "hide") == 0) return hide();
    if (strcmp(mode, "eat") == 0) {
        size_t bytes = (size_t)atoi(argv[2]) << 20;
        char *memory = malloc(bytes);
        if (memory == NULL) return 3;
        for (size_t at = 0; at < bytes; at += 4096) memory[at] = 1;
        puts("eaten");
        return 0;
    }
    if (strcmp(mode, "lock") == 0) {
        int file = open(argv[2], O_RDONLY);
        if (file < 0) return 1;
        return flock(file, LOCK_EX | LOCK_NB) == 0 ? 0 : 1;
    }
    return 2;
}
