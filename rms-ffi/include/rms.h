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
 * See rms(3) and the guide "From C, C++ and Fortran" for the full documentation. In short:
 *
 * Results. Every function that returns int returns RMS_OK, RMS_NOTHING, or a negative RMS_E... number; then
 * rms_last_error() gives the reason as text. A NULL, a closed session or an invalid number is an error, not a crash.
 *
 * Structs begin with their size: declare them with RMS_INIT, as in
 *     rms_event event = RMS_INIT(rms_event);
 *
 * Threads. Every function may be called from every thread at any time, also for the same session. A session has
 * threads of its own, in which all signals are blocked.
 *
 * Fork. A child that was forked after rms_connect() may only call exec or _exit. Calls of the library fail with
 * RMS_EFORK there.
 *
 * Rates. A job may call rms_connect() and rms_declare(), and release nodes for a stage, 100 times per second, and send
 * 10000 other requests to the RMS. More are refused; 5 such seconds in a row end the job as a violation. Calls that
 * send nothing, like rms_breakpoint(), rms_nodes() and rms_next_event(), are not limited.
 *
 * Times are in milliseconds, but for fields that end in _s (seconds); prices are in thousandths per node and hour.
 */

/* Sets the size of a struct, and all else to 0. */
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

// Nothing came in time, or there is nothing to do. Not an error.
#define RMS_NOTHING 1

// An argument is invalid.
#define RMS_EINVAL (-1)

// The session does not exist, or was closed.
#define RMS_ESESSION (-2)

// This process was forked from the one that connected. Only exec and _exit are possible in it.
#define RMS_EFORK (-3)

// A bug in the library. Close the session.
#define RMS_EPANIC (-4)

// This process does not belong to a job that may negotiate.
#define RMS_EJOB (-5)

// There is no connection to the RMS.
#define RMS_ECONNECT (-6)

// The RMS refused the request.
#define RMS_EREFUSED (-7)

// The negotiation is unknown or over.
#define RMS_EUNKNOWN (-8)

// Not possible in the current state.
#define RMS_ESTATE (-9)

// The session is over: the job is ending, or has another negotiator.
#define RMS_EENDED (-10)

// A buffer or array of the caller is too small.
#define RMS_ESPACE (-11)

// The session is in use in another way, or too many are open.
#define RMS_EBUSY (-12)

// A file cannot be written, or the system lacks a resource.
#define RMS_EIO (-13)

// A struct is newer than the library, or its size is not set.
#define RMS_EVERSION (-14)

// No answer came in time. The RMS may or may not have received the request; it may be repeated.
#define RMS_ETIMEDOUT (-15)

// The application gets more nodes.
#define RMS_GROW 1

// The application gives back nodes.
#define RMS_SHRINK 2

// The application gets more wall time.
#define RMS_EXTEND 3

// The application will end earlier.
#define RMS_SHORTEN 4

// The application gets more cores on nodes that it has.
#define RMS_MORE_CORES 5

// The application gives back cores of its nodes.
#define RMS_FEWER_CORES 6

// The application gets more memory on nodes that it has, in MiB on each.
#define RMS_MORE_MEMORY 7

// The application gives back memory of its nodes.
#define RMS_LESS_MEMORY 8

// The application gets more devices on nodes that it has, of the name in the terms.
#define RMS_MORE_DEVICES 9

// The application gives back devices of its nodes.
#define RMS_FEWER_DEVICES 10

// The application gets more licences of a cluster, of the name in the terms.
#define RMS_MORE_LICENCES 11

// The application gives back licences of a cluster.
#define RMS_FEWER_LICENCES 12

// Any number is of use.
#define RMS_SIZES_ANY 0

// Multiples of sizes[0].
#define RMS_SIZES_MULTIPLE 1

// 1, 2, 4, 8, ...
#define RMS_SIZES_POWER_OF_TWO 2

// Only the numbers in sizes, ascending; at most 256.
#define RMS_SIZES_LISTED 3

// The RMS proposes a change, or answers a proposal with a counter-proposal. Accept, counter or reject it in time.
#define RMS_EVENT_OFFER 1

// The negotiation is agreed, but not ready yet. Growth: nodes are being prepared. Shrink: leave nodes at the next
// breakpoint, then call rms_release().
#define RMS_EVENT_AGREED 2

