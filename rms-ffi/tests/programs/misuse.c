/* Does everything wrong that can be done wrong with rms.h, and expects an error each time, and never a crash.
 *
 * Outside of a job it does what needs no session; inside, the rest, too. Prints "misused N times" at the end. */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <pthread.h>
#include <rms.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int n_misuses, n_wrong;

static void expect(int line, const char *call, int status, int wanted) {
    n_misuses++;
    if (status == wanted)
        return;
    char text[512];
    rms_last_error(text, sizeof text);
    fprintf(stderr, "line %d: %s gave %d (%s), not %d: %s\n", line, call, status, rms_strerror(status), wanted, text);
    n_wrong++;
}
#define EXPECT(wanted, call) expect(__LINE__, #call, (call), (wanted))

/* Of a negotiation that the server rejects at any moment, and which is over then. */
static void expect_not_now(int line, const char *call, int status) {
    expect(line, call, status, status == RMS_EUNKNOWN ? RMS_EUNKNOWN : RMS_ESTATE);
}
#define EXPECT_NOT_NOW(call) expect_not_now(__LINE__, #call, (call))

static rms_session *no_session(size_t number) { return (rms_session *)number; }

/* Every function with a session that is none. */
static void without_a_session(rms_session *none) {
    uint32_t generation;
    int64_t until;
    size_t n_nodes;
    uint64_t id;
    rms_node node = RMS_INIT(rms_node);
    rms_limits limits = RMS_INIT(rms_limits);
    rms_terms terms = RMS_INIT(rms_terms);
    rms_event event = RMS_INIT(rms_event);
    rms_change change = RMS_INIT(rms_change);
    EXPECT(RMS_ESESSION, rms_close(none));
    EXPECT(RMS_ESESSION, rms_generation(none, &generation));
    EXPECT(RMS_ESESSION, rms_until(none, &until));
    EXPECT(RMS_ESESSION, rms_next_stage(none, NULL));
    EXPECT(RMS_ESESSION, rms_nodes(none, &node, 1, &n_nodes));
    EXPECT(RMS_ESESSION, rms_nodes(none, NULL, 0, NULL));
    EXPECT(RMS_ESESSION, rms_write_hostfile(none, "/nowhere/nodes"));
    EXPECT(RMS_ESESSION, rms_declare(none, &limits));
    EXPECT(RMS_ESESSION, rms_ask(none, &terms, &id));
    EXPECT(RMS_ESESSION, rms_accept(none, 1));
    EXPECT(RMS_ESESSION, rms_counter(none, 1, &terms));
    EXPECT(RMS_ESESSION, rms_reject(none, 1));
    EXPECT(RMS_ESESSION, rms_withdraw(none, 1));
    EXPECT(RMS_ESESSION, rms_release(none, 1, NULL, 7));
    EXPECT(RMS_ESESSION, rms_fd(none));
    EXPECT(RMS_ESESSION, rms_next_event(none, -1, &event));
    EXPECT(RMS_ESESSION, rms_on_event(none, NULL, NULL));
    EXPECT(RMS_ESESSION, rms_breakpoint(none, &change));
    EXPECT(RMS_ESESSION, rms_release_done(none));
}

static void texts(void) {
    char one[1] = {'x'}, few[8], id[8];
    rms_session *session;
    EXPECT(RMS_EINVAL, rms_connect(NULL, NULL));
    size_t length = rms_last_error(NULL, 0);
    EXPECT((int)length, (int)rms_last_error(one, 0));
    EXPECT('x', one[0]);
    EXPECT((int)length, (int)rms_last_error(one, 1));
    EXPECT('\0', one[0]);
    EXPECT((int)length, (int)rms_last_error(few, sizeof few));
    EXPECT(7, (int)strlen(few));
    EXPECT(0, strcmp(rms_strerror(INT_MIN), rms_strerror(INT_MAX)));
    EXPECT(0, (int)rms_id_text(0, id, sizeof id));
    EXPECT(0, (int)rms_id_text(UINT64_MAX, NULL, 0));
    EXPECT(2, (int)rms_id_text((uint64_t)2 << 32 | 1, id, sizeof id));
    EXPECT(0, strcmp(id, "a1"));

    rms_options options = {0};
    EXPECT(RMS_EVERSION, rms_connect(&options, &session));
    options.size = SIZE_MAX;
    EXPECT(RMS_EVERSION, rms_connect(&options, &session));
    EXPECT(1, session == NULL);
    options.size = sizeof options, options.timeout_ms = -1;
    EXPECT(RMS_EINVAL, rms_connect(&options, &session));
    char room[2 * sizeof options] = {0};
    EXPECT(RMS_EINVAL, rms_connect((rms_options *)(void *)(room + 1), &session));
    EXPECT(RMS_EINVAL, rms_connect(NULL, (rms_session **)(void *)(room + 1)));
    struct { rms_options known; uint64_t unknown; } newer = {RMS_INIT(rms_options), 7};
    newer.known.size = sizeof newer;
    EXPECT(RMS_EVERSION, rms_connect(&newer.known, &session));
}

