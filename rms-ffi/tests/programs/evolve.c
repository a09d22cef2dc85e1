/* An application that negotiates itself: asks for nodes by poll(), gives one back, asks for time by a callback, and
 * prints what comes of it. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <pthread.h>
#include <rms.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(int status, const char *call) {
    if (status != RMS_OK) {
        char text[512];
        rms_last_error(text, sizeof text);
        printf("FAILED %s: %d %s\n", call, status, text);
        exit(1);
    }
}
#define MUST(call) must((call), #call)

/* Waits until the negotiation is agreed, ready or over; only what poll() announces is taken. */
static int wait_for(rms_session *rms, uint64_t id, int32_t kind, rms_event *event) {
    for (;;) {
        struct pollfd fds = {rms_fd(rms), POLLIN, 0};
        if (poll(&fds, 1, 60000) != 1)
            return printf("FAILED: poll\n"), exit(1), 0;
        int status = rms_next_event(rms, 0, event);
        if (status == RMS_NOTHING)
            continue;
        must(status, "rms_next_event");
        if (event->id == id && event->kind == RMS_EVENT_OFFER)
            MUST(rms_accept(rms, id));
        if (event->id == id && (event->kind == kind || event->kind == RMS_EVENT_OVER))
            return event->kind == kind;
    }
}

static void print_nodes(const char *what, size_t n_nodes, const char *const *nodes) {
    printf("%s", what);
    for (size_t i = 0; i < n_nodes; i++)
        printf(" %s", nodes[i]);
    printf("\n");
    fflush(stdout);
}

static void print_held(rms_session *rms) {
    size_t n_nodes;
    MUST(rms_nodes(rms, NULL, 0, &n_nodes));
    rms_node *nodes = calloc(n_nodes, sizeof *nodes);
    const char **names = calloc(n_nodes, sizeof *names);
    nodes[0].size = sizeof *nodes;
    MUST(rms_nodes(rms, nodes, n_nodes, &n_nodes));
    for (size_t i = 0; i < n_nodes; i++)
        names[i] = nodes[i].name;
    print_nodes("holds", n_nodes, names);
    free(nodes), free(names);
}

struct heard {
    pthread_mutex_t lock;
    pthread_cond_t news;
    uint64_t id;
    int kind;
    int64_t until;
};

static void hear(rms_session *rms, const rms_event *event, void *user) {
    struct heard *heard = user;
    pthread_mutex_lock(&heard->lock);
    if (event->kind == RMS_EVENT_OFFER && event->id == heard->id)
        rms_accept(rms, event->id);
    if ((event->kind == RMS_EVENT_READY || event->kind == RMS_EVENT_OVER) && event->id == heard->id) {
        heard->kind = event->kind;
        rms_until(rms, &heard->until);
        pthread_cond_signal(&heard->news);
    }
    pthread_mutex_unlock(&heard->lock);
}

int main(void) {
    rms_session *rms;
    rms_event event = RMS_INIT(rms_event);
    rms_terms grow = RMS_INIT(rms_terms), shrink = RMS_INIT(rms_terms), longer = RMS_INIT(rms_terms);
    uint64_t id;
    char text[32];
    int64_t before;
    MUST(rms_connect(NULL, &rms));
    print_held(rms);

    grow.kind = RMS_GROW, grow.quantity = 2, grow.least = 1;
    MUST(rms_ask(rms, &grow, &id));
    rms_id_text(id, text, sizeof text);
    printf("asks %s\n", text);
    if (!wait_for(rms, id, RMS_EVENT_READY, &event))
        return printf("FAILED: no growth: %s\n", event.text), 1;
    print_nodes("came", event.n_nodes, event.nodes);
    print_held(rms);
    MUST(rms_write_hostfile(rms, "nodes"));

    shrink.kind = RMS_SHRINK, shrink.quantity = 1;
    MUST(rms_ask(rms, &shrink, &id));
    if (!wait_for(rms, id, RMS_EVENT_AGREED, &event))
        return printf("FAILED: no shrink: %s\n", event.text), 1;
    print_nodes("leaves", event.n_nodes, event.nodes);
    MUST(rms_release(rms, id, event.nodes, event.n_nodes));
    if (!wait_for(rms, id, RMS_EVENT_READY, &event))
        return printf("FAILED: not released: %s\n", event.text), 1;
    print_nodes("left", event.n_nodes, event.nodes);
    print_held(rms);

    struct heard heard = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, 0};
    MUST(rms_until(rms, &before));
    MUST(rms_on_event(rms, hear, &heard));
    longer.kind = RMS_EXTEND, longer.quantity = 60000;
    pthread_mutex_lock(&heard.lock);
    MUST(rms_ask(rms, &longer, &heard.id));
    while (heard.kind == 0)
        pthread_cond_wait(&heard.news, &heard.lock);
    pthread_mutex_unlock(&heard.lock);
    MUST(rms_on_event(rms, NULL, NULL));
    printf("time: %s, %ld s longer\n", heard.kind == RMS_EVENT_READY ? "agreed" : "refused",
           (long)((heard.until - before) / 1000));
    MUST(rms_close(rms));
    printf("done\n");
    return 0;
}
