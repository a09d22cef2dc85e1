/* The state of this process: how many CPUs it should use, and its connection to the supervisor. */
#ifndef RMS_PROCESS_H
#define RMS_PROCESS_H

#include <sched.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "rms_malleable.h"
#include "wire.h"

#define RMS_EXPORT __attribute__((visibility("default")))

/* The present CPUs of this process, as last published by the supervisor. */
struct rms_view {
    uint64_t seq;
    uint32_t n_cpus;
    uint32_t most;
    uint64_t mask[RMS_MASK_WORDS];
};

/* Returns how many threads a parallel region may have; 0 means no limit. Adopts a published change and acknowledges it,
 * unless the program does that itself. Cheap if nothing has changed. */
unsigned rms_limit(void);

/* Publishes the number of threads of a parallel region, for monitoring. */
void rms_note_threads(unsigned threads);

/* Returns whether this process was started in a malleable job. */
bool rms_in_job(void);

/* Joins, if this has not been tried yet; returns false if there is no supervisor. */
bool rms_joined(void);

/* Returns false if this process has not joined, or if the supervisor ended in the middle of a change. */
bool rms_look(struct rms_view *view);

/* The last change of the present page that the program was told of, and the last one that it has taken up; 0: none. */
extern _Atomic uint64_t rms_told_seq, rms_taken_up_seq;

/* From now on, the program itself acknowledges changes. */
void rms_acknowledge_by_program(void);
void rms_acknowledge(uint64_t seq, unsigned threads);
/* `rms_malleable_acknowledge`, after which changes are acknowledged by whom they were before. */
int rms_acknowledge_told(int threads);

/* Waits for a change after `seq`, or until `stop` becomes readable. Returns false if there will be no more changes. */
bool rms_wait(uint64_t seq, int stop);

/* Sends one request to the supervisor of the job over a new connection. Returns 0 or a negative error number of
 * rms_malleable.h. */
int rms_ask(struct rms_request *request, struct rms_answer *answer, int patience_ms);

/* Returns whether this is still the file that it was: the program may have closed it, and have another one under that
 * number. */
bool rms_is_file(int fd, const struct stat *identity);

/* Moves the file away from the numbers that programs expect for their own, and returns its number. */
int rms_keep_file(int fd, struct stat *identity);

#endif