// The change is complete: nodes that were added can be used; nodes that were removed are gone.
#define RMS_EVENT_READY 3

// The negotiation has ended without a result; nothing has changed. But nodes that were not released in time are taken,
// which RMS_EVENT_NODES reports.
#define RMS_EVENT_OVER 4

// The nodes of the application, or the time when it is ended, have changed. The event names the nodes that can be
// used; rms_nodes() also returns nodes that are agreed but not ready yet, and another such event follows when they are
// ready. This event comes before RMS_EVENT_READY, and mostly before RMS_EVENT_AGREED and RMS_EVENT_OVER of the same
// change. Do not wait for it after another event: it may have come already, or been merged with a later one. Compare
// the generation.
#define RMS_EVENT_NODES 5

// A warning, described in the text: the RMS did not accept a request, or is temporarily unreachable.
#define RMS_EVENT_WARNING 6

// The job has ended or is being ended, also by its wall time (see rms_until). No event follows.
#define RMS_EVENT_ENDED 7

// The job has another negotiator now. No event follows.
#define RMS_EVENT_REPLACED 8

// The RMS no longer negotiates with this job. No event follows.
#define RMS_EVENT_LOST 9

// Nodes are lost, and the application continues without them: a forced shrink. Sent only to applications that set
// survives_loss or were submitted with --on-node-loss shrink; others are ended.
#define RMS_EVENT_NODES_LOST 10

// For a job with a profile: its next stage needs fewer nodes, and begins at deadline_ms. Leave these nodes, or as many
// others, and name them by rms_release() with id 0. RMS_EVENT_NODES announces nodes that a stage adds, and
// rms_next_stage() returns the stages and their times.
#define RMS_EVENT_STAGE_ENDS 11

// How a negotiation ended: a proposal was rejected.
#define RMS_REJECTED 1

// No answer came in time.
#define RMS_EXPIRED 2

// The proposal was withdrawn by its sender.
#define RMS_WITHDRAWN 3

// It was agreed, but could not be carried out.
#define RMS_FAILED 4

// Size of a buffer for the name of a node or cluster, including the terminating NUL.
#define RMS_NAME_SIZE 256

// One connection between the application and the RMS. Opaque; do not dereference it.
typedef struct rms_session rms_session;

// How to connect. All zero except the size means the defaults.
typedef struct rms_options {
    // sizeof(rms_options).
    size_t size;
    // How long to wait for the connection, and later for each answer. 0: 30 seconds.
    int64_t timeout_ms;
    // Not 0: the application continues without lost nodes, as long as it has its minimum.
    int32_t survives_loss;
    // Reserved.
    int32_t reserved;
} rms_options;

// The current stage of an application with a profile.
typedef struct rms_stage {
    // sizeof(rms_stage). Set it before the call.
    size_t size;
    // The current stage, counted from 1.
    uint32_t number;
    // The number of stages, including those that are over.
    uint32_t n_stages;
    // The nodes of the current stage.
    uint32_t nodes;
    // The nodes of the next stage; 0: this is the last one.
    uint32_t next_nodes;
    // When the current stage ends, in milliseconds since 1970 by the RMS's clock. If the nodes of the next stage are
    // not free then, it continues.
    int64_t until_ms;
} rms_stage;

// A node that the application holds.
typedef struct rms_node {
    // sizeof(rms_node). In an array, only that of the first element is read.
    size_t size;
    // Its number in the RMS.
    uint32_t node;
    // How many of its CPUs are the application's.
    uint32_t cpus;
    // Not 0: the application was asked to leave it and has not confirmed that it has.
    int32_t is_departing;
    // Not 0: it is agreed but it, or another node of the same growth, is not ready yet; nothing can be started there
    // until all are.
    int32_t is_coming;
    // Its name.
    char name[RMS_NAME_SIZE];
    // Where its agent is reached: IP address and UDP port of QUIC. Programs reach each other by the name.
    char address[RMS_NAME_SIZE];
    // The cluster that it belongs to.
    char cluster[RMS_NAME_SIZE];
} rms_node;

// The speed on a number of nodes.
typedef struct rms_speedup_point {
    // The number of nodes.
    uint32_t nodes;
    // The speed, in thousandths of that on one node.
    uint32_t milli;
} rms_speedup_point;