static void numbers(rms_session *rms) {
    const char latin1[] = "\xe9t\xe9", *bad_names[] = {latin1}, *null_names[] = {NULL};
    const uint64_t sizes[] = {4, 2};
    char *endless = malloc(10000);
    rms_limits limits = RMS_INIT(rms_limits);
    rms_terms terms = RMS_INIT(rms_terms);
    rms_change change = RMS_INIT(rms_change);
    rms_node node = {0};
    rms_stage stage = RMS_INIT(rms_stage), unsized = {0};
    size_t n_nodes;
    uint64_t id = 7;
    EXPECT(RMS_EINVAL, rms_generation(rms, NULL));
    EXPECT(RMS_EINVAL, rms_until(rms, NULL));
    EXPECT(RMS_EINVAL, rms_next_stage(rms, NULL));
    EXPECT(RMS_EVERSION, rms_next_stage(rms, &unsized));
    EXPECT(RMS_NOTHING, rms_next_stage(rms, &stage));
    EXPECT(RMS_EINVAL, rms_nodes(rms, NULL, 0, NULL));
    EXPECT(RMS_ESPACE, rms_nodes(rms, &node, 0, &n_nodes));
    EXPECT(RMS_EINVAL, rms_nodes(rms, NULL, 99, &n_nodes));
    EXPECT(RMS_EVERSION, rms_nodes(rms, &node, n_nodes, &n_nodes));
    EXPECT(RMS_EIO, rms_write_hostfile(rms, "/nowhere/at/all"));
    EXPECT(RMS_EINVAL, rms_write_hostfile(rms, latin1));
    memset(endless, 'x', 9999), endless[9999] = '\0';
    EXPECT(RMS_EINVAL, rms_write_hostfile(rms, endless));
    free(endless);

    EXPECT(RMS_EINVAL, rms_declare(rms, NULL));
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));
    limits.least = 3, limits.most = 2;
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));
    limits.most = 8, limits.shape = 42;
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));
    limits.shape = RMS_SIZES_LISTED, limits.sizes = sizes, limits.n_sizes = 2;
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));
    limits.sizes = NULL;
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));
    limits.sizes = sizes, limits.n_sizes = SIZE_MAX;
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));
    limits.shape = RMS_SIZES_ANY, limits.n_sizes = 0, limits.n_speedup = 1;
    EXPECT(RMS_EINVAL, rms_declare(rms, &limits));

    id = 5;
    EXPECT(RMS_EINVAL, rms_ask(rms, NULL, &id));
    EXPECT(5, (int)id);
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, NULL));
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.kind = RMS_GROW;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.quantity = UINT64_MAX;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.kind = RMS_EXTEND;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.kind = RMS_GROW, terms.quantity = 1, terms.cluster = "no such cluster";
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.cluster = latin1;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.cluster = NULL, terms.duration_ms = -5;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.duration_ms = 0, terms.deadline_ms = 5000;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id)); /* 1970 */
    terms.deadline_ms = 0, terms.kind = RMS_SHRINK, terms.nodes = null_names, terms.n_nodes = 1;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));

    terms.nodes = NULL, terms.n_nodes = 0;
    /* Fields that the kind does not have. */
    terms.kind = RMS_EXTEND, terms.quantity = 1000, terms.cluster = "zz";
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.cluster = NULL, terms.name = "gpu";
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));
    terms.kind = RMS_GROW, terms.quantity = 1;
    EXPECT(RMS_EINVAL, rms_ask(rms, &terms, &id));

    terms.name = NULL, terms.kind = RMS_SHRINK;
    const uint64_t ids[] = {0, 1, (uint64_t)1 << 32 | 77, (uint64_t)2 << 32 | 77, UINT64_MAX};
    for (int i = 0; i < 5; i++) {
        EXPECT(RMS_EUNKNOWN, rms_accept(rms, ids[i]));
        EXPECT(RMS_EUNKNOWN, rms_counter(rms, ids[i], &terms));
        EXPECT(RMS_EUNKNOWN, rms_reject(rms, ids[i]));
        EXPECT(RMS_EUNKNOWN, rms_withdraw(rms, ids[i]));
        EXPECT(RMS_EUNKNOWN, rms_release(rms, ids[i], NULL, 0));
    }
    /* One of its own, in which nobody else has proposed anything: it is there, and its phase is told. */
    terms.kind = RMS_GROW, terms.quantity = 99, terms.valid_s = 3600;
    EXPECT(RMS_OK, rms_ask(rms, &terms, &id));
    EXPECT_NOT_NOW(rms_accept(rms, id));
    EXPECT(RMS_EINVAL, rms_counter(rms, id, &terms)); /* valid_s is not of a counter-proposal */
    terms.valid_s = 0;
    EXPECT_NOT_NOW(rms_counter(rms, id, &terms));
    EXPECT_NOT_NOW(rms_reject(rms, id));
    EXPECT_NOT_NOW(rms_release(rms, id, NULL, 0));
    rms_withdraw(rms, id);
    EXPECT(RMS_EINVAL, rms_release(rms, ids[2], bad_names, 1));
    EXPECT(RMS_EINVAL, rms_release(rms, ids[2], NULL, 3));
    EXPECT(RMS_EINVAL, rms_next_event(rms, -1, NULL));
    EXPECT(RMS_EINVAL, rms_breakpoint(rms, NULL));
    EXPECT(RMS_ESTATE, rms_breakpoint(rms, &change));
    EXPECT(RMS_ESTATE, rms_release_done(rms));
}

