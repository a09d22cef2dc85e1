// Threads that stay, threads that come and go, and processes that come and go: all that masks of a running job must find.
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void *stays(void *unused) {
    for (;;) pause();
    return unused;
}

static void *leaves(void *unused) {
    usleep(3000);
    return unused;
}

// Makes a thread and a process over and over, each of which lives for a moment.
static void *churns(void *unused) {
    for (;;) {
        pthread_t thread;
        pid_t child = fork();
        if (child == 0) {
            usleep(3000);
            _exit(0);
        }
        if (pthread_create(&thread, NULL, leaves, NULL) == 0) pthread_join(thread, NULL);
        if (child > 0) waitpid(child, NULL, 0);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    for (int k = 0; k < 4; k++)
        if (pthread_create(&thread, NULL, stays, NULL) != 0) return 1;
    if (pthread_create(&thread, NULL, churns, NULL) != 0) return 1;
    printf("%d\n", getpid());
    fflush(stdout);
    for (;;) pause();
}
