/* Follows its limits, but looks at them only when the file "look" is there; and sees what has become of it. Then it is
 * replaced by another session. */
#define _POSIX_C_SOURCE 200809L
#include <poll.h>
#include <rms.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(int status, int wanted, const char *call) {
    if (status != wanted) {
        char text[512];
        rms_last_error(text, sizeof text);
        printf("FAILED %s: %d %s\n", call, status, text);
        exit(1);
    }
}
#define MUST(wanted, call) must((call), (wanted), #call)

int main(void) {
    rms_session *rms, *other;
    rms_limits limits = RMS_INIT(rms_limits);
    rms_change change = RMS_INIT(rms_change);
    rms_event event = RMS_INIT(rms_event);
    int status;
    limits.least = 1, limits.most = 2, limits.automatic = 1;
    MUST(RMS_OK, rms_connect(NULL, &rms));
    MUST(RMS_ESTATE, rms_breakpoint(rms, &change));
    MUST(RMS_OK, rms_declare(rms, &limits));
    while ((status = rms_breakpoint(rms, &change)) == RMS_NOTHING)
        poll(NULL, 0, 50);
    MUST(RMS_OK, status);
    printf("came %s\n", change.nodes[0]);
    fflush(stdout);
    while (access("look", F_OK) != 0)
        poll(NULL, 0, 50);
    while ((status = rms_breakpoint(rms, &change)) == RMS_NOTHING)
        poll(NULL, 0, 50);
    MUST(RMS_OK, status);
    printf("%s %s, %u after it\n", change.is_done ? "lost" : "leaves", change.nodes[0], (unsigned)change.n_after);
    MUST(RMS_ESTATE, rms_breakpoint(rms, &change));
    MUST(RMS_OK, rms_release_done(rms));
    MUST(RMS_ESTATE, rms_release_done(rms));

    MUST(RMS_OK, rms_connect(NULL, &other));
    while ((status = rms_next_event(rms, 60000, &event)) == RMS_OK && event.kind != RMS_EVENT_REPLACED)
        ;
    MUST(RMS_OK, status);
    MUST(RMS_EENDED, rms_next_event(rms, -1, &event));
    /* What came before is still to be told. */
    while ((status = rms_breakpoint(rms, &change)) == RMS_OK && change.kind == RMS_GROW)
        printf("came %s again, %u after it\n", change.nodes[0], (unsigned)change.n_after);
    must(status, RMS_EENDED, "rms_breakpoint");
    MUST(RMS_EENDED, rms_declare(rms, &limits));
    MUST(RMS_OK, rms_declare(other, &limits));
    MUST(RMS_OK, rms_close(rms));
    MUST(RMS_OK, rms_close(other));
    printf("done\n");
    return 0;
}