static void in_a_child(rms_session *rms) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        rms_session *own;
        _exit(rms_close(rms) == RMS_EFORK && rms_fd(rms) == RMS_EFORK && rms_connect(NULL, &own) == RMS_EFORK ? 0 : 1);
    }
    EXPECT((int)child, (int)waitpid(child, &status, 0));
    EXPECT(0, status);
}

static void *wait_for_ever(void *rms) {
    rms_event event = RMS_INIT(rms_event);
    int status;
    while ((status = rms_next_event(rms, -1, &event)) == RMS_OK)
        ;
    return (void *)(intptr_t)status;
}

static void close_from_within(rms_session *rms, const rms_event *event, void *user) {
    (void)event;
    ((int *)user)[0] = rms_close(rms);
    ((int *)user)[1] = rms_on_event(rms, NULL, NULL);
}

static void threads(rms_session *rms) {
    int within[2] = {RMS_EBUSY, RMS_EBUSY};
    pthread_t waiting[4];
    rms_event event = RMS_INIT(rms_event);
    EXPECT(RMS_OK, rms_on_event(rms, close_from_within, within));
    EXPECT(RMS_EBUSY, rms_on_event(rms, close_from_within, within));
    EXPECT(RMS_EBUSY, rms_next_event(rms, 0, &event));
    EXPECT(RMS_OK, rms_on_event(rms, NULL, NULL));
    EXPECT(RMS_OK, rms_on_event(rms, NULL, NULL));
    EXPECT(RMS_EBUSY, within[0]);
    EXPECT(RMS_EBUSY, within[1]);
    for (int i = 0; i < 4; i++)
        pthread_create(&waiting[i], NULL, wait_for_ever, rms);
    EXPECT(RMS_OK, rms_close(rms));
    for (int i = 0; i < 4; i++) {
        void *status;
        pthread_join(waiting[i], &status);
        EXPECT(RMS_ESESSION, (int)(intptr_t)status);
    }
}

int main(void) {
    rms_session *rms = NULL;
    texts();
    without_a_session(NULL);
    without_a_session(no_session(1));
    without_a_session(no_session(9));
    without_a_session((rms_session *)(void *)&rms);
    if (getenv("RMS_JOB_CREDENTIALS") == NULL) {
        EXPECT(RMS_EJOB, rms_connect(NULL, &rms));
        EXPECT(1, rms == NULL);
    } else {
        EXPECT(RMS_OK, rms_connect(NULL, &rms));
        numbers(rms);
        in_a_child(rms);
        threads(rms);
        without_a_session(rms);
    }
    printf("misused %d times, of which %d were taken wrongly\n", n_misuses, n_wrong);
    return n_wrong != 0;
}
