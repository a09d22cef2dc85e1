#ifndef LIMBER_RMS_H
#define LIMBER_RMS_H

/* Written from rms-ffi/src by `LIMBER_BLESS=1 cargo test -p rms-ffi --test header`. Change it there. */

#include <stddef.h>
#include <stdint.h>
/*
 * An application negotiates its size with the resource management system (RMS) that runs it.
 *
 *     rms_session *rms;
 *     if (rms_connect(NULL, &rms) != RMS_OK) ...
 *
 * rms(3) and the guide "From C, C++ and Fortran" tell the whole story. In short:
 *
 * Results. Every function that returns int returns RMS_OK, or RMS_NOTHING, or a negative RMS_E... number; then
 * rms_last_error() has the reason in words. Nothing crashes because of a NULL, a closed session or a foreign number.
 *
 * Structs begin with their size: declare them with RMS_INIT, as in
 *     rms_event event = RMS_INIT(rms_event);
 *
 * Threads. Every function may be called from every thread at any time, also for the same session. A session has
 * threads of its own, in which all signals are blocked.
 *
 * Fork. A child that was forked after rms_connect() may call exec or _exit. Calls of the library fail with RMS_EFORK
 * there.
 *
 * Rates. A job may call rms_connect() and rms_declare(), and release nodes for a stage, 100 times in a second, and say
 * 10000 other things to the RMS. More is refused; 5 such seconds in a row end the job as a violation. Calls that only
 * look, like rms_breakpoint(), rms_nodes() and rms_next_event(), are free.
 *
 * Times are milliseconds, prices are thousandths for a node and an hour.
 */

/* The size of a struct is set, and all else is 0. */
#ifdef __cplusplus
template <typename T> inline T rms_init() {
    T value = T();
    value.size = sizeof(T);
    return value;
}
#define RMS_INIT(type) rms_init<type>()
#else
#define RMS_INIT(type) ((type){.size = sizeof(type)})
#endif


// The call succeeded.
#define RMS_OK 0

// Nothing came within the time, or nothing is to be done. No error.
#define RMS_NOTHING 1

// An argument is not what it must be.
#define RMS_EINVAL (-1)

// That is no session, or it was closed.
#define RMS_ESESSION (-2)

// This process was forked from the one that connected. Only exec and _exit are possible in it.
#define RMS_EFORK (-3)

// A bug of the library. The session should be closed.
#define RMS_EPANIC (-4)

// This process does not belong to a job that may negotiate.
#define RMS_EJOB (-5)

// There is no connection to the RMS.
#define RMS_ECONNECT (-6)

// The RMS refuses.
#define RMS_EREFUSED (-7)

// That negotiation is not known, or is over.
#define RMS_EUNKNOWN (-8)

// That is not possible now.
#define RMS_ESTATE (-9)

// Nothing more can be said: the job is ending, or it has another negotiator.
#define RMS_EENDED (-10)

// A buffer or an array of the caller is too small.
#define RMS_ESPACE (-11)

// The session is in use in another way, or too many are open.
#define RMS_EBUSY (-12)

// A file cannot be written, or the system lacks a resource.
#define RMS_EIO (-13)

// A struct is newer than the library, or its size is not set.
#define RMS_EVERSION (-14)

// No answer came in time. It is not known whether the RMS has heard it; it may be said again.
#define RMS_ETIMEDOUT (-15)

// The application gets more nodes.
#define RMS_GROW 1

// The application gives nodes back.
#define RMS_SHRINK 2

// The application gets more wall time.
#define RMS_EXTEND 3

// The application will end earlier.
#define RMS_SHORTEN 4

// The application gets more cores on nodes that it has.
#define RMS_MORE_CORES 5

// The application gives cores of its nodes back.
#define RMS_FEWER_CORES 6

// The application gets more memory on nodes that it has, in MiB on each.
#define RMS_MORE_MEMORY 7

// The application gives memory of its nodes back.
#define RMS_LESS_MEMORY 8

// The application gets more devices on nodes that it has, of the name in the terms.
#define RMS_MORE_DEVICES 9

// The application gives devices of its nodes back.
#define RMS_FEWER_DEVICES 10

