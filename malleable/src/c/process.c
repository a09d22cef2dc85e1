/* Connects to the supervisor of the job, and reads the shared page on which it publishes changes.
 *
 * The page is read at each parallel region, so this path is two loads. Everything else is rare, preserves errno, waits for
 * a bounded time, and leaves the program as it is if anything fails. */
#define _GNU_SOURCE
#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* A supervisor that is moving threads answers a little later. */
#define JOIN_PATIENCE_MS 1000
/* A supervisor that was killed while it wrote leaves a page that cannot be read. */
#define READ_PATIENCE_MS 100
/* The time between two attempts to connect, and the most attempts: a program that closes our connection again and again
 * runs without it. */
#define RETRY_SECONDS 1
#define MOST_JOINS 16
/* Programs expect the lowest file descriptors for their own files. */
#define FIRST_FD 200

/* The socket of the supervisor; empty if this process is not in a malleable job. Written once, before there are threads. */
static char socket_path[PATH_MAX];
static uint32_t rank, n_ranks;
/* The process id for which CPUs were reserved, if it is not its own; else 0. */
static uint32_t set_aside_for;

static _Atomic(struct rms_page *) the_page;
static _Atomic bool is_off = true;
/* The last change that OpenMP has adopted, and the limit of its threads in the low LIMIT_BITS: one value, as two threads
 * may adopt two changes at once. */
static _Atomic uint64_t adopted;
#define LIMIT_BITS 16
static _Atomic bool program_acknowledges;
_Atomic uint64_t rms_told_seq, rms_taken_up_seq;

/* Held while joining; guards the variables below. */
static pthread_mutex_t joining = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static struct stat connection_identity;
static time_t retry_at;
static int n_joins;

static bool number_of(const char *name, uint32_t *number)
{
    const char *text = getenv(name);
    if (text == NULL || *text == '\0')
        return false;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value > INT32_MAX)
        return false;
    *number = (uint32_t)value;
    return true;
}

/* Each rank on a node has CPUs of its own, whichever program started it. */
static void read_rank(void)
{
    static const char *const names[][2] = {
        {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (number_of(names[i][0], &rank) && number_of(names[i][1], &n_ranks) && rank < n_ranks)
            return;
    }
    rank = n_ranks = 0;
}

bool rms_is_file(int fd, const struct stat *identity)
{
    struct stat now;
    return fd >= 0 && fstat(fd, &now) == 0 && now.st_dev == identity->st_dev && now.st_ino == identity->st_ino;
}

/* `joining` must be held. */
static bool has_connection(void)
{
    return rms_is_file(connection, &connection_identity);
}

/* The changes of a page are counted anew. */
static void forget_changes(void)
{
    atomic_store(&adopted, 0);
    atomic_store(&rms_told_seq, 0);
    atomic_store(&rms_taken_up_seq, 0);
}

/* A child process has a page of its own, or none. This runs after a fork of a program with many threads, so it does only
 * what is safe there. */
static void after_fork(void)
{
    struct rms_page *page = atomic_load_explicit(&the_page, memory_order_relaxed);
    if (has_connection())
        close(connection);
    connection = -1;
    if (page != NULL)
        munmap(page, RMS_PAGE_BYTES);
    atomic_store(&the_page, NULL);
    atomic_store(&program_acknowledges, false);
    forget_changes();
    n_joins = 0;
    retry_at = 0;
    pthread_mutex_init(&joining, NULL);
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("RMS_MALLEABLE_SOCKET");
    if (path == NULL || *path == '\0' || strlen(path) >= sizeof socket_path)
        return;
    strcpy(socket_path, path);
    read_rank();
    if (!number_of("RMS_DROM_PRE_INIT", &set_aside_for))
        set_aside_for = 0;
    if (pthread_atfork(NULL, NULL, after_fork) == 0)
        atomic_store(&is_off, false);
}

/* Connects to a path of any length: opens the directory, and names the socket through it. */
static int connect_to(const char *path, int type)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | type, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int dir = -1;
    if (strlen(path) < sizeof address.sun_path) {
        strcpy(address.sun_path, path);
    } else {
        char parent[PATH_MAX];
        strcpy(parent, path);
        char *slash = strrchr(parent, '/');
        if (slash == NULL)
            goto failed;
        *slash = '\0';
        dir = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int n = dir < 0 ? -1 : snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", dir, slash + 1);
        if (n < 0 || (size_t)n >= sizeof address.sun_path)
            goto failed;
    }
    int connected = connect(fd, (struct sockaddr *)&address, sizeof address);
    if (dir >= 0)
        close(dir);
    if (connected == 0)
        return fd;
    close(fd);
    return -1;
failed:
    if (dir >= 0)
        close(dir);
    close(fd);
    return -1;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool wait_readable(int fd, int64_t until)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (;;) {
        int64_t left = until - now_ms();
        int n = poll(&ready, 1, left < 0 ? 0 : (int)left);
        if (n >= 0 || errno != EINTR)
            return n == 1;
    }
}

