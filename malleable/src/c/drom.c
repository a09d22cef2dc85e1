/* DROM's calls: one process of a job reads and changes the CPUs of the others. The supervisor decides. */
#define _GNU_SOURCE
#include "drom.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

/* The supervisor always answers: a caller that waits for processes waits until the supervisor's own deadline. */
#define PATIENCE_MS 120000
/* Longer masks are an error: no machine has so many CPUs. */
#define MOST_MASK_BYTES (1 << 20)

static _Atomic bool is_attached;

void rms_bytes_of_mask(const uint64_t *words, unsigned char *mask, size_t n_bytes)
{
    memset(mask, 0, n_bytes);
    for (size_t byte = 0; byte < n_bytes && byte < 8 * RMS_MASK_WORDS; byte++)
        mask[byte] = (unsigned char)(words[byte / 8] >> (byte % 8 * 8));
}

static bool words_of_mask(const unsigned char *mask, size_t n_bytes, uint64_t *words)
{
    memset(words, 0, 8 * RMS_MASK_WORDS);
    for (size_t byte = 0; byte < n_bytes; byte++) {
        if (mask[byte] != 0 && byte >= 8 * RMS_MASK_WORDS)
            return false;
        if (byte < 8 * RMS_MASK_WORDS)
            words[byte / 8] |= (uint64_t)mask[byte] << (byte % 8 * 8);
    }
    return true;
}

bool rms_is_mask(const unsigned char *mask, size_t n_bytes)
{
    return n_bytes <= MOST_MASK_BYTES && (mask != NULL || n_bytes == 0);
}

/* Returns why a request cannot be sent. */
static int may_ask(bool is_valid)
{
    if (!rms_in_job())
        return RMS_MALLEABLE_NO_JOB;
    if (!atomic_load(&is_attached))
        return RMS_MALLEABLE_NOT_ATTACHED;
    return is_valid ? RMS_MALLEABLE_OK : RMS_MALLEABLE_INVALID;
}

static int ask(enum rms_kind kind, int pid, int flags, struct rms_request *request, struct rms_answer *answer)
{
    int status = may_ask(true);
    if (status != RMS_MALLEABLE_OK)
        return status;
    request->kind = (uint16_t)kind;
    request->pid = pid == 0 ? getpid() : pid;
    request->flags = (uint32_t)flags;
    return rms_ask(request, answer, PATIENCE_MS);
}

RMS_EXPORT int rms_drom_attach(void)
{
    struct rms_request request = {0};
    struct rms_answer answer;
    atomic_store(&is_attached, true);
    int status = ask(RMS_LIST, 0, 0, &request, &answer);
    atomic_store(&is_attached, status == RMS_MALLEABLE_OK);
    return status;
}

RMS_EXPORT int rms_drom_detach(void)
{
    if (!rms_in_job())
        return RMS_MALLEABLE_NO_JOB;
    return atomic_exchange(&is_attached, false) ? RMS_MALLEABLE_OK : RMS_MALLEABLE_NOT_ATTACHED;
}

RMS_EXPORT int rms_drom_cpus(int *n_cpus)
{
    struct rms_request request = {0};
    struct rms_answer answer;
    int status = may_ask(n_cpus != NULL);
    if (status == RMS_MALLEABLE_OK)
        status = ask(RMS_LIST, 0, 0, &request, &answer);
    if (status == RMS_MALLEABLE_OK) {
        *n_cpus = 0;
        for (int word = 0; word < RMS_MASK_WORDS; word++)
            *n_cpus += __builtin_popcountll(answer.mask[word]);
    }
    return status;
}

RMS_EXPORT int rms_drom_pids(int *pids, int *n_pids, int capacity)
{
    struct rms_request request = {0};
    struct rms_answer answer;
    if (n_pids != NULL)
        *n_pids = 0;
    int status = may_ask(n_pids != NULL && (pids != NULL || capacity <= 0));
    if (status == RMS_MALLEABLE_OK)
        status = ask(RMS_LIST, 0, 0, &request, &answer);
    while (status == RMS_MALLEABLE_OK && *n_pids < capacity && *n_pids < (int)answer.n
           && *n_pids < RMS_MOST_PROCESSES) {
        pids[*n_pids] = answer.pids[*n_pids];
        *n_pids += 1;
    }
    return status;
}

RMS_EXPORT int rms_drom_get_mask(int pid, unsigned char *mask, size_t n_bytes, int flags)
{
    struct rms_request request = {0};
    struct rms_answer answer;
    int status = may_ask(rms_is_mask(mask, n_bytes));
    if (status == RMS_MALLEABLE_OK)
        status = ask(RMS_GET, pid, flags, &request, &answer);
    if (status == RMS_MALLEABLE_OK)
        rms_bytes_of_mask(answer.mask, mask, n_bytes);
    return status;
}

static int send_mask(enum rms_kind kind, int pid, const unsigned char *mask, size_t n_bytes, int flags)
{
    struct rms_request request = {0};
    struct rms_answer answer;
    int status = may_ask(rms_is_mask(mask, n_bytes) && pid >= 0);
    if (status != RMS_MALLEABLE_OK)
        return status;
    if (!words_of_mask(mask, n_bytes, request.mask))
        return RMS_MALLEABLE_NOT_ALLOWED;
    return ask(kind, pid, flags, &request, &answer);
}

RMS_EXPORT int rms_drom_set_mask(int pid, const unsigned char *mask, size_t n_bytes, int flags)
{
    return send_mask(RMS_SET, pid, mask, n_bytes, flags);
}

RMS_EXPORT int rms_drom_pre_init(int pid, const unsigned char *mask, size_t n_bytes, int flags)
{
    return send_mask(RMS_PRE_INIT, pid, mask, n_bytes, flags);
}

RMS_EXPORT int rms_drom_post_finalize(int pid, int flags)
{
    struct rms_request request = {0};
    struct rms_answer answer;
    return ask(RMS_POST_FINALIZE, pid, flags, &request, &answer);
}