// The application gets more licences of a cluster, of the name in the terms.
#define RMS_MORE_LICENCES 11

// The application gives licences of a cluster back.
#define RMS_FEWER_LICENCES 12

// Every number of nodes is of use.
#define RMS_SIZES_ANY 0

// Multiples of sizes[0].
#define RMS_SIZES_MULTIPLE 1

// 1, 2, 4, 8, ...
#define RMS_SIZES_POWER_OF_TWO 2

// Exactly the numbers in sizes, ascending.
#define RMS_SIZES_LISTED 3

// The RMS proposes something, or answers a proposal with another. Accept, counter or reject it in time.
#define RMS_EVENT_OFFER 1

// There is agreement, and it is not ready yet. A growth: nodes are being prepared. A shrink: leave nodes at the next
// breakpoint, then say so with rms_release().
#define RMS_EVENT_AGREED 2

// It is done: the nodes that came can be used; the nodes that went are gone.
#define RMS_EVENT_READY 3

// The negotiation has ended without a result; nothing has changed. But nodes that were not released in time are
// taken: then RMS_EVENT_NODES comes, too.
#define RMS_EVENT_OVER 4

// The nodes of the application, or the time when it is ended, have changed. The event names those that can be used: nodes
// that were agreed and are not ready yet are told by rms_nodes(), and by another such event when they are.
#define RMS_EVENT_NODES 5

// Something is not as it should be, and is told in the text: the RMS did not take what was said, or is away for
// a while.
#define RMS_EVENT_WARNING 6

// The job has ended or is being ended. Nothing comes after it.
#define RMS_EVENT_ENDED 7

// The job has another negotiator now. Nothing comes after it.
#define RMS_EVENT_REPLACED 8

// The RMS does not negotiate with this job any more. Nothing comes after it.
#define RMS_EVENT_LOST 9

// Nodes are lost, and the application goes on without them: a shrink by force. Only who has set survives_loss, or was
// submitted with --on-node-loss shrink, is told; others are ended.
#define RMS_EVENT_NODES_LOST 10

// Of a job with a profile: its next stage needs fewer nodes, and begins at deadline_ms. Leave these, or as many others,
// and name them by rms_release() with the id 0. Nodes that come with a stage are told by RMS_EVENT_NODES, and
// rms_next_stage() says what comes when.
#define RMS_EVENT_STAGE_ENDS 11

// How a negotiation ended: an answer was no.
#define RMS_REJECTED 1

// No answer came in time.
#define RMS_EXPIRED 2

// Who proposed it took it back.
#define RMS_WITHDRAWN 3

// It was agreed and did not come about.
#define RMS_FAILED 4

// Room for the name of a node or a cluster, its end included.
#define RMS_NAME_SIZE 256

// One connection between the application and the RMS. Never look into it: it points nowhere.
typedef struct rms_session rms_session;

// How to connect. All zero but the size means the defaults.
typedef struct rms_options {
    // sizeof(rms_options).
    size_t size;
    // For how long a connection, and later an answer, is awaited. 0: 30 seconds.
    int64_t timeout_ms;
    // Not 0: the application goes on without nodes that are lost, as long as it has its least.
    int32_t survives_loss;
    // Nothing.
    int32_t reserved;
} rms_options;

// Where an application with a profile is.
typedef struct rms_stage {
    // sizeof(rms_stage). Set it before the call.
    size_t size;
    // The stage that it is in, counted from 1.
    uint32_t number;
    // How many there are, with those that are over.
    uint32_t n_stages;
    // How many nodes this one has.
    uint32_t nodes;
    // How many the next one has; 0: this is the last one.
    uint32_t next_nodes;
    // When this one is over, in milliseconds since 1970 by the RMS's clock. If the nodes of the next one are not free
    // then, it goes on.
    int64_t until_ms;
} rms_stage;