/* Receives the next message, and the file descriptor sent with it if `file` is not NULL. */
static bool receive_one(int fd, struct rms_answer *answer, int *file)
{
    memset(answer, 0, sizeof *answer);
    struct iovec whole = {.iov_base = answer, .iov_len = sizeof *answer};
    union {
        struct cmsghdr aligned;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &whole, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct cmsghdr *first = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
    int came = -1;
    if (first != NULL && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS)
        memcpy(&came, CMSG_DATA(first), sizeof came);
    bool is_answer = n >= (ssize_t)offsetof(struct rms_answer, mask) && answer->magic == RMS_MAGIC
        && answer->version == RMS_VERSION;
    if (file != NULL && is_answer && *file < 0) {
        *file = came;
    } else if (came >= 0) {
        close(came);
    }
    return is_answer;
}

/* Receives the answer to a request of this kind; notices about changes may come before it. Returns false on a timeout. */
static bool receive(int fd, uint16_t kind, struct rms_answer *answer, int *file, int patience_ms)
{
    int64_t until = now_ms() + patience_ms;
    while (wait_readable(fd, until) && receive_one(fd, answer, file)) {
        if (answer->kind == kind)
            return true;
    }
    return false;
}

static void head(struct rms_request *request, enum rms_kind kind)
{
    request->magic = RMS_MAGIC;
    request->version = RMS_VERSION;
    request->kind = (uint16_t)kind;
}

static struct rms_page *map(int file)
{
    void *memory = mmap(NULL, RMS_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
        return NULL;
    struct rms_page *page = memory;
    if (page->magic == RMS_MAGIC && page->version == RMS_VERSION)
        return page;
    munmap(memory, RMS_PAGE_BYTES);
    return NULL;
}

int rms_keep_file(int fd, struct stat *identity)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    fstat(fd, identity);
    return fd;
}

/* `joining` must be held. */
static struct rms_page *join(void)
{
    struct rms_request request = {.pid = (int32_t)set_aside_for, .rank = rank, .n_ranks = n_ranks};
    struct rms_answer answer;
    int file = -1;
    head(&request, RMS_JOIN);
    if (++n_joins > MOST_JOINS) {
        atomic_store(&is_off, true);
        return NULL;
    }
    if (has_connection())
        close(connection);
    connection = -1;
    int fd = connect_to(socket_path, SOCK_NONBLOCK);
    if (fd < 0)
        return NULL;
    bool is_heard = send(fd, &request, sizeof request, MSG_NOSIGNAL) == (ssize_t)sizeof request
        && receive(fd, RMS_JOIN, &answer, &file, JOIN_PATIENCE_MS);
    struct rms_page *page = is_heard && answer.status == 0 && file >= 0 ? map(file) : NULL;
    if (file >= 0)
        close(file);
    if (page == NULL) {
        close(fd);
        /* A supervisor that refuses would refuse again. */
        atomic_store(&is_off, is_heard);
        return NULL;
    }
    connection = rms_keep_file(fd, &connection_identity);
    atomic_store_explicit(&page->pid, (uint32_t)getpid(), memory_order_relaxed);
    forget_changes();
    atomic_store_explicit(&the_page, page, memory_order_release);
    return page;
}

/* Returns the page, or NULL if there is none. `lost`: a page that is no longer valid, or NULL. */
static struct rms_page *try_to_join(const struct rms_page *lost)
{
    if (atomic_load_explicit(&is_off, memory_order_relaxed))
        return NULL;
    int saved = errno;
    struct rms_page *page = NULL;
    struct timespec now;
    /* Another thread may just be joining: the first regions of both keep to what it is told. */
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += JOIN_PATIENCE_MS / 1000 + 1;
    if (pthread_mutex_timedlock(&joining, &until) != 0) {
        errno = saved;
        return NULL;
    }
    page = atomic_load_explicit(&the_page, memory_order_acquire);
    if (page == lost)
        page = NULL;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (page == NULL && now.tv_sec >= retry_at) {
        retry_at = now.tv_sec + RETRY_SECONDS;
        page = join();
    }
    pthread_mutex_unlock(&joining);
    errno = saved;
    return page;
}

/* Waits for at most `patience_ms` while the supervisor writes. */
static bool read_page(struct rms_page *page, struct rms_view *view, bool with_mask, int patience_ms)
{
    int64_t until = patience_ms > 0 ? now_ms() + patience_ms : 0;
    /* The supervisor writes for less than a microsecond, unless it has lost its CPU or was killed in between. */
    for (int attempt = 0; attempt < 64 || (patience_ms > 0 && now_ms() < until); attempt++) {
        if (attempt >= 64)
            sched_yield();
        uint64_t before = atomic_load_explicit(&page->seq, memory_order_acquire);
        if (before % 2 != 0)
            continue;
        view->seq = before;
        view->n_cpus = atomic_load_explicit(&page->n_cpus, memory_order_relaxed);
        view->most = atomic_load_explicit(&page->most, memory_order_relaxed);
        for (int word = 0; with_mask && word < RMS_MASK_WORDS; word++)
            view->mask[word] = atomic_load_explicit(&page->mask[word], memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&page->seq, memory_order_relaxed) == before)
            return true;
    }
    return false;
}

