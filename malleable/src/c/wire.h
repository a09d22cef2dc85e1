/* The protocol between a process of a job and the job's supervisor: one page of shared memory, and messages over a socket.
 *
 * src/lib.rs defines the same in Rust, and a test compares the two. All numbers are in native byte order: both ends are on
 * one machine. */
#ifndef RMS_WIRE_H
#define RMS_WIRE_H

#include <stdatomic.h>
#include <stdint.h>

#define RMS_MAGIC UINT32_C(0x4d534d52)
#define RMS_VERSION 1
#define RMS_MASK_WORDS 128
#define RMS_MOST_PROCESSES 512
#define RMS_PAGE_BYTES 4096

/* The supervisor writes the first half, the process the second half. */
struct rms_page {
    uint32_t magic;
    uint32_t version;
    /* Odd while the supervisor writes the fields below; each change adds two. */
    _Atomic uint64_t seq;
    _Atomic uint32_t n_cpus;
    /* The number of CPUs that the process had, or would have had, when the job started. */
    _Atomic uint32_t most;
    /* The supervisor no longer knows the process, which must join again. */
    _Atomic uint32_t is_over;
    uint32_t unused;
    _Atomic uint64_t mask[RMS_MASK_WORDS];
    uint8_t gap[2048 - 32 - 8 * RMS_MASK_WORDS];
    /* The last change that the process has adopted. */
    _Atomic uint64_t acked_seq;
    /* The number of threads of its last parallel region; 0 if unknown. */
    _Atomic uint32_t threads;
    _Atomic uint32_t pid;
    uint8_t rest[2032];
};

enum rms_kind {
    RMS_JOIN = 1,
    /* Wakes the supervisor, which then reads the page. No answer. */
    RMS_ACKNOWLEDGED = 2,
    RMS_LIST = 3,
    RMS_GET = 4,
    RMS_SET = 5,
    RMS_PRE_INIT = 6,
    RMS_POST_FINALIZE = 7,
    /* From the supervisor: the page has changed. */
    RMS_CHANGED = 8,
};

struct rms_request {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    int32_t pid;
    uint32_t flags;
    /* The rank, and the number of ranks of the job on this node; 0 of 0 if it is not a rank. */
    uint32_t rank;
    uint32_t n_ranks;
    uint64_t mask[RMS_MASK_WORDS];
};

struct rms_answer {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    /* 0, or an error number of rms_malleable.h. */
    int32_t status;
    /* The number of CPUs or of processes. */
    uint32_t n;
    uint32_t threads;
    uint32_t is_acknowledged;
    /* Milliseconds since 1970. */
    uint64_t since;
    uint64_t mask[RMS_MASK_WORDS];
    int32_t pids[RMS_MOST_PROCESSES];
};

_Static_assert(sizeof(struct rms_page) == RMS_PAGE_BYTES, "one page");
_Static_assert(sizeof(struct rms_request) == 24 + 8 * RMS_MASK_WORDS, "no gaps");
_Static_assert(sizeof(struct rms_answer) == 32 + 8 * RMS_MASK_WORDS + 4 * RMS_MOST_PROCESSES, "no gaps");

#endif
