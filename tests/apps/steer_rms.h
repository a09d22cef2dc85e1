/* The RMS's end of steer.h: what it offers and takes, and what it is asked for. Only rank 0 speaks with it. */
#ifndef STEER_RMS_H
#define STEER_RMS_H

#include <rms.h>

static int steer_fails(const char *what)
{
    char text[512];
    rms_last_error(text, sizeof text);
    fprintf(stderr, "steer: %s: %s\n", what, text);
    return 1;
}

/* Connects, and says between which sizes the RMS may change the application. Nonzero: it cannot. */
static int steer_open(steer *from)
{
    rms_session *rms;
    rms_limits limits = RMS_INIT(rms_limits);
    if (!from->negotiates)
        return 0;
    if (rms_connect(NULL, &rms) != RMS_OK)
        return steer_fails("cannot reach the RMS");
    from->session = rms;
    limits.least = (uint32_t)(from->least > 0 ? from->least : 1);
    limits.most = (uint32_t)(from->most > 0 ? from->most : STEER_MOST);
    limits.shape = from->power_of_two ? RMS_SIZES_POWER_OF_TWO : RMS_SIZES_ANY;
    limits.automatic = 1;
    /* An evolving application asks by itself, and is asked for nothing. */
    return from->grow == 0 && rms_declare(rms, &limits) != RMS_OK ? steer_fails("cannot declare limits") : 0;
}

static void steer_hear(steer *from, const resize_team *team)
{
    rms_change change = RMS_INIT(rms_change);
    if (from->grow > 0 || rms_breakpoint(from->session, &change) != RMS_OK)
        return;
    printf("breakpoint %s of %zu nodes, %u after it\n", change.kind == RMS_GROW ? "growth" : "shrink", change.n_nodes,
           (unsigned)change.n_after);
    fflush(stdout);
    if (change.kind == RMS_GROW)
        for (size_t i = 0; i < change.n_nodes; i++)
            steer_queue(from, STEER_UP, from->per_host, change.nodes[i]);
    else {
        from->releases = !change.is_done;
        steer_leave(from, team, change.nodes, change.n_nodes);
    }
}

/* The topmost groups have left the hosts that were to be left. */
static void steer_release(steer *from)
{
    from->releases = 0;
    if (rms_release_done(from->session) != RMS_OK)
        steer_fails("cannot give hosts back");
}

/* How many of so many hosts more are of use. */
static uint64_t steer_useful(const steer *from, uint64_t held, uint64_t offered)
{
    if (!from->power_of_two)
        return offered;
    uint64_t total = 1;
    while (total * 2 <= held + offered)
        total *= 2;
    return total > held ? total - held : 0;
}

/* Asks once for more hosts, as an evolving application does when it finds that it needs them (002, §6), and waits for
 * what comes of it. */
static inline void steer_ask(steer *from, const resize_team *team)
{
    rms_terms terms = RMS_INIT(rms_terms);
    rms_event event = RMS_INIT(rms_event);
    uint64_t id, held = (uint64_t)(1 + team->height);
    size_t n_held;
    if (!from->negotiates || from->grow == 0 || from->has_asked)
        return;
    from->has_asked = 1;
    if (rms_nodes(from->session, NULL, 0, &n_held) == RMS_OK)
        held = n_held;
    terms.kind = RMS_GROW;
    terms.shape = from->power_of_two ? RMS_SIZES_POWER_OF_TWO : RMS_SIZES_ANY;
    terms.quantity = steer_useful(from, held, (uint64_t)from->grow);
    terms.least = (uint64_t)(from->grow_least > 0 ? from->grow_least : 1);
    if (terms.quantity < terms.least)
        return;
    if (rms_ask(from->session, &terms, &id) != RMS_OK) {
        steer_fails("cannot ask for hosts");
        return;
    }
    while (rms_next_event(from->session, -1, &event) == RMS_OK) {
        if (event.id != id)
            continue;
        if (event.kind == RMS_EVENT_OFFER) {
            uint64_t useful = steer_useful(from, held, event.quantity);
            printf("offer of %llu hosts, of use are %llu\n", (unsigned long long)event.quantity, (unsigned long long)useful);
            terms.quantity = useful;
            if (useful < terms.least)
                rms_reject(from->session, id);
            else if (useful == event.quantity)
                rms_accept(from->session, id);
            else
                rms_counter(from->session, id, &terms);
        } else if (event.kind == RMS_EVENT_READY) {
            printf("granted %zu nodes\n", event.n_nodes);
            for (size_t i = 0; i < event.n_nodes; i++)
                steer_queue(from, STEER_UP, from->per_host, event.nodes[i]);
            break;
        } else if (event.kind == RMS_EVENT_OVER) {
            printf("refused: %s\n", event.text);
            break;
        }
    }
    fflush(stdout);
}

static void steer_close(steer *from)
{
    if (from->session)
        rms_close(from->session);
}

#endif
