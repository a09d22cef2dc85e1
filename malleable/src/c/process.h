/* What the parts of the library know of this process: how many CPUs it is to use, and how to ask the supervisor. */
#ifndef RMS_PROCESS_H
#define RMS_PROCESS_H

#include <sched.h>
#include <stdbool.h>

#include "rms_malleable.h"
#include "wire.h"

#define RMS_EXPORT __attribute__((visibility("default")))

/* The CPUs of this process now, as the supervisor has published them last. */
struct rms_view {
    uint64_t seq;
    uint32_t n_cpus;
    uint32_t most;
    uint64_t mask[RMS_MASK_WORDS];
};

/* So many threads a parallel region may have; 0: as many as the program likes. Takes up what was published, and says so
 * unless the program does that itself. Cheap where nothing has changed. */
unsigned rms_limit(void);

/* The threads of a region of the program, for those who look at the job. */
void rms_note_threads(unsigned threads);

/* Whether this process was started in such a job at all. */
bool rms_in_job(void);

/* Joins if that has not been tried; false where there is no supervisor. */
bool rms_joined(void);

/* False where this process has not joined, or the supervisor has ended in the middle of a change. */
bool rms_look(struct rms_view *view);

/* From now on the program acknowledges changes itself. */
void rms_acknowledge_by_program(void);
void rms_acknowledge(uint64_t seq, unsigned threads);

/* Waits for a change after `seq`, or until `stop` becomes readable. False: there will be none. */
bool rms_wait(uint64_t seq, int stop);

/* One question to the supervisor of the job, over a connection of its own. 0, or a negative number of rms_malleable.h. */
int rms_ask(struct rms_request *request, struct rms_answer *answer, int patience_ms);

#endif