// A node that the application holds.
typedef struct rms_node {
    // sizeof(rms_node). Of an array, only that of the first is looked at.
    size_t size;
    // Its number in the RMS.
    uint32_t node;
    // How many of its CPUs are the application's.
    uint32_t cpus;
    // Not 0: the application was asked to leave it and has not confirmed that it has.
    int32_t is_departing;
    // Not 0: it was agreed and is not ready yet, or others that come with it are not; nothing can be started there before.
    int32_t is_coming;
    // Its name.
    char name[RMS_NAME_SIZE];
    // Where its agent is reached: IP address and UDP port of QUIC. Programs reach each other by the name.
    char address[RMS_NAME_SIZE];
    // The cluster that it belongs to.
    char cluster[RMS_NAME_SIZE];
} rms_node;

// With so many nodes, so many thousandths of the speed on one.
typedef struct rms_speedup_point {
    // The number of nodes.
    uint32_t nodes;
    // The speed, in thousandths of that on one node.
    uint32_t milli;
} rms_speedup_point;

// Between which sizes the RMS may change the application.
typedef struct rms_limits {
    // sizeof(rms_limits).
    size_t size;
    // It is never asked to hold fewer nodes; at least 1.
    uint32_t least;
    // It is never offered more.
    uint32_t most;
    // Which totals between are of use: RMS_SIZES_...
    int32_t shape;
    // Not 0: the library answers the RMS's offers within these limits by itself, and rms_breakpoint() tells what
    // came of it.
    int32_t automatic;
    // What the shape needs.
    const uint64_t *sizes;
    // How many numbers are in sizes.
    size_t n_sizes;
    // The declared speed-up, ascending by nodes; NULL: not declared.
    const struct rms_speedup_point *speedup;
    // How many points are in speedup.
    size_t n_speedup;
} rms_limits;

// What is asked for, or countered with.
typedef struct rms_terms {
    // sizeof(rms_terms).
    size_t size;
    // RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites. A counter is about the
    // same as the offer, and may say 0.
    int32_t kind;
    // Which totals are of use: RMS_SIZES_...
    int32_t shape;
    // How many nodes, licences or milliseconds, or how many cores, MiB or devices on each node, more or less.
    uint64_t quantity;
    // The sender cannot use fewer. 0: as many as the quantity.
    uint64_t least;
    // What the shape needs.
    const uint64_t *sizes;
    // How many numbers are in sizes.
    size_t n_sizes;
    // For a node and hour, in thousandths; who gets nodes pays.
    uint64_t price;
    // For how long after they are ready, in milliseconds. 0: until the application ends.
    int64_t duration_ms;
    // Ready by then, in milliseconds since 1970 by the RMS's clock. 0: whenever.
    int64_t deadline_ms;
    // Higher is more urgent; binds nobody.
    int32_t priority;
    // For how many seconds an answer is awaited, and with it for nodes to become free. 0: 60; more than an hour counts
    // as an hour.
    uint32_t valid_s;
    // On this cluster, whether the application has nodes there or not. NULL: where its first node is.
    const char *cluster;
    // A shrink: which nodes, by name, as many as the quantity. NULL: it is chosen when they are released. Of cores, memory
    // and devices: on which nodes. NULL: on all.
    const char *const *nodes;
    // How many names are in nodes.
    size_t n_nodes;
    // Of devices and licences: their name, like gpu, gpu:a100 or matlab. NULL for all else.
    const char *name;
} rms_terms;

// Something that happened. Its text and its nodes belong to the library and stay until the thread that got them asks
// for the next event, or until its callback returns.
typedef struct rms_event {
    // sizeof(rms_event). Set it before the call.
    size_t size;
    // RMS_EVENT_...
    int32_t kind;
    // RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites; 0 if it is not known,
    // or not about a negotiation.
    int32_t what;
    // Which negotiation; 0: none.
    uint64_t id;
    // How many nodes, licences or milliseconds, or how many cores, MiB or devices on each node, more or less.
    uint64_t quantity;
    // An offer: the RMS cannot use fewer.
    uint64_t least;
    // An offer: the RMS cannot use more.
    uint64_t most;
    // An offer: what a node costs for an hour, in thousandths.
    uint64_t price;
    // An offer: for how long, in milliseconds. 0: until the application ends.
    int64_t duration_ms;
    // An offer: ready by then, in milliseconds since 1970 by the RMS's clock. 0: whenever.
    int64_t deadline_ms;
    // An offer: given back by then, by the same clock. 0: never.
    int64_t give_back_by_ms;
    // An offer: for so long an answer counts, in milliseconds from when the event is taken.
    int64_t valid_ms;
    // Counts the proposals of both ends.
    uint32_t round;
    // Counts the changes of the application's nodes, from 1.
    uint32_t generation;
    // RMS_EVENT_OVER: RMS_REJECTED, ...
    int32_t ending;
    // How many resources it is about. If more than one, it can only be accepted or rejected from here; the
    // fields tell of the first.
    uint32_t n_items;
    // Names of the nodes that it is about, if they are known: of RMS_EVENT_AGREED, those that go unless others
    // are released.
    const char *const *nodes;
    // How many names are in nodes.
    size_t n_nodes;
    // The event in words, or the reason. Never NULL.
    const char *text;
} rms_event;