void rms_acknowledge(uint64_t seq, unsigned threads)
{
    struct rms_page *page = atomic_load_explicit(&the_page, memory_order_acquire);
    if (page == NULL)
        return;
    atomic_store_explicit(&page->threads, threads, memory_order_relaxed);
    uint64_t before = atomic_load_explicit(&page->acked_seq, memory_order_relaxed);
    while (before < seq
           && !atomic_compare_exchange_weak_explicit(
               &page->acked_seq, &before, seq, memory_order_release, memory_order_relaxed)) {
    }
    if (before >= seq)
        return;
    int saved = errno;
    struct rms_request word = {0};
    head(&word, RMS_ACKNOWLEDGED);
    /* A thread that is joining holds the lock; the supervisor reads the page at the deadline in any case. */
    if (pthread_mutex_trylock(&joining) == 0) {
        if (has_connection())
            send(connection, &word, offsetof(struct rms_request, mask), MSG_NOSIGNAL | MSG_DONTWAIT);
        pthread_mutex_unlock(&joining);
    }
    errno = saved;
}

static void adopt(struct rms_page *page)
{
    struct rms_view view;
    if (!read_page(page, &view, false, 0))
        return;
    if (atomic_load_explicit(&page->is_over, memory_order_relaxed)) {
        page = try_to_join(page);
        if (page == NULL || !read_page(page, &view, false, 0))
            return;
    }
    bool is_short = view.n_cpus > 0 && view.n_cpus < view.most;
    unsigned limit = is_short ? view.n_cpus : 0;
    atomic_store_explicit(&adopted, view.seq << LIMIT_BITS | limit, memory_order_relaxed);
    if (!atomic_load_explicit(&program_acknowledges, memory_order_relaxed))
        rms_acknowledge(view.seq, limit);
}

