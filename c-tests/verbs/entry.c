/* What each call begins and ends with, and the small things that all files need. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static _Atomic bool forked;

struct settings settings;

/* What the environment says, once: other threads may change it later. */
static unsigned long setting(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || *text == 0) return otherwise;
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != 0) violation("%s: `%s` is not a number", name, text);
    return value;
}

void settings_read(void)
{
    settings = (struct settings){.cm_delay = setting("HAWSER_VERBS_CM_DELAY", 0),
        .cm_timeout = setting("HAWSER_VERBS_CM_TIMEOUT", 20000),
        .timewait = setting("HAWSER_VERBS_TIMEWAIT", 1000),
        .delay = setting("HAWSER_VERBS_DELAY", 0),
        .delay_from = setting("HAWSER_VERBS_DELAY_FROM", 0),
        .rank = setting("OMPI_COMM_WORLD_RANK", 0),
        .marks = setting("HAWSER_VERBS_MARK", 1) != 0,
        .strict = setting("HAWSER_VERBS_STRICT", 1) != 0,
        .control = getenv("HAWSER_VERBS_CONTROL")};
    if (settings.control != NULL && (settings.control = strdup(settings.control)) == NULL) violation("no memory");
}

uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

void *make(size_t size)
{
    void *made = calloc(1, size);
    if (made == NULL) violation("no memory");
    return made;
}

void violation(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    flockfile(stderr);
    fputs("verbs stand-in: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(list);
    abort();
}

int refuse(int error)
{
    errno = error;
    return -1;
}

void *refuse_null(int error)
{
    errno = error;
    return NULL;
}

/* --- calls */

/* `fork` leaves the child without the thread, and perhaps with a lock that nobody gives back. */
static void in_child(void)
{
    if (progress_started()) atomic_store(&forked, true);
}

__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, in_child); }

__attribute__((destructor)) static void end(void)
{
    if (atomic_load(&forked)) return;
    pthread_mutex_lock(&lock);
    ledger_write();
    pthread_mutex_unlock(&lock);
}

int enter(struct call *call)
{
    if (atomic_load(&forked)) violation("%s in a forked child", call->name);
    if (progress_inside()) violation("%s in the stand-in's own thread", call->name);
    pthread_mutex_lock(&lock);
    if (strncmp(call->name, "standin_", 8) == 0) call->name += 8;
    ledger_call(call);
    progress_start();
    const char *fault = fault_for(call);
    if (fault == NULL) return 0;
    if (strcmp(fault, "queues") != 0) return atoi(fault);
    cq_end_all(NULL);
    return 0;
}

void leave(const bool *entered)
{
    (void)entered;
    pthread_mutex_unlock(&lock);
}

void wait_for_change(uint64_t *since, const char *what)
{
    struct timespec until;
    if (*since == 0) *since = now();
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    pthread_cond_timedwait(&changed, &lock, &until);
    if (*since != 1 && now() - *since > 5000 * MILLISECOND) {
        fprintf(stderr, "verbs stand-in: still waiting for %s\n", what);
        *since = 1; /* said once */
    }
}

/* --- tags */

void must_live(const struct tag *tag, enum kind kind, const char *call, const char *what)
{
    if (strncmp(call, "standin_", 8) == 0) call += 8;
    if (tag->kind != (uint32_t)kind) violation("%s: this is no %s", call, what);
    if (!tag->alive) violation("%s: this %s has ended", call, what);
}

/* Each leads to the beginning of the next, because what is led to in the middle may be lost, as valgrind sees it. */
static void *graves;

void bury(void *object, struct tag *tag)
{
    tag->alive = false;
    tag->next = graves;
    graves = object;
}

/* --- bells */

int bell_make(struct bell *bell)
{
    bell->ringing = false;
    bell->fd = eventfd(0, EFD_CLOEXEC);
    return bell->fd < 0 ? -1 : 0;
}

void bell_set(struct bell *bell, bool ringing)
{
    uint64_t value = 1;
    if (bell->ringing == ringing) return;
    bell->ringing = ringing;
    /* It is 0 before the one and 1 before the other, so neither blocks. */
    ssize_t size = ringing ? write(bell->fd, &value, sizeof value) : read(bell->fd, &value, sizeof value);
    if (size != sizeof value) violation("a descriptor of events was read, written or closed by somebody else");
}

int bell_wait(const struct bell *bell)
{
    struct pollfd poll_on = {.fd = bell->fd, .events = POLLIN};
    int flags = fcntl(bell->fd, F_GETFL);
    if (flags < 0) return errno;
    if (flags & O_NONBLOCK) return EAGAIN;
    pthread_mutex_unlock(&lock);
    int status = poll(&poll_on, 1, -1);
    int error = status < 0 ? errno : 0;
    pthread_mutex_lock(&lock);
    return error;
}