// What is called for each event, in a thread of the library. It may call every function but rms_close() and
// rms_on_event(), and must return.
typedef void (*rms_event_callback)(struct rms_session *session, const struct rms_event *event, void *user);

// What has to be done at a breakpoint. Its nodes belong to the library and stay until the same thread calls
// rms_breakpoint() again.
typedef struct rms_change {
    // sizeof(rms_change). Set it before the call.
    size_t size;
    // RMS_GROW: use these nodes from now on. RMS_SHRINK: leave these nodes, then call rms_release_done(), which is due
    // where is_done is set, too.
    int32_t kind;
    // A shrink, not 0: the RMS has taken the nodes already, or they are lost; what ran there has been killed.
    int32_t is_done;
    // Which negotiation; 0: none, for a stage of the job begins, others have asked, or nodes are lost.
    uint64_t id;
    // Counts the changes of the application's nodes, from 1.
    uint32_t generation;
    // How many nodes are to be used after this change.
    uint32_t n_after;
    // Names of the nodes that came or are to be left.
    const char *const *nodes;
    // How many names are in nodes.
    size_t n_nodes;
} rms_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to the RMS for the job that this process belongs to, as its environment says. From now on this
// session speaks for the job; an older one, of whatever process, gets RMS_EVENT_REPLACED. Options may be NULL.
// One process of the job does this, for example rank 0. After it, the process may still fork, but its children
// may only exec or _exit.
int rms_connect(const struct rms_options *options,
                struct rms_session **session);

// Ends a session; the job goes on with the nodes that it holds. Calls of other threads in this session return
// RMS_ESESSION, and so does every later one. Not from its own callback.
int rms_close(struct rms_session *session);

// Counts the changes of the application's nodes, from 1; the file $RMS_GENERATION_FILE says the same.
int rms_generation(struct rms_session *session, uint32_t *generation);

// When the application is ended, in milliseconds since 1970 by the RMS's clock.
int rms_until(struct rms_session *session, int64_t *until_ms);

// Where a job with a profile is, and what comes when. RMS_NOTHING: the job has no profile.
int rms_next_stage(struct rms_session *session, struct rms_stage *stage);

// The nodes of the application, node 0 first. Fills up to capacity elements, of which the first must have its size
// set; all get it. Those that were agreed and are not ready yet are among them, with is_coming set. n_nodes becomes the number of nodes. If there are more than fit, returns RMS_ESPACE and fills
// nothing; NULL and 0 ask for the number alone, and return RMS_OK.
int rms_nodes(struct rms_session *session,
              struct rms_node *nodes,
              size_t capacity,
              size_t *n_nodes);

// Writes the nodes that the application can use, as mpirun reads them: one line each, "name slots=cpus". Those that it
// is leaving, and those that are not ready yet, are not among them. The path may be NULL: then it is $RMS_HOSTFILE. Written under another name and renamed, so
// readers never see half of it.
int rms_write_hostfile(struct rms_session *session,
                       const char *path);

// Tells the RMS between which sizes it may change the application from now on, in the place of the submission's
// limits.
int rms_declare(struct rms_session *session,
                const struct rms_limits *limits);