// The sizes between which the RMS may change the application.
typedef struct rms_limits {
    // sizeof(rms_limits).
    size_t size;
    // The minimum number of nodes, at least 1; the RMS never asks for fewer.
    uint32_t least;
    // The maximum number of nodes; the RMS never offers more.
    uint32_t most;
    // Which totals in between are of use: RMS_SIZES_...
    int32_t shape;
    // Not 0: the library itself answers the RMS's offers within these limits, and rms_breakpoint() returns the
    // resulting changes.
    int32_t automatic;
    // The numbers that the shape needs.
    const uint64_t *sizes;
    // How many numbers are in sizes.
    size_t n_sizes;
    // The declared speed-up, ascending by nodes; NULL: not declared.
    const struct rms_speedup_point *speedup;
    // How many points are in speedup.
    size_t n_speedup;
} rms_limits;

// The terms of a request or counter-proposal.
typedef struct rms_terms {
    // sizeof(rms_terms).
    size_t size;
    // RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites. A counter-proposal is
    // of the same kind as the offer, and may set 0.
    int32_t kind;
    // Which totals are of use: RMS_SIZES_...
    int32_t shape;
    // The change: a number of nodes, licences or milliseconds, or of cores, MiB or devices on each node.
    uint64_t quantity;
    // The minimum that the sender can use. 0: the quantity.
    uint64_t least;
    // The numbers that the shape needs.
    const uint64_t *sizes;
    // How many numbers are in sizes.
    size_t n_sizes;
    // The price of a node and hour, in thousandths; whoever gets nodes pays.
    uint64_t price;
    // How long they are kept after they are ready, in milliseconds. 0: until the application ends.
    int64_t duration_ms;
    // When they must be ready, in milliseconds since 1970 by the RMS's clock. 0: at any time. A time that is over is
    // RMS_EINVAL.
    int64_t deadline_ms;
    // Higher is more urgent; a hint, not binding.
    int32_t priority;
    // How many seconds to wait for an answer, and for nodes to become free. 0: 60; more than an hour counts as an
    // hour. 0 in a counter-proposal, which waits 60 seconds.
    uint32_t valid_s;
    // The cluster, whether the application has nodes there or not. NULL: that of its first node. Wall time has none:
    // NULL. In a counter-proposal, that of the offer, or NULL.
    const char *cluster;
    // Shrink: the names of the nodes, as many as the quantity. NULL: they are chosen when they are released. Cores,
    // memory and devices: the nodes on which they change. NULL: all. NULL for all else.
    const char *const *nodes;
    // How many names are in nodes.
    size_t n_nodes;
    // The name of devices and licences, like gpu, gpu:a100 or matlab. NULL for all else. In a counter-proposal, that
    // of the offer, or NULL.
    const char *name;
} rms_terms;

// An event. Its text and nodes belong to the library and stay valid until the thread that received them asks for the
// next event, or until its callback returns.
typedef struct rms_event {
    // sizeof(rms_event). Set it before the call.
    size_t size;
    // RMS_EVENT_...
    int32_t kind;
    // RMS_GROW, RMS_SHRINK, RMS_EXTEND, RMS_SHORTEN, or one of RMS_MORE_... and their opposites; 0 if unknown, or if
    // the event is not about a negotiation.
    int32_t what;
    // The negotiation; 0: none.
    uint64_t id;
    // The change: a number of nodes, licences or milliseconds, or of cores, MiB or devices on each node.
    uint64_t quantity;
    // Offer: the minimum that the RMS can use.
    uint64_t least;
    // Offer: the maximum that the RMS can use.
    uint64_t most;
    // Offer: the price of a node and hour, in thousandths.
    uint64_t price;
    // Offer: how long, in milliseconds. 0: until the application ends.
    int64_t duration_ms;
    // Offer: when it must be ready, in milliseconds since 1970 by the RMS's clock. 0: at any time.
    int64_t deadline_ms;
    // Offer: when the nodes must be given back, by the same clock. 0: never.
    int64_t give_back_by_ms;
    // Offer: how long an answer is accepted, in milliseconds from when the event is taken.
    int64_t valid_ms;
    // Counts the proposals of both ends.
    uint32_t round;
    // RMS_EVENT_READY, RMS_EVENT_NODES: counts the changes of the application's nodes, from 1. 0 in other events.
    uint32_t generation;
    // RMS_EVENT_OVER: RMS_REJECTED, ...
    int32_t ending;
    // How many resources it is about. If more than one, this API can only accept or reject it; the fields describe the
    // first.
    uint32_t n_items;
    // Names of the nodes that it is about, if known. RMS_EVENT_AGREED: those that are removed unless others are
    // released.
    const char *const *nodes;
    // How many names are in nodes.
    size_t n_nodes;
    // The event or its reason as text. Never NULL.
    const char *text;
} rms_event;

