/* A pool of threads that live for a moment each, beside thousands of children that nobody waits for, and more of them
 * for a while: the machine has process numbers for others, too. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_FIRST = 12000, N_MOST = 16000, N_THREADS = 8, N_TURNS = 200000 };

static void leave_a_child(void)
{
    if (fork() == 0)
        _exit(0);
}

static void *work(void *unused)
{
    for (volatile int turn = 0; turn < N_TURNS; turn++) {
    }
    return unused;
}

int main(void)
{
    for (int i = 0; i < N_FIRST; i++)
        leave_a_child();
    for (int n = N_FIRST;; n++) {
        pthread_t threads[N_THREADS];
        for (int i = 0; i < N_THREADS; i++) {
            if (pthread_create(&threads[i], NULL, work, NULL) != 0)
                abort();
        }
        if (n < N_MOST)
            leave_a_child();
        for (int i = 0; i < N_THREADS; i++)
            pthread_join(threads[i], NULL);
    }
}
