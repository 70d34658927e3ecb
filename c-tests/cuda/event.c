/* Events: two counters, how often recorded and how far done. Those of an interprocess event lie in a file which
 * the other processes map. */
#define _GNU_SOURCE
#include "standin.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct event {
    CUevent handle;
    struct context *context;
    unsigned flags;
    bool opened;
    struct signal *signal;
    struct event *next;
};
static struct event *events;

/* --- signals */

struct signal *signal_make(bool shared)
{
    struct signal *signal = calloc(1, sizeof *signal);
    if (signal == NULL) abort();
    *signal = (struct signal){.references = 1, .fd = -1, .progress = &signal->own};
    if (!shared) return signal;
    struct signal *opened = NULL;
    int fd = memfd_create("hawser-cuda-event", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)PAGE) == 0) opened = signal_open(fd);
    if (opened != NULL) opened->progress->generation = memory_generation();
    if (opened == NULL && fd >= 0) close(fd);
    free(signal);
    return opened;
}

/* Owns `fd` if it succeeds. */
struct signal *signal_open(int fd)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size != (off_t)PAGE) return NULL;
    void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    struct signal *signal = at == MAP_FAILED ? NULL : calloc(1, sizeof *signal);
    if (signal != NULL) *signal = (struct signal){.references = 1, .fd = fd, .progress = at};
    return signal;
}

void signal_release(struct signal *signal)
{
    if (--signal->references > 0) return;
    if (signal->fd >= 0) {
        munmap(signal->progress, PAGE);
        close(signal->fd);
    }
    free(signal);
}

/* Whether another process may record it, so that nobody wakes who waits. */
bool signal_foreign(const struct signal *signal) { return signal->fd >= 0; }

/* --- events */

static struct event *event_of(CUevent handle) { return handle_object(HANDLE_EVENT, (uintptr_t)handle); }

struct signal *event_signal(CUevent handle)
{
    struct event *event = event_of(handle);
    return event == NULL ? NULL : event->signal;
}

int event_file(CUevent handle)
{
    struct event *event = event_of(handle);
    return event == NULL || event->opened ? -1 : event->signal->fd;
}

int event_device(CUevent handle) { return device_physical(event_of(handle)->context->device); }

CUevent event_make(struct context *context, unsigned flags, struct signal *signal, bool opened)
{
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL) abort();
    *event = (struct event){.context = context, .flags = flags, .signal = signal, .opened = opened, .next = events};
    events = event;
    ledger_add(opened ? EVENTS_OPENED : EVENTS);
    return event->handle = (CUevent)handle_make(HANDLE_EVENT, event);
}

static void destroy(struct event *event)
{
    ledger_remove(event->opened ? EVENTS_OPENED : EVENTS);
    handle_drop((uintptr_t)event->handle);
    signal_release(event->signal);
    for (struct event **at = &events; *at != NULL; at = &(*at)->next)
        if (*at == event) {
            *at = event->next;
            break;
        }
    free(event);
}

void event_close_all(struct context *context)
{
    for (struct event *event = events, *next; event != NULL; event = next) {
        next = event->next;
        if (event->context == context) destroy(event);
    }
}

CUresult cuEventCreate(CUevent *handle, unsigned flags)
{
    ENTER(NEEDS_CONTEXT);
    if (handle == NULL || flags > 7) return CUDA_ERROR_INVALID_VALUE;
    bool shared = (flags & CU_EVENT_INTERPROCESS) != 0;
    if (shared && (flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
    struct signal *signal = signal_make(shared);
    if (signal == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = event_make(context, flags, signal, false);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    ENTER(NEEDS_INIT);
    struct event *event = event_of(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    destroy(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
    ENTER(NEEDS_INIT);
    struct event *event = event_of(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    CUresult error;
    struct context *current = context_current(&error);
    if (current == NULL && (uintptr_t)stream_handle <= 2) return error;
    struct stream *stream = stream_of(current, stream_handle, &error);
    if (stream == NULL) return error;
    if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
    if (stream->context->error != CUDA_SUCCESS) return stream->context->error;
    uint64_t target = atomic_fetch_add(&event->signal->progress->recorded, 1) + 1;
    queue_submit(stream, &(struct work){.kind = WORK_RECORD, .signal = event->signal, .target = target});
    return CUDA_SUCCESS;
}

static bool complete(const struct signal *signal, uint64_t target)
{
    return atomic_load(&signal->progress->completed) >= target;
}

CUresult cuEventQuery(CUevent handle)
{
    ENTER(NEEDS_INIT);
    struct event *event = event_of(handle);
    if (event == NULL) crash("an event is asked about that has gone");
    if (event->context->error != CUDA_SUCCESS) return event->context->error;
    uint64_t target = atomic_load(&event->signal->progress->recorded);
    return complete(event->signal, target) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent handle)
{
    ENTER(NEEDS_INIT);
    struct event *event = event_of(handle);
    if (event == NULL) return CUDA_ERROR_INVALID_HANDLE;
    struct signal *signal = event->signal;
    uint64_t target = atomic_load(&signal->progress->recorded);
    signal->references++;
    while (!complete(signal, target)) queue_sleep(signal_foreign(signal));
    signal_release(signal);
    event = event_of(handle); /* another thread may have destroyed it */
    return event == NULL ? CUDA_SUCCESS : event->context->error;
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    ENTER(NEEDS_INIT);
    struct event *first = event_of(start), *last = event_of(end);
    if (milliseconds == NULL) return CUDA_ERROR_INVALID_VALUE;
    if (first == NULL || last == NULL || ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (first->context->device != last->context->device) return CUDA_ERROR_INVALID_HANDLE;
    uint64_t from = atomic_load(&first->signal->progress->recorded),
        to = atomic_load(&last->signal->progress->recorded);
    if (from == 0 || to == 0) return CUDA_ERROR_INVALID_HANDLE; /* never recorded */
    if (!complete(first->signal, from) || !complete(last->signal, to)) return CUDA_ERROR_NOT_READY;
    uint64_t begun = atomic_load(&first->signal->progress->when), ended = atomic_load(&last->signal->progress->when);
    *milliseconds = (float)(int64_t)(ended - begun) / 1e6f;
    return CUDA_SUCCESS;
}