// The callback for events, called in a thread of the library. It may call every function except rms_close() and
// rms_on_event(), and must return.
typedef void (*rms_event_callback)(struct rms_session *session, const struct rms_event *event, void *user);

// What to do at a breakpoint. Its nodes belong to the library and stay valid until the same thread calls
// rms_breakpoint() again.
typedef struct rms_change {
    // sizeof(rms_change). Set it before the call.
    size_t size;
    // RMS_GROW: use these nodes from now on. RMS_SHRINK: leave these nodes, then call rms_release_done(), also if
    // is_done is set.
    int32_t kind;
    // Shrink: not 0 if the RMS has already taken the nodes, or they are lost; what ran there has been killed.
    int32_t is_done;
    // The negotiation; 0: none, as a stage of the job begins, someone else requested the change, or nodes are lost.
    uint64_t id;
    // How often the application's nodes have changed so far, from 1, as rms_generation() returns it: changes that are
    // still to be reported count, so several may have the same one.
    uint32_t generation;
    // The number of nodes to use after this change.
    uint32_t n_after;
    // Names of the nodes that were added or are to be left.
    const char *const *nodes;
    // How many names are in nodes.
    size_t n_nodes;
} rms_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Connects to the RMS for the job of this process, which its environment names. From now on this session negotiates
// for the job; an older session, of any process, gets RMS_EVENT_REPLACED. Options may be NULL. Call it in one process
// of the job, for example rank 0. That process may still fork afterwards, but its children may only call exec or
// _exit.
int rms_connect(const struct rms_options *options,
                struct rms_session **session);

// Closes a session; the job keeps running with the nodes that it holds. Calls of other threads in this session return
// RMS_ESESSION, and so does every later call. Must not be called from its own callback.
int rms_close(struct rms_session *session);

// Gets the number of changes of the application's nodes, from 1; the file $RMS_GENERATION_FILE contains the same
// number.
int rms_generation(struct rms_session *session,
                   uint32_t *generation);

// Gets the time when the application is ended, in milliseconds since 1970 by the RMS's clock.
int rms_until(struct rms_session *session, int64_t *until_ms);

// Gets the current and the next stage of a job with a profile. RMS_NOTHING: the job has no profile.
int rms_next_stage(struct rms_session *session, struct rms_stage *stage);

// Gets the nodes of the application, node 0 first. Fills up to capacity elements; the first must have its size set,
// which is copied to all. Nodes that are agreed but not ready yet are included, with is_coming set. n_nodes is set to
// the number of nodes. If more than capacity, returns RMS_ESPACE and fills nothing; with NULL and 0, only gets the
// number, and returns RMS_OK.
int rms_nodes(struct rms_session *session,
              struct rms_node *nodes,
              size_t capacity,
              size_t *n_nodes);

// Writes the nodes that the application can use to a hostfile for mpirun: one line each, "name slots=cpus". Nodes that
// it is leaving, and nodes that are not ready yet, are left out. If the path is NULL, it is $RMS_HOSTFILE. The file is
// replaced by renaming, so readers never see a part of it; what is there and no regular file is left alone.
int rms_write_hostfile(struct rms_session *session,
                       const char *path);

// Declares the sizes between which the RMS may change the application from now on, instead of the limits of the
// submission.
int rms_declare(struct rms_session *session,
                const struct rms_limits *limits);

// Opens a negotiation: asks for nodes or time, or offers nodes back. Its progress is reported by events with this id;
// in each direction one can be open, opened by the program or by the RMS: one that grows (RMS_GROW, RMS_EXTEND,
// RMS_MORE_...) and one that shrinks: RMS_ESTATE if there is one. Returns when the request is sent, not when it is
// answered. A cluster, nodes or a name in terms of a kind that has none are RMS_EINVAL. If it fails, the id is left as
// it was.
int rms_ask(struct rms_session *session,
            const struct rms_terms *terms,
            uint64_t *id);