unsigned rms_limit(void)
{
    struct rms_page *page = atomic_load_explicit(&the_page, memory_order_acquire);
    if (page == NULL) {
        page = try_to_join(NULL);
        if (page == NULL)
            return 0;
    }
    uint64_t seq = atomic_load_explicit(&page->seq, memory_order_acquire);
    if (seq != atomic_load_explicit(&adopted, memory_order_relaxed) >> LIMIT_BITS)
        adopt(page);
    return atomic_load_explicit(&adopted, memory_order_relaxed) & ((1 << LIMIT_BITS) - 1);
}

void rms_note_threads(unsigned threads)
{
    struct rms_page *page = atomic_load_explicit(&the_page, memory_order_acquire);
    /* A cache line that is only read stays in the caches of all readers. */
    if (page != NULL && atomic_load_explicit(&page->threads, memory_order_relaxed) != threads)
        atomic_store_explicit(&page->threads, threads, memory_order_relaxed);
}

bool rms_in_job(void)
{
    return *socket_path != '\0';
}

bool rms_joined(void)
{
    return atomic_load_explicit(&the_page, memory_order_acquire) != NULL || try_to_join(NULL) != NULL;
}

bool rms_look(struct rms_view *view)
{
    struct rms_page *page = atomic_load_explicit(&the_page, memory_order_acquire);
    if (page != NULL && atomic_load_explicit(&page->is_over, memory_order_relaxed))
        page = try_to_join(page);
    return page != NULL && read_page(page, view, true, READ_PATIENCE_MS);
}

void rms_acknowledge_by_program(void)
{
    atomic_store_explicit(&program_acknowledges, true, memory_order_relaxed);
}

bool rms_wait(uint64_t seq, int stop)
{
    for (;;) {
        struct rms_page *page = atomic_load_explicit(&the_page, memory_order_acquire);
        if (page == NULL)
            return false;
        if (atomic_load_explicit(&page->seq, memory_order_acquire) != seq)
            return true;
        pthread_mutex_lock(&joining);
        struct pollfd ready[] = {{.fd = has_connection() ? connection : -1, .events = POLLIN},
                                 {.fd = stop, .events = POLLIN}};
        pthread_mutex_unlock(&joining);
        /* Without a connection, poll now and then. */
        int n = poll(ready, 2, ready[0].fd < 0 ? 1000 : -1);
        if (n < 0 && errno != EINTR)
            return false;
        if (n > 0 && ready[1].revents != 0)
            return false;
        if (n > 0 && ready[0].revents != 0) {
            struct rms_answer word;
            /* The program may have closed it meanwhile, and have a file of its own under this number. */
            pthread_mutex_lock(&joining);
            ssize_t length = has_connection() ? recv(connection, &word, sizeof word, MSG_DONTWAIT) : 1;
            bool is_over = length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR);
            pthread_mutex_unlock(&joining);
            if (is_over)
                return false;
        }
    }
}

int rms_ask(struct rms_request *request, struct rms_answer *answer, int patience_ms)
{
    if (!rms_in_job())
        return RMS_MALLEABLE_NO_JOB;
    request->magic = RMS_MAGIC;
    request->version = RMS_VERSION;
    int saved = errno;
    int fd = connect_to(socket_path, 0);
    int status = RMS_MALLEABLE_NO_JOB;
    if (fd >= 0) {
        bool is_heard = send(fd, request, sizeof *request, MSG_NOSIGNAL) == (ssize_t)sizeof *request
            && receive(fd, request->kind, answer, NULL, patience_ms);
        status = is_heard ? answer->status : RMS_MALLEABLE_FAILED;
        close(fd);
    }
    errno = saved;
    return status;
}