// Opens a negotiation: asks for nodes or time, or offers nodes back. What comes of it are events with this id;
// in each direction one can be open, of the program's or of the RMS's: either one that grows (RMS_GROW, RMS_EXTEND,
// RMS_MORE_...) and one that shrinks. Returns when the request is on its way, not when it is answered.
int rms_ask(struct rms_session *session,
            const struct rms_terms *terms,
            uint64_t *id);

// Agrees to what the RMS has proposed in this negotiation. It has agreed when RMS_EVENT_AGREED, or a later
// event, says so.
int rms_accept(struct rms_session *session, uint64_t id);

// Answers a proposal of the RMS with another one. It must not be worse for the RMS than the last own one.
int rms_counter(struct rms_session *session, uint64_t id, const struct rms_terms *terms);

// Says no to what the RMS has proposed in this negotiation, which ends it.
int rms_reject(struct rms_session *session, uint64_t id);

// Takes an own proposal back, or leaves the negotiation. If it was agreed at the same time, it goes on: the next
// event of this id tells.
int rms_withdraw(struct rms_session *session,
                 uint64_t id);

// At a breakpoint, after RMS_EVENT_AGREED of a shrink: the application has left these nodes, or is about to; as many
// as agreed, without the job's first node, which stays. NULL and 0: those that were agreed by name, or else its last
// ones. What still runs there after the grace of the RMS is killed. RMS_EVENT_READY says that they are gone. With the
// id 0, after RMS_EVENT_STAGE_ENDS: the nodes that are left when the next stage begins; until then they are the
// application's. Without a profile, the id 0 is no negotiation.
int rms_release(struct rms_session *session,
                uint64_t id,
                const char *const *nodes,
                size_t n_nodes);

// A descriptor that is readable while an event waits, for poll(), select() or an event loop. Only look whether
// it is readable, do not read from it; rms_close() closes it. Negative: an error.
int rms_fd(struct rms_session *session);

// The next event, for which it waits so many milliseconds; 0: not at all; negative: as long as it takes.
// RMS_NOTHING: none came. After the last one: RMS_EENDED. Each event goes to one of the threads that ask. Events
// that nobody asks for are laid over each other, so that few wait: only the oldest one stays as it was when it came, or,
// with automatic set, the last 64. What is so now say rms_nodes(), rms_generation() and rms_until(). An offer that has run out before it was read is not told,
// only that it is over.
int rms_next_event(struct rms_session *session,
                   int timeout_ms,
                   struct rms_event *event);

// Calls a function for each event from now on, in a thread of the library, one after the other; those that wait come
// first. NULL takes it away, and returns when it is not running any more. Not from the callback itself.
int rms_on_event(struct rms_session *session,
                 rms_event_callback callback,
                 void *user);

// For programs that have declared limits with automatic set: call it where the program can be changed. It never
// waits. RMS_OK: there is something to do, see rms_change; do it, and call it again. RMS_NOTHING: go on. RMS_ESTATE:
// rms_release_done() is due, after every RMS_SHRINK, also one with is_done set; until then every call says so, and the
// program is not changed any more. RMS_EENDED: the session is over.
int rms_breakpoint(struct rms_session *session,
                   struct rms_change *change);

// The application has left the nodes that rms_breakpoint() told it to leave, or goes on without those that are gone
// already (is_done). It follows every RMS_SHRINK, before the next rms_breakpoint(). What still runs on nodes that are left
// is killed after the grace of the RMS.
int rms_release_done(struct rms_session *session);

// The version of the library, like "0.1.0". The library owns the text.
const char *rms_version(void);

// What a status means, in general. The library owns the text; it is never NULL.
const char *rms_strerror(int status);

// Why the latest call of *this thread* that failed did so, and what to do about it. As with errno, other threads
// have their own, and a call that succeeds does not change it. Copies as much as fits and ends it; returns the
// whole length without the end, so NULL and 0 ask for the length alone.
size_t rms_last_error(char *buffer,
                      size_t size);

// How 'rms negotiations' writes the number of a negotiation, like "a1". Copies and returns as rms_last_error() does;
// the text of a number that is none is empty.
size_t rms_id_text(uint64_t id,
                   char *buffer,
                   size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIMBER_RMS_H */