// Accepts the RMS's proposal in this negotiation. It is agreed only when RMS_EVENT_AGREED, or a later event, says so.
int rms_accept(struct rms_session *session,
               uint64_t id);

// Answers a proposal of the RMS with a counter-proposal, about the same resource: a kind, cluster or name that is not
// the offer's is RMS_EINVAL. It must not be worse for the RMS than the application's previous one.
int rms_counter(struct rms_session *session,
                uint64_t id,
                const struct rms_terms *terms);

// Rejects the RMS's proposal in this negotiation, which ends it.
int rms_reject(struct rms_session *session, uint64_t id);

// Withdraws the application's own proposal, or leaves the negotiation. If it was agreed at the same time, it goes on,
// as the next event with this id tells.
int rms_withdraw(struct rms_session *session,
                 uint64_t id);

// Releases nodes at a breakpoint, after RMS_EVENT_AGREED of a shrink: the application has left these nodes, or is
// about to; as many as agreed, without the job's first node, which stays. NULL and 0: the nodes that RMS_EVENT_AGREED
// named. Nodes among those that are lost meanwhile count as left, named or not; if all are, the shrink is ready
// without a release, and a late one is RMS_OK. What still runs there after the RMS's grace time is killed.
// RMS_EVENT_READY reports that they are gone. With id 0, after RMS_EVENT_STAGE_ENDS: the nodes to leave when the next stage begins; until then
// the application keeps them. Without a profile, id 0 is not a negotiation.
int rms_release(struct rms_session *session,
                uint64_t id,
                const char *const *nodes,
                size_t n_nodes);

// Returns a file descriptor that is readable while an event is pending, for poll(), select() or an event loop. Only
// check whether it is readable, do not read from it; rms_close() closes it. Negative: an error.
int rms_fd(struct rms_session *session);

// Gets the next event, waiting for up to this many milliseconds; 0: not at all; negative: without limit. RMS_NOTHING:
// none came. After the last one: RMS_EENDED. Each event goes to one of the threads that ask. Events that are not
// fetched are merged, so that only few are pending: only the oldest stays as it was when it came, or, with automatic
// set, the last 64. The current state is returned by rms_nodes(), rms_generation() and rms_until(). An offer that
// expired before it was read is not delivered, only that it is over.
int rms_next_event(struct rms_session *session,
                   int timeout_ms,
                   struct rms_event *event);

// Calls a function for each event from now on, in a thread of the library, one event at a time; pending events come
// first. NULL removes it, and returns once it is no longer running. Must not be called from the callback itself.
int rms_on_event(struct rms_session *session,
                 rms_event_callback callback,
                 void *user);

// For programs that have declared limits with automatic set: call it where the program can be changed. It never
// blocks. RMS_OK: there is a change to make, see rms_change; make it, and call again. RMS_NOTHING: go on. RMS_ESTATE:
// rms_release_done() is due, after every RMS_SHRINK, even with is_done set; until then every call returns this, and
// the program is not changed further. RMS_EENDED: the session is over.
int rms_breakpoint(struct rms_session *session,
                   struct rms_change *change);

// Confirms that the application has left the nodes that rms_breakpoint() told it to leave, or continues without those
// that are already gone (is_done). Nodes that are lost while it leaves them count as left. Call it after every RMS_SHRINK, before the next rms_breakpoint(). What still runs
// on nodes that were left is killed after the RMS's grace time.
int rms_release_done(struct rms_session *session);

// Returns the version of the library, like "0.1.0". The library owns the text.
const char *rms_version(void);

// Returns the general meaning of a status. The library owns the text; it is never NULL.
const char *rms_strerror(int status);

// Gets why the latest failed call of *this thread* failed, and what to do about it. As with errno, each thread has its
// own, and a call that succeeds does not change it. Copies as much as fits, NUL-terminated; returns the full length
// without the NUL, so NULL and 0 ask for the length alone.
size_t rms_last_error(char *buffer,
                      size_t size);

// Gets the id of a negotiation as 'rms negotiations' writes it, like "a1". Copies and returns as rms_last_error()
// does; the text of an invalid number is empty.
size_t rms_id_text(uint64_t id,
                   char *buffer,
                   size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LIMBER_RMS_H */
